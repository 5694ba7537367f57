"""The safety ledger port: signed checkpoints of journals, kept where a writer of the database does not reach.

Rules that every implementation keeps:
- **Durable.** When `append` returns, the checkpoint survives a crash of the machine.
- **Append only.** Nothing is changed. Old checkpoints may be thinned out, never the first and never recent
  ones.
- **Torn is not damaged.** An append cut off by a crash leaves nothing; anything else that is not a sealed
  checkpoint raises `LedgerDamaged` from every read.
- Several processes may append at once. Order of lines is order of appending, which need not be order of
  sequence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from fencepost.core.anchor import Checkpoint
from fencepost.ports.errors import IntegrityError

__all__ = ["Checkpoint", "LedgerDamaged", "LedgerVerdict", "SafetyLedger"]


class LedgerDamaged(IntegrityError):
    """The safety ledger holds something that was never appended, or misses part of what was."""

    code = "ledger_damaged"


class LedgerVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking every signature."""

    checkpoints: int
    """How many were checked, up to the first bad one."""
    first_bad: str | None
    """Where the first bad entry stands and what is wrong with it; None if all are good."""

    @property
    def ok(self) -> bool:
        return self.first_bad is None


class SafetyLedger(Protocol):
    """Checkpoints of one store. Safe to use from several threads and processes."""

    def append(self, checkpoint: Checkpoint) -> None:
        """Sign and keep a checkpoint, durably. Raises `StorageError` and then has kept nothing."""
        ...

    def latest(self, *, scope: str, stream: str) -> Checkpoint | None:
        """The checkpoint with the greatest (epoch, sequence), the last appended of equal ones; None if there
        is none. Signatures are not checked here."""
        ...

    def all(self, *, scope: str | None = None, stream: str | None = None) -> tuple[Checkpoint, ...]:
        """What is kept, in order of appending; None stands for every scope or stream. Signatures are not
        checked here."""
        ...

    def verify(self, public_key: bytes) -> LedgerVerdict:
        """Check every entry's signature with this Ed25519 key (32 bytes). Damage is a verdict here, no
        exception."""
        ...

    def where(self) -> Path:
        """The folder that the next append writes to."""
        ...
