"""How many members the needs of one order may have together (case 40)."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.planfile import bounds
from fencepost.core.planfile.groups import read_needs
from fencepost.core.planfile.problems import Findings, Spot

NAMES = [f"n{number}" for number in range(bounds.MEMBERS_MAX + 1)]
MOST = bounds.MEMBERS_MAX


@pytest.mark.parametrize(
    ("needs", "fits"),
    [
        (NAMES[:MOST], True),
        (NAMES[: MOST + 1], False),
        ([{"any": NAMES[:MOST]}], True),
        ([*NAMES[: MOST - 2], {"all": NAMES[MOST - 2 : MOST]}], True),
        ([*NAMES[: MOST - 2], {"all": NAMES[MOST - 2 : MOST + 1]}], False),
        ([{"any": NAMES[: MOST - 1]}, {"all": NAMES[:1]}], True),
        ([{"any": NAMES[: MOST - 1]}, {"all": NAMES[:2]}], False),
    ],
    ids=["names", "one more name", "a group", "both", "both and one more", "two groups", "two groups and one more"],
)
def test_case_40_members_are_counted_over_all_groups(needs: list[Any], fits: bool) -> None:
    findings = Findings()
    found = read_needs(Spot(findings), needs)
    problems = [(problem.code, problem.at) for problem in findings.problems()]
    if fits:
        assert not problems and found is not None
    else:
        assert problems and problems[0][0] == "out_of_range"
