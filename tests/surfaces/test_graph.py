"""The graph of a plan: the same text and SVG for the same plan, readable for a dozen orders and for hundreds."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fencepost.core.commands import EnrolWorker, GroupDraft, OrderDraft, Reserve
from fencepost.core.machines import WORK_ORDER
from fencepost.services.attempt import Attempts
from fencepost.services.cleaner import Cleaner
from fencepost.services.finish import Finisher
from fencepost.services.leases import Leases
from fencepost.services.sink import Sink
from fencepost.surfaces.cli import graph_layout, graph_svg
from fencepost.surfaces.cli.graph_model import Graph, Need, Node, layers_of
from fencepost.surfaces.cli.graph_text import graph_lines
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
        finisher, cleaner = Finisher(means, worker.worker), Cleaner(means, lambda error: None)
        attempts = Attempts(means, worker.worker, leases, finisher, cleaner, Sink(means))
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


def test_a_drawing_says_states_by_sign_and_needs_by_their_kind(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Colour only repeats what a sign, a word or a dash says, and both are explained in the drawing itself."""
    svg = Cli(world, capsys)("order", "graph", "--plan", "build", "--svg", "-").out
    root = ElementTree.fromstring(svg)
    boxes = {_name(box): ["".join(text.itertext()) for text in box.iter(f"{SVG}text")] for box in _boxes(root)}
    assert boxes["lint"] == ["lint", "failed, may fail", "✗"]
    assert boxes["fetch"][2] == "✓" and boxes["publish"][2] == "·"
    said = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    for text in ("2 applied", "6 blocked_dependency", "needs", "needs its end", "needs any of them"):
        assert text in said
    dashes = {path.get("stroke-dasharray") for path in root.iter(f"{SVG}path") if path.get("marker-end")}
    assert len(dashes) == 3
    assert "prefers-color-scheme:dark" in "".join(style.text or "" for style in root.iter(f"{SVG}style"))


