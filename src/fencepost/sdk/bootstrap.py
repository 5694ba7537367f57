"""The first lines of the child process of a callable, run as a script by whichever interpreter the plan names.

That interpreter need not have fencepost installed: the one package is found where this file lies, and nothing else of
the environment that it lies in. Whatever else the callable imports comes from its own interpreter and its workspace.
Processes that the callable starts in the ways of `multiprocessing` run this file again and find the package as well.

An interpreter starts in 10 ms, and a standard library loads in several times that. So this and what it loads take as
little of it as they can, and what few attempts need is loaded by those.
"""

from __future__ import annotations

import gc
import importlib.machinery
import os
import sys

PACKAGE = "fencepost"
LATE = ("hashlib", "math")
"""Modules of the standard library that the package loads when the workspace, whose modules may have any name, is on
the path. They load private ones alone, which are found in the same way."""


class PackageFinder:
    """Finds the package that this file belongs to, before any other of its name, and what that loads late."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._places = list(sys.path)  # without the workspace

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name == PACKAGE:
            return importlib.machinery.PathFinder.find_spec(name, [os.path.dirname(self._folder)])
        if name in LATE or (name.startswith("_") and name in sys.stdlib_module_names):
            return importlib.machinery.PathFinder.find_spec(name, self._places)
        return None


def install() -> None:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.meta_path.insert(0, PackageFinder(folder))


if __name__ in ("__main__", "__mp_main__"):
    install()

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays, and need not be looked at again and again meanwhile
    from fencepost.sdk.host import main

    gc.freeze()
    gc.enable()
    sys.exit(main(sys.argv[1:]))
