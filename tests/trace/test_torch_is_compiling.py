"""What `torch.compiler.is_compiling()` is answered in traced code: eager's answer, unless only code for a compiler is captured whole."""
import numpy as np
import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")

X = torch.arange(1.0, 5.0)
EAGER, COMPILER = 1.0, 2.0  # added by each way


def told():
    return torch.compiler.is_compiling()


def run(function, *arguments, **options):
    """The first result of two calls, which are the same, and the breaks."""
    compiled = framejit.compile(function, **options)
    first, second = compiled(*arguments), compiled(*arguments)
    assert torch.equal(first, second) and framejit.cache_info()["internal_errors"] == 0
    return first, framejit.cache_info()["breaks"]


def traces(function, *arguments, **options):
    """How often the function's first line was traced."""
    entries = []
    framejit.set_logs("bytecode", sink=lambda artifact, text: entries.append(text))
    try:
        framejit.compile(function, **options)(*arguments)
    finally:
        framejit.set_logs()
    return sum("RESUME" in entry for entry in entries)


def both_are_captured(x):
    return x * 3 + (COMPILER if told() and torch.compiler.is_dynamo_compiling() else EAGER)


def eagers_way_breaks(x):
    y = x * 3
    if not told() and (y > 100).any():
        return y - 1
    return y + (COMPILER if told() else EAGER)


def both_break(x):
    y = x * 3 + (COMPILER if told() else EAGER)
    return y * 2 if y.sum() > 0 else y - 1


def the_compilers_way_raises(x):
    y = x * 3
    if told():
        raise ValueError("not for compilers")
    return y + EAGER if y.sum() > 0 else y - 1


def the_compilers_way_is_refused(x):
    y = x * 3
    if told():
        return y + torch.ones(7)
    return y + EAGER if y.sum() > 0 else y - 1


def the_compilers_way_does_nothing(x):
    if told():
        return x
    y = x * 3
    return y + EAGER if y.sum() > 0 else y - 1


def eagers_way_breaks_before_both_do(x):
    y = x * 3
    if not told() and (y > 100).any():
        y = y - 1
    y = y + (COMPILER if told() else EAGER)
    print(end="")
    return y * (10 if told() else 1)


def the_compilers_way_raises_later(x):
    y = x * 3
    if not told() and (y > 100).any():
        y = y - 1
    y = y + EAGER
    if told():
        raise ValueError("not for compilers")
    print(end="")
    return y


def nothing_to_compile(x):
    if told():
        return None
    return X in KNOWN


KNOWN = {object()}


def breaks_without_asking(x):
    y = x * 3
    y = y + 1 if y.sum() > 0 else y - 1
    return y + (COMPILER if told() else EAGER)


def test_eagers_way_is_taken_where_both_are_captured():
    result, breaks = run(both_are_captured, X)
    assert torch.equal(result, X * 3 + EAGER) and breaks == 0


def test_the_compilers_way_is_taken_where_eagers_breaks_and_it_does_not():
    result, breaks = run(eagers_way_breaks, X)
    assert torch.equal(result, X * 3 + COMPILER) and breaks == 0
    assert torch.equal(eagers_way_breaks(X), X * 3 + EAGER)


@pytest.mark.parametrize("function", [both_break, the_compilers_way_raises, the_compilers_way_is_refused, the_compilers_way_does_nothing],
                         ids=lambda function: function.__name__)
def test_eagers_way_is_taken_where_both_break(function):
    result, breaks = run(function, X)
    assert torch.equal(result, function(X)) and breaks == 1


class Asks(torch.nn.Module):
    def forward(self, x):
        return eagers_way_breaks(x)


def test_the_compilers_way_is_taken_in_a_module_that_is_whole_in_the_piece():
    module = Asks()

    def breaks_behind_it(x):
        y = module(x)
        print(end="")
        return y * 2

    result, breaks = run(breaks_behind_it, X)
    assert torch.equal(result, (X * 3 + COMPILER) * 2) and breaks == 1


def test_what_was_told_of_a_compiler_hands_nothing_to_code_that_is_not():
    result, breaks = run(eagers_way_breaks_before_both_do, X)
    assert torch.equal(result, eagers_way_breaks_before_both_do(X)) and breaks == 2

    def mask_of(x):
        return None if not told() and (x > 0).all() else (x > 0) * torch.ones(7, 1)

    def masked(x):
        print(end="")
        mask = mask_of(x)
        print(end="")
        return x if mask is None else x[mask]  # which can't be indexed by a mask of two axes

    for function in (masked, lambda x: masked(x) * 2):
        framejit.reset()
        result, _ = run(function, X)
        assert torch.equal(result, function(X))


def test_eagers_way_is_taken_where_the_other_raises_later():
    result, breaks = run(the_compilers_way_raises_later, X)
    assert torch.equal(result, the_compilers_way_raises_later(X)) and breaks == 2


def test_a_function_without_work_for_a_compiler_is_left_to_python_and_told_nothing():
    compiled = framejit.compile(nothing_to_compile)
    assert compiled(X) is False and compiled(X) is False
    assert framejit.cache_info()["breaks"] == 0


def test_a_piece_that_resumes_has_an_answer_of_its_own():
    result, breaks = run(breaks_without_asking, X)
    assert torch.equal(result, X * 3 + 1 + EAGER) and breaks == 1

    def asks_after_a_break(x):
        y = x * 3
        print(end="")
        return eagers_way_breaks(y)

    framejit.reset()
    result, breaks = run(asks_after_a_break, X)
    assert torch.equal(result, X * 9 + EAGER) and breaks == 3  # at the print, in the caller and at the branch

    def asks_in_a_module_after_a_break(x):
        y = x * 3
        print(end="")
        return module(y)

    module = Asks()
    framejit.reset()
    result, breaks = run(asks_in_a_module_after_a_break, X)
    assert torch.equal(result, X * 9 + COMPILER) and breaks == 1


