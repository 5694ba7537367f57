"""The table at the end of a run: what it says, and that it fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.core.state import PlanState
from fencepost.surfaces.cli.summary import report
from fencepost.surfaces.cli.summary_table import Entry, table_lines
from fencepost.surfaces.cli.view.cells import text_of, width_of
from fencepost.surfaces.cli.view.signs import UNICODE, Marks
from tests.surfaces.cli_world import World, draft
from tests.surfaces.test_view_follow import counted

ENTRIES = [
    Entry(
        name="fetch",
        state="applied",
        tries="1",
        time="1s29ms",
        told="exit code 0, verifier passed",
        copied=("pages.json  sha256:5891b5b522d5df08  6 bytes",),
    ),
    Entry(name="summaries", state="applied", tries="2", time="6s535ms", cost="USD 0.24, calls 6, tokens-input 7200"),
    Entry(
        name="n" * 40,
        state="dependency_failed",
        tries="-",
        time="-",
        copied=("next: fencepost order why nightly/" + "n" * 40,),
    ),
    Entry(
        name="spelling",
        state="failed",
        tries="1",
        time="12ms",
        told="exit_code_unexpected, may fail",
        below=("a line that has much more to say than there is room for in a table of eighty columns, or of forty",),
        copied=("next: fencepost order show nightly/spelling has it; fencepost order answer nightly/spelling VALUE",),
    ),
]

WRITTEN = """\
ORDER                     STATE              TRIES      TIME  COST
fetch                     applied                1    1s29ms
  exit code 0, verifier passed
  pages.json  sha256:5891b5b522d5df08  6 bytes
summaries                 applied                2   6s535ms  USD 0.24
  cost USD 0.24, calls 6, tokens-input 7200
nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn
                          dependency_failed      -         -
  next: fencepost order why nightly/nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn
spelling                  failed                 1      12ms
  exit_code_unexpected, may fail
  a line that has much more to say than there is room for in a table of eighty
  columns, or of forty
  next: fencepost order show nightly/spelling has it;
    fencepost order answer nightly/spelling VALUE"""


def test_the_table_is_as_written() -> None:
    assert "\n".join(text_of(line) for line in table_lines(ENTRIES, width=79, marks=None)) == WRITTEN


@pytest.mark.parametrize("marks", [None, UNICODE])
@pytest.mark.parametrize("width", [39, 49, 59, 60, 79, 99, 159])
def test_the_table_fits_whatever_stands_in_it(width: int, marks: Marks | None) -> None:
    for line in table_lines(ENTRIES, width=width, marks=marks):
        text = text_of(line)
        copied = text.strip(" ⊘").startswith(("next:", "fencepost ", "pages.json", "n" * 30))
        assert width_of(text) <= width or (copied and width < 79), text


def test_a_wide_table_has_its_reasons_beside_the_orders() -> None:
    lines = [text_of(line) for line in table_lines(ENTRIES, width=119, marks=UNICODE)]
    assert lines[0].endswith("PROOF, OR WHY NOT")
    assert lines[1].startswith("✓ fetch") and lines[1].endswith("exit code 0, verifier passed")
    assert any(line.startswith("✗ spelling") and line.endswith("exit_code_unexpected, may fail") for line in lines)


@pytest.mark.parametrize("size", [20, 120])
def test_a_report_reads_the_plan_once_however_many_orders_are_left(tmp_path: Path, size: int) -> None:
    """The next step of each order names the plan's file, which stands in a record as large as the plan."""
    world = World(tmp_path)
    plan = world.submit("main", [draft(f"n{number}") for number in range(size)])
    with world.open() as app, counted(app) as (look, counting):
        found = look.find(plan, PlanState)
        assert found is not None
        counting.calls.clear()
        orders = report(look, found, "waiting").findings
        assert {finding.following for finding in orders} == {"fencepost run PLAN, or fencepost worker start"}
        assert counting.calls.count("records") <= 1, counting.calls
        assert len(counting.calls) < 20, counting.calls


def test_what_is_short_stands_beside_its_order_even_in_a_narrow_column() -> None:
    entries = [
        Entry(name="summaries", state="applied", tries="1", time="1s", cost="USD 0.24", told="exit code 0"),
        Entry(name="last", state="blocked_dependency", tries="-", time="-", told="waiting_for_dependencies"),
    ]
    lines = [text_of(line) for line in table_lines(entries, width=77, marks=UNICODE)]
    assert lines[1].endswith("USD 0.24  exit code 0")
    assert lines[3] == "    waiting_for_dependencies"


def test_names_are_foreign_text() -> None:
    entry = Entry(name="a\x1b[2Jb", state="applied", tries="1", time="1s", told="\x1b]0;t\x07ok", below=("\x07",))
    text = "\n".join(text_of(line) for line in table_lines([entry], width=79, marks=UNICODE))
    assert "\x1b" not in text and "\x07" not in text and "ab" in text
