"""The small worlds that are searched, as data: a plan, bounds that are small, and what the surroundings may do.

Time runs on a grid of one unit, and every bound is a whole number of units, so that deadlines are met exactly: a lease
and a reservation last two units, a gap in observation is anything longer than one. What the system does by itself
(workers, sweepers, ticks of the clock) may always happen; an act of a person or a fault happens at most as often as
`may` says, so that each world has finitely many places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.records.common import Usage
from fencepost.core.records.plan import Acceptance, Outcome, Retry

UNIT_US = 1_000_000
START_US = 1_800_000_000 * UNIT_US
TICK_US = 1_000 * UNIT_US
GAP_US = 3 * UNIT_US  # longer than half a lease: nobody looked at the clock
SKEW_US = 10 * UNIT_US  # past the bound that a reading may differ by
DIGEST = "sha256:" + "0" * 64
OTHER_DIGEST = "sha256:" + "1" * 64

SMALL = Limits(
    lease_us=2 * UNIT_US,
    renewal_us=UNIT_US,
    reservation_us=2 * UNIT_US,
    clock_resolution_us=UNIT_US // 10,
    collect_us=0,
    jitter_ppm_max=0,
    late_records_per_attempt=2,
    yields_max=1,
    children_depth_max=1,
)
PAGED = msgspec.structs.replace(SMALL, fanout_per_batch=1, cancel_per_batch=1, page_max=1)

ACTS: Mapping[str, str] = {
    "cancel": "a person cancels an order",
    "cancel_plan": "a person cancels the plan",
    "retry": "a person asks for a retry",
    "budget": "a person sets a ceiling",
    "submit": "a person submits the plan once more",
    "join": "a person submits one more order, which waits for others",
    "late": "a fact comes after its fence",
    "stop": "a holder drains its attempt",
    "checkpoint": "a program saves a checkpoint",
    "artifact": "a program keeps a file",
    "charge": "a program charges a receipt",
    "child": "a program orders a child",
    "yield": "a program yields, so that its order waits",
    "answer": "a person answers an order",
    "release": "a holder gives its reservation back",
    "gone": "a holder is proved gone",
    "enrol": "another worker starts",
    "gap": "nobody looks at the clock for a while",
    "restart": "the host restarts",
    "skew": "a reading of the clock contradicts the accepted time",
}
"""What `World.may` can name. An act that a world does not name never happens in it."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One small world. Amounts of `may` are how often, -1 for always."""

    name: str
    says: str
    orders: tuple[c.OrderDraft, ...]
    may: dict[str, int]
    results: tuple[str, ...] = ("succeeds", "fails")
    ceilings: dict[str, int] = {}
    counted: tuple[str, ...] = ("attempts",)  # dimensions that some ceiling names, now or later
    set_to: tuple[tuple[str, dict[str, int]], ...] = ()  # what a person may set: account by name, ceilings
    children: tuple[c.OrderDraft, ...] = ()  # what a program may order; groups name earlier ones
    charges: Mapping[str, Usage] = {}  # what a program may charge, by how stories tell it
    waits: tuple[str, ...] = ()  # what a program may wait for: of inside.WAITS, "children", "children_or_question"
    join: c.OrderDraft | None = None  # groups name tasks; they become orders when it is submitted
    deadline_us: int | None = None
    uncertainty_us: int = 0
    workers: int = 2
    hosts: int = 1
    limits: Limits = SMALL
    lapses: int = 0  # reservations of an order that were never activated and are still remembered
    renews: bool = False  # whether holders renew; without, a lease's end tells how old its attempt is
    deep: bool = False  # for the nightly run


def group(kind: str, *tasks: str, outcomes: tuple[Outcome, ...] = ("applied",)) -> c.GroupDraft:
    members = tuple(c.MemberDraft(outcomes=outcomes, task=task) for task in tasks)
    return c.GroupDraft(kind=kind, members=members)  # type: ignore[arg-type]  # worlds name kinds by their text


def draft(task: str, *groups: c.GroupDraft, attempts: int = 2, retry: bool = True, **more: Any) -> c.OrderDraft:
    """An order with so many attempts; `retry` lets a failed one be tried again after a backoff of one unit."""
    fields: dict[str, Any] = {
        "work_kind": "command/1",
        "priority": "normal",
        "classification": "internal",
        "effects": "none",
        "attempt_time_us": 2 * UNIT_US,
        "accept": Acceptance(),
        "run": ("true",),
        "groups": groups,
        "ceilings": {"attempts": attempts},
        "retry": Retry(on=("executor",), backoff_us=UNIT_US, backoff_max_us=2 * UNIT_US) if retry else None,
        "may": ("workspace.write",),
    }
    return c.OrderDraft(task=task, **{**fields, **more})


