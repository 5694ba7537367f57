"""Where a document does not fit its type: the code and the place, also where msgspec tells only of some key."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from fencepost.core.strictjson import Undecodable
from fencepost.core.violations import convert

Small = Annotated[int, msgspec.Meta(ge=0, le=9)]


class Leaf(msgspec.Struct, forbid_unknown_fields=True):
    number: Small = 0
    words: tuple[str, ...] = ()


class Tree(msgspec.Struct, forbid_unknown_fields=True):
    leaves: list[Leaf] = []
    by_name: dict[str, Leaf] = {}
    nested: dict[str, list[dict[str, Small]]] = {}
    short: dict[Annotated[str, msgspec.Meta(max_length=3)], int] = {}
    deep: dict[str, list[dict[str, list[dict[str, Small]]]]] = {}
    pair: tuple[int, str] | None = None


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"leaves": 1}, "wrong_type", "/leaves"),
    ({"leaves": [{}, {"number": "x"}]}, "wrong_type", "/leaves/1/number"),
    ({"leaves": [{}, {"number": True}]}, "bool_for_integer", "/leaves/1/number"),
    ({"leaves": [{"number": 10}]}, "bad_value", "/leaves/0/number"),
    ({"leaves": [{"words": ["a", 1]}]}, "wrong_type", "/leaves/0/words/1"),
    ({"leaves": [{}, {"numbre": 1}]}, "unknown_field", "/leaves/1/numbre"),
    ({"leafs": 1}, "unknown_field", "/leafs"),
    ({"by_name": {"a": {}, "b": {"number": "x"}, "c": {}}}, "wrong_type", "/by_name/b/number"),
    ({"by_name": {"a": {}, "b": {}, "c": {"nmbr": 1}}}, "unknown_field", "/by_name/c/nmbr"),
    ({"by_name": {"only": 1}}, "wrong_type", "/by_name/only"),
    ({"nested": {"a": [{}], "b": [{"x": 1}, {"y": 2, "z": 99}]}}, "bad_value", "/nested/b/1/z"),
    ({"nested": {"a": [{"x": 1}], "b": {}}}, "wrong_type", "/nested/b"),
    ({"nested": {"a/b": [{"c~d": -1}]}}, "bad_value", "/nested/a~1b/0/c~0d"),
    ({"short": {"abc": 1, "long": 2}}, "bad_value", "/short/long"),
    ({"short": {"abc": 1, "xyz": "2"}}, "wrong_type", "/short/xyz"),
    ({"pair": [1]}, "bad_value", "/pair"),
    ({"pair": [1, 2]}, "wrong_type", "/pair/1"),
    # Keys that look like places of msgspec's.
    ({"a` - at `$.leaves": 1}, "unknown_field", "/a` - at `$.leaves"),
    ({"a` - at `$.leaves[0]": 1, "leaves": [{}]}, "unknown_field", "/a` - at `$.leaves[0]"),
    ({"a` - at `$.leaves[7]": 1, "leaves": [{}]}, "unknown_field", "/a` - at `$.leaves[7]"),
    ({"a` - at `$.leaves[1]": 1, "leaves": [{}]}, "unknown_field", "/a` - at `$.leaves[1]"),
    ({"leaves": [{"a` - at `$.leaves": 1}]}, "unknown_field", "/leaves/0/a` - at `$.leaves"),
    ({"by_name": {"[...]": {}, "x.y": {"number": "z"}}}, "wrong_type", "/by_name/x.y/number"),
]


@pytest.mark.parametrize(("document", "code", "path"), CASES, ids=[str(place) for place in range(len(CASES))])
def test_what_does_not_fit_is_told_with_its_place(document: dict[str, Any], code: str, path: str) -> None:
    with pytest.raises(Undecodable) as caught:
        convert(document, Tree)
    assert (caught.value.code, caught.value.path) == (code, path)


@pytest.mark.parametrize("place", range(9))
def test_one_key_of_many_is_found(place: int) -> None:
    document = {"by_name": {f"k{number}": {"number": number if number != place else 10} for number in range(9)}}
    with pytest.raises(Undecodable) as caught:
        convert(document, Tree)
    assert caught.value.path == f"/by_name/k{place}/number"


@pytest.mark.parametrize("key", ["p", "q", "r", "s", "t"])
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_whichever_key_of_whichever_table_is_wrong_is_found(name: str, place: int, key: str) -> None:
    good = dict.fromkeys("pqrst", 1)
    document = {outer: [good, good, good] for outer in "abc"}
    document[name] = [{**good, key: 10} if row == place else good for row in range(3)]
    with pytest.raises(Undecodable) as caught:
        convert({"nested": document}, Tree)
    assert (caught.value.code, caught.value.path) == ("bad_value", f"/nested/{name}/{place}/{key}")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("key", ["p", "q", "r"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize("table", ["x", "y", "z"])
def test_tables_and_lists_inside_each_other_are_looked_through(name: str, table: str, key: str, place: int) -> None:
    good = dict.fromkeys("pqr", 1)
    rows = [{**good, key: 10} if row == place else good for row in range(3)]
    tables = {each: rows if each == table else [good] * 3 for each in "xyz"}
    document = {each: [tables if each == name and row == place else {} for row in range(3)] for each in "abc"}
    with pytest.raises(Undecodable) as caught:
        convert({"deep": document}, Tree)
    assert caught.value.path == f"/deep/{name}/{place}/{table}/{place}/{key}"


@pytest.mark.parametrize("place", range(5))
def test_a_key_of_a_table_inside_a_list_inside_a_table_is_found(place: int) -> None:
    rows: list[dict[str, int]] = [{"x": 1, "y": 2} for _ in range(5)]
    rows[place] = {"x": 1, "y": 10}
    with pytest.raises(Undecodable) as caught:
        convert({"nested": {"a": [], "b": rows, "c": []}}, Tree)
    assert (caught.value.code, caught.value.path) == ("bad_value", f"/nested/b/{place}/y")


def test_a_document_that_fits_is_given() -> None:
    assert convert({"leaves": [{"number": 3}]}, Tree) == Tree(leaves=[Leaf(number=3)])
