"""Recorded time: what a reading does to the domain, and what a proof of a deadline must name (W8, W10).

Within a boot logical time is the source's anchor plus elapsed ticks, and UTC only checks it. A restart advances
nothing; a contradiction quarantines the domain for good; whoever was not looked at for half a lease gets a grace. A
boot that was seen before is no restart: it goes on by its own anchor, however many came after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_canonical import digest_of
from fencepost.testing.simulator.model_state import CLOCK, Clock, Outcome, Source, World

BOOTS_MAX = 16  # of one host that are told apart


def first_reading(world: World, reading: Mapping[str, Any]) -> None:
    _write(world, reading, "accepted", reading["utc_us"], {})


def observe_clock(world: World, command: Mapping[str, Any]) -> Outcome:
    reading = command["reading"]
    clock = world.clock
    source = clock.sources.get(reading["source"])
    if clock.state == "running":
        chain = chain_of(clock, reading["source"], reading["boot_id"])
        if chain is None:
            last_seq = 0 if source is None else source.last_seq
            _write(world, reading, "restart", clock.logical_us, _grace(world, clock.logical_us), last_seq)
        elif reading["tick_us"] > chain.last_tick_us:
            _compare(world, reading, chain)
    return {"logical_us": clock.logical_us, "state": clock.state}


def _compare(world: World, reading: Mapping[str, Any], source: Source) -> None:
    clock = world.clock
    elapsed_us = reading["tick_us"] - source.tick_us
    if abs(source.utc_us + elapsed_us - reading["utc_us"]) > world.limits["clock_skew_max_us"]:
        _write(world, reading, "quarantined", clock.logical_us, {}, source.last_seq)
        return
    logical_us = max(clock.logical_us, source.logical_us + elapsed_us)
    unseen_us = logical_us - clock.logical_us  # by any source: decision 0011
    slept = unseen_us > world.limits["lease_us"] // 2
    _write(world, reading, "accepted", logical_us, _grace(world, logical_us) if slept else {}, source.last_seq)


def _grace(world: World, logical_us: int) -> dict[str, int]:
    """One interval for leases that ended after the last reading; one that is still open goes on."""
    clock = world.clock
    goes_on = clock.grace_until_us > clock.logical_us
    return {
        "grace_from_us": clock.grace_from_us if goes_on else clock.logical_us + 1,
        "grace_until_us": logical_us + world.limits["lease_us"],
    }


def chain_of(clock: Clock, source: str, boot_id: str) -> Source | None:
    """What is remembered of one boot of a host: of the sixteen that were seen last."""
    newest = clock.sources.get(source)
    chains = [] if newest is None else [newest, *newest.before]
    return next((chain for chain in chains if chain.boot_id == boot_id), None)


def _write(
    world: World,
    reading: Mapping[str, Any],
    disposition: str,
    logical_us: int,
    grace: dict[str, int],
    previous: int = 0,
) -> None:
    clock = world.clock
    body: dict[str, Any] = {
        "domain": "main",
        "source": reading["source"],
        "utc_us": reading["utc_us"],
        "tick": reading["tick_us"],
        "tick_unit": "us",
        "boot_id": reading["boot_id"],
        "uncertainty_us": reading["uncertainty_us"],
        "receipt": digest_of(reading),
        "disposition": disposition,
        "logical_us": logical_us,
    }
    if previous:
        body["previous"] = previous
    body.update({key: value for key, value in grace.items() if value})
    seq = world.expect("logical_clock_observation", CLOCK, body)
    if disposition == "quarantined":
        clock.state = "clock_reconciliation_required"
        return
    clock.logical_us, clock.uncertainty_us, clock.last_seq = logical_us, reading["uncertainty_us"], seq
    if grace:
        clock.grace_from_us, clock.grace_until_us = grace["grace_from_us"], grace["grace_until_us"]
    tick_us, boot_id = reading["tick_us"], reading["boot_id"]
    chain = chain_of(clock, reading["source"], boot_id)
    if chain is not None:
        chain.last_tick_us, chain.last_seq = tick_us, seq
        return
    last = clock.sources.get(reading["source"])
    before: list[Source] = []
    if last is not None:
        before, last.before = [last, *last.before], []
        if len(before) == BOOTS_MAX:
            before.remove(min(before, key=lambda each: each.last_seq))  # whoever was not seen for longest
    clock.sources[reading["source"]] = Source(boot_id, logical_us, reading["utc_us"], tick_us, tick_us, seq, before)


def prove(world: World, kind: str, body: dict[str, Any]) -> int:
    """Predict the proof that a deadline has passed; return its sequence number."""
    clock = world.clock
    seen = {
        "domain": "main",
        "observation": clock.last_seq,
        "logical_us": clock.logical_us,
        "uncertainty_us": clock.uncertainty_us,
        "clock_version": world.versions[CLOCK],
        "prover": world.prover,
        "decision": world.proof_decision,
    }
    return world.expect(kind, CLOCK, {**body, **seen})
