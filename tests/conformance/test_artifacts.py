"""Artifact stores and packs against real disks, real kills and real crowds."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import resource
import signal
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
import rfc8785

from fencepost.adapters.artifacts import disk
from fencepost.adapters.artifacts import pack as pack_module
from fencepost.adapters.artifacts.manifest import Entry, Manifest
from fencepost.adapters.artifacts.memory import MemoryArtifactStore
from fencepost.adapters.artifacts.pack import (
    PackLimits,
    PackRefused,
    Packs,
    PackWritten,
)
from fencepost.adapters.artifacts.schema import PROBLEMS_MAX, check_schema
from fencepost.adapters.artifacts.store import FileArtifactStore
from fencepost.ports.artifacts import ArtifactMissing
from fencepost.ports.errors import IntegrityError, PathRefused, StorageFull
from fencepost.testing.conformance.artifacts import ArtifactBench, ArtifactStoreConformance, digest_of

KILLS = 20


def damage_file(path: Path) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[len(data) // 2] ^= 1
    os.chmod(path, 0o600)
    path.write_bytes(data)


class TestFileStore(ArtifactStoreConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> ArtifactBench:
        store = FileArtifactStore(tmp_path / "höme with space" / "artifacts")
        return ArtifactBench(store=store, damage=lambda digest: damage_file(store.path_of(digest)))


class TestMemoryStore(ArtifactStoreConformance):
    @pytest.fixture
    def bench(self) -> ArtifactBench:
        store = MemoryArtifactStore()

        def damage(digest: str) -> None:
            store.content[digest] = store.content[digest][:-1] + b"?"

        return ArtifactBench(store=store, damage=damage)


# Files of the store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileArtifactStore]:
    made = FileArtifactStore(tmp_path / "home" / "artifacts")
    yield made
    made.close()


@pytest.fixture
def packs(tmp_path: Path, store: FileArtifactStore) -> Iterator[Packs]:
    made = Packs(tmp_path / "home" / "packs", store)
    yield made
    made.close()


def visible_artifacts(store: FileArtifactStore) -> list[Path]:
    return [path for path in store.tree.glob("??/*") if "." not in path.name]


def check_tree(store: FileArtifactStore) -> int:
    """Every visible artifact is whole; returns how many there are."""
    found = visible_artifacts(store)
    for path in found:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.parent.name + path.name
    return len(found)


def partial_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "partial").glob("*/*")]


def test_layout_and_rights(store: FileArtifactStore) -> None:
    digest = store.put_bytes(b"laid out", classification="private").digest
    digits = digest.removeprefix("sha256:")
    path = store.folder / "sha256" / digits[:2] / digits[2:]
    assert path.read_bytes() == b"laid out"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert partial_files(store.folder) == []


def test_bytes_are_synced_before_they_are_named_and_their_folder_after(
    store: FileArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = digest_of(b"in order")[7:9]
    steps: list[str] = []
    real_sync, real_rename = disk.sync_all, os.rename

    def sync_all(paths: object) -> None:
        listed = list(paths)  # type: ignore[call-overload]  # paths of any kind
        steps.extend("sync file" if Path(path).is_file() else f"sync {Path(path).name}" for path in sorted(listed))
        real_sync(listed)

    def rename(old: Path, new: Path) -> None:
        steps.append("rename")
        real_rename(old, new)

    monkeypatch.setattr(disk, "sync_all", sync_all)
    monkeypatch.setattr(os, "rename", rename)
    store.put_bytes(b"in order", classification="internal")
    assert steps == ["sync file", "rename", "sync sha256", f"sync {shard}"]
    steps.clear()
    # Another process may have renamed these bytes and not synced yet: the first put that meets them does.
    other = FileArtifactStore(store.folder)
    other.put_bytes(b"in order", classification="internal")
    assert steps == ["sync sha256", f"sync {shard}"]
    steps.clear()
    other.put_bytes(b"in order", classification="internal")
    assert steps == []


def test_a_cut_file_is_mended_by_the_next_put(store: FileArtifactStore) -> None:
    digest = store.put_bytes(b"whole and sound", classification="internal").digest
    os.chmod(store.path_of(digest), 0o600)
    store.path_of(digest).write_bytes(b"whole")
    store.put_bytes(b"whole and sound", classification="internal")
    assert store.read(digest, 100) == b"whole and sound"


def test_a_thousand_small_outputs_share_their_syncs(store: FileArtifactStore) -> None:
    begin = time.perf_counter()
    with store.batch() as batch:
        for number in range(1_000):
            batch.put_bytes(b"%d" % number, classification="internal")
    assert len(visible_artifacts(store)) == 1_000
    assert time.perf_counter() - begin < 10


# Kills, crowds and full disks


def in_child(work: Callable[[], object], *, file_bytes_max: int | None = None) -> int:
    """Run `work` in a forked process; returns its id. It ends with 0, or 1 after an error."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if file_bytes_max is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
        work()
        code = 0
    finally:
        os._exit(code)


