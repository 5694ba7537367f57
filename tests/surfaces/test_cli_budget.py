"""`fencepost budget`: every level of the path, and changes that lose nothing (W18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli_world import Cli, World, draft


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.work(world.submit("p", [draft("a"), draft("b")], ceilings={"attempts": 10, "money_micros:USD": 2_500_000}))
    return world


@pytest.fixture
def cli(world: World, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(world, capsys)


def test_show_has_each_level_and_each_figure(cli: Cli) -> None:
    document = cli.json("budget", "show", "a")
    assert [(item["kind"], item["name"]) for item in document["items"]] == [
        ("scope", "default"),
        ("plan", "p"),
        ("order", "p/a"),
    ]
    assert document["items"][1]["dimensions"]["attempts"] == {
        "ceiling": 10,
        "held": 0,
        "charged": 2,
        "available": 8,
        "unknown": 0,
    }
    assert document["holds"] == []
    assert cli.json("budget", "show") == cli.json("budget", "show", "--plan", "p") == cli.json("budget", "show", "p")
    assert [item["kind"] for item in cli.json("budget", "show", "scope")["items"]] == ["scope"]
    lines = cli("budget", "show", "p").out.splitlines()
    assert ["attempts", "10", "0", "2", "8"] in [line.split() for line in lines]
    assert ["USD", "2.50", "0.00", "0.00", "2.50"] in [line.split() for line in lines]


def test_set_keeps_what_is_not_named(cli: Cli) -> None:
    document = cli.json(
        "budget", "set", "p", "--attempts", "20", "--time", "1h30m", "--calls", "7", "--money", "EUR:0.5"
    )
    ceilings = {name: values["ceiling"] for name, values in document["dimensions"].items()}
    assert ceilings == {
        "attempts": 20,
        "time_us": 5_400_000_000,
        "calls": 7,
        "money_micros:USD": 2_500_000,
        "money_micros:EUR": 500_000,
    }
    after = cli.json("budget", "set", "--plan", "p", "--no-limit", "USD", "--no-limit", "time", "--tokens-input", "9")
    ceilings = {
        name: values["ceiling"] for name, values in after["dimensions"].items() if values["ceiling"] is not None
    }
    assert ceilings == {"attempts": 20, "calls": 7, "money_micros:EUR": 500_000, "tokens_input": 9}


def test_set_is_bound_to_a_version_and_to_its_key(cli: Cli) -> None:
    version = cli.json("budget", "show", "scope")["items"][0]["version"]
    words = ("budget", "set", "scope", "--attempts", "100", "--expect", str(version), "--command-key", "k")
    first = cli.json(*words)
    again = cli.json(*words)
    assert (first["fresh"], again["fresh"]) == (True, False)
    assert first["sequence"] == again["sequence"]
    stale = cli("budget", "set", "scope", "--attempts", "5", "--expect", str(version), "--json")
    assert (stale.code, stale.error["code"]) == (5, "version_moved")
    assert cli.json("budget", "show", "scope")["items"][0]["dimensions"]["attempts"]["ceiling"] == 100


def test_set_without_a_version_is_repeated_under_its_key(cli: Cli) -> None:
    words = ("budget", "set", "p", "--attempts", "20", "--command-key", "k")
    first, again = cli.json(*words), cli.json(*words)
    assert (first["fresh"], again["fresh"], again["sequence"]) == (True, False, first["sequence"])
    cli.json("budget", "set", "p", "--attempts", "30")
    assert cli.json(*words)["fresh"] is False
    assert cli.json("budget", "show", "p")["items"][1]["dimensions"]["attempts"]["ceiling"] == 30
    other = cli("budget", "set", "p", "--attempts", "21", "--command-key", "k", "--json")
    assert (other.code, other.error["code"]) == (5, "operation_collision")


def test_a_ceiling_below_what_is_charged_is_said(cli: Cli) -> None:
    assert "below what is charged" not in cli("budget", "set", "p", "--attempts", "20").out
    assert "the ceiling of attempts is below what is charged" in cli("budget", "set", "p", "--attempts", "1").out


def test_a_word_for_an_order_and_a_plan_is_refused(world: World, cli: Cli) -> None:
    world.submit("b", [draft("b")])
    answer = cli("budget", "set", "b", "--attempts", "3", "--json")
    assert (answer.code, answer.error["code"]) == (2, "usage")
    assert "--plan b" in answer.error["next"]
    assert cli.json("budget", "set", "--plan", "b", "--attempts", "3")["kind"] == "plan"
    assert cli.json("budget", "set", "b/b", "--attempts", "4")["kind"] == "order"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("show", "nothing"), 3, "not_found"),
        (("show", "nothing/a"), 3, "not_found"),
        (("show", "plan_" + "0" * 32), 3, "not_found"),
        (("show", "a", "--plan", "p"), 2, "usage"),
        (("set", "p"), 2, "usage"),
        (("set", "--attempts", "3"), 2, "usage"),
        (("set", "nothing", "--attempts", "3"), 3, "not_found"),
        (("set", "p", "--attempts", "0"), 2, "out_of_range"),
        (("set", "p", "--calls", "-1"), 2, "out_of_range"),
        (("set", "p", "--calls", str(2**53)), 2, "out_of_range"),
        (("set", "p", "--time", "soon"), 2, "bad_duration"),
        (("set", "p", "--money", "2.50"), 2, "bad_money"),
        (("set", "p", "--money", "ABC:2.50"), 2, "bad_money"),
        (("set", "p", "--money", "USD:-1"), 2, "bad_money"),
        (("set", "p", "--no-limit", "patience"), 2, "usage"),
        (("set", "p", "--attempts", "3", "--no-limit", "attempts"), 2, "usage"),
    ],
)
def test_what_cannot_be_done_says_so(cli: Cli, words: tuple[str, ...], code: int, reason: str) -> None:
    before = cli.json("journal", "verify")["sequence"]
    answer = cli("budget", *words, "--json")
    assert (answer.code, answer.out) == (code, "")
    assert answer.error["code"] == reason
    assert cli.json("journal", "verify")["sequence"] == before


@pytest.mark.parametrize(
    ("text", "told", "step"),
    [
        ("usd:5", "'usd' is no currency", "write USD:5"),
        ("XYZ:5", "'XYZ' is no currency", "write for example USD:2.50"),
        ("5", "has no currency", "write for example USD:2.50"),
    ],
)
def test_money_in_no_currency_is_told_what_is_meant(cli: Cli, text: str, told: str, step: str) -> None:
    answer = cli("budget", "set", "p", "--money", text, "--json")
    assert (answer.code, answer.error["code"], answer.error["next"]) == (2, "bad_money", step)
    assert told in answer.error["message"]
