"""What becomes of NumPy's and torch's functions: each is called once, compiled, and once for its derivative. docs/functions.md shows it.

A row is a call in Python's syntax, of the arrays in ARRAYS. Its arguments are those in the library's table `..._ARGUMENTS`, else the
first of `..._TRIED` that the library takes.
"""
import collections
import re
import warnings

import numpy as np

import framejit

OUTCOMES = {
    "compiled": "kernels of framejit's compute it",
    "called": "the graph calls the library's function, and goes on behind it",
    "compiled and called": "both",
    "no kernel": "the result is a view, or follows from types and shapes",
    "break": "the graph ends: the function runs in Python, between two graphs",
    "eager": "the whole call runs in Python",
}

Row = collections.namedtuple("Row", "call outcome derivative")

ARRAYS = {
    "x": "4 × 4 floats between 0 and 1, symmetric, with all eigenvalues positive",
    "y": "4 × 4 floats between 0 and 1",
    "v": "4 floats between 0 and 1, in order",
    "i": "the integers 3, 1, 2, 0",
    "b": "4 × 4 bools",
    "s": "1 × 2 × 4 floats between 0 and 1, a signal of two channels",
    "g": "1 × 2 × 4 × 4 floats between 0 and 1, an image of two channels",
}
NUMPY_TRIED = [
    "x", "v", "x + 1", "x, y", "v, v", "4", "i", "i, i", "x, 2", "x, 0", "b", "b, b", "(x, y)", "b, x, y", "x, 0, 1", "4, 4", "(2, 3)",
    "0.0, 1.0", "v, i", "i, 2", "v, v, v", "x, (16,)", "x, x.shape", "x, 0.1, 0.5", "(2, 3), 1.0", "x, 'float32'", "x, i, 0",
    "i, (4, 4)", "x, i",
]
# Not functions of arrays: files, texts, settings, dtypes, functions that are given functions. Two that go by other names.
NUMPY_LEFT_OUT = set("""
apply_along_axis apply_over_axes array2string array_repr array_str asmatrix base_repr binary_repr bmat busday_count busday_offset can_cast
common_type datetime_as_string datetime_data einsum_path errstate format_float_positional format_float_scientific from_dlpack frombuffer
fromfile fromfunction fromiter frompyfunc fromregex fromstring genfromtxt get_include get_printoptions getbufsize geterr geterrcall
histogramdd info is_busday isdtype isfortran isnat issubdtype iterable load loadtxt mask_indices may_share_memory min_scalar_type
mintypecode nested_iters piecewise printoptions promote_types require result_type row_stack save savetxt savez savez_compressed
set_printoptions setbufsize seterr seterrcall shares_memory show_config show_runtime test typename
""".split())
NUMPY_ARGUMENTS = {
    "numpy": {
        "arange": "4", "array_split": "x, 2", "astype": "x, 'float32'", "bincount": "i", "bitwise_left_shift": "i, 1",
        "bitwise_right_shift": "i, 1", "block": "[x, y]", "broadcast_arrays": "x, v", "broadcast_shapes": "(4, 1), (3,)",
        "broadcast_to": "v, (4, 4)", "choose": "i, x", "clip": "x, 0.1, 0.5", "column_stack": "(v, v)", "compress": "b[0], x",
        "concat": "(x, y)", "concatenate": "(x, y)", "convolve": "v, v", "copyto": "x, y", "cross": "x[:, :3], y[:, :3]",
        "delete": "x, 2", "digitize": "x, v", "dsplit": "x.reshape(2, 2, 4), 2", "dstack": "(x, y)", "einsum": "'ij,jk->ik', x, y",
        "empty": "(2, 3)", "expand_dims": "x, 0", "extract": "b, x", "fill_diagonal": "x, 1.0", "full": "(2, 3), 1.0",
        "full_like": "x, 1.0", "geomspace": "1.0, 8.0, 4", "histogram2d": "v, v", "hsplit": "x, 2", "hstack": "(x, y)",
        "indices": "(2, 3)", "insert": "x, 1, 0.5, 0", "interp": "x, v, v", "intersect1d": "i, i", "isin": "i, i[:2]", "isreal": "x",
        "ix_": "i, i", "ldexp": "x, i", "left_shift": "i, 1", "lexsort": "(v, i)", "linspace": "0.0, 1.0, 5", "logspace": "0.0, 1.0, 5",
        "matvec": "x, v", "meshgrid": "v, v", "moveaxis": "x, 0, 1", "nanpercentile": "x, 50", "nanquantile": "x, 0.5",
        "nextafter": "x, y", "ones": "(2, 3)", "outer": "v, v", "pad": "x, 1", "partition": "v, 2", "percentile": "x, 50",
        "place": "x, b, v", "polyadd": "v, v", "polydiv": "v, v[:2]", "polyfit": "v, v, 2", "polymul": "v, v", "polysub": "v, v",
        "polyval": "v, x", "put": "x, i, v", "put_along_axis": "x, i[None], 0.0, 0", "putmask": "x, b, y", "quantile": "x, 0.5",
        "ravel_multi_index": "(i, i), (4, 4)", "repeat": "x, 2", "reshape": "x, (2, 8)", "resize": "x, (2, 3)", "right_shift": "i, 1",
        "roll": "x, 2", "rollaxis": "x, 1", "searchsorted": "v, x", "select": "[b, b], [x, y]", "setdiff1d": "i, i[:2]", "split": "x, 2",
        "squeeze": "x[:1]", "stack": "(x, y)", "swapaxes": "x, 0, 1", "take": "x, i, 0", "take_along_axis": "x, i[None], 0",
        "tensordot": "x, y", "tile": "v, 2", "trapezoid": "v", "tri": "4", "trim_zeros": "v", "unpackbits": "i.astype('uint8')",
        "unravel_index": "i, (4, 4)", "unstack": "x", "vander": "v", "vecmat": "v, x", "vstack": "(x, y)", "where": "b, x, y",
        "zeros": "(2, 3)",
    },
    "numpy.linalg": {
        "cross": "x[:, :3], y[:, :3]", "lstsq": "x, v", "matrix_power": "x, 3", "multi_dot": "[x, y, x]", "outer": "v, v",
        "solve": "x, v", "tensordot": "x, y", "tensorinv": "x, 1", "tensorsolve": "x, v",
    },
    "numpy.fft": {},
}


