"""What may go wrong, each with a rate of its own, and how often it did."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

PER_MILLION = 1_000_000


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How often each fault happens: parts in a million of its occasions, 0 for never.

    Names say the occasion: a step of storage, the end of an execution, a command that was sent.
    """

    # Steps of storage
    begin_fails: int = 0  # the lock is not got, or the store not reached
    read_fails: int = 0
    append_fails: int = 0
    commit_fails: int = 0  # nothing became durable
    commit_unanswered: int = 0  # everything became durable, and the caller is told of an error
    crash_at_step: int = 0  # the process is gone between two steps of storage
    slow: int = 0  # of a step: it takes up to a second
    # Hints
    hint_lost: int = 0
    # Executions
    exits_badly: int = 0
    hangs: int = 0
    spawn_fails: int = 0
    keeper_killed: int = 0
    not_contained: int = 0
    not_ended: int = 0  # of a tree that was not contained: whoever tries to end it fails
    verifier_fails: int = 0
    layout_fails: int = 0

    def without(self, name: str) -> Rates:
        return msgspec.structs.replace(self, **{name: 0})


class Faults:
    """Draws faults and counts them. `stop()` ends them all: from then on the world is kind."""

    def __init__(self, rates: Rates, chance: Random) -> None:
        self.rates = rates
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self.stopped = False
        self._rates: dict[str, int] = msgspec.structs.asdict(rates)

    def stop(self) -> None:
        self.stopped = True

    def hits(self, name: str) -> bool:
        rate = self._rates[name]
        if not rate or self.stopped or self.chance.random() * PER_MILLION >= rate:
            return False
        self.counts[name] += 1
        return True
