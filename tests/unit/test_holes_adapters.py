"""Artifacts and keepers: what only a reader of the very last byte, or a lost keeper with an old status, would meet."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from fencepost.adapters.artifacts.store import FileArtifactStore
from fencepost.adapters.executors import command
from fencepost.adapters.executors.command import CommandExecutor
from fencepost.adapters.executors.keeper import STOP_LEAD_US
from fencepost.ports.errors import IntegrityError
from fencepost.ports.executor import Status
from fencepost.testing.conformance.executor import local_boot_id, local_tick_us, make_job


def test_damage_is_seen_by_who_reads_exactly_as_much_as_there_is(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path / "artifacts")
    digest = store.put_bytes(b"content", classification="internal").digest
    path = store.path_of(digest)
    os.chmod(path, 0o600)
    path.write_bytes(b"c0ntent")
    with store.open(digest) as reader, pytest.raises(IntegrityError):
        reader.read(len(b"content"))
    store.close()


def test_bytes_that_became_private_in_steps_are_private(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path / "artifacts")
    for word in ("public", "internal", "private", "internal"):
        digest = store.put_bytes(b"word", classification=word).digest
    assert store.classification(digest) == "private"
    store.close()


@pytest.mark.parametrize("field", ["attempt", "fence", None])
def test_a_lost_keepers_status_counts_for_its_own_attempt_and_fence_alone(tmp_path: Path, field: str | None) -> None:
    job = make_job(tmp_path, "true")
    ended = command._ended("exited", tree_empty=True, message="an earlier end", duration_us=5)
    left = Status(
        attempt="attempt_" + "9" * 32 if field == "attempt" else job.attempt,
        order=job.order,
        fence=job.fence - (field == "fence"),
        boot_id=local_boot_id(),
        ended_tick_us=1,
        ended=ended,
    )
    Path(job.status_path).write_bytes(msgspec.json.encode(left))
    found = command._after_lost_keeper(job, 0, "keeper_lost", "the keeper was lost")
    assert (found == ended) == (field is None)
    assert found.reason == ("exited" if field is None else "keeper_lost")


def test_under_a_lease_that_ends_too_soon_nothing_was_started_and_so_nothing_killed(tmp_path: Path) -> None:
    with closing(CommandExecutor()) as executor:
        ended = executor.start(make_job(tmp_path, "sleep", "60"), local_tick_us() + STOP_LEAD_US - 1).wait(30)
    assert ended is not None and (ended.reason, ended.exit_code, ended.signal) == ("lease_lost", None, None)
    assert "nothing was started" in ended.message
