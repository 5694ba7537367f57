"""What programs keep while they run: checkpoints that the next attempt goes on from, and files as evidence (W6).

Bytes are durable before the record that names them. What is kept again because an answer was lost is kept once: the
key of its command follows from what it says.
"""

from __future__ import annotations

from typing import Any

from fencepost.core.commands import RecordArtifact, SaveCheckpoint
from fencepost.core.ids import sha256_of
from fencepost.core.records.common import ArtifactRef
from fencepost.ports.door import Answer
from fencepost.ports.workspace import OutputProblem
from fencepost.sdk import wire
from fencepost.services import requests as ask
from fencepost.services.desk import Desk, order_of, required
from fencepost.services.means import Means
from fencepost.services.payloads import STEPS, base_of, checked_base, require_chained, require_kind
from fencepost.services.requests import Declined


class Kept:
    """The part of a worker's sink that keeps bytes. The caller holds the desk's lock."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def checkpoint(self, desk: Desk, form: ask.Checkpoint, payload: bytes | None) -> Answer:
        data = payload or b""
        base = checked_base(form.kind, data)
        digest = sha256_of(data)
        order = order_of(self._means, desk)
        saved = order.checkpoints.get(form.kind)
        builds_on = order.checkpoint_number if form.builds_on is None else form.builds_on
        if saved is not None and saved.payload == digest and saved.number == order.checkpoint_number:
            with self._means.kernel.reader.look() as look:
                attempt = look.attempt(desk.attempt)
            own = attempt is not None and attempt.checkpoint == saved.envelope
            if own and form.builds_on in (None, saved.number - 1):
                # It was accepted, and the answer was lost.
                return Answer(reply=_checkpoint_reply(form.kind, saved.number, saved.envelope, digest, duplicate=True))
        if form.kind == STEPS:
            require_chained(self._means, desk, base, data, saved)
        stored = self._means.artifacts.put_bytes(data, classification=desk.spec.classification)
        command = SaveCheckpoint(
            attempt=desk.attempt,
            fence=desk.lease.fence,
            spec=desk.spec.spec,
            input_set=desk.input_set,
            kind=form.kind,  # type: ignore[arg-type]  # checked above
            builds_on=builds_on,
            payload=stored.digest,
            bytes=stored.bytes,
        )
        receipt = required(self._means, desk, command, key="checkpoint")
        if form.kind == STEPS:
            desk.chain = (digest, base)
        number, envelope = receipt.result["number"], receipt.result["checkpoint"]
        return Answer(reply=_checkpoint_reply(form.kind, number, envelope, digest, duplicate=not receipt.fresh))

    def resume(self, desk: Desk, form: ask.Resume, payload: bytes | None) -> Answer:
        require_kind(form.kind)
        order = order_of(self._means, desk)
        saved = order.checkpoints.get(form.kind)
        reply: dict[str, Any] = {"kind": form.kind, "count": order.checkpoint_number}
        if saved is None:
            if form.optional:
                return Answer(reply={**reply, "number": 0, "checkpoint": None, "digest": None}, payload=b"")
            raise Declined("no_checkpoint", f"the order has no checkpoint of kind {form.kind}")
        wanted = form.digest or saved.payload
        if wanted != saved.payload and (form.kind != STEPS or wanted not in desk.bases):
            raise Declined("no_checkpoint", "no payload that was served is based on this one", where="/digest")
        data = self._means.artifacts.read(wanted, wire.PAYLOAD_BYTES_MAX)
        if form.kind == STEPS:
            desk.bases.add(base_of(data))
        reply |= {"number": saved.number, "checkpoint": saved.envelope, "digest": wanted}
        return Answer(reply=reply, payload=data)

    def artifact(self, desk: Desk, form: ask.Artifact, payload: bytes | None) -> Answer:
        kept = self._means.workspaces.keep(
            desk.space, form.path, classification=desk.spec.classification, between=desk.go_on
        )
        if isinstance(kept, OutputProblem):
            outside = form.path.startswith("/") or ".." in form.path.split("/")
            is_folder = not outside and not form.path.strip("./")
            step = "name a file of the workspace, by its path from there" if outside else ""
            step = "name the files in it one by one, such as report.txt" if is_folder else step
            raise Declined(kept.code, f"{kept.path}: {kept.message}", where="/path", next_step=step)
        ref = ArtifactRef(path=kept.path, digest=kept.digest, bytes=kept.bytes, mode=int(kept.mode, 8))
        command = RecordArtifact(
            attempt=desk.attempt,
            fence=desk.lease.fence,
            spec=desk.spec.spec,
            input_set=desk.input_set,
            artifact=ref,
        )
        times = desk.times_kept(ref.path, ref.digest)
        before = desk.kept.get(ref.path)
        desk.kept[ref.path] = ref.digest, times
        try:
            fresh = required(self._means, desk, command, key=f"artifact:{times}").fresh
        except Declined:
            if before is None:
                del desk.kept[ref.path]
            else:
                desk.kept[ref.path] = before
            raise
        # `bytes` of a reply announces a payload, and this one has none.
        return Answer(reply={"path": ref.path, "digest": ref.digest, "size": ref.bytes, "duplicate": not fresh})


def _checkpoint_reply(kind: str, number: int, envelope: str, digest: str, *, duplicate: bool) -> dict[str, Any]:
    return {"kind": kind, "number": number, "checkpoint": envelope, "digest": digest, "duplicate": duplicate}
