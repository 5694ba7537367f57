"""`fencepost attempt heartbeat|checkpoint|…`, called as a program in an attempt calls them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.commands import AnswerOrder
from fencepost.surfaces.cli import attempt_inside, frame, inside
from fencepost.surfaces.cli.command_pages import PAGES
from fencepost.surfaces.cli.command_tree import Command, Parameter, read_noun
from tests.services.speaker import Speaker
from tests.services.world import World, opened_world

NEEDS = {
    "checkpoint": ["-"],
    "charge": ["--receipt", "r", "--calls", "1"],
    "artifact": ["x"],
    "answer": ["x"],
    "child": ["-"],
    "output": ["x", "y"],
}
CLI = [sys.executable, "-m", "fencepost", "attempt"]


class Inside:
    """A running attempt, and the command line in its place."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.speaker = Speaker(world)
        self.plan = world.submit(self.speaker.draft(ceilings={"attempts": 9, "calls": 100}, per_attempt={"calls": 9}))
        world.worker(jobs=1)
        self.speaker.next().close()

    def call(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*CLI, *words],
            cwd=self.speaker.workspace,
            env=self.speaker.environment,
            input=stdin,
            capture_output=True,
            timeout=30,
            check=False,
        )

    def into(self, place: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Call it with its standard output going to a file."""
        with open(place, "wb") as out:
            return subprocess.run(
                [*CLI, *words],
                cwd=self.speaker.workspace,
                env=self.speaker.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=30,
                check=False,
            )

    def receipt(self, *words: str, stdin: bytes = b"") -> Any:
        done = self.call(*words, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done
        assert done.stdout.count(b"\n") == 1
        return json.loads(done.stdout)

    def error(self, *words: str, code: int, stdin: bytes = b"") -> Any:
        done = self.call(*words, "--json", stdin=stdin)
        assert (done.returncode, done.stdout) == (code, b""), done
        return json.loads(done.stderr)["error"]

    def again(self) -> None:
        self.speaker.end()
        self.speaker.next().close()


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Inside]:
    with opened_world(tmp_path) as world:
        yield Inside(world)


def test_w5_each_command_prints_its_receipt(at: Inside) -> None:
    assert at.receipt("heartbeat", "--note", "page é")["recorded"] is True
    assert at.speaker.state().note == "page é"
    assert at.receipt("status").keys() == {"lease_left_us", "stopping"}
    assert at.receipt("hello")["attempt"] == at.speaker.state().attempt
    (at.speaker.workspace / "a.txt").write_bytes(b"\x00state\xff")
    assert at.error("resume", code=3)["code"] == "no_checkpoint"
    assert at.receipt("checkpoint", "a.txt")["number"] == 1
    assert at.receipt("checkpoint", "-", "--builds-on", "1", stdin=b"from stdin")["number"] == 2
    assert at.receipt("checkpoint", "a.txt", "--builds-on", "0")["duplicate"] is True
    assert at.error("checkpoint", "-", "--builds-on", "0", code=5, stdin=b"else")["code"] == "checkpoint_moved"
    assert at.call("resume").stdout == b"from stdin"
    receipt = at.receipt("resume", "--to", "b.txt")
    assert (receipt["number"], receipt["size"], receipt["to"]) == (2, 10, "b.txt")
    assert (at.speaker.workspace / "b.txt").read_bytes() == b"from stdin"
    charge = ("charge", "--receipt", "r1", "--calls", "2", "--tokens-input", "3", "--tokens-output", "4")
    booked = at.receipt(*charge, "--money", "USD:0.004", "--money", "EUR:1", "--provider", "acme")
    assert (booked["duplicate"], booked["left"]["calls"]) == (False, 7)
    assert at.receipt(*charge, "--money", "USD:0.004", "--money", "EUR:1", "--provider", "acme")["duplicate"] is True
    assert at.error("charge", "--receipt", "r1", "--calls", "3", "--provider", "acme", code=5)["code"] == (
        "receipt_differs"
    )
    assert at.receipt("artifact", "a.txt")["size"] == 7
    assert at.error("artifact", "/etc/hostname", code=2)["code"] == "bad_path_name"


def test_w6_without_a_checkpoint_an_optional_resume_says_nothing(at: Inside) -> None:
    target = at.speaker.workspace / "kept.txt"
    for words in (("--optional",), ("--optional", "--to", "kept.txt"), ("--to", "kept.txt", "--optional", "--json")):
        done = at.call("resume", *words)
        assert (done.returncode, done.stdout, done.stderr, target.exists()) == (0, b"", b"", False)
    assert at.error("resume", "--to", "kept.txt", code=3)["code"] == "no_checkpoint"
    at.receipt("checkpoint", "-", stdin=b"state")
    assert at.receipt("resume", "--optional", "--to", "kept.txt")["number"] == 1
    assert target.read_bytes() == b"state"
    assert at.call("resume", "--optional").stdout == b"state"


def test_w6_a_folder_is_no_file_to_write_to(at: Inside) -> None:
    at.receipt("checkpoint", "-", stdin=b"state")
    (at.speaker.workspace / "folder").mkdir()
    error = at.error("resume", "--to", "folder", code=2)
    assert error["message"] == "folder: it is a folder, and --to names a file"
    assert list((at.speaker.workspace / "folder").parent.glob("*.part")) == []


@pytest.mark.parametrize(
    "table",
    [
        b'name = "kid"\nrun = ["sh", "-c", "echo hi > out.txt"]\noutputs = ["out.txt"]\n',
        b'[[work]]\nname = "kid"\nrun = ["sh", "-c", "echo hi > out.txt"]\noutputs = ["out.txt"]\n',
        b'{"name": "kid", "run": ["sh", "-c", "echo hi > out.txt"], "outputs": ["out.txt"]}',
        b' {"work": [{"name": "kid", "run": ["sh", "-c", "echo hi > out.txt"], "outputs": ["out.txt"]}]}',
    ],
)
def test_w5_a_child_is_written_as_in_a_plan(at: Inside, table: bytes) -> None:
    assert at.receipt("child", "-", stdin=table)["fresh"] is True
    (at.speaker.workspace / "kid").write_bytes(table)
    assert at.receipt("child", "kid")["fresh"] is False
    assert at.receipt("yield", "--child", "kid") == {"stopping": "", "yielding": True}
    at.again()
    assert at.call("output", "kid", "out.txt").stdout == b"hi\n"
    assert at.receipt("output", "kid", "out.txt", "--to", "got.txt")["size"] == 3
    assert at.error("output", "kid", "none.txt", code=3)["code"] == "not_found"
    assert at.receipt("hello")["children"]["kid"]["state"] == "applied"


def test_w6_a_question_is_asked_and_its_answer_read(at: Inside) -> None:
    assert at.error("answer", "colour", code=3)["code"] == "not_found"
    at.receipt("yield", "--question", "colour", "--prompt", "which one?", "--after", "1d")
    at.speaker.end()
    order = at.world.until_state(at.plan, "a", "waiting")
    assert order.reason == "waiting_for_answer_or_time"
    at.world.write("human", AnswerOrder(order=order.order, value="dark blue é")).required()
    at.speaker.next().close()
    assert at.receipt("answer", "colour")["value"] == "dark blue é"
    assert at.call("answer", "colour", "--value").stdout.decode() == "dark blue é\n"
    at.receipt("yield", "--after", "1h")
    assert at.receipt("yield", "--cancel")["yielding"] is False
    at.speaker.end()
    at.world.until_state(at.plan, "a", "applied")


ANSWER = "fencepost order answer plan/a VALUE"
CHILD = "fencepost order why plan/a.kid"


@pytest.mark.parametrize(
    ("asked", "following"),
    [
        (("--question", "go", "--prompt", "Go on?"), ANSWER),
        (("--question", "go", "--after", "1d"), f"{ANSWER}, or wait until it goes on"),
        (("--child", "kid"), CHILD),
        (("--child", "kid", "--after", "1d"), f"{CHILD}, or wait until it goes on"),
        (("--question", "go", "--child", "kid"), f"{ANSWER}, or {CHILD}"),
        (("--question", "go", "--child", "kid", "--after", "1d"), f"{ANSWER}, or {CHILD}, or wait until it goes on"),
        (("--after", "1d"), "nothing: it goes on by itself"),
    ],
)
def test_x3_a_waiting_order_names_whatever_would_unblock_it(at: Inside, asked: tuple[str, ...], following: str) -> None:
    """Each is a command that can be typed, whichever of the things that it waits for its reason speaks of."""
    if "--child" in asked:
        at.receipt("child", "-", stdin=b'{"name": "kid", "run": ["sleep", "60"]}')
    at.receipt("yield", *asked)
    at.speaker.end()
    at.world.until_state(at.plan, "a", "waiting")
    document = outside(at.world, "order", "why", "a")
    assert document["next"] == following
    assert any("waits for plan/a.kid, which is " in line for line in document["details"]) == ("--child" in asked)
    for step in following.split(", or "):
        if step.startswith("fencepost "):
            outside(at.world, *step.replace("VALUE", "yes").split()[1:])


def outside(world: World, *words: str) -> Any:
    """What a person's command line says, who stands in the folder of the home."""
    command = [sys.executable, "-m", "fencepost", *words, "--json"]
    done = subprocess.run(
        command,
        cwd=world.home.parent,
        env={**os.environ, "XDG_STATE_HOME": str(world.folder / "state")},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "stdin", "code", "exit_code"),
    [
        (("heartbeat", "--note"), b"", "usage", 2),
        (("heartbeat", "--not", "x"), b"", "usage", 2),
        (("heartbeat", "extra"), b"", "usage", 2),
        (("checkpoint",), b"", "usage", 2),
        (("checkpoint", "nowhere"), b"", "no_file", 2),
        (("checkpoint", "."), b"", "unreadable", 2),
        (("checkpoint", "-", "--builds-on", "x"), b"", "usage", 2),
        (("checkpoint", "-", "--builds-on", "-1"), b"", "bad_value", 2),
        (("checkpoint", "-", "--kind", "steps/1"), b"{ }", "bad_value", 2),
        (("charge", "--calls", "1"), b"", "usage", 2),
        (("charge", "--receipt", "r", "--provider", "acme"), b"", "out_of_range", 2),
        (("charge", "--receipt", "r", "--calls", "many"), b"", "usage", 2),
        (("charge", "--receipt", "r", "--money", "USD"), b"", "usage", 2),
        (("charge", "--receipt", "r", "--money", "USD:1", "--money", "USD:2"), b"", "usage", 2),
        (("charge", "--receipt", "r", "--money", "USD:x"), b"", "bad_money", 2),
        (("child", "-"), b"name = ", "syntax", 2),
        (("child", "-"), b"\xff", "syntax", 2),
        (("child", "-"), b'{"name": "a", "name": "b"}', "syntax", 2),
        (("child", "-"), b"[[work]]\n[[work]]\n", "out_of_range", 2),
        (("child", "-"), b"{", "syntax", 2),
        (("child", "-"), b"started = 2020-01-01\n", "bad_value", 2),
        (("child", "-"), b"x = 1.5\n", "float", 2),
        (("child", "-"), b'name = "kid"\n', "missing_key", 2),
        (("child", "-"), b"x" * 70_000, "too_large", 2),
        (("yield",), b"", "out_of_range", 2),
        (("yield", "--after", "soon"), b"", "bad_duration", 2),
        (("resume", "--to", "nowhere/file"), b"", "no_checkpoint", 3),
    ],
)
def test_w5_what_is_wrong_is_said_in_one_form(
    at: Inside, words: tuple[str, ...], stdin: bytes, code: str, exit_code: int
) -> None:
    error = at.error(*words, code=exit_code, stdin=stdin)
    assert error["code"] == code, error
    assert error["message"] and error["next"]
    done = at.call(*words, stdin=stdin)
    assert done.returncode == exit_code
    assert done.stderr.decode().startswith(f"error [{code}]: ")


