"""The graph of a plan: the same text and SVG for the same plan, readable for a dozen orders and for hundreds."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from fencepost.core.commands import EnrolWorker, GroupDraft, OrderDraft, Reserve
from fencepost.services.attempt import Attempts
from fencepost.services.cleaner import Cleaner
from fencepost.services.finish import Finisher
from fencepost.services.leases import Leases
from tests.surfaces.cli_world import Cli, World, draft, needs

SVG = "{http://www.w3.org/2000/svg}"

GOLDEN = """\
plan build: 12 orders: 2 applied, 6 blocked_dependency, 2 dependency_failed,
  1 failed, 1 ready

1  applied             fetch, format
   failed              lint (may fail)
   ready               docs

2  dependency_failed   strict (may fail)  needs lint
   blocked_dependency  site, links  needs docs

3  dependency_failed   stricter (may fail)  needs strict
   blocked_dependency  unit  needs end of lint, strict; site
   blocked_dependency  any-check  needs any of strict, links

4  blocked_dependency  package (may fail)  needs fetch, format, site, unit

5  blocked_dependency  publish
     needs fetch, format, docs, site, links, unit, any-check, package
"""


def build_orders() -> list[OrderDraft]:
    return [
        draft("fetch"),
        draft("format"),
        draft("lint", ("false",), may_fail=True),
        draft("strict", groups=(needs("lint"),), may_fail=True),
        draft("stricter", groups=(needs("strict"),), may_fail=True),
        draft("docs", ("sleep", "0")),
        draft("site", groups=(needs("docs"),)),
        draft("links", groups=(needs("docs"),)),
        draft("unit", groups=(needs("lint", "strict", kind="optional"), needs("site"))),
        draft("any-check", groups=(needs("strict", "links", kind="alternative"),)),
        draft("package", groups=(needs("fetch", "format", "site", "unit"),), may_fail=True),
        draft(
            "publish",
            groups=(needs("fetch", "format", "docs", "site", "links", "unit", "any-check", "package"),),
        ),
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A plan that has come half of its way: `docs` was left waiting."""
    world = World(tmp_path_factory.mktemp("graph"))
    plan = world.submit("build", build_orders())
    run_all_but(world, plan, "docs")
    return world


def run_all_but(world: World, plan: str, left: str) -> None:
    """Run what is ready, one order at a time, but one."""
    with world.open() as app:
        worker = app.worker(jobs=1)
        means = app.means()
        leases = Leases(means, worker.worker)
        reading = means.reading()
        enrol = EnrolWorker(
            worker=worker.worker, host=reading.source, boot_id=reading.boot_id, pid=1, executors=("command/1",)
        )
        app.kernel.write(app.kernel.request("dispatcher", enrol)).required()
        attempts = Attempts(
            means, worker.worker, leases, Finisher(means, worker.worker), Cleaner(means, lambda error: None)
        )
        while True:
            with app.kernel.reader.look() as look:
                free = [order for order in look.orders(plan) if order.state == "ready" and order.task != left]
            if not free:
                return
            order = free[0]
            command = Reserve(order=order.order, expected=order.version, worker=worker.worker)
            receipt = app.kernel.write(app.kernel.request("dispatcher", command))
            attempts.run(receipt.required()["reservations"][0], None)


