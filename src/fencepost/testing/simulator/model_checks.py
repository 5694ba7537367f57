"""The checks that rest on no prediction: sums, ends and fences, read from the records alone.

Each record is folded into a handful of numbers, apart from the model that predicts, so that what both kernel and model
have wrong is found as well. What was found is said in whole sentences; what stays open is judged `at_rest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ENDED = frozenset({"applied", "failed", "cancelled", "dependency_failed", "budget_exhausted"})
_INTEGER_MAX = 2**53 - 1
_APPLICATION = {"applied": "applied", "retry": "retry_wait", "failed": "failed"}


class Checks:
    """Sums and ends, from the records alone."""

    def __init__(self, receipts_max: int) -> None:
        """`receipts_max` is the greatest number of receipts that one hold ever books."""
        self.receipts_max = receipts_max
        self.booked: dict[str, int] = {}  # hold -> receipts
        self.problems: list[str] = []
        self.states: dict[str, str] = {}  # of orders
        self.live: dict[str, str] = {}  # order -> attempt that owns its fence
        self.fences: dict[str, int] = {}  # order -> greatest fence
        self.held: dict[str, dict[str, int]] = {}  # hold -> what it still holds
        self.paths: dict[str, list[str]] = {}  # hold -> accounts
        self.hold_of: dict[str, str] = {}  # attempt -> hold
        self.ended: set[str] = set()  # holds
        self.receipts: set[tuple[str, str]] = set()
        self.said: dict[tuple[str, str], Mapping[str, int] | None] = {}  # (attempt, receipt) -> amounts, None: disputed
        self.attempt_of: dict[str, str] = {}  # hold -> attempt
        self.sums: dict[tuple[str, str], list[int]] = {}  # (account, dimension) -> [held, charged]
        self.ceilings: dict[str, Mapping[str, int]] = {"scope": {}}
        self.activations: dict[str, int] = {}  # account -> charged attempts
        self.provided: set[str] = set()  # receipts of providers, over the whole scope
        self.checkpoints: dict[str, int] = {}  # order -> number of the last one
        self.parents: dict[str, str] = {}  # child -> parent

    def read(self, record: Mapping[str, Any]) -> None:
        """Fold one record."""
        step = getattr(self, "_" + record["kind"], None)
        if step is not None:
            step(record["subject"], record["body"])

    def say(self, problem: str) -> None:
        self.problems.append(problem)

    def _enter(self, order: str, state: str) -> None:
        before = self.states.get(order, "")
        if before in _ENDED:
            self.say(f"{order} has ended as {before} and becomes {state}")
        if state in _ENDED and order in self.live:
            self.say(f"{order} ends as {state} while {self.live[order]} has a live fence")
        self.states[order] = state

    def _book(self, hold: str, held: Mapping[str, int], charged: Mapping[str, int], sign: int = 1) -> None:
        for account in self.paths[hold]:
            for name, amount in held.items():
                sums = self.sums.setdefault((account, name), [0, 0])
                sums[0] += amount
                if sums[0] < 0:
                    self.say(f"{account}: less than nothing of {name} is held")
            for name, amount in charged.items():
                sums = self.sums.setdefault((account, name), [0, 0])
                sums[1] += sign * amount
                if sums[1] < 0:
                    self.say(f"{account}: less than nothing of {name} is charged")

    def _end(self, hold: str) -> None:
        if hold in self.ended:
            self.say(f"{hold} ends a second time")
        self.ended.add(hold)
        held = self.held[hold]
        self._book(hold, {name: -amount for name, amount in held.items()}, {})
        self.held[hold] = {}

    def _receive(self, hold: str, receipts: list[str]) -> None:
        for receipt in receipts:
            if (hold, receipt) in self.receipts:
                self.say(f"{hold} books the receipt {receipt} twice")
            self.receipts.add((hold, receipt))
            if not receipt.startswith("kernel:"):
                if receipt in self.provided:
                    self.say(f"the receipt {receipt} is booked twice")
                self.provided.add(receipt)
        booked = self.booked[hold] = self.booked.get(hold, 0) + len(receipts)
        if booked > self.receipts_max:
            self.say(f"{hold} books {booked} receipts, {self.receipts_max} at most")

    def _plan_revision(self, subject: str, body: Mapping[str, Any]) -> None:
        self.ceilings[subject] = body["ceilings"]

    def _work_order_spec(self, subject: str, body: Mapping[str, Any]) -> None:
        self.ceilings[subject] = body["ceilings"]
        if "parent" in body:
            self.parents[subject] = body["parent"]
        if "resumes" in body:
            self.checkpoints[subject] = self.checkpoints.get(body["replaces"], 0)
        self._enter(subject, "submitted")

    def _budget_ceiling_set(self, subject: str, body: Mapping[str, Any]) -> None:
        self.ceilings[subject] = body["ceilings"]

    def _work_order_moved(self, subject: str, body: Mapping[str, Any]) -> None:
        if body["origin"] != self.states[subject]:
            self.say(f"{subject} moves from {body['origin']} and is {self.states[subject]}")
        self._enter(subject, body["target"])

    def _attempt_reservation(self, subject: str, body: Mapping[str, Any]) -> None:
        order, hold = body["order"], body["hold"]
        if order in self.live:
            self.say(f"{subject} is reserved while {self.live[order]} has a live fence of {order}")
        if body["fence"] <= self.fences.get(order, 0):
            self.say(f"the fence {body['fence']} of {order} does not grow")
        self.fences[order] = body["fence"]
        self.live[order] = subject
        self._enter(order, "reserved")
        self.hold_of[subject] = hold
        self.attempt_of[hold] = subject
        self.paths[hold] = body["accounts"]
        above = self.parents.get(order, "")
        while above:
            if above not in body["accounts"]:
                self.say(f"{hold} holds nothing of {above}, inside which its order is")
            above = self.parents.get(above, "")
        self.held[hold] = dict(body["amounts"])
        self._book(hold, body["amounts"], {})
        for account in body["accounts"]:
            ceilings = self.ceilings[account]
            for name in body["amounts"]:
                held, charged = self.sums[account, name]
                if name in ceilings and body["amounts"][name] and held + charged > ceilings[name]:
                    self.say(f"{hold} passes the ceiling of {account} in {name}")

    def _attempt_descriptor(self, subject: str, body: Mapping[str, Any]) -> None:
        if self.live.get(body["order"]) != subject:
            self.say(f"{subject} is activated without the fence of {body['order']}")
        self._enter(body["order"], "active")
        hold = self.hold_of[subject]
        one = {"attempts": 1}
        self._book(hold, {"attempts": -1}, one)
        if self.held[hold].pop("attempts", 0) != 1:
            self.say(f"{subject} does not hold the one attempt that its activation charges")
        for account in self.paths[hold]:
            charged = self.sums[account, "attempts"][1]
            if charged > self.ceilings[account].get("attempts", charged):
                self.say(f"the attempts of {account} pass its ceiling")

    def _attempt_result(self, subject: str, body: Mapping[str, Any]) -> None:
        self._enter(body["order"], "result_pending")
        self._leave(subject, body["order"])
        self._hear(subject, body["facts"])

    def _attempt_yielded(self, subject: str, body: Mapping[str, Any]) -> None:
        if self.live.get(body["order"]) != subject:
            self.say(f"{subject} yields without the fence of {body['order']}")
        self._leave(subject, body["order"])

    def _attempt_stopped(self, subject: str, body: Mapping[str, Any]) -> None:
        if self.live.get(body["order"]) != subject:
            self.say(f"{subject} is stopped without the fence of {body['order']}")
        self._time(subject, body)

    def _work_order_waits(self, subject: str, body: Mapping[str, Any]) -> None:
        if self.held[self.hold_of[body["attempt"]]]:
            self.say(f"{subject} waits and {body['attempt']} still holds {self.held[self.hold_of[body['attempt']]]}")
        self._enter(subject, "waiting")

    def _checkpoint_envelope(self, subject: str, body: Mapping[str, Any]) -> None:
        order = body["order"]
        if self.live.get(order) != subject:
            self.say(f"{subject} saves a checkpoint without the fence of {order}")
        if body["number"] != self.checkpoints.get(order, 0) + 1 or body["builds_on"] != body["number"] - 1:
            self.say(f"checkpoint {body['number']} of {order} follows {self.checkpoints.get(order, 0)}")
        self.checkpoints[order] = body["number"]

    def _usage_charged(self, subject: str, body: Mapping[str, Any]) -> None:
        usage, held = body["usage"], self.held[subject]
        name = f"{usage['provider']}:{usage['receipt']}"
        if name in self.provided:
            self.say(f"the receipt {name} is booked twice")
        self.provided.add(name)
        charged = {each: amount for each, amount in usage["amounts"].items() if amount}
        for each in usage.get("unknown", ()):
            if held.get(each, 0) > charged.get(each, 0):
                charged[each] = held[each]
        for each, amount in body["freed"].items():
            if amount > min(held.get(each, 0), charged.get(each, 0)):
                self.say(f"{subject} gives {amount} of {each} back, and holds {held.get(each, 0)}")
            held[each] = held.get(each, 0) - amount
        self.held[subject] = {each: amount for each, amount in held.items() if amount or each not in body["freed"]}
        self._book(subject, {each: -amount for each, amount in body["freed"].items()}, charged)

    def _late_record(self, subject: str, body: Mapping[str, Any]) -> None:
        if "facts" in body:
            self._hear(subject, body["facts"])
        elif body["what"] in ("stop", "yield"):
            self._time(subject, body)

    def _time(self, attempt: str, body: Mapping[str, Any]) -> None:
        """Remember what the supervisor measured of an end without a result."""
        usage = {"provider": "kernel", "receipt": f"{attempt}:time", "amounts": {"time_us": body.get("duration_us", 0)}}
        self._hear(attempt, {"usage": [usage]})

    def _hear(self, attempt: str, facts: Mapping[str, Any]) -> None:
        """Remember what each receipt of a kept result says; one that is told in two ways says nothing."""
        for usage in facts.get("usage", ()):
            key = (attempt, f"{usage['provider']}:{usage['receipt']}")
            amounts = None if usage.get("unknown") else usage["amounts"]
            self.said[key] = amounts if self.said.get(key, amounts) == amounts else None

    def _leave(self, attempt: str, order: str) -> None:
        if self.live.get(order) == attempt:
            del self.live[order]

    def _attempt_moved(self, subject: str, body: Mapping[str, Any]) -> None:
        if body["target"] not in ("leased", "running"):
            self._leave(subject, body["order"])

    def _result_application(self, subject: str, body: Mapping[str, Any]) -> None:
        self._enter(subject, _APPLICATION[body["decision"]])

    def _compare_receipts(self, hold: str, body: Mapping[str, Any]) -> None:
        """Beside time, what is charged is what the receipts say together, unless it was charged conservatively."""
        attempt = self.attempt_of[hold]
        heard = [self.said.get((attempt, receipt)) for receipt in body.get("receipts", ())]
        sums: dict[str, int] = {}
        for amounts in heard:
            if amounts is None:
                return  # of a result that was paid for and not kept, or one that is told in two ways
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0) + amount
        for name in {*sums, *body["charged"]} - {"time_us"}:
            if min(sums.get(name, 0), _INTEGER_MAX) != body["charged"].get(name, 0):
                self.say(f"{hold} is charged {body['charged']} and its receipts say {sums}")
                return

    def _hold_settled(self, subject: str, body: Mapping[str, Any]) -> None:
        if not body.get("flagged"):
            self._compare_receipts(subject, body)
        self._end(subject)
        self._receive(subject, body.get("receipts", []))
        self._book(subject, {}, body["charged"])
        self._book(subject, {}, body.get("credited", {}), -1)

    def _hold_released(self, subject: str, _: Mapping[str, Any]) -> None:
        self._end(subject)

    def _hold_unsettled(self, subject: str, body: Mapping[str, Any]) -> None:
        held = self.held[subject]
        freed = {name: held.pop(name) for name in body["freed"]}
        self._book(subject, {name: -amount for name, amount in freed.items()}, {})

    def _hold_adjusted(self, subject: str, body: Mapping[str, Any]) -> None:
        if subject not in self.ended:
            self.say(f"{subject} is adjusted before it has ended")
        self._compare_receipts(subject, body)
        self._receive(subject, body["receipts"])
        self._book(subject, {}, body["charged"])
