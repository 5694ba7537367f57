"""Runs that are stopped, killed, or have no room: nothing is lost, nothing is done twice."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import (
    ONE,
    THREE,
    Repo,
    ended,
    make_repo,
    processes_of,
    read_until,
    wait_for_no_process,
)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("plan.toml", THREE)
    return made


def test_killed_in_the_middle_a_run_continues_at_once(repo: Repo) -> None:
    running = repo.start("run", "plan.toml")
    read_until(running, "two: active")
    running.kill()
    running.communicate()
    wait_for_no_process(repo.folder, 3.0)
    repo.write("go", "")
    started = time.monotonic()
    second = repo.start("run", "plan.toml")
    said = read_until(second, "two: active (attempt_running), attempt 2")
    assert time.monotonic() - started < 3.0
    assert said[1] == "two: active (attempt_running)", "where it stood when it was killed"
    assert said[0] == "plan plan: continues (1 of 3 orders have ended)"
    assert "two: ready (holder_gone)" in said
    code, _ = ended(second)
    assert code == 0
    assert repo.ran() == ["one", "two", "three"], "finished orders are not run again"
    document = repo.document("run", "plan.toml")
    assert [order["attempts"] for order in document["orders"]] == [1, 2, 1]
    assert repo.document("journal", "replay")["match"] is True
    assert repo.document("journal", "verify")["ok"] is True
    assert processes_of(repo.folder) == []


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_drains_and_costs_no_attempt(repo: Repo, number: signal.Signals, expected: int) -> None:
    running = repo.start("run", "plan.toml")
    read_until(running, "two: active")
    running.send_signal(number)
    code, said = ended(running)
    assert code == expected
    assert "two: ready (drained)" in said
    assert "plan plan: interrupted" in said
    assert processes_of(repo.folder) == []
    repo.write("go", "")
    document = repo.document("run", "plan.toml")
    assert [order["attempts"] for order in document["orders"]] == [1, 1, 1]
    assert repo.ran() == ["one", "two", "three"]


STUBBORN = "trap '' TERM; sleep 60 & wait; sleep 60"
DEAF = f'[budget]\nattempts = 9\n[[work]]\nname = "deaf"\nrun = ["sh", "-c", "{STUBBORN}"]\n'


def until_stopping(repo: Repo, *words: str) -> subprocess.Popen[str]:
    """A run, or a worker, that has had its first signal while a program runs that does not listen to its own."""
    running = repo.start(*words)
    until = time.monotonic() + 30
    while not processes_of(repo.folder):
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.3)  # let the shell set its trap
    running.send_signal(signal.SIGTERM)
    read_until(running, "stopping")
    running.send_signal(signal.SIGTERM)
    return running


@pytest.mark.parametrize("words", [("run", "plan.toml"), ("worker", "start")], ids=["run", "worker"])
def test_case_09_a_second_signal_kills_what_runs_and_costs_no_attempt(repo: Repo, words: tuple[str, ...]) -> None:
    repo.write("plan.toml", DEAF)
    if words[0] == "worker":
        repo.document("plan", "submit", "plan.toml")
    running = until_stopping(repo, *words)
    at = time.monotonic()
    code, said = ended(running)
    assert code == 143
    assert processes_of(repo.folder) == [], "nothing outlives the command"
    assert time.monotonic() - at < 4.5, "a program that does not listen has five seconds after the first signal alone"
    assert any("killing what still runs" in line for line in said.splitlines())
    shown = repo.document("order", "show", "deaf")
    assert (shown["state"], shown["reason"]) == ("ready", "drained")
    assert re.search(r"attempts +9 +0 +0 +9", repo.call("budget", "show", "plan").stdout), "none is charged"
    assert repo.document("journal", "replay")["match"] is True


def test_a_third_signal_leaves_at_once_and_is_as_safe_as_a_kill(repo: Repo) -> None:
    repo.write("plan.toml", DEAF)
    repo.write(
        "run.py",
        "import sys; from fencepost.services.worker import Worker; from fencepost.surfaces.cli.frame import run\n"
        "Worker.kill = lambda self: None\n"
        "sys.exit(run(['run', 'plan.toml']))",
    )
    running = subprocess.Popen(
        [sys.executable, "run.py"],
        cwd=repo.folder,
        env=repo.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    read_until(running, "deaf: active")
    time.sleep(0.3)
    for word in ("stopping", "killing what still runs"):
        running.send_signal(signal.SIGTERM)
        read_until(running, word)
    running.send_signal(signal.SIGTERM)
    at = time.monotonic()
    assert running.wait(20) == 143
    assert time.monotonic() - at < 1.5
    if running.stdout is not None:
        running.stdout.close()
    wait_for_no_process(repo.folder, 8.0)
    assert repo.document("journal", "replay")["match"] is True


def test_a_signal_after_everything_has_ended_does_not_hide_the_outcome(repo: Repo) -> None:
    """The signal counts unless everything had ended: here it comes when the run stops its worker after the end."""
    repo.write("plan.toml", ONE)
    script = (
        "import os, signal, sys; from fencepost.services.worker import Worker;"
        "from fencepost.surfaces.cli.frame import run; stop = Worker.stop\n"
        "def stopped(self):\n"
        "    print('signalled', file=sys.stderr, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    stop(self)\n"
        "Worker.stop = stopped\n"
        "sys.exit(run(['run', 'plan.toml', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=repo.folder,
        env=repo.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "signalled" in done.stderr
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "done"


def test_timeout_drains_and_exits_6(repo: Repo) -> None:
    document = repo.document("run", "plan.toml", "--timeout", "1s", code=6)
    assert document["outcome"] == "timeout"
    assert [order["state"] for order in document["orders"]] == ["applied", "ready", "blocked_dependency"]
    assert processes_of(repo.folder) == []


def test_a_worker_that_is_told_to_stop_exits_143(repo: Repo) -> None:
    repo.document("plan", "submit", "plan.toml")
    worker = repo.start("worker", "start", "--jobs", "1")
    read_until(worker, "serves scope default")
    until = time.monotonic() + 20
    while repo.ran() != ["one"] or not processes_of(repo.folder):
        assert time.monotonic() < until
        time.sleep(0.05)
    worker.send_signal(signal.SIGTERM)
    code, said = ended(worker)
    assert code == 143, said
    assert processes_of(repo.folder) == []


def _limit_file_size(blocks: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (blocks * 1024, blocks * 1024))


@pytest.mark.parametrize("kib", [8, 60, 120, 150, 190])
def test_case_a_full_disk_is_a_clean_error_and_the_next_run_goes_on(repo: Repo, kib: int) -> None:
    repo.write("go", "")
    done = repo.call("run", "plan.toml", preexec_fn=lambda: _limit_file_size(kib))
    assert done.returncode == 1, done.stdout
    assert "error [storage_full]: " in done.stderr
    assert "Traceback" not in done.stderr and "internal_error" not in done.stderr
    again = repo.call("run", "plan.toml")
    assert again.returncode == 0, again.stdout + again.stderr
    assert repo.ran().count("three") == 1
    assert repo.document("journal", "replay")["match"] is True


def test_works_under_other_locales_zones_and_from_a_path_with_spaces(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, "Größe und Öl")
    repo.variables = {"LANG": "C", "LC_ALL": "C", "TZ": "Asia/Kathmandu"}
    repo.write("ein ü.txt", "ü\n")
    text = (
        'objective = "Prüfung"\n[budget]\nattempts = 3\n[[work]]\nname = "a"\n'
        'run = ["sh", "-c", "cat ein*.txt > \\"aus ü.txt\\"; echo ö"]\ninputs = ["ein ü.txt"]\noutputs = ["aus*"]\n'
    )
    repo.write("plan.toml", text)
    document = repo.document("run", "plan.toml")
    assert document["outcome"] == "done"
    assert document["orders"][0]["artifacts"][0]["path"] == "aus ü.txt"
    assert repo.call("order", "log", "a").stdout.count("ö") == 1


@pytest.mark.parametrize("user", ["read-only", "missing", "unset"])
def test_works_without_a_home_folder_that_can_be_written(tmp_path: Path, user: str) -> None:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", ONE)
    if user == "read-only":
        # A mode would not stop the superuser, whom tests may run as; a file in the way stops everybody.
        repo.user.rmdir()
        repo.user.write_text("")
    elif user == "missing":
        repo.user.rmdir()
        repo.variables = {"HOME": "/proc/none"}
    done = repo.call("run", "plan.toml") if user != "unset" else _without_home(repo)
    assert done == 0 if isinstance(done, int) else done.returncode == 0, done
    assert (repo.folder / ".fencepost.ledger").is_dir()


def _without_home(repo: Repo) -> int:
    environment = repo.environment()
    del environment["HOME"]
    pid = os.posix_spawn(
        "/bin/sh", ["sh", "-c", f'cd "{repo.folder}" && exec {_words()} run plan.toml >/dev/null 2>&1'], environment
    )
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _words() -> str:
    return f'"{sys.executable}" -m fencepost'


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(repo: Repo, closed: str) -> None:
    repo.write("plan.toml", ONE)
    script = f'cd "{repo.folder}" && exec {_words()} run plan.toml {closed}'
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", script], repo.environment())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert repo.document("journal", "verify")["ok"] is True


def test_an_output_that_takes_nothing_is_an_error_and_the_plan_is_kept(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    pid = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", f'cd "{repo.folder}" && exec {_words()} run plan.toml >/dev/full 2>said'],
        repo.environment(),
    )
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert re.search(r"error \[output_failed\]: standard output", (repo.folder / "said").read_text())
    assert repo.call("run", "plan.toml").returncode == 0
