"""Other compilers in the same process: numba (an LLVM of its own) and jax, imported and used before, after and in between."""
import importlib.util
import os
import subprocess
import sys

import pytest

STEPS = {
    "framejit": """
f = framejit.compile(lambda x: np.tanh(x * 2) + x.sum(0))
with framejit.options(cache_bytes=0):
    results = [f(x) for _ in range(3)]
framejit._core.finish_compiling()
results.append(f(x))
assert all(np.allclose(r, np.tanh(x * 2) + x.sum(0), rtol=1e-5) for r in results)
info = framejit.cache_info()
assert info["kernels_launched"] > 0 and info["internal_errors"] == info["eager_replays"] == info["kernels_failed"] == 0, info
""",
    "numba": """
@numba.njit
def g(a):
    total = 0.0
    for i in range(a.size):
        total += np.sqrt(a.flat[i])
    return total
assert abs(g(np.full(100, 4.0)) - 200) < 1e-6
""",
    "jax": """
import jax.numpy
assert abs(float(jax.jit(lambda a: (a * 2).sum())(jax.numpy.ones(10))) - 20) < 1e-6
""",
}


@pytest.mark.parametrize("order", [("framejit", "numba", "jax"), ("numba", "jax", "framejit"), ("jax", "framejit", "numba")], ids="-".join)
def test_compilers_share_a_process(order):
    missing = [name for name in order if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip("not installed: " + ", ".join(missing))
    program = "import numpy as np\nx = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30)\n"
    program += "".join(f"import {name}\n" for name in order)
    # Used in the order of import, then once more in the opposite one.
    program += "".join(STEPS[name] for name in (*order, *reversed(order))) + "print('together')\n"
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0 and "together" in done.stdout, done.stderr
