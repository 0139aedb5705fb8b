/// Functions of neural networks: activations, products, normalisation over rows, embedding, dropout.
///
/// Activations with `inplace=True` write into their input. What is not lowered for the arguments given runs as an
/// extern node (pooling, attention: torch's own kernels).
#include <array>
#include <cmath>

#include "runtime/base/error.h"
#include "tracer/frontends/composites.h"
#include "tracer/frontends/indexing.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// An activation: body on the float contents, eager's layout, written back if inplace. `copies`: torch fills a tensor
/// that lies as the input does.
template <class Body>
V activation(Tracer& tracer, const Parameters& p, Body body, bool integers = false, bool copies = false) {
  V input = p.required("input");
  Array x = torch_tensor(tracer, input);
  if (!is_float(x->dtype) && !integers) refuse("an activation of integers");
  const ValueId value = body(tracer.read(*x));
  V result = copies ? torch_like(tracer, x, value) : torch_elementwise(tracer, value, {torch_operand(tracer, input)});
  return p.flag("inplace", false) ? torch_write(tracer, input, result) : result;
}

/// A half type's scalar constants are rounded to it, as the kernels do that compare in the tensor's own type.
ValueId bounded(Tracer& tracer, Op outside, ValueId x, double limit) {
  return fj::bounded(tracer, outside, x, constant_like(tracer, x, limit));
}

/// As torch's kernel: the derivative is 0 wherever the result is.
ValueId relu(Tracer& tracer, ValueId x) { return composite(tracer, CompositeRule::Relu, {x}, bounded(tracer, Op::lt, x, 0)); }

/// hardtanh, whose bounds themselves have derivative 0.
ValueId between(Tracer& tracer, ValueId x, double low, double high) {
  return composite(tracer, CompositeRule::Clamp, {x}, bounded(tracer, Op::gt, bounded(tracer, Op::lt, x, low), high),
                   {{"low", low}, {"high", high}, {"open", true}});
}

}  // namespace

V torch_relu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "relu", arguments, "input");
  if (torch_tensor(tracer, p.required("input"))->dtype == DType::Bool) refuse("relu() of booleans");
  return activation(tracer, p, [&](ValueId x) { return relu(tracer, x); }, true);
}

V torch_f_relu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "relu", arguments, "input, inplace");
  if (torch_tensor(tracer, p.required("input"))->dtype == DType::Bool) refuse("relu() of booleans");
  return activation(tracer, p, [&](ValueId x) { return relu(tracer, x); }, true);
}

V torch_f_hardtanh(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "hardtanh", arguments, "input, min_val, max_val, inplace");
  const double low = torch_number(tracer, p, "min_val", -1), high = torch_number(tracer, p, "max_val", 1);
  if (!(low <= high)) unsupported("hardtanh() whose bounds are reversed, or no numbers");
  return activation(tracer, p, [&](ValueId x) { return between(tracer, x, low, high); }, false, true);
}

V torch_f_relu6(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "relu6", arguments, "input, inplace");
  return activation(tracer, p, [&](ValueId x) { return between(tracer, x, 0, 6); }, false, true);
}

V torch_f_leaky_relu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "leaky_relu", arguments, "input, negative_slope, inplace");
  return activation(tracer, p,
                    [&](ValueId x) { return leaky_relu(tracer, x, torch_number(tracer, p, "negative_slope", 0.01)); });
}

V torch_f_elu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "elu", arguments, "input, alpha, inplace");
  return activation(tracer, p, [&](ValueId x) { return elu(tracer, x, torch_number(tracer, p, "alpha", 1), 1, 1); });
}

V torch_f_celu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "celu", arguments, "input, alpha, inplace");
  const double alpha = torch_number(tracer, p, "alpha", 1);
  if (alpha == 0) refuse("celu() with alpha 0");
  return activation(tracer, p, [&](ValueId x) { return elu(tracer, x, alpha, 1, 1 / alpha); });
}

V torch_f_selu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "selu", arguments, "input, inplace");
  return activation(tracer, p, [&](ValueId x) {
    return elu(tracer, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1);
  });
}

V torch_f_silu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "silu", arguments, "input, inplace");
  return activation(tracer, p, [&](ValueId x) { return silu(tracer, x); });
}

V torch_f_mish(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "mish", arguments, "input, inplace");
  return activation(tracer, p, [&](ValueId x) { return mish(tracer, x); });
}

V torch_f_hardswish(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "hardswish", arguments, "input, inplace");
  return activation(tracer, p, [&](ValueId x) { return hard_swish(tracer, x); });
}

V torch_f_hardsigmoid(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "hardsigmoid", arguments, "input, inplace");
  return activation(tracer, p, [&](ValueId x) { return hard_sigmoid(tracer, x); });
}

V torch_gelu(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "gelu", arguments, "input, *, approximate");
  const std::string approximate = p.text("approximate", "none");
  if (approximate != "none" && approximate != "tanh") refuse("gelu() with an unknown approximation");
  return activation(tracer, p, [&](ValueId x) { return gelu(tracer, x, approximate == "tanh"); });
}

