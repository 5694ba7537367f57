"""Patterns compared with regular expressions over every small case, and their bounds to the character (case 40)."""

from __future__ import annotations

import re
from itertools import product

import pytest

from fencepost.core.planfile import bounds
from fencepost.core.planfile.patterns import (
    FileTree,
    Pattern,
    PatternProblem,
    compile_pattern,
    covers,
    path_key,
    segment_matches,
    select,
)
from fencepost.core.planfile.problems import quote


def compiled(text: str) -> Pattern:
    pattern = compile_pattern(text)
    assert isinstance(pattern, Pattern), pattern
    return pattern


def words(alphabet: str, most: int) -> list[str]:
    return ["".join(letters) for size in range(1, most + 1) for letters in product(alphabet, repeat=size)]


def test_a_segment_matches_as_a_regular_expression_says() -> None:
    for text in words("ab*", 5):
        if "**" in text:
            continue
        expression = re.compile("".join("[^/]*" if letter == "*" else letter for letter in text))
        for segment in words("ab", 5):
            assert segment_matches(text, segment) == (expression.fullmatch(segment) is not None), (text, segment)


PATHS = ["/".join(parts) for size in range(1, 5) for parts in product(("a", "b"), repeat=size)]


def expression_of(text: str) -> re.Pattern[str]:
    """A `**` is any number of segments, none included; at the end at least one."""
    parts = text.split("/")
    if parts[-1] == "**":
        parts.append("*")
    body = "".join("(?:[^/]+/)*" if part == "**" else part.replace("*", "[^/]*") + "/" for part in parts)
    return re.compile(body)


def test_a_pattern_matches_as_a_regular_expression_says() -> None:
    for parts in product(("a", "b", "*", "**"), repeat=4):
        for size in range(1, 5):
            text = "/".join(parts[:size])
            pattern, expression = compiled(text), expression_of(text)
            for path in PATHS:
                assert pattern.matches(path) == (expression.fullmatch(f"{path}/") is not None), (text, path)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("a", (("a",),)),
        ("**", ((), ("*",))),
        ("**/**", ((), ("*",))),
        ("**/**/a", ((), ("a",))),
        ("a/**/**/b", (("a",), ("b",))),
        ("a/**/b/**", (("a",), ("b",), ("*",))),
        ("**/a/**/b", ((), ("a",), ("b",))),
    ],
)
def test_neighbouring_stars_are_one(text: str, runs: tuple[tuple[str, ...], ...]) -> None:
    assert compiled(text).runs == runs


@pytest.mark.parametrize(
    ("text", "prefix"), [("a/b*c*d", "a/b"), ("*", ""), ("abc", "abc"), ("a/**/b/**", "a/"), ("x*", "x")]
)
def test_the_literal_start_ends_at_the_first_star(text: str, prefix: str) -> None:
    assert compiled(text).literal_prefix() == prefix


BYTES, SEGMENTS = bounds.PATTERN_BYTES_MAX, bounds.PATTERN_SEGMENTS_MAX


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x" * BYTES, ""),
        ("x" * (BYTES + 1), f"is longer than {BYTES} bytes"),
        ("ä" * (BYTES // 2), ""),
        ("ä" * (BYTES // 2) + "x", f"is longer than {BYTES} bytes"),
        ("/".join("a" * SEGMENTS), ""),
        ("/".join("a" * (SEGMENTS + 1)), f"has more than {SEGMENTS} segments"),
        ("a" * SEGMENTS, ""),
        ("aX//", 'write "aX/**" for everything inside'),
        ("a\0", "contains a character that no path may have"),
        ("\ud800", "contains a character that no path may have"),
    ],
    ids=range(10),
)
def test_case_40_patterns_have_bounds_and_say_which(text: str, problem: str) -> None:
    found = compile_pattern(text)
    if not problem:
        assert isinstance(found, Pattern)
        return
    assert isinstance(found, PatternProblem)
    assert problem in f"{found.message} | {found.next}"
    assert found.message.startswith((quote(text), f"the pattern {quote(text)}"))


def test_paths_are_sorted_by_their_bytes_whatever_they_are() -> None:
    strange = "\udcff"  # a byte that is no UTF-8, as the system hands it over
    pair = "\ud800"  # half a pair, which no system hands over
    assert path_key("a") == b"a" and path_key("ä") == "ä".encode()
    assert path_key(strange) == b"\xff" and path_key(pair) == b"\xed\xa0\x80"
    names = ["z", "ä", strange, pair, "\U0001f600", "a"]
    everything = compiled("**")
    assert select([everything, compiled("z")], names) == ["a", "z", "ä", pair, "\U0001f600", strange]


def test_a_tree_is_selected_from_as_it_is_and_remembers_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = FileTree(["b/x", "a/x"])
    assert select([compiled("*/x")], tree) == ["a/x", "b/x"]
    assert tree.has_match(compiled("a/*")) and not tree.has_match(compiled("c/*"))
    monkeypatch.setattr(FileTree, "matching", lambda *_: pytest.fail("asked again"))
    assert tree.has_match(compiled("a/*")) and not tree.has_match(compiled("c/*"))


def covered(outputs: list[str], text: str) -> bool:
    return covers([compiled(output) for output in outputs], compiled(text))


@pytest.mark.parametrize(
    ("outputs", "text", "answer"),
    [
        (["a*"], "a*b", True),
        (["a*b"], "a*", False),
        (["*a*"], "*a", True),
        (["x*", "*y"], "x*", True),
        (["x*"], "*", False),
        (["a/*", "a/*/*"], "a/*", True),
        (["a/**"], "a/*/b/**", True),
        (["a/*"], "a/**", False),
        (["**/b"], "a/**/b", True),
        (["*b*b"], "b*b", True),
        (["*bb*"], "b*b", False),
    ],
)
def test_what_is_covered_is_covered_whatever_the_stars_stand_for(outputs: list[str], text: str, answer: bool) -> None:
    assert covered(outputs, text) is answer


@pytest.mark.parametrize(("steps", "answer"), [(0, False), (3, False), (4, True)])
def test_case_40_a_search_of_covers_ends_at_its_bound_with_no(
    steps: int, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two segments, each one step and one place of the one output: four steps."""
    monkeypatch.setattr(bounds, "COVER_STEPS_MAX", steps)
    assert covered(["a*/b*"], "a*x/b*x") is answer
