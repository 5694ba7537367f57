"""Whether the worker of a live attempt is alive: seen on its own host by the locks that a living one holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fencepost.core.machines import LIVE
from fencepost.core.state import AttemptState, OrderState, WorkerState
from fencepost.kernel.read import Look
from fencepost.ports.clock import Reading
from fencepost.ports.locks import HostLocks
from fencepost.services.means import worker_lock

LIVE_STATES = frozenset({"reserved", "active", "cancellation_requested"})
_SERVES = re.compile(r"(?P<plan>plan_[0-9a-f]{32})\.(?P<worker>worker_[0-9a-f]{32})\.lock")  # `serves_lock`
GONE = "Its worker is not alive any more; the next one that starts takes it up."


def living_workers(look: Look, locks: HostLocks) -> list[WorkerState]:
    """Workers of this home whose lock is held. A worker that leads its life elsewhere is not seen."""
    held = [name for name in locks.names() if name.startswith("worker_") and locks.is_held(name)]
    names = [name.removesuffix(".lock") for name in held]
    return [value for value in look.many(names).values() if isinstance(value, WorkerState)]


def serving_others(plan: str | None, workers: Sequence[WorkerState], locks: HostLocks) -> list[str]:
    """Those of living workers that serve another plan alone, and take nothing of this one."""
    found = [_SERVES.fullmatch(name) for name in locks.names()]
    only = {match["worker"]: match["plan"] for match in found if match is not None and locks.is_held(match[0])}
    return [value.worker for value in workers if only.get(value.worker, plan) != plan]


def is_orphan(attempt: AttemptState, locks: HostLocks, reading: Reading) -> bool:
    """Whether a live attempt's worker is seen to be gone. One on another host is not seen, and counts as alive."""
    if attempt.state not in ("reserved", *LIVE) or attempt.host != reading.source:
        return False
    return attempt.boot_id != reading.boot_id or not locks.is_held(worker_lock(attempt.worker))


def orphans(look: Look, orders: list[OrderState], locks: HostLocks, reading: Reading) -> set[str]:
    """Those of these orders whose attempt lives on paper only."""
    live = {order.attempt: order.order for order in orders if order.state in LIVE_STATES and order.attempt}
    found = look.many(list(live))
    return {
        live[name]
        for name, attempt in found.items()
        if isinstance(attempt, AttemptState) and is_orphan(attempt, locks, reading)
    }
