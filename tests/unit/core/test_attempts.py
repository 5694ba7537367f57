"""Attempts: W2, W3, W5, W17, C2, C3; the field's cases 08, 09, 16, 25, 27, 45."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from fencepost.core import commands as c
from fencepost.core.decide.dispatch import input_set
from fencepost.core.limits import MINUTE_US, Limits
from fencepost.core.records.attempt import AttemptDescriptor, AttemptReservation, LateRecord, LeaseRenewal
from fencepost.core.records.clock import ExpiryEligibility
from fencepost.core.state import AttemptState
from tests.support.states import gone, world_in
from tests.support.world import SECOND, World, artifact, draft, used


def attempt(world: World, task: str = "a") -> AttemptState:
    return world.attempt_of(world.order(task))


def the(world: World, kind: type) -> Any:
    return [fact.body for fact in world.facts if isinstance(fact.body, kind)][-1]


def test_w2_a_reservation_allocates_everything_and_grants_nothing() -> None:
    world = World()
    world.submit(draft("a", ceilings={"attempts": 2, "calls": 5}))
    order = world.order("a")
    made = world.ok(c.Reserve(order=order.order, expected=order.version, worker=world.worker()))["reservations"][0]
    body = the(world, AttemptReservation)
    assert (body.ordinal, body.generation, body.fence, body.order_version) == (1, 1, 1, order.version)
    assert body.amounts == {"attempts": 1, "time_us": 30 * SECOND, "calls": 3}
    assert body.activation_deadline_us == world.now_us + world.limits.reservation_us
    assert body.spec == order.spec and body.extension_requirements == ()
    assert made["fence"] == 1 and made["version"] == world.live.values[made["attempt"]].version
    reserved = attempt(world)
    assert reserved.lease_us == 0 and reserved.descriptor_seq == 0, "no lease, no descriptor"
    assert world.refused(world.event(reserved)) == "stale_fence"
    assert world.refused(world.result(reserved)) != ""
    assert world.order("a").account.held == body.amounts


def test_c3_two_workers_reserve_one_order_once() -> None:
    world = World()
    world.submit(draft("a"))
    order = world.order("a")
    commands = [c.Reserve(order=order.order, expected=order.version, worker=world.worker(n)) for n in (1, 2)]
    assert [world.refused(command) for command in commands] == ["", "version_moved"]
    world.check()


def test_w3_one_reservation_becomes_one_descriptor_and_the_loser_is_told() -> None:
    world = world_in("reserved")
    reserved = attempt(world)
    command = world.activation(reserved)
    assert [world.refused(command), world.refused(command)] == ["", "lost_race"]
    body = the(world, AttemptDescriptor)
    assert (body.reservation_version, body.fence, body.claim) == (reserved.version, reserved.fence, reserved.claim)
    assert body.lease_from_us == world.now_us and body.lease_until_us == world.now_us + world.limits.lease_us
    assert body.granted == ("workspace.write",)
    assert sum(isinstance(fact.body, AttemptDescriptor) for fact in world.facts) == 1
    assert world.order("a").state == "active" and attempt(world).state == "leased"


def test_w4_what_is_granted_is_never_more_than_what_was_asked_for() -> None:
    world = World()
    world.submit(draft("a", may=("workspace.write", "network.reach")))
    world.activate("a")
    assert the(world, AttemptDescriptor).granted == ("workspace.write",)


def test_w3_files_are_handed_over_exactly_as_they_were_accepted() -> None:
    world = World()
    handed = (c.FromDraft(task="a", files=("out/*.txt",)),)
    world.submit(draft("a", outputs=("out/**",)), draft("b", "a", handed=handed))
    files = (artifact("out/x.txt", b"x"), artifact("out/y.txt", b"y"), artifact("out/z.bin", b"z"))
    world.finish("a", artifacts=files)
    reserved = world.reserve("b")
    other = artifact("out/y.txt", b"other")
    for wrong in ((), files[:1], files, (files[0], other), (*files[:2], files[0])):
        assert world.refused(world.activation(reserved, handed=wrong)) == "spec_mismatch"
    world.ok(world.activation(reserved, handed=files[:2]))
    body = the(world, AttemptDescriptor)
    assert body.handed == files[:2] and body.input_set == input_set(world.order("b").terms.input_set, files[:2])


def test_w5_events_bind_spec_fence_and_inputs_and_only_a_start_moves_anything() -> None:
    world = world_in("active/leased")
    known = attempt(world)
    world.ok(world.event(known, "heartbeat_observed"))
    assert attempt(world).state == "leased"
    world.ok(world.event(known, pid=7))
    assert (attempt(world).state, attempt(world).reason) == ("running", "attempt_running")
    world.ok(world.event(known))
    assert attempt(world).state == "running"
    for changes in ({"spec": "sha256:" + "1" * 64}, {"input_set": "sha256:" + "1" * 64}):
        assert world.refused(world.event(known, **changes)) == "spec_mismatch"


def test_w17_a_late_event_is_kept_once_and_moves_nothing() -> None:
    world = world_in("cancelled/live")
    known = attempt(world)
    late = world.event(known, "heartbeat_observed")
    assert [world.refused(late) for _ in range(3)] == ["rejected_stale"] * 3
    kept = [fact.body for fact in world.facts if isinstance(fact.body, LateRecord)]
    assert len(kept) == 1 and kept[0].disposition == "rejected_stale" and kept[0].what == "event"
    assert attempt(world).state == known.state and world.order("a").state == "cancelled"


def test_w17_late_facts_of_one_attempt_are_bounded() -> None:
    world = world_in("cancelled/live")
    known = attempt(world)
    for number in range(world.limits.late_records_per_attempt + 5):
        kept = number < world.limits.late_records_per_attempt
        code = world.refused(world.event(known, "heartbeat_observed", note=str(number)))
        assert code == ("rejected_stale" if kept else "stale_fence"), "what is not kept is not said to be"
    assert world.refused(world.event(known, "heartbeat_observed", note="0")) == "rejected_stale", "it is kept"
    assert len(attempt(world).late) == world.limits.late_records_per_attempt


def test_c2_renewal_keeps_the_fence_chains_the_claim_and_never_shortens_a_lease() -> None:
    world = world_in("active/running")
    before = attempt(world)
    world.advance(3 * SECOND)
    told = world.ok(world.renewal(before))
    after = attempt(world)
    assert told["renewed"] == [before.attempt] and told["lost"] == []
    assert after.lease_us == told["until_us"] == world.now_us + world.limits.lease_us > before.lease_us
    assert after.fence == before.fence and after.claim != before.claim
    descriptors = [fact.body for fact in world.facts if isinstance(fact.body, AttemptDescriptor)]
    assert len(descriptors) == 1, "a renewal never rewrites the descriptor"


def test_c8_one_renewal_says_for_each_attempt_what_became_of_it() -> None:
    world = World(Limits(collect_us=0))
    world.submit(*(draft(task, attempt_time_us=12 * SECOND) for task in "abcd"))
    for task in "abc":
        world.activate(task, 1)
    world.activate("d", 2)
    world.ok(c.CancelOrder(order=world.order("b").order))
    held = [c.Held(attempt=attempt(world, task).attempt, fence=attempt(world, task).fence) for task in "abd"]
    held += [c.Held(attempt=attempt(world, "c").attempt, fence=9), c.Held(attempt="nobody", fence=1)]
    told = world.ok(c.RenewLeases(worker=world.worker(1), attempts=(*held, held[0])))
    assert told["renewed"] == [attempt(world, "a").attempt]
    assert [row["code"] for row in told["lost"]] == ["stale_fence", "wrong_holder", "stale_fence", "not_found"]
    world.advance(9 * SECOND)
    world.ok(world.renewal(attempt(world, "a")))
    world.advance(9 * SECOND)
    told = world.ok(world.renewal(attempt(world, "a")))
    assert [row["code"] for row in told["lost"]] == ["timed_out"], "renewal never passes the attempt's own time"


def test_w19_renewal_stops_with_the_plan() -> None:
    world = World()
    world.submit(draft("a"), deadline_us=2 * SECOND)
    known = world.activate("a")
    world.advance(2 * SECOND)
    assert world.ok(world.renewal(known))["lost"] == [{"attempt": known.attempt, "code": "deadline_passed"}]


# case-25, case-45


def test_case_25_a_renewal_after_expiry_is_refused_though_nobody_has_taken_the_order() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(10 * SECOND)
    assert world.now_us == known.lease_us, "at its end a lease is over"
    assert world.ok(world.renewal(known))["lost"] == [{"attempt": known.attempt, "code": "stale_fence"}]
    assert not any(isinstance(fact.body, LeaseRenewal) for fact in world.facts)
    world.ok(world.expiry(known))
    assert world.ok(world.renewal(known))["lost"][0]["code"] == "stale_fence"
    world.activate("a", 2)
    assert world.ok(world.renewal(known))["lost"][0]["code"] == "stale_fence"
    assert world.ok(world.renewal(known, worker=world.worker(2)))["lost"][0]["code"] == "wrong_holder"


def test_case_25_a_workers_own_clock_says_nothing() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.ok(world.result(known, completed_us=4_000_000_000 * SECOND))
    assert world.now_us < 4_000_000_000 * SECOND


def test_case_45_a_renewing_lease_outlives_every_ttl_up_to_the_attempts_own_time() -> None:
    world = World()
    world.submit(draft("a", attempt_time_us=5 * MINUTE_US))
    known = world.activate("a")
    for _ in range(40):
        world.advance(3 * SECOND)
        assert world.ok(world.renewal(known))["renewed"] == [known.attempt]
        assert world.refused(world.expiry(known)) == "not_due"
    world.ok(world.result(known))


def test_case_45_a_new_start_under_another_name_takes_over_nothing_that_lives() -> None:
    world = world_in("active/running")
    known = attempt(world)
    assert (
        world.refused(c.EnrolWorker(worker=known.worker, host="h", boot_id="b", pid=1, executors=())) == "out_of_range"
    )
    assert world.refused(c.ReserveNext(worker=world.worker(9), count=1)) != "out_of_range"
    assert attempt(world) == known


def test_case_45_an_order_that_is_not_due_is_not_leased() -> None:
    world = world_in("retry_wait")
    order = world.order("a")
    assert world.refused(c.Reserve(order=order.order, expected=order.version, worker=world.worker())) == "order_state"
    assert world.refused(c.EndBackoff(order=order.order, expected=order.version)) == "not_due"
    world.advance(2 * SECOND)
    world.ok(c.EndBackoff(order=order.order, expected=order.version))
    assert (world.order("a").state, world.order("a").reason) == ("ready", "backoff_over")


# case-08


def _race(name: str, world: World, known: AttemptState) -> Any:
    return {
        "activate": lambda: world.activation(known),
        "start": lambda: world.event(known),
        "renew": lambda: world.renewal(known),
        "report": lambda: world.result(known),
        "report_failed": lambda: world.result(known, outcome="failed", failure="executor", message_code="timed_out"),
        "apply": lambda: c.ApplyResult(attempt=known.attempt),
        "stop": lambda: c.ReportStopped(reason="drained", attempt=known.attempt, fence=known.fence, duration_us=SECOND),
        "cancel": lambda: c.CancelOrder(order=known.order),
        "cancel_again": lambda: c.CancelOrder(order=known.order),
    }[name]()


@pytest.mark.parametrize("rest", [("renew", "report", "apply"), ("start", "report_failed", "apply"), ("renew", "stop")])
def test_case_08_every_interleaving_of_a_cancel_with_an_attempts_life(rest: tuple[str, ...]) -> None:
    steps = ("activate", *rest, "cancel", "cancel_again")
    outcomes = set()
    for places in permutations(range(len(steps))):
        chosen = [steps[place] for place in places]
        life = [name for name in chosen if not name.startswith("cancel")]
        if life != ["activate", *rest] or chosen.index("cancel") > chosen.index("cancel_again"):
            continue
        world = world_in("reserved")
        known = attempt(world)
        told: list[tuple[str, str]] = []
        for name in chosen:
            current = world.live.values[known.attempt]
            code = world.refused(_race(name, world, current if current.input_set or name == "activate" else known))
            told.append((name, code))
            world.check()
            order = world.live.values[known.order]
            lives = world.live.values[known.attempt].state in ("leased", "running")
            assert not (order.state == "cancelled" and lives), "cancelled never stands beside a live fence"
        order = world.live.values[known.order]
        codes = dict(told)
        first = chosen.index("cancel")
        if order.state == "applied":
            assert codes["cancel"] == "order_ended" and chosen.index("apply") < first, "commit order decides"
        elif order.state == "retry_wait" or (order.state == "ready" and "stop" in rest):
            raise AssertionError("a cancelled order never comes back")
        else:
            assert order.state in ("cancelled",), chosen
            assert order.reason == "cancelled_by_request"
        assert codes["cancel_again"] == "order_ended"
        ended = world.live.values[known.attempt]
        if ended.activated_us and first < chosen.index("activate") + 2 and "report" in rest:
            assert order.state == "cancelled"
        outcomes.add(order.state)
    assert "cancelled" in outcomes
    if "report" in rest:
        assert "applied" in outcomes


def test_case_08_a_cancel_of_an_ended_order_tells_its_real_outcome_and_changes_nothing() -> None:
    world = world_in("applied")
    before = dict(world.live.values)
    decided = world.do(c.CancelOrder(order=world.order("a").order))
    assert decided.refusal is not None and decided.refusal.detail["state"] == "applied"
    assert {name: value for name, value in world.live.values.items() if not name.startswith("decision:")} == {
        name: value for name, value in before.items() if not name.startswith("decision:")
    }


# case-09


def test_case_09_a_cap_of_n_allows_exactly_n_activations() -> None:
    for cap in (1, 3):
        world = World()
        world.submit(draft("a", attempts=cap, retry=True))
        for number in range(cap):
            world.fail("a")
            order = world.order("a")
            if number < cap - 1:
                assert order.state == "retry_wait"
                world.ok(c.RetryOrder(order=order.order))
        assert (world.order("a").state, world.order("a").reason) == ("failed", "exit_code_unexpected")
        assert world.order("a").failures == cap == world.order("a").account.charged["attempts"]


def test_case_09_pauses_cost_no_attempt_and_no_backoff_and_names_are_never_reused() -> None:
    world = World()
    world.submit(draft("a", attempts=1, retry=True))
    seen = set()
    for number in range(5):
        known = world.activate("a")
        world.ok(world.event(known))
        world.ok(c.ReportStopped(reason="drained", attempt=known.attempt, fence=known.fence, duration_us=SECOND))
        order = world.order("a")
        assert (order.state, order.reason, order.failures, order.yields) == ("ready", "drained", 0, number + 1)
        assert world.live.values[known.attempt].state == "yielded"
        assert order.account.charged == {"time_us": (number + 1) * SECOND}
        seen.add((known.attempt, known.fence, known.ordinal))
    assert {fence for _, fence, _ in seen} == set(range(1, 6)) == {ordinal for _, _, ordinal in seen}
    assert world.fail("a").state == "failed"


def test_case_09_a_drain_before_the_start_costs_nothing_and_counts_as_a_pause() -> None:
    world = World(Limits(yields_max=2))
    world.submit(draft("a", attempts=1))
    for number in range(3):
        known = world.activate("a")
        assert known.state == "leased"
        world.ok(c.ReportStopped(reason="drained", attempt=known.attempt, fence=known.fence, duration_us=0))
        world.check()
        assert world.order("a").state == ("ready" if number < 2 else "budget_exhausted")
    assert world.order("a").yields == 2, "past the bound a pause is charged like any other attempt"


def test_case_09_case_16_a_reservation_that_lapses_costs_nothing_twice_in_a_row() -> None:
    world = World()
    world.submit(draft("a", attempts=1))
    for number in (1, 2):
        known = world.reserve("a")
        assert world.refused(world.expiry(known)) == "not_due"
        world.advance(5 * SECOND)
        world.ok(world.expiry(known))
        order = world.order("a")
        assert (order.state, order.reason, order.ordinal) == ("ready", "reservation_expired", number)
        assert order.account.held == {} == order.account.charged
        assert world.live.values[known.attempt].state == "expired_no_effect"
        assert world.live.values[known.hold].state == "released"
        assert the(world, ExpiryEligibility).purpose == "reservation_expiry"
    assert world.finish("a").state == "applied"
    world.check()


def test_case_09_an_operators_retry_a_week_later_is_a_new_order_with_its_own_count() -> None:
    world = World()
    world.submit(draft("a", attempts=1), draft("b", "a"))
    world.fail("a")
    old = world.order("a")
    world.restart(7 * 86_400 * SECOND)
    told = world.ok(c.RetryOrder(order=old.order, with_dependents=True))
    new = world.order("a")
    assert told["order"] == new.order and next(made["replaces"] for made in told["replacements"]) == old.order
    assert (new.state, new.failures, new.account.charged, new.lineage) == ("ready", 0, {}, old.lineage)
    assert world.live.values[old.order].state == "failed" and world.live.values[old.order].replaced_by == new.order
    assert new.contract == old.contract and new.spec != old.spec
    plan = world.live.values[new.plan]
    assert (plan.orders, plan.open, plan.lost, plan.ended_us) == (4, 2, 0, None)
    world.finish("a")
    assert world.order("b").state == "ready"
    world.finish("b")
    assert world.live.values[new.plan].lost == 0
    world.check()


@pytest.mark.parametrize("cap", [0, -1])
def test_case_09_a_cap_below_one_is_refused(cap: int) -> None:
    world = World()
    assert world.refused(c.SubmitOrder(order=draft("a", attempts=cap))) == "out_of_range"
    assert world.refused(c.SubmitOrder(order=draft("a", attempts=2**31))) == ""


def test_case_27_waiting_holds_nothing_and_depth_three_finishes_on_one_slot() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"), draft("c", "b"), ceilings={"time_us": 31 * SECOND})
    for task in "abc":
        assert world.live.values[world.order(task).plan].account.held == {}
        assert [row.subject for row in world.due("claim", world.now_us, 9, None, None)] == [world.order(task).order]
        world.finish(task, duration_us=100)
    world.check()


# W17, W18: what a lost attempt leaves


@pytest.mark.parametrize("end", ["expiry", "gone"])
def test_w17_a_lost_attempt_is_fenced_charged_its_time_and_wedges_nothing(end: str) -> None:
    world = World()
    budget = {"attempts": 3, "time_us": 65 * SECOND, "calls": 3}
    world.submit(draft("a", ceilings=budget))
    known = world.activate("a")
    assert world.order("a").account.held == {"time_us": 30 * SECOND, "calls": 1}
    if end == "expiry":
        world.advance(10 * SECOND)
        world.ok(world.expiry(known))
        elapsed = 10 * SECOND
    else:
        world.advance(4 * SECOND)
        gone_now(world, known)
        elapsed = 4 * SECOND
    order = world.order("a")
    assert (order.state, order.failures) == ("ready", 0), "a lost worker is no failure"
    assert order.reason == ("lease_expired" if end == "expiry" else "holder_gone")
    assert order.account.held == {} and order.account.charged == {"attempts": 1, "time_us": elapsed}
    assert world.live.values[known.attempt].state == "cancelled_no_effect"
    assert world.refused(world.result(known)) == "rejected_stale"
    second = world.activate("a", 2)
    assert second.fence == known.fence + 1
    assert world.refused(world.result(known, exit_code=1)) == "rejected_stale"
    world.ok(world.result(second))
    world.ok(c.ApplyResult(attempt=second.attempt))
    assert world.order("a").state == "applied"
    world.check()


def gone_now(world: World, known: AttemptState) -> None:
    world.ok(
        c.ProveHolderGone(
            attempt=known.attempt,
            fence=known.fence,
            host=known.host,
            boot_id=known.boot_id,
            basis="locks_free",
            evidence="free",
        )
    )


def test_w17_a_later_boot_of_its_host_proves_a_holder_gone_at_once() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.restart(60 * SECOND)
    world.ok(
        c.ProveHolderGone(
            attempt=known.attempt,
            fence=known.fence,
            host=known.host,
            boot_id=world.boot,
            basis="later_boot",
            evidence="rebooted",
        )
    )
    assert (world.order("a").state, world.order("a").reason) == ("ready", "holder_gone")
    assert world.order("a").account.charged == {"attempts": 1}, "no logical time has passed"


def test_w18_lost_attempts_end_an_order_as_budget_exhausted_and_its_dependents_hear_it() -> None:
    world = World()
    world.submit(draft("a", attempts=2), draft("b", "a"))
    gone(world, "a")
    assert world.order("a").state == "ready"
    gone(world, "a")
    assert world.order("a").state == "budget_exhausted" and world.order("b").state == "dependency_failed"


def test_case_16_a_reservation_whose_holder_died_gives_everything_back_at_once() -> None:
    world = world_in("reserved")
    gone_now(world, attempt(world))
    order = world.order("a")
    assert (order.state, order.account.held, order.account.charged) == ("ready", {}, {})
    world.ok(c.ReleaseReservation(attempt=world.reserve("a").attempt, fence=2))
    assert world.order("a").reason == "reservation_released" and world.order("a").account.held == {}
    world.check()


def test_case_38_five_units_pass_five_and_hold_all_levels_or_none() -> None:
    world = World()
    tasks = [f"t{n}" for n in range(8)]
    plan = world.submit(*(draft(t, per_attempt={"calls": 1}) for t in tasks), ceilings={"calls": 5, "attempts": 50})
    world.ok(c.SetBudget(account="scope", ceilings={"calls": 100}))
    codes = []
    for task in tasks:
        order = world.order(task)
        codes.append(world.refused(c.Reserve(order=order.order, expected=order.version, worker=world.worker())))
    assert codes == [""] * 5 + ["budget_held"] * 3
    assert world.live.values[plan].account.held["calls"] == 5 == world.live.values["scope"].account.held["calls"]
    world.check()
    world.ok(c.ReleaseReservation(attempt=attempt(world, "t0").attempt, fence=1))
    order = world.order("t7")
    world.ok(c.Reexamine(order=order.order, expected=order.version))
    assert (world.order("t7").state, world.order("t7").reason) == ("ready", "budget_freed")


def test_w18_a_share_shrinks_to_what_is_left_and_a_declared_amount_does_not() -> None:
    world = World()
    shared = draft("shared", ceilings={"attempts": 3, "calls": 10}, retry=True)
    world.submit(shared, draft("declared", ceilings={"attempts": 3, "calls": 10}, per_attempt={"calls": 4}, retry=True))
    for task, expected in (("shared", [4, 1]), ("declared", [4])):
        held = []
        for _ in range(2):
            order = world.order(task)
            if world.refused(c.Reserve(order=order.order, expected=order.version, worker=world.worker())):
                break
            held.append(world.hold_of(world.order(task)).held["calls"])
            known = world.activate(task)
            spent = (used(known, time_us=SECOND), used(known, receipt="c", provider="gateway", calls=9))
            world.ok(world.result(known, exit_code=1, usage=spent))
            world.ok(c.ApplyResult(attempt=known.attempt))
            if world.order(task).state == "retry_wait":
                world.ok(c.RetryOrder(order=world.order(task).order))
        assert held == expected
    assert world.order("declared").state == "failed", "nine of ten are gone, and four were declared"
    world.check()
