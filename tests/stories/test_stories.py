"""Stories: what a person types and what is said, as golden text that is reviewed as a diff.

`FENCEPOST_STORIES=write` writes the transcripts anew; ids, durations and times stand as words in them. Each story is
a repository with files and a list of commands; what they say on stderr follows what they say on stdout.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import Repo, make_repo, steady

HERE = Path(__file__).parent

BUILD = """\
objective = "the greeting is made, proved and packed"
[budget]
attempts = 12
time = "30m"

[[work]]
name = "spelling"
run = ["sh", "-c", "echo 'greeting.txt:1: helo' >&2; exit 1"]
may_fail = true

[[work]]
name = "greeting"
needs = [{ done = ["spelling"] }]
run = ["sh", "-c", "test $FENCEPOST_FENCE -gt 1 || exit 75; echo hello > greeting.txt"]
outputs = ["greeting.txt"]
retry = { on = ["executor"], backoff = "20ms" }
accept = { files = ["greeting.txt"], verify = ["grep", "-q", "hello", "greeting.txt"] }

[[work]]
name = "pack"
needs = ["greeting"]
inputs = [{ from = "greeting", files = ["greeting.txt"] }]
run = ["sh", "-c", "tr a-z A-Z < greeting.txt > packed.txt"]
outputs = ["packed.txt"]
"""

FAILS = """\
[budget]
attempts = 6

[[work]]
name = "compile"
run = ["sh", "-c", "echo 'main.c: no such file' >&2; exit 2"]

[[work]]
name = "link"
needs = ["compile"]
run = ["true"]
"""

PROBLEMS = """\
[budget]
attempts = 1

[[work]]
name = "a"
run = ["true"]
needs = ["b"]
inputs = ["src/**"]

[[work]]
name = "b"
run = "true"
needs = ["a"]
timeout = "5s"
"""

STORIES: dict[str, tuple[dict[str, str], list[str]]] = {
    "the_main_job": (
        {"build.toml": BUILD},
        ["run build.toml --jobs 1", "run build.toml", "order list", "order why spelling", "plan show build"],
    ),
    "a_failure_and_what_waited_for_it": (
        {"fails.toml": FAILS},
        ["run fails.toml --jobs 1", "order why link", "order log compile", "run fails.toml --again --jobs 1"],
    ),
    "problems_of_a_plan": (
        {"plan.toml": PROBLEMS, "torn.toml": "[budget\n"},
        ["plan check plan.toml", "run plan.toml", "run torn.toml", "run nothing.toml", "plan list"],
    ),
    "the_identity_of_a_plan": (
        {"plan.toml": FAILS, "changed.toml": 'name = "plan"\n' + FAILS.replace('["true"]', '["false"]')},
        [
            "plan submit plan.toml",
            "plan submit plan.toml",
            "run changed.toml",
            "plan diff changed.toml",
            "plan cancel plan",
            "run changed.toml --jobs 1",
            "plan list",
        ],
    ),
    "words_that_are_no_command": (
        {},
        ["pan", "plan chekc", "effect list", "run", "plan list", "--json plan list"],
    ),
}


def transcript(repo: Repo, commands: list[str]) -> str:
    told = []
    for command in commands:
        done = repo.call(*shlex.split(command))
        told.append(f"$ fencepost {command}\n{done.stdout}{done.stderr}[exit {done.returncode}]\n")
    return steady("\n".join(told), repo)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_story(tmp_path: Path, name: str) -> None:
    files, commands = STORIES[name]
    repo = make_repo(tmp_path)
    for path, text in files.items():
        repo.write(path, text)
    told = transcript(repo, commands)
    golden = HERE / f"{name}.txt"
    if os.environ.get("FENCEPOST_STORIES") == "write":
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")


def test_every_transcript_belongs_to_a_story() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(STORIES)
