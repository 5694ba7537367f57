"""Keeps the first and the last bytes of a stream of any length, readable at every moment.

While the command runs, `PATH` holds the head and `PATH.tail-OFFSET` files hold what follows: each is at most
`tail_max` bytes, its name is the offset of its first byte in the stream, and at most two exist, so that the
last `tail_max` bytes are always there and the disk holds at most `head_max + 2 x tail_max`. At the end
everything is in `PATH`: the stream as it was, or head, gap line and tail (the gap line states its own place,
see GAP_LINE), put there by one rename.

The command can write the folder. So the writer works through descriptors that it has kept since it made the files:
what is put in the place of a name is neither followed nor read, and at the end `PATH` is the log again.

A secret of the attempt is never in a file, also when it comes in pieces: whatever could be its beginning is held back
until what follows is seen. Stars of the same length stand there, so that no offset moves.

A disk that takes no more ends the keeping, never the reading: the command goes on and the end says so.
Only the standard library: the keeper host loads this. The reading side is `log_reader`.
"""

from __future__ import annotations

import contextlib
import os

from fencepost.adapters.executors import foreign

GAP_LINE = "\n[fencepost: {head} bytes kept above, {gap} left out, {tail} kept below]\n"
TAIL_SUFFIX = ".tail-"
OFFSET_DIGITS = 16

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class _Segment:
    """One file of the tail: the stream from `offset` on, `size` bytes of it so far."""

    def __init__(self, offset: int, descriptor: int) -> None:
        self.offset = offset
        self.size = 0
        self.descriptor = descriptor


