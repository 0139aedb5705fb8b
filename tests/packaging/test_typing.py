"""framejit/__init__.pyi: the types of the public names, as type checkers see them."""
import ast
import importlib.util
import inspect
import pathlib
import subprocess
import sys
import textwrap

import pytest

import framejit

STUB = pathlib.Path(framejit.__file__).with_name("__init__.pyi")
TREE = ast.parse(STUB.read_text())


def definitions(body):
    """By name, the functions and classes of a stub; of overloads all."""
    found = {}
    for item in body:
        if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
            found.setdefault(item.name, []).append(item)
    return found


PUBLIC = {name: items for name, items in definitions(TREE.body).items() if not name.startswith("_")}


def parameters(function):
    arguments = function.args
    return {argument.arg for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs} | {
        argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument}


def test_the_stub_has_the_public_names():
    assert sorted(PUBLIC) == sorted(framejit.__all__)
    assert (STUB.parent / "py.typed").exists()


@pytest.mark.parametrize("name", sorted(name for name, items in PUBLIC.items() if isinstance(items[0], ast.FunctionDef)))
def test_parameters_are_those_of_the_code(name):
    written = set().union(*map(parameters, PUBLIC[name]))
    real = set(inspect.signature(getattr(framejit, name)).parameters)
    given_by_options = {"backend", "passes"} if "options" in real else set()
    assert written - given_by_options == real - given_by_options


@pytest.mark.parametrize("name", ["Graph", "Node"])
def test_members_are_those_of_the_code(name):
    (stub,) = PUBLIC[name]
    members = definitions(stub.body)
    annotated = {item.target.id for item in stub.body if isinstance(item, ast.AnnAssign)}
    cls = getattr(framejit, name)
    own = {key for key in vars(cls) if not key.startswith("_")}
    assert own <= set(members) | annotated
    for member, items in members.items():
        real = inspect.getattr_static(cls, member)
        if isinstance(real, (property, type(None))) or member.startswith("__"):
            continue
        real = real.__func__ if isinstance(real, staticmethod) else real
        assert set().union(*map(parameters, items)) == set(inspect.signature(real).parameters), member


def test_options_are_those_of_the_table():
    (options,) = definitions(TREE.body)["_Options"]
    written = {item.target.id for item in options.body}
    assert written | {"backend"} == set(framejit._core.environment_options())


CHECKED = """
    from typing import Any, assert_type

    import numpy as np

    import framejit

    @framejit.compile
    def scaled(x: np.ndarray, k: float = 1.0) -> np.ndarray:
        return x * k

    @framejit.compile(fullgraph=True, threads=2)
    def text(x: int) -> str:
        return str(x)

    class Model:
        training = True

        def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Any: ...

        @framejit.compile
        def step(self, x: int) -> float:
            return float(x)

    assert_type(scaled(np.ones(3), 2.0), np.ndarray)
    assert_type(text(1), str)
    assert_type(Model().step(2), float)
    assert_type(framejit.compile(Model()), Model)
    assert_type(scaled.using(dynamic=True, backend="eager")(np.ones(3)), np.ndarray)
    assert_type(framejit.stop_gradient(1.0), float)
    with framejit.profile() as measured, framejit.options(on_recompile="error", backend="eager"):
        scaled(np.ones(3))
    assert_type(measured.kernels[0].seconds, float)
    graph = framejit.capture(scaled, np.ones(3))
    assert_type(graph.nodes[0].shape, tuple[int | str, ...])
    assert_type(framejit.export(scaled, (np.ones(3),)).ranges, dict[str, tuple[int, int | None]])
    framejit.explain(scaled)(np.ones(3)).to_html("report.html")

    scaled(1.0)                                  # error: the argument's type
    scaled(np.ones(3), 2.0, 3.0)                 # error: too many arguments
    Model().step("2")                            # error: of a method
    framejit.compile(scaled, fulgraph=True)      # error: no such option
    framejit.options(on_recompile="never")       # error: no such value
    framejit.explain(scaled)()                   # error: an argument is missing
"""


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_a_type_checker_sees_them(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(CHECKED))
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    found = subprocess.run([sys.executable, "-m", "mypy", "--config-file", tmp_path / "mypy.ini", "--cache-dir", tmp_path / "cache", program],
                           capture_output=True, text=True, cwd=tmp_path)
    wrong = {int(line.split(":")[1]) for line in found.stdout.splitlines() if ": error: " in line and line.startswith("program.py")}
    expected = {number for number, line in enumerate(program.read_text().splitlines(), 1) if "# error" in line}
    assert wrong == expected, found.stdout + found.stderr
