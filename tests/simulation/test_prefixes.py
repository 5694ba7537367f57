"""The tool that digests prefixes tells what it is for: folds that depend on their process, stores that differ, journals
that were cut off or torn."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from fencepost.core.chain import BrokenChain
from fencepost.testing import prefixes as tool
from fencepost.testing.refill import first_difference
from tests.fixtures.renew import kept_end
from tests.simulation.elsewhere import PLACES
from tests.simulation.replays import STREAM, kept, opened, parting, refilled, variables_at, written

_SABOTAGE = {
    "the order of a set": ("OrderState", "replace(value, accounts=tuple(set(value.accounts)))"),
    "a hash": ("AttemptState", "replace(value, worker=str(hash(value.worker)))"),
    "the language": ("ClockState", "replace(value, domain=f'{value.logical_us:n}')"),
    "the time zone": ("ClockState", "replace(value, domain=time.ctime(value.logical_us // 1_000_000))"),
    "the order of an index key": ("OrderState", "replace(value, position=hash(value.task) % 1000)"),
}
_SABOTEUR = """
import sys, time
from msgspec.structs import replace
from fencepost.core.state import AttemptState, ClockState, OrderState
from fencepost.testing import prefixes

class Broken(prefixes.Prefixes):
    def put(self, subject, value):
        super().put(subject, {change} if isinstance(value, {kind}) else value)

prefixes.Prefixes = Broken
sys.exit(prefixes.main())
"""


@pytest.mark.parametrize("what", _SABOTAGE)
def test_a_fold_that_depends_on_its_process_is_told_with_its_first_record(
    what: str, pytestconfig: pytest.Config
) -> None:
    kind, change = _SABOTAGE[what]
    code = _SABOTEUR.format(kind=kind, change=change)
    journal = kept("real-run")
    found = []
    for place in (PLACES[0], PLACES[4]):
        variables = variables_at(place, pytestconfig)
        command = [sys.executable, "-c", code, str(journal)]
        found.append(subprocess.run(command, env=variables, capture_output=True, timeout=60, check=False).stdout)
    assert parting(*found).startswith("record ")


DAMAGE = {
    "StateRow clock:main": "UPDATE state SET version = version + 1 WHERE subject = 'clock:main'",
    "StateRow": "DELETE FROM state WHERE subject = (SELECT max(subject) FROM state)",
    "IndexRow": "UPDATE findable SET due_us = due_us + 1 WHERE stage = 'task'",
    "EdgeRow": "DELETE FROM edge WHERE member = (SELECT max(member) FROM edge)",
}


def test_a_row_that_two_stores_do_not_share_is_told(tmp_path: Path) -> None:
    """Otherwise it would mean nothing that they are alike."""
    stores = [tmp_path / "one", tmp_path / "other"]
    for store in stores:
        refilled(store)
    with opened(stores[0]) as ours, opened(stores[1]) as theirs:
        assert not first_difference(ours, theirs, STREAM)
    for number, (said, damage) in enumerate(DAMAGE.items()):
        store = tmp_path / str(number)
        shutil.copytree(stores[0], store)
        with closing(apsw.Connection(str(store / "store.db"))) as connection:
            connection.execute(damage)
            assert connection.changes()
        with opened(stores[0]) as ours, opened(store) as theirs:
            assert first_difference(ours, theirs, STREAM).startswith(said)
            assert first_difference(theirs, ours, STREAM)


def test_a_journal_that_was_cut_off_is_told_by_an_anchor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with tool.open_journal(kept("real-run")) as file:
        lines = list(tool.read_lines(file))
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join(line + b"\n" for line in lines[:-3]))
    end = kept_end("real-run")
    assert tool.main([str(short)]) == 0
    assert tool.main([str(short), "--anchor", f"{end.seq}:{end.record}"]) == tool.EXIT_INTEGRITY
    assert f"record {end.seq - 2}: is missing" in capfd.readouterr().err
    short.write_bytes(short.read_bytes()[:-1])
    assert tool.main([str(short)]) == tool.EXIT_INTEGRITY
    assert f"record {end.seq - 3}: is torn" in capfd.readouterr().err


def test_a_line_that_never_ends_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tool, "BYTES_MAX", 1_000)
    endless = tmp_path / "endless.jsonl"
    endless.write_bytes(b"x" * 5_000 + b"\n")
    with tool.open_journal(endless) as file, pytest.raises(BrokenChain, match="record 1: is torn"):
        list(tool.read_lines(file))


@pytest.mark.parametrize("arguments", [("--every", "-1"), ("--anchor", "0:sha256:" + "0" * 64), ("--anchor", "7")])
def test_arguments_that_mean_nothing_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool.main([str(kept("real-run")), *arguments])


def test_a_file_that_is_not_there_or_is_no_journal_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool.main([str(tmp_path / "none.jsonl")])
    for name, content in (("torn.jsonl.gz", kept("real-run").read_bytes()[:-100]), ("text.jsonl", b"text\n")):
        assert tool.main([str(written(tmp_path / name, content))]) == tool.EXIT_INTEGRITY
    assert "record 1: cannot be read" in capfd.readouterr().err
