"""`order retry` of what has ended: what is paid for is kept, unless somebody asks for a fresh start (W6, W18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import Repo, make_repo

PLAN = """\
[budget]
attempts = 9
calls = 9
[[work]]
name = "a"
budget = { attempts = 1, calls = 3, per_attempt = { calls = 1 } }
outputs = ["state"]
run = ["sh", "page.sh"]
"""
PROGRAM = """\
fencepost attempt resume --optional --to state || exit 9
if test -f state; then exit 0; fi
fencepost attempt charge --receipt "$FENCEPOST_ATTEMPT" --calls 1
echo paid > state
fencepost attempt checkpoint state
exit 3
"""


@pytest.fixture
def failed(tmp_path: Path) -> Repo:
    repo = make_repo(tmp_path)
    repo.write("page.sh", PROGRAM)
    repo.write("plan.toml", PLAN)
    repo.document("run", "plan.toml", code=7)
    assert repo.states() == {"a": "failed"}
    return repo


def test_w6_a_retry_goes_on_from_what_is_paid_for(failed: Repo) -> None:
    said = failed.call("order", "retry", "a").stdout
    assert "from checkpoint 1 on" in said
    [order] = failed.document("run", "plan.toml")["orders"]
    assert (order["state"], order["charged"].get("calls", 0)) == ("applied", 0), "the page was paid by the first one"
    failed.document("order", "files", "a", "--to", str(failed.folder.parent / "out"))
    assert next((failed.folder.parent / "out").rglob("state")).read_text() == "paid\n"


def test_w6_a_retry_from_the_start_does_it_all_again(failed: Repo) -> None:
    [made] = failed.document("order", "retry", "a", "--from-start")["replacements"]
    assert made["checkpoints"] == 0
    [order] = failed.document("run", "plan.toml", code=7)["orders"]
    assert (order["state"], order["charged"]["calls"]) == ("failed", 1)


def test_w18_a_retry_keeps_the_ceiling_that_a_person_has_set(failed: Repo) -> None:
    failed.document("budget", "set", "a", "--attempts", "4", "--calls", "7")
    failed.document("order", "retry", "a")
    shown = failed.call("budget", "show", "a").stdout
    assert [line.split()[1] for line in shown.splitlines() if line.split()[0] in ("attempts", "calls")][-2:] == [
        "4",
        "7",
    ]
