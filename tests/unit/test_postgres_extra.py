"""The extra `postgres`: what it names is what is tested, and all else runs without it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def test_the_extra_names_what_tests_run_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (named,) = (Requirement(line) for line in project["optional-dependencies"]["postgres"])
    assert (named.name, named.extras) == ("psycopg", {"binary"})
    pins = dict(
        re.findall(r"^(psycopg[a-z-]*)==(\S+)", (ROOT / "requirements/dev.txt").read_text("utf-8"), re.MULTILINE)
    )
    assert pins.keys() == {"psycopg", "psycopg-binary"} and len({*pins.values()}) == 1
    assert named.specifier.contains(pins["psycopg"])
    assert "psycopg" not in (ROOT / "requirements/run.txt").read_text("utf-8")


def test_without_the_driver_it_says_which_extra_is_missing() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fencepost.ports.errors import StorageUnavailable\n"
        "from fencepost.storage import postgres\n"
        "for call in (lambda url: postgres.open(url), lambda url: postgres.create(url, '0' * 32)):\n"
        "    try: call('postgresql:///x')\n"
        "    except StorageUnavailable as error: print(error.next_step)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["pip install 'fencepost[postgres]'"] * 2


def test_the_rest_of_the_program_does_not_load_the_driver() -> None:
    program = (
        "import sys, fencepost.__main__, fencepost.app, fencepost.storage.postgres; print('psycopg' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"
