"""framejit: a just-in-time compiler for array programs inside CPython.

    @framejit.compile
    def f(x, y):
        return np.maximum((x + y) * 2, 0)

The function keeps its meaning; its work on numpy.ndarray and torch.Tensor runs as a few fused kernels.
"""
from framejit import _uncompiled

if _uncompiled.in_subinterpreter():
    from framejit._uncompiled import *
    __all__ = _uncompiled.__all__
else:
    from framejit._core import CompiledFunction
    from framejit._api import (cache_info, compile, disable, graph_break, is_compiling, mark_dynamic, options, reset, set_logs,
                               _using)
    from framejit._backends import register_backend
    from framejit._checkpoint import checkpoint
    from framejit._custom_derivatives import custom_derivative, stop_gradient
    from framejit._dim import Dim
    from framejit._errors import BackendError, Error, GraphBreakError, GraphError
    from framejit._explain import explain
    from framejit._graph.capture import capture
    from framejit._graph.fx import from_fx, fx_backend
    from framejit._graph.nodes import Graph, Node
    from framejit._library_functions import library_function
    from framejit._pickle import reduce_function as _reduce_function, reduce_method as _reduce_method
    from framejit._transforms import grad, hessian, jacobian, jvp, value_and_grad, vjp, vmap

    __all__ = [*_uncompiled.__all__, "CompiledFunction", "Graph", "Node"]
