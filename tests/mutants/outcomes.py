"""A pytest plugin that writes down what became of each test, so that its runner need not read words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

FILE_VARIABLE: Final = "FENCEPOST_MUTANT_OUTCOMES"
_MESSAGE_LENGTH_MAX: Final = 300


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line of JSON for each test that has passed, failed (in whatever phase) or was skipped."""
    if report.passed and report.when != "call":
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    message = "" if crash is None else " ".join(str(crash.message).split())[:_MESSAGE_LENGTH_MAX]
    line = json.dumps({"test": report.nodeid, "outcome": report.outcome, "message": message})
    with Path(os.environ[FILE_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
