"""profile: what the compiled kernels that run inside a `with` block take."""
import dataclasses
import functools
import time

from framejit import _core
from framejit._errors import Error


@dataclasses.dataclass(frozen=True)
class KernelTime:
    """What one step of a compiled graph took inside a profile: all its runs together."""
    program: int             # its place in profile.programs
    function: str
    kind: str                # "loops", "copy", "matmul", "count" or "call" as of a report's kernels; "loop": one of Python's,
                             # as machine code of its own
    name: str                # "kernel3"; of a library call the function
    operations: tuple        # the graph's: ("mul", "reduce_sum")
    lines: tuple             # "project/model.py:41" of each operation, without repetition
    module: str              # "layers.0.norm1": the torch module of the last operation
    dtype: str               # of the array it writes: "f32"
    in_blocks: bool          # ran on blocks of rows together with the steps beside it: its seconds are its share of theirs
    runs: int
    seconds: float           # wall-clock time, on as many threads as there were
    bytes: int               # read and written: of each array that it works on, whole, once a run
    float_operations: int | None  # None: not known, of a library call or a loop
    on_device: bool          # of a GPU, which was waited for after each step

    @property
    def share_of_limit(self) -> "float | None":
        """The part of what this machine can do that was reached: of its memory's bandwidth for so many bytes, or of its fastest
        matrix product of the dtype, whichever is more. Both are measured when they are first asked for, in some 0.1 s. None:
        nothing is known of the work, it ran on a GPU, or a profile is open, which would count what measures the machine."""
        if self.on_device or not self.seconds or not self.runs or _core.is_profiling():
            return None
        moved = self.bytes / self.seconds / bandwidth(_size_class(self.bytes // self.runs)) if self.bytes else 0
        multiplies = self.float_operations and "matmul" in self.operations and self.dtype in _PRODUCTS
        worked = self.float_operations / self.seconds / product_peak(self.dtype) if multiplies else 0
        return max(moved, worked) or None


@dataclasses.dataclass(frozen=True)
class ProgramTime:
    """A compiled graph and what its runs took: kernels, library calls and memory. Guards and Python's own work are not in it."""
    function: str
    runs: int
    seconds: float
    on_device: bool


class Profile:
    """What ran in framejit's compiled graphs, on any thread, while the `with` block was open. `print` gives a table.

    kernels: a KernelTime for each step, the longest first. programs: a ProgramTime for each compiled graph, in the order of their first
    runs. seconds: of the block, wall-clock time. While the block is open they tell what has run so far. compiled_inside: whether kernels
    were still compiled or optimised meanwhile, so that the figures are in part those of code that is not used any more.
    """

    def __init__(self):
        self._started, self._seconds, self._before, self._rows = None, None, None, None
        self._compiled = self._compiled_before = 0

    def __enter__(self) -> "Profile":
        if self._started is not None:
            raise Error("a profile measures one block: make another one with framejit.profile()")
        _core.finish_compiling()  # or what the calls before have asked of the background would replace kernels in the middle
        self._compiled_before = _kernels_made()
        _core.begin_profile()
        try:
            self._before = {row["id"]: row for row in _core.profile()}
        except BaseException:
            _core.end_profile()
            raise
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_):
        if self._started is None or self._seconds is not None:
            raise Error("this profile is not open: it measures one `with` block")
        self._seconds = time.perf_counter() - self._started
        try:
            self._rows = self._difference()
            self._compiled = _kernels_made()
        finally:
            _core.end_profile()

    def _difference(self):
        rows = []
        for row in _core.profile():
            before = self._before.get(row["id"])
            if before is not None:
                if row["runs"] == before["runs"]:
                    continue
                row["runs"] -= before["runs"]
                row["nanoseconds"] -= before["nanoseconds"]
                for step, old in zip(row["steps"], before["steps"]):
                    known = step["float_operations"] >= 0
                    for key in ("runs", "nanoseconds", "read_bytes", "written_bytes") + (("float_operations",) if known else ()):
                        step[key] -= old[key]
            rows.append(row)
        return rows

    def _measured(self):
        if self._started is None:
            return []
        return self._difference() if self._rows is None else self._rows

    @property
    def seconds(self) -> float:
        if self._seconds is not None:
            return self._seconds
        return 0.0 if self._started is None else time.perf_counter() - self._started

    @property
    def compiled_inside(self) -> bool:
        made = _kernels_made() if self._started is not None and self._seconds is None else self._compiled
        return made != self._compiled_before

    @property
    def programs(self) -> "list[ProgramTime]":
        return [ProgramTime(row["name"], row["runs"], row["nanoseconds"] / 1e9, row["on_device"]) for row in self._measured()]

    @property
    def kernels(self) -> "list[KernelTime]":
        result = []
        for number, row in enumerate(self._measured()):
            for step in row["steps"]:
                work = step["float_operations"]
                result.append(KernelTime(number, row["name"], step["kind"], step["name"], tuple(step["operations"]), tuple(step["lines"]),
                                         step["module"], step["dtype"], step["in_blocks"], step["runs"], step["nanoseconds"] / 1e9,
                                         step["read_bytes"] + step["written_bytes"], None if work < 0 else work, row["on_device"]))
        return sorted(result, key=lambda kernel: -kernel.seconds)

    def __str__(self):
        from framejit._report.profile_table import table

        return table(self)

    def __repr__(self):
        return f"<framejit profile of {self.seconds:.3g} s: {len(self.programs)} compiled graphs>"

    def _repr_html_(self):
        from framejit._report.profile_table import fragment

        return fragment(self)

    def as_dict(self):
        """Everything as dicts, lists, texts and numbers."""
        kernels = [{**dataclasses.asdict(kernel), "operations": list(kernel.operations), "lines": list(kernel.lines),
                    "share_of_limit": kernel.share_of_limit} for kernel in self.kernels]
        return {"seconds": self.seconds, "compiled_inside": self.compiled_inside,
                "programs": [dataclasses.asdict(program) for program in self.programs], "kernels": kernels}

    def to_json(self, path=None, *, indent=None):
        """`as_dict` as a JSON text, which json.loads reads. With a path it is also written there."""
        from framejit._report.files import json_text

        return json_text(self, path, indent)

    def to_html(self, path):
        """Writes one self-contained page. Needs jinja2. An older file of this name is there, whole, until the new one is."""
        from framejit._report.profile_table import write_page

        write_page(self, path)


def _kernels_made():
    """How many kernels were compiled in this process, those in the making among them."""
    info = _core.cache_info()
    return sum(info[what] for what in ("kernels_compiled", "kernels_optimised", "kernels_loaded", "background_jobs"))


def profile():
    """Measures the compiled kernels that run inside a `with` block: calls, time, bytes, and the share of the machine's limit.

        with framejit.profile() as measured:
            for batch in batches:
                step(batch)
        print(measured)

    Call the functions at least twice before: a kernel's first code is made quickly, the second use asks for its optimised code, and the
    block begins when that is there. Where kernels were compiled inside the block all the same, the table says so. Every step of a
    compiled graph is timed by itself, which adds some 0.1 us to each; steps of a GPU are waited for one by one, so that its queue is
    empty meanwhile. Profiles may overlap, and count the runs of all threads. Library calls and products are among the steps; what
    Python does beside compiled graphs is not.

    Returns: a Profile, whose `kernels`, `programs` and `seconds` are the figures.
    Raises: framejit.Error if one Profile is entered twice.
    """
    return Profile()


# ---- what this machine can do


def _size_class(size):
    """Bytes, rounded up to a power of two: one measurement serves kernels that move about as much."""
    return 1 << min(max(size - 1, 0).bit_length(), 28)


def _best_seconds(function, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best


@functools.cache
def bandwidth(size):
    """Bytes a second that a plain pass moves which reads half of `size` bytes and writes half: a compiled addition's."""
    import numpy as np

    from framejit._api import compile

    @compile
    def plain_pass(source, target):
        target[:] = source + 1

    count = max(size // 8, 1 << 10)
    source, target = np.ones(count, np.float32), np.ones(count, np.float32)
    for _ in range(3):
        plain_pass(source, target)
    _core.finish_compiling()
    repeat = max(1, (1 << 20) // count)
    return 8 * count * repeat / _best_seconds(lambda: [plain_pass(source, target) for _ in range(repeat)], 0.02)


_PRODUCTS = {"f32": "float32", "f64": "float64"}


@functools.cache
def product_peak(dtype):
    """Operations on floats a second of a product of two matrices of 1024 by 1024."""
    import numpy as np

    from framejit._api import compile

    product = compile(lambda a, b: a @ b)
    a = np.ones((1024, 1024), _PRODUCTS[dtype])
    for _ in range(3):
        product(a, a)
    return 2 * 1024**3 / _best_seconds(lambda: product(a, a), 0.05)
