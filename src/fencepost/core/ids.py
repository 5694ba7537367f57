"""Names of things: digests of content, and identifiers of subjects.

An identifier is `<prefix>_` and the 32 hex digits of a UUIDv7: made anywhere without asking anyone, and
sorted by the time of its making. The core reads no clock and draws nothing: an `IdSource` is handed a seed
and a time and from there is a pure function, so that a simulation, or a group of commands repeated after a
storage error, makes the same names again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

PREFIXES: Final = frozenset(
    {"plan", "task", "order", "reservation", "attempt", "hold", "effect", "principal", "grant", "worker"}
)
SEED_BYTES: Final = 16

_MILLISECONDS_MAX: Final = 2**48 - 1
_COUNTER_BITS: Final = 12
_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_RANDOM_MASK: Final = 2**62 - 1
_WORDS_PER_BLOCK: Final = 8
_DRAW_BITS: Final = 128
_DIGITS: Final = re.compile(r"[0-9a-f]{32}")


def sha256_of(data: bytes) -> str:
    """`sha256:` and 64 lower-case hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_id(name: str, prefix: str) -> bool:
    """Whether a name that somebody else has made is `<prefix>_` and 32 lower-case hex digits."""
    head, _, digits = name.partition("_")
    return head == prefix and _DIGITS.fullmatch(digits) is not None


class IdSource:
    """Identifiers and draws that follow from a seed of `SEED_BYTES` bytes and a time.

    Identifiers of one source are unique and strictly increasing, whatever their prefixes: the n-th carries n
    in the 12 bits after the version, and each 4,096 of them the millisecond is moved on by one, as RFC 9562
    (section 6.2) permits. The other 62 bits are a keyed hash of n. Draws come from a sequence of their own:
    taking one changes no identifier. Not for use by two threads at once.
    """

    __slots__ = ("_block", "_drawn", "_first_ms", "_made", "_seed")

    def __init__(self, seed: bytes, utc_us: int) -> None:
        """Raises `ValueError` for a seed of another length, or a time outside 48 bits of milliseconds."""
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        if not 0 <= utc_us // 1_000 <= _MILLISECONDS_MAX:
            raise ValueError("the time does not fit into 48 bits of milliseconds")
        self._seed = seed
        self._first_ms = utc_us // 1_000
        self._made = 0
        self._drawn = 0
        self._block = b""

    def next(self, prefix: str) -> str:
        """The next identifier. Raises `ValueError` for a prefix that is not one of `PREFIXES`."""
        if prefix not in PREFIXES:
            raise ValueError(f"no subject has identifiers that begin with {prefix!r}")
        made = self._made
        word = made % _WORDS_PER_BLOCK * 8
        if word == 0:
            self._block = self._hash(b"identifier", made)
        milliseconds = self._first_ms + (made >> _COUNTER_BITS)
        if milliseconds > _MILLISECONDS_MAX:
            raise ValueError("the time does not fit into 48 bits of milliseconds")
        self._made = made + 1
        number = (
            milliseconds << 80
            | _VERSION
            | (made & 0xFFF) << 64
            | _VARIANT
            | int.from_bytes(self._block[word : word + 8]) & _RANDOM_MASK
        )
        return f"{prefix}_{number:032x}"

    def below(self, bound: int) -> int:
        """A draw from 0 up to but not including `bound`, which is at most 2^63; its bias is below 2^-64."""
        if not 0 < bound <= 2**63:
            raise ValueError("a bound lies between 1 and 2^63")
        draw = int.from_bytes(self._hash(b"draw", self._drawn)[: _DRAW_BITS // 8])
        self._drawn += 1
        return draw * bound >> _DRAW_BITS

    def _hash(self, purpose: bytes, counter: int) -> bytes:
        return hashlib.blake2b(counter.to_bytes(8), key=self._seed, person=purpose).digest()
