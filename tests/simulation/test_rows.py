"""Rows that no world reaches are proved to be reached by nothing, and each kind of proof fails when it is broken."""

from __future__ import annotations

import ast
import shutil
from collections import Counter
from functools import cache, partial
from pathlib import Path

import msgspec
import pytest

from fencepost.core import commands as c
from fencepost.core.decide import ending
from fencepost.core.machines import MACHINES
from fencepost.core.state import OrderState
from fencepost.testing.search import closure, proofs, writers
from fencepost.testing.search.closure import Closure, Taken, close, gaps, taken_from
from fencepost.testing.search.place import MachineRow, Place, Refold, ask, intent
from fencepost.testing.search.proofs import prove
from fencepost.testing.search.rows import ALL, ARGUMENT, CLOSED, UNREACHABLE, UNWRITTEN
from fencepost.testing.search.shapes import Builder, Cell, Shape, Unknown, cells_of
from fencepost.testing.search.writers import CORE, CannotTell

REACHABLE = ALL - UNREACHABLE.keys()
"""What worlds take; that they do is tested with the search."""
order_row = partial(MachineRow, "work_order")
attempt_row = partial(MachineRow, "attempt")


@cache
def _sample() -> Closure:
    return close(1)


@cache
def _small() -> Closure:
    """A closure that is believed: what it would find, without the time that it takes."""
    taken = Taken(Shape("ready", "", ""), Cell(), "somebody does something")
    every = frozenset(c.PAIRS) - {c.OpenScope}
    return Closure(frozenset({taken.shape}), dict.fromkeys(REACHABLE, taken), every, 1, 1, (), 0, 0.0)


def _problem(problems: tuple[str, ...], *words: str) -> None:
    assert any(all(word in problem for word in words) for problem in problems), problems


def test_w13_every_row_that_no_world_reaches_is_proved_to_be_reached_by_nothing() -> None:
    found = prove(_sample(), REACHABLE)
    assert found.problems == ()
    assert found.proved.keys() == UNREACHABLE.keys()
    assert Counter(each.argument for each in found.proved.values()) == {UNWRITTEN: 40, CLOSED: 22}


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_w13_the_same_over_every_combination() -> None:
    found = prove(close(), REACHABLE)
    assert found.problems == () and found.proved.keys() == UNREACHABLE.keys()


def test_every_reason_of_the_table_names_its_argument() -> None:
    assert set(UNREACHABLE.values()) == ARGUMENT.keys()
    assert set(ARGUMENT.values()) == {UNWRITTEN, CLOSED}


# What nothing writes


def test_the_states_that_nothing_writes_are_these() -> None:
    written = writers.written()
    nowhere = {
        (name, state) for name, machine in MACHINES.items() for state in machine.rows if not written.at(name, state)
    }
    orders = {("work_order", state) for state in ("blocked_policy", "quarantined", "reconciling", "unknown_terminal")}
    assert nowhere == {*orders, ("attempt", "reconciling"), ("attempt", "unknown_terminal")}
    assert {name: set(states) for name, states in written.births.items()} == {
        name: set(machine.first) for name, machine in MACHINES.items()
    }
    assert "running" not in written.moves["clock_domain"]


def test_every_state_that_a_world_reaches_is_seen_to_be_written() -> None:
    """The analysis is an upper bound, or it proves nothing."""
    written = writers.written()
    for machine, origin, target in REACHABLE:
        states = written.moves if origin else written.births
        assert target in states[machine], (machine, target)


def _changed(folder: Path, path: str, before: str, after: str) -> Path:
    """A copy of the core with one change."""
    target = folder / "core"
    shutil.copytree(CORE, target, ignore=shutil.ignore_patterns("__pycache__"))
    text = (target / path).read_text()
    assert text.count(before) == 1, path
    (target / path).write_text(text.replace(before, after))
    return target


CHANGES = 'changes: dict[str, object] = {"ready_us": body.ready_us} if body.target == "ready" else {}'
MOVES_READY = 'ending.move(batch, order.order, "ready", "retry_requested")'


