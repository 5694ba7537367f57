"""The auditor predicts every reply of the real kernel, shares no code with it, and finds every lie that it is told."""

from __future__ import annotations

import ast
import copy
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.core import commands as c
from fencepost.testing.simulator import auditor as auditor_module
from fencepost.testing.simulator.auditor import Auditor
from fencepost.testing.simulator.model_authority import PAIRS
from fencepost.testing.simulator.model_checks import Checks
from tests.simulation.auditor_drive import Drive, Seen
from tests.simulation.auditor_lies import Alteration
from tests.simulation.auditor_lies_inside import LIES

ALTERATIONS, BENDS = LIES
FOLDER = Path(auditor_module.__file__).parent
OWN = "fencepost.testing.simulator."


def silent(seed: int, steps: int) -> Auditor:
    drive = Drive(seed)
    assert drive.run(steps) == []
    assert drive.auditor is not None
    return drive.auditor


@pytest.mark.parametrize(
    "path", [FOLDER / "auditor.py", *sorted(FOLDER.glob("model_*.py"))], ids=lambda path: path.stem
)
def test_the_auditor_shares_no_code_with_the_kernel(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        for name in names:
            module = f"{node.module}.{name}" if isinstance(node, ast.ImportFrom) else name
            own = module.startswith((f"{OWN}model_", f"{OWN}auditor"))
            assert own or module.split(".")[0] in sys.stdlib_module_names, f"imports {module}"


def test_the_auditor_knows_every_command_and_its_rights() -> None:
    known = {kind.__struct_config__.tag: pairs for kind, pairs in c.PAIRS.items() if kind is not c.OpenScope}
    assert known == PAIRS == {name: PAIRS[name] for name in auditor_module._STEPS}


def test_every_reply_is_predicted() -> None:
    predicted: set[tuple[str, str]] = set()
    for seed in range(12):
        predicted.update(silent(seed, 500).predicted)
    carried_out = {command for command, refusal in predicted if not refusal}
    assert carried_out >= {*PAIRS, "open_scope"} - {"settle_hold", "reexamine", "end_backoff"}
    assert len(predicted) >= 220


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(10_000, 10_100, 10))
def test_every_reply_is_predicted_over_many_seeds(first: int) -> None:
    for seed in range(first, first + 10):
        silent(seed, 2_000)


def once(alter: Alteration, told: list[int]) -> Callable[[Seen], None]:
    """Alters the first thing that can be, in a copy; `told` says when that was."""

    def tamper(seen: Seen) -> None:
        if told:
            return
        whole = seen.records
        seen.records = copy.deepcopy(whole)
        if alter(seen):
            told.append(1)
        else:
            seen.records = whole

    return tamper


@pytest.mark.parametrize("name", ALTERATIONS)
def test_what_is_altered_is_found_at_once(name: str) -> None:
    for seed in range(30):
        told: list[int] = []
        drive = Drive(seed, tamper=once(ALTERATIONS[name], told))
        problems = drive.problems or drive.run(400)
        if told:
            assert problems, f"{name} went by without a word"
            return
        assert problems == []
    pytest.fail(f"{name}: no seed has anything to alter")


def place_of(name: str) -> tuple[Any, str]:
    """The module or class, and the attribute in it, that a dotted name means."""
    owner, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(owner), attribute
    except ModuleNotFoundError:
        module, _, kind = owner.rpartition(".")
        return getattr(importlib.import_module(module), kind), attribute


@pytest.mark.parametrize("name", BENDS)
def test_a_bent_rule_of_the_kernel_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, make = BENDS[name]
    for place, function in make().items():
        monkeypatch.setattr(*place_of(place), function, raising=False)
    for seed in (first, *range(30)):
        problems = Drive(seed).run(600)
        if problems:
            assert not problems[0].startswith("raised"), "the kernel itself has noticed"
            return
    pytest.fail(f"{name} went by without a word")


def _forget_in_queue(auditor: Auditor) -> None:
    auditor.world.ready[""].remove(next(iter(auditor.world.ready[""])))


def _book_more(auditor: Auditor) -> None:
    auditor.world.accounts["scope"].charged["time_us"] = 10**12


def _open_a_plan(auditor: Auditor) -> None:
    next(iter(auditor.world.plans.values())).open += 1


def _hold_on(auditor: Auditor) -> None:
    next(hold for hold in auditor.world.holds.values() if hold.state == "settled").held["calls"] = 1


def _end_twice(auditor: Auditor) -> None:
    next(hold for hold in auditor.world.holds.values() if hold.state == "settled").endings = 2


def _say_nothing(auditor: Auditor) -> None:
    next(order for order in auditor.world.orders.values() if order.state == "ready").reason = ""


def _never_hear(auditor: Auditor) -> None:
    waiting = next(order for order in auditor.world.orders.values() if order.state == "blocked_dependency")
    for name in (name for group in waiting.groups for name, _ in group.members):
        member = auditor.world.orders[name]
        member.state, member.told_done = "applied", True


RESTLESS = (_forget_in_queue, _book_more, _open_a_plan, _hold_on, _end_twice, _say_nothing, _never_hear)


