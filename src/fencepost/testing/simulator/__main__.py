"""Run seeds on all cores, say what happened, and make a failing one small enough to read.

python -m fencepost.testing.simulator --seeds 100
python -m fencepost.testing.simulator --minutes 10
python -m fencepost.testing.simulator --seed 4711 --seeds 1 --story
python -m fencepost.testing.simulator --replay FILE
python -m fencepost.testing.simulator --rate all=0 --rate hangs=200000 --rate crash=60
python -m fencepost.testing.simulator --rates
python -m fencepost.testing.simulator --executor MODULE:NAME --store MODULE:NAME --reopen MODULE:NAME
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fencepost.testing.simulator.authors import NO_PARTS, Parts
from fencepost.testing.simulator.faults import MEANING, problem_of
from fencepost.testing.simulator.runner import SEED_MAX, Report, explore
from fencepost.testing.simulator.scenario import USUAL_MOMENTS, USUAL_RATES, draw
from fencepost.testing.simulator.shrink import RUNS_MAX, Failure, Shrinker, run, signature
from fencepost.testing.simulator.world import Outcome

FOLDER = "sim-failures"
SEEDS = 100
MINUTES_MAX = 10_080.0  # a week
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    parts = Parts(executor=options.executor, store=options.store, reopen=options.reopen)
    if options.replay is not None:
        return _replay(options.replay, parts)
    if options.rates:
        return _list_rates()
    changes = dict(options.rate)
    if options.story:
        return _tell_story(0 if options.seed is None else options.seed, changes, parts)
    first = options.seed
    if first is None:
        first = random.SystemRandom().randrange(SEED_MAX) if options.minutes is not None else 0
    seeds = options.seeds
    if seeds is None:
        seeds = SEED_MAX if options.minutes is not None else (SEEDS if options.seed is None else 1)
    folder = Path(options.failures).absolute()
    report, failures = explore(
        first,
        seeds=seeds,
        minutes=options.minutes,
        jobs=options.jobs,
        failed=partial(_keep, folder=folder, changes=changes),
        changes=changes,
        parts=parts,
    )
    _print(report)
    if options.json is not None:
        options.json.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
        options.json.close()
    if report.interrupted:
        return INTERRUPTED
    for outcome in failures[: options.shrink]:
        _shrink(outcome, folder, changes, options.shrink_runs, parts)
    return 1 if failures else 0


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= SEED_MAX:
            raise argparse.ArgumentTypeError(f"a number from {least} to {SEED_MAX}, not {text}")
        return number

    return read


def _rate(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.lstrip("-").isdecimal():
        raise argparse.ArgumentTypeError(f"NAME=NUMBER, not {text}; --rates lists the names")
    problem = problem_of(name, int(number))
    if problem:
        raise argparse.ArgumentTypeError(f"{problem}; --rates lists the names")
    return name, int(number)


def _minutes(text: str) -> float:
    number = float(text)
    if not 0 < number <= MINUTES_MAX:
        raise argparse.ArgumentTypeError(f"more than 0 and at most {MINUTES_MAX} minutes, not {text}")
    return number


def _part(text: str) -> Any:
    """What a module of one's own, found as Python finds it from here, calls by a name."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(f"MODULE:NAME, not {text}")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=_whole(1), default=None, help="how many seeds to run (100; one with --seed)")
    parser.add_argument("--minutes", type=_minutes, default=None, help="begin seeds for so long instead")
    parser.add_argument("--seed", type=_whole(0), default=None, help="the first seed (0; with --minutes any)")
    parser.add_argument("--jobs", type=_whole(1), default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument(
        "--json", metavar="FILE", type=argparse.FileType("w", encoding="utf-8"), help="write the figures as a document"
    )
    parser.add_argument("--failures", default=FOLDER, metavar="FOLDER", help=f"where failing runs go ({FOLDER})")
    parser.add_argument(
        "--shrink", type=_whole(0), default=1, metavar="N", help="make the first N failing runs small (1)"
    )
    parser.add_argument(
        "--shrink-runs", type=_whole(1), default=RUNS_MAX, metavar="N", help=f"in at most N runs ({RUNS_MAX})"
    )
    parser.add_argument(
        "--rate",
        metavar="NAME=NUMBER",
        type=_rate,
        action="append",
        default=[],
        help="set how often a fault happens, in the place of what each seed draws (more than once; all=0 for none)",
    )
    parser.add_argument("--rates", action="store_true", help="list every fault, its usual rate and what it does")
    parser.add_argument("--story", action="store_true", help="run one seed here and tell what happened")
    parser.add_argument("--replay", metavar="FILE", help="run a kept failure again and tell what happened")
    for name, said in (
        ("executor", "makes an executor for a simulated process, in place of the simulator's own"),
        ("store", "makes an empty store, in place of the one in memory"),
        ("reopen", "is handed the store at a power cut of its host, and returns what is left"),
    ):
        parser.add_argument(f"--{name}", type=_part, metavar="MODULE:NAME", help=said)
    return parser


def _print(report: Report) -> None:
    if report.interrupted:
        print("interrupted; what was counted until then:")
    print(
        f"{report.seeds} seeds from {report.first_seed}: {len(report.failed)} failed; {report.steps:,} steps, "
        f"{report.steps_per_cpu_s:,} a second of each core, {report.seeds_per_minute} seeds a minute; "
        f"{report.orders:,} orders, {report.executions:,} executions, {report.records:,} records"
    )
    print("\nfaults (times, seeds)")
    for name, count in report.faults.items():
        print(f"  {count:>9,} {report.fault_seeds[name]:>7,}  {name}")
    for title, counts in (
        ("transitions", report.transitions),
        ("commands", report.commands),
        ("refusals", report.refusals),
    ):
        print(f"\n{title}")
        for name, count in counts.items():
            print(f"  {count:>9,}  {name}")


def _list_rates() -> int:
    print("parts in a million of their occasions, of which a seed draws none, as many, or three times as many:\n")
    for name, rate in msgspec.structs.asdict(USUAL_RATES).items():
        print(f"  {rate:>9,}  {name:<24} {MEANING[name]}")
    print("\ntimes in an hour of a run, drawn in the same way:\n")
    for name, rate in msgspec.structs.asdict(USUAL_MOMENTS).items():
        print(f"  {rate:>9,}  {name:<24} {MEANING[name]}")
    return 0


def _path(outcome: Outcome, folder: Path) -> Path:
    return folder / f"seed-{outcome.seed}.json"


def _write(failure: Failure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(failure), indent=1) + b"\n")


