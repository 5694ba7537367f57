"""`fencepost journal`: verified, replayed, read along and exported; damage is found and named (W24)."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import apsw
import pytest

from tests.surfaces.cli_world import Cli, World, draft, main_orders, processes


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("ran"))
    world.work(world.submit("nightly", main_orders()))
    return world


@pytest.fixture
def cli(ran: World, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(ran, capsys)


@pytest.fixture
def small(tmp_path: Path) -> World:
    world = World(tmp_path / "home")
    world.work(world.submit("p", [draft("a")]))
    return world


def sql(world: World, *statements: str) -> None:
    """Change the store as nobody who goes through the program could."""
    connection = apsw.Connection(str(world.home / "store.db"))
    try:
        for (name,) in list(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")):
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


def test_verify_and_replay_of_an_honest_store(cli: Cli) -> None:
    verified = cli.json("journal", "verify")
    assert {"ok", "sequence", "digest", "first_bad"} <= set(verified)
    assert (verified["ok"], verified["first_bad"]) == (True, None)
    replayed = cli.json("journal", "replay")
    assert {"match", "sequence", "projection_digest"} <= set(replayed)
    assert (replayed["match"], replayed["sequence"]) == (True, verified["sequence"])
    assert cli("journal", "verify").out.startswith(f"ok: {verified['sequence']} records")
    assert cli("journal", "replay").out.startswith(f"match: {verified['sequence']} records")


def test_replay_up_to_a_record_is_the_same_every_time(cli: Cli) -> None:
    first = cli.json("journal", "replay", "--to", "25")
    assert first == cli.json("journal", "replay", "--to", "25")
    assert (first["sequence"], first["compared"]) == (25, False)
    head = cli.json("journal", "verify")["sequence"]
    whole = cli.json("journal", "replay", "--to", str(head))
    assert whole["compared"] and whole["projection_digest"] == cli.json("journal", "replay")["projection_digest"]
    assert first["projection_digest"] != whole["projection_digest"]


def test_a_changed_record_is_the_first_bad_one(small: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(small, capsys)
    head = cli.json("journal", "verify")["sequence"]
    sql(
        small,
        "UPDATE record SET data = CAST(replace(CAST(data AS TEXT), 'default', 'defaulT') AS BLOB) WHERE seq = 21",
    )
    answer = cli("journal", "verify", "--json")
    assert answer.code == 8
    assert answer.document["ok"] is False
    assert answer.document["sequence"] == head
    assert 21 <= answer.document["first_bad"] <= 22
    assert "not ok: record 2" in cli("journal", "verify").out
    assert cli("journal", "replay", "--json").code == 8
    out = small.folder / "export.jsonl"
    broken = cli("journal", "export", str(out), "--json")
    assert (broken.code, broken.error["code"]) == (8, "journal_integrity")
    assert [path.name for path in small.folder.iterdir()] == [".fencepost"]


def test_a_cut_journal_is_found(small: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(small, capsys)
    head = cli.json("journal", "verify")["sequence"]
    sql(small, f"DELETE FROM record WHERE seq = {head}")
    answer = cli("journal", "verify", "--json")
    assert (answer.code, answer.document["first_bad"]) == (8, head)


def test_a_cache_that_lies_is_found_and_mended(small: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(small, capsys)
    honest = cli.json("journal", "replay")
    sql(
        small,
        "UPDATE state SET data = CAST(replace(CAST(data AS TEXT), '\"applied\"', '\"failed\"') AS BLOB)"
        " WHERE subject LIKE 'order_%'",
    )
    assert cli("journal", "verify").code == 0, "the record itself is whole"
    answer = cli("journal", "replay", "--json")
    assert answer.code == 8
    assert answer.document["match"] is False
    assert answer.document["differs"].startswith("state of order_")
    assert answer.document["projection_digest"] == honest["projection_digest"]
    mended = cli.json("journal", "replay", "--rebuild")
    assert (mended["match"], mended["rebuilt"]) == (True, True)
    assert cli.json("order", "list")["items"][0]["state"] == "applied"


def test_an_anchor_that_was_kept_elsewhere_is_compared(small: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(small, capsys)
    kept = cli.json("journal", "verify")["anchor"]
    assert kept in cli("journal", "verify").out.splitlines(), "what is to be kept is one word of what is printed"
    small.submit("later", [draft("b")])
    answer = cli("journal", "verify", "--anchor", kept)
    assert answer.code == 0 and f"the given anchor at record {kept.partition(':')[0]}" in answer.out
    number = int(kept.partition(":")[0])
    forged = f"{number}:sha256:{'0' * 64}"
    broken = cli("journal", "verify", "--anchor", forged, "--json")
    assert (broken.code, broken.document["first_bad"]) == (8, number)
    assert "given anchor" in broken.document["problem"]
    head = cli.json("journal", "verify")["sequence"]
    cut = cli("journal", "verify", "--anchor", f"{head + 7}:sha256:{'0' * 64}", "--json")
    assert (cut.code, cut.document["first_bad"]) == (8, head + 1)
    for word in ("12", "0:sha256:" + "0" * 64, "1:sha256:zz", "x:y", "-1:sha256:" + "0" * 64):
        assert cli("journal", "verify", f"--anchor={word}", "--json").error["code"] == "usage"


def test_a_missing_ledger_is_told_and_not_well(small: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(small, capsys)
    honest = cli.json("journal", "verify")
    assert honest["anchors"] > 0 and honest["warning"] is None
    with small.open() as app:
        where = app.ledger.where()
    shutil.rmtree(where)
    answer = cli("journal", "verify", "--json")
    assert (answer.code, answer.document["ok"], answer.document["anchors"]) == (0, True, 0)
    assert str(where) in answer.document["warning"]
    assert "warning: no signed anchor" in cli("journal", "verify").err
    doctor = {item["check"]: item for item in cli.json("doctor")["items"]}
    step = "fencepost journal verify --anchor SEQ:DIGEST, with what was kept elsewhere"
    assert (doctor["store"]["level"], doctor["store"]["next"]) == ("warn", step)
    assert cli("journal", "verify", "--anchor", honest["anchor"], "--json").document["warning"] is None


def test_tail_gives_exact_bytes_that_chain(cli: Cli) -> None:
    lines = cli("journal", "tail", "--after", "0", "--limit", "1000", "--json").out.splitlines()
    digest = ""
    for number, line in enumerate(lines, start=1):
        record = json.loads(line)
        assert (record["seq"], record["prev"]) == (number, digest)
        digest = f"sha256:{hashlib.sha256(line.encode()).hexdigest()}"
    assert digest == cli.json("journal", "verify")["digest"]


def test_tail_for_people(cli: Cli) -> None:
    head = cli.json("journal", "verify")["sequence"]
    lines = cli("journal", "tail").out.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(head - 19, head + 1))
    every = cli("journal", "tail", "--after", "0", "--limit", "1000").out
    assert "broken" in every
    assert "flaky#2" in every
    assert "active -> " in every or "reserved -> " in every or "-> ready" in every
    assert cli("journal", "tail", "--limit", "3", "--after", "5", "--json").out.count("\n") == 3


def test_tail_follows_what_is_written(small: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(small, capsys)
    head = cli.json("journal", "verify")["sequence"]
    with processes(small) as start:
        running = start("journal", "tail", "--after", str(head), "--limit", "4", "--follow", "--json")
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(timeout=0.7)
        small.submit("later", [draft("b")])
        out, _ = running.communicate(timeout=30)
        assert running.returncode == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(head + 1, head + 5))


def test_export_is_whole_and_exact(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "journal.jsonl"
    target.write_text("old")
    document = cli.json("journal", "export", str(target), "--force")
    data = target.read_bytes()
    assert document["bytes"] == len(data)
    assert data.count(b"\n") == document["sequence"]
    last = data.splitlines()[-1]
    assert document["digest"] == f"sha256:{hashlib.sha256(last).hexdigest()}"
    assert cli("journal", "export").out.encode() == data
    nowhere = cli("journal", "export", str(tmp_path / "none" / "x"), "--json")
    assert (nowhere.code, nowhere.error["code"]) == (2, "unwritable")
    assert nowhere.error["message"] == f"{tmp_path}/none/x cannot be written: No such file or directory"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("replay", "--to", "0"), 2, "usage"),
        (("replay", "--to", "3", "--rebuild"), 2, "usage"),
        (("tail", "--limit", "0"), 2, "usage"),
        (("tail", "--after", "-1"), 2, "usage"),
        (("archive",), 2, "unsupported_feature"),
        (("backup",), 2, "unsupported_feature"),
        (("restore",), 2, "unsupported_feature"),
    ],
)
def test_what_cannot_be_done_says_so(cli: Cli, words: tuple[str, ...], code: int, reason: str) -> None:
    answer = cli("journal", *words, "--json")
    assert (answer.code, answer.out) == (code, "")
    assert answer.error["code"] == reason


def test_without_a_home_reads_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.home = tmp_path / "elsewhere"
    for words in (
        ("order", "list"),
        ("budget", "show"),
        ("clock", "show"),
        ("journal", "verify"),
        ("attempt", "list", "a"),
    ):
        answer = Cli(world, capsys)(*words, "--json")
        assert (answer.code, answer.error["code"]) == (3, "no_home")
