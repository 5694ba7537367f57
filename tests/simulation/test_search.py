"""Exhaustive search of small worlds (`fencepost.testing.search`): what holds in every place, and that faults are seen.

The worlds that are searched here take seconds; the large ones run nightly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from fencepost.core import views
from fencepost.core.machines import ENDED, MACHINES
from fencepost.testing.search import __main__ as command_line
from fencepost.testing.search import folding, waits
from fencepost.testing.search.explore import Report, Step, Story, replay, search
from fencepost.testing.search.moves import Cast
from fencepost.testing.search.place import MachineRow, root_of
from fencepost.testing.search.rows import ALL, BEFORE_THE_SEARCH, UNREACHABLE, coverage
from fencepost.testing.search.worlds import ACTS, BY_NAME, WORLDS, World
from tests.simulation.search_faults import FAULTS, Fault, planted

SMALL = [world.name for world in WORLDS if not world.deep]
DEEP = [world.name for world in WORLDS if world.deep]
WITNESSES = ("fences", "deadline", "currency", "verified", "drained", "clock", "pages", "asks")
"""Small worlds that together take every row that any world can take."""


@cache
def _report(name: str) -> Report:
    """What a search of that world finds, searched once for every test that asks."""
    return search(BY_NAME[name])


def _holds(report: Report) -> None:
    """Everything that a search looks at holds in the world of the report."""
    story = [] if report.story is None else report.story.lines()
    assert not story, "\n".join(story)
    assert report.places > 1 and report.depth > 1 and report.dead_ends == 0
    found = coverage(report.rows)
    assert not found.lies and not found.foreign


@pytest.mark.parametrize("name", SMALL)
def test_w13_every_place_of_a_small_world_holds(name: str) -> None:
    _holds(_report(name))


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", DEEP)
def test_w13_every_place_of_a_large_world_holds(name: str) -> None:
    _holds(search(BY_NAME[name]))


def test_w13_every_row_of_every_machine_is_reached_or_listed_with_its_reason() -> None:
    found = coverage(row for name in WITNESSES for row in _report(name).rows)
    assert found.missing == () and found.lies == () and found.foreign == ()
    assert len(found.reached) + len(UNREACHABLE) == len(ALL)
    assert all(len(reason) > 20 for reason in UNREACHABLE.values())


def test_the_table_of_unreachable_rows_is_checked_both_ways() -> None:
    reachable = ALL - UNREACHABLE.keys()
    listed = next(iter(UNREACHABLE))
    left_out = MachineRow("work_order", "ready", "reserved")
    strange = MachineRow("work_order", "applied", "ready")
    assert coverage(reachable).missing == ()
    assert coverage(reachable - {left_out}).missing == (left_out,)
    assert coverage({*reachable, listed}).lies == (listed,)
    assert coverage({*reachable, strange}).foreign == (strange,)
    assert reachable >= BEFORE_THE_SEARCH


def test_every_row_of_the_machines_is_a_row_of_the_search() -> None:
    pairs = {
        (name, origin, target)
        for name, machine in MACHINES.items()
        for origin in machine.rows
        for target in machine.rows[origin]
    }
    assert pairs == {tuple(row) for row in ALL if row.origin}


def test_worlds_name_only_acts_that_exist_and_every_act_happens_somewhere() -> None:
    named = {act for world in WORLDS for act in world.may}
    assert named == set(ACTS)
    assert len(BY_NAME) == len(WORLDS)


def _without_proofs_of_absence() -> World:
    acts = {act: times for act, times in BY_NAME["clock"].may.items() if act != "gone"}
    return msgspec.structs.replace(BY_NAME["clock"], may=acts)


def test_a_dead_end_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that is over for its holder and not yet for others, when the clock comes into doubt, can neither report
    nor expire. Where nothing says that only a person can go on, and nobody proves the holder gone, that is one."""
    assert search(_without_proofs_of_absence()).dead_ends == 0
    monkeypatch.setattr(views, "_is_over", lambda order, clock, attempt_of: False)
    monkeypatch.setattr(waits, "is_over", lambda clock, deadline_us: False)
    report = search(_without_proofs_of_absence())
    assert report.dead_ends > 0 and report.story is not None
    assert report.story.problem.startswith("the system alone never comes to rest")
    assert [step.says for step in report.story.steps][-1] == "a reading contradicts the accepted time"
    assert len(report.story.steps) == 5


def test_w13_the_product_is_not_believed_that_nobody_need_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_is_over", lambda order, clock, attempt_of: False)
    story = search(_without_proofs_of_absence()).story
    assert story is not None and story.problem.startswith("the plan is not said to wait for a person")


