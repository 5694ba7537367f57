"""What every journal engine must do. Subclass the suite in a test module and give it the `journal` fixture.

    class TestMine(JournalConformance):
        @pytest.fixture
        def journal(self, tmp_path):
            journal = my_engine.create(tmp_path)
            yield journal
            journal.close()

An engine whose stores outlive a process subclasses `SharedJournalConformance` as well and gives it `reopen`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.ports.errors import StorageError, StorageUnavailable
from fencepost.ports.journal import (
    Append,
    CommandRow,
    Head,
    HeadMoved,
    Journal,
    StateRow,
    StoredRecord,
    Transaction,
)
from fencepost.ports.threads import Threads
from fencepost.testing.conformance.crowd import Call, together
from fencepost.testing.conformance.journal_rows import (
    EMPTY,
    FOLD_VERSION,
    MAIN,
    OTHER,
    JournalRowsConformance,
    append_once,
    command_row,
    edge_row,
    index_row,
    next_append,
)


class JournalConformance(JournalRowsConformance):
    """The contract of `fencepost.ports.journal`. The subclass gives the fixture `journal`, an empty open
    store, and `threads` where its callers run on others than the system's."""

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    # -- appending

    def test_an_empty_stream_has_the_empty_head(self, journal: Journal) -> None:
        with journal.snapshot() as reads:
            assert reads.head(MAIN) == EMPTY
            assert reads.streams() == []
            assert reads.records(MAIN, 0, 10) == []
            assert reads.states(MAIN, ["a"]) == {}
            assert reads.state_page(MAIN, "", "", 10) == []
            assert reads.command(MAIN, "k") is None
            assert reads.commands(MAIN, ["k"]) == {}
            assert reads.find_due(MAIN, "ready", 1 << 60, None, 10) == []
            assert reads.find_last(MAIN, "ready", "", 10) == []
            assert reads.next_due(MAIN, "ready") is None
            assert reads.index_page(MAIN, None, 10) == []
            assert reads.edges(MAIN, "m", -1, 10) == []
            assert reads.edge_count(MAIN, "m") == 0

    def test_an_append_is_read_back_as_it_was_given(self, journal: Journal) -> None:
        states = [StateRow("s", 1, b"state")]
        index = [index_row("s", 5, group="g", rank=(1 << 63) - 1)]
        edges = [edge_row("s", 0)]
        commands = [command_row("k")]
        head = append_once(journal, [b"one", b"two"], states=states, index_put=index, edges=edges, commands=commands)
        with journal.snapshot() as reads:
            assert reads.head(MAIN) == head
            assert type(reads.head(MAIN)) is Head
            assert reads.records(MAIN, 0, 10) == [StoredRecord(1, b"one"), StoredRecord(2, b"two")]
            assert reads.states(MAIN, ["s", "none"]) == {"s": states[0]}
            assert reads.find_due(MAIN, "ready", 5, None, 10) == index
            assert reads.edges(MAIN, "s", -1, 10) == edges
            assert reads.command(MAIN, "k") == commands[0]
            assert reads.commands(MAIN, ["k", "none"]) == {"k": commands[0]}
            assert reads.streams() == [MAIN]

    @pytest.mark.parametrize(
        "wrong",
        [
            Head(7, 1, "sha256:1", FOLD_VERSION),
            Head(0, 0, "sha256:1", FOLD_VERSION),
            Head(0, 1, "sha256:2", FOLD_VERSION),
            Head(0, 1, "sha256:1", FOLD_VERSION + 1),
            EMPTY,
        ],
    )
    def test_case_35_another_head_is_refused_and_nothing_written(self, journal: Journal, wrong: Head) -> None:
        head = Head(0, 1, "sha256:1", FOLD_VERSION)
        with journal.transaction(MAIN) as transaction:
            transaction.append(next_append(EMPTY)._replace(head=head))
            transaction.commit()
        with journal.transaction(MAIN) as transaction:
            with pytest.raises(HeadMoved):
                transaction.append(next_append(wrong, commands=[command_row("k")]))
            assert transaction.head(MAIN) == head
            transaction.append(next_append(head))  # the same transaction may decide again
            transaction.commit()
        with journal.snapshot() as reads:
            assert reads.head(MAIN).seq == 2
            assert reads.command(MAIN, "k") is None

    def test_records_must_lead_from_head_to_head(self, journal: Journal) -> None:
        good = next_append(EMPTY, [b"one", b"two"])
        for bad in (
            good._replace(records=good.records[:1]),
            good._replace(records=[StoredRecord(1, b"one"), StoredRecord(3, b"two")]),
            good._replace(records=[*reversed(good.records)]),
        ):
            with pytest.raises(StorageError), journal.transaction(MAIN) as transaction:
                transaction.append(bad)
        with journal.snapshot() as reads:
            assert reads.head(MAIN) == EMPTY

    def test_several_appends_of_one_transaction_follow_each_other(self, journal: Journal) -> None:
        with journal.transaction(MAIN) as transaction:
            head = EMPTY
            for number in range(3):
                group = next_append(head, states=[StateRow("s", number + 1, b"")])
                transaction.append(group)
                head = group.head
                assert transaction.head(MAIN) == head
                assert transaction.states(MAIN, ["s"])["s"].version == number + 1
            with journal.snapshot() as reads:
                assert reads.head(MAIN) == EMPTY
            transaction.commit()
        with journal.snapshot() as reads:
            assert reads.head(MAIN) == head

    def test_a_command_without_records_keeps_the_head(self, journal: Journal) -> None:
        with journal.transaction(MAIN) as transaction:
            row = CommandRow("k", "sha256:0", first_seq=0, records=0, receipt=b"")
            transaction.append(Append(MAIN, EMPTY, EMPTY, (), commands=[row]))
            transaction.commit()
        with journal.snapshot() as reads:
            assert reads.command(MAIN, "k") == row
            assert reads.head(MAIN) == EMPTY
            assert reads.streams() == []

    def test_case_11_leaving_without_commit_drops_everything(self, journal: Journal) -> None:
        with journal.transaction(MAIN) as transaction:
            transaction.append(next_append(EMPTY, states=[StateRow("s", 1, b"")], commands=[command_row("k")]))
        with journal.snapshot() as reads:
            assert reads.head(MAIN) == EMPTY
            assert reads.command(MAIN, "k") is None
            assert reads.states(MAIN, ["s"]) == {}
        assert append_once(journal).seq == 1

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
    def test_case_16_an_exception_in_the_block_drops_everything(
        self, journal: Journal, error: type[BaseException]
    ) -> None:
        with pytest.raises(error), journal.transaction(MAIN) as transaction:
            transaction.append(next_append(EMPTY, commands=[command_row("k")]))
            raise error
        with journal.snapshot() as reads:
            assert reads.command(MAIN, "k") is None
        assert append_once(journal, commands=[command_row("k")]).seq == 1

    def test_case_35_a_command_key_is_taken_for_ever(self, journal: Journal) -> None:
        append_once(journal, commands=[command_row("k", b"first")])
        for _ in range(2):
            with journal.transaction(MAIN) as transaction:
                head = transaction.head(MAIN)
                again = next_append(head, states=[StateRow("s", 1, b"")], commands=[command_row("k", b"second")])
                with pytest.raises(StorageError):
                    transaction.append(again)
                with pytest.raises(StorageError):
                    transaction.commit()
        with journal.snapshot() as reads:
            row = reads.command(MAIN, "k")
            assert row is not None and row.receipt == b"first"
            assert reads.head(MAIN).seq == 1
            assert reads.states(MAIN, ["s"]) == {}
        append_once(journal, stream=OTHER, commands=[command_row("k", b"of the other stream")])

    def test_an_edge_position_is_taken(self, journal: Journal) -> None:
        append_once(journal, edges=[edge_row("m", 0)])
        with pytest.raises(StorageError):
            append_once(journal, edges=[edge_row("m", 0)])
        with journal.snapshot() as reads:
            assert reads.head(MAIN).seq == 1

    def test_a_transaction_writes_only_to_its_stream(self, journal: Journal) -> None:
        with journal.transaction(MAIN) as transaction:
            with pytest.raises(StorageError):
                transaction.append(next_append(EMPTY, stream=OTHER))
            with pytest.raises(StorageError):
                transaction.replace_caches(OTHER, 1, (), (), ())

    def test_nothing_is_answered_after_the_end(self, journal: Journal) -> None:
        with journal.transaction(MAIN) as transaction:
            transaction.append(next_append(EMPTY))
            transaction.commit()
            with pytest.raises(StorageError):
                transaction.append(next_append(EMPTY))
            with pytest.raises(StorageError):
                transaction.commit()
        with journal.snapshot() as reads:
            pass
        for call in (lambda: reads.head(MAIN), reads.streams, lambda: transaction.head(MAIN)):
            with pytest.raises(StorageError):
                call()

    def test_a_thread_has_one_transaction(self, journal: Journal) -> None:
        with journal.transaction(MAIN), pytest.raises(StorageError), journal.transaction(OTHER):
            pass
        assert append_once(journal).seq == 1

    # -- views

    def test_a_snapshot_stays_at_its_head(self, journal: Journal) -> None:
        head = append_once(journal, states=[StateRow("s", 1, b"")], index_put=[index_row("s", 1)])
        with journal.snapshot() as reads:
            assert reads.head(MAIN) == head
            append_once(journal, states=[StateRow("s", 2, b"")], index_delete=[("ready", "s")])
            append_once(journal, stream=OTHER)
            assert reads.head(MAIN) == head
            assert reads.states(MAIN, ["s"])["s"].version == 1
            assert reads.next_due(MAIN, "ready") == 1
            assert reads.streams() == [MAIN]
            with journal.snapshot() as later:
                assert later.head(MAIN).seq == 2
                assert later.next_due(MAIN, "ready") is None
                assert later.streams() == [MAIN, OTHER]

    def test_a_transaction_sees_what_was_committed_before_it(self, journal: Journal) -> None:
        head = append_once(journal)
        with journal.transaction(MAIN) as transaction:
            assert transaction.head(MAIN) == head
            assert [record.seq for record in transaction.records(MAIN, 0, 5)] == [1]

    def test_case_7_no_reader_steps_over_a_sequence(self, journal: Journal, threads: Threads) -> None:
        """A reader that follows the records by sequence meets each one, whatever order writers began in."""
        total, seen = 60, 0
        writers = [Call(threads, partial(_append_times, journal, 20)) for _ in range(3)]
        deadline_s = threads.monotonic() + 20
        while seen < total and threads.monotonic() < deadline_s:
            with journal.snapshot() as reads:
                page = reads.records(MAIN, seen, 7)
            assert [record.seq for record in page] == list(range(seen + 1, seen + 1 + len(page)))
            seen += len(page)
        for writer in writers:
            writer.answer()
        assert seen == total

    def test_threads_append_in_turn(self, journal: Journal, threads: Threads) -> None:
        together(threads, [partial(_append_times, journal, 25)] * 8)
        with journal.snapshot() as reads:
            assert reads.head(MAIN).seq == 200
            assert [record.seq for record in reads.records(MAIN, 0, 1_000)] == list(range(1, 201))
            assert reads.states(MAIN, ["count"])["count"].version == 200

    def test_readers_see_whole_groups(self, journal: Journal, threads: Threads) -> None:
        stop = threads.event()

        def read() -> int:
            rounds = 0
            while not rounds or not stop.is_set():
                with journal.snapshot() as reads:
                    head = reads.head(MAIN)
                    row = reads.states(MAIN, ["count"]).get("count")
                    assert (row.version if row else 0) == head.seq
                    assert len(reads.records(MAIN, 0, 1_000)) == head.seq
                rounds += 1
            return rounds

        def write() -> int:
            try:
                _append_times(journal, 60)
            finally:
                stop.set()
            return 1

        assert all(rounds > 0 for rounds in together(threads, [read, read, read, write]))

    def test_a_lock_that_is_held_too_long_is_unavailable(self, journal: Journal, threads: Threads) -> None:
        entered, leave = threads.event(), threads.event()

        def hold() -> None:
            with journal.transaction(MAIN):
                entered.set()
                leave.wait(20)

        holder = Call(threads, hold)
        assert entered.wait(20)
        started_s = threads.monotonic()
        with pytest.raises(StorageUnavailable), journal.transaction(MAIN, wait_s=0.1):
            pass
        assert 0.05 < threads.monotonic() - started_s < 5
        leave.set()
        holder.answer()
        assert append_once(journal).seq == 1

    # -- the store

    def test_change_token_differs_after_a_commit(self, journal: Journal) -> None:
        tokens = [journal.change_token()]
        assert journal.change_token() == tokens[0]
        for _ in range(3):
            append_once(journal)
            tokens.append(journal.change_token())
        assert all(before != after for before, after in pairwise(tokens))
        with journal.transaction(MAIN) as transaction:
            transaction.append(next_append(transaction.head(MAIN)))
        assert journal.change_token() == tokens[-1]

    def test_closing_twice_is_well_and_all_else_unavailable(self, journal: Journal) -> None:
        append_once(journal)
        journal.close()
        journal.close()
        calls: tuple[Callable[[], object], ...] = (
            lambda: journal.transaction(MAIN).__enter__(),
            lambda: journal.snapshot().__enter__(),
            journal.change_token,
            lambda: journal.info,
        )
        for call in calls:
            with pytest.raises(StorageUnavailable):
                call()

    def test_the_store_says_who_it_is(self, journal: Journal) -> None:
        assert len(journal.info.store_id) == 32
        assert journal.info.layout >= 1
        assert journal.engine


