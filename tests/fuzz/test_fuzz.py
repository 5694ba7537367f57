"""The short way of fuzzing, in every run: kept inputs, changed inputs, and inputs that grow.

Kept inputs are replayed whole, among them every one that ever broke something. Changed inputs come from fixed seeds,
so that a failure names an input that fails again. Work is counted where it can be counted: lines that run and bytes
that stand at once, for an input and for one four times as large.
"""

from __future__ import annotations

import difflib
import json
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fencepost.core.canonical import Undecodable, decode
from fencepost.core.chain import BrokenChain, open_record
from fencepost.core.commands import PAIRS, OpenScope, Request
from fencepost.core.planfile import bounds, check_text
from fencepost.core.records import KINDS, Record
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.records.envelope import KIND_OF
from tests.conftest import profile_name
from tests.fuzz import mutation
from tests.fuzz.plans import some_plan
from tests.fuzz.targets import TARGETS, Target, check_plan, check_record, record_seeds

ROUNDS = 20_000 if profile_name() == "nightly" else 300
LONG_S = 3_600  # of a nightly test
CORPUS_BYTES_MAX = 4_096
INPUT_SHOWN_BYTES_MAX = 2_000


def _checked(target: Target, data: bytes, what: str) -> str:
    try:
        return target.check(data)
    except Exception as error:
        raise AssertionError(
            f"{what}: {type(error).__name__}: {error}; input {data[:INPUT_SHOWN_BYTES_MAX]!r}"
        ) from error


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_keep_every_promise(name: str) -> None:
    target = TARGETS[name]
    kept = target.corpus()
    became = Counter(_checked(target, data, kept_name) for kept_name, data in kept)
    assert became["read"] >= 1 and len(became) >= 2, f"what is kept shows one side only: {became}"
    assert all(len(data) <= CORPUS_BYTES_MAX for _, data in kept), "kept inputs are small"


@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs_keep_every_promise(name: str) -> None:
    target = TARGETS[name]
    draw = random.Random(20)
    every = [data for _, data in target.corpus()]
    good = [data for data in every if target.check(data) == "read"]
    words = target.words()
    became: Counter[str] = Counter()
    for number in range(ROUNDS):
        seeds = every if number % 5 == 0 else good  # what is refused already seldom gets further by a change
        mutate = mutation.of_bytes if number % 3 == 0 else target.mutate
        data = mutate(draw, draw.choice(seeds), words)
        if number % 10 == 0:
            data = mutation.of_bytes(draw, data, words)
        became[_checked(target, data, f"round {number}")] += 1
    refused = {word for word in became if word != "read"}
    assert refused and became["read"] >= ROUNDS // 100, f"the changes are too wild or too tame: {became}"


@pytest.mark.timeout(LONG_S)
def test_plans_at_the_edge_are_decided_as_they_were_checked() -> None:
    """Whatever the check takes the deciders place: the rules that stand in both say the same."""
    draw = random.Random(31)
    target = TARGETS["plan_json"]
    became = Counter(
        _checked(target, json.dumps(some_plan(draw)).encode(), f"plan {number}") for number in range(ROUNDS)
    )
    assert became["read"] >= ROUNDS // 4 and len(became) >= 3, f"{became}"


def test_every_kind_is_kept_and_is_folded_or_decided_somewhere() -> None:
    kept = [_opened(data) for name, data in TARGETS["record"].corpus() if not name.startswith(("broke_", "found_"))]
    assert {record.kind for record in kept} == {kind.name for kind in KINDS.values()}, "write the seeds anew"
    assert {check_record(data) for data in record_seeds().values()} == {"read"}
    commands = [decode(data, Request).command for name, data in TARGETS["command"].corpus() if name[:6] != "found_"]
    assert {type(command) for command in commands} == set(PAIRS) - {OpenScope}


def _opened(data: bytes) -> Record:
    return open_record(json.loads(data)["seq"], data)


