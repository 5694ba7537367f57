"""The safety ledger as files: one line a checkpoint, each a signed envelope.

Place: `$XDG_STATE_HOME/fencepost/<store id>/ledger/` (else `~/.local/state/…`), outside of the store's own
folder. Where that cannot be written, as with a read-only home folder, `.fencepost.ledger/<store id>/` beside
the home. Appends go to the first place that can be written; reads take both, since which one that is may
change.

`homes` beside it names the homes that have signed here: two that stand are copies of one store, each of which makes
the other's chain look wrong. `anchored` in the home says that checkpoints were left, where, and for which scopes, one
a line: if none is found then, they were lost. A scope that stands in none of these has not been signed yet.

Growth is bounded. When the file has doubled since it was last thinned out (and passes 2 MiB), each chain
(scope, stream, epoch) keeps its first checkpoint, its last 1,000, and of the older ones the oldest in each
bucket of ages, an age being the distance to the newest in sequence numbers, with eight buckets to each
doubling. Kept lines are copied byte for byte; the file is replaced whole.

A crash can cut off the last line, which has then no line end: reads pass over it and the next append removes
it. A line that ends and is not a sealed checkpoint is damage.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from fencepost.adapters.authority.keys import verify_signature
from fencepost.adapters.durable import exclusive, place_file, storage_errors, sync_folder, write_all
from fencepost.core.anchor import AnchorMalformed, Checkpoint, SealedCheckpoint, key_id, seal, unseal
from fencepost.ports.authority import CHECKPOINT_SIGNER, Keyring
from fencepost.ports.errors import StorageUnavailable
from fencepost.ports.ledger import LedgerDamaged, LedgerVerdict

RECENT_KEPT = 1000
HOMES_KEPT = 100
THINNING_BYTES_MIN = 2 * 1024 * 1024
_BUCKETS_PER_DOUBLING_BITS = 3
_FILE = "checkpoints.ndjson"
_LOCK = "lock"
_HOMES = "homes"
_MARK = "anchored"
_UNWRITABLE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP}
)


def ledger_places(
    *, store_id: str, home: Path, environment: Mapping[str, str], user_home: Path | None
) -> tuple[Path, ...]:
    """Folders for the ledger of a store, best first. `home` is the `.fencepost` folder; a relative
    `XDG_STATE_HOME` does not count, nor does a user without a home folder."""
    beside = home.parent / ".fencepost.ledger" / store_id
    state = environment.get("XDG_STATE_HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "fencepost" / store_id / "ledger", beside
    if user_home is None:
        return (beside,)
    return user_home / ".local" / "state" / "fencepost" / store_id / "ledger", beside


class FileLedger:
    """`SafetyLedger` over the folders of `ledger_places`. Signs with the keyring's checkpoint signer."""

    def __init__(
        self,
        places: tuple[Path, ...],
        keyring: Keyring,
        *,
        thinning_bytes_min: int = THINNING_BYTES_MIN,
        recent_kept: int = RECENT_KEPT,
        home: Path | None = None,
    ) -> None:
        """`home` is noted beside the checkpoints that it signs, so that two homes of one store can be told apart."""
        if not places:
            raise ValueError("a ledger needs a place")
        self._places = places
        self._home = home
        self._keyring = keyring
        self._thinning_bytes_min = thinning_bytes_min
        self._recent_kept = recent_kept
        self._lock = threading.Lock()
        self._chosen: Path | None = None

    def where(self) -> Path:
        """The first place that can be written; made if it is missing. Raises `StorageError` if there is
        none."""
        with self._lock:
            if self._chosen is None:
                self._chosen = next((place for place in self._places if _usable(place)), None)
            if self._chosen is None:
                raise StorageUnavailable(
                    f"no place for the safety ledger can be written: {', '.join(map(str, self._places))}",
                    next_step="set XDG_STATE_HOME to a folder that can be written",
                )
            return self._chosen

    def named(self) -> Path:
        """The place as it is told to people: where checkpoints are, else the first one. Makes nothing."""
        return next((place for place in self._places if (place / _FILE).is_file()), self._places[0])

    def append(self, checkpoint: Checkpoint) -> None:
        line = seal(
            checkpoint,
            sign=lambda message: self._keyring.sign(CHECKPOINT_SIGNER, message),
            public_key=self._keyring.public_key(CHECKPOINT_SIGNER),
        )
        place = self.where()
        with storage_errors(place), exclusive(place / _LOCK) as lock:
            bytes_now = _append_line(place / _FILE, line + b"\n")
            if self._home is not None:
                _note_home(place / _HOMES, self._home)
                self._mark(self._home / _MARK, place, checkpoint.scope)
            if bytes_now > max(self._thinning_bytes_min, 2 * _thinned_bytes(lock)):
                self._thin(place / _FILE, lock)

    def latest(self, *, scope: str, stream: str) -> Checkpoint | None:
        newest: Checkpoint | None = None
        for entry in self.all(scope=scope, stream=stream):
            if newest is None or (entry.epoch, entry.sequence) >= (newest.epoch, newest.sequence):
                newest = entry
        return newest

    def all(self, *, scope: str | None = None, stream: str | None = None) -> tuple[Checkpoint, ...]:
        return tuple(
            entry.checkpoint
            for place in self._places
            for _, entry in _entries(place / _FILE)
            if scope in (None, entry.checkpoint.scope) and stream in (None, entry.checkpoint.stream)
        )

    def has_signed(self, scope: str) -> bool:
        """Whether this home, or the one that it is a copy of, has ever left a checkpoint of this scope anywhere.

        Where the home does not say for which scopes (an older version wrote that down, or it was taken away from a
        home that is known to have signed), every scope counts as signed: what was lost is told rather once too often.
        """
        if self._home is None:
            return False
        marked = _lines(self._home / _MARK)
        if len(marked) > 1:
            return scope.encode() in marked[1:]
        own = _place_of(_line_of_home(self._home))
        return bool(marked) or any(_place_of(line) == own for line in self._known_homes())

    def _mark(self, path: Path, place: Path, scope: str) -> None:
        """Write down that a scope has been signed for. Only under the lock."""
        marked = _lines(path)
        if scope.encode() in marked[1:]:
            return
        known = [*marked[1:], scope.encode()]
        if len(marked) <= 1:  # none yet, or an older version's: what the checkpoints say of other scopes comes along
            known = sorted({entry.scope.encode() for entry in self.all()} | {scope.encode()})
        place_file(path, b"\n".join([marked[0] if marked else os.fsencode(place), *known]) + b"\n")

    def other_homes(self) -> tuple[Path, ...]:
        """Homes other than this one that have signed into this ledger and still stand: copies of one store. One home
        that is reached by two paths is one."""
        if self._home is None:
            return ()
        own = _place_of(_line_of_home(self._home))
        found: dict[Path, None] = {}
        for line in self._known_homes():
            path = Path(os.fsdecode(line.partition(b" ")[2]))
            if _place_of(line) != own and path.is_dir() and _line_of_home(path) == line:
                found[path] = None
        return tuple(found)

    def copied_from(self) -> Path | None:
        """Another home of the same store that has signed and stands, where this one has never signed: the store is a
        copy of that one. None for a home that has signed itself, and for one whose original is gone."""
        if self._home is None:
            return None
        own = _place_of(_line_of_home(self._home))
        if any(_place_of(line) == own for line in self._known_homes()):
            return None
        return next(iter(self.other_homes()), None)

    def _known_homes(self) -> list[bytes]:
        return [line for place in self._places for line in _lines(place / _HOMES)]

    def verify(self, public_key: bytes) -> LedgerVerdict:
        checked = 0
        expected_key_id = key_id(public_key)
        for place in self._places:
            path = place / _FILE
            try:
                for number, (_, entry) in enumerate(_entries(path), start=1):
                    if entry.keyid != expected_key_id:
                        return LedgerVerdict(checkpoints=checked, first_bad=f"{path}:{number}: signed by another key")
                    if not verify_signature(public_key, entry.signature, entry.message):
                        return LedgerVerdict(
                            checkpoints=checked, first_bad=f"{path}:{number}: the signature is not genuine"
                        )
                    checked += 1
            except LedgerDamaged as damage:
                return LedgerVerdict(checkpoints=checked, first_bad=damage.message)
        return LedgerVerdict(checkpoints=checked, first_bad=None)

    def _thin(self, path: Path, lock: int) -> None:
        """Replace the file by what is worth keeping. Only under the lock."""
        entries = _entries(path)
        kept = kept_positions([entry.checkpoint for _, entry in entries], recent_kept=self._recent_kept)
        data = b"".join(entries[position][0] + b"\n" for position in kept)
        place_file(path, data)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(len(data)).encode(), 0)


