"""The one write path: commands queue to their stream's writer, are decided one by one, and become durable together.

**Group commit.** Whoever finds no group under way leads one: it takes the lock, runs what is queued against one view,
seals, appends and commits once. A caller alone pays one commit; a crowd shares one. Each command is still its own
compare-and-append: it sees what earlier ones in the group did, its refusal or error touches nothing, and its caller
is answered only after the commit. A storage error repeats the group from fresh state with the same `given`; a command
that had been committed after all is found by its key.

**Time.** A command that needs it names an accepted observation: when the last one is older than the domain's
resolution, the sampler's command runs first, in the same group.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from fencepost.core.canonical import encode_trusted
from fencepost.core.chain import Link, Sealed, Where, seal
from fencepost.core.commands import NEEDS_CLOCK, ObserveClock, OpenScope, Reading, Request
from fencepost.core.decide import Decided, Given, decide
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.limits import Limits
from fencepost.core.reasons import Refusal
from fencepost.core.records import Stamp
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.state import AUTHORITY, CLOCK, FOLD_VERSION, AuthorityState, ClockState, encode_value
from fencepost.kernel.identities import Asked, Identities, Rulings
from fencepost.kernel.receipts import Receipt
from fencepost.kernel.view import GroupView, Memory
from fencepost.ports.authority import Authority
from fencepost.ports.clock import Clock
from fencepost.ports.entropy import Entropy
from fencepost.ports.errors import FencepostError, StorageError, StorageFull, StorageMismatch
from fencepost.ports.journal import Append, CommandRow, Head, Journal, StateRow, StoredRecord, Stream, Transaction

_TRIES = 3  # of one group, when the store fails in a way that may pass
_RECEIPT = msgspec.json.Decoder(Receipt)
_ENCODE = msgspec.json.Encoder()

Committed = Callable[[Head, int], None]


class Ticket:
    """One queued command and, after its group's commit, its answer. `given` is drawn once, so that a repeat agrees."""

    __slots__ = ("digest", "done", "error", "future", "loop", "reading", "receipt", "request", "seed")

    def __init__(self, request: Request, seed: bytes, reading: Reading | None) -> None:
        self.request = request
        self.seed = seed
        self.reading = reading
        data = encode_trusted(request.command)
        self.digest = sha256_of(data + b"|" + request.principal.encode())
        self.done = False
        self.receipt: Receipt | None = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Receipt] | None = None

    def outcome(self) -> Receipt:
        if self.error is not None:
            raise self.error
        if self.receipt is None:
            raise RuntimeError("a ticket was asked for its outcome before its group was committed")
        return self.receipt


