"""Steps of an attempt: each recorded once, before it returns, and never run again after that (W6, X10).

A step is known by its name; the digest of its arguments stands beside its value. Steps are kept as checkpoints of the
kind `steps/1`, whose payload is `{"base": digest or null, "steps": [{"arguments", "name", "value"}]}`: the steps since
`base`, which is the payload before. `value` is a text, the JSON of the value, so that the payload is canonical whatever
numbers a value has. A payload grows with each step until it has `GROUP_STEPS_MAX` of them or `GROUP_BYTES_MAX` bytes,
and then becomes the base of the next one; so a chain is short, and no save writes much beside its own step.

Other processes of the same attempt record steps in the same chain. A save says how many checkpoints it knows of, and
the worker takes in no payload that would lose a step; one that comes too late reads what is new, and goes on from that.
The first record of a step is the one that counts.

What was recorded is read once, when the first step is asked for: names and places stay in memory, values in a temporary
file. What this process records is not kept at all, since no name is asked for twice.
"""

from __future__ import annotations

import json
import os
import time
from _thread import allocate_lock
from collections import namedtuple

from fencepost.sdk.failures import StepChanged, StepRefused
from fencepost.sdk.values import digest_of, encode_arguments, encode_value
from fencepost.sdk.wire import Refused

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, NamedTuple, Protocol

    class Ask(Protocol):
        """Asks the worker for one operation; `fencepost.sdk.client.Attempt.request`."""

        def __call__(self, op: str, payload: bytes | None = None, **fields: Any) -> tuple[dict[str, Any], bytes]: ...

    class _Place(NamedTuple):
        arguments: str
        offset: int
        bytes: int

else:
    _Place = namedtuple("_Place", ("arguments", "offset", "bytes"))  # where the value of a recorded step lies

KIND: Final = "steps/1"
VALUE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one value, and of all arguments of one step, as JSON."""
NAME_BYTES_MAX: Final = 200
STEPS_MAX: Final = 100_000
"""Steps of one order."""
GROUP_STEPS_MAX: Final = 32
GROUP_BYTES_MAX: Final = 16 * 1024
MEMORY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of recorded values that are held in memory; past it they lie in a file."""
SAVES_MAX: Final = 1_000
"""How often a step is saved again because others were first."""
PAUSE_S: Final = 0.02
"""At most so long is waited before that, so that those who come too late do not come at once again."""
_END: Final = b"]}"


class Damaged(RuntimeError):
    """Recorded steps are not what was recorded."""


