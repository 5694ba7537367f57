"""The recover stage of a worker: what ended because somebody is gone, and what time proves.

Two ways out, neither of which guesses. A holder on this host whose locks are free and whose marker nobody carries is
proved gone, and its order is free at once. Anything else waits for the recorded clock: reservations by their deadline,
leases by their end.
"""

from __future__ import annotations

from fencepost.core.commands import ExpireAttempt, ObserveClock, ProveHolderGone, SettleHold
from fencepost.core.deadlines import effective_end_us
from fencepost.core.index import LEASE, RESERVATION, UNSETTLED
from fencepost.core.state import AttemptState, ClockState, HoldState
from fencepost.core.views import is_blocked
from fencepost.kernel.group import clock_reading
from fencepost.ports.clock import Reading
from fencepost.services.means import Means, attempt_lock, estimated_now_us, worker_lock

PAGE = 64
EVIDENCE_MAX = 1_000  # characters


class Recoverer:
    """Looks at reservations, leases and unsettled holds. Everything it does is a command that the kernel judges."""

    def __init__(self, means: Means, worker: str) -> None:
        self._means = means
        self._worker = worker
        self.suspects = 0  # holders that seem gone and whose processes are not yet proved to be

    def run_once(self) -> int:
        """Return how many reservations, leases and holds were ended."""
        reading = self._means.reading()
        with self._means.kernel.reader.look() as look:
            clock = look.clock()
            now_us = estimated_now_us(clock, reading)
            rows = [*look.due(RESERVATION, limit=PAGE), *look.due(LEASE, limit=PAGE)]
            attempts = [
                value for value in look.many([row.subject for row in rows]).values() if isinstance(value, AttemptState)
            ]
            holds = look.many([row.subject for row in look.due(UNSETTLED, limit=PAGE)])
            left = look.many([hold.attempt for hold in holds.values()])
        self.suspects = 0
        done = 0
        if clock is not None and self._must_observe(clock, reading, now_us, waits=bool(attempts)):
            self._means.issue("sampler", ObserveClock(reading=clock_reading(reading)))
        for attempt in attempts:
            deadline_us = attempt.activation_deadline_us if attempt.state == "reserved" else attempt.lease_us
            ends_us = deadline_us if clock is None else effective_end_us(clock, deadline_us)
            done += self._end(attempt, reading, is_over=ends_us <= now_us)
        for hold in holds.values():
            if not isinstance(hold, HoldState):
                continue
            done += self._settle(hold, left[hold.attempt], reading, now_us)
        return done

    def _must_observe(self, clock: ClockState, reading: Reading, now_us: int, *, waits: bool) -> bool:
        """Whoever waits for an end looks at the clock meanwhile: what ends in a gap that nobody saw gets a grace.

        And where the clock does not know the boot that runs here, since it has forgotten it, nothing would ever seem
        due.
        """
        if clock.boot(reading.source, reading.boot_id) is None:
            return not is_blocked(clock)
        return waits and now_us - clock.logical_us > self._means.kernel.limits.renewal_us

    def _settle(self, hold: HoldState, attempt: AttemptState, reading: Reading, now_us: int) -> bool:
        """Settle what a cancelled attempt still holds: by the proof that its holder is gone, else by its time."""
        is_over = attempt.lease_us <= now_us
        if attempt.worker != self._worker and self._prove_gone(attempt, reading, is_over=is_over):
            return True
        if hold.settle_by_us > now_us:
            return False
        command = SettleHold(hold=hold.hold, expected=hold.version)
        return self._means.issue("dispatcher", command).ok

    def _end(self, attempt: AttemptState, reading: Reading, *, is_over: bool) -> bool:
        if attempt.worker != self._worker and self._prove_gone(attempt, reading, is_over=is_over):
            return True
        if not is_over:
            return False
        command = ExpireAttempt(attempt=attempt.attempt, expected=attempt.version)
        expired = self._means.issue("dispatcher", command).ok
        if (
            expired
            and attempt.state != "reserved"
            and (attempt.host, attempt.boot_id) == (reading.source, reading.boot_id)
        ):
            # Its keeper would have stopped the tree by now. One that is stopped itself must not let it go on later.
            lock = self._means.locks.path(attempt_lock(attempt.attempt))
            self._means.executor.end_holder(lock, attempt.attempt, attempt.boot_id, same_host=True)
        return expired

    def _prove_gone(self, attempt: AttemptState, reading: Reading, *, is_over: bool) -> bool:
        """Whether the holder was proved gone, on evidence that only its own host can give."""
        if attempt.host != reading.source:
            return False
        same_boot = attempt.boot_id == reading.boot_id
        if same_boot and self._means.locks.is_held(worker_lock(attempt.worker)):
            return False
        lock = self._means.locks.path(attempt_lock(attempt.attempt))
        executor = self._means.executor
        proof = executor.holder_proof(lock, attempt.attempt, attempt.boot_id, same_host=True)
        if not proof.gone and is_over:
            # Its keeper would have stopped the tree by now: whoever supervised it is gone as well.
            proof = executor.end_holder(lock, attempt.attempt, attempt.boot_id, same_host=True)
        if not proof.gone:
            self.suspects += 1
            return False
        receipt = self._means.issue(
            "dispatcher",
            ProveHolderGone(
                attempt=attempt.attempt,
                fence=attempt.fence,
                host=reading.source,
                boot_id=reading.boot_id,
                basis="locks_free" if same_boot else "later_boot",
                evidence="; ".join(proof.evidence)[:EVIDENCE_MAX],
            ),
        )
        if receipt.ok:
            self._means.locks.remove_if_free(attempt_lock(attempt.attempt))
        return receipt.ok