class LogWriter:
    """One stream of one attempt."""

    def __init__(self, path: str, *, head_max: int, tail_max: int, secret: bytes = b"") -> None:
        """`secret` is what no file is to hold; empty for nothing."""
        folder, self._name = os.path.split(path)
        self._secret = secret
        self._held = b""  # the end of what was written, while it may be the beginning of the secret
        self._head_max = head_max
        self._tail_max = tail_max
        self._head_bytes = 0
        self._segments: list[_Segment] = []
        self._folder = -1
        self._head = -1
        self.bytes_total = 0
        self.problem = ""
        try:
            self._folder = foreign.open_folder(folder)
            self._remove_segments()
            self._clear(self._name)
            self._head = os.open(self._name, _FLAGS, 0o600, dir_fd=self._folder)
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Take what the command wrote. Never raises for the disk's sake."""
        if self._secret:
            data = (self._held + data).replace(self._secret, b"*" * len(self._secret))
            held = _beginning_at_end(data, self._secret)
            data, self._held = data[: len(data) - held], data[len(data) - held :]
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        self.bytes_total += len(data)
        if self.problem:
            return
        try:
            taken = self._head_max - self._head_bytes
            if taken > 0:
                self._write_head(data[:taken])
                data = data[taken:]
            if data and self._tail_max > 0:
                self._write_tail(data)
        except OSError as error:
            self._give_up(error)

    def finish(self) -> dict[str, int]:
        """Put the log together and close it. Returns the facts (`LogFacts`)."""
        held, self._held = self._held, b""
        self._keep(held)
        tail_kept = 0
        if not self.problem:
            try:
                tail_kept = self._assemble()
            except OSError as error:
                self._give_up(error)
        if self.problem:
            tail_kept = sum(segment.size for segment in self._segments)
        self._close()
        return {
            "bytes_total": self.bytes_total,
            "head_bytes": self._head_bytes,
            "tail_bytes": tail_kept,
            "gap_bytes": self.bytes_total - self._head_bytes - tail_kept,
        }

    def _write_head(self, data: bytes) -> None:
        """Every place is named, so that a file which the command moved or cut short has each byte where it belongs.

        A disk that fills up midway leaves the count at what it took.
        """
        while data:
            count = os.pwrite(self._head, data, self._head_bytes)
            self._head_bytes += count
            data = data[count:]

    def _write_tail(self, data: bytes) -> None:
        while data:
            if not self._segments or self._segments[-1].size >= self._tail_max:
                self._rotate(self.bytes_total - len(data))
            segment = self._segments[-1]
            count = os.pwrite(segment.descriptor, data[: self._tail_max - segment.size], segment.size)
            segment.size += count
            data = data[count:]

    def _rotate(self, offset: int) -> None:
        if len(self._segments) == 2:
            old = self._segments.pop(0)
            os.close(old.descriptor)
            self._clear(segment_name(self._name, old.offset))
        name = segment_name(self._name, offset)
        self._clear(name)
        self._segments.append(_Segment(offset, os.open(name, _FLAGS, 0o600, dir_fd=self._folder)))

    def _assemble(self) -> int:
        """Make `PATH` the whole log; returns how many bytes of tail it has."""
        tail = b"".join(foreign.read_from(segment.descriptor, segment.size) for segment in self._segments)
        gap_needed = self.bytes_total > self._head_bytes + self._tail_max
        if gap_needed:
            tail = tail[len(tail) - min(self._tail_max, len(tail)) :]
        if not gap_needed and not tail and self._stands():
            return 0
        content = foreign.read_from(self._head, self._head_bytes)
        if gap_needed:
            gap = self.bytes_total - self._head_bytes - len(tail)
            content += GAP_LINE.format(head=self._head_bytes, gap=gap, tail=len(tail)).encode()
        self._place(content + tail)
        self._remove_segments()
        return len(tail)

    def _stands(self) -> bool:
        """Whether `PATH` is still the file that was written, and as long as that."""
        known = os.fstat(self._head)
        try:
            found = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(known, found) and known.st_size == self._head_bytes

    def _place(self, content: bytes) -> None:
        """Put `content` at `PATH` by one rename, whatever stands there."""
        whole = f"{self._name}.whole-{os.urandom(8).hex()}"
        descriptor = os.open(whole, _FLAGS, 0o600, dir_fd=self._folder)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            try:
                os.rename(whole, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except (IsADirectoryError, FileExistsError):
                self._clear(self._name)
                os.rename(whole, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(whole, dir_fd=self._folder)
            raise
        finally:
            os.close(descriptor)

    def _clear(self, name: str) -> None:
        """Take away what stands under a name; a folder is moved aside, since it may be of any size."""
        try:
            os.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            aside = f"{name}.displaced-{os.urandom(8).hex()}"
            os.rename(name, aside, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _remove_segments(self) -> None:
        for offset in segment_offsets(self._name, os.listdir(self._folder)):
            self._clear(segment_name(self._name, offset))

    def _close(self) -> None:
        for descriptor in (self._head, self._folder, *(segment.descriptor for segment in self._segments)):
            if descriptor >= 0:
                os.close(descriptor)
        self._head = self._folder = -1
        for segment in self._segments:
            segment.descriptor = -1

    def _give_up(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        self.problem = f"{self._name} is incomplete after byte {self.bytes_total}: {reason}"
        self._close()


def _beginning_at_end(data: bytes, secret: bytes) -> int:
    """Length of the longest end of `data` that the secret begins with, without being all of it."""
    longest = min(len(secret) - 1, len(data))
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)


def segment_name(name: str, offset: int) -> str:
    """The file that holds the stream of the log `name` from `offset` on."""
    return f"{name}{TAIL_SUFFIX}{offset:0{OFFSET_DIGITS}d}"


def segment_offsets(name: str, entries: list[str]) -> list[int]:
    """Offsets of the segments of the log `name` among the names of its folder, ascending."""
    prefix = name + TAIL_SUFFIX
    found = (entry[len(prefix) :] for entry in entries if entry.startswith(prefix))
    return sorted(int(digits) for digits in found if len(digits) == OFFSET_DIGITS and digits.isdecimal())
