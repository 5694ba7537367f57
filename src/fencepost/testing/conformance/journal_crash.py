"""What a store keeps when the machine below it stops. Subclass it and give it the fixtures `journal` and `crash`.

    class TestMine(CrashConformance):
        @pytest.fixture
        def crash(self, tmp_path):
            return lambda journal: ...  # stop it the hard way, and open what is left

`crash` stops the store without closing it, as a killed process or a power cut does, and returns what is found there.
How hard it stops is the author's to say: a killed process shows that answers follow commits, and only a machine
without power shows that commits are on the disk.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.ports.journal import Journal, StateRow
from fencepost.testing.conformance.journal_rows import MAIN, append_once, command_row, next_append


class CrashConformance:
    """The promise of durability of `fencepost.ports.journal`."""

    def test_what_was_committed_is_there_after_a_crash(
        self, journal: Journal, crash: Callable[[Journal], Journal]
    ) -> None:
        for number in range(1, 4):
            head = append_once(
                journal, states=[StateRow("s", number, b"")], commands=[command_row(f"k{number}", b"answer")]
            )
        found = crash(journal)
        with found.snapshot() as reads:
            assert reads.head(MAIN) == head
            assert [record.seq for record in reads.records(MAIN, 0, 10)] == [1, 2, 3]
            assert reads.states(MAIN, ["s"])["s"].version == 3
            assert reads.command(MAIN, "k3") == command_row("k3", b"answer")

    def test_what_was_not_committed_is_not_there(self, journal: Journal, crash: Callable[[Journal], Journal]) -> None:
        head = append_once(journal, states=[StateRow("s", 1, b"")])
        with journal.transaction(MAIN) as transaction:
            transaction.append(next_append(head, states=[StateRow("s", 2, b"")], commands=[command_row("k")]))
            found = crash(journal)
        with found.snapshot() as reads:
            assert reads.head(MAIN) == head
            assert reads.states(MAIN, ["s"])["s"].version == 1
            assert reads.command(MAIN, "k") is None

    def test_it_goes_on_after_a_crash(self, journal: Journal, crash: Callable[[Journal], Journal]) -> None:
        append_once(journal)
        found = crash(journal)
        assert append_once(found).seq == 2
        assert append_once(crash(found)).seq == 3
