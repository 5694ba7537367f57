"""Requests of running programs under fuzzing: the line, and the table of a child order in it.

Whatever the bytes, there is one request or one refusal with a registered code; a refusal is bounded and holds no token;
a request that is written again is read to an equal one. The table of a child is checked as the worker checks it,
against an order without children.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from fencepost.core.canonical import encode
from fencepost.core.reasons import REASONS
from fencepost.core.state import OrderState
from fencepost.sdk import wire
from fencepost.services import requests as ask
from fencepost.services.children import checked_child
from fencepost.services.requests import Declined, read_form, refused
from tests.fuzz.promises import fields_of, require
from tests.support.states import world_in

REPLY_BYTES_MAX: Final = 16_384
TOKEN: Final = "5e" * 32
_SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "hello": {},
    "status": {},
    "heartbeat": {"note": "page 12 of 40 é"},
    "checkpoint": {"bytes": 12, "kind": "steps/1", "builds_on": 3},
    "resume": {"kind": "blob/1", "optional": True},
    "charge": {
        "receipt": "r",
        "provider": "p",
        "amounts": {"calls": 1, "tokens_input": 2, "money": {"USD": "0.004"}},
        "unknown": ["tokens_output", "money:EUR"],
    },
    "artifact": {"path": "sub/a.txt"},
    "yield": {"question": "colour", "prompt": "which?", "children": ["a", "b"], "after": "1h30m"},
    "child": {
        "order": {
            "name": "kid",
            "run": ["sh", "-c", "true"],
            "inputs": ["src/**"],
            "outputs": ["out.txt"],
            "budget": {"attempts": 1, "money": {"USD": "0.5"}, "per_attempt": {"calls": 2}},
            "accept": {"files": ["out.txt"], "schema": {"out.txt": "s.json"}, "verify": ["true"]},
            "retry": {"on": ["executor"], "backoff": "2s"},
            "params": {"a": [1, {"b": None}]},
        }
    },
    "output": {"child": "kid", "path": "out.txt"},
    "answer": {"question": "colour", "optional": True},
}


def check_request(data: bytes) -> str:
    """Read a line as the worker does; "read", or the code under which it is refused."""
    try:
        form = read_form(data)
    except Declined as declined:
        _check_refusal(declined, TOKEN)
        return declined.code
    again = {"op": type(form).__struct_config__.tag, **msgspec.to_builtins(form)}
    require(read_form(encode(again)) == form, "a request is read otherwise when it is written again")
    if not isinstance(form, ask.Child):
        return "read"
    try:
        item = checked_child(form.order, _parent())
    except Declined as declined:
        _check_refusal(declined, form.token)
        return declined.code
    require(item.name == form.order["name"], "a child has another name than its table")
    return "read"


def _check_refusal(declined: Declined, token: str) -> None:
    require(declined.code in REASONS or declined.code == "syntax", f"{declined.code} is no registered code")
    reply = refused(declined)
    line = wire.encode(reply)
    require(len(line) <= REPLY_BYTES_MAX, "a refusal has no bound")
    require(len(token) < len(TOKEN) or token.encode() not in line, "a refusal repeats a token")
    require(b"\n" not in line, "a refusal is more than a line")
    require(reply["exit"] in (1, 2, 3, 5), "a refusal of a request exits otherwise")


@cache
def _parent() -> OrderState:
    """A running order without children."""
    values = world_in("active/running").live.values.values()
    return next(value for value in values if isinstance(value, OrderState) and value.state == "active")


def request_seeds() -> dict[str, bytes]:
    seeds = {op: encode({"v": 1, "token": TOKEN, "op": op, **fields}) for op, fields in _SAMPLES.items()}
    seeds["refused_version"] = encode({"v": 2, "token": TOKEN, "op": "hello"})
    seeds["refused_field"] = encode({"v": 1, "token": TOKEN, "op": "hello", TOKEN: 1})
    seeds["refused_child"] = encode({"v": 1, "token": TOKEN, "op": "child", "order": {"name": "kid", "may_fail": True}})
    return seeds


def request_words() -> tuple[str, ...]:
    forms = ask.AnyForm.__args__
    return (*sorted(fields_of((*forms, ask.Amounts))), *_SAMPLES, "op", "USD", "steps/1", "blob/1", "kid", TOKEN)
