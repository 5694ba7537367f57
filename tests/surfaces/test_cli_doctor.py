"""`fencepost doctor`: every fault of its registry is made for real, found by its code and explained; a home that is set
up well has none."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from fencepost.adapters.diagnosis import file_system
from fencepost.adapters.door import place
from fencepost.app import App
from fencepost.core.commands import ObserveClock, Reading
from fencepost.surfaces.cli import frame
from fencepost.surfaces.cli.doctor.findings import FAULTS, SEVERITY, WELL
from tests.surfaces.cli_run_world import CLI, ONE, WAIT_S, Repo, git, make_repo
from tests.surfaces.rights import can_mount, unshared, without_rights

Items = list[dict[str, Any]]


class Patient:
    """A repository with a home that is set up well, and the command line in this process, as its user would have it."""

    def __init__(self, repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.repo = repo
        self.folder = repo.folder
        self.home = repo.folder / ".fencepost"
        self.variables = monkeypatch
        self._capsys = capsys
        for name in list(os.environ):
            if name.startswith(("FENCEPOST_", "XDG_")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(repo.user))
        monkeypatch.delenv("TMPDIR", raising=False)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        monkeypatch.chdir(repo.folder)
        assert self.call("init")[0] == 0

    def call(self, *words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = frame.run(words)
        return code, self._capsys.readouterr().out

    def doctor(self, *words: str) -> Items:
        code, out = self.call("doctor", "--json", *words)
        return checked(code, json.loads(out))

    def outside(self, *words: str, prefix: tuple[str, ...] = (), **options: Any) -> Items:
        """The same in a process of its own: for what a process is, and not what it is told."""
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONUTF8",)}
        environment |= options.pop("variables", {})
        done = subprocess.run(
            [*prefix, *CLI, "doctor", "--json", *words],
            capture_output=True,
            encoding="utf-8",
            env=environment,
            timeout=WAIT_S,
            check=False,
            **options,
        )
        assert done.stdout, done.stderr
        return checked(done.returncode, json.loads(done.stdout))

    def mounted(self, mount: str, *words: str) -> Items:
        """The same where `mount`, lines of shell, has been carried out in a mount namespace of its own."""
        if not can_mount():
            pytest.skip("needs a mount namespace, which this system does not give")
        script = f'set -e\n{mount}\ncd {self.folder}\nexec "$@"'
        return self.outside(*words, prefix=(*unshared(), "sh", "-c", script, "sh"))


def checked(code: int, document: dict[str, Any]) -> Items:
    """The items, each of the form that the registry promises, and the exit code that goes with them."""
    items: Items = document["items"]
    for item in items:
        assert set(item) == {"check", "code", "level", "severity", "message", "where", "next"}
        assert item["severity"] == SEVERITY[item["level"]]
        if item["code"] != WELL:
            row = FAULTS[item["code"]]
            assert item["level"] == row.level and item["next"] and item["message"], item
            assert "{" not in item["message"] + item["next"], item
    assert document["ok"] is all(item["level"] != "bad" for item in items)
    assert code == (0 if document["ok"] else 1)
    return items


def codes(items: Items) -> list[str]:
    return [item["code"] for item in items if item["code"] != WELL]


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Patient]:
    repo = make_repo(tmp_path)
    yield Patient(repo, monkeypatch, capsys)
    for path in (repo.folder, *repo.folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


# Each of these makes a fault and returns what the doctor finds then. Their names are those of the codes.


def git_missing(patient: Patient) -> Items:
    patient.variables.setenv("PATH", str(Path(sys.executable).parent))
    return patient.doctor()


def locale_not_utf8(patient: Patient) -> Items:
    return patient.outside(variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})


def umask_open(patient: Patient) -> Items:
    return patient.outside(umask=0o000)


def umask_closed(patient: Patient) -> Items:
    return patient.outside(umask=0o277)


def descriptors_low(patient: Patient) -> Items:
    return patient.outside(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)))


def file_size_low(patient: Patient) -> Items:
    return patient.outside(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**24, 2**24)))


def temporary_unusable(patient: Patient) -> Items:
    patient.variables.setenv("TMPDIR", str(patient.folder / "nowhere"))
    return patient.doctor()


def temporary_noexec(patient: Patient) -> Items:
    (patient.folder / "t").mkdir()
    patient.variables.setenv("TMPDIR", str(patient.folder / "t"))
    return patient.mounted(f"mount -t tmpfs -o noexec,size=1m tmpfs {patient.folder}/t")


def boot_unknown(patient: Patient) -> Items:
    return patient.mounted("mount --bind /dev/null /proc/sys/kernel/random/boot_id")


def program_other_version(patient: Patient) -> Items:
    other = patient.folder / "bin" / "fencepost"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho fencepost 0.0.1\n")
    other.chmod(0o755)
    patient.variables.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    return patient.doctor()


def program_missing_in_attempts(patient: Patient) -> Items:
    folder = patient.folder / "python"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    patient.variables.setattr(sys, "executable", str(folder / "python"))
    return patient.doctor()


def config_refused(patient: Patient) -> Items:
    patient.repo.write("fencepost.toml", "jobs = 0\nscoop = 1\n")
    items = patient.doctor()
    assert codes(items) == ["config_refused", "config_refused"]
    return items


def config_of_others(patient: Patient) -> Items:
    patient.repo.write("fencepost.toml", "jobs = 2\n").chmod(0o666)
    return patient.doctor()


def processes_unseen(patient: Patient) -> Items:
    return patient.mounted("mount -t tmpfs tmpfs /proc")


def locks_ineffective(patient: Patient) -> Items:
    """As on a network file system that takes every lock and keeps none."""
    patient.variables.setattr(fcntl, "flock", lambda *_: None)
    found = patient.doctor()
    patient.variables.undo()
    return found


def python_unusable(patient: Patient) -> Items:
    patient.repo.write("work.py", 'import fencepost as fp\n@fp.executor("x", version=1)\ndef x(attempt): ...\n')
    plan = ONE.replace('run = ["true"]', 'executor = "python"\ncall = "work:x"')
    patient.repo.write("plan.toml", f'python = "no-such-python"\n{plan}')
    return patient.doctor("plan.toml")


def variable_unknown(patient: Patient) -> Items:
    patient.variables.setenv("FENCEPOST_SCOOP", "x")
    return patient.doctor()


def store_unsupported(patient: Patient) -> Items:
    patient.variables.setenv("FENCEPOST_STORE", "postgresql://127.0.0.1:1/none")
    return patient.doctor()


def repository_bare(patient: Patient) -> Items:
    git(patient.folder, "clone", "-q", "--bare", ".", "bare.git")
    patient.variables.chdir(patient.folder / "bare.git")
    return patient.doctor("--home", str(patient.home))


def repository_without_commits(patient: Patient) -> Items:
    shutil.rmtree(patient.folder / ".git")
    git(patient.folder, "init", "-q")
    return patient.doctor()


def repository_refused(patient: Patient) -> Items:
    if os.geteuid() != 0:
        pytest.skip("needs the superuser, who can give a folder away")
    for path in (patient.folder, patient.folder / ".git"):
        os.chown(path, 65534, 65534)
    return patient.doctor()


def untracked_large(patient: Patient) -> Items:
    with (patient.folder / "model.bin").open("wb") as file:
        file.truncate(2 * 2**30)
    return patient.doctor()


def home_in_git(patient: Patient) -> Items:
    git(patient.folder, "add", "--force", ".fencepost/layout")
    return patient.doctor()


def home_missing(patient: Patient) -> Items:
    shutil.rmtree(patient.home)
    return patient.doctor()


def home_is_inside(patient: Patient) -> Items:
    return patient.doctor("--home", str(patient.folder))


def layout_other(patient: Patient) -> Items:
    (patient.home / "layout").write_text("9\n")
    return patient.doctor()


def layout_missing(patient: Patient) -> Items:
    (patient.home / "layout").unlink()
    return patient.doctor("--home", str(patient.home))


def home_incomplete(patient: Patient) -> Items:
    (patient.home / "wake").rmdir()
    return patient.doctor()


def home_unwritable(patient: Patient) -> Items:
    (patient.home / "artifacts").chmod(0o500)
    return patient.outside(prefix=without_rights())


def home_read_only(patient: Patient) -> Items:
    place = patient.home
    return patient.mounted(f"mount --bind {place} {place}\nmount -o remount,ro,bind {place}")


def home_of_another(patient: Patient) -> Items:
    if os.geteuid() != 0:
        pytest.skip("needs the superuser, who can give a folder away")
    os.chown(patient.home, 65534, 65534)
    return patient.doctor()


def folder_elsewhere(patient: Patient) -> Items:
    return patient.mounted(f"mount -t tmpfs -o size=1m tmpfs {patient.home}/locks")


def work_noexec(patient: Patient) -> Items:
    return patient.mounted(f"mount --bind {patient.home} {patient.home}\nmount -o remount,noexec,bind {patient.home}")


def _on_small_disk(patient: Patient, options: str) -> Items:
    kept = patient.folder / "kept"
    shutil.move(patient.home, kept)
    patient.home.mkdir()
    return patient.mounted(f"mount -t tmpfs -o {options} tmpfs {patient.home}\ncp -a {kept}/. {patient.home}")


def disk_full(patient: Patient) -> Items:
    (patient.home / "artifacts/filler").write_bytes(bytes(26 * 2**20))
    return _on_small_disk(patient, "size=32m")


def disk_low(patient: Patient) -> Items:
    return _on_small_disk(patient, "size=512m")


def inodes_low(patient: Patient) -> Items:
    return _on_small_disk(patient, "size=2g,nr_inodes=500")


def gitignore_missing(patient: Patient) -> Items:
    (patient.home / ".gitignore").unlink()
    return patient.doctor()


def keys_open(patient: Patient) -> Items:
    (patient.home / "keys").chmod(0o755)
    return patient.doctor()


def keys_missing(patient: Patient) -> Items:
    for key in (patient.home / "keys").iterdir():
        key.unlink()
    return patient.doctor()


def store_missing(patient: Patient) -> Items:
    (patient.home / "store.db").unlink()
    return patient.doctor()


def store_not_sqlite(patient: Patient) -> Items:
    (patient.home / "store.db").write_bytes(b"this is no database" * 100)
    return patient.doctor()


def home_file_strange(patient: Patient) -> Items:
    (patient.home / "store.db").unlink()
    os.mkfifo(patient.home / "store.db")
    found = patient.doctor()
    assert next(item for item in found if item["code"] == "home_file_strange")["where"].endswith("/store.db")
    return found


HOLDS = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(60)"


def process_stopped(patient: Patient) -> Items:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(patient.home / "locks" / "writer")], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"1\n"
        assert "process_stopped" not in codes(patient.doctor())
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        found = patient.doctor()
    finally:
        holder.kill()
        holder.communicate()
    told = next(item for item in found if item["code"] == "process_stopped")
    assert told["where"] == str(holder.pid) and "holds writer" in told["message"]
    assert f"kill -CONT {holder.pid}" in told["next"]
    return found


def store_journal_mode(patient: Patient) -> Items:
    with_journal = apsw.Connection(str(patient.home / "store.db"))
    assert with_journal.pragma("journal_mode", "DELETE") == "delete"
    with_journal.close()
    return patient.doctor()


def store_unwritable(patient: Patient) -> Items:
    (patient.home / "store.db").chmod(0o400)
    return patient.outside(prefix=without_rights())


def store_unusable(patient: Patient) -> Items:
    store = patient.home / "store.db"
    whole = store.read_bytes()
    store.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    return patient.doctor()


def store_head_wrong(patient: Patient) -> Items:
    _sql(patient, "UPDATE record SET data = X'7B7D' WHERE seq = (SELECT max(seq) FROM record)")
    return patient.doctor()


def _sql(patient: Patient, statement: str) -> None:
    connection = apsw.Connection(str(patient.home / "store.db"))
    triggers = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for name in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statement)
    connection.close()


def store_not_as_signed(patient: Patient) -> Items:
    kept = patient.folder / "kept"
    patient.repo.write("plan.toml", ONE)
    assert patient.call("run", "plan.toml")[0] == 0
    shutil.copytree(patient.home, kept)
    assert patient.call("run", "plan.toml", "--again")[0] == 0
    shutil.rmtree(patient.home)
    kept.rename(patient.home)
    return patient.doctor()


def store_unsigned(patient: Patient) -> Items:
    patient.repo.write("plan.toml", ONE)
    assert patient.call("run", "plan.toml")[0] == 0
    shutil.rmtree(patient.repo.user / ".local")
    return patient.doctor()


def scope_not_open(patient: Patient) -> Items:
    return patient.doctor("--scope", "other")


def home_copied(patient: Patient) -> Items:
    copy = patient.folder.parent / "copy"
    shutil.copytree(patient.folder, copy)
    patient.variables.chdir(copy)
    patient.repo.write("../copy/plan.toml", ONE)
    assert patient.call("run", "plan.toml")[0] == 5
    return patient.doctor()


def ledger_beside(patient: Patient) -> Items:
    patient.variables.delenv("HOME")
    return patient.doctor()


def authority_wrong(patient: Patient) -> Items:
    other = make_repo(patient.folder.parent / "second")
    patient.variables.chdir(other.folder)
    assert patient.call("init")[0] == 0
    patient.variables.chdir(patient.folder)
    shutil.rmtree(patient.home / "keys")
    shutil.copytree(other.folder / ".fencepost" / "keys", patient.home / "keys")
    return patient.doctor()


def _applied(patient: Patient) -> Path:
    patient.repo.write("plan.toml", ONE.replace('["true"]', '["sh", "-c", "echo x > out.txt"]\noutputs = ["out.txt"]'))
    assert patient.call("run", "plan.toml")[0] == 0
    out = json.loads(patient.call("order", "files", "only", "--json")[1])
    digest = out["items"][0]["digest"].removeprefix("sha256:")
    return next(path for path in (patient.home / "artifacts").rglob("*") if path.is_file() and path.name in digest)


def artifacts_damaged(patient: Patient) -> Items:
    path = _applied(patient)
    path.chmod(0o600)
    path.write_bytes(b"y\n")
    return patient.doctor()


def artifacts_missing(patient: Patient) -> Items:
    _applied(patient).unlink()
    return patient.doctor()


def processes_left(patient: Patient) -> Items:
    patient.repo.write("plan.toml", ONE)
    assert patient.call("run", "plan.toml")[0] == 0
    attempt = json.loads(patient.call("order", "list", "--json")[1])["items"][0]["attempt"]
    left = subprocess.Popen(["sleep", "30"], env={**os.environ, "FENCEPOST_ATTEMPT": attempt})
    try:
        return patient.doctor()
    finally:
        left.kill()
        left.wait()


def folders_left(patient: Patient) -> Items:
    (patient.home / "work" / ("attempt_" + "0" * 32)).mkdir()
    return patient.doctor()


def wakeups_missing(patient: Patient) -> Items:
    class Unbound(socket.socket):
        """As on a file system that has no sockets."""

        def bind(self, *_: Any) -> None:
            raise PermissionError("no sockets here")

    patient.variables.setattr(socket, "socket", Unbound)
    return patient.doctor()


def door_missing(patient: Patient) -> Items:
    """Every folder that could take a worker's socket has too long a path for one."""
    deep = patient.folder / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    moved = deep / "home"
    shutil.move(patient.home, moved)
    patient.variables.delenv("XDG_RUNTIME_DIR", raising=False)
    patient.variables.setattr(tempfile, "tempdir", str(deep))
    patient.variables.setattr(place, "SYSTEM_TEMPORARY", str(deep))
    return patient.doctor("--home", str(moved))


