"""One `[[work]]` table: from its keys to a draft.

Rules: keys are read one by one and independently, so that every problem of an order is found at once. A draft
carries the first value where a key is absent or was refused, and remembers which keys were refused, so that
later checks across orders do not report what only follows from an earlier problem. First values that depend
on the plan's budget are put in later (`budgets`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import Final, TypeVar

import msgspec

from fencepost.core import canonical
from fencepost.core.planfile import bounds
from fencepost.core.planfile.amounts import ATTEMPT_KEYS, CEILING_KEYS, read_amounts
from fencepost.core.planfile.callables import CALL_RULE
from fencepost.core.planfile.document import (
    CLASSIFICATIONS,
    ENVIRONMENT_FIRST,
    EXECUTORS,
    MAY_FIRST,
    PRIORITIES,
    RETRY_CLASSES,
    Accept,
    Classification,
    Effects,
    Executor,
    FilePatterns,
    FromOrder,
    Group,
    Priority,
    Retry,
)
from fencepost.core.planfile.groups import read_needs
from fencepost.core.planfile.problems import Spot, quote
from fencepost.core.planfile.values import (
    read_arguments,
    read_boolean,
    read_choice,
    read_duration,
    read_integer,
    read_items,
    read_list,
    read_name,
    read_pattern,
    read_patterns,
    read_table,
    read_text,
    refuse_unknown,
)

T = TypeVar("T")

ORDER_KEYS: Final = (
    "name",
    "executor",
    "run",
    "call",
    "may_fail",
    "environment",
    "needs",
    "inputs",
    "outputs",
    "attempt_time",
    "budget",
    "retry",
    "accept",
    "priority",
    "classification",
    "may",
    "effects",
    "params",
)
UNSUPPORTED_KEYS: Final = {
    "review": "leave it out; accept.verify names a verifier",
    "resources": "leave it out; orders that must not overlap can need one another",
    "effect": "leave it out; no outside operation can be declared yet",
}
ORDER_CEILING_KEYS: Final = (*CEILING_KEYS, "per_attempt")
FROM_KEYS: Final = ("from", "files")
RETRY_KEYS: Final = ("on", "backoff", "backoff_max")
ACCEPT_KEYS: Final = ("exit_code", "files", "schema", "verify")
_ENVIRONMENT_RULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_OPERATION_RULE: Final = re.compile(r"[a-z]+(\.[a-z_]+)+")
_OWN_VARIABLES: Final = "FENCEPOST_"


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """An order's `budget` as it is written, by dimension."""

    ceilings: dict[str, int]
    per_attempt: dict[str, int]


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An order as far as it can be read on its own.

    `refused` names the keys with a problem in or below them.
    """

    spot: Spot
    position: int
    table: dict[str, object]
    refused: frozenset[str]
    name: str | None
    executor: Executor
    run: tuple[str, ...]
    call: str
    may_fail: bool
    environment: tuple[str, ...]
    needs: tuple[Group, ...]
    inputs: tuple[FilePatterns | FromOrder, ...] | None
    outputs: tuple[str, ...]
    attempt_time_us: int | None
    budget: Ceilings
    retry: Retry | None
    accept: Accept
    priority: Priority
    classification: Classification
    may: tuple[str, ...]
    effects: Effects
    params: dict[str, object]


class _Keys:
    """Takes keys out of a table, remembering those that were refused."""

    def __init__(self, spot: Spot, table: dict[str, object]) -> None:
        self._spot = spot
        self._table = table
        self.refused: set[str] = set()

    def take(self, key: str, read: Callable[[Spot, object], T | None], first: T) -> T:
        if key not in self._table:
            return first
        before = self._spot.refusals()
        value = read(self._spot.child(key), self._table[key])
        if value is None or self._spot.refusals() > before:
            self.refused.add(key)
        return first if value is None else value

    def require(self, key: str, next_step: str) -> None:
        if key not in self._table:
            self.refused.add(key)
            self._spot.child(key).refuse("missing_key", f"the key {quote(key)} is missing", next_step)


def read_order(spot: Spot, position: int, value: object, *, currencies: Set[str]) -> Draft | None:
    """Read one order; None if it is not even a table."""
    table = read_table(spot, value, example="a table that begins with [[work]]")
    if table is None:
        return None
    keys = _Keys(spot, table)
    keys.require("name", 'write for example name = "tests"')
    name = keys.take("name", read_name, "") or None
    spot.name = name
    refuse_unknown(spot, table, ORDER_KEYS, refused_elsewhere=UNSUPPORTED_KEYS)
    for key, next_step in UNSUPPORTED_KEYS.items():
        if key in table:
            spot.child(key).refuse("unsupported_feature", f"{quote(key)} is not built yet", next_step)
    executor = keys.take("executor", _read_executor, EXECUTORS[0])
    if "executor" not in keys.refused:
        _require_program(keys, spot, table, executor)
    no_inputs: tuple[FilePatterns | FromOrder, ...] | None = None
    no_retry: Retry | None = None
    no_time: int | None = None
    no_ceilings = Ceilings(ceilings={}, per_attempt={})
    normal: Priority = "normal"
    internal: Classification = "internal"
    declared: Effects = "declared"
    no_params: dict[str, object] = {}
    return Draft(
        spot=spot,
        position=position,
        table=table,
        name=name,
        executor=executor,
        run=keys.take("run", read_arguments, ()),
        call=keys.take("call", _read_call, ""),
        may_fail=keys.take("may_fail", read_boolean, False),
        environment=keys.take("environment", _read_environment, ENVIRONMENT_FIRST),
        needs=keys.take("needs", read_needs, ()),
        inputs=keys.take("inputs", _read_inputs, no_inputs),
        outputs=keys.take("outputs", read_patterns, ()),
        attempt_time_us=keys.take("attempt_time", read_duration, no_time),
        budget=keys.take("budget", lambda place, item: _read_ceilings(place, item, currencies), no_ceilings),
        retry=keys.take("retry", _read_retry, no_retry),
        accept=keys.take("accept", _read_accept, Accept()),
        priority=keys.take("priority", lambda place, item: read_choice(place, item, PRIORITIES), normal),
        classification=keys.take(
            "classification", lambda place, item: read_choice(place, item, CLASSIFICATIONS), internal
        ),
        may=keys.take("may", _read_may, MAY_FIRST),
        effects=keys.take("effects", _read_effects, declared),
        params=keys.take("params", _read_params, no_params),
        refused=frozenset(keys.refused),
    )


def _read_executor(spot: Spot, value: object) -> Executor | None:
    return read_choice(spot, value, EXECUTORS)


def _require_program(keys: _Keys, spot: Spot, table: dict[str, object], executor: Executor) -> None:
    """Each executor has its own key for what it runs, and the other one's says nothing to it."""
    if executor == "python":
        keys.require("call", 'write the module and its function, such as call = "pipeline:summarize"')
        if "run" in table:
            step = 'leave one of them out: run is for executor "command"'
            spot.child("run").refuse("unknown_key", 'run and executor = "python" stand together', step)
    elif "call" in table:
        spot.child("call").refuse(
            "unknown_key", "call is for another executor", 'write executor = "python" beside it, or run instead'
        )
    else:
        keys.require("run", 'write the program and its arguments, such as run = ["pytest", "-q"]')


