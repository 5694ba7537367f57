"""What is told where no home is found: one that lies below, before a new one is proposed.

Whoever stands one folder off and makes a home there has an empty one, in which everything would be done again.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from shlex import quote

from fencepost.app import HOME_NAME, NoHome
from fencepost.core.reasons import REASONS

FOLDERS_LOOKED_AT_MAX = 1_000
DEPTH_MAX = 3
HOMES_SHOWN_MAX = 3


def no_home(start: Path) -> NoHome:
    """The refusal of whatever needs a home in `start`."""
    message = "there is no .fencepost folder here or above"
    below = homes_below(start)
    if not below:
        return NoHome(message, next_step=REASONS["no_home"].next_step)
    shown = [os.path.relpath(home, start) for home in below[:HOMES_SHOWN_MAX]]
    told = f"{message}; {'one lies' if len(below) == 1 else 'some lie'} below: {', '.join(shown)}"
    return NoHome(told, next_step=f"cd {quote(os.path.dirname(shown[0]))}, or add --home {quote(shown[0])}")


def homes_below(start: Path) -> list[Path]:
    """Homes in folders of `start`, the nearest first, as far as a bounded look finds them. Links are not followed."""
    found: list[Path] = []
    queue = deque([(os.fspath(start), 0)])
    looked_at = 0
    while queue and looked_at < FOLDERS_LOOKED_AT_MAX:
        folder, depth = queue.popleft()
        looked_at += 1
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue  # what may not be read holds no home of whoever asks
        if HOME_NAME in names and os.path.isfile(os.path.join(folder, HOME_NAME, "layout")):
            found.append(Path(folder, HOME_NAME))
        if depth < DEPTH_MAX:
            queue.extend((os.path.join(folder, name), depth + 1) for name in names if not name.startswith("."))
    return found
