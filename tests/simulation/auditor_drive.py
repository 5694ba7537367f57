"""Thousands of random commands, well formed and hostile, one at a time against a real kernel, with the auditor beside.

`Drive(seed).run(steps)` returns what the auditor says. Run as a program it drives many seeds and prints figures:
`python -m tests.simulation.auditor_drive --seeds 20 --steps 2000`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.testing.fakes import FakeClock, FakeEntropy
from fencepost.testing.simulator.auditor import Auditor, Reply
from tests.kernel.support import Authority, kernel_over, memory
from tests.simulation.auditor_asks import ACTIONS, Asks
from tests.simulation.auditor_drafts import SECOND_US


class Seen:
    """One decided command as the auditor gets it."""

    def __init__(self, request: dict[str, Any], reply: Reply, records: list[dict[str, Any]]) -> None:
        self.request = request
        self.reply = reply
        self.records = records


Tamper = Callable[[Seen], None]


class Drive(Asks):
    """One seed's world. `tamper` may alter what the auditor is shown."""

    def __init__(self, seed: int, *, audit: bool = True, tamper: Tamper | None = None) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.other_clock = FakeClock(source_number=1)
        denied = self.random.choice(((), (), (), ("set_budget/account",), ("enforce_deadline/plan",)))
        self.authority = Authority(denied=denied)
        self.may_be_wrong = self.random.random() < 0.25
        self.limits = self._limits()
        self.journal = memory()
        self.kernel = kernel_over(
            self.journal, clock=self.clock, entropy=FakeEntropy(seed), authority=self.authority, limits=self.limits
        )
        self.auditor = Auditor(msgspec.to_builtins(self.limits)) if audit else None
        self.tamper = tamper
        self.problems: list[str] = []
        self.commands = 0
        self.read_to = 0
        self.ids: dict[str, list[str]] = {"order": [], "attempt": [], "plan": [], "hold": [], "worker": []}
        self.requests: list[c.Request] = []
        self.receipts: list[str] = []
        self._audit_genesis()

    def _limits(self) -> Limits:
        pick = self.random.choice
        most = pick((2, 1_000))
        return Limits(
            fanout_per_batch=pick((1, 2, 3, 256)),
            cancel_per_batch=pick((1, 2, 5, 256)),
            page_max=pick((3, 20, 1_000)),
            reserve_next_max=pick((2, 64)),
            late_records_per_attempt=pick((1, 3, 16)),
            receipts_per_result_max=most,
            artifacts_per_result_max=pick((5, 10_000)),
            receipts_per_hold_max=pick((most + 1, 4_000)),
            yields_max=pick((1, 1_000)),
            name_open_plans_max=pick((1, 2, 64)),
            renewal_attempts_max=pick((2, 1_000)),
            collect_us=pick((SECOND_US, 300 * SECOND_US)),
        )

    # what the auditor is shown

    def _new_records(self) -> list[dict[str, Any]]:
        with self.journal.snapshot() as reads:
            found = [json.loads(row.data) for row in reads.records(self.kernel.stream, self.read_to, 100_000)]
        if found:
            self.read_to = found[-1]["seq"]
        return found

    def _audit_genesis(self) -> None:
        for batch in batches(self._new_records()):
            stamp, body = batch[0]["command"], {record["kind"]: record["body"] for record in batch}
            adopted, opened = body["constitution_adopted"], body["scope_opened"]
            command = {
                "command": "open_scope",
                "scope": opened["scope"],
                "store_id": opened["store_id"],
                "schema_registry": opened["schema_registry"],
                "constitution_version": adopted["version"],
                "principals": [
                    {("kind" if key == "principal_kind" else key): value for key, value in record["body"].items()}
                    for record in batch
                    if record["kind"] == "principal_enrolled"
                ],
                "grants": [record["body"] for record in batch if record["kind"] == "grant_issued"],
                "reading": reading_of(body["logical_clock_observation"]),
                **{key: adopted[key] for key in ("constitution", "vocabulary", "policies", "schema")},
            }
            request = request_of(stamp, command)
            self.genesis = msgspec.convert(request, c.Request)
            self._audit(request, Reply("", {"scope": opened["scope"]}, True), batch)

    def _audit(self, request: dict[str, Any], reply: Reply, records: list[dict[str, Any]]) -> None:
        for record in records:
            prefix = record["subject"].partition("_")[0]
            if prefix in self.ids and record["subject_version"] == 1:
                self.ids[prefix].append(record["subject"])
            if record["kind"] == "attempt_reservation":
                self.ids["hold"].append(record["body"]["hold"])
        seen = Seen(request, reply, records)
        if self.tamper is not None:
            self.tamper(seen)
        if self.auditor is not None:
            self.problems += self.auditor.decided(seen.request, seen.reply, seen.records)

    def send(self, request: c.Request) -> None:
        """Write one command, and audit it with the sampler's before it."""
        self.commands += 1
        try:
            receipt = self.kernel.write(request)
        except Exception as error:  # nothing that a caller can ask may raise
            self.problems.append(f"raised: {type(error).__name__}: {error} by {request.command}")
            return
        if receipt.refusal is not None and receipt.sequence == 0:
            return  # not readable: nobody decided it
        own = []
        for batch in batches(self._new_records()):
            stamp = batch[0]["command"]
            if stamp["key"] == request.key:
                own = batch
                continue
            observed = batch[-1]["body"]
            command = {"command": "observe_clock", "reading": reading_of(observed)}
            self._audit(request_of(stamp, command), Reply("", {}, True), batch)
        refusal = "" if receipt.refusal is None else receipt.refusal.code
        self._audit(msgspec.to_builtins(request), Reply(refusal, receipt.result, receipt.fresh), own)

    def run(self, steps: int) -> list[str]:
        """Take so many random steps; stop at the first problem."""
        self.enrol()
        for number in range(steps):
            self.step()
            if self.auditor is not None and not self.problems and number % 100 == 99:
                self.problems += self.auditor.at_rest()
            if self.problems:
                break
        return self.problems

    def step(self) -> None:
        names, weights = zip(*ACTIONS.items(), strict=True)
        getattr(self, self.random.choices(names, weights)[0])()


