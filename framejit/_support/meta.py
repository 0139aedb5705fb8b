"""What a call of torch's returns, found without the call (segment/library_calls/extern_prediction.cpp)."""
import sys
import types

import torch


def _like(tensor):
    """On the CPU, of the same sizes and strides; its memory is never touched."""
    return None if tensor is None else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch chooses its kernel by sizes, strides and dtypes. The fused one lays its result out as the query. Of the other one the meta call
    is right."""
    tensors = [_like(tensor) for tensor in (query, key, value, attn_mask)]
    kernel = torch._fused_sdp_choice(*tensors, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return torch.empty_like(tensors[0]) if kernel == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value else NotImplemented


# By the name of a function: what gives a result like that of the function on the CPU. It takes the function's own arguments, with meta
# tensors in the places of tensors. NotImplemented, or an error: the rule does not say, and the function runs on the meta tensors. A row is
# worth its line where that gives other strides than the CPU does, or imports much.
rules = {"scaled_dot_product_attention": _attention}


_switched = None


def _find_switched():
    """torch's Python functions for meta tensors that ask torch's compiler to leave them alone, and import it to ask (torch._compile)."""
    asking = torch._compile._disable_dynamo(lambda: None).__code__
    names = [name for name in sys.modules if name == "torch._refs" or name.startswith(("torch._refs.", "torch._decomp."))]
    waiting = [function for name in names for function in vars(sys.modules[name]).values()]
    for table in torch._decomp.global_decomposition_table.values():
        waiting += table.values()
    found, seen = {}, set()
    while waiting:
        function = waiting.pop()
        if id(function) in seen or not isinstance(function, types.FunctionType):
            continue
        seen.add(id(function))
        # Those that wrap another have it in a cell; `__wrapped__` may name what it is a copy of.
        inside = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
        waiting += inside.values()
        if function.__code__ is asking:
            found[id(inside["fn"])] = inside["fn"]
    return list(found.values())


def leave_compiler_out():
    """Until `let_compiler_in` of what this returns, such functions ask no compiler: none is imported that they could ask."""
    global _switched
    if "torch._dynamo" in sys.modules:
        return ()
    if _switched is None:
        try:
            _switched = _find_switched()
        except (AttributeError, KeyError, ValueError):
            _switched = []  # another version of torch
    for function in _switched:
        if not hasattr(function, "__dynamo_disable"):
            function.__dynamo_disable = function
    return _switched


def let_compiler_in(functions):
    for function in functions:
        if getattr(function, "__dynamo_disable", None) is function:
            del function.__dynamo_disable
