"""Programs in three languages inside attempts of the real command line: killed, paid once, asked, done (X10, W6)."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.limits import FIRST_VALUES
from tests.surfaces.cli_run_world import CLI, Repo, ended, git, make_repo

EXAMPLES = Path(__file__).parents[2] / "examples" / "attempts"
ANSWER_BYTES_MAX = FIRST_VALUES.answer_bytes_max
LANGUAGES = {"python": "python3", "bash": "bash", "node": "node"}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    shutil.copytree(EXAMPLES, made.folder / "examples" / "attempts")
    git(made.folder, "add", ".")
    git(made.folder, "commit", "-q", "-m", "examples")
    return made


def receipts(repo: Repo) -> list[dict[str, Any]]:
    """What the programs of all attempts have printed so far."""
    found = []
    for path in (repo.folder / ".fencepost" / "work").glob("attempt_*/logs/stdout"):
        for line in path.read_text(errors="replace").splitlines():
            if '"checkpoint"' in line or "'checkpoint'" in line:
                found.append(json.loads(line.replace("'", '"').replace("False", "false").replace("True", "true")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_x10_a_program_is_killed_goes_on_pays_once_asks_and_ends(repo: Repo, language: str) -> None:
    if shutil.which(LANGUAGES[language]) is None:
        pytest.skip(f"{LANGUAGES[language]} is not installed")
    plan = f"examples/attempts/{language}.toml"
    first = repo.start("run", plan)
    until = time.monotonic() + 30
    while len(receipts(repo)) < 2:
        assert time.monotonic() < until and first.poll() is None, (receipts(repo), ended(first))
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    waiting = repo.call("run", plan, "--json")
    assert waiting.returncode == 9, (waiting.stdout, waiting.stderr)
    assert json.loads(waiting.stdout)["outcome"] == "waiting"
    why = repo.call("order", "why", "pages")
    assert "Publish the 5 pages?" in why.stdout + repo.call("order", "show", "pages").stdout
    repo.document("order", "answer", "pages", "yes")
    done = repo.document("run", plan)
    assert done["outcome"] == "done"
    [order] = done["orders"]
    assert order["charged"]["calls"] == 5
    assert order["charged"]["money_micros"] == {"USD": 5_000}
    assert order["artifacts"][0]["path"] == "report.txt"
    repo.document("order", "files", "pages", "--to", str(repo.folder.parent / "out"))
    report = next((repo.folder.parent / "out").rglob("report.txt")).read_text()
    assert report == "5 pages, publish: yes\n"
    numbers = [each["number"] for each in receipts(repo)]
    assert len(numbers) == len(set(numbers)), "no page was read twice"
    shown = repo.document("attempt", "show", "pages", "--attempt", "2")["said"]
    assert [each["path"] for each in shown["files"]] == ["pages.txt"] and shown["whole"] is True
    assert [each["number"] for each in shown["checkpoints"]] == list(range(6 - len(shown["checkpoints"]), 6))
    assert "pages.txt" in repo.call("attempt", "show", "pages", "--attempt", "2").stdout
    repo.document("order", "files", "pages", "--attempt", "2", "--kept", "--to", str(repo.folder.parent / "kept"))
    assert (repo.folder.parent / "kept" / "pages.txt").read_text().count("text of page") == 5
    assert repo.document("order", "files", "pages", "--attempt", "1", "--kept")["items"] == []
    attempts = repo.document("attempt", "list", "pages")["items"]
    assert [each["state"] for each in attempts][1:] == ["yielded", "accepted"]
    assert attempts[0]["state"] not in ("accepted", "yielded")
    assert repo.document("journal", "replay")["match"] is True
    assert repo.document("journal", "verify")["ok"] is True


ASKING = """\
[budget]
attempts = 9

