/// group_norm, instance_norm, batch_norm and rms_norm. layer_norm, which NumPy's front end knows too, is in composites.
#include "tracer/frontends/composites.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

Dims channel_shape(const Array& x) {
  Dims shape(x->shape.size(), SymDim(1));
  shape[1] = x->shape[1];
  return shape;
}

ValueId per_channel(Tracer& tracer, const V& value, const Array& x, DType dtype) {
  Array vector = torch_tensor(tracer, value);
  if (vector->rank() != 1 || !same_shape(tracer, vector->shape, {x->shape[1]}))
    refuse("a weight that does not fit the channels");
  return reshape(tracer, cast(tracer, tracer.read(*vector), dtype), channel_shape(x));
}

/// torch's CPU kernels take parameters of the tensor's own dtype, or all of them in float32 beside a half type.
void require_dtypes_that_fit(Tracer& tracer, const Parameters& p, const Array& x,
                             std::initializer_list<const char*> names) {
  bool own = true, wide = is_half(x->dtype);
  for (const char* name : names) {
    if (p.absent(name)) continue;
    const DType dtype = torch_tensor(tracer, p[name])->dtype;
    own = own && dtype == x->dtype;
    wide = wide && dtype == DType::F32;
  }
  if (!own && !wide) p.refuse("parameters of another dtype than the tensor's");
}

}  // namespace

V torch_f_group_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "group_norm", arguments, "input, num_groups, weight, bias, eps");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t groups = int_argument(tracer, p.required("num_groups"));
  if (x->rank() < 2 || !is_float(x->dtype) || groups < 1) refuse("group_norm() of this tensor");
  require_dtypes_that_fit(tracer, p, x, {"weight", "bias"});
  auto size = x->shape[1].divide_exactly(SymDim(groups));
  if (!size) refuse("group_norm() whose channels are not divisible");
  if (tracer.decide(product(x->shape), Py_EQ, 0)) unsupported("group_norm() of no elements");
  if (tracer.decide(*size * product(Dims(x->shape.begin() + 2, x->shape.end())) * x->shape[0], Py_EQ, 1))
    refuse("group_norm() of one value");
  ValueId value = in_compute_dtype(tracer, tracer.read(*x), [&](ValueId wide) {
    const DType dtype = dtype_of(tracer, wide);
    const SymDim inner = *size * product(std::span(x->shape).subspan(2));
    ValueId grouped = reshape(tracer, wide, {x->shape[0], SymDim(groups), inner});
    ValueId result = reshape(tracer, layer_norm(tracer, grouped, 1, {}, {}, p.number("eps", 1e-5)), x->shape);
    if (!p.absent("weight")) result = pointwise(tracer, Op::mul, {result, per_channel(tracer, p["weight"], x, dtype)});
    if (!p.absent("bias")) result = pointwise(tracer, Op::add, {result, per_channel(tracer, p["bias"], x, dtype)});
    return result;
  });
  return torch_in_format_of(tracer, x, value);
}

namespace {

/// torch.batch_norm or torch.instance_norm, which write the running statistics. cuDNN is asked for nothing on the CPU.
V library_norm(Tracer& tracer, const char* name, const Parameters& p, const Array& x, bool of_batch, double momentum) {
  auto optional = [&](const char* parameter) { return p.absent(parameter) ? tracer.none() : p[parameter]; };
  // More than one value per channel, or torch refuses.
  if (x->rank() < 2) refuse("statistics of this tensor");
  SymDim count = of_batch ? x->shape[0] : SymDim(1);
  for (int i = 2; i < x->rank(); ++i) count = count * x->shape[i];
  if (!tracer.decide(count, Py_GT, 1)) refuse("statistics of one value");
  return torch_extern(
      tracer, name,
      {{p.required("input"), optional("weight"), optional("bias"), optional("running_mean"), optional("running_var"),
        tracer.boolean(true), tracer.real(momentum), tracer.real(p.number("eps", 1e-5)), tracer.boolean(false)},
       {}});
}

}  // namespace

