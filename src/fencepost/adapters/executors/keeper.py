"""The keeper: one process per attempt that starts its command and answers for all that descends from it.

It is a session leader and subreaper. It stops the tree when the worker's end of its socket closes (however
the worker died), on order, at the time limit, and in time before the last confirmed lease expiry, so that
neither a killed nor a stopped worker leaves anything running. It reads the command's output, so that logs do
not need the worker either. When the tree is gone it writes its status durably, lets the attempt's lock go,
reports and exits, in this order: a free lock with a status means known facts, a free lock without one means
that nobody is left who could write it.

Only the standard library: this runs in forks of `keeper_host`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time

from fencepost.adapters.executors import foreign, spawn, tree, wire
from fencepost.adapters.executors.log_writer import LogWriter

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

STOP_LEAD_US = 3_000_000
STOP_GRACE_US = 2_000_000
KILL_LEAD_US = STOP_LEAD_US - STOP_GRACE_US
"""SIGKILL falls at the latest this long before the lease ends, whatever grace was ordered."""
KILL_TIME_US_MAX = 5_000_000
"""How long a killed tree may take to vanish (a process inside a hung device) before containment is given
up.
"""
POLL_MS_MAX = 250
"""The poll timer does not count suspended time, so the clock is looked at this often."""
CHUNK_BYTES = 64 * 1024
CHUNKS_MAX = 16
"""Chunks taken from one stream before everything else is looked at again."""
FREEZE_PASSES_MAX = 20


def main(control_descriptor: int, lock_descriptor: int) -> None:
    """Serve one attempt. The worker's answer to the greeting is the job; without it nothing is started."""
    os.setsid()
    os.chdir("/")
    control = socket.socket(fileno=control_descriptor)
    control.sendall(wire.encode({"pid": os.getpid()}))
    decoder = wire.Decoder()
    messages: list[wire.Message] = []
    while not messages:
        data = control.recv(CHUNK_BYTES)
        if not data:
            return
        messages = decoder.feed(data)
    keeper = Keeper(control, lock_descriptor, decoder, messages[0])
    for message in messages[1:]:
        keeper.obey(message)
    keeper.run()


TOKEN_BYTES_LEAST = 16
"""What is shorter is no token of an attempt, and stands in ordinary text."""


def _token(environment: Mapping[str, str]) -> bytes:
    """What no log may hold."""
    token = os.fsencode(environment.get("FENCEPOST_TOKEN", ""))
    return token if len(token) >= TOKEN_BYTES_LEAST else b""


