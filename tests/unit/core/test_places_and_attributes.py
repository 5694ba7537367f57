"""What is told by name: the field of a type, a key that looks like a place, an attribute that is too long."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from fencepost.core import vocabulary
from fencepost.core.canonical import slow_path_reason
from fencepost.core.strictjson import Undecodable
from fencepost.core.violations import convert


class Titled(msgspec.Struct):
    free: Annotated[Any, msgspec.Meta(title="anything")]


class Either(msgspec.Struct):
    many: list[Any] | int


class Known(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0


@pytest.mark.parametrize(("kind", "field"), [(Titled, "Titled.free"), (Either, "Either.many")])
def test_case_18_a_field_that_takes_the_long_way_is_named(kind: type[msgspec.Struct], field: str) -> None:
    assert slow_path_reason(kind) == f"{field} admits any value"


@pytest.mark.parametrize(
    "beside",
    [{}, {"a": 1}],
    ids=["alone", "beside the key that it seems to name"],
)
@pytest.mark.parametrize("value", [1, {}, {"a": 1}], ids=["a number", "a table", "a table with that key"])
def test_a_key_that_looks_like_a_place_is_blamed_itself(value: object, beside: dict[str, int]) -> None:
    key = "a` - at `$.elsewhere"
    with pytest.raises(Undecodable) as caught:
        convert({key: value, **beside}, Known)
    assert (caught.value.code, caught.value.path) == ("unknown_field", f"/{key}")


@pytest.mark.parametrize(("more", "reason"), [(0, None), (1, "attribute_too_long")])
def test_w23_an_attribute_is_as_long_as_the_bound_and_no_longer(more: int, reason: str | None) -> None:
    attributes = {"work_kind": "x" * (vocabulary.ATTRIBUTE_LENGTH_MAX + more)}
    objection = vocabulary.objection(
        principal_kind="human", verb="submit_work", resource_kind="plan", attributes=attributes
    )
    assert objection == reason
