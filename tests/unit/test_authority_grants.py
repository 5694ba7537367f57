"""W23, W4: grants can be handed on and narrowed; nothing that a holder can do widens one."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.grants import (
    CAVEATS_MAX,
    Caveat,
    GrantRefusal,
    GrantToken,
    attenuate,
    chain_digest,
    issue,
    objection,
    verify,
)

ROOT = bytes(range(32))
OTHER_ROOT = bytes(range(1, 33))
BASE = Caveat(audience="executor", operations=("append_event/attempt", "report_result/attempt"))
BOUND = Caveat(work_order="order_1", attempt="attempt_1", fence=7, expires_us=1000)


def use(**changes: Any) -> dict[str, Any]:
    return {
        "audience": "executor",
        "operation": "report_result/attempt",
        "work_order": "order_1",
        "attempt": "attempt_1",
        "fence": 7,
        "now_us": 999,
        **changes,
    }


def objection_to(granted: Caveat, **changes: Any) -> GrantRefusal | None:
    return objection(granted, **use(**changes))


def granted_by(token: GrantToken) -> Caveat:
    granted = verify(ROOT, token)
    assert isinstance(granted, Caveat)
    return granted


def test_the_chain_is_the_hash_of_the_hash() -> None:
    # Computed by hand from the definition: a change of it disowns every grant that was handed out.
    first = hmac.new(ROOT, b"fencepost grant 1\x00grant_1", hashlib.sha256).digest()
    second = hmac.new(
        first,
        b'{"audience":"executor","operations":["append_event/attempt","report_result/attempt"]}',
        hashlib.sha256,
    ).hexdigest()
    assert issue(ROOT, "grant_1", (BASE,)).signature == second


def test_w23_a_grant_covers_exactly_what_it_says() -> None:
    granted = granted_by(issue(ROOT, "grant_1", (BASE, BOUND)))
    assert objection_to(granted) is None
    refusals: dict[str, dict[str, Any]] = {
        "grant_audience": {"audience": "reducer"},
        "grant_operation": {"operation": "apply_result/work_order"},
        "grant_work_order": {"work_order": "order_2"},
        "grant_attempt": {"attempt": "attempt_2"},
        "grant_fence": {"fence": 8},
        "grant_expired": {"now_us": 1000},
    }
    for code, changes in refusals.items():
        refusal = objection_to(granted, **changes)
        assert refusal is not None and refusal.code == code
    for field in ("work_order", "attempt", "fence"):
        assert objection_to(granted, **{field: None}) is not None


@pytest.mark.parametrize(
    ("caveats", "field"),
    [
        ((), "operations"),
        ((Caveat(audience="executor"),), "operations"),
        ((Caveat(operations=("a/b",)),), "audience"),
        ((BASE, Caveat(operations=("apply_result/work_order",))), "operations"),
        ((BASE, Caveat(operations=())), "operations"),
        ((BASE, Caveat(audience="reducer")), "audience"),
        ((BASE, BOUND, Caveat(work_order="order_2")), "work_order"),
        ((BASE, BOUND, Caveat(fence=8)), "fence"),
    ],
)
def test_w23_a_grant_that_leaves_nothing_is_refused(caveats: tuple[Caveat, ...], field: str) -> None:
    assert verify(ROOT, issue(ROOT, "grant_1", caveats)) == GrantRefusal(code="grant_empty", field=field)


def test_w23_a_token_of_another_scope_or_epoch_is_forged() -> None:
    assert verify(OTHER_ROOT, issue(ROOT, "grant_1", (BASE,))) == GrantRefusal(code="grant_forged")


def test_w23_the_expiry_that_comes_first_counts() -> None:
    token = issue(ROOT, "grant_1", (BASE, Caveat(expires_us=10), Caveat(expires_us=500)))
    assert granted_by(token).expires_us == 10


# --- properties ---

_operations = st.sets(st.sampled_from(["a/x", "b/x", "c/y", "d/y"]), max_size=4).map(lambda names: tuple(sorted(names)))
_caveats = st.builds(
    Caveat,
    audience=st.sampled_from([None, None, "executor", "reducer"]),
    operations=st.none() | _operations,
    work_order=st.sampled_from([None, None, "order_1", "order_2"]),
    attempt=st.sampled_from([None, None, "attempt_1", "attempt_2"]),
    fence=st.sampled_from([None, None, 0, 7, 8]),
    expires_us=st.none() | st.integers(0, 20),
).filter(lambda caveat: caveat != Caveat())
_chains = st.lists(_caveats, max_size=5).map(
    lambda chain: (Caveat(audience="executor", operations=("a/x", "b/x", "c/y")), *chain)
)
_uses = st.fixed_dictionaries(
    {
        "audience": st.sampled_from(["executor", "reducer"]),
        "operation": st.sampled_from(["a/x", "b/x", "c/y", "d/y"]),
        "work_order": st.sampled_from([None, "order_1", "order_2"]),
        "attempt": st.sampled_from([None, "attempt_1", "attempt_2"]),
        "fence": st.sampled_from([None, 0, 7, 8]),
        "now_us": st.integers(0, 21),
    }
)


def covers(caveats: tuple[Caveat, ...], asked: dict[str, Any]) -> bool:
    granted = verify(ROOT, issue(ROOT, "grant_1", caveats))
    return isinstance(granted, Caveat) and objection(granted, **asked) is None


def each_caveat_holds(caveat: Caveat, asked: dict[str, Any]) -> bool:
    """The naive model: one caveat, looked at alone."""
    return (
        caveat.audience in (None, asked["audience"])
        and (caveat.operations is None or asked["operation"] in caveat.operations)
        and caveat.work_order in (None, asked["work_order"])
        and caveat.attempt in (None, asked["attempt"])
        and caveat.fence in (None, asked["fence"])
        and (caveat.expires_us is None or asked["now_us"] < caveat.expires_us)
    )


@given(_chains, _uses)
def test_w4_a_grant_is_the_intersection_of_its_caveats(chain: tuple[Caveat, ...], asked: dict[str, Any]) -> None:
    assert covers(chain, asked) == all(each_caveat_holds(caveat, asked) for caveat in chain)


@given(_chains, _caveats, _uses)
def test_w23_narrowing_never_widens(chain: tuple[Caveat, ...], more: Caveat, asked: dict[str, Any]) -> None:
    if covers((*chain, more), asked):
        assert covers(chain, asked)


@given(_chains, st.data())
def test_w23_whatever_a_holder_does_but_append_is_refused(chain: tuple[Caveat, ...], data: st.DataObject) -> None:
    token = issue(ROOT, "grant_1", chain)
    at = data.draw(st.integers(0, len(chain) - 1))
    other = data.draw(_caveats)
    signature = bytearray.fromhex(token.signature)
    signature[data.draw(st.integers(0, 31))] ^= 1 << data.draw(st.integers(0, 7))
    forgeries = [
        msgspec.structs.replace(token, caveats=chain[:at] + chain[at + 1 :]),
        msgspec.structs.replace(token, caveats=(*chain[:at], other, *chain[at + 1 :])),
        msgspec.structs.replace(token, caveats=(*chain[:at], other, *chain[at:])),
        msgspec.structs.replace(token, caveats=chain[::-1]),
        msgspec.structs.replace(token, grant_id="grant_2"),
        msgspec.structs.replace(token, signature=signature.hex()),
        msgspec.structs.replace(token, signature=""),
        msgspec.structs.replace(token, signature=token.signature.upper()),
        msgspec.structs.replace(token, signature="é" * 64),
    ]
    for forgery in forgeries:
        changed = (forgery.grant_id, forgery.caveats, forgery.signature) != (
            token.grant_id,
            token.caveats,
            token.signature,
        )
        if changed:
            assert verify(ROOT, forgery) == GrantRefusal(code="grant_forged")


@given(_chains, _caveats)
def test_holder_and_kernel_narrow_alike(chain: tuple[Caveat, ...], more: Caveat) -> None:
    assert attenuate(issue(ROOT, "grant_1", chain), more) == issue(ROOT, "grant_1", (*chain, more))


@given(_chains, _caveats)
def test_records_name_a_chain_by_a_digest_of_its_own(chain: tuple[Caveat, ...], more: Caveat) -> None:
    token = issue(ROOT, "grant_1", chain)
    assert chain_digest(token) == chain_digest(issue(OTHER_ROOT, "grant_1", chain))
    assert chain_digest(token) != chain_digest(attenuate(token, more))
    assert chain_digest(token) != chain_digest(issue(ROOT, "grant_2", chain))


# --- bounds and spelling ---


@pytest.mark.parametrize(
    "caveat",
    [
        Caveat(),
        Caveat(audience=""),
        Caveat(audience="x" * 129),
        Caveat(operations=("b", "a")),
        Caveat(operations=("a", "a")),
        Caveat(operations=("",)),
        Caveat(operations=tuple(f"{number:03}" for number in range(65))),
        Caveat(fence=-1),
        Caveat(expires_us=2**53),
    ],
)
def test_a_caveat_out_of_bounds_cannot_be_added_or_smuggled_in(caveat: Caveat) -> None:
    token = issue(ROOT, "grant_1", (BASE,))
    with pytest.raises(ValueError):
        attenuate(token, caveat)
    refusal = verify(ROOT, msgspec.structs.replace(token, caveats=(BASE, caveat)))
    assert isinstance(refusal, GrantRefusal) and refusal.code == "grant_malformed"


def test_the_number_of_caveats_is_bounded() -> None:
    token = issue(ROOT, "grant_1", (BASE,) * CAVEATS_MAX)
    with pytest.raises(ValueError):
        attenuate(token, BASE)
    longer = msgspec.structs.replace(token, caveats=(BASE,) * (CAVEATS_MAX + 1))
    assert verify(ROOT, longer) == GrantRefusal(code="grant_malformed")


@pytest.mark.parametrize(("root", "grant_id"), [(b"short", "grant_1"), (ROOT, ""), (ROOT, "x" * 129)])
def test_a_wrong_root_key_or_id_is_a_mistake_of_the_program(root: bytes, grant_id: str) -> None:
    with pytest.raises(ValueError):
        issue(root, grant_id, (BASE,))
