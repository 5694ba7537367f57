"""What a running program says of itself: checkpoints, files, charges and child orders (W5, W6, W17, W18).

All of it needs a live fence, but for charges: what was used was used, whoever's turn it is by now. A checkpoint builds
on the order's last one, so that of two that were made beside each other one is refused and none is lost.
"""

from __future__ import annotations

from fencepost.core.amounts import refuses
from fencepost.core.canonical import digest_of, encode
from fencepost.core.charges import booked, charge_problem, currencies, receipt_name
from fencepost.core.commands import ChargeUsage, OrderDraft, RecordArtifact, Request, SaveCheckpoint, SubmitChild
from fencepost.core.decide import ending
from fencepost.core.decide.admit import place
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.dispatch import fence_refusal, late, speaker
from fencepost.core.decide.drafts import draft_refusal, impossible, out_of_range
from fencepost.core.decide.holds import hold_for
from fencepost.core.decide.specs import Specs, policy_of
from fencepost.core.matching import passes_on
from fencepost.core.planfile.bounds import CURRENCIES_MAX
from fencepost.core.planfile.values import NAME_RULE
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import AttemptArtifact, CheckpointEnvelope
from fencepost.core.records.budget import UsageCharged
from fencepost.core.records.common import Amounts
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.shares import Shares, share
from fencepost.core.state import AttemptState, HoldState, OrderState, PlanState, ReceiptState, receipt_subject

_CLASSES = ("public", "internal", "private")  # rising
_EFFECTS = ("none", "declared", "opaque")
_PRIORITIES = ("low", "normal", "high")


def save_checkpoint(batch: Batch, command: SaveCheckpoint) -> Decided | Refusal:
    known = speaker(batch, command)
    if isinstance(known, Refusal):
        return known
    attempt, order = known
    refusal = _checkpoint_bounds(batch, order, command)
    if refusal is not None:
        return refusal
    if fence_refusal(batch, attempt, command.fence) is not None:
        return late(batch, attempt, command, "checkpoint")
    if command.builds_on != order.checkpoint_number:
        detail = {
            "subject": order.order,
            "found": str(order.checkpoint_number),
            "expected": str(command.builds_on),
        }
        return Refusal(code="checkpoint_moved", field="/builds_on", detail=detail)
    batch.emit(
        attempt.attempt,
        CheckpointEnvelope(
            order=order.order,
            spec=command.spec,
            fence=command.fence,
            input_set=command.input_set,
            number=command.builds_on + 1,
            builds_on=command.builds_on,
            payload_kind=command.kind,
            payload=command.payload,
            bytes=command.bytes,
            policy_context=policy_of(batch)[1],
            artifacts=command.artifacts,
        ),
    )
    after = ending.order_of(batch, order.order)
    return batch.decided(
        {
            "attempt": attempt.attempt,
            "number": after.checkpoint_number,
            "checkpoint": after.checkpoint,
            "lease_until_us": attempt.lease_us,
        }
    )


def _checkpoint_bounds(batch: Batch, order: OrderState, command: SaveCheckpoint) -> Refusal | None:
    limits = batch.given.limits
    for field, subject, amount, most in (
        ("/bytes", "the payload of a checkpoint", command.bytes, limits.checkpoint_bytes_max),
        (
            "/artifacts",
            "the number of its artifacts",
            len(command.artifacts),
            limits.artifacts_per_checkpoint_max,
        ),
        (
            "/builds_on",
            "the number of checkpoints",
            order.checkpoint_number + 1,
            limits.checkpoints_per_order_max,
        ),
    ):
        if amount > most:
            return Refusal(code="too_large", field=field, detail={"subject": subject, "bound": str(most)})
    return None


def record_artifact(batch: Batch, command: RecordArtifact) -> Decided | Refusal:
    known = speaker(batch, command)
    if isinstance(known, Refusal):
        return known
    attempt, order = known
    if fence_refusal(batch, attempt, command.fence) is not None:
        return late(batch, attempt, command, "artifact")
    most = batch.given.limits.artifacts_per_attempt_max
    if attempt.artifacts >= most:
        detail = {"subject": "the number of artifacts of an attempt", "bound": str(most)}
        return Refusal(code="too_large", field="/artifact", detail=detail)
    batch.emit(
        attempt.attempt,
        AttemptArtifact(
            order=order.order,
            spec=command.spec,
            fence=command.fence,
            input_set=command.input_set,
            artifact=command.artifact,
        ),
    )
    return batch.decided({"attempt": attempt.attempt, "digest": command.artifact.digest})


