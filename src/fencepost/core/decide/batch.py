"""What a decider works with: the state under the lock, what it was handed, and the batch that it builds.

`Batch.emit` folds each record as it is made, so that what follows is decided on the state that the record leads to:
what `decide` allows, `evolve` has accepted already. A refusal before the first record leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from fencepost.core.evolve import Edge, Edit, Fact, evolve
from fencepost.core.ids import IdSource
from fencepost.core.index import Row
from fencepost.core.limits import Limits
from fencepost.core.machines import CorruptHistory
from fencepost.core.reasons import Refusal
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.records.envelope import Body
from fencepost.core.state import CLOCK, ClockState, Value


class View(Protocol):
    """The stream's state as earlier commands of the group left it. All answers are consistent."""

    def get(self, subject: str) -> Any | None:
        """The subject's value, None if it does not exist."""
        ...

    def due(
        self, stage: str, now_us: int, limit: int, group: str | None, after: tuple[int, int, str] | None
    ) -> Sequence[Row]:
        """Rows of a stage that are due, in order (see `ports.journal.Reads.find_due`)."""
        ...

    def body(self, seq: int) -> Body:
        """Body of the record at `seq`, which the state names and which therefore exists."""
        ...

    def edges(self, member: str, after_position: int, limit: int) -> Sequence[Edge]:
        """Dependents of `member`, ascending by position."""
        ...


class Given(msgspec.Struct, frozen=True, gc=False):
    """Everything that a decision needs and cannot know by itself. The same `given` gives the same decision."""

    ids: IdSource
    limits: Limits
    questions: Mapping[str, str]  # "action/resource kind" -> digest under which it is decided
    rulings: Mapping[str, AuthorityDecision]  # the same key -> decision, for those that may not be recorded yet
    prover: str  # principal that proves deadlines
    utc_us: int = 0  # of the reading that the command was taken with; it can only shorten what a grant permits


class Decided(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a command: records, and what its caller is told. A durable refusal has both."""

    facts: Sequence[Fact]
    values: Mapping[str, Value]
    edges: Sequence[Edge]
    result: Mapping[str, Any]
    decision: str
    refusal: Refusal | None = None


V = TypeVar("V", bound=Value)
T = TypeVar("T", bound=Body)


class Seen(dict[str, Any]):
    """Subjects that were looked up, each asked of what lies below only once; None for those that do not exist."""

    __slots__ = ("_look_up",)

    def __init__(self, look_up: Callable[[str], Any | None]) -> None:
        super().__init__()
        self._look_up = look_up

    def __missing__(self, subject: str) -> Any | None:
        value = self[subject] = self._look_up(subject)
        return value


class Batch:
    """One command's records in the making, folded as they come."""

    def __init__(self, view: View, given: Given, next_seq: int) -> None:
        self._view = view
        self._seen = Seen(view.get)
        # The state as this batch has left it. A command looks at its subjects some thirty times.
        self.get: Callable[[str], Any | None] = self._seen.__getitem__
        self.given = given
        self.next_seq = next_seq
        self.decision = ""  # digest of the decision that permits the command
        self.facts: list[Fact] = []
        self.values: dict[str, Value] = {}
        self.edges: list[Edge] = []
        self.fanout_left = given.limits.fanout_per_batch  # dependents that this batch may still tell

    def name(self, prefix: str) -> str:
        """A new identifier. Nobody has it yet, so that the store need not be asked; a replay looks all the same."""
        name = self.given.ids.next(prefix)
        self._seen[name] = None
        return name

    def put(self, subject: str, value: Value) -> None:
        self.values[subject] = self._seen[subject] = value

    def add_edge(self, edge: Edge) -> None:
        self.edges.append(edge)

    def find(self, subject: str, kind: type[V]) -> V | None:
        """The subject if it exists and is of this kind; a caller's wrong id is not an error here."""
        value = self._seen[subject]
        return value if isinstance(value, kind) else None

    def due(
        self,
        stage: str,
        now_us: int,
        limit: int,
        group: str | None = None,
        after: tuple[int, int, str] | None = None,
    ) -> Sequence[Row]:
        return self._view.due(stage, now_us, limit, group, after)

    def body(self, seq: int, kind: type[T]) -> T:
        """The record's body. A state that names a record of another kind is corrupt history."""
        body = self._view.body(seq)
        if not isinstance(body, kind):
            raise CorruptHistory(f"record {seq} is no {kind.__name__}")
        return body

    def dependents(self, member: str, after_position: int, limit: int) -> Sequence[Edge]:
        """Edges of `member` behind a position, those that this batch has added included."""
        known = self._view.edges(member, after_position, limit)
        added = [edge for edge in self.edges if edge.member == member and edge.position > after_position]
        return [*known, *added][:limit] if added else known

    def fact(self, subject: str, body: Body) -> Fact:
        """The next record of this batch, if it is about `subject` and says `body`."""
        known = self._seen[subject]
        version = 1 if known is None else known.version + 1
        return Fact(self.next_seq + len(self.facts), subject, version, body)

    def emit(self, subject: str, body: Body) -> Fact:
        """Add one record about `subject` and fold it."""
        fact = self.fact(subject, body)
        evolve(self, fact)
        self.facts.append(fact)
        return fact

    def keep(self, edit: Edit, body: Body) -> None:
        """Add the record that `edit` has folded, with `body` as its last word, instead of folding it again."""
        edit.fact = edit.fact._replace(body=body)
        edit.close()
        self.facts.append(edit.fact)

    @property
    def clock(self) -> ClockState:
        value = self._seen[CLOCK]
        if not isinstance(value, ClockState):
            raise LookupError("the scope has no clock yet")
        return value

    @property
    def now_us(self) -> int:
        return self.clock.logical_us

    def decided(self, result: Mapping[str, Any], refusal: Refusal | None = None) -> Decided:
        return Decided(self.facts, self.values, self.edges, result, self.decision, refusal)
