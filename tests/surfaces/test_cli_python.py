"""X10: callables from a plan file to their end, and what is refused before anything is submitted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.support.interpreters import interpreters
from tests.surfaces.cli_run_world import Repo, make_repo

PLAN = """
[budget]
attempts = 3
[[work]]
name = "a"
executor = "python"
call = "work:summarize"
"""
MODULE = """
import fencepost as fp

@fp.executor("summarize", version=2)
def summarize(attempt):
    raise SystemExit(3)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def codes(repo: Repo) -> dict[str, str]:
    done = repo.call("plan", "check", "plan.toml", "--json")
    return {error["where"]["at"]: error["code"] for error in json.loads(done.stdout)["errors"]}


def test_x10_name_version_and_interpreter_stand_in_the_spec(repo: Repo) -> None:
    repo.write("plan.toml", PLAN)
    repo.write("work.py", MODULE)
    assert codes(repo) == {}
    repo.document("plan", "submit", "plan.toml")
    spec = repo.document("order", "show", "a")["spec"]
    interpreter = spec["python"].pop("interpreter")
    assert Path(interpreter).is_absolute()
    assert spec["work_kind"] == "python/1" and spec["run"] == []
    assert spec["python"] == {"call": "work:summarize", "name": "summarize", "version": 2}
    shown = repo.call("order", "show", "a").stdout
    assert "work:summarize, declared as summarize version 2" in shown and interpreter in shown


@pytest.mark.parametrize(
    ("code", "at", "plan", "module"),
    [
        ("module_missing", "/work/0/call", PLAN.replace("work:", "nowhere:"), MODULE),
        ("module_not_pinned", "/work/0/call", PLAN + 'inputs = ["other.py"]\n', MODULE),
        ("module_unreadable", "/work/0/call", PLAN, "def summarize(:\n"),
        ("function_missing", "/work/0/call", PLAN, "import fencepost\n"),
        ("not_an_executor", "/work/0/call", PLAN, "def summarize(attempt):\n    pass\n"),
        ("not_literal", "/work/0/call", PLAN, MODULE.replace("version=2", "version=V")),
        ("python_missing", "/python", 'python = "no-such-python"\n' + PLAN, MODULE),
        ("python_unsuited", "/python", 'python = "/bin/true"\n' + PLAN, MODULE),
    ],
)
def test_x10_each_thing_that_is_wrong_has_its_code(repo: Repo, code: str, at: str, plan: str, module: str) -> None:
    repo.write("plan.toml", plan)
    repo.write("work.py", module)
    repo.write("other.py", "")
    assert codes(repo) == {at: code}


def test_x10_nothing_of_the_module_runs_at_submission(repo: Repo) -> None:
    repo.write("plan.toml", PLAN)
    repo.write("work.py", f"open('ran', 'w').close()\n{MODULE}")
    repo.document("plan", "submit", "plan.toml")
    assert not (repo.folder / "ran").exists()


def test_x10_another_callable_is_another_plan(repo: Repo) -> None:
    repo.write("plan.toml", PLAN)
    repo.write("work.py", MODULE + MODULE.replace("def summarize", "def other"))
    repo.document("plan", "submit", "plan.toml")
    repo.write("plan.toml", PLAN.replace("work:summarize", "work:other"))
    changed = repo.document("plan", "diff", "plan.toml", code=5)["changed"]
    assert [change["fields"] for change in changed] == [["call"]]
    repo.write("plan.toml", f"python = {json.dumps(sys.executable)}\n{PLAN}")
    changed = repo.document("plan", "diff", "plan.toml", code=5)["changed"]
    assert [(change["name"], change["fields"]) for change in changed] == [("", ["python"])]


RUN = """
{head}
[budget]
attempts = 9
[[work]]
name = "a"
executor = "python"
call = "work:work"
outputs = ["out/**"]
params = {{ n = 3 }}
{more}
"""


def write(repo: Repo, body: str, *, head: str = "", more: str = "") -> None:
    top = 'import os, time\nimport fencepost as fp\n\n@fp.executor("work", version=1)\ndef work(attempt: fp.Attempt):\n'
    repo.write("work.py", top + textwrap.indent(textwrap.dedent(body), "    "))
    repo.write("plan.toml", RUN.format(head=head, more=more))


def end_of(repo: Repo, code: int = 7) -> tuple[str, str, str]:
    """State, reason and message of the order, after a run that ends with `code`."""
    repo.document("run", "plan.toml", code=code)
    shown = repo.document("order", "show", "a")
    failure = repo.document("order", "why", "a")
    return shown["state"], shown["reason"], " ".join(failure.get("details", []))


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_x10_a_callable_runs_to_its_end_under_each_interpreter(repo: Repo, version: str) -> None:
    body = """
        os.mkdir("out")
        doubled = attempt.step("double", lambda n: 2 * n, attempt.params["n"])
        attempt.charge(receipt="r1", tokens_input=5, money={"USD": "0.01"})
        attempt.heartbeat("half")
        open("out/a.txt", "w").write(f"{doubled}\\n")
        print("said")
        return fp.Result.succeeded(files=["out/a.txt"])
        """
    write(repo, body, head=f"python = {json.dumps(interpreters()[version])}")
    (order,) = repo.document("run", "plan.toml")["orders"]
    assert (order["state"], order["attempts"]) == ("applied", 1)
    assert [file["path"] for file in order["artifacts"]] == ["out/a.txt"]
    assert (order["charged"]["tokens_input"], order["charged"]["money_micros"]) == (5, {"USD": 10_000})
    assert repo.call("order", "log", "a").stdout == "said\n"
    assert repo.document("journal", "verify")["ok"] and repo.document("journal", "replay")["match"]


