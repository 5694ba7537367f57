"""The live view as a person has it: the real command on a real terminal, whatever is pressed or sent."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import CLI, Repo, make_repo, wait_for_no_process
from tests.surfaces.terminal_world import FULL_CLEAR, OnTerminal

PLAN = """\
name = "seen"
[budget]
attempts = 9
money = { USD = "2.50" }

[[work]]
name = "quick"
run = ["true"]

[[work]]
name = "long"
needs = ["quick"]
run = ["sh", "-c", '''
printf 'step one\\n\\033[31m\\033[2Jstep two\\n'
while ! test -e $FENCEPOST_REPO/go; do sleep 0.05; done
''']

[[work]]
name = "wrong"
run = ["sh", "-c", "exit 3"]
may_fail = true

[[work]]
name = "last"
needs = ["long"]
run = ["true"]
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", PLAN)
    return repo


def on_terminal(repo: Repo, *words: str, columns: int = 80, rows: int = 24, **variables: str) -> OnTerminal:
    environment = {**repo.environment(), **variables}
    return OnTerminal([*CLI, *words], folder=repo.folder, environment=environment, columns=columns, rows=rows)


def run(repo: Repo, *words: str, **options: object) -> OnTerminal:
    return on_terminal(repo, "run", "plan.toml", "--jobs", "2", *words, **options)  # type: ignore[arg-type]  # sizes and variables


def seen(terminal: OnTerminal) -> None:
    """Wait for the middle: one runs, one failed, one waits."""
    terminal.until("step two")
    terminal.until(lambda screen: "exit code 3, not 0" in screen.text)


def test_w28_a_run_shows_its_graph_and_ends_with_a_table(repo: Repo) -> None:
    terminal = run(repo)
    seen(terminal)
    lines = terminal.lines()
    assert any(line.startswith("seen ") and "2/4" in line for line in lines)
    for start, part in (("1 ✓ quick", "applied"), ("  ✗ wrong", "may fail"), ("2 ● long", "running")):
        assert any(line.startswith(start) and part in line for line in lines), terminal.text
    assert any(line.startswith("3 · last") and "needs long" in line for line in lines)
    assert any("attempts" in line and "/9" in line and "0.00/2.50" in line for line in lines)
    assert terminal.screen.cursor.hidden
    repo.write("go", "")
    assert terminal.ended() == 0
    text = terminal.text
    assert "plan seen: done (3 applied, 1 failed)" in text and "✗ wrong  failed" in text
    assert "step two" not in text and "running" not in text, "nothing is left of the view"
    assert terminal.is_given_back and not FULL_CLEAR.search(terminal.raw)
    assert max(map(len, terminal.lines())) < 80 and terminal.scrolled() == []


def test_w28_time_passes_on_the_screen_with_few_drawings(repo: Repo) -> None:
    terminal = run(repo)
    seen(terminal)
    before = len(terminal.raw)
    terminal.until(lambda screen: any("● long" in line and " 2s" in line for line in screen.lines()))
    drawings = terminal.raw[before:].count(b"\x1b[?2026h")
    assert drawings <= 16, "at most eight a second, and here one"
    assert len(terminal.raw) - before < drawings * 400, "only what has changed is written"
    repo.write("go", "")
    assert terminal.ended() == 0


def test_w28_control_c_drains_and_gives_the_terminal_back(repo: Repo) -> None:
    terminal = run(repo)
    seen(terminal)
    assert not terminal.echoes()
    terminal.type(b"typed\x03")
    assert terminal.ended() == 130
    assert terminal.is_given_back and "interrupted" in terminal.text
    assert "^C" not in terminal.text and "typed" not in terminal.text, "what is typed does not disturb the view"
    wait_for_no_process(repo.folder / ".fencepost", 5.0)


def test_w28_a_second_signal_gives_the_terminal_back_too(repo: Repo) -> None:
    repo.write("plan.toml", PLAN.replace("printf", "trap '' TERM; printf"))
    terminal = run(repo)
    seen(terminal)
    terminal.send(signal.SIGTERM)
    terminal.until("another signal")
    terminal.send(signal.SIGTERM)
    assert terminal.ended() == 143
    assert terminal.is_given_back
    wait_for_no_process(repo.folder / ".fencepost", 15.0)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_closed_terminal_is_a_hangup_and_no_failure(repo: Repo, term: str) -> None:
    """The work is drained, and what is said to nobody is no error."""
    terminal = run(repo, TERM=term)
    terminal.until("long: active" if term == "dumb" else "step two")
    assert terminal.hang_up() == 129
    assert repo.states("seen")["long"] == "ready"
    wait_for_no_process(repo.folder / ".fencepost", 5.0)


def test_w28_control_z_gives_the_terminal_back_and_fg_takes_it_again(repo: Repo) -> None:
    script = f"set -m; {' '.join(CLI)} run plan.toml --jobs 2; echo back; while ! test -e fg; do sleep 0.05; done; fg"
    terminal = OnTerminal(["sh", "-c", script], folder=repo.folder, environment=repo.environment())
    seen(terminal)
    terminal.type(b"\x1a")
    terminal.until("back")
    assert terminal.is_given_back and terminal.echoes()
    assert terminal.lines()[-1] == "back", "the shell goes on below the view"
    repo.write("fg", "")
    terminal.until(
        lambda screen: screen.text.rfind("● long") > screen.text.find("back") and screen.screen.cursor.hidden
    )
    repo.write("go", "")
    assert terminal.ended() == 0
    assert terminal.is_given_back and "plan seen: done" in terminal.text


