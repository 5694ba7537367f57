"""Damaged rows: the commands that find and mend them stay usable, and all others say what is wrong with code 8."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.core.commands import CancelPlan
from fencepost.ports.errors import IntegrityError
from tests.surfaces.cli_world import Cli, World, draft
from tests.surfaces.test_cli_journal import sql

REBUILD = "fencepost journal replay --rebuild"
DAMAGES = {
    "cut": "CAST(substr(CAST(data AS TEXT), 1, 20) AS BLOB)",
    "no state": 'CAST(\'{"t":"nothing"}\' AS BLOB)',
    "no text": "X'FFFE00'",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "home")
    world.work(world.submit("p", [draft("a")]))
    world.submit("open", [draft("b")])
    return world


def damage(world: World, subject: str, how: str = "cut") -> None:
    sql(world, f"UPDATE state SET data = {DAMAGES[how]} WHERE subject LIKE '{subject}'")


@pytest.mark.parametrize("subject", ["authority", "clock:main", "scope", "order_%", "plan_%", "name:%"])
def test_any_damaged_row_is_found_and_mended(world: World, capsys: pytest.CaptureFixture[str], subject: str) -> None:
    cli = Cli(world, capsys)
    damage(world, subject)
    assert cli("journal", "verify").code == 0, "the records are whole"
    assert cli("journal", "tail").code in (0, 8)
    answer = cli("journal", "replay", "--json")
    assert answer.code == 8
    assert answer.document["differs"].startswith("state of ")
    mended = cli.json("journal", "replay", "--rebuild")
    assert (mended["match"], mended["rebuilt"]) == (True, True)
    assert [order["state"] for order in cli.json("order", "list", "--plan", "p")["items"]] == ["applied"]
    assert cli.json("doctor")["ok"] is True


@pytest.mark.parametrize("how", sorted(DAMAGES))
def test_reads_of_a_damaged_row_end_with_8_and_the_command_that_mends_it(
    world: World, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    cli = Cli(world, capsys)
    damage(world, "order_%", how)
    for words in (("order", "list", "--plan", "p"), ("order", "why", "p/a"), ("plan", "show", "p"), ("order", "graph")):
        answer = cli(*words, "--json")
        assert (answer.code, answer.error["code"], answer.error["next"]) == (8, "journal_integrity", REBUILD), words
    working = cli("worker", "start", "--until-idle", "--json")
    assert (working.code, working.error["code"]) == (8, "journal_integrity"), working.err


def test_writes_on_a_damaged_authority_end_with_8(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(world, capsys)
    damage(world, "authority")
    answer = cli("plan", "cancel", "open", "--json")
    assert (answer.code, answer.error["code"], answer.error["next"]) == (8, "journal_integrity", REBUILD)


@pytest.mark.parametrize("subject", ["authority", "order_%"])
def test_a_missing_row_is_damage_like_any_other(world: World, capsys: pytest.CaptureFixture[str], subject: str) -> None:
    cli = Cli(world, capsys)
    (order,) = cli.json("order", "list", "--plan", "open")["items"]
    sql(world, f"DELETE FROM state WHERE subject LIKE '{subject}'")
    with world.open() as app, pytest.raises(IntegrityError) as caught:
        app.kernel.write(app.kernel.request("human", CancelPlan(plan=order["plan"])))
    assert caught.value.next_step == REBUILD
    assert cli.json("journal", "replay", "--rebuild")["match"] is True
    assert cli("plan", "cancel", "open").code == 0


def test_doctor_goes_on_and_names_the_damage(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(world, capsys)
    damage(world, "authority")
    answer = cli("doctor", "--json")
    assert answer.code == 1
    items = {item["check"]: item for item in answer.document["items"]}
    assert (items["authority"]["level"], items["authority"]["next"]) == ("bad", REBUILD)
    assert items["executor"]["level"] == "ok", "everything else is still looked at"


def test_a_damaged_record_is_said_with_8_and_names_verify(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(world, capsys)
    sql(world, "UPDATE record SET data = X'7B7D' WHERE instr(CAST(data AS TEXT), '\"kind\":\"work_order_spec\"')")
    answer = cli("order", "show", "p/a", "--json")
    assert (answer.code, answer.error["next"]) == (8, "fencepost journal verify"), answer.err


def test_a_damaged_answer_of_a_command_key_is_said_with_8(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(world, capsys)
    cancel = ("plan", "cancel", "open", "--command-key", "mine", "--json")
    assert cli(*cancel).code == 0
    sql(world, "UPDATE command SET receipt = X'7B' WHERE key = 'mine'")
    answer = cli(*cancel)
    assert (answer.code, answer.error["code"], answer.error["next"]) == (
        8,
        "journal_integrity",
        "use a fresh command key",
    )
