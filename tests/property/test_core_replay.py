"""Replay neither thinks nor draws: the same records give the same bytes in any process (W21; cases 32, 37).

A history is folded in other processes, under other seeds of hashing, time zones and languages, with everything taken
away that could say something else the second time. A record that this program does not know stops it, by name.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fencepost.core.canonical import encode_trusted
from fencepost.core.chain import BrokenChain, Link, Where, open_record, seal
from fencepost.core.evolve import Fact, evolve
from fencepost.core.machines import CorruptHistory
from fencepost.core.records import KIND_OF, Body, Stamp
from fencepost.core.state import encode_value
from tests.support.states import HISTORIES, world_in
from tests.support.world import DIGEST, Fold, World

STAMP = Stamp(key="k", digest=DIGEST, principal="p", assurance="service", decision="", grant=DIGEST)

REPLAY = """
import builtins, hashlib, json, os, random, secrets, sys, time, uuid
from fencepost.core.chain import open_record
from fencepost.core.evolve import Fact, evolve
from fencepost.core.state import encode_value
from tests.support.world import Fold

lines = sys.stdin.buffer.read().splitlines()

def forbidden(*_, **__):
    raise RuntimeError("a replay asked for something that is not in the records")

for module, names in (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "sleep")),
    (random, ("random", "randrange", "getrandbits")),
    (secrets, ("token_bytes",)),
    (os, ("urandom", "getenv", "open")),
    (uuid, ("uuid4",)),
    (builtins, ("open", "input")),
):
    for name in names:
        setattr(module, name, forbidden)

fold = Fold()
for seq, line in enumerate(lines, 1):
    record = open_record(seq, line)
    evolve(fold, Fact(record.seq, record.subject, record.subject_version, record.body))
digest = hashlib.sha256()
for subject in sorted(fold.values):
    digest.update(subject.encode() + b" " + encode_value(fold.values[subject]) + b"\\n")
print(json.dumps([digest.hexdigest(), len(fold.values)]))
"""


def sealed(world: World) -> list[bytes]:
    """The world's records as they stand in a journal, one a line."""
    return [record.data for record in seal(Where("scope", "main", 0), Link(0, ""), world.facts, STAMP)]


def folded(fold: Fold) -> list[object]:
    digest = hashlib.sha256()
    for subject in sorted(fold.values):
        digest.update(subject.encode() + b" " + encode_value(fold.values[subject]) + b"\n")
    return [digest.hexdigest(), len(fold.values)]


ELSEWHERE = [
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "4294967295", "TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8", "PYTHONUTF8": "1"},
]


@pytest.mark.parametrize("where", ELSEWHERE, ids=["seed 1", "seed 2^32-1"])
def test_case_32_a_replay_in_another_process_draws_nothing_and_gives_the_same_bytes(where: dict[str, str]) -> None:
    root = Path(__file__).parents[2]
    for name in ("result_pending/verified", "cancelled/late"):
        world = world_in(name)
        done = subprocess.run(
            [sys.executable, "-c", REPLAY],
            input=b"\n".join(sealed(world)),
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{root / 'src'}:{root}", **where},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert not done.returncode, done.stderr.decode()
        assert json.loads(done.stdout) == folded(world.live)


def test_case_32_a_torn_last_record_is_told_and_the_ones_before_it_stand() -> None:
    lines = sealed(world_in("applied"))
    for cut in (1, len(lines[-1]) // 2, len(lines[-1]) - 1):
        with pytest.raises(BrokenChain, match=f"record {len(lines)}"):
            open_record(len(lines), lines[-1][:cut])
    fold = Fold()
    for seq, line in enumerate(lines[:-1], 1):
        record = open_record(seq, line)
        evolve(fold, Fact(record.seq, record.subject, record.subject_version, record.body))
    assert fold.values


def test_case_37_a_record_of_a_kind_that_is_not_known_stops_a_replay_and_is_named() -> None:
    for name in ("active/running", "conflict"):
        world = world_in(name)
        fold = Fold()
        fold.values = dict(world.live.values)
        unknown = msgspec.defstruct("DreamRecorded", [("dream", str)], bases=(Body,), frozen=True, kw_only=True)
        seq = len(world.facts) + 1
        with pytest.raises(CorruptHistory, match=f"record {seq}: DreamRecorded is no registered kind"):
            evolve(fold, Fact(seq, "scope", 2, unknown(dream="x")))
        assert fold.values == world.live.values


def test_case_37_a_stored_record_of_an_unknown_kind_or_version_is_named_when_it_is_opened() -> None:
    line = json.loads(sealed(world_in("ready"))[-1])
    for change in ({"kind": "dream_recorded"}, {"kind_version": 99}):
        changed = json.dumps({**line, **change}, separators=(",", ":"), sort_keys=True).encode()
        with pytest.raises(BrokenChain, match=str(next(iter(change.values())))):
            open_record(line["seq"], changed)


def test_w21_every_kind_of_record_is_among_those_that_are_replayed() -> None:
    kinds = {type(fact.body) for name in HISTORIES for fact in world_in(name).facts}
    assert kinds == set(KIND_OF)
    assert all(encode_trusted(fact.body) for fact in world_in("applied").facts)
