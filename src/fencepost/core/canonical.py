"""Canonical form: one value, one sequence of bytes, one digest.

The bytes are RFC 8785 over the domain of `strictjson`: no white space, keys in the order of their UTF-16
code units, shortest escapes, integers in plain decimal. Whoever has the value can compute the digest in any
language, and whoever has the bytes can tell that nobody could have written the same value differently.

For a struct there is one more choice that has to be fixed: a field that may be left out is left out exactly
when its value *equals* its default (`omit_defaults=True`). msgspec itself compares by identity, so that the
same string, once typed and once decoded, would be left out once and written once. Here equality counts.

Two ways lead to the same bytes. The slow one (`encode`) walks the value, checks every node, and names the
place of the first violation. The fast one (`encode_trusted`) lets msgspec write the struct and then proves
from the type, once, and from the bytes, each time, that the walk would have found nothing; where it cannot
prove that it takes the walk. `slow_path_reason` tells why a type always does. Decoding mirrors this: bytes
that decode strictly and encode again to themselves are canonical, and only others are looked at closely.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import inspect

from fencepost.core.ids import sha256_of
from fencepost.core.strictjson import (
    BYTES_MAX,
    CODES,
    DEPTH_MAX,
    INT_MAX,
    Code,
    Undecodable,
    parse,
    refuse_text,
    sanitize,
)
from fencepost.core.violations import convert

__all__ = [
    "BYTES_MAX",
    "CODES",
    "DEPTH_MAX",
    "INT_MAX",
    "Code",
    "Undecodable",
    "decode",
    "decode_canonical",
    "digest_of",
    "encode",
    "encode_trusted",
    "parse",
    "sanitize",
    "slow_path_reason",
]

T = TypeVar("T")

_SORTED = msgspec.json.Encoder(order="sorted")
_AS_ORDERED = msgspec.json.Encoder()
_TYPES_MAX: Final = 4_096
_UNPROVEN: Final = object()
_ELEMENT_BYTES_MIN: Final = 1  # the element `0`; commas are left out, there is one less of them
_MEMBER_BYTES_MIN: Final = 4  # `"":0`

# A number that may lie outside +-(2^53 - 1): 17 characters, or 16 of which the first is a 9; as a member of an
# object, as an array's first element and as a later one. A pattern that begins with a single byte is found fast.
_BIG_MEMBER = re.compile(rb":(?:9|[-1-8][0-9])[0-9]{15}").search
_BIG_FIRST = re.compile(rb"\[(?:9|[-1-8][0-9])[0-9]{15}").search
_BIG_LATER = re.compile(rb",(?:9|[-1-8][0-9])[0-9]{15}").search
_BACKSLASH: Final = ord("\\")
_BEYOND_BMP = re.compile(rb"[\xf0-\xf4]")


def digest_of(value: object) -> str:
    """`sha256:` and the hex SHA-256 of the canonical bytes. Raises as `encode`."""
    return sha256_of(encode(value))


def encode(value: object) -> bytes:
    """The canonical bytes of a value of the domain: None, bool, int, str, list, tuple, dict, msgspec structs.

    Members of enumerations stand for their values; a field that is `msgspec.UNSET` is left out.
    Raises `Undecodable` with code and path for everything else: a float is `float` or `not_a_number`, any
    other foreign type, a key that is no string included, is `wrong_type`; bounds are those of `strictjson`.
    """
    data = _AS_ORDERED.encode(_Walk().ordered(value, 1))
    if len(data) > BYTES_MAX:
        raise Undecodable("too_large", f"{len(data)} bytes, at most {BYTES_MAX} are written")
    return data


def encode_trusted(struct: msgspec.Struct) -> bytes:
    """`encode` for a struct whose fields hold values of their declared types, about 2 us for 600 bytes.

    Trusted is only what a type checker proves; bounds, characters and order are checked. Raises as `encode`.
    """
    facts = _facts_of(type(struct))
    if facts.slow_path_reason is not None:
        return encode(struct)
    try:
        data = _SORTED.encode(struct)
    except (TypeError, ValueError):
        # The walk meets the same obstacle, with its code and its place.
        return encode(struct)
    if (
        (_BACKSLASH in data and b"\\u0000" in data)
        or _BIG_MEMBER(data)
        or (facts.has_integer_elements and (_BIG_FIRST(data) or _BIG_LATER(data)))
        or (facts.has_free_keys and not data.isascii() and _BEYOND_BMP.search(data))
        or len(data) > BYTES_MAX
    ):
        return encode(struct)
    return data


@overload
def decode(data: bytes, into: type[T], *, bytes_max: int = ..., depth_max: int = ...) -> T: ...
@overload
def decode(data: bytes, into: Any, *, bytes_max: int = ..., depth_max: int = ...) -> Any: ...
def decode(data: bytes, into: Any, *, bytes_max: int = BYTES_MAX, depth_max: int = DEPTH_MAX) -> Any:
    """Read one well-formed document of the domain, canonical or not, into the type `into`.

    Key order and white space inside are free, white space round the document is not. `bytes_max` and
    `depth_max` are inclusive and may only tighten the domain's. Raises `Undecodable`: violations of the
    domain first, then those of the type, each in document order; `TypeError` for a type outside the domain.
    """
    decoder = _decoder_of(into)
    if len(data) <= bytes_max and depth_max == DEPTH_MAX:
        value = _decode_proven(data, decoder)
        if value is not _UNPROVEN:
            return value
    return convert(parse(data, bytes_max=bytes_max, depth_max=depth_max), into)


@overload
def decode_canonical(data: bytes, into: type[T]) -> T: ...
@overload
def decode_canonical(data: bytes, into: Any) -> Any: ...
def decode_canonical(data: bytes, into: Any) -> Any:
    """Read bytes that must be exactly what `encode` writes for the value that they hold.

    Raises as `decode`, and `not_canonical` (path "") where nothing else explains the difference.
    """
    decoder = _decoder_of(into)
    value = _decode_proven(data, decoder) if len(data) <= BYTES_MAX else _UNPROVEN
    if value is not _UNPROVEN:
        return value
    expected = encode(convert(parse(data), into))
    same = next((at for at, (one, other) in enumerate(zip(data, expected, strict=False)) if one != other), None)
    at = min(len(data), len(expected)) if same is None else same
    raise Undecodable("not_canonical", f"the bytes differ from the canonical ones from byte {at} on")


def slow_path_reason(struct_type: type[msgspec.Struct]) -> str | None:
    """Why `encode_trusted` walks every struct of this type; None where it takes the fast path."""
    return _facts_of(struct_type).slow_path_reason


def _decode_proven(data: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        value = decoder.decode(data)
        again = encode_trusted(value) if isinstance(value, msgspec.Struct) else encode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Not an answer yet: the scanner reads the same bytes again and finds code and place. What msgspec
        # lets pass (a float in a free-form field, a doubled key) fails in the encoding or differs from it.
        return _UNPROVEN
    return value if again == data else _UNPROVEN


@functools.lru_cache(maxsize=_TYPES_MAX)
def _decoder_of(into: Any) -> msgspec.json.Decoder[Any]:
    foreign = _facts_of(into).foreign
    if foreign is not None:
        raise TypeError(foreign)
    return msgspec.json.Decoder(into)


# The walk


class _Walk:
    """Rebuilds a value in canonical order, checking every node. Bounded also where parts are shared."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = BYTES_MAX

    def ordered(self, value: object, depth: int) -> object:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, enum.Enum):
            return self.ordered(value.value, depth)
        if isinstance(value, str):
            self._spend(len(value))
            refuse_text(value)
            return str(value)
        if isinstance(value, int):
            if not -INT_MAX <= value <= INT_MAX:
                raise Undecodable("integer_out_of_range", "an integer outside +-(2^53 - 1)")
            return int(value)
        if isinstance(value, list | tuple):
            return self._array(value, depth)
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, msgspec.Struct):
            return self._object(self._fields(value), depth)
        if isinstance(value, float):
            is_number = value - value == 0
            raise Undecodable("float" if is_number else "not_a_number", "write a scaled integer or a string")
        raise Undecodable("wrong_type", f"{type(value).__name__} has no canonical form")

    def _array(self, values: list[object] | tuple[object, ...], depth: int) -> list[object]:
        self._enter(depth, len(values) * _ELEMENT_BYTES_MIN)
        result: list[object] = []
        try:
            for value in values:
                result.append(self.ordered(value, depth + 1))
        except Undecodable as refusal:
            refusal.inside(len(result))
            raise
        return result

    def _object(self, fields: dict[Any, object], depth: int) -> dict[str, object]:
        self._enter(depth, len(fields) * _MEMBER_BYTES_MIN)
        beyond_bmp = False
        for key in fields:
            if not isinstance(key, str):
                raise Undecodable("wrong_type", f"a key that is {type(key).__name__}, not a string")
            self._spend(len(key))
            if not key.isascii() or "\0" in key:
                refuse_text(key, (key,))
                beyond_bmp = beyond_bmp or max(key) > "\uffff"
        # Code points and UTF-16 code units sort alike until a key leaves the basic plane.
        keys = sorted(fields, key=_utf16_units) if beyond_bmp else sorted(fields)
        result: dict[str, object] = {}
        key = ""
        try:
            for key in keys:
                result[key] = self.ordered(fields[key], depth + 1)
        except Undecodable as refusal:
            refusal.inside(key)
            raise
        return result

    def _fields(self, struct: msgspec.Struct) -> dict[str, object]:
        config = struct.__struct_config__
        if config.array_like:
            raise Undecodable("wrong_type", f"{type(struct).__name__} is written as an array")
        result: dict[str, object] = {}
        if config.tag is not None and config.tag_field is not None:
            result[config.tag_field] = config.tag
        for field in _fields_of(type(struct)):
            value = getattr(struct, field.name)
            if value is msgspec.UNSET or (config.omit_defaults and _is_default(value, field)):
                continue
            result[field.encode_name] = value
        return result

    def _enter(self, depth: int, bytes_min: int) -> None:
        if depth > DEPTH_MAX:
            raise Undecodable("too_deep", f"more than {DEPTH_MAX} containers inside each other")
        self._spend(bytes_min)

    def _spend(self, bytes_min: int) -> None:
        self._left -= bytes_min
        if self._left < 0:
            raise Undecodable("too_large", f"more than {BYTES_MAX} bytes")


