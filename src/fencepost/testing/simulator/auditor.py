"""An independent auditor: predicts every reply and every record, and says in words where the kernel differs.

It shares no code with the kernel. Its model (`model_*`) is written from the documents in the most naive way, on plain
dictionaries: a request as builtins, records as parsed JSON. For each command it first predicts, from its own memory
alone, whether the command is refused and with which code, which records follow and what its caller is told; then it
compares. What only the kernel can choose (ids, a drawn jitter, what a constitution says) is taken from the records
and checked for its bounds. Apart from that, sums, ends and fences are checked from the records alone.

An auditor that has found something follows on as well as it can; what it says after that may be its own confusion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from fencepost.testing.simulator import (
    model_attempts,
    model_claim,
    model_clock,
    model_finish,
    model_inside,
    model_recover,
    model_retry,
    model_revise,
    model_submit,
    model_wait,
)
from fencepost.testing.simulator.model_authority import Authority
from fencepost.testing.simulator.model_canonical import canonical
from fencepost.testing.simulator.model_checks import Checks
from fencepost.testing.simulator.model_rest import left_behind, problems_at_rest
from fencepost.testing.simulator.model_state import Mismatch, Outcome, Refused, World

_Step = Callable[[World, Mapping[str, Any]], Outcome]
_STEPS: dict[str, _Step] = {
    "observe_clock": model_clock.observe_clock,
    "submit_plan": model_submit.submit_plan,
    "submit_order": model_submit.submit_order,
    "cancel_plan": model_revise.cancel_plan,
    "cancel_order": model_revise.cancel_order,
    "retry_order": model_retry.retry_order,
    "set_budget": model_revise.set_budget,
    "enrol_worker": model_claim.enrol_worker,
    "reserve": model_claim.reserve,
    "reserve_next": model_claim.reserve_next,
    "release_reservation": model_claim.release_reservation,
    "activate": model_claim.activate,
    "renew_leases": model_attempts.renew_leases,
    "append_event": model_attempts.append_event,
    "save_checkpoint": model_inside.save_checkpoint,
    "record_artifact": model_inside.record_artifact,
    "charge_usage": model_inside.charge_usage,
    "submit_child": model_inside.submit_child,
    "report_yielded": model_wait.report_yielded,
    "answer_order": model_wait.answer_order,
    "end_wait": model_recover.end_wait,
    "report_result": model_attempts.report_result,
    "report_stopped": model_attempts.report_stopped,
    "record_verification": model_attempts.record_verification,
    "apply_result": model_finish.apply_result,
    "expire_attempt": model_recover.expire_attempt,
    "prove_holder_gone": model_recover.prove_holder_gone,
    "settle_hold": model_recover.settle_hold,
    "end_backoff": model_recover.end_backoff,
    "reexamine": model_recover.reexamine,
    "tell_dependents": model_revise.tell_dependents,
    "advance_cancel": model_revise.advance_cancel,
    "enforce_deadline": model_recover.enforce_deadline,
}
_LOST = (KeyError, IndexError, TypeError, AttributeError, ValueError)


class Reply(NamedTuple):
    """What a caller was told. `refusal` is "" if none; `fresh` is False for the replay of a command key."""

    refusal: str
    result: Mapping[str, Any]
    fresh: bool


class _Bound(NamedTuple):
    """What a command key is bound to: the command's digest, and its first answer."""

    digest: str
    reply: Reply


