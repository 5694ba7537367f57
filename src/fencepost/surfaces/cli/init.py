"""`fencepost init`: make a home, and say what was made. Repeated, it completes what is missing and says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

from cyclopts import App

from fencepost.app import find_home, home_for, make_home
from fencepost.core.state import AuthorityState
from fencepost.surfaces.cli.context import (
    NO_GLOBALS,
    CommandError,
    Globals,
    emit,
    home_of,
    opened_home,
    recorded_is,
    say,
)

app = App(name="init", help="Make a home here: .fencepost with store, keys, constitution and folders. Idempotent.")


@app.default
def init(*, options: Globals = NO_GLOBALS) -> None:
    config = options.config()
    start = Path.cwd()
    home = home_of(config, start) or home_for(start)
    fresh = make_home(home)
    with opened_home(home, config, create=True, another=True) as opened:
        with opened.kernel.reader.look() as look:
            authority = look.authority()
            sequence = look.head.seq
        if not isinstance(authority, AuthorityState):
            raise CommandError("scope_not_open", f"scope {config.scope} has no constitution")
        opened.keys.check()
        recorded_is("the home is there all the same")
        document = {
            "home": str(home),
            "fresh": fresh,
            "scope": config.scope,
            "store": opened.kernel.journal.info.store_id,
            "constitution": {"version": authority.constitution_version, "digest": authority.constitution},
            "principals": sorted(known.name for known in authority.principals.values()),
            "repository": "none",
            "sequence": sequence,
        }

    def human(out: TextIO) -> None:
        out.write(f"{'made' if fresh else 'found'} {home}\n")
        out.write(f"  store         store.db ({document['store']})\n")
        out.write(f"  scope         {config.scope}\n")
        out.write(f"  constitution  version {authority.constitution_version}, {authority.constitution}\n")
        out.write(f"  principals    {len(authority.principals)}, each with a key in keys/\n")
        out.write("  repository    baseline none: no commit is accepted yet\n")

    emit(options, document, human)


def ensure_home(home: Path | None, start: Path) -> Path:
    """A home to work in: the one there is, completed, or a new one, said in one line."""
    if home is not None and (home / "layout").is_file():
        return home
    home = home or home_for(start)
    other = find_home(start)
    if make_home(home):
        beside = f"; it knows nothing of the plans in {_shown(other)}" if other is not None else ""
        say(f"made {_shown(home)}{beside}")
    return home


def _shown(home: Path) -> str:
    return os.path.relpath(home) if home.is_relative_to(Path.cwd()) else str(home)
