"""framejit run and framejit explain: a program as Python runs it, and at its end what framejit did in it.

`run` gives `__main__`, sys.argv, sys.path and uncaught exceptions to the program as `python` would; the report is made by the first
function that atexit knows, which is the last one it calls: after the program's threads and its own functions of atexit. While the program
runs, every function that is compiled is kept, or one that `main()` compiles would be gone before it is reported.
"""
import atexit
import builtins
import collections
import errno
import fnmatch
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import types

import framejit
from framejit import _core
from framejit._nearest import did_you_mean
from framejit._tools.text import counted, place

MOST_FUNCTIONS, MOST_BREAKS = 20, 5


class NotFound(Exception):
    """There is no such program; the text is what `python` would say."""


class Made:
    """One function that the program has compiled, with its report."""

    def __init__(self, compiled):
        plain = compiled.__wrapped__
        self.name, self.file, self.line = plain.__qualname__, plain.__code__.co_filename, plain.__code__.co_firstlineno
        self.report = framejit.explain(compiled).so_far()
        self.kernels = self.report.kernel_count
        self.loops = sum("no region" not in entry for entry in map(str, self.report.loops))  # those that are machine code
        self.compiled_something = any((self.report.graphs, self.report.breaks, self.report.fallbacks, self.report.loops))

    def as_json(self):
        breaks = [{"number": b.number, "name": b.name, "file": b.file, "line": b.line, "function": b.function, "detail": b.detail,
                   "count": b.count} for b in self.report.breaks]
        return {"name": self.name, "file": self.file, "line": self.line, "graphs": len(self.report.graphs), "kernels": self.kernels,
                "operations": sum(1 for graph in self.report.graphs for _ in graph), "breaks": breaks,
                "recompiles": [str(entry) for entry in self.report.recompiles], "fallbacks": [str(entry) for entry in self.report.fallbacks],
                "loops": [str(entry) for entry in self.report.loops]}


def recorded():
    """The list that every function compiled from now on is put into."""
    compile_function, functions = _core.compile_function, []

    def compile_and_keep(function, *rest):
        made = compile_function(function, *rest)
        if not str(function.__module__).startswith("framejit."):  # what options are tried with, what a profile measures the machine by
            functions.append(made)
        return made

    _core.compile_function = compile_and_keep
    return functions


# ---- the program

def main_module(script, module):
    """(code, the module `__main__`) of a script, a folder or an archive with a `__main__.py`, or of a module by name. Sets sys.argv[0]
    and sys.path[0] as `python` does."""
    made = types.ModuleType("__main__")
    made.__dict__.update(__builtins__=builtins, __annotations__={})
    if module is None and os.path.isfile(script) and not _is_archive(script):
        _first_on_path(os.path.dirname(os.path.realpath(script)))
        path = os.path.abspath(script)
        if path.endswith(".pyc"):
            made.__loader__ = importlib.machinery.SourcelessFileLoader("__main__", path)
            code = made.__loader__.get_code("__main__")
        else:
            made.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        made.__file__, made.__cached__, made.__doc__ = path, None, None
        return code, made
    if module is None:
        _first_on_path(script)
        if not os.path.exists(script):
            raise NotFound(f"{sys.executable}: can't open file {os.path.abspath(script)!r}: [Errno 2] No such file or directory")
        spec = importlib.machinery.PathFinder.find_spec("__main__", [script])
        if spec is None:
            raise NotFound(f"{sys.executable}: can't find '__main__' module in {os.path.abspath(script)!r}")
    else:
        _first_on_path(os.getcwd())
        spec = _spec(module)
        sys.argv[0] = spec.origin or module
    made.__spec__, made.__loader__, made.__package__ = spec, spec.loader, spec.parent
    made.__file__, made.__cached__ = spec.origin, spec.cached
    return spec.loader.get_code(spec.name), made


