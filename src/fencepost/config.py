"""Configuration: flags, environment, project file, user profile and first values, into one frozen `Config`.

The first source that names a value wins, in this order. Every value remembers its source, so that `config view` can
say where it came from.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fencepost.ports.errors import FencepostError

SCOPE_FIRST = "default"
SCOPE_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
FILES = ("fencepost.toml", "pyproject.toml")

KEYS: dict[str, type] = {"home": str, "store": str, "scope": str, "jobs": int}
"""Every key that a configuration may name, with its type."""


class ConfigError(FencepostError):
    """A configuration file or variable cannot be used. The caller's fault. Codes are those of plan files."""

    def __init__(self, code: str, message: str, *, next_step: str) -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """`home` and `store` are None where nothing names them: then the nearest home upwards is used."""

    scope: str
    home: str | None
    store: str | None
    jobs: int
    sources: dict[str, str]

    def view(self) -> list[dict[str, Any]]:
        return [{"key": key, "value": getattr(self, key), "source": self.sources[key]} for key in sorted(KEYS)]


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, kind in KEYS.items():
        name = f"FENCEPOST_{key.upper()}"
        text = environment.get(name, "")
        if not text:
            continue
        if kind is int and not text.isdecimal():
            raise ConfigError(
                "wrong_type", f"{name} is {text!r}, which is no number", next_step=f"unset {name} or write a number"
            )
        found[key] = int(text) if kind is int else text
    return found


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("syntax", f"{path}: {error}", next_step="correct the file") from error
    table = document.get("tool", {}).get("fencepost", {}) if path.name == "pyproject.toml" else document
    if not isinstance(table, dict):
        raise ConfigError("wrong_type", f"{path}: the configuration is no table", next_step="write key = value")
    for key, value in table.items():
        if key not in KEYS:
            known = ", ".join(sorted(KEYS))
            raise ConfigError("unknown_key", f"{path}: {key} is no configuration key", next_step=f"use one of {known}")
        if type(value) is not KEYS[key]:
            kind = KEYS[key].__name__
            raise ConfigError("wrong_type", f"{path}: {key} must be of type {kind}", next_step="correct the value")
    return dict(table)


def load(flags: Mapping[str, Any], environment: Mapping[str, str], folder: Path, processors: int) -> Config:
    """Resolve a configuration. `flags` holds what was given, without None. Raises ConfigError."""
    levels: list[tuple[str, Mapping[str, Any]]] = [
        ("flag", {key: value for key, value in flags.items() if value is not None}),
        ("environment", _from_environment(environment)),
    ]
    for parent in (folder, *folder.parents):
        files = [parent / name for name in FILES if (parent / name).is_file()]
        levels += [(str(path), _from_file(path)) for path in files]
        if files or (parent / ".git").exists():
            break
    profile = environment.get("XDG_CONFIG_HOME") or (
        str(Path(environment["HOME"]) / ".config") if environment.get("HOME") else ""
    )
    if profile:
        path = Path(profile) / "fencepost" / "config.toml"
        levels.append((str(path), _from_file(path)))
    levels.append(("first value", {"scope": SCOPE_FIRST, "jobs": max(processors, 1), "home": None, "store": None}))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, level in levels:
        for key, value in level.items():
            if key in KEYS and key not in values:
                values[key] = value
                sources[key] = source
    if not SCOPE_NAME.fullmatch(values["scope"]):
        message = f"{values['scope']!r} is no name of a scope"
        raise ConfigError("bad_name", message, next_step="use [a-z][a-z0-9-]{0,62}")
    if values["jobs"] < 1:
        raise ConfigError("out_of_range", "jobs must be at least 1", next_step="write a positive number")
    return Config(**values, sources=sources)
