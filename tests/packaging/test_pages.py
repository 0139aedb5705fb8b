"""Three pages of docs/ are generated: these tests compare them, FRAMEJIT_BLESS=1 writes them anew.

graph-breaks: a section per row of breaks.def with its smallest program from tests/errors/test_breaks.py. coverage: a table per group of
the constructs in tests/trace/test_constructs_*.py, each run compiled against eager, with what became of it, and tables of the models in
tests/models/families.py, run likewise. functions: a table per module, from function_table.py.
"""
import ast
import collections
import importlib
import importlib.util
import inspect
import os
import pathlib
import re
import sys
import textwrap

import function_table
import pytest

TESTS = pathlib.Path(__file__).parent.parent
DOCS = TESTS.parent / "docs"
ROW = re.compile(r'FJ_BREAK\(\s*(\d+),\s*(\w+),\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)"\s*\)')
MODELS = "## Families of models"
HOW = "`FRAMEJIT_BLESS=1 pytest tests/packaging/test_pages.py` writes this page anew."


def imported(path):
    sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))


def break_rows():
    """(number, name, what happened, what to do) of each row of breaks.def."""
    return ROW.findall((TESTS.parent / "segment" / "breaks.def").read_text())


def graph_breaks_page():
    smallest = {}
    programs = imported(TESTS / "errors" / "test_breaks.py")
    for function, reason in programs.CASES + programs.REFUSED:
        for name in (reason,) if isinstance(reason, str) else reason or ():
            smallest.setdefault(name, textwrap.dedent(inspect.getsource(function)).strip())
    text = ["# Graph breaks", "",
            "Why a graph ends before its function does. Generated from `segment/breaks.def` and `tests/errors/test_breaks.py`, which runs",
            f"each program against eager; {HOW}", "",
            "A break changes no result: what comes before and after it is still compiled, the instruction itself runs in Python.", ""]
    for number, name, happened, remedy in break_rows():
        text += [f"## FJ{number} {name}", "", f"{happened[0].upper()}{happened[1:]}. What to do: {remedy}.", ""]
        text += ["```python", smallest[name], "```", ""] if name in smallest else ["No program of the tests ends with this reason alone.", ""]
    return "\n".join(text).rstrip() + "\n"


def coverage_page():
    modules = sorted((TESTS / "trace").glob("test_constructs_*.py"))
    if not modules:
        pytest.skip("this tree has no tests/trace/test_constructs_*.py")
    constructs = importlib.import_module("constructs")
    groups = {}
    for module in modules:
        for program in imported(module).PROGRAMS:
            outcome = constructs.RESULTS.get((program.group, program.name)) or constructs.run_construct(program)
            groups.setdefault(program.group, {})[program.name] = outcome
    counts = {kind: sum(outcome.split()[0] == kind for group in groups.values() for outcome in group.values()) for kind in ("whole", "break", "eager")}
    text = ["# Coverage", "",
            "What becomes of each Python construct in a function on arrays: *whole*, one graph; *break*, the graph ends there and another",
            "goes on behind it; *eager*, nothing is compiled. At the end, [families of models](#families-of-models) in evaluation and in",
            f"training: their graphs and breaks. Results are eager's in each case. Generated from the tests' own runs; {HOW}", "",
            f"{sum(counts.values())} constructs: {counts['whole']} whole, {counts['break']} with a break, {counts['eager']} eager.", ""]
    for group in sorted(groups):
        text += [f"## {group}", "", "| construct | outcome |", "| --- | --- |"]
        text += [f"| {name} | {outcome} |".replace("\n", " ") for name, outcome in sorted(groups[group].items())] + [""]
    return "\n".join(text + models_part()).rstrip() + "\n"


