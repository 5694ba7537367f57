"""Checks of outputs against schemas, in a process of their own: see `schema_child`, which says why.

One process serves one result, and is begun with its first check, so that only orders with schemas pay for it. What a
limit ends is a problem of the document like any other, with words of its own; the next document has a new process. One
that ends for no reason of its own (somebody killed it) is asked once more.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from fencepost.adapters.artifacts.schema_child import DOCUMENT_CPU_S_MAX, LENGTH, LENGTHS, PROCESS_CPU_S_MAX
from fencepost.ports.checks import Check
from fencepost.ports.errors import StorageUnavailable

ANSWER_S_MAX: Final = 120.0
"""How long one check may take by the wall, whatever its process does: many times its limit of processor time."""
ENDED_MAX: Final = PROCESS_CPU_S_MAX // DOCUMENT_CPU_S_MAX
"""So many documents of one result may each use up a process; nothing is checked after them."""
LOOK_S: Final = 0.25  # between looks whether the answer is still wanted
TRIES_MAX: Final = 2
DYING_S_MAX: Final = 10.0  # between the end of a process's socket and its own
_KEPT: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_MODULE: Final = "fencepost.adapters.artifacts.schema_child"
_BOOTSTRAP: Final = (
    f"import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); runpy.run_module({_MODULE!r}, None, '__main__')"
)


@contextmanager
def schema_checks(must_stop: Callable[[], bool]) -> Iterator[Check]:
    """See `ports.checks.SchemaChecks`."""
    checks = _Checks(must_stop)
    try:
        yield checks.problems
    finally:
        checks.close()


class _Stopped(Exception):
    """Whoever asked does not want to know any more."""


class _Checks:
    def __init__(self, must_stop: Callable[[], bool]) -> None:
        self._must_stop = must_stop
        self._child: _Child | None = None
        self._ended = 0

    def problems(self, document: bytes, schema: bytes) -> Sequence[str] | None:
        """See `ports.checks.Check`. Raises StorageUnavailable where no process can be begun."""
        if self._ended >= ENDED_MAX:
            return [f"not checked: {ENDED_MAX} outputs before it have each used up what a check may take"]
        why = ""
        for _ in range(TRIES_MAX):
            if self._child is None:
                self._child = _Child()
            try:
                return self._child.ask(document, schema, self._must_stop)
            except _Stopped:
                self.close()
                return None
            except TimeoutError:
                self._ended += 1
                self.close()
                return [f"its check took more than {ANSWER_S_MAX:g}s"]
            except OSError:
                status = self.close(DYING_S_MAX)
            if status == -signal.SIGXCPU:
                self._ended += 1
                return [f"its check took more than {DOCUMENT_CPU_S_MAX}s of processor time"]
            why = f"signal {-status}" if status < 0 else f"exit code {status}"
        self._ended += 1
        return [f"its check ended before it had answered ({why})"]

    def close(self, patience_s: float = 0.0) -> int:
        """End the process, or wait until it has; returns what it ended with."""
        child, self._child = self._child, None
        return 0 if child is None else child.close(patience_s)


class _Child:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        paths = [os.path.abspath(path) for path in sys.path if path]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-X", "utf8", "-c", _BOOTSTRAP, json.dumps(paths)],
                    cwd="/",
                    env={name: os.environ[name] for name in _KEPT if name in os.environ},
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise StorageUnavailable(f"no process for the checks of schemas: {error.strerror or error}") from error
        self._link = ours
        self._link.setblocking(False)

    def ask(self, document: bytes, schema: bytes, must_stop: Callable[[], bool]) -> Sequence[str]:
        """Raises _Stopped, TimeoutError, and another OSError where the process has ended."""
        until = time.monotonic() + ANSWER_S_MAX
        for part in (LENGTHS.pack(len(document), len(schema)), document, schema):
            rest = memoryview(part)
            while rest:
                self._wait(select.POLLOUT, until, must_stop)
                rest = rest[self._link.send(rest) :]
        (length,) = LENGTH.unpack(self._received(LENGTH.size, until, must_stop))
        answer: list[str] = json.loads(self._received(length, until, must_stop))
        return answer

    def _received(self, count: int, until: float, must_stop: Callable[[], bool]) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._wait(select.POLLIN, until, must_stop)
            data = self._link.recv(count - len(parts))
            if not data:
                raise ConnectionResetError("the process has ended")
            parts += data
        return bytes(parts)

    def _wait(self, event: int, until: float, must_stop: Callable[[], bool]) -> None:
        poll = select.poll()
        poll.register(self._link, event)
        while not poll.poll(LOOK_S * 1_000):
            if must_stop():
                raise _Stopped
            if time.monotonic() >= until:
                raise TimeoutError

    def close(self, patience_s: float) -> int:
        """See `_Checks.close`. There is nothing in it that could be lost."""
        self._link.close()
        if patience_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(timeout=patience_s)
        self._process.kill()
        return self._process.wait()
