"""What git lists, in awkward trees, environments and locales."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost.adapters.repository import GitRepository, PlainFolder, find_root, open_repository
from fencepost.ports.repository import RepositoryError


def git(root: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    command = ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    made = tmp_path / "träe with space"
    made.mkdir()
    git(made, "init", "-q")
    return made


def committed(root: Path, *names: str) -> None:
    write(root, *names)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")


def test_tracked_and_untracked_dirty_and_deleted(root: Path) -> None:
    write(root, ".gitignore")
    (root / ".gitignore").write_text("*.log\n/build/\n")
    committed(root, "kept", "deleted", "src/ü\n.py", "tracked.log.txt")
    write(root, "new file", ".hidden", "ignored.log", "build/x", "src/new", ".fencepost/store.db")
    write(root, "sub/.fencepost/x", ".fencepost.ledger/y")
    git(root, "add", "-f", ".fencepost/store.db")
    (root / "kept").write_text("dirty")
    (root / "deleted").unlink()
    (root / "link").symlink_to("kept")
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "fifo")
    expected = [".gitignore", ".hidden", "dangling", "kept", "link", "new file", "src/new", "src/ü\n.py"]
    assert GitRepository(root).list_files() == (*expected, "tracked.log.txt")


def test_order_is_bytewise(root: Path) -> None:
    names = ["a.b", "a/b", "a-b", "B", "é", "z", "\U0001f600", "\uffee"]
    committed(root, *names)
    assert list(GitRepository(root).list_files()) == sorted(names, key=lambda name: name.encode())


def test_a_file_behind_a_link_is_deleted_to_git_and_to_us(root: Path, tmp_path: Path) -> None:
    committed(root, "folder/file", "other")
    write(tmp_path, "outside/file")
    (root / "folder/file").unlink()
    (root / "folder").rmdir()
    (root / "folder").symlink_to("../outside")
    assert GitRepository(root).list_files() == ("folder", "other")


def test_a_conflicted_file_is_listed_once(root: Path) -> None:
    committed(root, "file")
    git(root, "checkout", "-q", "-b", "other")
    (root / "file").write_text("theirs")
    git(root, "commit", "-qam", "x")
    git(root, "checkout", "-q", "main")
    (root / "file").write_text("ours")
    git(root, "commit", "-qam", "x")
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "-q", "other")
    assert GitRepository(root).list_files() == ("file",)


def test_submodules_belong_to_the_tree_and_nested_repositories_do_not(root: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    committed(library, "lib.py")
    committed(root, "main.py")
    git(root, "submodule", "add", "-q", str(library), "vendor/lib")
    write(root, "vendor/lib/untracked")
    nested = root / "worktrees" / "other"
    nested.mkdir(parents=True)
    git(nested, "init", "-q")
    committed(nested, "theirs")
    assert GitRepository(root).list_files() == (
        ".gitmodules",
        "main.py",
        "vendor/lib/lib.py",
        "vendor/lib/untracked",
    )
    assert find_root(root / "vendor/lib") == root / "vendor/lib"
    git(root, "submodule", "deinit", "-q", "-f", "vendor/lib")
    assert GitRepository(root).list_files() == (".gitmodules", "main.py")


def test_names_that_are_not_utf8_are_named_and_refused(root: Path) -> None:
    committed(root, "fine")
    for number in range(7):
        with open(os.path.join(os.fsencode(root), b"bad\xff%d" % number), "wb"):
            pass
    for tree in (GitRepository(root), PlainFolder(root)):
        with pytest.raises(RepositoryError) as caught:
            tree.list_files()
        assert caught.value.code == "bad_path_name"
        assert "bad\\xff0" in caught.value.message
        assert "and 2 more" in caught.value.message


def test_head_and_dirty(root: Path) -> None:
    tree = GitRepository(root)
    assert tree.head() is None
    committed(root, "file")
    assert tree.head() == git(root, "rev-parse", "HEAD").strip()
    assert tree.dirty() is False
    write(root, ".fencepost/store.db", "deep/.fencepost/store.db")
    assert tree.dirty() is False
    write(root, "untracked")
    assert tree.dirty() is True
    (root / "untracked").unlink()
    (root / "file").write_text("dirty")
    assert tree.dirty() is True


def test_the_callers_git_variables_do_not_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(root, "file")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, "/nonexistent")
    assert GitRepository(root).list_files() == ("file",)
    assert GitRepository(root).head() is not None


def test_no_program_named_by_the_repository_runs_and_nothing_is_written(root: Path) -> None:
    committed(root, "file")
    git(root, "config", "core.fsmonitor", f"touch '{root}/ran'; false")
    before = (root / ".git/index").stat()
    os.utime(root / "file")
    tree = GitRepository(root)
    tree.list_files()
    tree.dirty()
    after = (root / ".git/index").stat()
    assert not (root / "ran").exists()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_missing_git_is_explained(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(RepositoryError) as caught:
        GitRepository(root).list_files()
    assert caught.value.code == "git_missing"
    assert caught.value.next_step is not None
    assert find_root(root) == root


def test_a_repository_of_another_user_is_explained(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    script = "#!/bin/sh\necho \"fatal: detected dubious ownership in repository at '$PWD'\" >&2\nexit 128\n"
    (bin_folder / "git").write_text(script)
    (bin_folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    with pytest.raises(RepositoryError) as caught:
        GitRepository(root).head()
    assert caught.value.code == "git_refused"
    assert "safe.directory" in (caught.value.next_step or "")


def test_a_broken_repository_is_explained(root: Path) -> None:
    committed(root, "file")
    (root / ".git/index").write_bytes(b"garbage" * 10)
    with pytest.raises(RepositoryError) as caught:
        GitRepository(root).list_files()
    assert caught.value.code == "git_failed"
    assert "index" in caught.value.message


def test_find_root(root: Path, tmp_path: Path) -> None:
    write(root, "a/b/c")
    assert find_root(root / "a/b") == root
    (root / "a/b/.git").mkdir()  # an empty folder of that name is no repository
    assert find_root(root / "a/b") == root
    assert find_root(tmp_path) != root
    write(tmp_path, "plain/file")
    assert isinstance(open_repository(root), GitRepository)
    assert isinstance(open_repository(tmp_path / "plain"), PlainFolder)
    committed(root, "x")
    git(root, "worktree", "add", "-q", str(tmp_path / "second"))
    assert find_root(tmp_path / "second") == tmp_path / "second"
    assert "x" in GitRepository(tmp_path / "second").list_files()


def test_a_plain_folder_is_walked(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    write(
        plain,
        "a",
        ".hidden",
        "sub/ü",
        "sub/.fencepost/x",
        ".fencepost.ledger/x",
        "nested/.git/HEAD",
        "nested/f",
    )
    (plain / "link").symlink_to("sub")
    os.mkfifo(plain / "fifo")
    tree = PlainFolder(plain)
    assert tree.list_files() == (".hidden", "a", "link", "sub/ü")
    assert (tree.head(), tree.dirty()) == (None, False)


@pytest.mark.parametrize("locale", [{"LANG": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}])
def test_lang_c_changes_nothing(root: Path, tmp_path: Path, locale: dict[str, str]) -> None:
    committed(root, "ü", "日本/\n")
    program = """
import os, sys
from pathlib import Path
from fencepost.adapters.repository import GitRepository
from fencepost.adapters.artifacts.pack import Packs
from fencepost.adapters.artifacts.store import FileArtifactStore
root, home, out = (Path(argument) for argument in sys.argv[1:])
paths = GitRepository(root).list_files()
packs = Packs(home / "packs", FileArtifactStore(home / "artifacts"))
written = packs.write(root, paths)
packs.materialize(packs.put_manifest(written, paths, classification="internal").digest, out)
print(ascii(paths))
"""
    (tmp_path / "öut").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **locale,
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(root), str(tmp_path / "höme"), str(tmp_path / "öut")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ascii(("ü", "日本/\n")) + "\n", done.stderr
    assert (tmp_path / "öut/日本/\n").read_text() == "日本/\n"


@pytest.mark.slow
def test_twenty_thousand_files_are_listed_quickly(root: Path) -> None:
    for folder in range(100):
        (root / f"d{folder}").mkdir()
        for number in range(200):
            (root / f"d{folder}/f{number}").touch()
    git(root, "add", "-A")
    begin = time.perf_counter()
    assert len(GitRepository(root).list_files()) == 20_000
    assert time.perf_counter() - begin < 5, "a second on an idle machine"
