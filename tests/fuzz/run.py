"""The long way of fuzzing: one target, guided by coverage, for as long as one likes.

    pip install atheris==3.0.0
    python -m tests.fuzz.run record --seconds 600

The library is not among the requirements of the project, since its wheels exist for few Python versions; without it
`--blind` changes inputs without guidance. Inputs that reach new code are kept in `--work`, which may be used again.
An input that breaks a property ends the run with status 77 and stands in `--work` as `crash-…`: copy it into
`corpus/<target>/` under a name that begins with `broke_`, where the short tests replay it for ever. Where records or
commands have changed their form, `--write-seeds` writes the kept ones anew.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

NAMES = ("json", "record", "command", "request", "plan_toml", "plan_json")
INPUT_BYTES_MAX = 16_384
INPUT_SECONDS_MAX = 20
MEMORY_MIB_MAX = 2_048


def main(arguments: list[str] | None = None) -> int:
    """Parses the arguments and runs; the exit status is 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description="Fuzz one reader.")
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=60, help="how long, 60 if not said")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations; 0 takes another each time")
    parser.add_argument("--work", type=Path, help="folder for new inputs; one in the temporary folder if not said")
    parser.add_argument("--blind", action="store_true", help="without guidance and without the library")
    parser.add_argument("--write-seeds", action="store_true", help="only write the inputs that follow from the code")
    asked = parser.parse_args(arguments)
    if asked.write_seeds:
        return _write_seeds(asked.target)
    work: Path = asked.work or Path(tempfile.gettempdir()) / "fencepost-fuzz" / asked.target
    work.mkdir(parents=True, exist_ok=True)
    if asked.blind:
        return _blind(asked.target, asked.seconds, asked.seed, work)
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install atheris==3.0.0, or add --blind", file=sys.stderr)
        return 2
    _guided(asked.target, asked.seconds, asked.seed, work)
    return 0


def _write_seeds(name: str) -> int:
    from tests.fuzz.targets import TARGETS

    print("\n".join(TARGETS[name].write_seeds()) or "the inputs of this target are written by hand")
    return 0


def _guided(name: str, seconds: int, seed: int, work: Path) -> None:
    """Hands the target to libFuzzer, which ends the process itself."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["fencepost", "tomllib", "json"]):
        from tests.fuzz.targets import CORPUS, TARGETS

    from tests.fuzz import mutation

    target = TARGETS[name]
    words = target.words()

    def mutate(data: bytes, bytes_max: int, seed: int) -> bytes:
        draw = random.Random(seed)
        choice = draw.randrange(4)
        if choice == 0:
            return bytes(atheris.Mutate(data, bytes_max))
        changed = (mutation.of_bytes if choice == 1 else target.mutate)(draw, data, words)
        return changed[:bytes_max]

    options = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-artifact_prefix={work}/",
        f"-seed={seed}",
        "-print_final_stats=1",
        str(work),
        str(CORPUS / name),
    ]

    def check(data: bytes) -> None:
        target.check(data)

    atheris.Setup(options, check, custom_mutator=mutate)
    atheris.Fuzz()


def _blind(name: str, seconds: int, seed: int, work: Path) -> int:
    from tests.fuzz import mutation
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    draw = random.Random(seed or None)
    seeds = [data for _, data in target.corpus()]
    words = target.words()
    became: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        mutate = draw.choice((mutation.of_bytes, target.mutate, target.mutate))
        data = mutate(draw, draw.choice(seeds), words)
        try:
            became[target.check(data)] += 1
        except BaseException:
            (work / "crash-blind").write_bytes(data)
            print(f"broken by the input in {work / 'crash-blind'}", file=sys.stderr)
            raise
    print(f"{became.total()} inputs: {dict(became.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
