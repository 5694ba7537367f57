"""Helpers for tests that kill real runs: a plan in a folder of its own, the command line as a user calls it, and the
checks that must hold whatever was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    check_records(place.records())


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
