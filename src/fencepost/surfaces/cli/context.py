"""What every command of the command line shares: global options, the open home, names, output and errors.

Data goes to stdout, everything else to stderr. With `--json` a command prints exactly one document (streams print one
a line). Every failure is one document or one line with a stable code, and one exit code (`core.reasons`).
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, TextIO

import msgspec
from cyclopts import Parameter

from fencepost.app import HOME_NAME, App, NoHome, find_home, stopping_between_commits
from fencepost.config import SCOPE_FIRST, Config, load
from fencepost.core.commands import AnyCommand, Request
from fencepost.core.limits import FIRST_VALUES
from fencepost.core.reasons import REASONS, Refusal
from fencepost.core.state import OrderState, PlanState
from fencepost.core.vocabulary import HUMAN_PRINCIPAL
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.anchors import require_current
from fencepost.surfaces.cli.typed import by_name, here, opened_is
from fencepost.surfaces.cli.words import block, like, one_line

PLANS_SEARCHED_MAX = 100  # for an order that the plan which was meant does not have
ORDERS_SEARCHED_MAX = 2_000


class CommandError(FencepostError):
    """A command cannot do what it was asked. `where` is what the error document's `where` shows."""

    def __init__(self, code: str, message: str, *, next_step: str | None = None, where: Any = None) -> None:
        super().__init__(message, next_step=next_step)
        self.code = code
        self.where = where
        self.detail: Mapping[str, str] = {}

    @classmethod
    def of(cls, refusal: Refusal) -> CommandError:
        error = cls(refusal.code, refusal.message, next_step=refusal.next_step, where=refusal.field or None)
        error.detail = refusal.detail
        return error


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Globals:
    """Options that every command takes."""

    store: Annotated[str | None, Parameter(help="Store URL; first value: the home's own SQLite file.")] = None
    home: Annotated[str | None, Parameter(help="Home folder; first value: the nearest .fencepost upwards.")] = None
    scope: Annotated[str | None, Parameter(help="Scope within the store; first value: default.")] = None
    json: Annotated[bool, Parameter(help="Print JSON: one document, or a line for each change.", negative="")] = False

    def config(self, start: Path | None = None, **flags: Any) -> Config:
        """What holds in `start`, first value: the working directory; `flags` are options of the command's own."""
        opened_is(None)
        _RECORDED.set(None)
        given = {"store": self.store, "home": self.home, "scope": self.scope, **flags}
        return load(given, os.environ, start or Path.cwd(), _processors())


NO_GLOBALS = Globals()

CommandKey = Annotated[
    str | None,
    Parameter(name="--command-key", help="Key of this request: repeated, it is answered and not done again."),
]
Force = Annotated[bool, Parameter(name="--force", negative="", help="Replace the file if it is there.")]


def _processors() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def opened(options: Globals, *, start: Path | None = None, create: bool = False, **flags: Any) -> Iterator[App]:
    """The home that these options mean, open for the block. Raises NoHome where there is none.

    A scope that nobody has opened is refused as `scope_not_open`; with `create`, which is a person's to ask, the first
    one of a store is made, and `inside_attempt` is raised where no person can be, as is what `require_current` raises.
    """
    config = options.config(start, **flags)
    home = home_of(config, start or Path.cwd())
    if home is None:
        _require_no_store(config)
        from fencepost.surfaces.cli.no_home import no_home

        raise no_home(start or Path.cwd())
    with opened_home(home, config, create=create) as app:
        yield app


def home_of(config: Config, start: Path) -> Path | None:
    """The home that a configuration means from `start` upwards, None where there is none. Raises NoHome for a folder
    that only has one."""
    if config.home is None:
        return find_home(start)
    home = Path(config.home).absolute()
    inner = home / HOME_NAME
    if not (home / "layout").is_file() and (inner / "layout").is_file():
        raise NoHome(f"{home} is no home, it has one", next_step=f"--home {shlex.quote(str(inner))}")
    return home


@contextmanager
def opened_home(home: Path, config: Config, *, create: bool = False, another: bool = False) -> Iterator[App]:
    """One home, open for the block; see `opened`. `another` makes one more scope beside those of the store: where it
    was only mistyped, everything would be done again."""
    _require_own_store(home, config)
    with stopping_between_commits():
        yield from _opened_home(home, config, create=create, another=another)