V torch_f_instance_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "instance_norm", arguments,
               "input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps");
  if (!p.flag("use_input_stats", true)) unsupported("instance_norm() by running statistics");
  return library_norm(tracer, "instance_norm", p, torch_tensor(tracer, p.required("input")), false,
                      p.number("momentum", 0.1));
}

namespace {

/// torch's kernels are for row-major tensors, for channels last, and for others; axes of one element count for neither
/// of the first two.
V torch_in_kernels_format(Tracer& tracer, const Array& x, ValueId value) {
  if (is_contiguous(tracer, x->shape, x->strides)) return torch_fresh(tracer, value);
  if (is_channels_last(tracer, x->shape, x->strides))
    return tracer.new_array(Library::Torch, value, channels_last(x->shape));
  return torch_in_format_of(tracer, x, value);
}

/// Of the batch's own statistics: a layer norm of each channel. The running ones are written without telling anybody:
/// eager's kernel moves no version counter, and nothing flows into them.
V batch_norm_in_training(Tracer& tracer, const Parameters& p, const Array& x, double momentum) {
  const DType inner = compute_dtype(x->dtype);
  const double epsilon = p.number("eps", 1e-5);
  if (epsilon <= 0) p.refuse("eps that is not positive");
  require_dtypes_that_fit(tracer, p, x, {"weight", "bias", "running_mean", "running_var"});
  std::vector<Array> running;
  for (const char* name : {"running_mean", "running_var"})
    if (!p.absent(name)) running.push_back(torch_tensor(tracer, p[name]));
  bool fits = is_float(x->dtype) && x->rank() >= 2 && running.size() != 1;
  for (const Array& array : running) fits = fits && array->rank() == 1 && !tracer.requires_gradient(*array);
  for (const char* name : {"weight", "bias"})
    for (const Array& array : running)
      if (!p.absent(name) && torch_tensor(tracer, p[name])->storage == array->storage)
        p.refuse("a parameter that is a running statistic");
  if (!fits) return library_norm(tracer, "batch_norm", p, x, true, momentum);
  const SymDim rest = product(std::span(x->shape).subspan(2));
  if (!tracer.decide(x->shape[0] * rest, Py_GT, 1)) refuse("statistics of one value");
  ValueId rows{};
  ValueId value = in_compute_dtype(tracer, tracer.read(*x), [&](ValueId wide) {
    rows = transpose(tracer, reshape(tracer, wide, {x->shape[0], x->shape[1], rest}), {1, 0, 2});
    ValueId result =
        reshape(tracer, transpose(tracer, layer_norm(tracer, rows, 2, {}, {}, epsilon), {1, 0, 2}), x->shape);
    if (!p.absent("weight")) result = pointwise(tracer, Op::mul, {result, per_channel(tracer, p["weight"], x, inner)});
    if (!p.absent("bias")) result = pointwise(tracer, Op::add, {result, per_channel(tracer, p["bias"], x, inner)});
    return result;
  });
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (!same_shape(tracer, running[i]->shape, {x->shape[1]}))
      refuse("running statistics that do not fit the channels");
    ValueId batch = i == 0 ? mean(tracer, rows, {1, 2}, false) : variance(tracer, rows, {1, 2}, 1, false);
    Attrs attrs;
    attrs.set("shape", running[i]->shape);
    batch = emit(tracer, Op::reshape, {batch}, std::move(attrs));
    tracer.composite(CompositeRule::Stop, {}, batch);
    // Rounded once, as eager does.
    const ValueId old = cast(tracer, tracer.read(*running[i]), DType::F64);
    assign(tracer, *running[i],
           emit(tracer, Op::add,
                {with_constant(tracer, Op::mul, cast(tracer, batch, DType::F64), momentum),
                 with_constant(tracer, Op::mul, old, 1 - momentum)}));
    --*running[i]->torch_version;
  }
  return torch_in_kernels_format(tracer, x, value);
}

}  // namespace

V torch_batch_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "batch_norm", arguments,
               "input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled");
  Arguments passed;
  for (const char* name : {"input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"})
    passed.positional.push_back(p.required(name));
  return torch_f_batch_norm(tracer, passed);
}

