"""What a program printed while its disk was full is not said never to have been printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import CLI, WAIT_S, make_repo
from tests.surfaces.rights import can_mount, unshared

PLAN = """\
[budget]
attempts = 1
[[work]]
name = "a"
inputs = ["plan.toml"]
run = ["sh", "-c", '''
cat /dev/zero > filler 2> /dev/null
echo "this went nowhere" >&2
sleep 0.3
rm filler
echo done
exit 3
''']
"""


def test_what_a_full_disk_did_not_take_is_told(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("needs a mount namespace, which this system does not give")
    repo = make_repo(tmp_path)
    repo.write("plan.toml", PLAN)
    home = repo.folder / ".fencepost"
    home.mkdir()
    fencepost = " ".join(CLI)
    script = f"""
mount -t tmpfs -o size=24m tmpfs {home} && cd {repo.folder} || exit 99
{fencepost} run plan.toml > /dev/null
{fencepost} order log a
"""
    done = subprocess.run(
        [*unshared(), "sh", "-c", script],
        env=repo.environment() | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "stderr: 18 bytes were printed, and none could be kept" in done.stderr
    assert "nothing was printed" not in done.stderr.partition("stderr:")[2]