def _keep(outcome: Outcome, folder: Path, changes: Mapping[str, int]) -> None:
    """Write a failing run down as soon as it is known, as large as it is."""
    path = _path(outcome, folder)
    _write(Failure(problem=outcome.problem, scenario=draw(outcome.seed, changes)), path)
    print(f"seed {outcome.seed}: {outcome.problem}\nkept in {path}", file=sys.stderr, flush=True)


def _shrink(outcome: Outcome, folder: Path, changes: Mapping[str, int], runs_max: int, parts: Parts) -> None:
    """Make a failing run small, write it down whenever it has become smaller, and tell it."""
    path = _path(outcome, folder)
    print(f"\nmaking seed {outcome.seed} small (at most {runs_max} runs; Ctrl-C keeps what is there)", file=sys.stderr)

    def tell(text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    try:
        shrinker = Shrinker(
            draw(outcome.seed, changes),
            runs_max=runs_max,
            tell=tell,
            keep=lambda failure: _write(failure, path),
            parts=parts,
        )
        failure = shrinker.shrink()
    except KeyboardInterrupt:
        print(f"interrupted; kept in {path}", file=sys.stderr)
        return
    _write(failure, path)
    print("\n".join((*failure.story, "", failure.problem, "", f"kept in {path}; once more: --replay {path}")))
    if parts == NO_PARTS:
        print("once it is mended, the file belongs into tests/simulation/failures, with its mending in mendings.toml")


def _replay(name: str, parts: Parts) -> int:
    try:
        failure = msgspec.json.decode(Path(name).read_bytes(), type=Failure)
    except (OSError, msgspec.DecodeError) as error:
        print(f"sim: {name} is not the file of a failing run: {error}", file=sys.stderr)
        return 2
    outcome = run(failure.scenario, with_story=True, parts=parts)
    print("\n".join(outcome.story))
    if not outcome.problem:
        print(f"\nholds now; it was: {failure.problem}")
        return 0
    same = signature(outcome.problem) == signature(failure.problem)
    print(f"\n{outcome.problem}" if same else f"\nfails in another way: {outcome.problem}\nit was: {failure.problem}")
    return 1


def _tell_story(seed: int, changes: Mapping[str, int], parts: Parts) -> int:
    outcome = run(draw(seed, changes), with_story=True, parts=parts)
    print("\n".join((*outcome.story, "", outcome.problem or f"seed {seed} holds: {outcome.steps} steps")))
    return 1 if outcome.problem else 0


if __name__ == "__main__":
    sys.exit(main())
