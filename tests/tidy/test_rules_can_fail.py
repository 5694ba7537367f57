"""Each house rule refuses what it is there to refuse, and lets its replacement pass."""

from __future__ import annotations

import pytest

from tests.tidy.files import ROOT, Source
from tests.tidy.rules import (
    RULES,
    Rule,
    above_ratchet,
    at_home_nowhere,
    exceptions_have_reasons,
    files_behind_ports,
    function_lengths,
    injected_entropy,
    injected_time,
    module_lengths,
    no_assert,
    no_swallowed_error,
    nothing_left_over,
    opened_properly,
    ordered_core,
    pure_core,
    requirements_are_plain,
    storage_knows_no_state,
)

CORE = "src/fencepost/core/example.py"
KERNEL = "src/fencepost/kernel/example.py"

# Written in pieces, since this file is looked at as well.
LEFTOVER = "TO" + "DO"
REGISTRY = "py" + "pi.org"
IGNORE = "type" + ": ignore"
NOQA = "no" + "qa"

BAD: list[tuple[Rule, str, str]] = [
    (pure_core, CORE, "import os"),
    (pure_core, CORE, "from time import monotonic"),
    (pure_core, CORE, "import urllib.request"),
    (pure_core, CORE, "def late():\n    import random"),
    (pure_core, CORE, "text = open('x').read()"),
    (pure_core, CORE, "print('x')"),
    (pure_core, CORE, "answer = input()"),
    (pure_core, CORE, "key = id(subject)"),
    (pure_core, CORE, "key = hash('name')"),
    (pure_core, CORE, "async def decide(): ..."),
    (pure_core, CORE, "def decide():\n    global count"),
    (ordered_core, CORE, "for name in {'a', 'b'}: ..."),
    (ordered_core, CORE, "names = [name for name in set(given)]"),
    (ordered_core, CORE, "names = list(frozenset(given))"),
    (ordered_core, CORE, "text = ','.join({name for name in given})"),
    (no_assert, KERNEL, "assert head == expected"),
    (no_swallowed_error, KERNEL, "try: act()\nexcept: raise"),
    (no_swallowed_error, KERNEL, "try: act()\nexcept Exception: pass"),
    (no_swallowed_error, KERNEL, "try: act()\nexcept (ValueError, BaseException):\n    ..."),
    (no_swallowed_error, KERNEL, "for x in y:\n    try: act()\n    except Exception as error: continue"),
    (no_swallowed_error, KERNEL, "with contextlib.suppress(Exception): act()"),
    (injected_time, KERNEL, "now = time.time()"),
    (injected_time, KERNEL, "now = datetime.datetime.now(UTC)"),
    (injected_time, KERNEL, "from time import time_ns"),
    (injected_entropy, KERNEL, "import secrets"),
    (injected_entropy, KERNEL, "name = uuid.uuid4()"),
    (files_behind_ports, KERNEL, "import os"),
    (files_behind_ports, KERNEL, "from os.path import exists"),
    (files_behind_ports, KERNEL, "with open(path, 'rb') as file: ..."),
    (files_behind_ports, KERNEL, "data = (space.logs / 'outcome').read_bytes()"),
    (files_behind_ports, KERNEL, "if path.lstat().st_size: ..."),
    (opened_properly, KERNEL, "from __future__ import annotations\nX = 1"),
    (opened_properly, KERNEL, '"""What it is for."""\nX = 1'),
    (opened_properly, KERNEL, "\n"),
    (exceptions_have_reasons, KERNEL, f"x = y  # {IGNORE}[arg-type]"),
    (exceptions_have_reasons, KERNEL, f"x = y  # {NOQA}: E501"),
    (exceptions_have_reasons, KERNEL, f"x = y  # {NOQA}"),
    (nothing_left_over, "README.md", f"{LEFTOVER}: finish"),
    (nothing_left_over, "src/fencepost/x.py", "# " + "FIX" + "ME later"),
    (at_home_nowhere, "README.md", "see /wo" + "rk/main/docs"),
    (at_home_nowhere, "README.md", "cd /ho" + "me/someone/fencepost"),
    (at_home_nowhere, "README.md", f"cd '{ROOT}/src'"),
    (at_home_nowhere, "dev", f"pip install -i https://{REGISTRY}/simple x"),
    (at_home_nowhere, "dev", "pip install --ind" + "ex-url x"),
    (requirements_are_plain, "requirements/run.txt", "x @ ht" + "tps://example.org/x.whl"),
    (requirements_are_plain, "requirements/run.txt", "--extra-ind" + "ex-url y"),
]

