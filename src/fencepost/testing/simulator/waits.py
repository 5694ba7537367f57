"""How long anything may wait: bounds on each wait, from the auditor's model and from what really runs.

The auditor says what may happen, and the end of a run that everything came to rest. Between the two a fault that only
delays would pass: a hold that is settled by its deadline though its holder's end could be proved, a lease that is not
renewed, a dependent that is told by chance. Here every wait that somebody is there to end has a bound.

A bound is honest about faults. Time counts only while a worker is there that could act: alive, neither stopped nor
stuck nor draining, on a host that is awake, and so for `STEADY_US` already. It counts from the beginning after any
trouble of the store (a step that failed or was slow, a full disk, a lock whose owner stands still), and what was under
way then is not held against a worker who may not have heard of it. Whatever moves a subject begins its wait anew.

The bounds are what the services promise (a look every second at the latest, a renewal every three) and room for the
steps in between; they are written here as numbers, and shared with no code of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from fencepost.testing.simulator.disk import Disk
from fencepost.testing.simulator.executor import Tree, Trees
from fencepost.testing.simulator.hosts import Host
from fencepost.testing.simulator.loop import Loop, Process
from fencepost.testing.simulator.model_budgets import in_the_way, shares_of, spent_out, wanted
from fencepost.testing.simulator.model_clock import chain_of
from fencepost.testing.simulator.model_state import ENDED, LIVE, Attempt, Hold, Order, Plan, World

SECOND_US: Final = 1_000_000
NEVER_US: Final = 2**62
LOOK_US: Final = 500_000  # between two looks
STEADY_US: Final = 2 * SECOND_US  # without trouble before anything is expected of a worker or of the store

TOLD_US: Final = 3 * SECOND_US  # until the next dependent, or the next page of a cancel
DUE_US: Final = 3 * SECOND_US  # from a backoff's or a plan's deadline to its end
LAPSED_US: Final = 4 * SECOND_US  # from the end of a lease or reservation to its expiry
GONE_US: Final = 3 * SECOND_US  # from the end of a holder to its proof, on its own host
CLAIMED_US: Final = 3 * SECOND_US  # of a ready order and a free slot
ACTIVATED_US: Final = 3 * SECOND_US  # of a reservation whose worker lives
REPORTED_US: Final = 5 * SECOND_US  # from the end of what ran to its report
FINISHED_US: Final = 5 * SECOND_US  # from a report, or the end of its verifier, to its application
STOPPED_US: Final = 1_500_000  # until a command that nobody waits for any more is told to stop
FREED_US: Final = 4 * SECOND_US  # of an order that waits for budget and would fit
RENEWED_US: Final = 5 * SECOND_US  # a lease of ten seconds, renewed every three, has at least so much left
LATE_US: Final = 300_000  # by which a keeper's deadline may pass its lease: the age of an observation, and drift

Value = TypeVar("Value")
Condition = tuple[tuple[Any, ...], int, str]
"""(what waits, how far it has come: another is another wait; the bound; what is wrong if it is passed)"""


@dataclass(eq=False, kw_only=True)
class Holder:
    """One start of a worker, as the world knows it. `plan` is "" for one that serves the whole scope."""

    worker: str
    process: Process
    host: Host
    slots: int
    plan: str = ""
    draining_since_us: int | None = None

    def drain(self, now_us: int) -> None:
        if self.draining_since_us is None:
            self.draining_since_us = now_us

    def is_steady(self, now_us: int) -> bool:
        process = self.process
        still = process.frozen or process.stuck or self.host.asleep
        return process.alive and not still and now_us - process.steady_us >= STEADY_US


class Waits:
    """Looks at everything that waits, every `LOOK_US` of simulated time."""

    def __init__(self, world: World, loop: Loop, disk: Disk, trees: Trees, hosts: list[Host]) -> None:
        self._world = world
        self._loop = loop
        self._disk = disk
        self._trees = trees
        self._hosts = {host.name: host for host in hosts}
        self.holders: dict[str, Holder] = {}
        self._tree_of: dict[str, Tree] = {}
        self._since: dict[tuple[Any, ...], int] = {}
        self._looked_us = 0
        self._marred: set[str] = set()  # attempts that were under way in a time of trouble
        self._orders: list[Order] = []  # that have not come to their end
        self._attempts: list[Attempt] = []  # whose hold has not ended
        self._plans: list[Plan] = []
        self._seen = [0, 0, 0]  # orders, attempts and plans that were looked at once
        self._reservations: dict[str, int] = {}
        self._taken_before: dict[tuple[Any, ...], int] = {}  # reservations of a worker before it knew of a result
        self._live: list[Holder] = []
        self._now_us = 0  # logical time, as the steady worker that is furthest sees it
        trees.began.append(self._began)

    def _began(self, tree: Tree) -> None:
        if not tree.job.lock_path.endswith(".verify.lock"):
            self._tree_of[tree.job.attempt] = tree

    def look(self) -> list[str]:
        """What has waited for longer than it may, in words."""
        now_us, disk = self._loop.now_us, self._disk
        self._take_in()
        if disk.in_trouble():
            disk.trouble_us = now_us
        if disk.trouble_us >= self._looked_us:
            self._since.clear()
            self._marred.update(attempt.attempt for attempt in self._attempts)
        self._looked_us = now_us
        self._live = [
            holder for holder in self.holders.values() if holder.draining_since_us is None and holder.is_steady(now_us)
        ]
        if now_us - disk.trouble_us < STEADY_US:
            return []
        self._now_us = max((self._seen_by(holder.host) for holder in self._live), default=0)
        before, after = self._since, {}
        problems = []
        for key, bound_us, words in self._conditions():
            since_us = after[key] = before.get(key, now_us)
            if now_us - since_us > bound_us:
                problems.append(f"{words}, for {(now_us - since_us) / SECOND_US:.1f} s")
        self._since = after
        self._taken_before = {key: taken for key, taken in self._taken_before.items() if key in after}
        return problems

    def leaves(self, holder: Holder) -> list[str]:
        """What a worker that has drained leaves behind although nothing kept it from giving it back."""
        if self._loop.now_us - self._disk.trouble_us < STEADY_US or not holder.is_steady(self._loop.now_us):
            return []
        self._take_in()
        return [
            f"{attempt.attempt} is reserved for a worker that has drained and left"
            for attempt in self._attempts
            if attempt.worker == holder.worker and attempt.state == "reserved" and attempt.attempt not in self._marred
        ]

    def drains(self, worker: str) -> None:
        """A worker was told to leave."""
        holder = self.holders.get(worker)
        if holder is not None:
            holder.drain(self._loop.now_us)

    def meddled(self, attempt: str) -> None:
        """Somebody else has spoken for an attempt, of which its worker has not heard."""
        self._marred.add(attempt)

    def is_there(self, worker: str) -> bool:
        """Whether a worker's process lives and has not begun to leave."""
        holder = self.holders.get(worker)
        return holder is not None and holder.process.alive and holder.draining_since_us is None

    def deadline_problem(self, tree: Tree) -> str:
        """What is wrong with the deadline that a keeper was just handed: it may not be later than the lease's end."""
        attempt, clock = self._world.attempts.get(tree.job.attempt), self._world.clock
        if attempt is None or not attempt.lease_us or tree.job.lock_path.endswith(".verify.lock"):
            return ""
        source = chain_of(clock, tree.host.name, tree.host.boot_id)
        if source is None or clock.state != "running":
            return ""  # while a clock is in doubt recorded time stands still, and nothing falls due by it
        late_us = tree.deadline_tick_us - (source.tick_us + attempt.lease_us - source.logical_us)
        if late_us <= LATE_US:
            return ""
        return f"the keeper of {attempt.attempt} was told of a lease that ends {late_us} us too late"

    def _take_in(self) -> None:
        """New subjects, and those that still can wait for something."""
        world = self._world
        for attempt in _new(self._attempts, world.attempts, self._seen, 1):
            self._reservations[attempt.worker] = self._reservations.get(attempt.worker, 0) + 1
        _new(self._orders, world.orders, self._seen, 0)
        _new(self._plans, world.plans, self._seen, 2)
        self._orders = [order for order in self._orders if order.state not in ENDED or not order.told_done]
        self._attempts = [
            attempt
            for attempt in self._attempts
            if world.holds[attempt.hold].state in ("held", "unsettled") or attempt.state == "result_reported"
        ]
        self._plans = [plan for plan in self._plans if plan.open or not plan.cancel_done]

    def _seen_by(self, host: Host) -> int:
        """Logical time as a look at this host's clock would have it."""
        clock = self._world.clock
        source = chain_of(clock, host.name, host.boot_id)
        if source is None:
            return clock.logical_us
        return max(clock.logical_us, source.logical_us + host.tick_us() - source.tick_us)

    def _conditions(self) -> Iterator[Condition]:
        running = self._world.clock.state == "running"
        trees: dict[str, Tree] = {}
        for tree in self._trees.alive:
            trees[tree.job.attempt] = tree
            yield from self._tree(tree)
        if not self._live:
            return
        for order in self._orders:
            yield from self._order(order, trees, running=running)
        for plan in self._plans:
            yield from self._plan(plan, running=running)
        for attempt in self._attempts:
            yield from self._attempt(attempt, trees, running=running)
        if running:
            for holder in self._live:
                yield from self._queue(holder)

    def _order(self, order: Order, trees: dict[str, Tree], *, running: bool) -> Iterator[Condition]:
        name = order.order
        if order.state in ENDED:
            yield ("tell", name, order.told), TOLD_US, f"{name} has ended and a dependent is not told"
        elif order.state == "retry_wait":
            if running and order.due_us <= self._now_us:
                yield ("retry", name, order.due_us), DUE_US, f"the backoff of {name} is over and it waits on"
        elif order.state == "waiting":
            until_us = (order.wait or {}).get("until_us", NEVER_US)
            if running and until_us <= self._now_us:
                yield ("wait", name, until_us), DUE_US, f"the time that {name} waits for is over and it waits on"
        elif order.state == "result_pending":
            yield from self._result(order, trees)
        elif order.state == "blocked_budget" and running and not self._world.ready[""]:
            yield from self._budget(order)

    def _plan(self, plan: Plan, *, running: bool) -> Iterator[Condition]:
        if plan.cancel and not plan.cancel_done:
            key = ("cancel", plan.plan, plan.cancel_position, plan.open)
            yield key, TOLD_US, f"{plan.plan} is cancelled and one of its orders is not"
        elif running and plan.open and not plan.cancel and _or_never(plan.deadline_us) <= self._now_us:
            yield ("deadline", plan.plan), DUE_US, f"the deadline of {plan.plan} is over and it goes on"

    def _budget(self, order: Order) -> Iterator[Condition]:
        world = self._world
        if order.plan and world.plans[order.plan].cancel:
            return
        asks, least = shares_of(world, order)
        versions = tuple(world.versions.get(name, 0) for name in order.accounts)
        if spent_out(world, order, least):
            yield ("spent", order.order, versions), FREED_US, f"{order.order} waits for budget, which is spent for good"
        elif not in_the_way(world, order, wanted(world, order, asks, least))[0]:
            yield ("budget", order.order, versions), FREED_US, f"{order.order} waits for budget, and would fit"

    def _result(self, order: Order, trees: dict[str, Tree]) -> Iterator[Condition]:
        """A result is applied by its own worker, or where that is gone or silent by another of the same host."""
        attempt = self._world.attempts[order.attempt]
        host = self._hosts[attempt.host]
        holder = self.holders.get(attempt.worker)
        silent_us = order.moved_us + order.spec["attempt_time_us"] + self._world.limits["lease_us"]
        is_silent = silent_us <= self._now_us
        # A worker that stands still keeps its locks, which is no reason for the others to wait for it.
        own = () if is_silent and holder is not None and holder not in self._live else ("finish", "verify")
        locks = (f"{attempt.attempt}.{name}.lock" for name in (*own, "late", "late.verify"))
        if attempt.attempt in trees or any(host.locks.owner(lock) is not None for lock in locks):
            return
        is_left = is_silent or holder is None or not holder.process.alive
        those = [other for other in self._live if other is holder or (is_left and other.host is host)]
        version = self._world.versions[attempt.attempt]
        words = f"{attempt.attempt} has reported, and nobody brings its result to an end"
        if any(self._free(other) + (other is holder) > 0 for other in those):
            yield ("result", attempt.attempt, version), FINISHED_US, words
        for other in those:
            yield self._passed_over(("passed", attempt.attempt, version, other.worker), other, words)

    def _passed_over(self, key: tuple[Any, ...], holder: Holder, words: str) -> Condition:
        """A result that waits for a slot gets its turn: a worker that knows of it does not go on taking orders.

        What it takes until then goes by turns: one order before each result that waits, and one in each slot for which
        that was just decided.
        """
        taken = self._reservations.get(holder.worker, 0)
        since_us = self._since.get(key, self._looked_us)
        if self._looked_us - since_us <= FINISHED_US:
            self._taken_before[key] = taken
        turns = holder.slots + sum(map(self._is_pending, self._attempts))
        is_passed = taken - self._taken_before.get(key, taken) > turns
        return key, FINISHED_US if is_passed else NEVER_US, f"{words}, while {holder.worker} takes order after order"

    def _attempt(self, attempt: Attempt, trees: dict[str, Tree], *, running: bool) -> Iterator[Condition]:
        hold = self._world.holds[attempt.hold]
        unsettled = hold.state == "unsettled"
        if attempt.state != "reserved" and attempt.state not in LIVE and not unsettled:
            return
        holder = self.holders.get(attempt.worker)
        if running:
            yield from self._over(attempt, hold)
        if holder is None or not holder.process.alive:
            yield from self._gone(attempt, trees)
        elif attempt.attempt not in self._marred and holder in self._live and attempt.attempt not in trees:
            yield from self._silent(attempt, hold)
        elif running and attempt.attempt not in self._marred and holder in self._live and not unsettled:
            yield from self._renewed(attempt, holder, trees[attempt.attempt])

    def _over(self, attempt: Attempt, hold: Hold) -> Iterator[Condition]:
        name, clock = attempt.attempt, self._world.clock
        if hold.state == "unsettled":
            if hold.settle_by_us <= self._now_us:
                yield ("settle", hold.hold), DUE_US, f"{hold.hold} is unsettled beyond its time"
            return
        end_us = clock.end_us(attempt.deadline_us if attempt.state == "reserved" else attempt.lease_us)
        if end_us <= self._now_us:
            yield ("over", name, end_us), LAPSED_US, f"the time of {name} ({attempt.state}) is over, and nobody ends it"

    def _gone(self, attempt: Attempt, trees: dict[str, Tree]) -> Iterator[Condition]:
        """A holder that is gone is proved to be by a worker of its own host, before its time is over."""
        host = self._hosts[attempt.host]
        if attempt.attempt in trees or not any(other.host is host for other in self._live):
            return
        key = ("gone", attempt.attempt, host.boot_id)
        yield key, GONE_US, f"the worker of {attempt.attempt} ({attempt.state}) is gone, and nobody proves it"

    def _silent(self, attempt: Attempt, hold: Hold) -> Iterator[Condition]:
        """What a worker that lives owes for an attempt of which nothing runs."""
        name, tree = attempt.attempt, self._tree_of.get(attempt.attempt)
        if tree is not None and (tree.stubborn or tree.ended is None or not tree.ended.tree_empty):
            return  # without the proof that nobody is left nothing is told: its time ends by itself
        if attempt.state == "reserved":
            yield ("reserved", name), ACTIVATED_US, f"{name} is reserved, and its worker neither takes nor returns it"
        elif hold.state != "unsettled":
            yield ("unreported", name), REPORTED_US, f"nothing of {name} runs, and its worker does not say so"
        elif tree is not None:
            yield ("unsettled", name), REPORTED_US, f"{name} was stopped, and what it spent is not told"

    def _renewed(self, attempt: Attempt, holder: Holder, tree: Tree) -> Iterator[Condition]:
        order = self._world.orders[attempt.order]
        plan = self._world.plans.get(order.plan)
        if attempt.lapsed or (plan is not None and (plan.cancel or _or_never(plan.deadline_us) <= self._now_us)):
            return
        if attempt.lease_us - self._seen_by(holder.host) < RENEWED_US:
            yield ("renewed", attempt.attempt), SECOND_US, f"the lease of {attempt.attempt} is not renewed"
        told_us = tree.deadline_tick_us - tree.host.tick_us()
        goes_on = tree.keeper and tree.ended is None and tree.stop_at_tick_us is None
        if goes_on and tree.process is holder.process and told_us < RENEWED_US:
            key = ("confirmed", attempt.attempt)
            yield key, SECOND_US, f"the keeper of {attempt.attempt} is not told that its lease goes on"

    def _tree(self, tree: Tree) -> Iterator[Condition]:
        """What runs for nothing any more is stopped by its worker, and so is everything of one that drains."""
        holder = next((each for each in self.holders.values() if each.process is tree.process), None)
        if holder is None or not tree.keeper or not holder.is_steady(self._loop.now_us):
            return
        if tree.stop_at_tick_us is not None or tree.ended is not None:
            return  # it was told so, and its keeper sees to it; or its keeper has said that it ends nobody any more
        attempt = self._world.attempts[tree.job.attempt]
        awaited = ("result_reported",) if tree.job.lock_path.endswith(".verify.lock") else LIVE
        if holder.draining_since_us is not None:
            words = f"a command of {attempt.attempt} is not told to stop, and its worker drains"
            yield ("drain", id(tree)), STOPPED_US, words
        elif attempt.state not in awaited:
            words = f"a command of {attempt.attempt}, which is {attempt.state}, is not told to stop"
            yield ("stop", id(tree)), STOPPED_US, words

    def _queue(self, holder: Holder) -> Iterator[Condition]:
        queue = self._world.ready.get(holder.plan, ())
        if queue and self._free(holder) > 0:
            key = ("claim", holder.worker, self._reservations.get(holder.worker, 0), queue[0])
            yield key, CLAIMED_US, f"{queue[0][-1]} is ready and {holder.worker} has a free slot"

    def _free(self, holder: Holder) -> int:
        """Slots of a worker that nothing is known to take."""
        taken = {
            attempt.attempt
            for attempt in self._attempts
            if attempt.worker == holder.worker and (attempt.state in ("reserved", *LIVE) or self._is_pending(attempt))
        }
        taken.update(tree.job.attempt for tree in self._trees.alive if tree.process is holder.process)
        return holder.slots - len(taken)

    def _is_pending(self, attempt: Attempt) -> bool:
        return attempt.state == "result_reported" and self._world.orders[attempt.order].state == "result_pending"


def _new(known: list[Value], every: Mapping[str, Value], seen: list[int], place: int) -> list[Value]:
    """Take over what has come since the last look, and return it: dictionaries keep the order in which it came."""
    new = list(islice(every.values(), seen[place], None))
    seen[place] += len(new)
    known.extend(new)
    return new


def _or_never(deadline_us: int | None) -> int:
    return NEVER_US if deadline_us is None else deadline_us
