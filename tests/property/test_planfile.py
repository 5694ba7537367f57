"""Plan files against naive models, and against anything at all."""

from __future__ import annotations

import graphlib
import itertools
import json
import random
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.planfile import (
    Pattern,
    PlanProblem,
    check_document,
    check_text,
    compile_pattern,
    covers,
    select,
)
from fencepost.core.planfile.graph import sort_graph
from fencepost.core.planfile.problems import PlanProblem as Problem
from fencepost.core.planfile.read import RawDocument, read_document
from tests.unit.planfile.plans import PRODUCT_EXAMPLE, check, order, plan

_CODES_TEXT = """
syntax unknown_key missing_key wrong_type bad_name bad_duration bad_money out_of_range
duplicate_name dependency_missing dependency_cycle impossible_budget incompatible_output no_match
path_outside unsupported_feature
"""
CODES = frozenset(_CODES_TEXT.split())

segments = st.text(alphabet="ab.", min_size=1, max_size=5).filter(lambda text: text not in (".", ".."))
paths = st.lists(segments, min_size=1, max_size=5).map("/".join)
pattern_segments = st.one_of(
    st.just("**"),
    st.text(alphabet="ab*", min_size=1, max_size=6).filter(lambda text: "**" not in text),
)
patterns = st.lists(pattern_segments, min_size=1, max_size=5).map("/".join)


def compiled(text: str) -> Pattern:
    pattern = compile_pattern(text)
    assert isinstance(pattern, Pattern), pattern
    return pattern


