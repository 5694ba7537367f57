"""A home that is removed while its worker runs: the worker notices, ends what runs, and nobody runs it beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fencepost import app as app_module
from fencepost.app import App, make_home
from fencepost.ports.errors import StorageUnavailable
from tests.surfaces.cli_run_world import Repo, ended, make_repo, processes_of, read_until, wait_for_no_process

SAYS = """
[budget]
attempts = 3
[[work]]
name = "says"
run = ["sh", "-c", "while [ ! -e '{0}/go' ]; do echo $FENCEPOST_ATTEMPT >> '{0}/said'; sleep 0.05; done"]
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("plan.toml", SAYS.format(tmp_path))
    return made


def said(repo: Repo) -> list[str]:
    path = repo.folder.parent / "said"
    return path.read_text().split() if path.exists() else []


def test_case_a_home_that_is_removed_under_a_worker_ends_what_it_runs(repo: Repo) -> None:
    first = repo.start("run", "plan.toml")
    read_until(first, "says: active")
    while not said(repo):
        time.sleep(0.05)
    shutil.rmtree(repo.folder / ".fencepost")
    code, words = ended(first)
    assert code == 1
    assert "error [storage_unavailable]: the store of this home was removed or replaced" in words
    assert processes_of(repo.folder) == []
    assert not (repo.folder / ".fencepost").exists(), "nothing of it comes back"


def test_case_what_a_removed_home_runs_has_ended_before_the_next_one_begins(repo: Repo) -> None:
    first = repo.start("run", "plan.toml")
    read_until(first, "says: active")
    while not said(repo):
        time.sleep(0.05)
    shutil.rmtree(repo.folder / ".fencepost")
    second = repo.start("run", "plan.toml")
    read_until(second, "says: active")
    code, words = ended(first)
    assert (code, "storage_unavailable" in words) == (1, True)
    until = time.monotonic() + 20
    while len(set(said(repo))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    (repo.folder.parent / "go").touch()
    code, _ = ended(second)
    assert code == 0
    changes = [one for one, before in zip(said(repo), ["", *said(repo)], strict=False) if one != before]
    assert len(changes) == 2, "neither said anything once the other had begun"
    assert repo.document("journal", "replay")["match"] is True


def test_a_home_is_not_made_where_programs_of_a_removed_one_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "REMOVED_S_MAX", 0.5)
    home = tmp_path / ".fencepost"
    environment = {**os.environ, "FENCEPOST_WORKSPACE": str(home / "work" / "attempt_1" / "workspace")}
    with subprocess.Popen(["sleep", "60"], env=environment) as left:
        try:
            with pytest.raises(StorageUnavailable, match="still run") as caught:
                make_home(home)
            assert str(left.pid) in str(caught.value.next_step)
            assert not home.exists()
        finally:
            left.kill()
    assert make_home(home)


def test_a_store_stands_while_its_file_is_the_one_that_was_opened(tmp_path: Path) -> None:
    home = tmp_path / ".fencepost"
    make_home(home)
    opened = App(home, scope="default", environment=os.environ)
    opened.kernel.open()
    try:
        assert opened.store_stands()
        shutil.copy(home / "store.db", home / "other.db")
        (home / "other.db").rename(home / "store.db")
        assert not opened.store_stands()
        with opened.kernel.reader.look() as one, pytest.raises(StorageUnavailable, match="removed or replaced"):
            opened.kernel.reader.look().__enter__()  # a further connection, which would be to another file
        assert one is not None
        (home / "store.db").unlink()
        assert not opened.store_stands()
    finally:
        opened.close()


def test_a_worker_whose_socket_is_removed_is_heard_by_later_programs(repo: Repo) -> None:
    repo.write(
        "plan.toml",
        '[budget]\nattempts = 3\n[[work]]\nname = "cleans"\nrun = ["sh", "-c", "rm $FENCEPOST_SOCKET"]\n'
        '[[work]]\nname = "says"\nneeds = ["cleans"]\nrun = ["fencepost", "attempt", "heartbeat"]\n',
    )
    document = repo.document("run", "plan.toml")
    assert document["outcome"] == "done", json.dumps(document)
    assert [order["attempts"] for order in document["orders"]] == [1, 1]


def test_signals_are_heard_by_a_worker_without_a_home(repo: Repo) -> None:
    """It ends by itself as well; whoever cannot wait need not."""
    first = repo.start("run", "plan.toml")
    read_until(first, "says: active")
    while not said(repo):
        time.sleep(0.05)
    shutil.rmtree(repo.folder / ".fencepost")
    first.send_signal(signal.SIGINT)
    code, _ = ended(first)
    assert code in (1, 130)
    wait_for_no_process(repo.folder, 8.0)
