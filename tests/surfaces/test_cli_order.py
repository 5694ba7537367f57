"""`fencepost order`: list, show, why, cancel and retry, on a real home with real runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.core.commands import ObserveClock, Reading
from fencepost.core.machines import WORK_ORDER
from tests.surfaces.cli_world import Cli, World, draft, main_orders, needs, sh, wait_for

SECOND_US = 1_000_000
ORDER_KEYS = {"name", "id", "state", "reason", "attempts", "charged", "artifacts", "effects"}
CHARGED_KEYS = {"attempts", "time_us", "tokens_input", "tokens_output", "calls", "money_micros"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A plan of every kind of order, run to its end."""
    world = World(tmp_path_factory.mktemp("ran"))
    world.work(world.submit("nightly", main_orders(), ceilings={"attempts": 40}))
    return world


@pytest.fixture
def cli(ran: World, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(ran, capsys)


@pytest.fixture
def fresh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[World, Cli]]:
    """A home of its own, for tests that change something."""
    world = World(tmp_path)
    yield world, Cli(world, capsys)


def test_list_gives_the_documents_of_the_contract(cli: Cli) -> None:
    document = cli.json("order", "list")
    assert set(document) == {"items", "next"}
    assert document["next"] is None
    assert [item["name"] for item in document["items"]] == [order.task for order in main_orders()]
    for item in document["items"]:
        assert set(item) >= ORDER_KEYS
        assert set(item["charged"]) == CHARGED_KEYS
    make = document["items"][0]
    assert make["state"] == "applied"
    assert make["attempts"] == 1
    assert [artifact["path"] for artifact in make["artifacts"]] == ["out.txt", "sub/b.txt"]
    assert set(make["artifacts"][0]) == {"path", "digest", "bytes"}


def test_list_in_pages_is_the_whole_list(cli: Cli) -> None:
    names: list[str] = []
    after: list[str] = []
    for _ in range(10):
        page = cli.json("order", "list", "--limit", "3", *after)
        assert len(page["items"]) <= 3
        names += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert names == [order.task for order in main_orders()]


def test_list_by_state_and_for_people(cli: Cli) -> None:
    found = cli.json("order", "list", "--state", "dependency_failed")["items"]
    assert [item["name"] for item in found] == ["after", "later"]
    answer = cli("order", "list")
    assert answer.code == 0
    assert answer.out.splitlines()[0].split() == ["ORDER", "STATE", "REASON", "TRIES", "TIME", "COST"]
    assert "broken  failed             exit_code_unexpected" in answer.out
    assert max(map(len, answer.out.splitlines())) < 80
    shown = " ".join(cli("order", "show", "broken").out.split())
    assert "exit_code_unexpected): exit code 3, not 0" in shown, "each attempt with its cause"
    [made] = cli.json("order", "show", "broken")["attempts_made"]
    assert made["detail"] == "exit code 3, not 0"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("order", "list", "--plan", "nothing"), 3, "not_found"),
        (("order", "list", "--state", "nothing"), 2, "usage"),
        (("order", "list", "--limit", "0"), 2, "usage"),
        (("order", "list", "--after", "order_" + "0" * 32), 3, "not_found"),
        (("order", "show", "nothing"), 3, "not_found"),
        (("order", "show", "nothing/make"), 3, "not_found"),
        (("order", "show", "order_" + "0" * 32), 3, "not_found"),
        (("order", "why", "nothing"), 3, "not_found"),
        (("order", "watch", "make", "--plan", "nightly"), 2, "usage"),
        (("order", "log", "make", "--attempt", "9"), 3, "not_found"),
        (("order", "log", "after"), 3, "not_found"),
        (("order", "files", "broken"), 5, "order_state"),
        (("order", "files", "make", "--attempt", "9"), 3, "not_found"),
        (("order", "graph", "--plan", "nothing"), 3, "not_found"),
        (("order", "cancel", "make"), 5, "order_ended"),
        (("order", "retry", "make"), 5, "retry_refused"),
        (("order", "cancel", "make", "--note", "x" * 5_000), 2, "too_large"),
        (("order", "reassign", "make"), 2, "unsupported_feature"),
        (("order", "show"), 2, "usage"),
    ],
)
def test_what_cannot_be_done_says_so(cli: Cli, words: tuple[str, ...], code: int, reason: str) -> None:
    answer = cli(*words, "--json")
    assert answer.code == code
    assert answer.out == ""
    assert set(answer.error) == {"code", "message", "where", "next"}
    assert answer.error["code"] == reason
    assert answer.error["next"]


