"""`fencepost attempt heartbeat|checkpoint|…`: what a running program says, in any language that can start a program.

These run many times in an attempt, so that they load the standard library and the attempt's client alone. Each prints
its receipt as one line of JSON, unless it is told to be quiet, and exits by the codes that all commands share.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from fencepost.sdk.client import BLOB, PROVIDER_FIRST, Attempt
from fencepost.sdk.wire import EXIT_UNEXPECTED, EXIT_USAGE, PAYLOAD_BYTES_MAX, Refused
from fencepost.surfaces.cli.mute import STDERR, STDOUT, mute

VERBS: Final = (
    "heartbeat",
    "checkpoint",
    "resume",
    "charge",
    "artifact",
    "yield",
    "answer",
    "child",
    "output",
    "status",
    "hello",
)
"""What stands behind `attempt` and means the attempt that the command runs in."""
TABLE_BYTES_MAX: Final = 65_536
QUIET: Final = ("heartbeat", "checkpoint", "resume", "charge", "artifact", "yield", "child", "output")
"""Those whose receipt can be left out: what they print beside it is what they were asked for."""
_PRINTING: Final = ("resume", "answer", "output", "status", "hello")
"""Those that read no file: what cannot be written is what they print, or the file that they were told to write."""
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_DONE: Final = {
    **dict.fromkeys(("checkpoint", "charge", "artifact", "child"), "it is recorded"),
    **dict.fromkeys(("heartbeat", "yield"), "it was heard"),
    **dict.fromkeys(("resume", "output"), "the file is written"),
}
"""What is true of a command that has its receipt."""
EXIT_OVER: Final = 3
"""What `yield --unless-over` exits with where there is nothing left to wait for."""
_STDIN: Final = ("-", "/dev/stdin")
"""A lone hyphen, which the frame writes as stdin: what is read from there, and where a payload goes to stdout."""
_SHARED: Final = ("--home", "--store", "--scope")


class _Usage(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(message)


def is_meant(arguments: Sequence[str]) -> bool:
    """Whether these words are one of `VERBS` with options of its own alone; others may be read in more time."""
    if not arguments or arguments[0] not in VERBS:
        return False
    return not any(word in ("-h", "--help") or word.partition("=")[0] in _SHARED for word in arguments)


def run(arguments: Sequence[str]) -> int:
    """Run one of `VERBS` with its arguments; returns the exit code."""
    as_json = "--json" in arguments
    try:
        options = _parser().parse_args([each for each in arguments if each != "--json"])
    except _Usage as error:
        following = f"fencepost attempt {arguments[0]} --help"
        return _failed("usage", str(error), None, following, EXIT_USAGE, as_json)
    return perform(arguments[0], options, as_json=as_json)


def perform(verb: str, options: argparse.Namespace, *, as_json: bool) -> int:
    """Say one thing, and print the receipt unless that is left out, or what was refused; returns the exit code."""
    receipt: dict[str, Any] | None = None
    try:
        reply = _STEPS[verb](options)
        if reply is not None and not getattr(options, "quiet", False):
            receipt = {name: value for name, value in reply.items() if name != "ok"}
            sys.stdout.write(json.dumps(receipt, sort_keys=True) + "\n")
        sys.stdout.flush()
        return EXIT_OVER if verb == "yield" and reply is not None and reply.get("ended") else 0
    except _Usage as error:
        return _failed("usage", str(error), None, f"fencepost attempt {verb} --help", EXIT_USAGE, as_json)
    except Refused as refused:
        return _failed(refused.code, refused.message, refused.where, refused.next, refused.exit_code, as_json)
    except BrokenPipeError:
        mute(STDOUT)
        return 0
    except OSError as error:
        if receipt is not None or (verb in _PRINTING and error.errno in _UNWRITABLE and error.filename is None):
            mute(STDOUT)
            return _not_printed(verb, receipt, error, as_json)
        code, told = _file_trouble(error)
        return _failed(code, told, None, "name a file that can be used", EXIT_USAGE, as_json)


def _not_printed(verb: str, receipt: dict[str, Any] | None, error: OSError, as_json: bool) -> int:
    """What was said counts, whether its receipt can be printed or not: tell both, and the receipt itself."""
    problem = error.strerror or str(error)
    if receipt is None:
        following = "write it to another place"
        return _failed("output_failed", f"it cannot be written: {problem}", None, following, EXIT_UNEXPECTED, as_json)
    message = f"{_DONE.get(verb, 'it was answered')}, and only the receipt cannot be printed: {problem}"
    following = "take the receipt from here: what was said is not to be said again because of this"
    return _failed("output_failed", message, None, following, EXIT_UNEXPECTED, as_json, receipt)


def _file_trouble(error: OSError) -> tuple[str, str]:
    named = f"{error.filename}: " if error.filename else ""
    code = "no_file" if isinstance(error, FileNotFoundError) else "unreadable"
    return code, f"{named}{error.strerror or error}"


def _failed(
    code: str,
    message: str,
    where: Any,
    following: str,
    exit_code: int,
    as_json: bool,
    receipt: dict[str, Any] | None = None,
) -> int:
    """Tell on stderr what went wrong, with the receipt of what did not; returns the exit code."""
    document = {"code": code, "message": message, "where": where, "next": following}
    if receipt is not None:
        document["receipt"] = receipt
    if as_json:
        text = json.dumps({"error": document})
    else:
        lines = [f"error [{code}]: {' '.join(message.split())}"]
        lines += [f"  where: {where}"] if where else []
        lines += [f"  receipt: {json.dumps(receipt, sort_keys=True)}"] if receipt is not None else []
        lines += [f"  next: {following}"] if following else []
        text = "\n".join(lines)
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        mute(STDERR)  # the exit code has to do
    return exit_code or EXIT_UNEXPECTED


def _parser() -> argparse.ArgumentParser:
    """The words of these commands. What is said of them stands beside the other commands, in `attempt_inside`."""
    root = _Parser(prog="fencepost attempt", add_help=False)
    verbs = root.add_subparsers(dest="verb", parser_class=_Parser)

    def verb(name: str) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, add_help=False, allow_abbrev=False)
        if name in QUIET:
            one.add_argument("--quiet", action="store_true")
        return one

    verb("heartbeat").add_argument("--note", default="")
    one = verb("checkpoint")
    one.add_argument("file")
    one.add_argument("--builds-on", type=int)
    one.add_argument("--kind", default=BLOB)
    one = verb("resume")
    one.add_argument("--to")
    one.add_argument("--kind", default=BLOB)
    one.add_argument("--optional", action="store_true")
    one = verb("charge")
    one.add_argument("--receipt", required=True)
    one.add_argument("--provider", default=PROVIDER_FIRST)
    one.add_argument("--calls", type=int)
    one.add_argument("--tokens-input", type=int)
    one.add_argument("--tokens-output", type=int)
    one.add_argument("--money", action="append", default=[])
    one.add_argument("--unknown", action="append", default=[])
    verb("artifact").add_argument("file")
    one = verb("yield")
    one.add_argument("--question", default="")
    one.add_argument("--prompt", default="")
    one.add_argument("--child", action="append", default=[])
    one.add_argument("--after")
    one.add_argument("--mark", default="")
    one.add_argument("--unless-over", action="store_true")
    one.add_argument("--cancel", action="store_true")
    one = verb("answer")
    one.add_argument("question")
    one.add_argument("--value", action="store_true")
    verb("child").add_argument("file")
    one = verb("output")
    one.add_argument("child")
    one.add_argument("path")
    one.add_argument("--to")
    verb("status")
    verb("hello")
    return root


def _attempt() -> Attempt:
    return Attempt(os.environ)


def _heartbeat(options: argparse.Namespace) -> dict[str, Any]:
    return _attempt().heartbeat(options.note)


def _checkpoint(options: argparse.Namespace) -> dict[str, Any]:
    attempt = _attempt()
    return attempt.checkpoint(_read(options.file, PAYLOAD_BYTES_MAX), kind=options.kind, builds_on=options.builds_on)


def _resume(options: argparse.Namespace) -> dict[str, Any] | None:
    reply, payload = _attempt().request("resume", kind=options.kind, optional=options.optional)
    if not reply["number"]:
        return None
    return _hand_over(reply, payload, options.to)


def _charge(options: argparse.Namespace) -> dict[str, Any]:
    money = {}
    for text in options.money:
        currency, colon, amount = text.partition(":")
        if not colon:
            raise _Usage(f"--money {text}: write the currency and the amount, such as USD:0.004")
        if currency in money:
            raise _Usage(f"--money names {currency} twice")
        money[currency] = amount
    return _attempt().charge(
        receipt=options.receipt,
        provider=options.provider,
        calls=options.calls,
        tokens_input=options.tokens_input,
        tokens_output=options.tokens_output,
        money=money,
        unknown=[_said_dimension(text) for text in options.unknown],
    )


def _said_dimension(text: str) -> str:
    """A dimension as the protocol names it, for one that is named as the options are: `tokens-output`, `USD`."""
    return f"money:{text}" if len(text) == 3 and text.isupper() else text.replace("-", "_")


def _artifact(options: argparse.Namespace) -> dict[str, Any]:
    return _attempt().artifact(options.file)


def _yield(options: argparse.Namespace) -> dict[str, Any]:
    fields: dict[str, Any] = {"cancel": True} if options.cancel else {}
    for name in ("question", "prompt", "after", "mark", "unless_over"):
        if value := getattr(options, name):
            fields[name] = value
    if options.child:
        fields["children"] = options.child
    return _attempt().request("yield", **fields)[0]


def _answer(options: argparse.Namespace) -> dict[str, Any] | None:
    reply = _attempt().request("answer", question=options.question)[0]
    if not options.value:
        return reply
    sys.stdout.write(f"{reply['value']}\n")
    return None


def _child(options: argparse.Namespace) -> dict[str, Any]:
    return _attempt().request("child", order=read_table(options.file))[0]


def _output(options: argparse.Namespace) -> dict[str, Any] | None:
    reply, payload = _attempt().request("output", child=options.child, path=options.path)
    return _hand_over(reply, payload, options.to)


def _status(options: argparse.Namespace) -> dict[str, Any]:
    return _attempt().status()


def _hello(options: argparse.Namespace) -> dict[str, Any]:
    return _attempt().hello()


_STEPS: Final[dict[str, Callable[[argparse.Namespace], dict[str, Any] | None]]] = {
    "heartbeat": _heartbeat,
    "checkpoint": _checkpoint,
    "resume": _resume,
    "charge": _charge,
    "artifact": _artifact,
    "yield": _yield,
    "answer": _answer,
    "child": _child,
    "output": _output,
    "status": _status,
    "hello": _hello,
}


def _read(path: str, bytes_max: int) -> bytes:
    if path in _STDIN:
        data = sys.stdin.buffer.read(bytes_max + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise Refused("too_large", f"{path} has more than {bytes_max} bytes", None, "make it smaller", EXIT_USAGE)
    return data


def _hand_over(reply: dict[str, Any], payload: bytes, to: str | None) -> dict[str, Any] | None:
    """Write a payload: to a file, whole or not at all, or to stdout, which a hyphen means. A link is followed, and
    what is no plain file (a device, a pipe) is written to as it is and never replaced."""
    if to is None or to in _STDIN:
        sys.stdout.buffer.write(payload)
        return None
    if os.path.isdir(to):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, and --to names a file", to)
    if os.path.exists(to) and not os.path.isfile(to):
        with open(to, "wb") as file:
            file.write(payload)
    else:
        _write_whole(os.path.realpath(to), payload)
    return {name: value for name, value in reply.items() if name != "bytes"} | {"size": len(payload), "to": to}


def _write_whole(path: str, payload: bytes) -> None:
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(payload)
        if os.path.exists(path):
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def read_table(path: str) -> dict[str, Any]:
    """A [[work]] table from a file, in JSON where it begins with a brace, else in TOML. Raises Refused, OSError."""
    data = _read(path, TABLE_BYTES_MAX)
    try:
        text = data.decode()
        if text.lstrip().startswith("{"):
            value: Any = json.loads(text, object_pairs_hook=_once)
        else:
            import tomllib

            value = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("syntax", f"{path}: {error}", None, "correct it", EXIT_USAGE) from None
    if isinstance(value, dict) and set(value) == {"work"}:
        value = value["work"]
        if not isinstance(value, list) or len(value) != 1:
            raise Refused("out_of_range", "one child is submitted at a time", "/work", "name one", EXIT_USAGE)
        value = value[0]
    if not isinstance(value, dict):
        raise Refused("wrong_type", "a work order is a table", None, "write a [[work]] table", EXIT_USAGE)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return table