@pytest.mark.parametrize("verb", inside.VERBS)
def test_outside_of_an_attempt_each_command_says_so(verb: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*CLI, verb, *NEEDS.get(verb, [])],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        input=b'name = "a"\n',
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"error [no_attempt]" in done.stderr and b"next: " in done.stderr


@pytest.mark.parametrize("verb", inside.VERBS)
def test_each_command_is_said_without_loading_the_kernel(verb: str) -> None:
    script = (
        "import sys, fencepost.__main__ as entry\n"
        f"sys.argv = ['fencepost', 'attempt', {verb!r}, *{NEEDS.get(verb, [])!r}]\n"
        "assert entry.main() == 2\n"
        "roots = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "kernel = [name for name in sys.modules if name.startswith(('fencepost.core', 'fencepost.kernel'))]\n"
        "print(sorted(roots), kernel, file=sys.stderr)\n"
    )
    source = str(Path(inside.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {source!r})\n{script}"],
        env={"PATH": "/usr/bin:/bin"},
        input='name = "a"',
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "error [no_attempt]" in done.stderr
    assert done.stderr.splitlines()[-1] == "['__main__', 'fencepost'] []"


def test_global_options_may_stand_before_the_noun(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "--json", "attempt", "status"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]["code"] == "no_attempt"


LINES = [
    example.line
    for name, page in sorted(PAGES.items())
    for example in page.examples
    if name.startswith("attempt ") and name.split()[1] in inside.VERBS
]


@pytest.mark.parametrize(
    "line",
    [
        *LINES,
        "fencepost attempt heartbeat",
        "fencepost attempt heartbeat --note=-x",
        "fencepost attempt checkpoint a --kind steps/1 --builds-on 0",
        "fencepost attempt resume --kind steps/1",
        "fencepost attempt charge --receipt r --provider p --tokens-input 1 --tokens-output 2 --money A:1 --money B:2",
        "fencepost attempt yield --cancel",
        "fencepost attempt yield --question q --prompt p --child a --child b --after 1s --mark m --unless-over",
        "fencepost attempt answer q",
        "fencepost attempt output c p --to f",
        "fencepost attempt status --json",
        "fencepost attempt charge --quiet --receipt r --calls 1",
        "fencepost attempt checkpoint x --quiet",
    ],
)
def test_both_ways_of_reading_a_command_read_the_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, dict[str, Any], bool]] = []

    def perform(verb: str, options: argparse.Namespace, *, as_json: bool) -> int:
        read.append((verb, {name: value for name, value in vars(options).items() if name != "verb"}, as_json))
        return 0

    monkeypatch.setattr(inside, "perform", perform)
    monkeypatch.setattr(attempt_inside, "perform", perform)
    words = shlex.split(line)[1:]
    assert inside.is_meant(words[1:])
    assert inside.run(words[1:]) == 0
    assert frame.run(words) == 0
    assert len(read) == 2 and read[0] == read[1]


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (("yield", "--prompt", "hm"), "--question NAME --prompt TEXT"),
        (("yield",), "--question NAME, --child NAME, --after 10m"),
        (("artifact", "."), "name the files in it one by one"),
        (("artifact", "./"), "name the files in it one by one"),
    ],
)
def test_w5_what_was_left_out_is_named(at: Inside, words: tuple[str, ...], step: str) -> None:
    assert step in at.error(*words, code=2)["next"]


