"""The first lines of the child process of a callable, run as a script by whichever interpreter the plan names.

That interpreter need not have fencepost installed: the one package is found where this file lies, and nothing else of
the environment that it lies in. Whatever else the callable imports comes from its own interpreter and its workspace.
Processes that the callable starts in the ways of `multiprocessing` run this file again and find the package as well.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

PACKAGE = "fencepost"


class PackageFinder:
    """Finds the package that this file belongs to, before any other of its name."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != PACKAGE:
            return None
        start = os.path.join(self._folder, "__init__.py")
        return importlib.util.spec_from_file_location(name, start, submodule_search_locations=[self._folder])


def install() -> None:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.meta_path.insert(0, PackageFinder(folder))


if __name__ in ("__main__", "__mp_main__"):
    install()

if __name__ == "__main__":
    from fencepost.sdk.host import main

    sys.exit(main(sys.argv[1:]))
