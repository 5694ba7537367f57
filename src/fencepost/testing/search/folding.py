"""Which places are the same: a digest of everything that can still make a difference, and of nothing else.

Identifiers, versions and sequence numbers are left out, since they are only ever compared for being equal; subjects
are named by what they are (an order by task and replacement, an attempt by order and ordinal). Times count from now,
and what is over for everybody is over. Workers are told apart only while they hold something. Amounts count only in
the dimensions that some ceiling of the world can name; that the others balance is checked on every edge instead.

A fold that forgot too much would hide places. `--compare` therefore expands places that were folded into
others all the same, and compares what can happen there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from fencepost.core.machines import ATTEMPT, ENDED
from fencepost.core.records.attempt import AttemptResult, LateRecord
from fencepost.core.records.plan import Wait
from fencepost.core.state import (
    CLOCK,
    Account,
    AttemptState,
    ClockState,
    HoldState,
    NameState,
    OrderState,
    PlanState,
    ReceiptState,
    ScopeState,
)
from fencepost.testing.search.moves import Cast
from fencepost.testing.search.place import Place, boot_name

_ENCODE = msgspec.msgpack.Encoder().encode
_ENDED_ATTEMPT = ATTEMPT.terminal
_OVER = None  # of a time that nobody compares any more


def key_of(place: Place, cast: Cast) -> bytes:
    """16 bytes, the same for places from which the same can happen."""
    return hashlib.blake2b(_ENCODE(folded(place, cast)), digest_size=16).digest()


class _Since:
    """Times as they are told from now: what is past for everybody, by the reading's uncertainty, is all the same."""

    __slots__ = ("_clock", "_floor_us", "_grace", "_lease_floor_us", "now_us")

    def __init__(self, place: Place, clock: ClockState) -> None:
        self._clock = clock
        self.now_us = clock.logical_us
        self._floor_us = -clock.uncertainty_us
        self._grace = clock.grace_until_us > self.now_us - clock.uncertainty_us
        # What a cancelled attempt holds is settled one lease after its own ended, however long ago that was.
        world = place.shared.world
        cancels = (
            place.left.get("cancel")
            or place.left.get("cancel_plan")
            or world.deadline_us is not None
            or any(isinstance(value, PlanState) and not value.cancel_done for value in place.values.values())
        )
        self._lease_floor_us = self._floor_us - (world.limits.lease_us if cancels else 0)

    @property
    def grace(self) -> Any:
        return self._clock.grace_until_us - self.now_us if self._grace else _OVER

    def deadline(self, us: int) -> int:
        return max(us - self.now_us, self._floor_us)

    def reservation(self, us: int) -> tuple[int, bool]:
        """The end of a reservation, and whether the grace that is open now is its own."""
        return self.deadline(us), self._grace and us >= self._clock.grace_from_us

    def lease(self, us: int) -> tuple[int, bool]:
        """The same of a lease."""
        return max(us - self.now_us, self._lease_floor_us), self._grace and us >= self._clock.grace_from_us


def folded(place: Place, cast: Cast) -> tuple[Any, ...]:
    """The tree of plain data whose digest names the place."""
    clock = place.clock
    since = _Since(place, clock)
    names = cast.names
    open_attempts: dict[str, AttemptState] = {}
    ended: dict[str, list[AttemptState]] = {}
    for attempt in cast.attempts:
        if attempt.state in _ENDED_ATTEMPT:
            ended.setdefault(attempt.order, []).append(attempt)
        else:
            open_attempts[attempt.order] = attempt
    holders: dict[str, int] = {}
    orders = tuple(
        (
            *_order(place, order, since, names),
            _open(place, open_attempts.get(order.order), since, holders),
            _ended(place, ended.get(order.order, ()), since),
        )
        for order in cast.orders
    )
    queue = _queue(place, cast)
    idle = sorted(
        (worker.host if place.shared.world.hosts > 1 else "", worker.boot_id == boot_name(place.boot))
        for worker in cast.workers
        if worker.worker not in holders
    )
    plans = tuple(_plan(place, plan, since) for plan in cast.plans)
    scope: ScopeState = place.values["scope"]
    left = tuple(sorted((act, times) for act, times in place.left.items() if times >= 0))
    return (
        (clock.state, since.grace, len(place.values[CLOCK].sources)),
        orders,
        queue,
        idle,
        plans,
        _account(place, scope.account),
        left,
        _name(place, names) if "submit" in place.left else (),
        _receipts(place) if place.shared.world.charges else (),
    )


