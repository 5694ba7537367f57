"""Group commit: each command its own compare-and-append, and what an error of one, or of the store, does to others."""

from __future__ import annotations

import msgspec
import pytest

from fencepost.core.anchor import Checkpoint
from fencepost.core.canonical import encode_trusted
from fencepost.core.commands import (
    AnyCommand,
    AppendEvent,
    ApplyResult,
    CancelOrder,
    ObserveClock,
    ProveHolderGone,
    ReportYielded,
    Request,
    Reserve,
    ReserveNext,
    SubmitOrder,
    WaitDraft,
)
from fencepost.core.decide import Decided, Given, View
from fencepost.core.decide import decide as decide_command
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.core.records.attempt import ResultApplication
from fencepost.core.records.plan import Retry
from fencepost.kernel import group as group_module
from fencepost.kernel import replay
from fencepost.kernel.group import clock_reading
from fencepost.kernel.kernel import Kernel
from fencepost.ports.errors import StorageError, StorageFull, StorageUnavailable
from fencepost.testing.fakes import FakeClock, MemoryLedger
from tests.kernel.support import (
    WORKER,
    Trouble,
    activate,
    codes,
    done,
    draft,
    enrol,
    groups_of,
    head_of,
    kernel_over,
    life,
    memory,
    raising,
    report,
    requests,
    reserve,
    submit,
    tasks_in,
)


def troubled() -> tuple[Kernel, Trouble]:
    trouble = Trouble(memory())
    return kernel_over(trouble), trouble


def matches(kernel: Kernel) -> bool:
    return replay.compare(kernel.journal, kernel.stream).match and kernel.verify().ok


def test_a_life_is_applied_and_replays() -> None:
    kernel = kernel_over(memory())
    done(kernel, "dispatcher", enrol())
    assert life(kernel)["state"] == "applied"
    assert matches(kernel)


def test_many_commands_share_one_transaction_and_keep_their_order() -> None:
    kernel, trouble = troubled()
    begun = trouble.begun
    receipts = kernel.write_many(requests(kernel, 50))
    assert trouble.begun == begun + 1
    assert [receipt.sequence for receipt in receipts] == sorted(receipt.sequence for receipt in receipts)
    assert tasks_in(kernel) == [f"task-{number}" for number in range(50)]
    assert groups_of(kernel)[-50:] == [receipt.key for receipt in receipts]
    assert matches(kernel)


def test_a_group_is_bounded_in_commands() -> None:
    trouble = Trouble(memory())
    kernel = kernel_over(trouble, limits=msgspec.structs.replace(FIRST_VALUES, group_commands_max=10))
    begun = trouble.begun
    kernel.write_many(requests(kernel, 25))
    assert trouble.begun == begun + 3
    assert len(tasks_in(kernel)) == 25


def test_a_group_is_bounded_in_bytes() -> None:
    trouble = Trouble(memory())
    kernel = kernel_over(trouble, limits=bounded(record_bytes_max=20_000, command_bytes_max=20_000))
    asked = requests(kernel, 200)
    begun = trouble.begun
    kernel.write_many(asked)
    bytes_total = sum(len(encode_trusted(request)) for request in asked)
    assert trouble.begun - begun >= bytes_total // 20_000 > 3
    assert len(tasks_in(kernel)) == 200


def test_a_group_is_bounded_in_records_and_what_does_not_fit_is_in_the_next() -> None:
    trouble = Trouble(memory())
    limits = bounded(
        plan_orders_max=1, batch_records_max=112, group_records_max=112, cancel_per_batch=1, fanout_per_batch=1
    )
    kernel = kernel_over(trouble, limits=limits)
    done(kernel, "human", submit("first"))
    begun = trouble.begun
    receipts = kernel.write_many(requests(kernel, 60))  # two records each
    assert trouble.begun == begun + 2
    assert codes(receipts) == [None] * 60
    assert tasks_in(kernel) == ["first", *(f"task-{number}" for number in range(60))]
    assert matches(kernel)


