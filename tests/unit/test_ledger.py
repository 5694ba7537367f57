"""W24: signed checkpoints outside the store, and what happens to them."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.adapters.ledger import FileLedger, kept_positions, ledger_places
from fencepost.core.anchor import (
    CHECKPOINT_PAYLOAD_TYPE,
    AnchorMalformed,
    Checkpoint,
    key_id,
    pre_authentication_encoding,
    seal,
    unseal,
)
from fencepost.core.canonical import encode
from fencepost.ports.authority import CHECKPOINT_SIGNER
from fencepost.ports.errors import StorageFull, StorageUnavailable
from fencepost.ports.ledger import LedgerDamaged, SafetyLedger
from fencepost.testing.fakes import MemoryKeyring, MemoryLedger

KEYRING = MemoryKeyring()
PUBLIC_KEY = KEYRING.public_key(CHECKPOINT_SIGNER)


def checkpoint(sequence: int, *, scope: str = "default", stream: str = "main", epoch: int = 0) -> Checkpoint:
    return Checkpoint(
        store_id="store_1",
        scope=scope,
        stream=stream,
        epoch=epoch,
        sequence=sequence,
        digest="sha256:" + f"{sequence:064x}",
        signed_utc_us=1_750_000_000_000_000,
    )


def sealed(entry: Checkpoint, keyring: MemoryKeyring = KEYRING) -> bytes:
    return seal(
        entry,
        sign=lambda message: keyring.sign(CHECKPOINT_SIGNER, message),
        public_key=keyring.public_key(CHECKPOINT_SIGNER),
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger"


@pytest.fixture
def ledger(place: Path) -> FileLedger:
    return FileLedger((place,), KEYRING)


def lines_of(place: Path) -> Path:
    return place / "checkpoints.ndjson"


# --- the envelope ---


def test_the_pre_authentication_encoding_is_that_of_dsse() -> None:
    # The example of the protocol's own text.
    assert (
        pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    # Lengths are bytes, not characters.
    assert pre_authentication_encoding("é", "ü".encode()) == b"DSSEv1 2 \xc3\xa9 2 \xc3\xbc"
    assert pre_authentication_encoding("", b"") == b"DSSEv1 0  0 "


def test_an_envelope_can_be_checked_with_nothing_of_ours() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    envelope = json.loads(sealed(checkpoint(7)))
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    message = b"DSSEv1 " + b" ".join([str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
    (signature,) = envelope["signatures"]
    Ed25519PublicKey.from_public_bytes(PUBLIC_KEY).verify(base64.b64decode(signature["sig"]), message)
    assert signature["keyid"] == key_id(PUBLIC_KEY)
    assert json.loads(payload)["sequence"] == 7
    assert envelope["payloadType"] == CHECKPOINT_PAYLOAD_TYPE


def reworked(change: Callable[[dict[str, Any]], object]) -> bytes:
    envelope = json.loads(sealed(checkpoint(7)))
    change(envelope)
    return json.dumps(envelope).encode()


def payload_of(**changes: object) -> str:
    document = {**json.loads(encode(checkpoint(7))), **changes}
    return base64.standard_b64encode(json.dumps(document, separators=(",", ":"), sort_keys=True).encode()).decode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\x00" * 40,
        b"[" * 5000,
        b"x" * 9000,
        sealed(checkpoint(7))[:-1],
        sealed(checkpoint(7)) + b"\n",
        reworked(lambda envelope: envelope.update(payloadType="text/plain")),
        reworked(lambda envelope: envelope.update(payload="no base64!")),
        reworked(lambda envelope: envelope.update(payload=payload_of(extra=1))),
        reworked(lambda envelope: envelope.update(payload=payload_of(sequence=-1))),
        reworked(lambda envelope: envelope.update(payload=payload_of(sequence=True))),
        reworked(lambda envelope: envelope.update(payload=payload_of(sequence=7.0))),
        reworked(lambda envelope: envelope.update(signatures=[])),
        reworked(lambda envelope: envelope.update(signatures=envelope["signatures"] * 2)),
        reworked(lambda envelope: envelope.update(more=1)),
    ],
)
def test_what_is_no_sealed_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(AnchorMalformed):
        unseal(data)


def test_a_checkpoint_too_large_to_be_read_is_not_sealed() -> None:
    with pytest.raises(ValueError):
        sealed(checkpoint(7, scope="x" * 7000))


# --- the port, by every implementation ---


@pytest.fixture(params=["file", "memory"])
def any_ledger(request: pytest.FixtureRequest, place: Path) -> SafetyLedger:
    return MemoryLedger(KEYRING) if request.param == "memory" else FileLedger((place,), KEYRING)


def test_w24_what_was_appended_is_there_in_order(any_ledger: SafetyLedger) -> None:
    entries = [checkpoint(1), checkpoint(5, scope="other"), checkpoint(9), checkpoint(3, stream="plan_1")]
    assert any_ledger.all() == ()
    assert any_ledger.verify(PUBLIC_KEY).checkpoints == 0
    for entry in entries:
        any_ledger.append(entry)
    assert any_ledger.all() == tuple(entries)
    assert any_ledger.all(scope="default") == (entries[0], entries[2], entries[3])
    assert any_ledger.all(scope="default", stream="main") == (entries[0], entries[2])
    verdict = any_ledger.verify(PUBLIC_KEY)
    assert (verdict.ok, verdict.checkpoints) == (True, 4)


def test_w24_the_latest_has_the_greatest_epoch_and_sequence(any_ledger: SafetyLedger) -> None:
    assert any_ledger.latest(scope="default", stream="main") is None
    for entry in (checkpoint(9), checkpoint(2, epoch=1), checkpoint(1, epoch=1), checkpoint(50)):
        any_ledger.append(entry)
    assert any_ledger.latest(scope="default", stream="main") == checkpoint(2, epoch=1)
    assert any_ledger.latest(scope="default", stream="other") is None


def test_w24_another_key_is_not_believed(any_ledger: SafetyLedger) -> None:
    any_ledger.append(checkpoint(1))
    verdict = any_ledger.verify(MemoryKeyring(2).public_key(CHECKPOINT_SIGNER))
    assert (verdict.ok, verdict.checkpoints) == (False, 0)


# --- files ---


def test_w24_a_torn_end_is_passed_over_and_cut_by_the_next_append(ledger: FileLedger, place: Path) -> None:
    ledger.append(checkpoint(1))
    whole = lines_of(place).read_bytes()
    line = sealed(checkpoint(2)) + b"\n"
    for cut in (*range(1, len(line), 37), len(line) - 1):
        lines_of(place).write_bytes(whole + line[:cut])
        assert ledger.all() == (checkpoint(1),)
        assert ledger.verify(PUBLIC_KEY).ok
    lines_of(place).write_bytes(whole + b"\x00" * 200_000)
    ledger.append(checkpoint(3))
    assert lines_of(place).read_bytes() == whole + sealed(checkpoint(3)) + b"\n"
    lines_of(place).write_bytes(line[:50])
    ledger.append(checkpoint(4))
    assert ledger.all() == (checkpoint(4),)


def test_w24_any_flipped_bit_is_seen(ledger: FileLedger, place: Path) -> None:
    for sequence in (1, 2, 3):
        ledger.append(checkpoint(sequence))
    good = lines_of(place).read_bytes()
    for at in range(0, len(good), 11):
        bad = bytearray(good)
        bad[at] ^= 1
        lines_of(place).write_bytes(bytes(bad))
        assert not ledger.verify(PUBLIC_KEY).ok or bad[-1:] != b"\n", at


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\x00" * 10, b'{"payload":"e30="}'])
def test_w24_a_damaged_middle_is_an_error_of_every_read(ledger: FileLedger, place: Path, damage: bytes) -> None:
    for sequence in (1, 2, 3):
        ledger.append(checkpoint(sequence))
    lines = lines_of(place).read_bytes().split(b"\n")
    lines[1] = damage
    lines_of(place).write_bytes(b"\n".join(lines))
    with pytest.raises(LedgerDamaged):
        ledger.all()
    with pytest.raises(LedgerDamaged):
        ledger.latest(scope="default", stream="main")
    verdict = ledger.verify(PUBLIC_KEY)
    assert verdict.first_bad is not None and ":2: " in verdict.first_bad


def test_w24_a_forged_line_is_named(ledger: FileLedger, place: Path) -> None:
    ledger.append(checkpoint(1))
    genuine = json.loads(sealed(checkpoint(2)))
    other_key = sealed(checkpoint(2), MemoryKeyring(2))
    borrowed = {**genuine, "payload": base64.b64encode(encode(checkpoint(99))).decode()}
    named = json.loads(other_key)
    named["signatures"][0]["keyid"] = key_id(PUBLIC_KEY)
    for forged, why in (
        (other_key, "another key"),
        (json.dumps(borrowed).encode(), "not genuine"),
        (json.dumps(named).encode(), "not genuine"),
    ):
        whole = lines_of(place).read_bytes()
        with lines_of(place).open("ab") as stream:
            stream.write(forged + b"\n")
        verdict = ledger.verify(PUBLIC_KEY)
        assert (verdict.ok, verdict.checkpoints) == (False, 1)
        assert verdict.first_bad is not None and ":2: " in verdict.first_bad and why in verdict.first_bad
        lines_of(place).write_bytes(whole)


_APPEND = """
import sys
from pathlib import Path
from fencepost.adapters.ledger import FileLedger
from fencepost.core.anchor import Checkpoint
from fencepost.testing.fakes import MemoryKeyring
place, bytes_min = Path(sys.argv[1]), int(sys.argv[3])
ledger = FileLedger((place,), MemoryKeyring(), thinning_bytes_min=bytes_min, recent_kept=10)
sys.stdin.readline()
for number in range(1, int(sys.argv[2]) + 1):
    ledger.append(Checkpoint(store_id="store_1", scope=sys.argv[4], stream="main", epoch=0, sequence=number,
        digest="sha256:" + f"{number:064x}", signed_utc_us=1))
