"""explain: what became of a function, as objects that print."""
import dataclasses
import types

from framejit import _core
from framejit._api import given_options, compile
from framejit._graph.core import from_core
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

    def __str__(self):
        return self.text


class Report:
    """graphs, loops, breaks, guards, recompiles, fallbacks and the number of kernels; `result` is what the call returned.

    loops: sentences, one for each loop of the function that runs as machine code of its own, or why it does not.
    """

    def __init__(self, name, recorded, result=None):
        self.name, self.result = name, result
        self.graphs = [from_core(graph) for graph in recorded["graphs"]]
        self.breaks = [Break(**row) for row in recorded["breaks"]]
        self.guards, self.recompiles, self.fallbacks = recorded["guards"], recorded["recompiles"], recorded["fallbacks"]
        self.loops = recorded["loops"]
        self.kernels, self._needs_no_graph = recorded["kernels"], recorded["needs_no_graph"]

    def __str__(self):
        def count(number, what):
            return f"{number} {what}{'' if number == 1 else 's'}"

        lines = [f"{self.name}: {count(len(self.graphs), 'graph')}, {count(self.kernels, 'kernel')}, {count(len(self.breaks), 'break')}, "
                 f"{count(len(self.recompiles), 'recompile')}"]
        if self._needs_no_graph and not self.graphs and not self.breaks:
            lines += ["", "no graph is needed: the function computes no array (it may make views), and Python runs it"]
        for graph in self.graphs:
            lines += ["", str(graph)]
        for title, entries in (("loops", self.loops), ("guards", self.guards), ("breaks", self.breaks), ("recompiles", self.recompiles), ("fallbacks", self.fallbacks)):
            if entries:
                lines += ["", title + ":", *("  " + str(entry).replace("\n", "\n  ") for entry in entries)]
        return "\n".join(lines)

    __repr__ = __str__


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
    """`explain(f)`: call it as f to get the Report of that call on fresh caches."""

    def __init__(self, target):
        if not callable(target):
            raise TypeError(f"framejit.explain takes a callable, not {target!r}")
        self._target = target

    def __call__(self, *args, **kwargs):
        fresh = self._fresh()
        result = fresh(*args, **kwargs)
        return Report(_name(self._target), _core.report(_compiled_part(fresh)), result)

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
        return Report(_name(self._target), _core.report(part))


def _name(target):
    return getattr(target, "__qualname__", None) or type(target).__qualname__


def explain(function):
    """explain(f)(*args) runs f compiled on fresh caches and returns a Report; explain(f).so_far() reports on f itself."""
    return Explanation(function)
