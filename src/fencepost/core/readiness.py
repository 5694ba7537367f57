"""Dependency verdicts: a function of the multiset of final outcomes, never of their order (W15).

| kind | holds when | fails when |
| --- | --- | --- |
| required | every member's outcome is in its set | some member ended outside its set |
| optional | every member has ended, whatever the outcome | never |
| alternative | some member's outcome is in its set | every member has ended and none is in its set |

Nothing fires before it is decided. An order may run when all of its groups hold; it ends as `dependency_failed` as
soon as one has failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fencepost.core.state import GroupState

Verdict = Literal["holds", "fails", "open"]


def verdict(group: GroupState) -> Verdict:
    ended = group.satisfied + group.unsatisfied
    if group.kind == "required":
        if group.unsatisfied:
            return "fails"
        return "holds" if group.satisfied == group.total else "open"
    if group.kind == "optional":
        return "holds" if ended == group.total else "open"
    if group.satisfied:
        return "holds"
    return "fails" if ended == group.total else "open"


def verdict_of_all(groups: Iterable[GroupState]) -> Verdict:
    """`fails` if any group has failed, else `holds` if all hold, else `open`. No group at all holds."""
    answer: Verdict = "holds"
    for group in groups:
        one = verdict(group)
        if one == "fails":
            return "fails"
        if one == "open":
            answer = "open"
    return answer
