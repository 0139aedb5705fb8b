"""The parts of a report that are more than text: kernels, and guards grouped by graph."""
import dataclasses
import re


def counted(number, what, several=None):
    """counted(2, "graph") is "2 graphs"."""
    return f"{number:,} {what if number == 1 else several or what + 's'}"


def size_text(count):
    """1234567 as "1.2 MB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000


def work_text(count):
    """Floating-point operations: 5130 as "5.1 kflop"."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000 or unit == "T":
            return f"{count:.1f} {unit}flop" if unit else f"{count:.0f} flop"
        count /= 1000


def base_name(path):
    """The last part of a path, also of "project/model.py:41"."""
    return re.split(r"[/\\]", path)[-1]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One step of a compiled graph. Bytes and floating-point operations follow from the sizes seen while tracing."""
    graph: int               # its place in report.graphs
    function: str
    kind: str                # "loops": compiled here. "copy", "count": moved here. "call": the library does it.
                             # "matmul": framejit or the library, whichever was measured to be faster here
    name: str                # "kernel3"; of a library call the function
    operations: tuple        # the graph's: ("mul", "reduce_sum"); fused ones are together in one kernel
    lines: tuple             # "project/model.py:41" of each operation, without repetition
    module: str              # "layers.0.norm1": the torch module of the last operation; "": none
    dtype: str               # of the array it writes: "f32"
    count: int               # of kernels that do the same work on other arrays, launched together
    in_blocks: bool          # runs on a block of rows at a time, together with the steps beside it
    read_bytes: int          # of the arrays it reads, each once and whole
    written_bytes: int
    float_operations: int | None  # of one call; an addition counts as one, a sine too. None: a library call, whose work is not known

    @property
    def bytes(self):
        return self.read_bytes + self.written_bytes

    @property
    def is_library_call(self):
        return self.kind in ("matmul", "call")

    @property
    def is_own(self):
        """Its code was made by framejit, for this graph: Report.kernel_count counts these."""
        return self.kind == "loops" or self.kind == "copy" and self.name != "copies"

    def __str__(self):
        what = {"call": f"library call {self.name}", "matmul": f"product, by framejit or {self.name}"}.get(
            self.kind, f"{self.name}: {' '.join(self.operations) or self.kind}")
        times = f" ({self.count} times)" if self.count > 1 else ""
        where = ", ".join(map(base_name, self.lines[:3])) + (", ..." if len(self.lines) > 3 else "")
        work = "" if self.float_operations is None else f", {work_text(self.float_operations)}"
        return f"{what}{times}; {size_text(self.bytes)}{work}" + (f"; {self.module}" if self.module else "") + (f"; {where}" if where else "")


def kernels_of(pieces):
    rows = []
    for number, piece in enumerate(pieces):
        for step in piece["steps"]:
            work = step["float_operations"]
            rows.append(Kernel(**{**step, "graph": number, "function": piece["function"], "operations": tuple(step["operations"]),
                                  "lines": tuple(step["lines"]), "float_operations": None if work < 0 else work}))
    return rows


# What holds for as long as classes, modules and functions are those of the first call: nearly always.
_INTERNAL = re.compile(r"__dict__|__globals__|__code__|__defaults__|__getattr|_(parameters|buffers|modules)$|^type\(|<[^>]*>|\bB\.| unchanged$"
                       r"|^'| is (module|function|class|type|code of|[\w.]+ object)\b")
_ARRAY = re.compile(r": \w+\[")
_STATE = re.compile(r"as when traced$|^torch grad mode")
_MODULE_PART = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")


def readable(guard):
    """A guard in the names of the user's program: L.self._modules['layers']._modules['0'].training is self.layers.0.training."""
    return re.sub(r"\bL\.|\bG\.|\._(?:modules|parameters|buffers)\b(?!\[)", "", _MODULE_PART.sub(r".\1", guard))


class GuardGroup:
    """The guards of one graph: what must hold for it to be used again.

    all: every one, in the order of their tests. users: those on what the user passes, sets and changes (sizes, dtypes, numbers, flags),
    in the user's names. internal: the rest, on classes, modules and library functions.
    """

    def __init__(self, graph, function, guards):
        self.graph, self.function, self.all = graph, function, list(guards)  # graph: its place in report.graphs; None: a piece without one
        own = [guard for guard in self.all if not _INTERNAL.search(guard)]
        own.sort(key=lambda guard: (_STATE.search(guard) is not None, "_parameters[" in guard or "_buffers[" in guard, "._modules[" in guard,
                                    _ARRAY.search(guard) is None))  # arrays that are passed come first
        known = set(own)
        self.users, self.internal = list(dict.fromkeys(map(readable, own))), [guard for guard in self.all if guard not in known]

    def __len__(self):
        return len(self.all)

    def __iter__(self):
        return iter(self.all)

    def __contains__(self, guard):
        return guard in self.all

    def __str__(self):
        return "\n".join(self.users + ([f"and {len(self.internal):,} on classes, modules and library functions: .internal"] if self.internal else []))

    def __repr__(self):
        return f"<guards of {self.function}: {len(self.users)} of the user's, {len(self.internal)} internal>"


class Guards(list):
    """A GuardGroup for each graph; after them one for the pieces without a graph, if they have guards. `text in guards` looks into all."""

    def __init__(self, pieces, name, others):
        super().__init__(GuardGroup(number, piece["function"], piece["guards"]) for number, piece in enumerate(pieces))
        if others:
            self.append(GuardGroup(None, name, others))

    @property
    def all(self):
        return [guard for group in self for guard in group.all]

    def __contains__(self, guard):
        return any(guard in group.all for group in self) if isinstance(guard, str) else super().__contains__(guard)


@dataclasses.dataclass(frozen=True)
class GraphMemory:
    """Bytes that a call of one graph needs, for the sizes seen while tracing."""
    graph: int               # its place in report.graphs
    function: str
    inputs: int              # the arrays it is given
    results: int             # those it returns
    temporaries: int         # at most, at one time, beside them
    saved_for_backward: int  # kept beside inputs and results until backward has run

    def __str__(self):
        saved = f", {size_text(self.saved_for_backward)} saved for backward" if self.saved_for_backward else ""
        return f"[{self.graph}] {self.function}: inputs {size_text(self.inputs)}, results {size_text(self.results)}, temporaries {size_text(self.temporaries)}{saved}"


def memory_of(pieces):
    # What is saved is among the results of the program.
    return [GraphMemory(number, piece["function"], row["inputs"], row["results"] - row["saved"], row["temporaries"], row["saved"])
            for number, piece in enumerate(pieces) if (row := piece.get("memory"))]


_STAGE = re.compile(r"(\w+) ([\d.]+)(?:,| ms|$)")


def timings_of(pieces):
    """By graph: seconds of its first call, by stage where it was measured."""
    return [{"graph": number, "function": piece["function"], "seconds": piece["seconds"],
             "stages": {stage: float(milliseconds) / 1e3 for stage, milliseconds in _STAGE.findall(piece["timings"].partition("\n")[0])}}
            for number, piece in enumerate(pieces)]
