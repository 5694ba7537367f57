"""Plan files: text in, a checked plan with first values or every problem out. Pure."""

from __future__ import annotations

from fencepost.core.planfile.check import CheckedPlan, check_document, check_text
from fencepost.core.planfile.content import content_of
from fencepost.core.planfile.document import (
    OUTCOMES,
    Accept,
    FilePatterns,
    FromOrder,
    Group,
    Member,
    PlanDocument,
    Retry,
    WorkItem,
)
from fencepost.core.planfile.lines import with_lines
from fencepost.core.planfile.patterns import (
    FileTree,
    Pattern,
    PatternProblem,
    compile_pattern,
    covers,
    select,
)
from fencepost.core.planfile.problems import PlanProblem
from fencepost.core.planfile.read import RawDocument, read_document

__all__ = [
    "OUTCOMES",
    "Accept",
    "CheckedPlan",
    "FilePatterns",
    "FileTree",
    "FromOrder",
    "Group",
    "Member",
    "Pattern",
    "PatternProblem",
    "PlanDocument",
    "PlanProblem",
    "RawDocument",
    "Retry",
    "WorkItem",
    "check_document",
    "check_text",
    "compile_pattern",
    "content_of",
    "covers",
    "read_document",
    "select",
    "with_lines",
]
