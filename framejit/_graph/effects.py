"""What the functions that a graph's text may call write: the closed list of them.

NumPy says nowhere which arguments its functions write, so its functions are the rows below, beside the universal functions, whose operands
past `nin` are results. torch's operators have schemas that say it; what is Python in torch has rows. A function that no row and no schema
describes, that gives no array, or that changes what an array is (`resize`, `setflags`, `set_`) is none that text can call.
"""
import functools
import re
import sys

_READ = {
    "numpy": """
        all allclose amax amin angle any append arange argmax argmin argpartition argsort argwhere around array array_equal array_equiv
        array_split asanyarray asarray ascontiguousarray asfortranarray astype atleast_1d atleast_2d atleast_3d average bartlett bincount
        blackman block broadcast_arrays broadcast_to choose clip column_stack compress concat concatenate convolve copy corrcoef correlate
        count_nonzero cov cross cumprod cumsum cumulative_prod cumulative_sum delete diag diag_indices diag_indices_from diagflat diagonal
        diff digitize dot dsplit dstack ediff1d einsum empty empty_like expand_dims extract eye fix flatnonzero flip fliplr flipud full
        full_like geomspace gradient hamming hanning histogram histogram2d histogram_bin_edges histogramdd hsplit hstack i0 identity imag
        indices inner insert interp intersect1d isclose iscomplex isin isneginf isposinf isreal ix_ kaiser kron lexsort linspace logspace
        matrix_transpose max mean median meshgrid min moveaxis nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian
        nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar nonzero ones ones_like outer packbits pad partition percentile
        permute_dims poly polyadd polyder polydiv polyfit polyint polymul polysub polyval prod ptp quantile ravel ravel_multi_index real
        real_if_close repeat reshape resize roll rollaxis roots rot90 round searchsorted select setdiff1d setxor1d sinc sort sort_complex
        split squeeze stack std sum swapaxes take take_along_axis tensordot tile trace transpose trapezoid trapz tri tril tril_indices
        tril_indices_from trim_zeros triu triu_indices triu_indices_from union1d unique unique_all unique_counts unique_inverse
        unique_values unpackbits unravel_index unstack unwrap vander var vdot vsplit vstack where zeros zeros_like""",
    "numpy.linalg": """
        cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power matrix_rank matrix_transpose
        multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv tensorsolve trace vecdot vector_norm""",
    "numpy.fft": """
        fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn""",
    "numpy.ndarray": """
        all any argmax argmin argpartition argsort astype byteswap choose clip compress conj conjugate copy cumprod cumsum diagonal dot
        flatten getfield max mean min nonzero prod ptp ravel repeat reshape round searchsorted squeeze std sum swapaxes take trace
        transpose var view""",
    # Python in torch
    "torch": """
        atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist chain_matmul einsum meshgrid norm split stft
        tensordot unique unique_consecutive unravel_index""",
    "torch.nn.functional": """
        adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_max_pool2d
        adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid alpha_dropout batch_norm
        binary_cross_entropy binary_cross_entropy_with_logits celu cosine_embedding_loss cross_entropy ctc_loss dropout dropout1d dropout2d
        dropout3d elu embedding embedding_bag feature_alpha_dropout fold fractional_max_pool2d fractional_max_pool2d_with_indices
        fractional_max_pool3d fractional_max_pool3d_with_indices gaussian_nll_loss glu grid_sample group_norm gumbel_softmax hardsigmoid
        hardswish hardtanh hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm leaky_relu
        local_response_norm log_softmax lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d
        max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish mse_loss
        multi_head_attention_forward multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss normalize pad
        poisson_nll_loss relu relu6 rms_norm rrelu selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softsign tanh
        tanhshrink threshold triplet_margin_loss unfold upsample upsample_bilinear upsample_nearest""",
    "torch.Tensor": """
        bfloat16 bool byte cdouble cfloat char double float half int istft long norm short split stft unflatten unique
        unique_consecutive""",
}
_READ = {space: frozenset(names.split()) for space, names in _READ.items()}

