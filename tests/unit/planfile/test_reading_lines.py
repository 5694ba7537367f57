"""What is told of a text that cannot be read at all: words, line, what to do, each to the letter (case 40)."""

from __future__ import annotations

import pytest

from fencepost.core.planfile import PlanProblem, bounds, read_document
from fencepost.core.planfile.read import Syntax

DEEP = bounds.DEPTH_MAX
LONG_KEY = ".".join("a" for _ in range(DEEP + 1))
JUST_KEY = ".".join("a" for _ in range(DEEP))

TEXTS: list[tuple[Syntax, str | bytes, str, int | None, str]] = [
    ("toml", "a = 1\nb = = 1\n", "Invalid value", 2, "correct this line; the file is TOML 1.0"),
    ("toml", "a = [1,", "the file ends too early", 1, "complete the last table, list or string"),
    ("toml", "a = [1,\n", "the file ends too early", 1, "complete the last table, list or string"),
    ("toml", "b = 1\na = [1,\n2,\n", "the file ends too early", 3, "complete the last table, list or string"),
    ("toml", "b = 1\na = [1,\n2,", "the file ends too early", 3, "complete the last table, list or string"),
    ("toml", f"{LONG_KEY} = 1", f"a key has more than {DEEP} parts", 1, f"nest at most {DEEP} deep"),
    (
        "toml",
        f"x = 1\n# {LONG_KEY}\n{LONG_KEY} = 1",
        f"a key has more than {DEEP} parts",
        3,
        f"nest at most {DEEP} deep",
    ),
    ("toml", f"\n\n[{LONG_KEY}]", f"a key has more than {DEEP} parts", 3, f"nest at most {DEEP} deep"),
    ("toml", f'x = "a\n{LONG_KEY} = 1', "Illegal character '\\n'", 1, "correct this line; the file is TOML 1.0"),
    (
        "json",
        '{\n"a": 1,\n}',
        "Expecting property name enclosed in double quotes",
        3,
        "correct this line; the file is JSON",
    ),
    (
        "json",
        '{"b": {\n"x": 1},\n"c": {\n"a": 1, "a": 2}}',
        'the key "a" is written twice in the object that begins here',
        3,
        "write each key once",
    ),
    (
        "json",
        '{"a": 1, "b": 1, "a": 2}',
        'the key "a" is written twice in the object that begins here',
        1,
        "write each key once",
    ),
    ("toml", b"a = 1\n\nb = '\xff'", "the text is not UTF-8", 3, "save the file as UTF-8"),
    ("json", b"\xff", "the text is not UTF-8", 1, "save the file as UTF-8"),
    ("json", b"\n\xff\n", "the text is not UTF-8", 2, "save the file as UTF-8"),
    ("json", "[" * 100_000, "tables or lists are nested too deeply to be read", None, f"nest at most {DEEP} deep"),
]


@pytest.mark.parametrize(
    ("syntax", "text", "words", "line", "following"), TEXTS, ids=[str(place) for place in range(len(TEXTS))]
)
def test_a_text_that_cannot_be_read_says_why_and_where(
    syntax: Syntax, text: str | bytes, words: str, line: int | None, following: str
) -> None:
    found = read_document(text, syntax=syntax)
    assert isinstance(found, PlanProblem)
    assert found.message.startswith(words)
    assert (found.code, found.at, found.name, found.line, found.next) == ("syntax", "", None, line, following)


@pytest.mark.parametrize("syntax", ["toml", "json"])
def test_numbers_of_thousands_of_digits_are_not_read(syntax: Syntax) -> None:
    digits = "9" * 5_000
    found = read_document(f"a = {digits}" if syntax == "toml" else digits, syntax=syntax)
    assert isinstance(found, PlanProblem) and found.code == "syntax"
    assert found.next.endswith("integers have at most 16 digits")


def test_a_key_may_have_as_many_parts_as_the_depth() -> None:
    assert not isinstance(read_document(f"{JUST_KEY} = 1", syntax="toml"), PlanProblem)
    assert not isinstance(read_document(f'x = """{LONG_KEY}"""', syntax="toml"), PlanProblem)


@pytest.mark.parametrize("text", ["ä" * (bounds.DOCUMENT_BYTES_MAX // 2 + 1), b"x" * (bounds.DOCUMENT_BYTES_MAX + 1)])
def test_case_40_the_bound_of_a_text_is_in_bytes_and_is_told(text: str | bytes) -> None:
    size_bytes = len(text if isinstance(text, bytes) else text.encode())
    assert read_document(text, syntax="json") == PlanProblem(
        code="out_of_range",
        message=f"the plan file has {size_bytes} bytes, at most {bounds.DOCUMENT_BYTES_MAX} are read",
        at="",
        next="split the plan",
    )
