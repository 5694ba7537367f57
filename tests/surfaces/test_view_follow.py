"""The query model behind the live view: what it holds equals what is there, at the cost of what has happened."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.app import App
from fencepost.core.commands import CancelOrder, OrderDraft, RetryOrder
from fencepost.core.records.plan import Retry
from fencepost.core.state import PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.graph_model import read_graph
from fencepost.surfaces.cli.graph_svg import graph_svg
from fencepost.surfaces.cli.view import follow, live
from fencepost.surfaces.cli.view.cells import Line, text_of
from fencepost.surfaces.cli.view.draw import Place, chosen, draw
from fencepost.surfaces.cli.view.follow import Follower
from fencepost.surfaces.cli.view.live import LiveView
from fencepost.surfaces.cli.view.logs import last_log_line
from fencepost.surfaces.cli.view.reasons import GONE, Reasons
from tests.surfaces.board import Board
from tests.surfaces.cli_world import World, draft, main_orders, needs, sh, wait_for

PLACE = Place(80, 24)


class Counting:
    """Reads of a look, counted by their name."""

    def __init__(self, reads: Any) -> None:
        self._reads = reads
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._reads, name)


@contextmanager
def counted(app: App) -> Iterator[tuple[Look, Counting]]:
    with app.kernel.reader.look() as look:
        counting = Counting(look._reads)
        look._reads = counting  # type: ignore[assignment]  # stands in for what it counts
        yield look, counting


def picture_lines(app: App, follower: Follower, now_us: int = 0) -> list[str]:
    picture = follower.picture()
    choice = chosen(picture, PLACE)
    reasons = Reasons(app, follower)
    with app.kernel.reader.look() as look:
        reasons.read(look, reasons.missing([row.order for row in choice.rows]))
    details = {row.order: reasons.detail(row.order, gone=False, log="") for row in choice.rows}
    return [text_of(line) for line in draw(picture, choice, details, now_us, PLACE)]


def chain(count: int, width: int = 20) -> list[OrderDraft]:
    return [
        draft(f"n{number:05}", groups=(needs(f"n{number - width:05}"),) if number >= width else ())
        for number in range(count)
    ]


def test_w28_following_equals_looking_anew_at_every_change(tmp_path: Path) -> None:
    """A whole run, with failures, retries, a replacement and a cancel: at each change both say the same."""
    world = World(tmp_path)
    plan = world.submit("main", main_orders())
    compared = 0
    with world.working() as app:
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)

        def same(look: Look) -> bool:
            nonlocal compared
            follower.update(look)
            anew = Follower(look, plan=plan)
            assert follower.picture().rows == anew.picture().rows
            assert follower.picture() == anew.picture()
            assert follower.attempts == anew.attempts
            assert [follower.waits_for(one) for one in follower.current()] == [
                anew.waits_for(one) for one in anew.current()
            ]
            compared += 1
            found = look.find(plan, PlanState)
            return found is not None and found.open == 0

        wait_for(app, same)
        broken = next(order for order in follower.current() if order.task == "broken")
        retry = RetryOrder(order=broken.order, with_dependents=True)
        app.kernel.write(app.kernel.request("human", retry)).required()
        wait_for(app, same)
    assert compared > 5
    with world.open() as app:
        lines = picture_lines(app, follower)
        assert any("✗ broken" in line and "exit code 3, not 0; may fail" in line for line in lines), lines
        assert any("⊘ after" in line and "because of broken" in line for line in lines), lines


def test_the_steps_of_a_view_are_those_of_the_graph(tmp_path: Path) -> None:
    world = World(tmp_path)
    plan = world.submit("main", main_orders())
    with world.open() as app, app.kernel.reader.look() as look:
        rows = Follower(look, plan=plan).picture().rows
        found = look.find(plan, PlanState)
        assert found is not None
        layers = read_graph(look, found).layers
    assert [row.name for row in rows] == [node.name for layer in layers for node in layer]
    assert [row.step for row in rows] == [step for step, layer in enumerate(layers, start=1) for _ in layer]


def test_w28_a_change_costs_the_same_few_reads_however_large_the_plan_is(tmp_path: Path) -> None:
    costs = []
    for size in (40, 1_200):
        world = World(tmp_path / str(size))
        plan = world.submit("plan", chain(size))
        with world.open() as app:
            with counted(app) as (look, counting):
                follower = Follower(look, plan=plan)
                assert len(counting.calls) <= 12 + size // 100, counting.calls
            order = follower.current()[3]
            app.kernel.write(app.kernel.request("human", CancelOrder(order=order.order, note=""))).required()
            with counted(app) as (look, counting):
                assert follower.update(look)
                costs.append(len(counting.calls))
            with counted(app) as (look, counting):
                assert not follower.update(look)
                assert counting.calls == [], "where nothing was written, nothing is read"
            assert "cancelled" in {order.state for order in follower.current()}
    assert costs[0] == costs[1] <= 4, costs


def test_a_view_of_one_order_shows_what_it_waits_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    orders: Sequence[OrderDraft] = [
        draft("a"),
        draft("b", groups=(needs("a"),)),
        draft("c", groups=(needs("b"),)),
        draft("apart"),
    ]
    plan = world.submit("main", orders)
    with world.open() as app:
        with app.kernel.reader.look() as look:
            order = next(one for one in look.orders(plan) if one.task == "c")
            follower = Follower(look, plan=plan, order=order.order)
        assert [row.name for row in follower.picture().rows] == ["a", "b", "c"]
        assert follower.picture().name == "main/c"


def test_a_blocked_budget_says_what_lacks(tmp_path: Path) -> None:
    world = World(tmp_path)
    orders = [draft("first", ("sleep", "60")), draft("second")]
    plan = world.submit("tight", orders, ceilings={"time_us": 30_000_000})
    with world.working() as app:
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)

        def blocked(look: Look) -> bool:
            follower.update(look)
            return "blocked_budget" in {order.state for order in follower.current()}

        wait_for(app, blocked)
        lines = picture_lines(app, follower)
        assert any("unfunded" in line and "time: needs 20s, 10s free of 30s" in line for line in lines), lines
        app.kernel.write(
            app.kernel.request("human", CancelOrder(order=follower.current()[0].order, note=""))
        ).required()


FAMILY = """
fencepost attempt resume >/dev/null && exit 0
for name in one two; do
  printf 'name = "%s"\\nrun = ["true"]\\nattempt_time = "5s"\\n' $name > child.toml
  fencepost attempt child child.toml
