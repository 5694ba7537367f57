"""What every safety ledger must do. Subclass it and give it the fixture `bench`.

class TestMine(LedgerConformance):
    @pytest.fixture
    def bench(self, tmp_path):
        keyring = MemoryKeyring()
        return LedgerBench(ledger=MyLedger(tmp_path, keyring), reopen=..., keyring=keyring, damage=..., garble=...)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.core.anchor import Checkpoint
from fencepost.ports.authority import CHECKPOINT_SIGNER, Keyring
from fencepost.ports.ledger import LedgerDamaged, SafetyLedger
from fencepost.ports.threads import Threads
from fencepost.testing.conformance.crowd import together


@dataclass(frozen=True, kw_only=True)
class LedgerBench:
    """An empty ledger that signs with the checkpoint signer of `keyring`.

    `reopen` gives the same ledger as another process finds it. `damage` changes the entry at a
    place, counted from 0, so that its signature is not genuine any more; `garble` makes it something that is no
    checkpoint at all. Both work behind the ledger's back.
    """

    ledger: SafetyLedger
    reopen: Callable[[], SafetyLedger]
    keyring: Keyring
    damage: Callable[[int], None]
    garble: Callable[[int], None]


def checkpoint(sequence: int, *, scope: str = "default", epoch: int = 0, digest: int = 0) -> Checkpoint:
    """A checkpoint at a sequence; `digest` makes another one of the same place."""
    return Checkpoint(
        store_id="store_1",
        scope=scope,
        stream="main",
        epoch=epoch,
        sequence=sequence,
        digest=f"sha256:{sequence + digest:064x}",
        signed_utc_us=1_750_000_000_000_000 + sequence,
    )


class LedgerConformance:
    """The contract of `fencepost.ports.ledger`."""

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    def test_an_empty_ledger_has_nothing_and_is_well(self, bench: LedgerBench) -> None:
        assert bench.ledger.all() == ()
        assert bench.ledger.latest(scope="default", stream="main") is None
        verdict = bench.ledger.verify(bench.keyring.public_key(CHECKPOINT_SIGNER))
        assert (verdict.ok, verdict.checkpoints) == (True, 0)

    def test_what_was_appended_is_kept_in_order_also_for_others(self, bench: LedgerBench) -> None:
        entries = tuple(checkpoint(number) for number in (10, 30, 20))
        for entry in entries:
            bench.ledger.append(entry)
        assert bench.ledger.all() == bench.reopen().all() == entries

    def test_the_latest_is_the_greatest_and_of_equals_the_last(self, bench: LedgerBench) -> None:
        for entry in (checkpoint(30), checkpoint(20), checkpoint(5, epoch=1), checkpoint(4, epoch=1)):
            bench.ledger.append(entry)
        assert bench.ledger.latest(scope="default", stream="main") == checkpoint(5, epoch=1)
        again = checkpoint(5, epoch=1, digest=7)
        bench.ledger.append(again)
        assert bench.reopen().latest(scope="default", stream="main") == again

    def test_scopes_and_streams_are_apart(self, bench: LedgerBench) -> None:
        for entry in (checkpoint(1), checkpoint(9, scope="other")):
            bench.ledger.append(entry)
        assert bench.ledger.all(scope="other") == (checkpoint(9, scope="other"),)
        assert bench.ledger.latest(scope="default", stream="main") == checkpoint(1)
        assert bench.ledger.all(stream="nobody's") == ()
        assert bench.ledger.latest(scope="default", stream="nobody's") is None

    def test_w24_every_signature_is_checked(self, bench: LedgerBench) -> None:
        for number in range(1, 6):
            bench.ledger.append(checkpoint(number))
        verdict = bench.ledger.verify(bench.keyring.public_key(CHECKPOINT_SIGNER))
        assert (verdict.ok, verdict.checkpoints) == (True, 5)
        stranger = bench.ledger.verify(bench.keyring.public_key("somebody else"))
        assert (stranger.ok, stranger.checkpoints) == (False, 0)
        assert stranger.first_bad

    @pytest.mark.parametrize("place", [0, 2])
    def test_w24_damage_is_told(self, bench: LedgerBench, place: int) -> None:
        """Before the end: what a crash cut off at the very end is no damage, and leaves nothing."""
        for number in range(1, 5):
            bench.ledger.append(checkpoint(number))
        bench.damage(place)
        damaged = bench.reopen()
        verdict = damaged.verify(bench.keyring.public_key(CHECKPOINT_SIGNER))
        assert (verdict.ok, verdict.checkpoints) == (False, place)
        assert verdict.first_bad

    def test_what_is_no_checkpoint_stops_every_read(self, bench: LedgerBench) -> None:
        for number in range(1, 5):
            bench.ledger.append(checkpoint(number))
        bench.garble(1)
        damaged = bench.reopen()
        for read in (damaged.all, lambda: damaged.latest(scope="default", stream="main")):
            with pytest.raises(LedgerDamaged):
                read()
        assert not damaged.verify(bench.keyring.public_key(CHECKPOINT_SIGNER)).ok

    def test_several_append_at_once(self, bench: LedgerBench, threads: Threads) -> None:
        def work(ledger: SafetyLedger, first: int) -> Callable[[], int]:
            def run() -> int:
                for number in range(first, first + 10):
                    ledger.append(checkpoint(number))
                return 1

            return run

        together(threads, [work(bench.reopen(), 100 * number) for number in range(1, 5)])
        kept = bench.reopen().all()
        assert sorted(entry.sequence for entry in kept) == [
            first * 100 + number for first in range(1, 5) for number in range(10)
        ]
        for first in range(1, 5):
            mine = [entry.sequence for entry in kept if entry.sequence // 100 == first]
            assert mine == sorted(mine)
        assert bench.ledger.verify(bench.keyring.public_key(CHECKPOINT_SIGNER)).ok