V torch_softplus(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "softplus", arguments, "input, beta, threshold");
  return activation(tracer, p, [&](ValueId x) {
    return softplus(tracer, x, torch_number(tracer, p, "beta", 1), torch_number(tracer, p, "threshold", 20));
  });
}

V torch_logsigmoid(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "logsigmoid", arguments, "input");
  Array x = torch_tensor(tracer, p.required("input"));
  if (!is_float(x->dtype)) refuse("logsigmoid() of integers");
  return torch_fresh(tracer, log_sigmoid(tracer, tracer.read(*x)));
}

V torch_softsign(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "softsign", arguments, "input");
  return activation(tracer, p, [&](ValueId x) {
    return emit(tracer, Op::div, {x, with_constant(tracer, Op::add, emit(tracer, Op::abs, {x}), 1)});
  });
}

V torch_tanhshrink(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "tanhshrink", arguments, "input");
  return activation(tracer, p, [&](ValueId x) { return emit(tracer, Op::sub, {x, emit(tracer, Op::tanh, {x})}); });
}

V torch_f_threshold(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "threshold", arguments, "input, threshold, value, inplace");
  p.required("threshold"), p.required("value");
  const double limit = torch_number(tracer, p, "threshold", 0), value = torch_number(tracer, p, "value", 0);
  return activation(tracer, p, [&](ValueId x) {
    const ValueId below = with_constant(tracer, Op::le, x, limit);
    return composite(tracer, CompositeRule::Threshold, {x},
                     emit(tracer, Op::where, {below, constant_like(tracer, x, value), x}), {{"limit", limit}});
  });
}

// ---- products

namespace {

struct Product {
  Array a, b;
};

/// Whether the processor multiplies bfloat16 itself, as torch's library does: ours are products of f32.
bool multiplies_bfloat16() {
  PyObject* const known = once([] {
    bool found = false;
    for (const char* name : {"_is_avx512_bf16_supported", "_is_amx_tile_supported"}) {
      const Ref<> question = imported("torch.cpu", name);
      const Ref<> answer = question ? Ref<>::steal(PyObject_CallNoArgs(question.get())) : Ref<>();
      found = found || answer.get() == Py_True;
      PyErr_Clear();
    }
    return PyBool_FromLong(found);
  });
  return known == Py_True;
}

// Products and sums from which torch's library is faster with such instructions (measured on AVX512-BF16: 128 of each
// size 0.8 of its time, 192 1.27 times).
constexpr std::int64_t kManyOfBfloat16 = std::int64_t(1) << 22;

Product two_tensors(Tracer& tracer, const Parameters& p, const char* first, const char* second) {
  Product product{torch_tensor(tracer, p.required(first)), torch_tensor(tracer, p.required(second))};
  if (product.a->dtype == DType::BF16 && product.b->dtype == DType::BF16 && product.a->storage->device == kHost &&
      product.a->rank() > 0 && product.b->rank() > 0 && multiplies_bfloat16()) {
    const Dims& right = product.b->shape;
    const bool is_weight = std::string_view(second) == "weight";
    const SymDim columns = right.size() < 2 ? SymDim(1) : is_weight ? right[0] : right.back();
    if (!tracer.only_operations() && tracer.prefers(fj::product(product.a->shape) * columns, Py_GE, kManyOfBfloat16))
      unsupported("a product of bfloat16 that the processor's own instructions compute");
  }
  if (product.a->dtype != product.b->dtype) refuse("a product of tensors of different dtypes");
  if (product.a->dtype == DType::Bool) refuse("a product of booleans");
  return product;
}

/// A column times a row, of which the library gives the products as they are, not added to a zero: -1 * 0 is -0.
bool is_column_times_row(Tracer& tracer, ValueId a, ValueId b) {
  const Dims left = shape_of(tracer, a), right = shape_of(tracer, b);
  const auto several = [](const SymDim& size) { return size.is_constant() && size.value() > 1; };
  const DType dtype = dtype_of(tracer, a);
  return (dtype == DType::F32 || dtype == DType::F64) && left.size() == 2 && right.size() == 2 &&
         left[1] == SymDim(1) && right[0] == SymDim(1) && several(left[0]) && several(right[1]);
}

/// Matrix products of half types accumulate in f32 and round once.
ValueId multiplied(Tracer& tracer, ValueId a, ValueId b) {
  if (is_column_times_row(tracer, a, b)) return pointwise(tracer, Op::mul, {a, b});
  const DType dtype = dtype_of(tracer, a), inner = compute_dtype(dtype);
  return cast(tracer, matmul(tracer, cast(tracer, a, inner), cast(tracer, b, inner)), dtype);
}

V product_row(Tracer& tracer, const char* name, const char* second, int left_rank, int right_rank,
              const Arguments& arguments) {
  Parameters p(tracer, name, arguments, std::string("input, ") + second + ", *, out");
  p.unsupported("out");
  Product operands = two_tensors(tracer, p, "input", second);
  if ((left_rank && operands.a->rank() != left_rank) || (right_rank && operands.b->rank() != right_rank))
    refuse(std::string(name) + "() of tensors of these ranks");
  // bmm takes equal batches only.
  if (left_rank == 3 && !same_shape(tracer, {operands.a->shape[0]}, {operands.b->shape[0]}))
    refuse("bmm() of different batches");
  V result = torch_fresh(tracer, multiplied(tracer, tracer.read(*operands.a), tracer.read(*operands.b)));
  if (operands.a->rank() == 1 && operands.b->rank() == 2)
    *array_of(result)->torch_version = 1;  // eager squeezes it in place
  return result;
}

/// beta * input + alpha * (a @ b)
V added_product(Tracer& tracer, const char* name, const char* first, const char* second, int rank,
                const Arguments& arguments) {
  Parameters p(tracer, name, arguments, std::string("input, ") + first + ", " + second + ", *, beta, alpha, out");
  p.unsupported("out");
  Array bias = torch_tensor(tracer, p.required("input"));
  Product operands = two_tensors(tracer, p, first, second);
  if (operands.a->rank() != rank || operands.b->rank() != rank || bias->dtype != operands.a->dtype ||
      !is_float(bias->dtype))
    refuse(std::string(name) + "() of these tensors");
  const double alpha = torch_number(tracer, p, "alpha", 1), beta = torch_number(tracer, p, "beta", 1);
  const DType dtype = bias->dtype, inner = compute_dtype(dtype);
  ValueId value =
      matmul(tracer, cast(tracer, tracer.read(*operands.a), inner), cast(tracer, tracer.read(*operands.b), inner));
  if (alpha != 1) value = with_constant(tracer, Op::mul, value, alpha);
  if (beta != 0) {
    ValueId added = cast(tracer, tracer.read(*bias), inner);
    if (beta != 1) added = with_constant(tracer, Op::mul, added, beta);
    value = emit(tracer, Op::add, {value, broadcast_to(tracer, added, shape_of(tracer, value))});
  }
  return torch_fresh(tracer, cast(tracer, value, dtype));
}

}  // namespace

