"""What running programs say at random, and what people answer: mostly as it should be, now and then not."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.core import commands as c
from fencepost.core.ids import sha256_of
from fencepost.core.records.common import ArtifactRef, LogRef, Usage
from fencepost.core.state import AttemptState, OrderState
from tests.kernel.support import INPUTS
from tests.simulation.auditor_drafts import SECOND_US, Drafts

CHILDREN = ("part", "other", "third")
QUESTIONS = ("go", "size")


class Inside(Drafts):
    """Speaks as programs within attempts do. Each kind is one that `Asks` draws."""

    ids: dict[str, list[str]]

    def ask(self, who: str, command: c.AnyCommand) -> None:
        raise NotImplementedError

    def any(self, prefix: str) -> str:
        raise NotImplementedError

    def value(self, subject: str) -> Any:
        raise NotImplementedError

    def pick(self, prefix: str, *stages: str) -> Any | None:
        raise NotImplementedError

    def _speaker(self) -> tuple[AttemptState, OrderState, dict[str, Any]] | None:
        attempt = self.pick("attempt", *["lease"] * 8, "unsettled")
        if attempt is None:
            return None
        order = self.value(attempt.order)
        inputs = attempt.input_set or INPUTS
        bound = {"attempt": attempt.attempt, "fence": attempt.fence, "spec": order.spec, "input_set": inputs}
        return attempt, order, bound

    def checkpoint(self) -> None:
        known = self._speaker()
        if known is None:
            return
        _, order, bound = known
        number = order.checkpoint_number
        artifacts = tuple(self._file(number) for number in range(self.random.choice((0, 0, 1, 3))))
        command = c.SaveCheckpoint(
            **bound,
            kind=self.random.choice(("blob/1", "steps/1")),
            builds_on=self.random.choice((number,) * 5 + (max(number - 1, 0), number + 1)),
            payload=sha256_of(str(self.random.randint(0, 5)).encode()),
            bytes=self.random.choice((0, 7, 7, 7, 2**40)),
            artifacts=artifacts,
        )
        self.ask("executor", command)

    def _file(self, number: int) -> ArtifactRef:
        return ArtifactRef(path=f"part-{number}", digest=sha256_of(b"part"), bytes=4, mode=0o644)

    def keep(self) -> None:
        known = self._speaker()
        if known is not None:
            self.ask("executor", c.RecordArtifact(**known[2], artifact=self._file(self.random.randint(0, 3))))

    def charge(self) -> None:
        known = self._speaker()
        if known is None:
            return
        attempt, _, bound = known
        roll, pick = self.random.random, self.random.choice
        if roll() < 0.1:
            attempt = self.value(self.any("attempt")) or attempt
        names = ("tokens_input", "calls", "money_micros:EUR", "money_micros:USD")
        amounts = {name: self.random.randint(0, 4) for name in names if roll() < 0.4}
        amounts |= {pick(("time_us", "attempts", "unheard_of")): 1} if roll() < 0.04 else {}
        amounts |= {pick(names): 2**53 - 1} if roll() < 0.02 else {}
        usage = Usage(
            receipt=pick(
                (f"{attempt.attempt}:{self.random.randint(0, 9)}", "shared", "x" * 520 if roll() < 0.1 else "y")
            ),
            provider=pick(("model",) * 9 + ("kernel", "No Name")),
            amounts=amounts,
            unknown=tuple(name for name in names if roll() < 0.08),
        )
        self.ask("executor", c.ChargeUsage(**bound, usage=usage))
        if roll() < 0.3:
            other = msgspec.structs.replace(usage, amounts={"calls": 1}) if roll() < 0.4 else usage
            self.ask("executor", c.ChargeUsage(**bound, usage=other))

    def child(self) -> None:
        known = self._speaker()
        if known is None:
            return
        _, order, bound = known
        self.sound = self.random.random() < 0.8
        name = self.random.choice(CHILDREN) if not self.slips(0.1) else self.random.choice(("Part", "a.b", "x" * 80))
        siblings = [each for each in order.children if each != name] or ([name] if self.slips(0.1) else [])
        draft = self.draft(name, self.groups(siblings) if self.random.random() < 0.5 else ())
        if self.random.random() < 0.7:
            draft = msgspec.structs.replace(draft, ceilings={"attempts": 1}, per_attempt={}, attempt_time_us=SECOND_US)
        if self.random.random() < 0.9:
            above = order.terms
            draft = msgspec.structs.replace(
                draft,
                classification=above.classification,  # type: ignore[arg-type]  # the state keeps it as text
                effects=above.effects,  # type: ignore[arg-type]  # the state keeps it as text
                priority=above.priority,  # type: ignore[arg-type]  # the state keeps it as text
                may=above.may,
                environment=(),
            )
        self.ask("executor", c.SubmitChild(**bound, order=draft))
        if self.random.random() < 0.3:
            self.ask("executor", c.SubmitChild(**bound, order=draft))

    def yields(self) -> None:
        known = self._speaker()
        if known is None:
            return
        attempt, order, bound = known
        if attempt.state == "leased" and self.random.random() < 0.9:
            self.ask("executor", c.AppendEvent(**bound, family="execution_started"))
            self.ask(
                "executor",
                c.SaveCheckpoint(
                    **bound, kind="blob/1", builds_on=order.checkpoint_number, payload=sha256_of(b"state"), bytes=5
                ),
            )
        roll, pick = self.random.random, self.random.choice
        children = tuple(order.children.values())
        names = children if roll() < 0.7 else (*children[:1], *children[:1]) if roll() < 0.2 else ()
        if roll() < 0.05:
            names = (*names, self.any("order"))
        wait = c.WaitDraft(
            question=pick((*QUESTIONS, "", "")) if roll() < 0.97 else "Go?",
            prompt=pick(("", "Shall it go on?")),
            orders=names,
            after_us=pick((0, 0, 1, SECOND_US, 3 * SECOND_US)) if roll() < 0.97 else 2**50,
            asked=pick((None, sha256_of(b"one"), sha256_of(b"another"))),
        )
        duration_us = pick((0, SECOND_US))
        printed = {name: LogRef(digest=sha256_of(b"out"), bytes_total=9, bytes_kept=3) for name in ("stdout", "stderr")}
        logs = {name: ref for name, ref in printed.items() if roll() < 0.5}
        self.ask("executor", c.ReportYielded(**bound, duration_us=duration_us, wait=wait, **logs))

    def _waiting(self) -> OrderState | None:
        found = [each for name in self.ids["order"][-200:] if (each := self.value(name)).state == "waiting"]
        if found and self.random.random() < 0.9:
            chosen: OrderState = self.random.choice(found)
            return chosen
        order: OrderState | None = self.value(self.any("order"))
        return order

    def answer(self) -> None:
        order = self._waiting()
        if order is not None:
            value = "é" * 40_000 if self.random.random() < 0.03 else "yes"
            question = self.random.choice(("", "", *QUESTIONS))
            self.ask("human", c.AnswerOrder(order=order.order, value=value, question=question))

    def end_wait(self) -> None:
        order = self._waiting()
        if order is not None:
            self.ask("reducer", c.EndWait(order=order.order, expected=order.version))
