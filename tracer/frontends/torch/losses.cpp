/// Losses: pointwise ones, and those of classes given by their indices.
#include "tracer/frontends/composites.h"
#include "tracer/frontends/indexing.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// mean, sum or nothing of a pointwise loss.
V reduced_loss(Tracer& tracer, const Parameters& p, ValueId value, const TorchOperands& operands) {
  p.unsupported("size_average, reduce, weight");
  const std::string reduction = p.text("reduction", "mean");
  if (reduction == "none") return torch_elementwise(tracer, value, operands);
  const Axes axes = all_axes(int(shape_of(tracer, value).size()));
  if (reduction == "sum") return torch_fresh(tracer, sum(tracer, value, axes, false));
  if (reduction == "mean") return torch_fresh(tracer, mean(tracer, value, axes, false));
  refuse("a loss with an unknown reduction");
}

V pointwise_loss(Tracer& tracer, const char* name, const Arguments& arguments, bool square) {
  Parameters p(tracer, name, arguments, "input, target, size_average, reduce, reduction, weight");
  TorchOperands operands{torch_operand(tracer, p.required("input")), torch_operand(tracer, p.required("target"))};
  for (const TorchOperand& operand : operands)
    if (!operand.array) refuse("a number where torch takes a tensor");
  // torch warns where the shapes differ.
  if (!same_shape(tracer, operands[0].array->shape, operands[1].array->shape))
    unsupported("a loss of tensors of different shapes");
  const DType dtype = torch_result_type(operands);
  if (!is_float(dtype) || operands[0].dtype == DType::Bool || operands[1].dtype == DType::Bool)
    unsupported("a loss of integers");
  if (square && tracer.device() != kHost && operands[0].dtype != operands[1].dtype &&
      (tracer.requires_gradient(*operands[0].array) || tracer.requires_gradient(*operands[1].array)))
    unsupported("a loss of two dtypes on a device");  // torch's derivative of it raises an error there
  // In the input's own sizes, which are equal by a guard.
  const ValueId x = torch_value(tracer, operands[0], dtype),
                target = broadcast_to(tracer, torch_value(tracer, operands[1], dtype), shape_of(tracer, x));
  ValueId value = pointwise(tracer, Op::sub, {x, target});
  value = square
              ? composite(tracer, CompositeRule::SquaredDifference, {x, target}, emit(tracer, Op::mul, {value, value}))
              : emit(tracer, Op::abs, {value});
  return reduced_loss(tracer, p, value, operands);
}

}  // namespace

V torch_f_mse_loss(Tracer& tracer, const Arguments& arguments) {
  return pointwise_loss(tracer, "mse_loss", arguments, true);
}
V torch_f_l1_loss(Tracer& tracer, const Arguments& arguments) {
  return pointwise_loss(tracer, "l1_loss", arguments, false);
}

// ---- classes

