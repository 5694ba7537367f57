"""Helpers for tests that kill real runs: a plan in a folder of its own, the command line as a user calls it, and the
checks that must hold whatever was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.app import App
from fencepost.kernel.read import Look

CLI = [sys.executable, "-m", "fencepost"]
MARKER = b"FENCEPOST_ATTEMPT="


@dataclass
class Place:
    """A folder with a plan in it, and a log outside of every workspace that each execution appends to."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "executions.log"

    def environment(self) -> dict[str, str]:
        base = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        return {**base, "XDG_STATE_HOME": str(self.folder / "state"), "HOME": str(self.folder)}

    def write_plan(self, text: str, name: str = "plan.toml") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*CLI, *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def call(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def document(self, *arguments: str) -> Any:
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, (arguments, done.returncode, done.stderr)
        return json.loads(done.stdout)

    def executions(self) -> list[str]:
        """One line for each time that an order's command really ran to its end."""
        return self.log.read_text().split() if self.log.exists() else []

    def applied(self) -> dict[str, int]:
        """PLAN/ORDER of every applied order -> how often its command has run to its end by now."""
        if not (self.folder / ".fencepost" / "layout").exists():
            return {}
        ran = Counter(self.executions())
        with self.look() as look:
            return {
                name: ran[name]
                for plan in look.plans()
                for order in look.orders(plan.plan)
                if order.state == "applied"
                for name in [f"{plan.name}/{order.task}"]
            }

    @contextmanager
    def look(self) -> Iterator[Look]:
        """The store as it lies there, read in this process."""
        app = App(self.folder / ".fencepost", scope="default", environment=self.environment())
        try:
            with app.kernel.reader.look() as look:
                yield look
        finally:
            app.kernel.wakeups.close()
            app.kernel.journal.close()

    def records(self) -> list[dict[str, Any]]:
        done = self.call("journal", "export")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line]


def processes_of(folder: Path) -> list[int]:
    """Processes that carry the marker of an attempt whose home is below `folder`."""
    found = []
    wanted = os.fsencode(folder)
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if MARKER in environment and wanted in environment:
            found.append(int(entry))
    return found


def check_journal(place: Place) -> None:
    """Chain, anchors, replay and accounts, by the project's own commands and by hand."""
    verified = place.document("journal", "verify")
    assert verified["ok"], verified
    replayed = place.document("journal", "replay")
    assert replayed["match"], replayed
    records = place.records()
    check_records(records)
    check_accounts(place, records)


def check_records(records: list[dict[str, Any]]) -> None:
    """What must be true of any history, read from the bare records by code that shares nothing with the kernel."""
    applied: dict[str, int] = {}
    live: dict[str, str] = {}
    order_of: dict[str, str] = {}
    held: dict[str, dict[str, int]] = {}
    ended: set[str] = set()
    for record in records:
        kind, subject, body = record["kind"], record["subject"], record["body"]
        if kind == "attempt_reservation":
            assert body["order"] not in applied, f"{subject} was reserved after its order had been applied"
            assert body["order"] not in live, f"{subject} was reserved while {live.get(body['order'])} was live"
            live[body["order"]] = subject
            order_of[subject] = body["order"]
            held[body["hold"]] = body["amounts"]
        elif kind == "attempt_moved" and body["target"] in ("cancelled_no_effect", "expired_no_effect", "yielded"):
            live.pop(order_of[subject], None)
        elif kind == "result_application":
            live.pop(body["order"], None)
            if body["decision"] == "applied":
                assert body["order"] not in applied, f"{body['order']} was applied twice"
                applied[body["order"]] = record["seq"]
        elif kind in ("hold_settled", "hold_released"):
            assert subject in held, f"{subject} ended and never began"
            assert subject not in ended, f"{subject} ended twice"
            ended.add(subject)


@dataclass
class Hold:
    """One attempt's hold as the records tell it."""

    accounts: list[str]
    amounts: dict[str, int]
    held: dict[str, int]
    attempt: str
    charged: Counter[str] = field(default_factory=Counter)
    basis: str = ""
    settled_us: int = 0


def holds_of(records: list[dict[str, Any]]) -> list[Hold]:
    """Every hold, with what an activation, its settlement and late receipts charged it."""
    holds: dict[str, Hold] = {}
    by_attempt: dict[str, Hold] = {}
    for record in records:
        kind, subject, body = record["kind"], record["subject"], record["body"]
        if kind == "attempt_reservation":
            hold = Hold(body["accounts"], dict(body["amounts"]), dict(body["amounts"]), subject)
            holds[body["hold"]] = by_attempt[subject] = hold
        elif kind == "attempt_descriptor":
            hold = by_attempt[subject]
            hold.charged["attempts"] += 1
            hold.held.pop("attempts")
        elif kind in ("hold_settled", "hold_released", "hold_adjusted"):
            hold = holds[subject]
            hold.charged.update(body.get("charged", {}))
            hold.charged.subtract(body.get("credited", {}))
            if kind != "hold_adjusted":
                hold.held = {}
                hold.basis = body.get("basis", "released")
                hold.settled_us = body.get("charged", {}).get("time_us", 0)
        elif kind == "usage_charged":
            hold = by_attempt[body["attempt"]]
            hold.charged.update(body["usage"]["amounts"])
            for dimension, amount in body["freed"].items():
                hold.held[dimension] -= amount
        elif kind == "hold_unsettled":
            for dimension in body["freed"]:
                holds[subject].held.pop(dimension, None)
    return list(holds.values())


def check_accounts(place: Place, records: list[dict[str, Any]]) -> None:
    """Every account is the sum of its holds, at the order, the plan and the scope; and time is what was measured."""
    holds = holds_of(records)
    charged: dict[str, Counter[str]] = {}
    held: dict[str, Counter[str]] = {}
    for hold in holds:
        for account in hold.accounts:
            charged.setdefault(account, Counter()).update(hold.charged)
            held.setdefault(account, Counter()).update(hold.held)
    with place.look() as look:
        for subject, sums in charged.items():
            account = look.get(subject).account
            assert account.charged == {name: amount for name, amount in sums.items() if amount}, subject
            assert account.held == {name: amount for name, amount in held[subject].items() if amount}, subject
    measured = measured_us(records)
    for hold in holds:
        if hold.basis == "receipts" and hold.attempt in measured:
            assert hold.settled_us == measured[hold.attempt], hold
        elif hold.basis in ("holder_gone", "expiry"):
            assert 0 < hold.settled_us <= hold.amounts["time_us"], hold
        elif hold.basis == "released":
            assert not any(hold.charged.values()), hold


def measured_us(records: list[dict[str, Any]]) -> dict[str, int]:
    """Attempt -> the time that its program and its verifier took, of attempts that reported in time."""
    took: dict[str, int] = {}
    for record in records:
        body = record["body"]
        if record["kind"] == "attempt_result":
            took[record["subject"]] = sum(usage["amounts"].get("time_us", 0) for usage in body["facts"]["usage"])
        elif record["kind"] == "verification_receipt":
            took[body["attempt"]] += body["duration_us"]
    return took
