"""One group: commands decided one after the other against one view, sealed, and appended at once.

Each command is its own compare-and-append. What it decides is sealed before anything of it is taken over, so that an
error in it leaves the group as it was; from there on nothing can fail for one command alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fencepost.core.canonical import encode_trusted
from fencepost.core.chain import Link, Sealed, Where, seal
from fencepost.core.commands import MEASURES_TIME, NEEDS_CLOCK, ApplyResult, ObserveClock, OpenScope, Reading, Request
from fencepost.core.decide import Batch, Decided, Given, decide
from fencepost.core.decide.authority import authorize
from fencepost.core.evolve import Fact
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.limits import Limits
from fencepost.core.reasons import Refusal
from fencepost.core.records import Body, Stamp
from fencepost.core.records.attempt import ResultApplication
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.state import AUTHORITY, CLOCK, AuthorityState, ClockState, encode_value
from fencepost.kernel.identities import Asked, Identities
from fencepost.kernel.receipts import Receipt
from fencepost.kernel.rows import as_damage, receipt_of
from fencepost.kernel.tickets import Ticket
from fencepost.kernel.view import GroupView, Memory
from fencepost.ports.clock import Clock
from fencepost.ports.clock import Reading as ClockReading
from fencepost.ports.errors import FencepostError, StorageError
from fencepost.ports.journal import Append, CommandRow, Head, StateRow, StoredRecord, Stream, Transaction

BODY_BYTES_MAX = 16_384  # of a record whose body is remembered

NOTHING = Decided((), {}, (), {}, "")
_ENCODE = msgspec.json.Encoder()


class Moment:
    """One reading of the clock for a group: taken when it is first needed and kept when the group is repeated."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reading: ClockReading | None = None

    @property
    def reading(self) -> ClockReading:
        if self._reading is None:
            self._reading = self._clock.read()
        return self._reading


Witness = Callable[[Request, Receipt, Sequence[Sealed]], None]
"""Told of each decided command with its receipt and the records that it would write, in the order of decision. What it
is told is no fact before the group's transaction is committed."""


class Tools(NamedTuple):
    """What every group of a writer works with."""

    stream: Stream
    limits: Limits
    asked: Asked
    memory: Memory
    witness: Witness | None = None


