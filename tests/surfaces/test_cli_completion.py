"""Completion as people meet it: scripts in real shells, candidates from commands and store, silence otherwise."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost.surfaces.cli import frame
from fencepost.surfaces.cli.command_tree import read_all
from fencepost.surfaces.cli.completion import SCRIPTS
from fencepost.surfaces.cli.completion_words import candidates
from fencepost.surfaces.cli.frame import NOUNS
from tests.surfaces.cli_run_world import ONE, Repo, make_repo

PLAN = "[budget]\nattempts = 9\n" + "".join(
    f'[[work]]\nname = "{name}"\nrun = ["true"]\n' for name in ("build", "test-fast", "test-slow")
)
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
READY = {
    "bash": 'bind "set enable-bracketed-paste off"; eval "$(fencepost completion bash)"',
    "zsh": 'autoload -Uz compinit && compinit -u -D; bindkey -e; eval "$(fencepost completion zsh)"',
    "fish": "fencepost completion fish | source",
}
READ_S = 20.0
QUIET_S = 0.3


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    made = make_repo(tmp_path_factory.mktemp("completion"))
    made.write("nightly.toml", PLAN)
    made.write("other.toml", ONE)
    made.variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}
    for plan in ("other.toml", "nightly.toml"):
        made.document("plan", "submit", plan)
    return made


def words(repo: Repo, *typed: str) -> list[str]:
    done = repo.call("completion", "words", "--", *typed)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def test_nouns_verbs_and_options_are_those_of_the_commands(repo: Repo) -> None:
    assert words(repo, "") == [*NOUNS, "help"]
    assert words(repo) == [*NOUNS, "help"]
    assert words(repo, "or") == ["order"]
    assert words(repo, "order", "l") == ["list", "log"]
    assert words(repo, "order", "list", "--a") == ["--all", "--after"]
    assert words(repo, "order", "list", "--all", "--a") == ["--after"]
    assert words(repo, "--sc") == ["--scope"]
    assert words(repo, "help", "exit") == ["exit-codes"]
    assert words(repo, "completion", "") == ["bash", "zsh", "fish"]


def test_every_command_completes_each_of_its_options() -> None:
    for noun in read_all():
        for command in noun.commands:
            offered = {word for word, _ in candidates([*command.words, "--"])}
            assert offered >= {one.name for one in (*command.options, *command.shared)}, command.name


def test_names_come_from_the_store(repo: Repo) -> None:
    assert words(repo, "order", "why", "") == ["build", "test-fast", "test-slow", "nightly/", "other/"]
    assert words(repo, "order", "why", "te") == ["test-fast", "test-slow"]
    assert words(repo, "order", "why", "other/") == ["other/only"]
    assert words(repo, "plan", "show", "n") == ["nightly"]
    assert words(repo, "order", "list", "--plan", "") == ["nightly", "other"]
    assert words(repo, "order", "list", "--plan=n") == ["--plan=nightly"]
    assert words(repo, "order", "list", "--state", "rea") == ["ready"]
    assert words(repo, "order", "log", "--attempt", "1", "bu") == ["build"]
    assert words(repo, "order", "answer", "--question", "first", "te") == ["test-fast", "test-slow"]
    assert words(repo, "order", "answer", "build", "") == []
    assert words(repo, "budget", "show", "s") == ["scope"]
    assert words(repo, "--scope", "none", "order", "why", "") == []
    assert words(repo, "--home", str(repo.folder / ".fencepost"), "plan", "show", "o") == ["other"]


def test_for_an_answer_those_that_ask_are_offered(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    asks = 'run = ["fencepost", "attempt", "yield", "--question", "go-on"]'
    for name in ("first", "second"):
        repo.write(f"{name}.toml", f'{ONE.replace("only", "done")}[[work]]\nname = "{name}-asks"\n{asks}\n')
        assert repo.call("run", f"{name}.toml").returncode == 9
    assert words(repo, "order", "answer", "") == ["second-asks", "first/first-asks"]
    assert words(repo, "order", "answer", "first/") == ["first/first-asks"]
    told = repo.call("completion", "words", "--", "order", "answer", "se").stdout
    assert told == "second-asks\tasks go-on\n"


def test_of_two_open_plans_of_one_name_ids_are_offered(tmp_path: Path) -> None:
    """Each is taken as it is offered (decision 0020)."""
    repo = make_repo(tmp_path)
    repo.variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    runs = []
    for prompt, option in (("Go?", ()), ("Go on?", ("--new",))):
        asks = f'run = ["fencepost", "attempt", "yield", "--question", "go", "--prompt", "{prompt}"]'
        repo.write("w.toml", f'[budget]\nattempts = 3\n[[work]]\nname = "a"\n{asks}\n')
        runs.append(repo.document("run", "w.toml", *option, code=9))
    offered = words(repo, "order", "answer", "")
    assert sorted(offered) == sorted(run["orders"][0]["id"] for run in runs)
    assert sorted(words(repo, "plan", "cancel", "")) == sorted(run["plan"] for run in runs)
    for order in offered:
        repo.document("order", "answer", order, "yes")


def test_names_of_a_large_plan_are_found_behind_its_first_thousand(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    orders = "".join(
        f'[[work]]\nname = "o{number}"\nrun = ["true"]\ninputs = ["readme.txt"]\n' for number in range(1_500)
    )
    repo.write("large.toml", f"[budget]\nattempts = 4000\n{orders}")
    repo.document("plan", "submit", "large.toml")
    assert words(repo, "order", "why", "o149") == ["o149", *(f"o149{digit}" for digit in range(10))]


def test_files_and_folders_are_left_to_the_shell(repo: Repo) -> None:
    for typed in (("run", "ni"), ("plan", "check", ""), ("doctor", ""), ("order", "graph", "--svg", "")):
        assert words(repo, *typed) == [":files"]
    for typed in (("--home", ""), ("run", "--repo", ""), ("order", "files", "x", "--to", "")):
        assert words(repo, *typed) == [":folders"]


def test_it_is_silent_where_anything_is_wrong(repo: Repo, tmp_path: Path) -> None:
    empty = make_repo(tmp_path)
    assert words(empty, "order", "why", "") == []
    assert words(empty, "budget", "show", "") == ["scope"]
    for typed in (("nonsense", ""), ("order", "nonsense", ""), ("version", ""), ("order", "why", "none/")):
        assert words(empty, *typed) == []
    empty.document("init")
    (empty.folder / ".fencepost" / "store.db").write_bytes(b"no database" * 100)
    assert words(empty, "order", "why", "") == []
    assert words(empty, "budget", "show", "") == ["scope"]
    empty.write("fencepost.toml", "scoop = 1\n")
    assert words(empty, "order", "why", "") == []


def test_it_reads_only(repo: Repo) -> None:
    home = repo.folder / ".fencepost"

    def seen() -> dict[str, tuple[int, int]]:
        shared = ("store.db-shm", "store.db-wal")
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size)
            for path in home.rglob("*")
            if path.name not in shared and path != home
        }

    before = seen()
    assert words(repo, "order", "why", "bu") == ["build"]
    assert seen() == before


def test_a_store_that_does_not_answer_is_given_up(repo: Repo, tmp_path: Path) -> None:
    """A home on a dead disk must not stop whoever types: here a pipe that nobody writes to stands for it."""
    slow = make_repo(tmp_path)
    slow.document("init")
    (slow.folder / ".fencepost" / "layout").unlink()
    os.mkfifo(slow.folder / ".fencepost" / "layout")
    script = (
        "import time, fencepost.surfaces.cli.completion_words as w; w.candidates = lambda typed: time.sleep(60);"
        "from fencepost.surfaces.cli.completion import print_candidates; print_candidates(['x'])"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert time.monotonic() - began < 20
    assert words(slow, "order", "why", "") == []


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_scripts_are_of_their_shell(repo: Repo, shell: str) -> None:
    script = repo.call("completion", shell).stdout
    assert script == SCRIPTS[shell] == repo.document("completion", shell)["script"]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")


def in_bash(repo: Repo, line: str) -> list[str]:
    """COMPREPLY as readline would ask for it: words broken where it breaks them."""
    typed = [word for word in re.split(r"\s+|([=:])", line) if word]
    if line.endswith(" "):
        typed.append("")
    array = " ".join(f"'{word}'" for word in typed)
    script = (
        f'eval "$(fencepost completion bash)"\nCOMP_WORDS=({array})\nCOMP_CWORD={len(typed) - 1}\n'
        "_fencepost\nprintf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=repo.folder,
        env=repo.environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("fencepost ord", ["order"]),
        ("fencepost order why te", ["test-fast", "test-slow"]),
        ("fencepost order why nightly/b", ["nightly/build"]),
        ("fencepost order list --plan=n", ["nightly"]),
        ("fencepost order list --plan n", ["nightly"]),
        ("fencepost run ni", ["nightly.toml"]),
        ("fencepost run ", ["nightly.toml", "other.toml", "readme.txt"]),
        ("fencepost run .fe", [".fencepost"]),
        ("fencepost run .fencepost/key", [".fencepost/keys"]),
        ("fencepost nonsense ", []),
    ],
)
def test_bash_is_offered_what_fits_into_its_words(repo: Repo, line: str, found: list[str]) -> None:
    assert sorted(in_bash(repo, line)) == sorted(found)


class Terminal:
    """A real shell on a terminal of its own, with completion switched on."""

    def __init__(self, repo: Repo, shell: str) -> None:
        self.process, self._terminal = pty.fork()
        if self.process == 0:
            os.chdir(repo.folder)
            os.execvpe(SHELLS[shell][0], SHELLS[shell], {**repo.environment(), "PS1": "$ ", "fish_greeting": ""})
        self.type(f"{READY[shell]}\r")
        self.type("echo are''you''there\r")
        self.read_until("areyouthere")

    def completed(self, line: str, expected: str) -> str:
        """Type a line with a tab at its end; returns the line that the shell makes of it."""
        self.type(f"{line}\t")
        self.read_until(expected.removeprefix(line).strip())
        self.type("\x01echo GOT: \x05 :END\r")  # to the begin of the line, and to its end
        said = re.findall(r"^GOT: (.*?) *:END", self.read_until("\nGOT: ").replace("\r", "\n"), re.MULTILINE)
        return str(said[-1]) if said else ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_until(self, text: str) -> str:
        """What is shown until `text` has come and nothing more follows, or the time is up."""
        told = ""
        until = time.monotonic() + READ_S
        while time.monotonic() < until:
            ready, _, _ = select.select([self._terminal], [], [], QUIET_S)
            if ready:
                told += os.read(self._terminal, 4_096).decode("utf-8", "replace")
            elif text in told:
                break
        return told

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self._terminal)


COMPLETED = {
    "fencepost ord": "fencepost order",
    "fencepost order why bu": "fencepost order why build",
    "fencepost order why other/o": "fencepost order why other/only",
    "fencepost run nig": "fencepost run nightly.toml",
    "fencepost order list --plan=nig": "fencepost order list --plan=nightly",
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_tab_completes_in_a_real_shell(repo: Repo, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    terminal = Terminal(repo, shell)
    try:
        assert {line: terminal.completed(line, wanted) for line, wanted in COMPLETED.items()} == COMPLETED
    finally:
        terminal.close()


def test_what_scripts_ask_with_is_offered_to_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.run(("completion", "--help")) == 0
    assert "words|" not in (told := capsys.readouterr().out) and "|words" not in told and "`words`" not in told
    assert frame.run(("completion", "fishy")) == 2
    told = capsys.readouterr().err
    assert "bash, zsh, fish" in told and "Did you mean fish?" in told and "words" not in told