def test_w5_a_quiet_command_says_nothing_and_does_the_same(at: Inside) -> None:
    """In a shell program each receipt would stand in the log, and as the last line of the live view."""
    (at.speaker.workspace / "a.txt").write_bytes(b"state")
    (at.speaker.workspace / "kid.toml").write_text('name = "kid"\nrun = ["true"]\n')
    words = {
        "heartbeat": ["--note", "page 1"],
        "checkpoint": ["a.txt"],
        "resume": ["--to", "b.txt"],
        "charge": ["--receipt", "r", "--calls", "2"],
        "artifact": ["a.txt"],
        "child": ["kid.toml"],
        "yield": ["--after", "1s"],
    }
    assert {*words, "output"} == set(inside.QUIET)
    for verb, more in words.items():
        for line in ([verb, "--quiet", *more], [verb, *more, "--quiet", "--scope", "default"]):
            done = at.call(*line)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), line
    assert at.speaker.state().note == "page 1" and (at.speaker.workspace / "b.txt").read_bytes() == b"state"
    assert at.receipt("charge", "--receipt", "r", "--calls", "2")["duplicate"] is True
    assert at.receipt("hello")["children"].keys() == {"kid"}
    assert at.call("resume", "--quiet").stdout == b"state", "what it was asked for"
    wrong = at.call("charge", "--quiet", "--receipt", "r", "--calls", "3")
    assert wrong.returncode == 5 and b"receipt_differs" in wrong.stderr


