"""The answer that a command key has had, without the command: authority is asked again, nothing is written.

A caller that repeats a request byte for byte gets its first answer from the writer. One that cannot make the same
bytes again, because they were made from files that have changed since, asks here.
"""

from __future__ import annotations

from fencepost.core.commands import Request
from fencepost.core.decide import Batch, Given
from fencepost.core.decide.authority import authorize
from fencepost.core.ids import IdSource
from fencepost.core.limits import Limits
from fencepost.core.reasons import Refusal
from fencepost.core.state import AUTHORITY, AuthorityState
from fencepost.kernel.identities import Asked
from fencepost.kernel.receipts import Receipt
from fencepost.kernel.rows import receipt_of
from fencepost.kernel.view import GroupView, Memory
from fencepost.ports.authority import Authority
from fencepost.ports.journal import Reads, Stream


def recall(
    reads: Reads, stream: Stream, authority: Authority, limits: Limits, request: Request, seed: bytes
) -> Receipt | None:
    """The first receipt of the request's key with `fresh` False, a refusal of its asker, or None for an unused key."""
    row = reads.command(stream, request.key)
    if row is None:
        return None
    sequence = reads.head(stream).seq
    view = GroupView(reads, stream, Memory())
    state = view.get(AUTHORITY)
    if not isinstance(state, AuthorityState):
        return Receipt(key=row.key, sequence=sequence, refusal=Refusal(code="scope_not_open"), fresh=False)
    asked = Asked(authority)
    identities = asked.identities(state)
    questions = asked.questions(identities, request)
    given = Given(IdSource(seed, 0), limits, questions.digests, questions.rulings, identities.prover)
    _, refusal = authorize(Batch(view, given, sequence + 1), request)
    if refusal is not None:
        return Receipt(key=row.key, sequence=sequence, refusal=refusal, fresh=False)
    return receipt_of(row)