def kept_positions(checkpoints: list[Checkpoint], *, recent_kept: int) -> list[int]:
    """Positions that survive thinning, in order; at most `recent_kept + 410` of each chain."""
    chains: dict[tuple[str, str, int], list[int]] = {}
    for position, entry in enumerate(checkpoints):
        chains.setdefault((entry.scope, entry.stream, entry.epoch), []).append(position)
    kept: set[int] = set()
    for positions in chains.values():
        split = max(len(positions) - recent_kept, 0)
        newest = max(checkpoints[position].sequence for position in positions)
        buckets: dict[int, int] = {}
        for position in positions[:split]:
            buckets.setdefault(_bucket(newest - checkpoints[position].sequence), position)
        kept.update(positions[split:], buckets.values())  # a chain's first is always the first of its bucket
    return sorted(kept)


def _bucket(age: int) -> int:
    """Number of the bucket of an age in sequence numbers: eight to each doubling."""
    shift = max(age.bit_length() - 1 - _BUCKETS_PER_DOUBLING_BITS, 0)
    return (shift << (_BUCKETS_PER_DOUBLING_BITS + 1)) + (age >> shift)


def _line_of_home(home: Path) -> bytes:
    """`<device>:<inode> <path>`: a home that was moved has another line, and its old one means nothing any more."""
    status = os.stat(home)
    return f"{status.st_dev}:{status.st_ino} ".encode() + os.fsencode(os.path.abspath(home))