VERIFIED = Acceptance(verify=("check",))


def usage(receipt: str, calls: int, *unknown: str) -> Usage:
    """What a provider's receipt says was used."""
    return Usage(receipt=receipt, provider="gateway", amounts={"calls": calls} if calls else {}, unknown=unknown)


RECEIPTS: Mapping[str, Usage] = {
    "one call": usage("r1", 1),
    "two calls under the receipt of one": usage("r1", 2),
    "four calls": usage("r2", 4),
}
EUROS = Usage(receipt="r1", provider="gateway", amounts={"money_micros:EUR": 3})

WORLDS: tuple[World, ...] = (
    World(
        name="pair",
        says="b needs a; two workers, two attempts each, a cancel, a retry, lapses",
        orders=(draft("a"), draft("b", group("required", "a"), attempts=1)),
        may={"cancel": 1, "retry": 1},
    ),
    World(
        name="pair-deep",
        says="b needs a; two workers, a cancel, lapses, renewals, holders that are proved gone",
        orders=(draft("a"), draft("b", group("required", "a"), attempts=1)),
        may={"cancel": 1, "gone": -1},
        lapses=1,
        renews=True,
        deep=True,
    ),
    World(
        name="fences",
        says="one order of two attempts: reservations that lapse or go back, renewals, every fence ever given out",
        orders=(draft("a"),),
        may={"cancel": 1, "release": -1, "gone": -1},
        lapses=1,
        renews=True,
    ),
    World(
        name="groups",
        says="c needs any of a and b; d needs both to end, whatever happens; a cancel",
        orders=(
            draft("a", attempts=1, retry=False),
            draft("b", attempts=1, retry=False, may_fail=True),
            draft("c", group("alternative", "a", "b"), attempts=1, retry=False),
            draft("d", group("optional", "a", "b"), attempts=1, retry=False),
        ),
        may={"cancel": 1},
        workers=1,
        deep=True,
    ),
    World(
        name="any",
        says="c needs any of a and b",
        orders=(
            draft("a", attempts=1, retry=False),
            draft("b", attempts=1, retry=False),
            draft("c", group("alternative", "a", "b"), attempts=1, retry=False),
        ),
        may={},
        workers=1,
    ),
    World(
        name="all",
        says="c needs both a and b, and in another group that a failed or was applied",
        orders=(
            draft("a", attempts=1, retry=False),
            draft("b", attempts=1, retry=False),
            draft(
                "c",
                group("required", "a", "b", outcomes=("applied", "failed")),
                group("required", "a"),
                attempts=1,
                retry=False,
            ),
        ),
        may={},
        workers=1,
    ),
    World(
        name="optional",
        says="b goes on when a has ended, whatever happened; c only when a failed",
        orders=(
            draft("a", attempts=1, retry=False),
            draft("b", group("optional", "a"), attempts=1, retry=False),
            draft("c", group("required", "a", outcomes=("failed",)), attempts=1, retry=False),
        ),
        may={"cancel": 1},
        workers=1,
    ),
    World(
        name="pages",
        says="b waits for a, and one that joins late too; ends and cancels are carried on one order at a time",
        orders=(draft("a", attempts=1, retry=False), draft("b", group("required", "a"), attempts=1, retry=False)),
        join=draft("z", group("required", "a"), attempts=1, retry=False),
        may={"cancel_plan": 1, "join": 1},
        results=("succeeds",),
        limits=PAGED,
        workers=1,
    ),
    World(
        name="again",
        says="b needs a; a person retries what has ended, alone or with its dependents, twice",
        orders=(draft("a", attempts=1, retry=False), draft("b", group("required", "a"), attempts=1, retry=False)),
        may={"retry": 2},
        results=("succeeds", "fails"),
        limits=PAGED,
        workers=1,
    ),
    World(
        name="names",
        says="a plan is submitted once more: the same, anew, beside, or changed; a retry reopens one that has ended",
        orders=(draft("a", attempts=1, retry=False),),
        may={"submit": 1, "retry": 1},
        results=("fails",),
        workers=1,
    ),
    World(
        name="names-deep",
        says="as `names`, with results that succeed and a cancel",
        orders=(draft("a", attempts=1, retry=False),),
        may={"submit": 1, "retry": 1, "cancel": 1},
        workers=1,
        deep=True,
    ),
    World(
        name="pages-deep",
        says="as `pages`, with cancels of single orders, and failures",
        orders=(draft("a", attempts=1, retry=False), draft("b", group("required", "a"), attempts=1, retry=False)),
        join=draft("z", group("required", "a"), attempts=1, retry=False),
        may={"cancel": 1, "cancel_plan": 1, "join": 1},
        limits=PAGED,
        workers=1,
        deep=True,
    ),
    World(
        name="deadline",
        says="b needs a, and the plan has five units of time",
        orders=(draft("a"), draft("b", group("required", "a"), attempts=1)),
        may={"cancel_plan": 1},
        deadline_us=5 * UNIT_US,
        uncertainty_us=UNIT_US,
        workers=1,
    ),
    World(
        name="tight",
        says="a and b share a budget that carries one attempt at a time; a person may raise or lower a ceiling",
        orders=(
            draft("a", per_attempt={"calls": 2}, attempts=1, retry=False),
            draft("b", per_attempt={"calls": 2}, attempts=1, retry=False),
        ),
        ceilings={"calls": 3},
        counted=("attempts", "calls"),
        may={"budget": 1},
        set_to=(("plan", {"calls": 5}), ("plan", {"calls": 1}), ("scope", {"attempts": 1})),
        results=("succeeds", "spends"),
    ),
    World(
        name="tight-deep",
        says="as `tight`, with two attempts of each order, a backoff, a cancel, and more that a person may set",
        orders=(
            draft("a", per_attempt={"calls": 2}, attempts=2),
            draft("b", per_attempt={"calls": 2}, attempts=1),
        ),
        ceilings={"calls": 3},
        counted=("attempts", "calls"),
        may={"cancel": 1, "budget": 1},
        set_to=(
            ("plan", {"calls": 5}),
            ("plan", {"calls": 1}),
            ("plan", {"calls": 4, "money_micros:EUR": 5}),
            ("scope", {"attempts": 1}),
            ("a", {"attempts": 1}),
        ),
        results=("succeeds", "fails", "spends"),
        deep=True,
    ),
    World(
        name="currency",
        says="a holds dollars, and the scope or the plan comes to budget euros",
        orders=(draft("a", per_attempt={"money_micros:USD": 1}, attempts=1),),
        counted=("attempts", "money_micros:USD", "money_micros:EUR"),
        may={"budget": 2, "cancel": 1, "release": -1},
        set_to=(
            ("scope", {"money_micros:EUR": 5}),
            ("scope", {"money_micros:EUR": 5, "money_micros:USD": 2}),
            ("plan", {"money_micros:USD": 0}),
            ("scope", {}),
        ),
        workers=1,
    ),
    World(
        name="euros",
        says="a plan of dollars, and a charges euros while b is on its way; the plan comes to budget them",
        orders=(draft("a"), draft("b", attempts=1, retry=False)),
        ceilings={"money_micros:USD": 4},
        counted=("attempts", "money_micros:USD", "money_micros:EUR"),
        may={"charge": 1, "budget": 1},
        set_to=(
            ("plan", {"money_micros:USD": 4, "money_micros:EUR": 9}),
            ("plan", {}),
        ),
        charges={"three euros": EUROS},
        results=("succeeds",),
        workers=1,
    ),
    World(
        name="verified",
        says="a result counts only when its verifier has spoken; two attempts, a cancel, results that differ",
        orders=(draft("a", accept=VERIFIED),),
        may={"cancel": 1, "late": 1},
        results=("succeeds", "fails"),
        workers=1,
    ),
    World(
        name="late",
        says="results and events come after expiry, cancel and application; unknown usage, time is budgeted",
        orders=(draft("a", ceilings={"attempts": 2, "time_us": 6 * UNIT_US}),),
        counted=("attempts", "time_us"),
        may={"cancel": 1, "late": 2, "gone": -1},
        results=("succeeds", "fails", "unknown"),
        workers=1,
    ),
    World(
        name="drained",
        says="a holder stops its attempt cleanly; the first time costs no attempt",
        orders=(draft("a"),),
        may={"cancel": 1, "stop": -1},
        results=("succeeds", "fails", "escapes", "refuses"),
        workers=1,
    ),
    World(
        name="gone",
        says="workers of two hosts die, are proved gone, and start anew, also after a restart of their host",
        orders=(draft("a"),),
        may={"gone": -1, "enrol": 1, "restart": 1},
        results=("succeeds",),
        hosts=2,
    ),
    World(
        name="clock",
        says="gaps, restarts and a clock that contradicts itself, read with an uncertainty of one unit",
        orders=(draft("a"),),
        may={"gap": 1, "restart": 1, "skew": 1, "release": -1, "gone": -1},
        uncertainty_us=UNIT_US,
        results=("succeeds",),
        workers=1,
    ),
    World(
        name="asks",
        says="a program saves its state and yields, for an answer, a time, or either; the first time costs no attempt",
        orders=(draft("a"),),
        may={"checkpoint": 2, "artifact": -1, "yield": -1, "answer": 1, "cancel": 1},
        waits=("question", "time", "question_or_time"),
        results=("succeeds",),
        workers=1,
    ),
    World(
        name="kept",
        says="a saves its state, ends badly, and is retried, from there or from the start; its ceiling is raised",
        orders=(draft("a", attempts=1, retry=False),),
        may={"checkpoint": 2, "retry": 1, "budget": 1},
        set_to=(("a", {"attempts": 2}),),
        results=("fails",),
        workers=1,
    ),
    World(
        name="child",
        says="a orders a child and waits for it, or for an answer as well; cancels; ends are told one at a time",
        orders=(draft("a", retry=False),),
        children=(draft("kid", attempts=1, retry=False),),
        may={"child": 1, "yield": 1, "answer": 1, "cancel": 1},
        waits=("children", "children_or_question"),
        limits=PAGED,
        workers=1,
    ),
    World(
        name="children",
        says="a orders a child and another one that needs it, and waits for both",
        orders=(draft("a", retry=False),),
        children=(draft("kid", attempts=1, retry=False), draft("next", group("required", "kid"), attempts=1)),
        may={"child": 2, "yield": 1},
        waits=("children",),
        limits=PAGED,
        workers=1,
    ),
    World(
        name="untold",
        says="a child asks a person while its parent's end has been told to another order and not to it yet",
        orders=(draft("a", retry=False), draft("b", group("required", "a"), attempts=2, retry=False)),
        children=(draft("kid", attempts=2, retry=False),),
        may={"child": 1, "yield": 1, "cancel": 1},
        waits=("question",),
        results=("succeeds",),
        limits=PAGED,
        workers=1,
        deep=True,
    ),
    World(
        name="charged",
        says="receipts are charged while work runs and after it was lost, twice, differently, and in its result",
        orders=(draft("a", per_attempt={"calls": 2}),),
        ceilings={"calls": 9},
        counted=("attempts", "calls"),
        may={"charge": 3, "cancel": 1, "late": 1, "gone": -1},
        charges=RECEIPTS,
        results=("succeeds", "repeats"),
        workers=1,
    ),
    World(
        name="doubt",
        says="a and b share a budget for one at a time, and the clock comes to contradict itself",
        orders=(
            draft("a", per_attempt={"calls": 2}, attempts=1, retry=False),
            draft("b", per_attempt={"calls": 2}, attempts=1),
        ),
        ceilings={"calls": 3},
        counted=("attempts", "calls"),
        may={"skew": 1, "cancel": 1, "release": -1, "gone": -1},
        workers=1,
        deep=True,
    ),
    World(
        name="deadline-deep",
        says="as `deadline`, with two attempts of b, a cancel of an order, a gap in observation, holders that are gone",
        orders=(draft("a"), draft("b", group("required", "a"))),
        may={"cancel_plan": 1, "cancel": 1, "gap": 1, "gone": -1},
        deadline_us=5 * UNIT_US,
        uncertainty_us=UNIT_US,
        workers=1,
        deep=True,
    ),
    World(
        name="late-deep",
        says="b needs a; facts come late twice, attempts are cancelled, drained, lapse, or are proved gone",
        orders=(draft("a"), draft("b", group("required", "a"), attempts=1)),
        may={"cancel": 1, "late": 2, "gone": -1, "stop": 1},
        workers=1,
        deep=True,
    ),
)
BY_NAME: Mapping[str, World] = {world.name: world for world in WORLDS}