def _spec(module):
    def found(name):
        try:
            return importlib.util.find_spec(name)
        except ModuleNotFoundError as error:
            if error.name and name.startswith(error.name):  # a package on the way; what one of them imports is its own failure
                raise NotFound(f"{sys.executable}: Error while finding module specification for {name!r} ({type(error).__name__}: {error})") from None
            raise

    spec = found(module)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = found(module + ".__main__")
        if spec is None:
            raise NotFound(f"{sys.executable}: No module named {module}.__main__; {module!r} is a package and cannot be directly executed")
    if spec is None:
        raise NotFound(f"{sys.executable}: No module named {module}")
    return spec


def _first_on_path(folder):
    """In the place of the folder that Python has put there for framejit's own command."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _is_archive(path):
    import zipfile  # which most commands do without

    return zipfile.is_zipfile(path)


def execute(code, module):
    """Runs the program. An exception that it lets through is told as `python` tells it, without this function's frame."""
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        raise told(error, error.__traceback__.tb_next) from None


def told(error, traceback):
    """Prints an uncaught exception; what to raise so that the process ends as it would have."""
    error = error.with_traceback(traceback)
    sys.last_exc = sys.last_value = error
    sys.last_type, sys.last_traceback = type(error), traceback
    sys.excepthook(type(error), error, traceback)
    if isinstance(error, KeyboardInterrupt):  # whose status says that a signal ended the process
        sys.excepthook = lambda *_: None
        return KeyboardInterrupt()
    return SystemExit(1)


# ---- the report

def summary(program, functions, totals):
    """The lines of the short report."""
    every = [entry for made in functions for entry in made.report.breaks]
    if not functions:
        return [f"framejit: {program}", "  nothing was compiled: the program called no function that framejit.compile has returned"]
    lines = [f"framejit: {program}",
             f"  {counted(len(functions), 'function')} compiled: {counted(sum(len(made.report.graphs) for made in functions), 'graph')}, "
             f"{counted(sum(made.kernels for made in functions), 'kernel')}, {counted(sum(made.loops for made in functions), 'compiled loop')}, "
             f"{counted(len(every), 'break')}, "
             f"{counted(sum(len(made.report.recompiles) for made in functions), 'recompile')}",
             f"  {counted(totals['calls'], 'call')}, {counted(totals['hits'], 'piece')} found compiled; "
             f"kernels: {totals['kernels_compiled']} compiled, {totals['kernels_loaded']} loaded from disk, {totals['kernels_launched']} launched"]
    if totals["retired"]:
        lines.append(f"  {counted(totals['retired'], 'function')} found to be slower compiled, and run eagerly since")
    lines += ["", "  graphs  kernels  loops  breaks  recompiles  function"]
    for made in sorted(functions, key=lambda made: -len(made.report.graphs))[:MOST_FUNCTIONS]:
        lines.append(f"  {len(made.report.graphs):6}  {made.kernels:7}  {made.loops:5}  {len(made.report.breaks):6}  {len(made.report.recompiles):10}  "
                     f"{made.name} ({place(made.file, made.line)})")
    if len(functions) > MOST_FUNCTIONS:
        lines.append(f"  and {counted(len(functions) - MOST_FUNCTIONS, 'function')} more: `framejit explain` shows all")
    times = collections.Counter()  # a function that is compiled more than once, or called by several, breaks at the same line in each
    for entry in every:
        times[f"{place(entry.file, entry.line)} in {entry.function}", reason(entry)] += entry.count
    if times:
        lines += ["", "  the most frequent breaks:" if len(times) > 1 else "  the break:"]
        for (where, why), count in times.most_common(MOST_BREAKS):
            lines += [f"  {where}, {counted(count, 'time')}", f"    {why}"]
    return lines


def reason(entry):
    """"FJ102 output is written here: `print(x)`": the line of the message that has the number."""
    line = next((line.strip() for line in str(entry).splitlines() if line.strip().startswith(entry.number)), None)
    return line or f"{entry.number} {entry.name}: {entry.detail}"


