"""Second half of the journal suite: how rows are written, replaced, ordered and paged; and its builders."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest

from fencepost.ports.journal import (
    Append,
    CommandRow,
    Cursor,
    EdgeRow,
    Head,
    IndexRow,
    Journal,
    StateRow,
    StoredRecord,
    Stream,
)

MAIN = Stream("default", "main")
OTHER = Stream("other", "main")
EMPTY = Head(epoch=0, seq=0, digest="", fold_version=0)
FOLD_VERSION = 1
_BEYOND = 1 << 60


def next_append(
    head: Head,
    bodies: Sequence[bytes] = (b"{}",),
    *,
    stream: Stream = MAIN,
    states: Sequence[StateRow] = (),
    index_put: Sequence[IndexRow] = (),
    index_delete: Sequence[tuple[str, str]] = (),
    edges: Sequence[EdgeRow] = (),
    commands: Sequence[CommandRow] = (),
) -> Append:
    """Return an append of these bodies that follows `head`."""
    records = [StoredRecord(seq, data) for seq, data in enumerate(bodies, head.seq + 1)]
    digest = "sha256:" + sha256(bodies[-1]).hexdigest() if bodies else head.digest
    after = Head(epoch=head.epoch, seq=head.seq + len(records), digest=digest, fold_version=FOLD_VERSION)
    return Append(stream, head, after, records, states, index_put, index_delete, edges, commands)


def append_once(journal: Journal, bodies: Sequence[bytes] = (b"{}",), **rows: object) -> Head:
    """Append to `MAIN`, or to `stream`, in a transaction of its own; return the new head."""
    stream = rows.get("stream", MAIN)
    if not isinstance(stream, Stream):
        raise TypeError("stream must be a Stream")
    with journal.transaction(stream) as transaction:
        group = next_append(transaction.head(stream), bodies, **rows)  # type: ignore[arg-type]  # passed on as given
        transaction.append(group)
        transaction.commit()
    return group.head


def index_row(subject: str, due_us: int, *, stage: str = "ready", group: str = "", rank: int = 0) -> IndexRow:
    return IndexRow(stage=stage, group=group, due_us=due_us, rank=rank, subject=subject)


def edge_row(member: str, position: int) -> EdgeRow:
    return EdgeRow(member, position, dependent=f"{member}-{position}", group=0, outcomes="applied")


def command_row(key: str, receipt: bytes = b"receipt") -> CommandRow:
    return CommandRow(key, digest="sha256:" + "0" * 64, first_seq=1, records=1, receipt=receipt)


class JournalRowsConformance:
    """Rows and pages. Run as part of `fencepost.testing.conformance.journal.JournalConformance`."""

    def test_later_rows_replace_earlier_ones(self, journal: Journal) -> None:
        append_once(journal, states=[StateRow("s", 1, b"a"), StateRow("s", 2, b"b")])
        append_once(
            journal,
            states=[StateRow("s", 3, b"c")],
            index_put=[index_row("s", 1), index_row("s", 9), index_row("s", 4, group="g")],
        )
        with journal.snapshot() as reads:
            assert reads.states(MAIN, ["s"]) == {"s": StateRow("s", 3, b"c")}
            assert reads.index_page(MAIN, None, 10) == [index_row("s", 4, group="g")]
            assert reads.find_due(MAIN, "ready", _BEYOND, None, 10) == [index_row("s", 4, group="g")]

    def test_putting_an_index_row_again_moves_it(self, journal: Journal) -> None:
        append_once(journal, index_put=[index_row("s", 1, group="old"), index_row("s", 1, stage="expiry")])
        append_once(journal, index_put=[index_row("s", 7, group="new")])
        with journal.snapshot() as reads:
            assert reads.find_due(MAIN, "ready", 6, None, 10) == []
            assert reads.next_due(MAIN, "ready") == 7
            assert reads.find_last(MAIN, "ready", "old", 10) == []
            assert reads.find_last(MAIN, "ready", "new", 10) == [index_row("s", 7, group="new")]
            assert reads.next_due(MAIN, "expiry") == 1

    def test_deletes_come_before_puts(self, journal: Journal) -> None:
        append_once(journal, index_put=[index_row("a", 1), index_row("b", 1)])
        append_once(
            journal,
            index_put=[index_row("a", 2)],
            index_delete=[("ready", "a"), ("ready", "b"), ("ready", "never was"), ("no stage", "a")],
        )
        with journal.snapshot() as reads:
            assert reads.index_page(MAIN, None, 10) == [index_row("a", 2)]

    def test_find_due_pages_in_order(self, journal: Journal) -> None:
        rows = [
            index_row(f"s{subject}", due_us, group=f"g{subject % 2}", rank=rank)
            for subject, (due_us, rank) in enumerate((due_us, rank) for due_us in (3, 1, 2) for rank in (1, 0, 1))
        ]
        append_once(journal, index_put=[*rows, index_row("elsewhere", 0, stage="other")])
        ordered = sorted(rows, key=lambda row: (row.due_us, row.rank, row.subject))
        with journal.snapshot() as reads:
            for limit in (1, 2, 9, 100):
                found: list[IndexRow] = []
                while True:
                    after = Cursor(*found[-1][2:]) if found else None
                    page = reads.find_due(MAIN, "ready", 2, after, limit)
                    assert len(page) <= limit
                    if not page:
                        break
                    found += page
                assert found == [row for row in ordered if row.due_us <= 2]
            for group in ("g0", "g1", "none"):
                of_group = [row for row in ordered if row.group == group]
                assert reads.find_due(MAIN, "ready", 3, None, 100, group) == of_group
                assert reads.find_due(MAIN, "ready", 3, None, 100, group=group)[:2] == of_group[:2]
                assert reads.find_last(MAIN, "ready", group, 2) == of_group[::-1][:2]
            middle = ordered[4]
            after = Cursor(middle.due_us, middle.rank, middle.subject)
            expected = [row for row in ordered[5:] if row.group == "g1"]
            assert reads.find_due(MAIN, "ready", 3, after, 100, "g1") == expected
            assert reads.next_due(MAIN, "ready") == 1

    def test_the_empty_group_is_a_group(self, journal: Journal) -> None:
        append_once(journal, index_put=[index_row("a", 1), index_row("b", 1, group="g")])
        with journal.snapshot() as reads:
            assert [row.subject for row in reads.find_due(MAIN, "ready", 1, None, 10, "")] == ["a"]
            assert [row.subject for row in reads.find_due(MAIN, "ready", 1, None, 10, None)] == ["a", "b"]
            assert [row.subject for row in reads.find_last(MAIN, "ready", "", 10)] == ["a"]

    def test_index_page_is_ordered_by_key(self, journal: Journal) -> None:
        rows = [index_row(subject, 1, stage=stage) for stage in ("b", "a") for subject in ("y", "x", "z")]
        append_once(journal, index_put=rows)
        expected = sorted(rows, key=lambda row: (row.stage, row.subject))
        with journal.snapshot() as reads:
            assert reads.index_page(MAIN, None, 100) == expected
            assert reads.index_page(MAIN, ("a", "y"), 2) == expected[2:4]
            assert reads.index_page(MAIN, ("b", "z"), 2) == []

    def test_state_pages_keep_to_their_prefix(self, journal: Journal) -> None:
        subjects = ["task", "task_", "task_a", "task_b", "task_\U0010ffff", "taskz", "plan_a", "\U0010ffff"]
        append_once(journal, states=[StateRow(subject, 1, b"") for subject in subjects])
        ordered = sorted(subjects, key=str.encode)
        with journal.snapshot() as reads:

            def page(after: str, prefix: str, limit: int) -> list[str]:
                return [row.subject for row in reads.state_page(MAIN, after, prefix, limit)]

            assert page("", "", 100) == ordered
            assert page("", "task_", 100) == ["task_", "task_a", "task_b", "task_\U0010ffff"]
            assert page("task_", "task_", 1) == ["task_a"]
            assert page("task_a", "task_", 100) == ["task_b", "task_\U0010ffff"]
            assert page("taskz", "task_", 100) == []
            assert page("a", "task_", 2) == ["task_", "task_a"]
            assert page("", "none", 100) == []

    def test_records_page_by_sequence(self, journal: Journal) -> None:
        bodies = [str(number).encode() for number in range(1, 8)]
        append_once(journal, bodies)
        append_once(journal, [b"other"], stream=OTHER)
        with journal.snapshot() as reads:
            assert [record.seq for record in reads.records(MAIN, 0, 3)] == [1, 2, 3]
            assert [record.data for record in reads.records(MAIN, 3, 100)] == bodies[3:]
            assert reads.records(MAIN, 7, 1) == []
            assert reads.records(MAIN, 1 << 50, 1) == []
            assert [record.data for record in reads.records(OTHER, 0, 100)] == [b"other"]

    def test_edges_page_by_position(self, journal: Journal) -> None:
        append_once(journal, edges=[edge_row("m", position) for position in range(5)] + [edge_row("n", 0)])
        append_once(journal, edges=[edge_row("m", 5)])
        with journal.snapshot() as reads:
            assert [edge.position for edge in reads.edges(MAIN, "m", -1, 2)] == [0, 1]
            assert [edge.position for edge in reads.edges(MAIN, "m", 3, 100)] == [4, 5]
            assert reads.edge_count(MAIN, "m") == 6
            assert reads.edge_count(MAIN, "n") == 1
            assert reads.edge_count(MAIN, "mm") == 0

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_page_has_at_least_one_row(self, journal: Journal, limit: int) -> None:
        with journal.snapshot() as reads:
            for call in (
                lambda: reads.state_page(MAIN, "", "", limit),
                lambda: reads.records(MAIN, 0, limit),
                lambda: reads.find_due(MAIN, "ready", 0, None, limit),
                lambda: reads.find_last(MAIN, "ready", "", limit),
                lambda: reads.index_page(MAIN, None, limit),
                lambda: reads.edges(MAIN, "m", -1, limit),
            ):
                with pytest.raises(ValueError, match="limit"):
                    call()

    def test_replace_caches_leaves_records_and_commands(self, journal: Journal) -> None:
        head = append_once(
            journal,
            states=[StateRow("a", 1, b"a")],
            index_put=[index_row("a", 1)],
            edges=[edge_row("a", 0)],
            commands=[command_row("k")],
        )
        append_once(journal, stream=OTHER, states=[StateRow("a", 1, b"a")], index_put=[index_row("a", 1)])
        with journal.transaction(MAIN) as transaction:
            transaction.replace_caches(MAIN, 9, [StateRow("b", 2, b"b")], [index_row("b", 2)], [edge_row("b", 0)])
            transaction.commit()
        with journal.snapshot() as reads:
            assert reads.head(MAIN) == head._replace(fold_version=9)
            assert reads.records(MAIN, 0, 10) == [StoredRecord(1, b"{}")]
            assert reads.command(MAIN, "k") == command_row("k")
            assert reads.state_page(MAIN, "", "", 10) == [StateRow("b", 2, b"b")]
            assert reads.index_page(MAIN, None, 10) == [index_row("b", 2)]
            assert reads.find_due(MAIN, "ready", 9, None, 10) == [index_row("b", 2)]
            assert reads.edge_count(MAIN, "a") == 0
            assert reads.edge_count(MAIN, "b") == 1
            assert reads.state_page(OTHER, "", "", 10) == [StateRow("a", 1, b"a")]
            assert len(reads.index_page(OTHER, None, 10)) == 1

    def test_replace_caches_is_dropped_without_commit(self, journal: Journal) -> None:
        append_once(journal, states=[StateRow("a", 1, b"a")])
        with journal.transaction(MAIN) as transaction:
            transaction.replace_caches(MAIN, 9, (), (), ())
        with journal.snapshot() as reads:
            assert reads.states(MAIN, ["a"]) == {"a": StateRow("a", 1, b"a")}
            assert reads.head(MAIN).fold_version == FOLD_VERSION

    def test_text_is_unicode_and_ordered_by_code_point(self, journal: Journal) -> None:
        subjects = ["", "z", "ä", "\uffff", "\U0001f9ea", "e\u0301", "\u00e9", "'; DROP TABLE state; --"]
        append_once(
            journal,
            states=[StateRow(subject, 1, subject.encode()) for subject in subjects],
            index_put=[index_row(subject, 0, stage="ä", group=subject) for subject in subjects],
            commands=[command_row(subject) for subject in subjects],
        )
        with journal.snapshot() as reads:
            assert reads.states(MAIN, subjects)["ä"].data == "ä".encode()
            assert len(reads.states(MAIN, subjects)) == len(subjects)
            found = [row.subject for row in reads.find_due(MAIN, "ä", 0, None, 100)]
            assert found == sorted(subjects)
            assert len(reads.commands(MAIN, subjects)) == len(subjects)
            assert reads.find_last(MAIN, "ä", "\U0001f9ea", 5)[0].subject == "\U0001f9ea"

    def test_large_and_empty_bodies(self, journal: Journal) -> None:
        large = bytes(range(256)) * 16_384
        append_once(journal, [large, b""], states=[StateRow("s", 1, large), StateRow("e", 1, b"")])
        with journal.snapshot() as reads:
            assert [record.data for record in reads.records(MAIN, 0, 2)] == [large, b""]
            assert reads.states(MAIN, ["s", "e"])["s"].data == large
            assert reads.states(MAIN, ["s", "e"])["e"].data == b""

    def test_many_keys_at_once(self, journal: Journal) -> None:
        subjects = [f"s{number}" for number in range(5_000)]
        append_once(
            journal,
            states=[StateRow(subject, 1, b"") for subject in subjects],
            index_put=[index_row(subject, number) for number, subject in enumerate(subjects)],
        )
        append_once(journal, index_delete=[("ready", subject) for subject in subjects[::2]])
        with journal.snapshot() as reads:
            assert len(reads.states(MAIN, subjects)) == 5_000
            assert reads.commands(MAIN, subjects) == {}
            found = reads.find_due(MAIN, "ready", _BEYOND, None, 5_000)
            assert [row.subject for row in found] == subjects[1::2]
