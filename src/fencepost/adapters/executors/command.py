"""The executor of kind `command`: a keeper for each attempt, forked by one small host process.

The worker makes the attempt's lock and a socket, hands both to the host, sends the job and waits for the
keeper's greeting. A keeper greets before it reads, so one that has not greeted has started nothing, and a
host that died can be replaced and asked again without ever starting a command twice. So can one that does not answer
in time, stopped perhaps: it is killed, and with it a keeper that it may have forked and that has not greeted. The
lock is held without a gap from before the request until the last process of the tree is gone. Windows is refused: it
has neither sessions nor descriptors that a tree inherits. macOS contains by lock and marker.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from fencepost.adapters.durable import storage_error
from fencepost.adapters.executors import keeper_host, proof, tree, wire
from fencepost.ports.errors import StorageError, StorageFull, StorageUnavailable
from fencepost.ports.executor import (
    JOB_BYTES_MAX,
    STOP_GRACE_US,
    STOP_GRACE_US_MAX,
    STOP_LEAD_US,
    CannotStart,
    Ended,
    EndReason,
    HolderProof,
    Job,
    LogFacts,
    Spending,
    Status,
    StatusUnreadable,
    StopReason,
)

HOST_TRIES_MAX = 3
GREETING_TIME_S_MAX = 3.0
"""How long a host, and the keeper that it forks, may take to answer: two of them, and still a lease to start under."""
LAST_WORD_S_MAX = 1.0
"""How long what was on its way may take to come, once whoever could say more has been killed."""
LOCK_TIME_S_MAX = 0.2
"""Provers hold a lock shared for microseconds; this outlasts them."""

RESUME_AFTER_US = 1_000_000
"""A keeper this late with an end that is due is told to go on, in case something stopped it."""
LOST_AFTER_US = 12_000_000
"""One this late is lost: it has had its time to kill, and as much again to bring logs and status to the disk."""
RESUME_PAUSE_S = 0.25

_HOST_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_NO_OUTPUT = LogFacts(bytes_total=0, head_bytes=0, tail_bytes=0, gap_bytes=0)


class CommandExecutor:
    """Runs commands under keepers. See `ports.executor.Executor`."""

    def __init__(self) -> None:
        """Start the keeper host, so that it is ready when the first attempt is."""
        self._mutex = threading.Lock()
        self._closed = False
        self._boot_id = proof.boot_id()
        self._host: _Host | None = _Host()

    @property
    def kind(self) -> str:
        """See the port."""
        return "command"

    @property
    def spending(self) -> Spending:
        """See the port. Calls that bypass the kernel are outside the promise."""
        return "through_kernel"

    def start(self, job: Job, deadline_tick_us: int) -> CommandRun:
        """See the port."""
        if self._closed:
            raise RuntimeError("this executor is closed")
        frame = _encode(job, deadline_tick_us, self._boot_id)
        try:
            lock = _take_lock(job.lock_path)
        except BlockingIOError:
            return CommandRun.failed(job, f"{job.lock_path} is held: something of this attempt still runs")
        except OSError as error:
            raise _cannot_start(error, job.lock_path) from error
        try:
            run = self._greeted(job, frame, lock, deadline_tick_us)
        finally:
            os.close(lock)
        return run or CommandRun.failed(
            job, f"no keeper could be started: {HOST_TRIES_MAX} hosts of keepers ended or did not answer"
        )

    def holder_proof(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        """See the port."""
        return proof.holder_proof(lock_path, attempt, boot_id, same_host=same_host)

    def end_holder(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        """See the port."""
        return proof.end_holder(lock_path, attempt, boot_id, same_host=same_host)

    def read_status(self, status_path: str) -> Status | None:
        """See the port."""
        return proof.read_status(status_path)

    def close(self) -> None:
        """See the port."""
        with self._mutex:
            self._closed = True
            host, self._host = self._host, None
        if host is not None:
            host.close()

    def _greeted(self, job: Job, frame: bytes, lock: int, deadline_tick_us: int) -> CommandRun | None:
        """Ask until a keeper has the job. Only what certainly started nothing is asked for again."""
        for _ in range(HOST_TRIES_MAX):
            try:
                host = self._host_now()
                ours, theirs = socket.socketpair()
            except OSError as error:
                raise _cannot_start(error, "the host of keepers") from error
            with theirs:
                try:
                    host.ask(theirs.fileno(), lock)
                except OSError:
                    ours.close()
                    self._drop(host)
                    continue
            run = CommandRun.greeted(job, frame, ours, deadline_tick_us)
            if run is not None and run.pid is None:
                run = self._insist(run, host, job.lock_path)
            if run is not None:
                return run
            ours.close()
            self._drop(host)
        return None

    def _insist(self, run: CommandRun, host: _Host, lock_path: str) -> CommandRun | None:
        """A host that is silent is killed, so that it is certain what it has begun; None where that is nothing.

        The system drops what it had not taken yet. What it had forked is killed behind it, unless it greets first; a
        keeper that has not greeted has started nothing. Keepers of other attempts live on.
        """
        host.freeze()
        forked = tree.descendants(host.pid) & tree.holding(lock_path)
        self._drop(host, kill=True)
        heard = run.greeting(LAST_WORD_S_MAX)
        if heard is None and forked:
            tree.signal_all(forked, signal.SIGKILL)
            heard = run.greeting(LAST_WORD_S_MAX)
        # Silence that goes on is not certain: whoever it is may begin at any moment, and `wait` tells.
        return None if heard is False else run

    def _host_now(self) -> _Host:
        with self._mutex:
            if self._host is not None and not self._host.alive():
                self._host.close()
                self._host = None
            if self._host is None:
                self._host = _Host()
            return self._host

    def _drop(self, host: _Host, *, kill: bool = False) -> None:
        """A host that does not answer is replaced; keepers that it made live on."""
        with self._mutex:
            if self._host is host:
                self._host = None
        if kill:
            host.kill()
        host.close()


class CommandRun:
    """One attempt as its worker sees it. See `ports.executor.Running`."""

    def __init__(self, job: Job, control: socket.socket | None, deadline_tick_us: int = 0) -> None:
        self._job = job
        self._control = control
        self._decoder = wire.Decoder()
        self._sending = threading.Lock()
        self._ended: Ended | None = None
        self._pid: int | None = None
        self._process = -1  # descriptor of the keeper, where the system has such
        self._started_us = tree.tick_us()
        self._deadline_us = deadline_tick_us
        self._stop_due_us: int | None = None  # when a stop order will have come to its SIGKILL

    @classmethod
    def failed(cls, job: Job, message: str) -> CommandRun:
        """A run that never began."""
        run = cls(job, None)
        run._ended = _ended("not_started", tree_empty=True, message=message)
        return run

    @classmethod
    def greeted(cls, job: Job, frame: bytes, control: socket.socket, deadline_tick_us: int) -> CommandRun | None:
        """A run whose keeper has the job; None if it is certain that no keeper ever will.

        A socket that closes before the greeting, or before the whole job went out, is certain. Silence is
        not: a keeper that is merely slow may begin at any moment. Its run has no `pid` yet.
        """
        run = cls(job, control, deadline_tick_us)
        control.settimeout(GREETING_TIME_S_MAX)
        try:
            control.sendall(frame)
        except TimeoutError:
            return None
        except OSError:
            pass  # it ended, perhaps after its greeting; what it said is still there to read
        return None if run.greeting(GREETING_TIME_S_MAX) is False else run

    def greeting(self, time_s_max: float) -> bool | None:
        """Whether the keeper greets; None for one that is silent, False once it is certain that none ever will."""
        control = self._control
        if control is None:
            return False
        control.settimeout(time_s_max)
        try:
            while self._pid is None:
                data = control.recv(4096)
                if not data:
                    return False
                self._take(data)
        except TimeoutError:
            return None
        except OSError:
            return False
        finally:
            control.settimeout(None)
        return True

    @property
    def pid(self) -> int | None:
        """See the port."""
        return self._pid

    def confirm(self, deadline_tick_us: int) -> None:
        """See the port."""
        self._deadline_us = max(self._deadline_us, deadline_tick_us)
        self._send({"confirm": deadline_tick_us})
        # Whatever stopped the keeper, its command perhaps, takes its clock away no longer than a renewal.
        self._signal_keeper(signal.SIGCONT)

    def stop(self, reason: StopReason, grace_us: int) -> None:
        """See the port."""
        if not 0 <= grace_us <= STOP_GRACE_US_MAX:
            raise ValueError(f"a grace of {grace_us} us is not within 0 and {STOP_GRACE_US_MAX}")
        now_us = tree.tick_us()
        is_late = now_us >= self._started_us + self._job.time_limit_us  # then the keeper's own stop has begun
        due_us = now_us + (min(grace_us, STOP_GRACE_US) if is_late else grace_us)
        self._stop_due_us = due_us if self._stop_due_us is None else min(self._stop_due_us, due_us)
        self._send({"stop": reason, "grace_us": grace_us})
        self._signal_keeper(signal.SIGCONT)

    def wait(self, timeout_s: float | None) -> Ended | None:
        """See the port."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self._ended is None and self._control is not None:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            patience_s = self._patience_s()
            wait_s = patience_s if left_s is None else min(left_s, patience_s)
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            if poll.poll(wait_s * 1000):
                self._receive(self._control)
            elif left_s is not None and left_s <= wait_s:
                return None
            else:
                self._nudge()
        self._release()
        return self._ended

    def _release(self) -> None:
        with self._sending:
            if self._control is not None:
                self._control.close()
                self._control = None
            if self._process >= 0:
                os.close(self._process)
                self._process = -1

    def _due_us(self) -> int:
        """When the tree is killed at the latest, and its end is to be told."""
        due_us = self._stop_due_us
        if due_us is None:
            due_us = self._started_us + self._job.time_limit_us + STOP_GRACE_US
        return min(due_us, self._deadline_us - STOP_LEAD_US + STOP_GRACE_US)  # the lease cuts everything short

    def _patience_s(self) -> float:
        """How long to wait for a word before the keeper is looked after."""
        late_us = tree.tick_us() - self._due_us()
        return max(RESUME_PAUSE_S, (RESUME_AFTER_US - late_us) / 1_000_000)

    def _nudge(self) -> None:
        """A keeper that owes an end goes on, or is lost. Only its silence counts: the wait itself has no limit."""
        late_us = tree.tick_us() - self._due_us()
        if late_us < RESUME_AFTER_US:
            return
        if late_us < LOST_AFTER_US:
            self._signal_keeper(signal.SIGCONT)
            return
        is_over = tree.tick_us() >= self._started_us + self._job.time_limit_us
        self._kill_keeper()
        self._ended = _after_lost_keeper(
            self._job, self._started_us, "timeout" if is_over else "keeper_lost", "the keeper did not answer"
        )

    def _kill_keeper(self) -> None:
        """End a keeper that is deaf, its tree first: it cannot name its members any more once it is gone."""
        if self._pid is None:
            return
        self._signal_keeper(signal.SIGSTOP)
        frozen: set[int] = set()
        for _ in range(proof.FREEZE_PASSES_MAX):
            fresh = tree.descendants(self._pid) - frozen
            if not fresh:
                break
            tree.signal_all(fresh, signal.SIGSTOP)
            frozen |= fresh
        tree.signal_all(frozen, signal.SIGKILL)
        self._signal_keeper(signal.SIGKILL)

    def _signal_keeper(self, number: signal.Signals) -> None:
        """Through the keeper's own descriptor, so that nobody else is meant once it has gone."""
        with self._sending:
            if self._process >= 0:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(self._process, number)

    def fileno(self) -> int:
        """See the port."""
        return -1 if self._control is None else self._control.fileno()

    def _send(self, message: wire.Message) -> None:
        """Never blocks: what a keeper does not take is dropped, and its deadline then ends the tree."""
        with self._sending:
            if self._control is not None:
                with contextlib.suppress(OSError):
                    self._control.send(wire.encode(message), socket.MSG_DONTWAIT)

    def _receive(self, control: socket.socket) -> None:
        try:
            data = control.recv(64 * 1024)
        except ConnectionResetError:
            data = b""
        self._take(data)
        if not data and self._ended is None:
            self._ended = _after_lost_keeper(self._job, self._started_us, "keeper_lost", "the keeper was lost")

    def _take(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if "pid" in message:
                self._pid = int(message["pid"])
                self._process = _descriptor_of(self._pid)
            if "ended" in message:
                self._ended = msgspec.convert(message["ended"], Ended)


class _Host:
    """The host process, from outside."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *("-I", "-S", "-X", "utf8", "-c", keeper_host.BOOTSTRAP),
                    os.path.dirname(os.path.abspath(keeper_host.__file__)),
                    str(theirs.fileno()),
                ],
                env={name: os.environ[name] for name in _HOST_ENVIRONMENT if name in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._asking = threading.Lock()  # so that nobody asks through a descriptor that is another's by now
        self._requests = ours
        self._requests.settimeout(GREETING_TIME_S_MAX)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, control: int, lock: int) -> None:
        """Request a keeper. Raises OSError when the host cannot be asked."""
        with self._asking:
            socket.send_fds(self._requests, [keeper_host.REQUEST], [control, lock])

    def freeze(self) -> None:
        """Stop it, so that it forks no more."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it at once, stopped or not."""
        self._process.kill()

    def close(self) -> None:
        with self._asking:
            self._requests.close()
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _encode(job: Job, deadline_tick_us: int, boot_id: str) -> bytes:
    """The frame of a job. Raises ValueError for one that breaks the port's contract."""
    paths = (job.cwd, job.stdout_path, job.stderr_path, job.lock_path, job.status_path)
    relative = [path for path in paths if not os.path.isabs(path)]
    if relative:
        raise ValueError(f"paths of a job are absolute: {relative}")
    if not job.argv or not job.argv[0]:
        raise ValueError("a job needs a command")
    if job.time_limit_us < 1 or job.log_head_bytes < 0 or job.log_tail_bytes < 0:
        raise ValueError("a job's time limit is at least 1 us and its log bounds are at least 0")
    # The keeper speaks UTF-8 whatever the locale is here; the bytes for the operating system stay the same.
    message = {
        "attempt": job.attempt,
        "order": job.order,
        "fence": job.fence,
        "argv": [_portable(word) for word in job.argv],
        "environment": {_portable(name): _portable(value) for name, value in job.environment.items()},
        "cwd": _portable(job.cwd),
        "stdout_path": _portable(job.stdout_path),
        "stderr_path": _portable(job.stderr_path),
        "status_path": _portable(job.status_path),
        "time_limit_us": job.time_limit_us,
        "log_head_bytes": job.log_head_bytes,
        "log_tail_bytes": job.log_tail_bytes,
        "deadline_tick_us": deadline_tick_us,
        "boot_id": boot_id,
    }
    frame = wire.encode(message)
    if len(frame) > JOB_BYTES_MAX:
        raise ValueError(f"a job of {len(frame)} bytes passes the bound of {JOB_BYTES_MAX}")
    return frame


def _portable(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "surrogateescape")


def _take_lock(path: str) -> int:
    """The attempt's lock, exclusive. Raises OSError (BlockingIOError where a holder lives)."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + LOCK_TIME_S_MAX
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise
            time.sleep(0.002)
    except OSError:
        os.close(descriptor)
        raise


def _cannot_start(error: OSError, what: str) -> CannotStart | StorageFull:
    """What it means that the host refuses what every attempt needs."""
    told = storage_error(error, Path(what))
    if isinstance(told, StorageFull):
        return told
    refused = CannotStart(f"no attempt can be started: {told.message}", next_step=_next_step(told))
    refused.code = told.code
    return refused


def _next_step(told: StorageError) -> str | None:
    return "fencepost doctor" if told.code == StorageUnavailable.code else told.next_step


def _descriptor_of(pid: int) -> int:
    """A descriptor of the process, -1 where it has gone or the system has none such (macOS, an old Linux)."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _after_lost_keeper(job: Job, started_us: int, reason: EndReason, told: str) -> Ended:
    """The keeper is gone without a word: take what it left on disk, or look for its tree and stop that.

    The time is what passed here from the start to the proof: a keeper that is killed makes none of it free.
    """
    evidence: list[str] = []
    try:
        status = proof.read_status(job.status_path)
    except StatusUnreadable as error:
        status = None
        evidence.append(error.message)
    if status is not None and (status.attempt, status.fence) == (job.attempt, job.fence):
        return status.ended
    seen = proof.end_holder(job.lock_path, job.attempt, proof.boot_id(), same_host=True)
    message = "\n".join((told, *evidence, *seen.evidence))
    return _ended(reason, tree_empty=seen.gone, message=message, duration_us=tree.tick_us() - started_us)


def _ended(reason: EndReason, *, tree_empty: bool, message: str, duration_us: int = 0) -> Ended:
    return Ended(
        reason=reason,
        exit_code=None,
        signal=None,
        duration_us=duration_us,
        tree_empty=tree_empty,
        stdout=_NO_OUTPUT,
        stderr=_NO_OUTPUT,
        message=message,
    )