def test_all_pairs_of_kind_and_body_are_refused_but_the_right_ones() -> None:
    """A body under another kind's name: told, or (where two kinds have the same fields) opened as that kind."""
    seeds = record_seeds()
    opened = 0
    for name, data in seeds.items():
        for kind in KIND_OF.values():
            changed = data.replace(f'"kind":"{name}"'.encode(), f'"kind":"{kind.name}"'.encode())
            word = check_record(changed)
            opened += word != "not a record"
            assert kind.name != name or word == "read"
    assert opened < 2 * len(seeds)


# What these tools have found


def test_w24_a_record_nested_without_end_is_told_as_damage() -> None:
    """The first look at a record passes over unknown fields, and used to let the decoder's own error out of there."""
    for depth in (2_000, 200_000):
        data = b'{"body":' + b"[" * depth + b"]" * depth + b',"kind":"x","kind_version":1}'
        with pytest.raises(BrokenChain, match="record 7"):
            open_record(7, data)


def test_w24_a_problem_repeats_only_so_much_of_what_is_stored() -> None:
    with pytest.raises(BrokenChain) as caught:
        open_record(1, b'{"kind":"' + b"x" * 100_000 + b'","kind_version":1}')
    assert len(caught.value.problem) < 300


def test_a_key_that_looks_like_a_place_does_not_mislead_about_the_place() -> None:
    record = KIND_OF[AuthorityDecision].record
    with pytest.raises(Undecodable) as caught:
        decode(b'{"x` - at `$.zzz":1}', record)
    assert (caught.value.code, caught.value.path) == ("unknown_field", "/x` - at `$.zzz")


def test_c27_a_key_of_many_parts_is_refused_before_it_takes_memory() -> None:
    """The library keeps every beginning of a dotted key: 40 kB of them took gigabytes."""
    deep = ".".join("a" * (bounds.DEPTH_MAX + 1))
    for text in (f"x = 1\n{deep} = 1", f"x = 1\n[{deep}]\n", f"x = 1\n[[ {deep} ]]", f"x = 1\ny = {{ {deep} = 1 }}"):
        [problem] = check_text(text, syntax="toml", stem="plan").problems
        assert (problem.code, problem.line) == ("syntax", 2), text
    quoted = f'x = """\n{deep}\n"""\ny = \'{deep}\' # {deep}\n' + "z = '''\n" + deep + "\n''''\n"
    codes = {problem.code for problem in check_text(quoted, syntax="toml", stem="plan").problems}
    assert codes == {"unknown_key", "missing_key"}, "strings and comments may hold as many dots as they like"
    behind = f'z = \'\'\'\n{deep}\n\'\'\'\ny = """\n"\\"{deep}"""""\nx = \'a" #\'\n{deep} = 1'
    [problem] = check_text(behind, syntax="toml", stem="plan").problems
    assert (problem.code, problem.line) == ("syntax", 7)
    allowed = ".".join("a" * (bounds.DEPTH_MAX - 1))
    [*_, last] = check_text(f"{allowed} = 1.5", syntax="toml", stem="plan").problems
    assert last.code != "syntax"


def test_c27_a_document_gets_only_so_many_suggestions() -> None:
    """Each takes some fifty microseconds, or milliseconds among many names: a large file took hours."""
    many = "".join(f"nam{number} = 1\n" for number in range(2 * bounds.SUGGESTIONS_MAX))
    problems = check_text(many, syntax="toml", stem="plan").problems
    assert sum("did you mean" in problem.message for problem in problems) == bounds.SUGGESTIONS_MAX


# Growth

Made = Callable[[int], bytes]

