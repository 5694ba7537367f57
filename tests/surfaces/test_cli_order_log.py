"""`fencepost order log` and `order watch`: what is kept, what is live, and how following ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.surfaces.cli_world import Cli, World, draft, main_orders, needs, on_a_terminal, processes, sh, wait_for


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("ran"))
    world.work(world.submit("nightly", main_orders()))
    return world


@pytest.fixture
def cli(ran: World, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(ran, capsys)


def test_streams_are_kept_apart_and_the_attempt_is_named(cli: Cli) -> None:
    both = cli("order", "log", "make")
    assert both.out == "made\nwarned\n"
    assert both.err.splitlines()[0] == "make, attempt 1, accepted (applied)"
    assert cli("order", "log", "make", "--stdout").out == "made\n"
    assert cli("order", "log", "make", "--stderr").out == "warned\n"
    document = cli.json("order", "log", "make")
    assert {stream["stream"]: stream["text"] for stream in document["streams"]} == {
        "stdout": "made\n",
        "stderr": "warned\n",
    }
    assert (document["ordinal"], document["live"]) == (1, False)


def test_the_verifier_has_a_log_of_its_own(cli: Cli) -> None:
    answer = cli("order", "log", "make", "--verifier")
    assert answer.out == "hello\n"
    assert "its verifier" in answer.err


def test_each_attempt_has_its_own_log(cli: Cli) -> None:
    assert cli.json("order", "log", "flaky", "--attempt", "1")["state"] == "retryable_failed"
    assert cli.json("order", "log", "flaky")["ordinal"] == 2


def test_the_gap_of_a_long_log_is_stated(cli: Cli) -> None:
    answer = cli("order", "log", "big", "--stdout")
    gap = 3_000_000 + 4 - 2 * 2**20
    assert f"\n[fencepost: {gap} bytes left out]\n" in answer.out
    assert answer.out.endswith("end\n")
    (stream,) = cli.json("order", "log", "big", "--stdout")["streams"]
    assert (stream["bytes_total"], stream["gap_bytes"], len(stream["text"])) == (3_000_004, gap, 2 * 2**20)


def test_control_characters_reach_a_pipe_and_no_terminal(ran: World, cli: Cli) -> None:
    assert "\x1b[31mred" in cli("order", "log", "use").out
    shown = on_a_terminal(ran, "order", "log", "use")
    assert "\x1b" not in shown
    assert "?[31mred?[0m\r\n" in shown


def test_a_log_is_followed_from_its_process_to_its_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    script = "echo line 1; while ! test -e $FENCEPOST_REPO/go; do sleep 0.05; done; echo line 2; echo oops >&2"
    plan = world.submit("p", [draft("slow", sh(script)), draft("next", groups=(needs("slow"),))])
    with processes(world) as start:
        raw = start("order", "log", "slow", "--follow")  # begins before there is an attempt
        lines = start("order", "log", "slow", "--follow", "--json")
        watch = start("order", "watch", "--plan", "p", "--json")
        one = start("order", "watch", "slow")
        with world.working() as app:
            first = raw.stdout.readline() if raw.stdout is not None else b""
            piece = lines.stdout.readline() if lines.stdout is not None else b""
            assert (first, json.loads(piece)["text"]) == (b"line 1\n", "line 1\n"), "it comes while it runs"
            seen = [json.loads(watch.stdout.readline()) for _ in range(2)] if watch.stdout is not None else []
            (world.folder / "go").touch()
            wait_for(app, lambda look: look.get(plan).open == 0)
        out, err = raw.communicate(timeout=30)
        assert (raw.returncode, sorted(out.splitlines())) == (0, [b"line 2", b"oops"])
        assert b"slow, attempt 1" in err
        rest = [json.loads(line) for line in lines.communicate(timeout=30)[0].splitlines()]
        assert sorted((piece["stream"], piece["offset"], piece["text"]) for piece in rest) == [
            ("stderr", 0, "oops\n"),
            ("stdout", 7, "line 2\n"),
        ]
        changes = seen + [json.loads(line) for line in watch.communicate(timeout=30)[0].splitlines()]
        assert watch.returncode == 0
        assert {"sequence", "name", "id", "state", "reason", "charged"} <= set(changes[0])
        last = {change["name"]: change["state"] for change in changes}
        assert last == {"slow": "applied", "next": "applied"}
        text = one.communicate(timeout=30)[0].decode()
        assert (one.returncode, text.splitlines()[-1].split()[1:]) == (0, ["slow", "applied"])
        assert "next" not in text


def test_a_live_log_is_read_while_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.submit("p", [draft("slow", sh("echo begun; sleep 30"))])
    cli = Cli(world, capsys)
    with world.working() as app:
        wait_for(app, lambda look: bool(cli("order", "log", "slow", "--stdout").out))
        document = cli.json("order", "log", "slow", "--stdout")
        assert (document["live"], document["streams"][0]["text"]) == (True, "begun\n")
        assert cli("order", "cancel", "slow").code == 0
        follow = cli("order", "log", "slow", "--follow", "--stdout")
        assert follow.code == 0


def test_watch_ends_with_7_when_an_order_that_counts_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.work(world.submit("p", [draft("bad", ("false",)), draft("may", ("false",), may_fail=True), draft("good")]))
    cli = Cli(world, capsys)
    assert cli("order", "watch", "bad").code == 7
    assert cli("order", "watch", "may").code == 0
    answer = cli("order", "watch", "--plan", "p")
    assert answer.code == 7
    assert cli("order", "watch").out == answer.out, "without a name it is the whole plan"
    assert [line.split()[1] for line in answer.out.splitlines()] == ["bad", "may", "good"]
