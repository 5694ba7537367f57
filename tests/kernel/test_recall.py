"""The answer of a command key without its command: authority is asked again, nothing is written."""

from __future__ import annotations

from fencepost.core.commands import SubmitPlan
from fencepost.core.ids import sha256_of
from fencepost.kernel.kernel import Kernel
from tests.kernel.support import Authority, draft, head_of, kernel_over, memory


def _plan(*, empty: bool) -> SubmitPlan:
    orders = () if empty else (draft("a"),)
    content = sha256_of(b"content")
    return SubmitPlan(name="p", objective="", content=content, orders=orders, recovery="replace", mode="new")


def _recalled(kernel: Kernel, name: str = "human", key: str = "mine") -> str | None:
    receipt = kernel.recall(kernel.request(name, _plan(empty=True), key))
    if receipt is None:
        return None
    assert not receipt.fresh
    return receipt.result["plan"] if receipt.refusal is None else receipt.refusal.code


def test_an_answer_is_found_by_its_key_for_whoever_may_still_ask() -> None:
    authority = Authority()
    journal = memory()
    kernel = kernel_over(journal, authority=authority)
    assert _recalled(kernel) is None
    first = kernel.write(kernel.request("human", _plan(empty=False), "mine"))
    head = head_of(kernel)
    assert _recalled(kernel) == first.required()["plan"]
    assert _recalled(kernel, key="other") is None
    assert _recalled(kernel, name="executor") in ("grant_operation", "denied"), "authority is asked again"
    assert head_of(kernel) == head
    kernel.close()