def test_w28_a_resize_is_drawn_anew(repo: Repo) -> None:
    terminal = run(repo)
    seen(terminal)
    terminal.resize(50, 24)
    terminal.until(lambda screen: "│ exit code 3, not 0" in screen.text)
    assert terminal.text.count("● long") == 1
    assert all(len(line) < 50 for line in terminal.lines())
    repo.write("go", "")
    assert terminal.ended() == 0


def test_an_error_gives_the_terminal_back(repo: Repo) -> None:
    terminal = run(repo)
    seen(terminal)
    store = repo.folder / ".fencepost" / "store.db"
    for path in (store, store.with_name("store.db-wal")):
        path.write_bytes(b"x" * 8_192)
    code = terminal.ended()
    assert code not in (0, 130) and terminal.is_given_back


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"CI": "true"}])
def test_where_nobody_looks_there_are_plain_lines(repo: Repo, variables: dict[str, str]) -> None:
    repo.write("go", "")
    terminal = run(repo, **variables)
    assert terminal.ended() == 0
    assert "long: active (attempt_running)" in terminal.text
    assert b"\x1b[?" not in terminal.raw


def test_no_color_is_honoured_by_view_and_summary(repo: Repo) -> None:
    terminal = run(repo, NO_COLOR="1")
    seen(terminal)
    repo.write("go", "")
    assert terminal.ended() == 0
    assert b"m\x1b" not in terminal.raw and b"[32m" not in terminal.raw and b"\x1b[2m" not in terminal.raw


def test_with_json_the_view_is_on_stderr_and_the_document_on_stdout(repo: Repo) -> None:
    script = f"{' '.join(CLI)} run plan.toml --jobs 2 --json > out.json"
    terminal = OnTerminal(["sh", "-c", script], folder=repo.folder, environment=repo.environment())
    seen(terminal)
    repo.write("go", "")
    assert terminal.ended() == 0
    assert terminal.is_given_back
    document = json.loads((repo.folder / "out.json").read_text())
    assert document["outcome"] == "done" and len(document["orders"]) == 4


def test_force_color_paints_a_summary_in_a_pipe(repo: Repo) -> None:
    repo.write("go", "")
    assert "\x1b[" not in repo.call("run", "plan.toml").stdout
    repo.variables["FORCE_COLOR"] = "1"
    again = repo.call("run", "plan.toml").stdout
    assert "\x1b[" in again and "\x1b[?" not in again
    repo.variables["NO_COLOR"] = "1"
    assert "\x1b[" not in repo.call("run", "plan.toml").stdout


def test_w28_watch_is_the_same_view_and_only_reads(repo: Repo) -> None:
    repo.document("plan", "submit", "plan.toml")
    watching = on_terminal(repo, "order", "watch", "--plan", "seen")
    watching.until("ready")
    watching.until("no worker is alive")
    one = on_terminal(repo, "order", "watch", "long")
    one.until("needs quick")
    assert "wrong" not in one.text, "only the order and what it waits for"
    working = repo.start("run", "plan.toml", "--jobs", "2")
    for terminal in (watching, one):
        terminal.until("step two")
    repo.write("go", "")
    assert one.ended() == 0 and watching.ended() == 0
    assert working.wait(30) == 0
    working.communicate()
    for terminal in (watching, one):
        assert terminal.is_given_back
        assert any("✓ long" in line and "applied" in line for line in terminal.lines()), "the last picture stays"
    assert any("✗ wrong" in line for line in watching.lines())


def test_leaving_a_watch_leaves_the_work_alone(repo: Repo) -> None:
    repo.document("plan", "submit", "plan.toml")
    watching = on_terminal(repo, "order", "watch", "--plan", "seen")
    watching.until("Ctrl-C ends the watching")
    watching.type(b"\x03")
    assert watching.ended() == 130
    assert watching.is_given_back and "quick" in watching.text
    assert set(repo.states("seen").values()) == {"ready", "blocked_dependency"}


def test_watch_says_what_failed_by_its_code(repo: Repo) -> None:
    repo.write("bad.toml", '[budget]\nattempts = 3\n[[work]]\nname = "bad"\nrun = ["false"]\n')
    repo.document("run", "bad.toml", code=7)
    watching = on_terminal(repo, "order", "watch", "bad/bad")
    assert watching.ended() == 7
    assert "exit code 1, not 0" in watching.text


def test_in_the_background_a_run_leaves_the_terminal_alone(repo: Repo) -> None:
    """Started with `&` by a shell with job control, it says plain lines."""
    repo.write("go", "")
    script = f"set -m; {' '.join(CLI)} run plan.toml --jobs 2 & wait $!; echo over"
    terminal = OnTerminal(["sh", "-c", script], folder=repo.folder, environment=repo.environment())
    assert terminal.ended() == 0
    assert "long: active" in terminal.text and b"\x1b[?25l" not in terminal.raw


def test_a_view_costs_nothing_where_it_is_not_wanted(repo: Repo) -> None:
    code = "import sys; import fencepost.surfaces.cli.run; sys.exit(any('rich' in name for name in sys.modules))"
    assert subprocess.run([CLI[0], "-c", code], check=False).returncode == 0
