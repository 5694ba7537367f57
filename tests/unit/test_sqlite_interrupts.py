"""An interrupt while a transaction begins leaves the SQLite store to whoever comes next, in this process or another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from fencepost.storage import sqlite
from fencepost.storage.sqlite import SqliteJournal
from fencepost.testing.conformance.journal_rows import append_once

STORE_ID = "0123456789abcdef" * 2


def test_case_16_an_interrupt_at_any_line_of_beginning_leaves_no_transaction_open(tmp_path: Path) -> None:
    own = sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks")
    other = sqlite.open(tmp_path / "store.db", tmp_path / "locks")
    written, line = append_once(own).seq, 1
    while interrupted_at(line, lambda: append_once(own)):
        assert append_once(other).seq == written + 1, f"line {line}: the other one waits for ever"
        assert append_once(own).seq == written + 2, f"line {line}: the own one finds its connection in use"
        written += 2
        line += 1
    assert line > 3, "the lines were not counted"
    own.close()
    other.close()


def interrupted_at(line_number: int, work: Callable[[], object]) -> bool:
    """Run `work` and raise KeyboardInterrupt at the n-th line that begins a transaction. False when it has fewer."""
    left = line_number
    code = SqliteJournal._begin_immediate.__code__

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
