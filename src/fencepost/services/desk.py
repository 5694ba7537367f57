"""One attempt as its program sees it: who it is, what it has said, and whether it may say more.

A desk is opened before the attempt's command starts and closed when its tree is gone. What is said at it is said one
after the other, under its lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fencepost.core.canonical import digest_of
from fencepost.core.commands import AnyCommand, AppendEvent, WaitDraft
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import FencepostError
from fencepost.ports.threads import Lock
from fencepost.ports.workspace import Workspace
from fencepost.services.leases import Lease
from fencepost.services.means import Means
from fencepost.services.requests import Declined

PATIENCE_US: Final = 5_000_000
"""How long a program waits for a store that cannot be reached, before it is told."""
HEARTBEAT_S: Final = 1.0
"""At most one heartbeat of an attempt is recorded within this time."""


@dataclass(kw_only=True)
class Desk:
    """`wish` is how the attempt ends if its program exits with 0; `note` a heartbeat that is not recorded yet,
    `bases` the payloads of steps that may be asked for by their digest: what those that were served are based on, at
    most as many as an order has checkpoints,
    `chain` the last payload of steps and what it is based on, `set_aside` what its hold began with, once asked for,
    `over` the waits without a mark of which its program was told that they are over,
    `kept` by path the digest of the file as it was kept last and how often it had changed by then."""

    lease: Lease
    spec: WorkOrderSpec
    input_set: str
    space: Workspace
    lock: Lock
    closing: bool = False
    closed: bool = False
    wish: WaitDraft | None = None
    note: str | None = None
    noted_at: float = -HEARTBEAT_S
    bases: set[str] = field(default_factory=set)
    chain: tuple[str, str] = ("", "")
    set_aside: Mapping[str, int] | None = None
    over: set[str] = field(default_factory=set)
    kept: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def attempt(self) -> str:
        return self.lease.attempt

    @property
    def stopping(self) -> str:
        """Why the program should end now, "" for no reason."""
        if self.lease.lost:
            return self.lease.lost
        return "draining" if self.lease.stopping else ""

    def require_live(self, tick_us: int) -> None:
        """Raises Declined once the lease is over as far as this host knows, whatever the store may say later."""
        if self.closed or self.lease.lost or tick_us >= self.lease.deadline_tick_us:
            why = f" ({self.lease.lost})" if self.lease.lost else ""
            raise Declined("stale_fence", f"the lease of this attempt is over{why}: nothing that it does counts")

    def go_on(self) -> None:
        """Asked while files are copied, which may take long: raises Declined once nobody waits for them any more."""
        if self.closing or self.lease.lost:
            raise Declined("stale_fence", "the attempt is over: its file was not kept")

    def times_kept(self, path: str, digest: str) -> int:
        """How often the file at `path` has changed, this one included. Two in a row with one digest are the same
        request said twice; one that is as it was before another is a new one."""
        last, times = self.kept.get(path, ("", 0))
        return times if last == digest else times + 1

    def heartbeat(self, note: str) -> AppendEvent:
        return AppendEvent(
            attempt=self.lease.attempt,
            fence=self.lease.fence,
            spec=self.spec.spec,
            input_set=self.input_set,
            family="heartbeat_observed",
            note=note,
        )

    def take_note(self, now: float) -> AppendEvent | None:
        """The heartbeat that is to be recorded now, if one waits. The caller holds the lock."""
        if self.note is None:
            return None
        note, self.note, self.noted_at = self.note, None, now
        return self.heartbeat(note)


def required(means: Means, desk: Desk, command: AnyCommand, *, key: str = "") -> Receipt:
    """The receipt of what is said at a desk; raises Declined for what the kernel refuses. With a `key` the command's
    own key follows from what it says, so that a second one is answered as the first was."""
    kernel = means.kernel
    name = f"{key}:{desk.attempt}:{digest_of(command)}" if key else None
    until = min(means.reading().tick_us + PATIENCE_US, desk.lease.deadline_tick_us)
    receipt: Receipt = means.insist([kernel.request("executor", command, name)], until)[0]
    if receipt.refusal is not None:
        raise Declined.of(receipt.refusal)
    return receipt


def order_of(means: Means, desk: Desk) -> OrderState:
    """The order of a desk's attempt as it stands now."""
    with means.kernel.reader.look() as look:
        return order_in(look, desk)


def order_in(look: Look, desk: Desk) -> OrderState:
    """The order of a desk's attempt at one moment."""
    order = look.order(desk.lease.order)
    if order is None:
        raise FencepostError(f"{desk.lease.order} has an attempt and is not there")
    return order
