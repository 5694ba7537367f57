"""What one command leads to, in lines a person can read: records, changed values, index rows, the answer.

Decisions of the policy are left out, since they stand in every batch. Identifiers and digests are numbered in the
order in which the world shows them, `order:a` by their tasks, so that a line changes only when what it says does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fencepost.core.canonical import encode_trusted
from fencepost.core.decide import Decided
from fencepost.core.index import difference
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.state import DecisionState, OrderState
from tests.support.world import World

_NAMED = re.compile(r"(?P<prefix>sha256|[a-z]+)[_:](?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9a-f])")
_ABSENT = object()


class Scribe:
    """Names things by a world as it was before the command."""

    def __init__(self, world: World) -> None:
        self._known = dict(world.live.values)
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._tasks = {value.order: value.task for value in self._known.values() if isinstance(value, OrderState)}

    def lines(self, decided: Decided) -> list[str]:
        """Everything that was decided; a refusal that wrote nothing is one line."""
        found = []
        for fact in decided.facts:
            if not isinstance(fact.body, AuthorityDecision):
                kind = type(fact.body).__name__
                found.append(f"+ {kind} {fact.subject} v{fact.subject_version} {encode_trusted(fact.body).decode()}")
        changed = {name: value for name, value in decided.values.items() if not isinstance(value, DecisionState)}
        for subject, value in changed.items():
            found.extend(f"= {line}" for line in self._changes(subject, value))
        for edge in decided.edges:
            found.append(f"& {_text(edge._asdict())}")
        for subject, value in changed.items():
            put, delete = difference(self._known.get(subject), value)
            found.extend(f"# {row.stage} {row.group or '-'} due {row.due_us} {row.rank} {row.subject}" for row in put)
            found.extend(f"# {stage} without {name}" for stage, name in delete)
        if decided.refusal is not None:
            refusal = decided.refusal
            found.append(f"! {refusal.code} at {refusal.field or '-'} {_text(refusal.detail)}")
        if decided.refusal is None or decided.result:
            found.append(f"> {_text(decided.result)}")
        return [self.plain(line) for line in found]

    def _changes(self, subject: str, value: Any) -> Iterator[str]:
        before = self._known.get(subject)
        old = {} if before is None else dict(_leaves("", msgspec.to_builtins(before)))
        new = dict(_leaves("", msgspec.to_builtins(value)))
        changed = []
        for path in sorted({*old, *new}):
            was, now = old.get(path, _ABSENT), new.get(path, _ABSENT)
            if was == now or (before is None and now in (None, "", 0, False, "{}", "[]")):
                continue
            shown = "gone" if now is _ABSENT else _text(now)
            changed.append(f"{path} {shown}" if was is _ABSENT else f"{path} {_text(was)} -> {shown}")
        yield f"{subject}: {'; '.join(changed)}"

    def plain(self, line: str) -> str:
        return _NAMED.sub(self._name, line)

    def _name(self, found: re.Match[str]) -> str:
        whole, prefix = found[0], found["prefix"]
        if whole not in self._names:
            task = self._tasks.get(whole)
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            self._names[whole] = f"{prefix}:{task}" if task else f"{prefix}:{self._counts[prefix]}"
        return self._names[whole]


def _text(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every path of a value that holds no further one; empty ones are told by their text."""
    if isinstance(value, Mapping) and value:
        for name, held in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), held)
    elif isinstance(value, list | tuple) and value:
        for place, held in enumerate(value):
            yield from _leaves(f"{path}.{place}", held)
    else:
        yield path, _text(value) if isinstance(value, Mapping | list | tuple) else value
