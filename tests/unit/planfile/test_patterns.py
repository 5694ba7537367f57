"""What patterns match, cover and refuse."""

from __future__ import annotations

import pytest

from fencepost.core.planfile import Pattern, PatternProblem, compile_pattern, covers, select


def compiled(text: str) -> Pattern:
    pattern = compile_pattern(text)
    assert isinstance(pattern, Pattern), pattern
    return pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a.txt", ["a.txt"], ["b/a.txt", "a.txt/b", "A.txt", "aXtxt"]),
        ("*", ["a", ".env", "a.b"], ["a/b"]),
        ("*.py", ["a.py", ".py"], ["a.pyc", "b/a.py", "a.py/b"]),
        ("src/*/x", ["src/a/x", "src/.a/x"], ["src/x", "src/a/b/x"]),
        ("src/**", ["src/a", "src/.a/b", "src/a/b/c"], ["src", "srcs/a", "x/src/a"]),
        ("**", ["a", ".a", "a/b/.c"], []),
        ("**/*", ["a", "a/b"], []),
        ("**/a", ["a", "x/a", "x/y/a"], ["a/x", "xa"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b", "a/b/b"], ["a", "a/x", "b", "a/b/c", "ab"]),
        ("**/test_*/**/*.py", ["test_a/x.py", "s/test_a/b/x.py"], ["test_a.py", "x/test_a", "s/tests/x.py"]),
        ("a*b*c", ["abc", "aXbYc", "abbc", "abcbc"], ["ac", "acb", "aXc"]),
        ("ab*ba", ["abba", "abXba"], ["aba"]),
        ("x*aba*aba*y", ["xabaabay"], ["xababay"]),
        ("a/**/b/c/**/b/c/**/d", ["a/b/c/b/c/d"], ["a/b/c/d", "a/b/c/b/d"]),
        ("[id]/{a,b}?.ts", ["[id]/{a,b}?.ts"], ["i/a.ts", "[id]/{a,b}x.ts"]),
        ("ä*/ö", ["ä/ö", "äx/ö"], ["a/ö"]),
    ],
)
def test_patterns_match_whole_paths(pattern: str, matching: list[str], other: list[str]) -> None:
    assert [path for path in matching if not compiled(pattern).matches(path)] == []
    assert [path for path in other if compiled(pattern).matches(path)] == []


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("", "out_of_range"),
        ("/a", "path_outside"),
        ("/", "path_outside"),
        ("..", "path_outside"),
        ("a/../b", "path_outside"),
        ("**/..", "path_outside"),
        ("a/", "out_of_range"),
        ("a//b", "out_of_range"),
        (".", "out_of_range"),
        ("a/./b", "out_of_range"),
        ("a\\b", "out_of_range"),
        ("a\0b", "out_of_range"),
        ("a\udc80b", "out_of_range"),
        ("a**", "out_of_range"),
        ("***", "out_of_range"),
        ("a" * 1_025, "out_of_range"),
        ("/".join("a" * 129), "out_of_range"),
    ],
)
def test_patterns_that_are_refused(pattern: str, code: str) -> None:
    problem = compile_pattern(pattern)
    assert isinstance(problem, PatternProblem)
    assert problem.code == code
    assert problem.message
    assert problem.next


@pytest.mark.parametrize("pattern", ["a" * 1_024, "/".join("a" * 128), "..a", "a..", "...", ".a/.b"])
def test_patterns_at_the_bound_are_accepted(pattern: str) -> None:
    assert compiled(pattern).matches(pattern)


def test_selection_is_bytewise_and_each_path_once() -> None:
    paths = ["b", "a/z", "a-b", "a/ä", "Z", ".x", "a/\udcff", "a/z"]
    assert select([compiled("**"), compiled("a/*")], paths) == [
        ".x",
        "Z",
        "a-b",
        "a/z",
        "a/ä",
        "a/\udcff",
        "b",
    ]
    assert select([compiled("a/*")], paths) == ["a/z", "a/ä", "a/\udcff"]
    assert select([], paths) == []


@pytest.mark.parametrize(
    ("outputs", "pattern", "expected"),
    [
        (["report.xml"], "report.xml", True),
        (["*.xml"], "report.xml", True),
        (["*.xml"], "*.xml", True),
        (["*.xml"], "r*.xml", True),
        (["*t.xml"], "r*.xml", False),
        (["report.xml"], "*.xml", False),
        (["out/**"], "out/a/*.json", True),
        (["out/**"], "out", False),
        (["out/**"], "out/**", True),
        (["out/*"], "out/**", False),
        (["**"], "a/**/b", True),
        (["**/*.json"], "a/**/b.json", True),
        (["**/*.json"], "a/**/b", False),
        (["*", "*/**"], "**", True),
        (["*", "*/*/**"], "**", False),
        (["**/*/*"], "*/**/*", True),
        (["*/**/b"], "a/**/b", True),
        (["a/b", "a/*/**/b"], "a/**/b", True),
        ([], "a", False),
    ],
)
def test_outputs_cover_a_pattern_if_they_match_all_its_paths(outputs: list[str], pattern: str, expected: bool) -> None:
    assert covers([compiled(output) for output in outputs], compiled(pattern)) is expected


def test_no_pattern_makes_matching_or_covering_explode() -> None:
    # With backtracking none of these would end before the time limit of a test.
    stars = compiled("*a" * 200 + "b")
    assert not stars.matches("a" * 1_000)
    deep = compiled("/".join(["**", "a*a"] * 60) + "/b")
    assert not deep.matches("/".join(["a" * 20] * 500))
    outputs = [compiled("/".join(["**", f"{'*' if index % 2 else 'a'}"] * 60)) for index in range(40)]
    assert covers(outputs, compiled("/".join(["**", "a"] * 60))) in (True, False)
