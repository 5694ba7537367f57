"""Safety ledgers in files and in memory pass the suite that ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.adapters.ledger import FileLedger
from fencepost.testing.conformance.ledger import LedgerBench, LedgerConformance
from fencepost.testing.fakes import MemoryKeyring, MemoryLedger
from fencepost.testing.simulator.suite import InSimulation


def forged(line: bytes) -> bytes:
    """The same checkpoint under the signature of nobody."""
    envelope = json.loads(line)
    signature = envelope["signatures"][0]["sig"]
    envelope["signatures"][0]["sig"] = ("B" if signature[0] == "A" else "A") + signature[1:]
    return json.dumps(envelope, separators=(",", ":"), sort_keys=True).encode()


class TestFile(LedgerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> LedgerBench:
        keyring = MemoryKeyring()
        places = (tmp_path / "state" / "ledger", tmp_path / "beside")
        ledger = FileLedger(places, keyring)

        def write(place: int, garbled: bool) -> None:
            path = ledger.where() / "checkpoints.ndjson"
            lines = path.read_bytes().splitlines()
            lines[place] = b"{}" if garbled else forged(lines[place])
            path.write_bytes(b"".join(line + b"\n" for line in lines))

        return LedgerBench(
            ledger=ledger,
            reopen=lambda: FileLedger(places, keyring),
            keyring=keyring,
            damage=lambda place: write(place, garbled=False),
            garble=lambda place: write(place, garbled=True),
        )


class TestMemory(LedgerConformance):
    @pytest.fixture
    def bench(self) -> LedgerBench:
        keyring = MemoryKeyring()
        ledger = MemoryLedger(keyring)

        def damage(place: int) -> None:
            ledger.lines[place] = forged(ledger.lines[place])

        def garble(place: int) -> None:
            ledger.lines[place] = b"{}"

        return LedgerBench(ledger=ledger, reopen=lambda: ledger, keyring=keyring, damage=damage, garble=garble)


class TestMemoryInSimulation(InSimulation, TestMemory):
    """What simulated processes share."""