class Steps:
    """The steps of one attempt, as one process of it has them. Safe for several threads; steps may run beside and
    inside one another. A process that is forked off has one of its own."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = allocate_lock()
        self._used: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self._fresh = False  # whether what follows is all that is recorded, as far as this process knows
        self._recorded: dict[str, _Place | None] = {}  # None for those of this process
        self._values = _Values()
        self._count = 0  # checkpoints of the order
        self._last: str | None = None
        self._base: str | None = None  # of the last one; whatever lies behind it is in `_recorded`
        self._open = b""  # the last one without its end
        self._open_steps = 0

    def run(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The value of the step: recorded earlier, or now. Raises StepRefused, StepChanged, Damaged, what `function`
        raises, and what the worker refuses."""
        _check_name(name)
        if not callable(function):
            message = f"step {name!r} is given a value of type {type(function).__name__} where a function is meant"
            raise StepRefused(f"{message}: attempt.step(name, function, its arguments)")
        digest = digest_of(encode_arguments(arguments, named, name, VALUE_BYTES_MAX))
        with self._lock:
            if not self._fresh:
                self._read()
            if name in self._used:
                raise StepRefused(f"step {name!r} is asked for twice in one run; give each a name of its own")
            place = self._found(name, digest)
            if place is None and len(self._recorded) >= STEPS_MAX:
                raise StepRefused(f"an order has at most {STEPS_MAX} steps")
            self._used.add(name)
            if place is not None:
                return self._value(name, place)
        try:
            value = encode_value(function(*arguments, **named), f"the value of step {name!r}", VALUE_BYTES_MAX)
            step = b'{"arguments":"%b","name":%b,"value":%b}' % (digest.encode(), _text(name), _text(value.decode()))
            with self._lock:
                place = self._save(name, digest, step)
                return json.loads(value) if place is None else self._value(name, place)
        except BaseException:
            with self._lock:
                self._used.discard(name)
            raise

    @property
    def passed(self) -> int:
        """How many steps this run has come to, recorded by whomever."""
        with self._lock:
            return len(self._used)

    def close(self) -> None:
        """Let go of what was read. The next step reads it again."""
        with self._lock:
            self._values.close()
            self._forget()

    def _found(self, name: str, digest: str) -> _Place | None:
        place = self._recorded.get(name)
        if place is not None and place.arguments != digest:
            raise StepChanged(f"step {name!r} was recorded with other arguments; give it another name")
        return place

    def _save(self, name: str, digest: str, step: bytes) -> _Place | None:
        """Record the step, and return None; or where another process has recorded it by then. What is known changes
        only once it is durable."""
        for tries_left in reversed(range(SAVES_MAX)):
            if not self._fresh:
                self._read()
            place = self._found(name, digest)
            if place is not None:
                return place
            try:
                self._save_once(name, step)
                return None
            except Refused as refused:
                if refused.code != "checkpoint_moved" or not tries_left:
                    raise
            time.sleep(PAUSE_S * os.urandom(1)[0] / 255)
        raise RuntimeError("a step was neither recorded nor refused")

    def _save_once(self, name: str, step: bytes) -> None:
        base, opened, steps = self._base, self._open + b"," + step, self._open_steps + 1
        if not self._open_steps or steps > GROUP_STEPS_MAX or len(opened) > GROUP_BYTES_MAX:
            base, opened, steps = self._last, b'{"base":%b,"steps":[%b' % (_text(self._last), step), 1
        payload = opened + _END
        self._fresh = False  # until it is known to stand there, it may or may not
        reply, _ = self._ask("checkpoint", payload, kind=KIND, builds_on=self._count)
        self._base, self._open, self._open_steps = base, opened, steps
        self._last, self._count, self._fresh = digest_of(payload), reply["number"], True
        self._recorded[name] = None

    def _read(self) -> None:
        """Take in what is recorded and not known here, from the last payload back to what is known."""
        reply, payload = self._ask("resume", kind=KIND, optional=True)
        last = digest_of(payload) if reply["number"] else None
        base, steps = (None, []) if last is None else _taken_apart(payload)
        self._take_in(steps)
        wanted = base
        while wanted not in (None, self._base):
            earlier = self._ask("resume", kind=KIND, digest=wanted)[1]
            if digest_of(earlier) != wanted:
                raise Damaged(f"the recorded steps {wanted} are not what was recorded")
            wanted, found = _taken_apart(earlier)
            self._take_in(found)
        if wanted != self._base:
            raise Damaged(f"the recorded steps {self._base} are no longer among those of this order")
        self._base, self._last, self._count = base, last, reply["count"]
        self._open, self._open_steps, self._fresh = payload.removesuffix(_END), len(steps), True

    def _take_in(self, steps: list[tuple[str, str, str]]) -> None:
        """A later record of a name has been taken in before it."""
        for arguments, name, value in steps:
            if name not in self._recorded:
                data = value.encode()
                self._recorded[name] = _Place(arguments, self._values.append(data), len(data))
        if len(self._recorded) > STEPS_MAX:
            raise Damaged(f"more than {STEPS_MAX} steps are recorded")

    def _value(self, name: str, place: _Place) -> Any:
        try:
            return json.loads(self._values.read(place.offset, place.bytes))
        except (ValueError, RecursionError) as error:
            raise Damaged(f"the recorded value of step {name!r} cannot be read: {error}") from None


class _Values:
    """Values of recorded steps, one behind the other: in memory up to `MEMORY_BYTES_MAX`, past it in a file that has no
    name any more. (`tempfile` does as much, and takes longer to load than an interpreter needs to start.)"""

    def __init__(self) -> None:
        self._memory = bytearray()
        self._file = -1  # its descriptor
        self._end = 0

    def append(self, value: bytes) -> int:
        """Returns its offset."""
        offset = self._end
        self._end += len(value)
        if self._file < 0 and self._end > MEMORY_BYTES_MAX:
            self._file = _nameless()
            _write(self._file, bytes(self._memory), 0)
            self._memory.clear()
        if self._file < 0:
            self._memory += value
        else:
            _write(self._file, value, offset)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        if self._file < 0:
            return bytes(self._memory[offset : offset + size])
        return os.pread(self._file, size, offset)

    def close(self) -> None:
        """Whatever was appended is gone. A process that was forked off closes its own descriptor only."""
        self._memory.clear()
        self._end = 0
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close


def _write(file: int, data: bytes, offset: int) -> None:
    """By its place alone: a process that was forked off shares the position of the file."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def _nameless() -> int:
    """A file in the temporary folder, which its attempt has of its own, that goes with its last descriptor."""
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"fencepost-steps-{os.urandom(16).hex()}")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return file


def _taken_apart(payload: bytes) -> tuple[str | None, list[tuple[str, str, str]]]:
    """Base and steps of a payload; of each step its arguments, name and value. Raises Damaged."""
    try:
        document = json.loads(payload)
        base = document["base"]
        steps = [(step["arguments"], step["name"], step["value"]) for step in document["steps"]]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise Damaged("the recorded steps are none: their payload cannot be read") from None
    texts = [text for step in steps for text in step] + ([] if base is None else [base])
    if not steps or not all(isinstance(text, str) for text in texts) or not payload.endswith(_END):
        raise Damaged("the recorded steps are none: their payload has another form")
    return base, steps


def _text(text: str | None) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise StepRefused(f"the name of a step is text, not of type {type(name).__name__}")
    if not name or not name.isprintable() or len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise StepRefused(f"{name[:80]!r} is no name of a step: 1 to {NAME_BYTES_MAX} bytes that can be printed")
