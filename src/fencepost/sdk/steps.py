"""Steps of an attempt: each recorded once, before it returns, and never run again after that (W6, X10).

A step is known by its name; the digest of its arguments stands beside its value. Steps are kept as checkpoints of the
kind `steps/1`, whose payload is `{"base": digest or null, "steps": [{"arguments", "name", "value"}]}`: the steps since
`base`, which is the payload before. `value` is a text, the JSON of the value, so that the payload is canonical whatever
numbers a value has. A payload grows with the steps of its attempt until it has `GROUP_STEPS_MAX` of
them or `GROUP_BYTES_MAX` bytes, and then becomes the base of the next one; so a chain is short, and no save writes much
beside its own step.

What earlier attempts recorded is read once, when the first step is asked for: names and places stay in memory, values
in a temporary file. What this attempt records is not kept at all, since no name is asked for twice.
"""

from __future__ import annotations

import json
import os
from _thread import allocate_lock
from collections import namedtuple

from fencepost.sdk.failures import StepChanged, StepRefused
from fencepost.sdk.values import digest_of, encode_arguments, encode_value

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any, Final, NamedTuple, Protocol

    class Ask(Protocol):
        """Asks the worker for one operation; `fencepost.sdk.client.Attempt.request`."""

        def __call__(self, op: str, payload: bytes | None = None, **fields: Any) -> tuple[dict[str, Any], bytes]: ...

    class _Place(NamedTuple):
        arguments: str
        offset: int
        bytes: int

else:
    _Place = namedtuple("_Place", ("arguments", "offset", "bytes"))  # where the value of an earlier step lies

KIND: Final = "steps/1"
VALUE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one value, and of all arguments of one step, as JSON."""
NAME_BYTES_MAX: Final = 200
STEPS_MAX: Final = 100_000
"""Steps of one order."""
GROUP_STEPS_MAX: Final = 32
GROUP_BYTES_MAX: Final = 16 * 1024
MEMORY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of earlier values that are held in memory; past it they lie in a file."""


class Damaged(RuntimeError):
    """Recorded steps are not what was recorded."""


