"""Pure verdicts, walked whole: what a submission means, and what groups of outcomes come to (W15, decision 0003)."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from fencepost.core.identity import Mode, meaning
from fencepost.core.readiness import Verdict, verdict, verdict_of_all
from fencepost.core.state import GroupState
from tests.support.world import World, draft

MEANINGS: dict[tuple[str, bool, bool], str] = {
    # mode, open, same content
    ("continue", True, True): "found",
    ("continue", True, False): "changed",
    ("continue", False, True): "found",
    ("continue", False, False): "fresh",
    ("again", True, True): "found",
    ("again", True, False): "changed",
    ("again", False, True): "fresh",
    ("again", False, False): "fresh",
    ("new", True, True): "fresh",
    ("new", True, False): "fresh",
    ("new", False, True): "fresh",
    ("new", False, False): "fresh",
}


@pytest.mark.parametrize("mode", ["continue", "again", "new"])
@pytest.mark.parametrize(("is_open", "same"), list(product((True, False), repeat=2)))
def test_what_a_submission_means(mode: Mode, is_open: bool, same: bool) -> None:
    world = World()
    plan = replace(world.live.values[world.submit(draft("a"))], open=3 if is_open else 0)
    assert meaning(plan, plan.content if same else "sha256:other", mode) == MEANINGS[mode, is_open, same]
    assert meaning(None, "sha256:other", mode) == "fresh"


def expected(kind: str, satisfied: int, unsatisfied: int, total: int) -> Verdict:
    """The table of the module in words of its own."""
    left = total - satisfied - unsatisfied
    if kind == "required":
        return "fails" if unsatisfied else "open" if left else "holds"
    if kind == "optional":
        return "open" if left else "holds"
    return "holds" if satisfied else "open" if left else "fails"


@pytest.mark.parametrize("kind", ["required", "optional", "alternative"])
def test_w15_a_groups_verdict_is_a_function_of_its_counts(kind: str) -> None:
    for total in range(1, 4):
        for satisfied, unsatisfied in product(range(total + 1), repeat=2):
            if satisfied + unsatisfied <= total:
                group = GroupState(kind, total, satisfied, unsatisfied)
                assert verdict(group) == expected(kind, satisfied, unsatisfied, total), group


GROUPS: dict[Verdict, GroupState] = {
    "holds": GroupState("required", 1, 1, 0),
    "open": GroupState("required", 1, 0, 0),
    "fails": GroupState("required", 1, 0, 1),
}


@pytest.mark.parametrize("verdicts", [*product(GROUPS, repeat=2), *product(GROUPS, repeat=3)], ids="-".join)
def test_w15_one_failed_group_fails_and_all_must_hold(verdicts: tuple[Verdict, ...]) -> None:
    told: Verdict = "fails" if "fails" in verdicts else "open" if "open" in verdicts else "holds"
    assert verdict_of_all(GROUPS[each] for each in verdicts) == told
    assert verdict_of_all(()) == "holds"