V torch_matmul(Tracer& tracer, const Arguments& arguments) {
  return product_row(tracer, "matmul", "other", 0, 0, arguments);
}
V torch_mm(Tracer& tracer, const Arguments& arguments) { return product_row(tracer, "mm", "mat2", 2, 2, arguments); }
V torch_bmm(Tracer& tracer, const Arguments& arguments) { return product_row(tracer, "bmm", "mat2", 3, 3, arguments); }
V torch_mv(Tracer& tracer, const Arguments& arguments) { return product_row(tracer, "mv", "vec", 2, 1, arguments); }
V torch_dot(Tracer& tracer, const Arguments& arguments) {
  return product_row(tracer, "dot", "tensor", 1, 1, arguments);
}
V torch_addmm(Tracer& tracer, const Arguments& arguments) {
  return added_product(tracer, "addmm", "mat1", "mat2", 2, arguments);
}
V torch_baddbmm(Tracer& tracer, const Arguments& arguments) {
  return added_product(tracer, "baddbmm", "batch1", "batch2", 3, arguments);
}

V torch_inner(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "inner", arguments, "input, other, *, out");
  p.unsupported("out");
  Product operands = two_tensors(tracer, p, "input", "other");
  if (operands.a->rank() != 1 || operands.b->rank() != 1) return torch_extern(tracer, "inner", arguments);
  return torch_fresh(tracer, multiplied(tracer, tracer.read(*operands.a), tracer.read(*operands.b)));
}

V torch_outer(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "outer", arguments, "input, vec2, *, out");
  p.unsupported("out");
  Array a = torch_tensor(tracer, p.required("input")), b = torch_tensor(tracer, p.required("vec2"));
  if (a->rank() != 1 || b->rank() != 1) refuse("outer() of other than vectors");
  const DType dtype = promote_types(a->dtype, b->dtype);
  ValueId column = reshape(tracer, cast(tracer, tracer.read(*a), dtype), {a->shape[0], SymDim(1)});
  return torch_fresh(tracer, pointwise(tracer, dtype == DType::Bool ? Op::bit_and : Op::mul,
                                       {column, cast(tracer, tracer.read(*b), dtype)}));
}

