"""Reading a parsed document into a type, and saying exactly where it does not fit.

msgspec checks types, and reports the first violation as a sentence with a place in a notation of its own,
in which all keys of a mapping look alike. Here the sentence becomes one of the codes of `strictjson` and the
place a JSON pointer; for a mapping the key is found by trying halves of it until one key is left.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import msgspec

from fencepost.core.strictjson import Code, Undecodable

_Trail: TypeAlias = tuple[str | int, ...]

_PLACE = re.compile(r"(?s)(.*?)(?: - at `(key` in `)?(\$[^`]*)`)?")
_ANY_KEY: Final = "[...]"
_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]|(\[\.\.\.\])")
_VIOLATIONS: Final[tuple[tuple[re.Pattern[str], Code], ...]] = (
    (re.compile(r"(?s)Object missing required field `(.*)`"), "missing_field"),
    (re.compile(r"(?s)Object contains unknown field `(.*)`"), "unknown_field"),
    (re.compile(r"Invalid value .*", re.DOTALL), "unknown_tag"),
    (re.compile(r"Expected `(?:[^`]*\W)?int\b[^`]*`, got `bool`"), "bool_for_integer"),
    (re.compile(r"Expected `[^`]*`(?:, got `[^`]*`)?"), "wrong_type"),
    (re.compile(r"(?:Integer value|Number) out of range"), "integer_out_of_range"),
)


def convert(tree: object, into: Any) -> Any:
    """The value of type `into` that a tree from `strictjson.parse` stands for. Raises `Undecodable`."""
    try:
        return msgspec.convert(tree, into)
    except msgspec.ValidationError as error:
        raise _violation(str(error), tree, into) from error


def _violation(report: str, tree: object, into: Any) -> Undecodable:
    """The typed refusal behind a message of msgspec, which names the place in a form of its own."""
    place = _PLACE.fullmatch(report)
    message, steps = (report, "") if place is None else (place[1], place[3] or "")
    if place is not None and place[2] is not None:
        steps += _ANY_KEY
    trail = _trail_of(steps, report, tree, into)
    for pattern, code in _VIOLATIONS:
        found = pattern.fullmatch(message)
        if found is not None:
            if code == "unknown_field" and not _leads_to(tree, (*trail, found[1])):
                # The key itself ends like a place of msgspec's; it stands in the outermost object.
                message, trail = report, ()
                found = pattern.fullmatch(report) or found
            named = (found[1],) if pattern.groups else ()
            return Undecodable(code, message, trail=trail + named)
    return Undecodable("bad_value", message, trail=trail)


def _leads_to(tree: object, trail: _Trail) -> bool:
    node: Any = tree
    for step in trail:
        is_key = isinstance(node, dict) and step in node
        if not is_key and not (isinstance(node, list) and isinstance(step, int) and step < len(node)):
            return False
        node = node[step]
    return True


def _trail_of(steps: str, report: str, tree: object, into: Any) -> _Trail:
    trail: _Trail = ()
    node = tree
    for step in _STEP.finditer(steps):
        if isinstance(node, list) and step[2] is not None and int(step[2]) < len(node):
            trail, node = (*trail, int(step[2])), node[int(step[2])]
        elif isinstance(node, dict) and step[1] in node:
            trail, node = (*trail, step[1]), node[step[1]]
        elif isinstance(node, dict) and step[3] is not None and node:
            key = _blamed_key(node, trail, report, tree, into)
            trail, node = (*trail, key), node[key]
            tree = _replaced(tree, trail[:-1], {key: node})
        elif step[1] is not None:
            return (*trail, step[1])
    return trail


def _blamed_key(node: dict[str, object], trail: _Trail, report: str, tree: object, into: Any) -> str:
    """Which key of `node` the report is about, found by halving."""
    keys = list(node)
    while len(keys) > 1:
        half = keys[: len(keys) // 2]
        trial = _replaced(tree, trail, {key: node[key] for key in half})
        try:
            msgspec.convert(trial, into)
            is_in_half = False
        except msgspec.ValidationError as error:
            is_in_half = str(error) == report
        keys = half if is_in_half else keys[len(half) :]
    return keys[0]


def _replaced(tree: object, trail: _Trail, value: object) -> object:
    """`tree` with `value` at `trail`, sharing whatever lies beside it."""
    if not trail:
        return value
    step = trail[0]
    if isinstance(tree, list) and isinstance(step, int):
        return [*tree[:step], _replaced(tree[step], trail[1:], value), *tree[step + 1 :]]
    if isinstance(tree, dict) and isinstance(step, str):
        return tree | {step: _replaced(tree[step], trail[1:], value)}
    raise TypeError("the trail does not lead through the tree")
