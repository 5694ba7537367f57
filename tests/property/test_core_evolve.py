"""What a decider proposes, evolve accepts; what no decider could have proposed, evolve refuses (W17, W18, W24).

Histories come from every state that the tables of tests reach. Each of their records is changed in one way at a time
and folded where the right one belongs: it must be refused as corrupt history, with nothing changed, and the right
one must still be accepted afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import STEPS, Fact, evolve
from fencepost.core.limits import LEASE_MAX_US
from fencepost.core.machines import ATTEMPT, WORK_ORDER, CorruptHistory
from fencepost.core.records import KIND_OF
from fencepost.core.records import attempt as a
from fencepost.core.records import authority as au
from fencepost.core.records import budget as b
from fencepost.core.records import plan as p
from fencepost.core.state import encode_value
from tests.support.states import HISTORIES, world_in
from tests.support.world import DIGEST, SECOND, Fold, World, draft

OTHER = "sha256:" + "e" * 64
Change = Callable[[Any], Any]


def _with(**changes: Any) -> Change:
    return lambda body: replace(body, **changes)


def _otherwise(**changes: Any) -> Change:
    """The same, for bodies that do not say so anyway."""

    def change(body: Any) -> Any:
        if all(getattr(body, name) == value for name, value in changes.items()):
            raise ValueError("this is what the record says")
        return replace(body, **changes)

    return change


def _checked(**changes: Any) -> Change:
    return lambda body: replace(body, checked=replace(body.checked, **changes))


# Kind -> name of the change -> the changed body. Each of them breaks a promise that is written in the documents.
CHANGES: dict[type, dict[str, Change]] = {
    au.GrantIssued: {
        "a chain that is not its digest": _with(chain=OTHER),
        "another operation than its chain": lambda body: replace(body, operations=(*body.operations, "zz/any")),
        "another audience than its chain": _with(audience="principal_x"),
    },
    p.WorkOrderSpec: {
        "a member that is not there": _with(
            groups=(p.Group(kind="required", members=(p.Member(order="x", contract=DIGEST, outcomes=("applied",)),)),)
        ),
        "another's plan": _with(plan="plan_x"),
        "a replacement of what has not ended": lambda body: replace(body, replaces=body.order),
    },
    p.WorkOrderMoved: {
        "another origin": lambda body: replace(body, origin="retry_wait" if body.origin != "retry_wait" else "ready"),
        "a pair that is not in the table": _with(target="submitted"),
        "reserved without a reservation": _with(target="reserved", reason="waiting_for_activation"),
        "active without a descriptor": _with(target="active", reason="attempt_running"),
        "applied without an application": _with(target="applied", reason="applied"),
        "reconciling without an effect": _with(target="reconciling", reason="effect_unresolved"),
        "a reason that is not in the table": lambda body: (
            replace(body, reason="effect_unknown") if body.target in WORK_ORDER.reasons else replace(body, origin="x")
        ),
        "ready at another time": lambda body: (
            replace(body, ready_us=1) if body.target == "ready" else replace(body, origin="x")
        ),
    },
    p.DependencyObserved: {
        "an outcome that did not happen": lambda body: replace(
            body, outcome="budget_exhausted" if body.outcome != "budget_exhausted" else "applied"
        ),
        "a group that is not there": _with(group=9),
        "a member that is not there": _with(member="order_x"),
    },
    p.DependentsTold: {
        "more than there are": _with(position=99),
        "done before it is": lambda body: replace(body, done=not body.done),
        "backwards": _with(position=-2),
    },
    p.PlanCancelRequested: {"a deadline that is not proved": _with(reason="deadline_passed")},
    a.AttemptReservation: {
        "a fence used before": lambda body: replace(body, fence=body.fence - 1),
        "a fence of nobody": lambda body: replace(body, fence=body.fence + 5),
        "a generation left out": lambda body: replace(body, generation=body.generation + 1, fence=body.fence + 1),
        "an ordinal left out": lambda body: replace(body, ordinal=body.ordinal + 1),
        "another version of the order": lambda body: replace(body, order_version=body.order_version + 1),
        "another spec": _with(spec=OTHER),
        "fewer accounts": lambda body: replace(body, accounts=body.accounts[:-1]),
        "a hold past the ceiling": lambda body: replace(body, amounts={**body.amounts, "attempts": 2}),
        "no attempt held": lambda body: replace(body, amounts={"time_us": 1}),
        "a worker that is not there": _with(worker="worker_x"),
        "a worker of another host": _with(host="elsewhere"),
        "a deadline that is over": _with(activation_deadline_us=1),
        "a deadline past the longest lease": lambda body: replace(
            body, activation_deadline_us=body.activation_deadline_us + LEASE_MAX_US
        ),
    },
    a.AttemptDescriptor: {
        "another fence": lambda body: replace(body, fence=body.fence + 1),
        "another version": lambda body: replace(body, reservation_version=9),
        "another claim": _with(claim=OTHER),
        "another spec": _with(spec=OTHER),
        "another worker": _with(worker="worker_x"),
        "another order": _with(order="order_x"),
        "a lease that began before": lambda body: replace(body, lease_from_us=body.lease_from_us - 1),
        "a lease of no length": lambda body: replace(body, lease_until_us=body.lease_from_us),
        "a lease past the longest": lambda body: replace(body, lease_until_us=body.lease_from_us + LEASE_MAX_US + 1),
    },
    a.LeaseRenewal: {
        "a lease past the longest": lambda body: replace(body, until_us=body.until_us + LEASE_MAX_US),
        "a lease that is over": _with(until_us=1),
        "an attempt that is not there": _with(attempts=("attempt_x",)),
    },
    a.LateRecord: {
        "a foreign fence": lambda body: replace(body, fence=body.fence + 1),
        "another order": _with(order="order_x"),
        "a late fact as a conflict, and the other way round": lambda body: replace(
            body, disposition="rejected_conflict" if body.disposition == "rejected_stale" else "rejected_stale"
        ),
        "another digest": lambda body: replace(body, digest=OTHER, fence=body.fence + (body.facts is None)),
    },
    a.AttemptStopped: {
        "a foreign fence": lambda body: replace(body, fence=body.fence + 1),
        "another order": _with(order="order_x"),
    },
    a.AttemptEvent: {
        "a foreign fence": lambda body: replace(body, fence=body.fence + 1),
        "another order": _with(order="order_x"),
        "another spec": _with(spec=OTHER),
        "other inputs": _with(input_set=OTHER),
    },
    a.AttemptResult: {
        "a digest that is not that of its facts": _with(facts_digest=OTHER),
        "facts that are not those of its digest": lambda body: replace(
            body, facts=replace(body.facts, duration_us=body.facts.duration_us + 1)
        ),
        "a foreign fence": lambda body: replace(body, fence=body.fence + 1),
        "another claim": _with(claim=OTHER),
        "another spec": _with(spec=OTHER),
        "other inputs": lambda body: replace(body, facts=replace(body.facts, input_set=OTHER)),
    },
    a.VerificationReceipt: {"another result": _with(result=OTHER), "another attempt": _with(attempt="attempt_x")},
    a.ResultApplication: {
        "another version of the order": _checked(order_version=1),
        "another version of the attempt": _checked(attempt_version=1),
        "another generation": _checked(generation=9),
        "another spec": _checked(spec=OTHER),
        "other inputs": _checked(input_set=OTHER),
        "another projection": _with(projection=OTHER),
        "no projection": _with(projection=""),
        "another decision": lambda body: replace(body, decision="failed" if body.decision != "failed" else "applied"),
        "a failure that is applied": lambda body: replace(body, failure="executor" if body.failure is None else None),
        "another attempt": _with(attempt="attempt_x"),
    },
    a.AttemptMoved: {
        "another origin": lambda body: replace(body, origin="running" if body.origin != "running" else "leased"),
        "a pair that is not in the table": _with(target="reserved"),
        "accepted without an application": _with(target="accepted"),
        "reconciling without an effect": _with(target="reconciling", reason="effect_unresolved"),
        "expired without a proof": _with(target="expired_no_effect", reason="reservation_expired"),
        "a lease expired without a proof": _otherwise(target="lease_expired", reason="lease_expired"),
        "a reason that is not in the table": lambda body: (
            replace(body, reason="effect_unresolved") if body.target in ATTEMPT.reasons else replace(body, origin="x")
        ),
    },
    a.HolderGoneProof: {
        "another fence": lambda body: replace(body, fence=body.fence + 1),
        "another worker": _with(worker="worker_x"),
    },
    b.HoldSettled: {
        "a deadline that is not proved": _otherwise(basis="proved_deadline"),
        "more credited than was charged": lambda body: replace(body, credited={"attempts": 2}),
        "more estimated than is charged": lambda body: replace(body, estimated_us=2**50),
    },
    b.HoldUnsettled: {
        "a dimension forgotten": _with(dimensions=()),
        "a dimension that is not held": lambda body: replace(body, freed=(*body.freed, "calls")),
    },
}


def _picture(fold: Fold) -> tuple[dict[str, bytes], dict[str, list[Any]]]:
    values = {subject: encode_value(value) for subject, value in fold.values.items()}
    return values, {member: list(edges) for member, edges in fold.edges.items()}


@pytest.mark.parametrize("name", HISTORIES)
def test_w24_every_changed_record_is_refused_with_nothing_changed(name: str) -> None:
    facts = world_in(name).facts
    fold = Fold()
    for fact in facts:
        before = _picture(fold) if type(fact.body) in CHANGES else None
        for what, change in CHANGES.get(type(fact.body), {}).items():
            try:
                body = change(fact.body)
            except (ValueError, IndexError):
                continue
            with pytest.raises(CorruptHistory):
                evolve(fold, fact._replace(body=body))
                raise AssertionError(f"{type(fact.body).__name__} with {what} was accepted")
        if before is not None:
            for version in (fact.subject_version - 1, fact.subject_version + 1):
                with pytest.raises(CorruptHistory):
                    evolve(fold, fact._replace(subject_version=version))
            assert _picture(fold) == before
        evolve(fold, fact)
        if not isinstance(fact.body, p.PlanCancelRequested):
            with pytest.raises(CorruptHistory):
                evolve(fold, fact)
    assert fold.values == world_in(name).live.values


def test_w18_a_hold_past_a_ceiling_of_any_account_is_no_history() -> None:
    for account in ("order", "plan", "scope"):
        world = World()
        ceilings = {"time_us": 40 * SECOND}
        world.submit(
            draft("a", ceilings={"attempts": 3, **(ceilings if account == "order" else {})}),
            ceilings=ceilings if account == "plan" else {},
        )
        if account == "scope":
            world.ok(c.SetBudget(account="scope", ceilings=ceilings))
        order, worker = world.order("a"), world.worker()
        decided = world.decide(c.Reserve(order=order.order, expected=order.version, worker=worker))
        for fact in decided.facts[:-1]:
            evolve(world.replayed, fact)
        fact = decided.facts[-1]
        assert isinstance(fact.body, a.AttemptReservation)
        body = replace(fact.body, amounts={"attempts": 1, "time_us": 41 * SECOND})
        with pytest.raises(CorruptHistory, match="passes its ceiling"):
            evolve(world.replayed, fact._replace(body=body))
        evolve(world.replayed, fact)


def test_w15_an_order_whose_needs_do_not_hold_is_never_ready_and_never_fails_for_them() -> None:
    world = world_in("blocked_dependency")
    order = world.order("a")
    for target, reason in (("ready", "waiting_for_worker"), ("dependency_failed", "dependency_failed")):
        body = p.WorkOrderMoved(origin=order.state, target=target, reason=reason, ready_us=world.now_us)
        with pytest.raises(CorruptHistory, match="say otherwise"):
            evolve(world.replayed, Fact(len(world.facts) + 1, order.order, order.version + 1, body))


def test_every_kind_of_record_that_moves_something_is_changed_above() -> None:
    seen = {type(fact.body) for name in HISTORIES for fact in world_in(name).facts}
    missing = {KIND_OF[kind].name for kind in CHANGES if kind not in seen}
    assert missing <= {"plan_cancel_requested"}
    assert set(STEPS) == set(KIND_OF)


@given(st.data())
def test_w24_records_in_another_order_are_no_history(data: st.DataObject) -> None:
    """One left out, or two about one subject swapped: that never folds to the state that was."""
    name = data.draw(st.sampled_from(sorted(HISTORIES)))
    facts = list(world_in(name).facts)
    place = data.draw(st.integers(0, len(facts) - 2))
    first, second = facts[place], facts[place + 1]
    swapped = first.subject == second.subject
    changed = [*facts[:place], second, first, *facts[place + 2 :]] if swapped else [*facts[:place], *facts[place + 1 :]]
    fold = Fold()
    try:
        for fact in changed:
            evolve(fold, fact)
    except CorruptHistory:
        return
    assert not swapped and fold.values != world_in(name).live.values


@pytest.mark.parametrize("what", ["renewal", "event", "result", "activation"])
def test_w24_what_was_decided_under_a_live_lease_is_no_history_once_it_is_over(what: str) -> None:
    world = world_in("reserved" if what == "activation" else "active/running")
    known = world.attempt_of(world.order("a"))
    command = getattr(world, what)(known)
    kinds = {"renewal": a.LeaseRenewal, "event": a.AttemptEvent, "result": a.AttemptResult}
    kind = kinds.get(what, a.AttemptDescriptor)
    decided = world.decide(command)
    body = next(fact.body for fact in decided.facts if isinstance(fact.body, kind))
    subject = next(fact.subject for fact in decided.facts if fact.body is body)
    version = world.live.values[subject].version + 1
    world.advance((known.lease_us or known.activation_deadline_us) - world.now_us - 1)
    changes = {"renewal": {"until_us": world.now_us + SECOND}, "activation": {"lease_from_us": world.now_us}}
    seq = len(world.facts) + 1
    live = Fold()
    live.values = dict(world.replayed.values)
    evolve(live, Fact(seq, subject, version, replace(body, **changes.get(what, {}))))
    world.advance(1)
    over = {"renewal": {"until_us": world.now_us + SECOND}, "activation": {"lease_from_us": world.now_us}}
    with pytest.raises(CorruptHistory):
        evolve(world.replayed, Fact(len(world.facts) + 1, subject, version, replace(body, **over.get(what, {}))))


@pytest.mark.parametrize("name", ["reserved", "active/leased", "active/running"])
def test_w17_nothing_is_late_while_its_attempt_may_still_speak(name: str) -> None:
    world = world_in(name)
    known = world.attempt_of(world.order("a"))
    body = a.LateRecord(
        order=known.order,
        fence=known.fence,
        what="event",
        digest=OTHER,
        disposition="rejected_stale",
        reason="stale_fence",
    )
    with pytest.raises(CorruptHistory, match="may still speak"):
        evolve(world.replayed, Fact(len(world.facts) + 1, known.attempt, known.version + 1, body))


def test_w18_no_more_is_explained_than_was_estimated() -> None:
    world = world_in("ready/expired")
    hold = next(value for value in world.live.values.values() if getattr(value, "estimated_us", 0))
    seq = len(world.facts) + 1
    for us in (hold.estimated_us + 1, hold.estimated_us):
        fact = Fact(
            seq, hold.hold, hold.version + 1, b.HoldAdjusted(charged={}, receipts=(f"x:{us}",), explained_us=us)
        )
        if us > hold.estimated_us:
            with pytest.raises(CorruptHistory, match="no such estimate"):
                evolve(world.replayed, fact)
        else:
            evolve(world.replayed, fact)
