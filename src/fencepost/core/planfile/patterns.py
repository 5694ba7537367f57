"""File patterns: which paths they match, and whether outputs cover a pattern.

Rules: a path is relative, POSIX, with at least one segment. A pattern is compared segment by segment; `*`
stands for any run of characters within a segment (none included), `**` alone in its segment for any number
of segments (none included), except that a final `**` means everything inside and so stands for at least
one. Everything else is literal, `?` and brackets too, and dot files are files like any other. Results come
in bytewise order.

Matching never backtracks over more than the last wildcard, on either level, so its cost is bounded by the
product of the lengths. Nothing here looks at a file system: links are followed, or refused, by whoever
lists the files.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from fencepost.core.planfile import bounds
from fencepost.core.planfile.problems import quote

_ANY_SEGMENTS = "**"
_FRESH = "\0"
"""Stands for "any text" when one pattern is compared with others; no pattern and no path contains it."""


class PatternProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pattern is refused: `path_outside` or `out_of_range`, a sentence, and what to write instead."""

    code: str
    message: str
    next: str


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern ready for matching.

    `runs` are the segments between `**`; the first run is anchored at the start of a path, the last at its
    end.
    """

    text: str
    runs: tuple[tuple[str, ...], ...]

    def is_literal(self) -> bool:
        """Whether the pattern names exactly one path."""
        return "*" not in self.text

    def literal_prefix(self) -> str:
        """The text that every matching path starts with."""
        return self.text.split("*", 1)[0]

    def matches(self, path: str) -> bool:
        if "*" not in self.text:
            return path == self.text
        segments = path.split("/")
        first, *others = self.runs
        if not others:
            return len(segments) == len(first) and _run_matches(first, segments, 0)
        last = others.pop()
        start = len(first)
        end = len(segments) - len(last)
        if start > end or not _run_matches(first, segments, 0) or not _run_matches(last, segments, end):
            return False
        # The leftmost place is always as good as any later one, since `**` swallows whatever lies between.
        for run in others:
            while start + len(run) <= end and not _run_matches(run, segments, start):
                start += 1
            start += len(run)
            if start > end:
                return False
        return True


def _run_matches(run: Sequence[str], segments: Sequence[str], start: int) -> bool:
    return all(segment_matches(run[index], segments[start + index]) for index in range(len(run)))


def segment_matches(pattern: str, segment: str) -> bool:
    """Whether one segment matches a pattern in which only `*` is special."""
    if "*" not in pattern:
        return pattern == segment
    first, *others = pattern.split("*")
    last = others.pop()
    if len(first) + len(last) > len(segment) or not segment.startswith(first) or not segment.endswith(last):
        return False
    start = len(first)
    end = len(segment) - len(last)
    for piece in others:
        found = segment.find(piece, start, end)
        if found < 0:
            return False
        start = found + len(piece)
    return True


def compile_pattern(text: str) -> Pattern | PatternProblem:
    """Check and prepare a pattern of at most `bounds.PATTERN_BYTES_MAX` bytes."""
    problem = _refusal(text)
    if problem is not None:
        return problem
    segments = text.split("/")
    if segments[-1] == _ANY_SEGMENTS:
        segments.append("*")
    if _ANY_SEGMENTS not in text:
        return Pattern(text=text, runs=(tuple(segments),))
    runs: list[tuple[str, ...]] = []
    run: list[str] = []
    for index, segment in enumerate(segments):
        if segment != _ANY_SEGMENTS:
            run.append(segment)
        elif index == 0 or segments[index - 1] != _ANY_SEGMENTS:
            runs.append(tuple(run))
            run = []
    runs.append(tuple(run))
    return Pattern(text=text, runs=tuple(runs))


_RELATIVE = 'write a path relative to the repository, such as "src/**"'
_NO_PATH_HAS = re.compile("[\0\ud800-\udfff]")


_PLAIN = re.compile(r"[a-zA-Z0-9_*-][a-zA-Z0-9_.*-]*(?:/[a-zA-Z0-9_*-][a-zA-Z0-9_.*-]*)*")
"""What most patterns look like; nothing else is asked about one that is short and without `**`."""


def _refusal(text: str) -> PatternProblem | None:
    if len(text) <= bounds.PATTERN_SEGMENTS_MAX and _ANY_SEGMENTS not in text and _PLAIN.fullmatch(text):
        return None
    segments = text.split("/")
    if not text:
        return _out_of_range("the pattern is empty", _RELATIVE)
    if _NO_PATH_HAS.search(text) is not None:
        return _out_of_range(f"{quote(text)} contains a character that no path may have", _RELATIVE)
    if len(text.encode("utf-8")) > bounds.PATTERN_BYTES_MAX:
        return _out_of_range(
            f"the pattern {quote(text)} is longer than {bounds.PATTERN_BYTES_MAX} bytes",
            "shorten it, for example with `**`",
        )
    if text.startswith("/"):
        return PatternProblem(code="path_outside", message=f"{quote(text)} is an absolute path", next=_RELATIVE)
    if ".." in segments:
        return PatternProblem(
            code="path_outside", message=f"{quote(text)} leads out of the tree with `..`", next=_RELATIVE
        )
    if "\\" in text:
        return _out_of_range(f"{quote(text)} contains a backslash", "separate segments with `/`")
    if text.endswith("/"):
        return _out_of_range(
            f"{quote(text)} ends with a slash, and patterns match files only",
            f"write {quote(text.rstrip('/') + '/**')} for everything inside",
        )
    if "" in segments or "." in segments:
        return _out_of_range(f"{quote(text)} has an empty segment or a `.` segment", "leave it out")
    if len(segments) > bounds.PATTERN_SEGMENTS_MAX:
        return _out_of_range(
            f"{quote(text)} has more than {bounds.PATTERN_SEGMENTS_MAX} segments",
            "shorten it, for example with `**`",
        )
    if _ANY_SEGMENTS in text and any(_ANY_SEGMENTS in part and part != _ANY_SEGMENTS for part in segments):
        return _out_of_range(
            f"in {quote(text)} a `**` shares its segment with other characters",
            "give `**` a segment of its own, or write `*`",
        )
    return None


def _out_of_range(message: str, next_step: str) -> PatternProblem:
    return PatternProblem(code="out_of_range", message=message, next=next_step)


def path_key(path: str) -> bytes:
    """Sort key of paths: their bytes, also of a name that is not UTF-8 and came as lone surrogates."""
    if path.isascii():
        return path.encode("ascii")
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return path.encode("utf-8", "surrogatepass")


class FileTree:
    """Paths sorted bytewise, so that a pattern looks only at those that share its literal start.

    Remembers for each pattern whether it matches, since the orders of a plan often name the same ones.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._known = frozenset(paths)
        pairs = sorted((path_key(path), path) for path in self._known)
        self._keys = [key for key, _ in pairs]
        self._paths = [path for _, path in pairs]
        self._has_match: dict[str, bool] = {}

    def matching(self, pattern: Pattern) -> Iterable[str]:
        """The paths that match, in bytewise order."""
        prefix = path_key(pattern.literal_prefix())
        for index in range(bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[index].startswith(prefix):
                return
            if pattern.matches(self._paths[index]):
                yield self._paths[index]

    def __contains__(self, path: str) -> bool:
        return path in self._known

    def has_match(self, pattern: Pattern) -> bool:
        known = self._has_match.get(pattern.text)
        if known is None:
            known = self._has_match[pattern.text] = next(iter(self.matching(pattern)), None) is not None
        return known


def select(patterns: Sequence[Pattern], paths: FileTree | Iterable[str]) -> list[str]:
    """The paths that match any of the patterns, each once, in bytewise order.

    Whoever selects from the same paths more than once prepares a `FileTree`.
    """
    tree = paths if isinstance(paths, FileTree) else FileTree(paths)
    return sorted({path for pattern in patterns for path in tree.matching(pattern)}, key=path_key)


def covers(outputs: Sequence[Pattern], pattern: Pattern) -> bool:
    """Whether every path that the pattern can match is matched by some output pattern.

    The answer yes is always right. The answer no is wrong only where the search needs more than
    `bounds.COVER_STEPS_MAX` steps, which takes many `**` in the outputs.

    Why it is exact otherwise: put a fresh character for each `*` of the pattern, and fresh segments for
    each `**`. Such a path is matched by an output only if the fresh parts lie inside the output's own
    wildcards, and then every other path of the same shape is matched as well. So it is enough to follow all
    shapes, each with the set of places that the outputs can have reached.
    """
    if any(output.text == pattern.text for output in outputs):
        return True
    if pattern.is_literal():
        return any(output.matches(pattern.text) for output in outputs)
    tokens = _tokens(pattern)
    others = [_tokens(output) for output in outputs]
    start = _closure(others, {(index, 0) for index in range(len(others))})
    waiting = deque([(0, start)])
    seen = {(0, start)}
    steps = 0
    while waiting:
        place, reached = waiting.popleft()
        if place == len(tokens):
            if not any(position == len(others[index]) for index, position in reached):
                return False
            continue
        if tokens[place] == _ANY_SEGMENTS:
            following = [(place, _advance(others, reached, _FRESH)), (place + 1, reached)]
        else:
            following = [(place + 1, _advance(others, reached, tokens[place].replace("*", _FRESH)))]
        for state in following:
            steps += 1 + len(state[1])
            if steps > bounds.COVER_STEPS_MAX or not state[1]:
                # With no place left in any output, some path of this shape is matched by none.
                return False
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return True


_Places = frozenset[tuple[int, int]]


def _tokens(pattern: Pattern) -> tuple[str, ...]:
    tokens: list[str] = list(pattern.runs[0])
    for run in pattern.runs[1:]:
        tokens.append(_ANY_SEGMENTS)
        tokens.extend(run)
    return tuple(tokens)


def _closure(others: Sequence[Sequence[str]], places: set[tuple[int, int]]) -> _Places:
    """The places, and those reached by letting a `**` stand for nothing."""
    reached = set(places)
    for index, start in places:
        position = start
        while position < len(others[index]) and others[index][position] == _ANY_SEGMENTS:
            position += 1
            reached.add((index, position))
    return frozenset(reached)


def _advance(others: Sequence[Sequence[str]], places: _Places, segment: str) -> _Places:
    reached: set[tuple[int, int]] = set()
    for index, position in places:
        tokens = others[index]
        if position == len(tokens):
            continue
        if tokens[position] == _ANY_SEGMENTS:
            reached.add((index, position))
        elif segment_matches(tokens[position], segment):
            reached.add((index, position + 1))
    return _closure(others, reached)
