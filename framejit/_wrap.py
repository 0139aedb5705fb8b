"""Callable objects and torch modules: an object of a generated subclass that shares the original's __dict__.

So names, registration, `train()`, `to()`, isinstance and attributes are the original's; the original itself stays eager.
"""
import functools
import sys
import types


def wrap_object(target, compiled):
    """`compiled(function)` makes a compiled function."""
    cls = type(target)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.nn.Module):
        return _share(target, _module_class(cls, compiled))
    call = getattr(cls, "__call__", None)
    if isinstance(call, types.FunctionType):
        if hasattr(target, "__dict__"):
            try:
                return _share(target, _subclass(cls, {"__call__": compiled(call)}))
            except TypeError:
                pass  # a class that can't be subclassed or made bare
        return compiled(call).__get__(target)

    # Builtins, ufuncs and the like: nothing to look into, but a place to compile at.
    def call_target(*args, **kwargs):
        return target(*args, **kwargs)

    functools.update_wrapper(call_target, target, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    del call_target.__wrapped__
    call_target.__framejit_made_by__ = _of_builtin, (target,)
    return compiled(call_target)


def _of_builtin(target):
    from framejit import compile

    return compile(target)


def _share(target, cls):
    wrapper = object.__new__(cls)
    object.__setattr__(wrapper, "__dict__", target.__dict__)
    return wrapper


def _plain(self):
    """The uncompiled object: what copies and pickles are made of."""
    base = type(self).__mro__[1]
    plain = object.__new__(base)
    object.__setattr__(plain, "__dict__", self.__dict__)
    return plain


def _of_plain(method):
    def call(self, *args):
        return method(_plain(self), *args)

    return call


def _subclass(cls, members):
    """Pickles and copies are of the class itself: they load where framejit is not installed."""

    def reduce(self, protocol):
        made = _plain(self).__reduce_ex__(protocol)
        if not isinstance(made, tuple) or getattr(made[0], "__name__", None) not in ("__newobj__", "__newobj_ex__"):
            return made
        # pickle asks of these two that the class is the object's own.
        base, *arguments = made[1]
        if made[0].__name__ == "__newobj_ex__":
            arguments, keywords = arguments
            return functools.partial(base.__new__, base, *arguments, **keywords), (), *made[2:]
        return base.__new__, (base, *arguments), *made[2:]

    copies = {}
    # A class's own way of copying is given the object as its class; without one, copy does what pickle does.
    for name in ("__copy__", "__deepcopy__"):
        if hasattr(cls, name):
            copies[name] = _of_plain(getattr(cls, name))
    members = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
               "__reduce_ex__": reduce, **copies, **members}
    return type(cls)(cls.__name__, (cls,), members)


def _module_class(cls, compiled):
    from torch.nn.modules import module as hooks

    forward = compiled(cls.forward)
    call_with_hooks = cls.__call__

    def call(self, *args, **kwargs):
        # torch's own test for "nothing but forward": no hooks on the module or on all modules.
        if (self._backward_hooks or self._backward_pre_hooks or self._forward_hooks or self._forward_pre_hooks
                or hooks._global_backward_pre_hooks or hooks._global_backward_hooks or hooks._global_forward_hooks
                or hooks._global_forward_pre_hooks or "forward" in self.__dict__):
            return call_with_hooks(self, *args, **kwargs)
        return forward(self, *args, **kwargs)

    return _subclass(cls, {"forward": forward, "__call__": call})