GROWING: dict[str, tuple[str, Made]] = {
    "record, unknown fields": ("record", lambda n: _record_with(b",".join(b'"k%d":1' % each for each in range(n)))),
    "record, long text": ("record", lambda n: _record_with(b'"rule":"%b"' % (b"\\u00e9x" * n))),
    "record, nested": ("record", lambda n: _record_with(b'"rule":' + b"[" * (20 * n) + b"]" * (20 * n))),
    "record, attributes": (
        "record",
        lambda n: _record_with(b'"attributes":{%b}' % b",".join(b'"k%d":"v"' % each for each in range(n))),
    ),
    "record, wrong attribute": (
        "record",
        lambda n: _record_with(b'"attributes":{%b,"z":1}' % b",".join(b'"k%d":"v"' % each for each in range(n))),
    ),
    "json, digits": ("json", lambda n: b"[" + b"9" * n + b"]"),
    "json, escapes": ("json", lambda n: b'"' + b"\\ud83d\\ude00" * n + b'"'),
    "json, bad bytes": ("json", lambda n: b'"' + b"\xff" * n + b'"'),
    "json, spaces": ("json", lambda n: b"[1" + b" \n" * n + b"]"),
    "json, places": ("json", lambda n: b'{"command":"x","%b":1}' % (b" - at `$" * n)),
    "json, wrong key of many": ("json", lambda n: b"{%b}" % b",".join(b'"k%d":%d' % (i, i) for i in range(-1, n))),
    "json, objects": ("json", lambda n: b"[" + b",".join([b'{"a":[{}]}'] * n) + b"]"),
    "toml, dotted key": ("plan_toml", lambda n: b"a." * n + b"a = 1"),
    "toml, header and keys": (
        "plan_toml",
        lambda n: b"[" + b"a." * n + b"a]\n" + b"".join(b"k%d=1\n" % each for each in range(n)),
    ),
    "toml, headers": ("plan_toml", lambda n: b"".join(b"[a.b%d.c]\n" % each for each in range(n))),
    "toml, nested arrays": ("plan_toml", lambda n: b"a = " + b"[" * (20 * n) + b"]" * (20 * n)),
    "toml, unfinished strings": ("plan_toml", lambda n: b'"""' + b'\\"' * n),
    "toml, quotes": ("plan_toml", lambda n: b"a = " + b'"' * n),
    "toml, escapes": ("plan_toml", lambda n: b'a = "' + b"\\u00e9" * n + b'"'),
    "toml, digits": ("plan_toml", lambda n: b"a = " + b"1_" * n + b"1"),
    "toml, fractions": ("plan_toml", lambda n: b"a = 1." + b"1" * n),
    "toml, unknown keys": ("plan_toml", lambda n: b"".join(b"k%d=1\n" % each for each in range(n))),
    "toml, orders": ("plan_toml", lambda n: _plan(n, lambda each: b"")),
    "toml, missing needs": ("plan_toml", lambda n: _plan(n, lambda each: b'needs = ["x%d"]\n' % each)),
    "toml, a chain": ("plan_toml", lambda n: _plan(n, lambda each: b'needs = ["w%d"]\n' % (each - 1) if each else b"")),
    "toml, a ring": ("plan_toml", lambda n: _plan(n, lambda each: b'needs = ["w%d"]\n' % ((each + 1) % n))),
    "toml, one name": ("plan_toml", lambda n: _plan(n, lambda each: b"").replace(b'"w', b'"w1" # ')),
    "toml, fan-in": (
        "plan_toml",
        lambda n: _plan(
            n, lambda each: b"" if each else b"needs = [%b]\n" % b",".join(b'"w%d"' % i for i in range(1, n))
        ),
    ),
    "toml, files of one order": ("plan_toml", lambda n: _plan(1, lambda each: b"inputs = [%b]\n" % (b'"x*/**",' * n))),
    "json plan, doubled keys": ("plan_json", lambda n: b'{"a":[%b]}' % b",".join([b'{"k":1,"k":1}'] * n)),
    "json plan, a doubled key behind many": ("plan_json", lambda n: b'{"a":[%b{"k":1,"k":1}]}' % (b"{},\n" * n)),
    "json plan, nested": ("plan_json", lambda n: b"[" * (20 * n) + b"]" * (20 * n)),
    "json plan, fractions": ("plan_json", lambda n: b"[1." + b"1" * n + b"]"),
    "json plan, digits": ("plan_json", lambda n: b"[" + b"1" * n + b"]"),
}
"""Family -> target, and an input of size n. None of them may take more than in proportion to n. What is nested stands
past every bound of nesting from the smallest size on."""


