"""Inputs, outputs, acceptance and reports: what cannot be used or kept ends the attempt once, with its reason."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.commands import FromDraft
from fencepost.core.limits import Limits
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.ports.errors import StorageFull, StorageUnavailable
from fencepost.ports.packs import PackWritten
from tests.services.world import SHORT, World, draft, needs, opened_world

ALWAYS = Retry(on=("executor", "validation", "transient_dependency"), backoff_us=1_000, backoff_max_us=1_000)


def manifest(world: World, **files: str) -> dict[str, Any]:
    """Pin files in a pack; returns what an order needs to name them."""
    root = world.folder / f"source-{len(os.listdir(world.folder))}"
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    written = world.app.packs.write(root, paths)
    assert isinstance(written, PackWritten)
    stored = world.app.packs.put_manifest(written, paths, classification="internal")
    return {"manifest": stored.digest, "manifest_files": stored.files, "manifest_bytes": stored.bytes}


def ended(world: World, plan: str, task: str = "a") -> tuple[str, str]:
    """(state, reason) of an order whose plan one worker brought to its end, without a fault."""
    worker = world.worker(jobs=2)
    world.until_ended(plan)
    world.until(lambda: worker.status().running == 0, 5)
    assert worker.fatal is None
    order = world.order(plan, task)
    return order.state, order.reason


def flip(path: Path) -> None:
    """Change one bit, as a disk may."""
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def artifact_path(world: World, digest: str) -> Path:
    return world.app.artifacts.path_of(digest)


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_handed_file_fails_its_reader_and_not_the_worker(world: World, damage: str) -> None:
    gate = world.folder / "go"
    plan = world.submit(
        draft("a", "sh", "-c", "echo content > out.txt", outputs=("out.txt",)),
        draft("gate", "sh", "-c", f"while [ ! -e '{gate}' ]; do sleep 0.02; done"),
        draft(
            "b",
            "cat",
            "out.txt",
            handed=(FromDraft(task="a", files=("out.txt",)),),
            groups=(*needs("a", "gate"),),
        ),
    )
    worker = world.worker(jobs=2)
    world.until_state(plan, "a", "applied")
    path = artifact_path(world, world.facts(plan, "a").artifacts[0].digest)
    if damage == "flipped":
        flip(path)
    else:
        path.unlink()
    gate.touch()
    world.until_ended(plan)
    order = world.order(plan, "b")
    assert (order.state, order.reason) == ("failed", "inputs_unavailable")
    assert world.facts(plan, "b").failure == "deterministic_input"
    assert len(world.attempts(plan, "b")) == 1
    assert worker.fatal is None
    world.until(lambda: worker.status().running == 0)
    world.check()


def test_inputs_that_clash_fail_once(world: World) -> None:
    """A handed file in the place of a pinned one with other bytes."""
    plan = world.submit(
        draft("a", "sh", "-c", "echo other > x.txt", outputs=("x.txt",)),
        draft("b", handed=(FromDraft(task="a", files=("x.txt",)),), groups=needs("a"), **manifest(world, x_txt="one")),
    )
    assert ended(world, plan, "b") == ("failed", "inputs_unavailable")
    assert len(world.attempts(plan, "b")) == 1
    world.check()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("ln -s /etc/passwd out.txt", "outputs_refused"),
        ("true", "outputs_missing"),
        ("mkfifo out.txt", "outputs_missing"),
        ("i=0; while [ $i -lt 10001 ]; do : > out.$i; i=$((i+1)); done", "outputs_refused"),
    ],
)
def test_outputs_that_are_not_taken(world: World, script: str, reason: str) -> None:
    plan = world.submit(
        draft("a", "sh", "-c", script, outputs=("out.*",), accept=Acceptance(files=("out.txt",)), retry=None)
    )
    state, found = ended(world, plan)
    assert state == "failed"
    assert found in (reason, "outputs_refused")
    assert list((world.home / "work").glob("attempt_*")), "the last failed workspace stays"
    world.check()


@pytest.mark.parametrize(
    ("content", "state", "reason"),
    [
        ('{"n": 1}', "applied", "applied"),
        ('{"n": "one"}', "failed", "schema_failed"),
        ("{", "failed", "schema_failed"),
    ],
)
def test_a_schema_judges_an_output(world: World, content: str, state: str, reason: str) -> None:
    schema = b'{"type": "object", "properties": {"n": {"type": "integer"}}}'
    digest = world.app.artifacts.put_bytes(schema, classification="internal").digest
    accept = Acceptance(schemas={"n.json": digest})
    plan = world.submit(draft("a", "sh", "-c", f"echo '{content}' > n.json", outputs=("n.json",), accept=accept))
    assert ended(world, plan) == (state, reason)
    world.check()


def test_a_schema_that_is_damaged_or_a_document_too_large_fails_and_harms_nobody(world: World) -> None:
    digest = world.app.artifacts.put_bytes(b'{"type": "object"}', classification="internal").digest
    accept = Acceptance(schemas={"n.json": digest})
    plan = world.submit(
        draft("a", "sh", "-c", "head -c 17000000 /dev/zero > n.json", outputs=("n.json",), accept=accept)
    )
    assert ended(world, plan) == ("failed", "schema_failed")
    flip(artifact_path(world, digest))
    plan = world.submit(draft("a", "sh", "-c", "echo {} > n.json", outputs=("n.json",), accept=accept), name="second")
    assert ended(world, plan) == ("failed", "schema_failed")
    world.check()


@pytest.mark.parametrize(
    ("verify", "script", "state", "reason"),
    [
        (("grep", "good", "out.txt"), "echo good > out.txt", "applied", "applied"),
        (("grep", "good", "out.txt"), "echo bad > out.txt", "failed", "verifier_failed"),
        (("no-such-program",), "echo good > out.txt", "failed", "verifier_error"),
        (("sh", "-c", "kill -9 $$"), "echo good > out.txt", "failed", "verifier_error"),
        (("true",), "echo changed > pinned.txt; echo good > out.txt", "failed", "verifier_failed"),
    ],
)
def test_a_verifier_judges_in_a_fresh_folder(
    world: World, verify: tuple[str, ...], script: str, state: str, reason: str
) -> None:
    accept = Acceptance(verify=verify)
    pinned = manifest(world, pinned_txt="pinned")
    plan = world.submit(draft("a", "sh", "-c", script, outputs=("*.txt",), accept=accept, **pinned))
    assert ended(world, plan) == (state, reason)
    assert len(world.attempts(plan, "a")) == 1
    left = 0 if state == "applied" else 1
    world.until(lambda: len(world.app.workspaces.list_attempts()) == left, 5, "the last failed workspace stays")
    world.check()


def test_a_verifier_shares_no_folder_with_the_command_that_it_judges(world: World) -> None:
    """Whatever a command leaves in its home, its TMPDIR or beside its workspace cannot speak for it."""
    spoil = "for d in $HOME $TMPDIR .. ../logs ../verify; do mkdir -p $d; echo spoiled > $d/hook; done"
    places = "$HOME/hook $TMPDIR/hook ../hook ../logs/hook hook"
    seek = f"test -d $HOME && test -d $TMPDIR && ! cat {places} 2>&1 | grep spoiled"
    plan = world.submit(
        draft(
            "a",
            *("sh", "-c", f"{spoil}; echo x > out.txt"),
            outputs=("out.txt",),
            accept=Acceptance(verify=("sh", "-c", seek)),
        )
    )
    assert ended(world, plan) == ("applied", "applied")
    world.check()


@pytest.mark.parametrize("what", ["mkfifo stdout", "ln -s /etc/passwd stdout", "truncate -s 20G stdout"])
def test_logs_that_a_command_replaced_neither_hang_nor_leak(world: World, what: str) -> None:
    plan = world.submit(draft("a", "sh", "-c", f"echo said; sleep 0.1; cd ../logs; rm stdout; {what}"))
    world.worker(jobs=1)
    assert world.until_ended(plan, 10) < 5
    facts = world.facts(plan, "a")
    assert facts.stdout is not None
    assert world.app.artifacts.read(facts.stdout.digest, 1_000) == b"said\n"


def test_a_log_that_cannot_be_read_is_told(world: World) -> None:
    plan = world.submit(draft("a", "sh", "-c", "echo said; cd ..; mv logs gone; mkdir logs; mkfifo logs/stdout"))
    world.worker(jobs=1)
    assert world.until_ended(plan, 10) < 5
    facts = world.facts(plan, "a")
    assert (facts.outcome, facts.stdout) == ("succeeded", None)
    assert "stdout was not kept" in facts.message


def test_a_workspace_that_the_command_replaced_fails_it_alone(world: World) -> None:
    script = "cd ..; mv workspace gone; ln -s /etc workspace"
    plan = world.submit(draft("a", "sh", "-c", script, outputs=("passwd",)))
    assert ended(world, plan) == ("failed", "outputs_refused")
    assert world.facts(plan, "a").artifacts == ()


def test_case_40_a_report_that_is_too_large_ends_the_attempt_once(tmp_path: Path) -> None:
    small = Limits(
        lease_us=SHORT.lease_us,
        renewal_us=SHORT.renewal_us,
        reservation_us=SHORT.reservation_us,
        record_bytes_max=20_000,
        receipts_per_result_max=8,
        receipts_per_hold_max=19,
    )
    with opened_world(tmp_path, small) as world:
        script = "i=0; while [ $i -lt 200 ]; do : > out.$i; i=$((i+1)); done"
        plan = world.submit(draft("a", *world.say("a", script), outputs=("out.*",), retry=ALWAYS))
        assert ended(world, plan) == ("failed", "result_invalid")
        assert world.ran() == ["a"], "too large once is too large again"
        facts = world.facts(plan, "a")
        assert "too_large" in facts.message and facts.exit_code == 0
        [attempt] = world.attempts(plan, "a")
        assert world.hold(attempt).charged["time_us"] > 0
        world.check()


def test_case_18_odd_bytes_in_outputs_logs_and_messages(world: World) -> None:
    script = r"printf 'a\000b\377\355\240\200'; printf '\377\000' >&2; printf x > out.x; "
    script += r"""printf y > "$(printf 'out.\377')" """
    plan = world.submit(draft("a", "sh", "-c", script, outputs=("out.*",), retry=ALWAYS, ceilings={"attempts": 2}))
    state, _ = ended(world, plan)
    assert state in ("applied", "failed", "budget_exhausted")
    assert world.facts(plan, "a").stdout is not None
    plan = world.submit(draft("a", "./\U0001f600-missing\u0301", retry=ALWAYS), name="second")
    assert ended(world, plan)[0] == "failed"
    world.check()


def test_a_workspace_that_cannot_be_removed_harms_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    discard = world.app.workspaces.discard
    seen: list[str] = []

    def stuck(attempt: str) -> None:
        if attempt in seen:
            raise StorageUnavailable("device busy")
        seen.append(attempt)
        discard(attempt)

    monkeypatch.setattr(world.app.workspaces, "discard", stuck)
    plan = world.submit(draft("a", *world.say("a")), draft("b", *world.say("b")))
    worker = world.worker(jobs=1)
    world.until_ended(plan)
    world.until(lambda: worker.status().running == 0)
    assert world.plan(plan).applied == 2
    assert worker.fatal is None and worker.status().failures == 2
    worker.stop()
    monkeypatch.undo()
    world.worker(jobs=1)
    world.until(lambda: not list((world.home / "work").glob("attempt_*")), 5, "a later sweep removes them")


def test_only_the_last_failed_workspace_of_an_order_stays(world: World) -> None:
    plan = world.submit(draft("a", "sh", "-c", "echo x > left; false", retry=ALWAYS))
    assert ended(world, plan)[0] == "failed"
    attempts = [attempt.attempt for attempt in world.attempts(plan, "a")]
    assert len(attempts) == 3
    world.workers[0].stop()
    worker = world.worker(jobs=1)
    world.until(lambda: len(list((world.home / "work").glob("attempt_*"))) == 1, 5)
    worker.stop()
    assert (world.home / "work" / attempts[-1] / "workspace" / "left").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,nr_inodes=64", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs more rights")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("place", ["artifacts", "work"])
def test_a_full_disk_ends_the_worker_and_the_next_goes_on(world: World, small_disk: Path, place: str) -> None:
    target = world.home / place
    target.rmdir()
    target.symlink_to(small_disk)
    script = "echo out > out.bin"
    if place == "artifacts":
        (small_disk / "ballast").write_bytes(b"\0" * 2_900_000)
        script = "head -c 400000 /dev/urandom > out.bin"
    else:
        for number in range(64):
            with contextlib.suppress(OSError):
                (small_disk / f"ballast{number}").touch()
    plan = world.submit(draft("a", *world.say("a", script), outputs=("out.bin",)), draft("b"))
    worker = world.app.worker(jobs=1)
    worker.start()
    until = time.monotonic() + 10
    while worker.fatal is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    worker.stop()
    assert isinstance(worker.fatal, StorageFull)
    assert world.plan(plan).account.charged.get("attempts", 0) == 0
    assert world.order(plan, "a").state == "ready"
    world.check()
    for path in small_disk.glob("ballast*"):
        path.unlink()
    worker = world.worker(jobs=1)
    world.until_ended(plan)
    assert world.plan(plan).applied == 2
    worker.stop()
    world.check()
