"""framejit: a just-in-time compiler for array programs inside CPython.

    @framejit.compile
    def f(x, y):
        return np.maximum((x + y) * 2, 0)

The function keeps its meaning; its work on numpy.ndarray and torch.Tensor runs as a few fused kernels.
"""
from framejit._core import CompiledFunction, Graph
from framejit._api import (cache_info, compile, disable, graph_break, is_compiling, mark_dynamic, options, reset, set_logs,
                           _reduce, _using)
from framejit._backends import register_backend
from framejit._errors import BackendError, Error, GraphBreakError
from framejit._explain import explain
from framejit._transforms import grad, hessian, jacobian, jvp, value_and_grad, vjp, vmap

__all__ = ["BackendError", "CompiledFunction", "Error", "Graph", "GraphBreakError", "cache_info", "compile", "disable", "explain",
           "grad", "graph_break", "hessian", "is_compiling", "jacobian", "jvp", "mark_dynamic", "options", "register_backend", "reset",
           "set_logs", "value_and_grad", "vjp", "vmap"]
