"""A worker's end on behalf of a command: the drain, and the kill that a second signal asks for."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.ports.threads import Threads
from fencepost.services.worker import Worker
from fencepost.surfaces.cli.signals import KILLING, TICK_S, Interrupts


def stop_worker(
    threads: Threads,
    worker: Worker,
    interrupts: Interrupts,
    *,
    say: Callable[[str], None],
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Drain the worker and return when everything of it has ended; `tick` is called meanwhile, again and again.

    A second signal kills what runs, whose end is told like that of anything that was stopped. Raises what the stop
    raises.
    """
    ended = threads.event()
    failures: list[BaseException] = []

    def stop() -> None:
        try:
            worker.stop()
        except BaseException as error:  # told by whoever waits for this thread
            failures.append(error)
        finally:
            ended.set()

    thread = threads.start(stop, name="fencepost-stop")
    killed = False
    try:
        while not ended.wait(TICK_S):
            if interrupts.again and not killed:
                killed = True
                say(KILLING)
                worker.kill()
            tick()
    finally:
        thread.join()
    if failures:
        raise failures[0]
