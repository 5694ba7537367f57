"""A world for every state that an order can be brought into today, by ordinary commands only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.records.common import LogRef, StoppedFor
from fencepost.core.records.plan import Acceptance
from fencepost.core.state import AttemptState
from tests.support.world import SECOND, World, draft, group

TASK = "a"
PRINTED = LogRef(digest="sha256:" + "5" * 64, bytes_total=9, bytes_kept=9)


def _fresh(*needs: c.GroupDraft, **more: object) -> World:
    world = World(Limits())
    world.submit(
        draft("first", may_fail=True),
        draft(TASK, *needs, **more),
        draft("after", TASK),
        draft("cleanup", group("optional", TASK)),
    )
    world.worker(1)
    world.worker(2, host="host-2")
    return world


def _ready() -> World:
    return _fresh(retry=True)


def _blocked_dependency() -> World:
    return _fresh(group("required", "first"))


def _dependency_failed() -> World:
    world = _fresh(group("required", "first"))
    world.fail("first")
    return world


def _blocked_budget() -> World:
    world = _fresh(ceilings={"attempts": 3, "time_us": 60 * SECOND}, attempt_time_us=60 * SECOND)
    plan = world.order(TASK).plan or ""
    world.ok(c.SetBudget(account=plan, ceilings={"time_us": 60 * SECOND}))
    world.reserve("first")
    order = world.order(TASK)
    world.do(c.Reserve(order=order.order, expected=order.version, worker=world.worker(1)))
    return world


def _budget_exhausted() -> World:
    world = _fresh(attempts=1)
    gone(world, TASK)
    return world


def gone(world: World, task: str) -> None:
    """Activate an order and prove its holder gone."""
    attempt = world.activate(task)
    world.ok(
        c.ProveHolderGone(
            attempt=attempt.attempt,
            fence=attempt.fence,
            host=attempt.host,
            boot_id=attempt.boot_id,
            basis="locks_free",
            evidence="locks free",
        )
    )


def _reserved() -> World:
    world = _fresh(retry=True)
    world.reserve(TASK)
    return world


def _leased() -> World:
    world = _fresh(retry=True)
    world.activate(TASK)
    return world


def _running() -> World:
    world = _leased()
    world.ok(world.event(world.attempt_of(world.order(TASK))))
    return world


def _result_pending() -> World:
    world = _running()
    world.ok(world.result(world.attempt_of(world.order(TASK))))
    return world


def _unverified() -> World:
    world = _fresh(accept=Acceptance(verify=("check",)))
    world.ok(world.result(world.activate(TASK)))
    return world


def _verified() -> World:
    world = _unverified()
    attempt = world.attempt_of(world.order(TASK))
    world.ok(c.RecordVerification(attempt=attempt.attempt, result=attempt.result, outcome="passed", duration_us=SECOND))
    return world


def _conflict() -> World:
    world = _result_pending()
    attempt = world.attempt_of(world.order(TASK))
    world.do(world.result(attempt, outcome="failed", failure="executor", message_code="timed_out"))
    return world


def _retry_wait() -> World:
    world = _fresh(retry=True)
    world.fail(TASK)
    return world


def _applied() -> World:
    world = _fresh()
    world.finish(TASK)
    return world


def _failed() -> World:
    world = _fresh()
    world.fail(TASK)
    return world


def _cancelled() -> World:
    world = _ready()
    world.ok(c.CancelOrder(order=world.order(TASK).order))
    return world


def _cancelled_live() -> World:
    world = _running()
    world.ok(c.CancelOrder(order=world.order(TASK).order))
    return world


def _cancelled_late() -> World:
    world = _cancelled_live()
    attempt = world.attempt_of(world.order(TASK))
    world.do(world.result(attempt))
    world.do(world.event(attempt, "heartbeat_observed"))
    return world


def _ended_late() -> World:
    """Its holder told of its end twice when that was over: that it had stopped it, and that it had yielded."""
    world = _cancelled_live()
    attempt = world.attempt_of(world.order(TASK))
    world.do(stopped(attempt, "drained"))
    world.do(world.yielding(attempt, question="go"))
    return world


def stopped(attempt: AttemptState, reason: StoppedFor, **more: Any) -> c.ReportStopped:
    told: dict[str, Any] = {"duration_us": SECOND, "note": "the tree is empty", "stdout": PRINTED, **more}
    return c.ReportStopped(attempt=attempt.attempt, fence=attempt.fence, reason=reason, **told)


def _drained() -> World:
    world = _running()
    world.ok(stopped(world.attempt_of(world.order(TASK)), "drained"))
    return world


def _keeper_lost() -> World:
    world = _running()
    world.ok(stopped(world.attempt_of(world.order(TASK)), "keeper_lost"))
    return world


def _renewed() -> World:
    world = _running()
    world.advance(3 * SECOND)
    world.ok(world.renewal(world.attempt_of(world.order(TASK))))
    return world


def _released() -> World:
    world = _reserved()
    attempt = world.attempt_of(world.order(TASK))
    world.ok(c.ReleaseReservation(attempt=attempt.attempt, fence=attempt.fence))
    return world


def _expired() -> World:
    world = _running()
    attempt = world.attempt_of(world.order(TASK))
    world.advance(12 * SECOND)
    world.ok(world.expiry(attempt))
    world.do(world.result(attempt))  # late: its time is measured, and charged where it passes the estimate
    return world


def _settled_by_deadline() -> World:
    world = _cancelled_live()
    world.advance(25 * SECOND)
    hold = world.hold_of(world.order(TASK))
    world.ok(c.SettleHold(hold=hold.hold, expected=hold.version))
    return world


def _plan_cancelled() -> World:
    world = _running()
    world.ok(c.CancelPlan(plan=world.order(TASK).plan or ""))
    return world


def _backoff_over() -> World:
    world = _retry_wait()
    world.advance(3 * SECOND)
    order = world.order(TASK)
    world.ok(c.EndBackoff(order=order.order, expected=order.version))
    return world


def _budget_freed() -> World:
    world = _blocked_budget()
    world.finish("first")
    order = world.order(TASK)
    world.ok(c.Reexamine(order=order.order, expected=order.version))
    return world


def _waiting() -> World:
    """It has saved a checkpoint and asks a question; nothing of it is held."""
    world = _running()
    attempt = world.attempt_of(world.order(TASK))
    world.ok(world.checkpoint(attempt))
    world.ok(world.yielding(attempt, question="go", prompt="Shall it go on?"))
    return world


def _waiting_for_time() -> World:
    world = _running()
    world.ok(world.yielding(world.attempt_of(world.order(TASK)), after_us=SECOND))
    return world


def _waiting_for_children() -> World:
    world = _with_child()
    child = world.order(TASK).children["part"]
    world.ok(world.yielding(world.attempt_of(world.order(TASK)), orders=(child,)))
    return world


def _with_child() -> World:
    world = _running()
    world.ok(world.child(world.attempt_of(world.order(TASK)), draft("part", attempts=1)))
    return world


def _charged() -> World:
    world = _running()
    attempt = world.attempt_of(world.order(TASK))
    world.ok(world.charge(attempt, "r-1", calls=1))
    world.ok(world.kept(attempt))
    world.ok(world.event(attempt, "heartbeat_observed", note="half of it"))
    return world


def _charged_late() -> World:
    world = _cancelled_live()
    attempt = world.attempt_of(world.order(TASK))
    world.do(world.charge(attempt, "r-1", calls=1))
    world.do(world.checkpoint(attempt))
    world.do(world.kept(attempt))
    world.do(world.child(attempt, draft("part")))
    return world


def _answered() -> World:
    world = _waiting()
    world.ok(c.AnswerOrder(order=world.order(TASK).order, value="yes"))
    return world


def _children_ended() -> World:
    world = _waiting_for_children()
    world.finish(f"{TASK}.part")
    return world


def _time_passed() -> World:
    world = _waiting_for_time()
    world.advance(2 * SECOND)
    order = world.order(TASK)
    world.ok(c.EndWait(order=order.order, expected=order.version))
    return world


def _parent_cancelled() -> World:
    world = _waiting_for_children()
    world.ok(c.CancelOrder(order=world.order(TASK).order))
    return world


BUILDERS: dict[str, Callable[[], World]] = {
    "blocked_dependency": _blocked_dependency,
    "blocked_budget": _blocked_budget,
    "ready": _ready,
    "reserved": _reserved,
    "active/leased": _leased,
    "active/running": _running,
    "result_pending": _result_pending,
    "result_pending/unverified": _unverified,
    "result_pending/verified": _verified,
    "conflict": _conflict,
    "retry_wait": _retry_wait,
    "waiting": _waiting,
    "waiting/time": _waiting_for_time,
    "waiting/children": _waiting_for_children,
    "applied": _applied,
    "failed": _failed,
    "cancelled": _cancelled,
    "cancelled/live": _cancelled_live,
    "dependency_failed": _dependency_failed,
    "budget_exhausted": _budget_exhausted,
}
"""Name -> builder. What stands before a slash is the state of the order `a`."""

HISTORIES: dict[str, Callable[[], World]] = {
    **BUILDERS,
    "cancelled/late": _cancelled_late,
    "cancelled/ended late": _ended_late,
    "ready/drained": _drained,
    "ready/keeper lost": _keeper_lost,
    "active/with a child": _with_child,
    "active/charged": _charged,
    "cancelled/charged late": _charged_late,
    "ready/answered": _answered,
    "ready/children ended": _children_ended,
    "ready/time passed": _time_passed,
    "cancelled/with its child": _parent_cancelled,
    "active/renewed": _renewed,
    "ready/released": _released,
    "ready/expired": _expired,
    "cancelled/unsettled past its time": _settled_by_deadline,
    "cancelled/plan": _plan_cancelled,
    "ready/after a backoff": _backoff_over,
    "ready/budget freed": _budget_freed,
}
"""Those, and ways behind them on which further kinds of records stand."""

_BUILT: dict[str, World] = {}


def world_in(name: str) -> World:
    """A world of one's own in which order `a` is in that state."""
    if name not in _BUILT:
        _BUILT[name] = HISTORIES[name]()
    return _BUILT[name].fork()