TORCH_TRIED = [
    "x", "v", "x + 1", "x, y", "v, v", "i", "i, i", "x, 2", "x, 0", "b", "b, b", "(x, y)", "b, x, y", "x, 0, 1", "v, i", "i, 2",
    "v, v, v", "x, x, x", "x, (2, 8)", "x, 0, i", "x, v, y", "x, y, v", "x, (0, 1)", "x, 0.1", "x, b", "x, b, 0.5", "g", "g, 2", "s",
    "s, 2", "x, (4,)", "x[None]", "x[None], y[None]", "x[None], y[None], x[None]",
]
# Not functions of tensors, made for other devices or inside of torch, of quantised and sparse tensors, or on their way out.
TORCH_LEFT_OUT = set("""
affine_grid_generator alpha_dropout assert_int_or_pair boolean_dispatch chain_matmul cholesky choose_qparams_optimized constant_pad_nd
conv_tbc convolution ctc_loss dequantize dropout dsmm embedding_renorm feature_alpha_dropout feature_dropout frobenius_norm geqrf
get_device grid_sampler grid_sampler_2d grid_sampler_3d gru gru_cell handle_torch_function histogramdd hsmm hspmm int_repr lobpcg lstm
lstm_cell lu lu_solve multi_head_attention_forward norm_except_dim nuclear_norm numel orgqr ormqr qr rnn_relu rnn_relu_cell rnn_tanh
rnn_tanh_cell rsub saddmm segment_reduce slice_inverse smm spmm sspaddmm triangular_solve unsafe_chunk unsafe_split
unsafe_split_with_sizes
""".split())
TORCH_LEFT_OUT_KIND = re.compile(
    r"^_|_$|_copy$|^(cudnn|mkldnn|miopen|native|fbgemm|sym_|q_|quantize|fake_quant|fused_moving|is_|batch_norm_|"
    r"max_unpool|fractional_max_pool|has_torch_function)")
