"""Tamper evidence: every change of the stored bytes is found at the record where it is (W24)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace as changed

from fencepost.core.canonical import encode_trusted
from fencepost.core.chain import open_record
from fencepost.core.commands import GroupDraft, MemberDraft
from fencepost.core.ids import sha256_of
from fencepost.kernel import replay
from fencepost.kernel.kernel import Kernel
from fencepost.ports.errors import IntegrityError
from fencepost.ports.ledger import SafetyLedger
from fencepost.testing.fakes import FakeEntropy, MemoryKeyring, MemoryLedger
from tests.kernel.support import codes, done, enrol, kernel_over, life, reserve, sqlite_store, submit


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
def store(tmp_path: Path, ledger: MemoryLedger) -> Path:
    """A closed store with some lives in it, and its anchor in the ledger."""
    kernel = kernel_over(sqlite_store(tmp_path), ledger=ledger)
    done(kernel, "dispatcher", enrol())
    for number in range(4):
        life(kernel, f"task-{number}")
    kernel.close()
    assert len(ledger.lines) == 1
    return tmp_path


def tamper(store: Path, change: Callable[[apsw.Connection], object]) -> None:
    connection = apsw.Connection(str(store / "store.db"))
    triggers = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for name in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    change(connection)
    connection.close()


def opened(store: Path, ledger: SafetyLedger) -> Kernel:
    return kernel_over(sqlite_store(store), ledger=ledger, entropy=FakeEntropy(next(_NUMBERS)))


_NUMBERS = count(1)  # of runs of entropy: no two openings name the same things


def records(connection: apsw.Connection) -> dict[int, tuple[int, bytes]]:
    return {seq: (found, data) for found, seq, data in connection.execute("SELECT id, seq, data FROM record")}


def verified(store: Path, ledger: SafetyLedger) -> tuple[bool, int | None]:
    kernel = opened(store, ledger)
    try:
        found = kernel.verify()
        assert found.ok == (not found.problem)
        return found.ok, found.first_bad
    finally:
        kernel.journal.close()


def test_an_untouched_store_is_well(store: Path, ledger: MemoryLedger) -> None:
    assert verified(store, ledger) == (True, None)


@pytest.mark.parametrize("seq", [1, 7, 30])
def test_one_byte_flipped(store: Path, ledger: MemoryLedger, seq: int) -> None:
    def flip(connection: apsw.Connection) -> None:
        found, data = records(connection)[seq]
        at = data.index(b'"prev":"') + (8 if seq == 1 else 20)  # still a well-formed record, or none, alike
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        connection.execute("UPDATE record SET data = ? WHERE id = ?", (flipped, found))

    tamper(store, flip)
    assert verified(store, ledger) == (False, seq)


def test_one_byte_flipped_in_a_body_shows_in_the_link_behind(store: Path, ledger: MemoryLedger) -> None:
    def flip(connection: apsw.Connection) -> None:
        for seq, (found, data) in records(connection).items():
            if b'"kind":"work_order_spec"' in data and b"task-2" in data:
                connection.execute(
                    "UPDATE record SET data = ? WHERE id = ?", (data.replace(b"task-2", b"task-9"), found)
                )
                flipped.append(seq)

    flipped: list[int] = []
    tamper(store, flip)
    assert verified(store, ledger) == (False, flipped[0] + 1)


def test_the_last_record_dropped(store: Path, ledger: MemoryLedger) -> None:
    def drop(connection: apsw.Connection) -> None:
        last.append(max(records(connection)))
        connection.execute("DELETE FROM record WHERE seq = ?", (last[0],))

    last: list[int] = []
    tamper(store, drop)
    assert verified(store, ledger) == (False, last[0])


def test_the_last_record_dropped_and_the_head_put_back(store: Path, ledger: MemoryLedger) -> None:
    """The chain alone is whole again: the anchor outside the store knows better."""

    def drop(connection: apsw.Connection) -> None:
        last.append(max(records(connection)))
        connection.execute("DELETE FROM record WHERE seq = ?", (last[0],))
        before = records(connection)[last[0] - 1][1]
        connection.execute("UPDATE stream SET seq = ?, digest = ?", (last[0] - 1, sha256_of(before)))

    last: list[int] = []
    tamper(store, drop)
    assert verified(store, MemoryLedger()) == (True, None)
    assert verified(store, ledger) == (False, last[0])


def test_two_swapped(store: Path, ledger: MemoryLedger) -> None:
    def swap(connection: apsw.Connection) -> None:
        known = records(connection)
        connection.execute("UPDATE record SET data = ? WHERE id = ?", (known[26][1], known[25][0]))
        connection.execute("UPDATE record SET data = ? WHERE id = ?", (known[25][1], known[26][0]))

    tamper(store, swap)
    assert verified(store, ledger) == (False, 25)


def test_a_record_inserted(store: Path, ledger: MemoryLedger) -> None:
    """Behind the end, where nothing has to be moved: the head does not know it."""

    def insert(connection: apsw.Connection) -> None:
        last = max(records(connection))
        found, data = records(connection)[last]
        record = open_record(last, data)
        added.append(last + 1)
        forged = changed(record, seq=last + 1, prev=sha256_of(data))
        connection.execute("INSERT INTO record (id, data) VALUES (?, ?)", (found + 1, encode_trusted(forged)))

    added: list[int] = []
    tamper(store, insert)
    assert verified(store, ledger) == (False, added[0])


def test_a_record_missing_in_the_middle(store: Path, ledger: MemoryLedger) -> None:
    tamper(store, lambda connection: connection.execute("DELETE FROM record WHERE seq = 25"))
    assert verified(store, ledger) == (False, 25)


def test_the_whole_chain_recomputed(store: Path, ledger: MemoryLedger) -> None:
    """Whoever writes the database can make every link fit again; not the signature outside."""

    def recompute(connection: apsw.Connection) -> None:
        prev = ""
        for seq, (found, data) in sorted(records(connection).items()):
            record = open_record(seq, data.replace(b"task-1", b"task-9"))
            again = encode_trusted(changed(record, prev=prev))
            prev = sha256_of(again)
            connection.execute("UPDATE record SET data = ? WHERE id = ?", (again, found))
        connection.execute("UPDATE stream SET digest = ?", (prev,))

    tamper(store, recompute)
    assert verified(store, MemoryLedger()) == (True, None)
    anchor = ledger.all()[0].sequence
    assert verified(store, ledger) == (False, anchor)


@pytest.mark.parametrize("change", ["digest = 'sha256:0'", "seq = seq - 1", "seq = seq + 1"])
def test_the_head_row_changed(store: Path, ledger: MemoryLedger, change: str) -> None:
    last: list[int] = []

    def head(connection: apsw.Connection) -> None:
        last.append(max(records(connection)))
        connection.execute(f"UPDATE stream SET {change}")

    tamper(store, head)
    ok, first_bad = verified(store, ledger)
    assert not ok
    assert first_bad == (last[0] + 1 if "seq + 1" in change else last[0])


def test_bytes_that_are_no_record(store: Path, ledger: MemoryLedger) -> None:
    def spoil(connection: apsw.Connection) -> None:
        known = records(connection)
        connection.execute("UPDATE record SET data = ? WHERE id = ?", (b"\x00\xff", known[22][0]))

    tamper(store, spoil)
    assert verified(store, ledger) == (False, 22)


def test_an_anchor_of_another_signer(store: Path) -> None:
    forged = MemoryLedger(MemoryKeyring(99))
    kernel = opened(store, forged)
    kernel._anchored = 0
    kernel.anchor()
    found = kernel.verify()
    kernel.journal.close()
    assert not found.ok and "signature" in found.problem


CACHES = {
    "state": "UPDATE state SET data = CAST(replace(data, 'task-1', 'task-8') AS BLOB) WHERE subject LIKE 'order%'",
    "state version": "UPDATE state SET version = version + 1 WHERE subject = 'clock:main'",
    "state missing": "DELETE FROM state WHERE subject = 'clock:main'",
    "state more": "INSERT INTO state SELECT stream, 'order_x', version, data FROM state "
    "WHERE subject LIKE 'order%' LIMIT 1",
    "index moved": "UPDATE findable SET due_us = due_us + 1 WHERE stage = 'task'",
    "index missing": "DELETE FROM findable WHERE stage = 'worker'",
    "index more": "INSERT INTO findable SELECT stream, 'claim', subject, due_us, rank, \"group\" FROM findable "
    "WHERE stage = 'task' LIMIT 1",
    "edge changed": "UPDATE edge SET outcomes = 'failed'",
    "edge missing": "DELETE FROM edge",
    "edge more": 'INSERT INTO edge SELECT stream, member, position + 1, dependent, "group", outcomes FROM edge',
    "edge elsewhere": 'INSERT INTO edge SELECT stream, dependent, 0, dependent, "group", outcomes FROM edge',
}


@pytest.mark.parametrize("what", sorted(CACHES))
def test_w21_replay_finds_a_changed_row_and_a_rebuild_mends_it(store: Path, ledger: MemoryLedger, what: str) -> None:
    kernel = opened(store, ledger)
    first = done(kernel, "human", submit("needed"))["order"]
    groups = (GroupDraft(kind="required", members=(MemberDraft(order=first, outcomes=("applied",)),)),)
    done(kernel, "human", submit("waits", groups=groups))
    before = replay.compare(kernel.journal, kernel.stream)
    assert before.match
    kernel.close()
    tamper(store, lambda connection: connection.execute(CACHES[what]))
    kernel = opened(store, ledger)
    compared = replay.compare(kernel.journal, kernel.stream)
    assert not compared.match
    assert what.split(maxsplit=1)[0] in compared.differs
    assert compared.projection_digest == before.projection_digest, "what is kept beside the records has no say in it"
    kernel.rebuild()
    assert replay.compare(kernel.journal, kernel.stream) == before
    done(kernel, "human", submit("after"))
    assert replay.compare(kernel.journal, kernel.stream).match
    kernel.close()


def test_a_rebuild_forgets_what_the_writer_remembers_of_a_wrong_row(store: Path, ledger: MemoryLedger) -> None:
    kernel = opened(store, ledger)
    submitted = done(kernel, "human", submit("task-1"))
    kernel.close()
    tamper(store, lambda connection: connection.execute(CACHES["state"]))
    kernel = opened(store, ledger)
    wrong = kernel.request("dispatcher", reserve({**submitted, "version": 99}))
    assert codes([kernel.write(wrong)]) == ["version_moved"], "the writer has read the wrong row"
    kernel.rebuild()
    done(kernel, "dispatcher", reserve(submitted))
    assert replay.compare(kernel.journal, kernel.stream).match
    kernel.close()


def test_replay_stops_at_a_broken_chain(store: Path, ledger: MemoryLedger) -> None:
    tamper(store, lambda connection: connection.execute("DELETE FROM record WHERE seq = 25"))
    kernel = opened(store, ledger)
    with pytest.raises(IntegrityError, match="record 25"):
        replay.compare(kernel.journal, kernel.stream)
    kernel.journal.close()
