"""Live leases of one worker: renewed from a thread of their own, so that no work can hold a renewal up (C8).

A renewal counts from the moment its request was sent. One that fails is unknown, not lost: the keeper goes on until
the last confirmed end and stops the tree before it. A lease that the kernel refuses to renew is lost: its tree is
stopped at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.core.commands import Held, RenewLeases
from fencepost.core.machines import LIVE
from fencepost.ports.errors import FencepostError
from fencepost.ports.executor import STOP_GRACE_US, Running
from fencepost.ports.threads import Lock, Thread
from fencepost.services.means import Means

AGAIN_S = 0.5  # after a renewal that the store did not take


@dataclass(kw_only=True)
class Lease:
    """One live lease. `deadline_tick_us` is its last confirmed end on this host's clock."""

    attempt: str
    order: str
    fence: int
    deadline_tick_us: int
    lost: str = ""
    stopping: bool = False
    stop_by_tick_us: int = 0  # when whatever is done for it has to have ended, once its worker wants to stop
    running: Running | None = None
    lock: Lock

    def bind(self, running: Running) -> None:
        """Tie the lease to what runs under it; a lease that was lost meanwhile stops it at once."""
        with self.lock:
            self.running = running
            running.confirm(self.deadline_tick_us)
            if self.lost:
                running.stop("lease_lost", STOP_GRACE_US)
            elif self.stopping:
                running.stop("stopped", STOP_GRACE_US)

    def must_stop(self, now_tick_us: int) -> bool:
        """Whether nothing more is to be done for it, whatever is lost by that."""
        return bool(self.lost) or (self.stopping and now_tick_us >= self.stop_by_tick_us)

    def confirm(self, deadline_tick_us: int) -> None:
        with self.lock:
            self.deadline_tick_us = deadline_tick_us
            if self.running is not None:
                self.running.confirm(deadline_tick_us)

    def lose(self, code: str) -> None:
        with self.lock:
            self.lost = code
            if self.running is not None:
                self.running.stop("lease_lost", STOP_GRACE_US)

    def drain(self, grace_us: int, now_tick_us: int) -> None:
        """Stop what runs because its own worker wants to stop. A shorter grace shortens."""
        with self.lock:
            due_us = now_tick_us + grace_us
            self.stop_by_tick_us = min(self.stop_by_tick_us, due_us) if self.stopping else due_us
            self.stopping = True
            if self.running is not None:
                self.running.stop("stopped", grace_us)


class Leases:
    """All live leases of one worker, and the thread that renews them."""

    def __init__(
        self,
        means: Means,
        worker: str,
        confirm: Callable[[], None] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        """`confirm` is called with every renewal, for whatever else lives no longer than this worker does; `after` when
        the renewal has been made, for what can wait that long."""
        self._means = means
        self._worker = worker
        self._confirm = confirm
        self._after = after
        self._live: dict[str, Lease] = {}
        self._lock = means.threads.lock()
        self._drain_us: int | None = None
        self._stop = means.threads.event()
        self._thread: Thread | None = None
        self._broken: Exception | None = None
        self.failures = 0

    def start(self) -> None:
        self._thread = self._means.threads.start(self._renew_until_stopped, name="fencepost-renewal")

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._live[lease.attempt] = lease
            draining = self._drain_us
        if draining is not None:
            lease.drain(draining, self._means.reading().tick_us)

    def drain(self, grace_us: int) -> None:
        """Stop what runs under every lease, those included that are activated while this worker drains."""
        with self._lock:
            self._drain_us = grace_us
        for lease in self.all():
            lease.drain(grace_us, self._means.reading().tick_us)

    def remove(self, lease: Lease) -> None:
        with self._lock:
            self._live.pop(lease.attempt, None)

    def all(self) -> list[Lease]:
        with self._lock:
            return list(self._live.values())

    def run_once(self) -> int:
        """Renew everything that is live in one command; return how many leases were renewed."""
        leases = {lease.attempt: lease for lease in self.all() if not lease.lost}
        if not leases:
            return 0
        sent_tick_us = self._means.reading().tick_us
        held = tuple(Held(attempt=lease.attempt, fence=lease.fence) for lease in leases.values())
        receipt = self._means.issue("dispatcher", RenewLeases(worker=self._worker, attempts=held))
        if not receipt.ok:
            self.failures += 1
            return 0
        deadline_tick_us = sent_tick_us + self._means.kernel.limits.lease_us
        for attempt in receipt.result["renewed"]:
            leases[attempt].confirm(deadline_tick_us)
        for lost in receipt.result["lost"]:
            leases[lost["attempt"]].lose(lost["code"])
        return len(receipt.result["renewed"])

    def check(self) -> None:
        """Stop at once whatever the state no longer calls live, without waiting for the next renewal.

        Raises what ended the renewals, if a fault of this program did.
        """
        if self._broken is not None:
            raise self._broken
        # The leases first, the state after: a lease is listed only once its activation is durable.
        leases = [lease for lease in self.all() if not lease.lost]
        if not leases:
            return
        with self._means.kernel.reader.look() as look:
            states = look.many([lease.attempt for lease in leases])
        for lease in leases:
            state = states.get(lease.attempt)
            if state is None or state.state not in LIVE:
                lease.lose("stale_fence")

    def _renew_until_stopped(self) -> None:
        interval_s = self._means.kernel.limits.renewal_us / 1_000_000
        wait_s = interval_s
        while not self._stop.wait(wait_s):
            try:
                self._confirm()
                self.run_once()
                self._after()
                wait_s = interval_s
            except FencepostError:
                # Unknown is not lost: the keepers end their trees before the last confirmed end, and until then
                # this asks again.
                self.failures += 1
                wait_s = min(AGAIN_S, interval_s)
            except Exception as error:
                self._broken = error
                return