def test_an_answer_holds_for_a_trace_with_the_functions_it_inlines():
    def inner(x):
        return x + (COMPILER if told() else EAGER)

    def outer(x):
        return eagers_way_breaks(inner(x)) * (10 if told() else 1)

    result, breaks = run(outer, X)
    assert torch.equal(result, ((X + COMPILER) * 3 + COMPILER) * 10) and breaks == 0


def test_a_function_left_to_python_is_answered_as_in_eager_code():
    @framejit.disable
    def left(x):
        return x + (COMPILER if told() else EAGER)

    def f(x):
        return left(x * 3) * (10 if told() else 1)

    result, breaks = run(f, X)
    assert torch.equal(result, X * 3 + EAGER) and breaks == 1


def test_an_error_of_eagers_way_is_raised():
    def checks(x):
        if not told() and x.shape[0] == 4:
            raise ValueError("four")
        return x * 3

    def refused(x):
        return x + (torch.ones(4) if told() else torch.ones(7))

    for function, error in ((checks, ValueError), (refused, RuntimeError)):
        compiled = framejit.compile(function)
        for _ in range(2):
            with pytest.raises(error):
                compiled(X)
    assert torch.equal(framejit.compile(checks)(X[:3]), X[:3] * 3)


def test_an_error_that_is_caught_does_not_change_the_answer():
    def f(x):
        try:
            if not told():
                raise KeyError("eager")
            return x * COMPILER
        except KeyError:
            return x * 3 + EAGER

    result, breaks = run(f, X)
    assert torch.equal(result, X * 3 + EAGER) and breaks == 0


@pytest.mark.parametrize("answer, added", [(True, COMPILER), (False, EAGER), ("auto", EAGER), (None, EAGER)])
def test_the_option_decides(answer, added):
    result, breaks = run(both_are_captured, X, torch_is_compiling=answer)
    assert torch.equal(result, X * 3 + added) and breaks == 0
    with framejit.options(torch_is_compiling=answer):
        assert torch.equal(framejit.compile(both_are_captured)(X), X * 3 + added)


def test_the_option_decides_whatever_breaks():
    result, breaks = run(eagers_way_breaks, X, torch_is_compiling=False)
    assert torch.equal(result, X * 3 + EAGER) and breaks == 1
    framejit.reset()
    result, breaks = run(both_break, X, torch_is_compiling=True)
    assert torch.equal(result, (X * 3 + COMPILER) * 2) and breaks == 1
    with pytest.raises(TypeError, match="torch_is_compiling: 1 is not None, True or False"):
        framejit.compile(both_break, torch_is_compiling=1)
    with pytest.raises(TypeError, match="torch_is_compiling: sometimes is not None, True or False"):
        framejit.compile(both_break, torch_is_compiling="sometimes")


def test_fullgraph_takes_the_way_that_is_whole():
    assert torch.equal(framejit.compile(eagers_way_breaks, fullgraph=True)(X), X * 3 + COMPILER)
    with pytest.raises(framejit.GraphBreakError, match="y.sum"):
        framejit.compile(both_break, fullgraph=True, join_branches=False)(X)
    # Of a branch all ways are in the graph, which say what eager code says.
    assert torch.equal(framejit.compile(both_break, fullgraph=True)(X), both_break(X))


def test_passes_see_the_graph_of_the_way_that_is_taken_once():
    for function, graphs in ((eagers_way_breaks, 1), (both_break, 2), (both_are_captured, 1)):
        seen = []
        result = framejit.compile(function, passes=[lambda graph: seen.append(graph) or graph])(X)
        assert len(seen) == graphs and torch.equal(result, framejit.compile(function)(X))


def test_branches_on_data_that_are_followed_need_no_other_answer():
    with framejit.options(follow=True):
        assert torch.equal(framejit.compile(eagers_way_breaks)(X), X * 3 + EAGER)


def test_a_trace_is_run_at_most_once_more():
    for function in (both_break, eagers_way_breaks):
        alone = traces(function, X, torch_is_compiling=False)
        framejit.reset()
        assert traces(function, X) <= alone + 1
        framejit.reset()
    assert traces(both_are_captured, X) == traces(both_are_captured, X, torch_is_compiling=True)


def test_framejits_own_question_is_answered_true():
    def f(x):
        return x + (COMPILER if framejit.is_compiling() else EAGER), told()

    result, answer = framejit.compile(f)(X)
    assert torch.equal(result, X + COMPILER) and answer is False


def test_optimisers_do_what_they_do_in_eager_code():
    def steps(compiled):
        weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        optimiser = torch.optim.Adam([weight], lr=0.1)

        def step(x):
            optimiser.zero_grad()
            (weight * x).sum().backward()
            optimiser.step()
            return weight.detach().clone()

        step = framejit.compile(step, torch_is_compiling=True) if compiled else step
        return [step(torch.tensor([3.0, -1.0])) for _ in range(3)]

    for ours, eagers in zip(steps(True), steps(False)):
        np.testing.assert_allclose(ours, eagers, rtol=1e-6)


def test_torchs_own_code_is_answered_as_in_eager_code():
    """Its encoder leaves zeros at padded places for an eager call, other values for a compiler."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    padding[-1, -1] = True
    with torch.no_grad():
        for mask in (padding, torch.zeros_like(padding)):
            expected, compiled = encoder(x, src_key_padding_mask=mask), framejit.compile(encoder)
            for _ in range(2):
                torch.testing.assert_close(compiled(x, src_key_padding_mask=mask), expected)
