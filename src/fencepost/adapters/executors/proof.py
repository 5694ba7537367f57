"""Is anybody of an attempt still alive? And what did its keeper leave?

A process id and its start time prove nothing (another container shares the boot id, not the process table);
the lock that the whole tree inherits does, on the same file system and under the same boot, together with a
scan for the marker that finds nobody. Who is left is found by both: by the marker in its environment, and by the
lock that it has open. See `lifecycle.md`, row 6.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import Literal

import msgspec

from fencepost.adapters.executors import foreign, tree
from fencepost.ports.executor import HolderProof, Status, StatusUnreadable

STATUS_BYTES_MAX = 256 * 1024
END_TIME_S_MAX = 5.0
"""How long `end_holder` tries."""
END_PAUSE_S = 0.02
FREEZE_PASSES_MAX = 20


def boot_id() -> str:
    """This boot's identity; empty where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def holder_proof(lock_path: str, attempt: str, boot_id_then: str, *, same_host: bool) -> HolderProof:
    """See `Executor.holder_proof`. Takes the lock shared and only for a moment, so provers do not see each
    other.
    """
    now = boot_id()
    if now != boot_id_then:
        sentence = f"started under boot {boot_id_then or 'unknown'}, this is boot {now or 'unknown'}"
        proved = same_host and bool(now) and bool(boot_id_then)
        verdict = "the host was restarted since" if proved else "another boot or host: nothing can be proved from here"
        return HolderProof(gone=proved, lock="not_examined", pids=(), evidence=(sentence, verdict))
    lock = _look_at_lock(lock_path)
    pids, read, unreadable = tree.marked(attempt)
    evidence = [
        f"boot {now or 'unknown'} is the one it was started under",
        f"lock {lock_path} is {lock}",
        f"{len(pids)} of {read} processes carry {tree.MARKER}={attempt}; {unreadable} could not be read",
    ]
    if lock != "free":
        # Whoever has it open is of the tree, whatever became of its environment and of the file's name.
        holders = tree.holding(lock_path)
        evidence.append(f"{len(holders)} processes have the lock open")
        pids |= holders
    gone = lock != "held" and not pids
    return HolderProof(gone=gone, lock=lock, pids=tuple(sorted(pids)), evidence=tuple(evidence))


def end_holder(lock_path: str, attempt: str, boot_id_then: str, *, same_host: bool) -> HolderProof:
    """See `Executor.end_holder`."""
    until = time.monotonic() + END_TIME_S_MAX
    while True:
        if boot_id() == boot_id_then:
            _kill_once(lock_path, attempt)
        seen = holder_proof(lock_path, attempt, boot_id_then, same_host=same_host)
        if seen.gone or seen.lock == "not_examined" or time.monotonic() >= until:
            return seen
        time.sleep(END_PAUSE_S)


def _kill_once(lock_path: str, attempt: str) -> None:
    """Kill who carries the marker, who has the lock open, and what descends from them, all frozen first."""
    frozen: set[int] = set()
    for _ in range(FREEZE_PASSES_MAX):
        roots = tree.marked(attempt)[0] | tree.holding(lock_path)
        fresh = roots.union(*(tree.descendants(pid) for pid in roots)) - frozen - {os.getpid()}
        if not fresh:
            break
        tree.signal_all(fresh, signal.SIGSTOP)
        frozen |= fresh
    tree.signal_all(frozen, signal.SIGKILL)


def read_status(status_path: str) -> Status | None:
    """See `Executor.read_status`."""
    try:
        content = foreign.read_regular(status_path, bytes_max=STATUS_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StatusUnreadable(f"{status_path} is not a keeper's status: {error.strerror or error}") from error
    try:
        return msgspec.json.decode(content, type=Status)
    except msgspec.DecodeError as error:
        raise StatusUnreadable(f"{status_path} is not a keeper's status: {error}") from error


def _look_at_lock(lock_path: str) -> Literal["free", "held", "missing"]:
    try:
        descriptor = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return "missing"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    finally:
        os.close(descriptor)
    return "free"