@pytest.mark.parametrize("verb", inside.VERBS)
def test_both_ways_of_reading_a_command_know_the_same_options(verb: str) -> None:
    command = next(one for one in read_noun("attempt").commands if one.words[1] == verb)
    parser = inside._parser()._subparsers._group_actions[0].choices[verb]
    quick = {action.option_strings[0] if action.option_strings else action.dest for action in parser._actions}
    assert quick == {one.name if one.name.startswith("-") else one.name.lower() for one in _own(command)}


def _own(command: Command) -> list[Parameter]:
    return [*command.arguments, *command.options]


def test_shared_options_take_the_longer_way(at: Inside) -> None:
    done = at.call("heartbeat", "--note", "x", "--home", "/nowhere")
    assert done.returncode == 0 and json.loads(done.stdout)["recorded"] is True


UNPRINTED = {
    "heartbeat": ("it was heard", ["--note", "x"]),
    "checkpoint": ("it is recorded", ["a.txt"]),
    "charge": ("it is recorded", ["--receipt", "r", "--calls", "2"]),
    "artifact": ("it is recorded", ["a.txt"]),
    "child": ("it is recorded", ["kid.toml"]),
    "yield": ("it was heard", ["--after", "1s"]),
    "status": ("it was answered", []),
    "hello": ("it was answered", []),
    "resume": ("the file is written", ["--to", "b.txt"]),
}
"""What is said of a command whose receipt cannot be printed, and its words."""


