"""The one write path: commands queue to their stream's writer, are decided one by one, and become durable together.

**Group commit.** Whoever finds nobody leading leads: it runs what is queued against one view, seals, appends and
commits once. A caller alone pays one commit; a crowd shares one. Each command is still its own compare-and-append: it
sees what earlier ones in the group did, its refusal or error touches nothing, and its caller is answered only after
the commit. A storage error repeats the group from fresh state with the same `given`; a command that had been
committed after all is found by its key.

**The queue is the truth.** A command stays queued until its answer stands. A leader that is interrupted, at whatever
point, therefore loses nobody's command: the next one finds it, and its key says whether it was committed. A caller
that gives up takes its own command back, unless a group has it already; then it is decided all the same.

**Time.** A command that needs it names an accepted observation: when the last one is older than the domain's
resolution, the sampler's command runs first, in the same group.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fencepost.core.commands import Request
from fencepost.core.limits import Limits
from fencepost.core.state import FOLD_VERSION
from fencepost.kernel.group import Group, Moment, Tools, Witness
from fencepost.kernel.identities import Asked
from fencepost.kernel.receipts import Receipt
from fencepost.kernel.rows import other_fold
from fencepost.kernel.tickets import Seeds, Ticket, answer, read_strictly
from fencepost.kernel.view import Memory
from fencepost.ports.authority import Authority
from fencepost.ports.clock import Clock
from fencepost.ports.errors import StorageError, StorageFull, StorageMismatch, StorageUnavailable
from fencepost.ports.journal import Head, Journal, Stream
from fencepost.ports.threads import Event, Threads

_TRIES = 3  # of one group, when the store fails in a way that may pass
_WAIT_S = 10.0  # for the stream's lock, in each try
# A thread is woken when it is its turn. Should an interrupt swallow that, it looks for itself after so long.
_LOOK_AGAIN_S = 0.05

Committed = Callable[[Head], None]


class Writer:
    """The writer of one stream in this process. Safe for use from any thread and any event loop."""

    def __init__(
        self,
        journal: Journal,
        stream: Stream,
        clock: Clock,
        seeds: Seeds,
        authority: Authority,
        limits: Limits,
        *,
        threads: Threads,
        committed: Committed,
        witness: Witness | None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._seeds = seeds
        self._limits = limits
        self._threads = threads
        self._committed = committed
        self._tools = Tools(stream, limits, Asked(authority), Memory(), witness)
        self._queue: deque[Ticket] = deque()
        self._queue_lock = threads.lock()
        self._leader = threads.lock()
        self._pump: ThreadPoolExecutor | None = None
        self._pump_lock = threads.lock()
        self._pumping = False
        self._closed = False

    def write(self, request: Request) -> Receipt:
        """Decide one command and make it durable. Raises StorageError; a refusal is in the receipt."""
        return self.write_many((request,))[0]

    def write_many(self, requests: Sequence[Request]) -> list[Receipt]:
        """Decide many commands, each for itself, in as few groups as fit. Order is kept.

        An error that hits one of them is raised after all of them are decided.
        """
        receipts: list[Receipt] = []
        page = self._limits.submit_many_max
        for start in range(0, len(requests), page):
            receipts.extend(self._write_page(requests[start : start + page]))
        return receipts

    def _write_page(self, requests: Sequence[Request]) -> list[Receipt]:
        made = [self._ticket(request) for request in requests]
        tickets = [ticket for ticket in made if isinstance(ticket, Ticket)]
        if tickets:
            self._decide(tickets)
        return [each.outcome() if isinstance(each, Ticket) else each for each in made]

    def _decide(self, tickets: Sequence[Ticket]) -> None:
        """Queue tickets and return when all are done, leading whenever nobody else does."""
        last = tickets[-1]
        wake: Event | None = None
        try:
            with self._queue_lock:
                self._queue.extend(tickets)
            while not last.done:
                # Only a block gives a lock back whatever interrupts it, so the lock is looked at before it is taken.
                if not self._leader.locked():
                    with self._leader:
                        if not last.done:
                            self._run_group()
                elif wake is None:
                    wake = self._threads.event()
                    for ticket in tickets:
                        ticket.wake = wake
                else:
                    wake.wait(_LOOK_AGAIN_S)
                    wake.clear()
        finally:
            _withdraw(tickets)
            self._call_next()

    async def write_async(self, request: Request) -> Receipt:
        """The same for a task of an event loop: it waits for its receipt without holding a thread."""
        ticket = self._ticket(request)
        if isinstance(ticket, Receipt):
            return ticket
        ticket.loop = asyncio.get_running_loop()
        ticket.future = ticket.loop.create_future()
        try:
            with self._queue_lock:
                self._queue.append(ticket)
            self._start_pump()
            return await ticket.future
        finally:
            _withdraw((ticket,))

    def forget(self) -> None:
        """Read everything again from the store: somebody has put its caches right."""
        with self._leader:
            self._tools.memory.forget()

    def close(self) -> None:
        """Take no more, and decide what is queued. A second call does nothing."""
        self._closed = True
        while self._queue:
            with self._leader:
                self._run_group()
        if self._pump is not None:
            self._pump.shutdown(wait=True)

    def _ticket(self, request: Request) -> Ticket | Receipt:
        if self._closed:
            raise StorageUnavailable("this kernel is closed", next_step="open it again")
        read = read_strictly(request, self._limits)
        return read if isinstance(read, Receipt) else Ticket(*read, self._seeds.next())

    def _call_next(self) -> None:
        """Wake the thread whose command waits longest. Tasks have the pump, which waits by itself."""
        with self._queue_lock:
            self._prune()
            waiting = next((ticket.wake for ticket in self._queue if ticket.wake is not None and not ticket.done), None)
        if waiting is not None:
            waiting.set()

    def _prune(self) -> None:
        while self._queue and self._queue[0].done:
            self._queue.popleft()

    def _start_pump(self) -> None:
        with self._pump_lock:
            if self._pumping:
                return
            if self._pump is None:
                self._pump = ThreadPoolExecutor(1, thread_name_prefix="fencepost-writer")
            self._pump.submit(self._drain)
            self._pumping = True

    def _drain(self) -> None:
        """Lead for the tasks of event loops, until nothing is queued."""
        while True:
            with self._leader:
                self._run_group(is_pump=True)
            with self._pump_lock:
                if not self._queue:
                    self._pumping = False
                    return

    def _run_group(self, *, is_pump: bool = False) -> None:
        """Decide the next group and answer it.

        Only what is no Exception comes out, and then nobody is answered: the next leader does that. The pump has
        nobody above it, so that there everything is an answer.
        """
        tickets = self._next_tickets()
        if not tickets:
            return
        head: Head | None = None
        try:
            tickets, head = self._try_group(tickets)
        except BaseException as error:
            self._tools.memory.forget()
            if not isinstance(error, Exception) and not is_pump:
                raise
            for ticket in tickets:
                ticket.error = error
        answer(tickets)
        with self._queue_lock:
            self._prune()
        if head is not None:
            self._committed(head)

    def _next_tickets(self) -> list[Ticket]:
        """What stands first in the queue and fits into one group, by number of commands and by their bytes."""
        tickets: list[Ticket] = []
        bytes_left = self._limits.command_bytes_max
        with self._queue_lock:
            self._prune()
            for ticket in self._queue:
                if ticket.done:
                    continue
                bytes_left -= ticket.bytes_total
                if tickets and (bytes_left < 0 or len(tickets) == self._limits.group_commands_max):
                    break
                tickets.append(ticket)
        return tickets

    def _try_group(self, tickets: Sequence[Ticket]) -> tuple[list[Ticket], Head | None]:
        """Return the tickets that were decided, and the new head if anything was written."""
        moment = Moment(self._clock)
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._commit(tickets, moment)
            except StorageError as error:
                self._tools.memory.forget()
                if isinstance(error, StorageFull | StorageMismatch) or not tries_left:
                    raise
        raise RuntimeError("a group was given up without its error")

    def _commit(self, tickets: Sequence[Ticket], moment: Moment) -> tuple[list[Ticket], Head | None]:
        stream, memory = self._tools.stream, self._tools.memory
        with self._journal.transaction(stream, wait_s=_WAIT_S) as transaction:
            head = transaction.head(stream)
            mismatch = other_fold(head)
            if mismatch is not None:
                raise mismatch
            memory.at(head)
            known = transaction.commands(stream, [ticket.request.key for ticket in tickets])
            group = Group(self._tools, transaction, head, moment, known)
            for ticket in tickets:
                if not group.take(ticket):
                    break
            if not group.records:
                return group.settle(), None
            new_head = Head(head.epoch, group.link.seq, group.link.digest, FOLD_VERSION)
            group.append(new_head)
            transaction.commit()
        memory.keep(new_head, group.view.changed, group.bodies)
        return group.settle(), new_head


def _withdraw(tickets: Sequence[Ticket]) -> None:
    """A caller that leaves takes back what is not decided; a group that has it already decides it all the same."""
    for ticket in tickets:
        ticket.done = True
