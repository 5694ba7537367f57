"""What one run is made of, as data: hosts, workers, what clients ask for and when, and what goes wrong and when.

A scenario is drawn from a seed. It can be written down, made smaller piece by piece, and run again; everything else
that is random in a run (who goes next, which step of storage fails) follows from `seed` as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Literal, get_args

import msgspec

from fencepost.core.commands import FromDraft, GroupDraft, MemberDraft, OrderDraft, SubmitOrder, SubmitPlan
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.core.records.plan import Acceptance, Outcome, Retry
from fencepost.testing.simulator.faults import ALL, STRANGER, Moments, Rates, problem_of
from fencepost.testing.simulator.speech import ACTS
from fencepost.testing.simulator.stores import OUTPUT_PATHS, digest

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
STRANGER_US = 400_000  # between two turns of a stranger whom the seed has not drawn and somebody wants

ActionKind = Literal[
    "submit", "continue", "again", "single", "cancel_order", "cancel_plan", "retry", "set_budget", "scope_budget"
]
FaultKind = Literal[
    "crash",
    "client_crash",
    "drain",
    "freeze",
    "worker_hangs",
    "host_sleep",
    "host_restart",
    "clock_stands",
    "clock_slips",
    "jump",
    "disk_full",
    "store_away",
]
_OUTCOMES: tuple[tuple[Outcome, ...], ...] = (
    ("applied",),
    ("applied", "failed"),
    ("failed",),
    ("applied", "cancelled", "failed"),
    ("cancelled", "dependency_failed"),
    ("applied", "budget_exhausted", "cancelled", "dependency_failed", "failed"),
)


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what a scenario is made of."""


class GroupShape(_Part, frozen=True):
    kind: Literal["required", "optional", "alternative"]
    members: tuple[tuple[int, tuple[Outcome, ...]], ...]  # (place of the task, outcomes that satisfy)


class OrderShape(_Part, frozen=True):
    """One order of a plan. Tasks are named by their place."""

    place: int
    priority: Literal["low", "normal", "high"] = "normal"
    groups: tuple[GroupShape, ...] = ()
    handed: int | None = None  # place of the task whose output it takes
    attempts: int | None = None
    attempt_time_us: int = 20 * SECOND_US
    least_us: int = 0
    time_us: int | None = None
    calls: tuple[int, int] | None = None  # (ceiling, for each attempt)
    retry_on: tuple[str, ...] = ()
    backoff_us: int = SECOND_US
    verify: bool = False
    outputs: bool = True
    says: tuple[str, ...] = ()  # what its program does while it runs (`speech.ACTS`)


class Action(_Part, frozen=True):
    """What one client asks for at a time. `plan` is the number of a submission, `order` a place in it."""

    at_us: int
    client: int
    kind: ActionKind
    plan: int
    order: int = 0
    orders: tuple[OrderShape, ...] = ()
    ceilings: tuple[tuple[str, int], ...] = ()
    deadline_us: int | None = None
    with_dependents: bool = False


class FaultEvent(_Part, frozen=True):
    """Something that goes wrong at a time. `target` is taken modulo the number of what there is of it."""

    at_us: int
    kind: FaultKind
    target: int = 0
    length_us: int = 0


SMALL_PAGES = msgspec.structs.replace(
    FIRST_VALUES,
    fanout_per_batch=2,
    cancel_per_batch=2,
    page_max=10,
    reserve_next_max=3,
    group_commands_max=3,
    checkpoint_interval_records=40,
)


class Scenario(_Part, frozen=True):
    seed: int
    length_us: int
    drifts_ppm: tuple[int, ...]  # one for each host
    utc_offsets_us: tuple[int, ...]
    workers: tuple[tuple[int, int, int], ...]  # (host, slots, number of the plan that it is for, or -1)
    clients: int
    actions: tuple[Action, ...]
    faults: tuple[FaultEvent, ...]
    rates: Rates
    small_pages: bool = False  # bounds of pages and groups so small that everything goes in several
    stranger_us: int = 0  # between two turns of somebody who repeats, reorders and lies; 0 for nobody

    @property
    def limits(self) -> Limits:
        return SMALL_PAGES if self.small_pages else FIRST_VALUES