def test_x10_an_interpreter_without_fencepost_runs_callables(repo: Repo) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", repo.folder / "venv"], check=True, timeout=60)
    repo.write(".gitignore", "venv\n")
    write(repo, "print(__import__('sys').prefix, attempt.step('a', lambda: 1))", head='python = "venv/bin/python"')
    repo.document("run", "plan.toml")
    assert repo.call("order", "log", "a").stdout == f"{repo.folder / 'venv'} 1\n"


@pytest.mark.parametrize(
    ("body", "reason", "said"),
    [
        ("raise ValueError('no such page')", "callable_raised", "ValueError: no such page"),
        ("return fp.Result.failed('validation', 'too short')", "callable_failed", "too short"),
        ("return fp.Result.succeeded(files=['work.py'])", "outputs_missing", "work.py"),
        ("attempt.step('a', object)", "step_refused", "of type object"),
        ("return 1", "result_invalid", "not a fencepost.Result"),
        ("os._exit(3)", "exit_code_unexpected", "exit code 3"),
        ("os._exit(0)", "callable_raised", "neither returned nor raised"),
        ("os.kill(os.getpid(), 9)", "killed_by_signal", "signal 9"),
        ("import nothing_like_it", "callable_raised", "work.py:6 in work"),
    ],
)
def test_x10_an_end_says_why(repo: Repo, body: str, reason: str, said: str) -> None:
    write(repo, body)
    state, why, details = end_of(repo)
    assert (state, why) == ("failed", reason)
    assert said in details


def test_x10_only_what_may_pass_is_tried_again(repo: Repo) -> None:
    body = """
        tries = os.path.join(os.environ["FENCEPOST_REPO"], "tries")
        open(tries, "a").write("x")
        if len(open(tries).read()) < 3:
            raise fp.TransientError("away")
        raise fp.InputError("no such page")
        """
    write(repo, body, more='retry = { on = ["transient_dependency"], backoff = "1ms" }')
    repo.write(".gitignore", "tries\n")
    assert end_of(repo)[:2] == ("failed", "callable_failed")
    assert (repo.folder / "tries").read_text() == "xxx"


def test_w6_a_callable_that_waits_for_a_person_goes_on_behind_its_steps(repo: Repo) -> None:
    body = """
        attempt.step("count", lambda: open(os.path.join(os.environ["FENCEPOST_REPO"], "counted"), "a").write("x"))
        name = attempt.ask("who", "Who is it?")
        os.mkdir("out")
        open("out/name", "w").write(name)
        """
    write(repo, body)
    repo.write(".gitignore", "counted\n")
    document = repo.document("run", "plan.toml", code=9)
    assert [order["state"] for order in document["orders"]] == ["waiting"]
    shown = repo.document("order", "show", "a")["steps"]
    assert (shown["count"], shown["last"], shown["whole"]) == (1, "count", True)
    assert "1 recorded step, the last one count" in repo.call("order", "show", "a").stdout
    waiting = [line for line in repo.call("order", "list").stdout.splitlines() if line.startswith("a ")]
    assert waiting[0].split()[3] == "-", "a yield gives the attempt back: none is charged, here as in the summary"
    repo.document("order", "answer", "a", "Ada")
    (order,) = repo.document("run", "plan.toml")["orders"]
    assert (order["state"], (repo.folder / "counted").read_text()) == ("applied", "x")
    repo.document("order", "files", "a", "--to", "got")
    assert (repo.folder / "got" / "out" / "name").read_text() == "Ada"


def test_c8_a_drain_lets_a_step_end_and_costs_nothing(repo: Repo) -> None:
    body = """
        started = os.path.join(os.environ["FENCEPOST_REPO"], "started")
        def slow():
            open(started, "a").write("x")
            time.sleep(1.5)
            return 1
        attempt.step("slow", slow)
        attempt.step("second", lambda: None if os.path.exists(started + "-again") else time.sleep(60))
        """
    write(repo, body)
    repo.write(".gitignore", "started*\n")
    run = repo.start("run", "plan.toml")
    while not (repo.folder / "started").exists():
        assert run.poll() is None
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 130, output
    shown = repo.document("order", "show", "a")
    assert (shown["state"], shown["charged"]["attempts"]) == ("ready", 0)
    repo.write("started-again", "")
    (order,) = repo.document("run", "plan.toml")["orders"]
    assert (order["state"], (repo.folder / "started").read_text()) == ("applied", "x")


def test_x10_what_is_loaded_is_compared_again_with_what_the_order_names(repo: Repo) -> None:
    write(repo, "raise RuntimeError('never')")
    with (repo.folder / "work.py").open("a") as file:
        file.write("\n\nwork = fp.executor('other', version=1)(lambda attempt: None)\n")
    state, reason, details = end_of(repo)
    assert (state, reason) == ("failed", "executor_changed")
    assert "'other' version 1" in details