def test_w5_what_was_said_counts_where_its_receipt_cannot_be_printed_and_that_is_told(at: Inside) -> None:
    (at.speaker.workspace / "a.txt").write_bytes(b"state")
    (at.speaker.workspace / "kid.toml").write_text('name = "kid"\nrun = ["true"]\n')
    for verb, (done, words) in UNPRINTED.items():
        told = at.into("/dev/full", verb, *words, "--json")
        assert told.returncode == 1, (verb, told)
        error = json.loads(told.stderr)["error"]
        assert error["code"] == "output_failed"
        assert error["message"] == f"{done}, and only the receipt cannot be printed: No space left on device"
        assert "stopping" in error["receipt"], verb
    order = at.world.order(at.plan, "a")
    assert (order.account.charged["calls"], order.checkpoint_number, sorted(order.children)) == (2, 1, ["kid"])
    assert (at.speaker.workspace / "b.txt").read_bytes() == b"state"
    again = at.into("/dev/full", "charge", "--receipt", "r", "--calls", "2")
    assert again.stderr.splitlines()[0].startswith(b"error [output_failed]: it is recorded, and only the receipt")
    assert json.loads(again.stderr.splitlines()[1].partition(b"receipt: ")[2])["duplicate"] is True
    assert again.stderr.splitlines()[2].startswith(b"  next: take the receipt from here")
    assert len(again.stderr.splitlines()) == 3, "nothing is tried once more at the end"
    at.speaker.end()


def test_w5_what_only_prints_says_that_it_could_not(at: Inside) -> None:
    assert at.call("checkpoint", "-", stdin=b"x" * 100_000).returncode == 0
    for words in (["resume"], ["resume", "--to", "full"]):
        (at.speaker.workspace / "full").unlink(missing_ok=True)
        (at.speaker.workspace / "full").symlink_to("/dev/full")
        told = at.into("/dev/full", *words, "--json")
        assert told.returncode == 1
        error = json.loads(told.stderr)["error"]
        assert (error["code"], "receipt" in error) == ("output_failed", False), words
    at.speaker.end()


def test_w5_what_a_file_is_written_to_stays_what_it_is(at: Inside) -> None:
    space = at.speaker.workspace
    assert at.call("checkpoint", "-", stdin=b"state").returncode == 0
    os.mkfifo(space / "pipe")
    (space / "there").mkdir()
    (space / "link").symlink_to("there/a.txt")
    reader = subprocess.Popen(["cat", "pipe"], cwd=space, stdout=subprocess.PIPE)
    assert at.receipt("resume", "--to", "pipe")["size"] == 5
    assert reader.communicate(timeout=20)[0] == b"state" and (space / "pipe").is_fifo()
    assert at.receipt("resume", "--to", "link")["to"] == "link"
    assert (space / "link").is_symlink() and (space / "there" / "a.txt").read_bytes() == b"state"
    at.speaker.end()


def test_w5_a_hyphen_is_standard_output_whichever_parser_reads_it(at: Inside) -> None:
    """With a global option it is the frame that reads the words, and writes a hyphen otherwise."""
    assert at.call("checkpoint", "-", stdin=b"state").returncode == 0
    home = str(at.world.home)
    before = sorted(path.name for path in at.speaker.workspace.iterdir())
    with open(at.speaker.workspace / ".." / "given", "w+b") as given:
        for words in (["--to", "-"], ["--to", "-", "--home", home], ["--to=-"], []):
            done = subprocess.run(
                [*CLI, "resume", *words],
                cwd=at.speaker.workspace,
                env=at.speaker.environment,
                stdin=given,
                capture_output=True,
                check=False,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"state", b""), words
        assert given.read() == b"", "what was given to read is not written to"
    assert sorted(path.name for path in at.speaker.workspace.iterdir()) == before
    at.speaker.end()


def test_w5_what_can_be_told_nowhere_is_told_by_the_exit_code(at: Inside) -> None:
    words = shlex.join([*CLI, "charge", "--receipt", "r", "--calls", "1"])
    script = f"exec {words} >/dev/full 2>/dev/full"
    done = subprocess.run(["sh", "-c", script], cwd=at.speaker.workspace, env=at.speaker.environment, check=False)
    assert done.returncode == 1
    assert at.world.order(at.plan, "a").account.charged["calls"] == 1
    at.speaker.end()
