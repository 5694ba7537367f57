"""X10: name and version of a callable are read from the text of its module; nothing of it is run."""

from __future__ import annotations

import ast

import pytest

from fencepost.core.planfile.callables import Declared, NotDeclared, find_declared, module_paths
from fencepost.core.strictjson import INT_MAX

BODY = "def f(attempt):\n    pass\n"


def found(source: str, call: str = "m:f") -> Declared | NotDeclared:
    return find_declared(ast.parse(source), call, "m.py")


@pytest.mark.parametrize(
    "head",
    [
        'import fencepost as fp\n@fp.executor("sum-up", version=3)\n',
        'import fencepost\n@fencepost.executor("sum-up", version=3)\n',
        'from fencepost import Attempt, executor\n@executor(name="sum-up", version=3)\n',
        'from fencepost import executor as ours\n@ours("sum-up", version=3)\n',
        'import fencepost as fp, functools\n@functools.cache\n@fp.executor("sum-up", version=3)\n',
        'import fencepost as fp\ndef f():\n    pass\n@fp.executor("sum-up", version=3)\n',
        'import fencepost.sdk\n@fencepost.executor("sum-up", version=3)\n',
    ],
)
def test_x10_a_literal_decorator_is_found_by_each_way_of_importing_it(head: str) -> None:
    assert found(head + BODY) == Declared(name="sum-up", version=3)


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("function_missing", "import fencepost as fp\n"),
        ("function_missing", f"if True:\n    {BODY.replace(chr(10), chr(10) + '    ')}\n"),
        ("function_missing", "class f:\n    pass\n"),
        ("function_missing", "f = 1\n"),
        ("not_an_executor", BODY),
        ("not_an_executor", f'@fp.executor("a", version=1)\n{BODY}'),
        ("not_an_executor", f"import fencepost as fp\n@fp.executor\n{BODY}"),
        ("not_an_executor", f'import other as fp\n@fp.executor("a", version=1)\n{BODY}'),
        ("not_an_executor", f'import other\n@fencepost.executor("a", version=1)\n{BODY}'),
        ("not_an_executor", f'import fencepost.sdk as fp\n@fp.executor("a", version=1)\n{BODY}'),
        ("not_an_executor", f'import fencepost as fp\n@fp.sdk.executor("a", version=1)\n{BODY}'),
        ("not_an_executor", f'import fencepost as fp\n@(lambda name, version: fp)("a", version=1)\n{BODY}'),
        ("not_an_executor", f'from .fencepost import executor\n@executor("a", version=1)\n{BODY}'),
        ("not_an_executor", f'import fencepost as fp\n@fp.executor("a", version=1)\nasync {BODY}'),
        (
            "not_an_executor",
            f'import fencepost as fp\n@fp.executor("a", version=1)\n@fp.executor("b", version=1)\n{BODY}',
        ),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a")\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", 1)\n{BODY}'),
        ("not_literal", f"import fencepost as fp\n@fp.executor(NAME, version=1)\n{BODY}"),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", version=N)\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", version=True)\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", version=1, more=2)\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", **rest)\n{BODY}'),
        ("not_literal", f"import fencepost as fp\n@fp.executor(*rest, version=1)\n{BODY}"),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", name="a", version=1)\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor("A b", version=1)\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", version=0)\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor("a", version={INT_MAX + 1})\n{BODY}'),
        ("not_literal", f'import fencepost as fp\n@fp.executor(f"a", version=1)\n{BODY}'),
    ],
)
def test_x10_what_is_not_declared_has_a_code_and_a_next_step(code: str, source: str) -> None:
    answer = found(source)
    assert isinstance(answer, NotDeclared)
    assert answer.code == code
    assert "m.py" in answer.message and answer.next


@pytest.mark.parametrize("version", [1, INT_MAX])
def test_x10_a_version_is_any_exact_number_from_one(version: int) -> None:
    source = f'import fencepost as fp\n@fp.executor("a", version={version})\n{BODY}'
    assert found(source) == Declared(name="a", version=version)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", 'm.py has no function "f" at its top level'),
        (BODY, "m.py, line 1: f is not decorated with fencepost's executor"),
        (f'import fencepost as fp\n@fp.executor("a", version=1)\nasync {BODY}', "m.py, line 3: f is a coroutine"),
        (
            f'import fencepost as fp\n@fp.executor("a", version=1)\n@fp.executor("b", version=1)\n{BODY}',
            "m.py, line 4: f is decorated twice",
        ),
        (
            f'import fencepost as fp\n@fp.executor("A b", version=7)\n{BODY}',
            'm.py, line 3: f: "A b" version 7 is no name with a version',
        ),
        (
            f'import fencepost as fp\n@fp.executor("a", 1)\n{BODY}',
            "m.py, line 3: f: name and version of its decorator are not written as literals",
        ),
    ],
)
def test_x10_the_message_names_the_place_and_what_stands_there(source: str, message: str) -> None:
    answer = found(source)
    assert isinstance(answer, NotDeclared)
    assert answer.message == message


def test_x10_a_package_comes_before_a_module_of_the_same_name() -> None:
    assert module_paths("a.b:f") == ("a/b/__init__.py", "a/b.py")
