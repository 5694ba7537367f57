"""Folding at its edges: what no decider writes today, and what history must not say (W10, W17, W23; G1, G2, G3)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core.evolve import Edit, Fact, evolve
from fencepost.core.evolve.edit import book, move_attempt, move_order
from fencepost.core.grants import Caveat, named_digest
from fencepost.core.limits import LEASE_MAX_US
from fencepost.core.machines import WORK_ORDER, CorruptHistory
from fencepost.core.records.attempt import AttemptReservation
from fencepost.core.records.authority import AuthorityDecision, ConstitutionAdopted, GrantIssued
from fencepost.core.records.clock import LogicalClockObservation
from fencepost.core.records.plan import WorkOrderMoved
from fencepost.core.state import (
    AUTHORITY,
    CLOCK,
    Account,
    DecisionState,
    GrantState,
    OrderState,
    decision_subject,
)
from tests.support.states import TASK, world_in
from tests.support.world import DIGEST, ME, Fold, World, draft

OTHER = "sha256:" + "7" * 64
WORDS = "sha256:" + "8" * 64


def fold(world: World, subject: str, body: Any) -> Any:
    """Fold one record more, and return the subject's value behind it."""
    known = world.live.get(subject)
    version = 1 if known is None else known.version + 1
    evolve(world.live, Fact(len(world.facts) + 1, subject, version, body))
    return world.live.get(subject)


def edit_of(world: World, subject: str = "x", version: int = 1) -> Edit:
    return Edit(
        world.live, Fact(len(world.facts) + 1, subject, version, WorkOrderMoved(origin="", target="", reason=""))
    )


# Authority


def adopted(version: int) -> ConstitutionAdopted:
    return ConstitutionAdopted(version=version, constitution=OTHER, vocabulary=WORDS, policies="", schema="")


def test_w23_a_newer_constitution_takes_the_place_of_the_one_before_and_leaves_all_else() -> None:
    world = World()
    before = world.live.values[AUTHORITY]
    after = fold(world, AUTHORITY, adopted(2))
    assert after == replace(
        before, version=before.version + 1, constitution_version=2, constitution=OTHER, vocabulary=WORDS
    )
    for version in (1, 2):
        with pytest.raises(CorruptHistory, match=f"constitution {version} is not newer"):
            fold(world, AUTHORITY, adopted(version))


def test_w23_a_grant_that_ends_is_kept_with_its_end() -> None:
    world = World()
    chain = named_digest("grant_2", (Caveat(audience=ME, operations=("a/b",), expires_us=9),))
    body = GrantIssued(grant="grant_2", chain=chain, audience=ME, operations=("a/b",), expires_us=9)
    assert fold(world, AUTHORITY, body).grants[chain] == GrantState(ME, ("a/b",), 9)


def test_w23_a_decision_is_kept_with_its_rule_its_reason_and_its_constitution() -> None:
    world = World()
    body = AuthorityDecision(
        decision=OTHER,
        principal=ME,
        principal_kind="human",
        action="a",
        resource_kind="b",
        attributes={},
        allow=False,
        rule="a rule",
        reason="a reason",
        constitution_version=1,
        constitution=DIGEST,
        vocabulary=DIGEST,
    )
    assert fold(world, decision_subject(OTHER), body) == DecisionState(
        version=1, allow=False, rule="a rule", reason="a reason", constitution_version=1
    )


# Time


def observation(world: World, **changes: Any) -> LogicalClockObservation:
    body = next(fact.body for fact in world.facts if isinstance(fact.body, LogicalClockObservation))
    return replace(body, **changes)


def test_w8_a_second_contradiction_is_kept_as_well() -> None:
    world = World()
    again = observation(world, disposition="quarantined", logical_us=world.now_us)
    assert fold(world, CLOCK, again).state == "clock_reconciliation_required"
    world.facts.append(world.facts[-1])
    value = fold(world, CLOCK, again)
    assert (value.state, value.quarantined_seq) == ("clock_reconciliation_required", len(world.facts) + 1)


@pytest.mark.parametrize(("later_us", "follows"), [(-1, False), (0, False), (1, True)])
def test_w8_an_accepted_reading_is_later_than_the_last_of_its_boot(later_us: int, follows: bool) -> None:
    world = World()
    body = observation(world, disposition="accepted", tick=world.tick_us + later_us, logical_us=world.now_us + 1)
    if follows:
        assert fold(world, CLOCK, body).logical_us == body.logical_us
    else:
        with pytest.raises(CorruptHistory, match="does not follow on the last one of its boot"):
            fold(world, CLOCK, body)


@pytest.mark.parametrize(
    ("length_us", "permitted"), [(0, False), (1, True), (LEASE_MAX_US, True), (LEASE_MAX_US + 1, False)]
)
def test_c2_a_claim_ends_after_now_and_within_the_longest_one(length_us: int, permitted: bool) -> None:
    world = World()
    world.submit(draft("a"))
    attempt = world.reserve("a")
    body = world.body(attempt.reservation_seq)
    assert isinstance(body, AttemptReservation)
    before = World()
    before.submit(draft("a"))
    before.worker()
    body = replace(body, activation_deadline_us=before.now_us + length_us)
    edit = Fact(attempt.reservation_seq, attempt.attempt, 1, body)
    if permitted:
        evolve(before.live, edit)
        assert before.live.values[attempt.attempt].activation_deadline_us == before.now_us + length_us
    else:
        with pytest.raises(CorruptHistory, match="is not from now to a permitted end"):
            evolve(before.live, edit)


