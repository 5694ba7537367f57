"""Verification names the first record that is missing and believes no anchor unseen; lost keys stop the first write."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from fencepost.core.chain import Link
from fencepost.core.ids import sha256_of
from fencepost.ports.errors import IntegrityError
from fencepost.testing.fakes import MemoryKeyring, MemoryLedger
from tests.kernel.support import done, enrol, head_of, kernel_over, life, memory, sqlite_store, submit


def test_w24_of_several_records_cut_off_the_first_is_named(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    kernel = kernel_over(sqlite_store(tmp_path), ledger=ledger)
    done(kernel, "dispatcher", enrol())
    life(kernel)
    last = head_of(kernel)
    kernel.close()
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("DROP TRIGGER record_no_delete")
    connection.execute("DELETE FROM record WHERE seq > ?", (last - 3,))
    data = connection.execute("SELECT data FROM record WHERE seq = ?", (last - 3,)).fetchall()[0][0]
    assert isinstance(data, bytes)
    connection.execute("UPDATE stream SET seq = ?, digest = ?", (last - 3, sha256_of(data)))
    connection.close()
    again = kernel_over(sqlite_store(tmp_path), ledger=ledger)
    found = again.verify()
    again.journal.close()
    assert not found.ok and found.first_bad == last - 2
    assert f"an anchor names record {last}, which is missing" in found.problem


def test_w24_an_anchor_kept_elsewhere_is_compared_with_its_own_record() -> None:
    kernel = kernel_over(memory())
    done(kernel, "human", submit())
    with kernel.reader.look() as look:
        head = look.head
    assert kernel.verify(Link(head.seq, head.digest)).ok
    for wrong in (Link(head.seq, sha256_of(b"other")), Link(head.seq - 1, head.digest)):
        found = kernel.verify(wrong)
        assert not found.ok and found.first_bad == wrong.seq and "given anchor" in found.problem
    missing = kernel.verify(Link(head.seq + 1, head.digest))
    assert not missing.ok and missing.first_bad == head.seq + 1


def test_nothing_is_written_that_could_not_be_signed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_over(memory())
    request = kernel.request("human", submit())
    before = head_of(kernel)

    def lost(self: MemoryKeyring) -> None:
        raise IntegrityError("the keys are gone")

    monkeypatch.setattr(MemoryKeyring, "check", lost)
    for write in (lambda: kernel.write(request), lambda: kernel.write_many([request])):
        with pytest.raises(IntegrityError, match="keys are gone"):
            write()
    assert head_of(kernel) == before
    monkeypatch.undo()
    assert kernel.write(request).ok