[[work]]
name = "asks"
inputs = ["ask.sh"]
run = ["sh", "ask.sh"]
"""
ASK = """\
echo state > s
fencepost attempt answer go --value && exit 0
fencepost attempt checkpoint s
fencepost attempt yield --question go --prompt "Two things are left:
- the first
- the second"
"""


def test_a_question_of_several_lines_is_told_as_lines_and_a_run_in_a_pipe_says_it(repo: Repo) -> None:
    repo.write("plan.toml", ASKING)
    repo.write("ask.sh", ASK)
    run = repo.call("run", "plan.toml")
    assert run.returncode == 9
    assert "asks: waiting (waiting_for_answer), asks go: Two things are left:\n" in run.stdout
    told = ["asks go: Two things are left:", "- the first", "- the second"]
    assert repo.document("order", "why", "asks")["details"] == told
    for shown in (repo.call("order", "show", "asks"), repo.call("order", "why", "asks"), run):
        assert "?" not in shown.stdout and "- the second" in shown.stdout
    repo.document("order", "answer", "asks", "one\ntwo")
    assert "?" not in repo.call("order", "show", "asks").stdout


@pytest.mark.parametrize(
    ("size", "from_stdin", "given"),
    [
        (ANSWER_BYTES_MAX + 1, False, f"{ANSWER_BYTES_MAX + 1} bytes"),
        (ANSWER_BYTES_MAX + 2, True, f"{ANSWER_BYTES_MAX + 2} bytes"),
        (2**24 + 9, True, f"{2**24} bytes or more"),
    ],
)
def test_case_40_an_answer_that_is_too_large_is_told_its_bound_its_size_and_what_to_do(
    tmp_path: Path, size: int, from_stdin: bool, given: str
) -> None:
    """Before any store is looked at: the folder has none."""
    text = "é" * (size // 2) + "x" * (size % 2)
    words = ["order", "answer", "asks", "-" if from_stdin else text, "--json"]
    done = subprocess.run([*CLI, *words], cwd=tmp_path, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 2 and done.stdout == b""
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (error["code"], error["where"]) == ("too_large", "/value")
    assert error["message"] == f"the answer has {given}, at most {ANSWER_BYTES_MAX} are taken"
    assert error["next"] == "write it to a file that the program can read, and answer with the path of the file"


def test_case_40_the_largest_answer_is_taken_and_given_whole(repo: Repo) -> None:
    repo.write("plan.toml", ASKING + 'outputs = ["got.txt"]\n')
    repo.write("ask.sh", ASK.replace("--value", "--value > got.txt"))
    assert repo.call("run", "plan.toml").returncode == 9
    text = "é" * (ANSWER_BYTES_MAX // 2)
    done = repo.call("order", "answer", "asks", "-", stdin=f"{text}\n")
    assert done.returncode == 0, done.stderr
    assert repo.document("run", "plan.toml")["outcome"] == "done"
    repo.document("order", "files", "asks", "--to", str(repo.folder.parent / "out"))
    [got] = (repo.folder.parent / "out").rglob("got.txt")
    assert got.read_text() == f"{text}\n"


PARENT = """\
[budget]
attempts = 9

