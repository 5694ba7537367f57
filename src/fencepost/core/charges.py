"""What one receipt books on a hold: itself, as it is, out of what is still held first (W18; decision 2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.core.amounts import is_dimension
from fencepost.core.records.common import Usage
from fencepost.core.shares import MONEY
from fencepost.core.strictjson import INT_MAX

_PROVIDER = re.compile(r"[a-z0-9][a-z0-9._/-]{0,62}")
_OWN = frozenset({"attempts", "time_us"})
"""Dimensions that the kernel counts and its supervisors measure: nobody's receipt speaks of them."""


class Booked(NamedTuple):
    """What is charged, and how much of it the hold had set aside. The rest is overflow."""

    charged: dict[str, int]
    freed: dict[str, int]


def booked(usage: Usage, held: Mapping[str, int]) -> Booked:
    """An unknown dimension is never zero: it is charged as it is held."""
    charged = {name: amount for name, amount in usage.amounts.items() if amount}
    for name in usage.unknown:
        if held.get(name, 0) > charged.get(name, 0):
            charged[name] = held[name]
    charged = {name: min(amount, INT_MAX) for name, amount in charged.items()}
    freed = {name: min(amount, held[name]) for name, amount in charged.items() if held.get(name)}
    return Booked(charged, freed)


def receipt_name(usage: Usage) -> str:
    """A receipt's full name, unique in the scope: its provider account, and what that called it."""
    return f"{usage.provider}:{usage.receipt}"


def currencies(*named: Iterable[str]) -> int:
    """How many currencies these dimensions name together."""
    return len({name for names in named for name in names if name.startswith(MONEY)})


def charge_problem(usage: Usage) -> tuple[str, str, str] | None:
    """(field, subject, what is needed) of the first thing that a running program's receipt may not say."""
    if _PROVIDER.fullmatch(usage.provider) is None or usage.provider == "kernel":
        return "provider", "the provider", "[a-z0-9][a-z0-9._/-]{0,62}, and not the kernel itself"
    if not usage.receipt:
        return "receipt", "the receipt", "a name that its provider gave"
    if not usage.amounts and not usage.unknown:
        # It would book nothing, and keep the name from the payment that it belongs to (W18).
        return "amounts", "what is charged", "at least one amount, 0 where that is known, or named as unknown"
    for name in (*usage.amounts, *usage.unknown):
        if not is_dimension(name) or name in _OWN:
            return (
                "amounts",
                f"the dimension {name!r}",
                "calls, tokens or money",
            )
    return None
