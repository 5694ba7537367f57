"""How a callable says that it can be run as a work order, and how it says what came of it.

    @fencepost.executor("summarize", version=1)
    def summarize(attempt): ...

The decorator changes nothing but a mark: the function can be called, tested and wrapped as any other. Name and version
are read from the source when a plan is submitted, so that they have to be written as literals; the child process
compares them with the loaded function's before it calls it.
"""

from __future__ import annotations

from collections import namedtuple

from fencepost.sdk.failures import checked_kind
from fencepost.sdk.names import Names, several

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, NamedTuple, TypeVar

    from fencepost.sdk.failures import Kind

    F = TypeVar("F", bound=Callable[..., Any])

    class _Declared(NamedTuple):
        name: str
        version: int

    class _Result(NamedTuple):
        files: tuple[str, ...] = ()
        kind: Kind | None = None
        message: str = ""

else:
    _Declared = namedtuple("_Declared", ("name", "version"))
    _Result = namedtuple("_Result", ("files", "kind", "message"), defaults=((), None, ""))

MARK: Final = "__fencepost_executor__"


class Declared(_Declared):
    """Name and version of a callable."""

    __slots__ = ()


def executor(name: str, *, version: int) -> Callable[[F], F]:
    """Mark a function as a callable that orders may name. Both arguments are literals in the source."""
    declared = Declared(name=name, version=version)

    def mark(function: F) -> F:
        setattr(function, MARK, declared)
        return function

    return mark


def declared_of(function: object) -> Declared | None:
    found = getattr(function, MARK, None)
    return found if isinstance(found, Declared) else None


class Result(_Result):
    """What came of an attempt. Made by `succeeded` and `failed`. A claim: the order's acceptance decides."""

    __slots__ = ()

    @classmethod
    def succeeded(cls, files: Names = ()) -> Result:
        """The work is done. `files` are paths in the workspace; one that the order's outputs do not collect fails the
        attempt. Raises TypeError for a single text, and for what is no text."""
        return cls(files=several(files, "the files of a result"))

    @classmethod
    def failed(cls, kind: str = "executor", message: str = "") -> Result:
        """The work is not done, in a class of failure. Raises ValueError for a class that no callable may claim."""
        return cls(kind=checked_kind(kind), message=message)