/// The greatest of each window, as a chain of selections over the windows' first elements, second elements, ... in the
/// order of torch's kernel: of equal elements the first is taken and gets the derivative, the last NaN wins.
V torch_f_max_pool2d(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "max_pool2d", arguments,
               "input, kernel_size, stride, padding, dilation, ceil_mode, return_indices");
  auto pair = [&](const char* name, std::array<std::int64_t, 2> otherwise) {
    V given = p[name];
    if (p.absent(name) || (is_sequence(given) && tracer.sequence_items(given).empty())) return otherwise;
    if (!is_sequence(given)) return std::array{int_argument(tracer, given), int_argument(tracer, given)};
    const std::vector<V> items = tracer.sequence_items(given);
    if (items.size() > 2) p.refuse("more than two numbers");
    return std::array{int_argument(tracer, items.front()), int_argument(tracer, items.back())};
  };
  constexpr std::int64_t kLargestWindow = 9;  // elements; a chain of more is slower than torch's loop
  Array x = torch_tensor(tracer, p.required("input"));
  const auto window = pair("kernel_size", {0, 0}), step = pair("stride", window), padding = pair("padding", {0, 0});
  const auto dilation = pair("dilation", {1, 1});
  if (!is_float(x->dtype) || (x->rank() != 3 && x->rank() != 4) || !is_contiguous(tracer, x->shape, x->strides))
    p.refuse("this input");
  for (int i = x->rank() - 3; i < x->rank(); ++i)
    if (tracer.decide(x->shape[std::size_t(i)], Py_EQ, 0)) p.refuse("an input of no elements");
  if (padding != std::array<std::int64_t, 2>{0, 0} || dilation != std::array<std::int64_t, 2>{1, 1} ||
      p.flag("ceil_mode", false) || p.flag("return_indices", false))
    p.refuse("padding, dilation, ceil_mode or return_indices");
  const std::int64_t elements = window[0] * window[1];
  if (window[0] < 1 || window[1] < 1 || step[0] < 1 || step[1] < 1 || elements == 1 || elements > kLargestWindow)
    p.refuse("this window");
  std::array<SymDim, 2> sizes;
  for (int i : {0, 1}) {
    const SymDim size = x->shape[x->rank() - 2 + i];
    if (tracer.decide(size, Py_LT, window[i])) p.refuse("an input smaller than the window");
    sizes[i] = floor_divide(tracer, size - window[i], step[i]) + 1;
  }
  const ValueId whole = tracer.read(*x);
  // The derivative: each element asks whether it is the one that was taken from its window.
  const bool derived = tracer.requires_gradient(*x);
  ValueId windows{};
  if (derived) {
    const auto rows = x->shape[x->rank() - 2].divide_exactly(window[0]),
               columns = x->shape[x->rank() - 1].divide_exactly(window[1]);
    if (window != step || !rows || !columns) p.refuse("a gradient of windows that overlap or leave elements out");
    Dims shape(x->shape.begin(), x->shape.end() - 2);
    shape.insert(shape.end(), {*rows, SymDim(window[0]), *columns, SymDim(window[1])});
    windows = reshape(tracer, itself(tracer, whole), shape);
  }
  ValueId greatest{}, position{};
  for (std::int64_t row = 0; row < window[0]; ++row)
    for (std::int64_t column = 0; column < window[1]; ++column) {
      const ValueId band = slice(tracer, whole, x->rank() - 2, row, sizes[0], step[0]);
      const ValueId part = slice(tracer, band, x->rank() - 1, column, sizes[1], step[1]);
      if (!greatest.valid()) {
        greatest = part;
        if (derived) position = constant_like(tracer, part, 0);
        continue;
      }
      const ValueId taken =
          emit(tracer, Op::bit_or, {emit(tracer, Op::gt, {part, greatest}), emit(tracer, Op::is_nan, {part})});
      greatest = emit(tracer, Op::where, {taken, part, greatest});
      if (derived)
        position =
            emit(tracer, Op::where, {taken, constant_like(tracer, part, double(row * window[1] + column)), position});
    }
  if (derived)
    composite(tracer, CompositeRule::Picked, {windows}, greatest, {{"axes", Axes{x->rank() - 1, x->rank() + 1}}},
              {position});
  return torch_in_format_of(tracer, x, greatest);
}

V torch_linear(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "linear", arguments, "input, weight, bias");
  Product operands = two_tensors(tracer, p, "input", "weight");
  if (operands.a->rank() == 0 || operands.b->rank() < 1 || operands.b->rank() > 2)
    refuse("linear() of tensors of these ranks");
  if (!is_float(operands.a->dtype) || operands.b->rank() == 1)
    return torch_extern(tracer, "nn.functional.linear", arguments);
  const DType dtype = operands.a->dtype, inner = compute_dtype(dtype);
  ValueId x = cast(tracer, tracer.read(*operands.a), inner), weight = cast(tracer, tracer.read(*operands.b), inner);
  weight = transpose(tracer, weight, {1, 0});
  // One product of matrices, whatever the leading dimensions.
  const Dims shape = operands.a->shape;
  const Dims leading(shape.begin(), shape.end() - 1);
  if (shape.size() > 2) x = reshape(tracer, x, {product(leading), shape.back()});
  ValueId value = shape.size() == 2 && dtype == inner && p.absent("bias") ? multiplied(tracer, x, weight)
                                                                          : matmul(tracer, x, weight);
  if (shape.size() > 2) {
    Dims result = leading;
    result.push_back(operands.b->shape[0]);
    value = reshape(tracer, value, result);
  }
  if (p.absent("bias")) {
    V result = torch_fresh(tracer, cast(tracer, value, dtype));
    if (shape.size() == 1) *array_of(result)->torch_version = 1;  // eager squeezes it in place
    return result;
  }
  Array bias = torch_tensor(tracer, p["bias"]);
  if (bias->dtype != dtype) refuse("linear() with a bias of another dtype");
  value = emit(tracer, Op::add,
               {value, broadcast_to(tracer, cast(tracer, tracer.read(*bias), inner), shape_of(tracer, value))});
  V result = torch_fresh(tracer, cast(tracer, value, dtype));
  // Of a contiguous tensor of other than two dimensions eager returns a view of a matrix product of two.
  if (shape.size() == 2 || !is_contiguous(tracer, shape, operands.a->strides)) {
    // The bias was added in place, which the result's _version shows.
    if (shape.size() > 2) *array_of(result)->torch_version = 1;
    return result;
  }
  Array matrix = array_of(
      torch_fresh(tracer, reshape(tracer, tracer.read(*array_of(result)), {product(leading), operands.b->shape[0]})));
  return view_reshape(tracer, matrix, array_of(result)->shape);
}

