"""X10: a callable in a child process of its own, under any interpreter, and what it says came of it."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fencepost.adapters.workspace import Workspaces
from fencepost.core.records.plan import PythonCall, WorkOrderSpec
from fencepost.sdk import bootstrap
from fencepost.services import jobs
from fencepost.services.outcomes import OUTCOME_BYTES_MAX, Outcome, outcome_in
from tests.support.attempt_server import AttemptServer, attempt_server
from tests.support.interpreters import interpreters

HEAD = """\
import os, sys, time
import fencepost as fp

@fp.executor("work", version=1)
def work(attempt: fp.Attempt) -> fp.Result:
"""


class Child:
    """A workspace, a worker's socket, and callables that run between them."""

    def __init__(self, folder: Path, server: AttemptServer) -> None:
        self.folder = folder / "workspace"
        self.folder.mkdir()
        self.server = server
        self.outcome_path = folder / "outcome"
        self.home = folder
        self.params: Any = {}

    def write(self, body: str, name: str = "work.py", head: str = HEAD) -> None:
        (self.folder / name).write_text(head + textwrap.indent(textwrap.dedent(body), "    "))

    def start(self, interpreter: str = sys.executable, call: str = "work:work", version: int = 1) -> Any:
        told = (call, "work", str(version), str(self.outcome_path))
        return subprocess.Popen(
            [interpreter, *jobs._ISOLATION, str(jobs._BOOTSTRAP), *told],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                **self.server.environment(self.folder, self.params),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, interpreter: str = sys.executable, call: str = "work:work", version: int = 1) -> Any:
        self.outcome_path.unlink(missing_ok=True)
        child = self.start(interpreter, call, version)
        child.out, child.err = child.communicate(timeout=60)
        return child

    def outcome(self) -> Outcome:
        found = read_outcome(self.outcome_path)
        assert found is not None
        return found

    def of(self, body: str) -> tuple[int, Outcome]:
        self.write(body)
        done = self.run()
        return done.returncode, self.outcome()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    with attempt_server(tmp_path) as server:
        yield Child(tmp_path, server)


def test_x10_an_order_of_a_callable_starts_its_interpreter(tmp_path: Path) -> None:
    class Space:
        logs = tmp_path

    python = PythonCall(call="a.b:c", name="sum", version=3, interpreter="/usr/bin/python3")
    spec: Any = type("Spec", (), {"python": python, "run": ()})
    program = jobs.program_of(spec, Space())  # type: ignore[arg-type]  # what it looks at
    assert program[0] == "/usr/bin/python3"
    assert program[-4:] == ("a.b:c", "sum", "3", str(tmp_path / "outcome"))
    assert "run" in WorkOrderSpec.__struct_fields__


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_x10_it_runs_under_each_interpreter(child: Child, version: str) -> None:
    child.params = {"n": 3}
    child.write(
        """
        doubled = attempt.step("double", lambda n: n * 2, attempt.params["n"])
        attempt.heartbeat("half")
        (lambda path: open(path, "w").write(str(doubled)))("out.txt")
        print("%d.%d" % sys.version_info[:2])
        return fp.Result.succeeded(files=["out.txt"])
        """
    )
    done = child.run(interpreters()[version])
    assert (done.returncode, done.err) == (0, "")
    assert done.out.strip() == version
    assert child.outcome() == Outcome(v=1, outcome="succeeded", files=("out.txt",))
    assert (child.folder / "out.txt").read_text() == "6"
    assert [request["note"] for request in child.server.said("heartbeat")] == ["half"]


