"""`fencepost budget`: ceilings, what is held, charged and available, and changes of ceilings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, TextIO

from cyclopts import App as CommandApp
from cyclopts import Parameter

from fencepost.app import App
from fencepost.core.amounts import DIMENSIONS, is_dimension
from fencepost.core.commands import SetBudget
from fencepost.core.instant import parse_duration, parse_money
from fencepost.core.planfile.currencies import ISO_4217
from fencepost.core.records.budget import BudgetCeilingSet
from fencepost.core.shares import MONEY
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Receipt
from fencepost.surfaces.cli.accounts import Named, account_of, find_account, open_holds
from fencepost.surfaces.cli.context import (
    NO_GLOBALS,
    CommandError,
    CommandKey,
    Globals,
    by_person,
    emit,
    opened,
    required,
    table,
    write_by_person,
)
from fencepost.surfaces.cli.names import bound_account
from fencepost.surfaces.cli.words import amount, amounts, dimension_label, unknown_note, wrapped

app = CommandApp(name="budget", help="Ceilings, held, charged, available.")

_COUNT_MAX = 2**53 - 1
_TRIES_MAX = 20
_SET_HELP = "fencepost budget set --help"
Account = Annotated[str | None, Parameter(help="scope, [PLAN/]TASK, a plan's name, or an id.")]
Plan = Annotated[str | None, Parameter(help="A plan by name or id.")]


@app.command(name="show")
def show(account: Account = None, /, *, plan: Plan = None, options: Globals = NO_GLOBALS) -> None:
    """Show an account and every account above it; first value: the current plan's."""
    with opened(options) as home, home.kernel.reader.look() as look:
        named = find_account(look, account, plan)
        document = budget_document(look, named)
        titles = titles_of_accounts(look, named.path)
    emit(options, document, lambda out: budget_text(document, out, titles))


def titles_of_accounts(look: Look, subjects: Iterable[str]) -> dict[str, str]:
    """Accounts whose name does not tell them, as people are told of them: by name and id."""
    found = [account_of(look, subject) for subject in subjects]
    return {
        one.subject: f"{one.kind} {one.name} ({one.title})" for one in found if one.title == one.subject != one.name
    }


def budget_document(look: Look, named: Named) -> dict[str, Any]:
    """Accounts from the scope down, and the open holds on the last one."""
    path = [account_of(look, subject) for subject in named.path]
    holds = [hold.document() for hold in open_holds(look) if named.subject in hold.hold.accounts]
    return {"items": [one.document() for one in path], "next": None, "holds": holds, "sequence": look.head.seq}


def budget_text(document: Mapping[str, Any], out: TextIO, titles: Mapping[str, str]) -> None:
    """`titles` are accounts whose name alone does not tell them."""
    for item in document["items"]:
        named = titles.get(item["account"], f"{item['kind']} {item['name']}")
        out.write(f"{named}\n")
        rows = [
            (
                f"  {dimension_label(dimension)}",
                amount(dimension, values["ceiling"]),
                amount(dimension, values["held"]),
                amount(dimension, values["charged"]),
                amount(dimension, values["available"]),
            )
            for dimension, values in item["dimensions"].items()
        ]
        if rows:
            table(out, ("  DIMENSION", "CEILING", "HELD", "CHARGED", "AVAILABLE"), rows)
        else:
            out.write("  no ceiling, nothing charged\n")
        unknown = {
            dimension: values["unknown"] for dimension, values in item["dimensions"].items() if values["unknown"]
        }
        if unknown:
            out.write("\n".join(wrapped(f"unknown: {unknown_note(unknown)}", indent="  ", after="    ")) + "\n")
        for dimension, beyond in item["over"].items():
            said = f"over its ceiling by {amount(dimension, beyond)}"
            if item["dimensions"][dimension]["ceiling"] is None:
                said = f"{amount(dimension, beyond)} over: not budgeted, so that nothing more starts until it is"
            out.write(f"  {dimension_label(dimension)} {said}\n")
    for hold in document["holds"]:
        text = f"{hold['state']}: {hold['name']} holds {amounts(hold['held'])}"
        out.write("\n".join(wrapped(text, after="  ")) + "\n")


