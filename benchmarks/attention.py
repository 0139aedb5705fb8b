"""Attention and transformers in eval: eager torch, framejit and JAX (if it is installed) in turns; with --compile torch.compile as well.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/attention.py [--threads 1] [--compile] [--derived] [--only bert]

Of each the least of several calls, in milliseconds, eager's time over ours, and the largest difference from eager's result. First
scaled_dot_product_attention of queries (batch, heads, rows, width), then public transformers (of the package transformers, random weights,
narrow vocabularies) on one batch of tokens. Results of ours are checked against eager's. With --derived each call is followed by the backward
of its sum, and JAX is left out.
"""
import argparse
import functools
import os

from turns import in_turns, use_threads

ATTENTION = [((1, 8, 128, 64), {}), ((1, 8, 128, 64), {"is_causal": True}), ((1, 8, 512, 64), {}), ((1, 8, 512, 64), {"is_causal": True}),
             ((1, 8, 2048, 64), {}), ((1, 8, 2048, 64), {"is_causal": True}), ((1, 2, 8000, 64), {"is_causal": True}),
             ((4, 12, 128, 64), {}), ((2, 4, 200, 32), {}), ((1, 8, 16, 64), {}), ((1, 12, 256, 64), {"groups": 4}), ((1, 12, 1, 64), {"keys": 1000})]
MODELS = ["bert 4x128", "bert 1x512", "gpt2 1x512", "llama 1x512", "vit 2", "encoder 8x128"]


def model_and_input(name):
    """A small form of a public transformer and the tensor it is called with."""
    import torch
    import transformers
    kind, sizes = name.split(" ")
    if kind == "vit":
        return transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=3)), torch.randn(int(sizes), 3, 224, 224)
    batch, length = map(int, sizes.split("x"))
    if kind == "encoder":
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        return torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), torch.randn(batch, length, 256)
    tokens = torch.randint(0, 1000, (batch, length))
    if kind == "bert":
        return transformers.BertModel(transformers.BertConfig(vocab_size=1000, num_hidden_layers=3)), tokens
    if kind == "gpt2":
        return transformers.GPT2Model(transformers.GPT2Config(vocab_size=1000, n_layer=3, bos_token_id=1, eos_token_id=2)), tokens
    return transformers.LlamaModel(transformers.LlamaConfig(vocab_size=1000, hidden_size=768, intermediate_size=2048, num_hidden_layers=3,
                                                            num_attention_heads=12, num_key_value_heads=4)), tokens


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--only", default="", help="names that contain this")
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--derived", action="store_true", help="forward and backward")
    options.add_argument("--compile", action="store_true", help="torch.compile as well: a minute for each")
    options = options.parse_args()
    use_threads(options.threads)

    import torch

    import framejit
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    try:
        import jax
    except ImportError:
        jax = None
    jax = None if options.derived else jax
    first = lambda result: result if isinstance(result, torch.Tensor) else result[0]  # noqa: E731

    def derived(call):
        def both():
            result = first(call())
            result.sum().backward()
            return result
        return both

    def row(name, eager, ours, *others):
        if options.derived:
            eager, ours, *others = map(derived, (eager, ours, *others))
        with torch.set_grad_enabled(options.derived):
            difference = float((first(eager()) - first(ours())).abs().max().detach())
            assert difference < 1e-4, (name, difference)
            times = in_turns([eager, ours, *others], options.seconds)
        shown = [f"{1e3 * value:9.3f}" for value in times] + [" " * 9] * (len(columns) - len(times))
        print(f"{name:>34}", *shown, f"{times[0] / times[1]:7.2f} {difference:11.0e}", flush=True)

    print(f"load {os.getloadavg()[0]:.1f} before; {options.threads} thread(s)")
    columns = ["eager", "framejit", *["compiled"] * options.compile, *["JAX"] * bool(jax)]
    print(" " * 34, *(f"{name:>9}" for name in columns), "  ratio  difference")
    for shape, given in ATTENTION:
        batch, heads, rows, width = shape
        groups, keys = given.get("groups", heads), given.get("keys", rows)
        causal = given.get("is_causal", False)
        name = f"{batch}x{heads}x{rows}x{width} {' '.join(f'{key}={value}' for key, value in given.items())}"
        if options.only not in name:
            continue
        query, key, value = (torch.randn(batch, count, length, width, requires_grad=options.derived)
                             for count, length in ((heads, rows), (groups, keys), (groups, keys)))

        def attention(query, key, value):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=groups != heads)
        others = [functools.partial(torch.compile(attention), query, key, value)] if options.compile else []
        if jax:
            by_jax = jax.jit(functools.partial(jax.nn.dot_product_attention, is_causal=causal))
            arrays = [jax.numpy.asarray(part.transpose(1, 2).detach().numpy()) for part in (query, key, value)]
            others.append(lambda by_jax=by_jax, arrays=arrays: by_jax(*arrays).block_until_ready())
        row(name, lambda: attention(query, key, value), functools.partial(framejit.compile(attention), query, key, value), *others)
    for name in MODELS:
        if options.only not in name:
            continue
        model, given = model_and_input(name)
        model.eval()
        others = [functools.partial(torch.compile(model), given)] if options.compile else []
        row(name, functools.partial(model, given), functools.partial(framejit.compile(model), given), *others)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