def test_show_has_everything_behind_the_order(cli: Cli) -> None:
    document = cli.json("order", "show", "nightly/anyway")
    assert set(document) >= ORDER_KEYS
    assert document["attempts"] == 1
    assert [attempt["ordinal"] for attempt in document["attempts_made"]] == [1]
    assert [(need["kind"], need["verdict"]) for need in document["needs"]] == [
        ("optional", "holds"),
        ("alternative", "holds"),
    ]
    assert [member["state"] for member in document["needs"][1]["members"]] == ["dependency_failed", "applied"]
    assert [account["kind"] for account in document["budget"]] == ["scope", "plan", "order"]
    assert document["records"]["spec"] and document["records"]["application"]
    assert document["spec"]["run"] == ["true"]
    text = cli("order", "show", "anyway").out
    assert "needs end of  broken (failed)" in text
    assert "verifier" in cli("order", "show", "make").out


def test_an_order_is_found_by_its_id_too(cli: Cli) -> None:
    name = cli.json("order", "show", "make")["id"]
    assert cli.json("order", "why", name)["name"] == "make"


def test_why_follows_a_failed_dependency_to_its_root(cli: Cli) -> None:
    document = cli.json("order", "why", "later")
    assert document["reason"] == "dependency_failed"
    assert [cause["name"] for cause in document["needs"]] == ["nightly/after"]
    assert [cause["name"] for cause in document["because"]] == ["nightly/broken"]
    assert document["because"][0]["detail"] == "exit code 3, not 0"
    assert document["next"] == "fencepost order retry nightly/broken --with-dependents"
    text = cli("order", "why", "later").out
    assert "because of nightly/broken" in text
    assert "next: fencepost order retry nightly/broken --with-dependents" in text


def test_why_of_a_failure_has_its_message_and_its_log(cli: Cli) -> None:
    document = cli.json("order", "why", "broken")
    assert document["detail"] == "exit code 3, not 0"
    assert document["next"] == "fencepost order log nightly/broken"
    assert document["message"] and document["ended"]


def test_why_follows_what_is_waited_for(fresh: tuple[World, Cli]) -> None:
    world, cli = fresh
    world.submit("p", [draft("a"), draft("b", groups=(needs("a"),)), draft("c", groups=(needs("b"),))])
    document = cli.json("order", "why", "c")
    assert document["reason"] == "waiting_for_dependencies"
    assert [cause["name"] for cause in document["needs"]] == ["p/b"]
    assert [cause["name"] for cause in document["because"]] == ["p/a"]
    assert document["next"] == "fencepost order why p/a"


def test_why_of_a_ready_order_says_who_serves_and_who_stands_before(fresh: tuple[World, Cli]) -> None:
    world, cli = fresh
    world.submit("p", [draft("slow", sh("sleep 30")), draft("second"), draft("third")])
    assert cli.json("order", "why", "third")["workers"] == []
    text = cli("order", "why", "third").out
    assert "No worker is alive in this home; 2 orders stand before it." in text
    with world.working(jobs=1) as app:
        wait_for(app, lambda look: any(order.state == "active" for order in look.orders(look.newest_plans(1)[0].plan)))
        document = cli.json("order", "why", "third")
        assert len(document["workers"]) == 1
        assert document["behind"] == 1
        assert "fencepost order log p/slow --follow" in cli("order", "why", "slow").out
        assert cli("order", "cancel", "slow").code == 0


def test_why_of_a_blocked_budget_names_account_dimension_and_holder(fresh: tuple[World, Cli]) -> None:
    world, cli = fresh
    orders = [
        draft("holder", sh("sleep 30"), per_attempt={"tokens_input": 60}),
        draft("waiter", per_attempt={"tokens_input": 60}),
    ]
    world.submit("p", orders, ceilings={"attempts": 12, "tokens_input": 100})
    with world.working(jobs=2) as app:
        wait_for(app, lambda look: any(order.state == "blocked_budget" for order in _orders(look)))
        wait_for(app, lambda look: any(order.state == "active" for order in _orders(look)))
        document = cli.json("order", "why", "waiter")
        (short,) = document["budget"]
        assert (short["kind"], short["name"], short["dimension"]) == ("plan", "p", "tokens_input")
        assert (short["needed"], short["available"], short["ceiling"]) == (60, 40, 100)
        assert [(holder["name"], holder["amount"]) for holder in short["held_by"]] == [("p/holder", 60)]
        assert document["next"] == "fencepost budget set --plan p --tokens-input 120"
        assert "p/holder holds 60" in cli("order", "why", "waiter").out
        shown = cli.json("budget", "show", "--plan", "p")
        assert [(hold["name"], hold["held"]["tokens_input"]) for hold in shown["holds"]] == [("p/holder", 60)]
        assert shown["items"][-1]["dimensions"]["tokens_input"]["held"] == 60
        cli("order", "cancel", "holder")


