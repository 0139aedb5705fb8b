"""What pickles and copies of compiled things are made of: names and options, never machine code.

A compiled function is pickled by its name if it is found there, as functions are; else as the function that was compiled, by that
one's name, with the options it was compiled with. What can't be found by name (a lambda, a function defined in another) is left to
the pickler, which says so, or, as cloudpickle, writes it down. So cloudpickle does with functions of the main program, which the
other process does not have: those are written down too.
"""
import sys

from framejit import _core
from framejit._api import compile, given_options


def _found(module, name):
    """What a module has under a dotted name, or None."""
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def is_written_down(module):
    """Whether the pickler at work, cloudpickle or a copy of it in another package, writes down what this module has, as its name is of no
    use elsewhere."""
    frame = sys._getframe(1)
    while frame is not None:
        by_name = frame.f_globals.get("_should_pickle_by_reference")
        if callable(by_name) and frame.f_code.co_name in ("dump", "dumps"):
            return module == "__main__" or module not in sys.modules or not by_name(sys.modules[module])
        frame = frame.f_back
    return False


def recompiled(function, options):
    return compile(function, **options)


def remade(make, arguments, options):
    return compile(make(*arguments), **options)


def bound(function, instance):
    return function.__get__(instance)


def reduce_function(compiled):
    """For pickle: the name of a compiled function, or how to make it again."""
    function = compiled.__wrapped__
    make, arguments = vars(function).get("__framejit_made_by__", (None, ()))
    # A decorator's result is found by the name of what was decorated, also where it has another: grad(loss).
    for name in () if is_written_down(compiled.__module__) else (compiled.__qualname__, getattr(arguments[0], "__qualname__", "") if arguments else ""):
        found = _found(compiled.__module__, name)
        if found is compiled:
            return name
        if isinstance(found, _core.CompiledFunction) and found.__wrapped__ is function:
            return recompiled, (found, given_options(compiled))
    if make is not None:
        return remade, (make, arguments, given_options(compiled))
    return recompiled, (function, given_options(compiled))


def reduce_method(function, instance):
    """For pickle: as CPython's methods, by its name in the object, if that is where it is found."""
    name = function.__name__
    found = getattr(instance, name, None)
    if getattr(found, "__func__", None) is function and getattr(found, "__self__", None) is instance:
        return getattr, (instance, name)
    return bound, (function, instance)
