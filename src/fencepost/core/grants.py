"""Runtime grants: authority that can be handed on and narrowed, and never widened.

A grant is a chain. Its first link is a keyed hash (HMAC-SHA256) of the grant's id under a root key that only
the kernel reads; each caveat that is added hashes itself under the link before it, and the last link is the
token's signature. Whoever holds a token can add a caveat offline; taking one away would need the link before
it, which a token does not contain (the macaroon construction). There is one root key per scope and epoch, so
a token of another scope or of an earlier epoch does not verify.

What a grant permits is the intersection of its caveats: every one can only take away. A grant must be
narrowed to an audience and to operations before it is worth anything; caveats that contradict each other
leave nothing, and such a grant is refused.

`verify` says whether a token is genuine and what it permits; the kernel asks it of every token that it issues, and
writes down what it says. `objection` compares that with one use of it, and is asked at every command, replays
included. Neither knows the time: `now_us` is handed in. Records name a grant by the digest of its id and caveats, and
history in which that digest is another one is corrupt.

Rows: W4 (granted operations are an intersection), W23.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from fencepost.core.canonical import encode
from fencepost.core.ids import sha256_of

CAVEATS_MAX = 16
OPERATIONS_MAX = 64
NAME_LENGTH_MAX = 128
ROOT_KEY_BYTES = 32
_INTEGER_MAX = 2**53 - 1
_PREFIX = b"fencepost grant 1\x00"


class Caveat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One narrowing. A field that is None does not narrow; at least one must be given.

    A verified grant is summed up as one `Caveat` with everything that its chain says.
    """

    audience: str | None = None
    """Name or id of the one principal that may use the grant."""
    operations: tuple[str, ...] | None = None
    """Operations that remain, each once, in order; `verb/resource_kind` pairs and operations of orders
    alike."""
    work_order: str | None = None
    attempt: str | None = None
    fence: int | None = None
    expires_us: int | None = None
    """Exclusive end in microseconds of the scope's time."""


class GrantToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant as its holder keeps it: a secret. Only `chain_digest` of it may be written down."""

    grant_id: str
    caveats: tuple[Caveat, ...]
    signature: str
    """64 lower-case hexadecimal digits."""


class GrantRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a grant does not count."""

    code: str
    """`grant_malformed`, `grant_forged`, `grant_empty`, or `grant_…` with what does not match."""
    field: str | None = None


def caveat_problem(caveat: Caveat) -> str | None:
    """The field of a caveat that breaks a bound, `caveat` if it narrows nothing, or None if it is well
    formed."""
    for name in ("audience", "work_order", "attempt"):
        value = getattr(caveat, name)
        if value is not None and not 1 <= len(value) <= NAME_LENGTH_MAX:
            return name
    operations = caveat.operations
    if operations is not None:
        if len(operations) > OPERATIONS_MAX or list(operations) != sorted(set(operations)):
            return "operations"
        if any(not 1 <= len(operation) <= NAME_LENGTH_MAX for operation in operations):
            return "operations"
    for name in ("fence", "expires_us"):
        value = getattr(caveat, name)
        if value is not None and not 0 <= value <= _INTEGER_MAX:
            return name
    return "caveat" if caveat == Caveat() else None


def issue(root_key: bytes, grant_id: str, caveats: tuple[Caveat, ...]) -> GrantToken:
    """Make a grant. Raises `ValueError` for a wrong key length, a bad id or a caveat out of bounds."""
    if len(root_key) != ROOT_KEY_BYTES:
        raise ValueError(f"a root key has {ROOT_KEY_BYTES} bytes, not {len(root_key)}")
    if not 1 <= len(grant_id) <= NAME_LENGTH_MAX:
        raise ValueError("a grant's id is empty or too long")
    token = GrantToken(grant_id=grant_id, caveats=(), signature=_first_link(root_key, grant_id).hex())
    for caveat in caveats:
        token = attenuate(token, caveat)
    return token


