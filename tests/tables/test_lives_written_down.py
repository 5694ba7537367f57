"""Short lives of scopes, every record, value and index row of them, as text that is reviewed as a diff.

After a wanted change, run this file with FENCEPOST_WRITE_DOWN=1 and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tables.lives import LIVES

WRITTEN = Path(__file__).resolve().parent / "written"
REWRITE = "FENCEPOST_WRITE_DOWN"


@pytest.mark.parametrize("life", LIVES)
def test_a_life_is_what_is_written_down(life: str) -> None:
    world = LIVES[life]()
    world.check()
    file = WRITTEN / f"life_of_{life}.txt"
    told = "\n".join([(LIVES[life].__doc__ or "").strip(), *world.told]) + "\n"
    if os.environ.get(REWRITE):
        file.write_text(told, encoding="utf-8")
    assert told == file.read_text(encoding="utf-8"), f"if that is wanted: {REWRITE}=1"