@pytest.mark.parametrize(
    ("path", "before", "after", "row"),
    [
        (
            "decide/finish.py",
            'path = ("yielded",) if',
            'path = ("reconciling", "yielded") if',
            "attempt running -> reconciling",
        ),
        (
            "decide/claim.py",
            'ending.move(batch, order.order, "blocked_budget", found.code, found.account)',
            'ending.move(batch, order.order, "blocked_policy" if found else "blocked_budget", found.code)',
            "work_order ready -> blocked_policy",
        ),
        (
            "evolve/attempt.py",
            '"failed": ("failed", "failed"),',
            '"failed": ("failed", "failed"),\n    "asked": ("reconciling", "reconciling"),',
            "attempt result_reported -> reconciling",
        ),
        ("evolve/plan.py", 'state="submitted"', 'state="quarantined"', "work_order quarantined -> failed"),
        (
            "evolve/authority.py",
            "edit.change(CLOCK, known, state=state, quarantined_seq=seq)",
            'edit.change(CLOCK, known, state="running" if body.tick else state, quarantined_seq=seq)',
            "clock_domain clock_reconciliation_required -> running",
        ),
    ],
    ids=["path", "condition", "table", "birth", "fold"],
)
def test_a_state_that_somebody_starts_to_write_is_told(
    path: str, before: str, after: str, row: str, tmp_path: Path
) -> None:
    core = _changed(tmp_path, path, before, after)
    problems = prove(_small(), REACHABLE, core).problems
    _problem(problems, row, "give it a world that reaches it", path)


def test_a_door_that_the_analysis_does_not_see_is_told(tmp_path: Path) -> None:
    before = "edit.change(CLOCK, known, state=state, quarantined_seq=seq)"
    core = _changed(tmp_path, "evolve/authority.py", before, before.replace("state=state, ", ""))
    problems = prove(_small(), REACHABLE, core).problems
    _problem(problems, "running -> clock_reconciliation_required", "teach the analysis that door")


@pytest.mark.parametrize(
    ("path", "before", "after", "says"),
    [
        ("decide/retry.py", MOVES_READY, MOVES_READY.replace('"ready"', 'str("ready")'), "cannot tell"),
        ("decide/retry.py", MOVES_READY, MOVES_READY.replace('"ready"', 'f"{order.task}"'), "cannot tell"),
        ("decide/retry.py", MOVES_READY, MOVES_READY.replace('"ready"', "command.order"), "cannot tell"),
        ("decide/retry.py", MOVES_READY, MOVES_READY.replace('"ready"', '"redy"'), "no state of work_order"),
        (
            "decide/retry.py",
            MOVES_READY,
            'move = ending.move\n        move(batch, order.order, "ready", "retry_requested")',
            "handed on, not called",
        ),
        (
            "evolve/plan.py",
            CHANGES,
            f'{CHANGES}\n    changes["state"] = 1',
            "put into a map",
        ),
        (
            "evolve/plan.py",
            "edit.change(order.order, order, groups=groups)",
            'edit.change(order.order, edit.find(body.member), groups=groups, state="ready")',
            "whose state",
        ),
        (
            "evolve/plan.py",
            CHANGES,
            'changes = {"state": body.reason}',
            "put into a map",
        ),
        ("evolve/plan.py", 'state="submitted",', "**body.extensions,", "born without naming"),
    ],
    ids=["call", "format", "field", "misspelt", "handed_on", "map", "of_whom", "spread", "born"],
)
def test_what_cannot_be_followed_is_not_taken_for_harmless(
    path: str, before: str, after: str, says: str, tmp_path: Path
) -> None:
    core = _changed(tmp_path, path, before, after)
    with pytest.raises(CannotTell, match=says):
        writers.written(core)
    found = prove(_small(), REACHABLE, core)
    assert not found.proved
    _problem(found.problems, "no row is proved to be unwritten", says)


def test_nobody_outside_the_core_makes_a_state_or_moves_one() -> None:
    made = {"OrderState", "AttemptState", "HoldState", "ClockState", "WorkOrderMoved", "AttemptMoved"}
    made |= {"AttemptReservation", "AttemptDescriptor", "AttemptResult", "ResultApplication", "LogicalClockObservation"}
    package = CORE.parent
    for path in sorted(package.rglob("*.py")):
        if path.is_relative_to(CORE) or path.is_relative_to(package / "testing"):
            continue
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in calls}
        assert not names & made, path


# What no command can say


def test_no_command_asks_for_effects_or_recovery_that_nobody_knows() -> None:
    order = msgspec.json.encode(_draft())
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(order.replace(b'"effects":"none"', b'"effects":"opaque"'), type=c.OrderDraft)
    plan = msgspec.json.encode(_plan())
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(plan.replace(b'"recovery":"replace"', b'"recovery":"adopt"'), type=c.SubmitPlan)


def _plan() -> c.SubmitPlan:
    return intent(Builder().template.place.shared.world)


def _draft() -> c.OrderDraft:
    return _plan().orders[0]


def test_a_command_that_can_say_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    known = tuple((kind, field, allowed - {"declared"}) for kind, field, allowed in proofs.FORMS)
    monkeypatch.setattr(proofs, "FORMS", known)
    _problem(prove(_small(), REACHABLE).problems, "OrderDraft.effects", "declared")


