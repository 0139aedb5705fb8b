"""Every public name: help() of it, its documentation, the version; and the nearest word for a mistyped one."""
import inspect
import pathlib
import pydoc
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import framejit

ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", framejit.__all__)
def test_help_of_every_public_name(name):
    thing = getattr(framejit, name)
    assert name in pydoc.plain(pydoc.render_doc(thing))
    text = inspect.getdoc(thing)
    assert text
    assert max(map(len, text.splitlines())) <= 150
    if name == "explain":  # whose documentation is written with its report
        return
    assert re.search(r"^ *(@|>>> )?framejit\.|^    \S", text, re.M), "there is no example"
    if inspect.isfunction(thing):
        missing = [parameter for parameter in inspect.signature(thing).parameters if not re.search(rf"\b{parameter}\b", text)]
        assert missing == []


def test_help_of_the_package_names_what_there_is():
    text = pydoc.plain(pydoc.render_doc(framejit))
    opening = framejit.__doc__
    assert [name for name in framejit.__all__ if not re.search(rf"\b{name}\b", opening)] == ["CompiledFunction"]
    assert f"VERSION\n    {framejit.__version__}" in text


def test_public_names_are_those_of_dir():
    assert dir(framejit) == sorted([*framejit.__all__, "__version__"]) and len(set(framejit.__all__)) == len(framejit.__all__)
    assert not any(name.startswith("_") for name in framejit.__all__)
    found = {}
    exec("from framejit import *", found)
    assert set(found) - {"__builtins__"} == set(framejit.__all__)
    with pytest.raises(AttributeError, match="^module 'framejit' has no attribute 'complie'$") as raised:
        framejit.complie
    assert (raised.value.name, raised.value.obj) == ("complie", framejit)


def test_documentation_of_a_compiled_function_is_the_function_s():
    @framejit.compile
    def documented(x):
        """What it does."""
        return x

    assert documented.__doc__ == "What it does." and "What it does." in pydoc.plain(pydoc.render_doc(documented))
    documented.__doc__ = "Something else."
    assert documented.__doc__ == "Something else."
    assert inspect.getdoc(framejit.CompiledFunction).startswith("The type of what `framejit.compile` makes of a function.")


def test_the_version_is_that_of_the_project():
    import importlib.metadata

    try:
        installed = importlib.metadata.version("framejit")
    except importlib.metadata.PackageNotFoundError:
        installed = "unknown"
    assert framejit.__version__ == installed and installed in ("unknown", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def test_the_version_is_unknown_where_nothing_is_installed():
    program = """
import importlib.metadata
def absent(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = absent
import framejit
print(framejit.__version__)
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout == "unknown\n"


def test_import_loads_what_it_needs_alone():
    program = """
import sys, numpy
before = set(sys.modules)
import framejit
print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}), 'importlib.metadata' in sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    assert loaded[-1] == "False"
    assert not set(loaded) & {"argparse", "difflib", "json", "runpy", "torch", "rich", "jinja2", "threadpoolctl"}
    assert "framejit" in loaded


def f(x):
    return np.exp(x)


@pytest.mark.parametrize("kind, said, ask", [
    (TypeError, "framejit has no option 'backened'; did you mean 'backend'?", lambda: framejit.compile(f, backened="llvm")),
    (TypeError, "framejit has no option 'full_graph'; did you mean 'fullgraph'?", lambda: framejit.compile(full_graph=True)),
    (TypeError, "framejit has no option 'pases'; did you mean 'passes'?", lambda: framejit.compile(f, pases=[])),
    (TypeError, "framejit has no option 'xyzzy'", lambda: framejit.compile(f, xyzzy=1)),
    (TypeError, "framejit has no option 'thread'; did you mean 'threads'?", lambda: framejit.compile(f).using(thread=1)),
    (TypeError, "framejit has no option 'thread'; did you mean 'threads'?", lambda: framejit.options(thread=1).__enter__()),
    (TypeError, "framejit option threads: one is not a number", lambda: framejit.compile(f, threads="one")),
    (ValueError, "framejit has no back end 'LVM'; there are auto, llvm, cuda, eager, reference, verify, check_nan; did you mean 'llvm'?",
     lambda: framejit.compile(f, backend="LVM")),
    (ValueError, "framejit has no back end 'lvm'; there are auto, llvm, cuda, eager, reference, verify, check_nan; did you mean 'llvm'?",
     lambda: framejit.options(backend="lvm").__enter__()),
    (ValueError, "no log is called 'graph'; there are: all, graph_breaks, recompiles, fallbacks, graphs, guards, bytecode, passes, timings, kernels, "
     "code; did you mean 'graphs'?", lambda: framejit.set_logs("kernels", "graph:Encoder.*")),
    (TypeError, "framejit.set_logs: a sink is a callable of an artifact and a text, a path or a text file, not 3", lambda: framejit.set_logs(sink=3))])
def test_mistyped_words_name_the_nearest(kind, said, ask, monkeypatch):
    monkeypatch.setattr("framejit._backends._registered", {})
    with pytest.raises(kind) as raised:
        ask()
    assert type(raised.value) is kind and str(raised.value) == said
