"""Conformance of artifact stores: what every implementation of `ports.artifacts.ArtifactStore` must show.

Derive a test class from `ArtifactStoreConformance` and give it a fixture `bench`:

    class TestMyStore(ArtifactStoreConformance):
        @pytest.fixture
        def bench(self, tmp_path):
            store = MyStore(...)
            return ArtifactBench(store=store, damage=lambda digest: ...)
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost.ports.artifacts import ArtifactMissing, ArtifactStore, SourceChanged
from fencepost.ports.errors import ContentTooLarge, IntegrityError, PathRefused

ABSENT = "sha256:" + "0" * 64
LARGE = b"\x00\xffpost" * 500_000  # 3 MB: several pieces


@dataclass(frozen=True, kw_only=True)
class ArtifactBench:
    """An empty store, and a way to change one stored byte of a digest behind its back."""

    store: ArtifactStore
    damage: Callable[[str], None]


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class ArtifactStoreConformance:
    """Every test gets a fresh `bench`."""

    @pytest.mark.parametrize("data", [b"", b"x", b"\x00" * 70_000, LARGE], ids=["empty", "one", "zeros", "large"])
    def test_what_was_put_is_read(self, bench: ArtifactBench, data: bytes) -> None:
        stored = bench.store.put_bytes(data, classification="internal")
        assert stored == (digest_of(data), len(data))
        assert bench.store.has(stored.digest)
        assert bench.store.read(stored.digest, len(data)) == data
        assert bench.store.verify(stored.digest) == len(data)
        with bench.store.open(stored.digest) as reader:
            assert reader.read() == data

    def test_open_reads_in_pieces(self, bench: ArtifactBench) -> None:
        digest = bench.store.put_bytes(LARGE, classification="public").digest
        with bench.store.open(digest) as reader:
            assert b"".join(iter(lambda: reader.read(65_537), b"")) == LARGE

    def test_putting_again_gives_the_same_name(self, bench: ArtifactBench) -> None:
        first = bench.store.put_bytes(b"same", classification="internal")
        assert bench.store.put_bytes(b"same", classification="internal") == first

    @pytest.mark.parametrize("data", [b"", b"small", LARGE], ids=["empty", "small", "large"])
    def test_a_file_is_stored_like_its_bytes(self, bench: ArtifactBench, tmp_path: Path, data: bytes) -> None:
        source = tmp_path / "with space and ü\n.txt"
        source.write_bytes(data)
        assert bench.store.put_file(source, classification="internal") == (digest_of(data), len(data))
        source.write_bytes(b"changed afterwards")
        assert bench.store.read(digest_of(data), len(data)) == data

    def test_a_descriptor_is_read_from_its_start(self, bench: ArtifactBench, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"0123456789")
        descriptor = os.open(tmp_path / "a", os.O_RDONLY)
        try:
            os.read(descriptor, 5)
            stored = bench.store.put_descriptor(descriptor, name="a", classification="internal")
        finally:
            os.close(descriptor)
        assert stored == (digest_of(b"0123456789"), 10)

    def test_only_regular_files_are_stored(self, bench: ArtifactBench, tmp_path: Path) -> None:
        (tmp_path / "real").write_bytes(b"real")
        (tmp_path / "link").symlink_to("real")
        os.mkfifo(tmp_path / "fifo")
        for name in ("link", "fifo", "absent", "."):
            with pytest.raises(PathRefused):
                bench.store.put_file(tmp_path / name, classification="internal")
        assert not bench.store.has(digest_of(b"real"))

    def test_case_40_a_file_at_its_limit_is_stored_and_one_byte_more_is_not(
        self, bench: ArtifactBench, tmp_path: Path
    ) -> None:
        source = tmp_path / "file"
        for data in (b"x" * 100, LARGE):
            source.write_bytes(data)
            with pytest.raises(ContentTooLarge):
                bench.store.put_file(source, classification="internal", bytes_max=len(data) - 1)
            assert not bench.store.has(digest_of(data))
            bench.store.put_file(source, classification="internal", bytes_max=len(data))
            assert bench.store.has(digest_of(data))

    def test_a_file_that_changes_while_read_is_not_stored(
        self, bench: ArtifactBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = tmp_path / "moving"
        real_pread = os.pread
        for data in (b"x" * 1_000, LARGE):
            source.write_bytes(data)

            def grow(descriptor: int, size: int, offset: int) -> bytes:
                piece = real_pread(descriptor, size, offset)
                with source.open("ab") as writer:
                    writer.write(b"more")
                return piece

            with monkeypatch.context() as patched:
                patched.setattr(os, "pread", grow)
                with pytest.raises(SourceChanged):
                    bench.store.put_file(source, classification="internal")
            assert not bench.store.has(digest_of(data))

    def test_reading_is_bounded(self, bench: ArtifactBench) -> None:
        digest = bench.store.put_bytes(b"12345", classification="internal").digest
        assert bench.store.read(digest, 5) == b"12345"
        with pytest.raises(ContentTooLarge):
            bench.store.read(digest, 4)

    def test_what_was_never_put_is_missing(self, bench: ArtifactBench, tmp_path: Path) -> None:
        store = bench.store
        assert not store.has(ABSENT)
        with pytest.raises(ArtifactMissing):
            store.read(ABSENT, 10)
        with pytest.raises(ArtifactMissing):
            store.open(ABSENT)
        with pytest.raises(ArtifactMissing):
            store.verify(ABSENT)
        with pytest.raises(ArtifactMissing):
            store.classification(ABSENT)
        with pytest.raises(ArtifactMissing):
            store.copy_to(ABSENT, tmp_path / "copy", 0o644)
        assert not (tmp_path / "copy").exists()

    @pytest.mark.parametrize("digest", ["", "sha256:", "0" * 64, "sha256:" + "A" * 64, "sha256:../../../../etc/passwd"])
    def test_another_form_of_digest_is_a_broken_program(self, bench: ArtifactBench, digest: str) -> None:
        with pytest.raises(ValueError, match="not a digest"):
            bench.store.has(digest)
        with pytest.raises(ValueError, match="not a digest"):
            bench.store.read(digest, 1)

    @pytest.mark.parametrize("data", [b"rotten", LARGE], ids=["small", "large"])
    def test_damage_is_seen_on_every_read(self, bench: ArtifactBench, tmp_path: Path, data: bytes) -> None:
        store = bench.store
        digest = store.put_bytes(data, classification="internal").digest
        bench.damage(digest)
        with pytest.raises(IntegrityError):
            store.read(digest, len(data))
        with pytest.raises(IntegrityError):
            store.verify(digest)
        with pytest.raises(IntegrityError), store.open(digest) as reader:
            while reader.read(100_000):
                pass
        with pytest.raises(IntegrityError):
            store.copy_to(digest, tmp_path / "copy", 0o644)
        assert not (tmp_path / "copy").exists()

    def test_classification_only_rises(self, bench: ArtifactBench) -> None:
        store = bench.store
        digest = store.put_bytes(b"word", classification="public").digest
        assert store.classification(digest) == "public"
        store.put_bytes(b"word", classification="private")
        assert store.classification(digest) == "private"
        store.put_bytes(b"word", classification="internal")
        store.put_bytes(b"word", classification="public")
        assert store.classification(digest) == "private"
        with store.batch() as batch:
            digest = batch.put_bytes(b"other", classification="internal").digest
            batch.put_bytes(b"other", classification="public")
        assert store.classification(digest) == "internal"

    @pytest.mark.parametrize("data", [b"", b"copy me", LARGE], ids=["empty", "small", "large"])
    def test_a_copy_is_a_file_of_its_own(self, bench: ArtifactBench, tmp_path: Path, data: bytes) -> None:
        digest = bench.store.put_bytes(data, classification="internal").digest
        target = tmp_path / "größer"
        assert bench.store.copy_to(digest, target, 0o755) == len(data)
        assert target.read_bytes() == data
        assert stat.S_IMODE(target.stat().st_mode) == 0o755
        assert target.stat().st_nlink == 1
        target.write_bytes(b"the attempt writes into it")
        assert bench.store.read(digest, len(data)) == data

    def test_a_copy_replaces_nothing(self, bench: ArtifactBench, tmp_path: Path) -> None:
        digest = bench.store.put_bytes(b"new", classification="internal").digest
        (tmp_path / "there").write_bytes(b"old")
        (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
        for name in ("there", "dangling"):
            with pytest.raises(Exception, match="failed"):
                bench.store.copy_to(digest, tmp_path / name, 0o644)
        assert (tmp_path / "there").read_bytes() == b"old"
        assert not (tmp_path / "elsewhere").exists()

    def test_a_batch_becomes_visible_at_its_end(self, bench: ArtifactBench) -> None:
        contents = [b"content %d" % n for n in range(300)] * 2
        with bench.store.batch() as batch:
            stored = [batch.put_bytes(data, classification="internal") for data in contents]
            assert not any(bench.store.has(one.digest) for one in stored)
        assert [bench.store.read(one.digest, 100) for one in stored] == contents

    def test_a_failed_batch_stores_nothing(self, bench: ArtifactBench) -> None:
        kept = bench.store.put_bytes(b"before", classification="internal").digest
        with pytest.raises(RuntimeError), bench.store.batch() as batch:
            digest = batch.put_bytes(b"lost", classification="internal").digest
            batch.put_bytes(b"before", classification="private")
            raise RuntimeError("the caller gives up")
        assert not bench.store.has(digest)
        assert bench.store.classification(kept) == "internal"
        assert bench.store.put_bytes(b"lost", classification="internal").digest == digest
        assert bench.store.has(digest)

    def test_a_batch_goes_on_after_a_refused_file(self, bench: ArtifactBench, tmp_path: Path) -> None:
        with bench.store.batch() as batch:
            with pytest.raises(PathRefused):
                batch.put_file(tmp_path / "absent", classification="internal")
            digest = batch.put_bytes(b"goes on", classification="internal").digest
        assert bench.store.read(digest, 100) == b"goes on"