def test_case_18_what_a_record_cannot_hold_is_refused_before_it_is_queued() -> None:
    kernel = kernel_over(memory(), limits=bounded(record_bytes_max=8_000, command_bytes_max=20_000))
    before = head_of(kernel)
    asked: list[AnyCommand] = [
        submit(params="x" * 9_000),  # a record too large
        submit(params="x" * 21_000),  # a command too large
        submit("a\0b"),
        submit("\ud800"),
        submit(""),
        submit(priority="urgent"),
        submit(attempt_time_us=0),
        submit(attempt_time_us=2**53),
        submit(manifest="sha256:no"),
        submit(ceilings={"attempts": 1.5}),
        Reserve(order=7, expected=1, worker=WORKER),  # type: ignore[arg-type]  # what an untyped caller may do
    ]
    receipts = kernel.write_many([kernel.request("human", command) for command in asked])
    assert codes(receipts) == ["too_large"] * 2 + ["bad_command"] * 9
    request = kernel.request("human", submit())
    headers = [{"key": ""}, {"key": "k" * 201}, {"key": "\ud800"}, {"grant": "none"}, {"assurance": "trust me"}]
    assert codes([kernel.write(msgspec.structs.replace(request, **each)) for each in headers]) == ["bad_command"] * 5
    assert all(receipt.refusal is not None and receipt.refusal.message for receipt in receipts)
    after = head_of(kernel)
    assert after - before <= 1, "at most the decision that the constitution permits the submission"
    assert tasks_in(kernel) == []


def test_what_was_queued_is_the_writers_own() -> None:
    """A caller that changes its command's parts afterwards changes nothing: the writer has a copy."""
    ceilings = {"attempts": 3}
    trouble = Trouble(memory())
    kernel = kernel_over(trouble)
    trouble.before_begin = lambda: ceilings.update(attempts=0)
    order = done(kernel, "human", SubmitOrder(order=draft(ceilings=ceilings)))["order"]
    with kernel.reader.look() as look:
        state = look.order(order)
    assert state is not None and state.account.ceiling == {"attempts": 3}


def test_a_refusal_leaves_no_trace_and_touches_nobody_else() -> None:
    kernel, _ = troubled()
    done(kernel, "human", submit("before"))
    wrong = kernel.request("human", CancelOrder(order="order_" + "f" * 32))
    kernel.write(wrong)  # the decision about cancelling is recorded with the first command that is not refused
    before = head_of(kernel)
    asked = requests(kernel, 4)
    receipts = kernel.write_many([asked[0], wrong, asked[1], wrong, asked[2], asked[3]])
    assert codes(receipts) == [None, "not_found", None, "not_found", None, None]
    assert head_of(kernel) == before + 8
    assert wrong.key not in groups_of(kernel)
    assert receipts[1].sequence == head_of(kernel), "a refusal is true at the group's head"
    assert not receipts[1].count and receipts[1].fresh
    assert matches(kernel)


def test_each_command_sees_what_the_group_did_before_it() -> None:
    kernel, trouble = troubled()
    done(kernel, "dispatcher", enrol())
    submitted = done(kernel, "human", submit())
    begun = trouble.begun
    asked = [kernel.request("dispatcher", reserve(submitted)) for _ in range(5)]
    receipts = kernel.write_many(asked)
    assert trouble.begun == begun + 1
    assert codes(receipts) == [None, *["version_moved"] * 4]


def test_what_the_group_took_out_of_a_stage_is_not_found_again() -> None:
    kernel, trouble = troubled()
    done(kernel, "dispatcher", enrol())
    orders = [receipt.result["order"] for receipt in kernel.write_many(requests(kernel, 40))]
    begun = trouble.begun
    next_one = ReserveNext(worker=WORKER, count=1)
    receipts = kernel.write_many([kernel.request("dispatcher", next_one) for _ in range(41)])
    assert trouble.begun == begun + 1
    assert codes(receipts) == [*[None] * 40, "nothing_ready"]
    assert [receipt.result["reservations"][0]["order"] for receipt in receipts[:40]] == orders
    assert matches(kernel)


