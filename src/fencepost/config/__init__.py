"""Configuration: flags, environment, project file, user profile and first values, into one frozen `Config`.

The first source that names a value wins, in this order. Every value remembers its source and what it overrides, so
that `config view` can say where it came from. All problems of the first source that has any are told at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from fencepost.config.files import HOME_NAME, project_files, read_file, user_file
from fencepost.config.settings import (
    BY_KEY,
    JOBS_MAX,
    SCOPE_FIRST,
    SETTINGS,
    ConfigError,
    Problem,
    Refused,
    Setting,
    read_text,
    read_value,
    step_of,
    unknown_variables,
)
from fencepost.core.instant import format_duration
from fencepost.core.limits import FIRST_VALUES

__all__ = [
    "HOME_NAME",
    "SCOPE_FIRST",
    "SETTINGS",
    "Config",
    "ConfigError",
    "Given",
    "Setting",
    "load",
    "project_files",
    "read_file",
    "unknown_variables",
    "user_file",
]

Source = Literal["flag", "environment", "project", "user", "first"]


class Given(NamedTuple):
    """A value and who gave it. `source` is what older documents call it, `place` an option, a variable, a file with
    its line, or None for a first value."""

    value: Any
    kind: Source
    source: str
    place: str | None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """`home` and `store` are None where nothing names them: then the nearest home upwards is used. `timeout_us` None
    is no limit. `given` has, for each key, every source that names it, the one that holds first."""

    scope: str
    home: str | None
    store: str | None
    jobs: int
    timeout_us: int | None
    keep_failed_us: int
    given: dict[str, tuple[Given, ...]]

    def view(self) -> list[dict[str, Any]]:
        return [_item(setting, self.given[setting.key]) for setting in sorted(SETTINGS, key=lambda known: known.key)]


def _item(setting: Setting, given: tuple[Given, ...]) -> dict[str, Any]:
    first, *others = given
    return {
        "key": setting.key,
        "value": _told(setting, first.value),
        "source": first.source,
        "kind": first.kind,
        "place": first.place,
        "overrides": [
            {"value": _told(setting, other.value), "kind": other.kind, "place": other.place}
            for other in others
            if other.kind != "first"
        ],
    }


def _told(setting: Setting, value: Any) -> Any:
    return format_duration(value) if setting.kind == "duration" and value is not None else value


def load(flags: Mapping[str, Any], environment: Mapping[str, str], folder: Path, processors: int) -> Config:
    """Resolve a configuration for whoever works in `folder`. `flags` holds what was given, None where nothing was.

    Raises ConfigError.
    """
    levels = [_from_flags(flags), _from_environment(environment)]
    user_home = environment.get("HOME")
    files: list[tuple[Source, Path]] = [("project", path) for path in project_files(folder)]
    if (user := user_file(environment)) is not None:
        files.append(("user", user))
    for kind, path in files:
        found = read_file(path, user_home)
        levels.append(
            {
                key: Given(value, kind, str(path), str(path) if line is None else f"{path}:{line}")
                for key, (value, line) in found.items()
            }
        )
    levels.append({key: Given(value, "first", "first value", None) for key, value in _first(processors).items()})
    given = {key: tuple(level[key] for level in levels if key in level) for key in BY_KEY}
    values = {key: found[0].value for key, found in given.items()}
    return Config(
        scope=values["scope"],
        home=values["home"],
        store=values["store"],
        jobs=values["jobs"],
        timeout_us=values["timeout"],
        keep_failed_us=values["keep_failed"],
        given=given,
    )


def _first(processors: int) -> dict[str, Any]:
    return {
        "home": None,
        "store": None,
        "scope": SCOPE_FIRST,
        "jobs": min(max(processors, 1), JOBS_MAX),
        "timeout": None,
        "keep_failed": FIRST_VALUES.keep_failed_us,
    }


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Given]:
    found: dict[str, Given] = {}
    problems: list[Problem] = []
    for key, value in flags.items():
        if value is None:
            continue
        setting = BY_KEY[key]
        try:
            found[key] = Given(read_value(setting, value), "flag", "flag", setting.flag)
        except Refused as refused:
            told = f"{setting.flag} {refused.wrong}"
            following = step_of(setting, refused, variable=False)
            problems.append(Problem(code=refused.code, message=told, next=following, file=setting.flag))
    if problems:
        raise ConfigError(tuple(problems))
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """What variables say; an empty one says nothing."""
    found: dict[str, Given] = {}
    problems: list[Problem] = []
    for setting in SETTINGS:
        text = environment.get(setting.variable, "")
        if not text:
            continue
        try:
            found[setting.key] = Given(read_text(setting, text), "environment", "environment", setting.variable)
        except Refused as refused:
            told = f"{setting.variable} {refused.wrong}"
            following = f"{step_of(setting, refused, variable=True)}; or unset {setting.variable}"
            problems.append(Problem(code=refused.code, message=told, next=following, file=setting.variable))
    if problems:
        raise ConfigError(tuple(problems))
    return found