TORCH_ARGUMENTS = {
    "torch": {
        "adaptive_avg_pool1d": "s, 2", "adaptive_max_pool1d": "s, 2", "add": "x, y", "addbmm": "x, g[0], g[0]", "addmv": "v, x, v",
        "allclose": "x, y", "as_strided_scatter": "x, v, (4,), (4,)", "avg_pool1d": "s, 2", "baddbmm": "g[0], g[0], g[0]",
        "batch_norm": "g, None, None, None, None, True, 0.1, 1e-5, False", "bilinear": "x, y, g[0]", "bincount": "i",
        "bmm": "g[0], g[0]", "broadcast_to": "v, (4, 4)", "cat": "(x, y)", "channel_shuffle": "g, 2", "clamp": "x, 0.1, 0.5",
        "clip": "x, 0.1, 0.5", "column_stack": "(v, v)", "concat": "(x, y)", "concatenate": "(x, y)", "conv1d": "s, s", "conv2d": "g, g",
        "conv3d": "g[None], g[None]", "conv_transpose1d": "s, s[0, :, None]", "conv_transpose2d": "g, g[0, :, None]",
        "conv_transpose3d": "g[None], g[None]", "cross": "x[:, :3], y[:, :3], dim=1", "cumulative_trapezoid": "v",
        "diagonal_scatter": "x, v", "dist": "x, y", "dstack": "(x, y)", "einsum": "'ij,jk->ik', x, y", "embedding": "x, i",
        "embedding_bag": "x, i, i[3:] * 0", "equal": "x, y", "gather": "x, 0, i[None]", "group_norm": "g, 2", "histogram": "v",
        "hstack": "(x, y)", "imag": "x + 0j", "index_add": "x, 0, i, y", "index_copy": "x, 0, i, y", "index_fill": "x, 0, i, 0.0",
        "index_put": "x, (i,), v", "index_reduce": "x, 0, i, y, 'amax'", "index_select": "x, 0, i",
        "instance_norm": "g, None, None, None, None, True, 0.1, 1e-5, False", "istft": "torch.stft(v, 4, return_complex=True), 4",
        "layer_norm": "x, (4,)", "ldexp": "x, i", "lu_unpack": "*torch.linalg.lu_factor(x)", "masked_scatter": "x, b, y",
        "max_pool1d": "s, 2", "max_pool1d_with_indices": "s, 2", "max_pool2d": "g, 2", "max_pool3d": "g[None], 2",
        "meshgrid": "v, v, indexing='ij'", "mv": "x, v", "narrow": "x, 0, 1, 2", "native_channel_shuffle": "g, 2",
        "nonzero_static": "b, size=4", "norm": "x", "pixel_shuffle": "x[None, :, :, None], 2", "pixel_unshuffle": "g, 2",
        "poisson_nll_loss": "x, y, True, False, 1e-8, 1", "polygamma": "1, x", "prelu": "x, v[:1]", "put": "x, i, v",
        "renorm": "x, 2, 0, 1.0", "repeat_interleave": "x, 2", "rot90": "x", "row_stack": "(x, y)", "scatter": "x, 0, i[None], y",
        "scatter_add": "x, 0, i[None], y", "scatter_reduce": "x, 0, i[None], y, 'amax'", "select_scatter": "x, v, 0, 1", "split": "x, 2",
        "split_with_sizes": "x, (2, 2)", "stack": "(x, y)", "stft": "v, 4, return_complex=True", "sum": "x",
        "take_along_dim": "x, i[None], 0", "tensor_split": "x, 2", "unflatten": "x, 1, (2, 2)", "unravel_index": "i, (4, 4)",
        "view_as_complex": "x[:, :2]", "view_as_real": "x + 0j", "vstack": "(x, y)", "where": "b, x, y",
    },
    "torch.nn.functional": {
        "adaptive_avg_pool1d": "s, 2", "adaptive_avg_pool2d": "g, 2", "adaptive_avg_pool3d": "g[None], 2", "adaptive_max_pool1d": "s, 2",
        "adaptive_max_pool2d": "g, 2", "adaptive_max_pool3d": "g[None], 2", "affine_grid": "x[None, :2, :3], (1, 2, 4, 4)",
        "alpha_dropout": "x", "avg_pool1d": "s, 2", "avg_pool2d": "g, 2", "avg_pool3d": "g[None], 2",
        "batch_norm": "g, None, None, training=True", "bilinear": "x, y, g[0]", "conv1d": "s, s", "conv2d": "g, g",
        "conv3d": "g[None], g[None]", "conv_transpose1d": "s, s[0, :, None]", "conv_transpose2d": "g, g[0, :, None]",
        "conv_transpose3d": "g[None], g[None]", "cosine_embedding_loss": "x, y, v", "cross_entropy": "x, i",
        "ctc_loss": "x[:, None].log(), i[None, :1], i[:1] + 1, i[1:2]", "dropout1d": "s", "dropout2d": "g", "dropout3d": "g[None]",
        "embedding": "i, x", "embedding_bag": "i[None], x", "feature_alpha_dropout": "g", "fold": "x[None], (3, 3), 2",
        "gaussian_nll_loss": "v, v, v", "glu": "x", "grid_sample": "g, g.movedim(1, 3), align_corners=False", "group_norm": "g, 2",
        "gumbel_softmax": "x, dim=1", "hardtanh": "x", "instance_norm": "g", "interpolate": "g, scale_factor=2",
        "kl_div": "x, y, reduction='sum'", "layer_norm": "x, (4,)", "linear": "x, y, v", "linear_cross_entropy": "x, y, i",
        "local_response_norm": "g, 2", "log_softmax": "x, 1", "lp_pool1d": "s, 2, 2", "lp_pool2d": "g, 2, 2",
        "lp_pool3d": "g[None], 2, 2", "margin_ranking_loss": "v, v, v", "max_pool1d": "s, 2", "max_pool1d_with_indices": "s, 2",
        "max_pool2d": "g, 2", "max_pool2d_with_indices": "g, 2", "max_pool3d": "g[None], 2", "max_pool3d_with_indices": "g[None], 2",
        "multi_margin_loss": "x, i", "nll_loss": "x, i", "one_hot": "i, 4", "pad": "x, (1, 1)",
        "pixel_shuffle": "x[None, :, :, None], 2", "prelu": "x, v[:1]", "rms_norm": "x, (4,)", "scaled_dot_product_attention": "g, g, g",
        "softmax": "x, 1", "softmin": "x, 1", "threshold": "x, 0.1, 0.5", "triplet_margin_loss": "x, y, x", "unfold": "g, 2",
        "upsample": "g, scale_factor=2",
    },
    "torch.linalg": {
        "cross": "x[:, :3], y[:, :3]", "householder_product": "x, v", "ldl_solve": "*torch.linalg.ldl_factor(x), y", "lstsq": "x, y",
        "lu_solve": "*torch.linalg.lu_factor(x), y", "matrix_power": "x, 3", "multi_dot": "(x, y, x)",
        "solve_triangular": "x, y, upper=True", "tensorinv": "x, ind=1", "tensorsolve": "x, v", "vander": "v",
    },
    "torch.fft": {
        "fft": "v",
    },
    "torch.special": {
        "log_softmax": "x, 1", "polygamma": "1, x", "softmax": "x, 1",
    },
}