"""


def appenders(place: Path, *, appends: int, thinning_bytes_min: int, count: int) -> list[subprocess.Popen[bytes]]:
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                _APPEND,
                str(place),
                str(appends),
                str(thinning_bytes_min),
                f"s-{number}",
            ],
            env={"PYTHONPATH": ":".join(sys.path)},
            stdin=subprocess.PIPE,
        )
        for number in range(count)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    return processes


def test_several_processes_append_without_losing_a_line(ledger: FileLedger, place: Path) -> None:
    processes = appenders(place, appends=60, thinning_bytes_min=10**9, count=3)
    assert [process.wait(timeout=30) for process in processes] == [0, 0, 0]
    assert ledger.verify(PUBLIC_KEY).checkpoints == 180
    for number in range(3):
        sequences = [entry.sequence for entry in ledger.all(scope=f"s-{number}")]
        assert sequences == list(range(1, 61))


def test_several_processes_thin_out_without_losing_a_recent_line(ledger: FileLedger, place: Path) -> None:
    processes = appenders(place, appends=150, thinning_bytes_min=4_000, count=3)
    assert [process.wait(timeout=30) for process in processes] == [0, 0, 0]
    assert ledger.verify(PUBLIC_KEY).checkpoints < 450
    for number in range(3):
        sequences = [entry.sequence for entry in ledger.all(scope=f"s-{number}")]
        assert sequences[0] == 1
        assert sequences[-10:] == list(range(141, 151))


def touched_ns(place: Path) -> int:
    return lines_of(place).stat().st_mtime_ns if lines_of(place).exists() else 0


def test_kill_at_any_moment_leaves_a_ledger_that_goes_on(ledger: FileLedger, place: Path) -> None:
    for round_number in range(6):
        processes = appenders(place, appends=100_000, thinning_bytes_min=20_000, count=2)
        known = touched_ns(place)
        limit_s = time.monotonic() + 20
        while touched_ns(place) == known and time.monotonic() < limit_s:
            time.sleep(0.002)
        time.sleep(0.017 * round_number)
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
        assert ledger.verify(PUBLIC_KEY).ok
    ledger.append(checkpoint(1))
    assert ledger.verify(PUBLIC_KEY).ok
    assert ledger.latest(scope="default", stream="main") == checkpoint(1)
    assert ledger.latest(scope="s-0", stream="main") is not None


def test_growth_is_bounded_and_first_and_recent_ones_stay(place: Path) -> None:
    ledger = FileLedger((place,), KEYRING, thinning_bytes_min=20_000, recent_kept=10)
    for number in range(400):
        ledger.append(checkpoint(number * 10))
    kept = [entry.sequence for entry in ledger.all()]
    assert kept[0] == 0
    assert kept[-10:] == [number * 10 for number in range(390, 400)]
    assert kept == sorted(kept)
    assert len(kept) < 200
    assert ledger.verify(PUBLIC_KEY).ok


def test_a_damaged_ledger_is_not_thinned_out(place: Path) -> None:
    ledger = FileLedger((place,), KEYRING, thinning_bytes_min=1000, recent_kept=1)
    ledger.append(checkpoint(1))
    with lines_of(place).open("ab") as stream:
        stream.write(b"garbage\n" * 200)
    with pytest.raises(LedgerDamaged):
        ledger.append(checkpoint(2))
    assert b"garbage\n" * 200 in lines_of(place).read_bytes()


@given(
    st.lists(st.integers(0, 2**53 - 1), max_size=400),
    st.integers(0, 20),
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3),
)
def test_thinning_keeps_the_first_the_last_and_a_bounded_rest(
    sequences: list[int], recent_kept: int, scopes: list[str]
) -> None:
    entries = [checkpoint(sequence, scope=scopes[at % len(scopes)]) for at, sequence in enumerate(sequences)]
    kept = kept_positions(entries, recent_kept=recent_kept)
    assert kept == sorted(set(kept))
    for scope in set(scopes):
        chain = [at for at, entry in enumerate(entries) if entry.scope == scope]
        chosen = [at for at in kept if entries[at].scope == scope]
        assert len(chosen) <= recent_kept + 410
        if chain:
            assert chosen[0] == chain[0]
            assert chosen[len(chosen) - min(recent_kept, len(chain)) :] == (chain[-recent_kept:] if recent_kept else [])


def test_thinning_again_and_again_stays_bounded() -> None:
    entries: list[Checkpoint] = []
    for number in range(3000):
        entries.append(checkpoint(number * 7))
        if number % 50 == 0:
            entries = [entries[at] for at in kept_positions(entries, recent_kept=20)]
    assert entries[0].sequence == 0
    assert len(entries) < 200
    # No gap is wider than about a quarter of its own age.
    newest = entries[-1].sequence
    for older, newer in itertools.pairwise(entries):
        assert newer.sequence - older.sequence <= max((newest - older.sequence) // 4, 50 * 7)


# --- places ---


def test_places_follow_the_environment(tmp_path: Path) -> None:
    home = tmp_path / "project" / ".fencepost"
    user = tmp_path / "user"
    beside = tmp_path / "project" / ".fencepost.ledger" / "store_1"
    states = {
        "/state": (Path("/state/fencepost/store_1/ledger"), beside),
        "relative": (user / ".local/state/fencepost/store_1/ledger", beside),
        "": (user / ".local/state/fencepost/store_1/ledger", beside),
    }
    for value, expected in states.items():
        environment = {"XDG_STATE_HOME": value}
        assert ledger_places(store_id="store_1", home=home, environment=environment, user_home=user) == expected
    assert ledger_places(store_id="store_1", home=home, environment={}, user_home=None) == (beside,)


def test_a_state_folder_that_cannot_be_written_falls_back_beside_the_home(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder is needed")
    places = ledger_places(
        store_id="store_1",
        home=tmp_path / "project" / ".fencepost",
        environment={"XDG_STATE_HOME": str(tmp_path / "state")},
        user_home=None,
    )
    ledger = FileLedger(places, KEYRING)
    ledger.append(checkpoint(1))
    beside = tmp_path / "project" / ".fencepost.ledger"
    assert ledger.where() == beside / "store_1"
    assert (beside / ".gitignore").read_text() == "*\n"
    assert ledger.all() == (checkpoint(1),)


_READ_ONLY = """
import os, sys
from pathlib import Path
from fencepost.adapters.ledger import FileLedger
from fencepost.core.anchor import Checkpoint
from fencepost.testing.fakes import MemoryKeyring
first, second = Path(sys.argv[1]), Path(sys.argv[2])
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
ledger = FileLedger((first, second), MemoryKeyring())
ledger.append(Checkpoint(store_id="store_1", scope="default", stream="main", epoch=0, sequence=1,
    digest="sha256:" + "0" * 64, signed_utc_us=1))
