"""What the words of a request to wait mean, and whether that wait is over already.

One that says two things of which one would not be heard is refused.

A program that waits begins from its beginning when it goes on, and comes to the same wait again. It is known by its
words, by the mark that its program gives it, and by what the program had saved by then (`blob/1`): who has saved
something else since has come further, and waits anew.
"""

from __future__ import annotations

from fencepost.core.canonical import digest_of
from fencepost.core.commands import WaitDraft
from fencepost.core.instant import parse_duration
from fencepost.core.machines import ENDED
from fencepost.core.planfile.values import NAME_RULE
from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.services import requests as ask
from fencepost.services.children import no_child
from fencepost.services.desk import Desk
from fencepost.services.payloads import BLOB
from fencepost.services.requests import Declined


def wish_of(form: ask.Yield, order: OrderState, duration_max_us: int) -> WaitDraft:
    """How an attempt of `order` wants to wait. Raises Declined."""
    for place, name in enumerate(form.children):
        if name not in order.children:
            raise no_child(order, name, f"/children/{place}")
    if len(set(form.children)) != len(form.children):
        raise Declined("out_of_range", "a child is named twice", where="/children")
    after_us = _after_us(form)
    if form.prompt and not form.question:
        step = "name its question too: --question NAME --prompt TEXT, ask(NAME, TEXT) in Python"
        raise Declined("out_of_range", "a prompt without a question asks nobody", where="/prompt", next_step=step)
    if not (form.question or form.children or after_us):
        step = "name a question, children or a time: --question NAME, --child NAME, --after 10m"
        raise Declined("out_of_range", "nothing is named that could be waited for", where="", next_step=step)
    if form.question and NAME_RULE.fullmatch(form.question) is None:
        message = f"{form.question!r} is no name of a question: [a-z][a-z0-9-]{{0,62}}"
        raise Declined("bad_name", message, where="/question")
    if after_us > duration_max_us:
        raise Declined("out_of_range", "nobody waits that long: at most 365d", where="/after")
    orders = tuple(order.children[name] for name in form.children)
    asked = digest_of([form.question, sorted(orders), after_us, form.mark, state_of(order)])
    return WaitDraft(question=form.question, prompt=form.prompt, orders=orders, after_us=after_us, asked=asked)


def state_of(order: OrderState) -> str | None:
    """What the order's programs have saved of their own state, None for nothing. Recorded steps are none: whoever has
    them goes through all of them again."""
    saved = order.checkpoints.get(BLOB)
    return None if saved is None else saved.payload


def over_by(look: Look, desk: Desk, order: OrderState, wish: WaitDraft, *, marked: bool) -> str:
    """By what a wait is over: "answer", "children" or "time"; "" if it is to be waited for.

    By what it ended when an attempt has waited for it, whatever holds since, so that each attempt is told the same;
    else by what holds now. Without a mark the same words, said again by one attempt, mean the next wait.
    """
    asked = wish.asked or ""
    ended = "" if order.waited is None or asked in desk.over else order.waited.ended_by(asked)
    if ended and not marked:
        desk.over.add(asked)
    if ended:
        return ended
    if wish.question in order.answers:
        return "answer"
    children = [look.order(name) for name in wish.orders]
    if children and all(child is not None and child.state in ENDED for child in children):
        return "children"
    return ""


def _after_us(form: ask.Yield) -> int:
    """0 for no time. Raises Declined."""
    if form.after and form.after_us is not None:
        raise Declined("out_of_range", "one of after and after_us says how long", where="/after_us")
    after_us = form.after_us
    if form.after:
        try:
            after_us = parse_duration(form.after)
        except ValueError:
            message = f"{form.after!r} is not a duration such as 90s or 1h30m"
            raise Declined("bad_duration", message, where="/after") from None
    if after_us == 0:
        raise Declined("out_of_range", "a wait takes more than no time", where="/after")
    return after_us or 0
