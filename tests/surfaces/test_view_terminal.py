"""The driver of the live view on a real pseudo-terminal, with an emulator that shows what a person would see."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.surfaces.board import Board, lines
from tests.surfaces.terminal_world import FULL_CLEAR, Emulator


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board(40, 10)
    yield board
    board.close()


def test_lines_are_drawn_in_place_and_only_those_that_differ(board: Board) -> None:
    board.write("before\r\n")
    board.terminal.open()
    board.draw("one", "two", "three")
    assert board.pump() == ["before", "one", "two", "three"]
    assert board.emulator.screen.cursor.hidden and not board.echoes()
    sent = board.draw("one", "TWO", "three")
    assert board.pump() == ["before", "one", "TWO", "three"]
    assert b"TWO" in sent and b"one" not in sent and b"three" not in sent
    assert board.draw("one", "TWO", "three") == b"", "nothing has changed, so that nothing is written"


def test_each_drawing_is_one_synchronized_write_without_a_full_clear(board: Board) -> None:
    board.terminal.open()
    board.draw("a", "b")
    for number in range(20):
        sent = board.draw(*[f"{number} {place}" for place in range(number % 7 + 1)])
        assert sent.startswith(b"\x1b[?2026h") and sent.endswith(b"\x1b[?2026l")
        assert sent.count(b"\x1b[?2026h") == 1
    assert not FULL_CLEAR.search(board.emulator.raw)


def test_a_block_grows_and_shrinks_at_the_end_of_the_screen(board: Board) -> None:
    board.write("".join(f"old {number}\r\n" for number in range(9)))
    board.terminal.open()
    board.draw("one")
    assert board.pump() == [*(f"old {number}" for number in range(9)), "one"]
    board.draw("one", "two", "three", "four")
    assert board.pump()[-5:] == ["old 8", "one", "two", "three", "four"]
    assert board.emulator.scrolled() == ["old 0", "old 1", "old 2"], "what stood above has scrolled, and is not lost"
    board.draw("ONE", "two")
    assert board.pump()[-3:] == ["old 8", "ONE", "two"]
    board.draw("ONE", "two", "3", "4", "5")
    assert board.pump()[-6:] == ["old 8", "ONE", "two", "3", "4", "5"]
    board.draw("x")
    board.draw("x", "y", "z")
    assert board.pump()[-4:] == ["old 8", "x", "y", "z"]


def test_closing_gives_the_terminal_back_below_the_block(board: Board) -> None:
    assert board.echoes()
    board.terminal.open()
    board.draw("one", "two")
    board.terminal.close()
    board.terminal.close()
    board.write("after\r\n")
    assert board.pump() == ["one", "two", "after"]
    assert board.emulator.is_given_back and board.echoes()


def test_a_cleared_block_leaves_its_place_to_what_follows(board: Board) -> None:
    board.write("before\r\n")
    board.terminal.open()
    board.draw("one", "two")
    board.terminal.clear()
    board.terminal.close()
    board.write("after\r\n")
    assert board.pump() == ["before", "after"]


@pytest.mark.parametrize(("columns", "rows"), [(20, 10), (60, 10), (40, 5), (40, 24)])
def test_a_resize_draws_the_block_anew_in_its_place(board: Board, columns: int, rows: int) -> None:
    board.write("before\r\n")
    board.terminal.open()
    board.draw("one", "two", "three")
    board.resize(columns, rows)
    board.draw("one", "two", "three")
    seen = board.pump()
    assert seen[-3:] == ["one", "two", "three"]
    assert sum(line == "one" for line in seen) == 1


def test_a_terminal_that_folds_its_lines_when_it_narrows_keeps_nothing_of_the_old_block(board: Board) -> None:
    """Many terminals break long lines anew on a resize; the cursor stays at the cell at which it was."""
    board.write("before\r\n")
    board.terminal.open()
    old = ["x" * 38, "y" * 38]
    board.draw(*old)
    folded = Emulator(20, 10)
    folded.feed(b"before\r\n" + "\r\n".join(old).encode() + b"\r" + b"\x1b[3A")  # each takes two rows now
    board.emulator = folded
    board.resize(20, 10)
    board.draw("x" * 19, "y" * 19)
    assert board.pump() == ["before", "x" * 19, "y" * 19]


def test_there_are_never_more_lines_than_the_screen_has(board: Board) -> None:
    board.terminal.open()
    board.draw(*[f"line {number}" for number in range(50)])
    assert board.pump() == [f"line {number}" for number in range(9)]
    assert board.emulator.scrolled() == []


def test_a_line_that_was_counted_wrong_does_not_wrap(board: Board) -> None:
    board.terminal.open()
    board.draw("x" * 60, "two")
    assert board.pump()[1] == "two"


def test_what_an_encoding_lacks_is_a_question_mark_and_no_failure() -> None:
    board = Board(40, 10)
    board.out.reconfigure(encoding="ascii")  # type: ignore[attr-defined]  # a text file that was opened here
    board.terminal.open()
    board.draw("größer ●")
    assert board.pump() == ["gr??er ?"]
    board.close()


def test_a_terminal_that_was_closed_takes_nothing_and_stops_nothing(board: Board) -> None:
    board.terminal.open()
    board.draw("one")
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.dup2(descriptor, board.out.fileno())  # what is written there now fails
    os.close(descriptor)
    board.terminal.draw(lines("two"))
    assert board.terminal.gone
    board.terminal.draw(lines("three"))
    board.terminal.close()
