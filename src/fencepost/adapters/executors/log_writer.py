"""Keeps the first and the last bytes of a stream of any length, readable at every moment.

While the command runs, `PATH` holds the head and `PATH.tail-OFFSET` files hold what follows: each is at most
`tail_max` bytes, its name is the offset of its first byte in the stream, and at most two exist, so that the
last `tail_max` bytes are always there and the disk holds at most `head_max + 2 x tail_max`. At the end
everything is in `PATH`: the stream as it was, or head, gap line and tail (the gap line states its own place,
see GAP_LINE), put there by one rename.

A disk that takes no more ends the keeping, never the reading: the command goes on and the end says so.
Only the standard library: the keeper host loads this. The reading side is `log_reader`.
"""

from __future__ import annotations

import contextlib
import os

GAP_LINE = "\n[fencepost: {head} bytes kept above, {gap} left out, {tail} kept below]\n"
TAIL_SUFFIX = ".tail-"
OFFSET_DIGITS = 16

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class LogWriter:
    """One stream of one attempt."""

    def __init__(self, path: str, *, head_max: int, tail_max: int) -> None:
        self._path = path
        self._head_max = head_max
        self._tail_max = tail_max
        self._head_bytes = 0
        self._segments: list[tuple[int, int]] = []
        self._descriptor = -1
        self.bytes_total = 0
        self.problem = ""
        try:
            remove_segments(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._descriptor = os.open(path, _FLAGS | os.O_EXCL, 0o600)
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Take what the command wrote. Never raises for the disk's sake."""
        self.bytes_total += len(data)
        if self.problem:
            return
        try:
            taken = self._head_max - self._head_bytes
            if taken > 0:
                self._head_bytes += self._write(data[:taken], counted="head")
                data = data[taken:]
            if data and self._tail_max > 0:
                self._write_tail(data)
        except OSError as error:
            self._give_up(error)

    def finish(self) -> dict[str, int]:
        """Put the log together and close it. Returns the facts (`LogFacts`)."""
        tail_kept = 0
        if not self.problem:
            try:
                tail_kept = self._assemble()
            except OSError as error:
                self._give_up(error)
        if self.problem:
            tail_kept = sum(size for _, size in self._segments)
        self._close()
        return {
            "bytes_total": self.bytes_total,
            "head_bytes": self._head_bytes,
            "tail_bytes": tail_kept,
            "gap_bytes": self.bytes_total - self._head_bytes - tail_kept,
        }

    def _write_tail(self, data: bytes) -> None:
        while data:
            if not self._segments or self._segments[-1][1] >= self._tail_max:
                self._rotate(self.bytes_total - len(data))
            room = self._tail_max - self._segments[-1][1]
            self._write(data[:room], counted="tail")
            data = data[room:]

    def _rotate(self, offset: int) -> None:
        self._close()
        if len(self._segments) == 2:
            os.unlink(segment_path(self._path, self._segments.pop(0)[0]))
        self._descriptor = os.open(segment_path(self._path, offset), _FLAGS | os.O_EXCL, 0o600)
        self._segments.append((offset, 0))

    def _write(self, data: bytes, *, counted: str) -> int:
        """Write all of it; a disk that fills up midway leaves the counts at what it took."""
        written = 0
        while written < len(data):
            try:
                count = os.write(self._descriptor, data[written:])
            except OSError:
                if counted == "head":
                    self._head_bytes += written
                raise
            written += count
            if counted == "tail":
                offset, size = self._segments[-1]
                self._segments[-1] = (offset, size + count)
        return written

    def _assemble(self) -> int:
        """Make `PATH` the whole log; returns how many bytes of tail it has."""
        tail = b"".join(_read(segment_path(self._path, offset)) for offset, _ in self._segments)
        gap_needed = self.bytes_total > self._head_bytes + self._tail_max
        if gap_needed:
            tail = tail[len(tail) - min(self._tail_max, len(tail)) :]
        if not gap_needed and not tail:
            return 0
        self._close()
        if gap_needed:
            gap = self.bytes_total - self._head_bytes - len(tail)
            line = GAP_LINE.format(head=self._head_bytes, gap=gap, tail=len(tail)).encode()
            whole = self._path + ".whole"
            self._descriptor = os.open(whole, _FLAGS | os.O_TRUNC, 0o600)
            self._write(_read(self._path) + line + tail, counted="")
            os.rename(whole, self._path)
        else:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            self._write(tail, counted="")
        self._close()
        remove_segments(self._path)
        return len(tail)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _give_up(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        self.problem = f"{os.path.basename(self._path)} is incomplete after byte {self.bytes_total}: {reason}"
        self._close()
        with contextlib.suppress(OSError):
            os.unlink(self._path + ".whole")


def segment_path(path: str, offset: int) -> str:
    """The file that holds the stream from `offset` on."""
    return f"{path}{TAIL_SUFFIX}{offset:0{OFFSET_DIGITS}d}"


def segment_offsets(path: str) -> list[int]:
    """Offsets of the segments that exist now, ascending."""
    folder, name = os.path.split(path)
    prefix = name + TAIL_SUFFIX
    return sorted(
        int(entry[len(prefix) :])
        for entry in os.listdir(folder)
        if entry.startswith(prefix) and entry[len(prefix) :].isdigit()
    )


def remove_segments(path: str) -> None:
    """Remove every segment of this log."""
    for offset in segment_offsets(path):
        os.unlink(segment_path(path, offset))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
