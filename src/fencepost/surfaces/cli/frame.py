"""The frame of the command line: noun, then verb; one place for errors and exit codes.

Only the module of the noun that was asked for is loaded, so that a command starts in the time that it needs itself.
Global options may stand before the noun. Words that a later version brings are refused by name.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from fencepost.surfaces.cli.mute import STDERR, STDOUT, mute

NOUNS: Final[dict[str, str]] = {
    "init": "make a home here: .fencepost with store, keys and folders",
    "run": "check a plan, submit it, and work until everything has ended",
    "plan": "check, submit, show, list, diff, cancel",
    "order": "list, show, why, watch, log, files, graph, answer, cancel, retry",
    "attempt": "list, show; inside one: heartbeat, checkpoint, charge, yield ...",
    "budget": "show, set",
    "clock": "show",
    "journal": "verify, replay, tail, export",
    "worker": "start",
    "doctor": "look at everything that could be wrong",
    "config": "view, validate",
    "completion": "print a script that completes words in bash, zsh or fish",
    "version": "print the version",
}
"""Noun -> what stands beside it in the help. Each is a module of this package with an `app`."""

LATER: Final[dict[str, frozenset[str]]] = {
    "effect": frozenset(),
    "assignment": frozenset(),
    "review": frozenset(),
    "board": frozenset(),
    "usage": frozenset(),
    "event": frozenset(),
    "sink": frozenset(),
    "authority": frozenset(),
    "repo": frozenset(),
    "server": frozenset(),
    "dev": frozenset(),
    "status": frozenset(),
    "migrate": frozenset(),
    "plan": frozenset({"revise", "replan"}),
    "order": frozenset({"reassign", "resolve"}),
    "attempt": frozenset({"effect"}),
    "clock": frozenset({"reconcile"}),
    "journal": frozenset({"archive", "backup", "restore"}),
}
"""Commands that a later version brings: a whole noun where no verb is named, else these verbs of it."""

STDIN: Final = "/dev/stdin"
"""What `-` stands for: the parser of options takes a lone hyphen for one."""

VALUED: Final = ("--store", "--home", "--scope")
FLAGS: Final = ("--json",)
HELP: Final = ("-h", "--help")
DEBUG: Final = "FENCEPOST_DEBUG"
EXIT_WELL: Final = 0
EXIT_UNEXPECTED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
_UNWRITABLE: Final = (*_FULL, errno.EIO)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Everything that can go wrong is told on stderr."""
    as_json = "--json" in _before_separator(arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        mute(STDOUT)  # whoever read has read enough
        return EXIT_WELL
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        return _failed(error, as_json)
    return code


def _run(arguments: Sequence[str]) -> int:
    tokens = _reordered(arguments)
    words = [token for token in tokens if not token.startswith("-")]
    noun = tokens[0] if tokens else ""
    if noun == "help" and len(words) > 1:
        return _help_topic(words[1:])
    if not words or noun in (*HELP, "help"):
        unknown = [token for token in tokens if token not in (*HELP, "help", *FLAGS)]
        if unknown:
            raise _Usage(f"{unknown[0]} is no option here")
        sys.stdout.write(help_text())
        return 0
    _refuse_later(noun, tokens[1] if len(tokens) > 1 else "")
    if noun not in NOUNS:
        near = difflib.get_close_matches(noun, NOUNS, n=1)
        raise _Usage(f"{noun} is no command" + (f"; did you mean {near[0]}?" if near else ""))
    if any(token in HELP for token in _before_separator(tokens)) and _print_help(tokens):
        return 0
    return _dispatch(noun, tokens)


def _print_help(tokens: Sequence[str]) -> bool:
    """Print the help of a command; False where its verb is none, which is told like any other word that is wrong."""
    from fencepost.surfaces.cli.help import command_help

    verb = tokens[1] if len(tokens) > 1 and not tokens[1].startswith("-") else ""
    text = command_help(tokens[0], verb)
    sys.stdout.write(text or "")
    return text is not None


def _help_topic(words: Sequence[str]) -> int:
    from fencepost.surfaces.cli.help import topic_help

    try:
        sys.stdout.write(topic_help(words))
    except LookupError as error:
        raise _Usage(str(error.args[0]), "fencepost help topics") from None
    return EXIT_WELL


def _dispatch(noun: str, tokens: Sequence[str]) -> int:
    import cyclopts

    module = importlib.import_module(f"fencepost.surfaces.cli.{noun}")
    plain = cyclopts.Parameter(negative=(), show_default=_shown_default)
    root = cyclopts.App(name="fencepost", version_flags=[], help_flags=[], default_parameter=plain)
    root.command(module.app)
    try:
        result = root(tokens, exit_on_error=False, print_error=False, help_on_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        verb = f" {tokens[1]}" if len(tokens) > 1 and not tokens[1].startswith("-") and _has_verbs(module.app) else ""
        known = isinstance(error, cyclopts.UnknownCommandError)
        extra = error.unused_tokens if isinstance(error, cyclopts.UnusedCliTokensError) else None
        told = f"{' '.join(extra)}: no such word is expected here" if extra else _one_line(str(error))
        raise _Usage(told, f"fencepost {noun}{'' if known else verb} --help") from error
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _shown_default(value: Any) -> str | None:
    """A first value as the help says it; nothing for one that only means that the option was not given."""
    return str(value) if value or (value == 0 and value is not False) else None


def _has_verbs(app: Any) -> bool:
    return app.default_command is None


class _Usage(Exception):
    """The words of the command line make no command."""

    def __init__(self, message: str, following: str = "fencepost --help", code: str = "usage") -> None:
        super().__init__(message)
        self.following = following
        self.code = code


def _refuse_later(noun: str, verb: str) -> None:
    verbs = LATER.get(noun)
    if verbs is None or (verbs and verb not in verbs):
        return
    words = f"{noun} {verb}" if verbs else noun
    raise _Usage(f"fencepost {words} is not built yet", "fencepost --help", "unsupported_feature")


def _before_separator(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _reordered(arguments: Sequence[str]) -> list[str]:
    """Put global options that stand before the noun or between noun and verb behind both."""
    head: list[str] = []
    lifted: list[str] = []
    rest = list(arguments)
    while rest and len(head) < 2 and rest[0] != "--":
        token = rest[0]
        if token in VALUED:
            lifted += rest[:2]
            del rest[:2]
        elif token in FLAGS or token.partition("=")[0] in VALUED:
            lifted.append(rest.pop(0))
        elif token.startswith("-"):
            break
        else:
            head.append(rest.pop(0))
    return [STDIN if token == "-" else token for token in head + lifted + rest]


def help_text() -> str:
    width = max(len(noun) for noun in NOUNS)
    lines = [
        "usage: fencepost [--store URL] [--home DIR] [--scope NAME] [--json]",
        "                 COMMAND ...",
        "",
        "Durable work orders for agents, and for anything else that costs money or",
        "touches the world.",
        "",
        *(f"  {noun.ljust(width)}  {text}" for noun, text in NOUNS.items()),
        "",
        "fencepost COMMAND --help says more, with examples; fencepost help topics lists",
        "what else there is to read. Begin with: fencepost run PLAN",
        "",
    ]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _failed(error: Exception, as_json: bool) -> int:
    """Tell what went wrong, in one form, and return the exit code that goes with it."""
    if os.environ.get(DEBUG) == "1":
        import traceback

        traceback.print_exception(error)
    code, documents = _described(error)
    _settle_stdout()
    try:
        _print_error(documents, as_json)
    except OSError:
        mute(STDERR)  # the exit code has to do
    return code


def _settle_stdout() -> None:
    """Print what is left to print, or drop it where it cannot be, so that the interpreter does not try again."""
    try:
        sys.stdout.flush()
    except OSError:
        mute(STDOUT)


def _described(error: Exception) -> tuple[int, list[dict[str, Any]]]:
    """(exit code, error documents) of an error; the first document is the one that stands for all."""
    if isinstance(error, _Usage):
        return EXIT_USAGE, [_document(error.code, str(error), error.following)]
    from fencepost.core.machines import CorruptHistory
    from fencepost.core.reasons import REASONS
    from fencepost.ports.errors import FencepostError
    from fencepost.surfaces.cli.context import error_document, exit_code, recorded
    from fencepost.surfaces.cli.typed import here

    if isinstance(error, FencepostError):
        first = error_document(error)["error"]
        return exit_code(error), [first, *getattr(error, "others", ())]
    if isinstance(error, CorruptHistory):
        reason = REASONS[error.code]
        return reason.exit_code, [_document(error.code, _one_line(str(error)), reason.next_step)]
    message = _one_line(f"{type(error).__name__}: {error}")
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
        # The home's own files are written by adapters, which say what they wrote: this was meant for the reader.
        told = f"standard output, or the file that was named, cannot be written: {error.strerror}"
        following = REASONS["output_failed"].next_step
        if (done := recorded()) is not None:
            told, following = f"{told}; {done.told}", done.following
        return EXIT_UNEXPECTED, [_document("output_failed", told, here(following))]
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return EXIT_UNEXPECTED, [_document("too_few_descriptors", message, REASONS["too_few_descriptors"].next_step)]
    if isinstance(error, OSError):
        code = "storage_full" if error.errno in _FULL else "storage_error"
        following = "free space and run again" if code == "storage_full" else "fencepost doctor"
        return EXIT_UNEXPECTED, [_document(code, message, following)]
    following = f"fencepost doctor looks for what is wrong; {DEBUG}=1 shows where it happened"
    return EXIT_UNEXPECTED, [_document("internal_error", message, following)]


def _document(code: str, message: str, following: str) -> dict[str, Any]:
    return {"code": code, "message": message, "where": None, "next": following}


def _print_error(documents: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        first = dict(documents[0])
        if len(documents) > 1:
            first["errors"] = list(documents)
        sys.stderr.write(json.dumps({"error": first}) + "\n")
        sys.stderr.flush()
    else:
        print_documents(documents)


def print_documents(documents: Sequence[dict[str, Any]]) -> None:
    """Print errors for people: one line each, then the place and what to do."""
    from fencepost.surfaces.cli.words import one_line, wrapped

    for document in documents:
        lines = [f"error [{document['code']}]: {one_line(_one_line(document['message']))}"]
        where = where_text(document["where"])
        if where:
            lines.append(f"  where: {one_line(where)}")
        if sys.stderr.isatty():
            lines = [part for line in lines for part in wrapped(line, after="    ")]
        # What is to be typed next stays on one line, so that it can be copied.
        sys.stderr.write("\n".join([*lines, f"  next: {one_line(_one_line(document['next']))}"]) + "\n")
    sys.stderr.flush()


def where_text(where: Any) -> str:
    """A place in words: `plan.toml line 3`, `plan.toml at /work/0/run (tests)`, or what a refusal names."""
    if not isinstance(where, dict):
        return str(where or "")
    text = str(where["file"])
    if where.get("line"):
        text += f" line {where['line']}"
    if where.get("at"):
        text += f" at {where['at']}"
    return text + (f" ({where['name']})" if where.get("name") else "")
