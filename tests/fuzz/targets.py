"""What is fuzzed, and what must hold for any bytes at all.

A target takes bytes and either answers with a word that says what became of them, or raises `Broken` (or whatever
the code under test let escape). The properties are the same everywhere: nothing but the typed refusal is raised; a
refusal has a registered code and a place, is bounded, and can itself be written down; what is accepted is written
again to the same canonical bytes and read again to an equal value; and whatever the readers pass on is decided, or
folded, without an exception.

Nothing here knows a fuzzing library: `run` hands the same functions to one, and the short tests call them directly.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from fencepost.core.canonical import (
    CODES,
    Undecodable,
    decode,
    decode_canonical,
    encode,
    encode_trusted,
    parse,
)
from fencepost.core.chain import BrokenChain, Link, Where, fact_of, follow, open_record, read_record, seal
from fencepost.core.commands import Request, SubmitPlan
from fencepost.core.evolve import evolve
from fencepost.core.ids import sha256_of
from fencepost.core.machines import CorruptHistory
from fencepost.core.planfile import CheckedPlan, PlanDocument, PlanProblem, check_text, content_of
from fencepost.core.planfile.bounds import DEPTH_MAX as PLAN_DEPTH_MAX
from fencepost.core.planfile.bounds import PROBLEMS_MAX
from fencepost.core.planfile.content import PlanContent
from fencepost.core.planfile.read import RawDocument, Syntax, read_document
from fencepost.core.records import KIND_OF, KINDS, Record, Stamp
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.state import encode_value
from fencepost.core.strictjson import MESSAGE_BYTES_MAX, PATH_BYTES_MAX
from fencepost.core.violations import convert
from fencepost.ports.packs import ManifestStored
from fencepost.services.submission import Pins, submit_command
from tests.fuzz import mutation
from tests.fuzz.commands import check_command, command_seeds, command_words
from tests.fuzz.promises import fields_of, require
from tests.fuzz.requests import check_request, request_seeds, request_words
from tests.support.states import HISTORIES, world_in
from tests.support.world import DIGEST, Fold, World

CORPUS: Final = Path(__file__).parent / "corpus"
TREE: Final = ("README.md", "a.py", "schema.json", "src/a.py", "src/b/c.py", "tests/test_a.py")
WHERE: Final = Where("scope", "main", 0)
PROBLEM_BYTES_MAX: Final = 4_096
LIBRARY_BYTES_MAX: Final = 2_048
PASTS_MAX: Final = 2
SEQ_MAX: Final = 200

PLAN_CODES: Final = frozenset(
    {
        *("syntax", "unknown_key", "missing_key", "wrong_type", "bad_name", "bad_duration", "bad_money"),
        *("out_of_range", "duplicate_name", "dependency_missing", "dependency_cycle", "impossible_budget"),
        *("incompatible_output", "no_match", "path_outside", "unsupported_feature"),
    }
)
_SEQ = re.compile(rb'"seq":([0-9]{1,15})[,}]')
_STAMP: Final = Stamp(key="k", digest=DIGEST, principal="p", assurance="service", decision="", grant=DIGEST)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One reader under fuzzing. `check` answers with a word: "read", or the code under which bytes were refused."""

    name: str
    check: Callable[[bytes], str]
    mutate: mutation.Mutate
    words: Callable[[], tuple[str, ...]]
    seeds: Callable[[], Mapping[str, bytes]] | None = None  # inputs that follow from the code, by name

    def write_seeds(self) -> list[str]:
        """Write what follows from the code into the corpus, and return the names."""
        folder = CORPUS / self.name
        found = {} if self.seeds is None else self.seeds()
        for name, data in found.items():
            (folder / f"{name}.json").write_bytes(data)
        return sorted(found)

    def corpus(self) -> list[tuple[str, bytes]]:
        """Names and contents of the kept inputs, in the order of the names."""
        return [(path.name, path.read_bytes()) for path in sorted((CORPUS / self.name).iterdir())]


# The decoder

_TYPES: Final[tuple[tuple[bytes, Any], ...]] = (
    (b'"command":', Request),
    (b'"work":', PlanContent),
    (b'"outcome":', ResultFacts),
    (b"", dict[str, int]),
)
"""What bytes with such a field in them are read into, beside a tree of anything."""
_OF_TYPE: Final = frozenset({"unknown_field", "missing_field", "wrong_type", "unknown_tag", "bad_value"})


