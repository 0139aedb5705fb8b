"""Graphs as torch.fx.GraphModule and back: `Graph.to_fx`, `framejit.from_fx`, and back ends of torch.compile as back ends of ours.

A graph goes out by running its source (graph_code.py) on fake tensors while make_fx writes down ATen's operations. It comes in by
capture: a GraphModule's forward is plain Python, whose operators are first written as the functions of torch that the tracer knows
(fx_operators.py).
"""
import ast
import contextlib
import linecache
import math
import re

from framejit._errors import Error, GraphError
from framejit._graph import code
from framejit._graph.code import evaluated
from framejit._graph.dtypes import library_name


def _torch():
    try:
        import torch
        import torch.fx.traceback
    except ImportError:
        raise GraphError("torch is not installed: there is no torch.fx") from None
    return torch


class _FactoryFunctions:
    """The module torch as a graph's source uses it, with scalars made by operators: `torch.tensor` leaves constants behind."""

    def __init__(self, torch):
        self._module = torch

    def __getattr__(self, name):
        return getattr(self._module, name)

    def tensor(self, value, dtype):
        torch = self._module
        if isinstance(value, torch.SymInt):
            return torch.scalar_tensor(value, dtype=dtype)  # `full` would decide the number
        return torch.full((), value, dtype=dtype)


def _writer(core):
    """The source of a graph that says at each node which one comes now."""
    from framejit._support import graph_code

    class Writer(graph_code._Writer):
        def write(self, node, number):
            if self.prefix == graph_code._Writer.prefix:
                self.line("at_(number)", number=number)
            super().write(node, number)
            if self.externs:
                # The compiler's own objects: they read memory, which fake tensors have none of.
                raise GraphError(f"{_told(core, node)} is more than a function of torch called with arrays and constants")

        def branch(self, node, number):
            """torch.cond of two functions, of the operands and of the sizes that one of them uses."""
            own = f"{self.prefix}{number}"
            parameters = [f"{own}o{i}" for i, _ in enumerate(node.operands[1:])]
            results = [self.names[value] for value in node.results]
            bodies = [self.way(body, node, own + word, parameters, results) for body, word in zip(node.bodies, "te")]
            sizes = self.sizes_in(bodies)
            first, second = (self.define_function(own + word, [*parameters, *sizes], body, results)
                             for body, word in zip(bodies, "te"))
            condition, *given = map(self.value, node.operands)
            self.body.append(code.assigned(results, code.expression(
                "cond_(condition, first, second, given)", condition=condition, first=first, second=second,
                given=(*given, *map(code.name, sizes)))))

        def loop(self, node, number):
            """torch.while_loop: the bool that the last pass has given comes before the states."""
            own, states = f"{self.prefix}{number}", [self.names[value] for value in node.results]
            goes, parameters = own + "_goes", [f"{own}o{i}" for i, _ in enumerate(node.operands[1:])]
            body = self.way(node.bodies[0], node, own + "p", parameters, [goes, *states])
            sizes = self.sizes_in([body])
            given = [*parameters, *sizes]
            asked = code.statement("result = x.clone()", result=code.name(goes), x=code.name(own + "g"))
            asks = self.define_function(own + "c", [own + "g", *given], [asked], [goes], one=True)
            does = self.define_function(own + "b", [own + "g", *given], body, [goes, *states])
            first, *values = map(self.value, node.operands)
            self.body.append(code.assigned([goes, *states], code.expression(
                "while_(asks, does, carried, others)", asks=asks, does=does, carried=(first, *values[:len(states)]),
                others=(*values[len(states):], *map(code.name, sizes)))))

        def sizes_in(self, bodies):
            trees = (tree for body in bodies for statement in body for tree in ast.walk(statement))
            used = {tree.id for tree in trees if isinstance(tree, ast.Name)}
            return sorted(self.known & used)

        def define_function(self, name, parameters, body, results, one=False):
            made = code.name(results[0]) if one else tuple(map(code.name, results))
            body = [*body, code.statement("return made", made=made)]
            self.body.append(code.definition(name, code.plain_parameters(parameters), body))
            return code.name(name)

    try:
        return Writer(core, "torch", False)
    except (TypeError, AttributeError) as error:
        raise GraphError(f"the graph of {core.name} has no form in torch: {error}") from None