class Auditor:
    """Predicts and compares, one command after the other."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        """`limits` are the kernel's own, as builtins."""
        self.world = World(limits)
        """What the model remembers, for others to look at."""
        self._authority = Authority()
        self._checks = Checks(limits["receipts_per_hold_max"])
        self._bound: dict[str, _Bound] = {}
        self._head = ""  # digest of the last record
        self._where: tuple[Any, ...] = ()
        self._clock_seq = 0  # of the observation that the command at hand names
        self._digest = ""  # of the command at hand, "" before it is needed
        self.predicted: dict[tuple[str, str], int] = {}
        """How often each pair of a command and a refusal, "" for none, was predicted and came true."""

    def decided(
        self,
        request: Mapping[str, Any],
        reply: Reply,
        records: Sequence[Mapping[str, Any]],
        stored: Sequence[bytes] | None = None,
    ) -> list[str]:
        """Compare one decided command with what it had to be; return what is wrong, in words.

        `stored` are the bytes that the records were read from; without them the canonical bytes are made again.

        Commands come in the order in which they were decided, the sampler's own included (their result is
        not compared if it is empty, for those who did not hear it).
        """
        world = self.world
        request = {**request, "command": _lists(request["command"])}
        world.begin(request, records)
        self._clock_seq, self._digest = world.clock.last_seq, ""
        problems: list[str] = []
        try:
            self._predict(request, reply, records, problems)
            self._follow(records, stored, request, problems)
        except Mismatch as mismatch:
            problems.append(str(mismatch))
        except _LOST as error:
            problems.append(f"the model cannot follow: {error!r}")
        world.last_seq += len(records)
        name = request["command"]["command"]
        if problems:
            return [f"{name}: {problem}" for problem in problems]
        pair = (name, reply.refusal)
        self.predicted[pair] = self.predicted.get(pair, 0) + 1
        return problems

    def at_rest(self) -> list[str]:
        """Checks that look at everything: sums, holds, and that every order which has not ended can still move."""
        return problems_at_rest(self.world, self._checks)

    def left_behind(self) -> list[str]:
        """What nobody takes up although it could go on. Asked while nothing else is under way."""
        return list(left_behind(self.world))

    def _predict(
        self,
        request: Mapping[str, Any],
        reply: Reply,
        records: Sequence[Mapping[str, Any]],
        problems: list[str],
    ) -> None:
        world = self.world
        key = request["key"]
        command = request["command"]
        opens = command["command"] == "open_scope"
        bound = self._bound.get(key)
        if bound is not None:
            self._predict_replay(request, bound, reply, problems)
            _compare_records(world, records, problems)
            return
        code = "" if opens else self._authority.authorize(world, request)
        decisions = len(world.expected)
        outcome: Outcome
        if code:
            outcome = Refused(code)
        elif opens:
            outcome = self._authority.open_scope(world, command)
        else:
            outcome = _STEPS[command["command"]](world, command)
        writes = len(world.expected) > decisions or not isinstance(outcome, Refused) or code == "denied"
        if not writes and decisions:
            raise Mismatch(f"a refusal {_code(outcome)} wrote nothing but a decision, and binds its key by it")
        if self._authority.untold and writes:
            problems.append("it was carried out without a record of the decision that permits it")
        _compare_records(world, records, problems)
        _compare_reply(outcome, reply, fresh=True, problems=problems)
        if records:
            self._bound[key] = _Bound(self._digest_of(request), Reply(reply.refusal, reply.result, False))

    def _predict_replay(self, request: Mapping[str, Any], bound: _Bound, reply: Reply, problems: list[str]) -> None:
        """Who may still ask gets the first answer for the same bytes, and a collision for others."""
        code = "" if request["command"]["command"] == "open_scope" else self._authority.authorize(self.world, request)
        if self._authority.untold and reply.refusal == "denied":
            code = "denied"  # a question that was never recorded is asked anew, and its answer not written down
        if code:
            _compare_reply(Refused(code), reply, fresh=False, problems=problems)
        elif self._digest_of(request) != bound.digest:
            _compare_reply(Refused("operation_collision"), reply, fresh=False, problems=problems)
        elif (reply.refusal, _lists(reply.result), reply.fresh) != (
            bound.reply.refusal,
            _lists(bound.reply.result),
            False,
        ):
            problems.append(f"the replay of {request['key']} was not given the first answer")

    def _digest_of(self, request: Mapping[str, Any]) -> str:
        """Digest of the command's bytes and its principal: what a key is bound to."""
        if not self._digest:
            text = canonical(request["command"]) + b"|" + request["principal"].encode()
            self._digest = "sha256:" + sha256(text).hexdigest()
        return self._digest

    def _follow(
        self,
        records: Sequence[Mapping[str, Any]],
        stored: Sequence[bytes] | None,
        request: Mapping[str, Any],
        problems: list[str],
    ) -> None:
        """Envelopes and chain: no gap, each linked to the one before, the batch and its stamp as they must be."""
        first = self.world.last_seq + 1
        for place, record in enumerate(records):
            seq = record["seq"]
            if seq != first + place:
                problems.append(f"record {seq} stands where {first + place} belongs")
            if record["prev"] != self._head:
                problems.append(f"record {seq} does not name the digest of the record before it")
            data = canonical(record) if stored is None else stored[place]
            self._head = "sha256:" + sha256(data).hexdigest()
            where = (record["v"], record["scope"], record["stream"], record["epoch"], record["kind_version"])
            if where != self._where:
                if self._where:
                    problems.append(f"record {seq} belongs elsewhere: {where}")
                self._where = where
            if record["batch"] != {"first": first, "count": len(records)}:
                problems.append(f"record {seq} names the batch {record['batch']}")
            if place and "command" in record:
                problems.append(f"record {seq} is stamped a second time")
            self._checks.read(record)
        if records:
            stamp = {
                "key": request["key"],
                "digest": self._digest_of(request),
                "principal": request["principal"],
                "assurance": request["assurance"],
                "decision": self._authority.own_decision,
                "grant": request["grant"],
            }
            if self._clock_seq:
                stamp["clock"] = self._clock_seq
            if records[0].get("command") != stamp:
                problems.append(f"record {first} is stamped {_differences(stamp, records[0].get('command') or {})}")
        if self._checks.problems:
            problems.extend(self._checks.problems)
            self._checks.problems = []


