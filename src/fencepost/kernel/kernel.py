"""The kernel of one scope: the writer, the reader, and the anchors that it leaves outside the store.

It is handed everything it uses. Whoever holds one *is* the kernel; executors never do.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.core.anchor import Checkpoint
from fencepost.core.chain import Link
from fencepost.core.commands import AnyCommand, GrantDraft, OpenScope, PrincipalDraft, Reading, Request
from fencepost.core.grants import Caveat, GrantRefusal, chain_digest, issue, verify
from fencepost.core.ids import IdSource
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.core.schemas import registry_digest
from fencepost.core.state import FOLD_VERSION
from fencepost.core.vocabulary import ACTIONS, HUMAN_PRINCIPAL, SERVICE_PRINCIPALS
from fencepost.kernel import replay
from fencepost.kernel.examine import authority_problems as examine
from fencepost.kernel.group import Witness
from fencepost.kernel.identities import Identities, Identity
from fencepost.kernel.read import Reader
from fencepost.kernel.recall import recall
from fencepost.kernel.receipts import Receipt
from fencepost.kernel.rows import REBUILD, other_fold
from fencepost.kernel.tickets import Seeds
from fencepost.kernel.write import Writer
from fencepost.ports.authority import CHECKPOINT_SIGNER, Authority, Keyring
from fencepost.ports.clock import Clock
from fencepost.ports.entropy import Entropy
from fencepost.ports.errors import FencepostError, IntegrityError
from fencepost.ports.journal import Head, Journal, Stream
from fencepost.ports.ledger import SafetyLedger
from fencepost.ports.threads import Threads
from fencepost.ports.wakeups import Wakeups

STREAM = "main"


class Kernel:
    """One scope of one store, open for reading and writing. Safe for use from any thread."""

    def __init__(
        self,
        *,
        journal: Journal,
        scope: str,
        clock: Clock,
        entropy: Entropy,
        authority: Authority,
        keyring: Keyring,
        ledger: SafetyLedger,
        wakeups: Wakeups,
        threads: Threads,
        limits: Limits = FIRST_VALUES,
        witness: Witness | None = None,
    ) -> None:
        """`witness` is told of every decision before it is durable; for whoever watches a kernel from outside."""
        broken = limits.check()
        if broken:
            raise ValueError(f"these limits contradict each other: {'; '.join(broken)}")
        self.journal = journal
        self.stream = Stream(scope, STREAM)
        self.clock = clock
        self.entropy = entropy
        self.limits = limits
        self.wakeups = wakeups
        self.keyring = keyring
        self.ledger = ledger
        self._authority = authority
        self.reader = Reader(journal, self.stream)
        self._seeds = Seeds(entropy)
        self._writer = Writer(
            journal,
            self.stream,
            clock,
            self._seeds,
            authority,
            limits,
            threads=threads,
            committed=self._committed,
            witness=witness,
        )
        self._identities: Identities | None = None
        self._anchor_lock = threads.lock()
        self._anchored = 0
        self._wrote = False
        self._closed = False
        self._keys_seen = False
        self.opened_at = 0
        """Sequence number of the last record when this kernel opened the scope; 0 for one that it has made."""
        self.anchor_problem: str | None = None

    @property
    def scope(self) -> str:
        return self.stream.scope

    def open(self) -> None:
        """Make the scope if it is new; rebuild caches that an older fold left. Idempotent, also for several at once.

        No cached row is read, so that a store with a damaged one still opens, and can be examined and mended.
        """
        with self.journal.snapshot() as reads:
            head = reads.head(self.stream)
        mismatch = other_fold(head)
        if mismatch is not None:
            if head.fold_version > FOLD_VERSION:
                raise mismatch
            replay.rebuild(self.journal, self.stream)
        self._anchored = self.opened_at = head.seq
        if not head.seq:
            receipt = self._writer.write(self._genesis())
            if receipt.refusal is not None and receipt.refusal.code not in ("scope_open", "operation_collision"):
                receipt.required()

    def _genesis(self) -> Request:
        """The first command: constitution, principals with their keys, one grant each, and the first reading."""
        now = self.clock.read()
        ids = IdSource(self.entropy.seed(), now.utc_us)
        constitution = self._authority.constitution
        kinds = {HUMAN_PRINCIPAL: "human", **SERVICE_PRINCIPALS}
        pairs = tuple(sorted(action.pair for action in ACTIONS))
        root = self.keyring.grant_root(scope=self.scope, epoch=0)
        self.keyring.public_key(CHECKPOINT_SIGNER)  # the last moment at which a key may be made
        principals = []
        grants = []
        for name, kind in kinds.items():
            principal = ids.next("principal")
            grant = ids.next("grant")
            operations = pairs if kind == "human" else _operations_of(name)
            token = issue(root, grant, (Caveat(audience=principal, operations=operations),))
            permits = verify(root, token)
            if isinstance(permits, GrantRefusal) or (permits.audience, permits.operations) != (principal, operations):
                raise FencepostError(f"the grant of {name} does not permit what it was issued for")
            principals.append(
                PrincipalDraft(
                    principal=principal,
                    kind=kind,  # type: ignore[arg-type]  # the vocabulary's kinds are the records' kinds
                    name=name,
                    public_key=self.keyring.public_key(name).hex(),
                    assurance="session" if kind == "human" else "service",
                )
            )
            grants.append(GrantDraft(grant=grant, chain=chain_digest(token), audience=principal, operations=operations))
        command = OpenScope(
            scope=self.scope,
            store_id=self.journal.info.store_id,
            schema_registry=registry_digest(),
            constitution_version=constitution.version,
            constitution=constitution.text_digest,
            vocabulary=constitution.vocabulary_digest,
            policies=constitution.texts["constitution.cedar"],
            schema=constitution.texts["vocabulary.cedarschema"],
            principals=tuple(principals),
            grants=tuple(grants),
            reading=Reading(
                source=now.source,
                boot_id=now.boot_id,
                utc_us=now.utc_us,
                tick_us=now.tick_us,
                uncertainty_us=now.uncertainty_us,
            ),
        )
        human = principals[0]
        return Request(
            command=command,
            key=f"open:{self.scope}",
            principal=human.principal,
            grant=grants[0].chain,
            assurance="session",
        )

    def identity(self, name: str) -> Identity:
        """A principal of this scope by name. Raises FencepostError when the scope is not open or has none such."""
        if self._identities is None:
            with self.reader.look() as look:
                state = look.authority()
            if state is None and look.head.seq:
                raise IntegrityError("the cached row of authority is missing", next_step=REBUILD)
            if state is None:
                raise FencepostError(f"scope {self.scope} has not been opened", next_step="fencepost init")
            self._identities = Identities(state)
        try:
            return self._identities.named(name)
        except KeyError:
            raise FencepostError(f"{name} is not enrolled in scope {self.scope}") from None

    def request(self, name: str, command: AnyCommand, key: str | None = None) -> Request:
        """A request of one of the scope's own principals; without a key, a fresh one."""
        identity = self.identity(name)
        # Fresh keys begin with the time: they stand side by side in the store's index of keys.
        fresh = f"k:{self.clock.read().utc_us:014x}{self._seeds.next().hex()}" if key is None else key
        return Request(
            command=command,
            key=fresh,
            principal=identity.principal,
            grant=identity.grant,
            assurance=identity.assurance,  # type: ignore[arg-type]  # enrolled assurances are the registered ones
        )

    def _require_keys(self) -> None:
        """Nothing is written that could not be signed for: keys that are lost are an error at the first write."""
        if not self._keys_seen:
            self.keyring.check()
            self._keys_seen = True

    def write(self, request: Request) -> Receipt:
        self._require_keys()
        return self._writer.write(request)

    def write_many(self, requests: Sequence[Request]) -> list[Receipt]:
        self._require_keys()
        return self._writer.write_many(requests)

    async def write_async(self, request: Request) -> Receipt:
        self._require_keys()
        return await self._writer.write_async(request)

    def _committed(self, head: Head) -> None:
        self._wrote = True
        self.wakeups.notify()
        if head.seq - self._anchored >= self.limits.checkpoint_interval_records:
            self._try_anchor(head)

    def _try_anchor(self, head: Head | None = None) -> None:
        """What was committed stays committed when no anchor can be left; `anchor_problem` says so until one is."""
        try:
            self.anchor(head)
        except Exception as error:
            self.anchor_problem = f"{type(error).__name__}: {error}"
        else:
            self.anchor_problem = None

    def anchor(self, head: Head | None = None) -> None:
        """Sign the stream's head into the safety ledger."""
        if head is None:
            with self.journal.snapshot() as reads:
                head = reads.head(self.stream)
        with self._anchor_lock:
            if head.seq <= self._anchored:
                return
            self.ledger.append(
                Checkpoint(
                    store_id=self.journal.info.store_id,
                    scope=self.stream.scope,
                    stream=self.stream.name,
                    epoch=head.epoch,
                    sequence=head.seq,
                    digest=head.digest,
                    signed_utc_us=self.clock.read().utc_us,
                )
            )
            self._anchored = head.seq

    def recall(self, request: Request) -> Receipt | None:
        """The answer that the request's key has had, for whoever may still ask its command; None for an unused key.

        The command itself is not compared: a caller that cannot make it again compares what the answer says.
        """
        with self.journal.snapshot() as reads:
            return recall(reads, self.stream, self._authority, self.limits, request, self._seeds.next())

    def authority_problems(self) -> list[str]:
        """What keeps the scope's own principals from acting, none where all is well (see `kernel.examine`)."""
        with self.reader.look() as look:
            state = look.authority()
        return ["the scope has no constitution"] if state is None else examine(state, self._authority, self.keyring)

    def verify(self, anchor: Link | None = None) -> replay.Verified:
        """Check chain and signed anchors, and that the chain has `anchor`, which the caller kept elsewhere."""
        key = self.keyring.public_key(CHECKPOINT_SIGNER)
        return replay.verify(self.journal, self.stream, self.ledger, key, anchor)

    def replay_to(self, sequence: int) -> replay.Replayed:
        """Fold the records up to `sequence` in memory. Raises IntegrityError."""
        with self.journal.snapshot() as reads:
            return replay.fold(reads, self.stream, sequence)

    def compare(self) -> replay.Compared:
        """Fold every record and compare each cached row with what comes out. Raises IntegrityError."""
        return replay.compare(self.journal, self.stream)

    def rebuild(self) -> replay.Replayed:
        """Fold the journal again and put the result in the place of every cached row."""
        replayed = replay.rebuild(self.journal, self.stream)
        self._writer.forget()
        return replayed

    def close(self) -> None:
        """Drain the writer, leave an anchor if this kernel has written, release the store. Twice is once.

        Whoever has only read vouches for nothing: the store may be a copy, or behind what was signed.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._writer.close()
            if self._wrote:
                self._try_anchor()
        finally:
            self.wakeups.close()
            self.journal.close()


def _operations_of(name: str) -> tuple[str, ...]:
    """What a service's grant names: exactly the commands that its part of the system issues (W12)."""
    return tuple(sorted(SERVICE_OPERATIONS[name]))


SERVICE_OPERATIONS: dict[str, frozenset[str]] = {
    "scheduler": frozenset({"propagate_readiness/work_order"}),
    "dispatcher": frozenset(
        {
            "enrol_worker/worker",
            "reserve_attempt/work_order",
            "activate_attempt/attempt",
            "renew_lease/attempt",
            "expire_attempt/attempt",
            "prove_holder_gone/attempt",
        }
    ),
    "sampler": frozenset({"sample_clock/clock_domain"}),
    "prover": frozenset({"prove_clock_deadline/clock_domain"}),
    "executor": frozenset(
        {
            "append_event/attempt",
            "save_checkpoint/attempt",
            "charge_usage/attempt",
            "submit_child/attempt",
            "report_result/attempt",
        }
    ),
    "verifier": frozenset({"record_verification/attempt"}),
    "reducer": frozenset(
        {
            "apply_result/work_order",
            "propagate_readiness/work_order",
            "reexamine_work/work_order",
            "enforce_deadline/plan",
        }
    ),
}