def door_unheard(patient: Patient) -> Items:
    """A worker that lives, by its lock, and no socket that could be its own."""
    with open(patient.home / "locks" / f"worker_{'1' * 32}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        return patient.doctor()


def clock_blocked(patient: Patient) -> Items:
    with closing(App(patient.home, scope="default", environment=os.environ)) as app:
        app.kernel.open()
        now = app.kernel.clock.read()
        far = Reading(
            source=now.source,
            boot_id=now.boot_id,
            utc_us=now.utc_us + 60_000_000,
            tick_us=now.tick_us,
            uncertainty_us=now.uncertainty_us,
        )
        app.kernel.write(app.kernel.request("sampler", ObserveClock(reading=far))).required()
    return patient.doctor()


def clock_behind(patient: Patient) -> Items:
    """As after a restart of the host: another boot id, and time that nobody has measured."""
    other = patient.folder / "boot_id"
    other.write_text("11111111-2222-3333-4444-555555555555\n")
    time.sleep(2.5)
    return patient.mounted(f"mount --bind {other} /proc/sys/kernel/random/boot_id")


def executor_failed(patient: Patient) -> Items:
    empty = patient.folder / "empty"
    empty.mkdir()
    patient.variables.setenv("PATH", str(empty))
    return patient.doctor()


def plan_invalid(patient: Patient) -> Items:
    patient.repo.write("plan.toml", ONE.replace("run", "rnu"))
    return patient.doctor("plan.toml")


def command_missing(patient: Patient) -> Items:
    patient.repo.write("plan.toml", ONE.replace('"true"', '"no-such-program"'))
    return patient.doctor("plan.toml")


def verifier_missing(patient: Patient) -> Items:
    patient.repo.write("plan.toml", ONE + 'accept = { verify = ["no-such-verifier"] }\n')
    return patient.doctor("plan.toml")


def attempts_few_at_once(patient: Patient) -> Items:
    three = "".join(f'[[work]]\nname = "{name}"\nrun = ["true"]\n' for name in "abc")
    patient.repo.write("plan.toml", f'[budget]\nattempts = 9\ntime = "15m"\n{three}')
    patient.variables.setenv("FENCEPOST_JOBS", "3")
    return patient.doctor("plan.toml")


def command_not_executable(patient: Patient) -> Items:
    patient.repo.write("tool.sh", "#!/bin/sh\n")
    patient.repo.write("plan.toml", ONE.replace('"true"', '"./tool.sh"'))
    return patient.doctor("plan.toml")


def variable_not_set(patient: Patient) -> Items:
    patient.repo.write("plan.toml", ONE + 'environment = ["PATH", "API_KEY"]\n')
    return patient.doctor("plan.toml")


MADE: dict[str, Callable[[Patient], Items]] = {
    maker.__name__: maker
    for maker in (
        *(git_missing, locale_not_utf8, umask_open, umask_closed, descriptors_low, file_size_low, temporary_unusable),
        *(temporary_noexec, boot_unknown, program_other_version, program_missing_in_attempts, config_refused),
        *(variable_unknown, store_unsupported, repository_bare, repository_without_commits, repository_refused),
        *(untracked_large, home_in_git, home_missing, home_is_inside, layout_other, layout_missing, home_incomplete),
        *(home_unwritable, home_read_only, home_of_another, folder_elsewhere, work_noexec, disk_full, disk_low),
        *(inodes_low, gitignore_missing, keys_open, store_missing, store_not_sqlite, store_journal_mode),
        *(store_unwritable, store_unusable, store_head_wrong, store_not_as_signed, store_unsigned, scope_not_open),
        *(home_copied, ledger_beside, authority_wrong, artifacts_damaged, artifacts_missing, processes_left),
        *(
            folders_left,
            wakeups_missing,
            clock_blocked,
            clock_behind,
            executor_failed,
            plan_invalid,
            command_missing,
            command_not_executable,
            verifier_missing,
            attempts_few_at_once,
        ),
        *(
            variable_not_set,
            config_of_others,
            processes_unseen,
            locks_ineffective,
            python_unusable,
            keys_missing,
            door_missing,
            door_unheard,
            home_file_strange,
            process_stopped,
        ),
    )
}
"""Faults that are made as they happen."""

ELSEWHERE = {"python_too_old", "containment_weak", "platform_unsupported", "network_file_system"}
"""Faults that no test can make on the host it runs on: what is asked of it is replaced, below."""


def test_x3_every_fault_of_the_registry_is_made_here() -> None:
    assert set(FAULTS) == set(MADE) | ELSEWHERE
    assert len(MADE) >= 20


def test_a_small_disk_with_room_is_not_full(patient: Patient) -> None:
    assert codes(_on_small_disk(patient, "size=32m")) == ["disk_low"]


def test_lost_keys_are_told_once(patient: Patient) -> None:
    shutil.rmtree(patient.home / "keys")
    assert codes(patient.doctor()).count("keys_missing") == 1


def test_keys_that_others_may_read_are_told_once(patient: Patient) -> None:
    found = keys_open(patient)
    assert [code for code in codes(found) if code in ("keys_open", "store_unusable", "keys_missing")] == ["keys_open"]


@pytest.mark.parametrize("code", sorted(MADE))
def test_x3_a_fault_is_found_and_explained(patient: Patient, code: str) -> None:
    assert codes(patient.doctor()) == [], "it was well before"
    found = MADE[code](patient)
    assert code in codes(found), found


def test_x3_a_home_that_is_set_up_well_has_no_fault(patient: Patient) -> None:
    patient.repo.write("plan.toml", ONE)
    assert patient.call("run", "plan.toml")[0] == 0
    assert codes(patient.doctor("plan.toml")) == []
    assert codes(patient.outside("plan.toml")) == []
    assert codes(patient.outside("plan.toml", umask=0o022, variables={"LC_ALL": "C"})) == []


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each folder, file and socket with its mode and content; SQLite's own working files have none."""
    shared = (".db-shm", ".db-wal")
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() and path.suffix not in shared else b"")
        for path in folder.rglob("*")
    }


