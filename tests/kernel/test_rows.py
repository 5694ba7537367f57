"""Caches of another fold are refused in one set of words, by whoever meets them first."""

from __future__ import annotations

import pytest

from fencepost.core.state import FOLD_VERSION
from fencepost.kernel.kernel import Kernel
from fencepost.ports.errors import StorageMismatch
from tests.kernel.support import kernel_over, memory, submit


def _fold(kernel: Kernel, version: int) -> None:
    with kernel.journal.transaction(kernel.stream) as transaction:
        transaction.replace_caches(kernel.stream, version, [], [], [])
        transaction.commit()


@pytest.mark.parametrize(
    ("version", "following"),
    [(FOLD_VERSION + 1, "use the newer fencepost"), (FOLD_VERSION - 1, "fencepost journal replay --rebuild")],
)
def test_w24_a_writer_that_meets_another_fold_says_what_opening_it_would_say(version: int, following: str) -> None:
    journal = memory()
    kernel = kernel_over(journal)
    request = kernel.request("human", submit("a"))
    _fold(kernel, version)
    with pytest.raises(StorageMismatch) as writing:
        kernel.write(request)
    assert writing.value.next_step == following
    if version > FOLD_VERSION:
        with pytest.raises(StorageMismatch) as opening:
            kernel.open()
        assert (opening.value.message, opening.value.next_step) == (writing.value.message, following)
    else:
        kernel.open()
        assert kernel.write(request).ok
