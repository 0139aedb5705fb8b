"""The systems a benchmark compares: how each wraps the same function. One row each; absent ones are left out."""
import importlib.util


def _jax(function):
    import jax

    jitted = jax.jit(function)
    return lambda *arguments: jitted(*arguments).block_until_ready()


def _numba(function):
    import numba

    return numba.njit(function, parallel=True, fastmath=False)


def _torch_compile(function):
    import torch

    return torch.compile(function)


def _framejit(function):
    import framejit

    return framejit.compile(function)


#   name                library of the arrays, modules needed, wrapper
SYSTEMS = {
    "numpy": ("numpy", ["numpy"], lambda function: function),
    "framejit numpy": ("numpy", ["framejit"], _framejit),
    "numba": ("numpy", ["numba"], _numba),
    "torch": ("torch", ["torch"], lambda function: function),
    "framejit torch": ("torch", ["framejit", "torch"], _framejit),
    "torch.compile": ("torch", ["torch"], _torch_compile),
    "jax.jit": ("jax", ["jax"], _jax),
}


def available():
    return [name for name, (_, modules, _) in SYSTEMS.items() if all(importlib.util.find_spec(m) for m in modules)]


def arrays(library, arguments):
    """NumPy arrays as arrays of `library`."""
    if library == "torch":
        import torch

        return tuple(torch.from_numpy(a) for a in arguments)
    if library == "jax":
        import jax.numpy

        return tuple(jax.numpy.asarray(a) for a in arguments)
    return tuple(arguments)


def wrap(system, function):
    return SYSTEMS[system][2](function)