def numpy_arrays():
    generator = np.random.default_rng(0)

    def floats(*shape):
        return generator.uniform(0.1, 0.9, shape)

    y = floats(4, 4)
    return {"x": (y @ y.T) / 4 + np.eye(4) / 4, "y": y, "v": np.sort(floats(4)), "i": np.array([3, 1, 2, 0]), "b": y > 0.5,
            "s": floats(1, 2, 4), "g": floats(1, 2, 4, 4)}


def torch_arrays():
    import torch

    return {name: torch.from_numpy(array) for name, array in numpy_arrays().items()}


def function_of(call):
    """(x, y, v, ...) -> what the call gives."""
    names = {"np": np}
    if not call.startswith("np."):
        import torch

        names["torch"] = torch
        names["F"] = torch.nn.functional
    return eval(f"lambda {', '.join(ARRAYS)}: {call}", names)


def usual_call(name, tried, arrays, is_result):
    """The first call with one of the arguments that the library takes, or None."""
    for arguments in tried:
        call = f"{name}({arguments})"
        try:
            result = function_of(call)(**arrays)
        except Exception:
            continue
        if all(is_result(part) for part in parts_of(result)):
            return call
    return None


def parts_of(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def outcome_of(report):
    if report.breaks:
        return "break " + ", ".join(sorted({each.number for each in report.breaks}))
    if report.fallbacks or not report.graphs and not report.needs_no_graph:
        return "eager"
    kinds = {kernel.kind for kernel in report.kernels}
    if not kinds:
        return "no kernel"
    return "called" if kinds == {"call"} else "compiled and called" if "call" in kinds else "compiled"


def numpy_derivative(call):
    """Whether framejit.grad takes the derivative of the sum of all floats; empty where there are none."""
    arguments = call[call.index("("):]
    by = next((name for name in ("x", "v", "y") if re.search(rf"\b{name}\b", arguments)), None)
    function = function_of(call)
    if by is None or any(np.asarray(part).dtype.kind != "f" for part in parts_of(function(**numpy_arrays()))):
        return ""

    def total(*arrays):
        value = 0.0
        for part in parts_of(function(*arrays)):
            value = value + np.sum(part)
        return value

    try:
        framejit.grad(total, argnums=list(ARRAYS).index(by))(*numpy_arrays().values())
    except framejit.GraphBreakError:
        return "no"
    return "yes"


def torch_derivative(call):
    """What becomes of the call where all floats require gradients; empty where no result has one then."""
    def arrays():
        return {name: array.requires_grad_() if array.is_floating_point() else array for name, array in torch_arrays().items()}

    try:
        if not any(getattr(part, "requires_grad", False) for part in parts_of(function_of(call)(**arrays()))):
            return ""
    except RuntimeError:  # torch has no derivative
        return ""
    return outcome_of(framejit.explain(function_of(call))(**arrays()))


def numpy_rows():
    """By module: the row of each function that is called with arrays or makes one, by name."""
    def is_result(part):
        return isinstance(part, (np.ndarray, np.generic, int, float, complex))

    for path, module in (("numpy", np), ("numpy.linalg", np.linalg), ("numpy.fft", np.fft)):
        given = NUMPY_ARGUMENTS[path]
        names = [name for name in sorted(set(module.__all__) - NUMPY_LEFT_OUT) if is_function(getattr(module, name, None))]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            calls = {name: usual_call(f"np{path[5:]}.{name}", [given[name]] if name in given else NUMPY_TRIED, numpy_arrays(),
                                      lambda part: is_result(part) or part is None and name in given) for name in names}
        yield path, {name: call and Row(call, outcome_of(framejit.explain(function_of(call))(**numpy_arrays())), numpy_derivative(call))
                     for name, call in calls.items()}


def is_function(value):
    return callable(value) and not isinstance(value, type)


def torch_rows():
    """By module: the row of each function that torch lets others override, by name."""
    import torch

    known = torch.overrides.get_testing_overrides()
    for path in TORCH_ARGUMENTS:
        module = torch.nn.functional if path == "torch.nn.functional" else getattr(torch, path.partition(".")[2], torch)
        given, rows = TORCH_ARGUMENTS[path], {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in sorted(dir(module)):
                if name in TORCH_LEFT_OUT or TORCH_LEFT_OUT_KIND.search(name):
                    continue
                if not is_function(getattr(module, name)) or getattr(module, name) not in known:
                    continue
                call = usual_call(f"{'F' if path.endswith('functional') else path}.{name}", [given[name]] if name in given else TORCH_TRIED,
                                  torch_arrays(), lambda part: isinstance(part, (torch.Tensor, bool)))
                rows[name] = call and Row(call, outcome_of(framejit.explain(function_of(call))(**torch_arrays())), torch_derivative(call))
        yield path, rows
