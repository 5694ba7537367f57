"""The one read path: typed questions to one consistent view, each true at a source sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import msgspec

from fencepost.core import index
from fencepost.core.reasons import Refusal
from fencepost.core.records import Body, Record
from fencepost.core.records.attempt import AttemptResult, ResultFacts
from fencepost.core.records.clock import LogicalClockObservation
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import (
    AUTHORITY,
    CLOCK,
    SCOPE,
    AttemptState,
    AuthorityState,
    ClockState,
    HoldState,
    NameState,
    OrderState,
    PlanState,
    ScopeState,
    Value,
    WorkerState,
    name_subject,
)
from fencepost.kernel.rows import VERIFY, record_of, value_of
from fencepost.ports.errors import IntegrityError
from fencepost.ports.journal import Cursor, Head, IndexRow, Journal, Reads, Stream

PAGE = 500
FAR_US = 2**62

V = TypeVar("V", bound=Value)
B = TypeVar("B", bound=Body)


class ReadyOrder(msgspec.Struct, frozen=True):
    order: str
    plan: str | None
    key_us: int
    rank: int


class ReadinessPlan(msgspec.Struct, frozen=True):
    """An ordered view of what may run at the time of one observation, true at `sequence`; it reserves nothing (W15)."""

    as_of_event: int
    logical_us: int
    sequence: int
    digest: str
    orders: tuple[ReadyOrder, ...]


class Look:
    """One consistent view of a stream. Ends with the block that it was opened in."""

    def __init__(self, reads: Reads, stream: Stream) -> None:
        self._reads = reads
        self._stream = stream
        self.head: Head = reads.head(stream)

    def get(self, subject: str) -> Any | None:
        row = self._reads.states(self._stream, (subject,)).get(subject)
        return None if row is None else value_of(subject, row.data)

    def many(self, subjects: Sequence[str]) -> dict[str, Any]:
        rows = self._reads.states(self._stream, subjects)
        return {subject: value_of(subject, row.data) for subject, row in rows.items()}

    def find(self, subject: str, kind: type[V]) -> V | None:
        value = self.get(subject)
        return value if isinstance(value, kind) else None

    def scope(self) -> ScopeState | None:
        return self.find(SCOPE, ScopeState)

    def authority(self) -> AuthorityState | None:
        return self.find(AUTHORITY, AuthorityState)

    def clock(self) -> ClockState | None:
        return self.find(CLOCK, ClockState)

    def name(self, name: str) -> NameState | None:
        return self.find(name_subject(name), NameState)

    def order(self, order: str) -> OrderState | None:
        return self.find(order, OrderState)

    def due(
        self, stage: str, now_us: int = FAR_US, limit: int = PAGE, group: str | None = None, after: Cursor | None = None
    ) -> list[IndexRow]:
        return self._reads.find_due(self._stream, stage, now_us, after, limit, group)

    def next_due(self, stage: str) -> int | None:
        return self._reads.next_due(self._stream, stage)

    def pages(self, stage: str, group: str | None = None) -> Iterator[list[IndexRow]]:
        """Every row of a stage, page by page in its order."""
        after: Cursor | None = None
        while page := self.due(stage, limit=PAGE, group=group, after=after):
            yield page
            last = page[-1]
            after = Cursor(last.due_us, last.rank, last.subject)

    def _values(self, stage: str, group: str | None, kind: type[V]) -> list[V]:
        found: list[V] = []
        for page in self.pages(stage, group):
            values = self.many([row.subject for row in page])
            found.extend(value for row in page if isinstance(value := values.get(row.subject), kind))
        return found

    def orders(self, plan: str, *, replaced: bool = False) -> list[OrderState]:
        """A plan's orders in definition order; a replacement stands in the place of the order that it replaces."""
        every = self._values(index.TASK, plan, OrderState)
        if replaced:
            return every
        by_id = {order.order: order for order in every}
        return [_last(order, by_id) for order in every if order.replaces is None]

    def plans(self) -> list[PlanState]:
        return self._values(index.PLAN, None, PlanState)

    def attempts(self, order: str) -> list[AttemptState]:
        return self._values(index.ATTEMPT, order, AttemptState)

    def workers(self) -> list[WorkerState]:
        return self._values(index.WORKER, None, WorkerState)

    def newest_plans(self, limit: int) -> list[PlanState]:
        """Plans in the order of submission, the last first."""
        plans = sorted(self.plans(), key=lambda plan: (plan.submitted_us, plan.record_seq), reverse=True)
        return plans[:limit]

    def attempt(self, attempt: str) -> AttemptState | None:
        return self.find(attempt, AttemptState)

    def hold(self, hold: str) -> HoldState | None:
        return self.find(hold, HoldState)

    def record(self, seq: int) -> Record:
        found = self._reads.records(self._stream, seq - 1, 1)
        if not found or found[0].seq != seq:
            raise IntegrityError(f"record {seq} is missing", next_step=VERIFY)
        return record_of(seq, found[0].data)

    def records(self, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        return [(row.seq, row.data) for row in self._reads.records(self._stream, after_seq, limit)]

    def body(self, seq: int, kind: type[B]) -> B:
        body = self.record(seq).body
        if not isinstance(body, kind):
            raise IntegrityError(f"record {seq} is no {kind.__name__}", next_step=VERIFY)
        return body

    def spec(self, order: OrderState) -> WorkOrderSpec:
        return self.body(order.spec_seq, WorkOrderSpec)

    def facts(self, seq: int) -> ResultFacts | None:
        """Facts of the result recorded at `seq`, None for 0."""
        return self.body(seq, AttemptResult).facts if seq else None

    def edges(self, member: str) -> Iterator[tuple[str, int, str]]:
        """(dependent, group, outcomes) of everyone that waits for `member`."""
        after = -1
        while page := self._reads.edges(self._stream, member, after, PAGE):
            for edge in page:
                yield edge.dependent, edge.group, edge.outcomes
            after = page[-1].position

    def ready(
        self, as_of_event: int, source_sequence: int, limit: int, *, plan: str | None = None
    ) -> ReadinessPlan | Refusal:
        """What may run, in the queue's order, at most `limit` orders: a pure view that reserves nothing (W15).

        `as_of_event` is the record of an accepted clock observation: an order is in the view if it is ready by that
        time. `source_sequence` is the head that the view must be true at; `head_moved` where the stream is elsewhere.
        """
        if self.head.seq != source_sequence:
            return Refusal(code="head_moved", field="/source_sequence")
        now_us = self._accepted_us(as_of_event)
        if now_us is None:
            subject = f"an accepted clock observation at record {as_of_event}"
            return Refusal(code="not_found", field="/as_of_event", detail={"subject": subject})
        rows = islice(self._ready_rows(now_us, plan), max(limit, 0))
        orders = tuple(ReadyOrder(row.subject, row.group or None, row.due_us, row.rank) for row in rows)
        return ReadinessPlan(as_of_event, now_us, self.head.seq, self.head.digest, orders)

    def _ready_rows(self, now_us: int, plan: str | None) -> Iterator[IndexRow]:
        """The queue without what became ready after `now_us`: rows stand in it by a key that priority has moved."""
        clock = self.clock()
        is_now = clock is not None and clock.logical_us == now_us
        for page in self.pages(index.CLAIM, plan):
            values = {} if is_now else self.many([row.subject for row in page])
            yield from (row for row in page if is_now or values[row.subject].ready_us <= now_us)

    def _accepted_us(self, seq: int) -> int | None:
        """Logical time after the observation recorded at `seq`, None where no accepted one stands there."""
        if not 1 <= seq <= self.head.seq:
            return None
        body = self.record(seq).body
        is_accepted = isinstance(body, LogicalClockObservation) and body.disposition != "quarantined"
        return body.logical_us if is_accepted else None

    def state_pages(self) -> Iterator[list[tuple[str, bytes]]]:
        """Every (subject, bytes) in id order."""
        after = ""
        while page := self._reads.state_page(self._stream, after, "", PAGE):
            yield [(row.subject, row.data) for row in page]
            after = page[-1].subject


def _last(order: OrderState, by_id: dict[str, OrderState]) -> OrderState:
    while order.replaced_by is not None and order.replaced_by in by_id:
        order = by_id[order.replaced_by]
    return order


class Reader:
    """Opens views of one stream."""

    def __init__(self, journal: Journal, stream: Stream) -> None:
        self._journal = journal
        self.stream = stream

    @contextmanager
    def look(self) -> Iterator[Look]:
        with self._journal.snapshot() as reads:
            yield Look(reads, self.stream)

    def change_token(self) -> int:
        return self._journal.change_token()
