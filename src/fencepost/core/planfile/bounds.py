"""Bounds of a plan file, in one place.

Everything that a plan may name has an upper bound here, so that a check ends, a record fits its envelope and
a spec that is too large is refused before any work is leased (case-40). All bounds are inclusive.
"""

from __future__ import annotations

from typing import Final

from fencepost.core.limits import FIRST_VALUES
from fencepost.core.strictjson import INT_MAX

DOCUMENT_BYTES_MAX: Final = FIRST_VALUES.command_bytes_max
"""Size of a plan file's text in UTF-8."""

DEPTH_MAX: Final = 32
"""Tables and lists inside one another, the document itself counted as one."""

INTEGER_MAX: Final = INT_MAX
"""Greatest absolute value of any integer, so that every JSON reader keeps it exactly."""

PROBLEMS_MAX: Final = 10_000
"""Problems reported for one document; those past it are counted, not kept."""

SUGGESTIONS_MAX: Final = 100
"""Unknown words of one document for which the most similar known one is looked up."""

RINGS_MAX: Final = 16
"""Dependency rings reported for one document."""

RING_NAMES_SHOWN_MAX: Final = 32
"""Names written out in the message about one ring; a longer ring is abridged in its middle."""

QUOTE_CHARACTERS_MAX: Final = 80
"""Characters of a plan's own text that a message repeats."""

ORDERS_MAX: Final = FIRST_VALUES.plan_orders_max
"""Work orders of one plan: one batch of records."""

NEEDS_MAX: Final = 256
"""Items of one order's `needs` that are tables, each of them a group."""

MEMBERS_MAX: Final = ORDERS_MAX
"""Members of one order's groups together: a fan-in of the whole plan is allowed."""

EDGES_MAX: Final = FIRST_VALUES.plan_edges_max
"""Members of all groups of a plan together."""

NAME_CHARACTERS_MAX: Final = 63
"""Characters of the name of a plan or an order."""

OBJECTIVE_BYTES_MAX: Final = FIRST_VALUES.text_bytes_max
"""UTF-8 bytes of the objective."""

ARGUMENTS_MAX: Final = 1_024
"""Items of an argument list (`run`, `accept.verify`)."""

ARGUMENTS_BYTES_MAX: Final = 128 * 1024
"""UTF-8 bytes of an argument list, one terminating byte for each item included."""

CALL_BYTES_MAX: Final = 255
"""Bytes of the name of a callable, `module:function`."""

INTERPRETER_BYTES_MAX: Final = 4_096
"""UTF-8 bytes of the path or name of an interpreter."""

ENVIRONMENT_MAX: Final = 256
"""Names in `environment`."""

ENVIRONMENT_NAME_CHARACTERS_MAX: Final = 255
"""Characters of one name in `environment`."""

PATTERNS_MAX: Final = 256
"""Patterns of one list, and items of `inputs`."""

PATTERN_BYTES_MAX: Final = 1_024
"""UTF-8 bytes of one pattern or path."""

PATTERN_SEGMENTS_MAX: Final = 128
"""Segments of one pattern or path."""

COVER_STEPS_MAX: Final = 20_000
"""Steps of one search whether outputs cover a pattern; past it the answer is no."""

PARAMS_BYTES_MAX: Final = 64 * 1024
"""Canonical bytes of `params`."""

ATTEMPTS_MAX: Final = 1_000_000
"""Greatest ceiling of attempts, of a plan as of an order; the least is 1."""

CURRENCIES_MAX: Final = 16
"""Currencies in one `money` table."""

EXIT_CODE_MAX: Final = 255
"""Greatest exit code that a program can end with."""

ATTEMPTS_FIRST: Final = FIRST_VALUES.attempts
"""First value of an order's attempts, if the plan allows as many."""

ATTEMPT_TIME_FIRST_US: Final = FIRST_VALUES.attempt_time_us
"""First value of the limit of one attempt in microseconds (10 min), if the ceilings allow as much."""

BACKOFF_LONGEST_US: Final = FIRST_VALUES.backoff_max_us
"""Greatest value of `backoff_max`, in microseconds (1 h)."""

BACKOFF_FIRST_US: Final = 1_000_000
"""First value of the pause before the first retry, in microseconds (1 s)."""

BACKOFF_MAX_FIRST_US: Final = 60 * 1_000_000
"""First value of the longest pause between retries, 1 min in microseconds, or `backoff` if longer."""