# Guards


def effect(state: str, *, effect_open: bool, applied: bool) -> tuple[World, OrderState]:
    world = world_in("active/running")
    order = replace(world.order(TASK), state=state, effect_open=effect_open, effect_applied=applied)
    world.live.values[order.order] = order
    return world, order


MOVES = [
    (origin, target, reason)
    for origin in ("active", "result_pending", "conflict", "cancellation_requested")
    for target in WORK_ORDER.rows[origin]
    for reason in (WORK_ORDER.reasons[target][:1] if target in WORK_ORDER.reasons else ("cancelled_after_effect", "x"))
]
AFTER = {"cancellation_requested", "reconciling", "unknown_terminal", "conflict"}


@pytest.mark.parametrize(("origin", "target", "shown"), MOVES)
@pytest.mark.parametrize(("is_open", "applied"), [(False, False), (False, True), (True, False), (True, True)])
def test_g1_to_g3_an_order_moves_only_as_its_effects_allow(
    origin: str, target: str, shown: str, is_open: bool, applied: bool
) -> None:
    """With an effect open only what waits for it; never cancelled after one; started work with one does not fail."""
    world, order = effect(origin, effect_open=is_open, applied=applied)
    forbidden = (
        (target == "reconciling" and not (is_open or applied))
        or (is_open and target not in AFTER)
        or (target == "cancelled" and (is_open or applied))
        or (
            applied
            and shown != "cancelled_after_effect"
            and origin in ("active", "result_pending")
            and target not in {"result_pending", "applied"} | AFTER
        )
    )
    edit = edit_of(world, order.order, order.version + 1)
    if forbidden:
        with pytest.raises(CorruptHistory, match=f"forbids {origin} -> {target}"):
            move_order(edit, order, target, shown)
    else:
        assert move_order(edit, order, target, shown).state == target


@pytest.mark.parametrize(("is_open", "applied"), [(False, False), (False, True), (True, False), (True, True)])
def test_g1_an_attempt_is_reconciled_only_if_something_may_have_happened(is_open: bool, applied: bool) -> None:
    world, order = effect("active", effect_open=is_open, applied=applied)
    attempt = world.attempt_of(order)
    state = "lease_expired"
    edit = edit_of(world, attempt.attempt, attempt.version + 1)
    attempt = replace(attempt, state=state)
    if is_open or applied:
        assert move_attempt(edit, attempt, "reconciling", "effect_unresolved").state == "reconciling"
    else:
        with pytest.raises(CorruptHistory, match="has no possible effect"):
            move_attempt(edit, attempt, "reconciling", "effect_unresolved")


def test_a_state_shows_only_reasons_of_its_own() -> None:
    world = world_in("active/running")
    order = world.order(TASK)
    attempt = world.attempt_of(order)
    with pytest.raises(CorruptHistory, match="attempt: lease_expired cannot show the reason 'whatever'"):
        move_attempt(edit_of(world, attempt.attempt, attempt.version + 1), attempt, "lease_expired", "whatever")
    with pytest.raises(CorruptHistory, match="work_order: ready cannot show the reason 'whatever'"):
        move_order(edit_of(world, order.order, order.version + 1), order, "ready", "whatever")


# One record, one new version of each subject


def test_a_subject_is_created_once_and_at_version_one() -> None:
    world = World()
    value = world.live.values[AUTHORITY]
    with pytest.raises(CorruptHistory, match="x exists already"):
        edit_of(world).create("x", replace(value, version=2))
    with pytest.raises(CorruptHistory, match="authority exists already"):
        edit_of(world).create(AUTHORITY, replace(value, version=1))
    edit = edit_of(world)
    edit.create("x", replace(value, version=1))
    with pytest.raises(CorruptHistory, match="x exists already"):
        edit.create("x", replace(value, version=1))


def test_a_record_is_of_the_version_that_it_makes() -> None:
    world = World()
    value = world.live.values[AUTHORITY]
    untouched = edit_of(world)
    with pytest.raises(CorruptHistory, match="x is at version None, not 1"):
        untouched.close()
    wrong = edit_of(world, version=2)
    wrong.create("x", replace(value, version=1))
    with pytest.raises(CorruptHistory, match="x is at version 1, not 2"):
        wrong.close()
    assert "x" not in world.live.values
    right = edit_of(world)
    right.create("x", replace(value, version=1))
    right.close()
    assert world.live.values["x"].version == 1


@pytest.mark.parametrize("amounts", [{"free": {"calls": 2}}, {"credit": {"calls": 2}}])
def test_w18_no_more_is_freed_or_credited_than_there_is(amounts: dict[str, dict[str, int]]) -> None:
    world = World()
    scope = world.live.values["scope"]
    account = Account(ceiling={}, held={"calls": 1}, charged={"calls": 1})
    folded = Fold()
    folded.values = {"scope": replace(scope, account=account)}
    edit = Edit(folded, Fact(1, "scope", scope.version + 1, WorkOrderMoved(origin="", target="", reason="")))
    with pytest.raises(CorruptHistory, match="scope: calls: 1 - 2 is below zero"):
        book(edit, ("scope",), **amounts)
    with pytest.raises(CorruptHistory, match="account plan_x is missing"):
        book(edit, ("plan_x",), charge={"calls": 1})