def _told(core, node):
    file, line, _ = node.location
    what = f"the call of {node.attrs['callee']}" if node.op == "extern_call" else node.op
    return f"the graph of {core.name}: {what}" + (f" ({file.rpartition('/')[2]}:{line})" if line else "")


def _dtype(name):
    return getattr(_torch(), library_name(name))


class _Sizes:
    """The symbols of a graph and where a call shows them: in an input's shape, or among the integers behind the inputs."""

    def __init__(self, core):
        self.definitions = core.definitions
        defined = {number for number, *_ in core.definitions}
        self.symbols, self.places = [], []
        for i, (name, _, _, seen, late) in enumerate(core.symbols):
            if i in defined or late:
                continue
            place = next(((k, axis) for k, (_, _, _, shape) in enumerate(core.inputs)
                          for axis, size in enumerate(shape) if size == f"s{i}"), None)
            if place is None and i in core.integers:
                place = len(core.inputs) + list(core.integers).index(i), None
            if place is None:
                continue  # nothing asks for it
            self.symbols.append((f"s{i}", seen))
            self.places.append(place)

    def read(self, arguments):
        return tuple(arguments[k] if axis is None else arguments[k].shape[axis] for k, axis in self.places)

    def values(self, of_symbols):
        """By name, with those that are quotients and remainders of others."""
        known = dict(zip((name for name, _ in self.symbols), of_symbols))
        waiting = list(self.definitions)
        while waiting:
            left = []
            for row in waiting:
                number, dividend, divisor, remainder = row
                try:
                    a, b = evaluated(dividend, known), evaluated(divisor, known)
                except KeyError:
                    left.append(row)
                    continue
                known[f"s{number}"] = a % b if remainder else a // b
            if len(left) == len(waiting):
                break
            waiting = left
        return known


def _all_nodes(graph):
    for node in graph:
        yield node
        for body in node.bodies or ():
            yield from _all_nodes(body)