def _opened_home(home: Path, config: Config, *, create: bool, another: bool) -> Iterator[App]:
    limits = msgspec.structs.replace(FIRST_VALUES, keep_failed_us=config.keep_failed_us)
    app = App(home, scope=config.scope, environment=os.environ, limits=limits)
    opened_is(home.absolute(), config.scope)
    try:
        if create:
            require_outside(app)
            require_current(app)
        fresh = not _has_scope(app)
        scopes = _scopes(app) if fresh else []
        if fresh and (not create or (scopes and not another)):
            raise _scope_not_open(app.kernel.scope, scopes)
        app.kernel.open()
        if fresh and config.scope != SCOPE_FIRST:
            say(f"made scope {config.scope}")
        yield app
    except CommandError as error:
        with app.kernel.reader.look() as look:
            by_name(look, error)
        raise
    finally:
        app.close()


def require_outside(app: App) -> None:
    """What only a person may do is refused to whatever runs inside an attempt of the same store.

    Raises CommandError inside_attempt, whose place is the process that was found to belong to the attempt.
    """
    mark = app.attempt_around()
    if mark is not None:
        error = CommandError.of(Refusal(code="inside_attempt", detail={"subject": mark.attempt}))
        error.where = f"process {mark.pid}" if mark.pid else "environment"
        raise error


def by_person(app: App, command: AnyCommand, key: str | None = None) -> Request:
    """The request of a person: the one way in which the command line asks in a person's name. Raises CommandError
    inside_attempt, and what `require_current` does."""
    require_outside(app)
    require_current(app)
    return app.kernel.request(HUMAN_PRINCIPAL, command, key)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a command has done already, and what to do where nothing can be said of it."""

    told: str
    following: str


_RECORDED: ContextVar[Recorded | None] = ContextVar("recorded", default=None)


def recorded_is(told: str, following: str = "write the output to another place") -> None:
    """What is said of this command if its output cannot be written from now on."""
    _RECORDED.set(Recorded(told=told, following=following))


def recorded() -> Recorded | None:
    """What this command has done so far; None for nothing."""
    return _RECORDED.get()


def write_by_person(app: App, command: AnyCommand, key: str | None = None) -> Receipt:
    """Carry out what a person asks for. Raises CommandError inside_attempt, StorageError."""
    receipt = app.kernel.write(by_person(app, command, key))
    if receipt.refusal is None:
        following = "do not ask for it again because of this: fencepost journal tail shows what is recorded"
        recorded_is(f"what was asked is recorded all the same, at {receipt.sequence}", following)
    return receipt


def _require_no_store(config: Config) -> None:
    """Without a home a store URL can name nothing, and one of an engine that is not built is told as that."""
    if config.store is not None and not config.store.startswith("sqlite:"):
        raise _unsupported(config.store)


def _unsupported(store: str) -> CommandError:
    return CommandError(
        "unsupported_feature",
        f"a store other than the home's own is not built yet ({store})",
        next_step="leave --store out; --home names another home",
    )


def _require_own_store(home: Path, config: Config) -> None:
    """A store URL may name the home's own store and nothing else yet."""
    if config.store is None:
        return
    kind, _, path = config.store.partition(":")
    if kind != "sqlite" or Path(path.removeprefix("//")).absolute() != home.absolute() / "store.db":
        raise _unsupported(config.store)


def _scopes(app: App) -> list[str]:
    """The scopes that a store has."""
    with app.kernel.journal.snapshot() as reads:
        return sorted({stream.scope for stream in reads.streams()})


def _scope_not_open(scope: str, known: Sequence[str]) -> CommandError:
    error = CommandError.of(Refusal(code="scope_not_open", detail={"scope": scope}))
    error.message = error.message.rstrip(".") + like(scope, known)
    return error


def _has_scope(app: App) -> bool:
    with app.kernel.reader.look() as look:
        return look.head.seq > 0


def find_plan(look: Look, name: str) -> PlanState:
    """A plan by name (the open one, else the newest) or id. Raises CommandError not_found."""
    if name.startswith("plan_"):
        plan = look.find(name, PlanState)
    else:
        known = look.name(name)
        plan = None if known is None else look.find(known.meant_by(), PlanState)
    if plan is None:
        raise _no_plan(look, name)
    return plan


def _no_plan(look: Look, name: str) -> CommandError:
    stem = _plan_of_file(look, name)
    if stem is not None:
        told = f"{name!r} is the name of a file, and its plan is called {stem}"
        return CommandError("not_found", told, next_step=f"name it {stem}")
    names = [plan.name for plan in look.newest_plans(PLANS_SEARCHED_MAX)]
    told = f"there is no plan {name!r} in this scope{like(name, names)}"
    return CommandError("not_found", told, next_step="fencepost plan list")


