"""What the auditor has found in the kernel, each as the shortest story that shows it."""

from __future__ import annotations

import pytest

from fencepost.core.commands import AppendEvent, SetBudget
from fencepost.kernel.kernel import Kernel
from tests.kernel.support import INPUTS, activate, done, enrol, head_of, kernel_over, memory, reserve, submit


@pytest.fixture
def kernel() -> Kernel:
    made = kernel_over(memory())
    done(made, "dispatcher", enrol())
    return made


def test_w23_a_refusal_that_wrote_nothing_but_its_decision_leaves_its_key_free(kernel: Kernel) -> None:
    """The first activation of a scope is refused for budget; under the same key it succeeds once there is some."""
    submitted = done(kernel, "human", submit(ceilings={"attempts": 3, "calls": 9}))
    reserved = done(kernel, "dispatcher", reserve(submitted))["reservations"][0]
    done(kernel, "human", SetBudget(account=submitted["order"], ceilings={"attempts": 3, "calls": 1}))
    before = head_of(kernel)
    request = kernel.request("dispatcher", activate(reserved), "one key")
    refused = kernel.write(request)
    assert refused.refusal is not None and refused.refusal.code == "budget_held"
    assert (refused.count, head_of(kernel)) == (0, before)
    done(kernel, "human", SetBudget(account=submitted["order"], ceilings={"attempts": 3, "calls": 9}))
    assert kernel.write(request).ok


def test_w17_a_stale_event_as_the_first_of_its_kind_is_no_record(kernel: Kernel) -> None:
    submitted = done(kernel, "human", submit())
    reserved = done(kernel, "dispatcher", reserve(submitted))["reservations"][0]
    done(kernel, "dispatcher", activate(reserved))
    before = head_of(kernel)
    event = AppendEvent(
        attempt=reserved["attempt"],
        fence=reserved["fence"] + 1,
        spec=reserved["spec"],
        input_set=INPUTS,
        family="heartbeat_observed",
    )
    refused = kernel.write(kernel.request("executor", event))
    assert refused.refusal is not None and refused.refusal.code == "stale_fence"
    assert head_of(kernel) == before
