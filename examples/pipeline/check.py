"""The verifier: the report has one line for each page, in their order."""

from __future__ import annotations

import sys
from pathlib import Path

lines = Path("report.md").read_text(encoding="utf-8").splitlines()
pages = int(lines[0].split()[1])
wanted = [f"{number}. Page {number} says" for number in range(1, pages + 1)]
wrong = [want for want, line in zip(wanted, lines[2:], strict=True) if not line.startswith(want)]
sys.exit(f"missing: {wrong[0]}" if wrong else 0)
