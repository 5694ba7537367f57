"""The attempt that a program runs in, as the program sees it.

    attempt = fencepost.attempt()
    attempt.heartbeat("page 12 of 40")

Whatever is said here is durable when the call returns, and a call that is made twice counts once: charges by their
receipt, checkpoints by what they build on, files by their digest, child orders by their name. `Refused` says what was
not taken; `StaleFence` that this attempt is no longer the one that counts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping

from fencepost.sdk.failures import Stopping
from fencepost.sdk.names import Names, several
from fencepost.sdk.wire import (
    EXIT_USAGE,
    NOTHING_CHARGED,
    SAY_WHAT,
    Connection,
    Refused,
    StaleFence,
    Unreachable,
    own,
)

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, Literal, ParamSpec, TypeVar

    from fencepost.sdk.steps import Steps

    P = ParamSpec("P")
    T = TypeVar("T")
    Ended = Literal["answer", "children", "time"]

SOCKET: Final = "FENCEPOST_SOCKET"
TOKEN: Final = "FENCEPOST_TOKEN"
PARAMS: Final = "FENCEPOST_PARAMS"
WORKSPACE: Final = "FENCEPOST_WORKSPACE"
BLOB: Final = "blob/1"
STOPPING_S: Final = 1.0
"""How old an answer about stopping may be."""
PROVIDER_FIRST: Final = "default"


class Yield(SystemExit):
    """This attempt ends here and the order goes on later. Not caught, it ends the program with exit code 0, which is
    what tells the worker that the attempt has yielded."""

    def __init__(self) -> None:
        super().__init__(0)


class Attempt:
    """One attempt. Made from the environment by `attempt()`; safe for several threads and for processes that are forked
    off. Handed to a process that is started anew, it is the attempt of that process's own environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises Unreachable where the environment is not that of an attempt."""
        path, token = environment.get(SOCKET, ""), environment.get(TOKEN, "")
        if not path or not token:
            message = f"this is no attempt: {SOCKET} and {TOKEN} are not set"
            step = "run this as the command of a work order: fencepost run PLAN"
            raise Unreachable("no_attempt", message, None, step, EXIT_USAGE)
        self.connection = Connection(path, token)
        self.workspace = environment.get(WORKSPACE, "")
        self.attempt = environment.get("FENCEPOST_ATTEMPT", "")
        self.order = environment.get("FENCEPOST_WORK_ORDER", "")
        self.fence = int(environment.get("FENCEPOST_FENCE") or 0)
        self._params_path = environment.get(PARAMS, "")
        self._params: dict[str, Any] | None = None
        self._stopping = ""
        self._asked_at = 0.0
        self._steps: dict[int, Steps] = {}  # of one process
        self._waits: dict[tuple[Any, ...], int] = {}  # how often each wait, behind what was saved, has returned
        self._saved: str | None = None  # what the program has saved last, as far as it was told

    def __reduce__(self) -> tuple[Callable[[], Attempt], tuple[()]]:
        return attempt, ()  # the token stays where it is

    @property
    def params(self) -> dict[str, Any]:
        """What the plan gives this order as `params`."""
        if self._params is None:
            if self._params_path:
                with open(self._params_path, encoding="utf-8") as file:
                    self._params = json.load(file)
            else:
                self._params = {}
        return self._params or {}

    @property
    def stopping(self) -> str:
        """Why this attempt should end now, "" for no reason. Asks the worker when the last answer is a second old;
        `stale_fence` says that the attempt is over, `worker_gone` that nobody answers for it any more."""
        if not self._stopping and time.monotonic() - self._asked_at >= STOPPING_S:
            try:
                self.status()
            except StaleFence:
                self._stopping = "stale_fence"
            except Refused as refused:
                self._asked_at = time.monotonic()
                self._stopping = "" if refused.code == "busy" else "worker_gone"
        return self._stopping

    def request(self, op: str, payload: bytes | None = None, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask for one operation of the protocol. Raises Refused, StaleFence, Unreachable."""
        reply, data = self.connection.ask(op, payload, **fields)
        self._asked_at = time.monotonic()
        self._stopping = str(reply.get("stopping", ""))
        return reply, data

    def hello(self) -> dict[str, Any]:
        """Who this attempt is, what its order asks for, and what earlier attempts left."""
        return self.request("hello")[0]

    def status(self) -> dict[str, Any]:
        """How long the lease lasts, and whether the attempt should end."""
        return self.request("status")[0]

    def heartbeat(self, note: str = "") -> dict[str, Any]:
        """Say that the work goes on. At most one a second is recorded, the newest of each second."""
        return self.request("heartbeat", note=note)[0]

    def checkpoint(self, value: Any, *, kind: str = BLOB, builds_on: int | None = None) -> dict[str, Any]:
        """Keep `value`, which a later attempt gets back from `resume`: bytes or text as they are, anything else as
        JSON. With `builds_on` it is refused (`checkpoint_moved`) unless that many were accepted before it."""
        if not isinstance(value, bytes | bytearray | memoryview):
            value = _written(value)
        fields = {} if builds_on is None else {"builds_on": builds_on}
        reply = self.request("checkpoint", bytes(value), kind=kind, **fields)[0]
        if kind == BLOB:
            self._saved = reply["digest"]
        return reply

    def resume(self, kind: str = BLOB) -> bytes | None:
        """The last checkpoint of the order, of this attempt or of an earlier one; None where there is none."""
        reply, payload = self.request("resume", kind=kind, optional=True)
        return payload if reply["number"] else None

    def resume_value(self, kind: str = BLOB) -> Any:
        """As `resume`, for a checkpoint that was kept as JSON. Raises Refused (bad_value) for one that is none."""
        payload = self.resume(kind)
        if payload is None:
            return None
        try:
            return json.loads(payload)
        except (ValueError, RecursionError):
            message = f"the last checkpoint of kind {kind} is no JSON: it was kept as text or as bytes"
            raise Refused("bad_value", message, None, "read it by resume()", EXIT_USAGE) from None

    def charge(
        self,
        *,
        receipt: str,
        provider: str = PROVIDER_FIRST,
        calls: int | None = None,
        tokens_input: int | None = None,
        tokens_output: int | None = None,
        money: Mapping[str, str] | None = None,
        unknown: Names = (),
    ) -> dict[str, Any]:
        """Book what was spent, under the receipt of who was paid: the same receipt again, of whatever order, books
        nothing. `money` is currency -> decimal text. `unknown` names what was used without anybody saying how much:
        `calls`, `tokens_input`, `tokens_output`, `money:USD`; an amount beside it is the least that it was, and all
        that is still set aside of it is charged. One or the other is named, what is known to be nothing as 0: a charge
        of nothing would take the receipt from its payment. Answers in the same form, for what the attempt's budget
        limits: `left`, what is set aside still, 0 included, and `over`, what this charge took beyond that. Raises
        Refused, and TypeError for one name alone."""
        amounts: dict[str, Any] = {"calls": calls, "tokens_input": tokens_input, "tokens_output": tokens_output}
        amounts = {name: amount for name, amount in amounts.items() if amount is not None}
        if money is not None:
            amounts["money"] = _money(money)
        fields: dict[str, Any] = {"receipt": receipt, "provider": provider, "amounts": amounts}
        if names := several(unknown, "what is unknown"):
            fields["unknown"] = list(names)
        if not names and not any(amount != {} for amount in amounts.values()):
            raise Refused("out_of_range", NOTHING_CHARGED, "/amounts", SAY_WHAT, EXIT_USAGE)
        return self.request("charge", **fields)[0]

    def step(self, name: str, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """What `function` returned when this step was recorded, by this attempt or an earlier one of the order; else
        call it, record what it returns, and return that. It may run again after a crash that came before the record, so
        it does nothing to the outside; its arguments and its value are JSON, and a tuple comes back as a list. Raises
        Stopping where the attempt is to end, StepChanged where the step was recorded with other arguments, StepRefused
        for what cannot be recorded, and whatever `function` raises, which leaves nothing recorded."""
        self.go_on()
        from fencepost.sdk.steps import Steps  # `bootstrap.LATE` names what it loads

        value: T = own(self._steps, lambda: Steps(self.request)).run(name, function, arguments, named)
        return value

    def close(self) -> None:
        """Hang up. What is said later is said over a new connection."""
        self.connection.close()
        steps = self._steps.get(os.getpid())
        if steps is not None:
            steps.close()

    def go_on(self) -> None:
        """Raise Stopping if this attempt is to end now."""
        if self.stopping:
            raise Stopping(self.stopping)

    def artifact(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Keep a file of the workspace as evidence, now, whatever becomes of the attempt."""
        return self.request("artifact", path=self._inside(os.fspath(path)))[0]

    def child(self, name: str, run: Names | None = None, **order: Any) -> dict[str, Any]:
        """Submit a work order inside this one's budget; its keys are those of a plan's [[work]]. The same one again
        is found and not made twice. Raises Refused, and TypeError for a `run` that is one text."""
        table = {"name": name, **order}
        if run is not None:
            table["run"] = list(several(run, "the words of `run`"))
        return self.request("child", order=table)[0]

    def children(self) -> dict[str, Any]:
        """The child orders of this order: name -> order, state, artifacts."""
        found: dict[str, Any] = self.hello()["children"]
        return found

    def output(self, child: str, path: str) -> bytes:
        """A file that an applied child order handed in. Raises Refused (not_found)."""
        return self.request("output", child=child, path=path)[1]

    def answer(self, question: str) -> str | None:
        """What a person answered, None where nobody has yet."""
        reply = self.request("answer", question=question, optional=True)[0]
        return str(reply["value"]) if reply["answered"] else None

    def wait(
        self,
        *,
        children: Names = (),
        question: str = "",
        prompt: str = "",
        after: str | None = None,
    ) -> Ended:
        """Wait for a person's answer, for the end of all these children, or for a time, whichever comes first, and say
        which one it was: "answer", "children" or "time". Where none has come yet, end this attempt, without holding
        anything: raises Yield. The next one starts the program from its beginning, with what was checkpointed, and the
        same wait returns there. It is the same if it is asked for in the same words, behind as many steps, as often
        since the last of them, and with the same value in the last checkpoint of the program itself."""
        names = several(children, "the children")
        own_steps = self._steps.get(os.getpid())
        steps = 0 if own_steps is None else own_steps.passed
        words = (tuple(sorted(names)), question, after, steps)
        nth = self._waits.get((*words, self._saved), 0)
        fields: dict[str, Any] = {"unless_over": True, "mark": f"{steps}.{nth}"}
        if names:
            fields["children"] = list(names)
        if question:
            fields["question"] = question
        if prompt:
            fields["prompt"] = prompt
        if after is not None:
            fields["after"] = after
        reply = self.request("yield", **fields)[0]
        if reply["yielding"]:
            raise Yield
        self._saved = reply["saved"]
        self._waits[(*words, self._saved)] = nth + 1
        ended: Ended = reply["ended"]
        return ended

    def ask(self, question: str, prompt: str = "") -> str:
        """The answer of a person, waited for without holding anything: where there is none yet the attempt yields."""
        while (value := self.answer(question)) is None:
            self.wait(question=question, prompt=prompt)
        return value

    def _inside(self, path: str) -> str:
        """A path as the worker knows it: relative to the workspace. What lies elsewhere stays as it is, and is
        refused there."""
        if not self.workspace:
            return path
        whole = os.path.normpath(os.path.join(os.getcwd(), path))
        for root in (os.path.normpath(self.workspace), os.path.realpath(self.workspace)):
            if whole.startswith(root + os.sep):
                return whole[len(root) + 1 :]
        return path


def _written(value: Any) -> bytes:
    """Text as it is, anything else as JSON. Raises Refused (bad_value, lone_surrogate)."""
    try:
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
        return bytes(value.encode())
    except UnicodeEncodeError:
        message = "a text of the checkpoint holds half of a character"
        raise Refused("lone_surrogate", message, None, "write whole characters", EXIT_USAGE) from None
    except (TypeError, ValueError, RecursionError) as error:
        message = f"a checkpoint is bytes, text, or what JSON can hold: {error}"
        raise Refused("bad_value", message, None, "write text, numbers, lists and dictionaries", EXIT_USAGE) from None


def _money(money: object) -> dict[str, str]:
    """Raises Refused (wrong_type) for what is no table of texts."""
    step = 'write it like money={"USD": "0.004"}'
    if not isinstance(money, Mapping):
        message = f"money is a dictionary of currency to decimal text, not of type {type(money).__name__}"
        raise Refused("wrong_type", message, "/amounts/money", step, EXIT_USAGE)
    for currency, amount in money.items():
        if not isinstance(currency, str) or not isinstance(amount, str):
            wrong = amount if isinstance(currency, str) else currency
            message = f"currency and amount are texts, so that nothing is rounded; {wrong!r} is no text"
            raise Refused("wrong_type", message, "/amounts/money", step, EXIT_USAGE)
    return dict(money)


_current: dict[str, Attempt] = {}
_ONE: Final = "attempt"


def attempt() -> Attempt:
    """The attempt that this process runs in. Raises Unreachable where it runs in none."""
    made = _current.get(_ONE)
    return _current.setdefault(_ONE, Attempt(os.environ)) if made is None else made


def adopt(made: Attempt) -> None:
    """Let `attempt()` answer with this one, here and in what is forked off."""
    _current[_ONE] = made