class Steps:
    """The steps of one attempt. Safe for several threads; steps may run beside and inside one another."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = allocate_lock()
        self._loaded = False
        self._earlier: dict[str, _Place] = {}
        self._values: _Values | None = None
        self._used: set[str] = set()
        self._count = 0
        self._base: str | None = None
        self._last: str | None = None
        self._group: list[bytes] = []
        self._group_bytes = 0

    def run(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The value of the step: recorded earlier, or now. Raises StepRefused, StepChanged, what `function` raises, and
        what the worker refuses."""
        _check_name(name)
        if not callable(function):
            message = f"step {name!r} is given a value of type {type(function).__name__} where a function is meant"
            raise StepRefused(f"{message}: attempt.step(name, function, its arguments)")
        digest = digest_of(encode_arguments(arguments, named, name, VALUE_BYTES_MAX))
        with self._lock:
            self._load()
            if name in self._used:
                raise StepRefused(f"step {name!r} is asked for twice in one run; give each a name of its own")
            place = self._earlier.get(name)
            if place is not None and place.arguments != digest:
                raise StepChanged(f"step {name!r} was recorded with other arguments; give it another name")
            if place is None and self._count >= STEPS_MAX:
                raise StepRefused(f"an order has at most {STEPS_MAX} steps")
            self._used.add(name)
            if place is not None:
                return json.loads(self._value(place))
        try:
            value = encode_value(function(*arguments, **named), f"the value of step {name!r}", VALUE_BYTES_MAX)
            step = b'{"arguments":"%b","name":%b,"value":%b}' % (digest.encode(), _text(name), _text(value.decode()))
            with self._lock:
                self._load()
                self._save(step)
        except BaseException:
            with self._lock:
                self._used.discard(name)
            raise
        return json.loads(value)

    @property
    def passed(self) -> int:
        """How many steps this run has come to, recorded by whomever."""
        with self._lock:
            return len(self._used)

    def close(self) -> None:
        """Let go of what was read. The next step reads it again."""
        with self._lock:
            if self._values is not None:
                self._values.close()
            self._values, self._loaded = None, False

    def _save(self, step: bytes) -> None:
        """Record the step; what is known changes only once it is durable."""
        base, group, size = self._base, [*self._group, step], self._group_bytes + len(step)
        if self._group and (len(group) > GROUP_STEPS_MAX or size > GROUP_BYTES_MAX):
            base, group, size = self._last, [step], len(step)
        payload = b'{"base":%b,"steps":[%b]}' % (_text(base), b",".join(group))
        try:
            self._ask("checkpoint", payload, kind=KIND)
        except BaseException:
            self._loaded = False  # it may stand there all the same: what does is read again before the next step
            raise
        self._base, self._group, self._group_bytes, self._last = base, group, size, digest_of(payload)
        self._count += 1

    def _load(self) -> None:
        if self._loaded:
            return
        if self._values is not None:
            self._values.close()  # of a reading that did not come to its end
        earlier: dict[str, _Place] = {}
        self._values = values = _Values()
        reply, payload = self._ask("resume", kind=KIND, optional=True)
        last = digest_of(payload) if reply["number"] else None
        wanted = last
        while wanted is not None:
            if wanted != last:
                payload = self._ask("resume", kind=KIND, digest=wanted)[1]
            if digest_of(payload) != wanted:
                raise Damaged(f"the recorded steps {wanted} are not what was recorded")
            wanted = _spread(payload, earlier, values)
        self._base = self._last = last
        self._group, self._group_bytes = [], 0
        self._earlier, self._count, self._loaded = earlier, len(earlier), True

    def _value(self, place: _Place) -> bytes:
        if self._values is None:
            raise Damaged("a recorded step has no value")
        return self._values.read(place.offset, place.bytes)


class _Values:
    """Values of earlier steps, one behind the other: in memory up to `MEMORY_BYTES_MAX`, past it in a file that has no
    name any more. (`tempfile` does as much, and takes longer to load than an interpreter needs to start.)"""

    def __init__(self) -> None:
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._end = 0

    def append(self, value: bytes) -> int:
        """Returns its offset."""
        offset = self._end
        self._end += len(value)
        if self._file is None and self._end > MEMORY_BYTES_MAX:
            self._file = _nameless()
            self._file.write(self._memory)
            self._memory.clear()
        if self._file is None:
            self._memory += value
        else:
            self._file.seek(offset)
            self._file.write(value)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[offset : offset + size])
        self._file.seek(offset)
        return self._file.read(size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _nameless() -> IO[bytes]:
    """A file in the temporary folder, which its attempt has of its own, that goes with its last descriptor."""
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"fencepost-steps-{os.urandom(16).hex()}")
    file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w+b")  # noqa: SIM115  # lives on
    os.unlink(path)
    return file


def _spread(payload: bytes, earlier: dict[str, _Place], values: _Values) -> str | None:
    """Take the steps of one payload in; returns its base. A later record of a name has been read before it."""
    document = json.loads(payload)
    for step in document["steps"]:
        if step["name"] in earlier:
            continue
        value = step["value"].encode()
        earlier[step["name"]] = _Place(step["arguments"], values.append(value), len(value))
    if len(earlier) > STEPS_MAX:
        raise Damaged(f"more than {STEPS_MAX} steps are recorded")
    base = document["base"]
    return None if base is None else str(base)


def _text(text: str | None) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise StepRefused(f"the name of a step is text, not of type {type(name).__name__}")
    if not name or not name.isprintable() or len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise StepRefused(f"{name[:80]!r} is no name of a step: 1 to {NAME_BYTES_MAX} bytes that can be printed")
