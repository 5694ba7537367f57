"""What a person reads about each bad document: place, order, sentence and what to write instead.

`problems_written.txt` is reviewed as a diff; FENCEPOST_WRITE_DOWN=1 writes it anew.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fencepost.core.ids import sha256_of
from fencepost.core.planfile import CheckedPlan, check_text
from fencepost.core.planfile.currencies import ISO_4217
from fencepost.core.planfile.read import Syntax
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
CURRENCIES = sorted(ISO_4217)


def ring(size: int) -> dict[str, Any]:
    return plan(*(order(f"n{place}", needs=[f"n{(place + 1) % size}"]) for place in range(size)))


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
    "objective longer than it may be": plan(objective="x" * 4_097, deadline="366d"),
    "currencies as many as there may be": plan(budget={"attempts": 1, "money": dict.fromkeys(CURRENCIES[:16], "1")}),
    "currencies more than there may be": plan(budget={"attempts": 1, "money": dict.fromkeys(CURRENCIES[:17], "1")}),
    "a budget refused before one that is impossible": plan(
        order("a", budget={"calls": -1}), order("b", budget={"calls": 99}, attempt_time="never"), budget=BUDGET
    ),
    "an attempt's time that cannot be read": plan(order(attempt_time="soon", budget={"time": "1s"}), budget=BUDGET),
    "a currency of its own for an attempt": plan(
        order(budget={"money": {"USD": "1"}, "per_attempt": {"money": {"EUR": "1", "usd": "1"}}}), budget=BUDGET
    ),
    "an attempt's currency beside its order's": plan(
        order(budget={"money": {"USD": "1"}, "per_attempt": {"money": {"EUR": "1"}}}), budget={"attempts": 1}
    ),
    "an attempt's currency beside its plan's": plan(
        order(budget={"per_attempt": {"money": {"EUR": "1"}}}), budget=BUDGET
    ),
    "numbers at their ends": plan(
        order("a", accept={"exit_code": 255}, budget={"attempts": 1_000_000, "calls": 0, "tokens": {"input": 0}}),
        order("b" * 63, environment=["A" * 255], run=["true"] * 1_024, outputs=["a"] * 256, accept={"exit_code": 0}),
        order("c", retry={"on": ["executor"], "backoff": "1h", "backoff_max": "1h"}, run=["x" * 100]),
        order("d", retry={"on": ["validation"], "backoff": "90s"}, params={"a": "x" * 65_528}),
        budget={"attempts": 1_000_000, "calls": 2**53 - 1, "time": "365d", "tokens": {"output": 2**53 - 1}},
        name="n" * 63,
    ),
    "numbers past their ends": plan(
        order("a", accept={"exit_code": -1}, budget={"attempts": 1_000_001, "calls": 2**53, "tokens": {"input": -1}}),
        order("b" * 64, environment=["A" * 256], run=["true"] * 1_025, outputs=["a"] * 257, accept={"exit_code": 256}),
        order("c", retry={"on": ["executor"], "backoff": "61m", "backoff_max": "62m"}, run=[""]),
        order("d", retry={"on": ["validation"], "backoff": "3m", "backoff_max": "2m"}, params={"a": "x" * 65_529}),
        budget={"attempts": 0, "calls": 2**53, "time": "1ms", "tokens": {"output": -1}},
        name="n" * 64,
    ),
    "everything that a plan may say": plan(
        order("lint", may_fail=True, environment=["PATH", "LC_*"], priority="high", classification="public"),
        order(
            "tests",
            needs=[{"done": ["lint"]}],
            inputs=["src/**", "schemas/s.json"],
            outputs=["report.xml", "out/**"],
            attempt_time="20s",
            budget={"attempts": 3, "time": "80s", "per_attempt": {"calls": 2, "tokens": {"input": 1}}},
            retry={"on": ["executor", "transient_dependency"], "backoff": "2s", "backoff_max": "1m"},
            accept={"exit_code": 1, "files": ["report.xml"], "schema": {"out/x": "schemas/s.json"}, "verify": ["v"]},
            may=["workspace.write"],
            effects="none",
            params={"url": "https://example.org", "deep": [{"a": [1, True]}]},
        ),
        order(
            "publish",
            needs=["tests", {"any": ["lint", "tests"], "outcomes": ["applied", "failed"]}, {"all": ["lint"]}],
            inputs=[{"from": "tests", "files": ["out/**"]}, "src/a.py"],
        ),
        objective="o",
        name="whole",
        deadline="2h",
        recovery="replace",
        budget=BUDGET,
    ),
    "needs of many kinds": plan(
        order(
            needs=[
                "b",
                {"all": ["b"], "outcomes": ["applied", "applied"]},
                {"any": ["b", "c"], "outcomes": ["nothing"]},
                {"done": []},
                {"done": ["b"], "outcomes": ["failed"]},
                {},
                {"all": "b"},
                {"any": [1, "B"]},
                {"anny": ["b"]},
            ]
        ),
        order("b"),
    ),
    "more needs than there may be": plan(order(needs=["b"] * 257), order("b")),
    "inputs of many kinds": plan(
        order(
            "a",
            inputs=[
                "src/**",
                "src/**",
                {"from": "b", "files": ["x"]},
                {"from": "b", "files": "x"},
                {"from": 1, "files": [1]},
                {"frm": "b"},
                {"from": "a", "files": ["x"]},
                {"from": "zz", "files": ["/x"]},
            ],
            needs=["b"],
        ),
        order("b", outputs=["x"]),
    ),
    "groups as many as there may be": plan(order(needs=[{"any": ["b"]}] * 256), order("b")),
    "groups more than there may be": plan(order(needs=[{"any": ["b"]}] * 257), order("b")),
    "a ring shown whole": ring(32),
    "a ring shown in part": ring(33),
    "a ring shown in a small part": ring(100),
    "rings beside each other": plan(
        order("a", needs=["b"]), order("b", needs=["a"]), order("c", needs=["d"]), order("d", needs=["c", "a"])
    ),
    "what may fail is not counted": plan(order("a", may_fail=True), order("b"), order("c"), budget={"attempts": 2}),
    "what may fail is counted once too often": plan(order("a"), order("b"), order("c"), budget={"attempts": 2}),
}
NESTED: dict[str, Callable[[Any], Any]] = {
    "attempts of the budget": lambda value: plan(budget={"attempts": value}),
    "time of the budget": lambda value: plan(budget={"attempts": 1, "time": value}),
    "calls of the budget": lambda value: plan(budget={"attempts": 1, "calls": value}),
    "tokens of the budget": lambda value: plan(budget={"attempts": 1, "tokens": value}),
    "input tokens of the budget": lambda value: plan(budget={"attempts": 1, "tokens": {"input": value}}),
    "money of the budget": lambda value: plan(budget={"attempts": 1, "money": value}),
    "dollars of the budget": lambda value: plan(budget={"attempts": 1, "money": {"USD": value}}),
    "attempts of an order": lambda value: plan(order(budget={"attempts": value})),
    "one attempt's share": lambda value: plan(order(budget={"per_attempt": value})),
    "one attempt's calls": lambda value: plan(order(budget={"per_attempt": {"calls": value}})),
    "one attempt's tokens": lambda value: plan(order(budget={"per_attempt": {"tokens": value}})),
    "classes of a retry": lambda value: plan(order(retry={"on": value})),
    "a class of a retry": lambda value: plan(order(retry={"on": [value]})),
    "the backoff of a retry": lambda value: plan(order(retry={"on": ["executor"], "backoff": value})),
    "the longest backoff of a retry": lambda value: plan(order(retry={"on": ["executor"], "backoff_max": value})),
    "the exit code": lambda value: plan(order(accept={"exit_code": value})),
    "the files to accept": lambda value: plan(order(accept={"files": value})),
    "a file to accept": lambda value: plan(order(accept={"files": [value]})),
    "the schemas": lambda value: plan(order(accept={"schema": value})),
    "a schema": lambda value: plan(order(outputs=["x"], accept={"schema": {"x": value}})),
    "the verifier": lambda value: plan(order(accept={"verify": value})),
    "an argument": lambda value: plan(order(run=["true", value])),
    "a variable": lambda value: plan(order(environment=[value])),
    "a need": lambda value: plan(order(needs=[value])),
    "members of a need": lambda value: plan(order(needs=[{"all": value}])),
    "a member of a need": lambda value: plan(order(needs=[{"any": [value]}])),
    "outcomes of a need": lambda value: plan(order(needs=[{"all": ["b"], "outcomes": value}]), order("b")),
    "an outcome of a need": lambda value: plan(order(needs=[{"all": ["b"], "outcomes": [value]}]), order("b")),
    "an input": lambda value: plan(order(inputs=[value])),
    "whose file is an input": lambda value: plan(order(inputs=[{"from": value, "files": ["x"]}])),
    "which file is an input": lambda value: plan(order(inputs=[{"from": "b", "files": value}]), order("b")),
    "an output": lambda value: plan(order(outputs=[value])),
    "an operation": lambda value: plan(order(may=[value])),
    "a parameter": lambda value: plan(order(params={"a": value})),
    "an order": lambda value: plan(order(), value) if isinstance(value, dict) else plan(work=[order(), value]),
}
TEXTS: dict[str, tuple[str, Syntax]] = {
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
        for name, build in NESTED.items():
            yield f"{name} is odd {number}", partial(check, build(value), tree=TREE)
    for stem in ("-", "My Plan", "mine"):
        yield f"a plan of the stem {stem}", partial(check, plan(), stem=stem)
    found = partial(check_text, 'work = [{ name = "a", run = ["x"], inputs = ["y"] }]\nbudget = { attempts = 1 }')
    for tree in (None, ("x",), ("y",)):
        yield f"a text beside {tree}", partial(found, stem="plan", syntax="toml", tree=tree)
    for name, (text, syntax) in TEXTS.items():
        yield name, partial(check_text, text, stem="plan", syntax=syntax)


DOCUMENTS = dict(_documents())


def lines_of(checked: CheckedPlan) -> list[str]:
    lines = []
    for problem in checked.problems:
        where = f"{problem.at or '.'} of {problem.name or '-'}" + (f" line {problem.line}" if problem.line else "")
        lines.append(f"  {problem.code} at {where}")
        lines.append(f"    {problem.message} | {problem.next}")
    if checked.document is not None:
        text = json.dumps(msgspec.to_builtins(checked.document), ensure_ascii=False, sort_keys=True)
        lines.append(f"  = {text if len(text) < 2_000 else sha256_of(text.encode())}")
    order, left_off = "-".join(map(str, checked.order)), checked.problems_left_off
    return [*lines, f"  > order {order or 'none'}, left off {left_off}, content {checked.content_digest}"]


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
