"""What a running program may ask for: the forms of its requests, and of the replies that refuse them.

A request is read strictly: an unknown field, a wrong type, a doubled key, a text that no reader agrees about are each
refused under a code of its own. The numbers here are bounds of the protocol; those of the kernel come after them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, get_args

import msgspec

from fencepost.core.canonical import Undecodable, decode, sanitize
from fencepost.core.reasons import REASONS, Refusal
from fencepost.sdk import wire

DEPTH_MAX: Final = 32
TOKEN: Final = re.compile(r"[0-9a-f]{64}")
_SECRET: Final = re.compile(r"[0-9a-fA-F]{32,}")
_MESSAGE_BYTES_MAX: Final = 2_048
OVER: Final = frozenset({"stale_fence", "rejected_stale"})
"""Refusals that say that an attempt is over."""

Short = Annotated[str, msgspec.Meta(max_length=256)]
Long = Annotated[str, msgspec.Meta(max_length=4_096)]
Size = Annotated[int, msgspec.Meta(ge=0)]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="op"):
    """Base of all requests. `token` says who asks; `v` is the version of the protocol."""

    v: int
    token: Short


class Hello(Form, frozen=True, tag="hello"):
    pass


class Status(Form, frozen=True, tag="status"):
    pass


class Heartbeat(Form, frozen=True, tag="heartbeat"):
    note: Long = ""


class Checkpoint(Form, frozen=True, tag="checkpoint"):
    """Keep the payload of `bytes` behind the line. Without `builds_on`, on whatever the order has by now."""

    bytes: Size
    kind: Short = "blob/1"
    builds_on: Size | None = None


class Resume(Form, frozen=True, tag="resume"):
    """The payload of the last checkpoint of a kind. With `optional` there being none is an answer. `digest` asks for
    the payload that the one served last is based on, where the kind has such chains."""

    kind: Short = "blob/1"
    optional: bool = False
    digest: Short = ""


class Amounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    calls: Size | None = None
    tokens_input: Size | None = None
    tokens_output: Size | None = None
    money: dict[str, str] | None = None  # ISO 4217 -> decimal text


class Charge(Form, frozen=True, tag="charge"):
    """What a receipt says was used; `unknown` names what it does not say: `calls`, `tokens_input`, `tokens_output`,
    `money:USD`."""

    receipt: Long
    amounts: Amounts
    provider: Short = "default"
    unknown: tuple[Short, ...] = ()


class Artifact(Form, frozen=True, tag="artifact"):
    """Keep the file at a path of the workspace."""

    path: Long


class Yield(Form, frozen=True, tag="yield"):
    """How the attempt ends if its program then exits with 0. With `unless_over` a wait that has come to its end already
    is no reason to yield: `mark` tells waits in the same words from each other."""

    question: Short = ""
    prompt: Long = ""
    children: tuple[Short, ...] = ()
    after: Short = ""  # a duration, as in a plan file
    after_us: Size | None = None
    mark: Short = ""
    unless_over: bool = False
    cancel: bool = False


class Child(Form, frozen=True, tag="child"):
    """A work order inside this one: a plan file's [[work]] table."""

    order: dict[str, Any]


class Output(Form, frozen=True, tag="output"):
    """The bytes of a file that an applied child handed in."""

    child: Short
    path: Long


class AnswerTo(Form, frozen=True, tag="answer"):
    """What a person answered to a question of this order."""

    question: Short
    optional: bool = False


AnyForm = Hello | Status | Heartbeat | Checkpoint | Resume | Charge | Artifact | Yield | Child | Output | AnswerTo

OPERATIONS: Final = tuple(str(form.__struct_config__.tag) for form in get_args(AnyForm))
"""What `op` may be."""


class Declined(Exception):
    """A request that is not met. Carries what its reply says."""

    def __init__(self, code: str, message: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.where = where
        self.next_step = next_step

    @classmethod
    def of(cls, refusal: Refusal) -> Declined:
        """What the kernel refused, with the place as the program wrote it."""
        where = refusal.field
        for kernel, ours in (("/usage", ""), ("/wait", ""), ("/artifact", "/path"), ("/fence", ""), ("/attempt", "")):
            if where == kernel or where.startswith(kernel + "/"):
                where = ours + where.removeprefix(kernel)
                break
        return cls(refusal.code, refusal.message, where=where, next_step=refusal.next_step)


def read_form(line: bytes) -> AnyForm:
    """The request of a line. Raises Declined."""
    try:
        form: AnyForm = decode(line, AnyForm, bytes_max=wire.LINE_BYTES_MAX, depth_max=DEPTH_MAX)
    except Undecodable as error:
        # Nothing of a line that is no request is repeated that could be somebody's token.
        message, where = (_SECRET.sub("\u2026", text) for text in (error.message, error.path))
        step = f"name one of {', '.join(OPERATIONS)}" if error.path == "/op" else ""
        raise Declined(error.code, message, where=where, next_step=step) from None
    # Counted as it is understood: JSON has more than one way to write a letter.
    if TOKEN.fullmatch(form.token) and msgspec.json.encode(form).count(form.token.encode()) > 1:
        # What is said is recorded and told, and a token is neither.
        raise Declined("bad_value", "a request holds its token once, as its token", where="/token")
    if form.v != wire.VERSION:
        raise Declined(
            "unsupported_protocol",
            f"this worker speaks version {wire.VERSION} of the protocol, not {form.v}",
            where="/v",
        )
    return form


def refused(declined: Declined, stopping: str = "") -> dict[str, Any]:
    """The reply that refuses a request; `stopping` as in every reply, "" where nobody knows who asks."""
    if not stopping and declined.code in OVER:
        stopping = "stale_fence"
    reason = REASONS.get(declined.code)
    step = declined.next_step or (reason.next_step if reason is not None else "")
    return {
        "ok": False,
        "error": {
            "code": declined.code,
            "message": sanitize(declined.message, _MESSAGE_BYTES_MAX),
            "where": declined.where or None,
            "next": step,
        },
        "exit": 1 if reason is None else reason.exit_code,
        "stopping": stopping,
    }
