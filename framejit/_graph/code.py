"""Python functions made of syntax trees, never of texts put together: what a file says can be a constant, a checked name or a size in them,
and nothing else.

Start at `expression` and `statement`: the tree of a text of this package's own, in which names (holes) stand for other trees. `size` reads
the text of a size, once, into a tree of ints, symbols, +, - and *, and `evaluated` is the one that computes it. `function` compiles,
`text` is for people.
"""
import ast
import builtins
import functools
import keyword
import math
import operator
import re
import types
import unicodedata

from framejit._errors import GraphError

LARGEST = 2**62  # of the numbers that are read from a file
_LARGEST_IN_SIZE = 2**63  # what a size's text may have: -2**63 is one
_LONGEST, _DEEPEST = 20_000, 250  # of a size: characters, operations in one another
_SIZE = re.compile(r"[s0-9*+\- ()]+")
_SYMBOL = re.compile(r"s(?:0|[1-9][0-9]{0,9})")
_RELATION = re.compile(r"([s0-9*+\- ()]+) (<|<=|==|!=|>|>=) ([s0-9*+\- ()]+)")
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


# ---- trees

def is_name(text):
    """Whether it can be an identifier, and is the one that Python would take it for."""
    return (isinstance(text, str) and text.isidentifier() and not keyword.iskeyword(text) and text != "__debug__"
            and unicodedata.normalize("NFKC", text) == text)


def name(text):
    if not is_name(text):
        raise GraphError(f"{text!r} is no name")
    return ast.Name(text, ast.Load())


def tree(value):
    """Of a constant, or of a tuple or list of such and of trees. A tree is itself."""
    if isinstance(value, ast.AST):
        return value
    kind = type(value)
    if kind in (tuple, list):
        return (ast.Tuple if kind is tuple else ast.List)(list(map(tree, value)), ast.Load())
    if kind is int and value < 0 or kind is float and math.copysign(1.0, value) < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    if value is None or kind in (bool, int, float, complex, str):
        return ast.Constant(value)
    raise GraphError(f"{kind.__name__} is no constant of a graph")


@functools.cache
def _parsed(template):
    (statement,) = ast.parse(template).body
    return statement


def expression(template, /, **holes):
    """The tree of a text of this package's own (never of a file's). holes: by name in it, a tree or constant; of `*name`, several."""
    return filled(_parsed(template).value, holes)


def statement(template, /, **holes):
    """One statement. A hole that is assigned to is a name."""
    return filled(_parsed(template), holes)


def filled(node, holes):
    """A copy of the tree, with other trees in the place of these names."""
    if isinstance(node, ast.Name) and node.id in holes:
        found = holes[node.id]
        return ast.Name(found.id, ast.Store()) if isinstance(node.ctx, ast.Store) else tree(found)
    made = {}
    for field, old in ast.iter_fields(node):
        if isinstance(old, list):
            new = []
            for item in old:
                if isinstance(item, ast.Starred) and isinstance(holes.get(item.value.id), (list, tuple)):
                    new.extend(map(tree, holes[item.value.id]))
                else:
                    new.append(filled(item, holes) if isinstance(item, ast.AST) else item)
        else:
            new = filled(old, holes) if isinstance(old, ast.AST) else old
        made[field] = new
    return type(node)(**made)


def any_of(tests):
    return _joined(ast.Or(), list(tests))


def all_of(tests):
    return _joined(ast.And(), list(tests))


def _joined(by, tests):
    return ast.BoolOp(by, tests) if len(tests) > 1 else tests[0]


def assigned(names, value, one=False):
    """`a = value`; of several names, or of one that is the only item, `a, b = value`. names: texts."""
    targets = [ast.Name(name(text).id, ast.Store()) for text in names]
    target = targets[0] if one else ast.Tuple(targets, ast.Store())
    return ast.Assign([target], tree(value))


# ---- sizes

def size(data):
    """The tree of a size: an int, or a text of ints, symbols, +, - and *. GraphError for anything else."""
    if isinstance(data, ast.AST):
        return data
    if type(data) is int and abs(data) <= _LARGEST_IN_SIZE:
        return tree(data)
    if type(data) is str and len(data) <= _LONGEST and _SIZE.fullmatch(data):
        return _size(data)
    raise GraphError(f"{_short(data)} is no size")


def _short(data):
    text = repr(data) if type(data) in (str, float, bool, type(None)) else type(data).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


