"""The commands of a running program beside all others: their help, their completion, and global options before them.

Without global options and help they are read by `inside`, in less time; what they do is there in both cases.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Annotated

from cyclopts import App, Parameter

from fencepost.sdk.client import BLOB, PROVIDER_FIRST
from fencepost.surfaces.cli.context import NO_GLOBALS, Globals
from fencepost.surfaces.cli.inside import perform

Kind = Annotated[str, Parameter(help=f"Registered kind of what is in it; first value: {BLOB}.")]
Quiet = Annotated[bool, Parameter(help="Print no receipt: say nothing if all is well.", negative="")]
To = Annotated[str | None, Parameter(help="Write it to this file and print a receipt; first value: stdout.")]


def heartbeat(
    *, note: Annotated[str, Parameter(help="What it is at.")] = "", quiet: Quiet = False, options: Globals = NO_GLOBALS
) -> int:
    """Say that the work goes on.

    At most one a second is recorded, the newest."""
    return perform("heartbeat", Namespace(quiet=quiet, note=note), as_json=options.json)


def checkpoint(
    file: Annotated[str, Parameter(help="The state; `-` is stdin.")],
    /,
    *,
    builds_on: Annotated[int | None, Parameter(help="How many checkpoints of the order it knows of.")] = None,
    kind: Kind = BLOB,
    quiet: Quiet = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Keep a state that a later attempt of this order goes on from."""
    chosen = Namespace(quiet=quiet, file=file, builds_on=builds_on, kind=kind)
    return perform("checkpoint", chosen, as_json=options.json)


def resume(
    *,
    to: To = None,
    kind: Kind = BLOB,
    optional: Annotated[bool, Parameter(help="Say nothing, and write nothing, if there is none.", negative="")] = False,
    quiet: Quiet = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Print the last checkpoint of this order."""
    return perform("resume", Namespace(quiet=quiet, to=to, kind=kind, optional=optional), as_json=options.json)


def charge(
    *,
    receipt: Annotated[str, Parameter(help="The name that the provider gave it.")],
    provider: Annotated[str, Parameter(help="Who was paid.")] = PROVIDER_FIRST,
    calls: Annotated[int | None, Parameter(help="Calls made.")] = None,
    tokens_input: Annotated[int | None, Parameter(help="Tokens sent.")] = None,
    tokens_output: Annotated[int | None, Parameter(help="Tokens received.")] = None,
    money: Annotated[list[str] | None, Parameter(help="Money spent, such as USD:0.004.", negative="")] = None,
    unknown: Annotated[
        list[str] | None,
        Parameter(
            help="What was spent and nobody says how much: calls, tokens-input, tokens-output, or a currency.",
            negative="",
        ),
    ] = None,
    quiet: Quiet = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Book what was spent, once for each receipt.

    Of what is unknown, all that is still set aside is charged."""
    chosen = Namespace(
        quiet=quiet,
        receipt=receipt,
        provider=provider,
        calls=calls,
        tokens_input=tokens_input,
        tokens_output=tokens_output,
        money=money or [],
        unknown=unknown or [],
    )
    return perform("charge", chosen, as_json=options.json)


def artifact(
    file: Annotated[str, Parameter(help="A plain file of the workspace.")],
    /,
    *,
    quiet: Quiet = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Keep a file as evidence, whatever becomes of the attempt."""
    return perform("artifact", Namespace(quiet=quiet, file=file), as_json=options.json)


def yield_(
    *,
    question: Annotated[str, Parameter(help="Until a person answers this question.")] = "",
    prompt: Annotated[str, Parameter(help="The question in words.")] = "",
    child: Annotated[list[str] | None, Parameter(help="Until all children that are named end.", negative="")] = None,
    after: Annotated[str | None, Parameter(help="Until so much time has passed, such as 1h30m.")] = None,
    mark: Annotated[str, Parameter(help="Tells this wait from others in the same words.")] = "",
    unless_over: Annotated[
        bool, Parameter(help="Exit with 3, and say what ended it, if this wait is over.", negative="")
    ] = False,
    cancel: Annotated[bool, Parameter(help="Take back what was said before.", negative="")] = False,
    quiet: Quiet = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """End this attempt as waiting, if its program then exits with 0.

    The order goes on, by a new attempt, as soon as one of what is named holds."""
    chosen = Namespace(
        quiet=quiet,
        question=question,
        prompt=prompt,
        child=child or [],
        after=after,
        mark=mark,
        unless_over=unless_over,
        cancel=cancel,
    )
    return perform("yield", chosen, as_json=options.json)


def answer(
    question: Annotated[str, Parameter(help="Name of the question.")],
    /,
    *,
    value: Annotated[bool, Parameter(help="Print the answer alone.", negative="")] = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Print what a person answered."""
    return perform("answer", Namespace(question=question, value=value), as_json=options.json)


def child(
    file: Annotated[str, Parameter(help="A [[work]] table in TOML or JSON; `-` is stdin.")],
    /,
    *,
    quiet: Quiet = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Submit a work order inside this one, and inside its budget."""
    return perform("child", Namespace(quiet=quiet, file=file), as_json=options.json)


def output(
    child: Annotated[str, Parameter(help="Name of a child.")],
    path: Annotated[str, Parameter(help="Path of a file that it has handed in.")],
    /,
    *,
    to: To = None,
    quiet: Quiet = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Print a file that a child order has handed in."""
    return perform("output", Namespace(quiet=quiet, child=child, path=path, to=to), as_json=options.json)


def status(*, options: Globals = NO_GLOBALS) -> int:
    """Print whether the attempt should end, and how long its lease lasts."""
    return perform("status", Namespace(), as_json=options.json)


def hello(*, options: Globals = NO_GLOBALS) -> int:
    """Print who this attempt is, and what earlier ones have left."""
    return perform("hello", Namespace(), as_json=options.json)


def add_commands(app: App) -> None:
    for function in (heartbeat, checkpoint, resume, charge, artifact, yield_, answer, child, output, status, hello):
        app.command(function, name=function.__name__.rstrip("_"))
