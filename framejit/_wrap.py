"""Callable objects and torch modules: an object of a generated subclass that shares the original's __dict__.

So names, registration, `train()`, `to()`, isinstance and attributes are the original's; the original itself stays
eager. The wrapper has the original in a slot. Where the original's class becomes another (parametrizations, lazy
modules), that one becomes the base of the generated class; where the class has another method, the method is compiled
anew. Each call looks for both.
"""
import functools
import inspect
import sys
import types

from framejit import _core


def wrap_object(target, compiled):
    """`compiled(function)` makes a compiled function."""
    cls = type(target)
    if isinstance(vars(cls).get("_framejit_original"), types.MemberDescriptorType):
        return wrap_object(target._framejit_original, compiled)  # compiled once more: the options are the last ones
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(target, torch.nn.Module)
    call = _function(cls, "__call__")
    if is_module and isinstance(target, torch.jit.ScriptModule):
        return target  # TorchScript's own: there is no Python code to compile
    if is_module or (call is not None and hasattr(target, "__dict__")):
        try:
            return _share(target, (_module_class if is_module else _object_class)(cls, compiled))
        except TypeError:
            if is_module:
                raise
            # A class that can't be subclassed or made bare.
    if call is not None:
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
    object.__setattr__(wrapper, "_framejit_original", target)
    return wrapper


def _class_of(self):
    """The original's class, which the wrapper's own follows. An object that type(wrapper) made has no original."""
    try:
        cls = type(self._framejit_original)
    except AttributeError:
        return type(self).__bases__[0]
    if cls is not type(self)._framejit_compiled[0].cls:
        _follow(type(self), cls)
    return cls


def _follow(wrapper, cls):
    wrapper.__bases__ = (cls,)
    for name, value in {**_named(cls), "__name__": cls.__name__}.items():
        setattr(wrapper, name, value)
    wrapper._framejit_compiled[0].cls = cls


def _named(cls):
    return {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}


def _plain(self):
    """The uncompiled object: what copies and pickles are made of. The original may have another __dict__ by now."""
    plain = object.__new__(_class_of(self))
    object.__setattr__(plain, "__dict__", self.__dict__)
    return plain


def _function(cls, name):
    """The function that a class has as a method, as written. None: there is none, or something else."""
    found = inspect.getattr_static(cls, name, None)
    found = found.__wrapped__ if isinstance(found, _core.CompiledFunction) else found
    return found if type(found) is types.FunctionType else None


class _Compiled:
    """A method of the original's class, compiled: whichever the class has when the method is read or called."""

    def __init__(self, name, compiled, cls):
        self.name, self.compile = name, compiled
        self.cls = cls  # the base of the wrapper's class
        self.found = self.function = None

    def of(self, cls):
        """The compiled function; where the class has no function, what it has."""
        found = getattr(cls, self.name)
        if found is not self.found:
            function = _function(cls, self.name)
            self.function = found if function is None else self.compile(function)
            self.found = found
        return self.function

    def __get__(self, instance, owner=None):
        cls = owner.__bases__[0] if instance is None else _class_of(instance)
        function = self.of(cls)
        if function is not self.found:
            return function if instance is None else types.MethodType(function, instance)
        return function if instance is None else getattr(super(owner, instance), self.name)


class _OfPlain:
    """A method that is given the uncompiled object. Where the class has none, the wrapper has none."""

    def __init__(self, name):
        self.name = name

    def __get__(self, instance, owner=None):
        if instance is not None:
            return getattr(_plain(instance), self.name)
        getattr(owner.__bases__[0], self.name)
        return lambda self, *args: getattr(_plain(self), self.name)(*args)


class _Using:
    """`compiled_object.using(**options)`, as of a compiled function. What the object has under this name itself comes first."""

    def __get__(self, instance, owner=None):
        if instance is None:
            raise AttributeError("using")
        for table in ("_modules", "_parameters", "_buffers"):  # of a torch module, whose __getattr__ comes after the class
            if "using" in vars(instance).get(table, ()):
                return vars(instance)[table]["using"]
        return functools.partial(_using_of, instance)


def _using_of(wrapper, **changes):
    from framejit._api import _using

    return _using(wrapper, **changes)


def compiled_part(wrapper):
    """The CompiledFunction that a call of what `wrap_object` made comes to first, or None."""
    methods = vars(type(wrapper)).get("_framejit_compiled")
    if methods is None:
        return None
    cls = _class_of(wrapper)
    has_own_call = len(methods) == 2 and cls.__call__ is not sys.modules["torch"].nn.Module.__call__
    function = methods[has_own_call].of(cls)
    return function if isinstance(function, _core.CompiledFunction) else None


def _set_class(self, cls):
    original = getattr(self, "_framejit_original", None)
    if original is None:
        raise TypeError("an object that was made by the class of a compiled one keeps its class")
    original.__class__ = cls
    _class_of(self)


def _reduce(self, protocol):
    return _plain(self).__reduce_ex__(protocol)


def _subclass(cls, compiled, call, **members):
    """Pickles and copies are of the class itself: they load where framejit is not installed. `__class__` is the
    original's, and set for both."""
    members = {**_named(cls), "__slots__": ("_framejit_original",), "_framejit_compiled": compiled,
               "__class__": property(_class_of, _set_class), "__reduce_ex__": _reduce, "__copy__": _OfPlain("__copy__"),
               "__deepcopy__": _OfPlain("__deepcopy__"), "__call__": call, **members}
    if not hasattr(cls, "using"):
        members["using"] = _Using()
    return type(cls)(cls.__name__, (cls,), members)


def _object_class(cls, compiled):
    method = _Compiled("__call__", compiled, cls)
    method.of(cls)

    def call(self, *args, **kwargs):
        try:
            cls = type(self._framejit_original)
        except AttributeError:
            cls = method.cls
        if cls is not method.cls:
            _follow(type(self), cls)
        return (method.function if cls.__call__ is method.found else method.of(cls))(self, *args, **kwargs)

    return _subclass(cls, (method,), call)


def _module_class(cls, compiled):
    from torch.nn.modules import module as hooks

    forward = _Compiled("forward", compiled, cls)
    forward.of(cls)
    own_call = _Compiled("__call__", compiled, cls)
    call_with_hooks = hooks.Module._wrapped_call_impl

    def call(self, *args, **kwargs):
        try:
            cls = type(self._framejit_original)
        except AttributeError:
            cls = forward.cls
        if cls is not forward.cls:
            _follow(type(self), cls)
        if cls.__call__ is not call_with_hooks:
            # What is put into Module itself (by torch.fx) looks at every module, and comes to the compiled `forward`.
            everyone_s = cls.__call__ is hooks.Module.__call__
            return (cls.__call__ if everyone_s else own_call.of(cls))(self, *args, **kwargs)
        # torch's own test for "nothing but forward": no hooks on the module or on all modules. An attribute of a module
        # takes 50 ns, an item of its dict 10.
        own = self.__dict__
        try:
            hooked = ("forward" in own or own["_backward_hooks"] or own["_backward_pre_hooks"]
                      or own["_forward_hooks"] or own["_forward_pre_hooks"])
        except KeyError:
            hooked = True  # torch raises: Module.__init__ has not run
        if (hooked or hooks._global_backward_pre_hooks or hooks._global_backward_hooks or hooks._global_forward_hooks
                or hooks._global_forward_pre_hooks):
            return call_with_hooks(self, *args, **kwargs)
        return (forward.function if cls.forward is forward.found else forward.of(cls))(self, *args, **kwargs)

    return _subclass(cls, (forward, own_call), call, forward=forward)
