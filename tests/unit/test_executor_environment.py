"""The environment inside an attempt (product page, "Inside an attempt")."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fencepost.adapters.executors.environment import NAMES_FIRST, attempt_environment

BASE = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C",
    "LC_ALL": "C",
    "LC_TIME": "de_DE",
    "TZ": "Asia/Kathmandu",
    "HOME": "/home/user",
    "TMPDIR": "/var/tmp",
    "SECRET": "s3cret",
    "FENCEPOST_ATTEMPT": "attempt_outer",
    "FENCEPOST_STORE": "sqlite:///x",
}


def built(names: tuple[str, ...], base: dict[str, str]) -> dict[str, str]:
    return attempt_environment(
        names,
        base,
        bin_folder="/opt/fencepost/bin",
        home="/work/home",
        temporary="/work/tmp",
        order="order_1",
        attempt="attempt_1",
        fence=3,
        workspace="/work/tree",
        repository="/repository",
        params_path="/work/params.json",
    )


OURS = {
    "FENCEPOST_WORK_ORDER": "order_1",
    "FENCEPOST_ATTEMPT": "attempt_1",
    "FENCEPOST_FENCE": "3",
    "FENCEPOST_WORKSPACE": "/work/tree",
    "FENCEPOST_REPO": "/repository",
    "FENCEPOST_PARAMS": "/work/params.json",
}


def test_first_value_of_the_names() -> None:
    assert built(NAMES_FIRST, BASE) == OURS | {
        "PATH": "/opt/fencepost/bin:/usr/bin:/bin",
        "LANG": "C",
        "LC_ALL": "C",
        "LC_TIME": "de_DE",
        "TZ": "Asia/Kathmandu",
        "HOME": "/work/home",
        "TMPDIR": "/work/tmp",
    }


def test_named_home_and_tmpdir_are_the_users() -> None:
    made = built(("HOME", "TMPDIR", "SECRET", "ABSENT"), BASE)
    assert (made["HOME"], made["TMPDIR"], made["SECRET"]) == ("/home/user", "/var/tmp", "s3cret")
    assert made["PATH"] == "/opt/fencepost/bin" + os.pathsep + os.defpath
    assert "ABSENT" not in made
    assert "LANG" not in made


@pytest.mark.parametrize("name", ["FENCEPOST_STORE", "FENCEPOST_ATTEMPT", "FENCEPOST_*", "*"])
def test_our_own_names_are_never_passed_on(name: str) -> None:
    made = built((name,), BASE)
    assert {key: value for key, value in made.items() if key.startswith("FENCEPOST_")} == OURS


def test_windows_is_refused_with_a_clear_error() -> None:
    script = (
        "import sys, fencepost.ports.executor as port\n"
        "sys.platform = 'win32'\n"
        "try:\n    import fencepost.adapters.executors\n"
        "except port.UnsupportedPlatform as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Windows" in done.stdout
