"""Loops that test_passes.py and test_passes_numpy.py have in common; `mix(h, x)` makes an array of the library's of two."""
import framejit


def expect_pieces(compiled):
    """Some loop of it has been compiled several passes at a time."""
    loops = framejit.explain(compiled).so_far().loops
    assert any("passes are a piece" in loop for loop in loops), loops


def that_ends_at_some_pass(mix):
    def loop(x, at):
        h = x[0]
        for t in range(300):
            h = mix(h, x[t])
            if t == at:
                break
        else:
            h = h + 1000
        return h, t

    return loop


def over_range(mix, zeros_like, *bounds):
    def loop(x):
        out, h = zeros_like(x), x[0]
        for t in range(*bounds):
            h = mix(h, x[t]) + x[t] * t * 0.001
            out[t] = h
        return out, t

    return loop


RANGES = [(0, 300, 1), (5, 300, 2), (299, -1, -1), (299, 3, -4), (-300, 0, 1)]
PASSES = [0, 5, 20, 63, 150, 299]
