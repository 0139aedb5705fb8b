"""What programs are made of: texts with places to fill, which `grow.py` tries on real values before it keeps them.

Places: {a} array, {e} array expression, {i} int, {n} number, {v} any value, {l} list, {t} tuple or list, {d} dict, {o} object,
{m} boolean mask, {ix} index, {ax} axis, {dt} dtype, {fresh} a new name. The first field: b both libraries, n NumPy, t torch,
m any program, but the text mixes libraries (torch must be there). What takes one of 0.0 and -0.0 as its vector instructions happen to,
maximum and its kind, stands as `... + 0`.
"""

# An expression makes an array or a number.
EXPRESSIONS = """
b 6 {e} + {e}
b 4 {e} - {e}
b 5 {e} * {e}
b 3 {e} + {n}
b 3 {e} * {n}
b 2 {n} - {e}
b 2 {n} * {e}
b 2 {e} / {p}
b 1 {e} // {p}
b 1 {e} % {p}
b 1 {p} // ({a} * 0 + 2)
b 1 {e} ** 2
b 1 2 ** ({a} * 0 + 2)
b 1 divmod({i}, 3)[0] + {a}
b 2 -{e}
b 2 abs({e})
b 1 ~{m}
b 2 {m} & {m}
b 1 {m} ^ {m}
b 1 {a} & 3
b 1 {a} | {a}
b 1 {a} << 1
b 1 {a} >> {i}
b 2 {e} > {n}
b 1 {e} == {e}
b 1 {n} <= {e}
b 1 {e} != {n}
b 2 lib.where({m}, {e}, {e})
b 2 lib.where({m}, {e}, {n})
b 1 lib.where({m}, {n}, {n})
n 2 np.maximum({e}, {e}) + 0
n 2 np.minimum({e}, {e}) + 0
t 2 (lib.maximum({e}, {e}) + 0)
t 1 (lib.minimum({e}, {e}) + 0)
n 2 np.maximum({e}, {n}) + 0
n 1 np.minimum({n}, {e}) + 0
b 2 lib.clip({e}, -1, 2)
b 1 lib.sqrt(abs({e}))
b 1 lib.floor({e} / 2)
b 1 lib.sign({e})
b 1 lib.square({e})
n 1 np.reciprocal({e})
b 1 lib.isnan({e})
b 1 lib.isfinite({e} / {p})
b 1 lib.logical_not({e})
b 1 lib.logical_and({e}, {e})
b 1 lib.nan_to_num({e} / {p}, posinf=9, neginf=-9)
b 3 {e}.sum()
b 1 {e}.mean()
b 1 {e}.max() + 0
b 1 {e}.min() + 0
b 1 {e}.any()
b 1 {e}.all()
b 1 {e}.prod()
n 2 {e}.sum(axis={ax})
n 1 {e}.sum(axis={ax}, keepdims=True)
n 1 {e}.sum({ax}, dtype={dt})
n 1 {e}.max(axis={ax}) + 0
n 1 {e}.min(axis={ax}, keepdims=True) + 0
n 1 {e}.mean({ax})
n 1 np.sum({e}, axis=(0, 1))
n 1 np.max({e}, initial=3) + 0
n 1 np.sum({e}, where={m})
t 2 {e}.sum({ax})
t 1 {e}.sum({ax}, keepdim=True)
t 1 {e}.sum({ax}, dtype={dt})
t 1 {e}.amax({ax}) + 0
t 1 {e}.amin({ax}, keepdim=True) + 0
t 1 {e}.max({ax}).values + 0
t 1 {e}.mean({ax})
t 1 {e}.sum((0, 1))
b 1 {e}.argmax()
n 1 {e}.argmin({ax})
b 1 {e}.cumsum({ax})
b 1 lib.count_nonzero({e})
b 3 {a}[{ix}]
b 1 {a}[{ix}][{ix}]
b 3 {e} * {r}
b 2 {r} - {e}
b 1 {e} / ({r} + 9)
b 1 {e} ** ({r} % 3)
b 1 {e} >= {r}
b 2 lib.where({e} > {r}, {e}, {r})
b 1 lib.full((2,), {r})
b 1 lib.clip({e}, -1, {r})
b 2 {a}[{r}] + {e}
b 2 {a}[{r}:]
b 1 {a}[:{r}] * {r}
b 1 {a}.reshape(-1)[{r} - 2:{r}]
b 1 {a}[::abs({r}) % 3 + 1]
b 1 lib.zeros(abs({r}) % 5) + {r}
b 1 lib.arange({r})
b 1 lib.arange({r}, {r} + 3)
b 1 lib.roll({a}, {r}) * {r}
b 1 lib.roll({a}, {r}, 0)
b 1 {a}.repeat(abs({r}) % 3)
b 1 {e} + [2, 3, 5][{r} % 3]
b 1 {e} * {{0: 2, 1: 3, 2: 4}}.get({r}, 1)
b 1 ({e} if {r} > 1 else -{e})
b 1 sum([{e} for _ in range({r} % 3)], {r})
b 1 [{e}, {e}][{r} % 2]
n 1 np.repeat({a}, abs({r}) % 3, axis=0)
n 1 np.tile({a}, abs({r}) % 3)
n 1 np.pad({a}, abs({r}) % 3)
n 1 np.tri(abs({r}) % 4) * {r}
t 1 {a}.narrow(0, 0, abs({r}) % 2)
t 1 lib.nn.functional.pad({a}, (abs({r}) % 3, 0))
t 1 lib.tril({a}, {r})
t 1 {a}.new_full((abs({r}) % 3,), {r})
t 1 lib.add({e}, {e}, alpha={r})
t 1 lib.addcmul({a}, {a}, {a}, value={r})
b 2 {a}[{m}]
b 1 {a}[{m}].sum()
b 1 {a}[{m}] * 2 + {n}
b 1 {a}[{m}].max() + 0
b 1 {a}[{m}][{ix}]
b 1 {a}[{m}] * {a}[{m}]
b 1 {a}[{m}].reshape(-1, 1) + {a}[{m}]
b 1 {a}[{a} > {n}]
b 1 {a}[{e} == {e}].cumsum(0)
b 1 {a}[{a}.reshape({a}.shape[0], -1).any(-1)]
b 1 len({a}[{m}]) + {e}
b 1 {a}[{m}].shape[0] * {a}
b 1 lib.zeros(len({a}[{m}])) + {n}
b 1 lib.ones_like({a}[{m}]) * {n}
b 1 lib.where({m})[0]
b 1 {a}[lib.where({m})]
n 1 np.concatenate([{a}[{m}], {a}[~{m}]])
n 1 np.nonzero({a})[-1]
n 1 np.argwhere({m})
n 1 np.compress({m}.ravel(), {a})
n 1 np.extract({m}, {a})
n 1 np.flatnonzero({m}) * {i}
n 1 {a}[np.argwhere({m})[:, 0]]
n 1 {a}[..., np.flatnonzero({a}[0])]
t 1 lib.cat([{a}[{m}], {a}[~{m}]])
t 1 lib.masked_select({a}, {m})
t 1 {m}.nonzero(as_tuple=True)[-1]
t 1 {a}[{m}.nonzero()[:, 0]]
t 1 lib.argwhere({a})
n 2 {a}[np.array([0, -1, 0])]
n 2 {a}[..., np.array([0, -1])]
n 1 {a}[np.array([0, -1]), np.array([[0], [1]])]
n 1 {a}[0, ..., np.array([-1, 0])]
n 1 {a}[np.array([1, 0]), None, {ix}]
n 1 {a}[np.ix_([0, -1], [1, 0])]
n 1 {a}[{a}.argmax()]
n 1 {a}[np.argsort({a}[..., 0], kind="stable")]
n 1 np.take({a}, np.array([[0, 2], [-1, 0]]), mode="wrap")
n 1 np.take_along_axis({a}, np.argmax({a}, axis=0)[None], 0)
t 2 {a}[lib.tensor([0, -1, 0])]
t 2 {a}[..., lib.tensor([0, -1])]
t 1 {a}[lib.tensor([0, -1]), lib.tensor([[0], [1]])]
t 1 {a}[lib.tensor([0, -1]), ..., lib.tensor([1, 0])]
n 1 {a} * np.float32({n})
n 1 np.float64({e}.sum()) + {a}
n 1 {a} + np.int64({i})
n 1 np.float32({i}) / 3 * {a}
n 1 np.int32({a})
b 1 {a}[[0, -1]]
b 1 {a}[{ix}].sum()
b 1 {a}[{i}]
b 1 {a}.reshape(-1)
b 1 {a}.reshape(-1, 1)
b 1 {a}.T
b 1 {e}.ravel()
n 1 {a}.transpose()
n 1 {a}[::-1]
n 1 {a}[:, ::-1]
n 1 np.expand_dims({a}, 0)
n 1 {a}.squeeze()
n 1 np.swapaxes({a}, 0, -1)
t 1 {a}.unsqueeze({ax})
t 1 {a}.squeeze()
t 1 {a}.transpose(0, -1)
t 1 {a}.flatten()
t 1 {a}.view(-1)
t 1 {a}.expand(2, *{a}.shape)
t 1 {a}.permute(*reversed(range({a}.ndim)))
t 1 {a}.flip(0)
t 1 {a}.contiguous()
t 1 {a}.narrow(0, 0, 1)
t 1 {a}.chunk(2)[-1]
t 1 {a}.unbind(0)[0]
t 1 {a}.diagonal()
n 1 np.broadcast_to({a}, (2,) + {a}.shape)
n 2 np.concatenate([{e}, {e}])
n 1 np.concatenate([{a}, {a}, {a}], axis={ax})
n 1 np.stack([{e}, {a}])
n 1 np.vstack([{a}, {a}])
t 2 lib.cat([{e}, {e}])
t 1 lib.cat([{a}, {a}, {a}], {ax})
t 1 lib.stack([{e}, {a}])
b 1 lib.roll({a}, 1)
b 1 {a}.repeat(2)
n 1 np.repeat({a}, 2, axis={ax})
n 1 np.tile({a}, 2)
n 1 np.pad({a}, 1)
n 1 np.pad({a}, (0, 1), 'edge')
n 1 np.pad({a}, 1, 'symmetric')
n 1 np.diff({a})
n 1 np.outer({a}, {a})
n 1 np.unique({a})
n 1 np.flatnonzero({m})
n 1 np.sort({a}, axis={ax})
n 1 np.take({a}, [0, -1])
t 1 lib.sort({a}, {ax}).values
t 1 lib.nonzero({m})
t 1 {a}.index_select(0, lib.tensor([0]))
t 1 {a}.masked_fill({m}, 2)
t 1 lib.tril({a})
n 1 np.tril({a})
n 2 {a}.astype({dt})
n 1 {a}.astype({dt}, copy=False)
n 1 {a}.copy()
n 1 {a}.view()
n 1 {a}.view(np.int32)
t 2 {a}.to({dt})
t 1 {a}.float()
t 1 {a}.clone()
t 1 {a}.detach()
t 1 {a}.view(lib.int32)
b 1 lib.zeros_like({e})
b 1 lib.ones_like({a})
b 1 lib.full_like({a}, {i})
b 1 lib.zeros({a}.shape)
b 1 lib.ones({a}.shape, dtype={dt})
b 1 lib.arange({i})
b 1 lib.arange(1, 4, dtype={dt})
b 1 lib.eye(2)
b 1 lib.full((2,), {n})
n 1 np.array([{n}, {n}])
n 1 np.array({a})
n 1 np.asarray({a}, dtype={dt})
n 1 np.linspace(0, 1, 5)
t 1 lib.tensor([{n}, {n}])
t 1 lib.as_tensor({a})
t 1 lib.tensor({n})
b 1 {a} @ {a}
b 1 lib.matmul({a}, {a}.T)
n 1 np.dot({a}, {a})
b 1 lib.einsum("...i,...i->...", {a}, {a})
n 1 np.add({e}, {e})
n 1 np.multiply({e}, {n}, dtype={dt})
n 1 np.add.reduce({e})
n 1 np.subtract({e}, {e}, where={m}, out=lib.zeros({a}.shape))
t 1 lib.add({e}, {e}, alpha=2)
t 1 lib.relu({e})
t 1 lib.nn.functional.relu({e})
t 1 lib.nn.functional.leaky_relu({a}, 0.5)
t 1 lib.nn.functional.pad({a}, (1, 0))
t 1 {a}.new_zeros(3)
m 1 {a}.numpy() * 2
m 1 lib.from_numpy({a}.numpy() + 1)
m 1 np.asarray({a}).sum()
b 1 ({e} if {c} else {e})
b 1 sum([{e}, {e}])
b 1 max([{a}, {a}], key=lambda q: float(q.sum()))
b 1 [{e} for _ in range(2)][1]
b 1 (lambda q: q * 2 + {n})({e})
b 1 {a}.real
n 1 {a}.flat[0]
n 1 {a}.item({i})
b 1 float({e}.sum())
b 1 int({a}.sum()) + {i}
b 1 {a}.sum().item()
b 1 {a}.shape[0] * {e}
b 1 {a}.ndim + {e}
b 1 {e} + len({a})
b 1 bool({a}.any())
b 1 {a}.tolist()
b 1 {a}[(0,) * {a}.ndim]
b 1 {a}[(0,) * {a}.ndim] + {e}
b 1 {a}.sum() * {n}
b 1 ({e}.max() + 0) + {e}
b 1 lib.zeros((0, 3)) + {n}
b 1 {e} - {e}.mean()
n 1 np.float32({n}) + {e}
n 1 np.int8({i}) * {e}
n 1 np.float16({n}) * {e}
n 1 np.float64({i}) / 3
n 1 np.uint8(200) + {i}
n 1 np.int64({i}) ** 2 + np.float32(1.5)
n 1 {e}.sum(dtype=np.float64) + np.float32(1)
n 1 {a}.astype(np.float32).max() - np.int8(1)
n 1 np.asarray({n}) + {e}
n 1 np.array({e}, order="F")
n 1 np.ascontiguousarray({a}.T)
n 1 np.lib.stride_tricks.sliding_window_view({a}, 1, axis=0)
n 1 np.bitwise_count({a})
n 1 np.float_power({e}, 2)
n 1 {e}.astype(np.complex64) * 1j
n 1 np.angle({a})
n 1 {a}.conj() * {e}
n 1 {a}.imag + 1
n 1 np.copysign({e}, {e})
n 1 np.heaviside({e}, {n})
n 1 np.fmod({e}, {p})
n 1 np.trunc({e} / 3)
n 1 np.rint({e} / 2)
n 1 np.ptp({e}, axis={ax})
n 1 np.argsort({e}, axis={ax}, kind="stable")
n 1 np.searchsorted(np.array([0, 1, 2]), {e})
n 1 np.select([{m}, {m}], [{a}, {a}], {n})
n 1 np.choose({m} * 1, [{a}, {a}])
n 1 np.einsum("i...->...", {e})
n 1 np.flip({e}, 0)
n 1 np.rot90({a})
n 1 np.meshgrid({e}, {e})[0]
n 1 np.split({a}, 1)[0]
n 1 np.atleast_2d({e})
n 1 np.cross({e}, {e})
n 1 np.triu({a})
n 1 np.trace({a})
n 1 np.interp({e}, [0, 1], [2, 4])
n 1 np.logical_xor({e}, {e})
n 1 np.left_shift({a}, 1)
t 1 {a}.bfloat16() + {e}
t 1 {a}.half() * {n}
t 1 {a}.to(lib.bfloat16).sum({ax})
t 1 {a}.to(lib.complex64) * 1j
t 1 {a}.bfloat16() // {p}
t 1 {a}.half() % {p}
t 1 {a}.sum(dtype=lib.float64) + {e}
t 1 {a}.as_strided((2,), (1,))
t 1 {a}.unfold(0, 1, 1)
t 1 {a}.swapaxes(0, -1)
t 1 {a}.mT
t 1 {a}.view_as({a})
t 1 {a}.expand_as({a}) + 1
t 1 {a}.split(1)[0]
t 1 {a}.tensor_split(2)[1]
t 1 {a}.select(0, 0)
t 1 {a}.movedim(0, -1)
t 1 {a}.gather(0, lib.zeros({a}.shape, dtype=lib.int64))
t 1 {a}.scatter(0, lib.zeros({a}.shape, dtype=lib.int64), {n})
t 1 {a}.index_add(0, lib.tensor([0]), {a}[:1])
t 1 {a}.take_along_dim(lib.zeros({a}.shape, dtype=lib.int64), 0)
t 1 {a}.cummax(0).values + 0
t 1 {a}.topk(1).indices
t 1 {a}.std_mean()[1]
t 1 {a}.aminmax().min + 0
t 1 lib.minimum({e}, {e}) + 0
t 1 lib.clamp({e}, min={n}) + 0
t 1 lib.bitwise_and({a}, 3)
t 1 lib.fmod({e}, {p})
t 1 lib.trunc({e} / 3)
t 1 lib.heaviside({e}, {e})
t 1 lib.copysign({e}, {n})
t 1 lib.addcmul({a}, {a}, {a})
t 1 lib.lerp({a}, {a}, 0.5)
t 1 lib.outer({a}, {a})
t 1 lib.bmm({a}, {a})
t 1 lib.block_diag({a}, {a})
t 1 lib.broadcast_to({a}, (2,) + {a}.shape)
t 1 lib.cumprod({e}, 0)
t 1 lib.diff({a})
t 1 lib.triu({a})
t 1 lib.trace({a})
t 1 lib.unique({a})
t 1 lib.argsort({e}, stable=True)
t 1 lib.searchsorted(lib.tensor([0, 1, 2]), {e})
t 1 lib.bucketize({e}, lib.tensor([0., 1.]))
t 1 lib.nn.functional.one_hot(({a} > 0).long())
t 1 lib.nn.functional.linear({a}, {a})
t 1 lib.nn.functional.embedding(lib.tensor([0, 0]), {a})
t 1 lib.nn.functional.threshold({a}, 0, 2)
t 1 lib.nn.functional.hardtanh(lib.nan_to_num({e}))
t 1 lib.nn.functional.mse_loss({e}, {e}, reduction="none")
t 1 lib.nn.functional.dropout({e}, 0.5)
t 1 lib.randn_like({a})
""".strip().splitlines()

