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


def marked_functions(compiled, breaks, loops, place, eager):
    """(file, qualified name, [SourceLine]) of each function of the user that a report has something to say of.

    compiled: {(file, line)} of graphs' operations. breaks: those of the report. loops: {(line, qualified name of the
    function)} of loops that run as machine code. place: (file, first line) of the function that is reported on. eager: nothing of it is compiled.
    A line's kind: "compiled", "break", "loop", "eager"; "": no array operation was recorded for it.
    """
    wanted = {}
    for file, line in [*compiled, *((b.file, b.line) for b in breaks), *([place] if place else [])]:
        if file and line > 0 and not is_library(file):
            wanted.setdefault(file, set()).add(line)
    result = []
    for file in sorted(wanted):
        lines = linecache.getlines(file)
        inside = _lines_of_loops(lines, loops)
        for name, first, last in _enclosing(lines, wanted[file]):
            rows, own = [], {}
            for number in range(first, last + 1):
                own[number] = row = SourceLine(number, lines[number - 1].rstrip("\n"))
                row.kind = "compiled" if (file, number) in compiled else "loop" if number in inside and row.text.strip() else ""
                rows.append(row)
            for b in breaks:
                if b.file == file and b.line in own:
                    own[b.line].kind = "break"
                    own[b.line].notes.append(f"{b.number} {b.what}")
            if eager and place[0] == file and place[1] in own and not any(row.kind for row in rows):
                for row in rows[place[1] - first:][:len(inspect.getblock(lines[place[1] - 1:]))]:
                    row.kind = "eager" if row.text.strip() else ""
            result.append((file, name, rows))
    return result


def _parsed(lines):
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _lines_of_loops(lines, loops):
    """The numbers of the lines of the loops."""
    found = set()

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                visit(child, f"{prefix}{child.name}.<locals>.")
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            else:
                if isinstance(child, (ast.For, ast.While)) and (child.lineno, prefix.removesuffix(".<locals>.")) in loops:
                    found.update(range(child.lineno, child.end_lineno + 1))
                visit(child, prefix)

    if loops:
        visit(_parsed(lines), "")
    return found


def _enclosing(lines, wanted):
    """(name, first line, last line) of the outermost functions and methods that have a wanted line; without any the line alone."""
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

    visit(_parsed(lines), "")
    found += [("", line, line) for line in left]
    return sorted(found, key=lambda row: row[1])
