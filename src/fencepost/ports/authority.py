"""The authority port: one question, one decision; and the keys that principals, grants and checkpoints stand
on.

Three inputs to every mutation stay apart: who is authenticated (a key of the keyring), what policy permits
(this decision), and which grant was handed out (`core.grants`). None replaces another (W23).

Rules that every implementation keeps:
- **Pure.** A decision is a function of the constitution, the vocabulary, the principal, the action, the
  resource *kind* and the named attributes. Never of ids of resources, time, earlier decisions or the process
  that asks. So it is recorded once, and named by digest from then on.
- **Closed.** What is not permitted is denied: unknown principals, actions and attributes, a missing decision,
  and any error during evaluation, even one in a policy that would not have mattered.
- **Explained.** Every decision names the rule that made it and a reason code.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from fencepost.core.canonical import digest_of
from fencepost.ports.errors import FencepostError, IntegrityError


class KeyDamaged(IntegrityError):
    """A key that was used before is missing or is not what it was. It is never replaced silently."""

    code = "key_damaged"


class KeysExposed(FencepostError):
    """The keys folder or a key can be read by others, or belongs to somebody else."""

    code = "keys_exposed"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May this principal do this to a resource of this kind? Kinds and attribute names: `core.vocabulary`."""

    principal_id: str
    principal_kind: str
    principal_name: str
    action: str
    """The verb alone, such as `cancel_work`."""
    resource_kind: str
    attributes: dict[str, str] = {}
    """At most the names in `core.vocabulary.ATTRIBUTES`."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, complete enough to be recorded and checked again years later."""

    allow: bool
    rule: str
    """Id of the policy that decided (the first by name if several agree), or one of the vocabulary's own
    rules."""
    reason: str
    """Reason code: `permitted`, or why not."""
    constitution_version: int
    constitution_digest: str
    vocabulary_digest: str
    question_digest: str


class Constitution(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that decide, and what they are pinned by."""

    version: int
    text_digest: str
    """SHA-256 of the policies' bytes (UTF-8)."""
    vocabulary_digest: str
    """SHA-256 of the schema's bytes (UTF-8)."""
    texts: dict[str, str]
    """File name to text: `constitution.cedar` and `vocabulary.cedarschema`."""


class Authority(Protocol):
    """Decides by one constitution. Safe to use from several threads."""

    @property
    def constitution(self) -> Constitution:
        """The constitution in force; cheap, loads no policy engine."""
        ...

    def decide(self, question: Question) -> Decision:
        """Decide. Never raises for a question or a policy that cannot be evaluated: those are denied.

        A question with text that has no canonical form could not be recorded and raises `Undecodable`.
        """
        ...


class Keyring(Protocol):
    """The store's secrets. Only the kernel's side of the trust boundary has one; an executor never does."""

    def public_key(self, name: str) -> bytes:
        """Ed25519 public key (32 bytes) of a principal, or of the checkpoint signer (`CHECKPOINT_SIGNER`)."""
        ...

    def sign(self, name: str, message: bytes) -> bytes:
        """Ed25519 signature (64 bytes) under the key of that name."""
        ...

    def check(self) -> None:
        """Raise `KeyDamaged` or `KeysExposed` unless every key of a store in use is there, whole, and the user's own.
        Makes none.
        """
        ...

    def grant_root(self, *, scope: str, epoch: int) -> bytes:
        """Root key (32 bytes) of the grants of one scope and epoch; another epoch has another, which voids
        the grants of earlier ones."""
        ...


CHECKPOINT_SIGNER = "checkpoint"
"""Name of the key that signs checkpoints of the journal into the safety ledger."""


def question_digest(question: Question) -> str:
    """Digest under which a decision on this question is recorded and cached."""
    return digest_of(question)
