"""Plans and orders as they are submitted: what is refused, what is written down, and where each order stands first.

A spec is predicted whole. Its contract digest is the one thing that is taken from the record: two orders have the same
one exactly when the same work is written down, whatever its ids are, and that is what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from fencepost.testing.simulator.model_budgets import first_shares, foreign_currency
from fencepost.testing.simulator.model_canonical import canonical, digest_of, digest_of_bytes
from fencepost.testing.simulator.model_files import covered, readable
from fencepost.testing.simulator.model_moves import observe, settle_readiness, tell
from fencepost.testing.simulator.model_revise import ceilings_are_wrong
from fencepost.testing.simulator.model_state import (
    CHILD,
    ENDED,
    PARENT,
    SCOPE,
    Account,
    Group,
    Mismatch,
    Name,
    Order,
    Outcome,
    Plan,
    Refused,
    World,
)

WORK_KINDS = frozenset({"command/1", "python/1"})
RETRYABLE = frozenset({"transient_dependency", "executor", "validation"})
POLICIES = {
    "cancellation": "fence_at_once",
    "checkpoint": "resume_last",
    "reconciliation": "human",
    "retention": "plan",
    "projection": "local",
}
Shares = tuple[dict[str, int], dict[str, int]]


def submit_plan(world: World, command: Mapping[str, Any]) -> Outcome:
    name = world.names.get(command["name"])
    if name is not None:
        known = _known(world, name, command)
        if known is not None:
            return known
    code = _bounds(world, command)
    if code:
        return Refused(code)
    line = _sorted(command["orders"])
    if isinstance(line, str):
        return Refused(line)
    shares = _shares(world, command)
    if isinstance(shares, str):
        return Refused(shares)
    return _write_plan(world, command, line, shares)


def _known(world: World, name: Name, command: Mapping[str, Any]) -> Outcome | None:
    """The open plan of this content, else the newest open one, else the newest: continued, refused or left alone."""
    content, mode = command["content"], command["mode"]
    same = [plan for _, plan, its in name.open_plans if its == content]
    meant = world.plans[same[-1] if same else name.open_plans[-1][1] if name.open_plans else name.newest]
    if mode != "new":
        if meant.open and meant.content != content:
            return Refused("plan_changed")
        if meant.content == content and (meant.open or mode == "continue"):
            return _told(meant, fresh=False)
    return Refused("too_large") if len(name.open_plans) >= world.limits["name_open_plans_max"] else None


def _told(plan: Plan, *, fresh: bool) -> dict[str, Any]:
    return {"plan": plan.plan, "name": plan.name, "content": plan.content, "revision": 1, "fresh": fresh}


def _bounds(world: World, command: Mapping[str, Any]) -> str:
    orders, limits = command["orders"], world.limits
    if not orders:
        return "out_of_range"
    edges = sum(len(group["members"]) for draft in orders for group in draft.get("groups", ()))
    if len(orders) > limits["plan_orders_max"] or edges > limits["plan_edges_max"]:
        return "too_large"
    wrong = (
        len({draft["task"] for draft in orders}) != len(orders)
        or any("." in draft["task"] for draft in orders)
        or (command.get("deadline_us") or 0) > limits["duration_max_us"]
        or ceilings_are_wrong(command.get("ceilings", {}))
    )
    return "out_of_range" if wrong else ""


def _sorted(orders: Sequence[Mapping[str, Any]]) -> list[int] | str:
    """Places so that each order stands after those it needs, the first written first; or the code of a refusal."""
    places = {draft["task"]: place for place, draft in enumerate(orders)}
    needs: list[set[int]] = []
    for draft in orders:
        tasks = [member.get("task", "") for group in draft.get("groups", ()) for member in group["members"]]
        handed = [source["task"] for source in draft.get("handed", ())]
        if any(task not in places for task in tasks) or any(task not in tasks for task in handed):
            return "dependency_missing"
        needs.append({places[task] for task in tasks})
    waiters: list[list[int]] = [[] for _ in orders]
    for place, needed in enumerate(needs):
        for other in needed:
            waiters[other].append(place)
    free = [place for place, needed in enumerate(needs) if not needed]
    heapify(free)
    line = []
    while free:
        place = heappop(free)
        line.append(place)
        for waiter in waiters[place]:
            needs[waiter].discard(place)
            if not needs[waiter]:
                heappush(free, waiter)
    return line if len(line) == len(orders) else "dependency_cycle"


def _shares(world: World, command: Mapping[str, Any]) -> list[Shares] | str:
    orders = command["orders"]
    ceilings = command.get("ceilings", {})
    attempts = ceilings.get("attempts") or sum(draft.get("ceilings", {}).get("attempts", 1) for draft in orders)
    outputs = {draft["task"]: tuple(draft.get("outputs", ())) for draft in orders}
    found = []
    for draft in orders:
        code = draft_refusal(world, draft)
        for source in draft.get("handed", ()):
            inside = all(covered(outputs[source["task"]], text) for text in source["files"])
            code = code or ("" if inside else "incompatible_output")
        shares = shares_for(draft, ceilings, attempts)
        code = code or impossible(draft, shares, (ceilings, world.accounts[SCOPE].ceiling))
        if code:
            return code
        found.append(shares)
    must = sum(not draft.get("may_fail", False) for draft in orders)
    return "impossible_budget" if ceilings.get("attempts", must) < must else found


def shares_for(draft: Mapping[str, Any], plan: Mapping[str, int], attempts: int) -> Shares:
    """One attempt, its time limit (or less, where nobody wrote one down), and its shares of all that is limited."""
    asks, least = first_shares(draft.get("per_attempt", {}), draft.get("ceilings", {}), plan, attempts)
    limit_us = draft["attempt_time_us"]
    least_us = min(draft.get("attempt_time_least_us", 0), limit_us) or limit_us
    return {"attempts": 1, "time_us": limit_us, **asks}, {"attempts": 1, "time_us": least_us, **least}


def _program_is_wrong(draft: Mapping[str, Any]) -> bool:
    """A callable stands where one is asked for, and nowhere else."""
    has_callable = draft.get("python") is not None
    return has_callable != (draft["work_kind"] == "python/1") or (has_callable and bool(draft.get("run")))


def draft_refusal(world: World, draft: Mapping[str, Any]) -> str:
    """What can be told from one draft alone, "" if nothing."""
    if draft["work_kind"] not in WORK_KINDS:
        return "executor_unsupported"
    declared = draft.get("per_attempt", {})
    groups = draft.get("groups", ())
    retry = draft.get("retry")
    accept = draft["accept"]
    outputs = tuple(draft.get("outputs", ()))
    wanted = [*accept.get("files", ()), *accept.get("schemas", {})]
    handed = [text for source in draft.get("handed", ()) for text in source["files"]]
    wrong = (
        _program_is_wrong(draft)
        or not declared.keys().isdisjoint(("attempts", "time_us"))
        or draft["attempt_time_us"] > world.limits["duration_max_us"]
        or not all(group["members"] and all(each["outcomes"] for each in group["members"]) for group in groups)
        or ceilings_are_wrong(draft.get("ceilings", {}))
        or ceilings_are_wrong(declared)
        or (retry is not None and _retry_is_wrong(world, retry))
        or not all(map(readable, (*outputs, *wanted, *handed)))
    )
    if wrong:
        return "out_of_range"
    return "" if all(covered(outputs, text) for text in wanted) else "incompatible_output"


def _retry_is_wrong(world: World, retry: Mapping[str, Any]) -> bool:
    ordered = retry["backoff_us"] <= retry["backoff_max_us"] <= world.limits["backoff_max_us"]
    return not retry["on"] or not RETRYABLE.issuperset(retry["on"]) or not ordered


def impossible(draft: Mapping[str, Any], shares: Shares, above: Sequence[Mapping[str, int]]) -> str:
    """What could not start even if nothing else ran, "" if it could."""
    asks, least = shares
    own = draft.get("ceilings", {})
    for level in (own, *above):
        if any(amount > level.get(name, amount) for name, amount in least.items()):
            return "impossible_budget"
        if foreign_currency(level, asks):
            return "currency_not_budgeted"
    past = any(ceiling > level.get(name, ceiling) for level in above for name, ceiling in own.items())
    return "impossible_budget" if past else ""


def _write_plan(world: World, command: Mapping[str, Any], line: Sequence[int], shares: Sequence[Shares]) -> Outcome:
    record = world.next_record("plan_revision")
    drafts = command["orders"]
    tasks = record["body"]["tasks"]
    if [task["name"] for task in tasks] != [draft["task"] for draft in drafts]:
        raise Mismatch("the revision's tasks are not those that were submitted")
    names = {task["name"]: world.adopt(task["order"], "order") for task in tasks}
    if len(set(names.values())) != len(names):
        raise Mismatch("two orders of one plan have one id")
    plan = world.adopt(record["subject"], "plan")
    deadline_us = command.get("deadline_us")
    ends_us = None if deadline_us is None else world.now_us + deadline_us
    body = {key: command[key] for key in ("name", "content", "objective", "recovery")}
    body |= {"plan": plan, "revision": 1, "ceilings": command.get("ceilings", {}), "tasks": tasks}
    if ends_us is not None:
        body["deadline_us"] = ends_us
    if command.get("predecessor"):
        body["predecessor"] = command["predecessor"]
    if command.get("provenance"):
        body["provenance"] = command["provenance"]
    seq = world.expect("plan_revision", plan, body, f"name:{command['name']}")
    world.plans[plan] = Plan(plan, command["name"], command["content"], seq, ends_us)
    world.plans[plan].orders = [task["order"] for task in tasks]
    world.accounts[plan] = Account(dict(command.get("ceilings", {})))
    name = world.names.setdefault(command["name"], Name(plan))
    name.newest = plan
    name.open_plans.append((seq, plan, command["content"]))
    contracts = {task["order"]: task["contract"] for task in tasks}
    for place in line:
        spec = spec_body(world, drafts[place], place, names, plan, shares[place], contracts)
        order = write_order(world, spec)
        settle_readiness(world, order, plan)
    return _told(world.plans[plan], fresh=True)


def submit_order(world: World, command: Mapping[str, Any]) -> Outcome:
    draft = command["order"]
    members = [each.get("order", "") for group in draft.get("groups", ()) for each in group["members"]]
    if any(name not in world.orders for name in members):
        return Refused("dependency_missing")
    if draft.get("handed"):
        return Refused("out_of_range")
    shares = shares_for(draft, {}, draft.get("ceilings", {}).get("attempts", 1))
    code = draft_refusal(world, draft) or impossible(draft, shares, (world.accounts[SCOPE].ceiling,))
    if code:
        return Refused(code)
    record = world.next_record("work_order_spec")
    names = {draft["task"]: world.adopt(record["subject"], "order")}
    contracts = {record["subject"]: record["body"]["contract"]}
    order = write_order(world, spec_body(world, draft, 0, names, "", shares, contracts))
    place_order(world, order)
    return {"order": order.order, "version": world.versions[order.order]}


def spec_body(
    world: World,
    draft: Mapping[str, Any],
    position: int,
    names: Mapping[str, str],
    plan: str,
    shares: Shares,
    contracts: Mapping[str, str],
    *,
    parent: Order | None = None,
) -> dict[str, Any]:
    """The whole spec of a draft, named by the work that it is and sealed."""
    body = drafted(world, draft, position, names, plan, shares, contracts, parent=parent)
    text = work_of(world, body, draft, contracts)
    digest = body["contract"]
    if world.works.setdefault(text, digest) != digest or world.contracts.setdefault(digest, text) != text:
        raise Mismatch(f"the contract digest of {body['order']} does not name its work alone")
    body["spec"] = digest_of(body)
    return body


def drafted(
    world: World,
    draft: Mapping[str, Any],
    position: int,
    names: Mapping[str, str],
    plan: str,
    shares: Shares,
    contracts: Mapping[str, str],
    *,
    parent: Order | None = None,
) -> dict[str, Any]:
    """A spec that is not sealed. `names` are the orders of its plan by task, or its siblings by their names within
    their `parent`; `contracts` are the digests of those that are not written down yet."""
    order = names[draft["task"]]
    handed = [{"order": names[source["task"]], "files": source["files"]} for source in draft.get("handed", ())]
    groups = _groups(world, draft, names if plan or parent else {}, contracts)
    body: dict[str, Any] = {
        key: draft[key]
        for key in ("task", "work_kind", "priority", "classification", "effects", "attempt_time_us", "accept")
    }
    body |= {key: draft.get(key, []) for key in ("run", "environment", "outputs")}
    body |= {key: draft[key] for key in ("may", "retry", "may_fail", "params", "python") if draft.get(key)}
    contract = _contract_of(world, contracts, order)
    body |= {
        "order": order,
        "schema_version": 1,
        "position": position,
        "lineage": order,
        "submitter": world.request["principal"],
        "contract": contract,
        "spec": contract,
        "organization_epoch": 0,
        "repository": "none",
        "constitution_version": world.constitution["version"],
        "policy_context": policy_context(world),
        "inputs": _inputs(draft, handed),
        "ceilings": draft.get("ceilings", {}),
        "hold": shares[0],
        "hold_least": shares[1],
        "recovery": "replace",
        "policies": POLICIES,
        "output_kind": "files/1",
        "accounts": [SCOPE, plan, order] if plan else [SCOPE, order],
    }
    if groups:
        body["groups"] = groups
    if plan:
        body["plan"] = plan
        body["plan_revision"] = 1
    if parent is not None:
        body["task"] = f"{parent.spec['task']}.{draft['task']}"
        body["parent"] = parent.order
        body["accounts"] = [*parent.accounts, order]
    return body


def _contract_of(world: World, contracts: Mapping[str, str], order: str) -> str:
    return contracts[order] if order in contracts else str(world.orders[order].spec["contract"])


def _groups(
    world: World, draft: Mapping[str, Any], names: Mapping[str, str], contracts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A draft's groups with orders in the place of tasks."""
    groups = []
    for group in draft.get("groups", ()):
        members = []
        for member in group["members"]:
            name = names[member["task"]] if names else member["order"]
            outcomes = sorted(set(member["outcomes"]))
            members.append({"order": name, "contract": _contract_of(world, contracts, name), "outcomes": outcomes})
        groups.append({"kind": group["kind"], "members": members})
    return groups


