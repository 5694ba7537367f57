"""Checks of outputs against the schemas of a plan: two files that strangers wrote, and an answer within bounds.

Whatever a document and a schema hold, a check ends within fixed bounds of time and memory, and holds nobody else up
meanwhile. What it could not do within them is a problem of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

Check = Callable[[bytes, bytes], Sequence[str] | None]
"""(document, schema) -> what is wrong, for people, nothing where the document follows its schema. None where it was
stopped before it had an answer. Raises StorageError where no check can be begun."""

SchemaChecks = Callable[[Callable[[], bool]], AbstractContextManager[Check]]
"""Opens the checks of one result. They stop, within a second, once what they are given answers that they must."""