def matching(functions, pattern):
    """Those whose name the pattern matches, with or without the functions around them."""
    return [made for made in functions if fnmatch.fnmatchcase(made.name, pattern) or
            fnmatch.fnmatchcase(made.name.rpartition("<locals>.")[2], pattern)]


def pages(path, functions):
    """(file, function) of each HTML page: the file itself for one function, else with the function's name before its suffix."""
    stem, suffix = os.path.splitext(path)
    taken = {}
    for made in functions:
        name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in made.name)
        taken[name] = taken.get(name, 0) + 1
        number = "" if taken[name] == 1 else f".{taken[name]}"
        yield path if len(functions) == 1 else f"{stem}.{name}{number}{suffix or '.html'}", made


def page_fault(path):
    """Why pages can't be written to this path, or None."""
    if importlib.util.find_spec("jinja2") is None:
        return "a page needs the package jinja2: pip install framejit[report]; --json needs none"
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))):
            return None
    except OSError as error:
        return f"the page can't be written to {path}: {error.strerror}"


class Ending:
    """What happens when the program has ended: the summary goes to stderr, or, if `whole`, the reports of all functions to stdout. pattern: of
    the functions to report on."""

    def __init__(self, program, functions, whole=False, pattern=None, html=None, as_json=False, json_file=None):
        self.program, self.functions, self.process = program, functions, os.getpid()
        self.whole, self.pattern, self.html = whole, pattern, html
        self.as_json, self.json_file = as_json, json_file  # json_file: open, or None for the stream of the text

    def __call__(self):
        if os.getpid() != self.process:
            return  # a child of the program
        self.report()
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            try:  # Python remembers of the last text that was run whether it was interrupted, and the report runs some
                exec("raise KeyboardInterrupt")
            except KeyboardInterrupt:
                pass

    def report(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass  # closed; Python says it when it ends
        stream = self.json_file or (sys.__stdout__ if self.whole else sys.__stderr__)
        if stream is None:
            return  # the process was started without it
        try:
            self.write(stream)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or Python complains when it ends
        except Exception as error:  # the program has done what it should; its status stays
            if sys.__stderr__ is not None and not sys.__stderr__.closed:
                print(f"framejit: the report could not be written: {error}", file=sys.__stderr__)

    def write(self, stream):
        made = [made for made in map(Made, self.functions) if made.compiled_something]
        totals = framejit.cache_info()
        chosen = matching(made, self.pattern) if self.pattern else made
        if self.pattern and not chosen:
            names = [one.name for one in made]
            print(f"framejit: the program compiled no function {self.pattern!r}" + (f"; there are: {', '.join(names)}" if names else "") +
                  did_you_mean(self.pattern, names), file=sys.__stderr__)
        if self.html:
            for path, one in pages(self.html, chosen):
                one.report.to_html(path)
        if self.as_json:
            found = {"framejit": framejit.__version__, "program": self.program, "functions": [one.as_json() for one in chosen], "totals": totals}
            json.dump(found, stream, indent=2)
            print(file=stream)
        elif self.whole:
            print("\n\n".join(str(one.report) for one in chosen), file=stream)
        else:
            print("\n".join(summary(self.program, chosen, totals)), file=stream)
        stream.flush()


def run(script, module, arguments, **how):
    """Runs the program and ends the process by SystemExit, or as an exception of the program calls for; returns a status where there is no such
    program. how: as `Ending` takes it."""
    functions = recorded()
    sys.argv[:] = [sys.argv[0], *arguments]
    try:
        code, made = main_module(script, module)
    except NotFound as error:
        print(error, file=sys.stderr)
        return 2 if module is None and not os.path.exists(script) else 1
    except SyntaxError as error:
        raise told(error, None) from None
    if module is None:
        sys.argv[0] = script
    atexit.register(Ending(script if module is None else f"-m {module}", functions, **how))
    execute(code, made)
    raise SystemExit(0)  # what is left in the program's stdout is Python's to write, with its complaints