def charge(batch: Batch, command: ChargeUsage) -> Decided | Refusal:
    """Book a receipt once, as it is. Under a fence that is not live any more it is refused, and booked all the same."""
    known = speaker(batch, command)
    if isinstance(known, Refusal):
        return known
    attempt, order = known
    hold = ending.hold_of(batch, attempt)
    refusal = _charge_bounds(batch, command, hold)
    if refusal is not None:
        return refusal
    if command.fence != attempt.fence or not attempt.descriptor_seq:
        return Refusal(code="stale_fence", field="/fence", detail={"subject": attempt.attempt})
    stale = fence_refusal(batch, attempt, command.fence) is not None
    refused = Refusal(code="rejected_stale", field="/fence", detail={"subject": attempt.attempt}) if stale else None
    name = receipt_name(command.usage)
    booked_before = batch.find(receipt_subject(name), ReceiptState)
    if booked_before is not None:
        if booked_before.digest not in ("", digest_of(command.usage)):
            return Refusal(code="receipt_differs", field="/usage/receipt", detail={"subject": name})
        return refused or batch.decided(_charged(attempt, name, hold.held, {}, duplicate=True))
    most = batch.given.limits.charges_per_attempt_max
    if hold.charges >= most:
        detail = {"subject": "the number of receipts of an attempt", "bound": str(most)}
        return Refusal(code="too_large", field="/usage/receipt", detail=detail)
    charged, freed = booked(command.usage, hold.held)
    batch.emit(
        attempt.hold,
        UsageCharged(
            attempt=attempt.attempt,
            order=order.order,
            spec=command.spec,
            fence=command.fence,
            usage=command.usage,
            freed=freed,
            disposition="rejected_stale" if stale else "accepted",
        ),
    )
    over = {dimension: amount - freed.get(dimension, 0) for dimension, amount in charged.items()}
    left = ending.hold_of(batch, attempt).held
    told = _charged(attempt, name, left, over, duplicate=False)
    ceilings = [ending.account_of(batch, subject).ceiling for subject in order.accounts]
    said = sorted({*charged, *command.usage.unknown})
    told["refused"] = [each for each in said if any(refuses(ceiling, each) for ceiling in ceilings)]
    return batch.decided(told, refused)


def _charge_bounds(batch: Batch, command: ChargeUsage, hold: HoldState) -> Refusal | None:
    problem = charge_problem(command.usage)
    if problem is not None:
        field, subject, needed = problem
        return out_of_range(f"/usage/{field}", subject, needed)
    if currencies(hold.charged, hold.unknown, command.usage.amounts, command.usage.unknown) > CURRENCIES_MAX:
        detail = {"subject": "the number of currencies of an attempt", "bound": str(CURRENCIES_MAX)}
        return Refusal(code="too_large", field="/usage/amounts", detail=detail)
    most = batch.given.limits.receipt_name_bytes_max
    if len(encode(receipt_name(command.usage))) - 2 > most:
        detail = {"subject": "the name of a receipt", "bound": f"{most} bytes"}
        return Refusal(code="too_large", field="/usage/receipt", detail=detail)
    return None


def _charged(
    attempt: AttemptState, receipt: str, held: Amounts, over: Amounts, *, duplicate: bool
) -> dict[str, object]:
    own = ("attempts", ending.TIME)
    return {
        "attempt": attempt.attempt,
        "receipt": receipt,
        "duplicate": duplicate,
        "left": {name: amount for name, amount in sorted(held.items()) if name not in own},
        "over": {name: amount for name, amount in sorted(over.items()) if amount},
        "refused": [],
    }