@app.command(name="set")
def set_budget(
    account: Account = None,
    /,
    *,
    plan: Plan = None,
    attempts: Annotated[int | None, Parameter(help="Ceiling of attempts.")] = None,
    time: Annotated[str | None, Parameter(help="Ceiling of the attempts' durations, such as 1h30m.")] = None,
    tokens_input: Annotated[int | None, Parameter(help="Ceiling of input tokens.")] = None,
    tokens_output: Annotated[int | None, Parameter(help="Ceiling of output tokens.")] = None,
    calls: Annotated[int | None, Parameter(help="Ceiling of calls of providers.")] = None,
    money: Annotated[tuple[str, ...], Parameter(negative="", help="Such as USD:2.50; once a currency.")] = (),
    no_limit: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="Take a ceiling away: attempts, time, tokens-input, tokens-output, calls, or a currency.",
        ),
    ] = (),
    note: Annotated[str, Parameter(help="Why; kept with the record.")] = "",
    expect: Annotated[int | None, Parameter(help="Version of the account that this is meant for.")] = None,
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Set ceilings of an account; those that are not named stay as they are.

    Nothing is lost between reading and writing: the change is bound to the version that was read; --expect names it.
    """
    wanted = _counts(attempts=attempts, tokens_input=tokens_input, tokens_output=tokens_output, calls=calls)
    if time is not None:
        wanted["time_us"] = _duration(time)
    for text in money:
        currency, micros = _money(text)
        wanted[f"{MONEY}{currency}"] = micros
    removed = {_dimension(text) for text in no_limit}
    if not wanted and not removed:
        raise CommandError("usage", "no ceiling is named", next_step=_SET_HELP)
    if removed & set(wanted):
        raise CommandError("usage", "a ceiling is set and taken away at once", next_step=_SET_HELP)
    if account is None and plan is None:
        raise CommandError("usage", "name an account or --plan", next_step=_SET_HELP)
    with opened(options) as home:
        for _ in range(_TRIES_MAX):
            with home.kernel.reader.look() as look:
                named = bound_account(look, account, plan)
            _require_known_money(named, {*wanted, *removed})
            ceilings = {**named.account.ceiling, **wanted}
            command = SetBudget(
                account=named.subject,
                ceilings={name: ceilings[name] for name in sorted(ceilings) if name not in removed},
                expected=named.version if expect is None else expect,
                note=note,
            )
            if command_key is not None and expect is None:
                command = _asked_before(home, command, wanted, removed, command_key)
            receipt = write_by_person(home, command, command_key)
            if expect is not None or not _moved(receipt):
                break
        required(receipt)
        with home.kernel.reader.look() as look:
            shown = account_of(look, named.subject).document()
            titles = titles_of_accounts(look, [named.subject])
    low = _overdrawn(shown, wanted)
    document = {**shown, "sequence": receipt.sequence, "fresh": receipt.fresh, "below_charged": low}

    def human(out: TextIO) -> None:
        budget_text({"items": [document], "holds": []}, out, titles)
        if low:
            out.write(f"the ceiling of {', '.join(low)} is below what is charged and held: nothing new starts on it\n")

    emit(options, document, human)


def _overdrawn(account: Mapping[str, Any], wanted: Mapping[str, int]) -> list[str]:
    """Dimensions whose new ceiling is below what is charged and held already."""
    return [
        dimension_label(name)
        for name, values in account["dimensions"].items()
        if name in wanted and values["available"] is not None and values["available"] < 0
    ]


def _asked_before(
    home: App, command: SetBudget, wanted: Mapping[str, int], removed: Collection[str], key: str
) -> SetBudget:
    """The command that this key had, where it asked for the same: what it was bound to has changed since."""
    receipt = home.kernel.recall(by_person(home, command, key))
    if receipt is None or receipt.refusal is not None:
        return command
    with home.kernel.reader.look() as look:
        written = [look.record(receipt.first_seq + place) for place in range(receipt.count)]
    for record in written:
        body = record.body
        if not isinstance(body, BudgetCeilingSet) or (record.subject, body.note) != (command.account, command.note):
            continue
        same = all(body.ceilings.get(name) == value for name, value in wanted.items())
        if same and not any(name in body.ceilings for name in removed):
            ceilings = dict(sorted(body.ceilings.items()))
            before = record.subject_version - 1
            return SetBudget(account=record.subject, ceilings=ceilings, expected=before, note=body.note)
    return command


def _moved(receipt: Receipt) -> bool:
    """Whether work went on between reading and writing; ceilings that were read again are then right again."""
    return receipt.refusal is not None and receipt.refusal.code == "version_moved"


def _counts(**values: int | None) -> dict[str, int]:
    counts = {name: value for name, value in values.items() if value is not None}
    for name, value in counts.items():
        least = 1 if name == "attempts" else 0
        if not least <= value <= _COUNT_MAX:
            raise CommandError(
                "out_of_range", f"--{dimension_label(name)} is from {least} to {_COUNT_MAX}", next_step=_SET_HELP
            )
    return counts


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise CommandError("bad_duration", f"--time {text!r}: {error}", next_step="write for example 1h30m") from error


def _money(text: str) -> tuple[str, int]:
    currency, colon, value = text.partition(":")
    if colon and not is_dimension(f"{MONEY}{currency}"):
        meant = currency.strip().upper()
        following = f"write {meant}:{value}" if meant in ISO_4217 else "write for example USD:2.50"
        raise CommandError(
            "bad_money", f"--money {text!r}: {currency!r} is no currency of ISO 4217", next_step=following
        )
    if not colon:
        raise CommandError("bad_money", f"--money {text!r} has no currency", next_step="write for example USD:2.50")
    try:
        return currency, parse_money(value)
    except ValueError as error:
        raise CommandError("bad_money", f"--money {text!r}: {error}", next_step="write for example USD:2.50") from error


def _require_known_money(named: Named, names: Collection[str]) -> None:
    """Refuse a code that is no currency of ISO 4217, unless it was charged all the same: only a ceiling helps it then.
    Raises CommandError."""
    booked = {*named.account.ceiling, *named.account.charged, *named.account.unknown}
    for name in sorted(names):
        code = name.removeprefix(MONEY)
        if name.startswith(MONEY) and code not in ISO_4217 and name not in booked:
            raise CommandError(
                "bad_money", f"{code!r} is no currency of ISO 4217", next_step="write for example USD:2.50"
            )


def _dimension(text: str) -> str:
    """A dimension by its option's word or its currency."""
    for dimension in DIMENSIONS:
        if text in (dimension, dimension_label(dimension)):
            return dimension
    currency = text.removeprefix("money:").removeprefix(MONEY)
    if is_dimension(f"{MONEY}{currency}"):
        return f"{MONEY}{currency}"
    raise CommandError("usage", f"--no-limit {text!r} is no dimension", next_step=_SET_HELP)