def naive_matches(pattern: list[str], path: list[str]) -> bool:
    """The rules of the product page, word by word."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        least = 1 if len(pattern) == 1 else 0
        return any(naive_matches(pattern[1:], path[taken:]) for taken in range(least, len(path) + 1))
    segment = ".*".join(re.escape(piece) for piece in pattern[0].split("*"))
    return bool(path) and re.fullmatch(segment, path[0]) is not None and naive_matches(pattern[1:], path[1:])


@given(pattern=patterns, path=paths)
def test_patterns_match_as_the_naive_model(pattern: str, path: str) -> None:
    assert compiled(pattern).matches(path) == naive_matches(pattern.split("/"), path.split("/"))


@given(chosen=st.lists(patterns, max_size=3), tree=st.lists(paths, max_size=30))
def test_selection_is_what_matches_in_bytewise_order(chosen: list[str], tree: list[str]) -> None:
    expected = {path for path in tree if any(compiled(text).matches(path) for text in chosen)}
    assert select([compiled(text) for text in chosen], tree) == sorted(expected, key=str.encode)


WORLD = [
    "/".join(parts)
    for length in (1, 2, 3, 4)
    for parts in itertools.product(("a", "b", "ab", "c", "aca", "acb"), repeat=length)
]


@given(outputs=st.lists(patterns, max_size=3), pattern=patterns)
def test_covering_agrees_with_all_paths_of_a_small_world(outputs: list[str], pattern: str) -> None:
    ready = [compiled(output) for output in outputs]
    inside = compiled(pattern)
    uncovered = [path for path in WORLD if inside.matches(path) and not any(o.matches(path) for o in ready)]
    if covers(ready, inside):
        assert uncovered == []


@given(outputs=st.lists(patterns, max_size=2), pattern=patterns, data=st.data())
def test_a_no_to_covering_has_a_path_that_shows_it(outputs: list[str], pattern: str, data: st.DataObject) -> None:
    ready = [compiled(output) for output in outputs]
    if covers(ready, compiled(pattern)):
        return
    # Fresh letters for every wildcard, and for `**` more fresh segments than any output has.
    parts = pattern.split("/")
    last = len(parts) - 1
    choices = [
        [["z"] * count for count in range(1 if index == last else 0, 7)] if part == "**" else [[part.replace("*", "z")]]
        for index, part in enumerate(parts)
    ]
    shapes = itertools.product(*choices)
    assert any(not any(output.matches("/".join(itertools.chain(*shape))) for output in ready) for shape in shapes)


graphs = st.integers(min_value=0, max_value=12).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(min_value=0, max_value=max(size - 1, 0)), max_size=3),
        min_size=size,
        max_size=size,
    )
)


@given(needs=graphs)
def test_a_ring_is_found_exactly_where_graphlib_finds_one(needs: list[list[int]]) -> None:
    found = sort_graph(needs)
    try:
        graphlib.TopologicalSorter(dict(enumerate(needs))).prepare()
        has_ring = False
    except graphlib.CycleError:
        has_ring = True
    assert bool(found.rings) == has_ring
    for ring in found.rings:
        assert ring[0] == min(ring)
        assert len(set(ring)) == len(ring)
        assert all(after in needs[node] for node, after in zip(ring, (*ring[1:], ring[0]), strict=True))
    if not has_ring:
        place = {node: index for index, node in enumerate(found.order)}
        assert sorted(found.order) == list(range(len(needs)))
        assert all(place[other] < place[node] for node, needed in enumerate(needs) for other in needed)


@given(needs=graphs, seed=st.integers(min_value=0))
def test_the_order_depends_on_the_graph_alone(needs: list[list[int]], seed: int) -> None:
    shuffled = [list(needed) for needed in needs]
    for needed in shuffled:
        random.Random(seed).shuffle(needed)
    assert sort_graph(shuffled).order == sort_graph(needs).order


@given(needs=graphs)
def test_ties_are_broken_by_definition_order(needs: list[list[int]]) -> None:
    found = sort_graph(needs)
    if found.rings:
        return
    done: list[int] = []
    while len(done) < len(needs):
        done.append(min(n for n in range(len(needs)) if n not in done and all(other in done for other in needs[n])))
    assert found.order == tuple(done)


durations = st.sampled_from(["1s", "90s", "1m30s", "2h", "1d"])
names = st.sampled_from(["a", "b", "c-1", "d"])
keys = st.fixed_dictionaries(
    {},
    optional={
        "may_fail": st.booleans(),
        "outputs": st.lists(patterns, max_size=3),
        "attempt_time": durations,
        "budget": st.fixed_dictionaries({}, optional={"attempts": st.integers(1, 3), "calls": st.integers(0, 9)}),
        "priority": st.sampled_from(["low", "normal", "high"]),
        "params": st.dictionaries(
            st.text(max_size=5).filter(lambda t: "\0" not in t),
            st.integers(-5, 5) | st.booleans() | st.lists(st.text(max_size=3).filter(lambda t: "\0" not in t)),
            max_size=3,
        ),
    },
)
good_plans = st.lists(keys, min_size=1, max_size=4).map(
    lambda work: plan(*(order(f"w{index}", **item) for index, item in enumerate(work)))
)


def toml_text(value: Any) -> str:
    """Inline TOML of a value:

    strings of JSON are strings of TOML, except for a DEL and beyond the first plane.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_text(key)} = {toml_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_text(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
    return json.dumps(value)


def shuffled_keys(value: Any, seed: int) -> Any:
    if isinstance(value, dict):
        entries = [(key, shuffled_keys(item, seed)) for key, item in value.items()]
        random.Random(seed).shuffle(entries)
        return dict(entries)
    return [shuffled_keys(item, seed) for item in value] if isinstance(value, list) else value


@given(value=good_plans, seed=st.integers(min_value=0))
def test_toml_and_json_and_any_order_of_keys_have_one_digest(value: dict[str, Any], seed: int) -> None:
    toml = "".join(f"{key} = {toml_text(item)}\n" for key, item in value.items())
    first = check_text(toml, syntax="toml", stem="plan")
    second = check_text(json.dumps(shuffled_keys(value, seed)), syntax="json", stem="plan")
    assert first.problems == second.problems == ()
    assert first.content_digest is not None
    assert first.content_digest == second.content_digest
    assert first.document == second.document


_WORDS_TEXT = """
name objective deadline recovery budget work attempts time tokens input output calls money USD run
may_fail environment needs all any done outcomes inputs from files outputs attempt_time per_attempt
retry on backoff backoff_max accept exit_code schema verify priority classification may effects
params executor review effect resources reviewers call python a b replace adopt 1s 2.50 applied
command
"""
words = st.sampled_from(_WORDS_TEXT.split())
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | words | st.characters() | patterns


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(words | st.characters(), inner, max_size=6)


anything = st.recursive(leaves, containers, max_leaves=40)


def reasonable(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        assert problem.code in CODES
        assert problem.message
        assert problem.next
        json.dumps([problem.at, problem.message, problem.next], ensure_ascii=False).encode()


@given(value=anything)
def test_no_document_raises(value: object) -> None:
    checked = check_document(RawDocument(value=value), stem="plan", tree=["a", "b/a"])
    reasonable(checked.problems)
    assert (checked.document is None) == bool(checked.problems)


@given(
    head=st.dictionaries(words, anything, max_size=4),
    work=st.lists(st.dictionaries(words, anything, max_size=6), max_size=4),
)
def test_no_plan_like_document_raises(head: dict[str, Any], work: list[dict[str, Any]]) -> None:
    value = {**plan(), **head, "work": [{**order(f"w{index}"), **item} for index, item in enumerate(work)]}
    checked = check(value, tree=["a", "b/a"])
    reasonable(checked.problems)
    assert (checked.document is None) == bool(checked.problems)
    assert check(value, tree=["a", "b/a"]) == checked


@given(text=st.text() | st.binary())
def test_no_text_raises(text: str | bytes) -> None:
    for answer in (read_document(text, syntax="toml"), read_document(text, syntax="json")):
        if isinstance(answer, PlanProblem):
            reasonable((answer,))


@given(cut=st.integers(0, len(PRODUCT_EXAMPLE)), extra=st.text(max_size=5))
def test_no_damaged_plan_raises(cut: int, extra: str) -> None:
    checked = check_text(PRODUCT_EXAMPLE[:cut] + extra + PRODUCT_EXAMPLE[cut:], syntax="toml", stem="plan")
    assert checked.problems
    reasonable(checked.problems)