// ---- normalisation

V torch_f_layer_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "layer_norm", arguments, "input, normalized_shape, weight, bias, eps, cudnn_enable");
  Array x = torch_tensor(tracer, p.required("input"));
  const Dims shape = dims_argument(tracer, p.required("normalized_shape"));
  if (!is_float(x->dtype) || shape.empty() || shape.size() > x->shape.size()) refuse("layer_norm() of this tensor");
  if (!same_shape(tracer, shape, Dims(x->shape.end() - std::ptrdiff_t(shape.size()), x->shape.end())))
    refuse("layer_norm() over another shape than the tensor's");
  auto factor = [&](const char* name) -> ValueId {
    if (p.absent(name)) return {};
    Array w = torch_tensor(tracer, p[name]);
    if (!same_shape(tracer, w->shape, shape)) refuse("layer_norm() with a weight of another shape");
    if (w->dtype != x->dtype && !(is_half(x->dtype) && w->dtype == DType::F32))
      refuse("layer_norm() with a weight of another dtype");
    return tracer.read(*w);
  };
  ValueId weight = factor("weight"), bias = factor("bias");
  return torch_fresh(tracer,
                     layer_norm(tracer, tracer.read(*x), int(shape.size()), weight, bias, p.number("eps", 1e-5)));
}

// ---- the rest

namespace {

/// What a dropout multiplies with, before it is scaled: ones and zeros of the tensor's dtype, drawn in the order of
/// memory. `channels`: one for each.
V dropout_noise(Tracer& tracer, const Array& x, double kept, bool channels) {
  Dims shape = x->shape;
  for (std::size_t i = 2; channels && i < shape.size(); ++i) shape[i] = SymDim(1);
  const ValueId zeros = broadcast_to(tracer, constant(tracer, x->dtype, 0), shape);
  if (channels || is_contiguous(tracer, x->shape, x->strides)) {
    V like = torch_fresh(tracer, zeros);
    return torch_extern(tracer, "bernoulli", {{like, tracer.real(kept)}, {}});
  }
  V like = tracer.new_array(Library::Torch, zeros,
                            like_strides(tracer, Library::Torch, {x->shape, exact_strides(tracer, *x)}));
  torch_extern(tracer, "Tensor.bernoulli_", {{like, tracer.real(kept)}, {}});
  return like;
}

/// As eager computes it: noise, scaled, and one product; of an alpha dropout a sum besides.
V dropped(Tracer& tracer, const V& input, double probability, bool channels, bool alpha, bool in_place) {
  Array x = torch_tensor(tracer, input);
  if (!(probability >= 0 && probability <= 1)) refuse("dropout() with a probability out of range");
  if (!is_float(x->dtype)) unsupported("dropout() of this dtype");
  if (channels && x->rank() < 2) refuse("dropout() of channels of fewer than two dimensions");
  if (probability == 0 || tracer.decide(product(x->shape), Py_EQ, 0)) return input;  // the tensor itself
  // What a device's kernel draws for it, and in which order, is its own affair.
  if (x->storage->device != kHost) unsupported("dropout of a tensor of " + device_text(x->storage->device));
  V result;
  auto real = [&](double value) { return tracer.real(value); };
  if (probability == 1) {
    result = torch_mul(tracer, {{input, V(torch_fresh(tracer, constant(tracer, x->dtype, 0)))}, {}});
  } else if (alpha) {
    constexpr double kAlpha = 1.7580993408473766;
    const double scale = 1 / std::sqrt((kAlpha * kAlpha * probability + 1) * (1 - probability));
    V noise = dropout_noise(tracer, x, 1 - probability, channels);
    V shift = torch_mul(tracer, {{torch_add(tracer, {{noise, real(-1)}, {}}), real(kAlpha * scale)}, {}});
    shift = torch_add(tracer, {{shift, real(kAlpha * scale * probability)}, {}});
    result = torch_add(tracer,
                       {{torch_mul(tracer, {{input, torch_mul(tracer, {{noise, real(scale)}, {}})}, {}}), shift}, {}});
    ++*array_of(result)->torch_version;  // eager adds in place
  } else {
    V noise =
        torch_true_divide(tracer, {{dropout_noise(tracer, x, 1 - probability, channels), real(1 - probability)}, {}});
    result = torch_mul(tracer, {{input, noise}, {}});
  }
  return in_place ? torch_write(tracer, input, result) : result;
}

}  // namespace

V torch_f_dropout(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "dropout", arguments, "input, p, training, inplace");
  V input = p.required("input");
  torch_tensor(tracer, input);
  const double probability = p.number("p", 0.5);
  if (!(probability >= 0 && probability <= 1)) refuse("dropout() with a probability out of range");
  // Not in training eager returns the tensor itself.
  if (!p.flag("training", true)) return input;
  return dropped(tracer, input, probability, false, false, p.flag("inplace", false));
}

