"""X10: an order of a callable in the core. Its program is one thing or the other, and is part of what it is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.records.plan import PythonCall, WorkOrderSpec
from tests.support.world import World, draft, plan_of

CALL = PythonCall(call="work:work", name="work", version=1, interpreter="/usr/bin/python3")


def spec_of(**changes: Any) -> WorkOrderSpec:
    world = World()
    world.submit(draft("a", work_kind="python/1", run=(), **{"python": CALL, **changes}))
    (spec,) = (fact.body for fact in world.facts if isinstance(fact.body, WorkOrderSpec))
    return spec


@pytest.mark.parametrize(
    "changes",
    [
        {"work_kind": "python/1"},
        {"work_kind": "python/1", "run": ()},
        {"work_kind": "python/1", "run": ("true",), "python": CALL},
        {"work_kind": "command/1", "python": CALL},
        {"work_kind": "command/1", "run": (), "python": CALL},
    ],
)
def test_x10_an_order_has_the_program_of_its_kind_and_no_other(changes: dict[str, Any]) -> None:
    refusal = World().decide(plan_of(draft("b"), draft("a", **{"run": ("true",), **changes}))).refusal
    assert refusal is not None
    assert (refusal.code, refusal.field) == ("out_of_range", "/orders/1")
    assert refusal.detail["subject"] == "the program of a"


def test_x10_the_callable_is_in_the_contract_with_all_that_names_it() -> None:
    spec = spec_of()
    assert (spec.work_kind, spec.run, spec.python) == ("python/1", (), CALL)
    others = [
        spec_of(python=replace(CALL, **{field: value})).contract
        for field, value in (("call", "work:other"), ("name", "other"), ("version", 2), ("interpreter", "/bin/python"))
    ]
    assert len({spec.contract, *others}) == 5
    assert spec_of().contract == spec.contract


def test_x10_a_worker_without_the_executor_does_not_get_it() -> None:
    world = World()
    world.submit(draft("a", work_kind="python/1", run=(), python=CALL))
    order = world.order("a")
    for number, executors, code in ((1, ("command/1",), "executor_unsupported"), (2, ("python/1",), None)):
        worker = world.worker(number, executors=executors)
        refusal = world.decide(c.Reserve(order=order.order, expected=world.order("a").version, worker=worker)).refusal
        assert (None if refusal is None else refusal.code) == code