class _Outgoing:
    """A graph on its way to torch.fx. `static`: the sizes to decide, else they stay symbols."""

    def __init__(self, graph, functional, devices, static=None):
        torch = _torch()
        from torch._dynamo.source import ConstantSource
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self.graph, self.core, self.functional = graph, graph._as_core(), functional
        for node in _all_nodes(graph):
            if node._has_check():
                raise GraphError(f"{node} is a check (a raise or assert on one way, or the range of a Python number): "
                                 "these have no form in torch.fx")
        for node in self.core.nodes:
            if node.op in ("nonzero", "as_size"):
                raise GraphError(f"{_told(self.core, node)} gives a size: those that depend on data have no form in torch.fx")
        self.sizes = _Sizes(self.core)
        self.env = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env)
        seen = [max(2, seen) for _, seen in self.sizes.symbols]
        self.expressions, made = [], []
        for (name, _), hint in zip(self.sizes.symbols, seen):
            source = ConstantSource(name)
            symbol = self.env.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
            self.expressions.append(symbol)
            made.append(self.env.create_symintnode(symbol, hint=hint, source=source))
        values = self.sizes.values(made if static is None else static)
        with self.mode:
            self.arguments = [self._fake(node, values, device) for node, device in zip(graph._inputs, devices)]
        self.arguments += [values[f"s{number}"] for number in self.core.integers]
        others = {device for device in devices if device.type != "cpu"}
        device = others.pop() if others else None
        self.module = self._traced(_writer(self.core), device)

    def _fake(self, node, values, device):
        torch = _torch()
        shape = [evaluated(size, values) for size in node.shape]
        if not _has_fixed_layout(node):
            return torch.empty(shape, dtype=_dtype(node.dtype), device=device)
        return torch.empty_strided(shape, node.layout, dtype=_dtype(node.dtype), device=device)

    def strides(self, of_symbols):
        """Of each input, as tuples: those that the module was made for."""
        values, found = self.sizes.values(of_symbols), []
        for node in self.graph._inputs:
            if _has_fixed_layout(node):
                found.append(tuple(node.layout))
                continue
            strides, step = [], 1
            for size in reversed(node.shape):
                strides.insert(0, step)
                step *= max(1, evaluated(size, values))
            found.append(tuple(strides))
        return found

    def _traced(self, writer, device):
        torch = _torch()
        from torch.fx import traceback
        from torch.fx.experimental.proxy_tensor import make_fx

        nodes, reached = self.core.nodes, []  # the place of a node that was read is no file to open: a text may name any

        def at(number):
            reached[:] = [nodes[number]]
            file, line, module = nodes[number].location
            traceback.current_meta.clear()
            if line:
                text = linecache.getline(file, line).strip() if self.graph._capture is not None else ""
                traceback.current_meta["stack_trace"] = f'  File "{file}", line {line}, in {self.core.name}\n    {text}'
            if module:
                traceback.current_meta["nn_module_stack"] = {module: (module, torch.nn.Module)}

        import numpy

        operators = torch.ops.higher_order
        space = {"numpy": numpy, "math": math, "torch": _FactoryFunctions(torch), "at_": at,
                 "cond_": operators.cond, "while_": operators.while_loop, **writer.externs}
        run = code.function(writer.definition, space, f"<graph of {self.core.name}>")
        writes, count = [i for i, _ in self.core.writes], len(self.core.outputs)

        def copying(*arguments):
            """Values first: what shares memory with an input that is written is a copy."""
            results = run(*arguments)
            traceback.current_meta.clear()
            written = {arguments[i].untyped_storage()._cdata for i in writes}
            results = [x.clone() if x.untyped_storage()._cdata in written else x for x in results]
            for i, value in zip(writes, results[count:]):
                arguments[i].copy_(value.detach())  # no derivative goes through what a graph writes
            return results[:count]

        # make_fx names placeholders after parameters.
        called = {"run_": run if self.functional or not writes else copying}
        forward = code.function(code.calling("forward", "run_", writer.parameters), called, "<forward>")
        try:
            with contextlib.ExitStack() as stack:
                for context in (self.mode, torch.no_grad(), traceback.preserve_node_meta()):
                    stack.enter_context(context)
                if device is not None:
                    stack.enter_context(torch.device(device))
                module = make_fx(forward)(*self.arguments)
        except Error:
            raise
        except Exception as error:
            who = _told(self.core, reached[0]) if reached else f"the graph of {self.core.name}"
            raise GraphError(f"{who} can't be written in torch.fx: {type(error).__name__}: {error}") from error
        finally:
            traceback.current_meta.clear()
        module.graph.eliminate_dead_code()
        for node, name in zip([node for node in module.graph.nodes if node.op == "placeholder"], writer.parameters):
            node.target = name
            node._rename(name)
        module.recompile()
        module.shape_env = self.env
        return module

    def holds(self, of_symbols):
        """Whether torch's conditions on sizes, by now, are met."""
        import sympy

        if any(value < 2 for value in of_symbols):
            return False
        values = {symbol: sympy.Integer(value) for symbol, value in zip(self.expressions, of_symbols)}
        return all(guard.expr.xreplace(values) == sympy.true for guard in self.env.guards)

    def decided(self):
        """The symbols that torch has made numbers."""
        return [(name, found) for (name, _), symbol in zip(self.sizes.symbols, self.expressions)
                if (found := self.env.replace(symbol)).is_number]


def _refuse_views(graph):
    """What a captured function returns as a view of what is computed, and not itself, is no output of the graph."""
    steps, result = graph._capture.found["recipe"]
    outputs = {register: index for name, register, _, _, _, index, *_ in steps if name == "output"}
    read = [result, *(register for _, _, arguments, *_ in steps for register in arguments)]
    for name, _, arguments, _, _, _, offset, shape, strides, _ in steps:
        index = outputs.get(arguments[0], -1) if name == "view" else -1
        if not 0 <= index < len(graph.outputs) or read.count(arguments[0]) != 1:
            continue
        dense = [math.prod(shape[axis + 1:]) for axis in range(len(shape))] if all(isinstance(x, int) for x in shape) else None
        if tuple(shape) != tuple(graph.outputs[index].shape) or offset != 0 or list(strides) != dense:
            raise GraphError(f"{graph._title()} can't be written in torch.fx: result {index} is a view of what is computed: return a copy of it "
                             "(`.clone()`), or take to_fx(functional=True), which gives what is computed, and make the view of that")


def _has_fixed_layout(node):
    """Others are given row-major: torch has no negative strides, and strides that change are mostly those."""
    return node.layout is not None and all(isinstance(x, int) and x >= 0 for x in node.layout)


