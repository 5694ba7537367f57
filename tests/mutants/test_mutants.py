"""The catalogue fits the code, its runner tells apart what it must, and a few faults are planted in every run."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants import run
from tests.mutants.catalogue import FOLDER, CatalogueError, Check, Mutant, load, mutated
from tests.mutants.checks import run_check, run_command

ROOT = run.ROOT
EVERY = load()
AT_LEAST = 40
LAYERS = {"adapters", "core_decide", "core_inside", "core_rules", "inside", "kernel", "services", "storage"}
SAMPLE = (
    "fence_comparison_removed",
    "accounts_of_ancestors_skipped",
    "digest_not_chained",
    "command_key_not_stored",
    "append_without_expected_head",
    "lease_renewed_from_the_answer",
)
"""One fault of each layer that is caught fast."""


def test_there_are_enough_faults_in_every_layer_and_each_says_what_it_would_do() -> None:
    assert len(EVERY) >= AT_LEAST and {each.layer for each in EVERY} == LAYERS
    assert {path.stem for path in FOLDER.glob("*.toml")} == LAYERS
    for each in EVERY:
        assert each.name.isidentifier() and each.name == each.name.lower(), each.name
        assert each.harm[0].isupper() and each.harm.endswith(".") and len(each.harm) > 20, each.name
    edits = [(each.file, each.before, each.after) for each in EVERY]
    assert len(set(edits)) == len(edits), "two names for one fault"


@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.name)
def test_the_fault_applies_exactly_once_and_leaves_a_program(mutant: Mutant) -> None:
    text = mutated(mutant, ROOT)
    if mutant.path.suffix == ".py":
        ast.parse(text, mutant.file)


def _defined(path: Path) -> set[str]:
    """Names of the tests and classes of tests that a file defines, methods as `Class::method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_every_check_is_there() -> None:
    """By name: whether it passes without a fault is seen whenever faults are planted."""
    suites = {
        name.partition("::")[2]
        for path in (ROOT / "src/fencepost/testing/conformance").glob("*.py")
        for name in _defined(path)
    }
    known: dict[str, set[str]] = {}
    missing = []
    for name in sorted({check.argument for each in EVERY for check in each.checks if check.kind == "test"}):
        file, _, inside = name.partition("::")
        if file not in known:
            known[file] = _defined(ROOT / file) if (ROOT / file).is_file() else set()
        owner, _, method = inside.partition("::")
        inherited = owner in known[file] and method in suites
        if not known[file] or (inside and inside not in known[file] and not inherited):
            missing.append(name)
    assert missing == []


@pytest.mark.slow
def test_each_of_a_sample_is_noticed() -> None:
    chosen = [each._replace(checks=each.checks[:1]) for each in EVERY if each.name in SAMPLE]
    assert len(chosen) == len(SAMPLE)
    verdicts = run.run(chosen)
    assert [(each.mutant.name, each.problem) for each in verdicts] == [(each.name, "") for each in chosen]


# The runner, on a repository of its own with one module and one file of tests


MODULE = "def double(number: int) -> int:\n    return 2 * number\n"
TESTS = """
import time
from fencepost import double

def test_double():
    assert double(2) == 4

def test_two_doubles():
    assert double(double(1)) == 4

def test_nothing():
    pass

def test_waits():
    time.sleep(0 if double(1) == 2 else 60)
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    root = tmp_path / "r"
    (root / "src/fencepost").mkdir(parents=True)
    (root / "src/fencepost/__init__.py").write_text(MODULE)
    shutil.copytree(Path(__file__).parent, root / "tests/mutants", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests/test_double.py").write_text(TESTS)
    return root


def planted(after: str, *checks: Check, before: str = "2 * number") -> Mutant:
    return Mutant("a_fault", "layer", "__init__.py", before, after, "Nobody gets twice as much.", checks)


def named(test: str, hangs_after_s: float | None = None) -> Check:
    return Check("test", f"tests/test_double.py::{test}", hangs_after_s)


@pytest.mark.slow
def test_the_runner_tells_apart_what_it_must(small: Path) -> None:
    double, two, nothing = (named(f"test_{word}") for word in ("double", "two_doubles", "nothing"))
    faults = [
        planted("3 * number", nothing, double, two),
        planted("3 * number", nothing),
        planted("2 * number\nraise ValueError('broken')", double),
        planted("x", double, before="4 * number"),
        planted("x", double, before="number"),
        planted("3 * number", named("test_waits", 3.0)),
    ]
    found = run.run(faults, root=small)
    states = ["caught", "survived", "error", "error", "error", "caught"]
    assert [each.state for each in found] == states
    caught, survived, broken, gone, twice, told = found
    assert (caught.by, caught.catches) == ("tests/test_double.py::test_double", 1)
    assert [check.argument.partition("::")[2] for check, _ in caught.ran] == ["test_nothing", "test_double"]
    assert "assert 6 == 4" in caught.ran[1][1].message
    assert "no check" in survived.problem
    assert "does not import" in broken.problem and "broken" in broken.problem
    assert "occurs 0 times" in gone.problem and "occurs 2 times" in twice.problem
    assert "does not end within 3 s" in told.ran[0][1].message
    assert len(run.table(found, all_checks=True).splitlines()) == len(faults) + 1


def test_a_check_that_does_not_end_has_said_nothing(small: Path) -> None:
    check = named("test_waits")
    ran = run_command([sys.executable, "-c", "import time; time.sleep(60)"], small, 0.5)
    assert ran.state == "hung" and ran.seconds < 20
    found = run.verdict_of(planted("3 * number", check), ((check, ran),))
    assert found.state == "hung" and "no limit of its own" in found.problem


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found by /proc alone")
def test_what_a_check_has_left_running_is_ended(small: Path) -> None:
    """Also what has left its session, as a broken keeper would."""
    script = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(60)\n"
    began_s = time.monotonic()
    assert run_command([sys.executable, "-c", script], small, 30.0).state == "passed"
    assert time.monotonic() - began_s < 30
    mark = os.fsencode(small)
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _works_in(pid, mark)]
    assert left == []


def _works_in(pid: str, folder: bytes) -> bool:
    try:
        return (
            os.fsencode(os.readlink(f"/proc/{pid}/cwd")) == folder
            and b" Z " not in Path(f"/proc/{pid}/stat").read_bytes()
        )
    except OSError:
        return False


@pytest.mark.slow
def test_all_checks_are_counted_when_asked(small: Path) -> None:
    checks = (named("test_double"), named("test_nothing"), named("test_two_doubles"))
    found = run.run([planted("3 * number", *checks)], root=small, jobs=1, all_checks=True)[0]
    assert (found.state, found.catches, len(found.ran)) == ("caught", 2, 3)


@pytest.mark.slow
def test_a_check_that_does_not_pass_without_a_fault_proves_nothing(small: Path) -> None:
    (small / "tests/test_double.py").write_text(TESTS + "    assert False\n")  # the last one, which waits
    faults = [planted("3 * number", named(name)) for name in ("test_waits", "test_double")]
    refused, caught = run.run(faults, root=small, jobs=1)
    assert refused.state == "error" and "fails without any fault" in refused.problem
    assert caught.state == "caught"
    with pytest.raises(CatalogueError, match="test_gone"):
        run.run([planted("3 * number", named("test_gone"))], root=small, jobs=1)


def test_checks_of_other_kinds_run_beside_each_other_without_a_fault(small: Path) -> None:
    place = small / "src/fencepost/testing"
    place.mkdir()
    (place / "search.py").write_text("import sys, time\nprint('world', sys.argv[2])\ntime.sleep(0.2)\n")
    worlds = [Check("search", word) for word in ("pair", "fences", "groups", "gone")]
    base = run.copy_tree(small, small.parent / "base")
    assert run.baseline(worlds, base, [small.parent / "b0", small.parent / "b1"]) == {}


SIMULATOR = """
import sys
print("seed 7: two fences", flush=True) if "{word}" in sys.argv else None
sys.exit(1)
"""


@pytest.mark.parametrize(("seeds", "state"), [("3", "failed"), ("4", "broken")])
def test_a_simulator_has_found_something_only_where_it_names_a_seed(small: Path, seeds: str, state: str) -> None:
    place = small / "src/fencepost/testing"
    place.mkdir()
    (place / "simulator.py").write_text(SIMULATOR.format(word="3"))
    found = run_check(Check("sim", seeds), small)
    assert found.state == state and (state == "broken" or found.message == "seed 7: two fences")


def command(small: Path, folder: Path, *arguments: str) -> int:
    return run.main([*arguments, "--jobs", "1"], root=small, folder=folder)


@pytest.mark.slow
def test_the_command_ends_with_one_when_a_fault_survives(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "catalogue"
    folder.mkdir()
    (folder / "all.toml").write_text(_toml("caught_one", "test_double") + _toml("missed_one", "test_nothing"))
    written = tmp_path / "found.json"
    assert command(small, folder, "--json", str(written)) == 1
    shown = capsys.readouterr()
    assert "SURVIVED: no check has noticed it" in shown.out and "1 of 2 caught" in shown.err
    kept = json.loads(written.read_text())
    assert kept["caught"] == 1
    assert kept["mutants"][0]["caught_by"] == "tests/test_double.py::test_double"
    assert command(small, folder, "--list") == 0 and "Too much." in capsys.readouterr().out
    for wrong in (("--only", "no_such"), ("--check", "sim"), ("--check", "no=thing")):
        assert command(small, folder, *wrong) == 2


def test_another_check_may_be_asked_for() -> None:
    assert run.asked_check("sim=20") == Check("sim", "20")
    assert run.asked_check("test=a.py::b=c") == Check("test", "a.py::b=c")


def _toml(name: str, test: str) -> str:
    return (
        f'[[mutant]]\nname = "{name}"\nfile = "__init__.py"\nbefore = "2 * number"\nafter = "3 * number"\n'
        f'harm = "Too much."\nchecks = ["tests/test_double.py::{test}"]\n'
    )


WRONG: Sequence[tuple[str, str]] = (
    ('[[mutant]]\nname = "x"\n', "exactly the keys"),
    (_toml("x", "t").replace("3 * number", "2 * number"), "changes nothing"),
    (_toml("x", "t") + _toml("x", "t"), "named twice"),
    (_toml("x", "t").split("checks")[0] + "checks = [{ gone = 1 }]\n", "is no check"),
    (_toml("x", "t").split("checks")[0] + "checks = []\n", "no check"),
)


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_catalogue_that_is_none_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(CatalogueError, match=said):
        load(tmp_path)


def test_checks_are_read_as_they_are_written(tmp_path: Path) -> None:
    checks = 'checks = ["a::b", { test = "c", hangs_after_s = 2 }, { sim = 20 }, { search = "pair" }]\n'
    (tmp_path / "x.toml").write_text(_toml("x", "t").split("checks")[0] + checks)
    found = load(tmp_path)[0].checks
    assert found == (Check("test", "a::b"), Check("test", "c", 2.0), Check("sim", "20"), Check("search", "pair"))
    assert list(map(str, found)) == ["a::b", "c", "simulator, 20 seeds", "search of pair"]
