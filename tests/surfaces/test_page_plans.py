"""docs/PLANS.md and `fencepost help plan-file`: every key that the check knows, and no other; every plan holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fencepost.core.planfile import bounds
from fencepost.core.planfile.amounts import ATTEMPT_KEYS, CEILING_KEYS, TOKEN_KEYS
from fencepost.core.planfile.check import PLAN_KEYS, UNSUPPORTED_PLAN_KEYS, check_text
from fencepost.core.planfile.document import CLASSIFICATIONS, ENVIRONMENT_FIRST, EXECUTORS, PRIORITIES, RETRY_CLASSES
from fencepost.core.planfile.groups import GROUP_KEYS, OUTCOMES_ALLOWED
from fencepost.core.planfile.work import (
    ACCEPT_KEYS,
    FROM_KEYS,
    ORDER_CEILING_KEYS,
    ORDER_KEYS,
    RETRY_KEYS,
    UNSUPPORTED_KEYS,
)
from fencepost.core.reasons import REASONS
from fencepost.surfaces.cli.help import topic_help
from fencepost.surfaces.cli.help_plan import TABLES
from fencepost.surfaces.cli.view.signs import ASKING, SIGNS
from tests.surfaces.cli_run_world import make_repo

PAGE = (Path(__file__).parents[2] / "docs" / "PLANS.md").read_text(encoding="utf-8")
PLANS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
KEYS = {
    "The plan": PLAN_KEYS,
    "The orders": ORDER_KEYS,
    "needs": GROUP_KEYS,
    "inputs and outputs": FROM_KEYS,
    "accept": ACCEPT_KEYS,
    "retry": RETRY_KEYS,
    "budget": ORDER_CEILING_KEYS,
    "Not built yet": (*UNSUPPORTED_PLAN_KEYS, *UNSUPPORTED_KEYS),
}
"""Heading of the page -> the keys that the table below it must name, in this order."""
HELP = {"plan": "The plan", "work": "The orders", "inputs": "inputs and outputs"}
PLAN_FILES = Path(bounds.__file__).parent


def section(title: str) -> str:
    return re.split(rf"^##+ {re.escape(title)}$", PAGE, flags=re.MULTILINE)[1].split("\n#")[0]


def row(title: str, key: str) -> str:
    (found,) = re.findall(rf"^\| `{re.escape(key)}` \|.*$", section(title), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("title", KEYS)
def test_a_table_of_the_page_names_the_keys_that_the_check_knows(title: str) -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE)) == KEYS[title]


def test_the_short_form_names_the_same_keys() -> None:
    assert {name: tuple(key for key, _ in rows) for name, (_, rows) in TABLES.items()} == {
        name: KEYS[HELP.get(name, name)] for name in TABLES
    }
    assert {HELP.get(name, name) for name in TABLES} == set(KEYS) - {"Not built yet"}
    shown = topic_help(["plan-file"])
    assert all(f"\n  {key} " in shown for keys in list(KEYS.values())[:-1] for key in keys)


def test_no_table_of_a_plan_has_keys_that_are_listed_nowhere() -> None:
    """Whoever reads a table says by the name of a list which keys are known: a new list belongs on the page."""
    lists = set()
    for path in PLAN_FILES.glob("*.py"):
        for words in re.findall(r" refuse_unknown\((.*)\)$", path.read_text("utf-8"), re.MULTILINE):
            lists.update(re.findall(r"\b_?[A-Z]+(?:_[A-Z]+)*_KEYS\b", words) or [words])
    group = 'spot, table, (key,) if kind == "optional" else (key, "outcomes"), refused_elsewhere=("outcomes",)'
    assert lists == {
        *("PLAN_KEYS", "UNSUPPORTED_PLAN_KEYS", "ORDER_KEYS", "UNSUPPORTED_KEYS", "GROUP_KEYS", "FROM_KEYS"),
        *("ACCEPT_KEYS", "RETRY_KEYS", "ORDER_CEILING_KEYS", "CEILING_KEYS", "ATTEMPT_KEYS", "TOKEN_KEYS"),
        group,
    }
    assert (*CEILING_KEYS, "per_attempt") == ORDER_CEILING_KEYS
    assert all(f"`{key}`" in row("budget", "per_attempt") for key in ATTEMPT_KEYS)
    assert all(f"`{key}`" in row("budget", "tokens") for key in TOKEN_KEYS)


def test_the_page_names_values_and_bounds_as_they_are() -> None:
    for title, key, words in (
        ("The orders", "executor", EXECUTORS),
        ("The orders", "priority", PRIORITIES),
        ("The orders", "classification", CLASSIFICATIONS),
        ("The orders", "environment", ENVIRONMENT_FIRST),
        ("retry", "on", RETRY_CLASSES),
        ("needs", "outcomes", OUTCOMES_ALLOWED),
    ):
        assert list(dict.fromkeys(re.findall(r'"([\w*]+)"', row(title, key)))) == list(words)
    for title, key, bound in (
        ("The plan", "objective", bounds.OBJECTIVE_BYTES_MAX),
        ("The plan", "python", bounds.INTERPRETER_BYTES_MAX),
        ("The plan", "work", bounds.ORDERS_MAX),
        ("The orders", "call", bounds.CALL_BYTES_MAX),
        ("The orders", "environment", bounds.ENVIRONMENT_MAX),
        ("The orders", "inputs", bounds.PATTERNS_MAX),
        ("The orders", "needs", bounds.MEMBERS_MAX),
        ("The orders", "params", bounds.PARAMS_BYTES_MAX),
        ("accept", "exit_code", bounds.EXIT_CODE_MAX),
        ("budget", "attempts", bounds.ATTEMPTS_MAX),
    ):
        assert f" {bound:,}" in row(title, key), (key, bound)
    for text in (
        f"At most {bounds.DEPTH_MAX} tables",
        f"at most {bounds.PATTERN_BYTES_MAX:,} bytes and {bounds.PATTERN_SEGMENTS_MAX} segments",
        f"at most {bounds.CURRENCIES_MAX} currencies",
        f"At most {bounds.PATTERNS_MAX} in one list",
        f"at most {bounds.ARGUMENTS_MAX:,} items and {bounds.ARGUMENTS_BYTES_MAX // 1024} KiB",
        f"At most {bounds.NEEDS_MAX} tables",
    ):
        assert text in PAGE
    assert (bounds.BACKOFF_FIRST_US, bounds.BACKOFF_MAX_FIRST_US, bounds.BACKOFF_LONGEST_US) == (
        1_000_000,
        60_000_000,
        3_600_000_000,
    )
    assert (bounds.ATTEMPTS_FIRST, bounds.ATTEMPT_TIME_FIRST_US) == (3, 600_000_000)


def test_the_page_names_every_code_of_plan_files() -> None:
    told = set(re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\|(.*?)\|", section("What may be wrong"), re.M))))
    assert {code for code, row in REASONS.items() if row.sort == "plan"} <= told
    assert told <= set(REASONS)


def test_the_page_maps_the_words_of_the_live_view() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| `(\w+)`", section("Words for states"), re.MULTILINE)
    assert rows == [(sign.word, "waiting" if state == ASKING else state) for state, sign in SIGNS.items()]


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_a_plan_of_the_page_holds(number: int) -> None:
    checked = check_text(PLANS[number], syntax="toml", stem="page", tree=["greet.py", "readme.txt"])
    assert checked.problems == ()


def test_every_key_of_the_page_stands_in_a_plan_of_it() -> None:
    documents = [tomllib.loads(text) for text in PLANS]
    orders = [order for document in documents for order in document["work"]]
    assert {key for document in documents for key in document} >= set(PLAN_KEYS) - {"python"}
    assert {key for order in orders for key in order} == set(ORDER_KEYS)


def test_the_holds_of_the_page_are_those_of_the_check() -> None:
    text = '[budget]\nattempts = 12\nmoney = { USD = "1" }\n[[work]]\nname = "a"\nrun = ["true"]\n'
    document = check_text(text, syntax="toml", stem="page").document
    assert document is not None and document.work[0].per_attempt == {"money_micros:USD": 83_334}
    assert "`USD 0.083334`" in PAGE


def test_every_plan_of_the_page_runs(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    ((name, module),) = re.findall(r"^`(\w+\.py)`:\n\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    repo.write(name, module)
    for number, text in enumerate(PLANS):
        repo.write(f"plan-{number}.toml", text)
        assert repo.document("plan", "check", f"plan-{number}.toml")["ok"]
        done = repo.document("run", f"plan-{number}.toml")
        failing = {order["name"] for order in done["orders"] if order["state"] != "applied"}
        assert failing == ({"mirror-b"} if "mirror-b" in text else set()), done
