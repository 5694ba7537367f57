"""`fencepost help plan-file`: every key of a plan file in one line, with its first value. docs/PLANS.md has the rest.

The keys that stand here are those that the check knows, neither more nor fewer; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Rows = tuple[tuple[str, str], ...]

TABLES: Final[Mapping[str, tuple[str, Rows]]] = {
    "plan": (
        "The plan:",
        (
            ("objective", "what it is for, in words"),
            ("name", "first value: the file's name without its suffix"),
            ("deadline", "a duration from the submission; then what is left is cancelled"),
            ("recovery", '"replace": a lost worker\'s order is repeated'),
            ("budget", "a table of ceilings, at least one; required"),
            ("python", 'the interpreter of orders with executor = "python"'),
            ("work", "the orders, each begun with [[work]]; required"),
        ),
    ),
    "work": (
        "Each [[work]]:",
        (
            ("name", "required"),
            ("executor", '"command" (first value) or "python"'),
            ("run", 'program and arguments: ["pytest", "-q"]; required for "command"'),
            ("call", '"module:function"; required for "python"'),
            ("may_fail", "true: does not count for exit code 7. First value: false"),
            ("environment", "variables handed down. First value: PATH, LANG, LC_*, TZ"),
            ("needs", "orders that come before; first value: none"),
            ("inputs", "what is pinned. First value: every file that git does not ignore"),
            ("outputs", "patterns of what is collected; first value: nothing"),
            ("attempt_time", "limit of one attempt. First value: 10m, or the smallest ceiling"),
            ("budget", "its own ceilings. First value: attempts = 3, or the plan's if fewer"),
            ("retry", "after which failures another attempt follows; first value: none"),
            ("accept", "what proves that it is done. First value: exit code 0"),
            ("priority", '"low", "normal" (first value), "high"'),
            ("classification", '"public", "internal" (first value), "private"'),
            ("may", 'operations: ["workspace.write"]'),
            ("effects", '"none" or "declared" (first value)'),
            ("params", "a table of values for the program"),
        ),
    ),
    "needs": (
        "An item of needs is a name (that order must be applied), or a table:",
        (
            ("all", "names: every one has an outcome of outcomes"),
            ("any", "names: one of them has"),
            ("done", "names: every one has ended, however"),
            ("outcomes", 'first value: ["applied"]'),
        ),
    ),
    "inputs": (
        "An item of inputs is a pattern (* within a segment, ** any segments), or a table:",
        (
            ("from", "an order that is in needs"),
            ("files", "patterns within its outputs"),
        ),
    ),
    "accept": (
        "accept:",
        (
            ("exit_code", "0 to 255; first value: 0"),
            ("files", "patterns, each of which must match an output"),
            ("schema", "a table: a pattern of outputs = a JSON Schema in the repository"),
            ("verify", "program and arguments of a verifier, which must end with 0"),
        ),
    ),
    "retry": (
        "retry:",
        (
            ("on", '"executor", "transient_dependency", "validation"; required'),
            ("backoff", "the first pause, then doubled. First value: 1s"),
            ("backoff_max", "the longest pause, at most 1h. First value: 1m"),
        ),
    ),
    "budget": (
        "budget:",
        (
            ("attempts", "1 to 1000000"),
            ("time", "a duration: the sum of all attempts"),
            ("tokens", "a table of input and output"),
            ("calls", "an integer"),
            ("money", 'a table: { USD = "2.50" }'),
            ("per_attempt", "of an order only: tokens, calls, money that one attempt holds"),
        ),
    ),
}
OPENING: Final = (
    "A plan file is TOML, or JSON with the same structure. Durations are strings such as 1h30m, money is a decimal "
    "string such as 2.50; a key that is not listed here is refused."
)
HOLDS: Final = (
    "In every dimension that the order or its plan limits, an attempt holds per_attempt; else the order's ceiling "
    "divided by its attempts; else the plan's divided by the plan's attempts."
)
CLOSING: Final = (
    "fencepost plan check FILE names every problem of a file at once. docs/PLANS.md has bounds and examples."
)