def attenuate(token: GrantToken, caveat: Caveat) -> GrantToken:
    """Narrow a grant; needs no key. Raises `ValueError` for a caveat out of bounds or one too many."""
    problem = caveat_problem(caveat)
    if problem is not None:
        raise ValueError(f"this caveat is not well formed: {problem}")
    if len(token.caveats) >= CAVEATS_MAX:
        raise ValueError(f"a grant has at most {CAVEATS_MAX} caveats")
    return GrantToken(
        grant_id=token.grant_id,
        caveats=(*token.caveats, caveat),
        signature=_next_link(bytes.fromhex(token.signature), caveat).hex(),
    )


def verify(root_key: bytes, token: GrantToken) -> Caveat | GrantRefusal:
    """Check the whole chain in constant time per length; return what it permits, or a refusal.

    Refusals in order: `grant_malformed`, `grant_forged` (also: another scope or epoch), `grant_empty` (no
    audience, no operation, or caveats that contradict each other).
    """
    if len(token.caveats) > CAVEATS_MAX or not 1 <= len(token.grant_id) <= NAME_LENGTH_MAX:
        return GrantRefusal(code="grant_malformed")
    for caveat in token.caveats:
        problem = caveat_problem(caveat)
        if problem is not None:
            return GrantRefusal(code="grant_malformed", field=problem)
    link = _first_link(root_key, token.grant_id)
    for caveat in token.caveats:
        link = _next_link(link, caveat)
    if not hmac.compare_digest(link.hex().encode(), token.signature.encode()):
        return GrantRefusal(code="grant_forged")
    return _intersection(token.caveats)


def objection(
    granted: Caveat,
    *,
    audience: str,
    operation: str,
    work_order: str | None,
    attempt: str | None,
    fence: int | None,
    now_us: int,
) -> GrantRefusal | None:
    """Why a verified grant does not cover this use, or None if it does. A use that leaves out what the grant
    is bound to is not covered."""
    if granted.audience != audience:
        return GrantRefusal(code="grant_audience", field="audience")
    if granted.operations is None or operation not in granted.operations:
        return GrantRefusal(code="grant_operation", field="operations")
    if granted.work_order is not None and granted.work_order != work_order:
        return GrantRefusal(code="grant_work_order", field="work_order")
    if granted.attempt is not None and granted.attempt != attempt:
        return GrantRefusal(code="grant_attempt", field="attempt")
    if granted.fence is not None and granted.fence != fence:
        return GrantRefusal(code="grant_fence", field="fence")
    if granted.expires_us is not None and now_us >= granted.expires_us:
        return GrantRefusal(code="grant_expired", field="expires_us")
    return None


def chain_digest(token: GrantToken) -> str:
    """What records name a grant by: digest of its id and caveats. Holds no secret."""
    return named_digest(token.grant_id, token.caveats)


def named_digest(grant_id: str, caveats: tuple[Caveat, ...]) -> str:
    return sha256_of(_PREFIX + encode({"grant_id": grant_id, "caveats": list(caveats)}))


def _first_link(root_key: bytes, grant_id: str) -> bytes:
    return hmac.new(root_key, _PREFIX + grant_id.encode(), hashlib.sha256).digest()


def _next_link(link: bytes, caveat: Caveat) -> bytes:
    return hmac.new(link, encode(caveat), hashlib.sha256).digest()


def _intersection(caveats: tuple[Caveat, ...]) -> Caveat | GrantRefusal:
    """What remains when all caveats hold at once."""
    single: dict[str, str | int] = {}
    for name in ("audience", "work_order", "attempt", "fence"):
        values = {value for caveat in caveats if (value := getattr(caveat, name)) is not None}
        if len(values) > 1:
            return GrantRefusal(code="grant_empty", field=name)
        if values:
            single[name] = values.pop()
    named = [frozenset(caveat.operations) for caveat in caveats if caveat.operations is not None]
    operations = frozenset.intersection(*named) if named else frozenset()
    if not operations:
        return GrantRefusal(code="grant_empty", field="operations")
    if "audience" not in single:
        return GrantRefusal(code="grant_empty", field="audience")
    ends = [caveat.expires_us for caveat in caveats if caveat.expires_us is not None]
    return msgspec.structs.replace(
        Caveat(operations=tuple(sorted(operations)), expires_us=min(ends) if ends else None), **single
    )