GOOD: list[tuple[Rule, str, str]] = [
    (pure_core, CORE, "import hashlib\nimport msgspec\nfrom fencepost.core.ids import new_id"),
    (ordered_core, CORE, "for name in sorted({'a', 'b'}): ...\nsize = len({1, 2})"),
    (
        ordered_core,
        CORE,
        "pairs = sorted((len(n), n) for n in set(given))\nother = {n + 'x' for n in set(given)}",
    ),
    (no_assert, KERNEL, "if head != expected:\n    raise ChainBroken(head)"),
    (
        no_swallowed_error,
        KERNEL,
        "try: act()\nexcept FileNotFoundError: pass\nexcept Exception: tell(); raise",
    ),
    (injected_time, KERNEL, "now = clock.now_us()\nwait = time.monotonic()"),
    (injected_time, "src/fencepost/adapters/clock.py", "now = time.time_ns()"),
    (injected_entropy, "src/fencepost/adapters/entropy.py", "import secrets"),
    (
        files_behind_ports,
        KERNEL,
        "from pathlib import Path\nmeans.door.open(clerk)\ndata = spaces.read_left(space, 'x')",
    ),
    (opened_properly, KERNEL, '"""What it is for."""\n\nfrom __future__ import annotations\n\nX = 1'),
    (opened_properly, "src/fencepost/kernel/__init__.py", ""),
    (opened_properly, "src/fencepost/kernel/__init__.py", '"""What it is for."""'),
    (exceptions_have_reasons, KERNEL, f"x = y  # {IGNORE}[arg-type]  # the stub is older than the library"),
    (exceptions_have_reasons, KERNEL, f"x = y  # {NOQA}: E501 - a digest cannot be broken"),
    (nothing_left_over, "README.md", "mktemp -t name.XXXXXX"),
    (at_home_nowhere, "README.md", "`.fencepost/work/main/` and `$HOME/x` and pip install fencepost"),
    (requirements_are_plain, "requirements/run.txt", "apsw==1 \\\n    --hash=sha256:00"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_refused(rule: Rule, path: str, text: str) -> None:
    findings = list(rule(Source(path=path, text=text)))
    assert findings, f"{rule.__name__} accepts: {text}"
    assert all(finding.path == path and finding.line >= 1 and finding.message for finding in findings)


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_accepted(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path=path, text=text))) == []


def test_every_rule_is_seen_to_refuse_and_to_accept() -> None:
    rules = {rule for rule, _ in RULES}
    assert rules == {rule for rule, _, _ in BAD} == {rule for rule, _, _ in GOOD}


STATES = frozenset({"ready", "retry_wait"})


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        ("src/fencepost/storage/sqlite/q.sql", "-- name: due\nSELECT *\nWHERE state = 'ready'", [3]),
        ("src/fencepost/storage/sqlite/q.sql", 'SELECT "retry_wait"', [1]),
        ("src/fencepost/storage/q.py", "x = 1\nq = \"SELECT 1 WHERE state IN ('ready', 'x')\"", [2]),
        ("src/fencepost/storage/sqlite/q.sql", "-- rows that are ready\nSELECT ready WHERE stage = ?1", []),
        ("src/fencepost/storage/q.py", "message = \"not 'ready'\"", []),
    ],
)
def test_sql_names_no_state(path: str, text: str, lines: list[int]) -> None:
    findings = list(storage_knows_no_state(Source(path=path, text=text), STATES))
    assert [finding.line for finding in findings] == lines


def test_lengths_are_counted() -> None:
    body = "\n".join("        x = 1" for _ in range(4))
    source = Source(path="m.py", text=f"class A:\n    @cached\n    def f(self):\n{body}\n\ndef g(): ...\n")
    assert list(module_lengths(source)) == [("m.py", 9)]
    assert dict(function_lengths(source)) == {"m.py::A.f": 5, "m.py::g": 1}


@pytest.mark.parametrize(
    ("lines", "tolerated", "complaint"),
    [
        (70, {}, None),
        (71, {}, "70 at most"),
        (90, {"f": 90}, None),
        (91, {"f": 90}, "90 at most"),
        (85, {"f": 90}, "write 85 instead of 90"),
        (60, {"f": 90}, "remove its line"),
        (60, {"gone": 90}, "remove its line"),
    ],
)
def test_ratchet_only_shrinks(lines: int, tolerated: dict[str, int], complaint: str | None) -> None:
    found = [finding.message for finding in above_ratchet({"f": lines}, limit=70, tolerated=tolerated, unit="function")]
    assert (complaint is None) == (found == [])
    assert complaint is None or (len(found) == 1 and complaint in found[0])