def _read_call(spot: Spot, value: object) -> str | None:
    text = read_text(spot, value, bytes_max=bounds.CALL_BYTES_MAX, example='a text such as "pipeline:summarize"')
    if text is not None and CALL_RULE.fullmatch(text) is None:
        step = 'write module:function, such as "pipeline:summarize"'
        spot.refuse("bad_name", f"{quote(text)} does not name a function of a module", step)
        return None
    return text


def _read_effects(spot: Spot, value: object) -> Effects | None:
    choices: tuple[Effects, ...] = ("none", "declared")
    return read_choice(spot, value, choices, unsupported=("opaque",))


def _read_environment(spot: Spot, value: object) -> tuple[str, ...] | None:
    def read(place: Spot, item: object) -> str | None:
        text = read_text(place, item, bytes_max=bounds.ENVIRONMENT_NAME_CHARACTERS_MAX, example='a name such as "PATH"')
        if text is None:
            return None
        if _ENVIRONMENT_RULE.fullmatch(text) is None:
            place.refuse(
                "out_of_range",
                f"{quote(text)} is not the name of a variable",
                'write letters, digits and underscores, with `*` at most at the end, such as "LC_*"',
            )
            return None
        if text.startswith(_OWN_VARIABLES):
            place.refuse(
                "out_of_range",
                f"{quote(text)} is set for every attempt and cannot be handed down",
                "leave it out",
            )
            return None
        return text

    return read_items(spot, value, read, items_max=bounds.ENVIRONMENT_MAX, example='a list such as ["PATH", "LC_*"]')