def test_x10_an_environment_without_fencepost_gets_that_package_alone(child: Child, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    child.write(
        """
        import importlib.util, json
        found = {name: importlib.util.find_spec(name) is not None for name in ("fencepost", "msgspec", "apsw")}
        print(json.dumps([found, sys.path, attempt.step("a", lambda: 1)]))
        """
    )
    done = child.run(str(tmp_path / "venv" / "bin" / "python"))
    assert done.returncode == 0, done.err
    found, path, value = json.loads(done.out)
    assert found == {"fencepost": True, "msgspec": False, "apsw": False}
    assert value == 1
    assert path[0] == str(child.folder)
    ours = Path(jobs._BOOTSTRAP).parents[2]
    assert not any(Path(each) == ours or "tests" in each for each in path)
    assert all("site-packages" not in each or str(tmp_path) in each for each in path)


def test_x10_packages_of_the_user_are_left_out(child: Child) -> None:
    """Where an interpreter is no virtual environment, they would be found in a home that the plan hands down."""
    interpreter = os.path.realpath(sys.executable)
    place = 'print(__import__("site").getusersitepackages())'
    found = subprocess.run(
        [interpreter, "-c", place], env={"HOME": str(child.home)}, capture_output=True, text=True, check=True
    )
    folder = Path(found.stdout.strip())
    folder.mkdir(parents=True)
    (folder / "of_the_user.py").write_text("")
    seen = [interpreter, "-c", "import of_the_user"]
    assert subprocess.run(seen, env={"HOME": str(child.home)}, check=False).returncode == 0
    child.write("import of_the_user")
    assert child.run(interpreter).returncode == 1
    assert "No module named 'of_the_user'" in child.outcome().message


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_x10_modules_of_the_workspace_do_not_get_in_the_way_of_ours(child: Child, version: str) -> None:
    """Whatever part of the standard library is loaded late by ours, or by what ours loads, is not the workspace's."""
    for name in (*sys.stdlib_module_names, "fencepost"):
        (child.folder / f"{name}.py").write_text("raise RuntimeError('not ours')\n")
    (child.folder / "helper.py").write_text("VALUE = 5\n")
    child.params = {"n": 3}
    child.write(
        """
        import helper
        attempt.checkpoint({"seen": attempt.params["n"]})
        attempt.resume_value()
        attempt.charge(receipt="one", money={"USD": "0.5"})
        raise fp.InputError(str(attempt.step("a", lambda: [helper.VALUE, 1.5])))
        """
    )
    done = child.run(interpreters()[version])
    assert done.returncode == 1
    assert child.outcome().message == "InputError: [5, 1.5]\nwork.py:11 in work", done.err
    assert done.err.startswith("Traceback (most recent call last):") and "InputError: [5, 1.5]" in done.err
    assert sorted(path.name for path in child.folder.iterdir() if path.is_dir()) == []  # no __pycache__


def test_x10_what_a_callable_does_not_use_is_not_loaded_for_it(child: Child) -> None:
    child.write(
        """
        print(*sorted(sys.modules))
        attempt.heartbeat("on")
        attempt.step("a", lambda: 1)
        print(*sorted(sys.modules))
        """
    )
    done = child.run()
    assert done.returncode == 0, done.err
    at_once, late = (set(line.split()) for line in done.out.splitlines())
    bare = [sys.executable, *jobs._ISOLATION, "-c", "import sys; print(*sys.modules)"]
    own = set(subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split())
    heavy = {"contextlib", "hashlib", "random", "socket", "tempfile", "threading", "traceback", "typing", "zipfile"}
    assert heavy & (at_once - own) == set()
    fresh = {name.partition(".")[0] for name in late - at_once} - {"fencepost"}
    assert fresh - {*bootstrap.LATE, *sys.builtin_module_names} <= {"_blake2", "_hashlib"}


def test_x10_what_is_loaded_before_a_callable_is_not_searched_for_garbage(child: Child) -> None:
    child.write("import gc; print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 5_000)")
    assert child.run().out == f"True {gc.get_threshold()} True\n"


def test_x10_processes_of_a_callable_find_the_package(child: Child) -> None:
    child.write(
        """
        import multiprocessing
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(double, [2, 3]) == [4, 6]
        """
    )
    with (child.folder / "work.py").open("a") as file:
        file.write("\ndef double(n):\n    import fencepost\n    return 2 * n\n")
    done = child.run()
    assert (done.returncode, child.outcome().outcome) == (0, "succeeded"), done.err


@pytest.mark.parametrize(
    ("body", "failure", "code", "said"),
    [
        ("raise fp.TransientError('away')", "transient_dependency", "callable_failed", "TransientError: away"),
        ("raise fp.InputError('no page 7')", "deterministic_input", "callable_failed", "InputError: no page 7"),
        ("raise fp.Failure('odd', kind='validation')", "validation", "callable_failed", "Failure: odd"),
        ("raise fp.Failure('odd')", "executor", "callable_failed", "Failure: odd"),
        ("raise KeyError('x')", "executor", "callable_raised", "KeyError: 'x'"),
        ("raise ConnectionError('x')", "executor", "callable_raised", "ConnectionError: x"),
        ("raise KeyboardInterrupt", "executor", "callable_raised", "KeyboardInterrupt"),
        ("raise BaseException('deep')", "executor", "callable_raised", "BaseException: deep"),
        ("sys.exit(0)", "executor", "callable_raised", "SystemExit: the callable left by sys.exit(0)"),
        ("sys.exit('no')", "executor", "callable_raised", "SystemExit: the callable left by sys.exit(no)"),
        ("def deep(): deep()\ndeep()", "executor", "callable_raised", "RecursionError: maximum recursion depth"),
        ("return 5", "executor", "result_invalid", "it returned a int, not a fencepost.Result"),
        ("return fp.Result.failed('validation', 'no')", "validation", "callable_failed", "no"),
        ("return fp.Result.failed('deterministic_input')", "deterministic_input", "callable_failed", ""),
        ("return fp.Result.failed('policy')", "executor", "callable_raised", "ValueError: a callable fails as one of"),
        ("return fp.Result.succeeded(['none'])", "validation", "outputs_missing", "names 'none', which is no file"),
        ("attempt.step('a', object)", "deterministic_input", "step_refused", "StepRefused: the value of step 'a'"),
        ("fp.attempt().step('a', print)\nattempt.step('a', print)", "deterministic_input", "step_refused", "twice"),
        ("fp.attempt(here=1)", "executor", "callable_raised", "TypeError"),
    ],
)
def test_x10_each_end_has_its_class(child: Child, body: str, failure: str, code: str, said: str) -> None:
    exit_code, outcome = child.of(body)
    assert (exit_code, outcome.outcome, outcome.failure, outcome.code) == (1, "failed", failure, code)
    assert said in outcome.message


def test_x10_a_changed_step_has_its_class(child: Child) -> None:
    child.of("attempt.step('a', abs, 1)")
    exit_code, outcome = child.of("attempt.step('a', abs, 2)")
    assert (exit_code, outcome.failure, outcome.code) == (1, "deterministic_input", "step_changed")


@pytest.mark.parametrize(
    ("head", "call", "version", "code", "said"),
    [
        (HEAD, "work:work", 2, "executor_changed", "is 'work' version 1; the order names 'work' version 2"),
        (HEAD.replace("@fp", "# @fp"), "work:work", 1, "executor_changed", "is no executor"),
        (HEAD, "work:other", 1, "import_failed", "has no attribute 'other'"),
        (HEAD, "nowhere:work", 1, "import_failed", "No module named 'nowhere'"),
        ("import nothing_of_that_name\n" + HEAD, "work:work", 1, "import_failed", "nothing_of_that_name"),
        ("1 // 0\n" + HEAD, "work:work", 1, "import_failed", "ZeroDivisionError"),
        (
            "import sys; sys.exit(0)\n" + HEAD,
            "work:work",
            1,
            "import_failed",
            "work was left by sys.exit(0) while it was imported, before work was called",
        ),
        ("import fencepost\nraise fencepost.TransientError('x')\n" + HEAD, "work:work", 1, "callable_failed", "x"),
    ],
)
def test_x10_another_callable_than_the_orders_is_not_called(
    child: Child, head: str, call: str, version: int, code: str, said: str
) -> None:
    child.write("open('called', 'w').close()", head=head)
    assert child.run(call=call, version=version).returncode == 1
    assert child.outcome().code == code
    assert said in child.outcome().message
    assert not (child.folder / "called").exists()


def test_x10_what_is_told_of_an_exception_is_bounded_and_clean(child: Child) -> None:
    code, outcome = child.of("raise ValueError('\\x1b[31m\\0\\udc80' + 'x' * 10_000_000)")
    failed = outcome.failed_as()
    assert code == 1 and failed is not None
    assert len(failed[2]) < 2_000
    assert "\x1b" not in failed[2] and "\0" not in failed[2]
    assert "\\udc80xxx" in failed[2] and "work.py:6 in work" in failed[2]


@pytest.mark.parametrize("version", sorted(interpreters()))
@pytest.mark.parametrize(
    "before",
    [
        "sys.stderr.close()",
        "sys.stderr = None",
        "del sys.stderr",
        "sys.stderr = type('Odd', (), {'flush': list})()",
        "os.close(2)",
        "import shutil; shutil.rmtree(os.getcwd())",
    ],
)
def test_x10_a_failure_whose_traceback_cannot_be_shown_is_told_all_the_same(
    child: Child, version: str, before: str
) -> None:
    child.write(f"{before}\nraise fp.InputError('no page 7')")
    assert child.run(interpreters()[version]).returncode == 1
    outcome = child.outcome()
    assert (outcome.code, outcome.message.splitlines()[0]) == ("callable_failed", "InputError: no page 7")
    assert outcome.message.splitlines()[1].endswith("work.py:7 in work")


def test_x10_an_exception_that_cannot_say_what_it_is_ends_all_the_same(child: Child) -> None:
    code, outcome = child.of(
        """
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError
        raise Odd
        """
    )
    assert (code, outcome.message.splitlines()[0]) == (1, "Odd: (it cannot say what)")


@pytest.mark.parametrize(
    "raised", ["KeyboardInterrupt", "SystemExit(0)", "fp.Stopping('x')", "fp.Yield", "GeneratorExit"]
)
@pytest.mark.parametrize(
    ("base", "kind", "code"),
    [
        ("Exception", "executor", "callable_raised"),
        ("BaseException", "executor", "callable_raised"),
        ("fp.InputError", "deterministic_input", "callable_failed"),
        ("fp.TransientError", "transient_dependency", "callable_failed"),
    ],
)
def test_x10_an_exception_that_ends_whoever_asks_what_it_says_is_told(
    child: Child, base: str, kind: str, code: str, raised: str
) -> None:
    exit_code, outcome = child.of(
        f"""
        class Odd({base}):
            def __str__(self):
                raise {raised}
        raise Odd
        """
    )
    assert (exit_code, outcome.outcome, outcome.failure, outcome.code) == (1, "failed", kind, code)
    first, *places = outcome.message.splitlines()
    assert first == "Odd: (it cannot say what)" and places[-1].endswith("in work")


def test_x10_what_a_callable_leaves_to_be_asked_takes_no_outcome_away(child: Child) -> None:
    odd = """
        class Text(str):
            def __getitem__(self, place):
                raise KeyboardInterrupt
            encode = __len__ = __getitem__
        class Odd({base}):
            def __str__(self):
                return Text("as it is")
    """
    _, outcome = child.of(odd.format(base="fp.InputError") + "\n        raise Odd")
    assert (outcome.failure, outcome.message.splitlines()[0]) == ("deterministic_input", "Odd: as it is")
    code, outcome = child.of(odd.format(base="fp.Stopping") + "\n        raise Odd('well')")
    assert (code, outcome.outcome, outcome.message) == (75, "stopped", "as it is")
    _, outcome = child.of(odd.format(base="Exception") + "\n        return fp.Result.failed('validation', Odd())")
    assert (outcome.failure, outcome.message) == ("validation", "as it is")
    _, outcome = child.of(
        """
        class Named(type):
            @property
            def __name__(self):
                raise KeyboardInterrupt
        class Odd(Exception, metaclass=Named):
            pass
        raise Odd
        """
    )
    assert (outcome.failure, outcome.code) == ("executor", "callable_raised")
    assert outcome.message == "an exception that raises when it is asked what it is"


def test_x10_a_process_that_was_forked_off_tells_no_outcome(child: Child) -> None:
    """It comes back to where the callable was called from, and ends there as any process does."""
    code, outcome = child.of(
        """
        import os, sys
        for end in ("return", "exit", "raise"):
            forked = os.fork()
            if forked == 0 and end == "return":
                return
            if forked == 0 and end == "exit":
                sys.exit(7)
            if forked == 0:
                raise ValueError("not the callable's")
            code = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
            assert code == {"return": 0, "exit": 7, "raise": 1}[end], (end, code)
            assert not os.path.exists(sys.argv[-1]), end
        """
    )
    assert (code, outcome.outcome) == (0, "succeeded"), outcome


def test_x10_the_places_are_the_innermost_ones_of_the_workspace(child: Child) -> None:
    _, outcome = child.of(
        """
        def down(n):
            return down(n - 1) if n else 1 // 0
        attempt.step("a", down, 20)
        """
    )
    lines = outcome.message.splitlines()
    assert lines[0] == "ZeroDivisionError: integer division or modulo by zero"
    assert lines[1:] == ["work.py:8 in down"] * 8


def test_x10_a_callable_that_waits_ends_well_and_says_so(child: Child) -> None:
    body = """
        name = attempt.ask("name", "Who is it?")
        return fp.Result.failed("validation", name)
        """
    code, outcome = child.of(body)
    assert (code, outcome.outcome) == (0, "yielded")
    assert child.server.waits is not None and child.server.waits["question"] == "name"
    child.server.answers["name"] = "Ada"
    assert child.of(body)[1].message == "Ada"


def test_c8_a_callable_hears_of_the_end_at_its_next_step(child: Child) -> None:
    child.server.stop_after = 2
    code, outcome = child.of(
        """
        try:
            for index in range(5):
                attempt.step(str(index), lambda: index)
        except Exception:
            return None
        finally:
            open("put-away", "w").close()
        """
    )
    assert (code, outcome.outcome, outcome.message) == (75, "stopped", "draining")
    assert len(child.server.payloads) == 2
    assert (child.folder / "put-away").exists()


@pytest.mark.parametrize("word", ["step('c', abs, 1)", "heartbeat('on')", "go_on()"])
def test_c8_a_signal_lets_the_step_that_runs_be_recorded(child: Child, word: str) -> None:
    child.write(
        f"""
        def slow():
            open("slow", "w").close()
            end = time.monotonic() + 1
            while time.monotonic() < end:
                time.sleep(0.05)
            return 1
        attempt.step("slow", slow)
        attempt.{word}
        open("too-far", "w").close()
        """
    )
    started = child.start()
    with started:
        while not (child.folder / "slow").exists():
            assert started.poll() is None
            time.sleep(0.01)
        started.send_signal(signal.SIGTERM)
        assert started.wait(30) == 75
    assert (child.outcome().outcome, child.outcome().message) == ("stopped", "terminated")
    assert len(child.server.payloads) == 1
    assert not (child.folder / "too-far").exists()


def test_x10_a_module_that_ends_the_process_fails_as_an_input_and_the_log_shows_where(child: Child) -> None:
    child.write("open('called', 'w').close()", head="import sys\nsys.exit('no')\n" + HEAD)
    done = child.run()
    failed = child.outcome().failed_as()
    assert done.returncode == 1 and failed is not None
    assert failed[:2] == ("deterministic_input", "import_failed")
    assert "left by sys.exit('no')" in failed[2] and "work.py:2 in <module>" in failed[2]


def test_x10_a_module_may_say_while_it_is_imported_that_its_attempt_is_over_or_waits(child: Child) -> None:
    child.server.refuse["checkpoint"] = "stale_fence"
    child.write("pass", head="import fencepost\nfencepost.attempt().checkpoint(1)\n" + HEAD)
    assert child.run().returncode == 75
    assert child.outcome().outcome == "stopped"
    child.write("pass", head="import fencepost\nfencepost.attempt().wait(after='1s')\n" + HEAD)
    assert child.run().returncode == 0
    assert child.outcome().outcome == "yielded"


def test_x10_a_stale_fence_stops_the_callable(child: Child) -> None:
    child.server.refuse["checkpoint"] = "stale_fence"
    code, outcome = child.of("attempt.step('a', print)")
    assert (code, outcome.outcome) == (75, "stopped")


def test_x10_a_child_that_is_killed_has_told_nothing(child: Child) -> None:
    child.write("os.kill(os.getpid(), 9)")
    assert child.run().returncode == -9
    assert read_outcome(child.outcome_path) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"v":2,"outcome":"succeeded"}',
        b'{"v":1,"outcome":"applied"}',
        b'{"v":1,"outcome":"failed","failure":"terminal"}',
        b'{"v":1,"outcome":"failed","more":1}',
        b'{"v":1,"v":1,"outcome":"failed"}',
        b'{"v":1,"outcome":"failed","message":"\xff"}',
        b'{"v":1,"outcome":"failed","message":"\\ud800"}',
        b'{"v":1,"outcome":"failed","files":[' + b'"a",' * 1_000 + b'"a"]}',
        b" " * (4 * 2**20 + 1),
    ],
)
def test_x10_what_is_no_outcome_counts_as_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "outcome").write_bytes(data)
    assert read_outcome(tmp_path / "outcome") is None