def plan_of(action: Action, mode: Literal["new", "continue", "again"] = "new") -> SubmitPlan:
    """The command of a submission."""
    orders = tuple(_draft(shape) for shape in action.orders)
    return SubmitPlan(
        name=f"plan-{action.plan}",
        objective="simulated",
        content=digest(f"{action.plan} {action.orders}"),
        orders=orders,
        recovery="replace",
        mode=mode,
        ceilings=dict(action.ceilings),
        deadline_us=action.deadline_us,
    )


def single_of(action: Action) -> SubmitOrder:
    """The command of an order outside of any plan."""
    return SubmitOrder(order=_draft(action.orders[0]))


def _draft(shape: OrderShape) -> OrderDraft:
    ceilings: dict[str, int] = {}
    if shape.attempts is not None:
        ceilings["attempts"] = shape.attempts
    if shape.time_us is not None:
        ceilings["time_us"] = shape.time_us
    if shape.calls is not None:
        ceilings["calls"] = shape.calls[0]
    retry: Any = shape.retry_on
    return OrderDraft(
        task=f"w{shape.place}",
        work_kind="command/1",
        priority=shape.priority,
        classification="internal",
        effects="declared",
        attempt_time_us=shape.attempt_time_us,
        attempt_time_least_us=shape.least_us,
        accept=Acceptance(files=(OUTPUT_PATHS[0],) if shape.outputs else (), verify=("check",) if shape.verify else ()),
        run=("work", str(shape.place), *shape.says),
        manifest=digest("manifest"),
        handed=() if shape.handed is None else (FromDraft(task=f"w{shape.handed}", files=(OUTPUT_PATHS[0],)),),
        outputs=OUTPUT_PATHS if shape.outputs else (),
        groups=tuple(
            GroupDraft(
                kind=group.kind,
                members=tuple(MemberDraft(task=f"w{place}", outcomes=outcomes) for place, outcomes in group.members),
            )
            for group in shape.groups
        ),
        ceilings=ceilings,
        per_attempt={} if shape.calls is None else {"calls": shape.calls[1]},
        retry=None
        if not shape.retry_on
        else Retry(on=retry, backoff_us=shape.backoff_us, backoff_max_us=max(shape.backoff_us, 30 * SECOND_US)),
    )


def without_order(action: Action, place: int) -> Action:
    """The same submission without one of its tasks, and without what others wanted of it."""
    orders = []
    for shape in action.orders:
        if shape.place == place:
            continue
        groups = []
        for group in shape.groups:
            members = tuple(member for member in group.members if member[0] != place)
            if members:
                groups.append(msgspec.structs.replace(group, members=members))
        handed = None if shape.handed == place else shape.handed
        orders.append(msgspec.structs.replace(shape, groups=tuple(groups), handed=handed))
    return msgspec.structs.replace(action, orders=tuple(orders))


def draw(seed: int, changes: Mapping[str, int] | None = None) -> Scenario:
    """The scenario of a seed. `changes` are rates that somebody has set (`faults.problem_of` says which may be), in
    the place of those that the seed draws. Raises ValueError for one that may not be.
    """
    changes = changes or {}
    wrong = next((problem for name, value in changes.items() if (problem := problem_of(name, value))), "")
    if wrong:
        raise ValueError(wrong)
    chance = Random(f"scenario {seed}")
    length_us = chance.choice((15, 30, 60)) * SECOND_US
    hosts = chance.choice((1, 1, 2, 3))
    workers = tuple(
        (chance.randrange(hosts), chance.choice((1, 2, 4)), chance.choice((-1, -1, number)) if number else -1)
        for number in range(chance.randint(1, 4))
    )
    clients = chance.randint(1, 3)
    stranger_us = chance.choice((0, 100_000, 400_000))
    if any(changes.get(name) for name in STRANGER):
        stranger_us = stranger_us or STRANGER_US
    drifts_ppm = tuple(chance.choice((0, 0, 50, -50)) for _ in range(hosts))
    utc_offsets_us = tuple(chance.choice((0, 0, 0, 600 * SECOND_US, -3600 * SECOND_US)) for _ in range(hosts))
    actions = _actions(chance, length_us, clients)
    return Scenario(
        seed=seed,
        length_us=length_us,
        drifts_ppm=drifts_ppm,
        utc_offsets_us=utc_offsets_us,
        workers=workers,
        clients=clients,
        actions=actions,
        faults=_faults(seed, changes, length_us, [action.at_us for action in actions]),
        rates=_rates(seed, changes),
        stranger_us=stranger_us,
        small_pages=chance.random() < 0.4,
    )