def counted(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def model_tables(versions):
    """The lines of "Families of models" on the page of coverage."""
    families = imported(TESTS / "models" / "families.py")

    def outcome(name, training):
        return families.RESULTS.get((name, training)) or families.run_family(name, training)

    def cell(outcome):
        counts = [(len(outcome.breaks), "break"), (outcome.recompiles, "recompile")]
        return ", ".join([counted(outcome.graphs, "graph"), *(counted(number, noun) for number, noun in counts if number)])

    text = [MODELS, "",
            f"Small models with random weights, made with {versions}, called twice: in evaluation without gradients, and in training with",
            "a backward from the model's own loss, or from a weighted sum of its results. Results, gradients, buffers and the state of the",
            "generator of random numbers are eager's in each. The graphs are those of both calls and, where a graph breaks, of the functions",
            "that are called there; a graph's derivative is not counted. A recompile is a graph more where a guard no longer holds: the image",
            "classifiers of `transformers` note the kind of their loss in `config.problem_type` in the first call.", ""]
    why = {}
    for title, table in (("models of `transformers`", families.TRANSFORMERS), ("convolution networks", families.CONVOLUTIONS)):
        text += [f"| {title} | class | in evaluation | in training |", "| --- | --- | --- | --- |"]
        for name in table:
            modes = [outcome(name, training) for training in (False, True)]
            text.append(f"| {name} | `{modes[0].model}` | {cell(modes[0])} | {cell(modes[1])} |")
            for mode, ran in zip(("evaluation", "training"), modes):
                for b in ran.breaks:
                    row = why.setdefault((name, f"{b.number} {b.name}", b.detail), {})
                    row.setdefault(f"`{b.function}` in `{pathlib.Path(b.file).name}`", []).append(mode)
        text.append("")
    text += ["Their breaks:", "", "| model | in | break | reason | where |", "| --- | --- | --- | --- | --- |"]
    for (name, number, reason), places in why.items():
        modes = " and ".join(dict.fromkeys(mode for found in places.values() for mode in found))
        text.append(f"| {name} | {modes} | {number} | {reason} | {', '.join(places)} |".replace("\n", " "))
    return text


def models_part():
    """Those lines anew, or as they stand on the page where it was made with other versions of the libraries: the models are others there."""
    page = (DOCS / "coverage.md").read_text()
    installed = importlib.util.find_spec("transformers") and f"transformers {version_of('transformers')} and torch {version_of('torch')}"
    if installed and (installed in page or os.environ.get("FRAMEJIT_BLESS") == "1"):
        return model_tables(installed)
    return [page[page.index(MODELS):]]


def version_of(package):
    return ".".join(importlib.import_module(package).__version__.split(".")[:2])


def versions():
    """Those that docs/functions.md is made with: another library has other functions."""
    return f"NumPy {version_of('numpy')} and torch {version_of('torch')}"


def functions_page():
    tables = [*function_table.numpy_rows(), *function_table.torch_rows()]
    untried = [f"{path}.{name}" for path, rows in tables for name, row in rows.items() if row is None]
    assert untried == [], "function_table.py has no arguments that these take"
    outcomes = collections.Counter(row.outcome.split(" FJ")[0] for _, rows in tables for row in rows.values())
    text = ["# Functions of NumPy and torch", "",
            "Each function is called once in a compiled function, with the arguments shown, and once for its derivative. Other",
            "arguments, dtypes and sizes may come out otherwise; results are the library's in each case. Methods and operators are",
            f"not listed. Generated with {versions()} by `tests/packaging/function_table.py`; {HOW}", "",
            "| outcome | means | functions |", "| --- | --- | --- |",
            *(f"| {name} | {meaning} | {outcomes[name]} |" for name, meaning in function_table.OUTCOMES.items()), "",
            "| argument | is |", "| --- | --- |", *(f"| `{name}` | {meaning} |" for name, meaning in function_table.ARRAYS.items()), "",
            "The derivative of a call of NumPy is that of `framejit.grad`, of the sum of its results. For a call of torch the column",
            "says what becomes of it where tensors require gradients: *called* is a call with torch's own derivative. The column is",
            "empty where no result has a derivative.", ""]
    for path, rows in tables:
        text += [f"## {path}", "", "| call | outcome | derivative |", "| --- | --- | --- |"]
        text += [f"| `{row.call}` | {row.outcome} | {row.derivative} |" for row in rows.values()] + [""]
    return "\n".join(text).rstrip() + "\n"


def check(name, text):
    if os.environ.get("FRAMEJIT_BLESS") == "1":
        (DOCS / name).write_text(text)
    assert (DOCS / name).exists() and (DOCS / name).read_text() == text, f"docs/{name} is out of date: FRAMEJIT_BLESS=1 writes it anew"


def test_the_page_of_graph_breaks_is_up_to_date():
    check("graph-breaks.md", graph_breaks_page())


def test_every_row_and_program_is_on_the_page():
    text = (TESTS.parent / "segment" / "breaks.def").read_text()
    assert len(break_rows()) == text.count("FJ_BREAK(")
    for program in re.findall(r"```python\n(.*?)```", graph_breaks_page(), re.S):
        ast.parse(program)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11) or importlib.util.find_spec("torch") is None,
                    reason="docs/coverage.md is made on CPython 3.11 with torch, where this test compares it")
def test_the_page_of_constructs_is_up_to_date():
    check("coverage.md", coverage_page())


@pytest.mark.skipif(sys.version_info[:2] != (3, 11) or importlib.util.find_spec("torch") is None,
                    reason="docs/functions.md is made on CPython 3.11 with torch, where this test compares it")
def test_the_page_of_functions_is_up_to_date():
    page = DOCS / "functions.md"
    if page.exists() and os.environ.get("FRAMEJIT_BLESS") != "1" and versions() not in page.read_text():
        pytest.skip(f"docs/functions.md is made with other libraries than {versions()}")
    check("functions.md", functions_page())
