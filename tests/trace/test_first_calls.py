"""First calls of a process: at the same time in several threads, and under what looks at torch's operations."""
import ast

import pytest

from harness import needs_torch, run_program


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])
def test_threads_whose_first_calls_come_at_once(library):
    """Every import lets the other threads go on, as a slow disk does."""
    run_program(f"""
        import collections, dataclasses, random, re, sys, threading, time
        import numpy as np
        import framejit
        if "{library}" == "torch":
            import torch

        class Slow:
            @staticmethod
            def find_spec(name, *rest):
                time.sleep(0.01)

        Point = collections.namedtuple("Point", "x y")

        def numbers(x):
            generator = np.random.default_rng(0)
            p = Point(generator.normal(size=3), x.sum())
            return np.sort(x, axis=0), np.count_nonzero(x), p.x.mean() + p.y, np.maximum(x, -0.0)

        def texts(x, name="a1"):
            matched = re.match("([a-z])(.)", name)
            kept = collections.defaultdict(list, {{matched[1]: [x * 2]}})
            return kept[name[0]][0], sum([1.5, 2.5]), sorted(kept), random.Random(1).random(), f"{{name!r:>5}}"

        def tensors(x):
            m = torch.nn.Linear(3, 3)
            m(x).cos().mean().backward()
            return m.weight.grad is not None, torch.nonzero(x, as_tuple=True)[0].tolist(), (x[0] + torch.addcmul(x, x, x)).tolist()

        functions = [numbers, texts] if "{library}" == "numpy" else [tensors]
        x = np.ones((2, 3)) if "{library}" == "numpy" else torch.ones(2, 3)
        expected = [repr(function(x)) for function in functions]
        sys.meta_path.insert(0, Slow)
        start, found = threading.Barrier(4), []

        def go(turn):
            order = [(i + turn) % len(functions) for i in range(len(functions))]
            compiled = [framejit.compile(function) for function in functions]
            start.wait()
            found.append(sorted((i, repr(compiled[i](x))) for i in order))

        threads = [threading.Thread(target=go, args=(turn,)) for turn in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [list(enumerate(expected))] * 4, found
    """, PYTHONWARNINGS="ignore")


# What each gives is printed for the plain function, the compiled one in its first call, and the compiled one that has
# been called before.
OBSERVED = """
import os, sys, torch, framejit
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode

layer = torch.nn.Linear(3, 3)

def f(x):
    return torch.relu(layer(x) @ x) * x.size(0) + 1

class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x):
        return self.function(x)

class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))

class Called(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))

def nodes(graph):
    return [(node.op, str(node.target).split(" at 0x")[0]) for node in graph.nodes]

def under(mode):
    with mode:
        c(x)
    return seen

def profiled():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        c(x)
    return sorted((event.key, event.count) for event in profile.key_averages())

def counted():
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as mode:
        c(x)
    return mode.get_total_flops()

def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return str(c(mode.from_tensor(x)))

def derived(transform):
    return [value.tolist() for value in transform(lambda v: c(v).sum())(x).unbind()]

def made():
    from torch.fx.experimental.proxy_tensor import make_fx
    return nodes(make_fx(c)(x).graph)

def traced(**options):
    layer.requires_grad_(False)  # else its parameters can't be constants of the graph
    made = torch.jit.trace(c, x, **options)
    return str(made.graph).count("aten::"), made(x + 1).tolist()

WHICH = {
    "trace": lambda: traced(check_trace=False),
    "checked trace": traced,
    "trace of a module": lambda: [str(node).split("=")[-1].split("(")[0] for node in torch.jit.trace(Module(c), x).inlined_graph.nodes()],
    "make_fx": made,
    "symbolic_trace": lambda: nodes(torch.fx.symbolic_trace(Module(c)).graph),
    "export": lambda: [str(node.target) for node in torch.export.export(Module(c), (x,)).graph.nodes],
    "dispatch": lambda: under(Dispatched()),
    "function": lambda: under(Called()),
    "device": lambda: (under(torch.device("cpu")), c(x.to("meta")).shape),
    "profile": profiled,
    "flops": counted,
    "fake": fake,
    "vmap": lambda: torch.func.vmap(c)(x.expand(2, 3, 3)).tolist(),
    "grad": lambda: derived(torch.func.grad),
    "jvp": lambda: torch.func.jvp(c, (x,), (x,))[1].tolist(),
    "functionalize": lambda: torch.func.functionalize(c)(x).tolist(),
    "inference": lambda: [torch.inference_mode()(lambda: (c(x).is_inference(), c(x).shape))()],
    "autocast": lambda: [torch.autocast("cpu", torch.bfloat16)(lambda: c(x).dtype)()],
}
if __name__ == "__main__":
    for which in WHICH:
        for state in ("plain", "cold", "warm"):
            read, write = os.pipe()
            if os.fork() == 0:
                seen, x = [], torch.linspace(-1, 2, 9).reshape(3, 3)
                c = f if state == "plain" else framejit.compile(f)
                for _ in range(30 if state == "warm" else 0):
                    c(x)
                try:
                    answer = str(WHICH[which]())
                except BaseException as error:
                    answer = repr(error)
                os.write(write, (answer or "nothing").encode()[:60000])
                os._exit(0)
            os.close(write)
            with os.fdopen(read) as answer:
                print(repr((which, state, answer.read())))
            os.wait()
"""


