/// Packed sequences: the steps of sequences of different lengths, one step of all that are not over after the other,
/// and how many those are at each step (torch.nn.utils.rnn).
///
/// What is packed has as many rows as the lengths sum up to, so its size is known when the program runs. Both functions
/// are gathers; lengths and sizes that torch would refuse make the program fail, and torch raises.
#include <cmath>
#include <limits>

#include "tracer/frontends/composites.h"
#include "tracer/frontends/indexing.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// The counts of a sequence, i64[n] of the CPU.
Array counts_argument(Tracer& tracer, const Parameters& p, std::string_view name) {
  const Array counts = torch_tensor(tracer, p.required(name));
  if (counts->rank() != 1 || counts->dtype != DType::I64 || counts->storage->device != kHost)
    refuse("packed sequences by such counts");
  if (tracer.decide(counts->shape[0], Py_EQ, 0)) refuse("packed sequences of no elements");
  return counts;
}

ValueId first_of(Tracer& tracer, ValueId counts) { return reshape(tracer, slice(tracer, counts, 0, 0, 1), {}); }

/// The counts, of which the program makes sure that none is larger than the one before and the last is positive.
ValueId sorted_counts(Tracer& tracer, ValueId counts) {
  const SymDim others = shape_of(tracer, counts)[0] - 1;
  const ValueId later = slice(tracer, counts, 0, 1, others), earlier = slice(tracer, counts, 0, 0, others);
  const ValueId rises = pointwise(tracer, Op::gt, {later, earlier});
  const ValueId any = reduce(tracer, Op::reduce_sum, cast(tracer, rises, DType::I64), {0}, false);
  const ValueId last = reshape(tracer, slice(tracer, counts, 0, others, 1), {});
  return tracer.checked(counts, emit(tracer, Op::bit_and, {with_constant(tracer, Op::eq, any, 0),
                                                           with_constant(tracer, Op::gt, last, 0)}));
}

/// Bool [steps, sequences]: which sequences are not over at a step. `counts` lie along `axis`; the other has `most`
/// places.
ValueId running(Tracer& tracer, ValueId counts, std::int64_t axis, const SymDim& most) {
  const ValueId places = expand_axis(tracer, arange(tracer, DType::I64, std::int64_t(0), std::int64_t(1), most), axis);
  return pointwise(tracer, Op::lt, {places, expand_axis(tracer, counts, 1 - axis)});
}

/// The number in the dtype. Torch refuses one that the dtype does not hold.
Scalar padding_of(DType dtype, double number) {
  const double most = dtype == DType::Bool   ? 1
                      : is_integer(dtype)    ? 127
                      : dtype == DType::F16  ? 65504
                      : dtype == DType::F64  ? std::numeric_limits<double>::infinity()
                                             : std::numeric_limits<float>::max();
  const bool held =
      is_integer(dtype) ? number >= 0 && number <= most : !std::isfinite(number) || std::abs(number) <= most;
  if (!held) unsupported("padding of a number that " + std::string(name(dtype)) + " may not hold");
  return scalar_of(dtype, number);
}

ValueId counted_along(Tracer& tracer, ValueId mask, std::int64_t axis) {
  return reduce(tracer, Op::reduce_sum, cast(tracer, mask, DType::I64), {axis}, false);
}

}  // namespace

