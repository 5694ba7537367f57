"""Configuration files: which of them count, what they say, and on which line.

A project's file is `fencepost.toml` or the table `[tool.fencepost]` of `pyproject.toml`, in the nearest folder upwards
that has one: not above the git root, and outside of git not above the folder that holds the home, so that nobody who
may write to a folder further up steers what happens here. Inside an attempt's workspace, which may hold a copy of the
project's file, the search starts at the folder that holds the home: a copy names no store.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from fencepost.adapters.repository import find_root
from fencepost.config.settings import BY_KEY, ConfigError, Problem, Refused, Setting, read_value, shown, unknown_key

HOME_NAME: Final = ".fencepost"
PROJECT_FILES: Final = ("fencepost.toml", "pyproject.toml")
FILE_BYTES_MAX: Final = 4 * 2**20
PROBLEMS_MAX: Final = 100
_TABLE: Final = "tool.fencepost"


class Found(NamedTuple):
    """A value as the program uses it, and the line that it stands on, None where that is not known."""

    value: Any
    line: int | None


def project_files(folder: Path) -> list[Path]:
    """The project's files for whoever works in `folder`, the one that wins first."""
    start = _outside_workspaces(folder)
    root = find_root(start)
    last = start if root is None else root
    if root is None:
        last = next((parent for parent in (start, *start.parents) if _holds_home(parent)), start)
    for parent in (start, *start.parents):
        found = [parent / name for name in PROJECT_FILES if _says_something(parent / name)]
        if found or os.path.realpath(parent) == os.path.realpath(last):
            return found
    return []


def user_file(environment: Mapping[str, str]) -> Path | None:
    """The user's own file, whether it is there or not; None where nobody says where a user's files are."""
    folder = environment.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(folder):
        return Path(folder) / "fencepost" / "config.toml"
    home = environment.get("HOME", "")
    return Path(home) / ".config" / "fencepost" / "config.toml" if os.path.isabs(home) else None


def read_file(path: Path, user_home: str | None) -> dict[str, Found]:
    """What a file sets; nothing for one that is not there. Raises ConfigError with every problem of the file."""
    data = _bytes_of(path)
    if data is None:
        return {}
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError((_syntax(path, str(error)),)) from None
    table = _table_of(path, document)
    found: dict[str, Found] = {}
    problems: list[Problem] = []
    for key, value in list(table.items())[:PROBLEMS_MAX]:
        line = line_of(text, key, _TABLE if path.name == "pyproject.toml" else "")
        place = partial(Problem, file=str(path), at=f"/{key}", line=line)
        setting = BY_KEY.get(key)
        if setting is None:
            told = f"{path}: {shown(key)} is no configuration key"
            problems.append(place(code="unknown_key", message=told, next=unknown_key(key, BY_KEY)))
            continue
        try:
            found[key] = Found(_placed(setting, read_value(setting, value), path.parent, user_home), line)
        except Refused as refused:
            told = f"{path}: {key} {refused.wrong}"
            problems.append(place(code=refused.code, message=told, next=refused.following))
    if problems:
        raise ConfigError(tuple(problems))
    return found


def line_of(text: str, key: str, table: str) -> int | None:
    """The line on which `key` of `table` (empty: of the document itself) is set; None where it cannot be told.

    A line that looks like it counts only if what stands above it is a document without the key: so neither a string
    of several lines nor a key of another table is taken for it.
    """
    lines = text.splitlines(keepends=True)
    looks = re.compile(rf"""\s*(?:[A-Za-z0-9_."' -]*\.)?\s*["']?{re.escape(key)}["']?\s*=""")
    for place, line in enumerate(lines):
        if looks.match(line) is None:
            continue
        above, through = _parsed("".join(lines[:place])), _parsed("".join(lines[: place + 1]))
        if above is not None and through is not None and not _has(above, table, key) and _has(through, table, key):
            return place + 1
    return None


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _has(document: dict[str, Any], table: str, key: str) -> bool:
    inner: Any = document
    for word in table.split(".") if table else ():
        inner = inner.get(word) if isinstance(inner, dict) else None
    return isinstance(inner, dict) and key in inner


def _placed(setting: Setting, value: Any, folder: Path, user_home: str | None) -> Any:
    """A path of a file from the root on: taken from the file's folder, or from the user's own with `~/`."""
    if setting.kind == "path":
        return _absolute(value, folder, user_home)
    if setting.kind == "url" and value.startswith("sqlite:"):
        path = value.removeprefix("sqlite:").removeprefix("//")
        return f"sqlite:{_absolute(path, folder, user_home)}" if path else value
    return value


def _absolute(path: str, folder: Path, user_home: str | None) -> str:
    if path == "~" or path.startswith("~/"):
        if not user_home:
            raise Refused("out_of_range", f"is {shown(path)}, and HOME is not set", "write the whole path")
        return os.path.normpath(os.path.join(user_home, path[2:]))
    return os.path.normpath(os.path.join(os.path.abspath(folder), path))


def _says_something(path: Path) -> bool:
    """Whether a file is there; a `pyproject.toml` counts only with our table in it, or if it cannot be read."""
    if path.name != "pyproject.toml":
        return os.path.lexists(path)
    data = _bytes_of(path)
    if data is None or b"fencepost" not in data:
        return False
    try:
        return _TABLE.split(".")[1] in tomllib.loads(data.decode("utf-8")).get("tool", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, TypeError, AttributeError):
        return True  # the same is found again when it is read, and told there


def _table_of(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    table: Any = document
    if path.name == "pyproject.toml":
        tool = document.get("tool", {})
        table = tool.get("fencepost", {}) if isinstance(tool, dict) else tool
    if not isinstance(table, dict):
        told = f"{path}: [{_TABLE}] is {shown(table)}, which is no table"
        raise ConfigError(
            (Problem(code="wrong_type", message=told, next="write key = value below it", file=str(path)),)
        )
    return table


def _bytes_of(path: Path) -> bytes | None:
    """A file's content, None where there is none. Never waits, as a pipe by that name would make it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError((_unreadable(path, error.strerror or str(error)),)) from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ConfigError((_unreadable(path, "it is no regular file"),))
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError((_unreadable(path, f"it passes {FILE_BYTES_MAX} bytes"),))
    return data


def _unreadable(path: Path, why: str) -> Problem:
    message = f"{path} cannot be read: {why}"
    return Problem(code="syntax", message=message, next=f"make {path} a file that this user may read", file=str(path))


def _syntax(path: Path, why: str) -> Problem:
    line = re.search(r"\(at line (\d+)", why)
    return Problem(
        code="syntax",
        message=f"{path}: {why}",
        next="correct the line",
        file=str(path),
        line=int(line[1]) if line is not None else None,
    )


def _holds_home(folder: Path) -> bool:
    return (folder / HOME_NAME / "layout").is_file()


def _outside_workspaces(folder: Path) -> Path:
    """`folder`, or the folder that holds the home in whose workspaces `folder` lies."""
    folder = Path(os.path.abspath(folder))
    for parent in folder.parents:
        if parent.name == "work" and (parent.parent / "layout").is_file() and (parent.parent / "locks").is_dir():
            return parent.parent.parent
    return folder