# gelu of infinity is infinity or NaN, and its zeros are of one sign or both, by which of torch's kernels a processor and a layout get.
INEXACT = """
b 3 lib.exp({e} / 8)
b 3 lib.tanh({e})
b 2 lib.sin({e})
b 1 lib.cos({a})
b 1 lib.log(abs({e}) + 1)
b 2 {e} / 3
b 1 {e}.mean()
n 1 {e}.mean({ax})
n 1 {e}.std()
n 1 {e}.var({ax})
t 1 {e}.var({ax})
t 1 lib.softmax({e}, {ax})
t 1 lib.sigmoid({e})
t 1 (lib.nn.functional.gelu({e}.clip(-9, 9)) + 0)
t 1 lib.nn.functional.silu({e})
t 1 lib.nn.functional.layer_norm({e}.clamp(-9e9, 9e9), ({e}.shape[-1],))
t 1 lib.nn.functional.softplus({e})
t 1 lib.log_softmax({e}, {ax})
t 1 lib.logsumexp({e}, {ax})
t 1 {a}.norm()
t 1 lib.nn.functional.cross_entropy({a}, {a}.argmax(-1))
n 1 np.linalg.norm({a})
n 1 np.average({e})
n 1 np.log1p(abs({e}))
n 1 np.arctan2({e}, {e})
n 1 np.logaddexp({e}, {e})
n 1 np.cbrt({e})
b 1 {e} ** 0.5
b 1 lib.hypot({e}, {e})
""".strip().splitlines()

