"""What runs one attempt's program, keeps hold of everything it starts, and says how it ended.

Rules of the port:

* A tree is the command and everything that descends from it, however it detached itself. `Ended.tree_empty`
  is a proof by the one that started the tree and saw it empty; without it the order is `containment_lost`.
* The tree is gone before the last confirmed lease expiry, whatever becomes of the worker: killed, stopped or
  asleep.
* An executor starts a command at most once for one `start`, and never without holding the attempt's lock.
* Whatever goes wrong with a command is a value (`Ended`), never an exception; exceptions are for a broken
  program.

All ticks are microseconds of the machine's clock that counts suspended time (Linux `CLOCK_BOOTTIME`).
Source rows: W5, W6, C4, C8; cases 20, 23, 30, 45.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from fencepost.ports.errors import FencepostError, StorageUnavailable

EndReason = Literal[
    "exited", "timeout", "lease_lost", "stopped", "worker_gone", "spawn_failed", "not_started", "keeper_lost"
]
StopReason = Literal["stopped", "lease_lost"]
Spending = Literal["through_kernel", "opaque"]

STOP_LEAD_US = 3_000_000
"""The stop of a tree begins this long before the last confirmed expiry."""
STOP_GRACE_US = 2_000_000
"""From SIGTERM to SIGKILL, unless a stop order names another grace."""
STOP_GRACE_US_MAX = 60_000_000
"""The longest grace that a stop order may name; the lease may still cut it short."""
JOB_BYTES_MAX = 8 * 1024 * 1024
"""Bound on a job with its arguments and environment, encoded."""


class ExecutorError(FencepostError):
    """Root of this port's exceptions: the caller's program is wrong, or the world is broken."""


class UnsupportedPlatform(ExecutorError):
    """This executor cannot contain a process tree on this operating system; nothing was started."""


class CannotStart(StorageUnavailable):
    """What every attempt needs of its host is not to be had: the folder of its lock, or a descriptor. Nothing was
    started, no command is at fault, and the next one would fare no better. `code` says which of the two.
    """


class StatusUnreadable(ExecutorError):
    """A status file exists and is not one that a keeper wrote: somebody else's hand, or a broken disk."""


class LogUnreadable(ExecutorError):
    """What stands where a log was kept is no log: the command put something else there, or the disk is broken."""

    code = "storage_error"


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One program to run, exactly as it shall see the world; producers, verifiers and reviewers alike.

    All paths are absolute. `environment` is the whole environment of the command: nothing is added. For the
    scan that finds detached members it should hold `FENCEPOST_ATTEMPT` = `attempt`. `stdout_path` and
    `stderr_path` are made anew; `status_path` is removed at the start and written once at the end.
    `lock_path` is unique to the attempt and is never deleted while the attempt may run. `time_limit_us`
    counts from the start, at least 1. `log_head_bytes` and `log_tail_bytes` (0 or more) bound what is kept of
    each stream.
    """

    attempt: str
    order: str
    fence: int
    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: str
    stdout_path: str
    stderr_path: str
    lock_path: str
    status_path: str
    time_limit_us: int
    log_head_bytes: int
    log_tail_bytes: int


class LogFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was kept of one stream: `bytes_total = head_bytes + gap_bytes + tail_bytes`.

    `bytes_total` is what the command wrote; the head starts at byte 0 and the tail ends at the end, unless
    the disk refused to take more, which `Ended.message` then says.
    """

    bytes_total: int
    head_bytes: int
    tail_bytes: int
    gap_bytes: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an attempt's tree ended.

    Exactly one of `exit_code` and `signal` is set once the command itself ran and was reaped; both are None
    for `spawn_failed` (the command's fault), for `not_started` (its supervisor's, its folder's, or that of a lock
    which another holds), for a lease too short to start under, and where the command could not be reaped.
    `reason` says why the tree ended, not how the command took it: a command that answers SIGTERM with exit
    code 0 after its time limit has reason `timeout`. `keeper_lost` means that the supervisor itself was
    killed or failed. If it was killed, or killed because it owed an end and stayed silent (then the reason is `timeout`
    where the time limit had passed), `tree_empty` rests on lock and marker, `duration_us` is what the caller's side
    measured until that proof, and the figures of both streams are 0.
    `duration_us` runs from the start of the command to the end of its tree, suspended time included. `message` is for
    people, empty when there is nothing to say.
    """

    reason: EndReason
    exit_code: int | None
    signal: int | None
    duration_us: int
    tree_empty: bool
    stdout: LogFacts
    stderr: LogFacts
    message: str


class Status(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the supervisor left on disk, durable before the attempt's lock became free.

    `ended_tick_us` is comparable only under the same `boot_id`.
    """

    attempt: str
    order: str
    fence: int
    boot_id: str
    ended_tick_us: int
    ended: Ended


class HolderProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether anything of an attempt can still be alive, and what was looked at to say so.

    `gone` is True only if the lock is free (or was never made) and no process carries the attempt's marker,
    both seen under the attempt's own boot; or if the caller vouches that a different boot id is a later one
    of the same host. `pids` are the processes found with the marker. `evidence` is one sentence for each
    thing seen.
    """

    gone: bool
    lock: Literal["free", "held", "missing", "not_examined"]
    pids: tuple[int, ...]
    evidence: tuple[str, ...]


class Running(Protocol):
    """One started attempt. Dropping it, or the death of its process, stops the tree (`worker_gone`)."""

    @property
    def pid(self) -> int | None:
        """The supervisor's process id; None while it has not answered. It is no proof of anything."""

    def confirm(self, deadline_tick_us: int) -> None:
        """Tell the confirmed lease expiry, a local tick. Never shortens; no effect on a stop already begun.

        Never blocks: a confirmation that cannot be delivered is dropped, which is safe, since the tree then
        ends early.
        """

    def stop(self, reason: StopReason, grace_us: int) -> None:
        """Order the end: SIGTERM now, SIGKILL after `grace_us` (0 to STOP_GRACE_US_MAX). A shorter grace
        shortens.

        Returns at once; the end arrives through `wait`. Raises ValueError for a grace out of bounds.
        """

    def wait(self, timeout_s: float | None) -> Ended | None:
        """The end, or None when `timeout_s` passed (None waits without limit, 0 only looks). Repeatable."""

    def fileno(self) -> int:
        """A descriptor that is readable when `wait(0)` has something to say; -1 once the end was returned."""


class Executor(Protocol):
    """Starts attempts. May be shared by threads; each `Running` has one waiter."""

    @property
    def kind(self) -> str:
        """The name that plans use: `command`."""

    @property
    def spending(self) -> Spending:
        """`through_kernel`: all spending of its commands passes the kernel or the gateway, so an empty call
        journal proves that nothing was spent.
        """

    def start(self, job: Job, deadline_tick_us: int) -> Running:
        """Start `job` under a lease confirmed until `deadline_tick_us`.

        A command that cannot be started is a `Running` that has ended (`spawn_failed`), and so is one for which no
        supervisor answers in time, or whose lock another holds (`not_started`); a lease with no more than STOP_LEAD_US
        left starts nothing (`lease_lost`). Returns or raises within some seconds, whatever becomes of the supervisor.
        Raises ValueError for a job that breaks its own contract, CannotStart and StorageFull where the host refuses.
        """

    def holder_proof(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        """Whether anything of `attempt`, started under `boot_id`, can still be alive. Changes nothing.

        Ask only when the worker that had the attempt is itself proved gone: a worker that is about to start
        one has no lock yet. `same_host` vouches that `boot_id` came from this very host, so that another one
        means a reboot.
        """

    def end_holder(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        """Kill whatever carries the marker of `attempt` until the proof holds, at most some seconds.

        For attempts whose worker and keeper are gone and whose lease is over: those of a living worker have a
        keeper that does this better, and are not to be touched. Returns the last proof, which may say no.
        """

    def read_status(self, status_path: str) -> Status | None:
        """What the supervisor left, or None if it left nothing. Raises StatusUnreadable."""

    def close(self) -> None:
        """Stop accepting work. Attempts that run go on under their `Running`. Repeatable."""
