"""Small plans for the tests of plan files, as text and as values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fencepost.core.planfile import CheckedPlan, PlanDocument, RawDocument, check_document, check_text

# The example of the product page, as it stands there.
PRODUCT_EXAMPLE = """\
objective = "Every module imports, the tests pass, a report is published"
name      = "nightly"                  # first value: the file's stem; a plan's identity is (scope, name)
deadline  = "2h"                       # elapsed from submission
recovery  = "replace"                  # or "adopt": see lifecycle.md

[budget]                               # ceiling for the whole plan, every key optional but at least one
attempts = 12
time     = "30m"                       # sum of the attempts' durations
tokens   = { input = 200_000, output = 50_000 }
calls    = 40
money    = { USD = "2.50" }            # decimal string, at most six places

[reviewers.second-look]                # another executor and principal than the producer's
executor = "command"
run = ["python", "review.py"]

[[work]]
name = "lint"
run  = ["ruff", "check", "src"]        # executor "command"; or executor = "python", call = "module:function"
may_fail = true                        # does not count for exit code 7
environment = ["PATH"]                 # names; first value PATH, LANG, LC_*, TZ

[[work]]
name    = "tests"
needs   = [{ done = ["lint"] }]        # a string "lint": required, applied
run     = ["pytest", "-q", "--junitxml=report.xml"]
inputs  = ["src/**", "tests/**", "pyproject.toml"]   # pinned by digest at submission
outputs = ["report.xml"]               # patterns; only these are collected, whatever the exit code
attempt_time = "5m"                    # limit of one attempt
budget  = { attempts = 3, time = "10m", per_attempt = { calls = 5 } }
retry   = { on = ["executor", "transient_dependency"], backoff = "2s", backoff_max = "1m" }
accept  = { exit_code = 0, files = ["report.xml"], verify = ["python", "check_report.py"] }
review  = { by = "second-look", criteria = ["no test was removed or skipped"] }
priority = "normal"                    # low, normal, high
classification = "internal"            # public, internal, private
may = ["workspace.write"]              # operations asked for; granted is the intersection
resources = [{ name = "db-staging", mode = "write" }]   # lanes
effects = "declared"                   # none, declared, opaque
params = { url = "https://example.org" }   # attempt.params; FENCEPOST_PARAMS names a file with them

[[work]]
name = "publish"
needs = ["tests"]
inputs = [{ from = "tests", files = ["report.xml"] }]   # another order's outputs
run = ["sh", "publish.sh"]

[[work.effect]]                        # an outside operation that this order may ask for, by name, once
name = "publish-branch"
adapter = "git-push"
remote = "origin"
branch = "reports"
"""


def order(name: str = "a", **keys: Any) -> dict[str, Any]:
    return {"name": name, "run": ["true"], **keys}


def plan(*work: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"budget": {"attempts": 100}, "work": list(work) or [order()], **keys}


def check(value: object, *, tree: Sequence[str] | None = None, stem: str = "plan") -> CheckedPlan:
    return check_document(RawDocument(value=value), stem=stem, tree=tree)


def places(checked: CheckedPlan) -> list[tuple[str, str]]:
    return [(problem.code, problem.at) for problem in checked.problems]


def accepted(value: object, *, tree: Sequence[str] | None = None) -> PlanDocument:
    checked = check(value, tree=tree)
    assert checked.document is not None, checked.problems
    return checked.document


def as_json(value: object) -> CheckedPlan:
    return check_text(json.dumps(value), syntax="json", stem="plan")
