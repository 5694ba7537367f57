"""Plant every fault of the catalogue, one at a time, and tell which check noticed it and how fast.

    ./dev mutants                     every fault; ends with 1 if one survives
    ./dev mutants --only NAME         that one alone, or those of a layer (more than once: all that are named)
    ./dev mutants --all-checks        every check of each fault, to see how many would catch it
    ./dev mutants --check sim=20      that check instead of each fault's own: what one tool finds alone
    ./dev mutants --list              the faults and what each would do to a user
    ./dev mutants --json FILE         the same as a document, `-` for standard output

The tree is copied once, so that nothing that is edited meanwhile counts. The copy without a fault runs every check
first: one that fails there proves nothing. Each fault then gets a copy of its own, in which its checks are tried in
their order until one fails. A copy that cannot be imported any more, or a check that cannot be run, is an error of
the catalogue and no catch; so is a check that does not end, unless it has a limit of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tests.mutants.catalogue import FOLDER, KINDS, CatalogueError, Check, Mutant, load, mutated
from tests.mutants.checks import LIMIT_S, Outcome, Ran, run_check, run_command, run_tests

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = (
    "src",
    "tests",
    "docs",
    "examples",
    "requirements",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "dev",
)
JOBS: Final = 2
BASELINE_LIMIT_S: Final = 900.0
IMPORT_LIMIT_S: Final = 60.0
_IGNORED: Final = shutil.ignore_patterns("__pycache__", ".*_cache", "node_modules")

State = Literal["caught", "survived", "hung", "error"]


class Verdict(NamedTuple):
    """What became of one fault. `ran` has each check that was tried."""

    mutant: Mutant
    state: State
    seconds: float
    by: str = ""
    problem: str = ""
    ran: tuple[tuple[Check, Ran], ...] = ()

    @property
    def catches(self) -> int:
        """How many of the checks that were tried have noticed the fault."""
        return sum(ran.state == "failed" for _, ran in self.ran)


def copy_tree(root: Path, target: Path) -> Path:
    """Copy what tests need of a repository."""
    target.mkdir()
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=_IGNORED, symlinks=True)
        elif source.exists():
            shutil.copy2(source, target / name)
    return target


def link_tree(source: Path, target: Path) -> Path:
    """A copy that shares its files with `source`; whoever changes one puts a new file in its place."""
    shutil.copytree(source, target, copy_function=os.link, symlinks=True, ignore=shutil.ignore_patterns("b", "t"))
    for own in ("output", "outcomes.ndjson"):
        (target / own).unlink(missing_ok=True)
    return target


def plant(mutant: Mutant, tree: Path) -> None:
    """Put the fault into a linked tree. Raises CatalogueError unless it applies exactly once."""
    text = mutated(mutant, tree)
    path = tree / mutant.path
    path.unlink()
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def try_mutant(mutant: Mutant, base: Path, place: Path, *, all_checks: bool, limit_s: float) -> Verdict:
    """Plant one fault and try its checks."""
    began_s = time.monotonic()
    tree = link_tree(base, place)
    try:
        plant(mutant, tree)
        probe = f"import {mutant.module}, fencepost"
        imported = run_command([sys.executable, "-c", probe], tree, IMPORT_LIMIT_S)
        if imported.state != "passed":
            raise CatalogueError(f"the tree does not import: {imported.message[-300:]}")
        ran = _try_checks(mutant, tree, all_checks=all_checks, limit_s=limit_s)
    except CatalogueError as error:
        return Verdict(mutant, "error", time.monotonic() - began_s, problem=str(error))
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return verdict_of(mutant, ran)


def _try_checks(mutant: Mutant, tree: Path, *, all_checks: bool, limit_s: float) -> tuple[tuple[Check, Ran], ...]:
    ran: list[tuple[Check, Ran]] = []
    for check in mutant.checks:
        one = run_check(check, tree, limit_s)
        if one.state == "broken":
            raise CatalogueError(f"{check} cannot be run: {one.message[-300:]}")
        ran.append((check, one))
        if one.state == "failed" and not all_checks:
            break
    return tuple(ran)


def verdict_of(mutant: Mutant, ran: tuple[tuple[Check, Ran], ...]) -> Verdict:
    """What became of a fault, as its checks have said in their order."""
    seconds = 0.0
    for check, one in ran:
        seconds += one.seconds
        if one.state == "failed":
            return Verdict(mutant, "caught", seconds, by=one.test or str(check), ran=ran)
    hung = [check for check, one in ran if one.state == "hung"]
    if hung:
        return Verdict(
            mutant, "hung", seconds, problem=f"no answer from {hung[0]}, which has no limit of its own", ran=ran
        )
    return Verdict(mutant, "survived", seconds, problem="no check has noticed it", ran=ran)


def baseline(checks: Sequence[Check], base: Path, places: Sequence[Path]) -> dict[Check, str]:
    """Run every check in copies without a fault, one share in each place; return those that do not pass, and why.

    Raises CatalogueError when tests cannot be run at all.
    """
    tests = sorted({check.argument for check in checks if check.kind == "test"})
    others = sorted({check for check in checks if check.kind != "test"}, key=str)
    with ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(partial(_baseline_share, base), _shares(tests, len(places)), places))
        other = list(pool.map(partial(_baseline_other, base, places[0].parent), enumerate(others)))
    problems = {name: problem for share in found for name, problem in share.items()}
    bad = {check: problems[check.argument] for check in checks if check.kind == "test" and check.argument in problems}
    return bad | {check: f"it does not pass: {ran.message[-1_500:]}" for check, ran in other if ran.state != "passed"}


def _baseline_other(base: Path, place: Path, numbered: tuple[int, Check]) -> tuple[Check, Ran]:
    number, check = numbered
    return check, run_check(check, link_tree(base, place / f"o{number}"))


def _shares(tests: Sequence[str], count: int) -> list[list[str]]:
    """Tests by file, dealt out so that each share has about as many."""
    files: dict[str, list[str]] = {}
    for name in tests:
        files.setdefault(name.partition("::")[0], []).append(name)
    shares: list[list[str]] = [[] for _ in range(count)]
    for names in sorted(files.values(), key=len, reverse=True):
        min(shares, key=len).extend(names)
    return shares


def _baseline_share(base: Path, names: Sequence[str], place: Path) -> dict[str, str]:
    if not names:
        return {}
    tree = link_tree(base, place)
    ran, outcomes = run_tests(names, tree, BASELINE_LIMIT_S)
    shutil.rmtree(tree, ignore_errors=True)
    if ran.state in ("broken", "hung"):
        said = ran.message[-1_500:]
        raise CatalogueError(f"the tests of the copy without a fault cannot be run ({ran.state}): {said}")
    return {name: problem for name in names if (problem := _problem_of(name, outcomes))}


def _problem_of(name: str, outcomes: Sequence[Outcome]) -> str:
    """What keeps a test from being a check; empty when it has passed in the copy without a fault."""
    mine = [
        each for each in outcomes if each.test == name or each.test.startswith((f"{name}[", f"{name}::", f"{name}/"))
    ]
    failed = next((each for each in mine if each.outcome == "failed"), None)
    if failed is not None:
        return f"{failed.test} fails without any fault: {failed.message}"
    return "" if any(each.outcome == "passed" for each in mine) else f"{name} is skipped or not there"


def table(verdicts: Sequence[Verdict], *, all_checks: bool) -> str:
    """The table, one line a fault."""
    rows = [("fault", "layer", "caught by", "s")]
    for each in verdicts:
        told = each.by if each.state == "caught" else f"{each.state.upper()}: {each.problem.splitlines()[0]}"
        if all_checks and each.ran:
            told = f"{each.catches} of {len(each.ran)}: {told}"
        rows.append((each.mutant.name, each.mutant.layer, told, f"{each.seconds:.1f}"))
    widths = [max(len(row[place]) for row in rows) for place in (0, 1, 2)]
    lines = [
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])) for row in rows
    ]
    return "\n".join(lines)


def document(verdicts: Sequence[Verdict], seconds: float) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "seconds": round(seconds, 1),
        "caught": sum(each.state == "caught" for each in verdicts),
        "mutants": [
            {
                "name": each.mutant.name,
                "layer": each.mutant.layer,
                "file": each.mutant.path.as_posix(),
                "harm": each.mutant.harm,
                "state": each.state,
                "caught_by": each.by,
                "problem": each.problem,
                "seconds": round(each.seconds, 2),
                "checks": [
                    {"check": str(check), "state": ran.state, "seconds": round(ran.seconds, 2), "message": ran.message}
                    for check, ran in each.ran
                ],
            }
            for each in verdicts
        ],
    }


def run(
    mutants: Sequence[Mutant],
    *,
    root: Path = ROOT,
    jobs: int = JOBS,
    all_checks: bool = False,
    limit_s: float = LIMIT_S,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Verdict]:
    """Try every fault but those of which a check fails in the copy without any. Raises CatalogueError."""
    # A short name: sockets below it have at most 107 bytes for theirs.
    with tempfile.TemporaryDirectory(prefix="fpm-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        base = copy_tree(root, place / "base")
        began_s = time.monotonic()
        # Compiled once here, and shared by all copies.
        run_command([sys.executable, "-m", "compileall", "-q", "src", "tests"], base, IMPORT_LIMIT_S)
        every = [check for mutant in mutants for check in mutant.checks]
        bad = baseline(every, base, [place / f"b{number}" for number in range(jobs)])
        good = len(set(every)) - len(bad)
        tell(f"without a fault {good} of {len(set(every))} checks pass ({time.monotonic() - began_s:.0f} s)")

        def one(numbered: tuple[int, Mutant]) -> Verdict:
            number, mutant = numbered
            wrong = [f"{check}: {bad[check]}" for check in mutant.checks if check in bad]
            if wrong:
                return Verdict(mutant, "error", 0.0, problem=wrong[0])
            verdict = try_mutant(mutant, base, place / str(number), all_checks=all_checks, limit_s=limit_s)
            tell(f"{verdict.state:8} {mutant.name} ({verdict.seconds:.1f} s)")
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, enumerate(mutants)))


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT, folder: Path = FOLDER) -> int:
    """The command. 0 when every fault is caught, 1 when one is not, 2 when nothing can be said."""
    parser = argparse.ArgumentParser(prog="./dev mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this fault or layer alone; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="say which faults there are, and try none")
    parser.add_argument("--json", metavar="FILE", help="write the document, - for standard output")
    parser.add_argument("--all-checks", action="store_true", help="try every check of each fault")
    parser.add_argument("--check", metavar="KIND=WHAT", help="test=NODE, sim=SEEDS or search=WORLD instead of its own")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"faults at one time (first value {JOBS})")
    asked = parser.parse_args(arguments)
    began_s = time.monotonic()
    try:
        chosen = _chosen(load(folder), asked.only)
        if asked.check is not None:
            chosen = [each._replace(checks=(asked_check(asked.check),)) for each in chosen]
        if asked.list:
            print("\n".join(f"{each.name} ({each.layer}, {each.file})\n    {each.harm}" for each in chosen))
            return 0
        tell = partial(print, file=sys.stderr, flush=True)
        verdicts = run(chosen, root=root, jobs=max(asked.jobs, 1), all_checks=asked.all_checks, tell=tell)
    except CatalogueError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mutants: interrupted", file=sys.stderr)
        return 130
    seconds = time.monotonic() - began_s
    text = json.dumps(document(verdicts, seconds), indent=2)
    if asked.json not in (None, "-"):
        Path(asked.json).write_text(text + "\n", encoding="utf-8")
    print(text if asked.json == "-" else table(verdicts, all_checks=asked.all_checks))
    bad = [each for each in verdicts if each.state != "caught"]
    for each in bad:
        print(f"mutants: {each.mutant.name} {each.state}: {each.problem}. {each.mutant.harm}", file=sys.stderr)
    print(f"mutants: {len(verdicts) - len(bad)} of {len(verdicts)} caught in {seconds:.0f} s", file=sys.stderr)
    return 1 if bad else 0


def _chosen(mutants: Sequence[Mutant], only: Sequence[str]) -> list[Mutant]:
    unknown = sorted(set(only) - {each.name for each in mutants} - {each.layer for each in mutants})
    if unknown:
        raise CatalogueError(f"no fault or layer is named {', '.join(unknown)}")
    return [each for each in mutants if not only or each.name in only or each.layer in only]


def asked_check(text: str) -> Check:
    """A check as it is written on the command line. Raises CatalogueError."""
    kind, _, argument = text.partition("=")
    for known in KINDS:
        if kind == known and argument:
            return Check(known, argument)
    raise CatalogueError(f"{text} is no check; write one of {', '.join(f'{known}=…' for known in KINDS)}")


if __name__ == "__main__":
    sys.exit(main())
