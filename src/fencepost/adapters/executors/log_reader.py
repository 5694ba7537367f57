"""Reads what `log_writer` keeps, at any moment of a command's life, finished or not."""

from __future__ import annotations

import errno
import os
import re

import msgspec

from fencepost.adapters.executors import foreign, log_writer
from fencepost.ports.executor import LogUnreadable

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Of a log as it is put together, and of a segment: several times what any caller has kept."""
SEGMENTS_MAX = 3
"""A writer has two, and for a moment one more."""

_GAP = re.compile(rb"\n\[fencepost: (\d{1,16}) bytes kept above, (\d{1,16}) left out, (\d{1,16}) kept below\]\n")
_TRIES_MAX = 10


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower has not seen: `skipped_bytes` were lost before `data`; ask again from `next_offset`."""

    data: bytes
    skipped_bytes: int
    next_offset: int


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """A log as it stands: `head`, then `gap_bytes` that were not kept, then `tail`."""

    head: bytes
    gap_bytes: int
    tail: bytes

    @property
    def bytes_total(self) -> int:
        """Length of the stream so far."""
        return len(self.head) + self.gap_bytes + len(self.tail)

    def text(self) -> bytes:
        """For a reader: the gap is stated in a line of its own."""
        if not self.gap_bytes:
            return self.head + self.tail
        line = log_writer.GAP_LINE.format(head=len(self.head), gap=self.gap_bytes, tail=len(self.tail))
        return self.head + line.encode() + self.tail

    def since(self, offset: int) -> Since:
        """What came at and after `offset` of the stream."""
        if not self.gap_bytes:
            return Since(
                data=(self.head + self.tail)[offset:],
                skipped_bytes=0,
                next_offset=max(offset, self.bytes_total),
            )
        tail_start = len(self.head) + self.gap_bytes
        if offset < len(self.head):
            return Since(data=self.head[offset:], skipped_bytes=0, next_offset=len(self.head))
        return Since(
            data=self.tail[max(0, offset - tail_start) :],
            skipped_bytes=max(0, tail_start - offset),
            next_offset=max(offset, self.bytes_total),
        )


def read_log(path: str) -> LogView:
    """The log at `path` (absolute). Raises FileNotFoundError where none was ever begun, and LogUnreadable where the
    command put something else in its place: nothing is followed, waited for or read beyond what can have been kept.
    """
    try:
        for _ in range(_TRIES_MAX):
            try:
                return _read_once(path)
            except _Moved:
                continue
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LogUnreadable(f"{path}: {error.strerror or error}") from error
    raise LogUnreadable(f"{path} changed {_TRIES_MAX} times while it was read")


class _Moved(Exception):
    """A segment went away between listing and reading."""


def _read_once(path: str) -> LogView:
    place, name = os.path.split(path)
    folder = foreign.open_folder(place)
    try:
        offsets = log_writer.segment_offsets(name, os.listdir(folder))
        if len(offsets) > SEGMENTS_MAX:
            raise foreign.NotRegular(errno.EINVAL, f"{len(offsets)} segments, a log has at most {SEGMENTS_MAX}")
        segments: list[tuple[int, bytes]] = []
        for offset in offsets:
            segment = log_writer.segment_name(name, offset)
            try:
                segments.append((offset, foreign.read_regular(segment, folder=folder, bytes_max=FILE_BYTES_MAX)))
            except FileNotFoundError as error:
                raise _Moved from error
        content = foreign.read_regular(name, folder=folder, bytes_max=FILE_BYTES_MAX)
    finally:
        os.close(folder)
    finished = _split_finished(content)
    if finished is not None:
        return finished
    if not segments:
        return LogView(head=content, gap_bytes=0, tail=b"")
    # A segment whose bytes the file already has was being taken over when its keeper stopped.
    start = segments[0][0]
    tail = b"".join(data for _, data in segments)
    overlap = max(0, len(content) - start)
    return LogView(head=content, gap_bytes=max(0, start - len(content)), tail=tail[overlap:])


def _split_finished(content: bytes) -> LogView | None:
    """Head and tail of a log with a gap. The line counts only where it stands at the place that it names."""
    for match in _GAP.finditer(content):
        head, gap, tail = (int(group) for group in match.groups())
        if match.start() == head and len(content) - match.end() == tail:
            return LogView(head=content[:head], gap_bytes=gap, tail=content[match.end() :])
    return None


def read_tail(path: str, bytes_max: int) -> tuple[int, bytes]:
    """When a log was last written (nanoseconds of the file system's clock), and its last bytes, at most `bytes_max`.

    For whoever looks often: one small read, however much was printed. (0, b"") where nothing can be read.
    """
    place, name = os.path.split(path)
    try:
        folder = foreign.open_folder(place)
    except OSError:
        return 0, b""
    try:
        offsets = log_writer.segment_offsets(name, os.listdir(folder))
        segments = [log_writer.segment_name(name, offset) for offset in offsets[-SEGMENTS_MAX:]]
        for candidate in (*reversed(segments), name):
            try:
                descriptor = foreign.open_regular(candidate, folder=folder)
            except OSError:
                continue
            try:
                facts = os.fstat(descriptor)
                if facts.st_size:
                    return facts.st_mtime_ns, os.pread(descriptor, bytes_max, max(facts.st_size - bytes_max, 0))
            finally:
                os.close(descriptor)
    except OSError:
        return 0, b""
    finally:
        os.close(folder)
    return 0, b""