@pytest.mark.parametrize("bend", RESTLESS, ids=lambda bend: bend.__name__.strip("_"))
def test_at_rest_the_auditor_looks_at_everything(bend: Callable[[Auditor], None]) -> None:
    for seed in range(20):
        drive = Drive(seed)
        drive.run(300)
        auditor = drive.auditor
        assert auditor is not None and auditor.at_rest() == []
        try:
            bend(auditor)
        except StopIteration:
            continue
        assert auditor.at_rest()
        return
    pytest.fail("no seed has anything to bend")


RESERVED = {"order": "o", "hold": "h", "fence": 1, "accounts": ["scope", "o"], "amounts": {"attempts": 1, "calls": 2}}
USAGE = {"provider": "p", "receipt": "r", "amounts": {"calls": 2}}
STORY: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("work_order_spec", "o", {"ceilings": {"attempts": 1, "calls": 3}}),
    ("work_order_moved", "o", {"origin": "submitted", "target": "ready"}),
    ("attempt_reservation", "a", RESERVED),
    ("attempt_descriptor", "a", {"order": "o"}),
    ("attempt_result", "a", {"order": "o", "facts": {"usage": [USAGE]}}),
    ("hold_settled", "h", {"charged": {"calls": 2}, "receipts": ["p:r"]}),
    ("result_application", "o", {"decision": "applied"}),
    ("hold_adjusted", "h", {"charged": {"calls": 1}, "receipts": ["s"]}),
)
CHILD = {"ceilings": {}, "parent": "o"}
SAVED = {"order": "o", "number": 1, "builds_on": 0}
CHARGED = {"usage": {"provider": "p", "receipt": "q", "amounts": {"calls": 1}}, "freed": {"calls": 1}}


def test_a_child_holds_inside_the_order_that_it_is_part_of() -> None:
    child = (("work_order_spec", "k", CHILD), ("work_order_moved", "k", {"origin": "submitted", "target": "ready"}))
    reserved = {**RESERVED, "order": "k", "hold": "i", "amounts": {"calls": 1}}
    within = ("attempt_reservation", "b", {**reserved, "accounts": ["scope", "o", "k"]})
    beside = ("attempt_reservation", "b", {**reserved, "accounts": ["scope", "k"]})
    assert heard(*child, within, upto=4) == []
    assert heard(*child, beside, upto=4)


def heard(*more: tuple[str, str, dict[str, Any]], upto: int = len(STORY)) -> list[str]:
    checks = Checks(3)
    for kind, subject, body in (*STORY[:upto], *more):
        checks.read({"kind": kind, "subject": subject, "body": body})
    return checks.problems


def test_the_records_of_an_order_that_went_well_are_well() -> None:
    assert heard() == []


@pytest.mark.parametrize(
    ("upto", "record"),
    [
        (8, ("hold_settled", "h", {"charged": {}})),
        (6, ("hold_released", "h", {"reason": "x"})),
        (8, ("hold_adjusted", "h", {"charged": {"calls": 1}, "receipts": ["p:r"]})),
        (5, ("hold_adjusted", "h", {"charged": {"calls": 1}, "receipts": ["s"]})),
        (8, ("hold_adjusted", "h", {"charged": {"calls": 1}, "receipts": ["t", "u"]})),
        (8, ("work_order_moved", "o", {"origin": "applied", "target": "ready"})),
        (4, ("work_order_moved", "o", {"origin": "ready", "target": "cancelled"})),
        (3, ("attempt_reservation", "b", {**RESERVED, "hold": "i", "fence": 2})),
        (5, ("attempt_reservation", "b", {**RESERVED, "hold": "i", "fence": 1})),
        (5, ("attempt_reservation", "b", {**RESERVED, "hold": "i", "fence": 2, "amounts": {"calls": 2}})),
        (5, ("attempt_descriptor", "a", {"order": "o"})),
        (5, ("hold_settled", "h", {"charged": {"calls": 3}, "receipts": ["p:r"]})),
        (5, ("hold_settled", "h", {"charged": {}, "receipts": ["p:r"]})),
        (5, ("hold_settled", "h", {"charged": {"calls": 1}})),
        (5, ("hold_settled", "h", {"charged": {}, "credited": {"attempts": 2}})),
        (3, ("attempt_yielded", "b", {"order": "o"})),
        (4, ("work_order_waits", "o", {"attempt": "a"})),
        (5, ("checkpoint_envelope", "a", SAVED)),
        (4, ("checkpoint_envelope", "b", SAVED)),
        (4, ("checkpoint_envelope", "a", {**SAVED, "number": 2, "builds_on": 1})),
        (4, ("checkpoint_envelope", "a", {**SAVED, "number": 1, "builds_on": 1})),
        (8, ("usage_charged", "h", {**CHARGED, "freed": {}, "usage": USAGE})),
        (8, ("usage_charged", "h", CHARGED)),
        (4, ("usage_charged", "h", {**CHARGED, "freed": {"calls": 2}})),
    ],
)
def test_checks_that_rest_on_no_prediction(upto: int, record: tuple[str, str, dict[str, Any]]) -> None:
    assert heard(upto=upto) == []
    assert heard(record, upto=upto)
