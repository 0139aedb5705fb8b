"""Matrix products: framejit, NumPy, torch and JAX (if it is installed) in turns.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/products.py [--threads 1] [--dtypes float32,float64] [--only 512]

Of each the least of several calls, in GFLOP/s; behind ours the share of the best of the others. `T`: the right matrix lies by columns, as a
linear layer's weight does. Last, a linear layer with gelu of torch: eager's time over ours. Peers choose their kernels by the processor, and some by
environment variables that make OpenBLAS take another one's: unset these.
"""
import argparse
import os

from turns import in_turns, use_threads

SHAPES = [(16, 16, 16, ""), (64, 64, 64, ""), (256, 256, 256, ""), (512, 512, 512, ""), (512, 512, 512, "T"), (1024, 1024, 1024, ""),
          (2048, 2048, 2048, ""), (1, 4096, 4096, ""), (1, 4096, 4096, "T"), (4096, 1, 4096, ""), (8, 1024, 1024, "T"), (32, 1024, 1024, "T"),
          (128, 768, 3072, "T"), (4096, 64, 64, ""), (4096, 8, 512, ""), (64, 64, 65536, "T")]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--dtypes", default="float32,float64")
    options.add_argument("--only", default="")
    options.add_argument("--seconds", type=float, default=0.5)
    options = options.parse_args()
    use_threads(options.threads)

    import numpy as np
    import torch

    import framejit
    torch.set_num_threads(options.threads)
    try:
        import jax
        jax.config.update("jax_enable_x64", True)
    except ImportError:
        jax = None

    product = framejit.compile(lambda a, b: a @ b)
    layer = lambda x, w, b: torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))  # noqa: E731
    compiled_layer = framejit.compile(layer)
    print(f"load {os.getloadavg()[0]:.1f} before; {options.threads} thread(s)")
    print(f"{'m x n x k':>20} {'dtype':>8} {'framejit':>9} {'(torch)':>8} {'NumPy':>7} {'torch':>7} {'JAX':>7} {'of best':>8} {'layer':>6}")
    for dtype in options.dtypes.split(","):
        for m, n, k, layout in SHAPES:
            if options.only and options.only not in f"{m}x{n}x{k}":
                continue
            rng = np.random.default_rng(0)
            a = rng.standard_normal((m, k)).astype(dtype)
            b = rng.standard_normal((n, k)).astype(dtype).T if layout else rng.standard_normal((k, n)).astype(dtype)
            x, y, bias = torch.from_numpy(a), torch.from_numpy(b), torch.zeros(n, dtype=getattr(torch, dtype))
            weight = y.T
            functions = [lambda: product(a, b), lambda: product(x, y), lambda: a @ b, lambda: x @ y]
            if jax:
                on_jax = jax.jit(lambda a, b: a @ b)
                ja, jb = jax.numpy.asarray(a), jax.numpy.asarray(b)
                functions.append(lambda: on_jax(ja, jb).block_until_ready())
            with torch.no_grad():
                times = in_turns(functions, options.seconds)
                layers = in_turns([lambda: compiled_layer(x, weight, bias), lambda: layer(x, weight, bias)], options.seconds)
            rates = [2e-9 * m * n * k / seconds for seconds in times]
            of_best = max(rates[:2]) / max(rates[2:])
            shown = "".join(f" {rate:7.1f}" for rate in rates[2:]) + (" " * 8 if not jax else "")
            print(f"{f'{m} x {n} x {k} {layout}':>20} {dtype:>8} {rates[0]:9.1f} {rates[1]:8.1f}{shown} {of_best:8.2f} {layers[1] / layers[0]:6.2f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