def _boxes(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [box for box in root.iter(f"{SVG}g") if box.get("data-order")]


def test_every_state_has_a_colour_in_light_and_dark() -> None:
    assert set(graph_svg._CLASS_OF) == set(WORK_ORDER.rows)
    assert set(graph_svg._CLASS_OF.values()) == set(graph_svg._LIGHT) == set(graph_svg._DARK)
    for palette, ink in ((graph_svg._LIGHT, graph_svg._INK[0]), (graph_svg._DARK, graph_svg._INK[1])):
        for name, (fill, tone) in palette.items():
            assert _contrast(ink, fill) >= 7, name
            assert _contrast(tone, fill) >= 4.5, name


def _contrast(one: str, other: str) -> float:
    """The ratio of WCAG between two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def nodes_graph(needs_of: Mapping[str, Sequence[str]]) -> Graph:
    nodes = tuple(
        Node(
            order=name,
            name=name,
            state="ready",
            reason="waiting_for_worker",
            may_fail=False,
            needs=(Need(kind="required", members=tuple(members)),) if members else (),
        )
        for name, members in needs_of.items()
    )
    return Graph(plan="plan_", name="drawn", sequence=1, nodes=nodes, layers=layers_of(nodes))


SIZES = graph_layout.Sizes(margin=10, box=20, gap=5, bend=4, between=40, width_of=lambda node: 50)


def laid_out(needs_of: Mapping[str, Sequence[str]]) -> graph_layout.Layout:
    return graph_layout.lay_out(nodes_graph(needs_of), SIZES, top=30, width_least=300)


def columns_of(layout: graph_layout.Layout) -> list[list[graph_layout.Slot]]:
    every = {id(slot): slot for slot in [*layout.slots, *(slot for edge in layout.edges for slot in edge.slots)]}
    found: dict[int, list[graph_layout.Slot]] = {}
    for slot in sorted(every.values(), key=lambda slot: (slot.x, slot.y)):
        found.setdefault(slot.x, []).append(slot)
    return list(found.values())


def crossings_of(layout: graph_layout.Layout) -> int:
    """Counted pair by pair, from where things stand."""
    pairs = {(id(a), id(b)): (a, b) for edge in layout.edges for a, b in pairwise(edge.slots)}
    lines = [(a.x, a.y, b.y) for a, b in pairs.values()]
    return sum(
        (first[1] - second[1]) * (first[2] - second[2]) < 0
        for first, second in combinations(lines, 2)
        if first[0] == second[0]
    )


def test_twisted_rows_and_trees_are_drawn_without_a_crossing() -> None:
    twisted = {f"a{number}": () for number in range(12)}
    twisted |= {f"b{number}": (f"a{(number * 5) % 12}",) for number in range(12)}
    twisted |= {f"c{number}": (f"b{(number * 7) % 12}",) for number in range(12)}
    assert crossings_of(laid_out(twisted)) == 0
    tree = {"root": ()} | {f"n{number}": (f"n{(number - 1) // 3}",) if number else ("root",) for number in range(40)}
    assert crossings_of(laid_out(tree)) == 0


def test_ordering_removes_most_crossings_of_a_tangle() -> None:
    tangle: dict[str, Sequence[str]] = {f"a{number}": () for number in range(20)}
    tangle |= {f"b{number}": (f"a{number * 7 % 20}", f"a{(number * 7 + 1) % 20}") for number in range(20)}
    layout = laid_out(tangle)
    columns = columns_of(layout)
    plain = nodes_graph(tangle)
    left = {node.order: place for place, node in enumerate(plain.layers[0])}
    lines = [(left[member], place) for place, node in enumerate(plain.layers[1]) for member in node.members()]
    before = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(lines, 2))
    assert crossings_of(layout) * 8 < before, "a ring of forty edges has nineteen at least"
    assert graph_layout._crossings(_in_places(columns)) == crossings_of(layout), "counted fast as counted slowly"


@pytest.mark.parametrize("seed", range(6))
def test_no_exchange_of_two_neighbours_would_remove_a_crossing(seed: int) -> None:
    drawn = random.Random(seed)
    tangle: dict[str, Sequence[str]] = {f"a{number}": () for number in range(12)}
    for left, right in (("a", "b"), ("b", "c")):
        for number in range(12):
            tangle[f"{right}{number}"] = tuple(sorted({f"{left}{drawn.randrange(12)}" for _ in range(2)}))
    columns = _in_places(columns_of(laid_out(tangle)))
    fewest = graph_layout._crossings(columns)
    assert fewest > 0, "a tangle that has some"
    for column in columns:
        for upper, lower in pairwise(column):
            upper.place, lower.place = lower.place, upper.place
            column.sort(key=lambda slot: slot.place)
            assert graph_layout._crossings(columns) >= fewest
            upper.place, lower.place = lower.place, upper.place
            column.sort(key=lambda slot: slot.place)


def _in_places(columns: list[list[graph_layout.Slot]]) -> list[list[graph_layout.Slot]]:
    for column in columns:
        for place, slot in enumerate(column):
            slot.place = place
    return columns


def test_nothing_touches_and_what_belongs_together_stands_side_by_side() -> None:
    fan: dict[str, Sequence[str]] = {f"src{number}": () for number in range(5)}
    fan |= {f"leaf{number}": (f"src{number // 4}",) for number in range(20)}
    layout = laid_out(fan)
    for column in columns_of(layout):
        for upper, lower in pairwise(column):
            assert upper.y + (upper.height + lower.height) // 2 + SIZES.gap <= lower.y
    by_name = {slot.node.name: slot for slot in layout.slots if slot.node is not None}
    for number in range(5):
        leaves = [by_name[f"leaf{number * 4 + place}"].y for place in range(4)]
        assert min(leaves) < by_name[f"src{number}"].y < max(leaves), "each stands before the middle of its own"


def test_ten_thousand_orders_are_laid_out_in_seconds() -> None:
    large = {
        f"n{number}": (f"n{number - 100}", f"n{(number - 100) // 2}") if number >= 100 else ()
        for number in range(10_000)
    }
    before = time.process_time()
    assert len(laid_out(large).slots) == 10_000
    assert time.process_time() - before < 20


def test_children_are_said_to_be_inside_their_parent() -> None:
    def node(name: str, *, parent: str = "", behind: str = "") -> Node:
        needs = (Need(kind="required", members=(behind,)),) if behind else ()
        return Node(
            order=name, name=name, state="applied", reason="applied", may_fail=False, needs=needs, parent=parent
        )

    nodes = (
        node("survey"),
        node("ship", behind="survey"),
        node("survey.a", parent="survey"),
        node("survey.b", parent="survey", behind="survey.a"),
    )
    graph = Graph(plan="p", name="p", sequence=1, nodes=nodes, layers=layers_of(nodes))
    lines = [line.strip() for line in graph_lines(graph)]
    assert "2  applied  ship  needs survey" in lines and "applied  survey.a  inside survey" in lines
    assert "3  applied  survey.b  inside survey, needs survey.a" in lines