class Writer:
    """The writer of one stream in this process. Safe for use from any thread and any event loop."""

    def __init__(
        self,
        journal: Journal,
        stream: Stream,
        clock: Clock,
        entropy: Entropy,
        authority: Authority,
        limits: Limits,
        committed: Committed,
    ) -> None:
        self._journal = journal
        self.stream = stream
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self._asked = Asked(authority)
        self._committed = committed
        self._memory = Memory()
        self._identities: tuple[int, Identities] | None = None
        self._queue: deque[Ticket] = deque()
        self._leader = threading.Lock()
        self._pump: ThreadPoolExecutor | None = None
        self._pump_lock = threading.Lock()
        self._pumping = False

    def write(self, request: Request) -> Receipt:
        """Decide one command and make it durable. Raises StorageError; a refusal is in the receipt."""
        ticket = self._enqueue(request)
        with self._leader:
            while not ticket.done:
                self._run_group()
        return ticket.outcome()

    def write_many(self, requests: Sequence[Request]) -> list[Receipt]:
        """Decide many commands, each for itself, in as few groups as fit. Order is kept."""
        tickets = [self._enqueue(request) for request in requests]
        with self._leader:
            while tickets and not tickets[-1].done:
                self._run_group()
        return [ticket.outcome() for ticket in tickets]

    async def write_async(self, request: Request) -> Receipt:
        """The same for a task of an event loop: it waits for its receipt without holding a thread."""
        loop = asyncio.get_running_loop()
        ticket = self._ticket(request)
        ticket.loop = loop
        ticket.future = loop.create_future()
        self._queue.append(ticket)
        self._start_pump()
        return await ticket.future

    def close(self) -> None:
        if self._pump is not None:
            self._pump.shutdown(wait=True)

    def _ticket(self, request: Request) -> Ticket:
        reading = None
        if type(request.command) in NEEDS_CLOCK:
            now = self._clock.read()
            reading = Reading(
                source=now.source,
                boot_id=now.boot_id,
                utc_us=now.utc_us,
                tick_us=now.tick_us,
                uncertainty_us=now.uncertainty_us,
            )
        return Ticket(request, self._entropy.seed(), reading)

    def _enqueue(self, request: Request) -> Ticket:
        ticket = self._ticket(request)
        self._queue.append(ticket)
        return ticket

    def _start_pump(self) -> None:
        with self._pump_lock:
            if self._pumping:
                return
            self._pumping = True
            if self._pump is None:
                self._pump = ThreadPoolExecutor(1, thread_name_prefix="fencepost-writer")
            self._pump.submit(self._drain)

    def _drain(self) -> None:
        while True:
            with self._leader:
                if self._queue:
                    self._run_group()
                    continue
            with self._pump_lock:
                if not self._queue:
                    self._pumping = False
                    return

    def _run_group(self) -> None:
        tickets: list[Ticket] = []
        while self._queue and len(tickets) < self._limits.group_commands_max:
            tickets.append(self._queue.popleft())
        if not tickets:
            return
        try:
            self._try_group(tickets)
        except BaseException as error:
            self._memory.forget()
            for ticket in tickets:
                if ticket.receipt is None and ticket.error is None:
                    ticket.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            _answer(tickets)

    def _try_group(self, tickets: Sequence[Ticket]) -> None:
        for attempt in range(_TRIES):
            try:
                self._commit(tickets)
                return
            except StorageError as error:
                self._memory.forget()
                for ticket in tickets:
                    ticket.receipt = ticket.error = None
                if isinstance(error, StorageFull | StorageMismatch) or attempt == _TRIES - 1:
                    raise

    def _commit(self, tickets: Sequence[Ticket]) -> None:
        with self._journal.transaction(self.stream) as transaction:
            head = transaction.head(self.stream)
            if head.seq and head.fold_version != FOLD_VERSION:
                raise StorageMismatch(
                    f"the caches were folded by version {head.fold_version}, this program has {FOLD_VERSION}",
                    next_step="fencepost journal replay --rebuild",
                )
            self._memory.at(head)
            group = _Group(transaction, self.stream, self._memory, head)
            known = transaction.commands(self.stream, [ticket.request.key for ticket in tickets])
            group.rows.update(known)
            for ticket in tickets:
                self._decide_one(group, ticket)
            if not group.records:
                group.settle(head.seq)
                return
            new_head = Head(head.epoch, group.link.seq, group.link.digest, FOLD_VERSION)
            group.append(new_head)
            transaction.commit()
        self._memory.keep(new_head, group.view.changed, group.view.bodies)
        group.settle(new_head.seq)
        self._committed(new_head, len(group.records))

    def _decide_one(self, group: _Group, ticket: Ticket) -> None:
        """Decide one ticket within the group; an error in it removes it and nothing else."""
        row = group.rows.get(ticket.request.key)
        if row is not None:
            group.replay(ticket, row)
            return
        try:
            self._observe(group, ticket)
            decided = self._decide(group, ticket.request, ticket.seed)
            group.take(ticket, decided)
        except (StorageError, KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:
            ticket.error = error

    def _observe(self, group: _Group, ticket: Ticket) -> None:
        """Run the sampler's command first when the last accepted observation is too old for this one."""
        reading = ticket.reading
        clock = group.view.get(CLOCK)
        if reading is None or not isinstance(clock, ClockState):
            return
        source = clock.sources.get(reading.source)
        if (
            source is not None
            and source.boot_id == reading.boot_id
            and reading.tick_us - source.last_tick < self._limits.clock_resolution_us
        ):
            return
        sampler = self._identify(group).named("sampler")
        request = Request(
            command=ObserveClock(reading=reading),
            key=f"clock:{reading.source}:{reading.boot_id}:{reading.tick_us}",
            principal=sampler.principal,
            grant=sampler.grant,
            assurance="service",
        )
        decided = self._decide(group, request, ticket.seed[::-1])
        if decided.facts:
            data = encode_trusted(request.command)
            group.write(request, sha256_of(data + b"|" + request.principal.encode()), decided)

    def _identify(self, group: _Group) -> Identities:
        state = group.view.get(AUTHORITY)
        if not isinstance(state, AuthorityState):
            raise FencepostError(f"scope {self.stream.scope} has not been opened")
        if self._identities is None or self._identities[0] != state.version:
            self._identities = (state.version, Identities(state))
        return self._identities[1]

    def _decide(self, group: _Group, request: Request, seed: bytes) -> Decided:
        questions: dict[str, tuple[str, object]] = {}
        prover = ""
        if not isinstance(request.command, OpenScope) and group.view.get(AUTHORITY) is not None:
            identities = self._identify(group)
            prover = identities.named("prover").principal
            questions = self._questions(identities, request)
        given = Given(
            ids=IdSource(seed, group.utc_us(self._clock)),
            limits=self._limits,
            questions={pair: digest for pair, (digest, _) in questions.items()},
            rulings=Rulings(self._asked, questions),  # type: ignore[arg-type]  # built by _questions just above
            prover=prover,
        )
        return decide(group.view, request, given, group.link.seq + 1)

    def _questions(self, identities: Identities, request: Request) -> dict[str, tuple[str, object]]:
        identity = identities.get(request.principal)
        if identity is None:
            return {}
        command = request.command
        questions: dict[str, tuple[str, object]] = {}
        for place, pair in enumerate(command.pairs):
            # The second pair of an expiry is the prover's: it proves, the caller moves.
            asker = identities.named("prover") if place else identity
            questions[pair] = self._asked.question(asker, pair, command.attributes)
        return questions


class _Group:
    """What one group has decided so far: records sealed, rows to write, answers to give after the commit."""

    def __init__(self, transaction: Transaction, stream: Stream, memory: Memory, head: Head) -> None:
        self._transaction = transaction
        self._stream = stream
        self._head = head
        self.view = GroupView(transaction, stream, memory)
        self.link = Link(head.seq, head.digest)
        self.records: list[Sealed] = []
        self.rows: dict[str, CommandRow] = {}
        self._new_rows: list[CommandRow] = []
        self._answers: list[tuple[Ticket, Receipt]] = []
        self._utc_us = 0

    def utc_us(self, clock: Clock) -> int:
        """One wall-clock reading for the ids of a group: they are ordered, never compared with time."""
        if not self._utc_us:
            self._utc_us = clock.read().utc_us
        return self._utc_us

    def take(self, ticket: Ticket, decided: Decided) -> None:
        request = ticket.request
        if decided.refusal is not None and not decided.refusal.reason.durable and _only_decisions(decided):
            # A refusal that may pass binds nobody: nothing is written, and its key stays free to be tried again.
            decided = decided._replace(facts=())
        first = self.write(request, ticket.digest, decided) if decided.facts else 0
        receipt = Receipt(
            key=request.key,
            sequence=self.link.seq,
            first_seq=first,
            count=len(decided.facts),
            result=dict(decided.result),
            refusal=decided.refusal,
        )
        if decided.facts:
            row = CommandRow(request.key, ticket.digest, first, len(decided.facts), _ENCODE.encode(receipt))
            self.rows[request.key] = row
            self._new_rows.append(row)
        self._answers.append((ticket, receipt))

    def write(self, request: Request, digest: str, decided: Decided) -> int:
        """Seal one batch on the chain and overlay its values; return its first sequence number."""
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
        where = Where(self._stream.scope, self._stream.name, self._head.epoch)
        sealed = seal(where, self.link, decided.facts, stamp)
        self.view.merge(decided)
        self.records.extend(sealed)
        self.link = Link(sealed[-1].seq, sealed[-1].digest)
        return sealed[0].seq

    def replay(self, ticket: Ticket, row: CommandRow) -> None:
        """The key is known: the same bytes get the first receipt, anything else collides."""
        if row.digest == ticket.digest:
            first = _RECEIPT.decode(row.receipt)
            receipt = msgspec.structs.replace(first, fresh=False)
        else:
            refusal = Refusal(code="operation_collision", field="/key", detail={"subject": row.key})
            receipt = Receipt(key=row.key, sequence=self.link.seq, refusal=refusal, fresh=False)
        self._answers.append((ticket, receipt))

    def append(self, head: Head) -> None:
        states = [StateRow(subject, value.version, encode_value(value)) for subject, value in self.view.changed.items()]
        self._transaction.append(
            Append(
                stream=self._stream,
                expected=self._head,
                head=head,
                records=[StoredRecord(record.seq, record.data) for record in self.records],
                states=states,
                index_put=self.view.index_put(),
                index_delete=self.view.index_delete(),
                edges=self.view.edges_new,  # type: ignore[arg-type]  # an Edge has the fields of an EdgeRow
                commands=self._new_rows,
            )
        )

    def settle(self, sequence: int) -> None:
        """After the commit: every answer is true at the group's head."""
        for ticket, receipt in self._answers:
            if receipt.fresh and not receipt.count:
                receipt = msgspec.structs.replace(receipt, sequence=sequence)
            ticket.receipt = receipt


def _only_decisions(decided: Decided) -> bool:
    return all(isinstance(fact.body, AuthorityDecision) for fact in decided.facts)


def _answer(tickets: Sequence[Ticket]) -> None:
    """Wake everyone who waits: threads find `done` when they get the lock, tasks are told once for each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        ticket.done = True
        if ticket.loop is not None:
            loops.setdefault(ticket.loop, []).append(ticket)
    for loop, waiting in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        future = ticket.future
        if future is None or future.done():
            continue  # its caller was cancelled; the command is decided all the same
        if ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.outcome())