@functools.lru_cache(4096)
def _size(text):
    try:
        found = ast.parse(text.strip(), mode="eval").body
        deep = _depth(found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        deep = 0
    if not 0 < deep <= _DEEPEST:
        raise GraphError(f"{_short(text)} is no size")
    return found


def _depth(node):
    """How many operations are in one another; ValueError for what is no size."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value <= _LARGEST_IN_SIZE:
        return 1
    if isinstance(node, ast.Name) and _SYMBOL.fullmatch(node.id):
        return 1
    if isinstance(node, ast.UnaryOp) and type(node.op) is ast.USub:
        return 1 + _depth(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return 1 + max(_depth(node.left), _depth(node.right))
    raise ValueError("no size")


def is_symbol(data):
    return isinstance(data, str) and _SYMBOL.fullmatch(data) is not None


def is_number(node):
    """Whether a size has no symbols."""
    return not symbols(node)


def symbols(node):
    """The names of the symbols in a size."""
    return {found.id for found in ast.walk(size(node)) if isinstance(found, ast.Name)}


def evaluated(data, values):
    """A size as a number, or as whatever has +, - and * and is the value of a symbol. KeyError for a symbol that has none."""
    if type(data) is int:
        return data
    node = size(data)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp):
        return -evaluated(node.operand, values)
    return _OPERATORS[type(node.op)](evaluated(node.left, values), evaluated(node.right, values))


def point(names):
    """Large sizes, at which two that are not equal differ: they are polynomials."""
    return {text: (1 << 40) + 7919 * (i + 1) ** 3 for i, text in enumerate(names)}


def relation(data):
    """(left size, "<", right size) of a text; None: it is none."""
    parts = _RELATION.fullmatch(data) if type(data) is str else None
    return parts and (size(parts[1]), parts[2], size(parts[3]))


def compared(left, comparison, right):
    """The tree of a relation."""
    return expression(f"left {comparison} right", left=left, right=right)


def quotient(dividend, divisor, remainder):
    return expression("a % b" if remainder else "a // b", a=size(dividend), b=size(divisor))


# ---- functions

def parameters(entries):
    """Of (name, kind, default or None): kind as inspect.Parameter names it, default a tree for the text."""
    made = _parsed("def f(): pass").args
    made = filled(made, {})
    for text, kind, default in entries:
        argument = ast.arg(name(text).id)
        if kind == "VAR_POSITIONAL":
            made.vararg = argument
        elif kind == "VAR_KEYWORD":
            made.kwarg = argument
        elif kind == "KEYWORD_ONLY":
            made.kwonlyargs.append(argument)
            made.kw_defaults.append(default)
        else:
            (made.posonlyargs if kind == "POSITIONAL_ONLY" else made.args).append(argument)
            if default is not None:
                made.defaults.append(default)
            elif made.defaults:
                raise GraphError(f"the parameter {text} has no default, and one before it has")
    return made


def plain_parameters(names):
    return parameters((text, "POSITIONAL_OR_KEYWORD", None) for text in names)


def definition(text, arguments, body):
    made = filled(_parsed("def f(): pass"), {})
    made.name, made.args, made.body = name(text).id, arguments, body
    return made


def calling(text, callee, names):
    """`def text(names): return callee(names)`."""
    names = list(names)
    body = statement("return callee(*given)", callee=name(callee), given=[name(given) for given in names])
    return definition(text, plain_parameters(names), [body])


def function(tree, space, file, defaults=(), keyword_defaults=None):
    """The function of a definition, with these globals, which don't get its name. Its lines are those of `text`."""
    module = ast.parse("")
    module.body = [_placed(tree, _Lines())]
    (code,) = (found for found in compile(module, file, "exec").co_consts if isinstance(found, types.CodeType))
    space.setdefault("__builtins__", builtins.__dict__)  # as `exec` does: C code that imports looks for it
    made = types.FunctionType(code, space, tree.name, tuple(defaults) or None)
    made.__kwdefaults__ = keyword_defaults or None
    return made


class _Lines:
    line = 1


def _placed(node, lines):
    """A copy, in which each statement is a line, and nothing is shared."""
    made = {attribute: lines.line if "line" in attribute else 0 for attribute in node._attributes}
    for field, old in ast.iter_fields(node):
        if field == "body" and isinstance(old, list):
            new = []
            for inner in old:
                lines.line += 1
                new.append(_placed(inner, lines))
        elif isinstance(old, list):
            new = [_placed(item, lines) if isinstance(item, ast.AST) else item for item in old]
        else:
            new = _placed(old, lines) if isinstance(old, ast.AST) else old
        made[field] = new
    return type(node)(**made)


def text(tree, comments=None):
    """A definition as people read it. comments: by number of a statement of its body, what stands behind it."""
    tree, comments = _placed(tree, _Lines()), comments or {}
    body, tree.body = tree.body, [ast.Pass()]
    lines = ast.unparse(tree).split("\n")[:1]
    for number, inner in enumerate(body):
        found = [f"    {line}" for line in ast.unparse(inner).split("\n")]
        if number in comments:
            found[-1] += f"  # {comments[number]}"
        lines += found
    return "\n".join(lines) + "\n"


def place(file, line):
    """Where a node comes from, as a comment: on one line, whatever the file is called."""
    return "".join(c if c.isprintable() else "?" for c in f"{file.rpartition('/')[2]}:{line}")