def test_an_order_that_recovers_in_another_way_is_told(tmp_path: Path) -> None:
    core = _changed(tmp_path, "decide/specs.py", 'recovery="replace"', 'recovery="adopt" if draft.may else "replace"')
    _problem(prove(_small(), REACHABLE, core).problems, "recover by adopt, replace")


def test_an_effect_that_is_noted_is_told(tmp_path: Path) -> None:
    before = "edit.change(order.order, order, groups=groups)"
    core = _changed(tmp_path, "evolve/plan.py", before, before.replace("groups=groups", "effect_open=True"))
    assert writers.effect_writers() == []
    _problem(prove(_small(), REACHABLE, core).problems, "evolve/plan.py", "effect flag", "closure.FIXED")


def test_the_row_of_a_cancel_after_an_effect_hangs_on_that_flag_alone() -> None:
    builder = Builder()
    place = builder.build(Shape("active", "running", "held"), Cell())
    name = builder.template.order
    row = order_row("cancellation_requested", "failed")
    assert row not in _moves(place, c.CancelOrder(order=name))
    order: OrderState = place.values[name]
    place.values[name] = msgspec.structs.replace(order, effect_applied=True)
    assert row in _moves(place, c.CancelOrder(order=name))


def _moves(place: Place, command: c.Command) -> set[MachineRow]:
    return {row for _, row in Refold(place).fold(ask(place, command).facts).moves}


# What is closed


def test_a_decider_that_takes_another_row_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel that misses leases that have not begun ends such an order without a word to its attempt."""
    shape, row = Shape("active", "leased", "held"), order_row("active", "cancelled")
    assert row not in taken_from(shape, 1)
    monkeypatch.setattr(ending, "LIVE", frozenset({"running"}))
    assert row in taken_from(shape, 1)
    taken = Taken(shape, Cell(), "a person cancels a")
    problems = prove(_small()._replace(rows={**_small().rows, row: taken}), REACHABLE).problems
    _problem(
        problems, "active -> cancelled", "“a person cancels a” takes it from active / leased / held", "take its row"
    )


def test_a_row_that_is_new_and_that_no_world_takes_is_told() -> None:
    left_out = attempt_row("running", "yielded")
    problems = prove(_small(), REACHABLE - {left_out}).problems
    assert problems == ()  # some worlds only: nobody can say what the others reach
    row = order_row("applied", "ready")
    taken = next(iter(_small().rows.values()))
    _problem(prove(_small()._replace(rows={**_small().rows, row: taken}), REACHABLE).problems, "and no world does")


def test_an_attempt_that_ends_its_order_without_a_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, row = Shape("active", "running", "held"), order_row("active", "failed")
    assert row not in taken_from(shape, 1)
    monkeypatch.setattr(
        ending, "lose", lambda batch, name, reason, cause: ending.end(batch, name, "failed", "executor_failed", cause)
    )
    assert row in taken_from(shape, 1)


def test_combinations_that_are_too_narrow_are_told() -> None:
    rows = {row: taken for row, taken in _small().rows.items() if row != order_row("retry_wait", "ready")}
    problems = prove(_small()._replace(rows=rows), REACHABLE).problems
    _problem(problems, "a world takes work_order retry_wait -> ready", "too narrow")


def test_a_field_that_nobody_has_thought_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gaps(_small()) == []
    known = {field: why for field, why in closure.FIXED[OrderState].items() if field != "lineage"}
    monkeypatch.setattr(closure, "FIXED", {**closure.FIXED, OrderState: {**known, "paused": "none"}})
    _problem(tuple(gaps(_small())), "OrderState.lineage", "neither varied")
    _problem(tuple(gaps(_small())), "OrderState.paused", "does not exist")


def test_a_command_that_is_never_accepted_is_told() -> None:
    fewer = _small()._replace(accepted=_small().accepted - {c.EndBackoff})
    _problem(tuple(gaps(fewer)), "EndBackoff", "give it a move")


def test_a_shape_that_nobody_can_build_is_told() -> None:
    with pytest.raises(Unknown, match="teach it"):
        Builder().build(Shape("active", "paused", "held"), Cell())
    _problem(tuple(gaps(_small()._replace(unknown=("orders come to be paused",)))), "paused")


def test_every_combination_is_another_one_and_a_sample_has_every_value() -> None:
    for shape in (Shape("blocked_dependency", "", ""), Shape("result_pending", "result_reported", "held")):
        cells, sample = list(cells_of(shape)), list(cells_of(shape, 1))
        assert len(set(cells)) == len(cells) > 1_000 > len(sample)
        for field in Cell._fields:
            assert {getattr(cell, field) for cell in sample} == {getattr(cell, field) for cell in cells}
