"""W21: the same records give the same projections and the same readiness at every prefix, wherever they are folded.

Journals of random lives, of simulated and of real runs are folded from nothing in other processes: under other seeds of
hashing, time zones, languages and Pythons. What they print must be, byte for byte, what this process finds. Kept
journals also have the digests that the code gave them when they were made, so that no change of fold or format goes
unseen.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from fencepost.core.state import Value, decode_value, encode_value
from fencepost.kernel import replay
from fencepost.kernel.read import Reader
from fencepost.testing import prefixes as tool
from fencepost.testing.refill import Refill, first_difference
from tests.fixtures.lives import Lives
from tests.fixtures.renew import JOURNALS, MAKERS, kept_end
from tests.fixtures.runs import real_run
from tests.simulation.elsewhere import OTHER, PLACES, VERSIONS, NotHere, Place, bare_python, pin_of
from tests.simulation.replays import (
    EVERY,
    KEPT,
    STREAM,
    end_of,
    folder_of,
    found_here,
    kept,
    opened,
    parting,
    python_of,
    refilled,
    run_tests_own,
    run_tool,
    simulated,
    variables_at,
    written,
)

SIMULATED = 4  # seeds of every run; nightly runs have more
RENEW = "if that was meant: python -m tests.fixtures.renew"
FAR = Place(seed="random", zone="Asia/Kathmandu", language="C")
HERE = Place(seed="0", zone="UTC", language="C.UTF-8")


# Kept journals


@pytest.mark.parametrize("name", KEPT)
def test_w21_a_kept_journal_still_gives_its_kept_digests(name: str) -> None:
    assert end_of(found_here(kept(name))) == kept_end(name), RENEW


def test_every_journal_that_can_be_made_is_kept_and_told_about() -> None:
    assert set(MAKERS) <= set(KEPT)
    assert {path.stem for path in JOURNALS.glob("*.json")} == set(KEPT)


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("name", KEPT)
def test_w21_every_prefix_is_the_same_in_another_place(name: str, place: Place, pytestconfig: pytest.Config) -> None:
    found = run_tool(Path(sys.executable), variables_at(place, pytestconfig), kept(name))
    assert not parting(found_here(kept(name)), found)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_w21_every_prefix_is_the_same_under_another_python(
    version: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A Python with msgspec alone; the second run of each journal puts it into an empty store besides."""
    python = python_of(version, pytestconfig)
    for journal in (*map(kept, KEPT), written(tmp_path / "simulated.jsonl", simulated(SIMULATED))):
        for place, more in ((HERE, ()), (FAR, ("--into", "memory"))):
            found = run_tool(python, variables_at(place, pytestconfig), journal, *more)
            assert not parting(found_here(journal), found), f"{journal.name} under Python {version} at {place}"


def test_the_other_places_are_other(pytestconfig: pytest.Config) -> None:
    """Otherwise the tests above would show nothing."""
    code = (
        "import locale, time; locale.setlocale(locale.LC_ALL, '');"
        "print(hash('fencepost'), time.timezone, f'{1234567:n}', sep='|')"
    )
    seen = []
    for place in PLACES:
        variables = variables_at(place, pytestconfig)
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
        seen.append((place, done.stdout.strip().split("|")))
    hashes = {place.seed: words[0] for place, words in seen}
    zones = {place.zone: words[1] for place, words in seen}
    numbers = {place.language: words[2] for place, words in seen}
    assert len({hashes["0"], hashes["1"]}) == 2
    assert zones == {"UTC": "0", "Asia/Kathmandu": "-20700", "America/St_Johns": "12600"}
    assert numbers["C"] == numbers["C.UTF-8"] != numbers[OTHER]


def test_other_pythons_get_what_users_get() -> None:
    assert pin_of("msgspec").count("--hash=sha256:") > 1
    assert pin_of("msgspec").startswith(f"msgspec=={msgspec.__version__} ")


# Simulated journals


