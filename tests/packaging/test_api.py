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

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "tests" / "typing" / "api.py"


def test_the_package_gives_what_it_lists() -> None:
    assert fencepost.__all__ == sorted(fencepost.__all__)
    assert [name for name in fencepost.__all__ if not hasattr(fencepost, name)] == []
    shown = {name for name in vars(fencepost) if not name.startswith("_")} - set(fencepost.__all__)
    modules = {path.stem for path in (ROOT / "src" / "fencepost").iterdir()}
    assert shown - modules <= {"annotations"}


def test_what_programs_import_loads_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; import fencepost as fp; fp.attempt, fp.Refused; import fencepost.sdk;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert loaded.stdout.strip() == "['__main__', 'fencepost']"


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
