"""The workloads: each is one class, with the program as a user of each library writes it.

A workload gives `arguments(...)` made by its sizes (about 64 elements, in the cache, in RAM), and functions named after the
library they are for: `numpy`, `torch`, `jax`, `numba` (loops written by hand, the way its users do), `numexpr`. A function
for NumPy also serves JAX, with `jax.numpy` as its `np`, unless there is one of its own or `jax = None`.
`traffic` is the bytes a call must move at least: every argument read once, every result written once; `flops` makes it a product.
"""
import importlib

MODULES = ("pointwise", "rows", "products", "arrays", "steps")
SIZES = ("tiny", "cache", "ram")


class Workload:
    """One row of the table: subclasses are the workloads."""

    sizes = {}             # size -> the arguments of `arguments`
    tolerance = 1e-4       # relative, of the largest value
    fresh = False          # the function writes into its arguments: each system gets its own
    product = False        # matrix products or convolutions: reported apart, against the machine's FLOP peak

    @classmethod
    def traffic(cls, arguments, results):
        return sum(a.nbytes for a in leaves(arguments)) + sum(r.nbytes for r in leaves(results))

    @classmethod
    def flops(cls, arguments):
        return 0


def leaves(value):
    """The arrays in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if hasattr(value, "dtype") else []


def all_workloads():
    """name -> class, in the order of the modules."""
    found = {}
    for module in MODULES:
        for thing in vars(importlib.import_module(f"workloads.{module}")).values():
            if isinstance(thing, type) and issubclass(thing, Workload) and thing is not Workload:
                found[thing.name] = thing
    return found
