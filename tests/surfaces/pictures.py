"""The pictures of `docs/pictures/`: a live view as a terminal shows it, and the drawing of the same plan.

`python -m tests.surfaces.pictures` writes them anew, which `./dev docs` does too; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from fencepost.surfaces.cli.graph_model import Graph, Need, Node, layers_of
from fencepost.surfaces.cli.graph_svg import graph_svg
from fencepost.surfaces.cli.view.cells import Line, width_of
from fencepost.surfaces.cli.view.draw import Place, chosen, draw
from tests.surfaces.view_samples import NOW, middle

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
COLUMNS, ROWS = 84, 26
CELL, LINE, MARGIN, BAR = 8, 18, 20, 30

_LIGHT = {
    "": "#1f2328",
    "strong": "#1f2328",
    "faint": "#6a737d",
    "done": "#1a7f37",
    "lost": "#c4261d",
    "over": "#8c4a45",
    "moving": "#0a6c9f",
    "later": "#8a5a00",
    "person": "#8430b8",
}
_DARK = {
    "": "#e6edf3",
    "strong": "#ffffff",
    "faint": "#8b949e",
    "done": "#56d364",
    "lost": "#ff7b72",
    "over": "#c99a96",
    "moving": "#56c8ff",
    "later": "#e3b341",
    "person": "#d2a8ff",
}
_BOLD = frozenset({"strong", "lost", "moving", "person"})


def terminal_svg(lines: Sequence[Line], *, columns: int, command: str, described: str) -> str:
    """Lines as a terminal's window, on a light page and on a dark one."""
    width, height = columns * CELL + 2 * MARGIN, len(lines) * LINE + BAR + 2 * MARGIN
    dark = "".join(f".s{name}{{fill:{colour}}}" for name, colour in _DARK.items())
    dark += ".window{fill:#0d1117;stroke:#30363d}.bar{stroke:#30363d}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' role="img" aria-labelledby="title desc"'
        ' font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13">',
        f'<title id="title">{escape(command)}</title>',
        f'<desc id="desc">{escape(described)}</desc>',
        f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>",
        f'<rect class="window" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="#ffffff"'
        ' stroke="#d0d7de"/>',
        f'<path class="bar" d="M0 {BAR}H{width}" stroke="#d0d7de"/>',
        f'<text class="sfaint" x="{MARGIN}" y="20" fill="{_LIGHT["faint"]}">$ {escape(command)}</text>',
    ]
    for number, line in enumerate(lines):
        y = BAR + MARGIN + number * LINE + 13
        at = 0
        for text, style in line:
            wide = width_of(text)
            if text.strip():
                # Leading space is moved over, so that whoever shows this in another font keeps the columns.
                lead = len(text) - len(text.lstrip(" "))
                shown = text.strip(" ")
                bold = ' font-weight="bold"' if style in _BOLD else ""
                parts.append(
                    f'<text class="s{style}" x="{MARGIN + (at + lead) * CELL}" y="{y}" fill="{_LIGHT[style]}"{bold}'
                    f' textLength="{width_of(shown) * CELL}" lengthAdjust="spacingAndGlyphs" xml:space="preserve">'
                    f"{escape(shown)}</text>"
                )
            at += wide
    return "\n".join([*parts, "</svg>", ""])


def run_svg() -> str:
    picture, details = middle()
    place = Place(COLUMNS, ROWS)
    lines = draw(picture, chosen(picture, place), details, NOW, place)
    described = (
        "Eleven orders of the plan nightly by step: two applied, two failed, two running with the last line of their "
        "logs, one waiting for its retry, one for money, two for others, one not run; every budget against its ceiling."
    )
    return terminal_svg(lines, columns=COLUMNS, command="fencepost run nightly.toml", described=described)


_NEEDS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "crawl-service": (("required", ("fetch",)),),
    "unit-tests": (("required", ("fetch", "format")),),
    "summaries": (("required", ("format",)), ("optional", ("spelling",))),
    "translate": (("required", ("format",)),),
    "typing": (("required", ("format",)),),
    "package": (("required", ("unit-tests", "summaries", "crawl-service", "translate")),),
    "deploy-to-staging": (("required", ("typing", "package")),),
    "announce": (("alternative", ("package", "summaries")), ("optional", ("unit-tests",))),
}


def drawing_svg() -> str:
    picture, _ = middle()
    nodes = tuple(
        Node(
            order=row.order,
            name=row.name,
            state=row.state,
            reason=row.state,
            may_fail=row.may_fail,
            needs=tuple(
                Need(kind=kind, members=tuple(f"order_{name}" for name in members))
                for kind, members in _NEEDS.get(row.name, ())
            ),
        )
        for row in picture.rows
    )
    return graph_svg(Graph(plan="plan_", name="nightly", sequence=1, nodes=nodes, layers=layers_of(nodes)))


PICTURES = {"run.svg": run_svg, "graph.svg": drawing_svg}


def drifted() -> list[str]:
    """Pictures that are not what they are made of."""
    found = []
    for name, make in PICTURES.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != make():
            found.append(name)
    return found


def main(arguments: Sequence[str]) -> int:
    """Write what has drifted; with `--check` only say so, and return 1."""
    names = drifted()
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        if "--check" not in arguments:
            (FOLDER / name).write_text(PICTURES[name](), encoding="utf-8")
        print(f"docs/pictures/{name}")
    return 1 if names and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
