"""The command `fencepost`. What needs nothing (`version`) is answered before anything else is loaded."""

from __future__ import annotations

import gc
import os
import sys

from fencepost._version import __version__

GARBAGE_OBJECTS_MAX = 10_000
"""New objects between two looks for garbage. With Python's 700 a command spends a fifth of its time searching what it
has just loaded; ours makes few rings, and a worker holds a megabyte more of them."""


def main() -> int:
    """Run the command line with the process's own arguments; returns the exit code."""
    gc.set_threshold(GARBAGE_OBJECTS_MAX, *gc.get_threshold()[1:])
    try:
        return _run()
    finally:
        gc.freeze()  # what is left goes with the process, and need not be searched


def _run() -> int:
    _standard_streams()
    arguments = sys.argv[1:]
    if arguments in (["version"], ["--version"]):
        arguments = ["version", "--plain"]
    if arguments == ["version", "--plain"]:
        return _print_version()
    if arguments[:1] == ["attempt"]:
        # What a running program says many times in an attempt starts without the kernel.
        from fencepost.surfaces.cli import inside

        if inside.is_meant(arguments[1:]):
            return inside.run(arguments[1:])
    from fencepost.surfaces.cli.frame import run

    return run(arguments)


def _print_version() -> int:
    try:
        sys.stdout.write(f"fencepost {__version__}\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


def _standard_streams() -> None:
    """Make sure that the three standard descriptors are open, so that no file of ours ever gets one of them, and
    that nothing printed can fail for its letters."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