_KINDS: tuple[ActionKind, ...] = (
    "cancel_order",
    "cancel_plan",
    "retry",
    "retry",
    "set_budget",
    "scope_budget",
    "continue",
    "again",
    "single",
)


def _actions(chance: Random, length_us: int, clients: int) -> tuple[Action, ...]:
    actions = []
    plans = chance.randint(2, 8)
    for plan in range(plans):
        orders = tuple(_shape(chance, place) for place in range(chance.choice((1, 3, 6, 10, 16))))
        ceilings: list[tuple[str, int]] = []
        if chance.random() < 0.4:
            ceilings.append(("attempts", max(len(orders), chance.randint(1, 3 * len(orders)))))
        if chance.random() < 0.2:
            ceilings.append(("time_us", chance.randint(20, 400) * SECOND_US))
        if chance.random() < 0.35:
            ceilings.append(("calls", chance.randint(3, 9)))
        actions.append(
            Action(
                at_us=int(chance.random() * length_us / 2),
                client=chance.randrange(clients),
                kind="submit",
                plan=plan,
                orders=orders,
                ceilings=tuple(ceilings),
                deadline_us=chance.randint(5, 60) * SECOND_US if chance.random() < 0.15 else None,
            )
        )
    for _ in range(chance.randint(0, 24)):
        actions.append(
            Action(
                at_us=int(chance.random() * length_us),
                client=chance.randrange(clients),
                kind=(kind := chance.choice(_KINDS)),
                plan=chance.randrange(plans),
                order=chance.randrange(16),
                orders=(_shape(chance, 0),) if kind == "single" else (),
                ceilings=(("attempts", chance.randint(1, 30)),) if chance.random() < 0.7 else (),
                with_dependents=chance.random() < 0.5,
            )
        )
    return tuple(sorted(actions, key=lambda action: action.at_us))


def _shape(chance: Random, place: int) -> OrderShape:
    groups = []
    for _ in range(0 if not place else chance.choice((0, 1, 1, 2))):
        members = sorted(chance.sample(range(place), min(place, chance.randint(1, 3))))
        kind = chance.choice(("required", "required", "optional", "alternative"))
        groups.append(
            GroupShape(
                kind=kind,  # type: ignore[arg-type]  # one of the literals, drawn
                members=tuple((member, chance.choice(_OUTCOMES)) for member in members),
            )
        )
    handed = None
    for group in groups:
        takes = [member for member, outcomes in group.members if outcomes == ("applied",)]
        if group.kind == "required" and takes and chance.random() < 0.5:
            handed = takes[0]
    says = tuple(act for act in ACTS if chance.random() < SPOKEN) if chance.random() < SPEAKERS else ()
    return OrderShape(
        place=place,
        priority=chance.choice(("low", "normal", "normal", "high")),
        groups=tuple(groups),
        handed=handed,
        attempts=chance.choice((None, 1, 2, 3, 5) if not says else (None, 3, 5, 9)),
        attempt_time_us=chance.choice((2, 20, 20, 120)) * SECOND_US,
        least_us=chance.choice((0, SECOND_US)),
        time_us=chance.choice((None, None, None, 120 * SECOND_US)),
        calls=chance.choice((None, None, None, (6, 2), (3, 3))),
        retry_on=chance.choice(((), ("executor",), ("executor", "validation"), ("executor", "transient_dependency"))),
        backoff_us=chance.choice((0, 100_000, SECOND_US, 5 * SECOND_US)),
        verify=chance.random() < 0.3,
        outputs=chance.random() < 0.8 or place == 0,
        says=says,
    )


