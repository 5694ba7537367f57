"""The child process of a callable: import it, compare it with what the order names, call it, and say what came of it.

What came of it is told in a file that the worker names, written once and whole, before the process ends: a claim with
a class of failure, a code, and a bounded text with the place in the source. The exit code is the truth where nothing
was told. Everything that the callable prints is its log, a traceback included.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections import namedtuple

from fencepost.sdk import client
from fencepost.sdk.client import Attempt, Yield
from fencepost.sdk.executor import Declared, Result, declared_of
from fencepost.sdk.failures import Failure, InputError, Stopping
from fencepost.sdk.names import several
from fencepost.sdk.wire import StaleFence, Unreachable, own

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType
    from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar

    from fencepost.sdk.failures import Kind

    P = ParamSpec("P")
    T = TypeVar("T")

    class _Outcome(NamedTuple):
        outcome: Literal["succeeded", "failed", "stopped", "yielded"]
        exit_code: int
        failure: Kind | None = None
        code: str = ""
        message: str = ""
        files: tuple[str, ...] = ()

else:
    _FIELDS = ("outcome", "exit_code", "failure", "code", "message", "files")
    _Outcome = namedtuple("_Outcome", _FIELDS, defaults=(None, "", "", ()))

OUTCOME_VERSION: Final = 1
EXIT_WELL: Final = 0
EXIT_FAILED: Final = 1
EXIT_STOPPING: Final = 75
MESSAGE_CHARACTERS_MAX: Final = 1_000
"""Characters of what an exception or a result says."""
PLACE_CHARACTERS_MAX: Final = 200
PLACES_MAX: Final = 8
"""Places in the source that a failure names, the innermost ones."""
FILES_MAX: Final = 1_000
"""Files that a result may name."""
TERMINATED: Final = "terminated"
"""The reason to stop of a process that was told by a signal."""
_OWN_FOLDER: Final = os.path.dirname(os.path.abspath(__file__))


class Outcome(_Outcome):
    """What the worker is told."""

    __slots__ = ()


class HostedAttempt(Attempt):
    """The attempt as its callable has it: a word about stopping ends it at the next thing that it says. A process that
    was forked off ends by the signal itself, as soon as no step of its own is under way."""

    signalled = ""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self._process = os.getpid()
        self._under_way: dict[int, list[str]] = {}  # names of the steps of one process

    @property
    def stopping(self) -> str:
        return self.signalled or super().stopping

    def heartbeat(self, note: str = "") -> dict[str, Any]:
        reply = super().heartbeat(note)
        self.go_on()
        return reply

    def step(self, name: str, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        under_way = own(self._under_way, lambda: [])
        under_way.append(name)
        try:
            return super().step(name, function, *arguments, **named)
        finally:
            under_way.remove(name)
            if self.signalled:
                self._end_forked()

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """The first signal to end asks; what is under way may be finished, within the grace that the signal gives."""
        self.signalled = TERMINATED
        self._end_forked()

    def _end_forked(self) -> None:
        """End a process that was forked off, unless it is at a step. Whoever made it waits for its end, and it may
        have nothing more to say at which it could be told."""
        if os.getpid() != self._process and not own(self._under_way, lambda: []):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


class ExecutorChanged(InputError):
    """The loaded function is not what the order names."""

    code = "executor_changed"


class ImportFailed(InputError):
    """The module of the callable cannot be imported, or does not have it."""

    code = "import_failed"


def main(arguments: Sequence[str]) -> int:
    """`module:function`, the name and version that its order names, and the file for the outcome."""
    call, name, version, path = arguments
    process = os.getpid()
    try:
        outcome = _called(call, Declared(name=name, version=int(version)))
    except BaseException as error:  # whatever a callable raises, SystemExit included, has to be told
        if os.getpid() != process:
            raise  # it was forked off, and ends like any other process
        outcome = _ended(error)
    if os.getpid() == process:
        _tell(path, outcome)
    return outcome.exit_code


def _called(call: str, declared: Declared) -> Outcome:
    attempt = HostedAttempt(os.environ)
    signal.signal(signal.SIGTERM, attempt.terminate)
    client.adopt(attempt)
    return _finished(_loaded(call, declared)(attempt))


def _ended(error: BaseException) -> Outcome:
    """What comes of an exception. Nothing that it does when it is asked what it says takes its outcome away."""
    if isinstance(error, Yield):
        return Outcome(outcome="yielded", exit_code=EXIT_WELL)
    if isinstance(error, Stopping | StaleFence):
        return Outcome(outcome="stopped", exit_code=EXIT_STOPPING, message=_text(error))
    try:
        outcome = _raised(error)
    except BaseException:
        outcome = _failed("executor", "callable_raised", "an exception that raises when it is asked what it is")
    try:
        # The interpreter's own writing of it: that of `traceback` is the same, and has to be loaded.
        sys.__excepthook__(type(error), error, error.__traceback__)
    except BaseException:
        return outcome  # the log is gone, or what the callable put in its place is none
    return outcome


def _loaded(call: str, declared: Declared) -> Any:
    """The function, imported from the workspace. Raises ImportFailed and ExecutorChanged."""
    module, _, function = call.partition(":")
    sys.dont_write_bytecode = True  # an attempt's workspace holds its inputs and its outputs
    sys.path.insert(0, os.getcwd())
    try:
        loaded = getattr(importlib.import_module(module), function)
    except (Failure, StaleFence, Yield):
        raise
    except SystemExit as error:
        left = f"{module} was left by sys.exit({error.code!r}) while it was imported, before {function} was called"
        raise ImportFailed(f"{call} cannot be imported: {left}") from error
    except Exception as error:
        raise ImportFailed(f"{call} cannot be imported: {_said(error)}") from error
    found = declared_of(loaded)
    if found != declared:
        says = "no executor" if found is None else f"{found.name!r} version {found.version}"
        message = f"{call} is {says}; the order names {declared.name!r} version {declared.version}"
        raise ExecutorChanged(message)
    return loaded


def _finished(result: object) -> Outcome:
    if result is None:
        return Outcome(outcome="succeeded", exit_code=EXIT_WELL)
    if not isinstance(result, Result):
        return _failed("executor", "result_invalid", f"it returned a {type(result).__name__}, not a fencepost.Result")
    if result.kind is not None:
        return _failed(result.kind, "callable_failed", _text(result.message))
    try:
        files = tuple(os.path.normpath(name) for name in several(result.files, "the files of a result"))
    except TypeError as error:
        return _failed("executor", "result_invalid", _cut(str(error)))
    if len(files) > FILES_MAX:
        return _failed("validation", "outputs_missing", f"the result names more than {FILES_MAX} files")
    wrong = [name for name in files if not os.path.isfile(name)]
    if wrong:
        return _failed("validation", "outputs_missing", f"the result names {_cut(wrong[0])!r}, which is no file")
    return Outcome(outcome="succeeded", exit_code=EXIT_WELL, files=files)


def _failed(kind: Kind, code: str, message: str) -> Outcome:
    return Outcome(outcome="failed", exit_code=EXIT_FAILED, failure=kind, code=code, message=message)


def _raised(error: BaseException) -> Outcome:
    """An exception as a failure: its class, what it said, and the innermost places that it came from."""
    kind: Kind = error.kind if isinstance(error, Failure) else "executor"
    code = error.code if isinstance(error, Failure) else "callable_raised"
    if isinstance(error, Unreachable) and error.code == "no_attempt":
        kind, code = "executor", "executor_failed"
    came_from = error.__cause__ if isinstance(error, ImportFailed) else None  # the module's own, not that of the import
    return _failed(kind, code, "\n".join([_said(error), *_places(came_from or error)]))


def _said(error: BaseException) -> str:
    text = _text(error)
    if isinstance(error, SystemExit):
        text = f"the callable left by sys.exit({text})"
    return _cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _text(said: object) -> str:
    """What somebody else's object says of itself, as a plain text."""
    try:
        return _cut("".join([str(said)]))
    except BaseException:  # whatever it raises, this process is at its end, and has an outcome to tell
        return "(it cannot say what)"


def _places(error: BaseException) -> list[str]:
    root = os.path.join(_here(), "")
    places = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if os.path.dirname(code.co_filename) != _OWN_FOLDER and not code.co_filename.startswith("<frozen "):
            place = f"{code.co_filename.removeprefix(root)}:{step.tb_lineno} in {code.co_name}"
            places.append(place[-PLACE_CHARACTERS_MAX:])
        step = step.tb_next
    return places[-PLACES_MAX:]


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # the callable has removed its workspace


def _cut(text: str) -> str:
    more = f"... ({len(text)} characters)" if len(text) > MESSAGE_CHARACTERS_MAX else ""
    kept = text[:MESSAGE_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
    return kept.replace("\0", "\\0") + more


def _tell(path: str, outcome: Outcome) -> None:
    """Write the outcome whole, so that a process that is killed now has told nothing. Where it cannot be written, the
    exit code has to do."""
    document = {
        "v": OUTCOME_VERSION,
        "outcome": outcome.outcome,
        "failure": outcome.failure,
        "code": outcome.code,
        "message": outcome.message,
        "files": [_cut(name) for name in outcome.files],
    }
    text = json.dumps(document, ensure_ascii=True)
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        return