class Group:
    """What one group has decided so far: records sealed, rows to write, answers to give after the commit."""

    def __init__(
        self, tools: Tools, transaction: Transaction, head: Head, moment: Moment, known: Mapping[str, CommandRow]
    ) -> None:
        self._tools = tools
        self._transaction = transaction
        self._head = head
        self._moment = moment
        self._where = Where(tools.stream.scope, tools.stream.name, head.epoch)
        self._rows = dict(known)
        self._new_rows: list[CommandRow] = []
        self._answers: list[tuple[Ticket, Receipt | Exception]] = []
        self._looked_for_us: int | None = None
        self.view = GroupView(transaction, tools.stream, tools.memory)
        self.link = Link(head.seq, head.digest)
        self.records: list[Sealed] = []
        self.bodies: dict[int, Body] = {}
        """Bodies of the group's records that are small enough to be remembered."""

    def take(self, ticket: Ticket) -> bool:
        """Decide one ticket. False when its records do not fit any more: it is left for the next group.

        An error in the command is its answer. Errors of the store are raised, since they are the whole group's.
        """
        try:
            outcome = self._decide(ticket)
        except StorageError:
            raise
        except Exception as error:
            self._answers.append((ticket, as_damage(error)))
            return True
        if outcome is None:
            return False
        receipt, sealed, decided = outcome
        self._take_over(ticket.request, ticket.digest, receipt, sealed, decided)
        self._answers.append((ticket, receipt))
        return True

    def _take_over(
        self, request: Request, digest: str, receipt: Receipt, sealed: list[Sealed], decided: Decided
    ) -> None:
        """Make what one command decided part of the group, and bind its key to it. Nothing of it can fail any more."""
        if self._tools.witness is not None:
            self._tools.witness(request, receipt, sealed)
        if sealed:
            self._absorb(sealed, decided)
            row = CommandRow(receipt.key, digest, receipt.first_seq, receipt.count, _ENCODE.encode(receipt))
            self._rows[receipt.key] = row
            self._new_rows.append(row)

    def _decide(self, ticket: Ticket) -> tuple[Receipt, list[Sealed], Decided] | None:
        """Decide and seal one command, taking nothing over but an observation of the clock."""
        request = ticket.request
        row = self._rows.get(request.key)
        if row is not None:
            return self._replay(ticket, row), [], NOTHING
        if type(request.command) in NEEDS_CLOCK:
            self._observe(1 if type(request.command) in MEASURES_TIME else self._tools.limits.clock_resolution_us)
        decided = decide(self.view, request, self._given(request, ticket.seed), self.link.seq + 1)
        if type(request.command) is ApplyResult and _begins_backoff(decided.facts):
            # A pause is measured from now. Who is applied, or fails for good, asks for no reading of this moment.
            self._observe(1)
            decided = decide(self.view, request, self._given(request, ticket.seed), self.link.seq + 1)
        if decided.refusal is not None and decided.refusal.code != "denied" and _only_decisions(decided.facts):
            # Only a denial is a fact without another record. Whatever else changed nothing binds nobody: nothing is
            # written, and its key stays free to be tried again.
            decided = msgspec.structs.replace(decided, facts=())
        if self.records and len(self.records) + len(decided.facts) > self._tools.limits.group_records_max:
            return None
        sealed, refusal = self._sealed(request, ticket.digest, decided)
        if refusal is not None:
            decided = msgspec.structs.replace(decided, facts=(), refusal=refusal, result={})
        return self._receipt(request, sealed, decided), sealed, decided

    def _receipt(self, request: Request, sealed: Sequence[Sealed], decided: Decided) -> Receipt:
        return Receipt(
            key=request.key,
            sequence=sealed[-1].seq if sealed else self.link.seq,
            first_seq=sealed[0].seq if sealed else 0,
            count=len(sealed),
            result=dict(decided.result),
            refusal=decided.refusal,
        )

    def _given(self, request: Request, seed: bytes) -> Given:
        ids = IdSource(seed, self._moment.reading.utc_us)
        state = self.view.get(AUTHORITY)
        if not isinstance(state, AuthorityState):
            if isinstance(request.command, OpenScope):
                return Given(ids, self._tools.limits, {}, {}, "")
            raise FencepostError(f"scope {self._tools.stream.scope} has not been opened", next_step="fencepost init")
        identities = self._tools.asked.identities(state)
        questions = self._tools.asked.questions(identities, request)
        utc_us = self._moment.reading.utc_us
        return Given(ids, self._tools.limits, questions.digests, questions.rulings, identities.prover, utc_us)

    def _observe(self, age_us: int) -> None:
        """Run the sampler's command first when the last accepted observation is `age_us` old: too old for the next.

        A group has one moment, so that a second look that asks for no less age could find nothing else.
        """
        if self._looked_for_us is not None and self._looked_for_us <= age_us:
            return
        clock = self.view.get(CLOCK)
        if not isinstance(clock, ClockState):
            return
        self._looked_for_us = age_us
        now = self._moment.reading
        boot = clock.boot(now.source, now.boot_id)
        if boot is not None and now.tick_us - boot.last_tick < age_us:
            return
        sampler = self._identities().named("sampler")
        request = Request(
            command=ObserveClock(reading=clock_reading(now)),
            key=f"clock:{now.source}:{now.boot_id}:{now.tick_us}",
            principal=sampler.principal,
            grant=sampler.grant,
            assurance="service",
        )
        if request.key in self._rows or self._transaction.command(self._tools.stream, request.key) is not None:
            return  # this very reading was observed before
        seed = sha256_of(request.key.encode())[-32:]  # an observation names nothing, so that any seed will do
        decided = decide(self.view, request, self._given(request, bytes.fromhex(seed)), self.link.seq + 1)
        digest = sha256_of(encode_trusted(request.command) + b"|" + request.principal.encode())
        sealed, refusal = self._sealed(request, digest, decided)
        if sealed and refusal is None:
            self._take_over(request, digest, self._receipt(request, sealed, decided), sealed, decided)

    def _identities(self) -> Identities:
        state = self.view.get(AUTHORITY)
        if not isinstance(state, AuthorityState):
            raise FencepostError(f"scope {self._tools.stream.scope} has a clock and nobody in it")
        return self._tools.asked.identities(state)

    def _sealed(self, request: Request, digest: str, decided: Decided) -> tuple[list[Sealed], Refusal | None]:
        """Seal one batch on the chain without taking it over, or say which bound it passes."""
        facts = decided.facts
        if not facts:
            return [], None
        limits = self._tools.limits
        if len(facts) > limits.batch_records_max:
            return [], _too_large("the batch", f"{limits.batch_records_max} records")
        clock = self.view.get(CLOCK)
        stamp = Stamp(
            key=request.key,
            digest=digest,
            principal=request.principal,
            assurance=request.assurance,
            decision=decided.decision,
            grant=request.grant,
            clock=clock.last_seq if isinstance(clock, ClockState) else 0,
        )
        sealed = seal(self._where, self.link, facts, stamp)
        if max([len(record.data) for record in sealed]) > limits.record_bytes_max:
            return [], _too_large("a record", f"{limits.record_bytes_max} bytes")
        return sealed, None

    def _absorb(self, sealed: list[Sealed], decided: Decided) -> None:
        self.view.merge(decided)
        for record, fact in zip(sealed, decided.facts, strict=True):
            if len(record.data) <= BODY_BYTES_MAX:
                self.bodies[record.seq] = fact.body
        self.records.extend(sealed)
        self.link = Link(sealed[-1].seq, sealed[-1].digest)

    def _replay(self, ticket: Ticket, row: CommandRow) -> Receipt:
        """The key is known. Whoever may still ask gets the first receipt for the same bytes, else a collision."""
        request = ticket.request
        if not isinstance(request.command, OpenScope):
            batch = Batch(self.view, self._given(request, ticket.seed), self.link.seq + 1)
            _, refusal = authorize(batch, request)
            if refusal is not None:
                return Receipt(key=row.key, sequence=self.link.seq, refusal=refusal, fresh=False)
        if row.digest == ticket.digest:
            return receipt_of(row)
        refusal = Refusal(code="operation_collision", field="/key", detail={"subject": row.key})
        return Receipt(key=row.key, sequence=self.link.seq, refusal=refusal, fresh=False)

    def append(self, head: Head) -> None:
        states = [StateRow(subject, value.version, encode_value(value)) for subject, value in self.view.changed.items()]
        self._transaction.append(
            Append(
                stream=self._tools.stream,
                expected=self._head,
                head=head,
                records=[StoredRecord(record.seq, record.data) for record in self.records],
                states=states,
                index_put=self.view.index_put(),  # type: ignore[arg-type]  # a Row has the fields of an IndexRow
                index_delete=self.view.index_delete(),
                edges=self.view.edges_new,  # type: ignore[arg-type]  # an Edge has the fields of an EdgeRow
                commands=self._new_rows,
            )
        )

    def settle(self) -> list[Ticket]:
        """Hand the answers out. What was only looked up or refused is true at the group's head."""
        for ticket, answer in self._answers:
            if isinstance(answer, Exception):
                ticket.error = answer
            elif answer.count or answer.sequence == self.link.seq:
                ticket.receipt = answer
            else:
                ticket.receipt = msgspec.structs.replace(answer, sequence=self.link.seq)
        return [ticket for ticket, _ in self._answers]


def clock_reading(now: ClockReading) -> Reading:
    return Reading(
        source=now.source,
        boot_id=now.boot_id,
        utc_us=now.utc_us,
        tick_us=now.tick_us,
        uncertainty_us=now.uncertainty_us,
    )


def _begins_backoff(facts: Sequence[Fact]) -> bool:
    return any(isinstance(fact.body, ResultApplication) and fact.body.backoff is not None for fact in facts)


def _only_decisions(facts: Sequence[Fact]) -> bool:
    return all(isinstance(fact.body, AuthorityDecision) for fact in facts)


def _too_large(subject: str, bound: str) -> Refusal:
    return Refusal(code="too_large", detail={"subject": subject, "bound": bound})
