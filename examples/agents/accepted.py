"""The verifier of the review: the order is applied only if the reviewer accepted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

review = json.loads(Path("review.json").read_text())
for finding in review["findings"]:
    print(f"line {finding['line']}: {finding['text']}", file=sys.stderr)
sys.exit(0 if review["verdict"] == "accepted" else 1)
