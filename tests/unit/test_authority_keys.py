"""The keys folder: made once whoever starts, never replaced once used, closed to others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from fencepost.adapters.authority.keys import KeyFolder, verify_signature
from fencepost.adapters.durable import place_file
from fencepost.adapters.entropy import SystemEntropy
from fencepost.app import App, make_home
from fencepost.core.commands import ObserveClock
from fencepost.core.vocabulary import HUMAN_PRINCIPAL, SERVICE_PRINCIPALS
from fencepost.kernel.group import clock_reading
from fencepost.ports.authority import CHECKPOINT_SIGNER, KeyDamaged, KeysExposed
from fencepost.ports.errors import StorageError, StorageMismatch
from fencepost.testing.fakes import FakeEntropy, MemoryKeyring

EVERY = (HUMAN_PRINCIPAL, *SERVICE_PRINCIPALS, CHECKPOINT_SIGNER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "keys"


def open_keys(folder: Path) -> KeyFolder:
    return KeyFolder(folder, SystemEntropy())


def made(folder: Path, names: Iterable[str] = EVERY) -> KeyFolder:
    """A folder in which these principals have their keys."""
    keys = open_keys(folder)
    for name in names:
        keys.public_key(name)
    return keys


def test_every_principal_has_a_key_of_its_own(folder: Path) -> None:
    keys = made(folder)
    assert len({keys.public_key(name) for name in EVERY}) == len(EVERY)
    for name in EVERY:
        signature = keys.sign(name, b"message")
        assert verify_signature(keys.public_key(name), signature, b"message")
        assert not verify_signature(keys.public_key(name), signature, b"another message")
        assert not verify_signature(b"short", signature, b"message")
        assert not verify_signature(keys.public_key(name), b"short", b"message")


def test_files_and_folder_are_closed_to_others(folder: Path) -> None:
    made(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_opening_again_gives_the_same_keys(folder: Path) -> None:
    first = made(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = made(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert again.sign("reducer", b"m") == first.sign("reducer", b"m")


def test_nothing_is_made_or_read_before_it_is_asked_for(folder: Path) -> None:
    open_keys(folder)
    assert not folder.exists()


def test_root_keys_belong_to_scope_and_epoch(folder: Path) -> None:
    keys = open_keys(folder)
    places = [("default", 0), ("default", 1), ("other", 0), ("Ünlike/../x", 0), ("x" * 300, 0)]
    roots = [keys.grant_root(scope=scope, epoch=epoch) for scope, epoch in places]
    assert len(set(roots)) == len(places)
    assert {len(root) for root in roots} == {32}
    assert [open_keys(folder).grant_root(scope=scope, epoch=epoch) for scope, epoch in places] == roots
    assert all(path.parent == folder for path in folder.parent.rglob("*") if path.is_file())


_INITIALIZE = """
import sys, time
from pathlib import Path
from fencepost.adapters.authority.keys import KeyFolder
from fencepost.adapters.entropy import SystemEntropy
keys = KeyFolder(Path(sys.argv[1]), SystemEntropy())
sys.stdin.readline()
for name in sys.argv[2:]:
    keys.public_key(name)
print(keys.public_key("reducer").hex(), keys.sign("reducer", b"m").hex(),
    keys.grant_root(scope="s", epoch=0).hex())
