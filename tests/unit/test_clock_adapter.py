"""The host's clocks, and the fake that stands for them."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost.adapters.clock import SystemClock, host_boot_id, host_source
from fencepost.testing.fakes import FakeClock, FakeEntropy

ZERO_SHIFT = "monotonic           0         0\nboottime            0         0\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_w8_a_reading_is_close_to_both_clocks() -> None:
    clock = SystemClock(FakeEntropy())
    before_us = time.time_ns() // 1000
    reading = clock.read()
    after_us = time.time_ns() // 1000
    assert before_us <= reading.utc_us <= after_us
    assert reading.tick_unit == "us"
    assert 1 <= reading.uncertainty_us < 5_000_000
    assert re.fullmatch(r"source_[0-9a-f]{32}", reading.source)
    assert re.fullmatch(r"[0-9a-f-]{16,64}", reading.boot_id)


def test_w8_ticks_never_go_back_and_count_real_time() -> None:
    clock = SystemClock(FakeEntropy())
    readings = [clock.read() for _ in range(1000)]
    assert all(one.tick_us <= other.tick_us for one, other in itertools.pairwise(readings))
    start = clock.read()
    time.sleep(0.05)
    assert 50_000 <= clock.read().tick_us - start.tick_us < 10_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count every process start as a restart")
def test_w8_another_process_of_this_boot_shares_source_boot_and_ticks() -> None:
    program = (
        "from fencepost.adapters.clock import SystemClock\n"
        "from fencepost.adapters.entropy import SystemEntropy\n"
        "reading = SystemClock(SystemEntropy()).read()\n"
        "print(reading.boot_id, reading.source, reading.tick_us)"
    )
    before = SystemClock(FakeEntropy()).read()
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    boot_id, source, tick = run.stdout.split()
    after = SystemClock(FakeEntropy()).read()
    assert (boot_id, source) == (before.boot_id, before.source)
    assert before.tick_us < int(tick) < after.tick_us


def test_w8_without_a_boot_id_every_start_is_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_boot_id(tmp_path / "missing") is None
    assert host_boot_id(write(tmp_path / "empty", "\n")) is None
    monkeypatch.setattr("fencepost.adapters.clock.host_boot_id", lambda: None)
    one, other = SystemClock(FakeEntropy(1)), SystemClock(FakeEntropy(2))
    assert one.read().boot_id != other.read().boot_id
    assert one.read().boot_id == one.read().boot_id
    first = one.read()
    assert one.read().tick_us >= first.tick_us


def test_w8_a_shifted_tick_counter_is_another_boot(tmp_path: Path) -> None:
    boot_id = write(tmp_path / "boot_id", "0F3A0000-0000-4000-8000-000000000001\n")
    plain = host_boot_id(boot_id, tmp_path / "missing")
    assert plain == "0f3a0000-0000-4000-8000-000000000001"
    assert host_boot_id(boot_id, write(tmp_path / "zero", ZERO_SHIFT)) == plain
    day = host_boot_id(boot_id, write(tmp_path / "day", ZERO_SHIFT.replace("boottime            0", "boottime 86400")))
    week = host_boot_id(boot_id, write(tmp_path / "week", "boottime 604800 0\n"))
    assert len({plain, day, week}) == 3


def test_w8_the_source_is_stable_and_does_not_show_the_machine_id(tmp_path: Path) -> None:
    machine_id = "0123456789abcdef0123456789abcdef"
    known = host_source((write(tmp_path / "id", machine_id + "\n"),))
    assert known == host_source((tmp_path / "missing", tmp_path / "id"))
    assert machine_id not in known
    # An image that was never booted has no id yet: the host's name has to do.
    unset = host_source((write(tmp_path / "unset", "uninitialized\n"),))
    assert unset == host_source(()) != known


def test_the_fake_moves_only_when_told_to() -> None:
    clock = FakeClock()
    first = clock.read()
    assert clock.read() == first
    clock.advance(5)
    moved = clock.read()
    assert (moved.utc_us - first.utc_us, moved.tick_us - first.tick_us) == (5, 5)
    clock.jump_utc(-60)
    jumped = clock.read()
    assert (jumped.utc_us - moved.utc_us, jumped.tick_us) == (-60, moved.tick_us)
    clock.restart(downtime_us=1000)
    restarted = clock.read()
    assert restarted.boot_id != first.boot_id
    assert restarted.source == first.source
    assert FakeClock(source_number=1).read().source != first.source
    with pytest.raises(ValueError):
        clock.advance(-1)
