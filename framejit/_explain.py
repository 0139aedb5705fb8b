"""explain: what became of a function, as objects that print."""
import dataclasses
import types

from framejit import _core
from framejit._api import given_options, compile
from framejit._wrap import compiled_part


@dataclasses.dataclass(frozen=True)
class Break:
    number: str      # "FJ104"
    name: str        # "BranchOnData"
    file: str
    line: int
    function: str
    detail: str
    count: int
    text: str        # the message as it is logged
    source: str = ""   # the user's line
    what: str = ""     # the reason, in a sentence
    cost: str = ""
    remedy: str = ""   # what to try
    calls: tuple = ()  # the functions that lead to it, the compiled one first, where one chain alone does

    def __str__(self):
        return self.text


class Report:
    """What became of a function. `print` gives at most 40 lines; the rest is in the attributes.

    graphs: Graph objects, whose str is the text. kernels: each step of the compiled graphs (operations, lines, bytes), library calls among
    them; kernel_count: of those that framejit made. breaks. guards: a GuardGroup for each graph. recompiles, fallbacks: texts. loops:
    sentences, one for each loop of the function that runs as machine code of its own, or why it does not. timings: by graph, seconds of
    its first call by stage. memory: by graph, the bytes of its arrays. What kernels take is measured by framejit.profile. result: what the call returned; error: what it raised, as text.
    """

    def __init__(self, name, recorded, result=None, target=None, error=None):
        from framejit._report.names import name_in_words
        from framejit._report.parts import Guards, kernels_of, memory_of, timings_of

        self.name, self.result, self.error = name, result, error
        from framejit._graph.core import from_core

        self.graphs = [from_core(graph) for graph in recorded["graphs"]]
        self.breaks = _with_chains([Break(**row) for row in recorded["breaks"]], target)
        self.recompiles, self.fallbacks, self.loops = recorded["recompiles"], recorded["fallbacks"], recorded["loops"]
        self.kernels, self.kernel_count = kernels_of(recorded["pieces"]), recorded["kernels"]
        self.guards = Guards(recorded["pieces"], name, recorded["guards"])
        self.timings, self.memory = timings_of(recorded["pieces"]), memory_of(recorded["pieces"])
        self._parameters = {i: piece["parameters"] for i, piece in enumerate(recorded["pieces"])}  # by graph: which of its inputs
        self.needs_no_graph = recorded["needs_no_graph"]
        function = _function_behind(target)
        name_in_words(self, function)
        code = getattr(function, "__code__", None)
        self.place = (code.co_filename, code.co_firstlineno) if code is not None else None

    def __str__(self):
        from framejit._report.terminal import shown

        return shown(self)

    __repr__ = __str__

    def __format__(self, spec):
        return format(self.summary(), spec)

    def __rich__(self):
        from framejit._report.terminal import rich_text

        return rich_text(self, None)

    def _repr_html_(self):
        from framejit._report.page import fragment

        return fragment(self)

    def summary(self, width=None):
        """The lines that print gives, never in colour: for files and logs. width: of a line, 120 if it is not given."""
        from framejit._report.summary import summary_text

        return summary_text(self, width)

    def text(self):
        """Everything as text: each graph, every guard, the messages in full. Long: a network of 12 layers has thousands of lines."""
        def count(number, what):
            return f"{number} {what}{'' if number == 1 else 's'}"

        lines = [f"{self.name}: {count(len(self.graphs), 'graph')}, {count(self.kernel_count, 'kernel')}, {count(len(self.breaks), 'break')}, "
                 f"{count(len(self.recompiles), 'recompile')}"]
        if self.error:
            lines += ["", f"the call raised {self.error}"]
        if self.needs_no_graph and not self.graphs and not self.breaks:
            lines += ["", "no graph is needed: the function computes no array (it may make views), and Python runs it"]
        for graph in self.graphs:
            lines += ["", str(graph)]
        for title, entries in (("kernels", self.kernels), ("memory", self.memory), ("loops", self.loops), ("guards", self.guards.all), ("breaks", self.breaks),
                               ("recompiles", self.recompiles), ("fallbacks", self.fallbacks)):
            if entries:
                lines += ["", title + ":", *("  " + str(entry).replace("\n", "\n  ") for entry in entries)]
        return "\n".join(lines)

    def as_dict(self):
        """Everything but the result, as dicts, lists, texts and numbers."""
        graphs = [{"name": graph.name, "operations": len(graph.nodes), "text": str(graph)} for graph in self.graphs]
        kernels = [{**dataclasses.asdict(kernel), "operations": list(kernel.operations), "lines": list(kernel.lines)} for kernel in self.kernels]
        breaks = [{**dataclasses.asdict(b), "calls": list(b.calls)} for b in self.breaks]
        guards = [{"graph": group.graph, "function": group.function, "users": group.users, "all": group.all} for group in self.guards]
        return {"name": self.name, "error": self.error, "needs_no_graph": self.needs_no_graph, "kernel_count": self.kernel_count,
                "graphs": graphs, "kernels": kernels, "breaks": breaks, "guards": guards, "recompiles": list(self.recompiles),
                "fallbacks": list(self.fallbacks), "loops": list(self.loops), "timings": [dict(row) for row in self.timings],
                "memory": [dataclasses.asdict(row) for row in self.memory]}

    def to_json(self, path=None, *, indent=None):
        """`as_dict` as a JSON text, which json.loads reads. With a path it is also written there."""
        from framejit._report.files import json_text

        return json_text(self, path, indent)

    def to_html(self, path):
        """Writes one self-contained page: source lines (compiled, break, eager), graphs, kernels, guards, recompiles. Needs jinja2.

        An older file of this name is there, whole, until the new one is.
        """
        from framejit._report.page import write_page

        write_page(self, path)


