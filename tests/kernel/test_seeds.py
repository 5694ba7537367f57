"""Seeds: drawn from one call for entropy, each given out once, whoever asks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fencepost.core.ids import SEED_BYTES
from fencepost.kernel.tickets import Seeds


class _CountedEntropy:
    def __init__(self) -> None:
        self.calls = 0

    def seed(self) -> bytes:
        self.calls += 1
        return bytes([7]) * SEED_BYTES


def test_seeds_are_whole_and_never_given_twice_also_to_several_threads() -> None:
    entropy = _CountedEntropy()
    seeds = Seeds(entropy)
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: [seeds.next() for _ in range(500)], range(8)))
    drawn = [seed for page in pages for seed in page]
    assert len(set(drawn)) == len(drawn) == 4_000
    assert {len(seed) for seed in drawn} == {SEED_BYTES}
    assert entropy.calls == 1