def check_json(data: bytes) -> str:
    """Any bytes against the decoder, into a tree of anything and into one type."""
    word = _check_decoding(data, Any)
    if word == "read":
        require(parse(data) == json.loads(data), "another reader of JSON reads something else")
    into = next(each for mark, each in _TYPES if mark in data)
    return _check_decoding(data, into)


def _check_decoding(data: bytes, into: Any) -> str:
    answers = [_answer(lambda: decode(data, into)), _answer(lambda: convert(parse(data), into))]
    require(_same(*answers), f"the fast and the slow reading differ: {answers}")
    value = answers[0]
    strict = _answer(lambda: decode_canonical(data, into))
    if isinstance(value, Undecodable):
        check_refusal(value, data)
        require(value.code != "not_canonical", "a free reading was refused for its spelling")
        require(_same(strict, value), f"two words about one refusal: {strict} and {value}")
        return value.code
    again = encode(value)
    require(decode_canonical(again, into) == value, "what was read is not read again")
    require(encode(decode(again, into)) == again, "canonical bytes do not stay what they are")
    if isinstance(value, msgspec.Struct):
        require(encode_trusted(value) == again, "the two ways of writing differ")
    if isinstance(strict, Undecodable):
        check_refusal(strict, data)
        require(strict.code == "not_canonical" and again != data, f"canonical bytes were refused: {strict}")
    else:
        require(again == data and strict == value, "bytes that are not canonical were taken")
    return "read"


def _answer(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Undecodable as refusal:
        return refusal


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Undecodable) and isinstance(other, Undecodable):
        return (one.code, one.path, one.message) == (other.code, other.path, other.message)
    return bool(one == other) and type(one) is type(other)


def check_refusal(refusal: Undecodable, data: bytes) -> None:
    """A refusal has a code and a place of the document, is bounded, and can be written down."""
    require(refusal.code in CODES, f"{refusal.code} is no code")
    require(refusal.message, "a refusal without a word")
    require(len(refusal.message.encode()) <= MESSAGE_BYTES_MAX, "a message past its bound")
    require(len(refusal.path.encode()) <= PATH_BYTES_MAX, "a path past its bound")
    require(encode([refusal.path, refusal.message, str(refusal)]), "a refusal that cannot be written down")
    require(refusal.path == "" or refusal.path.startswith("/"), f"{refusal.path!r} is no pointer")
    if refusal.code in _OF_TYPE and not refusal.path.endswith("[truncated]"):
        _require_place(refusal.path, parse(data), is_missing=refusal.code == "missing_field")


def _require_place(path: str, tree: object, *, is_missing: bool | None) -> None:
    """The pointer leads to a place of the document; a missing field is named as if it were there.

    `is_missing` of None: the last step may be there or not.
    """
    steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
    node: Any = tree
    for place, step in enumerate(steps):
        if is_missing is not False and place == len(steps) - 1 and isinstance(node, dict):
            require(is_missing is None or step not in node, f"{path} is not missing")
            return
        if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        else:
            require(isinstance(node, dict) and step in node, f"{path} leads nowhere")
            node = node[step]


# Records


def check_record(data: bytes) -> str:
    """Any bytes as a stored record: opened, read, followed and folded."""
    found = _SEQ.search(data)
    seq = int(found[1]) if found is not None else 1
    opened = _stored(lambda: open_record(seq, data), seq)
    quick = _stored(lambda: read_record(seq, data), seq)
    if isinstance(opened, BrokenChain):
        return "not a record"
    require(quick == opened and type(quick) is type(opened), "the quick and the strict reading differ")
    require(encode(opened) == data and encode_trusted(opened) == data, "a record is written otherwise than it was read")
    require(opened.seq == seq, "another record")
    where = Where(opened.scope, opened.stream, opened.epoch)
    after = follow(Link(seq - 1, opened.prev), where, opened, data)
    require(after == Link(seq, sha256_of(data)), "the link behind a record is not its digest")
    for link, stream in (
        (Link(seq, opened.prev), where),
        (Link(seq - 1, opened.prev + "0"), where),
        (Link(seq - 1, opened.prev), where._replace(epoch=where.epoch + 1)),
    ):
        require(
            isinstance(_stored(lambda: follow(link, stream, opened, data), None), BrokenChain),  # noqa: B023  # at once
            "a record follows on what is not before it",
        )
    return _folded(opened)