def _plan_of_file(look: Look, name: str) -> str | None:
    """The plan of this scope that a word means which is the name of its file; None for any other word."""
    path = PurePath(name)
    return path.stem if path.suffix in (".toml", ".json") and look.name(path.stem) is not None else None


def known_names(look: Look) -> list[str]:
    """What a name without a plan may be one of: the current plan's orders, and the newest plans."""
    plans = look.newest_plans(PLANS_SEARCHED_MAX)
    orders = look.orders(current_plan(look).plan) if plans else ()
    return [*(order.task for order in orders), *(plan.name for plan in plans)]


def is_one_of_several(look: Look, plan: PlanState) -> bool:
    """Whether a plan's name does not tell it: the name means another one, or several of that name are open."""
    known = look.name(plan.name)
    return known is None or known.meant_by() != plan.plan or len(known.open_plans) > 1


def plan_title(look: Look, plan: PlanState) -> str:
    """How a person may name the plan anywhere in the scope: by its name, or its id where that does not tell it."""
    return plan.plan if is_one_of_several(look, plan) else plan.name


def current_plan(look: Look) -> PlanState:
    """The newest open plan, else the newest. Raises CommandError not_found."""
    plans = look.newest_plans(1_000)
    for plan in plans:
        if plan.open:
            return plan
    if not plans:
        raise CommandError("not_found", "there is no plan in this scope yet", next_step="fencepost run PLAN")
    return plans[0]


def find_order(look: Look, name: str) -> OrderState:
    """An order by `[PLAN/]TASK` or id. Raises CommandError not_found."""
    if name.startswith("order_"):
        order = look.order(name)
        if order is None:
            raise CommandError("not_found", f"there is no order {name}", next_step="fencepost order list")
        return order
    if (stem := _plan_of_file(look, name)) is not None:
        told = f"{name!r} is the name of a file, and no order; its plan is called {stem}"
        raise CommandError("not_found", told, next_step=f"fencepost order list --plan {stem}")
    plan_name, _, task = name.rpartition("/")
    plan = find_plan(look, plan_name) if plan_name else current_plan(look)
    orders = look.orders(plan.plan)
    for order in orders:
        if order.task == task:
            return order
    elsewhere = None if plan_name else _with_order(look, task, plan)
    if elsewhere is not None:
        told = f"plan {plan.name} has no order {task!r}, plan {elsewhere.name} has one"
        raise CommandError("not_found", told, next_step=f"name it {elsewhere.name}/{task}")
    told = f"plan {plan.name} has no order {task!r}{like(task, (order.task for order in orders))}"
    raise CommandError("not_found", told, next_step=f"fencepost order list --plan {plan_title(look, plan)}")


def _with_order(look: Look, task: str, without: PlanState) -> PlanState | None:
    """The newest plan but one that has an order of this name, among as many as are quickly looked through."""
    orders = 0
    for plan in look.newest_plans(PLANS_SEARCHED_MAX):
        orders += plan.orders
        if orders > ORDERS_SEARCHED_MAX:
            return None
        if plan.name != without.name and any(order.task == task for order in look.orders(plan.plan)):
            return plan
    return None


def required(receipt: Receipt) -> Mapping[str, Any]:
    """The result of a mutation, or its refusal as an error."""
    if receipt.refusal is not None:
        raise CommandError.of(receipt.refusal)
    return receipt.result


def emit(options: Globals, document: Any, human: Callable[[TextIO], None]) -> None:
    """Print one document, or the same for people."""
    if options.json:
        emit_line(document)
    else:
        human(sys.stdout)
    sys.stdout.flush()


def emit_line(document: Any) -> None:
    """Print one JSON document on one line; non-ASCII stays readable where the terminal can show it."""
    sys.stdout.write(json.dumps(document, ensure_ascii=not _speaks_utf8(sys.stdout), separators=(", ", ": ")) + "\n")


def _speaks_utf8(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(block(text), file=sys.stderr, flush=True)


def table(out: TextIO, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of plain text, harmless and aligned; right for a pipe and for 80 columns."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in [headings, *rows]) for place in range(len(headings))]
    for row in [headings, *rows]:
        out.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


def error_document(error: FencepostError) -> dict[str, Any]:
    reason = REASONS.get(error.code)
    next_step = error.next_step or (reason.next_step if reason is not None else "fencepost doctor")
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "where": getattr(error, "where", None),
            "next": here(next_step),
        }
    }


def exit_code(error: FencepostError) -> int:
    reason = REASONS.get(error.code)
    return 1 if reason is None else reason.exit_code
