"""What may go wrong, each with a rate of its own, and how often it did.

There are two sorts. A fault of `Rates` has occasions (a step of storage, a hint, the end of an execution, a turn of
the stranger), and a share of them that goes wrong. A fault of `Moments` comes at a time, so many times in an hour of
a run; a scenario lists when. Both are drawn for each seed, so that one has much of what another has none of, and both
can be set: `draw(seed, {"hangs": 200_000, "crash": 0})`, or `./dev sim --rate hangs=200000 --rate crash=0`.

Every fault is counted under its name, once for each time that it really happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

PER_MILLION: Final = 1_000_000
HOURLY_MAX: Final = 36_000  # ten a second
ALL: Final = "all"  # in the place of a name: every fault


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often each fault happens: parts in a million of its occasions, 0 for never. `MEANING` says what each is."""

    # Steps of storage
    begin_fails: int = 0
    read_fails: int = 0
    append_fails: int = 0
    commit_fails: int = 0
    commit_unanswered: int = 0
    answer_delayed: int = 0
    crash_at_step: int = 0
    drain_at_step: int = 0
    slow: int = 0
    # Hints
    hint_lost: int = 0
    hint_doubled: int = 0
    hint_delayed: int = 0
    # What clients ask for
    answer_lost: int = 0
    request_doubled: int = 0
    # Executions
    exits_badly: int = 0
    hangs: int = 0
    spawn_fails: int = 0
    keeper_killed: int = 0
    freeze_verifying: int = 0
    not_contained: int = 0
    not_ended: int = 0
    runs_on: int = 0
    verifier_fails: int = 0
    layout_fails: int = 0
    # What programs say, and people answer
    said_twice: int = 0
    checkpoint_stale: int = 0
    built_beside: int = 0
    receipt_foreign: int = 0
    receipt_altered: int = 0
    child_altered: int = 0
    yield_taken_back: int = 0
    answer_slow: int = 0
    answer_doubled: int = 0
    answer_to_another: int = 0
    # Turns of the stranger
    message_repeated: int = 0
    key_used_twice: int = 0
    command_doubled: int = 0
    report_doubled: int = 0
    lie_about_a_fence: int = 0
    lie_about_a_worker: int = 0
    lie_about_a_result: int = 0
    expiry_too_early: int = 0
    result_applied_again: int = 0
    principal_not_permitted: int = 0
    old_reading: int = 0

    def without(self, name: str) -> Rates:
        return msgspec.structs.replace(self, **{name: 0})


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """How often each fault comes that has no occasion but time: times in an hour of a run, 0 for never."""

    crash: int = 0
    client_crash: int = 0
    drain: int = 0
    freeze: int = 0
    worker_hangs: int = 0
    host_sleep: int = 0
    host_restart: int = 0
    clock_stands: int = 0
    clock_slips: int = 0
    jump: int = 0
    disk_full: int = 0
    store_away: int = 0