def _read_may(spot: Spot, value: object) -> tuple[str, ...] | None:
    only = 'write ["workspace.write"], or leave the key out'
    if value == []:
        spot.refuse("unsupported_feature", "an order without any operation is not built yet", only)
        return None

    def read(place: Spot, item: object) -> str | None:
        if isinstance(item, str) and item not in MAY_FIRST and _OPERATION_RULE.fullmatch(item) is not None:
            place.refuse("unsupported_feature", f"the operation {quote(item)} is not built yet", only)
            return None
        return read_choice(place, item, MAY_FIRST)

    return read_items(spot, value, read, items_max=len(MAY_FIRST), example='a list such as ["workspace.write"]')


def _read_inputs(spot: Spot, value: object) -> tuple[FilePatterns | FromOrder, ...] | None:
    example = 'a list such as ["src/**", { from = "tests", files = ["report.xml"] }]'
    items = read_list(spot, value, items_max=bounds.PATTERNS_MAX, example=example)
    if items is None:
        return None
    patterns: list[str] = []
    others: list[FromOrder] = []
    no_files: tuple[str, ...] = ()
    for index, item in enumerate(items):
        place = spot.child(index)
        if isinstance(item, dict):
            refuse_unknown(place, item, FROM_KEYS)
            keys = _Keys(place, item)
            keys.require("from", "name the order whose outputs are read")
            keys.require("files", 'write patterns, such as files = ["report.xml"]')
            order = keys.take("from", read_name, "")
            files = keys.take("files", read_patterns, no_files)
            if not keys.refused and not files:
                place.child("files").refuse("out_of_range", "no files are named", "write at least one pattern")
            others.append(FromOrder(order=order, patterns=files))
            continue
        pattern = read_pattern(place, item)
        if pattern is not None:
            patterns.append(pattern.text)
    if not items:
        spot.refuse(
            "out_of_range",
            "the list is empty",
            "leave the key out for every file, or name at least one pattern",
        )
    return (FilePatterns(patterns=tuple(patterns)), *others) if patterns else tuple(others)


def _read_ceilings(spot: Spot, value: object, currencies: Set[str]) -> Ceilings | None:
    table = read_table(spot, value, example='{ attempts = 3, time = "10m" }')
    if table is None:
        return None
    refuse_unknown(spot, table, ORDER_CEILING_KEYS)
    per_attempt: dict[str, int] = {}
    if "per_attempt" in table:
        place = spot.child("per_attempt")
        inner = read_table(place, table["per_attempt"], example="{ calls = 5 }")
        if inner is not None:
            instead = {
                "attempts": "leave it out; an attempt is one attempt",
                "time": "leave it out and write attempt_time",
            }
            for key, next_step in instead.items():
                if key in inner:
                    place.child(key).refuse("unknown_key", f"the key {quote(key)} is not known here", next_step)
            refuse_unknown(place, inner, ATTEMPT_KEYS, refused_elsewhere=instead)
            known = {key: item for key, item in inner.items() if key in ATTEMPT_KEYS}
            per_attempt = read_amounts(place, known, currencies=currencies)
    return Ceilings(ceilings=read_amounts(spot, table, currencies=currencies), per_attempt=per_attempt)