class Keeper:
    """The loop and what it knows."""

    def __init__(self, control: socket.socket, lock_descriptor: int, decoder: wire.Decoder, job: wire.Message) -> None:
        self._control: socket.socket | None = control
        self._report_to = control
        self._decoder = decoder
        self._lock = spawn.share_lock(lock_descriptor)
        self._job = job
        self._deadline_us: int = job["deadline_tick_us"]
        self._started_us = tree.tick_us()
        self._main_pid: int | None = None
        self._main_status: int | None = None
        self._childless = True
        self._reason = ""
        self._kill_at_us: int | None = None
        self._stop_order: tuple[str, int] | None = None
        self._tree_empty = True
        self._notes: list[str] = []
        self._streams: dict[int, LogWriter] = {}
        self._logs: list[LogWriter] = []
        self._wake = -1
        self._subreaper = False
        self._status_folder = -1

    def obey(self, message: wire.Message) -> None:
        """A confirmation or a stop order."""
        if "confirm" in message:
            self._deadline_us = max(self._deadline_us, message["confirm"])
        elif "stop" in message:
            self._stop_order = (message["stop"], message["grace_us"])

    def run(self) -> None:
        """Start, watch, stop, report. What goes wrong in here still ends the tree."""
        try:
            self._prepare()
            if self._begin():
                self._watch()
        except Exception as error:
            self._reason = "keeper_lost"
            self._notes.append(f"the keeper failed: {type(error).__name__}: {error}")
            self._tree_empty = self._kill_tree()
        self._report()

    def _prepare(self) -> None:
        self._subreaper = tree.become_subreaper()
        self._wake, wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._on_terminate)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        folder, name = os.path.split(self._job["status_path"])
        try:
            self._status_folder = foreign.open_folder(folder)
            os.unlink(name, dir_fd=self._status_folder)
        except FileNotFoundError:
            return

    def _on_terminate(self, number: int, frame: object) -> None:
        """Somebody, perhaps a machine going down, wants us gone: that ends the tree first."""
        self._stop_order = ("stopped", STOP_GRACE_US)

    def _begin(self) -> bool:
        if tree.tick_us() >= self._deadline_us - STOP_LEAD_US:
            self._reason = "lease_lost"
            self._notes.append("nothing was started: the lease ends too soon")
            return False
        outputs: list[int] = []
        for path in (self._job["stdout_path"], self._job["stderr_path"]):
            log = LogWriter(
                path,
                head_max=self._job["log_head_bytes"],
                tail_max=self._job["log_tail_bytes"],
                secret=_token(self._job["environment"]),
            )
            read, write = os.pipe()
            os.set_blocking(read, False)
            self._streams[read] = log
            self._logs.append(log)
            outputs.append(write)
        self._started_us = tree.tick_us()
        try:
            self._main_pid = spawn.spawn(
                argv=self._job["argv"],
                environment=self._job["environment"],
                cwd=self._job["cwd"],
                stdout=outputs[0],
                stderr=outputs[1],
            )
        except spawn.SpawnFailed as error:
            self._reason = "not_started" if isinstance(error, spawn.NoPlaceToWork) else "spawn_failed"
            self._notes.append(str(error))
        finally:
            for write in outputs:
                os.close(write)
        self._childless = self._main_pid is None
        return self._main_pid is not None

    def _watch(self) -> None:
        while True:
            self._reap()
            if self._main_status is not None and self._is_empty():
                self._reason = self._reason or "exited"
                return
            now = tree.tick_us()
            self._decide(now)
            kill_at = self._kill_at_us
            if kill_at is not None and now >= min(kill_at, self._deadline_us - KILL_LEAD_US):
                self._tree_empty = self._kill_tree()
                return
            self._wait(now)

    def _decide(self, now: int) -> None:
        """Begin a stop when there is a reason. The first reason stands; a later order may only shorten the
        grace.
        """
        if self._stop_order is not None:
            reason, grace_us = self._stop_order
            self._stop_order = None
            self._stop(reason, now, grace_us)
        elif self._kill_at_us is not None:
            return
        elif self._main_status is not None:
            self._notes.append("processes that the command left behind were stopped")
            self._stop("exited", now, STOP_GRACE_US)
        elif now >= self._deadline_us - STOP_LEAD_US:
            self._stop("lease_lost", now, STOP_GRACE_US)
        elif now >= self._started_us + self._job["time_limit_us"]:
            self._stop("timeout", now, STOP_GRACE_US)
        elif self._control is None:
            self._stop("worker_gone", now, STOP_GRACE_US)

    def _stop(self, reason: str, now: int, grace_us: int) -> None:
        if self._kill_at_us is None:
            self._reason = "exited" if self._main_status is not None else reason
            self._kill_at_us = now + grace_us
            members = self._members()
            tree.signal_all(members, signal.SIGTERM)
            tree.signal_all(members, signal.SIGCONT)
        self._kill_at_us = min(self._kill_at_us, now + grace_us)

    def _wait(self, now: int) -> None:
        """Sleep until something happens, and take what came."""
        if self._kill_at_us is not None:
            next_us = min(self._kill_at_us, self._deadline_us - KILL_LEAD_US)
        else:
            next_us = min(self._deadline_us - STOP_LEAD_US, self._started_us + self._job["time_limit_us"])
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for descriptor in self._streams:
            poll.register(descriptor, select.POLLIN)
        if self._control is not None:
            poll.register(self._control, select.POLLIN)
        timeout_ms = max(0, min(POLL_MS_MAX, (next_us - now + 999) // 1000))
        for descriptor, _ in poll.poll(timeout_ms):
            if descriptor in self._streams:
                self._take_output(descriptor, CHUNKS_MAX)
            elif descriptor == self._wake:
                os.read(self._wake, 4096)
            else:
                self._listen()

    def _listen(self) -> None:
        if self._control is None:
            return
        try:
            data = self._control.recv(CHUNK_BYTES, socket.MSG_DONTWAIT)
            messages = self._decoder.feed(data)
        except BlockingIOError:
            return
        except (OSError, ValueError, wire.FrameBroken):
            data, messages = b"", []  # a worker that cannot be understood is as good as gone
        if not data:
            self._control = None
        for message in messages:
            self.obey(message)

    def _take_output(self, descriptor: int, chunks_max: int) -> None:
        log = self._streams[descriptor]
        for _ in range(chunks_max):
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                os.close(descriptor)
                del self._streams[descriptor]
                return
            log.write(data)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                self._childless = False
                return
            if pid == self._main_pid:
                self._main_status = status

    def _is_empty(self) -> bool:
        """No child of a subreaper means no descendant; elsewhere the marker must have nobody either."""
        return self._childless and (self._subreaper or not tree.marked(self._job["attempt"])[0])

    def _members(self) -> set[int]:
        members = tree.descendants(os.getpid())
        if not self._subreaper:
            members |= tree.marked(self._job["attempt"])[0]
        return members

    def _kill_tree(self) -> bool:
        """SIGKILL until nobody is left. Members are frozen first, so that a forking tree cannot run ahead."""
        give_up_at_us = tree.tick_us() + KILL_TIME_US_MAX
        pause_s = 0.001
        while True:
            self._reap()
            if self._is_empty():
                return True
            if tree.tick_us() >= give_up_at_us:
                self._notes.append(f"still there after SIGKILL: {sorted(self._members())[:20]}")
                return False
            frozen: set[int] = set()
            for _ in range(FREEZE_PASSES_MAX):
                fresh = self._members() - frozen
                if not fresh:
                    break
                tree.signal_all(fresh, signal.SIGSTOP)
                frozen |= fresh
            tree.signal_all(frozen, signal.SIGKILL)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)

    def _report(self) -> None:
        ended_us = tree.tick_us()
        for descriptor in list(self._streams):
            self._take_output(descriptor, 4 * CHUNKS_MAX)
        facts = [log.finish() for log in self._logs]
        nothing = {"bytes_total": 0, "head_bytes": 0, "tail_bytes": 0, "gap_bytes": 0}
        self._notes.extend(log.problem for log in self._logs if log.problem)
        status = self._main_status
        exited = status is not None and os.WIFEXITED(status)
        signaled = status is not None and os.WIFSIGNALED(status)
        ended = {
            "reason": self._reason,
            "exit_code": os.WEXITSTATUS(status) if status is not None and exited else None,
            "signal": os.WTERMSIG(status) if status is not None and signaled else None,
            "duration_us": ended_us - self._started_us,
            "tree_empty": self._tree_empty,
            "stdout": facts[0] if facts else nothing,
            "stderr": facts[1] if len(facts) > 1 else nothing,
            "message": "; ".join(self._notes),
        }
        problem = self._write_status(ended, ended_us)
        if problem:
            ended["message"] = "; ".join([*self._notes, problem])
        os.close(self._lock)
        try:
            self._report_to.send(wire.encode({"ended": ended}), socket.MSG_DONTWAIT)
        except OSError:
            return  # the worker is gone; the status on disk is what it will find

    def _write_status(self, ended: dict[str, Any], ended_us: int) -> str:
        """Durable before the lock is free, in the folder as it was before the command could replace it. Returns what
        went wrong, if anything.
        """
        name = os.path.basename(self._job["status_path"])
        body = {key: self._job[key] for key in ("attempt", "order", "fence", "boot_id")}
        body.update(ended_tick_us=ended_us, ended=ended)
        fresh = f"{name}.{os.urandom(8).hex()}.new"
        folder = self._status_folder
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(fresh, flags, 0o600, dir_fd=folder)
            try:
                os.write(descriptor, json.dumps(body).encode("ascii"))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError as error:
            return f"the status could not be written: {error.strerror or error}"
        return ""