@needs_torch
def test_what_looks_at_torchs_operations_sees_eagers():
    """Each in a process of its own that has made no call yet: what the first one tries out is not to be seen either."""
    found = {}
    for line in run_program(OBSERVED, PYTHONWARNINGS="ignore").stdout.splitlines():
        which, state, answer = ast.literal_eval(line)
        found.setdefault(which, {})[state] = answer
    assert len(found) >= 18
    # A profiler is told by compiled code itself what it does.
    assert "aten::" not in found["profile"].pop("warm")
    wrong = {which: answers for which, answers in found.items() if len(set(answers.values())) != 1 or not answers["plain"]}
    assert wrong == {}


@needs_torch
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_a_program_that_sets_the_default_dtype_first_is_compiled(dtype):
    run_program(f"""
        import framejit, torch
        torch.set_default_dtype(torch.{dtype})

        def f(x):
            return (x * 2.5 + torch.ones(3)).sum()

        for x in (torch.ones(3), torch.ones(3, dtype=torch.float32)):
            assert framejit.compile(f, fullgraph=True)(x) == f(x)
            y = x.clone().requires_grad_()
            f(y).backward()
            found = framejit.grad(f)(x)
            assert found.dtype == y.grad.dtype and found.tolist() == y.grad.tolist() == [2.5] * 3
        assert framejit.cache_info()["kernels_launched"] > 0
        """)


@needs_torch
def test_what_looks_at_new_objects_meanwhile_may_hold_them():
    """Tuples of a first call and of a backward, which gc.get_objects() gives before they have arrived."""
    done = run_program("""
        import gc
        import torch
        import framejit

        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        compiled = framejit.compile(net)
        x = torch.linspace(-1, 1, 32).reshape(4, 8)
        net(x).sum().backward()
        want = [p.grad.clone() for p in net.parameters()]
        held = []

        def look(phase, info):
            if phase == "start":
                held.extend(each for each in gc.get_objects(0) if type(each) is tuple)
                del held[:-50]

        def largest(x):
            return torch.topk(torch.sin(x), 2, dim=(1)).values

        for watched in (False, True):
            if watched:
                gc.freeze()
                gc.set_threshold(1)
                gc.callbacks.append(look)
                assert torch.allclose(framejit.compile(largest)(x), largest(x))
            for _ in range(3):
                net.zero_grad()
                compiled(x).sum().backward()
                assert all(torch.allclose(p.grad, w, atol=1e-6) for p, w in zip(net.parameters(), want))
        gc.callbacks.clear()
        assert framejit.cache_info()["internal_errors"] == 0
        print("done")
    """)
    assert "done" in done.stdout
