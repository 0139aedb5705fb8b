"""The user's files: which are a library's, the chain of calls that leads to a function, and what became of each line."""
import ast
import functools
import inspect
import linecache
import os
import sysconfig
import types

from framejit._core import CompiledFunction
from framejit._wrap import compiled_part

_MOST_FUNCTIONS = 2000  # looked at for a chain of calls


@functools.cache
def _library_folders():
    return tuple(os.path.join(path, "") for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name)))


@functools.cache
def is_library(path):
    """Whether the file came with Python or was installed: the user does not edit it."""
    path = path.rsplit(":", 1)[0] if path.rpartition(":")[2].isdigit() else path
    return path.startswith("<") and not path.startswith("<ipython") or path.startswith(_library_folders()) or f"{os.sep}site-packages{os.sep}" in path


def _python_function(found):
    """The function with a code object behind a callable, or None. Objects of other types are not asked: that may run the user's code."""
    for _ in range(20):
        if isinstance(found, types.FunctionType):
            return found
        if isinstance(found, types.MethodType):
            found = found.__func__
        elif isinstance(found, CompiledFunction):
            found = found.__wrapped__
        elif isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        elif isinstance(found, functools.partial):
            found = found.func
        else:
            return None
    return None


def entry_function(target):
    """The Python function that runs first when the target is called: itself, or the `forward` or `__call__` of its class. None: there is none."""
    if (found := _python_function(target)) is not None:
        return found
    if (part := compiled_part(target)) is not None and (found := _python_function(part)) is not None and not is_library(found.__code__.co_filename):
        return found
    return _call_of(target)


def _call_of(target):
    kinds = (inspect.getattr_static(type(target), name, None) for name in ("forward", "__call__"))
    return next((found for found in map(_python_function, kinds) if found is not None), None)


def _named(function, owner):
    """(function, its self) for those that one names: globals, closures, methods of its own class, modules that it holds."""
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # empty yet
            pass
    held = getattr(owner, "__dict__", {}).get("_modules")
    for name in (*function.__code__.co_names, *function.__code__.co_freevars):
        found = cells.get(name, function.__globals__.get(name))
        called, self = _python_function(found), getattr(found, "__self__", None) if isinstance(found, types.MethodType) else None
        if called is None and owner is not None:
            called, self = _python_function(inspect.getattr_static(type(owner), name, None)), owner
        if called is None and isinstance(held, dict) and name in held:
            called, self = _call_of(held[name]), held[name]
        if called is not None and not is_library(called.__code__.co_filename):
            yield called, self


def chain_to(target, wanted):
    """The names of the functions from the target to each wanted one: {(file, qualified name): ("top", "mid", "deep")}.

    Read from the functions' code: there is a chain where each function on it is named by one other alone. Calls through objects
    that change are not followed.
    """
    start = entry_function(target)
    if start is None or not wanted:
        return {}
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    names, callers, waiting = {start.__code__: start}, {start.__code__: set()}, [(start, owner)]
    while waiting and len(names) < _MOST_FUNCTIONS:
        function, owner = waiting.pop()
        for called, its in _named(function, owner):
            if called.__code__ not in names:
                names[called.__code__] = called
                waiting.append((called, its))
            callers.setdefault(called.__code__, set()).add(function.__code__)
    chains = {}
    for code, function in names.items():
        place = code.co_filename, function.__qualname__
        if place not in wanted or code is start.__code__:
            continue
        chain, at = [function.__qualname__], code
        while at is not start.__code__ and len(callers[at] - {at}) == 1 and len(chain) < 50:
            (at,) = callers[at] - {at}
            chain.append(names[at].__qualname__)
        if at is start.__code__:
            chains[place] = tuple(reversed(chain))
    return chains


class SourceLine:
    __slots__ = ("number", "text", "kind", "notes")

    def __init__(self, number, text):
        self.number, self.text, self.kind, self.notes = number, text, "", []


def marked_functions(compiled, breaks, eager):
    """(file, qualified name, [SourceLine]) of each function of the user that a report has something to say of.

    compiled: {(file, line)} of graphs' operations. breaks: those of the report. eager: {(file, first line)} of functions of which nothing is
    compiled. A line's kind: "compiled", "break", "eager"; "": no array operation was recorded for it.
    """
    wanted = {}
    for file, line in [*compiled, *((b.file, b.line) for b in breaks), *eager]:
        if file and line > 0 and not is_library(file):
            wanted.setdefault(file, set()).add(line)
    result = []
    for file in sorted(wanted):
        lines = linecache.getlines(file)
        for name, first, last in _enclosing(lines, wanted[file]):
            rows, own = [], {}
            for number in range(first, last + 1):
                own[number] = row = SourceLine(number, lines[number - 1].rstrip("\n"))
                row.kind = "compiled" if (file, number) in compiled else ""
                rows.append(row)
            for b in breaks:
                if b.file == file and b.line in own:
                    own[b.line].kind = "break"
                    own[b.line].notes.append(f"{b.number} {b.what}")
            if any((file, number) in eager for number in own) and not any(row.kind for row in rows):
                for row in rows:
                    row.kind = "eager" if row.text.strip() else ""
            result.append((file, name, rows))
    return result


def _enclosing(lines, wanted):
    """(name, first line, last line) of the outermost functions and methods that have a wanted line; without any the line alone."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        tree = ast.Module([], [])
    found, left = [], {line for line in wanted if line <= len(lines)}

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first, last = min([child.lineno, *(d.lineno for d in child.decorator_list)]), child.end_lineno
                inside = {line for line in left if first <= line <= last}
                if inside:
                    found.append((prefix + child.name, first, last))
                    left.difference_update(inside)
            else:
                visit(child, prefix + child.name + "." if isinstance(child, ast.ClassDef) else prefix)

    visit(tree, "")
    found += [("", line, line) for line in left]
    return sorted(found, key=lambda row: row[1])