# These write their first argument.
_WRITE_FIRST = frozenset("""numpy.copyto numpy.fill_diagonal numpy.place numpy.put numpy.put_along_axis numpy.putmask numpy.ndarray.fill
    numpy.ndarray.partition numpy.ndarray.put numpy.ndarray.sort""".split())

# Where `out` stands among NumPy's positional arguments; the array of a method is the first of them.
_OUT_PLACES = {
    1: "numpy.fix numpy.isneginf numpy.isposinf numpy.ndarray.conj numpy.ndarray.conjugate",  # the last two say it nowhere
    2: """numpy.all numpy.amax numpy.amin numpy.any numpy.argmax numpy.argmin numpy.around numpy.choose numpy.concat numpy.concatenate
        numpy.dot numpy.max numpy.median numpy.min numpy.nanargmax numpy.nanargmin numpy.nanmax numpy.nanmedian numpy.nanmin numpy.outer
        numpy.ptp numpy.round numpy.stack numpy.ndarray.all numpy.ndarray.any numpy.ndarray.argmax numpy.ndarray.argmin
        numpy.ndarray.choose numpy.ndarray.dot numpy.ndarray.max numpy.ndarray.min numpy.ndarray.ptp numpy.ndarray.round""",
    3: """numpy.clip numpy.compress numpy.cumprod numpy.cumsum numpy.mean numpy.nancumprod numpy.nancumsum numpy.nanmean
        numpy.nanpercentile numpy.nanprod numpy.nanquantile numpy.nanstd numpy.nansum numpy.nanvar numpy.percentile numpy.prod
        numpy.quantile numpy.std numpy.sum numpy.take numpy.var numpy.ndarray.clip numpy.ndarray.compress numpy.ndarray.cumprod
        numpy.ndarray.cumsum numpy.ndarray.mean numpy.ndarray.prod numpy.ndarray.std numpy.ndarray.sum numpy.ndarray.take
        numpy.ndarray.var""",
    4: """numpy.fft.fft numpy.fft.fft2 numpy.fft.fftn numpy.fft.hfft numpy.fft.ifft numpy.fft.ifft2 numpy.fft.ifftn numpy.fft.ihfft
        numpy.fft.irfft numpy.fft.irfft2 numpy.fft.irfftn numpy.fft.rfft numpy.fft.rfft2 numpy.fft.rfftn""",
    5: "numpy.trace numpy.ndarray.trace",
}
_OUT_PLACES = {name: place for place, names in _OUT_PLACES.items() for name in names.split()}

_PLACES = {"numpy.rot90": [("k", 1)]}  # `k %= 4`

# (keyword, its place, the values that leave the arguments alone, the place of the argument that other values write)
_OVERWRITE = [("overwrite_input", place, (False,), 0) for place in (3, 4)]
_FLAGS = {
    "numpy.median": _OVERWRITE[:1], "numpy.nanmedian": _OVERWRITE[:1],
    **{f"numpy.{name}": _OVERWRITE[1:] for name in ("percentile", "quantile", "nanpercentile", "nanquantile")},
    "numpy.nan_to_num": [("copy", 1, (True,), 0)],
    "numpy.ndarray.byteswap": [("inplace", 1, (False,), 0)],
}

# Written by all that take them, of which no schema says a word, but where the function is told that it doesn't train.
_STATISTICS, _TRAINING = ("running_mean", "running_var"), ("training", "use_input_stats", "train")

_REFUSED = re.compile(r"load|save|file|txt|regex|dump|compile|set_|seterr|setbuf|seed|pyfunc|numpy$|__|apply|piecewise|storage|share|register|hook"
                      r"|get_|print|show|backward|cudnn|miopen|mkldnn|fbgemm|^resize|^data$|^rename|^retain_grad|^record_stream")


