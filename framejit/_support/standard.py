"""Functions of the standard library that are written in C, and in Python as well: the latter can be traced.

A module such as heapq defines its functions in Python and then takes those of its accelerator in their place. Here it is run once more, in a
namespace of its own, without the accelerator.
"""
import builtins
import importlib
import importlib.util
import types

_ACCELERATED = {"heapq": "_heapq", "bisect": "_bisect"}


def _without(accelerator):
    def importing(name, *arguments):
        if name == accelerator:
            raise ImportError(name)
        return __import__(name, *arguments)
    return importing


def traced_instead():
    """{the function in C: the same in Python}"""
    found = {}
    for name, accelerator in _ACCELERATED.items():
        loader = importlib.util.find_spec(name).loader
        space = {"__name__": name, "__builtins__": {**vars(builtins), "__import__": _without(accelerator)}}
        exec(loader.get_code(name), space)
        space["__builtins__"] = builtins
        for member, function in vars(importlib.import_module(accelerator)).items():  # those of the module itself may have been replaced
            if isinstance(function, types.BuiltinFunctionType) and isinstance(space.get(member), types.FunctionType):
                found[function] = space[member]
    return found
