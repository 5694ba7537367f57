"""Command keys: an exact replay is authorized again and gets the first receipt, anything else collides (W24)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fencepost.core.commands import CancelOrder, ReserveNext, SetBudget
from fencepost.core.state import AUTHORITY
from fencepost.kernel.kernel import Kernel
from fencepost.testing.fakes import FakeEntropy
from tests.kernel.support import (
    WORKER,
    Authority,
    activate,
    codes,
    done,
    enrol,
    head_of,
    kernel_over,
    memory,
    report,
    reserve,
    sqlite_store,
    submit,
)


def test_a_replay_gets_the_first_receipt_and_writes_nothing() -> None:
    kernel = kernel_over(memory())
    request = kernel.request("human", submit(), "mine")
    first = kernel.write(request)
    before = head_of(kernel)
    again = kernel.write(request)
    assert first.fresh and not again.fresh
    assert msgspec.structs.replace(again, fresh=True) == first
    assert head_of(kernel) == before


def test_a_replay_within_one_group() -> None:
    kernel = kernel_over(memory())
    request = kernel.request("human", submit(), "mine")
    first, again = kernel.write_many([request, request])
    assert first.fresh and not again.fresh
    assert again.first_seq == first.first_seq


def test_a_replay_after_a_restart_and_after_the_subject_moved_on(tmp_path: Path) -> None:
    kernel = kernel_over(sqlite_store(tmp_path))
    done(kernel, "dispatcher", enrol())
    submitted = kernel.request("human", submit(), "submit")
    first = kernel.write(submitted)
    reserved = kernel.request("dispatcher", reserve(first.result), "reserve")
    second = kernel.write(reserved)
    attempt = second.result["reservations"][0]
    done(kernel, "dispatcher", activate(attempt))
    done(kernel, "executor", report(attempt))
    kernel.close()
    kernel = kernel_over(sqlite_store(tmp_path), entropy=FakeEntropy(7))
    for request, receipt in ((submitted, first), (reserved, second)):
        assert kernel.write(request) == msgspec.structs.replace(receipt, fresh=False)
    kernel.close()


def test_other_bytes_and_another_principal_collide() -> None:
    kernel = kernel_over(memory())
    first = kernel.write(kernel.request("human", submit("one"), "mine"))
    other = kernel.write(kernel.request("human", submit("two"), "mine"))
    assert codes([first, other]) == [None, "operation_collision"]
    assert not other.fresh and not other.result and not other.count
    mine = kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1), "theirs")
    done(kernel, "dispatcher", enrol())
    done(kernel, "human", submit())
    kernel.write(mine)
    human = kernel.request("human", ReserveNext(worker=WORKER, count=1), "theirs")
    assert codes([kernel.write(human)]) == ["operation_collision"]


def test_a_replay_is_authorized_again() -> None:
    kernel = kernel_over(memory())
    request = kernel.request("human", submit(), "mine")
    assert kernel.write(request).ok
    stranger = msgspec.structs.replace(request, principal="principal_" + "f" * 32)
    without_grant = msgspec.structs.replace(request, grant="sha256:" + "f" * 64)
    assert codes([kernel.write(stranger), kernel.write(without_grant)]) == ["unauthenticated", "grant_missing"]
    revoke(kernel, request.grant)
    refused = kernel.write(request)
    assert codes([refused]) == ["grant_revoked"]
    assert not refused.result, "nothing of the first answer is told"


def revoke(kernel: Kernel, chain: str) -> None:
    """Revoke a grant in the state that the writer remembers, as a record of a later version will."""
    values = kernel._writer._tools.memory.values
    state = values[AUTHORITY]
    revoked = msgspec.structs.replace(state.grants[chain], revoked=True)
    values[AUTHORITY] = msgspec.structs.replace(state, grants={**state.grants, chain: revoked})


def test_a_refusal_that_may_pass_leaves_its_key_free() -> None:
    kernel = kernel_over(memory())
    done(kernel, "dispatcher", enrol())
    request = kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1), "next")
    assert codes([kernel.write(request)]) == ["nothing_ready"]
    done(kernel, "human", submit())
    second = kernel.write(request)
    assert second.ok and second.fresh


def test_a_look_that_moved_an_order_out_of_the_queue_is_no_refusal_that_may_pass() -> None:
    """What it passed over left the queue, which is written down under its key: an answer, without reservations."""
    kernel = kernel_over(memory())
    done(kernel, "dispatcher", enrol())
    done(kernel, "human", SetBudget(account="scope", ceilings={"time_us": 1_500_000}))
    done(kernel, "human", submit("a"))
    done(kernel, "human", submit("b"))
    reserved = done(kernel, "dispatcher", ReserveNext(worker=WORKER, count=1))["reservations"]
    assert len(reserved) == 1
    passed = kernel.write(kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1), "passed"))
    assert passed.ok and passed.count and passed.result == {"reservations": []}
    after = kernel.write(kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1), "after"))
    assert codes([after]) == ["nothing_ready"] and not after.count


def test_a_denial_is_durable() -> None:
    kernel = kernel_over(memory(), authority=Authority(denied={"cancel_work/work_order"}))
    order = done(kernel, "human", submit())["order"]
    before = head_of(kernel)
    request = kernel.request("human", CancelOrder(order=order), "cancel")
    first, again = kernel.write(request), kernel.write(request)
    assert codes([first, again]) == ["denied", "denied"]
    assert first.count == 1 and head_of(kernel) == before + 1


def test_two_openings_of_one_scope_make_one() -> None:
    journal = memory()
    first = kernel_over(journal)
    second = kernel_over(journal, entropy=FakeEntropy(1))
    assert head_of(first) == head_of(second)
    assert first.identity("human") == second.identity("human")