# Numbers that are read from arrays: in the rows below they are operands, indices, starts, sizes, conditions and keys ({r}).
READ = """
b 3 int({a}.reshape(-1)[0])
b 3 abs(int({a}.sum())) % 5
b 3 {a}.argmax().item()
b 2 ({m}).sum().item()
b 2 int(lib.count_nonzero({m}))
b 2 {a}.reshape(-1)[-1].item()
b 2 {a}.reshape(-1)[:2].tolist()[-1]
b 1 len({a}[{m}])
b 1 {a}[{m}].shape[0]
b 1 {a}.max().item()
b 1 float({a}.reshape(-1)[0])
b 1 {a}.any().item()
b 1 bool({a}.reshape(-1)[0])
b 1 math.floor({a}.reshape(-1)[0])
b 1 round(float({a}.reshape(-1)[-1]))
n 1 {a}.argsort(axis=None)[0]
n 1 np.flatnonzero({m})[0]
n 1 int(np.searchsorted(np.arange(9), {n}))
t 1 {a}.topk(1).indices.reshape(-1)[0].item()
t 1 {a}.nonzero()[0, 0].item()
t 1 {a}.size(0) - int(({m}).sum())
b 1 {r} + 1
b 1 {r} * 2 - {i}
b 1 min({r}, 3)
b 1 -{r}
b 1 {r} // 2
b 1 {r} % 3
""".strip().splitlines()