def test_it_changes_nothing(patient: Patient) -> None:
    """Neither in a home that no worker has used nor where one left a socket in a folder that others may look into."""
    before = everything(patient.folder)
    assert codes(patient.doctor()) == []
    assert everything(patient.folder) == before
    left = patient.home / "run"
    left.mkdir(mode=0o755)
    left.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(left / "0badcafe.sock"))
    before = everything(patient.folder)
    assert codes(patient.doctor()) == []
    assert everything(patient.folder) == before


def test_a_deep_home_whose_sockets_have_long_names_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A socket's address has 107 bytes; a folder's name has no such bound."""
    repo = make_repo(tmp_path / ("a" * 100) / ("b" * 100))
    assert codes(Patient(repo, monkeypatch, capsys).doctor()) == []


@pytest.mark.parametrize(("platform", "code"), [("darwin", "containment_weak"), ("win32", "platform_unsupported")])
def test_other_platforms_are_told(patient: Patient, platform: str, code: str) -> None:
    from fencepost.surfaces.cli.doctor import host

    patient.variables.setattr(sys, "platform", platform)
    found = host._platform().code
    patient.variables.undo()
    assert found == code


def test_an_old_python_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.surfaces.cli.doctor import host

    monkeypatch.setattr(host, "PYTHON_MIN", (99, 0))
    assert next(host.host_lines()).code == "python_too_old"


MOUNTS = """\
22 1 0:20 / / rw,relatime - ext4 /dev/vda rw
30 22 0:31 / /srv rw,relatime shared:1 - nfs4 server:/export rw,vers=4.2
31 30 0:32 / /srv/my\\040data rw - ext4 /dev/vdb rw
32 22 0:33 / /mnt rw - fuse.sshfs user@host: rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_network"),
    [
        ("/", "ext4", False),
        ("/srv", "nfs4", True),
        ("/srv/x", "nfs4", True),
        ("/srvx", "ext4", False),
        ("/srv/my data/x", "ext4", False),
        ("/mnt/home", "fuse.sshfs", True),
    ],
)
def test_what_a_folder_lies_on_is_that_of_the_nearest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str, is_network: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(os.path, "realpath", lambda _: path)
    found = file_system(tmp_path, mounts)
    assert found is not None and (found.kind, found.is_network) == (kind, is_network)
    assert file_system(tmp_path, tmp_path / "none") is None


def test_a_home_on_a_network_is_refused_by_name(patient: Patient) -> None:
    from fencepost.adapters import diagnosis as host

    mounts = patient.folder.parent / "mountinfo"
    mounts.write_text(f"22 1 0:20 / {patient.home} rw - nfs4 server:/export rw\n")
    patient.variables.setattr(host, "file_system", lambda folder: file_system(folder, mounts))
    assert "network_file_system" in codes(patient.doctor())
