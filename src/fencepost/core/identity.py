"""The identity of a run: which plan a submission means, by name and content, among those that are there already.

The one rule for the decider, which holds it under the lock, and for whoever asks beforehand in order not to pin files
for a plan that goes on with the files of its own submission.
"""

from __future__ import annotations

from typing import Literal

from fencepost.core.state import PlanState

Mode = Literal["continue", "again", "new"]
Meaning = Literal["found", "changed", "fresh"]


def meaning(known: PlanState | None, content: str, mode: Mode) -> Meaning:
    """`found`: the known plan goes on or is shown. `changed`: it is open with other content, so that the submission
    is refused. `fresh`: a plan is to be made. `known` is the plan that the name means for this content."""
    if known is None or mode == "new":
        return "fresh"
    if known.open and known.content != content:
        return "changed"
    if known.content == content and (known.open or mode == "continue"):
        return "found"
    return "fresh"
