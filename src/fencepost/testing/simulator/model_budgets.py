"""Budgets as the lifecycle page says them: shares, holds, charges, and what stands in the way of the next hold.

For each account and dimension `available = ceiling - held - charged`. A hold is granted if it fits in all dimensions
of all accounts on its path, or not at all. A dimension that a level does not name is counted and not limited there; a
level that names a currency refuses every other one, and lets nothing start once another one has been charged. A hold
ends once, and its receipts count once each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.testing.simulator.model_state import INTEGER_MAX, Account, Attempt, Hold, Mismatch, Order, World

TIME = "time_us"
KERNEL = "kernel"  # provider of what supervisors measure: their receipts name their attempt
MONEY = "money_micros:"
_FIXED = frozenset({"attempts", TIME, "tokens_input", "tokens_output", "calls"})
_CURRENCY = re.compile(r"money_micros:[A-Z]{3}")


def is_dimension(name: str) -> bool:
    return name in _FIXED or _CURRENCY.fullmatch(name) is not None


def rounded_up(ceiling: int, parts: int) -> int:
    return (ceiling + max(parts, 1) - 1) // max(parts, 1)


def first_shares(
    declared: Mapping[str, int], own: Mapping[str, int], plan: Mapping[str, int], plan_attempts: int
) -> tuple[dict[str, int], dict[str, int]]:
    """What an attempt asks for and the least that it may start with, time and attempts aside."""
    asks, least = dict(declared), dict(declared)
    own_currencies = {name for name in own if name.startswith(MONEY)}
    for ceilings, parts in ((own, own.get("attempts", 1)), (plan, plan_attempts)):
        for name, ceiling in ceilings.items():
            other_currency = ceilings is plan and name.startswith(MONEY) and own_currencies and name not in own
            if name in ("attempts", TIME) or name in asks or other_currency:
                continue
            asks[name] = rounded_up(ceiling, parts)
            least[name] = min(1, ceiling)
    return asks, least


def shares_of(world: World, order: Order) -> tuple[dict[str, int], dict[str, int]]:
    """The same at this moment: ceilings that were set since the submission count as well."""
    asks: dict[str, int] = order.spec["hold"]
    least: dict[str, int] = order.spec["hold_least"]
    own = world.accounts[order.order].ceiling
    for subject in order.accounts[1:]:
        ceilings = world.accounts[subject].ceiling
        for name, ceiling in ceilings.items():
            if name in asks or name in ("attempts", TIME):
                continue
            is_own = subject == order.order
            if not is_own and name.startswith(MONEY) and any(other.startswith(MONEY) for other in own):
                continue
            otherwise = 1 if is_own or not order.plan else len(world.plans[order.plan].orders)
            asks = {**asks, name: rounded_up(ceiling, ceilings.get("attempts", otherwise))}
            least = {**least, name: min(1, ceiling)}
    return asks, least


def wanted(world: World, order: Order, asks: Mapping[str, int], least: Mapping[str, int]) -> dict[str, int]:
    """The next hold: its shares, at most what the accounts have left, and never less than the least."""
    amounts = dict(asks)
    for subject in order.accounts:
        account = world.accounts[subject]
        for name, ceiling in account.ceiling.items():
            if name in amounts:
                left = ceiling - account.charged.get(name, 0)
                amounts[name] = min(amounts[name], max(left, least.get(name, amounts[name])))
    return amounts


def spent_out(world: World, order: Order, least: Mapping[str, int]) -> str:
    """The first account that could not carry the least hold even if all others were freed, "" if there is none."""
    for subject in order.accounts:
        account = world.accounts[subject]
        for name, ceiling in account.ceiling.items():
            if least.get(name, 0) > ceiling - account.charged.get(name, 0) and name in least:
                return subject
    return ""


def foreign_currency(ceilings: Mapping[str, int], amounts: Mapping[str, int]) -> bool:
    named = [name for name in ceilings if name.startswith(MONEY)]
    return bool(named) and any(
        amount and name.startswith(MONEY) and name not in named for name, amount in amounts.items()
    )


def has_foreign(account: Account, amounts: Mapping[str, int]) -> bool:
    """Whether a hold, or anything that was ever charged, is in a currency that the account refuses."""
    spent = (amounts, account.charged, dict.fromkeys(account.unknown, 1))
    return any(foreign_currency(account.ceiling, each) for each in spent)


def in_the_way(world: World, order: Order, amounts: Mapping[str, int]) -> tuple[str, str]:
    """(code, account) of the first level into which the hold does not fit now, ("", "") if it fits."""
    for subject in order.accounts:
        account = world.accounts[subject]
        if has_foreign(account, amounts):
            return "currency_not_budgeted", subject
        for name, ceiling in account.ceiling.items():
            if name in amounts and amounts[name] > ceiling - account.held.get(name, 0) - account.charged.get(name, 0):
                return "budget_held", subject
    return "", ""


def add(amounts: dict[str, int], more: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + sign * amount


def book(
    world: World,
    accounts: Iterable[str],
    *,
    hold: Mapping[str, int] | None = None,
    free: Mapping[str, int] | None = None,
    charge: Mapping[str, int] | None = None,
    credit: Mapping[str, int] | None = None,
) -> None:
    """Book on every account of a path. No figure may fall below zero, and no hold may pass a ceiling."""
    for subject in accounts:
        account: Account = world.accounts[subject]
        if hold:
            add(account.held, hold)
        if free:
            add(account.held, free, -1)
            _not_negative(subject, account.held, free)
        if charge:
            add(account.charged, charge)
        if credit:
            add(account.charged, credit, -1)
            _not_negative(subject, account.charged, credit)


def _not_negative(subject: str, amounts: Mapping[str, int], names: Iterable[str]) -> None:
    for name in names:
        if amounts[name] < 0:
            raise Mismatch(f"{subject}: {name} falls below zero")


def names_time(usages: Iterable[Mapping[str, Any]]) -> bool:
    return any(TIME in usage["amounts"] or TIME in usage.get("unknown", ()) for usage in usages)


def add_up(world: World, usages: Iterable[Mapping[str, Any]], hold: Hold) -> tuple[dict[str, int], list[str], bool]:
    """(amounts, names, whether something was charged as held) of the receipts that nobody has booked yet."""
    amounts: dict[str, int] = {}
    receipts: list[str] = []
    unknown: set[str] = set()
    for usage in usages:
        name = f"{usage['provider']}:{usage['receipt']}"
        elsewhere = usage["provider"] != KERNEL and name in world.receipts
        if name not in hold.receipts and name not in receipts and not elsewhere:
            receipts.append(name)
            add(amounts, usage["amounts"])
            unknown.update(each for each in usage.get("unknown", ()) if hold.held.get(each))
    for each in unknown:
        amounts[each] = max(amounts.get(each, 0), hold.held[each])
    return {name: min(amount, INTEGER_MAX) for name, amount in amounts.items() if amount}, receipts, bool(unknown)


def settle(
    world: World,
    hold: Hold,
    basis: str,
    charged: dict[str, int],
    *,
    receipts: Sequence[str] = (),
    credited: dict[str, int] | None = None,
    flagged: bool = False,
    estimated_us: int = 0,
) -> None:
    """End a hold: charge, free the rest, once."""
    if hold.state not in ("held", "unsettled"):
        raise Mismatch(f"{hold.hold} would end a second time")
    body: dict[str, Any] = {"charged": charged, "basis": basis}
    if receipts:
        body["receipts"] = list(receipts)
    if credited:
        body["credited"] = credited
        world.orders[hold.order].yields += 1
    if flagged:
        body["flagged"] = True
    if estimated_us:
        body["estimated_us"] = estimated_us
    world.expect("hold_settled", hold.hold, body, *hold.accounts)
    book(world, hold.accounts, free=hold.held, charge=charged, credit=credited)
    add(hold.charged, charged)
    add(hold.charged, credited or {}, -1)
    hold.state, hold.held, hold.estimated_us = "settled", {}, estimated_us
    _remember(world, hold, receipts)
    hold.endings += 1


def _remember(world: World, hold: Hold, receipts: Sequence[str]) -> None:
    """A provider's receipt is booked once in the whole scope."""
    for name in receipts:
        if not name.startswith(KERNEL + ":"):
            if name in world.receipts:
                raise Mismatch(f"the receipt {name} would be booked twice")
            world.receipts[name] = ""
    hold.receipts.update(receipts)


