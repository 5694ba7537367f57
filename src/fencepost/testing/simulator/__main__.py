"""Run seeds on all cores, say what happened, and make a failing one small enough to read.

python -m fencepost.testing.simulator --seeds 100
python -m fencepost.testing.simulator --minutes 10
python -m fencepost.testing.simulator --seed 4711 --seeds 1 --story
python -m fencepost.testing.simulator --replay FILE
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fencepost.testing.simulator.runner import SEED_MAX, Report, explore
from fencepost.testing.simulator.scenario import draw
from fencepost.testing.simulator.shrink import RUNS_MAX, Failure, Shrinker, run, signature
from fencepost.testing.simulator.world import Outcome

FOLDER = "sim-failures"
SEEDS = 100


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay)
    if options.story:
        return _tell_story(0 if options.seed is None else options.seed)
    first = options.seed
    if first is None:
        first = random.SystemRandom().randrange(SEED_MAX) if options.minutes is not None else 0
    seeds = options.seeds
    if seeds is None:
        seeds = SEED_MAX if options.minutes is not None else (SEEDS if options.seed is None else 1)
    report, failures = explore(
        first, seeds=seeds, minutes=options.minutes, jobs=max(options.jobs, 1), failed=_say_failed
    )
    _print(report)
    if options.json is not None:
        Path(options.json).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    for outcome in failures[: options.shrink]:
        _keep(outcome, Path(options.failures))
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=None, help="how many seeds to run (100; one with --seed)")
    parser.add_argument("--minutes", type=float, default=None, help="go on for so long instead")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (0; with --minutes any)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--json", metavar="FILE", help="write the figures as a document")
    parser.add_argument("--failures", default=FOLDER, metavar="FOLDER", help=f"where failing runs go ({FOLDER})")
    parser.add_argument("--shrink", type=int, default=1, metavar="N", help="make the first N failing runs small (1)")
    parser.add_argument("--story", action="store_true", help="run one seed here and tell what happened")
    parser.add_argument("--replay", metavar="FILE", help="run a kept failure again and tell what happened")
    return parser


def _say_failed(outcome: Outcome) -> None:
    print(f"seed {outcome.seed}: {outcome.problem}", file=sys.stderr, flush=True)


def _print(report: Report) -> None:
    print(
        f"{report.seeds} seeds from {report.first_seed}: {len(report.failed)} failed; {report.steps:,} steps, "
        f"{report.steps_per_cpu_s:,} a second of each core, {report.seeds_per_minute} seeds a minute; "
        f"{report.orders:,} orders, {report.executions:,} executions, {report.records:,} records"
    )
    for title, counts in (
        ("faults", report.faults),
        ("transitions", report.transitions),
        ("commands", report.commands),
        ("refusals", report.refusals),
    ):
        print(f"\n{title}")
        for name, count in counts.items():
            print(f"  {count:>9,}  {name}")


def _keep(outcome: Outcome, folder: Path) -> None:
    """Make a failing run small, write it down, and tell it."""
    print(f"\nmaking seed {outcome.seed} small (at most {RUNS_MAX} runs)", file=sys.stderr)
    failure = Shrinker(draw(outcome.seed), tell=lambda text: print(f"  {text}", file=sys.stderr)).shrink()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{outcome.seed}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(failure), indent=1) + b"\n")
    print("\n".join((*failure.story, "", failure.problem, "", f"kept in {path}; once more: --replay {path}")))


def _replay(name: str) -> int:
    failure = msgspec.json.decode(Path(name).read_bytes(), type=Failure)
    outcome = run(failure.scenario, with_story=True)
    print("\n".join(outcome.story))
    if not outcome.problem:
        print(f"\nholds now; it was: {failure.problem}")
        return 0
    same = signature(outcome.problem) == signature(failure.problem)
    print(f"\n{outcome.problem}" if same else f"\nfails in another way: {outcome.problem}\nit was: {failure.problem}")
    return 1


def _tell_story(seed: int) -> int:
    outcome = run(draw(seed), with_story=True)
    print("\n".join((*outcome.story, "", outcome.problem or f"seed {seed} holds: {outcome.steps} steps")))
    return 1 if outcome.problem else 0


if __name__ == "__main__":
    sys.exit(main())
