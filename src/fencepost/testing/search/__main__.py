"""Search small worlds, print what each of them has, and tell the shortest story of what does not hold.

python -m fencepost.testing.search
python -m fencepost.testing.search --world pair --world fences
python -m fencepost.testing.search --deep --json
python -m fencepost.testing.search --rows --prove
python -m fencepost.testing.search --replay FILE

Exit codes: 0 all holds, 1 something does not, 2 wrong usage or a story that cannot be walked here.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fencepost.testing.search.closure import Closure, close
from fencepost.testing.search.explore import PLACES_MAX, Report, Story, replay, search
from fencepost.testing.search.proofs import Proofs, prove
from fencepost.testing.search.rows import ALL, UNREACHABLE, Coverage, coverage
from fencepost.testing.search.shapes import EVERY
from fencepost.testing.search.worlds import BY_NAME, WORLDS

_HEAD = f"{'world':<14}{'places':>9}{'edges':>11}{'followed':>10}{'depth':>7}{'seconds':>9}{'edges/s':>9}{'rows':>6}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay)
    names = options.world or [world.name for world in WORLDS if options.deep or not world.deep]
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        print(f"no world is named {unknown[0]}; there are {', '.join(BY_NAME)}", file=sys.stderr)
        return 2
    if not options.json:
        print(_HEAD)
    reports = []
    for name in names:
        report = search(BY_NAME[name], compare_every=options.compare, places_max=options.places)
        reports.append(report)
        if not options.json:
            print(line_of(report), flush=True)
            if report.story is not None:
                print("\n".join(report.story.lines()), flush=True)
    found = coverage(row for report in reports for row in report.rows)
    stories = [report.story for report in reports if report.story is not None]
    whole = not options.world and not stories
    closure = None if options.prove is None else close(options.prove)
    proofs = None if closure is None else prove(closure, found.reached)
    _tell(options, reports, found, proofs, whole=whole)
    if closure is not None and proofs is not None and not options.json:
        _tell_proofs(closure, proofs)
    if stories and options.story is not None:
        Path(options.story).write_bytes(msgspec.json.format(msgspec.json.encode(stories[0]), indent=2) + b"\n")
    wrong = bool(found.lies or found.foreign or (proofs and proofs.problems)) or (whole and bool(found.missing))
    return 1 if stories or wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", action="append", metavar="NAME", help="search this world; may be given again")
    parser.add_argument("--deep", action="store_true", help="search the large worlds too")
    parser.add_argument("--json", action="store_true", help="print one document instead of the table")
    parser.add_argument("--rows", action="store_true", help="print every row of every machine and what is known of it")
    parser.add_argument(
        "--prove",
        type=int,
        nargs="?",
        const=EVERY,
        metavar="N",
        help="prove that nothing takes the other rows; with at most N things out of the ordinary, or all combinations",
    )
    parser.add_argument("--compare", type=int, default=0, metavar="N", help="check the folding at every Nth edge")
    parser.add_argument("--places", type=int, default=PLACES_MAX, metavar="N", help="give a world up beyond so many")
    parser.add_argument("--story", metavar="FILE", help="keep the first story for --replay")
    parser.add_argument("--replay", metavar="FILE", help="walk a kept story again")
    return parser


def line_of(report: Report) -> str:
    """One line of the table."""
    rate = report.edges / report.seconds if report.seconds else 0
    return (
        f"{report.world:<14}{report.places:>9}{report.edges:>11}{report.followed:>10}{report.depth:>7}"
        f"{report.seconds:>9.1f}{rate:>9.0f}{len(report.rows):>6}"
    )


def _tell_proofs(closure: Closure, proofs: Proofs) -> None:
    """What the proofs rest on, and what does not hold of them."""
    arguments = Counter(proved.argument for proved in proofs.proved.values())
    counted = ", ".join(f"{argument} {count}" for argument, count in sorted(arguments.items()))
    print(f"rows proved to be taken by nothing: {len(proofs.proved)} of {len(UNREACHABLE)} ({counted})")
    print(
        f"closure: {len(closure.shapes)} shapes, {closure.places} places, {closure.edges} edges, "
        f"{len(closure.rows)} rows taken, {closure.seconds:.1f} s"
    )
    for problem in proofs.problems:
        print(f"not proved: {problem}")


def _tell(
    options: argparse.Namespace, reports: Sequence[Report], found: Coverage, proofs: Proofs | None, *, whole: bool
) -> None:
    if options.json:
        document = {
            "worlds": reports,
            "rows": {
                "all": len(ALL),
                "reached": sorted(found.reached),
                "unreachable": [(*row, reason) for row, reason in sorted(UNREACHABLE.items())],
                "missing": found.missing,
                "lies": found.lies,
                "foreign": found.foreign,
                "proved": None if proofs is None else sorted(proofs.proved.values()),
                "not_proved": None if proofs is None else proofs.problems,
            },
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
        return
    total = len(found.reached)
    print(f"rows of the machines: {len(ALL)}, reached {total}, listed as unreachable {len(UNREACHABLE)}")
    if options.rows:
        for row in sorted(ALL):
            known = "reached" if row in found.reached else UNREACHABLE.get(row, "not reached")
            if proofs is not None and row in proofs.proved:
                known = f"{known} [{proofs.proved[row].because}]"
            print(f"  {row.machine:<13}{row.origin or '-':<24}{row.target:<24}{known}")
    for row in found.missing if whole else ():
        print(f"never reached and not listed: {row.machine} {row.origin or 'birth'} -> {row.target}")
    for row in (*found.lies, *found.foreign):
        print(f"reached against the tables: {row.machine} {row.origin or 'birth'} -> {row.target}")


def _replay(path: str) -> int:
    try:
        story = msgspec.json.decode(Path(path).read_bytes(), type=Story)
        problem = replay(story)
    except (OSError, msgspec.MsgspecError, LookupError) as error:
        print(f"the story cannot be walked here: {error}", file=sys.stderr)
        return 2
    print("\n".join(story.lines()))
    print(f"now: {problem}" if problem else "now: all of it holds")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
