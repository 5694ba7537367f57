"""`needs`: from strings and tables to groups of dependencies.

Rules: all plain strings of an order are one required group, written first. `{ all = [..] }` is a required
group and `{ any = [..] }` an alternative one, both with `outcomes` (first value: applied); `{ done = [..]
}` is an optional group, which every outcome satisfies. `unknown_terminal` once final is outside every set,
so a plan cannot name it.
"""

from __future__ import annotations

from typing import Final

from fencepost.core.planfile import bounds
from fencepost.core.planfile.document import OUTCOMES, Group, GroupKind, Member
from fencepost.core.planfile.problems import Spot, quote
from fencepost.core.planfile.values import (
    read_choice,
    read_items,
    read_list,
    read_name,
    refuse_unknown,
)

KINDS: Final[dict[str, GroupKind]] = {"all": "required", "any": "alternative", "done": "optional"}
GROUP_KEYS: Final = (*KINDS, "outcomes")
OUTCOMES_ALLOWED: Final = tuple(outcome for outcome in OUTCOMES if outcome != "unknown_terminal")
_APPLIED: Final = ("applied",)
_EXAMPLE: Final = 'a list such as ["lint", { any = ["a", "b"] }, { done = ["c"] }]'


def read_needs(spot: Spot, value: object) -> tuple[Group, ...] | None:
    items = read_list(spot, value, items_max=bounds.MEMBERS_MAX, example=_EXAMPLE)
    if items is None:
        return None
    plain: dict[str, None] = {}
    groups: list[Group] = []
    for index, item in enumerate(items):
        place = spot.child(index)
        if not isinstance(item, dict):
            name = read_name(place, item)
            if name is not None and name in plain:
                _refuse_twice(place, name)
            elif name is not None:
                plain[name] = None
            continue
        group = _read_group(place, item)
        if group is not None:
            groups.append(group)
    if len(groups) > bounds.NEEDS_MAX or len(plain) + sum(len(g.members) for g in groups) > bounds.MEMBERS_MAX:
        spot.refuse(
            "out_of_range",
            f"more than {bounds.NEEDS_MAX} groups or {bounds.MEMBERS_MAX} members",
            "put an order in between that gathers some of them",
        )
        return None
    if plain:
        members = tuple(Member(name=name, outcomes=_APPLIED) for name in plain)
        groups.insert(0, Group(kind="required", members=members))
    return tuple(groups)


def _refuse_twice(spot: Spot, name: str) -> None:
    spot.refuse("duplicate_name", f"{quote(name)} is named twice in one group", "name each order once")


def _read_group(spot: Spot, table: dict[str, object]) -> Group | None:
    kinds = [key for key in KINDS if key in table]
    if len(kinds) != 1:
        refuse_unknown(spot, table, GROUP_KEYS)
        if kinds:
            spot.refuse("out_of_range", "all, any and done in one table", "write a table of its own for each group")
        else:
            spot.refuse("missing_key", "the group has no members", 'write for example { all = ["lint"] }')
        return None
    key = kinds[0]
    kind = KINDS[key]
    outcomes: tuple[str, ...] | None = OUTCOMES if kind == "optional" else _APPLIED
    if kind == "optional" and "outcomes" in table:
        spot.child("outcomes").refuse(
            "unknown_key",
            "a group of `done` holds with every outcome",
            "leave outcomes out, or write all or any",
        )
    elif "outcomes" in table:
        outcomes = _read_outcomes(spot.child("outcomes"), table["outcomes"])
    refuse_unknown(spot, table, (key,) if kind == "optional" else (key, "outcomes"), refused_elsewhere=("outcomes",))
    place = spot.child(key)
    names = read_items(
        place, table[key], read_name, items_max=bounds.MEMBERS_MAX, example='a list of names such as ["lint"]'
    )
    if names is None or outcomes is None:
        return None
    if table[key] == []:
        place.refuse("out_of_range", "the group has no members", "name at least one order")
        return None
    seen: set[str] = set()
    for name in names:
        if name in seen:
            _refuse_twice(place, name)
            return None
        seen.add(name)
    return Group(kind=kind, members=tuple(Member(name=name, outcomes=outcomes) for name in names))


def _read_outcomes(spot: Spot, value: object) -> tuple[str, ...] | None:
    found = read_items(
        spot,
        value,
        lambda place, item: read_choice(place, item, OUTCOMES_ALLOWED),
        items_max=len(OUTCOMES),
        example='a list such as ["applied", "failed"]',
    )
    if found is None:
        return None
    if value == [] or len(set(found)) != len(found):
        spot.refuse("out_of_range", "no outcome, or an outcome twice", "name each outcome once")
        return None
    return tuple(outcome for outcome in OUTCOMES if outcome in found)