def _utf16_units(key: str) -> bytes:
    return key.encode("utf-16-be")


def _is_default(value: object, field: msgspec.structs.FieldInfo) -> bool:
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if default is msgspec.NODEFAULT or type(value) is not type(default) or value != default:
        return False
    # Equality in Python is wider than that of documents, (1,) == (True,): the bytes have the last word.
    return value is default or encode(value) == encode(default)


# What a type admits


class _Facts:
    """What one look at a type tells about all values of it."""

    __slots__ = ("depth", "foreign", "has_free_keys", "has_integer_elements", "slow_path_reason")

    def __init__(self) -> None:
        self.foreign: str | None = None
        self.slow_path_reason: str | None = None
        self.has_free_keys = False
        self.has_integer_elements = False
        self.depth = 0

    def visit(self, info: inspect.Type, where: str, open_types: tuple[inspect.Type, ...]) -> None:
        """Collect the facts of `info`; `open_types` are the containers round it."""
        if any(info is each for each in open_types):
            self.slow_path_reason = self.slow_path_reason or f"{where} contains itself"
            return
        if isinstance(info, inspect.Metadata):
            self.visit(info.type, where, open_types)
        elif isinstance(info, inspect.UnionType):
            for member in info.types:
                self.visit(member, where, open_types)
        elif isinstance(info, inspect.AnyType):
            self.slow_path_reason = self.slow_path_reason or f"{where} admits any value"
        elif not isinstance(info, _SCALARS):
            self._visit_container(info, where, (*open_types, info))

    def _visit_container(self, info: inspect.Type, where: str, open_types: tuple[inspect.Type, ...]) -> None:
        self.depth = max(self.depth, len(open_types))
        if isinstance(info, inspect.StructType) and not info.array_like:
            for field in info.fields:
                self._visit_field(info, field, open_types)
        elif isinstance(info, inspect.DictType):
            self.has_free_keys = True
            if not isinstance(info.key_type, inspect.StrType | inspect.AnyType):
                self.foreign = f"{where} has keys that are no plain strings"
            self.visit(info.value_type, where, open_types)
        elif isinstance(info, inspect.ListType | inspect.VarTupleType | inspect.TupleType):
            items = info.item_types if isinstance(info, inspect.TupleType) else (info.item_type,)
            for item in items:
                self.has_integer_elements = self.has_integer_elements or _admits_integer(item)
                self.visit(item, where, open_types)
        else:
            self.foreign = f"{where} is a {type(info).__name__}, which has no canonical form"

    def _visit_field(
        self, info: inspect.StructType, field: inspect.Field, open_types: tuple[inspect.Type, ...]
    ) -> None:
        where = f"{info.cls.__name__}.{field.name}"
        if not field.encode_name.isascii():
            self.slow_path_reason = self.slow_path_reason or f"{where} has a wire name outside ASCII"
        if info.cls.__struct_config__.omit_defaults and not _is_same_when_equal(field):
            self.slow_path_reason = self.slow_path_reason or f"{where} has a default that msgspec tells by identity"
        self.visit(field.type, where, open_types)


