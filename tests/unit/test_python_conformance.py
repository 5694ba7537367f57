"""Callables under the suite that every executor passes: each command of it is run by a callable, which becomes it.

Two rows differ: what is not there is the interpreter, and a time limit leaves one the time to start.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from msgspec.structs import replace

from fencepost.adapters.executors.command import CommandExecutor
from fencepost.ports.executor import Ended, Executor, Job, Running
from fencepost.services import jobs
from fencepost.testing.conformance.executor import LEASE_US, WAIT_S, ExecutorConformance, local_tick_us, make_job

MODULE = """
import json, os
import fencepost as fp

@fp.executor("become", version=1)
def become(attempt):
    mine = json.loads(os.environ["MINE"])
    os.chdir(mine["cwd"])
    os.execvpe(mine["argv"][0], mine["argv"], mine["environment"])
"""


class PythonExecutor(CommandExecutor):
    """Starts the callable of `MODULE` in the place of a job's command."""

    def __init__(self, interpreter: str = sys.executable) -> None:
        super().__init__()
        self.interpreter = interpreter

    def start(self, job: Job, deadline_tick_us: int) -> Running:
        place = Path(job.lock_path).with_suffix(".module")
        place.mkdir(exist_ok=True)
        (place / "becoming.py").write_text(MODULE)
        mine = {"argv": job.argv, "cwd": job.cwd, "environment": job.environment}
        told = ("becoming:become", "become", "1", str(place / "outcome"))
        environment = {"FENCEPOST_SOCKET": "/nowhere", "FENCEPOST_TOKEN": "0", "MINE": json.dumps(mine)}
        argv = (self.interpreter, *jobs._ISOLATION, str(jobs._BOOTSTRAP), *told)
        changed = replace(job, argv=argv, environment=job.environment | environment, cwd=str(place))
        return super().start(changed, deadline_tick_us)


class TestPythonCallables(ExecutorConformance):
    def make_executor(self) -> Executor:
        return PythonExecutor()

    def test_a_command_that_does_not_exist_is_a_value(self, tmp_path: Path) -> None:
        with contextlib.closing(PythonExecutor("/nowhere/python3")) as executor:
            ended = executor.start(make_job(tmp_path, "true"), local_tick_us() + LEASE_US).wait(WAIT_S)
        assert isinstance(ended, Ended)
        assert (ended.reason, ended.exit_code, ended.tree_empty) == ("spawn_failed", None, True)
        assert "/nowhere/python3" in ended.message

    def test_time_limit(self, tmp_path: Path) -> None:
        ended = self.run(make_job(tmp_path, "sleep", "60", time_limit_us=3_000_000))
        assert (ended.reason, ended.signal, ended.tree_empty) == ("timeout", 15, True)
        assert 3_000_000 <= ended.duration_us < 5_000_000
