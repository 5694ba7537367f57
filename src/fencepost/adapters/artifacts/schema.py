"""Does a JSON output satisfy a JSON Schema? Both are bytes that somebody else wrote.

The schema library is loaded at the first use. Nothing is fetched: a reference that the schema does not
contain itself is a problem. A document is strict JSON (no NaN, no duplicate key, one value) within bounds.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from fencepost.adapters.artifacts import disk

if TYPE_CHECKING:
    from referencing import Resource

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024
PROBLEMS_MAX: Final = 20
MESSAGE_CHARACTERS_MAX: Final = 300


class SchemaProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, at which JSON pointer of the document ("" is the whole).

    Codes: mismatch, bad_document, bad_schema, remote_reference, too_large. The message is printable.
    """

    code: str
    pointer: str
    message: str


class _Strict(ValueError):
    """Input that the json module takes and JSON does not."""


def check_schema(document: bytes, schema: bytes) -> list[SchemaProblem]:
    """The first `PROBLEMS_MAX` problems of `document` under `schema`, none if it satisfies it. Never raises
    for any content of either, but MemoryError; and takes as long as it takes: see `schema_checks`."""
    if len(schema) > SCHEMA_BYTES_MAX:
        return [_problem("too_large", f"the schema has {len(schema)} bytes, at most {SCHEMA_BYTES_MAX} are read")]
    if len(document) > DOCUMENT_BYTES_MAX:
        message = f"the document has {len(document)} bytes, at most {DOCUMENT_BYTES_MAX} are read"
        return [_problem("too_large", message)]
    try:
        rules = _parse(schema)
    except (ValueError, RecursionError) as error:
        return [_problem("bad_schema", f"the schema is not JSON: {error}")]
    try:
        value = _parse(document)
    except (ValueError, RecursionError) as error:
        return [_problem("bad_document", f"the document is not JSON: {error}")]
    if not isinstance(rules, dict | bool):
        return [_problem("bad_schema", "a schema is an object, true or false")]
    return _validate(value, rules)


def _validate(value: Any, rules: Any) -> list[SchemaProblem]:
    import jsonschema
    import referencing
    from referencing.exceptions import Unresolvable

    try:
        kind = jsonschema.validators.validator_for(rules, default=jsonschema.Draft202012Validator)
        kind.check_schema(rules)
        registry: referencing.Registry[Any] = referencing.Registry(retrieve=_refuse)  # type: ignore[call-arg]  # an attrs alias, unseen by mypy
        found = kind(rules, registry=registry).iter_errors(value)
        return [
            _problem("mismatch", error.message, pointer=_pointer(error.absolute_path))
            for error in itertools.islice(found, PROBLEMS_MAX)
        ]
    except jsonschema.SchemaError as error:
        return [_problem("bad_schema", error.message)]
    except Unresolvable as error:
        return [_problem("remote_reference", f"the schema refers to {error.ref}, which it does not contain")]
    except RecursionError:
        return [_problem("bad_document", "the document or the schema is nested too deeply")]
    except MemoryError:
        raise  # says something of the process, which has been given so much and no more
    except Exception as error:  # the library raises whatever a schema's regular expression or type makes it raise
        return [_problem("bad_schema", f"the schema cannot be evaluated: {type(error).__name__}: {error}")]


def _parse(data: bytes) -> Any:
    return json.loads(
        data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_object_without_duplicates
    )


def _refuse(uri: str) -> Resource[Any]:
    from referencing.exceptions import NoSuchResource

    raise NoSuchResource(uri)


def _refuse_constant(name: str) -> NoReturn:
    raise _Strict(f"{name} is no JSON value")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise _Strict("an object has the same key twice")
    return built


def _pointer(path: Any) -> str:
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in itertools.islice(path, 100)]
    return disk.printable("".join("/" + step for step in steps))


def _problem(code: str, message: str, *, pointer: str = "") -> SchemaProblem:
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in message[:MESSAGE_CHARACTERS_MAX]
    )
    return SchemaProblem(code=code, pointer=pointer, message=shown)