def _receipts(place: Place) -> tuple[tuple[str, str], ...]:
    """The receipts of providers that are booked, each with what it said."""
    return tuple(
        sorted((name, value.digest) for name, value in place.values.items() if isinstance(value, ReceiptState))
    )


def _name(place: Place, names: Mapping[str, str]) -> tuple[Any, ...]:
    """Which plan the world's one name means."""
    name: NameState = place.values["name:plan"]
    return names[name.newest], tuple(names[each.plan] for each in name.open_plans)


def _queue(place: Place, cast: Cast) -> tuple[Any, ...]:
    """Who stands before whom, and who has stood here only since now, so that one of less rank may still pass it."""
    ready = sorted((order for order in cast.orders if order.state in ("ready", "blocked_budget")), key=_ready_since)
    retries = place.left.get("retry")
    coming = [_rank(order) for order in cast.orders if retries or order.state not in ENDED]
    if place.left.get("join"):
        coming.append((0, place.next_seq))
    first = min(coming, default=None)
    now_us = place.now_us
    return tuple(
        (cast.names[order.order], first is not None and first < _rank(order) and order.ready_us == now_us)
        for order in ready
    )


def _rank(order: OrderState) -> tuple[int, int]:
    return order.position, order.spec_seq


def _ready_since(order: OrderState) -> tuple[int, int, int]:
    return order.ready_us, order.position, order.spec_seq


def _account(place: Place, account: Account) -> tuple[Any, ...]:
    counted = place.shared.world.counted
    return tuple(_counted(amounts, counted) for amounts in (account.ceiling, account.held, account.charged))


def _counted(amounts: Mapping[str, int], counted: tuple[str, ...]) -> tuple[int | None, ...]:
    return tuple(amounts.get(dimension) for dimension in counted)


def _order(place: Place, order: OrderState, since: _Since, names: Mapping[str, str]) -> tuple[Any, ...]:
    ended = order.state in ENDED
    account = order.account
    if ended and (order.replaced_by is not None or order.state == "applied"):
        account = Account()  # nothing is booked on a ceiling that nobody asks any more
    return (
        names[order.order],
        order.state,
        order.reason,
        () if ended else tuple((group.satisfied, group.unsatisfied) for group in order.groups),
        0 if ended else order.failures,
        order.yields,
        since.deadline(order.retry_due_us) if order.state == "retry_wait" else _OVER,
        (order.told, order.told_done, order.dependents),
        "" if order.replaced_by is None else names[order.replaced_by],
        _account(place, account),
        _inside(order, since, names) if order.state not in ENDED else _kept(place, order),
    )


def _inside(order: OrderState, since: _Since, names: Mapping[str, str]) -> tuple[Any, ...]:
    """What its programs have said: how many checkpoints there are, what it waits for, what was answered."""
    wait = order.wait
    waits = () if wait is None else (wait.question, sorted(names[name] for name in wait.orders), _until(wait, since))
    return order.checkpoint_number, waits, sorted(order.answers), sorted(order.children)


def _kept(place: Place, order: OrderState) -> tuple[Any, ...]:
    """What an order that may be replaced hands to its replacement."""
    ended_well = order.state == "applied" or order.replaced_by is not None
    return () if ended_well or "retry" not in place.shared.world.may else (order.checkpoint_number,)


def _until(wait: Wait, since: _Since) -> int | None:
    return since.deadline(wait.until_us) if wait.until_us else _OVER


