"""What the programs of a worker's attempts may say, and what becomes of it (W5, W6, X10).

The rules, whoever carries the words in and out:

* Each attempt has a token of its own, which opens nothing else and nothing any more once the attempt is over. Only its
  digest is kept here.
* A lease that this host knows to be over is told at once, without asking the store. Only what was spent is still
  booked then, and only whether to stop is still answered.
* A reply is given when everything in it is durable: bytes before the record that names them, the record before the
  reply. Whatever is asked twice because a reply was lost happens once: commands have keys that follow from what they
  say, charges have receipts, children have names.
* Heartbeats are evidence and come in any number: one a second is recorded, the newest.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fencepost.core.commands import (
    AppendEvent,
    ChargeUsage,
    SubmitChild,
)
from fencepost.core.ids import sha256_of
from fencepost.core.records.attempt import AttemptReservation
from fencepost.core.records.plan import AnswerRecorded, WorkOrderSpec
from fencepost.core.state import OrderState
from fencepost.ports.door import Answer, Asked
from fencepost.ports.errors import FencepostError, StorageError
from fencepost.ports.workspace import Workspace
from fencepost.sdk import wire
from fencepost.services import requests as ask
from fencepost.services.charges import told, usage_of
from fencepost.services.children import draft_child, no_child, no_file, outputs_of
from fencepost.services.desk import HEARTBEAT_S, Desk, order_in, order_of, required
from fencepost.services.greeting import hello_document
from fencepost.services.kept import Kept
from fencepost.services.leases import Lease
from fencepost.services.means import Means
from fencepost.services.requests import Declined
from fencepost.services.wishes import over_by, state_of, wish_of

CLOSED_MAX: Final = 1_024
"""Tokens of attempts that are over and are still known as such."""

SLOW: Final = (ask.Checkpoint, ask.Resume, ask.Artifact, ask.Child, ask.Output)
"""Requests that read or write files of any size."""


class Sink:
    """The port's `Clerk` of one worker. Safe for several threads."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._lock = means.threads.lock()
        self._desks: dict[str, Desk] = {}  # digest of a token -> desk
        self._closed: OrderedDict[str, None] = OrderedDict()
        kept = Kept(means)
        self._steps: dict[type[ask.Form], Callable[[Desk, Any, bytes | None], Answer]] = {
            ask.Hello: self._hello,
            ask.Status: self._status,
            ask.Heartbeat: self._heartbeat,
            ask.Checkpoint: kept.checkpoint,
            ask.Resume: kept.resume,
            ask.Charge: self._charge,
            ask.Artifact: kept.artifact,
            ask.Yield: self._yield,
            ask.Child: self._child,
            ask.Output: self._output,
            ask.AnswerTo: self._answer_to,
        }

    # For the worker

    def open(self, lease: Lease, spec: WorkOrderSpec, input_set: str, space: Workspace) -> tuple[Desk, str]:
        """A desk for an attempt whose command is about to start, and the token that opens it."""
        token = (self._means.kernel.entropy.seed() + self._means.kernel.entropy.seed()).hex()
        desk = Desk(lease=lease, spec=spec, input_set=input_set, space=space, lock=self._means.threads.lock())
        with self._lock:
            self._desks[_key(token)] = desk
        return desk, token

    def close(self, desk: Desk) -> AppendEvent | None:
        """Its tree is gone: its token opens nothing any more. What is being answered ends at its next piece and is
        waited for; returns the heartbeat that was not recorded yet."""
        desk.closing = True
        with self._lock:
            for key in [key for key, known in self._desks.items() if known is desk]:
                del self._desks[key]
                self._closed[key] = None
            while len(self._closed) > CLOSED_MAX:
                self._closed.popitem(last=False)
        with desk.lock:
            desk.closed = True
            return desk.take_note(self._means.threads.monotonic())

    def flush(self) -> int:
        """Record heartbeats whose second is over; returns how many. Raises StorageError, and keeps the notes then.

        A program that is being answered is not waited for: its note is for the next time. The other desks are held
        until their notes are durable, so that whatever their attempts report comes behind them.
        """
        with self._lock:
            desks = [desk for desk in self._desks.values() if desk.note is not None]
        held = [desk for desk in desks if desk.lock.acquire(blocking=False)]
        try:
            now = self._means.threads.monotonic()
            due = [desk for desk in held if not desk.lease.lost and now - desk.noted_at >= HEARTBEAT_S]
            return self._record_notes([desk for desk in due if desk.note is not None], now)
        finally:
            for desk in held:
                desk.lock.release()

    def _record_notes(self, desks: Sequence[Desk], now: float) -> int:
        kernel = self._means.kernel
        notes = [(desk, desk.note) for desk in desks]
        events = [event for desk in desks if (event := desk.take_note(now)) is not None]
        try:
            if events:
                kernel.write_many([kernel.request("executor", event) for event in events])
        except StorageError:
            for desk, note in notes:
                desk.note = note
            raise
        return len(events)

    # For the door

    def read(self, line: bytes) -> Asked | Answer:
        try:
            form = ask.read_form(line)
            desk = self._desk_of(form.token)
        except Declined as declined:
            return Answer(reply=ask.refused(declined))
        size = form.bytes if isinstance(form, ask.Checkpoint) else None
        if size is not None and size > wire.PAYLOAD_BYTES_MAX:
            message = f"a payload has at most {wire.PAYLOAD_BYTES_MAX} bytes"
            return Answer(reply=ask.refused(Declined("too_large", message, where="/bytes"), desk.stopping))
        back = {ask.Resume: wire.PAYLOAD_BYTES_MAX, ask.Output: wire.PAYLOAD_BYTES_MAX, ask.Hello: wire.REPLY_BYTES_MAX}
        return Asked(
            who=desk.attempt,
            request=(desk, form),
            payload_bytes=size,
            reply_bytes=back.get(type(form), 0),
            slow=isinstance(form, SLOW),
        )

    def answer(self, asked: Asked, payload: bytes | None) -> Answer:
        desk, form = asked.request
        try:
            with desk.lock:
                return self._answered(desk, form, payload)
        except Declined as error:
            declined = error
        except FencepostError as error:
            declined = Declined(error.code, error.message, next_step=error.next_step or "")
        return Answer(reply=ask.refused(declined, desk.stopping))

    def refuse(self, code: str, message: str, who: str = "") -> Answer:
        with self._lock:
            desk = next((desk for desk in self._desks.values() if desk.attempt == who), None)
        return Answer(reply=ask.refused(Declined(code, message), "" if desk is None else desk.stopping))

    def _answered(self, desk: Desk, form: ask.AnyForm, payload: bytes | None) -> Answer:
        if desk.closed or not isinstance(form, ask.Status | ask.Charge):
            desk.require_live(self._means.reading().tick_us)
        answer = self._steps[type(form)](desk, form, payload)
        reply = {"ok": True, **answer.reply, "stopping": desk.stopping}
        if answer.payload is not None:
            reply["bytes"] = len(answer.payload)
        return Answer(reply=reply, payload=answer.payload)

    def _desk_of(self, token: str) -> Desk:
        key = _key(token) if ask.TOKEN.fullmatch(token) else ""
        with self._lock:
            # Looked up by digest, so that how long it takes says nothing about any token.
            desk = self._desks.get(key)
            closed = key in self._closed
        if desk is not None and hmac.compare_digest(key, _key(token)):
            return desk
        if closed:
            raise Declined("stale_fence", "this attempt is over: nothing that it does counts")
        step = "send FENCEPOST_TOKEN as this attempt was given it, to FENCEPOST_SOCKET as it was given"
        raise Declined("denied", "the token is not that of an attempt of this worker", next_step=step)

    # What may be asked

    def _status(self, desk: Desk, form: ask.Status, payload: bytes | None) -> Answer:
        return Answer(reply={"lease_left_us": self._left_us(desk)})

    def _heartbeat(self, desk: Desk, form: ask.Heartbeat, payload: bytes | None) -> Answer:
        now = self._means.threads.monotonic()
        desk.note = form.note
        if now - desk.noted_at < HEARTBEAT_S:
            return Answer(reply={"recorded": False, "lease_left_us": self._left_us(desk)})
        event = desk.take_note(now)
        if event is None:
            raise RuntimeError("a note that was just put is gone")
        try:
            required(self._means, desk, event)
        except StorageError:
            desk.note = form.note  # for the next renewal
            raise
        return Answer(reply={"recorded": True, "lease_left_us": self._left_us(desk)})

    def _charge(self, desk: Desk, form: ask.Charge, payload: bytes | None) -> Answer:
        command = ChargeUsage(
            attempt=desk.attempt,
            fence=desk.lease.fence,
            spec=desk.spec.spec,
            input_set=desk.input_set,
            usage=usage_of(form),
        )
        result = required(self._means, desk, command).result
        return Answer(reply={**told(result, self._set_aside(desk)), "receipt": form.receipt, "provider": form.provider})

    def _set_aside(self, desk: Desk) -> Mapping[str, int]:
        """What the hold of an attempt began with, by dimension. It never changes, so that it is read once."""
        if desk.set_aside is None:
            with self._means.kernel.reader.look() as look:
                attempt = look.attempt(desk.attempt)
                if attempt is None:
                    raise FencepostError(f"{desk.attempt} is charged and is not there")
                desk.set_aside = look.body(attempt.reservation_seq, AttemptReservation).amounts
        return desk.set_aside

    def _yield(self, desk: Desk, form: ask.Yield, payload: bytes | None) -> Answer:
        if form.cancel:
            if form != ask.Yield(v=form.v, token=form.token, cancel=True):
                raise Declined("out_of_range", "what is taken back has no more to say", where="/cancel")
            desk.wish = None
            return Answer(reply={"yielding": False})
        with self._means.kernel.reader.look() as look:
            order = order_in(look, desk)
            wish = wish_of(form, order, self._means.kernel.limits.duration_max_us)
            ended = over_by(look, desk, order, wish, marked=bool(form.mark)) if form.unless_over else ""
        desk.wish = None if ended else wish
        if not ended:
            return Answer(reply={"yielding": True})
        return Answer(reply={"yielding": False, "ended": ended, "saved": state_of(order)})

    def _child(self, desk: Desk, form: ask.Child, payload: bytes | None) -> Answer:
        draft = draft_child(self._means, desk, form.order, self._order(desk))
        command = SubmitChild(
            attempt=desk.attempt,
            fence=desk.lease.fence,
            spec=desk.spec.spec,
            input_set=desk.input_set,
            order=draft,
        )
        return Answer(reply={"child": draft.task, **required(self._means, desk, command).result})

    def _output(self, desk: Desk, form: ask.Output, payload: bytes | None) -> Answer:
        with self._means.kernel.reader.look() as look:
            parent = order_in(look, desk)
            child = look.order(parent.children.get(form.child, ""))
            if child is None:
                raise no_child(parent, form.child, "/child")
            handed_in = outputs_of(look, child)
        refs = [ref for ref in handed_in if ref.path == form.path]
        if not refs:
            raise no_file(child, form.child, form.path, [ref.path for ref in handed_in])
        if refs[0].bytes > wire.PAYLOAD_BYTES_MAX:
            raise Declined("too_large", f"the file has {refs[0].bytes} bytes", where="/path")
        data = self._means.artifacts.read(refs[0].digest, wire.PAYLOAD_BYTES_MAX)
        return Answer(reply={"path": form.path, "digest": refs[0].digest}, payload=data)

    def _answer_to(self, desk: Desk, form: ask.AnswerTo, payload: bytes | None) -> Answer:
        with self._means.kernel.reader.look() as look:
            seq = order_in(look, desk).answers.get(form.question)
            value = None if seq is None else look.body(seq, AnswerRecorded).value
        if value is None and not form.optional:
            message = f"nobody has answered {form.question!r} yet"
            step = f"wait for it: fencepost attempt yield --question {form.question}"
            raise Declined("not_found", message, where="/question", next_step=step)
        return Answer(reply={"question": form.question, "answered": value is not None, "value": value})

    def _hello(self, desk: Desk, form: ask.Hello, payload: bytes | None) -> Answer:
        with self._means.kernel.reader.look() as look:
            document = hello_document(look, desk, order_in(look, desk))
        return Answer(reply={**document, "lease_left_us": self._left_us(desk)})

    # Help

    def _left_us(self, desk: Desk) -> int:
        return max(desk.lease.deadline_tick_us - self._means.reading().tick_us, 0)

    def _order(self, desk: Desk) -> OrderState:
        return order_of(self._means, desk)


def _key(token: str) -> str:
    return sha256_of(token.encode())