def test_x10_an_outcome_is_read_from_a_plain_file_alone(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b'{"v":1,"outcome":"succeeded"}')
    assert read_outcome(tmp_path / "real") == Outcome(v=1, outcome="succeeded")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "none"):
        assert read_outcome(tmp_path / name) is None
    assert read_outcome(tmp_path / "none" / "real") is None


def read_outcome(path: Path) -> Outcome | None:
    """As a worker reads it: through the workspace of its attempt."""
    packs: Any = None
    store: Any = None
    spaces = Workspaces(path.parent, store=store, packs=packs)
    space = msgspec.structs.replace(spaces.find("attempt_" + "0" * 32), logs=path.parent)
    return outcome_in(spaces.read_left(space, path.name, bytes_max=OUTCOME_BYTES_MAX))


def test_x10_a_cause_that_no_callable_may_name_is_a_failure_of_its_own() -> None:
    told = Outcome(v=1, outcome="failed", failure="validation", code="containment_lost", message="a\x1bb\nc")
    assert told.failed_as() == ("validation", "callable_failed", "a\ufffdb\nc")
    assert Outcome(v=1, outcome="failed").failed_as() == ("executor", "callable_failed", "")


@pytest.mark.slow
def test_w6_ten_thousand_steps_go_on_within_bounded_memory(child: Child) -> None:
    """Twenty megabytes of values; the second run reads them all and holds little of them."""
    body = """
        count, bytes_each = 10_000, 2_000
        for index in range(count):
            value = attempt.step(f"step {index}", lambda text: text * (bytes_each // 10), f"{index:010}")
            assert value == f"{index:010}" * (bytes_each // 10)
        print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
        """
    child.write(body)
    first, second = child.run(), child.run()
    assert (first.returncode, second.returncode) == (0, 0), second.err
    assert len(child.server.payloads) == 10_000
    assert len(child.server.said("resume")) < 10_000 / 3
    _, most_kb, unit = second.out.split()
    assert unit == "kB" and int(most_kb) < 60_000