_SCALARS: Final = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.StrType,
    inspect.LiteralType,
    inspect.EnumType,
)


def _admits_integer(info: inspect.Type) -> bool:
    if isinstance(info, inspect.Metadata):
        return _admits_integer(info.type)
    if isinstance(info, inspect.UnionType):
        return any(_admits_integer(member) for member in info.types)
    if isinstance(info, inspect.LiteralType):
        return any(isinstance(value, int) for value in info.values)
    if isinstance(info, inspect.EnumType):
        return any(isinstance(member.value, int) for member in info.cls)
    return isinstance(info, inspect.IntType | inspect.AnyType)


def _is_same_when_equal(field: inspect.Field) -> bool:
    """Whether msgspec, which leaves out the identical default, leaves out exactly the equal one."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory in (list, dict)
    default = field.default
    if default is None or isinstance(default, bool | enum.Enum) or default is msgspec.UNSET:
        return True
    # CPython has one empty string, one empty tuple and one of each integer from -5 to 256.
    return default is msgspec.NODEFAULT or default in ("", ()) or (type(default) is int and -5 <= default <= 256)


@functools.lru_cache(maxsize=_TYPES_MAX)
def _facts_of(into: Any) -> _Facts:
    facts = _Facts()
    facts.visit(inspect.type_info(into), getattr(into, "__name__", "the type"), ())
    if facts.depth > DEPTH_MAX:
        facts.slow_path_reason = "the type is deeper than the domain"
    facts.slow_path_reason = facts.foreign or facts.slow_path_reason
    return facts


@functools.lru_cache(maxsize=_TYPES_MAX)
def _fields_of(struct_type: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(struct_type)
