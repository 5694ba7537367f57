"""`plan check` and `run` say what a valid plan would meet here, before anything is done and paid for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import ONE, Repo, make_repo

VERIFIED = ONE + 'accept = { verify = ["nosuchverifier"] }\n'
WIDE = '[budget]\nattempts = 20\ntime = "20m"\n'
FOUR = "".join(f'[[work]]\nname = "{name}"\nrun = ["true"]\n' for name in "abcd")
ROW = "".join(
    f'[[work]]\nname = "{name}"\nrun = ["true"]\n{more}' for name, more in (("a", ""), ("b", 'needs = ["a"]'))
)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def test_a_verifier_that_is_not_there_is_told_before_the_work_is_paid(repo: Repo) -> None:
    repo.write("plan.toml", VERIFIED.replace('"true"', '"nosuchprogram"'))
    document = repo.document("plan", "check", "plan.toml")
    assert document["ok"] is True
    assert [warning["code"] for warning in document["warnings"]] == ["verifier_missing", "command_missing"]
    assert document["warnings"][0]["where"] == "only" and document["warnings"][0]["next"]
    checked = repo.call("plan", "check", "plan.toml")
    assert (checked.returncode, checked.stdout) == (0, "ok: only\n")
    assert "warning: order only is verified by nosuchverifier" in checked.stderr
    ran = repo.call("run", "plan.toml")
    assert ran.returncode == 7
    lines = ran.stdout.splitlines()
    told = next(number for number, line in enumerate(lines) if line.startswith("warning: order only is verified by"))
    assert told < next(number for number, line in enumerate(lines) if "attempt_running" in line)
    assert "warning" not in repo.call("run", "plan.toml").stdout, "it has ended, and nothing is done"
    assert "warning" not in repo.call("run", "plan.toml", "--again", "--no-work", "--timeout", "1s").stdout


def test_many_warnings_are_cut_short(repo: Repo) -> None:
    work = "".join(f'[[work]]\nname = "o{number}"\nrun = ["nosuchprogram"]\nmay_fail = true\n' for number in range(9))
    repo.write("plan.toml", f"[budget]\nattempts = 20\n{work}")
    told = [line for line in repo.call("plan", "check", "plan.toml").stderr.splitlines() if line]
    assert len(told) == 6 and told[-1] == "4 more warnings: fencepost doctor plan.toml"
    assert len(repo.document("plan", "check", "plan.toml")["warnings"]) == 9


@pytest.mark.parametrize(
    ("plan", "jobs", "told"),
    [
        (WIDE + FOUR, 4, "the plan's time of 20m has room for 2 attempts at once, where 4 could run: each holds 10m"),
        (WIDE.replace("20m", "5m") + FOUR, 3, "time of 5m has room for 1 attempt at once, where 3 could run"),
        (WIDE + FOUR, 2, ""),
        (WIDE.replace("20m", "5m") + ROW, 4, ""),
        (WIDE.replace("20m", "40m") + FOUR, 4, ""),
        (WIDE + FOUR.replace('"true"]\n', '"true"]\nattempt_time = "10m"\n'), 4, ""),
        (WIDE.replace('time = "20m"', "calls = 9") + FOUR, 4, ""),
    ],
)
def test_time_that_keeps_attempts_from_running_at_once_is_told(repo: Repo, plan: str, jobs: int, told: str) -> None:
    repo.write("plan.toml", plan)
    repo.variables["FENCEPOST_JOBS"] = str(jobs)
    checked = repo.call("plan", "check", "plan.toml")
    assert checked.returncode == 0
    assert told in checked.stderr and bool(told) == bool(checked.stderr)


def test_a_run_with_more_jobs_than_its_time_has_room_for_says_so(repo: Repo) -> None:
    repo.write("plan.toml", WIDE + FOUR)
    assert "2 attempts at once, where 3 could run" in repo.call("run", "plan.toml", "--jobs", "3").stdout