class SharedJournalConformance:
    """What an engine adds whose stores outlive a journal. `reopen()` opens the store of `journal` once
    more."""

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    def test_another_journal_sees_what_was_committed(self, journal: Journal, reopen: Callable[[], Journal]) -> None:
        other = reopen()
        token = other.change_token()
        head = append_once(journal, states=[StateRow("s", 1, b"")], commands=[command_row("k")])
        with other.snapshot() as reads:
            assert reads.head(MAIN) == head
            assert reads.command(MAIN, "k") == command_row("k")
        assert other.change_token() != token
        assert other.info == journal.info

    def test_journals_exclude_each_other(self, journal: Journal, reopen: Callable[[], Journal]) -> None:
        other = reopen()
        with journal.transaction(MAIN) as transaction:
            with pytest.raises(StorageUnavailable), other.transaction(MAIN, wait_s=0.1):
                pass
            transaction.append(next_append(EMPTY))
            transaction.commit()
        assert append_once(other).seq == 2

    def test_case_14_the_answer_is_found_again_after_reopening(
        self, journal: Journal, reopen: Callable[[], Journal]
    ) -> None:
        head = append_once(journal, commands=[command_row("k", b"answer")])
        journal.close()
        other = reopen()
        with other.transaction(MAIN) as transaction:
            assert transaction.command(MAIN, "k") == command_row("k", b"answer")
            assert transaction.head(MAIN) == head

    def test_case_21_writers_that_read_first_never_fail(
        self, journal: Journal, reopen: Callable[[], Journal], threads: Threads
    ) -> None:
        together(threads, [partial(_append_times, each, 40) for each in (journal, reopen(), reopen())])
        with journal.snapshot() as reads:
            assert reads.states(MAIN, ["count"])["count"].version == 120


def _append_times(journal: Journal, times: int) -> None:
    for _ in range(times):
        with journal.transaction(MAIN) as transaction:
            _append_counted(transaction)
            transaction.commit()


def _append_counted(transaction: Transaction) -> None:
    head = transaction.head(MAIN)
    row = transaction.states(MAIN, ["count"]).get("count", StateRow("count", 0, b""))
    states = [row._replace(version=row.version + 1)]
    transaction.append(next_append(head, [b"{}"], states=states))