def test_w13_the_product_is_not_believed_that_only_a_person_can_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that still runs when the clock comes into doubt will report, and nobody need be asked for that."""
    monkeypatch.setattr(views, "_is_over", lambda order, clock, attempt_of: True)
    story = search(BY_NAME["clock"]).story
    assert story is not None and story.problem.startswith("the plan is said to wait for a person")


def test_the_model_of_waits_is_refuted_by_what_the_system_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tells the model that a person must act where the system goes on is contradicted by the graph."""
    monkeypatch.setitem(waits._WAITS, "retry_wait", (waits.PERSON, waits.PERSON))
    monkeypatch.setattr(views, "waits_for_person", lambda order: order.state == "retry_wait")
    story = search(BY_NAME["drained"]).story
    assert story is not None and "the system moves an order from retry_wait to ready" in story.problem


def test_a_state_that_the_model_of_waits_does_not_know_waits_for_nobody() -> None:
    place = root_of(BY_NAME["drained"])
    order = Cast(place).orders[0]
    for state in MACHINES["work_order"].rows:
        who = waits.waits_for(place, msgspec.structs.replace(order, state=state))
        assert (who == waits.NOBODY) == (state not in waits._WAITS or state == "blocked_dependency")
    assert waits.OVER == ENDED  # said twice, compared here


# Folding


@pytest.mark.parametrize("name", ["fences", "currency", "drained", "deadline"])
def test_places_that_are_folded_together_lead_to_the_same(name: str) -> None:
    _holds(search(BY_NAME[name], compare_every=101))


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", SMALL)
def test_places_that_are_folded_together_lead_to_the_same_everywhere(name: str) -> None:
    _holds(search(BY_NAME[name], compare_every=3))


def test_a_fold_that_forgets_too_much_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding._Since, "lease", lambda self, us: (0, False))
    story = search(BY_NAME["fences"], compare_every=3).story
    assert story is not None and "folded" in story.problem


# Planted faults


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "fencepost.testing.search", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_planted_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    planted(fault, tmp_path)
    kept = tmp_path / "story.json"
    found = _run(tmp_path, "--world", fault.world, "--story", str(kept))
    assert found.returncode == 1, found.stdout + found.stderr
    assert "this does not hold: " in found.stdout
    story = msgspec.json.decode(kept.read_bytes(), type=Story)
    assert story.problem and 0 < len(story.steps) <= 30
    _is_walked_here_without_a_problem(story)


def _is_walked_here_without_a_problem(story: Story) -> None:
    """The same story over the core as it is: all of it holds, or something else happens on the way."""
    try:
        assert replay(story) == ""
    except LookupError as differs:
        assert "nobody can do this here" in str(differs)


@pytest.mark.parametrize("name", ["hold_kept_at_expiry", "budget_never_examined_again"])
def test_a_story_is_walked_again_where_it_was_found(name: str, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    planted(fault, tmp_path)
    kept = tmp_path / "story.json"
    found = _run(tmp_path, "--world", fault.world, "--story", str(kept))
    again = _run(tmp_path, "--replay", str(kept))
    assert again.returncode == 1, again.stderr
    problem = msgspec.json.decode(kept.read_bytes(), type=Story).problem
    assert f"this does not hold: {problem}" in found.stdout
    assert "now: " in again.stdout and "all of it holds" not in again.stdout
    assert _run(Path(command_line.__file__).parents[3], "--replay", str(kept)).returncode in (0, 2)


def test_a_fault_is_planted_where_its_text_stands_once(tmp_path: Path) -> None:
    fault = FAULTS[0]._replace(changes=(FAULTS[0].changes[0]._replace(before="import"),))
    with pytest.raises(ValueError, match="has the text"):
        planted(fault, tmp_path)


# The command line


def test_the_command_line_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--world", "drained", "--rows"]) == 0
    text = capsys.readouterr().out
    assert "places" in text.splitlines()[0] and text.splitlines()[1].startswith("drained")
    assert "work_order" in text and "needs an outside effect" in text


def test_the_command_line_prints_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--world", "drained", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (world,) = document["worlds"]
    assert world["world"] == "drained" and world["dead_ends"] == 0 and world["story"] is None
    assert document["rows"]["lies"] == [] and ["work_order", "ready", "reserved"] in document["rows"]["reached"]


def test_the_command_line_refuses_a_world_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--world", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_world_that_is_given_up_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--world", "drained", "--places", "20"]) == 1
    assert "more than 20 places" in capsys.readouterr().out


def test_a_story_that_cannot_be_walked_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "story.json"
    story = Story(world="drained", steps=(Step("worker 9 flies away", ""),), problem="none")
    kept.write_bytes(msgspec.json.encode(story))
    assert command_line.main(["--replay", str(kept)]) == 2
    assert "worker 9 flies away" in capsys.readouterr().err
    kept.write_text("no story")
    assert command_line.main(["--replay", str(kept)]) == 2