def test_text_of_a_dozen_orders(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    answer = Cli(world, capsys)("order", "graph", "--plan", "build")
    assert answer.code == 0
    assert answer.out == GOLDEN


def test_document_of_a_graph(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    document = Cli(world, capsys).json("order", "graph", "--plan", "build")
    assert document["steps"][0] == ["fetch", "format", "lint", "docs"]
    assert {order["name"]: order["state"] for order in document["orders"]}["lint"] == "failed"
    ids = {order["id"]: order["name"] for order in document["orders"]}
    unit = next(order for order in document["orders"] if order["name"] == "unit")
    assert [(need["kind"], [ids[name] for name in need["orders"]]) for need in unit["needs"]] == [
        ("optional", ["lint", "strict"]),
        ("required", ["site"]),
    ]


def test_svg_is_valid_and_says_states_in_words(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cli = Cli(world, capsys)
    path = tmp_path / "graph.svg"
    assert cli.json("order", "graph", "--plan", "build", "--svg", str(path))["svg"] == str(path)
    data = path.read_bytes()
    root = ElementTree.fromstring(data)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    labels = [root.find(f"{SVG}{name}") for name in ("title", "desc")]
    assert root.get("aria-labelledby") == " ".join(str(label.get("id")) for label in labels if label is not None)
    assert "12 orders in 5 steps" in (labels[1].text or "" if labels[1] is not None else "")
    boxes = {_name(box): box for box in root.iter(f"{SVG}g") if box.get("data-order")}
    assert len(boxes) == 12
    for name, state in (("fetch", "applied"), ("lint", "failed"), ("docs", "ready"), ("publish", "blocked_dependency")):
        texts = ["".join(text.itertext()) for text in boxes[name].iter(f"{SVG}text")]
        assert boxes[name].get("data-state") == state
        assert texts[1].split(",")[0] == state
    rects = [boxes[name].find(f"{SVG}rect") for name in ("fetch", "lint", "docs", "publish")]
    fills = {rect.get("fill") for rect in rects if rect is not None}
    assert len(fills) == 4
    assert cli("order", "graph", "--plan", "build", "--svg", "-").out.encode() == data


def _name(box: ElementTree.Element) -> str:
    return "".join(next(box.iter(f"{SVG}text")).itertext())


def wide_orders(count: int) -> list[OrderDraft]:
    orders = []
    for number in range(count):
        groups: tuple[GroupDraft, ...] = ()
        if number >= 30:
            members = dict.fromkeys((f"n{number * 7 % (number - 10):03d}", f"n{number - 25:03d}"))
            kind = ("required", "optional", "alternative")[number % 3]
            groups = (needs(*members, kind=kind if number % 5 == 0 else "required"),)
        orders.append(draft(f"n{number:03d}", groups=groups, may_fail=number % 40 == 0))
    return orders


def test_two_hundred_orders_stay_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path / "home")
    world.submit("wide", wide_orders(200))
    world.submit("loose", [draft(f"l{number}") for number in range(200)])
    cli = Cli(world, capsys)
    text = cli("order", "graph", "--plan", "wide").out
    assert max(map(len, text.splitlines())) < 80
    assert len(text.splitlines()) <= 200
    for number in range(200):
        assert f"n{number:03d}" in text
    loose = cli("order", "graph", "--plan", "loose").out
    assert len(loose.splitlines()) < 30
    first = cli("order", "graph", "--plan", "wide", "--svg", "-").out
    assert first == cli("order", "graph", "--plan", "wide", "--svg", "-").out
    for plan in ("wide", "loose"):
        _check_boxes(ElementTree.fromstring(cli("order", "graph", "--plan", plan, "--svg", "-").out), 200)


def _check_boxes(root: ElementTree.Element, count: int) -> None:
    """No two boxes touch, and all lie inside the drawing."""
    width, height = int(root.get("width", "0")), int(root.get("height", "0"))
    assert width < 4_000 and height < 4_000
    boxes = []
    for box in root.iter(f"{SVG}g"):
        if box.get("data-order"):
            rect = box.find(f"{SVG}rect")
            assert rect is not None
            boxes.append(tuple(int(rect.get(name, "-1")) for name in ("x", "y", "width", "height")))
    assert len(boxes) == count
    for x, y, w, h in boxes:
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
    boxes.sort()
    for place, (x, y, w, h) in enumerate(boxes):
        for other_x, other_y, _, other_h in boxes[place + 1 :]:
            if other_x >= x + w:
                break
            assert other_y >= y + h or y >= other_y + other_h


def test_edges_lead_from_left_to_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    chain = [draft("a"), draft("b", groups=(needs("a"),)), draft("c", groups=(needs("a", "b"),))]
    world.submit("chain", chain)
    root = ElementTree.fromstring(Cli(world, capsys)("order", "graph", "--svg", "-").out)
    paths = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(paths) == 3
    for path in paths:
        words = path.replace("C", " ").replace("M", " ").replace("H", " ").split()
        assert int(words[0]) < int(words[-2])


def test_edges_that_need_not_cross_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.submit("p", [draft("a"), draft("b"), draft("c", groups=(needs("b"),)), draft("d", groups=(needs("a"),))])
    root = ElementTree.fromstring(Cli(world, capsys)("order", "graph", "--svg", "-").out)
    height = {
        _name(box): int(next(box.iter(f"{SVG}rect")).get("y", "0"))
        for box in root.iter(f"{SVG}g")
        if box.get("data-order")
    }
    assert height["a"] < height["b"]
    assert height["d"] < height["c"]


def test_a_replacement_stands_in_the_place_of_what_it_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path)
    plan = world.submit("p", [draft("a", ("false",)), draft("b", groups=(needs("a"),)), draft("c")])
    world.work(plan)
    cli = Cli(world, capsys)
    assert cli("order", "retry", "a", "--with-dependents").code == 0
    document = cli.json("order", "graph")
    assert document["steps"] == [["a", "c"], ["b"]]
    assert [order["state"] for order in document["orders"]] == ["ready", "blocked_dependency", "applied"]