def _devices(graph, examples):
    """Of the inputs."""
    torch = _torch()
    host = torch.device("cpu")
    found = [x.device if isinstance(x, torch.Tensor) else host for x, _ in zip(examples, graph._inputs)]
    return found + [host] * (len(graph._inputs) - len(found))


def to_fx(graph, functional=False):
    if graph._capture is not None and not functional:
        _refuse_views(graph)
    outgoing = _Outgoing(graph, functional, _devices(graph, graph._capture.found["examples"] if graph._capture is not None else ()))
    for name, number in outgoing.decided():
        raise GraphError(f"{graph._title()}: torch.fx decides that the size {name} is {number}")
    return outgoing.module


# ---- coming in

def from_fx(gm, *example_inputs, dynamic_shapes=None):
    """The Graph of a torch.fx.GraphModule: of torch's functions or of ATen's operators, as dynamo, make_fx and torch.export write them.

    gm: the module; of torch.export, what `.module()` returns. example_inputs: as for `framejit.capture`; not given, they are made of the
    placeholders' `meta["val"]`, and sizes that are symbols there may be others in a call. dynamic_shapes: as for `framejit.capture`.
    Calling the graph calls the module's computation, with gradients and with its writes into arguments and buffers; its parameters are
    inputs of the graph. Where a node came from (`meta["stack_trace"]`) is where the graph's nodes come from. An operator without a
    function that framejit knows is called as it is. Raises GraphError, which names the node and its target, where a node can't be a
    part of a graph.

        graph = framejit.from_fx(torch.export.export(model, (x,)).module(), x)
    """
    torch = _torch()
    if not isinstance(gm, torch.fx.GraphModule):
        raise TypeError(f"framejit.from_fx takes a torch.fx.GraphModule, not {gm!r}")
    from framejit._graph.capture import capture
    from framejit._graph.fx_operators import as_functions

    module = as_functions(gm)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    if not example_inputs and placeholders:
        example_inputs, found = _examples(placeholders)
        dynamic_shapes = found if dynamic_shapes is None else dynamic_shapes
    lines = _lines(module)
    try:
        graph = capture(module.forward, *example_inputs, dynamic_shapes=dynamic_shapes)
    except Error as error:
        raise GraphError(f"framejit.from_fx: {_culprit(_named(str(error), lines))}{error}") from error
    _set_places(graph, lines)
    return graph


def _culprit(node):
    return f"the node {node.name}, which calls {node.target}, can't be captured: " if node is not None else ""


def _lines(module):
    """By line of the module's code: the node written there."""
    body = module.code.splitlines()
    by_name = {node.name: node for node in module.graph.nodes}
    found = {}
    for number, line in enumerate(body, 1):
        name = re.match(r"\s*(\w+)\s*(?::[^=]*)?=", line)
        if name and name[1] in by_name:
            found[number] = by_name[name[1]]
    return found


def _named(text, lines):
    place = re.search(r"<eval_with_key>\.\d+\S*?:(\d+)", text)
    return lines.get(int(place[1])) if place else None


def _set_places(graph, lines):
    from framejit._graph import fx_operators

    for node in graph:
        node.module = re.sub(r"^G\.captured\.__self__\.?", "", node.module)
        if node.file == fx_operators.__file__:
            node.file, node.line = "", 0
        if "eval_with_key" not in node.file:
            continue
        found = lines.get(node.line)
        if found is None:
            continue
        places = re.findall(r'File "([^"]+)", line (\d+)', found.meta.get("stack_trace") or "")
        if places:
            node.file, node.line = places[-1][0], int(places[-1][1])
        stack = found.meta.get("nn_module_stack")
        if stack:
            path = str(list(stack.values())[-1][0])
            node.module = re.sub(r"^L\['\w+'\]\.?|^L__\w+?__[._]?", "", path)


def _examples(placeholders):
    """(examples, dynamic shapes) from what the placeholders say."""
    torch = _torch()

    def number(size):
        return size if isinstance(size, int) else size.node.hint if size.node.has_hint() else 2

    examples, shapes = [], {}
    for node in placeholders:
        value = node.meta.get("val", node.meta.get("example_value"))
        if isinstance(value, torch.Tensor):
            made = torch.empty_strided([number(x) for x in value.shape], [number(x) for x in value.stride()], dtype=value.dtype,
                                       device=value.device)
            if value.requires_grad and (value.is_floating_point() or value.is_complex()):
                made.requires_grad_()
            axes = {axis: str(size) if str(size).isidentifier() else None for axis, size in enumerate(value.shape)
                    if isinstance(size, torch.SymInt) and size.node.expr.free_symbols}
            if axes:
                shapes[str(node.target)] = axes
            examples.append(made)
        elif isinstance(value, (torch.SymInt, torch.SymFloat)):
            examples.append(number(value))
        elif value is None and node.args:
            examples.append(node.args[0])  # its default
        elif value is None or not isinstance(value, (int, float, bool, complex, str)):
            raise GraphError(f"framejit.from_fx: the placeholder {node.target} has no meta['val']: give example inputs")
        else:
            examples.append(value)
    return examples, shapes or None


