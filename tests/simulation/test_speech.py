"""Programs speak while they run, in every way that there is, and what they are told is what stands (W5, W6, W18)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core.evolve import edit
from fencepost.ports.door import Answer
from fencepost.services import upkeep
from fencepost.services.attempt import Attempts
from fencepost.services.desk import order_of
from fencepost.services.kept import Kept
from fencepost.services.sink import Sink
from fencepost.testing.simulator.scenario import draw
from fencepost.testing.simulator.shrink import run
from tests.simulation.test_simulator import first_problem

SEEDS = 22
SAID = ("SaveCheckpoint", "RecordArtifact", "ChargeUsage", "SubmitChild", "ReportYielded", "AnswerOrder", "EndWait")
WAITS = ("active -> waiting", "waiting -> ready", "waiting -> cancelled")


@pytest.mark.slow
def test_programs_say_everything_that_there_is_to_say() -> None:
    commands: Counter[str] = Counter()
    transitions: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run(draw(seed))
        assert not outcome.problem, outcome.problem
        commands.update(outcome.commands)
        transitions.update(outcome.transitions)
        refusals.update(outcome.refusals)
    assert {name: commands[name] for name in SAID if commands[name] < SEEDS} == {}
    assert {row for row in WAITS if not transitions[f"Order: {row}"]} == set()
    assert {code for code in ("checkpoint_moved", "receipt_differs", "already_answered") if not refusals[code]} == set()


def forgets_its_wish(known: Callable[..., Any]) -> Callable[..., Any]:
    def execute(self: Attempts, lease: Any, task: Any, space: Any, told: Any) -> Any:
        ended = known(self, lease, task, space, told)
        told.wish = None
        return ended

    return execute


def books_nothing(self: Sink, desk: Any, form: Any, payload: bytes | None) -> Answer:
    return Answer(reply={"receipt": form.receipt, "duplicate": False})


def knows_everything(known: Callable[..., Answer]) -> Callable[..., Answer]:
    def charge(self: Sink, desk: Any, form: Any, payload: bytes | None) -> Answer:
        return known(self, desk, replace(form, unknown=()), payload)

    return charge


def counts_nothing(counted: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    return dict(counted)


def saves_nothing(self: Kept, desk: Any, form: Any, payload: bytes | None) -> Answer:
    number = order_of(self._means, desk).checkpoint_number + 1
    return Answer(reply={"number": number, "checkpoint": "sha256:" + "0" * 64, "duplicate": False})


def resumes_with_another(known: Callable[..., Answer]) -> Callable[..., Answer]:
    def resume(self: Kept, desk: Any, form: Any, payload: bytes | None) -> Answer:
        return Answer(reply=known(self, desk, form, payload).reply, payload=b"another")

    return resume


def forgets_answers(known: Callable[..., Answer]) -> Callable[..., Answer]:
    def hello(self: Sink, desk: Any, form: Any, payload: bytes | None) -> Answer:
        return Answer(reply={**known(self, desk, form, payload).reply, "answers": {}})

    return hello


def forgets_children(known: Callable[..., Answer]) -> Callable[..., Answer]:
    def hello(self: Sink, desk: Any, form: Any, payload: bytes | None) -> Answer:
        return Answer(reply={**known(self, desk, form, payload).reply, "children": {}})

    return hello


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "a wish is forgotten": (Attempts, "_execute", forgets_its_wish(Attempts._execute), "was told that it waits"),
    "a charge is told and not booked": (Sink, "_charge", books_nothing, "the receipt "),
    "what is unknown is taken for nothing": (Sink, "_charge", knows_everything(Sink._charge), "is booked with"),
    "what is unknown is not shown": (edit, "counted_with", counts_nothing, "as unknown; receipts say"),
    "a checkpoint is told and not saved": (Kept, "checkpoint", saves_nothing, "checkpoint "),
    "another payload is resumed from": (Kept, "resume", resumes_with_another(Kept.resume), "resumes from"),
    "answers are not told": (Sink, "_hello", forgets_answers(Sink._hello), "the answer to "),
    "children are not told": (Sink, "_hello", forgets_children(Sink._hello), "the child "),
    "nobody ends waits by their time": (upkeep, "WAIT", "nothing", "waits for is over"),
}
"""Name -> what is put in whose place, and the words in which it is told."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_it_finds_what_programs_would_be_told_wrongly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken, words = PLANTED[name]
    monkeypatch.setattr(owner, attribute, broken)
    first_problem(words)