def _orders(look: object) -> list[object]:
    return look.orders(look.newest_plans(1)[0].plan)  # type: ignore[attr-defined]  # a view of the store


def test_why_says_that_the_clock_is_blocked(fresh: tuple[World, Cli]) -> None:
    world, cli = fresh
    world.submit("p", [draft("a")])
    with world.open() as app:
        now = app.kernel.clock.read()
        reading = Reading(
            source=now.source,
            boot_id=now.boot_id,
            utc_us=now.utc_us + 60 * SECOND_US,
            tick_us=now.tick_us,
            uncertainty_us=now.uncertainty_us,
        )
        app.kernel.write(app.kernel.request("sampler", ObserveClock(reading=reading))).required()
    document = cli.json("order", "why", "a")
    assert document["clock"]["state"] == "clock_reconciliation_required"
    assert "host's clock" in document["next"]
    assert "clock_reconciliation_required" in cli("order", "why", "a").out
    clock = cli.json("clock", "show")
    assert clock["state"] == "clock_reconciliation_required"
    assert clock["quarantine"]["difference_us"] == pytest.approx(60 * SECOND_US, abs=SECOND_US)
    assert "by its own ticks; " in cli("clock", "show").out


@pytest.mark.parametrize("noun", ["order", "plan"])
def test_w19_the_note_of_a_cancel_is_kept_and_shown(fresh: tuple[World, Cli], noun: str) -> None:
    """New user's finding 15: it was taken and lost."""
    world, cli = fresh
    world.submit("two", (draft("a"), draft("b")))
    note = "the wrong \x1b[31mbranch\nand too late"
    cli("order", "cancel", "b")
    cli(noun, "cancel", "two/a" if noun == "order" else "two", "--note", note)
    assert cli.json("order", "why", "two/a")["note"] == note
    assert cli.json("order", "show", "two/a")["note"] == note
    assert "  note: the wrong ?[31mbranch\n  and too late\n" in cli("order", "why", "two/a").out
    assert re.search(r"\nnote +the wrong \?\[31mbranch\n +and too late\n", cli("order", "show", "two/a").out)
    assert "note" not in cli.json("order", "why", "two/b"), "of its own cancel nobody said why"
    assert cli.json("order", "show", "two/b")["note"] is None
    assert cli("journal", "export").out.count("the wrong ") == 1


def test_cancel_is_done_once_under_one_key(fresh: tuple[World, Cli]) -> None:
    world, cli = fresh
    world.submit("p", [draft("a"), draft("b", groups=(needs("a"),))])
    first = cli.json("order", "cancel", "a", "--note", "not wanted", "--command-key", "k1")
    assert (first["name"], first["state"], first["reason"]) == ("a", "cancelled", "cancelled_by_request")
    assert first["fresh"] is True
    again = cli.json("order", "cancel", "a", "--note", "not wanted", "--command-key", "k1")
    assert again["fresh"] is False
    assert again["sequence"] == first["sequence"]
    other = cli("order", "cancel", "b", "--command-key", "k1", "--json")
    assert (other.code, other.error["code"]) == (5, "operation_collision")
    assert cli.json("order", "why", "b")["because"][0]["name"] == "p/a"


def test_retry_replaces_the_order_and_what_ended_because_of_it(fresh: tuple[World, Cli]) -> None:
    world, cli = fresh
    plan = world.submit("p", [draft("a", sh("test -e $FENCEPOST_REPO/ok")), draft("b", groups=(needs("a"),))])
    world.work(plan)
    before = {item["name"]: item["id"] for item in cli.json("order", "list")["items"]}
    (world.folder / "ok").touch()
    document = cli.json("order", "retry", "a", "--with-dependents")
    assert [made["name"] for made in document["replacements"]] == ["a", "b"]
    assert [made["replaces"] for made in document["replacements"]] == [before["a"], before["b"]]
    assert document["state"] == "ready"
    world.work(plan)
    after = {item["name"]: item for item in cli.json("order", "list")["items"]}
    assert [item["state"] for item in after.values()] == ["applied", "applied"]
    assert after["a"]["replaces"] == before["a"]
    every = cli.json("order", "list", "--all")["items"]
    assert sorted(item["state"] for item in every) == ["applied", "applied", "dependency_failed", "failed"]
    old = cli.json("order", "why", before["b"])
    assert old["replaced_by"] == after["b"]["id"]


def test_every_state_can_be_asked_for(cli: Cli) -> None:
    for state in WORK_ORDER.rows:
        assert cli("order", "list", "--state", state, "--json").code == 0