_NESTED = frozenset({dict, list, tuple})


def _lists(value: Any) -> Any:
    """The same plain data with lists in the place of tuples, as JSON has it."""
    if type(value) is dict:
        return {key: _lists(each) if type(each) in _NESTED else each for key, each in value.items()}
    return [_lists(each) if type(each) in _NESTED else each for each in value]


def _code(outcome: Outcome) -> str:
    return outcome.code if isinstance(outcome, Refused) else ""


def _compare_records(world: World, records: Sequence[Mapping[str, Any]], problems: list[str]) -> None:
    expected = world.expected
    for record, (kind, subject, version, body) in zip(records, expected, strict=False):
        seq = record["seq"]
        if record["kind"] != kind or record["subject"] != subject:
            problems.append(f"predicted {kind} of {subject}, record {seq} is {record['kind']} of {record['subject']}")
            return
        if record["subject_version"] != version:
            problems.append(f"{subject}: predicted version {version}, record {seq} says {record['subject_version']}")
        if record["body"] != body:
            problems.append(f"{subject}: record {seq} ({kind}) {_differences(body, record['body'])}")
    if len(records) > len(expected):
        extra = [f"{record['kind']} of {record['subject']}" for record in records[len(expected) :]]
        problems.append(f"records that were not predicted: {', '.join(extra)}")
    elif len(records) < len(expected):
        missing = [f"{one.kind} of {one.subject} ({_words(one.body)})" for one in expected[len(records) :]]
        problems.append(f"predicted records that are not there: {', '.join(missing)}")


def _words(body: Mapping[str, Any]) -> str:
    return " ".join(str(body[key]) for key in ("origin", "target", "reason", "charged", "decision") if key in body)


def _differences(predicted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    said = []
    for key in sorted({*predicted, *found}):
        if predicted.get(key) != found.get(key):
            said.append(f"{key}: predicted {predicted.get(key)!r}, says {found.get(key)!r}")
    return "; ".join(said)


def _compare_reply(outcome: Outcome, reply: Reply, *, fresh: bool, problems: list[str]) -> None:
    code = _code(outcome)
    if code != reply.refusal:
        problems.append(f"predicted {code or 'no refusal'}, the reply says {reply.refusal or 'no refusal'}")
        return
    result = outcome.result if isinstance(outcome, Refused) else outcome
    if reply.result != result and _lists(reply.result) != _lists(result):
        unsaid = not reply.result and "logical_us" in result  # nobody is told of the kernel's own observations
        if not unsaid:
            problems.append(f"the reply's result differs: {_differences(result, reply.result)}")
    if reply.fresh != fresh:
        problems.append(f"the reply says fresh={reply.fresh}")
