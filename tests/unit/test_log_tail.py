"""The end of a log, for whoever looks often: one small read, whatever was printed and whatever stands in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost.adapters.executors.log_reader import read_log, read_tail
from fencepost.adapters.executors.log_writer import LogWriter


@pytest.mark.parametrize("printed", [0, 1, 90, 100, 101, 180, 250, 1_000, 12_345])
def test_the_tail_is_the_end_of_what_was_printed(tmp_path: Path, printed: int) -> None:
    data = bytes(32 + place % 90 for place in range(printed))
    path = str(tmp_path / "stdout")
    writer = LogWriter(path, head_max=100, tail_max=80)
    for start in range(0, printed, 33):
        writer.write(data[start : start + 33])
    written_ns, tail = read_tail(path, 50)
    assert data.endswith(tail) and (bool(tail) == bool(printed))
    assert (written_ns > 0) == bool(printed)
    writer.finish()
    assert read_tail(path, 50)[1] == read_log(path).text()[-50:]


def test_a_log_that_is_not_there_or_is_something_else_has_no_tail(tmp_path: Path) -> None:
    assert read_tail(str(tmp_path / "none" / "stdout"), 10) == (0, b"")
    assert read_tail(str(tmp_path / "stdout"), 10) == (0, b"")
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", tmp_path / "stdout")
    assert read_tail(str(tmp_path / "stdout"), 10) == (0, b"")
    os.mkfifo(tmp_path / "stderr")
    assert read_tail(str(tmp_path / "stderr"), 10) == (0, b"")