def _record_with(fields: bytes) -> bytes:
    data = record_seeds()["authority_decision"]
    return data.replace(b'"body":{', b'"body":{' + fields + b",")


def _plan(count: int, more: Callable[[int], bytes]) -> bytes:
    work = (b'[[work]]\nname = "w%d"\nrun = ["true"]\n%b' % (number, more(number)) for number in range(count))
    return b"[budget]\ncalls = 1\n" + b"".join(work)


READ: dict[str, Callable[[bytes], Any]] = {
    "record": lambda data: _refused(lambda: open_record(17, data), BrokenChain),
    "json": lambda data: _refused(lambda: decode(data, dict[str, int] if data[:1] == b"{" else Any), Undecodable),
    "plan_toml": lambda data: check_text(data, syntax="toml", stem="plan", tree=["a.py"]),
    "plan_json": lambda data: check_text(data, syntax="json", stem="plan", tree=["a.py"]),
}


def _refused(read: Callable[[], Any], refusal: type[Exception]) -> Any:
    try:
        return read()
    except refusal as error:
        return error


def _lines_run(read: Callable[[], Any]) -> int:
    """How many lines of Python ran, but for the search for similar words, which is bounded and dear to count."""
    lines = 0

    def count(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename == difflib.__file__:
            return None
        lines += event == "line"
        return count

    known = sys.gettrace()
    sys.settrace(count)
    try:
        read()
    finally:
        sys.settrace(known)
    return lines


def _bytes_at_once(read: Callable[[], Any]) -> int:
    """The most memory that stood at once, beyond what stood before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        read()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


SMALL = 120
LINES_SPARE = 3_000
BYTES_SPARE = 200_000


@pytest.mark.parametrize("family", GROWING)
def test_c27_work_and_memory_grow_no_faster_than_the_input(family: str) -> None:
    target, make = GROWING[family]
    read = READ[target]
    small, large = make(SMALL), make(4 * SMALL)
    read(small)  # whatever is made once is made now
    # A sort takes a little more than in proportion; the square would be sixteen times as much.
    lines = [_lines_run(lambda data=data: read(data)) for data in (small, large)]  # type: ignore[misc]  # at once
    assert lines[1] <= 6 * lines[0] + LINES_SPARE, f"{lines} lines"
    stood = [_bytes_at_once(lambda data=data: read(data)) for data in (small, large)]  # type: ignore[misc]  # at once
    assert stood[1] <= 6 * stood[0] + BYTES_SPARE, f"{stood} bytes at once"


@pytest.mark.nightly
@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("family", GROWING)
def test_c27_time_grows_no_faster_than_the_input(family: str) -> None:
    """Work below Python is not counted by lines: processor time of inputs eight times as large, with room."""
    target, make = GROWING[family]
    read = READ[target]

    def least_s(data: bytes) -> float:
        found = []
        for _ in range(3):
            start = time.process_time()
            read(data)
            found.append(time.process_time() - start)
        return min(found)

    small, large = (least_s(make(size)) for size in (1_000, 8_000))
    assert large <= 24 * small + 0.05, f"{small:.4f} s and {large:.4f} s"


@pytest.mark.parametrize("syntax", ["toml", "json"])
def test_every_end_of_a_plan_is_read_or_refused(syntax: Any) -> None:
    name = "full.toml" if syntax == "toml" else "full.json"
    data = dict(TARGETS[f"plan_{syntax}"].corpus())[name]
    for end in range(0, len(data), 1 if profile_name() == "nightly" else 7):
        check_plan(data[:end], syntax)