# Python around arrays.
VALUES = """
b 3 [{v}, {v}]
b 2 ({v}, {n}, {v})
b 2 {{"p": {v}, {i}: {v}}}
b 1 [*{t}, {v}]
b 1 {{**{d}, "q": {v}}}
b 1 {t}[::-1]
b 1 {t}[0]
b 1 {t}[-1]
b 1 {t} + {t}
b 1 {l} * 2
b 1 list({d}.items())
b 1 {d}.get("a", {v})
b 1 {d}["a"]
b 1 sorted({d}, key=str)
b 1 dict(zip("abc", {t}))
b 1 list(zip({t}, {t}))
b 1 list(enumerate({t}, {i}))
b 1 [q for q in {t} if q is not {v}]
b 1 {{j: {a} * j for j in range(3)}}
b 1 [j * 2 + {i} for j in range(4) if j % 2]
b 1 list(map(lambda q: q, {t}))
b 1 tuple(q for q in {t})
b 1 any(q is {a} for q in {t})
b 1 len({t}) + {i}
b 1 {i} + {i}
b 1 {i} * 3 - {i}
b 1 {i} // 2
b 1 -{i} % 3
b 1 {i} & 5
b 1 {i} ** 2
b 1 2 ** 62 * {i}
b 1 min({i}, {i}, 3)
b 1 abs({i}) / 2
b 1 round({n}, 1)
b 1 f"{{{i}}} and {{{n}!r:>8}}"
b 1 "%s-%d" % ("x", {i})
b 1 str({a}.shape) + "!"
b 1 "a,b,c".split(",")[{i} % 3]
b 1 {{{i}, {i}, 7}}
b 1 {{{i}, 2}} | {{7}}
b 1 range({i})
b 1 slice({i}, None)
b 1 {a} is {a}
b 1 {v} is None
b 1 isinstance({v}, (list, tuple))
b 1 type({v}).__name__
b 1 hasattr({v}, "shape")
b 1 getattr({v}, "ndim", {i})
b 1 {a}.shape
b 1 {a}.shape + (1,)
b 1 str({a}.dtype)
b 1 {i} if {c} else {v}
b 1 {c} and {v}
b 1 {c} or {v}
b 1 not {c}
b 1 0 <= {i} < 3 <= 7
b 1 math.floor({n} * 2) if {n} == {n} else 0
b 1 functools.reduce(lambda p, q: p + q, [{e}, {e}, {e}])
b 1 functools.partial(lib.clip, {a}, -1)
b 1 functools.partial(lambda p, q: p * q, {v})({i})
b 1 list(itertools.chain({t}, [{v}]))
b 1 list(itertools.islice(itertools.count({i}), 3))
b 1 list(itertools.product(range(2), [{v}]))
b 1 operator.add({e}, {e})
b 1 operator.itemgetter(0)({t})
b 1 collections.OrderedDict(a={v}, b={i})
b 1 collections.Counter([1, {i}, 1])
b 1 collections.deque({t}, maxlen=3)
b 1 collections.defaultdict(list, a=[{v}])
b 1 copy.copy({t})
b 1 copy.deepcopy({t})
b 1 iter({t})
b 1 reversed({t})
b 1 (q for q in {t})
b 1 zip({t}, {t})
b 1 lambda q={v}: q
b 1 (w1 := {e}) + w1
""".strip().splitlines()

