"""What a person reads about each bad document: place, order, sentence and what to write instead.

`problems_written.txt` is reviewed as a diff; FENCEPOST_WRITE_DOWN=1 writes it anew.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.planfile import CheckedPlan, check_text
from tests.unit.planfile.plans import check, order, plan
from tests.unit.planfile.test_codes import BAD, TREE

WRITTEN = Path(__file__).resolve().parent / "problems_written.txt"
REWRITE = "FENCEPOST_WRITE_DOWN"

ODD: tuple[Any, ...] = (7, True, 1.5, None, "x", [], {}, datetime.time(1), 2**60)
KEYS = ("name", "deadline", "recovery", "objective", "budget", "work", "reviewers")
ORDER_KEYS = (
    "name",
    "executor",
    "run",
    "may_fail",
    "environment",
    "needs",
    "inputs",
    "outputs",
    "attempt_time",
    "budget",
    "retry",
    "accept",
    "priority",
    "classification",
    "may",
    "effects",
    "params",
)
BUDGET = {"attempts": 9, "time": "90s", "tokens": {"input": 5, "output": 6}, "calls": 7, "money": {"USD": "2.50"}}
MORE: dict[str, Any] = {
    "an order under a narrower plan": plan(
        order("a", budget={"attempts": 10, "time": "2m", "calls": 8, "money": {"USD": "3"}}, attempt_time="2m"),
        order("b", budget={"tokens": {"input": 6, "output": 7}, "per_attempt": {"calls": 9}}),
        budget=BUDGET,
    ),
    "more for one attempt than for all": plan(
        order(budget={"calls": 3, "per_attempt": {"calls": 4}}, attempt_time="5m"), budget=BUDGET
    ),
    "a currency that the plan does not name": plan(order(budget={"money": {"EUR": "1"}}), budget=BUDGET),
    "currencies that are none": plan(order(budget={"money": {"XXY": "1", "EURO": "1", "uds": "1"}}), budget=BUDGET),
    "amounts that cannot be counted": plan(budget={"money": {"USD": "99999999999999"}, "time": "400d", "calls": -1}),
    "names that are nearly names": plan(
        order("Unit Tests"), order("9-lives"), order("-"), order("ünit"), order("a" * 70), order("")
    ),
    "ring of three": plan(order("a", needs=["b"]), order("b", needs=["c"]), order("c", needs=["a"])),
    "a need by another name": plan(order("lint"), order("tests", needs=["lnt", {"any": ["lin", "zzz"]}])),
    "a backoff that is too long": plan(order(retry={"on": ["executor", "executor"], "backoff": "2h"})),
    "outputs that do not cover": plan(
        order("a", outputs=["out/*.txt"], accept={"files": ["out/x.md", "out/y.txt"], "schema": {"z": "*.json"}}),
        order("b", needs=["a"], inputs=[{"from": "a", "files": ["out/z.md", "out/**"]}]),
        order("c", inputs=[{"from": "a", "files": []}]),
    ),
    "schemas of many kinds": plan(
        order(outputs=["x"], accept={"schema": {"x": "schemas/s.json", "": "schemas/s.json", "y": 1, "/z": "a"}})
    ),
    "environment of many kinds": plan(order(environment=["LC_*", "9", "a b", "FENCEPOST_X", "", "A" * 300, 1])),
    "patterns of many kinds": plan(
        order(outputs=["", "/", ".", "a/", "//", "a/../b", "[", "[]", "[a-", "{a", "a\\", "***", "a/**b", "\x01", "é"])
    ),
    "too many of everything": plan(
        order(
            environment=["A"] * 300,
            inputs=["a"] * 300,
            may=["workspace.write"] * 3,
            retry={"on": ["executor"] * 9},
            accept={"schema": {f"f{number}": "s" for number in range(300)}},
        )
    ),
    "deeply nested": plan(order(params={"a": [[[[{"b": [1.5, None, "\0", 2**60]}]]]]})),
    "objective as long as it may be": plan(objective="x" * 4_096, deadline="365d"),
}
TEXTS = {
    "no toml": ("a = ", "toml"),
    "no toml later on": ('objective = "o"\n[budget]\nattempts = = 1\n', "toml"),
    "a key twice": ("[budget]\nattempts = 1\nattempts = 2\n", "toml"),
    "no json": ("{", "json"),
    "json with a key twice": ('{"a": 1, "a": 2}', "json"),
    "json with more behind it": ("{} 1", "json"),
    "json with a float": ('{"budget": {"attempts": 1.0}}', "json"),
    "nothing": ("", "toml"),
    "nothing at all": ("", "json"),
    "a byte order mark": ("\ufeffa = 1", "toml"),
}


def _documents() -> Iterator[tuple[str, Callable[[], CheckedPlan]]]:
    for number, (code, at, value) in enumerate(BAD):
        name = f"{number} {code} {at}".encode("ascii", "backslashreplace").decode()
        yield name, partial(check, value, tree=TREE)
    for name, value in MORE.items():
        yield name, partial(check, value, tree=TREE)
    for number, value in enumerate(ODD):
        for key in KEYS:
            yield f"{key} is odd {number}", partial(check, plan(**{key: value}))
        for key in ORDER_KEYS:
            yield f"{key} of an order is odd {number}", partial(check, plan(order(**{key: value})))
    for name, (text, syntax) in TEXTS.items():
        yield name, partial(check_text, text, stem="plan", syntax=syntax)


DOCUMENTS = dict(_documents())


def lines_of(checked: CheckedPlan) -> list[str]:
    lines = []
    for problem in checked.problems:
        where = f"{problem.at or '.'} of {problem.name or '-'}" + (f" line {problem.line}" if problem.line else "")
        lines.append(f"  {problem.code} at {where}")
        lines.append(f"    {problem.message} | {problem.next}")
    return lines or ["  nothing is wrong"]


@pytest.fixture(scope="module")
def written() -> dict[str, list[str]]:
    if os.environ.get(REWRITE):
        cells = ["\n".join([name, *lines_of(checked())]) + "\n" for name, checked in DOCUMENTS.items()]
        WRITTEN.write_text("\n".join(cells), encoding="utf-8")
    found = {}
    for cell in WRITTEN.read_text(encoding="utf-8").rstrip("\n").split("\n\n"):
        name, *lines = cell.split("\n")
        found[name] = lines
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_problem_says_what_is_written_down(name: str, written: dict[str, list[str]]) -> None:
    assert lines_of(DOCUMENTS[name]()) == written[name], f"if that is wanted: {REWRITE}=1"