V torch_pack_padded_sequence(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "_pack_padded_sequence", arguments, "input, lengths, batch_first");
  const Array x = torch_tensor(tracer, p.required("input")), lengths = counts_argument(tracer, p, "lengths");
  if (x->rank() < 2 || tracer.decide(product(x->shape), Py_EQ, 0)) refuse("an empty sequence to pack");
  ValueId rows = tracer.read(*x);
  if (p.flag("batch_first", false)) {
    Axes order = all_axes(x->rank());
    std::swap(order[0], order[1]);
    rows = transpose(tracer, rows, order);
  }
  const Dims shape = shape_of(tracer, rows);
  if (!tracer.decide(lengths->shape[0], Py_EQ, shape[1])) refuse("another number of lengths than sequences to pack");
  ValueId counts = sorted_counts(tracer, tracer.read(*lengths));
  counts = tracer.checked(counts, pointwise(tracer, Op::le, {first_of(tracer, counts),
                                                            size_value(tracer, shape[0], DType::I64)}));
  const ValueId mask = running(tracer, reshape(tracer, counts, {shape[1]}), 1, shape[0]);
  std::vector<ValueId> operands{rows};
  for (const ValueId index : coordinates(tracer, mask)) operands.push_back(index);
  Attrs attrs;
  attrs.set("axis", std::int64_t(0));
  const ValueId data = emit(tracer, Op::gather, std::move(operands), std::move(attrs));
  const SymDim longest = tracer.size_of_number(first_of(tracer, counts), shape[0]);
  const ValueId sizes = slice(tracer, counted_along(tracer, mask, 1), 0, 0, longest);
  return tracer.tuple({torch_fresh(tracer, data), torch_fresh(tracer, sizes)});
}

V torch_pad_packed_sequence(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "_pad_packed_sequence", arguments,
               "data, batch_sizes, batch_first, padding_value, total_length");
  const Array data = torch_tensor(tracer, p.required("data")), given = counts_argument(tracer, p, "batch_sizes");
  if (data->rank() < 1 || tracer.decide(product(data->shape), Py_EQ, 0)) refuse("an empty sequence to pad");
  const SymDim count = data->shape[0], steps = given->shape[0];
  Attrs along;
  along.set("axis", std::int64_t(0));
  ValueId sizes = sorted_counts(tracer, tracer.read(*given));
  ValueId ends = emit(tracer, Op::cumsum, {sizes}, along);
  const ValueId total = reshape(tracer, slice(tracer, ends, 0, steps - 1, 1), {});
  sizes = tracer.checked(sizes, pointwise(tracer, Op::eq, {total, size_value(tracer, count, DType::I64)}));
  const SymDim batch = tracer.size_of_number(first_of(tracer, sizes), count);
  const ValueId mask = running(tracer, sizes, 0, batch);
  // Places of the packed steps; behind these there is one that holds the padding.
  const ValueId starts = expand_axis(tracer, pointwise(tracer, Op::sub, {ends, sizes}), 1);
  const ValueId places = pointwise(
      tracer, Op::where,
      {mask,
       pointwise(tracer, Op::add,
                 {starts, expand_axis(tracer, arange(tracer, DType::I64, std::int64_t(0), std::int64_t(1), batch), 0)}),
       size_value(tracer, count, DType::I64)});
  const Scalar padding = padding_of(data->dtype, p.number("padding_value", 0));
  Dims one = data->shape;
  one[0] = 1;
  ValueId rows = gather(tracer, concatenate(tracer, {tracer.read(*data), full(tracer, data->dtype, padding, one)}, 0),
                        places, 0);
  const SymDim length = p.absent("total_length") ? SymDim(0) : dim_argument(tracer, p["total_length"]);
  if (length != steps && tracer.decide(length, Py_GT, 0)) {
    if (tracer.decide(length, Py_LT, steps)) refuse("a padded sequence that is shorter than the longest one");
    Dims more = shape_of(tracer, rows);
    more[0] = length - steps;
    rows = concatenate(tracer, {rows, full(tracer, data->dtype, padding, more)}, 0);
  }
  V padded = torch_fresh(tracer, rows);
  if (p.flag("batch_first", false)) {
    // It is turned in its own place: to torch a view of what nobody has.
    Dims shape = shape_of(tracer, rows);
    Strides strides = row_major(shape);
    Axes order = all_axes(int(shape.size()));
    std::swap(order[0], order[1]);
    std::swap(strides[0], strides[1]);
    padded = view_alias(tracer, tracer.new_array(Library::Torch, transpose(tracer, rows, order), strides));
  }
  return tracer.tuple({padded, torch_fresh(tracer, counted_along(tracer, mask, 0))});
}

}  // namespace fj