def _inputs(draft: Mapping[str, Any], handed: list[dict[str, Any]]) -> dict[str, Any]:
    """What an attempt may read; nothing that is empty is written down."""
    inputs = {"manifest": draft.get("manifest"), "orders": handed}
    inputs |= {"files": draft.get("manifest_files"), "bytes": draft.get("manifest_bytes")}
    digest = draft.get("manifest") or digest_of_bytes(b"None")
    return {"digest": digest, **{key: value for key, value in inputs.items() if value}}


def policy_context(world: World) -> str:
    text = f"{world.constitution['constitution']}|{world.constitution['vocabulary']}"
    return digest_of_bytes(text.encode())


_OF_THE_WORK = [
    "work_kind",
    "run",
    "environment",
    "outputs",
    "attempt_time_us",
    "ceilings",
    "hold",
    "accept",
    "effects",
    "may",
    "retry",
    "may_fail",
    "priority",
    "classification",
    "params",
    "python",
]


def work_of(world: World, body: Mapping[str, Any], draft: Mapping[str, Any], contracts: Mapping[str, str]) -> bytes:
    """What is to be done, whatever the ids are that it is written down with."""
    work = {key: body.get(key) for key in _OF_THE_WORK}
    work["manifest"] = draft.get("manifest_content") or draft.get("manifest")
    work["handed"] = [
        [_contract_of(world, contracts, each["order"]), each["files"]] for each in body["inputs"].get("orders", ())
    ]
    work["groups"] = [
        [group["kind"], [[each["contract"], each["outcomes"]] for each in group["members"]]]
        for group in body.get("groups", ())
    ]
    return canonical(work)