namespace {

/// torch.dropout and its like: what the functions of nn.functional call.
V dropout_row(Tracer& tracer, const Arguments& arguments, bool channels, bool alpha) {
  Parameters p(tracer, "dropout", arguments, "input, p, train");
  V input = p.required("input");
  torch_tensor(tracer, input);
  if (p.absent("p") || p.absent("train")) refuse("dropout() without its arguments");
  const double probability = p.number("p", 0);
  if (!(probability >= 0 && probability <= 1)) refuse("dropout() with a probability out of range");
  return p.flag("train", true) ? dropped(tracer, input, probability, channels, alpha, false) : input;
}

/// Attention whose mask requires a gradient has no kernel of its own on the CPU: torch computes it by operations. The
/// mask that a program gives to the call requires none, so that what the call is says it.
V attention_with_derived_mask(Tracer& tracer, const Parameters& p) {
  const Ref<> enabled = imported("torch._C", "_get_math_sdp_enabled");
  const Ref<> answer = enabled ? Ref<>::steal(PyObject_CallNoArgs(enabled.get())) : Ref<>();
  PyErr_Clear();
  if (answer.get() != Py_True) unsupported("attention without its operations");
  PyObject* const function =
      once([] { return imported("framejit._support.torch", "attention_by_operations").release(); });
  FJ_CHECK(function, "framejit._support.torch.attention_by_operations");
  return tracer.call(
      tracer.constant(Ref<>::borrow(function)),
      {p["query"], p["key"], p["value"], p["attn_mask"], tracer.boolean(p.flag("is_causal", false)),
       p.absent("scale") ? tracer.none() : p["scale"], tracer.boolean(p.flag("enable_gqa", false))});
}

}  // namespace

V torch_dropout(Tracer& tracer, const Arguments& arguments) { return dropout_row(tracer, arguments, false, false); }
V torch_feature_dropout(Tracer& tracer, const Arguments& arguments) {
  return dropout_row(tracer, arguments, true, false);
}
V torch_alpha_dropout(Tracer& tracer, const Arguments& arguments) {
  return dropout_row(tracer, arguments, false, true);
}
V torch_feature_alpha_dropout(Tracer& tracer, const Arguments& arguments) {
  return dropout_row(tracer, arguments, true, true);
}

/// What torch.nn.TransformerEncoderLayer calls in eval: its products are then ours, and what is between them fuses.
V torch_encoder_layer(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "_transformer_encoder_layer_fwd", arguments,
               "src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, "
               "norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, "
               "ffn_bias_2, mask, mask_type");
  const Array src = torch_tensor(tracer, p.required("src"));
  if (!p.absent("mask") || src->rank() != 3 || !is_float(src->dtype) || size_in_bytes(src->dtype) < 4)
    unsupported("an encoder layer of this kind");
  PyObject* const function = once([] { return imported("framejit._support.torch", "encoder_layer").release(); });
  FJ_CHECK(function, "framejit._support.torch.encoder_layer");
  const auto pair = [&](const char* weight, const char* bias) {
    return tracer.tuple({p.required(weight), p.required(bias)});
  };
  return tracer.call(tracer.constant(Ref<>::borrow(function)),
                     {src, p.required("num_heads"), p.required("qkv_weight"), p.required("qkv_bias"),
                      p.required("proj_weight"), p.required("proj_bias"), p.required("use_gelu"),
                      p.required("norm_first"), p.required("eps"), pair("norm_weight_1", "norm_bias_1"),
                      pair("norm_weight_2", "norm_bias_2"), pair("ffn_weight_1", "ffn_bias_1"),
                      pair("ffn_weight_2", "ffn_bias_2")});
}

/// What torch.nn.MultiheadAttention calls in eval: likewise.
V torch_multi_head_attention(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "_native_multi_head_attention", arguments,
               "query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, "
               "need_weights, average_attn_weights, mask_type");
  const Array query = torch_tensor(tracer, p.required("query"));
  if (!p.absent("mask") || query->rank() != 3 || !is_float(query->dtype) || size_in_bytes(query->dtype) < 4)
    unsupported("attention of this kind");
  PyObject* const function =
      once([] { return imported("framejit._support.torch", "multi_head_attention").release(); });
  FJ_CHECK(function, "framejit._support.torch.multi_head_attention");
  return tracer.call(tracer.constant(Ref<>::borrow(function)),
                     {p.required("query"), p.required("key"), p.required("value"), p.required("num_head"),
                      p.required("qkv_weight"), p.required("qkv_bias"), p.required("proj_weight"),
                      p.required("proj_bias"), tracer.boolean(p.flag("need_weights", true)),
                      tracer.boolean(p.flag("average_attn_weights", true))});
}

bool is_derived_attention(Tracer& tracer, const Parameters& p) {
  bool derived = false;
  for (const char* name : {"query", "key", "value"})
    derived = derived || tracer.requires_gradient(*torch_tensor(tracer, p.required(name)));
  return derived;
}

/// Of scores, which backward has all at once, or of a quarter of the rows.
constexpr std::int64_t kDerivedScores = std::int64_t(64) << 20;  // bytes

