"""Calls of the array library as text: `torch.conv2d(x0, x1, None, (1, 1), (0, 0), (1, 1), 1)`.

What a graph's `extern_call` does is the library's own function, which the compiler has as Python objects. As text it is the attribute
`callee`: x0, x1 are the node's operands, s0, s1 the graph's sizes, and where the function gives several arrays `r0, r1 = ...` says which
results they are (`_ = ...`: none). Operands that the function writes into are copies, whose contents are the last results: `torch.batch_norm(x0, ...)
writes x3, x4`. Text from elsewhere names functions of arrays only (effects.py), none that reads files or runs code, and says what they write.
"""
import ast
import importlib
import re
import sys

from framejit._errors import GraphError
from framejit._graph.effects import is_known, written_by

_NAMESPACES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch._C._nn", "torch._C._linalg",
               "torch._C._fft", "torch._C._special", "torch.Tensor", "numpy", "numpy.linalg", "numpy.fft", "numpy.ndarray")
_LONGEST, _DEEPEST = 1 << 16, 12  # a call's characters, its sequences in one another
_LARGEST = 1 << 62  # of an integer
_TEXT = re.compile(r"[\w ,.:<>=|?+\->]{0,256}")  # names of modes, types and devices, equations of sums: no path and no code


def _space(name):
    if name in ("torch.Tensor", "numpy.ndarray"):
        return getattr(sys.modules.get(name.partition(".")[0]), name.partition(".")[2], None)
    module = sys.modules.get(name)
    if module is None and (name.startswith("numpy") or "torch" in sys.modules):
        try:
            module = importlib.import_module(name)
        except ImportError:
            parent, _, last = name.rpartition(".")
            module = getattr(sys.modules.get(parent), last, None)
    return module


def _names():
    """By identity of each function: its own name, in the first namespace that has it, else an alias."""
    made, named = {}, set()
    for space in _NAMESPACES:
        module = _space(space)
        for name in dir(module) if module is not None else ():
            found = getattr(module, name, None)
            if is_known(space, name, found):
                if id(found) not in made or (name == getattr(found, "__name__", "") and id(found) not in named):
                    made[id(found)] = f"{space}.{name}"
                if name == getattr(found, "__name__", ""):
                    named.add(id(found))
                code = getattr(getattr(found, "__wrapped__", None), "__code__", None)
                if space.startswith("numpy") and code is not None:  # what NumPy's dispatchers call, or a copy of it
                    made.setdefault(id(code), f"{space}.{name}")
    return made


_known = {}


def name_of(function):
    """The function's name in its library, or None."""
    code = getattr(function, "__code__", None)
    keys = [id(function)] + ([id(code)] if code is not None and (function.__module__ or "").startswith("numpy") else [])
    if not any(key in _known for key in keys):
        _known.update(_names())
    return next((_known[key] for key in keys if key in _known), None)


def function_named(name):
    """The library's function. GraphError: there is none of this name, or it is no function of arrays."""
    space, _, last = name.rpartition(".")
    if space not in _NAMESPACES or last.startswith("_"):
        raise GraphError(f"`{name}` is no function of arrays that a graph can call")
    found = getattr(_space(space), last, None)
    if found is None and space.startswith("torch") and "torch" not in sys.modules:
        raise GraphError(f"the graph calls `{name}`: import torch first")
    if found is None or not is_known(space, last, found):
        raise GraphError(f"`{name}` is no function of arrays that a graph can call")
    return found


def _constant(value):
    """The text of a constant argument; None: it has none."""
    torch = sys.modules.get("torch")
    if value is None or type(value) is bool or (type(value) is int and abs(value) <= _LARGEST) \
            or (type(value) is str and _TEXT.fullmatch(value)):
        return repr(value)
    if type(value) is float:
        return repr(value) if value == value and abs(value) != float("inf") else f"float({str(value)!r})"
    if type(value) is complex:
        return f"complex({_constant(value.real)}, {_constant(value.imag)})"
    if torch is not None and isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if torch is not None and isinstance(value, torch.device):
        return repr(str(value))
    return None


def _argument(argument):
    kind, value = argument
    if kind == "constant":
        return _constant(value)
    if kind == "operand":
        return f"x{value}"
    if kind == "size":
        return str(value)
    if kind not in ("tuple", "list", "slice"):
        return None
    items = [_argument(item) for item in value]
    if None in items:
        return None
    inside = ", ".join(items)
    return {"tuple": f"({inside}{',' if len(items) == 1 else ''})", "list": f"[{inside}]", "slice": f"slice({inside})"}[kind]


def _numbers_as_arrays(structure):
    """What NumPy's functions return as a number is an array without axes to a graph."""
    if structure is None or structure[0] not in ("number", "tuple"):
        return structure
    return ("array", structure[1]) if structure[0] == "number" else ("tuple", [_numbers_as_arrays(item) for item in structure[1]])


def text_of(call):
    """The text of a call of `CapturedGraph.calls`; None: it has none."""
    if call is None:
        return None
    function, positional, keywords, structure, written = call
    name = name_of(function)
    arguments = [_argument(x) for x in positional] + [text and f"{key}={text}" for key, text in
                                                      ((key, _argument(x)) for key, x in keywords.items())]
    if name is None or None in arguments or (structure is None and not written):
        return None
    text = f"{name}({', '.join(arguments)})" + (" writes " + ", ".join(f"x{i}" for i in written) if written else "")
    if name.startswith("numpy."):
        structure = _numbers_as_arrays(structure)
    if structure is None:
        text = "_ = " + text
    elif structure != ("array", 0):
        if structure[0] != "tuple" or any(item is not None and item[0] != "array" for item in structure[1]):
            return None
        targets = ", ".join("_" if item is None else f"r{item[1]}" for item in structure[1])
        text = f"{targets}{',' if len(structure[1]) == 1 else ''} = {text}"
    try:
        parsed(text)
    except GraphError:
        return None
    return text