def test_an_error_in_one_decide_removes_only_that_command(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, trouble = troubled()
    real = decide_command

    def decide(view: View, request: Request, given: Given, next_seq: int) -> Decided:
        if request.key == asked[2].key:
            raise ArithmeticError("a broken decider")
        return real(view, request, given, next_seq)

    asked = requests(kernel, 5)
    monkeypatch.setattr(group_module, "decide", decide)
    begun = trouble.begun
    with pytest.raises(ArithmeticError, match="a broken decider"):
        kernel.write_many(asked)
    assert trouble.begun == begun + 1, "the group is not repeated for it"
    assert tasks_in(kernel) == ["task-0", "task-1", "task-3", "task-4"]
    assert matches(kernel)


def test_a_storage_error_repeats_the_group_with_the_same_given() -> None:
    plain = kernel_over(memory())
    expected = [receipt.result for receipt in plain.write_many(requests(plain, 3))]
    kernel, trouble = troubled()
    trouble.before_commit = raising(StorageError("the disk hiccuped"), times=2)
    begun = trouble.begun
    receipts = kernel.write_many(requests(kernel, 3))
    assert trouble.begun == begun + 3
    assert [receipt.result for receipt in receipts] == expected, "ids come from the same seeds"
    assert tasks_in(kernel) == ["task-0", "task-1", "task-2"]
    assert matches(kernel)


def test_case_14_a_commit_whose_answer_was_lost_is_found_by_its_key() -> None:
    kernel, trouble = troubled()
    trouble.after_commit = raising(StorageUnavailable("the connection is gone"))
    before = head_of(kernel)
    receipts = kernel.write_many(requests(kernel, 3))
    assert codes(receipts) == [None] * 3
    assert [receipt.first_seq for receipt in receipts] == [before + 1, before + 4, before + 6]
    assert tasks_in(kernel) == ["task-0", "task-1", "task-2"]
    assert matches(kernel)


def test_a_storage_error_that_stays_reaches_everyone_and_the_next_command_works() -> None:
    kernel, trouble = troubled()
    trouble.before_append = raising(StorageError("broken"), times=3)
    before = head_of(kernel)
    with pytest.raises(StorageError, match="broken"):
        kernel.write_many(requests(kernel, 3))
    assert head_of(kernel) == before
    done(kernel, "human", submit("after"))
    assert tasks_in(kernel) == ["after"]
    assert matches(kernel)


def test_a_full_disk_is_not_tried_again() -> None:
    kernel, trouble = troubled()
    trouble.before_commit = raising(StorageFull("no space"), times=1)
    begun = trouble.begun
    with pytest.raises(StorageFull):
        kernel.write_many(requests(kernel, 3))
    assert trouble.begun == begun + 1
    kernel.write_many(requests(kernel, 3))
    assert len(tasks_in(kernel)) == 3
    assert matches(kernel)


def test_time_is_observed_first_when_the_last_observation_is_old() -> None:
    clock = FakeClock()
    kernel = kernel_over(memory(), clock=clock)
    done(kernel, "dispatcher", enrol())
    before = head_of(kernel)
    clock.advance(FIRST_VALUES.clock_resolution_us - 1)
    done(kernel, "human", submit("a"))
    assert [kind for kind in kinds_after(kernel, before) if kind == "logical_clock_observation"] == []
    clock.advance(1)
    before = head_of(kernel)
    receipts = kernel.write_many([kernel.request("human", submit(name)) for name in ("b", "c", "d")])
    kinds = kinds_after(kernel, before)
    assert kinds.count("logical_clock_observation") == 1
    assert kinds.index("logical_clock_observation") < kinds.index("work_order_spec")
    with kernel.reader.look() as look:
        stamp = look.record(receipts[0].first_seq).command
        state = look.clock()
    assert stamp is not None and state is not None and stamp.clock == state.last_seq
    assert matches(kernel)


def test_w24_the_samplers_own_commands_are_known_by_their_keys_as_all_others_are() -> None:
    """Somebody who repeats an observation, also after a restart of the host, gets its first receipt."""
    clock = FakeClock()
    kernel = kernel_over(memory(), clock=clock)
    clock.advance(FIRST_VALUES.clock_resolution_us)
    reading = clock_reading(clock.read())
    done(kernel, "human", submit("a"))
    key = f"clock:{reading.source}:{reading.boot_id}:{reading.tick_us}"
    repeated = kernel.request("sampler", ObserveClock(reading=reading), key)
    assert not kernel.write(repeated).fresh
    clock.restart()
    done(kernel, "human", submit("b"))
    before = head_of(kernel)
    assert not kernel.write(repeated).fresh
    assert head_of(kernel) == before
    other = msgspec.structs.replace(reading, utc_us=reading.utc_us + 1)
    assert codes([kernel.write(kernel.request("sampler", ObserveClock(reading=other), key))]) == ["operation_collision"]
    assert matches(kernel)


def test_w19_what_is_charged_by_the_clock_rests_on_a_reading_of_its_moment() -> None:
    """A worker killed a millisecond after its activation used a millisecond, however fresh the last observation is."""
    clock = FakeClock()
    kernel = kernel_over(memory(), clock=clock)
    done(kernel, "dispatcher", enrol())
    [reserved] = done(kernel, "dispatcher", reserve(done(kernel, "human", submit("a"))))["reservations"]
    done(kernel, "dispatcher", activate(reserved))
    clock.advance(1_000)
    proof = ProveHolderGone(
        attempt=reserved["attempt"],
        fence=reserved["fence"],
        host=enrol().host,
        boot_id=enrol().boot_id,
        basis="locks_free",
        evidence="its locks are free",
    )
    # In one group behind a command that is content with the observation as it is.
    receipts = kernel.write_many([kernel.request("human", submit("b")), kernel.request("dispatcher", proof)])
    assert codes(receipts) == [None, None]
    with kernel.reader.look() as look:
        assert look.get("scope").account.charged["time_us"] == 1_000
    assert matches(kernel)


def test_w10_a_wait_is_counted_from_the_moment_that_its_attempt_ended() -> None:
    """A second that is waited for is a second, however long the last observation is good enough for others."""
    clock = FakeClock()
    kernel = kernel_over(memory(), clock=clock)
    done(kernel, "dispatcher", enrol())
    [reserved] = done(kernel, "dispatcher", reserve(done(kernel, "human", submit("a"))))["reservations"]
    done(kernel, "dispatcher", activate(reserved))
    with kernel.reader.look() as look:
        attempt = look.attempt(reserved["attempt"])
        began = look.clock()
        assert attempt is not None and began is not None
        order = look.order(attempt.order)
        assert order is not None
    said = {"spec": order.spec, "input_set": attempt.input_set}
    done(
        kernel,
        "executor",
        AppendEvent(attempt=attempt.attempt, fence=attempt.fence, family="execution_started", **said),
    )
    clock.advance(FIRST_VALUES.clock_resolution_us - 2)
    yielded = ReportYielded(
        attempt=attempt.attempt,
        fence=attempt.fence,
        **said,
        duration_us=1,
        wait=WaitDraft(after_us=1_000_000),
    )
    done(kernel, "executor", yielded)
    with kernel.reader.look() as look:
        waiting = look.order(attempt.order)
    assert waiting is not None and waiting.state == "waiting"
    assert waiting.wait_until_us == began.logical_us + FIRST_VALUES.clock_resolution_us - 2 + 1_000_000
    assert matches(kernel)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_w16_a_backoff_is_counted_from_its_moment_and_a_success_asks_for_none(exit_code: int) -> None:
    clock = FakeClock()
    kernel = kernel_over(memory(), clock=clock)
    done(kernel, "dispatcher", enrol())
    retry = Retry(on=("executor",), backoff_us=1_000_000, backoff_max_us=1_000_000)
    submitted = done(kernel, "human", submit("a", retry=retry, ceilings={"attempts": 3}))
    [reserved] = done(kernel, "dispatcher", reserve(submitted))["reservations"]
    done(kernel, "dispatcher", activate(reserved))
    with kernel.reader.look() as look:
        began = look.clock()
    command = report(reserved)
    facts = msgspec.structs.replace(command.facts, exit_code=exit_code)
    command = msgspec.structs.replace(command, facts=facts)
    passed_us = FIRST_VALUES.clock_resolution_us - 2
    clock.advance(passed_us)
    wanted = [kernel.request("executor", command), kernel.request("reducer", ApplyResult(attempt=reserved["attempt"]))]
    assert codes(kernel.write_many(wanted)) == [None, None]
    with kernel.reader.look() as look:
        order, seen = look.order(submitted["order"]), look.clock()
        assert order is not None and began is not None and seen is not None
        if exit_code:
            backoff = look.body(order.application_seq, ResultApplication).backoff
            assert backoff is not None
            assert backoff.due_us - backoff.jitter_us == began.logical_us + passed_us + 1_000_000
        else:
            assert (order.state, seen.last_seq) == ("applied", began.last_seq)
    assert matches(kernel)


def test_w24_anchors_are_left_every_so_many_records_and_at_the_end() -> None:
    ledger = MemoryLedger()
    journal = memory()
    kernel = kernel_over(journal, ledger=ledger, limits=bounded(checkpoint_interval_records=10))
    genesis = head_of(kernel)
    kernel.write_many(requests(kernel, 6))
    assert [entry.sequence for entry in ledger.all()] == [genesis, head_of(kernel)]
    done(kernel, "human", submit())
    head = head_of(kernel)
    assert len(ledger.lines) == 2
    journal.close = lambda: None  # type: ignore[method-assign]  # it is looked at afterwards
    kernel.close()
    assert [entry.sequence for entry in ledger.all()][2:] == [head]
    kernel.close()
    assert len(ledger.lines) == 3


def test_a_ledger_that_cannot_be_written_loses_no_commit_and_says_so() -> None:
    class BrokenLedger(MemoryLedger):
        broken = True

        def append(self, checkpoint: Checkpoint) -> None:
            if self.broken:
                raise StorageFull("no space for anchors")
            super().append(checkpoint)

    ledger = BrokenLedger()
    kernel = kernel_over(memory(), ledger=ledger, limits=bounded(checkpoint_interval_records=1))
    done(kernel, "human", submit("kept"))
    assert kernel.anchor_problem == "StorageFull: no space for anchors"
    assert tasks_in(kernel) == ["kept"]
    ledger.broken = False
    done(kernel, "human", submit("also kept"))
    assert kernel.anchor_problem is None
    assert [entry.sequence for entry in ledger.all()] == [head_of(kernel)]


def test_a_closed_kernel_takes_nothing_more() -> None:
    kernel = kernel_over(memory())
    request = kernel.request("human", submit())
    kernel.close()
    with pytest.raises(StorageUnavailable):
        kernel.write(request)


def bounded(**changes: int) -> Limits:
    few = {"receipts_per_result_max": 1, "receipts_per_hold_max": 2}  # a small record holds no more
    limits = msgspec.structs.replace(FIRST_VALUES, **{**few, **changes})
    assert not limits.check()
    return limits


def kinds_after(kernel: Kernel, seq: int) -> list[str]:
    with kernel.reader.look() as look:
        return [look.record(found).kind for found, _ in look.records(seq, 1_000)]
