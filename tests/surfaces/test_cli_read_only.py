"""Where nothing may be written, everything that only reads works, and what writes says why it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.ports.errors import StorageUnavailable
from fencepost.storage import sqlite
from tests.surfaces.cli_run_world import WAIT_S, Repo, make_repo
from tests.surfaces.rights import can_mount, unshared, without_rights

PLAN = """
[budget]
attempts = 9
[[work]]
name = "a"
run = ["sh", "-c", "echo hello | tee out.txt"]
outputs = ["out.txt"]
[[work]]
name = "b"
needs = ["a"]
run = ["sh", "-c", "echo gone; exit 3"]
"""
READING = (
    *(("order", "list"), ("order", "why", "b"), ("order", "show", "a"), ("order", "graph"), ("order", "log", "b")),
    *(("plan", "list"), ("plan", "show"), ("plan", "diff", "plan.toml"), ("budget", "show"), ("attempt", "list", "b")),
    *(
        ("journal", "verify"),
        ("journal", "replay"),
        ("journal", "tail"),
        ("order", "files", "a", "--to", "ELSEWHERE/f"),
    ),
    *(("journal", "export", "ELSEWHERE/e"), ("order", "graph", "--svg", "ELSEWHERE/g")),
)
WRITING = (
    *(("run", "plan.toml", "--again"), ("order", "retry", "b"), ("plan", "submit", "plan.toml", "--again")),
    *(("budget", "set", "plan", "--attempts", "20"), ("worker", "start", "--until-idle"), ("init", "--scope", "x")),
)
SCRIPT = """
import contextlib, io, json, sys
from fencepost.surfaces.cli import frame
ended = []
for words in json.loads(sys.argv[1]):
    told, out = io.StringIO(), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(out):
        code = frame.run([*words, "--json"])
    ended.append([words, code, told.getvalue().splitlines()[-1:]])
json.dump(ended, sys.stdout)
"""


class Ended(NamedTuple):
    words: list[str]
    code: int
    told: list[str]

    @property
    def error(self) -> str:
        return str(json.loads(self.told[0])["error"]["code"])


Commands = tuple[tuple[str, ...], ...]
Within = Callable[[Commands], list[Ended]]


def called(repo: Repo, commands: Commands, prefix: tuple[str, ...]) -> list[Ended]:
    """Commands one after another in one process, behind what takes its rights away."""
    elsewhere = str(repo.user / "elsewhere")
    words = [[word.replace("ELSEWHERE", elsewhere) for word in command] for command in commands]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", SCRIPT, json.dumps(words)],
        cwd=repo.folder,
        env=repo.environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ended(*each) for each in json.loads(done.stdout)]


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Repo]:
    made = make_repo(tmp_path)
    made.write("plan.toml", PLAN)
    (made.user / "elsewhere").mkdir()
    yield made
    for path in (made.folder, *made.folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def mounted(repo: Repo) -> Within:
    """The project on a file system that is mounted read-only, in a mount namespace of its own."""
    if not can_mount():
        pytest.skip("needs a mount namespace, which this system does not give")
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
    return lambda commands: called(repo, commands, (*unshared(), "sh", "-c", script, str(repo.folder)))


def closed(repo: Repo) -> Within:
    """Folders that their user may not write to."""
    prefix = without_rights()
    for path in (repo.folder, *repo.folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o555)
    return lambda commands: called(repo, commands, prefix)


@pytest.mark.parametrize("taken", [mounted, closed])
def test_whatever_only_reads_works_where_nothing_may_be_written(repo: Repo, taken: Callable[[Repo], Within]) -> None:
    assert repo.call("run", "plan.toml").returncode == 7
    before = (repo.folder / ".fencepost/store.db").read_bytes()
    within = taken(repo)
    assert [(ended.words, ended.code) for ended in within(READING) if ended.code] == []
    elsewhere = repo.user / "elsewhere"
    assert (elsewhere / "f/out.txt").read_text() == "hello\n"
    assert (elsewhere / "e").stat().st_size and (elsewhere / "g").stat().st_size
    code = "storage_read_only" if taken is mounted else "storage_unavailable"
    assert {(ended.code, ended.error) for ended in within(WRITING)} == {(1, code)}
    assert (repo.folder / ".fencepost/store.db").read_bytes() == before
    assert not list((repo.folder / ".fencepost").glob("store.db-*"))


@pytest.mark.parametrize("taken", [mounted, closed])
def test_what_a_killed_worker_left_in_the_log_is_read_too(repo: Repo, taken: Callable[[Repo], Within]) -> None:
    """As after a disk error, when the system mounts the disk anew for reading alone."""
    repo.write("plan.toml", PLAN.replace("echo gone; exit 3", "touch $FENCEPOST_REPO/began; sleep 60"))
    running = repo.start("run", "plan.toml")
    until = time.monotonic() + WAIT_S
    while not (repo.folder / "began").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    home = repo.folder / ".fencepost"
    index = (home / "store.db-shm").read_bytes()
    within = taken(repo)
    assert [(ended.words, ended.code) for ended in within(READING) if ended.code] == []
    assert (repo.user / "elsewhere/f/out.txt").read_text() == "hello\n"
    home.chmod(0o755)
    (home / "store.db-shm").unlink()
    if taken is closed:
        home.chmod(0o555)
    (ended,) = within((("order", "list"),))
    assert (ended.code, ended.error) == (1, "storage_log_unread")
    assert index and (home / "store.db-wal").stat().st_size, "nothing was put back or thrown away"


def test_a_store_that_is_written_while_it_is_read_without_locks_is_no_damage_and_no_mixture(tmp_path: Path) -> None:
    """One who may write does so beside one who may not: what was read is thrown away."""
    folder = tmp_path / "home"
    path = folder / "store.db"
    folder.mkdir()
    sqlite.create(path, "a" * 32, tmp_path / "locks").close()
    script = f"""
import os
from pathlib import Path
from fencepost.ports.errors import StorageUnavailable
from fencepost.storage import sqlite
journal = sqlite.open(Path({str(path)!r}), Path({str(tmp_path / "locks")!r}))
with journal.snapshot() as reads:
    assert not reads.streams()
assert not os.path.exists({str(path) + "-shm"!r})
print("open", flush=True)
input()
for _ in range(2):
    try:
        with journal.snapshot() as reads:
            reads.streams()
    except StorageUnavailable as error:
        print(error.message)
journal.close()
"""
    folder.chmod(0o555)
    reader = subprocess.Popen(
        [*without_rights(), sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=dict(os.environ),
    )
    assert reader.stdout is not None and reader.stdout.readline() == "open\n"
    folder.chmod(0o755)
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(first)
    told, _ = reader.communicate("\n", timeout=WAIT_S)
    assert told.count("was written while it was read") == 2 and reader.returncode == 0


def test_a_store_that_is_missing_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        sqlite.open(tmp_path / "store.db", tmp_path / "locks")
    assert list(tmp_path.iterdir()) == []
