"""A process that may open few files: its worker answers all programs, or says beforehand that it cannot."""

from __future__ import annotations

import json
import resource
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import Repo, make_repo

GREEDY = """
import json, os, socket, time
import fencepost as fp

links = []
for number in range(12):
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(20)
    try:
        link.connect(os.environ["FENCEPOST_SOCKET"])
        link.sendall(json.dumps({"v": 1, "token": os.environ["FENCEPOST_TOKEN"], "op": "status"}).encode() + b"\\n")
        link.recv(4096)
    except OSError:
        pass
    links.append(link)
time.sleep(0.5)
attempt = fp.attempt()
for number in range(3):
    attempt.heartbeat(f"{number}")
    attempt.charge(receipt=f"{attempt.order}-{number}", calls=1)
attempt.checkpoint({"links": len(links)})
"""
ORDER = '[[work]]\nname = "{name}"\nrun = [{python}, "greedy.py"]\nenvironment = ["PATH", "PYTHONPATH"]\n'


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("greedy.py", GREEDY)
    orders = "".join(ORDER.format(name=name, python=json.dumps(sys.executable)) for name in ("a", "b", "c", "d"))
    made.write("plan.toml", f"[budget]\nattempts = 8\ncalls = 20\n{orders}")
    return made


def at_most(descriptors: int) -> partial[None]:
    return partial(resource.setrlimit, resource.RLIMIT_NOFILE, (descriptors, descriptors))


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are counted in /proc")
def test_w5_a_worker_with_few_descriptors_answers_all_its_programs(repo: Repo) -> None:
    done = repo.call("run", "plan.toml", "--jobs", "4", "--json", preexec_fn=at_most(68))
    assert done.returncode == 0, done.stderr
    orders = json.loads(done.stdout)["orders"]
    assert [(order["state"], order["charged"]["attempts"], order["charged"]["calls"]) for order in orders] == [
        ("applied", 1, 3)
    ] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are counted in /proc")
@pytest.mark.parametrize(("descriptors", "fewer"), [(12, False), (20, False), (28, False), (48, True)])
def test_a_worker_that_has_too_few_descriptors_says_so_and_starts_nothing(
    repo: Repo, descriptors: int, fewer: bool
) -> None:
    for words in (["run", "plan.toml"], ["worker", "start", "--until-idle"]):
        done = repo.call(*words, "--jobs", "8", "--json", preexec_fn=at_most(descriptors))
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert (done.returncode, error["code"]) == (1, "too_few_descriptors"), error
        assert "ulimit -n" in error["next"] and ("or --jobs" in error["next"]) == fewer, error
    if descriptors > 20:
        assert set(repo.states().values()) == {"ready"}
