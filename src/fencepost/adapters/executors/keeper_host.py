"""The keeper host: a small, single-threaded process that forks one keeper for each attempt.

A fresh interpreter for every attempt would cost some 20 ms; a fork of this one costs less than one. It is
started without site packages and imports only the modules beside it. Each request is one byte with two
descriptors: the keeper's socket and the attempt's lock, held since before the request was sent, so that the
lock has no gap. When the worker goes, the host goes; its keepers stay until their trees are gone.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import select
import signal
import socket
import time

from fencepost.adapters.executors import keeper, tree

REQUEST = b"k"
DESCRIPTORS = 2
STRAY_PASSES_MAX = 500
STRAY_PAUSE_S = 0.01

# Stand-ins for the packages above make the modules beside this file importable without running any
# `__init__`, which would load half of the world.
BOOTSTRAP = """
import sys, types
name = ""
for part in ("fencepost", "adapters", "executors"):
    name = name + "." + part if name else part
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1]]
from fencepost.adapters.executors import keeper_host
keeper_host.serve(int(sys.argv[2]))
"""


def serve(descriptor: int) -> None:
    """Fork keepers until the worker's end closes, then stay until the last of them has ended.

    A keeper that is killed leaves its tree to this process, which is a subreaper too and ends it.
    """
    os.set_inheritable(descriptor, False)
    requests = socket.socket(fileno=descriptor)
    wake, wake_write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tree.become_subreaper()
    os.chdir("/")
    gc.freeze()  # forks share these pages for longer if the collector leaves them alone
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(requests, select.POLLIN)
    keepers: set[int] = set()
    serving = True
    while serving or keepers:
        for ready, _ in poll.poll():
            if ready == wake:
                os.read(wake, 4096)
                _reap(keepers)
            elif not _answer(requests, wake, wake_write, keepers):
                poll.unregister(requests)
                requests.close()
                serving = False


def _answer(requests: socket.socket, wake: int, wake_write: int, keepers: set[int]) -> bool:
    """Fork one keeper. False when nobody asks any more."""
    received = _receive(requests)
    if received is None:
        return False
    try:
        pid = os.fork()
    except OSError:
        pid = -1  # the worker sees its socket close without a greeting and may ask again
    if pid == 0:
        signal.set_wakeup_fd(-1)
        os.close(wake)
        os.close(wake_write)
        _keep(requests, received)
    if pid > 0:
        keepers.add(pid)
    for each in received:
        os.close(each)
    return True


def _reap(keepers: set[int]) -> None:
    """Take in what has ended. A keeper that did not end by itself may have left its tree: that ends now."""
    lost = False
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        lost = lost or (pid in keepers and status != 0)
        keepers.discard(pid)
    if lost:
        _end_strays(keepers)


def _end_strays(keepers: set[int]) -> None:
    for _ in range(STRAY_PASSES_MAX):
        kept = set(keepers)
        for keeper_pid in keepers:
            kept |= tree.descendants(keeper_pid)
        strays = tree.descendants(os.getpid()) - kept
        if not strays:
            return
        tree.signal_all(strays, signal.SIGKILL)
        time.sleep(STRAY_PAUSE_S)
        with contextlib.suppress(ChildProcessError):
            for pid in strays:
                os.waitpid(pid, os.WNOHANG)


def _receive(requests: socket.socket) -> list[int] | None:
    descriptors = array.array("i")
    room = socket.CMSG_SPACE(DESCRIPTORS * descriptors.itemsize)
    data, ancillary, _, _ = requests.recvmsg(1, room)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    for each in descriptors:
        os.set_inheritable(each, False)
    if not data or len(descriptors) != DESCRIPTORS:
        return None
    return list(descriptors)


def _keep(requests: socket.socket, received: list[int]) -> None:
    """In the fork: be the keeper, and never come back."""
    status = 1
    try:
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        keeper.main(received[0], received[1])
        status = 0
    finally:
        os._exit(status)
