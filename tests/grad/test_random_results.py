"""Random programs that return several results and views of them: what each is derived by, once and twice, and what hooks see, is eager's."""
import itertools
import random

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit  # noqa: E402

# Each is of one value s and perhaps another o, of any shape; a second form where the first has none.
OPERATIONS = [
    "{s}[1:] if {s}.dim() and {s}.shape[0] > 1 else {s} * 2", "{s}.transpose(0, -1) if {s}.dim() > 1 else {s}.sin()", "{s}[0] if {s}.dim() else {s}.cos()",
    "{s}.unsqueeze(0).expand(2, *{s}.shape) if {s}.dim() < 4 else {s} * 3", "{s}.reshape(-1)", "{s} * {o}.sum()", "{s}.sin()", "{s} + {s}.mean()",
    "{s}.sum(-1) if {s}.dim() else {s} * 1", "{s}.unsqueeze(-1) if {s}.dim() < 4 else {s} + 1", "{s}[::2] if {s}.dim() else {s} * 1", "{s}.clone()",
    "{s}.contiguous()", "{s} * w.sum()", "{s}.detach() * {s}", "{s}.exp() * ({s} * 3)",
]
SHAPES = [(3, 4), (3, 4), (5, 4)]  # the last one makes the sizes symbols


def program(seed):
    draw = random.Random(seed)
    names, lines = ["x"], []
    for i in range(draw.randint(3, 8)):
        lines.append(f"    v{i} = " + draw.choice(OPERATIONS).format(s=draw.choice(names), o=draw.choice(names)))
        names.append(f"v{i}")
    returned = draw.sample(names[1:], draw.randint(2, min(5, len(names) - 1)))
    return "def f(x, w):\n" + "\n".join(lines) + f"\n    return {', '.join(returned)}\n"


def leaf(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def total(result):
    return (result * torch.linspace(1, 2, result.numel(), dtype=result.dtype).reshape(result.shape)).sum()


def gradients(of, by, **options):
    try:
        return torch.autograd.grad(of, by, retain_graph=True, allow_unused=True, **options)
    except RuntimeError as error:
        return str(error)[:40]


def observe(function, shape):
    """What a user could see, in an order that is the same for every function."""
    x, w = leaf(*shape, seed=1), leaf(3, seed=2)
    made = function(x, w)
    seen = [(result.detach(), result.stride(), result._is_view(), result.requires_grad) for result in made]
    variables = [tensor for tensor in (x, w, *made) if tensor.requires_grad]
    for root, by in itertools.product((result for result in made if result.requires_grad), variables):
        if root is by:
            continue
        seen.append(gradients(total(root), by))
        first = gradients(total(root).pow(2), by, create_graph=True)
        if not isinstance(first, str) and first[0] is not None and first[0].requires_grad:
            first = gradients(total(first[0]), variables)
        seen.append(first)
    x, w = leaf(*shape, seed=1), leaf(3, seed=2)
    made = [result for result in function(x, w) if result.requires_grad]
    hooked = {}
    for k, result in enumerate(made):
        result.retain_grad()
        result.register_hook(lambda g, k=k: hooked.__setitem__(k, g.clone()) or g * 2)
    if made:
        sum(total(result) for result in made).backward()
    return seen + [hooked.get(k) for k in range(len(made))] + [tensor.grad for tensor in (*made, x, w)]


def same(actual, expected):
    if isinstance(expected, torch.Tensor):
        scale = 1 + float(expected.nan_to_num().abs().max()) if expected.numel() else 1.0
        return isinstance(actual, torch.Tensor) and actual.shape == expected.shape and torch.allclose(actual, expected, rtol=1e-8, atol=1e-9 * scale, equal_nan=True)
    if isinstance(expected, (tuple, list)):
        return type(actual) is type(expected) and len(actual) == len(expected) and all(map(same, actual, expected))
    return actual == expected


@pytest.mark.parametrize("block", range(4))
@pytest.mark.filterwarnings("ignore")
def test_results_of_random_programs_are_derived_as_eager_s(block):
    for seed in range(block * 12, block * 12 + 12):
        namespace = {}
        exec(program(seed), namespace)
        framejit.reset()
        compiled = framejit.compile(namespace["f"])
        for shape in SHAPES:
            for k, (actual, expected) in enumerate(zip(observe(compiled, shape), observe(namespace["f"], shape))):
                assert same(actual, expected), f"program {seed}, {shape}, observation {k}: {actual}, eager gives {expected}\n{program(seed)}"
        assert framejit.cache_info()["internal_errors"] == 0
