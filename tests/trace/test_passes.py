"""Long loops over ranges: some passes at a time are a piece that runs again and again."""

import functools

import pytest

import framejit
import passes

torch = pytest.importorskip("torch", reason="torch is not installed")

compile = functools.partial(framejit.compile, retire=True)  # which the other tests are without

LENGTHS = [3, 63, 64, 79, 80, 81, 200, 1000]


def rand(*shape, **options):
    return torch.rand(*shape, dtype=torch.float64, **options)


def mix(h, x):
    """Differences in last bits do not grow."""
    return torch.cos(h + x) * 0.3 - h.mean() * 0.2 + h.sum() * 0.01 + x.max()


def check(fn, *arguments, piece=True, **options):
    """Twice and a third time the same as eager, arguments too."""

    def copies():
        return [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]

    compiled = compile(fn, **options)
    for _ in range(3):
        expected_arguments, given = copies(), copies()
        expected, found = fn(*expected_arguments), compiled(*given)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(given, expected_arguments, rtol=1e-6, atol=1e-6)
    if piece:
        passes.expect_pieces(compiled)
    return compiled


def recurrence(w, x, steps):
    h = x.new_zeros(x.shape[0], w.shape[0])
    states = []
    for t in range(steps):
        h = mix(torch.tanh(x[:, t] + h @ w), h)
        states.append(h)
    return torch.stack(states, 1), t


@pytest.mark.parametrize("steps", LENGTHS)
def test_states_that_a_list_collects(steps):
    # 8 of them have been unrolled when what is left is looked at
    check(recurrence, rand(8, 8) / 10, rand(4, 1000, 8), steps, piece=steps >= 72)


def test_one_piece_is_for_all_lengths_and_positions():
    w, x = rand(8, 8) / 10, rand(4, 1000, 8)
    line = recurrence.__code__.co_firstlineno + 3
    graphs = {}
    for steps in (200, 900):
        explained = framejit.explain(compile(recurrence))(w, x, steps)
        graphs[steps] = [str(graph).count("tanh") for graph in explained.graphs]
        assert not explained.breaks and not explained.fallbacks
        said = f"framejit: loop at line {line} of recurrence: {max(graphs[steps])} passes are a piece"
        assert said in map(str, explained.loops)
    assert graphs[200] == graphs[900] and 2 <= max(graphs[200]) <= 16


@pytest.mark.parametrize("bounds", passes.RANGES, ids=str)
def test_ranges(bounds):
    check(passes.over_range(mix, torch.zeros_like, *bounds), rand(300, 5))


@pytest.mark.parametrize("at", passes.PASSES)
def test_a_loop_that_ends_at_some_pass(at):
    check(passes.that_ends_at_some_pass(mix), rand(300, 5), at, piece=False)


@pytest.mark.parametrize("at", passes.PASSES)
def test_a_loop_that_returns_in_some_pass(at):
    def loop(x, at):
        h = x[0]
        for t in range(300):
            h = mix(h, x[t])
            if t == at:
                return h * 3, t
        return h, -1

    check(loop, rand(300, 5), at, piece=False)


def test_a_branch_on_data_in_each_pass():
    def loop(x):
        h, count = x[0], 0
        for t in range(200):
            h = mix(h, x[t])
            if h.mean() > 0:
                h = h - 1
                count += 1
        return h, count

    check(loop, rand(200, 5), piece=False)


def test_a_pass_that_prints(capsys):
    def loop(x):
        h = x[0]
        for t in range(200):
            h = mix(h, x[t])
            if t % 50 == 0:
                print("pass", t)
            h = h * 0.5
        return h

    check(loop, rand(200, 5), piece=False)
    assert capsys.readouterr().out.count("pass 150") == 6