class _Operands(ast.NodeTransformer):
    def __init__(self, operands):
        self.names = {f"x{i}": operand for i, operand in enumerate(operands)}

    def visit_Name(self, node):
        if node.id in self.names:
            return self.names[node.id]
        return node


def is_text(callee):
    return "(" in callee


def library_of(callee):
    """Whose function a call's text names: "numpy", "torch", or another package."""
    return callee.rpartition(" = ")[2].partition("(")[0].partition(".")[0]


def refuse_without_text(graph, what):
    """GraphError, which begins with `what`, where the graph has a call that only the trace it was made in can make."""
    for node in graph.find(op="extern_call"):
        if not is_text(node.attrs["callee"]):
            raise GraphError(f"{what}: {node} calls `{node.attrs['callee']}` on objects that have no text")


def parsed(callee, operands=None):
    """(syntax tree, names of results or None, names of operands written). GraphError for what is no call of an array function.

    operands: how many the node has.
    """
    def wrong(why="is no call of an array function"):
        raise GraphError(f"`{callee if len(callee) <= 200 else callee[:200] + '...'}` {why}")

    if len(callee) > _LONGEST:
        wrong("is too long for a call")
    code, _, written = callee.partition(" writes ")
    written = written.split(", ") if written else []
    if not all(re.fullmatch(r"x\d{1,9}", name) for name in written):
        wrong()
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        wrong()
    results = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Tuple):
        results = [target.id if isinstance(target, ast.Name) else wrong() for target in statement.targets[0].elts]
        if not all(re.fullmatch(r"_|r\d{1,9}", name) for name in results):
            wrong()
    elif isinstance(statement, ast.Assign) and [x.id for x in statement.targets if isinstance(x, ast.Name)] == ["_"]:
        results = []
    elif not isinstance(statement, ast.Expr):
        wrong()
    call = statement.value
    if not isinstance(call, ast.Call):
        wrong()
    name = _dotted(call.func) or wrong()
    found = function_named(name)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in keywords or len(keywords) < len(call.keywords):
        wrong()
    for argument in [*call.args, *keywords.values()]:
        if not _harmless(argument):
            wrong()
    touched = written_by(name, found, call.args, keywords, _is_one_of)
    if touched is None:
        wrong("names what it writes by a keyword")
    for operand in sorted({x for argument in touched for x in _operands_in(argument)} - set(written)):
        wrong(f"writes {operand} and doesn't say so")
    if operands is not None:
        for operand in [*written, *(x for argument in [*call.args, *keywords.values()] for x in _operands_in(argument))]:
            if int(operand[1:]) >= operands:
                wrong(f"has an operand {operand}, and the node has {operands}")
    return statement, results, written


def _is_one_of(node, values):
    return isinstance(node, ast.Constant) and any(node.value is value for value in values)


def _operands_in(argument):
    return [node.id for node in ast.walk(argument) if isinstance(node, ast.Name) and re.fullmatch(r"x\d+", node.id)]


def check(callee, operands, results):
    """GraphError: the text of a node with so many operands and results is none that text may call."""
    if not is_text(callee):
        return
    _, names, written = parsed(callee, operands)
    numbers = [name for name in names or () if name != "_"]
    own = results - len(written)
    if own != 1 if names is None else sorted(numbers) != sorted(f"r{i}" for i in range(own)):
        raise GraphError(f"`{callee[:200]}` doesn't say which are the node's {results} results")


def _dotted(node):
    names = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *names]) if isinstance(node, ast.Name) else None


def _harmless(node, depth=0):
    """An operand, a size, a constant, or a sequence of such."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Constant):
        value = node.value
        if type(value) is str:
            return _TEXT.fullmatch(value) is not None
        return value is None or type(value) in (bool, float, complex) or (type(value) is int and value <= _LARGEST)
    if isinstance(node, ast.Name):
        return re.fullmatch(r"[xs]\d{1,9}", node.id) is not None
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(_harmless(x, depth + 1) for x in node.elts)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _harmless(node.operand, depth + 1)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)) and _is_size(node)
    if isinstance(node, ast.Attribute):
        torch = sys.modules.get("torch")
        found = vars(torch).get(node.attr) if torch is not None and _dotted(node.value) == "torch" else None
        return torch is not None and isinstance(found, (torch.dtype, torch.memory_format, torch.layout))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "slice":
            return all(_harmless(x, depth + 1) for x in node.args)
        if node.func.id == "complex":
            return all(isinstance(x, (ast.Constant, ast.UnaryOp, ast.Call)) and _harmless(x, depth + 1) for x in node.args)
        return node.func.id == "float" and [x.value for x in node.args if isinstance(x, ast.Constant)] in (["inf"], ["-inf"], ["nan"])
    return False


def _is_size(node, depth=0):
    """A polynomial of sizes, as the compiler writes one: sums of any length, each of a few factors."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        if not _is_size(node.right, depth + 1):
            return False
        node = node.left
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult) and _is_size(node.left, depth + 1) and _is_size(node.right, depth + 1)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_size(node.operand, depth + 1)
    return (isinstance(node, ast.Constant) and type(node.value) is int and node.value <= _LARGEST
            or isinstance(node, ast.Name) and re.fullmatch(r"s\d{1,9}", node.id) is not None)


def expression(callee, operands):
    """(the call's syntax tree with these for its operands, the results it gives in order or None for one array, numbers of operands written)."""
    statement, results, written = parsed(callee, len(operands))
    return _Operands(operands).visit(statement.value), results, [int(name[1:]) for name in written]
