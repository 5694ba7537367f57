"""Fakes of the ports that stand for the world: deterministic, in memory, driven by the test.

They keep their port's contract; where one can misbehave, the test says so by name (`FakeClock.jump_utc`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fencepost.adapters.authority.keys import verify_signature
from fencepost.core.anchor import AnchorMalformed, Checkpoint, SealedCheckpoint, seal, unseal
from fencepost.core.ids import sha256_of
from fencepost.ports.artifacts import ArtifactSink, Classification
from fencepost.ports.authority import (
    CHECKPOINT_SIGNER,
    Constitution,
    Decision,
    Question,
    question_digest,
)
from fencepost.ports.clock import Reading
from fencepost.ports.door import Clerk
from fencepost.ports.entropy import SEED_BYTES
from fencepost.ports.ledger import LedgerDamaged, LedgerVerdict
from fencepost.ports.packs import ManifestStored, PackRefused, PackWritten, PathProblem

FIRST_UTC_US = 1_750_000_000_000_000
FIRST_TICK_US = 1_000_000


class FakeClock:
    """A host's clocks that move only when told to."""

    def __init__(self, *, utc_us: int = FIRST_UTC_US, tick_us: int = FIRST_TICK_US, source_number: int = 0) -> None:
        """Clocks with different `source_number` are different hosts."""
        self._utc_us = utc_us
        self._tick_us = tick_us
        self._boot_number = 0
        self._source_number = source_number

    def read(self) -> Reading:
        return Reading(
            utc_us=self._utc_us,
            tick_us=self._tick_us,
            boot_id=f"{self._source_number:016x}{self._boot_number:016x}",
            uncertainty_us=1,
            source=f"source_{self._source_number:032x}",
        )

    def advance(self, duration_us: int) -> None:
        """Let time pass; a suspended host looks the same."""
        if duration_us < 0:
            raise ValueError("a tick counter never goes back; use jump_utc for a wrong system clock")
        self._utc_us += duration_us
        self._tick_us += duration_us

    def jump_utc(self, difference_us: int) -> None:
        """Set the system clock forward or back while no time passes."""
        self._utc_us += difference_us

    def restart(self, *, downtime_us: int = 0) -> None:
        """Boot again: another boot id, and a tick counter that starts anew."""
        self._utc_us += downtime_us
        self._tick_us = FIRST_TICK_US
        self._boot_number += 1


class FakeEntropy:
    """Bytes that follow from one number: the same number gives the same run of seeds."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._count = 0

    def seed(self) -> bytes:
        self._count += 1
        return hashlib.sha256(f"{self._number} {self._count}".encode()).digest()[:SEED_BYTES]


class FakeAuthority:
    """Allows everything but the pairs (`verb/resource_kind`) in `denied`, and remembers what it was asked."""

    def __init__(self, *, denied: Iterable[str] = ()) -> None:
        self.denied = set(denied)
        self.questions: list[Question] = []

    @property
    def constitution(self) -> Constitution:
        return Constitution(
            version=1,
            text_digest=sha256_of(b"fake constitution"),
            vocabulary_digest=sha256_of(b"fake vocabulary"),
            texts={},
        )

    def decide(self, question: Question) -> Decision:
        self.questions.append(question)
        allow = f"{question.action}/{question.resource_kind}" not in self.denied
        return Decision(
            allow=allow,
            rule="fake",
            reason="permitted" if allow else "forbidden",
            constitution_version=self.constitution.version,
            constitution_digest=self.constitution.text_digest,
            vocabulary_digest=self.constitution.vocabulary_digest,
            question_digest=question_digest(question),
        )


class MemoryKeyring:
    """`Keyring` whose every key follows from one number and the key's name. Secret from nobody."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._keys: dict[str, Ed25519PrivateKey] = {}

    def public_key(self, name: str) -> bytes:
        return self._key(name).public_key().public_bytes_raw()

    def sign(self, name: str, message: bytes) -> bytes:
        return self._key(name).sign(message)

    def _key(self, name: str) -> Ed25519PrivateKey:
        if name not in self._keys:
            self._keys[name] = Ed25519PrivateKey.from_private_bytes(self._secret(name))
        return self._keys[name]

    def check(self) -> None:
        """They are always there."""

    def grant_root(self, *, scope: str, epoch: int) -> bytes:
        return self._secret(f"grants {epoch} {scope}")

    def _secret(self, name: str) -> bytes:
        return hashlib.sha256(f"{self._number} {name}".encode()).digest()


class MemoryLedger:
    """`SafetyLedger` that lasts as long as the object; `lines` holds the sealed checkpoints, for tests to
    damage."""

    def __init__(self, keyring: MemoryKeyring | None = None) -> None:
        self._keyring = keyring if keyring is not None else MemoryKeyring()
        self.lines: list[bytes] = []

    def where(self) -> Path:
        return Path("/memory")

    def append(self, checkpoint: Checkpoint) -> None:
        self.lines.append(
            seal(
                checkpoint,
                sign=lambda message: self._keyring.sign(CHECKPOINT_SIGNER, message),
                public_key=self._keyring.public_key(CHECKPOINT_SIGNER),
            )
        )

    def latest(self, *, scope: str, stream: str) -> Checkpoint | None:
        chain = self.all(scope=scope, stream=stream)
        positions = range(len(chain))
        newest = max(positions, key=lambda at: (chain[at].epoch, chain[at].sequence, at), default=None)
        return None if newest is None else chain[newest]

    def all(self, *, scope: str | None = None, stream: str | None = None) -> tuple[Checkpoint, ...]:
        entries = (self._open(line).checkpoint for line in self.lines)
        return tuple(entry for entry in entries if scope in (None, entry.scope) and stream in (None, entry.stream))

    def verify(self, public_key: bytes) -> LedgerVerdict:
        for number, line in enumerate(self.lines, start=1):
            try:
                entry = self._open(line)
            except LedgerDamaged as damage:
                return LedgerVerdict(checkpoints=number - 1, first_bad=f"line {number}: {damage.message}")
            if not verify_signature(public_key, entry.signature, entry.message):
                return LedgerVerdict(checkpoints=number - 1, first_bad=f"line {number}: the signature is not genuine")
        return LedgerVerdict(checkpoints=len(self.lines), first_bad=None)

    def _open(self, line: bytes) -> SealedCheckpoint:
        try:
            return unseal(line)
        except AnchorMalformed as error:
            raise LedgerDamaged("/memory: no sealed checkpoint") from error


class OpenDoor:
    """`Door` without walls: whoever has its clerk asks the clerk itself."""

    address = "nowhere"

    def __init__(self) -> None:
        self.clerk: Clerk | None = None

    def open(self, clerk: Clerk, fault: Callable[[Exception], None]) -> None:
        self.clerk = clerk

    def close(self) -> None:
        self.clerk = None


class NoPacks:
    """`Packs` of a world without a source tree: every pack is refused."""

    def write(
        self, root: Path, paths: Iterable[str], between: Callable[[], None] | None = None
    ) -> PackWritten | PackRefused:
        return PackRefused(problems=(PathProblem(code="no_file", path="", message="there is no source tree"),))

    def put_manifest(
        self,
        written: PackWritten,
        paths: Iterable[str],
        *,
        classification: Classification,
        sink: ArtifactSink | None = None,
    ) -> ManifestStored:
        raise KeyError("nothing was ever packed")