def charge(world: World, hold: Hold, usage: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """(what one receipt charges, what of it is freed of the hold): itself, and what is unknown as it is held."""
    charged = {name: amount for name, amount in usage["amounts"].items() if amount}
    for name in usage.get("unknown", ()):
        charged[name] = max(charged.get(name, 0), hold.held.get(name, 0))
    charged = {name: amount for name, amount in charged.items() if amount}
    freed = {name: amount for name in charged if (amount := min(charged[name], hold.held.get(name, 0)))}
    book(world, hold.accounts, free=freed, charge=charged)
    add(hold.held, freed, -1)
    hold.held = {name: amount for name, amount in hold.held.items() if amount or name not in freed}
    add(hold.charged, charged)
    return charged, freed


def release(world: World, attempt: Attempt, reason: str) -> None:
    """A reservation that was never activated gives everything back."""
    hold = world.holds[attempt.hold]
    if hold.state != "held":
        raise Mismatch(f"{hold.hold} would end a second time")
    world.expect("hold_released", hold.hold, {"reason": reason}, *hold.accounts)
    book(world, hold.accounts, free=hold.held)
    hold.state, hold.held = "released", {}
    hold.endings += 1


def unsettle(world: World, attempt: Attempt) -> None:
    """A cancelled attempt keeps its time held until it is known; everything else is known zero and freed."""
    hold = world.holds[attempt.hold]
    freed = {name: amount for name, amount in hold.held.items() if name != TIME}
    settle_by_us = attempt.lease_us + world.limits["lease_us"]
    body = {"dimensions": [TIME], "freed": sorted(freed), "settle_by_us": settle_by_us}
    world.expect("hold_unsettled", hold.hold, body, *hold.accounts)
    book(world, hold.accounts, free=freed)
    hold.state, hold.held, hold.settle_by_us = "unsettled", {TIME: hold.held[TIME]}, settle_by_us
    settle_late(world, attempt, attempt.late_usages)


def settle_from_result(world: World, attempt: Attempt, facts: Mapping[str, Any]) -> None:
    """Charge what a reported attempt's receipts say, and its verifier; free the rest."""
    hold = world.holds[attempt.hold]
    if hold.state != "held":
        return
    usages = facts.get("usage", ())
    amounts, receipts, flagged = add_up(world, usages, hold)
    if facts["duration_us"] and not names_time(usages):
        amounts[TIME] = facts["duration_us"]
    if attempt.verification_us:
        add(amounts, {TIME: attempt.verification_us})
    charged = {name: min(amount, INTEGER_MAX) for name, amount in amounts.items()}
    settle(world, hold, "receipts", charged, receipts=receipts, flagged=flagged)


def settle_late(world: World, attempt: Attempt, usages: Sequence[Mapping[str, Any]]) -> None:
    """Book receipts that came late: they end an unsettled hold or adjust an ended one, each once, within the bound."""
    hold = world.holds[attempt.hold]
    amounts, receipts, flagged = add_up(world, usages, hold)
    if not receipts or hold.state in ("held", "released"):
        return
    if len(hold.receipts) + len(receipts) > world.limits["receipts_per_hold_max"]:
        return
    if hold.state == "unsettled":
        estimated_us = 0
        if not names_time(usages):
            estimated_us = hold.held.get(TIME, 0)
            add(amounts, hold.held)
            flagged = True
        settle(world, hold, "receipts", amounts, receipts=receipts, flagged=flagged, estimated_us=estimated_us)
        return
    time_us = amounts.pop(TIME, 0)
    explained_us = min(time_us, hold.estimated_us)
    if time_us > explained_us:
        amounts[TIME] = time_us - explained_us
    adjust(world, hold, amounts, receipts, explained_us)


def adjust(world: World, hold: Hold, charged: dict[str, int], receipts: Sequence[str], explained_us: int = 0) -> None:
    """Book a receipt against a hold that has ended: once, beside what was charged as an estimate."""
    if hold.state not in ("settled", "released") or not hold.receipts.isdisjoint(receipts):
        raise Mismatch(f"{hold.hold} would be adjusted twice by one receipt, or before it has ended")
    body: dict[str, Any] = {"charged": charged, "receipts": list(receipts)}
    if explained_us:
        body["explained_us"] = explained_us
    world.expect("hold_adjusted", hold.hold, body, *hold.accounts)
    book(world, hold.accounts, charge=charged)
    add(hold.charged, charged)
    hold.estimated_us -= explained_us
    _remember(world, hold, receipts)


def settle_unreported(world: World, attempt: Attempt, basis: str, until_us: int) -> None:
    """Charge an attempt that will not report from its activation to its proved end, beside known receipts."""
    hold = world.holds[attempt.hold]
    lasted_us = min(max(until_us - attempt.activated_us, 0), hold.held.get(TIME, 0))
    amounts, receipts, flagged = add_up(world, attempt.late_usages, hold)
    known_us = amounts.pop(TIME, 0)
    if max(lasted_us, known_us):
        amounts[TIME] = max(lasted_us, known_us)
    estimated_us = max(lasted_us - known_us, 0)
    settle(world, hold, basis, amounts, receipts=receipts, flagged=flagged, estimated_us=estimated_us)