namespace {

/// What is known of each row of an input [rows, classes] or [n, classes, d...]: rows are all dimensions but the
/// classes'.
struct Classes {
  std::int64_t axis;   // of the classes
  SymDim count;
  Dims rows;
  ValueId ignored;     // bool[rows]
  ValueId index;       // i64[rows]: a valid index where ignored
  ValueId weight;      // [rows]: that of the class, 0 where ignored; invalid: none given
  ValueId weights;     // [classes]; invalid: none given
};

/// Breaks where torch's own function has to run: it raises, or rounds after every step (half types), or the target
/// holds probabilities.
Classes classes(Tracer& tracer, const Parameters& p) {
  p.unsupported("size_average, reduce");
  const Array x = torch_tensor(tracer, p.required("input")), target = torch_tensor(tracer, p.required("target"));
  if ((x->dtype != DType::F32 && x->dtype != DType::F64) || target->dtype != DType::I64)
    p.refuse("tensors of these dtypes");
  if (x->rank() == 0 || target->rank() + 1 != x->rank()) p.refuse("a target of this rank");
  Classes c;
  c.axis = x->rank() == 1 ? 0 : 1;
  c.count = x->shape[std::size_t(c.axis)];
  c.rows = x->shape;
  c.rows.erase(c.rows.begin() + c.axis);
  if (!same_shape(tracer, c.rows, target->shape) || tracer.decide(c.count, Py_EQ, 0))
    p.refuse("a target of this shape");

  // In the input's own sizes, which are equal by a guard.
  const ValueId wide = broadcast_to(tracer, tracer.read(*target), c.rows);
  auto number = [&](std::int64_t value) { return broadcast_to(tracer, constant(tracer, DType::I64, value), c.rows); };
  c.ignored = emit(tracer, Op::eq, {wide, number(p.integer("ignore_index", -100))});
  c.index = emit(tracer, Op::where, {c.ignored, number(0), wide});
  // torch takes no negative indices: sent out of range, where the program fails and eager raises.
  const ValueId beyond = broadcast_to(tracer, size_value(tracer, c.count, DType::I64), c.rows);
  c.index = emit(tracer, Op::where, {emit(tracer, Op::lt, {c.index, number(0)}), beyond, c.index});
  if (p.absent("weight")) return c;
  const Array weight = torch_tensor(tracer, p["weight"]);
  if (weight->dtype != x->dtype || !same_shape(tracer, weight->shape, {c.count}) || tracer.requires_gradient(*weight))
    p.refuse("this weight");
  c.weights = broadcast_to(tracer, tracer.read(*weight), {c.count});
  const ValueId of_rows = gather(tracer, c.weights, c.index, 0);
  c.weight = emit(tracer, Op::where, {c.ignored, constant_like(tracer, of_rows, 0), of_rows});
  return c;
}

ValueId without_ignored(Tracer& tracer, const Classes& c, ValueId loss) {
  return emit(tracer, Op::where, {c.ignored, constant_like(tracer, loss, 0), loss});
}

/// The total over what counts: rows that are not ignored, by their weight.
ValueId averaged(Tracer& tracer, const Classes& c, ValueId total) {
  const Axes axes = all_axes(int(c.rows.size()));
  if (c.weight.valid()) return emit(tracer, Op::div, {total, reduce(tracer, Op::reduce_sum, c.weight, axes, false)});
  const ValueId counts = cast(tracer, emit(tracer, Op::logical_not, {c.ignored}), DType::I64);
  return emit(tracer, Op::div,
              {total, cast(tracer, reduce(tracer, Op::reduce_sum, counts, axes, false), dtype_of(tracer, total))});
}

ValueId reduced(Tracer& tracer, const Parameters& p, const Classes& c, ValueId loss) {
  const std::string reduction = p.text("reduction", "mean");
  // Of other ranks a loss for each row is a view.
  const std::size_t rank = c.rows.size() + 1;
  // A sum begins with 0.0, which shows where it has one element: -0.0. Of one row torch gives the sum whatever is asked
  // for.
  if (c.rows.empty()) loss = with_constant(tracer, Op::add, loss, 0);
  if (reduction == "none" && (rank <= 2 || rank == 4)) return loss;
  if (reduction != "mean" && reduction != "sum") p.refuse("this reduction");
  const ValueId total = reduce(tracer, Op::reduce_sum, loss, all_axes(int(c.rows.size())), false);
  return reduction == "mean" ? averaged(tracer, c, total) : total;
}

/// -log(probability of the target's class), times its weight.
ValueId likelihood_loss(Tracer& tracer, const Parameters& p, const Classes& c, ValueId logarithms) {
  Attrs attrs;
  attrs.set("axis", c.axis);
  const ValueId picked =
      emit(tracer, Op::take_along, {logarithms, expand_axis(tracer, c.index, c.axis)}, std::move(attrs));
  // The derivative lies at the class alone, also -0.0, and nowhere in a row that is ignored.
  const ValueId nowhere = broadcast_to(tracer, constant(tracer, DType::I64, -1), c.rows);
  const ValueId of_class =
      composite(tracer, CompositeRule::Picked, {logarithms}, reshape(tracer, picked, c.rows),
                {{"axis", c.axis}, {"compared", true}}, {emit(tracer, Op::where, {c.ignored, nowhere, c.index})});
  ValueId loss = emit(tracer, Op::neg, {of_class});
  if (c.weight.valid()) loss = emit(tracer, Op::mul, {loss, c.weight});
  return reduced(tracer, p, c, without_ignored(tracer, c, loss));
}

/// The mean over all classes in the target's place.
ValueId smooth_loss(Tracer& tracer, const Parameters& p, const Classes& c, ValueId logarithms) {
  if (c.weights.valid()) {
    Dims along(c.rows.size() + 1, SymDim(1));
    along[std::size_t(c.axis)] = c.count;
    logarithms = pointwise(tracer, Op::mul, {logarithms, reshape(tracer, c.weights, along)});
  }
  const ValueId sums = emit(tracer, Op::neg, {reduce(tracer, Op::reduce_sum, logarithms, {c.axis}, false)});
  return reduced(tracer, p, c, without_ignored(tracer, c, sums));
}

}  // namespace

V torch_f_nll_loss(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "nll_loss", arguments, "input, target, weight, size_average, ignore_index, reduce, reduction");
  const Classes c = classes(tracer, p);
  return torch_fresh(tracer,
                     likelihood_loss(tracer, p, c, itself(tracer, tracer.read(*torch_tensor(tracer, p["input"])))));
}

V torch_f_cross_entropy(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "cross_entropy", arguments,
               "input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing");
  const Classes c = classes(tracer, p);
  const double smoothing = p.number("label_smoothing", 0);
  if (!(smoothing >= 0 && smoothing <= 1)) p.refuse("this label_smoothing");
  const ValueId logarithms = log_softmax(tracer, tracer.read(*torch_tensor(tracer, p["input"])), c.axis);
  const ValueId loss = likelihood_loss(tracer, p, c, logarithms);
  if (smoothing == 0) return torch_fresh(tracer, loss);
  const ValueId smooth = smooth_loss(tracer, p, c, logarithms);
  const DType dtype = dtype_of(tracer, loss);
  const ValueId share =
      emit(tracer, Op::div, {constant(tracer, DType::F64, smoothing), size_value(tracer, c.count, DType::F64)});
  return torch_fresh(tracer, pointwise(tracer, Op::add,
                                       {with_constant(tracer, Op::mul, loss, 1 - smoothing),
                                        pointwise(tracer, Op::mul, {smooth, cast(tracer, share, dtype)})}));
}

}  // namespace fj