# Statements by themselves.
STATEMENTS = """
b 1 {a} *= {r}
b 1 {a}[{r}] = {n}
b 1 {a}[{r}:] += {r}
b 1 {a}.reshape(-1)[{r}] = {r}
b 1 {a}[0] = {r}
b 1 {l}.append({r})
b 1 {d}[{r}] = {r}
b 1 {l}[{r}] = {e}
b 1 STATE.count += {r}
b 1 for {fresh} in range({r} % 4): {a}[0] += {r}
b 1 {fresh} = {r}; {fresh} += 1
b 4 {a} += {n}
b 3 {a} *= {e}
b 3 {a} -= {e}
b 1 {a} /= 2
b 1 {a} //= 2
b 1 {a} **= 2
b 1 {a} |= {m}
b 1 {a} &= {i}
b 1 {a} = {e}
b 4 {a}[{ix}] = {n}
b 3 {a}[{ix}] = {e}
b 2 {a}[{ix}] += {n}
b 2 {a}[{ix}] *= {e}
b 2 {a}[{ix}] = {a}[{ix}]
b 2 {a}[{m}] = {n}
n 2 {a}[np.array([0, 0, -1])] = {n}
n 2 {a}[np.array([0, -1, 0])] += {e}
n 1 {a}[..., np.array([0, -1, 0])] = {e}
n 1 {a}[np.array([0, -1]), np.array([[0], [1]])] *= {n}
n 1 {a}[{a}.argmax()] = {n}
n 1 np.add.at({a}, np.array([0, 0, -1]), {n})
n 1 np.put_along_axis({a}, np.argmax({a}, axis=0)[None], {n}, 0)
b 1 for {fresh} in range(4): {a}[{fresh}:{fresh} + 2] += {n}
b 1 {a}[{m}] += {n}
b 1 {a}[{m}] -= {a}[{m}] + {n}
b 1 {fresh} = {a}[{m}]; {fresh} *= 2
b 1 {fresh} = {a}[{m}]; {fresh}[{fresh} > {n}] = 0
b 1 {fresh} = lib.where({m}); {a}[{fresh}] = {n}
b 1 {fresh} = len({a}[{m}])
b 1 {l}.append({a}[{m}].shape)
b 1 {a}[{m}] *= {a}[{m}]
b 1 {a}[[0, -1]] = {n}
b 1 {a}[[0, 0]] += 1
b 1 {a}[...] = {e}
b 1 {a}[:] = {a}[::-1]
b 1 {a}[1:] = {a}[:-1]
b 1 {a}[1:] += {a}[:-1]
b 1 {a}.T[{ix}] = {n}
b 1 {a}.reshape(-1)[{ix}] -= {n}
b 1 {a}[0], {a}[-1] = {a}[-1], {a}[0]
n 2 np.add({e}, {e}, out={a})
n 1 np.multiply({a}, {n}, out={a})
n 1 np.add({a}[1:], {a}[:-1], out={a}[1:])
n 1 np.sum({e}, axis={ax}, out={a})
n 1 np.copyto({a}, {e})
n 1 np.copyto({a}, {n}, where={m})
n 1 np.add.at({a}, [0, 0], {n})
n 1 np.putmask({a}, {m}, {n})
n 1 np.clip({a}, -1, 1, out={a})
n 1 {a}.fill({n})
n 1 {a}.sort()
n 1 {a}.resize({a}.shape)
n 1 {a}.flags.writeable = False
n 1 {a}.shape = (-1,)
n 1 {a}.flat[0] = {n}
n 1 np.place({a}, {m}, [{n}])
n 1 {a}.itemset(0) if False else None
t 2 {a}.add_({e})
t 2 {a}.mul_({n})
t 1 {a}.sub_({e}, alpha=2)
t 1 {a}.relu_()
t 1 {a}.clamp_(-1, 1)
t 1 {a}.copy_({e})
t 1 {a}.zero_()
t 1 {a}.fill_({n})
t 1 {a}.neg_()
t 1 {a}.masked_fill_({m}, {n})
t 1 {a}.t_()
t 1 {a}.unsqueeze_(0)
t 1 {a}.data.mul_(2)
t 1 {a}.detach().add_(1)
t 1 lib.add({e}, {e}, out={a})
t 1 lib.mul({a}, {n}, out={a})
t 1 {a}.view(-1)[0] = {n}
t 1 {a}.requires_grad_(False)
t 1 {a}.numpy()[...] = {n}
b 2 {a}[{ix}][{ix}] *= 2
b 2 {a}[{ix}] += {a}
b 1 {a} *= {a}
b 1 {a} -= {a}[{ix}]
b 1 {a}[{ix}] = {a}.T
b 1 {a}.T[...] = {a}
b 1 {a}.T[{ix}] += {n}
b 1 {a}[1:] *= {a}[:-1]
b 1 {a}[:-1] = {a}[1:] + {n}
b 1 {fresh} = {a}[{ix}]; {fresh} += {n}
b 2 {fresh} = {a}; {fresh} *= 2
b 1 {a}[{m}] = {e}
b 1 {a}[{m}] = {a}[{m}] * 2 + {n}
b 1 {a}[{i}] = {a}[{i}]
b 1 {a}[None] += 1
b 1 {a}.reshape(-1)[1:] = {n}
b 1 {a}.ravel()[{ix}] = {n}
b 1 {a}[{ix}], {fresh} = {n}, {a}[{ix}]
b 1 for {fresh} in {a}: {fresh} += 1
b 1 {l}[0][{ix}] = {n}
b 1 {d}["a"][{ix}] += {n}
b 1 {d}["a"] = {d}["n"] = {a}
n 1 {a}[::-1] += {a}
n 1 {a}[::-1] = {a}
n 1 np.add({a}, {n}, out={a}[...])
n 1 np.add({a}, 1, out={a}[{ix}])
n 1 np.subtract({a}, {e}, where={m}, out={a})
n 1 np.multiply({a}[::-1], {a}, out={a})
n 1 np.negative({a}, {a})
n 1 np.floor_divide({a}, 2, out={a}, casting="unsafe")
n 1 np.copyto({a}[{ix}], {n})
n 1 np.copyto({a}, {e}, casting="unsafe")
n 1 {a}.flat[1:] = {n}
n 1 {a}.real = {n}
n 1 np.minimum.at({a}, 0, {n})
n 1 {fresh}, {fresh} = np.divmod({e}, 3)
n 1 {fresh}, {fresh} = np.modf({e})
n 1 {a}[np.arange({i} % 3)] += 1
n 1 {a}[[True] + [False] * (len({a}) - 1)] = {n}
n 1 np.fill_diagonal({a}, {n})
n 1 {a}.partition(0)
n 1 {a}.byteswap(True)
n 1 {a}.setflags(write=True)
t 2 {a}[{ix}].copy_({e})
t 2 {a}[{ix}].zero_()
t 2 {a}[{ix}].mul_({n})
t 1 {a}[{ix}].add_({e})
t 1 {a}.copy_({a}.flip(0))
t 1 {a}.copy_({n})
t 1 {a}.t().add_(1)
t 1 {a}.view(-1).mul_(2)
t 1 {a}.div_(2)
t 1 {a}.abs_()
t 1 {a}.floor_()
t 1 {a}.pow_(2)
t 1 {a}.clamp_min_(0)
t 1 {a}.clamp_(max={n})
t 1 {a}.logical_not_()
t 1 {a}.eq_({n})
t 1 {a}.index_add_(0, lib.tensor([0, 0]), {a}[:2])
t 1 {a}.index_fill_(0, lib.tensor([0]), 2)
t 1 {a}.index_copy_(0, lib.tensor([0]), {a}[-1:])
t 1 {a}.index_put_((lib.tensor([0]),), lib.tensor(2))
t 1 {a}.scatter_(0, lib.zeros({a}.shape, dtype=lib.int64), {n})
t 1 {a}.masked_scatter_({m}, {a})
t 1 {a}.fill_diagonal_(1)
t 1 {a}.addcmul_({a}, {a}, value=2)
t 1 {a}.lerp_({a}, 0.5)
t 1 {a}.transpose_(0, -1)
t 1 {a}.squeeze_()
t 1 {a}.resize_(2, 0)
t 1 {a}.uniform_()
t 1 {a}.bernoulli_(0.5)
t 1 lib.sum({e}, {ax}, out={a})
t 1 lib.add({a}[1:], {a}[:-1], out={a}[1:])
t 1 lib.where({m}, {a}, {a}, out={a})
t 1 {fresh} = {a}.detach(); {fresh} *= 2
t 1 {fresh} = {a}.clone().requires_grad_(); ({fresh} * {n}).sum().backward()
t 1 {e}.sum().backward()
t 1 {fresh} = [gradient.clone() for gradient in lib.autograd.grad(({a} * {a}).sum(), {a})]
t 1 {fresh} = {a}.grad
t 1 {a}.grad = None
b 2 print({i}, {a}.shape)
b 1 print({n}, {t} is {t}, sep="|")
b 1 print({a}.sum().item())
b 2 LOG.append({v})
b 1 LOG.append(({i}, len(LOG)))
b 1 LOG[-1:] = [{i}, {i}]
b 1 TABLE["n"] = TABLE.get("n", 0) + {i}
b 1 TABLE[{i}] = {v}
b 1 TABLE.pop({i}, None)
b 1 STATE.last = {v}
b 1 STATE.count += 1
b 1 STATE.items.append({v})
b 1 setattr(STATE, "extra", {v})
b 1 State.shared = {i}
b 1 {l}.append({v})
b 1 {l}.insert(0, {v})
b 1 {l}.extend({t}[:3])
b 1 {l}.pop()
b 1 {l}.reverse()
b 1 {l}[0] = {v}
b 1 {l}[0] += {n}
b 1 {l} += [{v}]
b 1 {l}[:] = {l}[1:]
b 1 del {l}[0]
b 1 {l}.clear()
b 1 {d}["new"] = {v}
b 1 {d}["a"] = {v}
b 1 {d}["a"] += {n}
b 1 {d}.update(z={v})
b 1 {d}.pop("a")
b 1 {d}.setdefault("list", []).append({v})
b 1 del {d}["a"]
b 1 {fresh}, *{fresh} = {t}
b 1 {fresh}, {fresh} = {v}, {v}
b 1 {fresh} = {fresh} = {v}
b 1 assert {a}.ndim < 9, "deep"
b 1 assert {c}, f"not {{{i}}}"
b 1 next(iter({t}))
b 1 warnings.warn("careful")
b 1 random.random()
b 1 LOG.append(random.randrange(100))
b 1 {fresh} = np.random.rand(2) if lib is np else lib.rand(2)
b 1 framejit.graph_break()
b 1 sys.getsizeof({i})
b 1 LOG.append(sys._getframe().f_lineno)
b 1 LOG.append(sorted(set(locals()) & {{"x", "k", "s"}}))
b 1 {o}.k += {i}
b 1 {o}.a = {e}
b 1 {o}.a += {n}
b 1 {o}.a[{ix}] = {n}
b 1 {o}.seen.append({v})
b 1 {o}.fresh = {v}
b 1 {o}.a, {o}.k = {o}.a * 2, {i}
b 1 {fresh} = {o}.a + {o}.k
b 1 {fresh} = {o}
b 1 {fresh} = [{o}, {o}.a]
""".strip().splitlines()