def _open(place: Place, attempt: AttemptState | None, since: _Since, holders: dict[str, int]) -> Any:
    """The one attempt of an order that has not ended. Holders are numbered as they are met."""
    if attempt is None:
        return None
    holder = holders.setdefault(attempt.worker, len(holders))
    where = (
        holder,
        attempt.host if place.shared.world.hosts > 1 else "",
        attempt.boot_id == boot_name(place.boot),
        attempt.state,
        attempt.reason,
    )
    hold = _hold(place, attempt, since)
    if attempt.state == "reserved":
        return (*where, since.reservation(attempt.activation_deadline_us), hold)
    if attempt.state == "result_reported":
        return (
            *where,
            _variant(place, attempt),
            attempt.verification,
            _late(place, attempt),
            hold,
            _age(place, attempt),
        )
    saved = bool(attempt.checkpoint)
    return (*where, since.lease(attempt.lease_us), _age(place, attempt), _late(place, attempt), hold, saved)


def _age(place: Place, attempt: AttemptState) -> int:
    """How long it has been active, as far as renewals and charges of time ask."""
    world = place.shared.world
    if not world.renews:
        return 0  # its lease tells it
    order: OrderState = place.values[attempt.order]
    most_us = order.terms.attempt_time_us + world.limits.collect_us
    return min(place.now_us - attempt.activated_us, most_us)


def _ended(place: Place, attempts: Any, since: _Since) -> tuple[Any, ...]:
    """What ended attempts can still do: their holds, and facts that come late while the world lets any come."""
    lapsed = sum(1 for attempt in attempts if not attempt.activated_us)
    late_left = place.left.get("late", 0)
    told: list[Any] = []
    remembered = 0
    for attempt in attempts:
        if not attempt.activated_us:
            continue
        hold: HoldState = place.values[attempt.hold]
        if late_left or hold.state == "unsettled":
            where = (attempt.host, attempt.boot_id == boot_name(place.boot)) if hold.state == "unsettled" else ()
            told.append(
                (
                    attempt.state,
                    _variant(place, attempt),
                    attempt.verification,
                    _late(place, attempt),
                    _hold(place, attempt, since),
                    where,
                )
            )
            if hold.state == "unsettled" and "time_us" in place.shared.world.counted:
                told.append(min(attempt.lease_us, place.now_us) - attempt.activated_us)
        else:
            remembered = 1
    return (min(lapsed, place.shared.world.lapses), remembered, tuple(told))


def _variant(place: Place, attempt: AttemptState) -> str:
    if not attempt.result_seq:
        return ""
    body = place.body(attempt.result_seq)
    return body.facts.message if isinstance(body, AttemptResult) else ""


def _late(place: Place, attempt: AttemptState) -> tuple[str, ...]:
    found = []
    for what, _, seq in attempt.late:
        body = place.body(seq)
        facts = body.facts if isinstance(body, LateRecord) else None
        found.append(what if facts is None else facts.message)
    return tuple(sorted(found))


def _hold(place: Place, attempt: AttemptState, since: _Since) -> tuple[Any, ...]:
    hold: HoldState = place.values[attempt.hold]
    counted = place.shared.world.counted
    receipts = tuple(sorted(receipt.replace(attempt.attempt, "") for receipt in hold.receipts))
    return (
        hold.state,
        _counted(hold.held, counted),
        since.deadline(hold.settle_by_us) if hold.state == "unsettled" else _OVER,
        receipts,
        hold.estimated_us if "time_us" in counted else 0,
    )


def _plan(place: Place, plan: PlanState, since: _Since) -> tuple[Any, ...]:
    return (
        plan.content,
        plan.orders,
        plan.open,
        plan.applied,
        plan.lost,
        plan.cancel,
        plan.cancel_position,
        plan.cancel_done,
        _OVER if plan.deadline_us is None else since.deadline(plan.deadline_us),
        _account(place, plan.account),
    )
