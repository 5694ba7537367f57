"""Files across orders and against the repository.

Rules: what an order reads from another one comes from an order that it needs and lies within that order's
outputs; what acceptance looks at lies within the order's own outputs, since nothing else is collected; what
is pinned exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from fencepost.core.planfile.patterns import FileTree, Pattern, compile_pattern, covers
from fencepost.core.planfile.problems import Spot, quote
from fencepost.core.planfile.work import Draft


def check_files(drafts: Sequence[Draft], by_name: Mapping[str, Draft], tree: FileTree | None) -> None:
    """Refuse `incompatible_output`, and with a tree `no_match`; without one, what exists is not known."""
    for draft in drafts:
        if draft.inputs is not None:
            _check_inputs(draft, by_name, tree)
        if "accept" in draft.table:
            _check_accept(draft, tree)


def _compiled(texts: Sequence[str]) -> tuple[Pattern, ...]:
    """Patterns out of strings, leaving out those that were refused when they were read."""
    compiled = (compile_pattern(text) for text in texts)
    return tuple(pattern for pattern in compiled if isinstance(pattern, Pattern))


def _check_inputs(draft: Draft, by_name: Mapping[str, Draft], tree: FileTree | None) -> None:
    items = draft.table["inputs"]
    if not isinstance(items, list):
        return
    needed = {member.name for group in draft.needs for member in group.members}
    for index, item in enumerate(items):
        place = draft.spot.child("inputs").child(index)
        if isinstance(item, dict):
            _check_from(place, draft, item, needed, by_name)
        elif isinstance(item, str) and tree is not None and item not in tree:
            for pattern in _compiled([item]):
                if not tree.has_match(pattern):
                    place.refuse(
                        "no_match",
                        f"{quote(item)} matches no file that git tracks or does not ignore",
                        "correct the pattern, or make the file",
                    )


def _check_from(
    spot: Spot, draft: Draft, item: Mapping[str, object], needed: set[str], by_name: Mapping[str, Draft]
) -> None:
    name = item.get("from")
    if not isinstance(name, str):
        return
    producer = by_name.get(name)
    if producer is None:
        refuse_missing(spot.child("from"), name, by_name)
        return
    if name not in needed:
        if "needs" not in draft.refused:
            spot.child("from").refuse(
                "incompatible_output",
                f"{quote(name)} is not in this order's needs, so its outputs need not exist",
                f"add {quote(name)} to needs",
            )
        return
    files = item.get("files")
    if "outputs" in producer.refused or not isinstance(files, list):
        return
    for index, text in enumerate(files):
        if isinstance(text, str) and text not in producer.outputs:
            place = spot.child("files").child(index)
            _check_covered(place, text, producer.outputs, f"the outputs of {quote(name)}")


def _check_covered(spot: Spot, text: str, outputs: Sequence[str], whose: str) -> None:
    for pattern in _compiled([text]):
        if not covers(_compiled(outputs), pattern):
            shown = ", ".join(quote(output) for output in outputs[:8]) or "none"
            spot.refuse(
                "incompatible_output",
                f"{quote(text)} is not within {whose} ({shown})",
                f"add {quote(text)} to the outputs, or name what they contain",
            )


def _check_accept(draft: Draft, tree: FileTree | None) -> None:
    spot = draft.spot.child("accept")
    accept = draft.table["accept"]
    if not isinstance(accept, dict):
        return
    schemas = accept.get("schema")
    files = accept.get("files")
    if "outputs" not in draft.refused:
        for index, text in enumerate(files if isinstance(files, list) else []):
            if isinstance(text, str) and text not in draft.outputs:
                place = spot.child("files").child(index)
                _check_covered(place, text, draft.outputs, "this order's outputs")
        for text in schemas if isinstance(schemas, dict) else {}:
            _check_covered(spot.child("schema").child(text), text, draft.outputs, "this order's outputs")
    if tree is None:
        return
    for text, schema in draft.accept.schema:
        for pattern in _compiled([schema]):
            if not tree.has_match(pattern):
                spot.child("schema").child(text).refuse(
                    "no_match", f"there is no file {quote(schema)} to pin", "name a file of the repository"
                )


def refuse_missing(spot: Spot, name: str, by_name: Mapping[str, Draft]) -> None:
    """Refuse the name of an order that the plan does not have."""
    like = spot.nearest(name, islice(by_name, 1_000))
    spot.refuse(
        "dependency_missing",
        f"no order of this plan is named {quote(name)}" + (f"; did you mean {quote(like)}?" if like else ""),
        f"write {quote(like)}" if like else "add that order, or leave the dependency out",
    )