def _stored(read: Callable[[], Any], seq: int | None) -> Any:
    try:
        return read()
    except BrokenChain as error:
        require(seq is None or error.seq == seq, f"record {seq} is damaged and {error.seq} is named")
        require(0 < len(error.problem.encode()) <= PROBLEM_BYTES_MAX, "a problem that says nothing, or too much")
        require(encode(str(error)), "a problem that cannot be written down")
        return error


@cache
def _history() -> World:
    return world_in("active/renewed")


@cache
def _pasts(seq: int, kind: type) -> tuple[Fold, ...]:
    """Histories whose record at `seq` is of that kind, each as it stands before that record."""
    found: list[Fold] = []
    for name in sorted(HISTORIES):
        facts = world_in(name).facts
        if 0 < seq <= len(facts) and type(facts[seq - 1].body) is kind and len(found) < PASTS_MAX:
            fold = Fold()
            for fact in facts[: seq - 1]:
                evolve(fold, fact)
            found.append(fold)
    return tuple(found or [_history().live])


def _folded(record: Record) -> str:
    """Fold behind histories that it need not follow on: it does, or is told as corrupt, and nothing else."""
    fact = fact_of(record)
    answers = []
    for past in _pasts(fact.seq if fact.seq <= SEQ_MAX else 0, type(fact.body)):
        fold = Fold()
        fold.values = dict(past.values)
        fold.edges = {member: list(edges) for member, edges in past.edges.items()}
        try:
            evolve(fold, fact)
        except CorruptHistory:
            require(fold.values == past.values and fold.edges == past.edges, "a refused record has left something")
            answers.append("no history")
            continue
        for value in fold.values.values():
            require(encode_value(value), "a state that cannot be kept")
        answers.append("read")
    return max(answers)


# Plans


def check_plan(data: bytes, syntax: Syntax) -> str:
    """Any bytes as a plan file: every problem well-formed, or a document that the deciders place."""
    checked = check_text(data, syntax=syntax, stem="plan", tree=TREE)
    require((checked.document is None) == bool(checked.problems), "neither a document nor problems, or both")
    require((checked.document is None) == (checked.content_digest is None), "a digest of nothing, or none")
    if checked.document is not None and checked.content_digest is not None:
        require(check_text(data, syntax=syntax, stem="plan", tree=TREE) == checked, "checked twice, found otherwise")
        _check_document(checked, checked.document, checked.content_digest)
        return "read"
    raw = read_document(data, syntax=syntax)
    if isinstance(raw, PlanProblem) and syntax == "toml" and len(data) <= LIBRARY_BYTES_MAX:
        _check_unreadable(data)
    require(len(checked.problems) <= PROBLEMS_MAX and checked.problems_left_off >= 0, "problems past their bound")
    for problem in checked.problems:
        _check_problem(problem, raw)
    return checked.problems[0].code


def _check_unreadable(data: bytes) -> None:
    """What is refused before the library has seen it, the library refuses too, or it is deeper than any plan."""
    try:
        value: object = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return
    depth, level = 0, [value]
    while level:
        depth += isinstance(level[0], dict | list) or any(isinstance(each, dict | list) for each in level)
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [item for each in inner for item in each]
    require(depth > PLAN_DEPTH_MAX, "a plan was refused as unreadable that can be read")


def _check_problem(problem: PlanProblem, raw: RawDocument | PlanProblem) -> None:
    require(problem.code in PLAN_CODES, f"{problem.code} is no code")
    require(problem.message and problem.next, f"{problem} says nothing")
    texts = (problem.at, problem.message, problem.next, problem.name or "")
    require(encode(list(texts)), "a problem that cannot be written down")
    require(all(len(text) <= PROBLEM_BYTES_MAX for text in texts[1:]), f"{problem.code} says too much")
    if problem.code == "syntax":
        require(isinstance(raw, PlanProblem) and problem.at == "", "a syntax problem comes alone")
        require(problem.line is None or problem.line >= 1, f"there is no line {problem.line}")
    if isinstance(raw, PlanProblem):
        require(problem == raw, "what could not be read was checked")
        return
    lines = raw.toml.count("\n") + 1 if raw.toml else 0
    require(problem.line is None or 1 <= problem.line <= lines, f"there is no line {problem.line}")
    if "\\" not in problem.at and problem.at.count("/") <= PLAN_DEPTH_MAX:
        _require_place(problem.at, raw.value, is_missing=None)