MEANING: Final[Mapping[str, str]] = {
    "begin_fails": "of transactions: the lock is not got, or the store not reached",
    "read_fails": "of looks at the store: they fail",
    "append_fails": "of appends: they fail",
    "commit_fails": "of commits: nothing becomes durable",
    "commit_unanswered": "of commits: everything becomes durable, and the caller is told of an error",
    "answer_delayed": "of commits: the answer takes up to fifteen seconds, and others write meanwhile",
    "crash_at_step": "of steps of storage: the process is gone just then",
    "drain_at_step": "of steps of storage of a worker: it is told to stop just then",
    "slow": "of steps of storage: one takes up to a second",
    "hint_lost": "of hints: nobody hears it",
    "hint_doubled": "of hints: it is heard twice",
    "hint_delayed": "of hints: it is heard up to two seconds later, after others",
    "answer_lost": "of what clients ask: the answer is lost, and they ask again under the same key",
    "request_doubled": "of what clients ask: it is sent twice at once",
    "exits_badly": "of commands that end by themselves: with exit code 1",
    "hangs": "of commands: they never end by themselves",
    "spawn_fails": "of commands: they cannot be started",
    "keeper_killed": "of commands: their keeper is killed",
    "freeze_verifying": "of verifiers: as one starts its worker stands still for up to a minute, and goes on",
    "not_contained": "of ends: the keeper cannot show that nobody of the tree is left, and somebody is",
    "not_ended": "of tries to end a tree that was not contained: they fail",
    "runs_on": "of commands whose lease is over: they run on, whatever their keeper does",
    "verifier_fails": "of verifiers that end by themselves: with exit code 1",
    "layout_fails": "of folders that are laid out: a file is not there",
    "said_twice": "of what programs say: the answer is lost, and they say it again",
    "checkpoint_stale": "of checkpoints: it builds on one that is not the last",
    "built_beside": "of checkpoints: another one is saved on the same one at once",
    "receipt_foreign": "of charges: the receipt was given to a program before, whose ever it was",
    "receipt_altered": "of charges: the receipt comes once more, with other amounts",
    "child_altered": "of child orders: other work is asked for under the name of one",
    "yield_taken_back": "of yields: it is taken back, and the attempt ends as any other",
    "answer_slow": "of questions: the answer takes up to thirty seconds",
    "answer_doubled": "of questions: a second answer follows",
    "answer_to_another": "of questions: the answer is to a question that nobody asked",
    "message_repeated": "of the stranger's turns: a message of somebody else is sent again, soon or late",
    "key_used_twice": "of the stranger's turns: another's key is used for another command",
    "command_doubled": "of the stranger's turns: somebody else's command is sent again under another key",
    "report_doubled": "of the stranger's turns: a result is reported again under another key",
    "lie_about_a_fence": "of the stranger's turns: a command names another fence",
    "lie_about_a_worker": "of the stranger's turns: a command names another worker",
    "lie_about_a_result": "of the stranger's turns: another result of the same attempt is reported",
    "expiry_too_early": "of the stranger's turns: a lease or reservation that lives is to be expired",
    "result_applied_again": "of the stranger's turns: a result is to be applied, due or not",
    "principal_not_permitted": "of the stranger's turns: somebody asks for what only others may",
    "old_reading": "of the stranger's turns: a reading of a clock comes late",
    "crash": "a worker is killed",
    "client_crash": "a client is killed",
    "drain": "a worker is told to stop",
    "freeze": "a worker stands still for up to 25 s, and goes on",
    "worker_hangs": "one thread of a worker stands still for up to 25 s while its others go on",
    "host_sleep": "a host sleeps for up to 25 s, and its clock goes on",
    "host_restart": "a host loses its power",
    "clock_stands": "a host stands still for up to 3 s, its clock as well, and lags from then on",
    "clock_slips": "a clock moves by a second, which is within the skew that is allowed",
    "jump": "a clock jumps by more than the skew that is allowed: its domain stops until a person speaks",
    "disk_full": "no space is left for up to 25 s",
    "store_away": "the store cannot be reached for up to 25 s",
    "clock_drifts": "a host's clock runs faster or slower (drawn with the hosts)",
    "clock_skewed": "a host's clock is minutes off (drawn with the hosts)",
}
"""Name of every fault -> what goes wrong. Those of `Rates` begin with their occasion."""

STRANGER: Final = tuple(name for name, text in MEANING.items() if text.startswith("of the stranger's turns"))


def problem_of(name: str, value: int) -> str:
    """What is wrong with a rate that somebody has set, "" for nothing."""
    if name == ALL:
        return "" if value == 0 else f"{ALL} can be set to 0 only"
    if name in Rates.__struct_fields__:
        return "" if 0 <= value <= PER_MILLION else f"{name} is 0 to {PER_MILLION:,} parts in a million, not {value:,}"
    if name in Moments.__struct_fields__:
        return "" if 0 <= value <= HOURLY_MAX else f"{name} is 0 to {HOURLY_MAX:,} times an hour, not {value:,}"
    return f"no fault that has a rate is called {name}"


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
