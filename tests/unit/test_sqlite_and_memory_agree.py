"""The two engines answer the same to the same: random groups, every question compared."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.ports.journal import Cursor, EdgeRow, IndexRow, Journal, Reads, StateRow, Transaction
from fencepost.storage import sqlite
from fencepost.storage.memory import MemoryJournal
from fencepost.storage.sorted_map import SortedMap
from fencepost.testing.conformance.journal_rows import MAIN, next_append

NAMES = st.sampled_from(["", "a", "aa", "ab", "b", "ä"])
STAGES = st.sampled_from(["one", "two"])
GROUPS = st.sampled_from(["", "g", "h"])
NUMBERS = st.integers(0, 3)
STATES = st.lists(st.builds(StateRow, NAMES, st.integers(1, 9), st.binary(max_size=3)), max_size=4)
PUTS = st.lists(st.builds(IndexRow, STAGES, GROUPS, NUMBERS, NUMBERS, NAMES), max_size=6)
DELETES = st.lists(st.tuples(STAGES, NAMES), max_size=4)
Group = tuple[list[StateRow], list[IndexRow], list[tuple[str, str]], str]
GROUP = st.tuples(STATES, PUTS, DELETES, st.sampled_from(["commit", "drop", "replace"]))


def apply(journal: Journal, group: Group) -> None:
    states, puts, deletes, end = group
    with journal.transaction(MAIN) as transaction:
        if end == "replace":
            transaction.replace_caches(
                MAIN,
                2,
                list({row.subject: row for row in states}.values()),
                list({(row.stage, row.subject): row for row in puts}.values()),
                [],
            )
        else:
            append(transaction, states, puts, deletes)
        if end != "drop":
            transaction.commit()


def append(
    transaction: Transaction, states: list[StateRow], puts: list[IndexRow], deletes: list[tuple[str, str]]
) -> None:
    edges = [
        EdgeRow(member, transaction.edge_count(MAIN, member), "d", 0, "applied")
        for member in sorted({row.subject for row in states})
    ]
    group = next_append(transaction.head(MAIN), states=states, index_put=puts, index_delete=deletes, edges=edges)
    transaction.append(group)


def answers(reads: Reads) -> list[object]:
    found: list[object] = [reads.head(MAIN), reads.streams(), reads.index_page(MAIN, None, 100)]
    found += [reads.index_page(MAIN, ("one", "ab"), 3), reads.records(MAIN, 1, 3)]
    for name in ("", "a", "aa", "ab", "b", "ä"):
        found += [reads.state_page(MAIN, name, prefix, 2) for prefix in ("", "a", "ab", "b")]
        found += [reads.edges(MAIN, name, 0, 2), reads.edge_count(MAIN, name), reads.states(MAIN, [name])]
    for stage in ("one", "two"):
        found.append(reads.next_due(MAIN, stage))
        found += [reads.find_last(MAIN, stage, group, 3) for group in ("", "g", "h")]
        for group in (None, "", "g", "h"):
            for now_us in range(4):
                found.append(reads.find_due(MAIN, stage, now_us, None, 3, group))
                found.append(reads.find_due(MAIN, stage, now_us, Cursor(1, now_us, "aa"), 3, group))
    return found


@settings(max_examples=25)
@given(st.lists(GROUP, min_size=1, max_size=6))
def test_engines_agree(
    groups: list[Group],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = MemoryJournal("0" * 32)
        disk = sqlite.create(Path(folder, "store.db"), "0" * 32, Path(folder, "locks"))
        try:
            for group in groups:
                apply(memory, group)
                apply(disk, group)
                with memory.snapshot() as expected, disk.snapshot() as found:
                    assert answers(found) == answers(expected)
        finally:
            disk.close()


STEPS = st.tuples(st.sampled_from(["put", "put", "delete", "copy"]), st.integers(0, 60))


@given(st.lists(STEPS, max_size=300))
def test_a_sorted_map_is_a_sorted_dictionary(steps: list[tuple[str, int]]) -> None:
    with mock.patch("fencepost.storage.sorted_map._RUN_MAX", 4):
        compare_with_a_dictionary(steps)


def compare_with_a_dictionary(steps: list[tuple[str, int]]) -> None:
    table: SortedMap[int, int] = SortedMap()
    model: dict[int, int] = {}
    kept: list[tuple[SortedMap[int, int], dict[int, int]]] = []
    for number, (step, key) in enumerate(steps):
        if step == "put":
            table.put(key, number)
            model[key] = number
        elif step == "delete":
            table.delete(key)
            model.pop(key, None)
        else:
            twin = table.copy()
            # Either of the two may go on changing.
            table, still = (table, twin) if number % 2 else (twin, table)
            kept.append((still, dict(model)))
    for found, expected in [*kept, (table, model)]:
        assert list(found.from_key(-1, inclusive=True)) == sorted(expected.items())
        assert list(found.before_key(30)) == sorted((i for i in expected.items() if i[0] < 30), reverse=True)
        assert [found.get(key) for key in range(61)] == [expected.get(key) for key in range(61)]
        assert len(found) == len(expected)