def _function_behind(target):
    """The Python function behind what is explained, or None."""
    from framejit._report.sources import entry_function

    return entry_function(target)


def _with_chains(breaks, target):
    if not breaks or target is None:
        return breaks
    from framejit._report.sources import chain_to

    chains = chain_to(target, {(b.file, b.function) for b in breaks})
    return [dataclasses.replace(b, calls=chains.get((b.file, b.function), ())) for b in breaks]


def _compiled_part(target):
    """The CompiledFunction inside what `compile` returned, or None."""
    if isinstance(target, _core.CompiledFunction):
        return target
    if isinstance(target, types.MethodType):
        return _compiled_part(target.__func__)
    if (part := compiled_part(target)) is not None:
        return part
    inner = getattr(target, "func", None)  # functools.partial
    return _compiled_part(inner) if inner is not None and inner is not target else None


class Explanation:
    """`explain(f)`: call it as f to get the Report of that call on fresh caches.

    What f raises goes on to the caller; `last` is then the Report of that call.
    """
    last = None

    def __init__(self, target):
        if not callable(target):
            raise TypeError(f"framejit.explain takes a callable, not {target!r}")
        self._target = target

    def __repr__(self):
        return f"<framejit.explain({_name(self._target)}): call this with the function's arguments for the report>"

    def __call__(self, *args, **kwargs):
        fresh = self._fresh()
        try:
            result = fresh(*args, **kwargs)
        except Exception as error:
            self.last = self._report(fresh, error=_in_words(error))
            raise
        self.last = None
        return self._report(fresh, result)

    def _report(self, compiled, result=None, error=None):
        return Report(_name(self._target), _core.report(_compiled_part(compiled)), result, self._target, error)

    def _fresh(self):
        target, part = self._target, _compiled_part(self._target)
        given = given_options(part) if part is not None else {}
        if part is None or isinstance(target, (_core.CompiledFunction, types.MethodType)):
            return compile(target if not isinstance(target, types.MethodType) or part is None
                           else types.MethodType(part.__wrapped__, target.__self__), **given)
        return compile(target, **given)  # the original, wrapped anew

    def so_far(self):
        """The Report of everything the compiled function has done until now; calls nothing."""
        part = _compiled_part(self._target)
        if part is None:
            raise TypeError(f"{self._target!r} is not compiled: so_far() has nothing to tell")
        return self._report(self._target)


def _name(target):
    return getattr(target, "__qualname__", None) or type(target).__qualname__


def _in_words(error):
    """An exception as its traceback's last line. One whose str raises is its type's name."""
    try:
        said = str(error)
    except Exception:
        said = ""
    return type(error).__qualname__ + (f": {said}" if said else "")


def explain(function):
    """explain(f)(*args) runs f compiled on fresh caches and returns a Report; explain(f).so_far() reports on f itself."""
    return Explanation(function)
