"""`fencepost attempt`: the whole evidence of what was done."""

from __future__ import annotations

import pytest

from tests.surfaces.cli_world import Cli, World, draft, main_orders, sh, wait_for


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("ran"))
    world.work(world.submit("nightly", main_orders()))
    return world


@pytest.fixture
def cli(ran: World, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(ran, capsys)


def test_list_has_every_attempt_in_order(cli: Cli) -> None:
    document = cli.json("attempt", "list", "flaky")
    assert document["next"] is None
    assert [(item["ordinal"], item["state"]) for item in document["items"]] == [
        (1, "retryable_failed"),
        (2, "accepted"),
    ]
    assert cli.json("attempt", "list", "after")["items"] == []
    lines = cli("attempt", "list", "flaky").out.splitlines()
    assert lines[0].split() == ["NO", "STATE", "REASON", "BEGAN", "ENDED", "TIME", "COST"]
    assert len(lines) == 3


def test_show_rests_on_the_records(cli: Cli) -> None:
    document = cli.json("attempt", "show", "make")
    rested_on = {"reservation", "descriptor", "result", "verification", "application"}
    assert set(document["evidence"]) == rested_on | {"yield", "stop"}
    evidence = document["evidence"]
    assert evidence["reservation"]["fence"] == evidence["descriptor"]["fence"] == document["fence"]
    assert [artifact["path"] for artifact in evidence["result"]["facts"]["artifacts"]] == ["out.txt", "sub/b.txt"]
    assert evidence["verification"]["outcome"] == "passed"
    assert evidence["application"]["decision"] == "applied"
    assert document["hold"]["state"] == "settled"
    assert document["hold"]["charged"]["attempts"] == 1
    assert document["lease"]["live"] is False
    assert {name for name, seq in document["records"].items() if seq} == rested_on
    text = cli("attempt", "show", "make").out
    assert "verifier   passed, exit code 0" in text
    assert "hold       settled" in text


def test_show_by_number_and_by_id(cli: Cli) -> None:
    first = cli.json("attempt", "show", "flaky", "--attempt", "1")
    assert first["ordinal"] == 1
    assert cli.json("attempt", "show", first["attempt"]) == first
    assert cli.json("attempt", "show", "flaky")["ordinal"] == 2
    assert first["evidence"]["application"]["backoff"]["due_us"] > 0


def test_a_running_attempt_shows_its_lease_and_its_hold(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)  # type: ignore[arg-type]  # pytest's own path
    plan = world.submit("p", [draft("slow", sh("sleep 30"))])
    cli = Cli(world, capsys)
    with world.working() as app:
        wait_for(app, lambda look: look.orders(plan)[0].state == "active")
        document = cli.json("attempt", "show", "slow")
        assert document["lease"]["live"] is True
        assert document["evidence"]["result"] is None
        assert document["hold"]["held"]["time_us"] == 20_000_000
        assert "live until" in cli("attempt", "show", "slow").out
        assert cli("order", "cancel", "slow").code == 0
    late = cli.json("attempt", "show", "slow")
    assert late["state"] == "cancelled_no_effect"
    assert "stop" in [one["what"] for one in late["late"]]
    assert "kept and refused" in cli("attempt", "show", "slow").out


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("attempt", "list", "nothing"), 3, "not_found"),
        (("attempt", "show", "nothing"), 3, "not_found"),
        (("attempt", "show", "after"), 3, "not_found"),
        (("attempt", "show", "make", "--attempt", "7"), 3, "not_found"),
        (("attempt", "show", "attempt_" + "0" * 32), 3, "not_found"),
        (("attempt", "heartbeat"), 2, "no_attempt"),
        (("attempt", "artifact", "x"), 2, "no_attempt"),
        (("attempt", "charge"), 2, "usage"),
        (("attempt", "effect", "x"), 2, "unsupported_feature"),
    ],
)
def test_what_cannot_be_done_says_so(cli: Cli, words: tuple[str, ...], code: int, reason: str) -> None:
    answer = cli(*words, "--json")
    assert (answer.code, answer.out) == (code, "")
    assert answer.error["code"] == reason