V torch_f_batch_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "batch_norm", arguments,
               "input, running_mean, running_var, weight, bias, training, momentum, eps");
  Array x = torch_tensor(tracer, p.required("input"));
  if (p["momentum"] && p.absent("momentum")) p.refuse("a momentum that is None");
  if (p.flag("training", false)) return batch_norm_in_training(tracer, p, x, p.number("momentum", 0.1));
  for (const char* name : {"input", "weight", "bias"})
    if (!p.absent(name) && tracer.requires_gradient(*torch_tensor(tracer, p[name])))
      p.refuse("running statistics and a gradient");
  if (p.absent("running_mean") || p.absent("running_var")) refuse("batch_norm() without running statistics");
  if (x->rank() < 2 || !is_float(x->dtype)) refuse("batch_norm() of this tensor");
  if (tracer.decide(product(x->shape), Py_EQ, 0)) p.refuse("a tensor of no elements");
  const double epsilon = p.number("eps", 1e-5);
  if (epsilon < 0) p.refuse("eps that is negative");
  require_dtypes_that_fit(tracer, p, x, {"weight", "bias", "running_mean", "running_var"});
  ValueId value = in_compute_dtype(tracer, tracer.read(*x), [&](ValueId wide) {
    const DType dtype = dtype_of(tracer, wide);
    ValueId mean = per_channel(tracer, p["running_mean"], x, dtype),
            spread = per_channel(tracer, p["running_var"], x, dtype);
    // As eager: one factor and one offset per channel.
    ValueId scale =
        constant_with(tracer, Op::div, 1, emit(tracer, Op::sqrt, {with_constant(tracer, Op::add, spread, epsilon)}));
    if (!p.absent("weight")) scale = emit(tracer, Op::mul, {scale, per_channel(tracer, p["weight"], x, dtype)});
    ValueId offset = emit(tracer, Op::neg, {emit(tracer, Op::mul, {mean, scale})});
    if (!p.absent("bias")) offset = emit(tracer, Op::add, {per_channel(tracer, p["bias"], x, dtype), offset});
    return pointwise(tracer, Op::add, {pointwise(tracer, Op::mul, {wide, scale}), offset});
  });
  return torch_in_kernels_format(tracer, x, value);
}

V torch_f_rms_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "rms_norm", arguments, "input, normalized_shape, weight, eps");
  Array x = torch_tensor(tracer, p.required("input"));
  const V given = p.required("normalized_shape");
  if (PyObject* constant = tracer.constant_object(given); constant && PyLong_Check(constant))
    p.refuse("a shape that is no tuple");
  const Dims shape = dims_argument(tracer, given);
  if (!is_float(x->dtype) || shape.empty() || shape.size() > x->shape.size()) refuse("rms_norm() of this tensor");
  if (!same_shape(tracer, shape, Dims(x->shape.end() - std::ptrdiff_t(shape.size()), x->shape.end())))
    refuse("rms_norm() over another shape");
  ValueId weight{};
  if (!p.absent("weight")) {
    Array w = torch_tensor(tracer, p["weight"]);
    if (w->dtype != x->dtype || !same_shape(tracer, w->shape, shape)) unsupported("rms_norm() with such a weight");
    weight = tracer.read(*w);
  }
  const double epsilon = !p.absent("eps")         ? p.number("eps", 0)
                         : x->dtype == DType::F64 ? 2.220446049250313e-16
                                                  : 1.1920928955078125e-07;
  const ValueId value = rms_norm(tracer, tracer.read(*x), int(shape.size()), weight, epsilon);
  Axes axes = all_axes(x->rank());
  axes.erase(axes.begin(), axes.end() - std::ptrdiff_t(shape.size()));
  // Eager's composite is given what is dense in one of torch's formats: else x is copied into one.
  V scaled = is_contiguous(tracer, x->shape, x->strides) ? torch_beside_statistics(tracer, x, axes, value)
                                                         : torch_in_format_of(tracer, x, value);
  return weight.valid()
             ? torch_elementwise(tracer, value, {torch_operand(tracer, scaled), torch_operand(tracer, p["weight"])})
             : scaled;
}

}  // namespace fj