def ended_with(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def put_for_ever(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = FileArtifactStore(folder)
    while True:
        with store.batch() as batch:
            for _ in range(chance.randrange(1, 30)):
                batch.put_bytes(chance.randbytes(chance.choice([10, 1_000, 300_000])), classification="internal")


def test_kill_9_while_putting_leaves_only_whole_artifacts(store: FileArtifactStore) -> None:
    chance = random.Random(9)
    seen = 0
    for number in range(10 * KILLS):
        if number >= KILLS and seen > 100:
            break
        child = in_child(partial(put_for_ever, store.folder, number))
        time.sleep(chance.uniform(0.005, 0.09))
        os.kill(child, signal.SIGKILL)
        assert ended_with(child) == -signal.SIGKILL
        seen = check_tree(store)
    assert seen > 100
    store.put_bytes(b"mine", classification="internal")
    store.sweep_partials()
    assert partial_files(store.folder) == []
    assert len(os.listdir(store.partials.folder)) == 1, "only the living writer's folder is left"
    put_again = random.Random(0)
    put_again.randrange(1, 30)
    digest = store.put_bytes(put_again.randbytes(put_again.choice([10, 1_000, 300_000])), classification="internal")
    assert store.verify(digest.digest) == digest.bytes


def test_partial_files_of_a_living_writer_are_not_swept(store: FileArtifactStore) -> None:
    with store.batch() as batch:
        digest = batch.put_bytes(b"slow", classification="internal").digest
        assert FileArtifactStore(store.folder).sweep_partials() == 0
        assert len(partial_files(store.folder)) == 1
    assert store.read(digest, 10) == b"slow"


def test_kill_9_while_packing_leaves_whole_packs_only(tmp_path: Path, store: FileArtifactStore) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(400):
        (tree / f"{number}.txt").write_bytes(b"%d" % number * 2_000)
    paths = [f"{number}.txt" for number in range(400)]
    folder = tmp_path / "home" / "packs"
    chance = random.Random(10)

    def pack_and_change() -> None:
        packs = Packs(folder, store)
        for turn in range(10_000):
            (tree / "0.txt").write_bytes(b"turn %d %d" % (os.getpid(), turn))
            packs.write(tree, paths)

    sizes: set[int] = set()
    for number in range(10 * KILLS):
        if number >= KILLS and sizes:
            break
        child = in_child(pack_and_change)
        time.sleep(chance.uniform(0.01, 0.08))
        os.kill(child, signal.SIGKILL)
        ended_with(child)
        sizes = {path.stat().st_size for path in folder.glob("*") if path.is_file()}
    packs = Packs(folder, store)
    assert sizes, "no pack was ever finished"
    assert min(sizes) > 2_000 * 1_000
    written = packs.write(tree, paths)
    assert isinstance(written, PackWritten)
    packs.sweep_partials()
    assert partial_files(folder) == []
    manifest = packs.put_manifest(written, paths, classification="internal")
    (tmp_path / "out").mkdir()
    packs.materialize(manifest.digest, tmp_path / "out")
    assert (tmp_path / "out" / "399.txt").read_bytes() == b"399" * 2_000


def test_four_processes_put_the_same_artifacts(store: FileArtifactStore) -> None:
    contents = [b"shared %d " % number * (number * 7) for number in range(200)]

    def put_all(word: str, seed: int) -> None:
        mine = FileArtifactStore(store.folder)
        shuffled = random.Random(seed).sample(contents, len(contents))
        for begin in range(0, len(shuffled), 20):
            with mine.batch() as batch:
                for data in shuffled[begin : begin + 20]:
                    batch.put_bytes(data, classification=word)  # type: ignore[arg-type]  # one of the words

    words = ["public", "private", "internal", "public"]
    children = [in_child(partial(put_all, word, n)) for n, word in enumerate(words)]
    assert [ended_with(child) for child in children] == [0, 0, 0, 0]
    assert check_tree(store) == len(set(contents))
    assert {store.classification(digest_of(data)) for data in contents} == {"private"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB where this user may mount one."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = tmp_path / "small"
    place.mkdir()
    mounted = hasattr(libc, "mount") and libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=1m,mode=700") == 0
    if not mounted:
        pytest.skip("mounting a small file system is not permitted here; the size limit is tested beside")
    yield place
    libc.umount2(os.fsencode(place), 2)


def test_a_full_disk_is_a_typed_error_and_nothing_is_half_written(small_disk: Path, tmp_path: Path) -> None:
    store = FileArtifactStore(small_disk / "artifacts")
    packs = Packs(small_disk / "packs", store)
    kept = store.put_bytes(b"kept", classification="internal").digest
    big = os.urandom(3_000_000)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "big").write_bytes(big)
    with pytest.raises(StorageFull):
        store.put_bytes(big, classification="internal")
    with pytest.raises(StorageFull):
        store.put_file(tmp_path / "tree" / "big", classification="internal")
    with pytest.raises(StorageFull), store.batch() as batch:
        for number in range(2_000):
            batch.put_bytes(b"%d" % number * 1_000, classification="internal")
    with pytest.raises(StorageFull):
        packs.write(tmp_path / "tree", ["big"])
    assert check_tree(store) == 1
    assert store.read(kept, 10) == b"kept"
    assert partial_files(small_disk / "packs") == partial_files(store.folder) == []
    assert [path for path in packs.folder.iterdir() if path.is_file()] == []
    # With room again the same calls work.
    (tmp_path / "tree" / "big").write_bytes(big[:300_000])
    store.put_file(tmp_path / "tree" / "big", classification="internal")
    assert isinstance(packs.write(tmp_path / "tree", ["big"]), PackWritten)


def test_the_permitted_file_size_counts_as_full(store: FileArtifactStore) -> None:
    def put() -> None:
        with pytest.raises(StorageFull):
            store.put_bytes(b"x" * 200_000, classification="internal")

    assert ended_with(in_child(put, file_bytes_max=100_000)) == 0
    assert check_tree(store) == 0
    assert partial_files(store.folder) == []


# Packs


def write_files(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def pinned(packs: Packs, root: Path, paths: list[str]) -> str:
    written = packs.write(root, paths)
    assert isinstance(written, PackWritten), written
    return packs.put_manifest(written, paths, classification="internal").digest


def laid_out(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def test_exactly_the_selected_files_are_laid_out(tmp_path: Path, packs: Packs) -> None:
    root = tmp_path / "träe with space"
    files = {
        "a.txt": b"one",
        "dir/ü\nb.sh": b"#!/bin/sh\n",
        ".hidden": b"",
        "dir/c": b"one",
        "not": b"selected",
    }
    write_files(root, files)
    (root / "dir/ü\nb.sh").chmod(0o700)
    (root / "a.txt").chmod(0o606)
    big = os.urandom(3_000_000)
    write_files(root, {"dir/big": big})
    (root / "here").symlink_to("dir/c")
    (root / "dir/up").symlink_to("../a.txt")
    paths = ["dir/up", "a.txt", "dir/big", "dir/ü\nb.sh", ".hidden", "here", "dir/c"]
    digest = pinned(packs, root, paths)
    out = tmp_path / "out"
    out.mkdir()
    old_umask = os.umask(0o077)
    try:
        manifest = packs.materialize(digest, out)
    finally:
        os.umask(old_umask)
    assert laid_out(out) == {
        "a.txt": (0o644, b"one"),
        "dir/ü\nb.sh": (0o755, b"#!/bin/sh\n"),
        ".hidden": (0o644, b""),
        "dir/c": (0o644, b"one"),
        "dir/big": (0o644, big),
    }
    assert os.readlink(out / "here") == "dir/c"
    assert os.readlink(out / "dir/up") == "../a.txt"
    assert [entry.path for entry in manifest.entries] == sorted(paths, key=lambda path: path.encode())
    assert packs.path_of(manifest.pack).stat().st_size < 3_000_100, "equal contents are kept once"


def test_a_rerun_of_the_same_submission_writes_nothing(tmp_path: Path, packs: Packs) -> None:
    write_files(tmp_path / "tree", {f"{n}": b"%d" % n for n in range(50)})
    paths = [f"{n}" for n in range(50)]
    first = packs.write(tmp_path / "tree", paths)
    assert isinstance(first, PackWritten)
    before = packs.path_of(first.pack).stat()
    again = Packs(packs.folder, MemoryArtifactStore()).write(tmp_path / "tree", reversed(paths))
    after = packs.path_of(first.pack).stat()
    assert isinstance(again, PackWritten)
    assert (first.fresh, again.fresh, again.entries) == (True, False, first.entries)
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_pack_larger_than_the_buffer_spills(tmp_path: Path, packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_module, "BUFFER_BYTES_MAX", 5_000)
    files = {f"{n:03}": os.urandom(n * 20) for n in range(100)} | {
        "same": b"twice" * 900,
        "then": b"twice" * 900,
    }
    write_files(tmp_path / "tree", files)
    digest = pinned(packs, tmp_path / "tree", list(files))
    size = packs.path_of(packs.read_manifest(digest).pack).stat().st_size
    assert size == sum(len(data) for data in set(files.values())), "equal contents are kept once"
    (tmp_path / "out").mkdir()
    packs.materialize(digest, tmp_path / "out")
    assert {name: data for name, (_, data) in laid_out(tmp_path / "out").items()} == files
    assert partial_files(packs.folder) == []


def test_the_content_digest_moves_only_with_the_selection(tmp_path: Path, packs: Packs) -> None:
    def submit() -> tuple[str, str]:
        written = packs.write(tmp_path / "tree", ["mine", "other"])
        assert isinstance(written, PackWritten)
        stored = packs.put_manifest(written, ["mine"], classification="internal")
        return stored.digest, stored.content_digest

    write_files(tmp_path / "tree", {"mine": b"1", "other": b"2"})
    first = submit()
    write_files(tmp_path / "tree", {"other": b"3"})
    second = submit()
    write_files(tmp_path / "tree", {"mine": b"4"})
    third = submit()
    assert first[1] == second[1] != third[1]
    assert len({first[0], second[0], third[0]}) == 3


def test_manifests_are_canonical_json(tmp_path: Path, packs: Packs, store: FileArtifactStore) -> None:
    names = ["ü", "\x7f", "é\u2028", 'q"uote', "back\\slash", "\U0001f600", "tab\t"]
    write_files(tmp_path / "tree", {name: b"x" for name in names})
    data = store.read(pinned(packs, tmp_path / "tree", names), 10_000)
    assert rfc8785.dumps(msgspec.json.decode(data)) == data


def test_paths_and_links_that_leave_are_refused_all_at_once(tmp_path: Path, packs: Packs) -> None:
    root = tmp_path / "tree"
    write_files(tmp_path, {"secret": b"s", "tree/p/q/file": b"f", "tree/r/file": b"r", "outside/f": b"o"})
    (root / "abs").symlink_to(root / "p/q/file")
    (root / "rel").symlink_to("../secret")
    (root / "p/q/l").symlink_to("../../r")
    (root / "p/q/tricky").symlink_to("l/../../secret")  # inside by its text, outside as it resolves
    (root / "folder").symlink_to("../outside")
    os.mkfifo(root / "fifo")
    wanted = {
        "abs": "path_outside",
        "rel": "path_outside",
        "p/q/tricky": "path_outside",
        "folder/f": "path_outside",
        "../secret": "path_outside",
        "/etc/passwd": "path_outside",
        "fifo": "not_regular",
        "p": "not_regular",
        "gone": "no_file",
        "nul\0": "bad_path_name",
        "half\ud800": "bad_path_name",
    }
    for refused in (
        packs.write(root, [*wanted, "p/q/file"]),
        PackRefused(problems=packs.inspect(root, wanted)),
    ):
        assert isinstance(refused, PackRefused)
        found = {problem.path.encode().decode("unicode_escape"): problem.code for problem in refused.problems}
        assert found == wanted
    assert not packs.folder.exists(), "nothing is written for a refused selection"


def test_case_40_bounds_of_a_pack(tmp_path: Path, store: FileArtifactStore) -> None:
    write_files(tmp_path / "tree", {"a": b"12345", "b": b"67890"})

    def codes(**bounds: int) -> set[str]:
        written = Packs(tmp_path / "packs", store, PackLimits(**bounds)).write(tmp_path / "tree", ["a", "b"])
        return {problem.code for problem in written.problems} if isinstance(written, PackRefused) else set()

    assert codes(files_max=2, file_bytes_max=5, total_bytes_max=10) == set()
    assert codes(files_max=1) == {"too_many"}
    assert codes(file_bytes_max=4) == {"too_large"}
    assert codes(total_bytes_max=9) == {"too_large"}


def test_a_file_that_keeps_changing_is_refused_and_one_that_settles_is_read_again(
    tmp_path: Path, packs: Packs, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "tree" / "moving"
    write_files(tmp_path / "tree", {"moving": b"x" * 100})
    real_pread = os.pread
    left = 1_000

    def disturb(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal left
        piece = real_pread(descriptor, size, offset)
        if left:
            left -= 1
            with source.open("ab") as writer:
                writer.write(b"y")
        return piece

    monkeypatch.setattr(os, "pread", disturb)
    refused = packs.write(tmp_path / "tree", ["moving"])
    assert isinstance(refused, PackRefused)
    assert [problem.code for problem in refused.problems] == ["source_changed"]
    left = 2
    written = packs.write(tmp_path / "tree", ["moving"])
    assert isinstance(written, PackWritten)
    assert written.entries[0].digest == digest_of(source.read_bytes())
    assert written.bytes == source.stat().st_size


def forged(store: FileArtifactStore, packs: Packs, *entries: tuple[str, str, bytes], keep_order: bool = False) -> str:
    """A manifest over a pack of the given contents, written past all checks."""
    rows = []
    content = b""
    for path, mode, data in entries if keep_order else sorted(entries):
        row = {
            "path": path,
            "mode": mode,
            "bytes": len(data),
            "digest": digest_of(data),
            "offset": len(content),
        }
        rows.append(msgspec.convert(row, Entry))
        content += data
    packs.folder.mkdir(parents=True, exist_ok=True)
    packs.path_of(digest_of(content)).write_bytes(content)
    manifest = Manifest(pack=digest_of(content), entries=tuple(rows))
    return store.put_bytes(msgspec.json.encode(manifest), classification="internal").digest


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", "0644", b"x")],
        [("/tmp/out", "0644", b"x")],
        [("a/../../out", "0644", b"x")],
        [("link", "link", b"../elsewhere")],
        [("link", "link", b"/etc")],
        [("link", "link", b"sub"), ("link/out", "0644", b"x")],
        [("p/q/l", "link", b"../../r"), ("p/q/m", "link", b"l/../../x"), ("r/f", "0644", b"x")],
    ],
)
def test_a_forged_manifest_writes_nothing_outside(
    tmp_path: Path, packs: Packs, store: FileArtifactStore, entries: list[tuple[str, str, bytes]]
) -> None:
    place = tmp_path / "place"
    (place / "in").mkdir(parents=True)
    with pytest.raises(PathRefused):
        packs.materialize(forged(store, packs, *entries), place / "in")
    assert os.listdir(place) == ["in"]
    assert not (place / "in/p/q/m").is_symlink()


def test_a_manifest_with_a_clash_is_refused_before_its_first_file(
    tmp_path: Path, packs: Packs, store: FileArtifactStore
) -> None:
    digest = forged(store, packs, ("a", "0644", b"1"), ("b", "link", b"c"), ("b/x", "0644", b"2"))
    (tmp_path / "in").mkdir()
    with pytest.raises(PathRefused):
        packs.materialize(digest, tmp_path / "in")
    assert os.listdir(tmp_path / "in") == []


def test_a_manifest_out_of_order_or_of_another_shape_is_no_manifest(
    tmp_path: Path, packs: Packs, store: FileArtifactStore
) -> None:
    backwards = forged(store, packs, ("b", "0644", b"x"), ("a", "0644", b"y"), keep_order=True)
    twice = forged(store, packs, ("a", "0644", b"x"), ("a", "0644", b"y"))
    strange = store.put_bytes(b'{"kind":"inputs/1","pack":"","entries":[],"more":1}', classification="internal").digest
    for digest in (backwards, twice, strange):
        with pytest.raises(IntegrityError):
            packs.materialize(digest, tmp_path)


def test_a_damaged_or_missing_pack_is_seen(tmp_path: Path, packs: Packs) -> None:
    write_files(tmp_path / "tree", {"a": b"content of a"})
    digest = pinned(packs, tmp_path / "tree", ["a"])
    path = packs.path_of(packs.read_manifest(digest).pack)
    damage_file(path)
    (tmp_path / "out").mkdir()
    with pytest.raises(IntegrityError):
        packs.materialize(digest, tmp_path / "out")
    path.unlink()
    with pytest.raises(ArtifactMissing):
        packs.materialize(digest, tmp_path / "out")


# Schemas


@pytest.mark.parametrize(
    ("document", "schema", "codes"),
    [
        (b'{"a": 1.5}', b'{"properties": {"a": {"type": "number"}}}', []),
        (
            b'{"a": "x"}',
            b'{"$defs": {"s": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/s"}}}',
            [],
        ),
        (b"{}", b'{"required": ["b"]}', ["mismatch"]),
        (b"{}", b'{"$ref": "https://example.org/schema.json"}', ["remote_reference"]),
        (b"{}", b'{"$ref": "file:///etc/passwd"}', ["remote_reference"]),
        (b"{}", b'{"$ref": "#/absent"}', ["remote_reference"]),
        (b'{"a": NaN}', b"{}", ["bad_document"]),
        (b'{"a": 1, "a": 2}', b"{}", ["bad_document"]),
        (b"[" * 100_000, b"{}", ["bad_document"]),
        (b"{} {}", b"{}", ["bad_document"]),
        (b"\xff", b"{}", ["bad_document"]),
        (b"{}", b'{"type": 3}', ["bad_schema"]),
        (b"{}", b"3", ["bad_schema"]),
        (b'"x"', b'{"pattern": "("}', ["bad_schema"]),
        (
            b"[" + b",".join([b"1"] * 1_000) + b"]",
            b'{"items": {"type": "string"}}',
            ["mismatch"] * PROBLEMS_MAX,
        ),
    ],
)
def test_schema_check(document: bytes, schema: bytes, codes: list[str]) -> None:
    assert [problem.code for problem in check_schema(document, schema)] == codes


@pytest.mark.filterwarnings("ignore")  # a library that reads the file would only warn
def test_a_schema_reads_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"type": "string"}')
    schema = json.dumps({"$ref": (tmp_path / "other.json").as_uri()}).encode()
    assert [problem.code for problem in check_schema(b'"x"', schema)] == ["remote_reference"]


def test_case_18_schema_problems_can_always_be_recorded() -> None:
    (problem,) = check_schema(b'{"\\u0000\\ud800": "\\ud800\\u0000"}', b'{"additionalProperties": {"type": "integer"}}')
    for text in (problem.message, problem.pointer):
        assert text.isprintable()
        text.encode("utf-8")