def submit_child(batch: Batch, request: Request, command: SubmitChild) -> Decided | Refusal:
    """Place an order inside a running one. What is there already under its name is found, if it is the same work."""
    known = speaker(batch, command)
    if isinstance(known, Refusal):
        return known
    attempt, parent = known
    if fence_refusal(batch, attempt, command.fence) is not None:
        return late(batch, attempt, command, "child")
    refusal = ending.plan_refusal(batch, parent) or _child_bounds(batch, parent, command)
    if refusal is not None:
        return refusal
    draft = command.order
    refusal = draft_refusal(draft, batch.given.limits, "/order")
    if refusal is not None:
        return refusal
    plan = batch.find(parent.plan, PlanState) if parent.plan is not None else None
    position = 0 if plan is None else plan.orders
    writer = Specs(batch, request, parent.plan)
    if draft.task in parent.children:
        found = ending.order_of(batch, parent.children[draft.task])
        if not _is_same_work(draft, found, writer.child(draft, position, found.order, _hold_of(found), parent)):
            detail = {"subject": parent.task, "member": draft.task}
            return Refusal(code="child_changed", field="/order", detail=detail)
        return batch.decided({"order": found.order, "task": found.task, "fresh": False})
    above = [(subject, ending.account_of(batch, subject).ceiling) for subject in reversed(parent.accounts)]
    hold = hold_for(draft, _parts(batch, parent), 1)
    refusal = impossible(draft, hold, above, "/order")
    if refusal is not None:
        return refusal
    name = batch.name("order")
    body = writer.child(draft, position, name, hold, parent)
    batch.emit(name, body)
    place(batch, name)
    return batch.decided({"order": name, "task": body.task, "fresh": True})


def _parts(batch: Batch, parent: OrderState) -> dict[str, int]:
    """Of each dimension that something above a child limits, one attempt's part: the nearest level that names it shares
    its ceiling by its own attempts."""
    parts: dict[str, int] = {}
    for subject in parent.accounts[1:]:
        value = batch.get(subject)
        ceilings = ending.account_of(batch, subject).ceiling
        attempts = ceilings.get("attempts", value.orders if isinstance(value, PlanState) else 1)
        parts |= {name: share(ceiling, attempts) for name, ceiling in ceilings.items()}
    return parts


def _hold_of(order: OrderState) -> Shares:
    return Shares(order.terms.hold, order.terms.hold_least)


def _is_same_work(draft: OrderDraft, found: OrderState, asked: WorkOrderSpec) -> bool:
    """Whether a draft asks for what its name stands for. Its shares were written down when it was first asked for:
    ceilings that a person has set since make no other work of it. Those that it declares are its own words."""
    declared = draft.per_attempt.items()
    return asked.contract == found.contract and all(found.terms.hold.get(name) == amount for name, amount in declared)


def _more_than(parent: WorkOrderSpec, draft: OrderDraft) -> tuple[str, str] | None:
    """(field, what it asks for) where a child asks for more than its parent has; None where it does not."""
    if _CLASSES.index(draft.classification) < _CLASSES.index(parent.classification):
        return "classification", f"{draft.classification}, below {parent.classification}"
    for name in draft.environment:
        if not passes_on(parent.environment, name):
            return "environment", f"the variable {name}"
    for operation in draft.may:
        if operation not in parent.may:
            return "may", operation
    if _EFFECTS.index(draft.effects) > _EFFECTS.index(parent.effects):
        return "effects", f"effects {draft.effects}"
    if _PRIORITIES.index(draft.priority) > _PRIORITIES.index(parent.priority):
        return "priority", f"priority {draft.priority}"
    return None


def _child_bounds(batch: Batch, parent: OrderState, command: SubmitChild) -> Refusal | None:
    limits = batch.given.limits
    draft = command.order
    if NAME_RULE.fullmatch(draft.task) is None:
        return out_of_range("/order/task", "the name of a child", "[a-z][a-z0-9-]{0,62}")
    if draft.handed:
        return out_of_range("/order/handed", "handed files", "part of a plan")
    for member in (member for group in draft.groups for member in group.members):
        if member.order or member.task not in parent.children or member.task == draft.task:
            detail = {"subject": draft.task, "member": member.task or member.order}
            return Refusal(code="dependency_missing", field="/order/groups", detail=detail)
    more = _more_than(batch.body(parent.spec_seq, WorkOrderSpec), draft)
    if more is not None:
        field, what = more
        return Refusal(code="child_exceeds", field=f"/order/{field}", detail={"subject": draft.task, "what": what})
    if draft.task in parent.children:
        return None
    depth = 1
    ancestor = parent
    while ancestor.parent is not None:
        depth += 1
        ancestor = ending.order_of(batch, ancestor.parent)
    plan = batch.find(parent.plan, PlanState) if parent.plan is not None else None
    for subject, count, most in (
        ("the number of children of an order", len(parent.children) + 1, limits.children_max),
        ("the number of orders above a child", depth, limits.children_depth_max),
        ("the number of orders of a plan", 0 if plan is None else plan.orders + 1, 2 * limits.plan_orders_max),
    ):
        if count > most:
            return Refusal(code="too_large", field="/order", detail={"subject": subject, "bound": str(most)})
    return None
