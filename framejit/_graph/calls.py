"""Calls of the array library as text: `torch.conv2d(x0, x1, None, (1, 1), (0, 0), (1, 1), 1)`.

What a graph's `extern_call` does is the library's own function, which the compiler has as Python objects. As text it is the attribute
`callee`: x0, x1 are the node's operands, s0, s1 the graph's sizes, and where the function gives several arrays `r0, r1 = ...` says which
results they are (`_ = ...`: none). Operands that the function writes into are copies, whose contents are the last results: `torch.batch_norm(x0, ...)
writes x3, x4`. Text from elsewhere names functions of arrays only (`_NAMESPACES`), none that reads files or runs code.
"""
import ast
import importlib
import re
import sys

from framejit._errors import GraphError

_NAMESPACES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch._C._nn", "torch._C._linalg",
               "torch._C._fft", "torch._C._special", "torch.Tensor", "numpy", "numpy.linalg", "numpy.fft", "numpy.ndarray")
_REFUSED = re.compile(r"load|save|file|txt|regex|dump|compile|set_|seterr|setbuf|seed|pyfunc|numpy$|__|apply|piecewise|storage|share|register|hook"
                      r"|get_|print|show|backward")


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


def _allowed(space, name, found):
    """Functions of arrays: NumPy's ufuncs and what its dispatch knows, torch's operators and the functions made of them, methods."""
    if name.startswith("_") or _REFUSED.search(name) or not callable(found) or isinstance(found, type):
        return False
    if space in ("torch.Tensor", "numpy.ndarray"):
        return type(found).__name__ == "method_descriptor" or getattr(found, "__module__", "") == "torch._tensor"
    if space.startswith("numpy"):
        return type(found).__name__ in ("ufunc", "_ArrayFunctionDispatcher", "builtin_function_or_method")
    if space == "torch":
        operators = dir(sys.modules["torch"]._C._VariableFunctions)
        return name in operators or getattr(found, "__module__", "") == "torch.functional"
    modules = ("torch.nn.functional", "torch._jit_internal")  # the second: max_pool2d and its like
    return type(found).__name__ == "builtin_function_or_method" or getattr(found, "__module__", "") in modules


def _names():
    """By identity of each function: its own name, in the first namespace that has it, else an alias."""
    made, named = {}, set()
    for space in _NAMESPACES:
        module = _space(space)
        for name in dir(module) if module is not None else ():
            found = getattr(module, name, None)
            if _allowed(space, name, found):
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
    if space not in _NAMESPACES or last.startswith("_") or _REFUSED.search(last):
        raise GraphError(f"`{name}` is no function of arrays that a graph can call")
    found = getattr(_space(space), last, None)
    if found is None and space.startswith("torch") and "torch" not in sys.modules:
        raise GraphError(f"the graph calls `{name}`: import torch first")
    if found is None or not _allowed(space, last, found):
        raise GraphError(f"`{name}` is no function of arrays that a graph can call")
    return found


def _constant(value):
    """The text of a constant argument; None: it has none."""
    torch = sys.modules.get("torch")
    if value is None or type(value) in (bool, int, str):
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
    if structure == ("array", 0):
        return text
    if structure is None:
        return "_ = " + text
    if structure[0] != "tuple" or any(item is not None and item[0] != "array" for item in structure[1]):
        return None
    targets = ", ".join("_" if item is None else f"r{item[1]}" for item in structure[1])
    return f"{targets}{',' if len(structure[1]) == 1 else ''} = {text}"


class _Operands(ast.NodeTransformer):
    def __init__(self, operands):
        self.names = {f"x{i}": operand for i, operand in enumerate(operands)}

    def visit_Name(self, node):
        if node.id in self.names:
            return self.names[node.id]
        return node


def is_text(callee):
    return "(" in callee


def refuse_without_text(graph, what):
    """GraphError, which begins with `what`, where the graph has a call that only the trace it was made in can make."""
    for node in graph.find(op="extern_call"):
        if not is_text(node.attrs["callee"]):
            raise GraphError(f"{what}: {node} calls `{node.attrs['callee']}` on objects that have no text")


def parsed(callee):
    """(syntax tree, names of results or None, names of operands written). GraphError for what is no call of an array function."""
    def wrong():
        raise GraphError(f"`{callee}` is no call of an array function")

    code, _, written = callee.partition(" writes ")
    written = written.split(", ") if written else []
    if not all(re.fullmatch(r"x\d+", name) for name in written):
        wrong()
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        wrong()
    results = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Tuple):
        results = [target.id if isinstance(target, ast.Name) else wrong() for target in statement.targets[0].elts]
        if not all(re.fullmatch(r"_|r\d+", name) for name in results):
            wrong()
    elif isinstance(statement, ast.Assign) and [x.id for x in statement.targets if isinstance(x, ast.Name)] == ["_"]:
        results = []
    elif not isinstance(statement, ast.Expr):
        wrong()
    call = statement.value
    if not isinstance(call, ast.Call):
        wrong()
    name = _dotted(call.func) or wrong()
    function_named(name)
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if not _harmless(argument):
            wrong()
    if any(keyword.arg is None for keyword in call.keywords):
        wrong()
    return statement, results, written


def _dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    inside = _dotted(node.value) if isinstance(node, ast.Attribute) else None
    return inside and f"{inside}.{node.attr}"


def _harmless(node):
    """An operand, a size, a constant, or a sequence of such."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, bytes) and node.value is not Ellipsis
    if isinstance(node, ast.Name):
        return re.fullmatch(r"[xs]\d+", node.id) is not None
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(map(_harmless, node.elts))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _harmless(node.operand)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)) and _is_size(node.left) and _is_size(node.right)
    if isinstance(node, ast.Attribute):
        torch = sys.modules.get("torch")
        found = getattr(torch, node.attr, None) if _dotted(node.value) == "torch" else None
        return torch is not None and isinstance(found, (torch.dtype, torch.memory_format, torch.layout))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "slice":
            return all(map(_harmless, node.args))
        if node.func.id == "complex":
            return all(isinstance(x, (ast.Constant, ast.UnaryOp, ast.Call)) and _harmless(x) for x in node.args)
        return node.func.id == "float" and [x.value for x in node.args if isinstance(x, ast.Constant)] in (["inf"], ["-inf"], ["nan"])
    return False


def _is_size(node):
    return (isinstance(node, ast.Constant) and type(node.value) is int or isinstance(node, ast.Name) and re.fullmatch(r"s\d+", node.id)
            or isinstance(node, (ast.BinOp, ast.UnaryOp)) and _harmless(node))


def expression(callee, operands):
    """(the call's syntax tree with these for its operands, the results it gives in order or None for one array, numbers of operands written)."""
    statement, results, written = parsed(callee)
    return _Operands(operands).visit(statement.value), results, [int(name[1:]) for name in written]
