"""The script that shows a failure alone. Start at `script_of`."""
import importlib.util
import inspect
import re
import sys
import textwrap
import types

import numpy as np

from framejit._backends import _registered
from framejit._checks import _ALLOWED, _plain
from framejit._minify.arguments import loaded
from framejit._minify.failing import called
from framejit._minify.shrinking import _is_number
from framejit._report.parts import base_name


def operations_of(graph):
    """In words: `tanh (model.py:12)`, `mul, reduce_sum (model.py:12, model.py:13)`."""
    nodes = [node for node in graph if node.op != "result" and not _is_number(node)] or list(graph)
    names = dict.fromkeys(re.sub(r".*= |\(.*", "", node.attrs["callee"]) if node.op == "extern_call" else node.op for node in nodes)
    places = dict.fromkeys(f"{base_name(node.file)}:{node.line}" for node in nodes if node.line)
    return ", ".join(names) + (f" ({', '.join(places)})" if places else "")


def script_of(case, arguments, text, failure, options, fails):
    """The script. text: the graph as a Python function. options: those of compile. fails: the caller's own test, or None."""
    library = case.library
    text = text.replace("def ", "def part_of_", 1)  # a name that nothing else in the script has
    name = re.match(r"def (\w+)", text)[1]
    operations, said = operations_of(case.graph), failure.text.partition("\n")[0]
    files = [argument for argument in arguments if argument.text is None]
    numpy_is_used = library == "numpy" or bool(files) or any("numpy." in argument.text for argument in arguments)
    imports = {"import numpy": numpy_is_used, "import torch": library == "torch", "import math": "math." in text, "import pathlib": files,
               "import sys": fails is not None,
               "from math import inf, nan": any(argument.text and re.search(r"\b(nan|inf)\b", argument.text) for argument in arguments)}
    imports = sorted((line for line in imports if imports[line]), key=lambda line: (line.split()[1] not in sys.stdlib_module_names, line))
    definitions, keywords = _options(options)
    if fails is not None:
        definition, test = _spelled(fails)
        definitions += definition
        check = [f"if {test}({name}, arguments):", f'    sys.exit(f"{{operations}}: {failure.text}")',
                 'print(f"{operations}: mended")']
    else:
        check = _comparison(case, name, keywords)
    is_import = re.compile("import |from ")
    imports += ["import framejit", *dict.fromkeys(line for line in definitions if is_import.match(line))]
    definitions = [line for line in definitions if not is_import.match(line)]
    given = [f"    {argument.text or loaded(argument, library)},  # {argument.name}" for argument in arguments]
    parts = ["\n".join(['"""' + f"{operations}: {said}".replace("\\", "\\\\").replace('"""', "'''"), "",
                        "Made by framejit.minify. Exit status: 1 while this is so, 0 when it is mended.", '"""', *imports]),
             *definitions, text.rstrip(),
             "\n".join([*(['arrays = numpy.load(pathlib.Path(__file__).with_suffix(".npz"))'] if files else []),
                        "arguments = [", *given, "]", f"operations = {operations!r}", "", *check])]
    return "\n\n\n".join(parts) + "\n"


def _comparison(case, name, keywords):
    calls = any(node.op == "extern_call" for node in case.graph)
    seed = [f"{'torch.manual_seed' if case.library == 'torch' else 'numpy.random.seed'}(0)"] if calls else []  # some draw random numbers
    return [*seed, f"expected = {name}(*arguments)", *seed, "try:", "    with framejit.options(strict=True):",
            f"        found = framejit.compile({', '.join([name, *keywords])})(*arguments)", "except Exception as error:",
            '    error.add_note(f"{operations}: the compiled call raises")', "    raise", *_comparisons(case),
            'print(f"{operations}: compiled and eager agree")']


def _comparisons(case):
    lines, message = [], 'f"{operations}: compiled and eager differ'
    expected, _ = called(case.function, case.arguments)
    for i, (node, value) in enumerate(zip(case.graph.outputs, expected)):
        finite = _plain(value)[np.isfinite(_plain(value))]
        bound = _ALLOWED.get(node.dtype, 0) * (float(np.abs(finite).max()) if finite.size else 0.0)
        ours, theirs, close = f"found[{i}]", f"expected[{i}]", f"rtol=0, atol={bound:.3g}"
        lines.append(f'assert ({ours}.dtype, {ours}.shape) == ({theirs}.dtype, {theirs}.shape), {message} in dtype or shape"')
        if case.library == "torch":
            lines.append(f'torch.testing.assert_close({ours}, {theirs}, {close}, equal_nan=True, msg=lambda text: {message}: {{text}}")')
        else:
            lines.append(f'numpy.testing.assert_allclose({ours}, {theirs}, {close}, err_msg={message}")')
    return lines


def _options(options):
    definitions, keywords = [], []
    for name, value in options.items():
        if name == "backend" and isinstance(value, str) and _is_registered(value):
            definition, expression = _spelled(_registered[value])
            definitions += [*definition, f"framejit.register_backend({value!r}, {expression})"]
        if isinstance(value, (list, tuple)):
            parts = [_spelled(x) for x in value]
            definitions += [line for definition, _ in parts for line in definition]
            keywords.append(f"{name}=[{', '.join(expression for _, expression in parts)}]")
            continue
        definition, expression = _spelled(value)
        definitions += definition
        keywords.append(f"{name}={expression}")
    return definitions, keywords


def _is_registered(name):
    """Whether the program itself has registered this back end: framejit's own join when they are first used."""
    module = getattr(_registered.get(name), "__module__", None)
    return module is not None and module.partition(".")[0] != "framejit"


def _spelled(value):
    """(lines before, an expression) for an option: a function is imported, else its text is copied, else the reader is asked for it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return [], repr(value)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if getattr(sys.modules.get(module), name, None) is value and module != "__main__" and _is_importable(module):
        return [f"from {module} import {name}"], name
    if isinstance(value, types.FunctionType) and not value.__code__.co_freevars and value.__name__.isidentifier():
        try:
            source = textwrap.dedent(inspect.getsource(value)).rstrip()
        except (OSError, TypeError):
            source = ""
        if source.startswith("def "):
            imports = [f"import {found.__name__} as {used}" for used, found in inspect.getclosurevars(value).globals.items()
                       if isinstance(found, types.ModuleType)]
            return [*imports, source], value.__name__
    name = name.rpartition(".")[2]
    name = name if name.isidentifier() else "given"
    return [f'raise SystemExit("put the definition of {name} here: framejit.minify was given it, and it has no name to import")'], name


def _is_importable(module):
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