/// Whether torch has a kernel of its own for this attention, which keeps no matrix of scores (sdp_utils_cpp.cpp of
/// torch, use_flash_attention_cpp), and we can be as sparing. Sizes that do not fit are no such either: torch refuses
/// them.
bool is_blocked_attention(Tracer& tracer, const Parameters& p, bool grouped) {
  Ref<> enabled = imported("torch._C", "_get_flash_sdp_enabled");
  if (!enabled || !tracer.truth(tracer.call(tracer.constant(std::move(enabled)), {}))) return PyErr_Clear(), false;
  std::vector<Array> parts;
  for (const char* name : {"query", "key", "value"}) {
    const Array part = torch_tensor(tracer, p.required(name));
    const bool fits = part->storage->device == kHost && (part->dtype == DType::F32 || part->dtype == DType::F64) &&
                      part->rank() == 4 && tracer.decide(part->strides[3], Py_EQ, 1);
    if (!fits || (!parts.empty() && part->dtype != parts[0]->dtype)) return false;
    for (const SymDim& size : part->shape)
      if (tracer.decide(size, Py_EQ, 0)) return false;
    parts.push_back(part);
  }
  const auto &query = parts[0]->shape, &key = parts[1]->shape, &value = parts[2]->shape;
  const auto same = [&](const SymDim& a, const SymDim& b) { return tracer.decide(a, Py_EQ, b); };
  if (!same(query[0], key[0]) || !same(query[0], value[0]) || !same(key[1], value[1]) || !same(key[2], value[2]) ||
      !same(query[3], key[3]) || !same(query[3], value[3]) || (!grouped && !same(query[1], key[1])))
    return false;
  const std::int64_t most = kDerivedScores / std::int64_t(size_in_bytes(parts[0]->dtype));
  if (is_derived_attention(tracer, p) && !tracer.only_operations() &&
      !tracer.prefers(query[0] * query[1] * query[2] * key[2], Py_LE, most))
    return false;
  if (p.absent("attn_mask")) return true;
  const Array mask = torch_tensor(tracer, p["attn_mask"]);
  if (mask->storage->device != kHost || (mask->dtype != DType::Bool && mask->dtype != parts[0]->dtype) ||
      (mask->rank() != 2 && mask->rank() != 4) || tracer.requires_gradient(*mask) || p.flag("is_causal", false))
    return false;
  const SymDim scores[] = {query[0], query[1], query[2], key[2]};
  for (int i = 0; i < mask->rank(); ++i)
    if (const SymDim& size = mask->shape[i]; !same(size, 1) && !same(size, scores[i + 4 - mask->rank()])) return false;
  return true;
}

/// Attention that drops some of its weights has no kernel of its own on the CPU either, and we compute it by operations
/// too; so we do where torch has one. Any other is one call.
V torch_f_attention(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "scaled_dot_product_attention", arguments,
               "query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa");
  if (p.absent("dropout_p") || p.number("dropout_p", 0) == 0) {
    const Array mask = p.absent("attn_mask") ? Array() : array_of(p["attn_mask"]);
    if (mask && mask->storage->device == kHost && tracer.requires_gradient(*mask) && !p.flag("is_causal", false))
      return attention_with_derived_mask(tracer, p);
    const bool grouped = p.flag("enable_gqa", false);
    if (!is_blocked_attention(tracer, p, grouped)) unsupported("attention that drops nothing");
    PyObject* const function = once([] { return imported("framejit._support.torch", "blocked_attention").release(); });
    FJ_CHECK(function, "framejit._support.torch.blocked_attention");
    const bool derived = is_derived_attention(tracer, p);
    const V result =
        tracer.call(tracer.constant(Ref<>::borrow(function)),
                    {p["query"], p["key"], p["value"], p.absent("attn_mask") ? tracer.none() : p["attn_mask"],
                     tracer.boolean(p.flag("is_causal", false)), p.absent("scale") ? tracer.none() : p["scale"],
                     tracer.boolean(derived)});
    if (derived) {  // what torch's kernel saves
      std::vector<ValueId> saved;
      const Array made = array_of(result);
      for (const char* name : {"query", "key", "value"}) saved.push_back(tracer.read(*torch_tensor(tracer, p[name])));
      saved.push_back(tracer.read(*made));
      tracer.also_saves(made->storage->contents, std::move(saved));
    }
    return result;
  }
  if (p.number("dropout_p", 0) < 0 || p.number("dropout_p", 0) >= 1 || p.flag("enable_gqa", false))
    unsupported("attention of this kind");
  Array query = torch_tensor(tracer, p.required("query"));
  if (query->storage->device != kHost) unsupported("attention of tensors of " + device_text(query->storage->device));
  for (const char* name : {"query", "key", "value"}) {
    Array part = torch_tensor(tracer, p.required(name));
    if (part->dtype != query->dtype || (part->dtype != DType::F32 && part->dtype != DType::F64) || part->rank() < 2)
      unsupported("attention of these tensors");
  }
  PyObject* const function = once([] { return imported("framejit._support.torch", "attention").release(); });
  FJ_CHECK(function, "framejit._support.torch.attention");
  return tracer.call(
      tracer.constant(Ref<>::borrow(function)),
      {p["query"], p["key"], p["value"], p.absent("attn_mask") ? tracer.none() : p["attn_mask"], p["dropout_p"],
       tracer.boolean(p.flag("is_causal", false)), p.absent("scale") ? tracer.none() : p["scale"]});
}