RAISING = ['raise ValueError("no", {i})', "raise Mine({v})", "1 // ({i} * 0)", "{l}[99]", '{d}["missing"]', "{a}[99]", "{a} + lib.ones(97)", 'int("x")', "{a}.nothing",
           "assert {i} == 99, {i}", "undefined", "boom({a})", "next(iter(()))", "None + {a}", "{a}[1.5]", "lib.reshape({a}, (7, 97))", "[].pop()", "raise"]
CAUGHT = ["ValueError", "(IndexError, KeyError)", "Exception", "ZeroDivisionError", "Mine", "(TypeError, AttributeError, RuntimeError)", "LookupError", "ArithmeticError",
          "NameError", "AssertionError", "StopIteration"]
CONDITIONS = ["k > 2", "{i} > 1", "{i} % 2", "s < 0.5", "{a}.sum() > {i}", "{a}.ndim == 2", "len({t}) > 1", "{a} is {a}", "{a}.shape[0] > 3", '"a" in {d}', "{i} in (1, 2, 3)",
              "isinstance({v}, list)", "{a}.any()", "{a}.max() > 1", "not {t}", "LOG", "STATE.count > 2", "{v} is not None", "str({a}.dtype)[-2:] == '32'", "len({a}[{m}]) > 1",
              "{a}[{m}].shape[0]"]
INDICES = ["0", "-1", "1:", ":-1", "::2", "...", "None", ":, 0", "..., None", ":, 1:", "1:2", "0, 0", "..., -1", "9:", "{i}", "{i}:", "0:{i}", "None, 1:", ":, None"]
NUMPY_INDICES = ["::-1", "..., ::-1", "::-2", "-2:0:-1"]
NUMBERS = ["2", "-1", "0", "3", "0.5", "1.5", "-0.0", 'float("nan")', 'float("inf")', "True", "255", "2 ** 31", "-130", "1e30", "np.float32(2.5)", "np.int8(3)", "np.float64(0.25)", "1j"]
DTYPES = ["float32", "float32", "float64", "int32", "int64", "bool", "float16", "uint8", "int8", "complex64", "int16"]
