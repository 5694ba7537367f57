"""Calls side by side, for suites: on the threads that the suite was given, real or simulated.

Suites take time and threads from the port alone, so that each of them runs inside a simulated world as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fencepost.ports.threads import Thread, Threads

T = TypeVar("T")


class Call:
    """A call in a thread of its own. `answer` waits for it."""

    def __init__(self, threads: Threads, call: Callable[[], object]) -> None:
        self._call = call
        self._answer: object = None
        self._error: BaseException | None = None
        self._thread: Thread = threads.start(self._run, name="suite")

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except Exception as error:  # told by `answer`, to whoever waits for it
            self._error = error

    def answer(self) -> object:
        """What it returned; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answer


def together(threads: Threads, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at once and return what they returned, in order. The first error is raised here."""
    answers: list[T | None] = [None] * len(calls)

    def into(place: int, call: Callable[[], T]) -> Callable[[], None]:
        def run() -> None:
            answers[place] = call()

        return run

    running = [Call(threads, into(place, call)) for place, call in enumerate(calls)]
    for each in running:
        each.answer()
    return [answer for answer in answers if answer is not None]