def batches(records: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Records in the batches that they were written in."""
    batch: list[dict[str, Any]] = []
    for record in records:
        if "command" in record and batch:
            yield batch
            batch = []
        batch.append(record)
    if batch:
        yield batch


def request_of(stamp: dict[str, Any], command: dict[str, Any]) -> dict[str, Any]:
    """The request that a batch's stamp and command came from."""
    return {"command": command, **{key: stamp[key] for key in ("key", "principal", "grant", "assurance")}}


def reading_of(body: dict[str, Any]) -> dict[str, Any]:
    """The reading that an observation was made from."""
    found = {key: body[key] for key in ("source", "boot_id", "utc_us", "uncertainty_us")}
    return {**found, "tick_us": body["tick"]}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--without", action="store_true", help="drive without the auditor, for comparison")
    options = parser.parse_args(arguments)
    predicted: dict[tuple[str, str], int] = {}
    commands = bad = 0
    began = time.perf_counter()
    for seed in range(options.first, options.first + options.seeds):
        drive = Drive(seed, audit=not options.without)
        problems = drive.run(options.steps)
        commands += drive.commands
        for pair, count in ({} if drive.auditor is None else drive.auditor.predicted).items():
            predicted[pair] = predicted.get(pair, 0) + count
        for problem in problems:
            bad += 1
            print(f"seed {seed}, command {drive.commands}: {problem}")
    took_s = time.perf_counter() - began
    for (command, refusal), count in sorted(predicted.items()):
        print(f"{count:8} {command} {refusal or '-'}")
    print(f"{commands} commands in {took_s:.1f} s, {commands / took_s:.0f} a second, {len(predicted)} pairs")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