V torch_f_embedding(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "embedding", arguments,
               "input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse");
  if (!p.absent("max_norm")) p.refuse("max_norm");  // writes into the weight
  Array index = torch_tensor(tracer, p.required("input")), weight = torch_tensor(tracer, p.required("weight"));
  if ((index->dtype != DType::I64 && index->dtype != DType::I32) || weight->rank() != 2)
    refuse("embedding() of these tensors");
  require_device_of(index, weight->storage->device);  // also an index of one element
  const std::int64_t padding = p.absent("padding_idx") ? 0 : p.integer("padding_idx", 0);
  if (!p.absent("padding_idx") &&
      (tracer.decide(weight->shape[0], Py_LE, padding) || tracer.decide(weight->shape[0] + padding, Py_LT, 0)))
    p.refuse("padding_idx out of range");
  ValueId wide = cast(tracer, tracer.read(*index), DType::I64);
  // torch takes no negative indices: sent out of range, where the program fails and eager raises.
  ValueId beyond = broadcast_to(tracer, size_value(tracer, weight->shape[0], DType::I64), index->shape);
  wide = emit(tracer, Op::where, {with_constant(tracer, Op::lt, wide, 0), beyond, wide});
  ValueId rows = gather(tracer, tracer.read(*weight), wide, 0);
  if (tracer.requires_gradient(*weight)) {
    if (p.flag("sparse", false) || p.flag("scale_grad_by_freq", false))
      break_graph(BreakReason::Gradient, "embedding() whose gradient is sparse or scaled");
    if (!p.absent("padding_idx")) {
      // The row of the padding gets no gradient.
      const std::int64_t row = padding < 0 ? padding + concrete(tracer, weight->shape[0]) : padding;
      Attrs attrs;
      attrs.set("shape", shape_of(tracer, rows));
      const ValueId fixed = emit(tracer, Op::reshape, {rows}, std::move(attrs));
      tracer.composite(CompositeRule::Stop, {}, fixed);
      const ValueId is_padding = expand_axis(tracer, with_constant(tracer, Op::eq, wide, double(row)), index->rank());
      rows = pointwise(tracer, Op::where, {broadcast_to(tracer, is_padding, shape_of(tracer, rows)), fixed, rows});
    }
  }
  return torch_fresh(tracer, rows);
}

V torch_no_override(Tracer& tracer, const Arguments& arguments) {
  // Operands are exactly Tensor or Parameter, or the tracer would not hold them as arrays; other objects may override.
  for (const V& argument : arguments.positional) {
    if (array_of(argument)) continue;
    if (argument->kind == ValueKind::Tuple || argument->kind == ValueKind::List) {
      for (const V& item : tracer.sequence_items(argument))
        if (!array_of(item) && !tracer.constant_object(item))
          unsupported("an object that may override torch functions");
      continue;
    }
    if (!tracer.constant_object(argument)) unsupported("an object that may override torch functions");
  }
  return tracer.boolean(false);
}

V torch_is_tensor(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "is_tensor", arguments, "obj");
  Array x = array_of(p.required("obj"));
  if (!x && !tracer.constant_object(p["obj"])) unsupported("is_tensor() of this object");
  return tracer.boolean(x && x->library == Library::Torch);
}

V torch_is_floating_point(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "is_floating_point", arguments, "input");
  return tracer.boolean(is_float(torch_tensor(tracer, p.required("input"))->dtype));
}

V torch_is_complex(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "is_complex", arguments, "input");
  return tracer.boolean(is_complex(torch_tensor(tracer, p.required("input"))->dtype));
}

V torch_tolist(Tracer& tracer, const Arguments& arguments) {
  return elements_as_numbers(tracer, arguments, "a tensor's elements become Python numbers");
}
V torch_unsupported_row(Tracer&, const Arguments&) { unsupported("a torch function that needs the real tensor"); }
/// What the tensor does anyway, or a leaf of a new one. Else torch has to make a leaf of it, or to refuse.
V torch_requires_grad(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "requires_grad_", arguments, "input, requires_grad");
  Array x = torch_tensor(tracer, p.required("input"));
  const bool wanted = p.flag("requires_grad", true), now = x->source ? x->requires_grad : tracer.requires_gradient(*x);
  tracer.note_autograd(*x, AutogradFact::RequiresGrad, x->requires_grad);
  if (wanted != now && !(wanted && tracer.make_leaf(x))) unsupported("a torch function that needs the real tensor");
  return x;
}
/// Of a tensor that is made for it, as in a layer made in forward.
V torch_parameter(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "Parameter", arguments, "data, requires_grad");
  V made = tracer.make_parameter(torch_tensor(tracer, p.required("data")), p.flag("requires_grad", true));
  if (!made) unsupported("a Parameter of a tensor that others may have");
  return made;
}
V torch_data_dependent(Tracer&, const Arguments&) {
  break_graph(BreakReason::DataDependentShape, "a torch function whose result size depends on data");
}

}  // namespace fj
