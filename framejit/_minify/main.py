"""`framejit.minify`: from a function that framejit treats wrongly to a script that shows it alone."""
import functools
import io
import pathlib

import numpy as np

from framejit import _core
from framejit._api import given_options, _part
from framejit._errors import Error
from framejit._minify.arguments import as_text, stored
from framejit._minify.failing import Difference, OwnTest
from framejit._minify.pieces import failing_piece
from framejit._minify.script import operations_of, script_of
from framejit._minify.shrinking import shrunk
from framejit._support import graph_code
from framejit._support.files import write_whole


class MinifiedProblem:
    """What `framejit.minify` returns; its text is the script.

    graph: the framejit.Graph that fails. args: the arrays with which it does (then the integers it needs), as a list. script: the text of
    a program that shows it. operations: the graph's in words, with their lines. failure: what is wrong, in words. arrays: by name, those
    of `args` that are too long for the script, which reads them from a file of its own name that ends in `.npz`.
    """

    def __init__(self, case, arguments, script, failure):
        self.graph, self.script, self.failure = case.graph, script, failure.text
        self.args = [argument.value for argument in arguments]
        self.operations = operations_of(case.graph)
        self.arrays = {argument.name: stored(argument) for argument in arguments if argument.text is None}

    def save(self, path):
        """Writes the script to `path`, and `arrays`, if there are any, beside it; both are written beside and renamed."""
        path = pathlib.Path(path)
        if self.arrays:
            file = io.BytesIO()
            np.savez_compressed(file, **self.arrays)
            write_whole(path.with_suffix(".npz"), file.getvalue())
        write_whole(path, self.script.encode())

    def __str__(self):
        return self.script

    def __repr__(self):
        return f"<framejit.minify: {self.operations}: {self.failure}>"


def minify(f, args=(), kwargs=None, *, fails=None, path=None, **options):
    """Shrinks a function that framejit treats wrongly to a short script that shows it alone.

    Returns an object whose str is the script, with `graph`, the framejit.Graph that fails, `args`, the arrays with which it does,
    `operations` and `failure`, in words, `script`, `arrays` and `save(path)`.

    f: a function, a method, a torch.nn.Module or another callable object, compiled or not; it is called several times. args, kwargs: the
    arguments with which it fails, a tuple and a dict; their arrays are copied. options: those of `framejit.compile`; of a compiled
    function, its own unless they are given here.

    fails: `fails(function, args) -> bool`, given `f`, then functions of arrays that each return a list of arrays, which are one of f's
    graphs or a part of it, with a list of copied arguments. None: the compiled call raises and the one as written does not, or they give
    or write other dtypes, shapes or values, NaNs among them, beyond the bounds of `backend="verify"`. Of the graphs that f breaks into,
    the first that fails by itself is made smaller as long as it fails in the same way: in its operations, the arrays it is given, their
    sizes and values.

    path: a str or path, to which the script is written, and an `.npz` file beside it if arrays are too long for it. The script ends with
    status 1 and a text that names the operations while it fails, and with 0 when that is mended. A function that was given as back end,
    pass or `fails` is imported in it by its name, or copied.

    Raises framejit.Error where nothing fails, and where f fails and none of its graphs does by itself; what f raises as written;
    GraphBreakError and RecompileError, if options ask for these.

        problem = framejit.minify(model, (x,), path="problem.py")
        print(problem)
    """
    part = _part(f)
    if part is not None:
        options = {**given_options(part), **options}
        f = f.__wrapped__ if isinstance(f, _core.CompiledFunction) else getattr(f, "_framejit_original", f)
    options = {name: value for name, value in options.items() if name != "strict"}
    if "passes" in options:
        options["passes"] = getattr(options["passes"], "functions", options["passes"])
    test = Difference(options) if fails is None else OwnTest(fails)
    function, args = functools.partial(f, **kwargs) if kwargs else f, list(args)
    name = getattr(f, "__qualname__", type(f).__qualname__)
    failure = test(function, args)
    if failure is None:
        raise Error(f"framejit.minify: compiled and eager agree on these arguments of {name}\n  try   the arguments and the options with "
                    "which it fails (backend=, dynamic=, passes=), or fails=, a test of your own")

    def same(function, args):
        found = test(function, args)
        return found if found is not None and found.kind == failure.kind else None

    try:
        piece, found = failing_piece(function, args, options, same)
    except Exception as error:
        raise Error(f"framejit.minify: {name} fails ({failure.text}), and has no graphs to look at: {error}") from error
    if piece is None and found == 0:
        raise Error(f"framejit.minify: {name} fails ({failure.text}), and no graph of it is compiled: loops over elements have none\n"
                    "  try   backend= as an argument of minify, if it is that of a `with framejit.options(...)` block")
    if piece is None:
        raise Error(f"framejit.minify: {name} fails ({failure.text}), and of its {found} graphs none fails by itself\n"
                    "  the fault is in how it was captured, or in a derivative\n"
                    "  try   backend=\"eager\", which runs the graphs by the library; please report the whole function")
    case = shrunk(piece, same)
    core = case.graph._as_core()
    text = graph_code.source(core, case.library)
    arguments = as_text(case, [*(node.name for node in case.graph.inputs), *(f"s{number}" for number in core.integers)], same)
    case = case._replace(arguments=[argument.value for argument in arguments])
    failure = same(case.function, case.arguments)
    problem = MinifiedProblem(case, arguments, script_of(case, arguments, text, failure, options, fails), failure)
    if path is not None:
        problem.save(path)
    return problem