def test_modules_by_the_number_of_the_pass():
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4).double() for _ in range(100))

    def loop(x):
        for i in range(100):
            x = torch.relu(layers[i](x)) + x * 0.5 - x.mean() + x.max() * 0.1 - x.sum() * 0.01
        return x

    with torch.no_grad():
        compiled = check(loop, rand(3, 4))
        del compiled


def test_loops_in_loops():
    def loop(x, n):
        h = x[0]
        for i in range(3):
            for t in range(n):
                h = mix(h, x[t])
                for k in range(2):
                    h = h + k * x[t]
            h = h + i
        return h, i, t, k

    check(loop, rand(200, 5), 200)
    check(loop, rand(200, 5), 20, piece=False)


def test_an_iterator_that_somebody_else_holds():
    def loop(x):
        it = iter(range(200))
        h = x[0]
        for t in it:
            h = mix(h, x[t])
            if t % 40 == 7:
                h = h + next(it)
        return h, list(it)

    check(loop, rand(200, 5), piece=False)


def test_values_that_change_their_type_in_a_pass():
    def loop(x):
        h, scale = x[0].float(), 1
        for t in range(200):
            h = mix(h, x[t]) * scale
            if t == 100:
                scale = 0.5
                h = h.double()
        return h, scale

    check(loop, rand(200, 5))


def test_an_error_in_some_pass():
    def loop(x):
        seen = 0
        try:
            h = x[0]
            for t in range(500):
                h = mix(h, x[t])
                seen = t
        except IndexError:
            return h, seen, t
        return None

    check(loop, rand(200, 5))


def test_counters_and_dicts_and_attributes():
    class Recorder:
        pass

    def loop(x):
        recorder, totals, numbers = Recorder(), {}, []
        h = x[0]
        for t in range(200):
            h = mix(h, x[t])
            recorder.last = h
            totals[t % 3] = totals.get(t % 3, 0) + t
            numbers.append(t * t)
        return h, recorder.last, totals, sum(numbers), numbers[-1]

    check(loop, rand(200, 5))


def test_options():
    w, x = rand(8, 8) / 10, rand(4, 1000, 8)
    check(recurrence, w, x, 150, piece=False, fullgraph=True)
    check(recurrence, w, x, 150, piece=False, dynamic=False)
    check(recurrence, w, x, 150, dynamic=True)
    check(recurrence, w, x, 150, recompile_limit=1)


def test_lengths_of_arrays_that_change():
    def loop(x):
        h, out = x[0], torch.empty_like(x)
        for t in range(len(x)):
            h = mix(h, x[t])
            out[t] = h
        return out

    compiled = compile(loop)
    for size in (300, 301, 20, 65, 300, 1000):
        x = rand(size, 5)
        torch.testing.assert_close(compiled(x), loop(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("steps", [200, 1500])
def test_derivatives(steps):
    def loss(w, x):
        h, total = x[0], 0.0
        for t in range(steps):
            h = torch.tanh(h * w + x[t]) * 0.9 - h.mean() * 0.1
            total = total + h.sum() * 0.01
        return total

    w, x = rand(5, requires_grad=True), rand(steps, 5, requires_grad=True)
    expected = torch.autograd.grad(loss(w, x), (w, x))
    compiled = compile(loss)
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(compiled(w, x), (w, x)), expected)


def test_versions_of_tensors_that_passes_write():
    def loop(x, out):
        for t in range(200):
            out[t] = mix(x[t], x[t])

    x, out, expected = rand(200, 5), torch.zeros(200, 5, dtype=torch.float64), torch.zeros(200, 5, dtype=torch.float64)
    loop(x, expected)
    compile(loop)(x, out)
    assert out._version == expected._version
    torch.testing.assert_close(out, expected)


def test_signals_are_seen_between_pieces():
    import _thread
    import threading

    def loop(x):
        h = x[0]
        for t in range(10**8):
            h = mix(h, x)
        return h

    compiled = compile(loop)
    timer = threading.Timer(1.0, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(rand(5, 5))
    timer.join()
