"""A second program, which looks at what the first one wrote with other eyes, and says so in a file.

In earnest this is another agent with another model. What it finds is data: `review.json` has a schema, and the plan's
verifier of this order decides by it.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

SUSPECT = {"eval", "exec", "open", "__import__", "compile"}


def findings(source: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node):
            found.append({"line": node.lineno, "text": "a function is still missing"})
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SUSPECT:
            found.append({"line": node.lineno, "text": f"calls {node.func.id}"})
    return found


def main() -> int:
    found = findings(Path(sys.argv[1]).read_text())
    verdict = "changes_wanted" if found else "accepted"
    Path("review.json").write_text(json.dumps({"verdict": verdict, "findings": found}))
    print(f"{verdict}: {len(found)} findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
