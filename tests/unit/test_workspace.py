"""The folder of an attempt, from pinned inputs to collected outputs and away again."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.adapters.artifacts.outputs import CollectLimits
from fencepost.adapters.artifacts.pack import Packs, PackWritten
from fencepost.adapters.artifacts.store import FileArtifactStore
from fencepost.adapters.workspace import Workspaces
from fencepost.core.planfile.patterns import Pattern, compile_pattern
from fencepost.ports.errors import PathRefused
from fencepost.ports.workspace import Collected, HandedFile, Inputs, Output, Workspace

FIRST = "attempt_" + "0" * 31 + "1"
SECOND = "attempt_" + "0" * 31 + "2"


class Bench:
    """A home, a source tree, and everything between."""

    def __init__(self, folder: Path, limits: CollectLimits | None = None) -> None:
        self.tree = folder / "repo"
        self.home = folder / "höme with space"
        self.store = FileArtifactStore(self.home / "artifacts")
        self.packs = Packs(self.home / "packs", self.store)
        self.workspaces = Workspaces(self.home, store=self.store, packs=self.packs, limits=limits)

    def pin(self, files: dict[str, bytes]) -> str:
        for name, data in files.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        written = self.packs.write(self.tree, files)
        assert isinstance(written, PackWritten)
        return self.packs.put_manifest(written, files, classification="internal").digest

    def put(self, data: bytes) -> str:
        return self.store.put_bytes(data, classification="internal").digest

    def prepare(self, files: dict[str, bytes], *handed: HandedFile) -> Workspace:
        inputs = Inputs(manifests=(self.pin(files),), handed=handed)
        return self.workspaces.prepare(attempt=FIRST, inputs=inputs, params=None)

    def collect(self, workspace: Workspace, *patterns: str) -> Collected:
        return self.workspaces.collect(workspace, declared(*patterns), classification="internal")


def declared(*texts: str) -> Callable[[str], bool]:
    patterns = [compile_pattern(text) for text in texts]
    return lambda path: any(isinstance(pattern, Pattern) and pattern.matches(path) for pattern in patterns)


def codes(collected: Collected) -> dict[str, str]:
    return {problem.path: problem.code for problem in collected.problems}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def tree_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_layout(bench: Bench) -> None:
    handed = HandedFile(path="in/ü b.sh", digest=bench.put(b"#!"), mode="0755")
    inputs = Inputs(manifests=(bench.pin({"a": b"1", "in/c": b"2"}),), handed=(handed,))
    workspace = bench.workspaces.prepare(attempt=FIRST, inputs=inputs, params=b'{"x":1}')
    base = bench.home / "work" / FIRST
    assert tree_of(workspace.path) == {"a": b"1", "in/c": b"2", "in/ü b.sh": b"#!"}
    assert (workspace.path, workspace.home) == (base / "workspace", base / "home")
    assert (workspace.tmp, workspace.logs) == (base / "tmp", base / "logs")
    assert workspace.params_path == base / "params.json"
    assert workspace.params_path.read_bytes() == b'{"x":1}'
    assert stat.S_IMODE((workspace.path / "in/ü b.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE(base.stat().st_mode) == 0o700
    assert bench.workspaces.find(FIRST) == workspace
    (workspace.path / "a").write_bytes(b"written by the attempt")
    assert (bench.tree / "a").read_bytes() == b"1"


def test_preparing_again_starts_anew(bench: Bench) -> None:
    workspace = bench.prepare({"a": b"1"})
    (workspace.path / "left").write_bytes(b"by a killed worker")
    assert tree_of(bench.prepare({"a": b"1"}).path) == {"a": b"1"}


def test_a_handed_file_may_not_replace_a_pinned_one(bench: Bench) -> None:
    same = HandedFile(path="a", digest=bench.put(b"1"), mode="0644")
    bench.prepare({"a": b"1"}, same)
    for path, data in {"a": b"2", "a/b": b"x", "../a": b"x"}.items():
        with pytest.raises(PathRefused):
            bench.prepare({"a": b"1"}, HandedFile(path=path, digest=bench.put(data), mode="0644"))
        assert bench.workspaces.list_attempts() == (), "nothing is left of a workspace that was refused"


def test_a_handed_file_does_not_follow_a_pinned_link_outside(bench: Bench) -> None:
    bench.tree.mkdir()
    (bench.tree / "link").symlink_to("nowhere")
    written = bench.packs.write(bench.tree, ["link"])
    assert isinstance(written, PackWritten)
    digest = bench.packs.put_manifest(written, ["link"], classification="internal").digest
    handed = HandedFile(path="link", digest=bench.put(b"x"), mode="0644")
    with pytest.raises(PathRefused):
        bench.workspaces.prepare(attempt=FIRST, inputs=Inputs(manifests=(digest,), handed=(handed,)))


@pytest.mark.parametrize("attempt", ["", "..", "attempt_1", "../" + FIRST, FIRST + "/x", FIRST + "\n"])
def test_only_an_attempt_id_names_a_folder(bench: Bench, attempt: str) -> None:
    with pytest.raises(ValueError, match="not an attempt id"):
        bench.workspaces.discard(attempt)


def test_only_declared_outputs_are_collected_in_bytewise_order(bench: Bench) -> None:
    workspace = bench.prepare({"out/pinned": b"unchanged", "src/a": b"1"})
    for name, data in {
        "out/b": b"bb",
        "out/é": b"e",
        "out/sub/.x": b"",
        "out/B": b"B",
        "other": b"no",
    }.items():
        (workspace.path / name).parent.mkdir(exist_ok=True)
        (workspace.path / name).write_bytes(data)
    (workspace.path / "out/b").chmod(0o750)
    collected = bench.collect(workspace, "out/**", "report.xml")
    assert collected.problems == ()
    assert [(output.path, output.mode, output.bytes) for output in collected.outputs] == [
        ("out/B", "0644", 1),
        ("out/b", "0755", 2),
        ("out/pinned", "0644", 9),
        ("out/sub/.x", "0644", 0),
        ("out/é", "0644", 1),
    ]
    assert bench.store.read(collected.outputs[1].digest, 10) == b"bb"


def test_links_and_odd_files(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    workspace = bench.prepare({"a": b"inside"})
    links = {
        "absolute": str(tmp_path / "secret"),
        "relative": "../../../../secret",
        "inside": "a",
        "dangling": "nowhere",
        "folder": "sub",
        "elsewhere": str(tmp_path),
        "loop": "loop",
    }
    (workspace.path / "sub").mkdir()
    (workspace.path / "sub/f").write_bytes(b"f")
    for name, target in links.items():
        (workspace.path / name).symlink_to(target)
    os.mkfifo(workspace.path / "fifo")
    with open(os.path.join(os.fsencode(workspace.path), b"bad\xff\nname"), "wb"):
        pass
    collected = bench.collect(workspace, "**")
    assert {output.path for output in collected.outputs} == {"a", "inside", "sub/f"}
    assert codes(collected) == {
        "absolute": "path_outside",
        "relative": "path_outside",
        "elsewhere": "path_outside",
        "fifo": "not_regular",
        "bad\\xff\\nname": "bad_path_name",
    }
    assert not bench.store.has("sha256:" + hashlib.sha256(b"secret").hexdigest())
    assert codes(bench.collect(workspace, "a")) == {}, "what is not declared does not matter"


@pytest.mark.parametrize(
    ("bounds", "code", "kept"),
    [
        ({"files_max": 3, "file_bytes_max": 30, "total_bytes_max": 60, "scanned_max": 3}, None, 3),
        ({"files_max": 2}, "too_many", 0),
        ({"scanned_max": 2}, "too_many", 0),
        ({"total_bytes_max": 59}, "too_large", 0),
        ({"file_bytes_max": 29}, "too_large", 2),
    ],
)
def test_case_40_bounds_of_what_an_attempt_hands_in(
    tmp_path: Path, bounds: dict[str, int], code: str | None, kept: int
) -> None:
    bench = Bench(tmp_path, CollectLimits(**bounds))
    workspace = bench.prepare({})
    for name, size in {"a": 10, "b": 20, "c": 30}.items():
        (workspace.path / name).write_bytes(name.encode() * size)
    collected = bench.collect(workspace, "**")
    assert [problem.code for problem in collected.problems] == ([code] if code else [])
    assert len(collected.outputs) == kept


def test_a_tree_deeper_than_any_path_is_collected_and_removed(bench: Bench) -> None:
    workspace = bench.prepare({})
    here = os.open(workspace.path, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d" * 10, dir_fd=here)
        inner = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("leaf", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
    (workspace.path / "report").write_bytes(b"fine")
    collected = bench.collect(workspace, "report")
    assert [output.path for output in collected.outputs] == ["report"]
    assert [problem.code for problem in bench.collect(workspace, "**").problems] == ["bad_path_name"]
    bench.workspaces.discard(FIRST)
    assert os.listdir(bench.home / "work") == [".trash"]
    assert os.listdir(bench.home / "work/.trash") == []


def test_the_verifier_sees_inputs_then_outputs_and_no_output_covers_an_input(bench: Bench) -> None:
    inputs = Inputs(manifests=(bench.pin({"check.py": b"check", "src/a": b"a"}),))
    workspace = bench.workspaces.prepare(attempt=FIRST, inputs=inputs)
    (workspace.path / "report").write_bytes(b"good")
    collected = bench.collect(workspace, "**")
    (workspace.path / "check.py").write_bytes(b"always right")
    (workspace.path / "scratch").write_bytes(b"not seen")
    space = bench.workspaces.prepare_verifier(FIRST, inputs=inputs, outputs=collected.outputs)
    assert isinstance(space, Workspace)
    assert tree_of(space.path) == {"check.py": b"check", "src/a": b"a", "report": b"good"}
    covering = [
        Output(path="check.py", mode="0644", digest=bench.put(b"always right"), bytes=12),
        Output(path="src/a", mode="0755", digest=bench.put(b"a"), bytes=1),
        Output(path="src", mode="0644", digest=bench.put(b"a"), bytes=1),
        Output(path="check.py/x", mode="0644", digest=bench.put(b"a"), bytes=1),
    ]
    for output in covering:
        refused = bench.workspaces.prepare_verifier(FIRST, inputs=inputs, outputs=[output])
        assert isinstance(refused, tuple)
        assert [(problem.code, problem.path) for problem in refused] == [("covers_pinned", output.path)]
        assert not space.path.exists()


def test_a_late_verifier_has_folders_of_its_own(bench: Bench) -> None:
    """Somebody may stand still in the first, and go on."""
    first = bench.workspaces.prepare_verifier(FIRST, inputs=Inputs(manifests=()), outputs=())
    late = bench.workspaces.prepare_verifier(FIRST, inputs=Inputs(manifests=()), outputs=(), late=True)
    assert isinstance(first, Workspace) and isinstance(late, Workspace)
    assert first.path.is_dir() and late.path.is_dir() and not late.path.samefile(first.path)
    assert late.logs != first.logs
    bench.workspaces.discard(FIRST)
    assert bench.workspaces.list_attempts() == ()


def test_a_note_stays_with_an_attempt_and_goes_with_it(bench: Bench) -> None:
    spaces = bench.workspaces
    assert spaces.read_note(FIRST) is None
    spaces.keep_note(FIRST, b"one")
    spaces.keep_note(FIRST, b"two")
    assert (spaces.read_note(FIRST), spaces.list_attempts()) == (b"two", (FIRST,))
    with pytest.raises(ValueError, match="at most"):
        spaces.keep_note(FIRST, b"x" * 5_000)
    spaces.discard(FIRST)
    assert (spaces.read_note(FIRST), spaces.list_attempts()) == (None, ())
    (bench.home / "work" / f"{FIRST}.note").symlink_to("/etc/passwd")
    assert spaces.read_note(FIRST) is None


def test_half_a_note_of_a_killed_worker_goes_with_its_attempt(bench: Bench) -> None:
    spaces, work = bench.workspaces, bench.home / "work"
    for attempt in (FIRST, SECOND):
        child = os.fork()
        if not child:  # killed between the writing of the note and its name
            os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            spaces.keep_note(attempt, b"half")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = sorted(os.listdir(work))
    assert len(left) == 2 and spaces.read_note(FIRST) is None
    assert spaces.list_attempts() == (FIRST, SECOND)
    assert spaces.sweep(among=spaces.list_attempts(), keep={SECOND}).failed == ()
    assert [name for name in os.listdir(work) if name.startswith(".attempt")] == left[1:], "it may be written just now"
    assert spaces.sweep(among=spaces.list_attempts(), keep=()).failed == ()
    assert spaces.list_attempts() == () and [name for name in os.listdir(work) if name != ".trash"] == []


def leave_closed_folders(bench: Bench) -> None:
    workspace = bench.prepare({"a": b"1"})
    inner = workspace.path / "closed/inner"
    inner.mkdir(parents=True)
    (inner / "file").write_bytes(b"x")
    (inner / "file").chmod(0)
    inner.chmod(0o500)
    inner.parent.chmod(0)
    collected = bench.collect(workspace, "a")
    assert ([output.path for output in collected.outputs], collected.problems) == (["a"], ())
    inner.parent.chmod(0)
    workspace.path.parent.chmod(0o500)
    bench.workspaces.discard(FIRST)
    assert os.listdir(bench.home / "work/.trash") == []
    assert bench.workspaces.list_attempts() == ()


def test_a_folder_without_permissions_is_read_and_removed() -> None:
    """In a process without privileges, since nothing is closed to root."""
    nobody = 65534
    with tempfile.TemporaryDirectory() as place:
        if os.geteuid() == 0:
            os.chown(place, nobody, nobody)
        child = os.fork()
        if not child:
            code = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(nobody, nobody, nobody)
                    os.setresuid(nobody, nobody, nobody)
                leave_closed_folders(Bench(Path(place)))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_sweep_keeps_what_is_kept_and_what_came_later(bench: Bench) -> None:
    third = "attempt_" + "0" * 31 + "3"
    for attempt in (FIRST, SECOND):
        bench.workspaces.prepare(attempt=attempt, inputs=Inputs())
    listed = bench.workspaces.list_attempts()
    bench.workspaces.prepare(attempt=third, inputs=Inputs())
    trash = bench.home / "work/.trash/left.by-a-kill"
    (trash / "inner").mkdir(parents=True)
    (trash / "inner/file").write_bytes(b"x")
    swept = bench.workspaces.sweep(among=listed, keep={SECOND})
    assert (swept.removed, swept.failed) == ((FIRST,), ())
    assert bench.workspaces.list_attempts() == (SECOND, third)
    assert not trash.exists()
    assert bench.workspaces.sweep(among=listed, keep=set()).removed == (FIRST, SECOND)
    bench.workspaces.discard(FIRST)


def test_two_sweeps_of_the_same_trash_help_each_other(bench: Bench) -> None:
    trash = bench.home / "work/.trash"
    for number in range(300):
        (trash / f"left.{number}/a/b").mkdir(parents=True)
        (trash / f"left.{number}/a/b/file").touch()
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            failed: object = "error"
            try:
                failed = bench.workspaces.sweep(among=(), keep=()).failed
            finally:
                os._exit(1 if failed else 0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert os.listdir(trash) == []


def test_a_declared_output_below_a_path_that_is_too_long_is_a_problem(bench: Bench) -> None:
    workspace = bench.prepare({"a": b"1"})
    here = os.open(workspace.path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep.txt", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
    collected = bench.collect(workspace, "**/deep.txt")
    assert (collected.outputs, [problem.code for problem in collected.problems]) == ((), ["bad_path_name"])
    assert bench.collect(workspace, "a").problems == ()


@pytest.mark.parametrize("how", ["removed", "a file", "a link"])
def test_a_workspace_that_is_no_folder_any_more_is_a_problem(bench: Bench, how: str) -> None:
    workspace = bench.prepare({})
    workspace.path.rmdir()
    if how == "a file":
        workspace.path.touch()
    elif how == "a link":
        workspace.path.symlink_to("/etc")
    collected = bench.collect(workspace, "passwd")
    assert (collected.outputs, codes(collected)) == ((), {"": "unreadable"})


def test_the_same_content_put_again_mends_what_the_disk_has_damaged(bench: Bench) -> None:
    digest = bench.pin({"a": b"a" * 100, "b": b"b"})
    paths = [path for path in bench.home.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(paths) >= 2, "a pack and a manifest"
    whole = {path: path.read_bytes() for path in paths}
    for path, data in whole.items():
        path.chmod(0o600)
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    again = Bench(bench.home.parent)
    assert again.pin({"a": b"a" * 100, "b": b"b"}) == digest
    assert {path: path.read_bytes() for path in paths} == whole
