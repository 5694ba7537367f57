"""`fencepost order files`: verified copies, nothing replaced, nothing outside the folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from fencepost.core.records.common import ArtifactRef
from fencepost.ports.errors import PathRefused
from fencepost.surfaces.cli.order_files import copy_files
from tests.surfaces.cli_world import Cli, World, draft, main_orders, sh


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("ran"))
    failing = draft("left", sh("echo half > half.txt; chmod 755 half.txt; exit 1"), outputs=("*.txt",), may_fail=True)
    world.work(world.submit("nightly", (main_orders()[0], failing)))
    return world


@pytest.fixture
def cli(ran: World, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(ran, capsys)


def test_files_are_listed_and_written(cli: Cli, tmp_path: Path) -> None:
    listed = cli.json("order", "files", "make")
    assert [item["path"] for item in listed["items"]] == ["out.txt", "sub/b.txt"]
    assert "written" not in listed
    to = tmp_path / "new" / "folder"
    assert cli.json("order", "files", "make", "--to", str(to))["written"] == ["out.txt", "sub/b.txt"]
    assert (to / "out.txt").read_text() == "hello\n"
    assert (to / "sub" / "b.txt").read_text() == "x"
    assert cli.json("order", "files", "make", "--to", str(to))["written"] == []
    assert "same  out.txt  6 bytes" in cli("order", "files", "make", "--to", str(to)).out


def test_a_file_that_differs_stops_everything(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("mine")
    answer = cli("order", "files", "make", "--to", str(tmp_path), "--json")
    assert (answer.code, answer.error["code"]) == (5, "file_exists")
    assert "sub/b.txt" in answer.error["message"]
    assert (tmp_path / "sub" / "b.txt").read_text() == "mine"
    assert not (tmp_path / "out.txt").exists()


def test_a_link_is_neither_followed_nor_replaced(cli: Cli, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    to = tmp_path / "to"
    to.mkdir()
    (to / "sub").symlink_to(outside)
    answer = cli("order", "files", "make", "--to", str(to), "--json")
    assert answer.code == 2
    assert answer.error["code"] == "path_outside"
    assert list(outside.iterdir()) == []
    (to / "sub").unlink()
    (to / "out.txt").symlink_to(outside / "target")
    assert cli("order", "files", "make", "--to", str(to)).code == 5
    assert not (outside / "target").exists()


@pytest.mark.parametrize("path", ["../up", "/abs", "a/../../b", "", "a//b", "./a"])
def test_no_path_of_a_result_leaves_the_folder(ran: World, tmp_path: Path, path: str) -> None:
    with ran.open() as app:
        stored = app.artifacts.put_bytes(b"x", classification="internal")
        ref = ArtifactRef(path=path, digest=stored.digest, bytes=1, mode=0o644)
        with pytest.raises(PathRefused):
            copy_files(app.artifacts, [ref], tmp_path / "to")
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == []


def test_what_a_failed_attempt_left_can_be_had_by_its_number(cli: Cli, tmp_path: Path) -> None:
    assert cli("order", "files", "left").code == 5
    document = cli.json("order", "files", "left", "--attempt", "1", "--to", str(tmp_path))
    assert document["written"] == ["half.txt"]
    assert (tmp_path / "half.txt").stat().st_mode & 0o777 == 0o755


def test_a_damaged_artifact_is_never_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path / "home")
    world.work(world.submit("p", [draft("a", sh("echo good > a.txt"), outputs=("a.txt",))]))
    cli = Cli(world, capsys)
    digest = cli.json("order", "files", "a")["items"][0]["digest"].removeprefix("sha256:")
    (kept,) = [path for path in (world.home / "artifacts").rglob("*") if path.name == digest[2:]]
    kept.chmod(0o600)
    kept.write_bytes(b"evil\n")
    answer = cli("order", "files", "a", "--to", str(tmp_path / "to"), "--json")
    assert answer.code == 8
    assert not (tmp_path / "to" / "a.txt").exists()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_a_wrong_word(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    answer = cli("order", "files", "make", "--to", str(tmp_path / name), "--json")
    assert (answer.code, answer.error["code"]) == (2, "unwritable")
    assert str(tmp_path / name) in answer.error["message"]
    svg = cli("order", "graph", "--svg", str(tmp_path / "nothing" / "x.svg"), "--json")
    assert (svg.code, svg.error["message"]) == (
        2,
        f"{tmp_path}/nothing/x.svg cannot be written: No such file or directory",
    )


def test_files_of_an_order_that_failed_name_the_step_that_has_them(cli: Cli) -> None:
    answer = cli("order", "files", "left", "--json")
    assert answer.error["next"] == "fencepost order files nightly/left --attempt 1 has what its last attempt left"


@pytest.mark.parametrize("words", [("journal", "export", "FILE"), ("order", "graph", "--svg", "FILE")])
def test_a_file_that_is_there_is_replaced_by_nothing_but_force(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "notes.txt"
    precious.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(precious)
    for path in (precious, link):
        named = [str(path) if word == "FILE" else word for word in words]
        answer = cli(*named, "--json")
        assert (answer.code, answer.error["code"]) == (5, "file_exists")
        assert "--force" in answer.error["next"] and precious.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["link", "notes.txt"]
    assert cli(*named, "--force").code == 0
    assert link.is_symlink() and precious.read_text() != "precious"
    fresh = tmp_path / "fresh"
    named = [str(fresh) if word == "FILE" else word for word in words]
    with monkeypatch.context() as patched:  # another program is quicker, after the first look
        patched.setattr(os, "fsync", lambda _: fresh.write_text("of another"))
        assert cli(*named, "--json").error["code"] == "file_exists"
    assert fresh.read_text() == "of another"
    fresh.unlink()
    assert cli(*named).code == 0 and fresh.is_file()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["fresh", "link", "notes.txt"]


@pytest.mark.parametrize("words", [("journal", "export", "FILE"), ("order", "graph", "--svg", "FILE")])
def test_a_file_below_dev_is_a_file_and_what_is_open_there_is_written_to(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """/dev/shm holds files as any other folder; only what the shell has opened is nobody's file to replace."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no folder of files below /dev")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        precious = Path(folder) / "notes.txt"
        precious.write_text("precious")
        named = [str(precious) if word == "FILE" else word for word in words]
        answer = cli(*named, "--json")
        assert (answer.code, answer.error["code"]) == (5, "file_exists")
        assert precious.read_text() == "precious"
        assert cli(*named, "--force").code == 0 and precious.read_text() != "precious"
        assert [path.name for path in Path(folder).iterdir()] == ["notes.txt"]
    with (tmp_path / "open").open("w+b") as file:
        named = [f"/dev/fd/{file.fileno()}" if word == "FILE" else word for word in words]
        assert cli(*named).code == 0
        assert file.read() and file.tell() == (tmp_path / "open").stat().st_size
