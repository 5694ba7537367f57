"""What a result may contain: every file is looked at, and one good one among them excuses no other."""

from __future__ import annotations

import pytest

from fencepost.core import commands as c
from tests.support.world import World, artifact, draft


@pytest.mark.parametrize("paths", [("out/a.xml", "secret.txt"), ("secret.txt", "out/a.xml")])
def test_w7_one_undeclared_file_beside_a_declared_one_is_refused(paths: tuple[str, str]) -> None:
    world = World()
    world.submit(draft("a", outputs=("out/**",)))
    known = world.activate("a")
    world.ok(world.result(known, artifacts=tuple(artifact(path) for path in paths)))
    world.ok(c.ApplyResult(attempt=known.attempt))
    assert (world.order("a").state, world.order("a").reason) == ("failed", "outputs_refused")
    world.check()