def write_order(world: World, body: dict[str, Any]) -> Order:
    """Predict the spec's record, and what it touches: members, plan, the plan's name, and whom it replaces."""
    name = body["order"]
    groups = [
        Group(group["kind"], [(each["order"], frozenset(each["outcomes"])) for each in group["members"]])
        for group in body.get("groups", ())
    ]
    touched = [member for group in groups for member, _ in group.members]
    plan = world.plans[body["plan"]] if "plan" in body else None
    if plan is not None:
        touched.append(plan.plan)
        if plan.has_ended and not plan.open:
            touched.append(f"name:{plan.name}")
            name_of = world.names[plan.name]
            name_of.open_plans = sorted([*name_of.open_plans, (plan.seq, plan.plan, plan.content)])
        plan.has_ended = False
        plan.open += 1
        if body["position"] >= len(plan.orders):
            plan.orders.append(name)
    if "parent" in body:
        touched.append(body["parent"])
    if "replaces" in body:
        world.orders[body["replaces"]].replaced_by = name
        touched.append(body["replaces"])
    seq = world.expect("work_order_spec", name, body, *touched)
    for number, group in enumerate(groups):
        for member, outcomes in group.members:
            world.orders[member].dependents.append((name, number, outcomes))
    parent = world.orders[body["parent"]] if "parent" in body else None
    if parent is not None:
        parent.dependents.append((name, CHILD, frozenset()))
        parent.children[body["task"].removeprefix(f"{parent.spec['task']}.")] = name
    order = Order(
        order=name,
        plan=body.get("plan", ""),
        spec=body,
        seq=seq,
        state="submitted",
        reason="just_submitted",
        groups=groups,
        accounts=body["accounts"],
        moved_us=world.now_us,
        parent=body.get("parent", ""),
        dependents=[] if parent is None else [(parent.order, PARENT, frozenset())],
    )
    if "resumes" in body:
        before = world.orders[body["replaces"]]
        order.checkpoint, order.checkpoints = body["resumes"], before.checkpoints
    world.orders[name] = order
    world.accounts[name] = Account(dict(body["ceilings"]))
    return order


def place_order(world: World, order: Order) -> None:
    """The first state of an order whose members may have ended before it. One whose cursor is open will tell it."""
    for number, group in enumerate(order.groups):
        for member, outcomes in group.members:
            known = world.orders[member]
            if known.state in ENDED and known.told_done:
                observe(world, order, member, known.state, number, outcomes)
    if settle_readiness(world, order, ""):
        tell(world, order)