[[work]]
name = "parent"
inputs = ["readme.txt", "kid.toml"]
outputs = ["got.txt"]
budget = { attempts = 9 }
run = ["sh", "-c", '''
set -eu
fencepost attempt child kid.toml
if fencepost attempt output kid seen.txt --to got.txt; then exit 0; fi
echo changed > readme.txt
fencepost attempt checkpoint readme.txt
fencepost attempt yield --child kid
''']
"""
KID = """\
name = "kid"
run = ["sh", "-c", "cat readme.txt > seen.txt; ls >> seen.txt"]
outputs = ["seen.txt"]
accept = { files = ["seen.txt"], verify = ["sh", "-c", "grep -q repository seen.txt"] }
"""


def test_w5_a_child_starts_from_what_its_parent_was_pinned_with(repo: Repo) -> None:
    repo.write("kid.toml", KID)
    repo.write("plan.toml", PARENT)
    document = repo.document("run", "plan.toml")
    assert document["outcome"] == "done"
    assert {order["name"]: order["state"] for order in document["orders"]}["parent"] == "applied"
    repo.document("order", "files", "parent", "--to", str(repo.folder.parent / "out"))
    got = next((repo.folder.parent / "out").rglob("got.txt")).read_text()
    assert got == "a repository\nkid.toml\nreadme.txt\nseen.txt\n"
    child = repo.document("order", "show", "parent.kid")
    shown = repo.call("order", "show", "parent.kid").stdout.splitlines()
    assert ["parent", "plan/parent"] in [line.split() for line in shown]
    charged = repo.document("order", "show", "parent")["charged"]["attempts"]
    table = {line.split()[0]: line.split() for line in repo.call("order", "list").stdout.splitlines()}
    assert charged == 2, "what its child was charged is charged to it as well"
    assert table["parent"][2] == table["parent.kid"][2] == "1", "the attempts of a child are the child's own"
    assert (child["state"], child["attempts"]) == ("applied", 1)
    assert repo.document("journal", "replay")["match"] is True


UNSURE = """\
[budget]
attempts = 5
calls = 50
money = { USD = "1.00" }

[[work]]
name = "unsure"
inputs = ["readme.txt"]
budget = { attempts = 3, calls = 6, per_attempt = { calls = 6, money = { USD = "0.25" } } }
run = ["sh", "-c", '''
set -eu
fencepost attempt charge --receipt "$FENCEPOST_WORK_ORDER" --unknown calls --unknown tokens-output --unknown USD
fencepost attempt yield --after 1ms
''']
"""


def test_w18_a_program_says_that_it_does_not_know_what_a_call_has_cost(repo: Repo) -> None:
    repo.write("plan.toml", UNSURE)
    assert repo.document("run", "plan.toml", code=7)["orders"][0]["state"] == "budget_exhausted"
    attempt = repo.document("attempt", "show", "unsure")
    counted = {"calls": 1, "money_micros:USD": 1, "tokens_output": 1}
    assert attempt["hold"]["unknown"] == counted
    assert {name: attempt["hold"]["charged"][name] for name in ("calls", "money_micros:USD")} == {
        "calls": 6,
        "money_micros:USD": 250_000,
    }
    said = "calls of 1 receipt, USD of 1 receipt, tokens-output of 1 receipt: all that was set aside for it is charged"
    order = repo.document("order", "show", "unsure")
    assert (order["unknown"], order["charged"]["calls"], order["attempts"]) == (counted, 6, 1)
    for noun in ("attempt", "order"):
        assert f"unknown {said}" in " ".join(repo.call(noun, "show", "unsure").stdout.split())
    budget = repo.document("budget", "show", "unsure")["items"]
    assert [account["dimensions"]["calls"]["unknown"] for account in budget] == [1, 1, 1]
    assert f"unknown: {said}" in " ".join(repo.call("budget", "show", "unsure").stdout.split())
    why = repo.call("order", "why", "unsure").stdout
    assert "unknown: calls of 1 receipt: all that was set aside for it is charged" in " ".join(why.split())
    assert repo.document("order", "why", "unsure")["budget"][0]["unknown"] == 1
    assert repo.document("journal", "replay")["match"] is True


WAITS = """\
[budget]
attempts = 3

[[work]]
name = "waits"
run = ["fencepost", "attempt", "yield", "--after", "1ms"]
"""


def test_w5_a_budget_that_waits_have_used_up_says_so(repo: Repo) -> None:
    repo.write("plan.toml", WAITS)
    run = repo.call("run", "plan.toml")
    why = repo.document("order", "why", "waits")
    assert (why["reason"], why["budget"][0]["waits"]) == ("budget_exhausted", 3)
    said = (
        "3 attempts of this order ended to wait and had saved nothing, so that they count: record a step or save a "
        "checkpoint before waiting"
    )
    for text in (run.stdout, repo.call("order", "why", "waits").stdout):
        assert said in " ".join(text.split()), text