"""


def test_four_processes_that_start_at_once_get_the_same_keys(folder: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _INITIALIZE, str(folder), *EVERY],
            env={"PYTHONPATH": ":".join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = {process.communicate(timeout=30)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert len(outputs) == 1
    keys = open_keys(folder)
    assert outputs == {
        f"{keys.public_key('reducer').hex()} {keys.sign('reducer', b'm').hex()}"
        f" {keys.grant_root(scope='s', epoch=0).hex()}\n"
    }


@pytest.mark.parametrize("left", [b"", b"fencepost 1 ed25519 00ff", b"\x00" * 100])
def test_a_half_written_key_that_was_never_used_is_made_anew(folder: Path, left: bytes) -> None:
    folder.mkdir(parents=True, mode=0o700)
    half = folder / "signing-reducer.key"
    half.write_bytes(left)
    half.chmod(0o600)
    (folder / ".signing-reducer.key.new").write_bytes(b"left by a crash")
    keys = open_keys(folder)
    assert verify_signature(keys.public_key("reducer"), keys.sign("reducer", b"m"), b"m")


def test_a_whole_key_that_a_crash_left_without_its_id_is_kept(folder: Path) -> None:
    public = open_keys(folder).public_key("reducer")
    (folder / "signing-reducer.id").unlink()
    assert open_keys(folder).public_key("reducer") == public


@pytest.mark.parametrize("damage", ["missing", "half", "swapped", "foreign", "both swapped", "id"])
def test_a_used_key_that_is_damaged_is_an_error_and_stays_as_it_is(folder: Path, damage: str) -> None:
    made(folder, ["reducer", "prover"])
    made(folder.parent / "foreign", ["reducer"])
    path = folder / ("signing-reducer.id" if damage == "id" else "signing-reducer.key")
    if damage == "missing":
        path.unlink()
    elif damage == "foreign":
        path.write_bytes((folder.parent / "foreign" / path.name).read_bytes())
    elif "swapped" in damage:
        path.write_bytes((folder / "signing-prover.key").read_bytes())
        if damage == "both swapped":
            (folder / "signing-reducer.id").write_bytes((folder / "signing-prover.id").read_bytes())
    else:
        path.write_bytes(path.read_bytes()[:40])
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    with pytest.raises(KeyDamaged):
        open_keys(folder).sign("reducer", b"m")
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before


def test_a_root_key_that_was_lost_is_not_replaced(folder: Path) -> None:
    open_keys(folder).grant_root(scope="default", epoch=0)
    (folder / "grants-default.0.key").unlink()
    with pytest.raises(KeyDamaged):
        open_keys(folder).grant_root(scope="default", epoch=0)


def test_keys_that_others_can_read_are_refused(folder: Path) -> None:
    made(folder, ["reducer"])
    (folder / "signing-reducer.key").chmod(0o640)
    with pytest.raises(KeysExposed):
        open_keys(folder).sign("reducer", b"m")
    (folder / "signing-reducer.key").chmod(0o600)
    folder.chmod(0o755)
    with pytest.raises(KeysExposed):
        open_keys(folder).public_key("prover")


def test_a_key_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    made(folder, ["reducer"])
    elsewhere = tmp_path / "elsewhere"
    (folder / "signing-reducer.key").rename(elsewhere)
    (folder / "signing-reducer.key").symlink_to(elsewhere)
    with pytest.raises(StorageError):
        open_keys(folder).sign("reducer", b"m")


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        open_keys(tmp_path / "file" / "keys").public_key("reducer")


def test_public_keys_are_read_without_loading_the_signing_library(folder: Path) -> None:
    made(folder)
    program = (
        "import sys; from pathlib import Path\n"
        "from fencepost.adapters.authority.keys import KeyFolder\n"
        "from fencepost.adapters.entropy import SystemEntropy\n"
        "keys = KeyFolder(Path(sys.argv[1]), SystemEntropy()); [keys.public_key(name) for name in sys.argv[2:]]\n"
        "print('cryptography' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(folder), *EVERY],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "False\n"


def test_entropy_is_fresh_and_the_fakes_repeat() -> None:
    seeds = {SystemEntropy().seed() for _ in range(100)}
    assert len(seeds) == 100
    assert {len(seed) for seed in seeds} == {16}
    one, same, other = FakeEntropy(1), FakeEntropy(1), FakeEntropy(2)
    assert [one.seed(), one.seed()] == [same.seed(), same.seed()]
    assert one.seed() != other.seed()
    assert MemoryKeyring(1).public_key("a") == MemoryKeyring(1).public_key("a")
    assert MemoryKeyring(1).grant_root(scope="a", epoch=0) != MemoryKeyring(1).grant_root(scope="a", epoch=1)


@pytest.mark.parametrize("harm", ["emptied", "open to others", "removed", "folder removed"])
def test_lost_keys_of_a_store_in_use_are_an_error_and_never_made_anew(tmp_path: Path, harm: str) -> None:
    home = tmp_path / ".fencepost"
    make_home(home)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def sample() -> None:
        app = App(home, scope="default", environment=environment)
        try:
            app.kernel.open()
            reading = app.kernel.clock.read()
            app.kernel.write(app.kernel.request("sampler", ObserveClock(reading=clock_reading(reading))))
        finally:
            app.close()

    sample()
    for path in (home / "keys").iterdir():
        if harm == "emptied":
            path.write_bytes(b"")
        elif harm == "open to others":
            path.chmod(0o777)
        else:
            path.unlink()
    if harm == "folder removed":
        (home / "keys").rmdir()
    with pytest.raises(KeysExposed if harm == "open to others" else KeyDamaged):
        sample()
    app = App(home, scope="default", environment=environment)
    with pytest.raises(KeysExposed if harm == "open to others" else KeyDamaged):
        app.kernel.verify()
    app.close()
    kept = list((home / "keys").glob("*.key")) if (home / "keys").is_dir() else []
    assert not kept or not harm.endswith("removed")


@pytest.mark.parametrize("harm", ["every key removed", "signing keys removed", "folder removed"])
def test_a_new_scope_of_a_store_whose_keys_are_lost_is_refused_and_gets_none(tmp_path: Path, harm: str) -> None:
    """The keys are the store's: others for its next scope would let nobody notice that the first ones are gone."""
    home = tmp_path / ".fencepost"
    make_home(home)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def make_scope(name: str) -> None:
        app = App(home, scope=name, environment=environment)
        try:
            app.kernel.open()
        finally:
            app.close()

    make_scope("first")
    make_scope("second")
    for path in (home / "keys").glob("signing-*" if harm == "signing keys removed" else "*.*"):
        path.unlink()
    if harm == "folder removed":
        (home / "keys").rmdir()
    before = sorted((home / "keys").iterdir()) if (home / "keys").is_dir() else []
    with pytest.raises(KeyDamaged, match="was in use and is missing") as caught:
        make_scope("third")
    assert caught.value.next_step == "restore the keys folder from a backup, or use a new home (--home DIR)"
    assert (sorted((home / "keys").iterdir()) if (home / "keys").is_dir() else []) == before, "no key was made"
    app = App(home, scope="third", environment=environment)
    with app.kernel.reader.look() as look:
        assert not look.head.seq, "the scope was not made either"
    app.close()


def test_files_placed_by_many_at_once_are_whole(tmp_path: Path) -> None:
    """First runs race: several processes make one home, and all of them get it."""
    children = []
    for _ in range(8):
        child = os.fork()
        if not child:
            code = 1
            try:
                for number in range(20):
                    make_home(tmp_path / f"{number}" / ".fencepost")
                    place_file(tmp_path / "same", b"x" * 100_000)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    assert (tmp_path / "same").read_bytes() == b"x" * 100_000
    assert not list(tmp_path.rglob("*.new"))


def test_a_layout_that_is_no_text_is_of_another_program(tmp_path: Path) -> None:
    make_home(tmp_path / ".fencepost")
    (tmp_path / ".fencepost/layout").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageMismatch):
        App(tmp_path / ".fencepost", scope="default", environment={})
