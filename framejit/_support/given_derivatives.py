"""Functions of torch whose derivative Python code gives, as they are traced: torch.autograd.Function, custom operators of torch.library."""
import torch
from torch._library.custom_ops import OPDEFS
from torch.autograd.function import BackwardCFunction, Function, FunctionCtx, _SingleLevelFunction, once_differentiable

_ONCE = once_differentiable(lambda ctx: None).__code__
apply_of_torch = Function.apply.__func__


def derived_by(results, values, inputs, prepare, back, once):
    """The results, whose derivative back(cotangents) gives, a gradient or None for each input: tracer/gradients/given_derivative.cpp."""
    raise AssertionError("derived_by is traced")


derived_by.__framejit_marker__ = "derived_by"


def leave_to_torch(why):
    """A graph break that says why a derivative in Python is not traced."""
    raise AssertionError("leave_to_torch is traced")


leave_to_torch.__framejit_marker__ = "leave_to_torch"


class Context(FunctionCtx):
    """What forward and backward are given while they are traced."""

    to_save = ()
    dirty_tensors = ()
    non_differentiable = ()
    saved_for_forward = ()
    materialize_grads = True

    def __init__(self, args):
        self.needs_input_grad = tuple([isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args])

    @property
    def saved_tensors(self):
        return self.to_save

    def __getattr__(self, name):
        if hasattr(BackwardCFunction, name):
            leave_to_torch("asks for ctx." + name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _is_among(item, items):
    return any(item is other for other in items)


def _replaced(value, old, new):
    for before, after in zip(old, new):
        if value is before:
            return after
    return value


def _with_defaults(function, args):
    """All arguments: where setup_context is given, so are those that are left out."""
    missing = function.__code__.co_argcount - len(args)
    return args if missing <= 0 else (*args, *function.__defaults__[-missing:])


def apply(kind, *args, **kwargs):
    """torch.autograd.Function.apply."""
    own_setup = kind.setup_context is not _SingleLevelFunction.setup_context
    if kwargs or getattr(kind, "boxed_grads_call", False):
        leave_to_torch("is given keywords" if kwargs else "takes its gradients in a list")
    if own_setup:
        args = _with_defaults(kind.forward, args)
    ctx = Context(args)
    with torch.no_grad():
        if own_setup:
            found = kind.forward(*args)
            kind.setup_context(ctx, args, found)
        else:
            found = kind.forward(ctx, *args)
        results = found if isinstance(found, tuple) else (found,)
        if ctx.dirty_tensors:
            leave_to_torch("is one of a function that writes into its arguments (mark_dirty)")
        if not all([saved is None or isinstance(saved, torch.Tensor) for saved in ctx.to_save]):
            leave_to_torch("saves what is no tensor")
        results = tuple([result.view_as(result) if isinstance(result, torch.Tensor) and _is_among(result, args) else result for result in results])
    if torch.is_grad_enabled() and any(ctx.needs_input_grad):
        if kind.backward is not Function.backward and kind.vjp is not Function.vjp:
            leave_to_torch("is given twice, as backward and as vjp")
        results = _derived(kind.vjp if kind.vjp is not Function.vjp else kind.backward, ctx, args, results)
    return results if isinstance(found, tuple) else results[0]


def _derived(rule, ctx, args, results):
    """The results with the derivative rule(ctx, *cotangents)."""
    needs = ctx.needs_input_grad
    once = rule.__code__ is _ONCE
    if once:
        rule = rule.__wrapped__
    places = [i for i, result in enumerate(results) if isinstance(result, torch.Tensor) and
              (result.is_floating_point() or result.is_complex()) and not _is_among(result, ctx.non_differentiable)]
    if not places:
        return results
    old = [results[i] for i in places]
    if len(places) > 1 and not ctx.materialize_grads:
        leave_to_torch("may be given None for one of several cotangents (set_materialize_grads)")
    if any([_is_among(old[i], old[:i]) for i in range(len(old))]):
        leave_to_torch("is one of a tensor that is returned twice")
    with torch.no_grad():
        values = [result.clone() for result in old]

    def prepare(new):
        for name, value in list(vars(ctx).items()):
            if isinstance(value, torch.Tensor):
                setattr(ctx, name, _replaced(value, old, new))
        ctx.to_save = tuple([_replaced(saved, old, new) for saved in ctx.to_save])

    def back(cotangents):
        given, rest = [], iter(cotangents)
        for i, result in enumerate(results):
            if i in places:
                given.append(next(rest))
            else:
                given.append(torch.zeros_like(result) if ctx.materialize_grads and isinstance(result, torch.Tensor) else None)
        if once:
            with torch.no_grad():
                gradients = rule(ctx, *given)
        else:
            gradients = rule(ctx, *given)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        if len(gradients) < len(args) or not all([gradient is None for gradient in gradients[len(args):]]):
            leave_to_torch("gives another number of gradients than there are arguments")
        return [gradient for gradient, needed in zip(gradients, needs) if needed]

    new = derived_by(old, values, [arg for arg, needed in zip(args, needs) if needed], prepare, back, once)
    return tuple([new[places.index(i)] if i in places else result for i, result in enumerate(results)])


def operator(function, setup_context, backward, parameters, *args, **kwargs):
    """A custom operator of which an argument requires a gradient. `parameters`: as `derivative_of` gives them."""
    given, named = list(args), {}
    for name, default, keyword_only in parameters[len(args):]:
        if name not in kwargs and default is _required:
            leave_to_torch("is one of a call without " + name)
        value = kwargs[name] if name in kwargs else default
        if keyword_only:
            named[name] = value
        else:
            given.append(value)
    args = tuple(given)
    ctx = Context(args)
    with torch.no_grad():
        found = function(*args, **named)
        if setup_context is not None:
            if named:
                setup_context(ctx=ctx, inputs=args, keyword_only_inputs=named, output=found)
            else:
                setup_context(ctx=ctx, inputs=args, output=found)
    results = _derived(backward, ctx, args, found if isinstance(found, tuple) else (found,))
    return results if isinstance(found, tuple) else results[0]


_required = object()


def derivative_of(operator):
    """(setup_context or None, backward, [(parameter, its default, whether it is given by name alone)]) of an operator of torch.library.custom_op; None:
    it has no derivative in Python, or takes or returns lists of tensors."""
    overload = getattr(operator, "default", operator)
    known = OPDEFS.get(getattr(overload, "_qualname", None) or getattr(overload, "name", str)())
    if known is None or known._opoverload is not overload or known._backward_fn is None:
        return None
    schema = overload._schema
    if any("[]" in str(item.type) and "Tensor" in str(item.type) or "List[" in str(item.type) and "Tensor" in str(item.type)
           for item in (*schema.arguments, *schema.returns)):
        return None
    parameters = [(argument.name, argument.default_value if argument.has_default_value() else _required, argument.kwarg_only)
                  for argument in schema.arguments]
    return known._setup_context_fn, known._backward_fn, parameters