def _read_retry(spot: Spot, value: object) -> Retry | None:
    example = '{ on = ["executor"], backoff = "2s" }'
    table = read_table(spot, value, example=example)
    if table is None:
        return None
    refuse_unknown(spot, table, RETRY_KEYS)
    keys = _Keys(spot, table)
    keys.require("on", 'name the failures to repeat after, such as on = ["executor"]')

    def read_classes(place: Spot, item: object) -> tuple[str, ...] | None:
        return read_items(
            place,
            item,
            lambda at, word: read_choice(at, word, RETRY_CLASSES),
            items_max=len(RETRY_CLASSES),
            example='a list such as ["executor"]',
        )

    no_class: tuple[str, ...] = ()
    on = keys.take("on", read_classes, no_class)
    if "on" not in keys.refused and len(set(on)) != max(len(on), 1):
        spot.child("on").refuse("out_of_range", "no class, or a class twice", "name each class once")
    backoff_us = keys.take("backoff", read_duration, bounds.BACKOFF_FIRST_US)
    backoff_max_us = keys.take("backoff_max", read_duration, max(backoff_us, bounds.BACKOFF_MAX_FIRST_US))
    written = (("backoff", backoff_us), ("backoff_max", backoff_max_us))
    read = [(key, value_us) for key, value_us in written if key in table and key not in keys.refused]
    too_long = [key for key, value_us in read if value_us > bounds.BACKOFF_LONGEST_US]
    for key in too_long:
        spot.child(key).refuse("out_of_range", f"{key} is longer than 1h", "write 1h or less")
    if not too_long and "backoff" not in keys.refused and backoff_max_us < backoff_us:
        spot.child("backoff_max").refuse(
            "out_of_range", "backoff_max is shorter than backoff", "write one at least as long as backoff"
        )
    return Retry(on=on, backoff_us=backoff_us, backoff_max_us=backoff_max_us)


def _read_accept(spot: Spot, value: object) -> Accept | None:
    table = read_table(spot, value, example='{ exit_code = 0, files = ["report.xml"] }')
    if table is None:
        return None
    refuse_unknown(spot, table, ACCEPT_KEYS)
    keys = _Keys(spot, table)
    return Accept(
        exit_code=keys.take(
            "exit_code", lambda place, item: read_integer(place, item, least=0, most=bounds.EXIT_CODE_MAX), 0
        ),
        files=keys.take("files", read_patterns, ()),
        schema=keys.take("schema", _read_schemas, ()),
        verify=keys.take("verify", read_arguments, ()),
    )


def _read_schemas(spot: Spot, value: object) -> tuple[tuple[str, str], ...] | None:
    table = read_table(spot, value, example='{ "summary.json" = "schemas/summary.json" }')
    if table is None:
        return None
    if len(table) > bounds.PATTERNS_MAX:
        spot.refuse("out_of_range", f"more than {bounds.PATTERNS_MAX} schemas", "name fewer")
        return None
    pairs: list[tuple[str, str]] = []
    for key, item in table.items():
        place = spot.child(key)
        files = read_pattern(place, key)
        schema = read_pattern(place, item)
        if schema is not None and not schema.is_literal():
            place.refuse("out_of_range", f"{quote(schema.text)} is not one file", "name the schema's own path")
        elif files is not None and schema is not None:
            pairs.append((files.text, schema.text))
    return tuple(sorted(pairs))


def _read_params(spot: Spot, value: object) -> dict[str, object] | None:
    table = read_table(spot, value, example='{ url = "https://example.org" }')
    if table is None:
        return None
    try:
        size_bytes = len(canonical.encode(table))
    except canonical.Undecodable:
        # Whatever has no canonical form was named, with its place, by the walk over the document.
        return None
    if size_bytes > bounds.PARAMS_BYTES_MAX:
        spot.refuse(
            "out_of_range",
            f"params have {size_bytes} bytes, at most {bounds.PARAMS_BYTES_MAX} are taken",
            "put large data into a file of the repository",
        )
        return None
    return table