@pytest.mark.parametrize("seed", range(SIMULATED))
def test_w21_every_prefix_of_a_simulated_journal_is_the_same_in_another_place(
    seed: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    journal = written(tmp_path / "simulated.jsonl", simulated(seed))
    for place, more in ((PLACES[seed % 9], ()), (PLACES[(seed + 5) % 9], ("--into", "memory"))):
        found = run_tool(Path(sys.executable), variables_at(place, pytestconfig), journal, *more)
        assert not parting(found_here(journal), found), str(place)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", VERSIONS)
def test_w21_many_journals_are_the_same_under_another_python(
    version: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    python = python_of(version, pytestconfig)
    for number in range(100):
        made = Lives(number).run(1_000) if number % 4 == 0 else simulated(1_000 + number)
        journal = written(tmp_path / f"{number}.jsonl", made)
        place = PLACES[number % 9]
        found = run_tool(python, variables_at(place, pytestconfig), journal)
        assert not parting(found_here(journal), found), f"{number} at {place}"


# A journal is decided the same everywhere, too


@pytest.mark.parametrize("place", [PLACES[2], PLACES[4], PLACES[7]], ids=str)
def test_w21_the_same_commands_give_the_same_journal_in_another_place(
    place: Place, pytestconfig: pytest.Config
) -> None:
    command = [sys.executable, "-m", "tests.fixtures.lives", "5", "400"]
    lives = Lives(5)
    journal = lives.run(400)
    assert run_tests_own(command, place, pytestconfig) == journal
    *_, last = tool.prefixes(journal.splitlines())
    compared = lives.kernel.compare()
    assert compared.match and last.whole and compared.projection_digest == last.whole.projections


_SIMULATE = """
import hashlib
from tests.simulation.replays import simulated
print(*[hashlib.sha256(simulated(seed)).hexdigest() for seed in range(3)])
"""


def test_w21_the_same_seed_gives_the_same_simulated_journal_in_another_place(
    pytestconfig: pytest.Config,
) -> None:
    here = [hashlib.sha256(simulated(seed)).hexdigest() for seed in range(3)]
    command = [sys.executable, "-c", _SIMULATE]
    assert run_tests_own(command, PLACES[5], pytestconfig).decode().split() == here


# A real run


@pytest.mark.slow
def test_w21_a_real_run_replays_the_same_elsewhere_and_from_an_empty_database(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    repo = real_run(tmp_path / "run")
    journal = tmp_path / "run.jsonl"
    repo.document("journal", "export", str(journal))
    replayed = repo.document("journal", "replay")
    anchor = repo.document("journal", "verify")["anchor"]
    assert replayed["match"]
    here = found_here(journal)
    end = end_of(here)
    assert (end.seq, end.whole and end.whole.projections) == (replayed["sequence"], replayed["projection_digest"])

    places = [PLACES[1], PLACES[5], PLACES[6]]
    for place in places:
        store = tmp_path / f"store-{place.seed}"
        variables = variables_at(place, pytestconfig)
        found = run_tool(Path(sys.executable), variables, journal, "--anchor", anchor, "--into", str(store))
        assert not parting(here, found), str(place)
        home = repo.folder / ".fencepost"
        with opened(home) as ours, opened(store) as theirs:
            assert ours.info.store_id == theirs.info.store_id
            assert not first_difference(ours, theirs, STREAM)
    for version in VERSIONS:
        try:
            python = bare_python(version, folder_of(pytestconfig))
        except NotHere:
            continue  # the test of kept journals says so
        found = run_tool(python, variables_at(FAR, pytestconfig), journal)
        assert not parting(here, found), f"Python {version}"


@pytest.mark.parametrize("middle", [25, 77])
def test_w21_a_prefix_in_the_middle_is_what_journal_replay_folds(tmp_path: Path, middle: int) -> None:
    """The kept run, put into a store and asked through the store: one more way to the same digest."""
    refilled(tmp_path / "store")
    with tool.open_journal(kept("real-run")) as file:
        found = list(tool.prefixes(islice(tool.read_lines(file), middle)))
    with opened(tmp_path / "store") as journal, journal.snapshot() as reads:
        whole = found[-1].whole
        assert whole and whole.projections == replay.fold(reads, STREAM, middle).digest()


class ReadingBack(tool.Prefixes):
    """A fold that reads every state from its bytes before it goes on, as a process does that has just begun."""

    def put(self, subject: str, value: Value) -> None:
        super().put(subject, decode_value(encode_value(value)))


@pytest.mark.parametrize("name", KEPT)
def test_w21_states_that_were_read_back_lead_to_the_same(name: str) -> None:
    with tool.open_journal(kept(name)) as file:
        found = tool.prefixes(tool.read_lines(file), every=EVERY, fold=ReadingBack(readiness=True))
        assert not parting(found_here(kept(name)), b"".join(msgspec.json.encode(each) + b"\n" for each in found))


@pytest.mark.parametrize("name", KEPT)
def test_w15_the_queue_at_every_prefix_is_what_a_scheduler_is_shown(name: str) -> None:
    """The head of the queue that the digests cover, beside the store's own answer after each record."""
    fold = tool.Prefixes()
    refill = Refill("memory", fold)
    shown = 0
    with tool.open_journal(kept(name)) as file:
        for line in islice(tool.read_lines(file), 700):
            fold.add(line)
            refill.add(line)
            refill.flush()
            wanted = fold.ready()
            if wanted is not None:
                with Reader(refill.journal, STREAM).look() as look:
                    assert look.ready(wanted.as_of_event, wanted.sequence, tool.READY_MAX) == wanted
                shown += bool(wanted.orders)
    assert shown > 20
