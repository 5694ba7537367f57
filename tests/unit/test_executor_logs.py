"""Logs keep the first and the last bytes, say what is missing, and can be read at every moment."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.adapters.executors.log_reader import read_log
from fencepost.adapters.executors.log_writer import GAP_LINE, LogWriter

chunks = st.lists(st.binary(max_size=40), max_size=30)


@given(chunks=chunks, head_max=st.integers(0, 50), tail_max=st.integers(0, 50))
def test_head_and_tail_at_every_moment(chunks: list[bytes], head_max: int, tail_max: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stdout")
        log = LogWriter(path, head_max=head_max, tail_max=tail_max)
        stream = b""
        for chunk in chunks:
            log.write(chunk)
            stream += chunk
            view = read_log(path)
            assert view.head == stream[:head_max]
            assert stream.endswith(view.tail)
            assert len(view.tail) >= min(tail_max, len(stream) - len(view.head))
            assert sum(entry.stat().st_size for entry in Path(folder).iterdir()) <= head_max + 2 * tail_max
        facts = log.finish()
        view = read_log(path)
        assert os.listdir(folder) == ["stdout"]
        if len(stream) <= head_max + tail_max:
            assert Path(path).read_bytes() == stream
            assert view.text() == stream
        else:
            assert view.head == stream[:head_max]
            assert view.tail == stream[len(stream) - tail_max :]
            assert view.gap_bytes == facts["gap_bytes"] == len(stream) - head_max - tail_max
            assert Path(path).read_bytes() == view.text()
        assert facts["bytes_total"] == len(stream) == view.bytes_total
        assert facts["head_bytes"] + facts["tail_bytes"] + facts["gap_bytes"] == len(stream)


@given(chunks=chunks, every=st.integers(1, 5), finish=st.booleans())
def test_follower_sees_each_byte_once_or_hears_of_the_gap(chunks: list[bytes], every: int, finish: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stdout")
        log = LogWriter(path, head_max=30, tail_max=60)
        stream = b""
        offset = 0

        def follow() -> int:
            at = offset
            while True:
                since = read_log(path).since(at)
                start = at + since.skipped_bytes
                assert since.data == stream[start : start + len(since.data)]
                if since.next_offset == at:
                    return at
                assert since.next_offset == start + len(since.data)
                at = since.next_offset

        for number, chunk in enumerate(chunks):
            log.write(chunk)
            stream += chunk
            if number % every == 0:
                offset = follow()
        if finish:
            log.finish()
        assert follow() == len(stream)


def test_a_command_that_prints_a_gap_line_fools_nobody(tmp_path: Path) -> None:
    path = str(tmp_path / "stdout")
    log = LogWriter(path, head_max=1000, tail_max=1000)
    text = b"abc" + GAP_LINE.format(head=4, gap=10, tail=3).encode() + b"xyz"
    log.write(text)
    log.finish()
    assert read_log(path).text() == text
    assert read_log(path).gap_bytes == 0


def test_old_log_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "stdout")
    for text in (b"first run, long enough for a tail", b"second"):
        log = LogWriter(path, head_max=10, tail_max=5)
        log.write(text)
    log.finish()
    assert Path(path).read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["stdout"]


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "stdout").symlink_to(tmp_path / "precious")
    log = LogWriter(str(tmp_path / "stdout"), head_max=10, tail_max=5)
    log.write(b"hello")
    log.finish()
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "stdout").read_bytes() == b"hello"


@pytest.mark.parametrize("refuse_at", range(12))
def test_full_disk_ends_the_keeping_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse_at: int
) -> None:
    path = str(tmp_path / "stdout")
    real_write = os.write
    calls = 0

    def short_then_full(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > refuse_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data[:7])

    log = LogWriter(path, head_max=20, tail_max=20)
    monkeypatch.setattr(os, "write", short_then_full)
    for _ in range(10):
        log.write(b"0123456789")
    facts = log.finish()
    assert facts["bytes_total"] == 100
    assert facts["head_bytes"] + facts["tail_bytes"] + facts["gap_bytes"] == 100
    assert "No space left on device" in log.problem
    view = read_log(path)
    assert (b"0123456789" * 10).startswith(view.head)
    assert len(view.head) == facts["head_bytes"]
    assert len(view.tail) == facts["tail_bytes"]


def test_folder_that_is_missing_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "none" / "stdout"), head_max=20, tail_max=20)
    log.write(b"hello")
    assert log.finish()["gap_bytes"] == 5
    assert log.problem


@given(pieces=st.lists(st.sampled_from([b"s", b"sec", b"secret", b"ret", b"e", b"x", b"\n", b""]), max_size=30))
def test_a_secret_is_in_no_file_however_it_comes(pieces: list[bytes]) -> None:
    stream = b"".join(pieces)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stdout")
        log = LogWriter(path, head_max=1_000, tail_max=1_000, secret=b"secret")
        for piece in pieces:
            log.write(piece)
            written = read_log(path).text()
            assert b"secret" not in written
            assert log.bytes_total == len(written)
        facts = log.finish()
        assert read_log(path).text() == stream.replace(b"secret", b"*" * 6)
        assert facts["bytes_total"] == len(stream)


def test_the_beginning_of_a_secret_is_held_back_until_it_is_seen_to_be_none(tmp_path: Path) -> None:
    path = str(tmp_path / "stdout")
    log = LogWriter(path, head_max=4, tail_max=100, secret=b"secret")
    log.write(b"my secre")
    assert read_log(path).text() == b"my "
    log.write(b"ts\n")
    assert read_log(path).text() == b"my ******s\n"
    log.write(b"s")
    log.finish()
    assert read_log(path).text() == b"my ******s\ns"