def _place_of(line: bytes) -> bytes:
    return line.partition(b" ")[0]


def _lines(path: Path) -> list[bytes]:
    """What is not empty of the homes of a ledger, or of a home's mark: where it first signed, then the scopes; nothing
    where there is none."""
    try:
        return [line for line in path.read_bytes().split(b"\n") if line]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _note_home(path: Path, home: Path) -> None:
    """Keep the home's line, the last ones of a store that was moved or copied often. Only under the lock."""
    line = _line_of_home(home)
    known = _lines(path)
    if line not in known and b"\n" not in line:
        place_file(path, b"\n".join([*known[-HOMES_KEPT + 1 :], line]) + b"\n")


def _append_line(path: Path, line: bytes) -> int:
    """Append durably after removing a torn end; return the file's size. A failed append leaves nothing
    behind."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        whole = _whole_bytes(descriptor, size)
        if whole < size:
            os.ftruncate(descriptor, whole)
        try:
            write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, whole)
            raise
        if size == 0:
            sync_folder(path.parent)
        return whole + len(line)
    finally:
        os.close(descriptor)


def _whole_bytes(descriptor: int, size: int) -> int:
    """Length up to and with the last line end."""
    end = size
    while end > 0:
        start = max(end - 65_536, 0)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _thinned_bytes(lock: int) -> int:
    """Size of the file after it was last thinned out; 0 if it never was. Only a hint for when to do it
    again."""
    noted = os.pread(lock, 20, 0)
    return int(noted) if noted.isdigit() else 0


def _entries(path: Path) -> list[tuple[bytes, SealedCheckpoint]]:
    """Every whole line with what it says, without a torn end. Raises `LedgerDamaged` with the line's
    number."""
    with storage_errors(path):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:
            if os.access(path.parent, os.X_OK):
                raise
            return []  # a folder that never was ours; `where` passes over it too
    entries: list[tuple[bytes, SealedCheckpoint]] = []
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            entries.append((line, unseal(line)))
        except AnchorMalformed as error:
            raise LedgerDamaged(
                f"{path}:{number}: no sealed checkpoint ({error})",
                next_step="keep the file as evidence and compare the journal with an anchor from elsewhere",
            ) from error
    return entries


def _usable(place: Path) -> bool:
    """Make the folder and its lock file; False where that is not permitted. A full disk is an error, no
    answer."""
    with storage_errors(place):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.parent.name == ".fencepost.ledger":
                _ignore_folder(place.parent)
            with exclusive(place / _LOCK):
                return True
        except OSError as error:
            if error.errno in _UNWRITABLE:
                return False
            raise


def _ignore_folder(folder: Path) -> None:
    """Keep a ledger beside the home out of the repository that it stands in."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="ascii")
