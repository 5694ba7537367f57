"""`Scheduler.ready(as_of_event, source_sequence, limit)`: an ordered view, a function of what it is given (W15)."""

from __future__ import annotations

from fencepost.core.reasons import Refusal
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.read import ReadinessPlan
from fencepost.testing.fakes import FakeClock
from tests.kernel.support import activate, done, enrol, head_of, kernel_over, memory, reserve, submit


def _ready(kernel: Kernel, as_of: int, sequence: int, limit: int = 100) -> ReadinessPlan:
    with kernel.reader.look() as look:
        found = look.ready(as_of, sequence, limit)
    assert isinstance(found, ReadinessPlan), found
    return found


def _refused(kernel: Kernel, as_of: int, sequence: int) -> str:
    with kernel.reader.look() as look:
        found = look.ready(as_of, sequence, 1)
    assert isinstance(found, Refusal)
    return found.code


def _observation(kernel: Kernel) -> int:
    with kernel.reader.look() as look:
        clock = look.clock()
    assert clock is not None
    return clock.last_seq


def test_w15_ready_orders_stand_by_priority_and_time_and_the_view_moves_nothing() -> None:
    clock = FakeClock()
    kernel = kernel_over(memory(), clock=clock)
    made = {}
    for name, priority in (("late", "low"), ("first", "normal"), ("second", "normal"), ("soon", "high")):
        made[name] = done(kernel, "human", submit(name, priority=priority))["order"]
        clock.advance(1_000)
    head, as_of = head_of(kernel), _observation(kernel)
    view = _ready(kernel, as_of, head)
    named = [name for one in view.orders for name, order in made.items() if order == one.order]
    assert named == ["soon", "first", "second", "late"]
    assert [(one.key_us, one.rank) for one in view.orders] == sorted((one.key_us, one.rank) for one in view.orders)
    assert (view.as_of_event, view.sequence) == (as_of, head)
    assert _ready(kernel, as_of, head) == view, "the same question has the same answer"
    assert _ready(kernel, as_of, head, limit=2).orders == view.orders[:2]
    assert _ready(kernel, as_of, head, limit=0).orders == ()
    assert head_of(kernel) == head, "nothing was written"
    kernel.close()


def test_w15_the_view_is_of_one_head_and_one_accepted_observation() -> None:
    clock = FakeClock()
    kernel = kernel_over(memory(), clock=clock)
    early = _observation(kernel)
    submitted = done(kernel, "human", submit("a"))
    clock.advance(60_000_000)
    done(kernel, "human", submit("later"))
    head, late = head_of(kernel), _observation(kernel)
    assert late > early
    assert len(_ready(kernel, late, head).orders) == 2
    assert [one.order for one in _ready(kernel, early, head).orders] == [submitted["order"]]
    assert _refused(kernel, late, head - 1) == "head_moved"
    assert _refused(kernel, late, head + 1) == "head_moved"
    for other in (0, late + 1, head + 1):
        assert _refused(kernel, other, head) == "not_found", "only an accepted observation says what time it is"
    kernel.close()


def test_w15_what_is_reserved_leaves_the_view() -> None:
    kernel = kernel_over(memory())
    submitted = done(kernel, "human", submit("a"))
    done(kernel, "dispatcher", enrol())
    reserved = done(kernel, "dispatcher", reserve(submitted))["reservations"][0]
    assert _ready(kernel, _observation(kernel), head_of(kernel)).orders == ()
    done(kernel, "dispatcher", activate(reserved))
    kernel.close()