print(ledger.where(), len(ledger.all()))
"""


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_read_only_home_folder_falls_back(mode: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o755)
        user_home, project = root / "user", root / "project"
        user_home.mkdir()
        project.mkdir()
        project.chmod(0o777)
        user_home.chmod(mode)
        run = subprocess.run(
            [sys.executable, "-c", _READ_ONLY, str(user_home / "state" / "ledger"), str(project / "ledger")],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        user_home.chmod(0o755)
        assert (run.stdout, run.stderr) == (f"{project / 'ledger'} 1\n", "")


def test_both_places_are_read_when_the_better_one_comes_back(tmp_path: Path) -> None:
    better, worse = tmp_path / "better", tmp_path / "worse"
    FileLedger((worse,), KEYRING).append(checkpoint(9))
    both = FileLedger((better, worse), KEYRING)
    both.append(checkpoint(4))
    assert both.where() == better
    assert both.latest(scope="default", stream="main") == checkpoint(9)
    assert both.verify(PUBLIC_KEY).checkpoints == 2


def test_no_place_at_all_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = FileLedger((tmp_path / "file" / "ledger",), KEYRING)
    assert ledger.all() == ()
    with pytest.raises(StorageUnavailable) as caught:
        ledger.append(checkpoint(1))
    assert caught.value.next_step is not None


_FULL = """
import resource, sys
from pathlib import Path
from fencepost.adapters.ledger import FileLedger
from fencepost.core.anchor import Checkpoint
from fencepost.ports.errors import StorageFull
from fencepost.testing.fakes import MemoryKeyring
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
ledger = FileLedger((Path(sys.argv[1]),), MemoryKeyring())
kept = 0
try:
    while True:
        ledger.append(Checkpoint(store_id="store_1", scope="default", stream="main", epoch=0, sequence=kept,
            digest="sha256:" + "0" * 64, signed_utc_us=1))
        kept += 1