@functools.lru_cache(maxsize=None)
def _schemas(name):
    """Those of torch's operator of this name that give tensors; TorchScript's on lists and numbers are other functions."""
    try:
        found = sys.modules["torch"]._C._jit_get_schemas_for_operator("aten::" + name)
    except RuntimeError:
        return ()
    return tuple(schema for schema in found if any("Tensor" in str(result.type) for result in schema.returns)
                 or any(_is_written(argument) and str(argument.type) == "Tensor" for argument in schema.arguments))


def _is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def is_known(space, name, found):
    """Whether this callable of a namespace is one of the list."""
    if name.startswith("_") or not callable(found) or isinstance(found, type):
        return False
    if space.startswith("numpy"):
        return name in _READ[space] or f"{space}.{name}" in _WRITE_FIRST or (space == "numpy" and type(found).__name__ == "ufunc")
    if _REFUSED.search(name):
        return False
    if name in _READ.get(space, ()):
        return True
    return type(found).__name__ in ("builtin_function_or_method", "method_descriptor") and bool(_schemas(found.__name__))


def _torch_parameters(found):
    """((name, place or None), ...) of what the operator writes, and of what it writes where a flag is not False: (..., the flag's place)."""
    written, statistics = set(), set()
    for schema in _schemas(found.__name__):
        names = [argument.name for argument in schema.arguments]
        for place, argument in enumerate(schema.arguments):
            if _is_written(argument):
                written.add((argument.name, None if argument.kwarg_only else place))
            elif argument.name in _STATISTICS:
                flag = next((x for x in _TRAINING if x in names), None)
                statistics.add((argument.name, place, flag, names.index(flag) if flag else None))
    return written, statistics


def written_by(name, found, positional, keywords, is_constant):
    """The arguments that a call writes; None: one that it writes is not where it is looked for.

    positional: a list, keywords: by name; is_constant(argument, values): whether it is a constant among them.
    """
    def given(keyword, place):
        by_place = positional[place:place + 1] if place is not None else []
        return by_place + ([keywords[keyword]] if keyword in keywords else [])

    places, flags, statistics = [("out", None), *_PLACES.get(name, ())], list(_FLAGS.get(name, ())), ()
    first = name in _WRITE_FIRST
    if type(found).__name__ == "ufunc":
        places += [("out", place) for place in range(found.nin, len(positional))]
    elif name in _OUT_PLACES:
        places.append(("out", _OUT_PLACES[name]))
    elif hasattr(found, "__code__") and not name.startswith("numpy"):
        own = list(found.__code__.co_varnames[:found.__code__.co_argcount])
        places += [(x, i) for i, x in enumerate(own) if x == "out"]
        flags += [(x, i, (False,), 0) for i, x in enumerate(own) if x == "inplace"]
        # embedding_bag takes them in the other order too.
        flags += [(x, i, (None,), written) for i, x in enumerate(own) if x == "max_norm" for written in (0, 1)[not name.endswith("embedding_bag"):]]
        flag = next((x for x in _TRAINING if x in own), None)
        statistics = [(x, i, flag, own.index(flag) if flag else None) for i, x in enumerate(own) if x in _STATISTICS]
    elif not name.startswith("numpy"):
        written, statistics = _torch_parameters(found)
        first = any(place == 0 for _, place in written)
        places += written
    if first and not positional:
        return None
    written = positional[:1] if first else []
    for keyword, place in places:
        written += given(keyword, place)
    for keyword, place, flag, flag_place in statistics:
        trains = given(flag, flag_place) if flag else []
        if not trains or not is_constant(trains[0], (False,)):
            written += given(keyword, place)
    for keyword, place, harmless, target in flags:
        if any(not is_constant(x, harmless) for x in given(keyword, place)):
            if target >= len(positional):
                return None
            written.append(positional[target])
    return written
