"""Public is what `__init__` lists; what else programs may use is pinned as types in `tests/typing/api.py`."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fencepost
from fencepost import sdk

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "tests" / "typing" / "api.py"


def loaded_by(script: str) -> str:
    """What a script prints in an interpreter that has the sources and nothing that was installed."""
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()


def test_the_package_gives_what_the_sdk_lists() -> None:
    listed = sorted(["__version__", *sdk.__all__])
    assert getattr(fencepost, "__all__") == listed  # noqa: B009  # it is found when it is asked for, as the names are
    assert [name for name in sdk.__all__ if getattr(fencepost, name) is not getattr(sdk, name)] == []
    given: dict[str, object] = {}
    exec("from fencepost import *", given)
    assert sorted(given.keys() - {"__builtins__"}) == listed
    shown = {name for name in vars(fencepost) if not name.startswith("_")} - set(listed)
    modules = {path.stem for path in (ROOT / "src" / "fencepost").iterdir()}
    assert shown - modules <= {"annotations"}


def test_the_names_stand_in_one_list() -> None:
    source = (ROOT / "src" / "fencepost" / "__init__.py").read_text("utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    words |= {node.name for node in nodes if isinstance(node, ast.alias)}
    assert words & set(sdk.__all__) == set()
    assert sdk.__all__ == sorted(sdk.__all__)


@pytest.mark.parametrize("name", ["Atempt", "wire", "_attempt", "__wrapped__"])
def test_a_name_that_is_not_listed_is_not_there(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'fencepost' has no attribute '{name}'"):
        getattr(fencepost, name)


def test_the_package_alone_loads_nothing_of_itself() -> None:
    script = "import sys; import fencepost; print(sorted(name for name in sys.modules if name.startswith('fencepost')))"
    assert loaded_by(script) == "['fencepost', 'fencepost._version']"


def test_what_programs_import_loads_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; import fencepost as fp; fp.attempt, fp.Refused; import fencepost.sdk;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    assert loaded_by(script) == "['__main__', 'fencepost']"


def test_the_pinned_names_are_checked_with_everything_else() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "tests/typing" in settings["tool"]["mypy"]["files"]


def test_every_pinned_name_is_there() -> None:
    imports = [node for node in ast.walk(ast.parse(API.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith("fencepost")]
    assert len(ours) > 10
    for node in ours:
        module = importlib.import_module(node.module or "")
        assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.slow
def test_a_changed_signature_is_found(tmp_path: Path) -> None:
    text = API.read_text("utf-8")
    (tmp_path / "broken.py").write_text(text.replace("look.ready(observation, look.head.seq, 10)", "look.ready(10)"))
    (tmp_path / "api.py").write_text(text)
    codes = [
        subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=110,
        ).returncode
        for path in (tmp_path / "api.py", tmp_path / "broken.py")
    ]
    assert codes == [0, 1]