except StorageFull:
    print(kept, len(ledger.all()), ledger.verify(MemoryKeyring().public_key("checkpoint")).ok)
"""


def test_a_full_disk_is_a_clean_error_and_leaves_nothing(ledger: FileLedger, place: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FULL, str(place)],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, seen, ok = run.stdout.split()
    assert (int(kept) > 0, kept == seen, ok) == (True, True, "True")
    assert lines_of(place).read_bytes().endswith(b"\n")
    ledger.append(checkpoint(99))
    assert ledger.verify(PUBLIC_KEY).checkpoints == int(kept) + 1


def test_an_append_that_fails_to_sync_is_taken_back(
    ledger: FileLedger, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(checkpoint(1))
    before = lines_of(place).read_bytes()

    def failing(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(StorageFull):
            ledger.append(checkpoint(2))
    assert lines_of(place).read_bytes() == before


def test_files_are_closed_to_others(ledger: FileLedger, place: Path) -> None:
    ledger.append(checkpoint(1))
    assert place.stat().st_mode & 0o077 == 0
    assert lines_of(place).stat().st_mode & 0o077 == 0


def test_a_ledger_without_a_place_is_a_mistake_of_the_program() -> None:
    with pytest.raises(ValueError):
        FileLedger((), KEYRING)


def test_two_homes_of_one_store_are_named_and_a_moved_one_is_not(tmp_path: Path) -> None:
    places = (tmp_path / "ledger",)
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    ledgers = [FileLedger(places, KEYRING, home=home) for home in (first, second)]
    scope = checkpoint(1).scope
    assert not ledgers[0].has_signed(scope)
    ledgers[0].append(checkpoint(1))
    assert ledgers[0].has_signed(scope) and not ledgers[1].has_signed(scope)
    assert ledgers[0].other_homes() == ledgers[1].other_homes()[1:] == ()
    assert ledgers[1].other_homes() == (first,)
    ledgers[1].append(checkpoint(2))
    ledgers[1].append(checkpoint(3))
    assert ledgers[0].other_homes() == (second,)
    second.rename(tmp_path / "c")
    assert ledgers[0].other_homes() == ()
    assert len((places[0] / "homes").read_bytes().splitlines()) == 2
