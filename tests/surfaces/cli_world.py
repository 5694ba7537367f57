"""A real home with real runs, and the command line called in this process."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.app import App, make_home
from fencepost.core.commands import FromDraft, GroupDraft, MemberDraft, OrderDraft, SubmitPlan
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.core.state import PlanState
from fencepost.surfaces.cli import frame

SECOND_US = 1_000_000


def draft(task: str, run: Sequence[str] = ("true",), **fields: Any) -> OrderDraft:
    given: dict[str, Any] = {
        "work_kind": "command/1",
        "priority": "normal",
        "classification": "internal",
        "effects": "declared",
        "attempt_time_us": 20 * SECOND_US,
        "accept": Acceptance(),
        "environment": ("PATH",),
        "ceilings": {"attempts": 3},
    }
    return OrderDraft(task=task, run=tuple(run), **{**given, **fields})


def needs(*tasks: str, kind: str = "required", outcomes: tuple[Any, ...] = ("applied",)) -> GroupDraft:
    members = tuple(MemberDraft(task=task, outcomes=outcomes) for task in tasks)
    return GroupDraft(kind=kind, members=members)  # type: ignore[arg-type]  # a test names its kind


def sh(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def main_orders() -> tuple[OrderDraft, ...]:
    """Orders of every kind that a plan may hold: handed files, a verifier, a failure, what fails with it, a retry."""
    return (
        draft(
            "make",
            sh("printf 'hello\\n' > out.txt; mkdir -p sub; printf x > sub/b.txt; echo made; echo warned >&2"),
            outputs=("out.txt", "sub/*"),
            accept=Acceptance(files=("out.txt",), verify=sh("cat out.txt; grep -q hello out.txt")),
        ),
        draft(
            "use",
            sh("cat out.txt; printf '\\033[31mred\\033[0m\\n'"),
            handed=(FromDraft(task="make", files=("out.txt",)),),
            groups=(needs("make"),),
        ),
        draft("broken", sh("echo no >&2; exit 3"), may_fail=True),
        draft("after", groups=(needs("broken"),), may_fail=True),
        draft("later", groups=(needs("after"), needs("make")), may_fail=True),
        draft("anyway", groups=(needs("broken", kind="optional"), needs("after", "make", kind="alternative"))),
        draft(
            "flaky",
            sh("test -e $FENCEPOST_REPO/flag || { touch $FENCEPOST_REPO/flag; exit 1; }"),
            environment=("PATH", "FENCEPOST_REPO"),
            retry=Retry(on=("executor",), backoff_us=10_000, backoff_max_us=20_000),
        ),
        draft("big", sh("head -c 3000000 /dev/zero | tr '\\0' z; echo end")),
    )


class World:
    """One home. Commands are called as a person would, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / ".fencepost"
        if not self.home.exists():
            make_home(self.home)
            with self.open() as app:
                app.kernel.open()

    @contextmanager
    def open(self) -> Iterator[App]:
        app = App(self.home, scope="default", environment=os.environ)
        try:
            app.kernel.open()
            yield app
        finally:
            app.close()

    def submit(self, name: str, orders: Sequence[OrderDraft], **fields: Any) -> str:
        with self.open() as app:
            command = SubmitPlan(
                name=name,
                objective="a test",
                content="sha256:" + "0" * 64,
                recovery="replace",
                mode="new",
                orders=tuple(orders),
                provenance={"repository": str(self.folder)},
                **fields,
            )
            receipt = app.kernel.write(app.kernel.request("human", command))
            return str(receipt.required()["plan"])

    def work(self, plan: str, *, jobs: int = 2) -> None:
        """Run a plan until nothing of it is open."""
        with self.working(jobs=jobs) as app:
            wait_for(app, lambda look: bool((found := look.find(plan, PlanState)) and found.open == 0))

    @contextmanager
    def working(self, *, jobs: int = 2) -> Iterator[App]:
        """A worker that serves the whole scope while the block runs."""
        with self.open() as app:
            worker = app.worker(jobs=jobs)
            worker.start()
            try:
                yield app
                if worker.fatal is not None:
                    raise worker.fatal
            finally:
                worker.stop()


def wait_for(app: App, ready: Callable[[Any], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        ticket = app.kernel.wakeups.ticket()
        with app.kernel.reader.look() as look:
            if ready(look):
                return
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen in time")
        app.kernel.wakeups.wait(ticket, 0.1)


class Answer:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        lines = self.out.splitlines()
        if len(lines) != 1:
            raise AssertionError(f"{len(lines)} lines and not one document: {self.out!r} {self.err!r}")
        return json.loads(lines[0])

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        return json.loads(self.err.splitlines()[-1])["error"]


class Cli:
    """The command line of one world."""

    def __init__(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        self._world = world
        self._capsys = capsys

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        with chdir(self._world.folder):
            code = frame.run(["--home", str(self._world.home), *words])
        captured = self._capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    def json(self, *words: str) -> Any:
        answer = self(*words, "--json")
        if answer.code:
            raise AssertionError(f"exit code {answer.code}: {answer.err}")
        return answer.document


@contextmanager
def processes(world: World) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command line in processes of their own, output in pipes; none outlives the block."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fencepost", "--home", str(world.home), *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    try:
        yield start
    finally:
        for running in started:
            if running.poll() is None:
                running.kill()
            running.communicate()


def on_a_terminal(world: World, *words: str) -> str:
    """What a command shows on a terminal of its own."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fencepost", "--home", str(world.home), *words]
    running = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError as error:
        if error.errno != errno.EIO:  # what a terminal says when its last writer has gone
            raise
    finally:
        os.close(ours)
        running.wait(timeout=30)
    return shown.decode()
