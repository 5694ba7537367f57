"""Answers: the text that is meant, what is said of one that was taken, and of one to an order that does not ask."""

from __future__ import annotations

import sys
from typing import TextIO

from fencepost.core.limits import FIRST_VALUES
from fencepost.core.reasons import Refusal
from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.context import CommandError
from fencepost.surfaces.cli.frame import STDIN
from fencepost.surfaces.cli.names import said_of
from fencepost.surfaces.cli.words import line_by_line, wrapped

ANSWER_BYTES_MAX = FIRST_VALUES.answer_bytes_max
ANSWER_BYTES_COUNTED = 16 * 2**20  # of standard input, to say how much too much it was


def answer_of(word: str) -> str:
    """The answer that is meant: the word, or what standard input has, without the line end that a shell adds."""
    data = word.encode("utf-8", "surrogatepass")
    if word == STDIN:
        data = sys.stdin.buffer.read(ANSWER_BYTES_COUNTED + 1).removesuffix(b"\n")
    if not data:
        step = "write it in quotes, or give - and write it to standard input; see that a variable in it is set"
        raise CommandError("usage", "the answer is empty", next_step=step, where="/value")
    if len(data) > ANSWER_BYTES_MAX:
        given = f"{len(data)} bytes" if len(data) < ANSWER_BYTES_COUNTED else f"{ANSWER_BYTES_COUNTED} bytes or more"
        raise CommandError(
            "too_large",
            f"the answer has {given}, at most {ANSWER_BYTES_MAX} are taken",
            next_step="write it to a file that the program can read, and answer with the path of the file",
            where="/value",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandError(
            "invalid_utf8", f"the answer is not UTF-8: {error.reason}", next_step="write text"
        ) from error


def answered_text(said: str, question: str, prompt: str, out: TextIO) -> None:
    """What was answered: the order, the question, and what it asked in words."""
    lines = wrapped(f"{said}: {question} is answered", after="  ")
    if prompt:
        asked = line_by_line(prompt)
        lines += wrapped(f"asked: {asked[0]}", indent="  ", after="    ")
        lines += [part for line in asked[1:] for part in wrapped(line, indent="    ", after="    ")]
    out.write("\n".join(lines) + "\n")


def not_answered(look: Look, order: OrderState, question: str, refusal: Refusal) -> CommandError:
    """The refusal of an answer; where the order does not ask, with the order of its plan that does."""
    error = CommandError.of(refusal)
    if refusal.code != "not_asked":
        return error
    now = look.order(order.order) or order
    of_plan = look.orders(order.plan) if order.plan is not None and not question else []
    for one in (now, *of_plan):
        if one.state == "waiting" and one.wait is not None and one.wait.question:
            asks = "it asks" if one.order == order.order else f"{said_of(look, one)} asks"
            error.message = f"{error.message.rstrip('.')}; {asks} {one.wait.question}"
            error.next_step = f"fencepost order answer {title_of(look, one)} VALUE"
            return error
    return error
