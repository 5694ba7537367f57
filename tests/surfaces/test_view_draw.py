"""W28: what a live view shows, at any size: lines as text, reviewed as a diff, and what holds for all of them.

`pictures_written.txt` holds the samples at 40, 80 and 120 columns; FENCEPOST_WRITE_DOWN=1 writes it anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fencepost.core.machines import WORK_ORDER
from fencepost.surfaces.cli.view.cells import clean, cut, last_line, pad, text_of, width_of
from fencepost.surfaces.cli.view.draw import Place, chosen, draw, elapsed, short_amount
from fencepost.surfaces.cli.view.picture import Picture, choose
from fencepost.surfaces.cli.view.signs import ASCII, ASKING, SIGNS, UNICODE, Marks
from tests.surfaces.pictures import drifted
from tests.surfaces.view_samples import NOW, SAMPLES, SECOND, many, middle, row, start

WRITTEN = Path(__file__).parent / "pictures_written.txt"
REWRITE = "FENCEPOST_WRITE_DOWN"
SIZES = ((40, 40), (80, 24), (120, 30))
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufe0f]")


def shown(name: str, columns: int, rows: int, marks: Marks = UNICODE) -> list[str]:
    picture, details = SAMPLES[name]()
    place = Place(columns, rows, marks)
    return [text_of(line) for line in draw(picture, chosen(picture, place), details, NOW, place)]


def test_w28_pictures_are_as_written_down() -> None:
    parts = []
    for name in SAMPLES:
        for columns, rows in SIZES:
            parts += [f"# {name}, {columns} columns, {rows} rows", *shown(name, columns, rows), ""]
    parts += ["# middle, 80 columns, 24 rows, ASCII", *shown("middle", 80, 24, ASCII), ""]
    text = "\n".join(parts)
    if os.environ.get(REWRITE):
        WRITTEN.write_text(text, encoding="utf-8")
    assert text == WRITTEN.read_text(encoding="utf-8")


def test_the_pictures_of_the_docs_are_current() -> None:
    """`./dev docs` writes them anew."""
    assert drifted() == []


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_w28_no_line_is_wider_than_the_terminal_and_none_steers_it(name: str) -> None:
    for columns in (*range(20, 90), 100, 120, 200):
        for rows in (3, 8, 12, 24, 60):
            lines = shown(name, columns, rows)
            assert len(lines) <= rows, (columns, rows)
            for line in lines:
                assert width_of(line) < columns, (columns, rows, line)
                assert not CONTROLS.search(line), (columns, rows, line)


def test_ascii_marks_are_ascii() -> None:
    assert all(line.replace("…", "").isascii() for line in shown("start", 80, 24, ASCII))


def test_every_state_has_a_sign_of_its_own_kind() -> None:
    """A new state of the work-order machine needs a row in `signs.SIGNS`."""
    assert set(SIGNS) == {*WORK_ORDER.rows, ASKING}
    for one in SIGNS.values():
        assert width_of(one.glyph) == 1 and one.letter.isascii() and len(one.letter) == 1
        assert width_of(one.word) <= 13
    styles: dict[str, set[str]] = {}
    for one in SIGNS.values():
        styles.setdefault(one.glyph, set()).add(one.style)
    assert all(len(found) <= 2 for found in styles.values()), "colour only repeats what the sign says"


def test_w28_folding_keeps_what_runs_and_what_failed() -> None:
    picture, _ = many(300)
    for room in (6, 10, 16, 24, 40):
        choice = choose(picture.rows, room, narrow=False)
        states = [one.state for one in choice.rows]
        assert "active" in states and "failed" in states, room
        hidden = sum(choice.above.values()) + sum(choice.below.values())
        assert hidden + len(choice.rows) == 300, "every order is seen or counted"
        assert choice.second <= {one.order for one in choice.rows}
        assert len(choice.rows) + len(choice.second) + bool(choice.above) + bool(choice.below) <= room
        assert [one.order for one in choice.rows] == [one.order for one in picture.rows if one in choice.rows]


def test_folding_shows_the_last_that_were_applied_and_the_next_that_wait() -> None:
    rows = [row(f"a{number:02}", "applied", moved_us=100 - number) for number in range(30)]
    rows += [row(f"w{number:02}", "blocked_dependency", 2) for number in range(30)]
    names = [one.name for one in choose(rows, 12, narrow=False).rows]
    assert names[:3] == ["a00", "a01", "a02"], "those that were applied last"
    assert choose(rows, 60, narrow=False).above == {} == choose(rows, 60, narrow=False).below


def test_many_that_fail_do_not_hide_what_runs() -> None:
    rows = [row(f"f{number:03}", "failed") for number in range(500)]
    rows += [row(f"r{number}", "active", 2, since_us=NOW) for number in range(3)]
    states = [one.state for one in choose(rows, 15, narrow=False).rows]
    assert states.count("active") == 3 and states.count("failed") >= 3


def test_the_money_of_a_plan_stands_against_its_ceiling() -> None:
    text = "\n".join(shown("middle", 80, 24))
    for part in ("attempts", "7/24", "4m10s/30m", "61.2k/200k", "20/40", "USD", "0.31/2.50"):
        assert part in text
    assert "0.31+0.20/2.50" in "\n".join(shown("middle", 40, 40)), "what is held, where no bar shows it"


def test_a_plan_without_limits_and_without_needs_has_no_columns_for_them() -> None:
    lines = [text_of(line) for line in _drawn(Picture(name="p", rows=[row("only", "ready")], began_us=NOW))]
    assert lines[-1] == "◦ only  ready"


def _drawn(picture: Picture) -> list[tuple]:
    place = Place(80, 24)
    return draw(picture, chosen(picture, place), {}, NOW, place)


def test_an_unknown_state_shows_its_own_name() -> None:
    lines = [text_of(line) for line in _drawn(Picture(name="p", rows=[row("asks", "later_state")]))]
    assert lines[-1] == "◇ asks  later state"


def test_times_tick_with_the_clock_and_not_with_the_store() -> None:
    picture, details = middle()
    place = Place(80, 24)
    later = draw(picture, chosen(picture, place), details, NOW + 9 * SECOND, place)
    text = "\n".join(text_of(line) for line in later)
    assert "1m11s" in text and "in 5s" in text and "3m21s" in text


@pytest.mark.parametrize(
    ("time_us", "runs", "text"),
    [
        (0, True, "0s"),
        (-5, True, "0s"),
        (82_000, False, "82ms"),
        (3_440_000, False, "3.4s"),
        (3_440_000, True, "3s"),
        (62 * SECOND, True, "1m02s"),
        (3_700 * SECOND, False, "1h01m"),
        (90_000 * SECOND, False, "1d01h"),
    ],
)
def test_elapsed(time_us: int, runs: bool, text: str) -> None:
    assert elapsed(time_us, runs=runs) == text


@pytest.mark.parametrize(
    ("dimension", "value", "text"),
    [
        ("attempts", 7, "7"),
        ("tokens_input", 9_999, "9999"),
        ("tokens_input", 61_250, "61.2k"),
        ("tokens_input", 200_000, "200k"),
        ("tokens_input", 12_000_000, "12M"),
        ("time_us", 1_800 * SECOND, "30m"),
        ("time_us", 7_200 * SECOND, "2h"),
        ("time_us", 0, "0s"),
        ("money_micros:USD", 2_500_000, "2.50"),
        ("money_micros:USD", 4_200, "0.0042"),
    ],
)
def test_short_amounts(dimension: str, value: int, text: str) -> None:
    assert short_amount(dimension, value) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended", ""),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("\x9b31mold\x9b0m", "old"),
        ("\x1bcreset", "reset"),
        ("a\tb", "a   b"),
        ("a\r\nb", "a b"),
        ("bell\x07", "bell?"),
        ("\u202eevil", "?evil"),
        ("zero\u200bwidth\ufe0f", "zerowidth"),
        ("e" + "\u0301" * 50, "e\u0301\u0301"),
    ],
)
def test_foreign_text_loses_whatever_steers_a_terminal(raw: str, text: str) -> None:
    assert clean(raw) == text


def test_cutting_counts_cells_and_not_characters() -> None:
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語の", 6) == "日本…"
    assert width_of(cut("日本語の", 5)) <= 5
    assert pad("日本", 6) == "日本  " and pad("12", 5, right=True) == "   12"
    assert cut("abc", 0) == ""


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("one\ntwo\n", "two"),
        ("10%\r20%\r30%", "30%"),
        ("done\r\n\r\n", "done"),
        ("said\n\x1b[0m\n", "said"),
        ("", ""),
    ],
)
def test_the_last_line_is_the_last_that_says_something(raw: str, text: str) -> None:
    assert last_line(raw) == text


def test_a_start_shows_what_every_order_waits_for() -> None:
    assert "needs format, end of spelling" in "\n".join(shown("start", 80, 24))
    assert start()[0].counts()["blocked_dependency"] == 6
