"""The host's clocks.

On Linux the tick is `CLOCK_BOOTTIME`, which goes on while the host is suspended, and the boot id is the
kernel's. Elsewhere the tick is the monotonic clock and every process start counts as a restart (a boot id of
its own): a restart advances nothing and expires nothing, so that not knowing is safe.

Two containers of one host may have the same boot id and different ticks (a time namespace shifts them), so a
shift becomes part of the boot id.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import sys
import time
from pathlib import Path

from fencepost.ports.clock import Reading
from fencepost.ports.entropy import Entropy

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_TICK_SHIFT_FILE = Path("/proc/self/timens_offsets")
_MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_SOURCE_SALT = b"fencepost clock source 1"


class SystemClock:
    """`Clock` over the operating system. Costs two system calls a reading."""

    def __init__(self, entropy: Entropy, *, boot_id: str | None = None, source: str | None = None) -> None:
        """`boot_id` and `source` replace what the host says; None asks the host, once."""
        known_boot_id = boot_id if boot_id is not None else host_boot_id()
        self._counts_suspension = known_boot_id is not None and sys.platform == "linux"
        self._boot_id = known_boot_id if known_boot_id is not None else entropy.seed().hex()
        self._source = source if source is not None else host_source()

    def read(self) -> Reading:
        before_us = self._tick_us()
        utc_us = time.time_ns() // 1000
        after_us = self._tick_us()
        return Reading(
            utc_us=utc_us,
            tick_us=before_us,
            boot_id=self._boot_id,
            uncertainty_us=after_us - before_us + 1,
            source=self._source,
        )

    def _tick_us(self) -> int:
        if sys.platform == "linux" and self._counts_suspension:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        return time.monotonic_ns() // 1000


def host_boot_id(boot_id_file: Path = _BOOT_ID_FILE, tick_shift_file: Path = _TICK_SHIFT_FILE) -> str | None:
    """The kernel's boot id, with the time namespace's shift mixed in; None where the system has none to
    read."""
    try:
        boot_id = boot_id_file.read_text("ascii").strip().lower()
    except (OSError, UnicodeDecodeError):
        return None
    if not boot_id or len(boot_id) > 64:
        return None
    try:
        shifts = [line.split() for line in tick_shift_file.read_text("ascii").splitlines()]
    except (OSError, UnicodeDecodeError):
        return boot_id  # a kernel without time namespaces
    shift = next((" ".join(words[1:]) for words in shifts if words[:1] == ["boottime"]), "0 0")
    if shift == "0 0":
        return boot_id
    return hmac.new(boot_id.encode(), shift.encode(), hashlib.sha256).hexdigest()[:32]


def host_source(machine_id_files: tuple[Path, ...] = _MACHINE_ID_FILES) -> str:
    """Stable name of this host: its machine id, never shown itself, hashed for this use; else its host
    name."""
    identity = f"host name {socket.gethostname()}"
    for path in machine_id_files:
        try:
            machine_id = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if len(machine_id) == 32:  # neither empty nor "uninitialized"
            identity = f"machine id {machine_id}"
            break
    return "source_" + hmac.new(identity.encode(), _SOURCE_SALT, hashlib.sha256).hexdigest()[:32]
