"""What other tools see of a compiled function or module: the function and the module."""
import doctest
import functools
import inspect
import pydoc
import sys
import types

import pytest

import framejit
from harness import torch

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed in this environment")


def scaled(x, by=3):
    """A multiple.

    >>> scaled(2)
    6
    """
    return x * by


compiled = framejit.compile(scaled)


class Scale:
    @framejit.compile
    def method(self, x):
        """One more."""
        return x + 1


@pytest.mark.parametrize("question", [
    inspect.isfunction, inspect.isroutine, inspect.getfile, inspect.getsource, inspect.getsourcelines, inspect.getdoc,
    inspect.getmodule, inspect.signature, functools.partial(inspect.signature, follow_wrapped=False), inspect.unwrap,
    lambda function: isinstance(function, types.FunctionType)])
def test_inspect_answers_as_for_the_function(question):
    assert question(compiled) == question(scaled)
    assert question(Scale.method) == question(Scale.method.__wrapped__)


def test_it_is_a_compiled_function_all_the_same():
    assert isinstance(compiled, framejit.CompiledFunction) and type(compiled) is framejit.CompiledFunction
    assert framejit.compile(compiled).__wrapped__ is scaled
    assert framejit.compile(Scale.method)(Scale(), 2) == 3


def test_help_is_that_of_the_function():
    text = pydoc.plain(pydoc.render_doc(compiled))
    assert "scaled(x, by=3)" in text and "A multiple." in text
    assert "compile(function=None" in pydoc.plain(pydoc.render_doc(framejit))


def test_doctest_finds_the_examples():
    found = doctest.DocTestFinder().find(sys.modules[__name__], "here")
    assert sorted(test.name for test in found if test.examples) == ["here.compiled", "here.scaled"]


@needs_torch
@pytest.mark.parametrize("tool", ["compile", "symbolic_trace", "script", "trace"])
@pytest.mark.parametrize("kind", ["function", "module"])
def test_torch_s_tools_take_it(tool, kind):
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    plain = scaled if kind == "function" else module
    use = {"compile": lambda it: torch.compile(it, backend="eager"), "symbolic_trace": torch.fx.symbolic_trace,
           "script": torch.jit.script, "trace": lambda it: torch.jit.trace(it, (x,))}[tool]
    if tool == "script" and kind == "function":
        def plain(x):
            return x * 3
    torch.testing.assert_close(use(framejit.compile(plain))(x), plain(x))
    torch.testing.assert_close(framejit.compile(plain)(x), plain(x))  # and leave nothing behind
