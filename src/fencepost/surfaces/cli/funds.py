"""Whether an order could have one more attempt, and what a person would have to set so that it could.

By the rules that end an order as `budget_exhausted` (`core.needs`), asked before it has come to that: of an order that
waits for an answer, of one that failed with a retry before it, and of the replacement that a retry would make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.core import needs
from fencepost.core.records.attempt import ResultApplication
from fencepost.core.records.common import RETRYABLE
from fencepost.core.shares import MONEY
from fencepost.core.state import Account, OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import Named, account_of
from fencepost.surfaces.cli.words import amount, dimension_label, dimension_option


class Lack(NamedTuple):
    """One dimension of an account in which no attempt fits any more. `least` is what the smallest one takes, `share`
    what one asks for; `left` may be negative."""

    account: Named
    dimension: str
    left: int
    least: int
    share: int

    @property
    def text(self) -> str:
        """`USD 0.05 of 0.20 is left, an attempt needs 0.10`; shares that shrink to what is left need no amount."""
        ceiling = self.account.account.ceiling[self.dimension]
        left = amount(self.dimension, max(self.left, 0))
        needed = amount(self.dimension, self.least if self.least == self.share else self.share)
        verb = "is" if self.dimension == "time_us" or self.dimension.startswith(MONEY) else "are"
        where = "" if self.account.kind == "order" else f" in {self.account.kind} {self.account.name}"
        said = f"{dimension_label(self.dimension)} {left} of {amount(self.dimension, ceiling)} {verb} left{where}"
        return f"{said}, an attempt needs {needed}" if self.least == self.share else said

    @property
    def enough(self) -> int:
        """A ceiling under which an attempt could start at once, beside what is held and charged."""
        account = self.account.account
        return account.charged.get(self.dimension, 0) + account.held.get(self.dimension, 0) + self.share


def lacks(look: Look, order: OrderState, *, replaced: bool = False) -> list[Lack]:
    """What the next attempt lacks for good, nothing where it can be had. With `replaced`, that of a replacement, which
    has the order's ceilings and has charged nothing on them yet."""
    accounts = {subject: account_of(look, subject) for subject in order.accounts}

    def account(subject: str) -> Account:
        found = accounts[subject].account
        return Account(ceiling=found.ceiling) if replaced and subject == order.order else found

    plan = look.find(order.plan, PlanState) if order.plan is not None else None
    shares = needs.shares_now(order, account, 1 if plan is None else plan.orders)
    return [
        Lack(accounts[found.account], short.dimension, short.left, short.needed, shares.amounts[short.dimension])
        for found in needs.exhaustions(order, shares, account)
        for short in found.short
    ]


def retry_left_out(look: Look, order: OrderState) -> list[Lack]:
    """What an order lacked that failed although its `retry` would have tried again; nothing where it had all its tries.

    What has been set since counts: where the money is there by now, nothing is said.
    """
    retry = order.terms.retry
    if order.state != "failed" or retry is None or not order.application_seq:
        return []
    failure = look.body(order.application_seq, ResultApplication).failure
    if failure not in retry.on or failure not in RETRYABLE:
        return []
    return [lack for lack in lacks(look, order) if (lack.account.kind, lack.dimension) != ("order", "attempts")]


def lacks_text(found: list[Lack]) -> str:
    return "; ".join(lack.text for lack in found)


def funding_step(found: list[Lack]) -> str:
    """The commands that raise each account by what an attempt asks for."""
    wanted: dict[str, dict[str, int]] = {}
    for lack in found:
        of_one = wanted.setdefault(lack.account.subject, {})
        of_one[lack.dimension] = max(lack.enough, of_one.get(lack.dimension, 0))
    accounts = {lack.account.subject: lack.account for lack in found}
    return set_steps((accounts[subject], ceilings) for subject, ceilings in wanted.items())


def set_steps(wanted: Iterable[tuple[Named, Mapping[str, int]]]) -> str:
    """The commands that set ceilings, one for each account, each named so that it is the one that is meant."""
    steps = []
    for named, ceilings in wanted:
        whose = f"--plan {named.title}" if named.kind == "plan" else named.title
        options = (dimension_option(dimension, ceiling) for dimension, ceiling in ceilings.items())
        steps.append(f"fencepost budget set {whose} {' '.join(options)}")
    return ", then ".join(steps)
