"""The systems a benchmark compares: one row each. Systems that are not installed, or for which a workload is not written, are left out."""
import importlib.util
import types
from dataclasses import dataclass, field

import numpy as np

import libraries


def _eager(function):
    return function


def _framejit(**options):
    def wrap(function):
        import framejit

        return framejit.compile(function, **options)
    return wrap


def _torch_compile(**options):
    def wrap(function):
        import torch

        return torch.compile(function, **options)
    return wrap


def _jax(function):
    import jax

    jitted = jax.jit(function)
    return lambda *arguments: jax.block_until_ready(jitted(*arguments))


def _numba(function):
    return libraries.numba.njit(function, parallel=True)


@dataclass
class System:
    arrays: str        # the library whose arrays it is given
    against: str       # its results are compared with those on these arrays: numpy or torch
    source: str        # the function of a workload it runs
    modules: list      # that must be installed
    wrap: object
    devices: list = field(default_factory=lambda: ["cpu"])  # where its arrays are

    @property
    def installed(self):
        return all(importlib.util.find_spec(module) for module in self.modules)


SYSTEMS = {
    "numpy": System("numpy", "numpy", "numpy", [], _eager),
    "framejit numpy": System("numpy", "numpy", "numpy", ["framejit"], _framejit()),
    "numba": System("numpy", "numpy", "numba", ["numba"], _numba),
    "numexpr": System("numpy", "numpy", "numexpr", ["numexpr"], _eager),
    "jax": System("jax", "numpy", "jax", ["jax"], _jax),
    "torch": System("torch", "torch", "torch", ["torch"], _eager, ["cpu", "cuda"]),
    "framejit torch": System("torch", "torch", "torch", ["torch", "framejit"], _framejit(), ["cpu", "cuda"]),
    "framejit torch reduce-overhead": System("torch", "torch", "torch", ["torch", "framejit"], _framejit(mode="reduce-overhead"), ["cuda"]),
    "framejit torch max-autotune": System("torch", "torch", "torch", ["torch", "framejit"], _framejit(mode="max-autotune"), ["cuda"]),
    "torch.compile": System("torch", "torch", "torch", ["torch"], _torch_compile(dynamic=False), ["cpu", "cuda"]),
    "torch.compile dynamic": System("torch", "torch", "torch", ["torch"], _torch_compile(dynamic=True)),
    "torch.compile reduce-overhead": System("torch", "torch", "torch", ["torch"], _torch_compile(dynamic=False, mode="reduce-overhead"), ["cuda"]),
    "torch.compile max-autotune": System("torch", "torch", "torch", ["torch"], _torch_compile(dynamic=False, mode="max-autotune"), ["cuda"]),
}
#: What --systems takes beside names.
GROUPS = {
    "all": list(SYSTEMS),
    "eager": ["numpy", "torch"],
    "framejit": ["framejit numpy", "framejit torch"],
    "quick": [name for name in SYSTEMS if not name.startswith("torch.compile")],
}


def chosen(words, device="cpu"):
    """The names of the systems for arrays on a device that words and groups name, in the order of the table; ValueError for others."""
    names = {name for word in words for name in GROUPS.get(word, [word])}
    if unknown := names - set(SYSTEMS):
        raise ValueError(f"no system {sorted(unknown)}: there are {', '.join(SYSTEMS)} and the groups {', '.join(GROUPS)}")
    return [name for name, system in SYSTEMS.items() if name in names and device in system.devices and system.installed]


def program(workload, system):
    """The workload's function for a system, or None if it has none."""
    function = vars(workload).get(system.source) or getattr(workload, system.source, None)
    if function is None and system.source == "jax" and "jax" not in vars(workload) and hasattr(workload, "numpy") and workload.numpy:
        # The same text with jax.numpy in NumPy's place.
        names = dict(workload.numpy.__globals__, np=libraries.jax_modules()[1])
        function = types.FunctionType(workload.numpy.__code__, names, workload.numpy.__name__)
    return function


def arrays_of(library, value):
    """NumPy arrays in nested lists as arrays of `library`, with memory of their own."""
    if isinstance(value, (list, tuple)):
        return type(value)(arrays_of(library, item) for item in value)
    if library == "torch":
        return libraries.torch.from_numpy(value.copy())
    if library == "jax":
        return libraries.jax_modules()[1].asarray(value)
    return value.copy()


def as_numpy(value):
    """Results as nested lists of NumPy arrays, which have no bfloat16."""
    if isinstance(value, (list, tuple)):
        return [as_numpy(item) for item in value]
    if libraries.torch and isinstance(value, libraries.torch.Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype == libraries.torch.bfloat16 else value
    return np.array(value)