done
echo kept | fencepost attempt checkpoint -
fencepost attempt yield --question go --prompt "Go on?"
"""


def test_children_stand_below_their_parent_and_questions_are_seen(tmp_path: Path) -> None:
    world = World(tmp_path)
    orders = [draft("index", sh(FAMILY), ceilings={"attempts": 6}), draft("after", groups=(needs("index"),))]
    plan = world.submit("main", [*orders, draft("apart")])
    with world.working() as app:
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)

        def asks(look: Look) -> bool:
            follower.update(look)
            states = {order.task: order.state for order in follower.current()}
            return states.get("index.one") == states.get("index.two") == "applied" and bool(follower.asking())

        wait_for(app, asks)
        lines = picture_lines(app, follower)
        with app.kernel.reader.look() as look:
            found = look.find(plan, PlanState)
            assert found is not None
            graph = read_graph(look, found)
    rows = follower.picture().rows
    assert [(row.name, row.step) for row in rows] == [
        ("index", 1),
        ("index.one", 1),
        ("index.two", 1),
        ("apart", 1),
        ("after", 2),
    ]
    assert any("? index" in line and "Go on?" in line for line in lines), lines
    assert [[node.name for node in layer] for layer in graph.layers] == [
        ["index", "apart"],
        ["after", "index.one", "index.two"],
    ]
    assert graph_svg(graph).count("its child") == 1


def test_the_last_line_of_a_running_log_is_cleaned(tmp_path: Path) -> None:
    world = World(tmp_path)
    script = "printf 'first\\nsecond \\033[2J\\033[1A\\007 line\\r\\n\\n'; sleep 60"
    plan = world.submit(
        "logs", [draft("one", sh(script), retry=Retry(on=("executor",), backoff_us=1, backoff_max_us=1))]
    )
    with world.working() as app:
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)

        def said(look: Look) -> bool:
            follower.update(look)
            running = follower.running()
            return bool(running) and last_log_line(app, running[0].attempt) == "second ? line"

        wait_for(app, said)
        app.kernel.write(
            app.kernel.request("human", CancelOrder(order=follower.current()[0].order, note=""))
        ).required()
        gone = last_log_line(app, "attempt_" + "0" * 32)
    assert gone == "", "what has no folder says nothing"


def test_a_store_that_has_moved_on_by_far_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    plan = world.submit("main", [draft("a"), draft("b")])
    with world.open() as app:
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)
        order = follower.current()[0]
        app.kernel.write(app.kernel.request("human", CancelOrder(order=order.order, note=""))).required()
        monkeypatch.setattr(follow, "RECORDS_MAX", 0)
        with app.kernel.reader.look() as look:
            assert follower.update(look)
            assert follower.picture() == Follower(look, plan=plan).picture()
    assert follower.current()[0].state == "cancelled"


def test_a_view_names_an_order_that_asks_by_its_id_once_two_open_plans_have_the_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    asks = draft("a", sh("fencepost attempt yield --question go"))
    plan = world.submit("main", [asks])
    board = Board(80, 20)
    with world.working() as app:
        wait_for(app, lambda look: look.orders(plan)[0].state == "waiting")
        with app.kernel.reader.look() as look:
            view = live.live_view(app, board.out, look, hint="", plan=plan)
        try:
            (notice,) = view._all_notices()
            assert notice.startswith("a asks: fencepost") and notice.endswith(" order answer main/a VALUE")
            world.submit("main", [asks])
            with app.kernel.reader.look() as look:
                view.tell(look)
                (order,) = look.orders(plan)
            (notice,) = view._all_notices()
            assert notice.startswith("a asks: fencepost") and notice.endswith(f" order answer {order.order} VALUE")
        finally:
            view.close()
    board.close()


def test_w28_a_view_is_drawn_when_something_changed_or_a_second_passed_and_not_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    plan = world.submit("main", [draft("a"), draft("b"), draft("c")])
    now = 100.0
    board = Board(60, 20)
    with world.open() as app:
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)
        view = LiveView(app, board.out, follower, hint="", monotonic=lambda: now).open()
        drawn: list[float] = []
        draw_lines = view.terminal.draw

        def counting(lines: Sequence[Line], *, anew: bool = False) -> None:
            drawn.append(now)
            draw_lines(lines, anew=anew)

        monkeypatch.setattr(view.terminal, "draw", counting)
        view.tick()
        now = 100.2
        view.tick()
        assert drawn == [100.0], "nothing has changed"
        for number, at in enumerate((100.3, 100.35, 100.4)):
            order = follower.current()[number]
            app.kernel.write(app.kernel.request("human", CancelOrder(order=order.order, note=""))).required()
            with app.kernel.reader.look() as look:
                view.tell(look)
            now = at
            view.tick()
        assert drawn == [100.0, 100.3], "changes that come at once are drawn together"
        now = 100.43
        view.tick()
        assert drawn == [100.0, 100.3, 100.43]
        now = 101.1
        view.tick()
        assert drawn[3:] == [101.1], "a second has passed, so that times have moved on"
        board.resize(50, 18)
        now = 101.3
        view.tick()
        assert drawn[4:] == [101.3], "another size is drawn at once"
        assert all(len(line) < 50 for line in board.pump())
        view.keep()
        view.close()
        assert sum("cancelled" in line for line in board.pump()) == 4, "the last picture stays"
    board.close()


@pytest.mark.nightly
def test_w28_ten_thousand_orders_are_redrawn_in_fifty_milliseconds(tmp_path: Path) -> None:
    """Processor time of one redraw, everything included, and of taking in one change."""
    world = World(tmp_path)
    plan = world.submit("large", chain(10_000, 100))
    with world.open() as app:
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)
        picture_lines(app, follower)
        took = []
        for order in follower.current()[:9]:
            app.kernel.write(app.kernel.request("human", CancelOrder(order=order.order, note=""))).required()
            before = time.process_time()
            with app.kernel.reader.look() as look:
                follower.update(look)
            picture_lines(app, follower)
            took.append(time.process_time() - before)
    assert sorted(took)[len(took) // 2] < 0.05, took


def test_a_row_whose_next_attempt_runs_is_not_said_to_have_lost_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lives is looked at now and then; an attempt that has begun since is not the one that was looked at."""
    world = World(tmp_path)
    retry = Retry(on=("executor",), backoff_us=1_000, backoff_max_us=1_000)
    script = f"test -e {tmp_path}/go && sleep 60; while ! test -e {tmp_path}/go; do sleep 0.05; done; exit 75"
    plan = world.submit("main", [draft("a", sh(script), retry=retry)])
    monkeypatch.setattr(live, "is_orphan", lambda *_: True)
    board = Board(60, 20)
    with world.working() as app:

        def runs(ordinal: int) -> None:
            def ready(look: Look) -> bool:
                (order,) = look.orders(plan)
                attempt = look.attempt(order.attempt) if order.attempt else None
                return attempt is not None and attempt.state == "running" and attempt.ordinal == ordinal

            wait_for(app, ready)

        runs(1)
        with app.kernel.reader.look() as look:
            follower = Follower(look, plan=plan)
        view = LiveView(app, board.out, follower, hint="")
        choice = chosen(follower.picture(), PLACE)
        view._look_who_lives(100.0)
        assert [detail.note for detail in view._details(choice).values()] == [GONE]
        (tmp_path / "go").touch()
        runs(2)
        with app.kernel.reader.look() as look:
            view.tell(look)
        view._look_who_lives(100.1)
        assert GONE not in [detail.note for detail in view._details(choice).values()]
    board.close()
