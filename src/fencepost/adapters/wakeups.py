"""Wake-ups between the threads of a process and the processes of one store, by datagrams through its `wake/`
folder.

Each process binds a socket in the folder, and whoever committed sends one byte to every socket that it finds
there. A full queue at the other end means that a hint waits there already, so that hints add up to one. A
socket whose owner died refuses, and is removed by the first who notices. Where the folder is missing or
cannot be written, hints stay within the process: nothing depends on them, and whoever waits has a time-out.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

_PEERS_MAX = 256  # more than that many processes are not told; they find out by their time-outs
_SUFFIX = ".sock"
_ADDRESS_BYTES_MAX = 103  # of a socket's path, on every system
_BYTES_MAX = 16
_DRAINED_MAX = 64  # datagrams taken for one hint
# Two changes within one step of the file system's clock have one time stamp: look again until it has passed.
_FOLDER_STEP_NS = 20_000_000
_CLOSE_WAIT_S = 2.0


class LocalWakeups:
    """The port's `Wakeups` for the threads of one process."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._count = 0

    def notify(self) -> None:
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def ticket(self) -> int:
        return self._count

    def wait(self, ticket: int, timeout_s: float) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self._count != ticket, max(timeout_s, 0.0))

    def close(self) -> None:
        """Wake everyone who waits. Hints within the process go on working."""
        self.notify()


class FolderWakeups(LocalWakeups):
    """The port's `Wakeups` for every process that names the same folder. Never raises for what the folder is
    like."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._process_id = os.getpid()
        self.socket_name = f"{self._process_id}-{secrets.token_hex(4)}{_SUFFIX}"
        self._folder = str(folder)
        self._descriptor = -1
        self._sending = threading.Lock()
        self._peers: list[str] = []
        self._changed_ns = -1  # the folder's time stamp at the last look
        self._seen_ns = 0  # when that stamp was first seen, of the monotonic clock
        self._is_settled = False  # whether `_peers` holds while the stamp stays
        self._receiver: socket.socket | None = None
        self._listener: threading.Thread | None = None
        self._closed = False
        self._sender: socket.socket | None = None
        self._address_base = self._folder
        # What fails here costs hints between processes, never those between threads.
        with suppress(OSError):
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
            self._address_base = self._short_base()
            self._listen()

    @property
    def is_shared(self) -> bool:
        """Whether other processes can reach this one. For diagnosis; False is no error."""
        return self._receiver is not None

    def notify(self) -> None:
        super().notify()
        sender = self._sender
        if sender is None or self._process_id != os.getpid():
            return
        with self._sending:
            for name in self._other_names() if not self._closed else ():
                self._send(sender, name)

    def close(self) -> None:
        """Stop listening and remove the socket. A second call does nothing."""
        if self._closed or self._process_id != os.getpid():
            return
        self._closed = True
        if self._sender is not None and self._listener is not None:
            with suppress(OSError):  # a full queue wakes the listener as well
                self._sender.sendto(b"0", self._address(self.socket_name))
            self._listener.join(_CLOSE_WAIT_S)
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, self.socket_name))
        with self._sending:
            if self._sender is not None:
                self._sender.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
        super().notify()

    def _short_base(self) -> str:
        """A socket's path has few bytes. Where the folder's is too long, it is named by an open
        descriptor."""
        if len(os.fsencode(os.path.join(self._folder, self.socket_name))) <= _ADDRESS_BYTES_MAX:
            return self._folder
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}"

    def _address(self, name: str) -> str:
        return f"{self._address_base}/{name}"

    def _listen(self) -> None:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            receiver.bind(self._address(self.socket_name))
        except OSError:
            receiver.close()
            raise
        self._receiver = receiver
        self._listener = threading.Thread(target=self._receive, args=(receiver,), name="fencepost-wakeups", daemon=True)
        self._listener.start()

    def _receive(self, receiver: socket.socket) -> None:
        with receiver:
            while not self._closed:
                try:
                    receiver.recv(_BYTES_MAX)
                    with suppress(BlockingIOError):
                        for _ in range(_DRAINED_MAX):
                            receiver.recv(_BYTES_MAX, socket.MSG_DONTWAIT)
                except OSError:
                    return  # the socket is gone: time-outs take over
                LocalWakeups.notify(self)

    def _other_names(self) -> list[str]:
        """Sockets of the folder but the own one, read again when the folder has changed."""
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns
            if changed_ns != self._changed_ns:
                self._changed_ns, self._seen_ns, self._is_settled = changed_ns, time.monotonic_ns(), False
            if not self._is_settled:
                self._is_settled = time.monotonic_ns() - self._seen_ns > _FOLDER_STEP_NS
                with os.scandir(self._folder) as entries:
                    names = sorted(entry.name for entry in entries if entry.name.endswith(_SUFFIX))
                self._peers = [name for name in names if name != self.socket_name][:_PEERS_MAX]
        except OSError:
            return []
        return self._peers

    def _send(self, sender: socket.socket, name: str) -> None:
        try:
            sender.sendto(b"1", self._address(name))
        except ConnectionRefusedError:
            self._is_settled = False
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, name))
        except OSError:
            # A full queue holds a hint already. Any other loss is what a hint may suffer.
            return
