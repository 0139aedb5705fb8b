"""Every callable of the front ends' tables, as texts with places to fill: what a table has, a generated program can have.

`callables(lib)` reads the tables; `PATTERNS` are the arguments that are tried, on real values, until some work. test_tables.py asserts that
each row can be written so, and names those that can't with the reason.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tracer" / "frontends"

# Of functions; of methods what follows the array. Places as in parts.py; {j} is a small int, {r} one that was read from an array.
PATTERNS = ["{e}", "{e}, {e}", "{e}, {n}", "{e}, {ax}", "{e}, {j}", "[{e}, {e}]", "{e}, {e}, {e}", "{m}", "{m}, {e}, {e}", "{j}", "{r}", "({j}, {r})", "{e}, ({j}, {r})",
            "{e}, {ax}, {j}", "{e}, {r}", "{e}, {e}, {ax}", "{e}, {e}, {e}, {e}", "{e}, {ax}, {ix64}", "{e}, {ix64}", "{e}, {ix64}, {ax}", "{e}, {m}", "{m}, {e}", "{e}, {m}, {n}",
            "{e}, {ax}, {ix64}, {e}", "{e}, {ax}, {ix64}, {n}", "{e}, {j}, {r}", "{e}, {j}, {j}, {j}", "{e}, [{j}, {j}]", "{e}, {n}, {n}", "{n}, {n}", "{n}, {n}, {j}", "{e}, {dt}", "{dt}",
            "{dt}, {dt}", "{e}, 0, 1", "{e}, {e}, None, None, {e}[:1], {e}[:1]", "[{e}, {e}], {ax}", "[{e}, {e}], [{e}, {e}]", "[{e}, {e}], {n}", "{e}, {ix64}, {e}", "{ix64}, {e}",
            "{e}, ({ix64},), {e}", "{e}, {a}.shape", "{a}.shape", "{a}.shape, {n}", "'i,i->i', {e}, {e}", "'...i->...', {e}", "{e}, 1, {m}", "{e}, {e}, {n}, {n}", "{e}, [0, 1], [2, 4]",
            "{e}[None, None], {e}[None, None]", "{e}[None], 1", "{e}[None, None], 1", "{e}.reshape(-1)[:4].reshape(1, 1, 4), {e}.reshape(-1)[:2].reshape(1, 1, 2)",
            "{e}[None], ({e}.shape[-1],)", "{e}, ({e}.shape[-1],)", "{ix64}", "({ix64},), (9,)", "{ix64}, (9,)", "[{m}, {m}], [{e}, {e}]", "{m} * 1, [{e}, {e}]", "{e}, '0'",
            "{ax}, {ax}", "0, -1", "{ax}, 0, 1", "0, (-1, 1)", "{e}, 0, (-1, 1)", "{ax}, {ix64}", "{ax}, {ix64}, {e}[:1]", "{e}, 0, {ix64}[:1], {e}[:1]", "{e}, 0, {ix64}[:1]", "0, {ix64}[:1]",
            "{e}, [{e}, {e}]", "[{e}, {e}], [{e}, {e}], [{e}, {e}]", "[{e}, {e}], [{e}, {e}], {n}", "{mat}", "{mat}, {mat}", "{mat}, {mat}, {mat}", "{mat}[None], {mat}[None]",
            "{mat}[None], {mat}[None], {mat}[None]", "{mat}, {mat}[0]", "{mat}[0], {mat}[0]", "{mat}, (2,), None, None", "{mat}, {mat}[0], {mat}[0], None, None, True, 0.1, 1e-5, False",
            "{mat}[None], {mat}[0], {mat}[0]", "{mat}[None], {mat}[None], {mat}[None], dropout_p=0.0", "{mat}, 0.5, {m}.any().item()", "{mat}, {ix64}[:1]", "{mat}, {ix64}[:2] * 0", "lib.sigmoid({mat}), lib.sigmoid({mat})",
            "({mat} * {mat}).sum(), {mat}", "{mat}[None, None], lib.zeros((1, 2, 2, 2))", "{mat}.reshape(1, 4, 1), (2, 2), 2", "{mat}, lib.zeros({mat}.shape, dtype=lib.int64), {mat}, 0", "{mat}, 0, lib.zeros((1, 2), dtype=lib.int64)",
            "0, lib.zeros((1, 2), dtype=lib.int64) + 0 * {mat}.long()[:1]", "{mat}.numpy()", "{mat}[0]", "{mat}[None, None], {mat}[None, None]",
            "{mat}[None, None, None], {mat}[None, None, None]", "[{mat}, {mat}], [{mat}, {mat}], [{mat}, {mat}]", "[{mat}], [{mat}], 0.5", "{mat} > 3, {n}", "0, {ix64}[:1], {mat}[:1]", "{mat}, {mat}[0], {mat}, {mat}, {mat}[0], {mat}[0]", "({m} * 1).astype(np.uint8)", ""]
_BOTH = ("FJ_TORCH_BOTH", "FJ_TORCH_TUPLE")


def callables(lib):
    """The paths that a library's tables have rows for: "numpy.sort", "torch.Tensor.roll"."""
    found = []
    for table in (("numpy/numpy.def", "numpy/calls.def") if lib == "numpy" else ("torch/torch.def",)):
        for kind, name in re.findall(r'^(FJ_\w+)\(\s*"?([\w.]+)"?', (ROOT / table).read_text(), re.MULTILINE):
            if kind == "FJ_UFUNC":
                found.append(f"numpy.{name}")
            elif kind in _BOTH:
                found += [f"torch.{name}", f"torch.Tensor.{name}"]
            elif kind in ("FJ_TORCH_ALL", "FJ_TORCH_UNARY"):
                found += [f"torch.{name}", f"torch.{name}_", f"torch.Tensor.{name}", f"torch.Tensor.{name}_"]
            elif kind == "FJ_TORCH_FOREACH":
                found += [f"torch._foreach_{name}", f"torch._foreach_{name}_"]
            else:
                found.append(name)
    return [path for path in dict.fromkeys(found) if path.startswith(("numpy.", "torch.")) and _is_there(path)]


def _is_there(path):
    """The tables have names of other versions, and in-place forms that not every function has."""
    place, *names = path.split(".")
    found = sys.modules.get(place)
    for name in names:
        place = f"{place}.{name}"
        found = getattr(found, name, None) or sys.modules.get(place)
    return found is not None


def text_of(path, pattern):
    """The call of it with these arguments. A method's first argument is the array that it is of; a name alone is an attribute."""
    if path == "torch.nn.functional.mse_loss":  # eager's lies in a buffer of the differences' size
        return _call(path, pattern) + ".clone()"
    if path == "torch.autograd.grad":  # eager's may be views of what they are made of (docs/gradients.md)
        return f"[gradient.clone() for gradient in {_call(path, pattern)}]"
    if path.rpartition(".")[2].startswith(("empty", "new_empty")):  # what is in them is nobody's
        return f"{'np' if path.startswith('numpy') else 'lib'}.zeros_like({_call(path, pattern)})"
    return _call(path, pattern)


def _call(path, pattern):
    library, _, rest = path.partition(".")
    owner, _, name = rest.rpartition(".")
    if owner in ("ndarray", "Tensor"):
        return f"{'{mat}' if '{mat}' in pattern else '{a}'}.{name}({pattern})"
    return f"{'np' if library == 'numpy' else 'lib'}.{rest}({pattern})"
