"""What random submitters write and random workers report: mostly sound, now and then not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.ids import sha256_of
from fencepost.core.matching import matches_any
from fencepost.core.records.attempt import ResultFacts, ValidationReceipt
from fencepost.core.records.common import ArtifactRef, Usage
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.core.state import AttemptState, OrderState
from tests.kernel.support import INPUTS

OUTCOMES = ("applied", "failed", "cancelled", "dependency_failed", "budget_exhausted", "unknown_terminal")
DIMENSIONS = ("time_us", "tokens_input", "calls", "money_micros:EUR", "money_micros:USD")
PATTERNS = ("report.xml", "out/**", "*.txt", "a/*/b.bin", "**/deep.json")
PATHS = ("report.xml", "out/x", "out/y/z", "note.txt", "a/q/b.bin", "deep.json", "k/deep.json", "other.bin")
SHARED = DIMENSIONS[1:]  # what an order may say a share of
SECOND_US = 1_000_000


class Drafts:
    """Drafts, groups, amounts and results, drawn from `random`."""

    random: random.Random
    sound = False  # whether what is being written has no mistake

    def slips(self, chance: float) -> bool:
        """Whether a mistake is made here."""
        return not self.sound and self.random.random() < chance

    def amounts(self, most: int, chance: float = 0.3) -> dict[str, int]:
        found = {name: self.random.randint(0, most) for name in DIMENSIONS if self.random.random() < chance}
        if "time_us" in found:
            found["time_us"] = self.random.choice((4, 8, 60, 3_600)) * SECOND_US
        if self.random.random() < 0.6:
            found["attempts"] = self.random.randint(2, 6)
        if self.slips(0.01):
            found["unheard_of"] = 1
        if self.slips(0.05):
            found[self.random.choice(DIMENSIONS)] = 2**53 - 1
        if self.slips(0.01):
            found["attempts"] = 0
        return found

    def draft(self, task: str, groups: Sequence[c.GroupDraft] = (), handed: Sequence[c.FromDraft] = ()) -> c.OrderDraft:
        roll, pick = self.random.random, self.random.choice
        outputs = tuple(self.random.sample(PATTERNS, self.random.randint(0, 3)))
        files = tuple(each for each in outputs if roll() < 0.3) + (("out/x",) if self.slips(0.06) else ())
        schemas = {"report.xml": sha256_of(b"schema")} if "report.xml" in outputs and roll() < 0.3 else {}
        retry = None
        if roll() < 0.6:
            on: tuple[Any, ...] = tuple(
                self.random.sample(("executor", "validation", "transient_dependency", "policy"), 2)
            )
            on = tuple(each for each in on if each != "policy" or self.slips(0.1)) or ("executor",)
            most_us = pick((SECOND_US, 4 * SECOND_US)) if not self.slips(0.06) else 2**40
            retry = Retry(on=on, backoff_us=pick((0, SECOND_US)), backoff_max_us=most_us)
        return c.OrderDraft(
            task=task,
            work_kind="command/1" if not self.slips(0.04) else "other/1",
            priority=pick(("low", "normal", "high")),
            classification=pick(("public", "internal")),
            effects=pick(("none", "declared")),
            attempt_time_us=pick((1, 3)) * SECOND_US if not self.slips(0.04) else pick((600 * SECOND_US, 2**50)),
            attempt_time_least_us=pick((0, 0, SECOND_US)),
            accept=Acceptance(files=files, schemas=schemas, verify=("check",) if roll() < 0.3 else ()),
            run=("true",),
            manifest=INPUTS if roll() < 0.8 else None,
            manifest_files=pick((0, 2)),
            outputs=outputs,
            groups=tuple(groups),
            handed=tuple(handed),
            ceilings=self.amounts(20, 0.2) if not self.sound else {"attempts": self.random.randint(1, 5)},
            per_attempt={
                name: amount for name, amount in self.amounts(5, 0.1).items() if name in SHARED or self.slips(0.02)
            },
            retry=retry,
            may=pick(((), ("workspace.write",), ("workspace.write", "other"))),
            may_fail=roll() < 0.3,
        )

    def members(self, tasks: Sequence[str], orders: Sequence[str]) -> tuple[c.MemberDraft, ...]:
        made = []
        for task, order in [*((task, "") for task in tasks), *(("", order) for order in orders)]:
            outcomes: Any = ("applied",)
            if self.random.random() < 0.4:
                outcomes = tuple(self.random.sample(OUTCOMES[:5], self.random.randint(1, 3)))
            made.append(c.MemberDraft(outcomes=outcomes, task=task, order=order))
        return tuple(made)

    def groups(self, tasks: Sequence[str], orders: Sequence[str] = ()) -> list[c.GroupDraft]:
        made = []
        for _ in range(self.random.choice((0, 1, 1, 2))):
            known = [*tasks, *orders]
            if not known:
                break
            chosen = self.random.choices(known, k=self.random.randint(1, 3))
            kind: Any = self.random.choice(("required", "optional", "alternative"))
            members = self.members([each for each in chosen if each in tasks], [e for e in chosen if e in orders])
            made.append(c.GroupDraft(kind=kind, members=() if self.slips(0.02) else members))
        return made

    def good(self, facts: ResultFacts, order: OrderState) -> ResultFacts:
        """The same facts of a result that its order's contract accepts, verifier aside."""
        paths = [path for path in PATHS if matches_any(order.terms.outputs, path)]
        return replace(
            facts,
            outcome="succeeded",
            exit_code=0,
            failure=None,
            message_code="",
            artifacts=tuple(ArtifactRef(path=path, digest=sha256_of(b"x"), bytes=1, mode=0o644) for path in paths),
            validation=(ValidationReceipt(check="schema", subject="report.xml", passed=True),),
            tree_empty=True,
        )

    def facts(self, attempt: AttemptState, order: OrderState) -> ResultFacts:
        roll, pick = self.random.random, self.random.choice
        usage = []
        if roll() < 0.7:
            time_us = {"time_us": self.random.randint(0, 3 * SECOND_US)}
            usage.append(Usage(receipt=f"{attempt.attempt}:time", provider="kernel", amounts=time_us))
        for number in range(pick((0, 0, 1, 2))):
            unknown = tuple(name for name in DIMENSIONS if roll() < 0.1)
            amounts = {name: self.random.randint(0, 8) for name in DIMENSIONS[1:] if roll() < 0.3}
            amounts |= {"attempts": 1} if roll() < 0.01 else {}
            amounts |= {pick(DIMENSIONS): 2**53 - 1} if roll() < 0.02 else {}
            receipt = f"{attempt.attempt}:{pick((number, 0, self.random.randint(0, 9)))}"
            if roll() < 0.02:
                receipt = pick(("x" * 505, "x" * 506, "x" * 507, "\x01" * 90, "é" * 300, "model:a"))
            usage.append(
                Usage(
                    receipt=receipt, provider=pick(("model",) * 9 + ("model:model",)), amounts=amounts, unknown=unknown
                )
            )
        artifacts = tuple(
            ArtifactRef(path=path, digest=sha256_of(path.encode()), bytes=1, mode=0o644)
            for path in PATHS
            if roll() < 0.25
        )
        failed = roll() < 0.3
        if not failed and roll() < 0.85:
            artifacts = tuple(
                ArtifactRef(path=path, digest=sha256_of(path.encode()), bytes=1, mode=0o644)
                for path in PATHS
                if matches_any(order.terms.outputs, path)
            )
        failure: Any = pick(("executor", "transient_dependency", "validation", "terminal", None))
        return ResultFacts(
            outcome="failed" if failed else "succeeded",
            input_set=attempt.input_set or INPUTS,
            output_kind="files/1",
            duration_us=self.random.randint(0, 2 * SECOND_US),
            classification="internal",
            exit_code=0 if roll() < 0.93 else pick((1, None)),
            failure=failure if failed or roll() < 0.03 else None,
            message_code=pick(("timed_out", "no such code", "")) if failed else "",
            artifacts=artifacts,
            validation=tuple(
                ValidationReceipt(check="schema", subject="report.xml", passed=roll() < 0.8)
                for _ in range(pick((0, 1, 1)))
            ),
            usage=tuple(usage),
            tree_empty=roll() < 0.97,
        )
