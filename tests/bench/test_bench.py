"""The benchmark runs, and its document has the shape that the design's page on speed names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.kernel.kernel import Kernel
from tests.bench import run, spike, worlds

PROGRAM = Path(run.__file__)


@pytest.mark.slow
def test_the_quick_benchmark_writes_its_document(tmp_path: Path) -> None:
    written = tmp_path / "bench.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, str(PROGRAM), "--quick", "--json", str(written), "--place", str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "lives/s, 64 tasks" in done.stdout
    found = json.loads(written.read_text())
    assert set(found) >= {
        "machine",
        "raw",
        "lives_per_s",
        "idle_ms",
        "reserve_us",
        "finish_us",
        "attempt_start_ms",
        "attempt_cpu_ms",
        "short_commands",
        "idle_worker",
        "replay_records_per_s",
        "rss_mb_1e6_waiting",
        "bytes_per_life",
        "cli_start_ms",
        "plan_10k_s",
    }
    assert found["raw"]["sqlite_commits_per_s"] > 0 and found["raw"]["postgres_rows_per_s"] is None
    assert all(
        found["lives_per_s"]["sqlite"][name] > 0 for name in ("one", "crowd64", "many", "worker", "worker_python")
    )
    assert found["lives_per_s"]["postgres"] is None and found["worker_executor"] == "command"
    assert found["idle_ms"]["across_processes"]["p50"] > 0 and found["cpu_us_per_life"]["sqlite"]["many"] > 0
    two = found["two_processes"]
    assert all(two[name] > 0 for name in ("enqueue_per_s", "drain_per_s", "both_per_s", "worker_cpu_us"))
    assert found["idle_ms"]["across_kernels"]["p50"] > 0
    assert found["plan_10k_s"] == sum(found["plan_10k_parts_s"].values())
    assert found["idle_ms"]["in_process"]["p50"] <= found["idle_ms"]["in_process"]["p99"]
    assert found["machine"]["quick"] is True
    assert set(found["attempt_cpu_ms"]) == {"command", "python", "python_step"}
    assert found["attempt_start_ms"]["whole"] > found["attempt_start_ms"]["beside"]
    assert all(found["short_commands"][name]["ratio"] > 0 for name in ("command", "short"))
    assert found["idle_worker"]["percent"] >= 0 and found["idle_worker"]["seconds"] >= 0.5
    assert set(found["finish_us"]) == set(found["reserve_us"]) == {"100"}
    assert all(found["finish_us"]["100"][number]["p50"] > 0 for number in ("0", "100"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["bench.json"], "nothing is left behind"


def test_a_figure_is_counted_from_the_journal(tmp_path: Path) -> None:
    with worlds.opened(tmp_path) as kernel:
        crew = worlds.Crew(kernel)
        worlds.crowd(crew, 5, callers=3)
        assert run.counted(kernel, 5).match
        with pytest.raises(RuntimeError, match="6 lives were run"):
            run.counted(kernel, 6)
        spoil(kernel)
        with pytest.raises(RuntimeError, match="does not match"):
            run.counted(kernel, 5)


def test_the_document_goes_to_stdout_or_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "document", lambda *_: {"lives_per_s": 1})
    monkeypatch.setattr(run, "table", lambda _: "the table")
    assert run.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"lives_per_s": 1}
    written = tmp_path / "bench.json"
    assert run.main(["--json", str(written)]) == 0
    assert capsys.readouterr().out == "the table\n"
    assert json.loads(written.read_text()) == {"lives_per_s": 1}


def spoil(kernel: Kernel) -> None:
    with kernel.journal.transaction(kernel.stream) as transaction:
        transaction.replace_caches(kernel.stream, 1, [], [], [])
        transaction.commit()


@pytest.mark.slow
def test_the_write_path_alone_is_measured_with_full_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert spike.main(["64"]) == 0
    told = capsys.readouterr().out
    assert "7 records of 8," in told and "ms of processor time a life" in told