def _check_document(checked: CheckedPlan, document: PlanDocument, digest: str) -> None:
    content = content_of(document)
    data = encode_trusted(content)
    require(sha256_of(data) == digest and encode(content) == data, "the digest is not that of the content")
    require(decode_canonical(data, PlanContent) == content, "the content is not read again")
    places = {name: place for place, name in enumerate(checked.order)}
    require(sorted(places) == sorted(item.name for item in document.work), "an order is left out of the order")
    for item in document.work:
        for member in (member for group in item.needs for member in group.members):
            require(places[member.name] < places[item.name], f"{item.name} stands before {member.name}")
    _check_submission(_command(document, digest))


def _command(document: PlanDocument, digest: str) -> SubmitPlan:
    manifest = ManifestStored(digest=DIGEST, content_digest=DIGEST, files=1, bytes=1)
    schemas = {path: DIGEST for item in document.work for _, path in item.accept.schema}
    pins = Pins(manifests=(manifest,) * len(document.work), schemas=schemas)
    return submit_command(document, digest, pins, mode="continue", provenance={}, predecessor="")


@cache
def _empty_world() -> World:
    return World()


def _check_submission(command: SubmitPlan) -> None:
    data = encode_trusted(command)
    require(decode_canonical(data, SubmitPlan) == command, "the command is not read again")
    world = _empty_world().fork()
    decided = world.decide(command)
    require(decided.refusal is None, f"a checked plan is refused: {decided.refusal}")
    orders = [fact for fact in decided.facts if fact.subject.startswith("order_")]
    require(len(orders) >= len(command.orders), "an order was left out")
    world.keep(decided)
    world.check()
    sealed = seal(WHERE, Link(len(world.facts) - len(decided.facts), ""), decided.facts, _STAMP)
    for record, fact in zip(sealed, decided.facts, strict=True):
        require(fact_of(open_record(record.seq, record.data)) == fact, "a record is not opened as it was sealed")


# Seeds and words


def record_seeds() -> dict[str, bytes]:
    """The first record of every kind that the histories of tests hold, sealed."""
    seeds: dict[str, bytes] = {}
    for name in sorted(HISTORIES):
        facts = world_in(name).facts
        for record, fact in zip(seal(WHERE, Link(0, ""), facts, _STAMP), facts, strict=True):
            seeds.setdefault(KIND_OF[type(fact.body)].name, record.data)
    return seeds


@cache
def record_words() -> tuple[str, ...]:
    """Names of kinds, fields and subjects that a record may hold."""
    kinds = {kind.name for kind in KINDS.values()}
    fields = fields_of([kind.record for kind in KINDS.values()]) | fields_of([kind.body for kind in KINDS.values()])
    subjects = {subject for subject in _history().live.values if not subject.startswith("decision")}
    states = {value.state for value in _history().live.values.values() if hasattr(value, "state")}
    return tuple(sorted(kinds | fields | subjects | states))


@cache
def json_words() -> tuple[str, ...]:
    """Fields and tags of the types that the decoder reads here."""
    return tuple(sorted(fields_of((Request, ResultFacts, PlanContent, SubmitPlan)) | {"submit_plan", "reserve"}))


_PLAN_TEXT: Final = """
name objective deadline recovery budget work attempts time tokens input output calls money USD EUR run may_fail
environment needs all any done outcomes inputs from files outputs attempt_time per_attempt retry on backoff
backoff_max accept exit_code schema verify priority classification may effects params replace low normal high public
internal private none declared applied failed cancelled executor validation transient_dependency workspace.write PATH
1s 250ms 1h30m 2.50 0.000001 src/** ** * src/*.py report.xml README.md lint tests publish
"""


def plan_words() -> tuple[str, ...]:
    """Keys and values of plan files."""
    return tuple(_PLAN_TEXT.split())


TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        Target(name="json", check=check_json, mutate=mutation.of_json, words=json_words),
        Target(name="record", check=check_record, mutate=mutation.of_json, words=record_words, seeds=record_seeds),
        Target(name="command", check=check_command, mutate=mutation.of_json, words=command_words, seeds=command_seeds),
        Target(name="request", check=check_request, mutate=mutation.of_json, words=request_words, seeds=request_seeds),
        Target(
            name="plan_toml",
            check=lambda data: check_plan(data, "toml"),
            mutate=mutation.of_toml,
            words=plan_words,
        ),
        Target(
            name="plan_json",
            check=lambda data: check_plan(data, "json"),
            mutate=mutation.of_json,
            words=plan_words,
        ),
    )
}