# ---- back ends of torch.compile

def fx_backend(compiler):
    """A back end for `framejit.compile(backend=...)` that has a back end of torch.compile compile each graph, as a torch.fx.GraphModule.

    compiler: a name ("inductor", "aot_eager", any of `torch._dynamo.list_backends()` and its entry points), or a function
    `(gm, example_inputs) -> callable`. It is given a forward graph without gradients, since framejit makes derivatives itself: graphs of
    its own. `gm` returns a list: outputs, then written values; example inputs are fake tensors, as torch.compile gives them. Sizes that
    change are symbols; for sizes torch's conditions exclude (0 and 1 among them) it compiles a module of these sizes. Arrays of NumPy
    are given as tensors of the same memory. BackendError says why a graph can't be compiled.

        compiled = framejit.compile(model, backend=framejit.fx_backend("inductor"))
    """
    torch = _torch()
    if not callable(compiler) and not isinstance(compiler, str):
        raise TypeError(f"framejit.fx_backend takes the name of a back end of torch.compile or a function, not {compiler!r}")
    name = compiler if isinstance(compiler, str) else getattr(compiler, "__name__", "fx")
    if isinstance(compiler, str):
        from torch._dynamo.backends.registry import lookup_backend

        compiler = lookup_backend(compiler)

    def compiled(outgoing):
        from torch._guards import TracingContext, tracing

        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(tracing(TracingContext(outgoing.mode)))
            if name == "inductor":
                from torch._inductor import config

                # Random numbers are those of torch's generator, in eager's order.
                stack.enter_context(config.patch(fallback_random=True))
            return compiler(outgoing.module, list(outgoing.arguments))

    def backend(graph, example_inputs):
        return _Run(graph, example_inputs, compiled)

    backend.__name__ = backend.__qualname__ = f"fx_backend_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
    return backend


class _Run:
    """A compiled graph, in a version for each set of sizes that the first one's conditions exclude."""

    def __init__(self, graph, example_inputs, compile):
        self.torch = torch = _torch()
        self.graph, self.compile, self.count = graph, compile, len(graph._inputs)
        self.devices = _devices(graph, example_inputs)
        self.outgoing = _Outgoing(graph, True, self.devices)
        self.function = compile(self.outgoing)
        self.to_numpy = not any(isinstance(x, torch.Tensor) for x in example_inputs) and graph._library() == "numpy"
        self.versions = {}  # by sizes: (function, the strides it takes)

    def __call__(self, *arguments):
        sizes = self.outgoing.sizes.read(arguments)
        version = self.versions.get(sizes)
        if version is None:
            version = self.version(sizes)
        function, strides = version
        torch = self.torch
        given = []
        for x, wanted in zip(arguments, strides):
            x = x.detach() if isinstance(x, torch.Tensor) else _tensor_of(x)
            if x.stride() != wanted:
                x = torch.empty_strided(x.shape, wanted, dtype=x.dtype, device=x.device).copy_(x)
            given.append(x)
        with torch.no_grad():
            results = function(*given, *arguments[self.count:])
        return [x.numpy() for x in results] if self.to_numpy else list(results)

    def version(self, sizes):
        strides = self.outgoing.strides(sizes)
        if self.outgoing.holds(sizes):
            made = self.function, strides
        else:
            made = self.compile(_Outgoing(self.graph, True, self.devices, static=sizes)), strides
        self.versions[sizes] = made
        return made


def _tensor_of(array):
    """The same memory where torch can have it."""
    import numpy

    torch = _torch()
    if not isinstance(array, numpy.ndarray) or not array.flags.writeable or any(x < 0 for x in array.strides):
        array = numpy.array(array)
    return torch.from_numpy(array)
