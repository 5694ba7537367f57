"""On which line a problem of a plan stands: the line of its key, or of the table that it lies in, or none at all."""

from __future__ import annotations

import tomllib

import pytest

from fencepost.core.planfile import PlanProblem, RawDocument, check_text, with_lines
from fencepost.core.planfile.lines import line_at, lines_of

PLAN = '''# A comment with name = "x" and [[work]]
objective = """
name = "not a key"
[[work]]
"""

[budget]
attempts = 0

[[work]]
name = "one"
run = [
    "sh", # a comment with ]
    "-c",
    """
[[work]]
run = 5
""",
    7,
]
accept.exit_code = 300
"may_fail" = 'x'

[[work]]
run = ["true"]
[work.accept]
files = 3
[work.budget.tokens]
input = -1
'''


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_each_problem_has_the_line_of_its_key_or_table(ends: str) -> None:
    problems = check_text(PLAN.replace("\n", ends), syntax="toml", stem="plan").problems
    assert {problem.at: problem.line for problem in problems} == {
        "/budget/attempts": 8,
        "/work/0/run/3": 12,
        "/work/0/accept/exit_code": 21,
        "/work/0/may_fail": 22,
        "/work/1/name": 24,  # it is missing: the table's
        "/work/1/accept/files": 27,
        "/work/1/budget/tokens/input": 29,
    }


def test_what_belongs_to_the_whole_document_and_json_have_no_line() -> None:
    (problem,) = check_text("[budget]\nattempts = 1\n", syntax="toml", stem="plan").problems
    assert (problem.at, problem.line) == ("/work", None)
    text = '{"budget": {"attempts": 0},\n "work": [{"name": "a", "run": ["true"]}]}'
    (problem,) = check_text(text, syntax="json", stem="plan").problems
    assert (problem.at, problem.line) == ("/budget/attempts", None)


@pytest.mark.parametrize(
    "text",
    [
        "[a]\nb = 1\n[[c.d]]\ne = \"]\"\n[[c.d]]\ne = '#'\n[c.d.f]\ng = {h = [1, {i = 2}]}\n",
        'a . b = 1\n"c~/d" = 2\n[ e ."f g" ]\nx = 1979-05-27 07:32:00\n',
        "a = [[1],\n[2]]\nb = '''\n'quoted''''\nc = \"\"\"a\\\"\"\"\" # c\n",
        'a = "\\u005D\\"]"\nb = 1e3\n',
        "\nX1 = 1\n\n\nb.Xb = 2\n",
    ],
)
def test_every_key_of_a_text_is_found_on_its_line(text: str) -> None:
    document = tomllib.loads(text)
    lines = lines_of(text, document)
    assert {at.split("/")[1] for at in lines} == {key.replace("~", "~0").replace("/", "~1") for key in document}
    for at, line in lines.items():
        written = at.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        assert written.isdecimal() or written in text.splitlines()[line - 1]
    assert line_at(lines, "/not/there") is None


def test_a_key_that_is_written_with_escapes_gives_no_line_rather_than_a_wrong_one() -> None:
    text = '"\\u0061" = 1\nb = 2\n'
    assert lines_of(text, tomllib.loads(text)) == {}
    assert lines_of("a = 1\n", {"b": 1}) == {}


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("[[a]]\n", {"a": {"b": 1}}),
        ("[[a]]\n[[a]]\n", {"a": [{}]}),
        ("[a]\n", []),
    ],
)
def test_a_document_that_is_not_what_the_text_says_gives_no_lines(text: str, document: object) -> None:
    assert lines_of(text, document) == {}


def test_what_is_no_value_is_stepped_over_one_character_at_a_time() -> None:
    assert lines_of('a = "bc = 1', {"a": 1, "bc": 1, "c": 1}) == {"/a": 1, "/bc": 1}


def test_a_problem_that_knows_its_line_keeps_it() -> None:
    raw = RawDocument(value={"a": 1, "b": 2}, toml="a = 1\nb = 2\n")
    known, unknown = (PlanProblem(code="syntax", message="", at="/b", line=line, next="") for line in (7, None))
    assert [problem.line for problem in with_lines(raw, [known, unknown])] == [7, 2]