SPEAKERS = 0.4  # share of the orders whose programs say something while they run
SPOKEN = 0.6  # share of the things that there are to say, which one of them does
USUAL_MOMENTS = Moments(
    crash=140,
    client_crash=80,
    drain=70,
    freeze=110,
    worker_hangs=90,
    host_sleep=50,
    host_restart=50,
    clock_stands=50,
    clock_slips=60,
    jump=40,
    disk_full=40,
    store_away=50,
)
TOGETHER = 0.3  # share of what comes at a time that comes just after somebody has asked for something
SOON_US = 300_000
CALM = 0.15  # share of the seeds in which nothing comes at a time of its own


def _faults(seed: int, changes: Mapping[str, int], length_us: int, asked_us: Sequence[int]) -> tuple[FaultEvent, ...]:
    """When what goes wrong, some of it just after something was asked for (`asked_us`).

    Each kind draws for itself, so that the rate of one changes nothing of another.
    """
    calm = Random(f"moments {seed}").random() < CALM
    events: list[FaultEvent] = []
    for kind in get_args(FaultKind):
        usual = getattr(USUAL_MOMENTS, kind)
        chance = Random(f"when {seed} {kind}")
        hourly = 0 if calm else usual * chance.choice((0, 1, 1, 3))
        share = _set(kind, hourly, changes) * length_us / HOUR_US
        for _ in range(int(share) + (chance.random() < share % 1)):
            events.append(_event(chance, kind, length_us, asked_us))
    return tuple(sorted(events, key=lambda event: event.at_us))


def _event(chance: Random, kind: FaultKind, length_us: int, asked_us: Sequence[int]) -> FaultEvent:
    at_us, target = int(chance.random() * length_us), chance.randrange(12)
    if chance.random() < TOGETHER:
        at_us = min(chance.choice(asked_us) + int(chance.random() * SOON_US), length_us)
    lasts_us = int(chance.choice((0.5, 3, 12, 25)) * SECOND_US)
    if kind == "jump":
        # A clock that jumps stops its domain until a person speaks, so that something else comes before.
        at_us = (length_us + at_us) // 2
        lasts_us = chance.choice((-3600, -3, 3, 600)) * SECOND_US
    elif kind == "clock_slips":
        lasts_us = chance.choice((-1, 1)) * SECOND_US
    elif kind == "clock_stands":
        lasts_us = min(lasts_us, 3 * SECOND_US)
    return FaultEvent(at_us=at_us, kind=kind, target=target, length_us=lasts_us)


def _set(name: str, drawn: int, changes: Mapping[str, int]) -> int:
    return changes.get(name, changes.get(ALL, drawn))


USUAL_RATES = Rates(
    begin_fails=3_000,
    read_fails=2_000,
    append_fails=4_000,
    commit_fails=4_000,
    commit_unanswered=8_000,
    answer_delayed=2_000,
    crash_at_step=150,
    drain_at_step=400,
    slow=3_000,
    hint_lost=100_000,
    hint_doubled=30_000,
    hint_delayed=50_000,
    answer_lost=60_000,
    request_doubled=60_000,
    exits_badly=250_000,
    hangs=40_000,
    spawn_fails=20_000,
    keeper_killed=30_000,
    freeze_verifying=120_000,
    not_contained=20_000,
    not_ended=300_000,
    runs_on=330_000,
    verifier_fails=250_000,
    layout_fails=15_000,
    said_twice=80_000,
    checkpoint_stale=80_000,
    built_beside=80_000,
    receipt_foreign=80_000,
    receipt_altered=80_000,
    child_altered=150_000,
    yield_taken_back=80_000,
    answer_slow=250_000,
    answer_doubled=250_000,
    answer_to_another=250_000,
    message_repeated=120_000,
    key_used_twice=60_000,
    command_doubled=80_000,
    report_doubled=60_000,
    lie_about_a_fence=60_000,
    lie_about_a_worker=60_000,
    lie_about_a_result=60_000,
    expiry_too_early=60_000,
    result_applied_again=60_000,
    principal_not_permitted=60_000,
    old_reading=60_000,
)


def _rates(seed: int, changes: Mapping[str, int]) -> Rates:
    """Each fault is absent from some runs, so that none hides what another would show."""
    usual = msgspec.structs.asdict(USUAL_RATES)
    drawn = {name: Random(f"rate {seed} {name}").choice((0, rate, rate, rate * 3)) for name, rate in usual.items()}
    return Rates(**{name: _set(name, rate, changes) for name, rate in drawn.items()})
