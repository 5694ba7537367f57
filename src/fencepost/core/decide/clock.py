"""Time: what an observation does to the domain, and what it takes to prove that a deadline has passed.

Within a boot, logical time is the source's anchor plus elapsed ticks; UTC only checks it. A reading whose UTC differs
from the anchor's prediction by more than the skew bound is kept as quarantined, moves nothing, and stops expiry and
replacement until a person has spoken. After a restart the source goes on at the domain's last value with zero
advance. Each boot of a source has a chain of its own, and sixteen are remembered: a reading of one of them is no
restart, but goes on where that boot was (decision 0016). A domain that nobody looked at for longer than half a lease,
by whichever of its sources, gives one grace interval. A wrong clock expires nothing (W8, W10; lifecycle, Time;
decision 0011).
"""

from __future__ import annotations

from typing import Any, Literal

from fencepost.core.canonical import digest_of
from fencepost.core.commands import ObserveClock, Reading
from fencepost.core.deadlines import effective_end_us, is_past
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.reasons import Refusal
from fencepost.core.records.clock import ClockDeadlineEligibility, ExpiryEligibility, LogicalClockObservation
from fencepost.core.state import CLOCK, DOMAIN, ClockState

_Deadline = Literal["backoff", "plan_deadline", "unsettled_hold", "wait"]
_Target = Literal["work_order", "plan", "budget_hold"]


def _observation(
    reading: Reading,
    disposition: Literal["accepted", "restart", "quarantined"],
    logical_us: int,
    *,
    previous: int = 0,
    grace_from_us: int = 0,
    grace_until_us: int = 0,
) -> LogicalClockObservation:
    return LogicalClockObservation(
        domain=DOMAIN,
        source=reading.source,
        utc_us=reading.utc_us,
        tick=reading.tick_us,
        tick_unit="us",
        boot_id=reading.boot_id,
        uncertainty_us=reading.uncertainty_us,
        receipt=digest_of(reading),
        disposition=disposition,
        logical_us=logical_us,
        previous=previous,
        grace_from_us=grace_from_us,
        grace_until_us=grace_until_us,
    )


def first_observation(batch: Batch, reading: Reading) -> None:
    """The scope's first reading sets the domain; a person opened the scope, so a person vouches for it."""
    batch.emit(CLOCK, _observation(reading, "accepted", reading.utc_us))


def observe(batch: Batch, command: ObserveClock) -> Decided | Refusal:
    reading = command.reading
    clock = batch.clock
    source = clock.sources.get(reading.source)
    boot = None if source is None else source.boot(reading.boot_id)
    blocked = clock.state == "clock_reconciliation_required"
    if boot is None:
        if blocked:
            return batch.decided(_told(clock))  # a restart ends no quarantine
        body = _observation(
            reading,
            "restart",
            clock.logical_us,
            previous=source.last_seq if source is not None else 0,
            grace_from_us=_grace_from_us(clock),
            grace_until_us=clock.logical_us + batch.given.limits.lease_us,
        )
        batch.emit(CLOCK, body)
        return batch.decided(_told(batch.clock))
    if reading.tick_us <= boot.last_tick or blocked:
        return batch.decided(_told(clock))  # taken before the last accepted one of its boot, or nothing may move
    elapsed_us = reading.tick_us - boot.anchor_tick
    skew_us = abs(reading.utc_us - boot.anchor_utc_us - elapsed_us)
    if skew_us > batch.given.limits.clock_skew_max_us:
        body = _observation(reading, "quarantined", clock.logical_us, previous=boot.last_seq)
        batch.emit(CLOCK, body)
        return batch.decided(_told(batch.clock))
    logical_us = max(clock.logical_us, boot.anchor_logical_us + elapsed_us)
    grace_from_us = grace_until_us = 0
    if logical_us - clock.logical_us > batch.given.limits.lease_us // 2:
        grace_from_us = _grace_from_us(clock)
        grace_until_us = logical_us + batch.given.limits.lease_us
    body = _observation(
        reading,
        "accepted",
        logical_us,
        previous=boot.last_seq,
        grace_from_us=grace_from_us,
        grace_until_us=grace_until_us,
    )
    batch.emit(CLOCK, body)
    return batch.decided(_told(batch.clock))


def _grace_from_us(clock: ClockState) -> int:
    """A second gap takes nothing from those whose grace is still open: it is theirs as well.

    What ended by the last observation had ended before the gap, and its holder may have been told so.
    """
    return clock.grace_from_us if clock.grace_until_us > clock.logical_us else clock.logical_us + 1


def _told(clock: ClockState) -> dict[str, object]:
    return {"logical_us": clock.logical_us, "state": clock.state}


def blocked(clock: ClockState) -> Refusal | None:
    """While the domain waits for a person nothing expires, is reserved or is activated."""
    if clock.state == "clock_reconciliation_required":
        return Refusal(code="clock_blocked")
    return None


def _not_due(clock: ClockState, subject: str, deadline_us: int) -> Refusal | None:
    refusal = blocked(clock)
    if refusal is not None:
        return refusal
    if not is_past(clock, deadline_us):
        return Refusal(code="not_due", detail={"subject": subject})
    return None


def _seen(batch: Batch) -> dict[str, Any]:
    """What every proof says of the clock that it rests on, and of who proves."""
    clock = batch.clock
    return {
        "domain": clock.domain,
        "observation": clock.last_seq,
        "logical_us": clock.logical_us,
        "uncertainty_us": clock.uncertainty_us,
        "clock_version": clock.version,
        "prover": batch.given.prover,
        "decision": batch.given.questions["prove_clock_deadline/clock_domain"],
    }


def prove_expiry(
    batch: Batch,
    purpose: Literal["lease_expiry", "reservation_expiry"],
    target: str,
    version: int,
    fence: int,
    deadline_us: int,
) -> Refusal | None:
    """Emit the proof that a lease or reservation has ended, or say why there is none."""
    clock = batch.clock
    refusal = _not_due(clock, target, deadline_us)
    if refusal is not None:
        return refusal
    if not is_past(clock, effective_end_us(clock, deadline_us)):
        return Refusal(code="clock_grace", detail={"subject": target})
    batch.emit(
        CLOCK,
        ExpiryEligibility(
            purpose=purpose,
            target=target,
            target_version=version,
            fence=fence,
            deadline_us=deadline_us,
            **_seen(batch),
        ),
    )
    return None


def prove_deadline(
    batch: Batch, purpose: _Deadline, target_kind: _Target, target: str, version: int, deadline_us: int
) -> Refusal | None:
    """Emit the proof that one declared deadline has passed, or say why there is none. It moves nothing."""
    refusal = _not_due(batch.clock, target, deadline_us)
    if refusal is not None:
        return refusal
    batch.emit(
        CLOCK,
        ClockDeadlineEligibility(
            purpose=purpose,
            target_kind=target_kind,
            target=target,
            target_version=version,
            deadline_us=deadline_us,
            **_seen(batch),
        ),
    )
    return None
