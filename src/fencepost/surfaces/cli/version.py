"""`fencepost version`."""

from __future__ import annotations

import platform
import sys
from typing import Annotated

from cyclopts import App, Parameter

from fencepost._version import __version__
from fencepost.core.records.envelope import FORMAT
from fencepost.surfaces.cli.context import NO_GLOBALS, Globals, emit

app = App(name="version", help="Print the version.")


@app.default
def version(
    *,
    plain: Annotated[bool, Parameter(help="The version alone.", negative="", show=False)] = False,
    options: Globals = NO_GLOBALS,
) -> None:
    document = {
        "version": __version__,
        "journal_format": FORMAT,
        "python": platform.python_version(),
        "platform": sys.platform,
    }
    emit(options, document, lambda out: print(f"fencepost {__version__}", file=out))
