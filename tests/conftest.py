"""What every test shares: profiles of hypothesis and the gate of nightly tests.

The limit of one test is `timeout` in pyproject.toml; shortly before it the stacks of all threads are written.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

PROFILE_VARIABLE = "FENCEPOST_TEST_PROFILE"
_SHARED_MACHINE = (HealthCheck.too_slow,)

# No profile has a deadline: on a busy machine the duration of one example says nothing about the code.
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=_SHARED_MACHINE)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=100,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=_SHARED_MACHINE,
)
settings.register_profile(
    "nightly", deadline=None, max_examples=5_000, print_blob=True, suppress_health_check=_SHARED_MACHINE
)


def profile_name() -> str:
    """Returns the profile asked for; first value `ci` where `CI` is set, else `dev`."""
    return os.environ.get(PROFILE_VARIABLE) or ("ci" if os.environ.get("CI") else "dev")


settings.load_profile(profile_name())


def pytest_report_header() -> str:
    """Names the profile in the head of a run."""
    return f"fencepost: test profile {profile_name()} (set {PROFILE_VARIABLE} to dev, ci or nightly)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves nightly tests out of every other run, and says so."""
    if profile_name() == "nightly":
        return
    gate = pytest.mark.skip(reason=f"runs with {PROFILE_VARIABLE}=nightly")
    for item in items:
        if item.get_closest_marker("nightly") is not None:
            item.add_marker(gate)
