// Reductions, products and makers of arrays: functions of the region library (runtime/region_library.h) on memory.
#include <opcode.h>

#include <algorithm>
#include <cmath>

#include "graph_ir/ops.h"
#include "runtime/base/error.h"
#include "runtime/region_library.h"
#include "tracer/regions/region_builder.h"

namespace fj {

ValueId RegionBuilder::run(std::string_view function, std::vector<ValueId> operands) {
  look_at_reports();
  region::Instruction made{};
  made.code = Code::Run;
  made.function = library_number(function);
  FJ_CHECK(made.function >= 0, "a function of the region library");
  made.operands = std::move(operands);
  const auto result = region_library()[std::size_t(made.function)].result;
  if (result) made.result = region_.new_value(*result);
  if (function == "allocate")
    for (const Context* context = context_, *called = nullptr; context != nullptr; context = context->caller) {
      found_.makers.emplace(context->object, called == nullptr ? at_ : called->call);
      called = context;
    }
  block().body.push_back(made);
  return made.result;
}

ValueId RegionBuilder::opaque(ValueId value) {
  if (!is_float(type(value))) return value;
  region::Instruction made{};
  made.code = Code::Opaque;
  made.operands = {value};
  return compute(std::move(made), type(value));
}

ValueId RegionBuilder::address(const ArrayPlace& layout) {
  region::Instruction made{};
  made.code = Code::Address;
  made.memory = layout.memory;
  made.operands = {layout.offset.valid() ? layout.offset : integer(0)};
  made.result = region_.new_value(DType::I64);
  block().body.push_back(made);
  return made.result;
}

namespace {

/// Elements one after the other, `step` apart.
struct Run {
  ValueId data, count, step;
};

/// The whole array as one run, copied where it has several axes. `in_memory_order`: NumPy takes the elements as they
/// lie, which counts.
Run as_run(RegionBuilder& b, const Known& array, bool in_memory_order) {
  Known whole = array;
  if (whole.kind == Known::Kind::Expression || (whole.kind != Known::Kind::Fresh && b.rank(whole) != 1)) {
    const Lazy values = b.expression(whole);
    if (in_memory_order) b.expect_c_order(values);
    whole = b.temporary(values);
  }
  const ArrayPlace of = b.layout(whole);
  std::vector<ValueId> sizes;
  for (const Axis& axis : of.axes) sizes.push_back(axis.size);
  const ValueId step = of.axes.size() == 1 && of.axes[0].stride.valid() ? of.axes[0].stride : b.integer(1);
  return {b.address(of), b.count(sizes), step};
}

/// A reduction's functions of the region library: of a whole array, and along an axis. `any` and `all` have none.
struct Reduction {
  std::string_view name, whole, along;
};
constexpr Reduction kReductions[] = {
    {"sum", "sum", "sums"},
    {"mean", "sum", "sums"},
    {"max", "greatest", "greatests"},
    {"amax", "greatest", "greatests"},
    {"min", "least", "leasts"},
    {"amin", "least", "leasts"},
    {"argmax", "where_greatest", "where_greatests"},
    {"argmin", "where_least", "where_leasts"},
};

const Reduction* reduction_called(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kReductions), std::end(kReductions),
                                         [&](const Reduction& one) { return one.name == name; });
  return found == std::end(kReductions) ? nullptr : found;
}

void release(RegionBuilder& b, const Known& array, const Run& run) {
  if (array.kind == Known::Kind::Expression) b.run("release", {run.data});
}

}  // namespace

/// Of all elements: sum, mean, max, min, argmax, argmin, any, all.
std::optional<Known> RegionBuilder::reduced(std::string_view function, const Known& array) {
  if (is_bytes(array)) return std::nullopt;
  const DType of = dtype(array);
  const std::string suffix = "_" + std::string(fj::name(of));
  const Reduction* const known = reduction_called(function);
  const bool logical = function == "any" || function == "all";
  if (logical ? of != DType::Bool : known == nullptr) return std::nullopt;
  if (function == "mean" && !is_float(of)) return std::nullopt;
  const bool reports = is_float(of) && !logical && known->whole == "sum";
  const Run elements = as_run(*this, array, reports);
  const std::vector<ValueId> operands{elements.data, elements.count, elements.step};
  if (logical) {
    const ValueId count = run("count_true", operands);
    release(*this, array, elements);
    return numpy(op(function == "any" ? Op::ne : Op::eq, {count, function == "any" ? integer(0) : elements.count}),
                 DType::Bool);
  }
  if (function != "sum") leave_if(op(Op::eq, {elements.count, integer(0)}));
  // The flags are those of the sum: what it is of has been looked at.
  if (reports) run("clear_reports", {});
  const ValueId made = run(std::string(known->whole) + suffix, operands);
  if (reports) leave_if(op(Op::ne, {run("reports", {}), integer(0)}));
  release(*this, array, elements);
  const Known result = numpy(made, type(made));
  return function == "mean" ? binary(NB_TRUE_DIVIDE, result, python_int(elements.count)) : result;
}

std::optional<Known> RegionBuilder::reduction(std::string_view function, const Known& array,
                                              std::span<const Known> arguments, const NamedArguments& keywords) {
  std::optional<std::int64_t> axis;
  bool keeps = false;
  const auto take_axis = [&](const Known& known) {
    axis = known_int(known);
    return axis || (known.kind == Known::Kind::Object && known.object.get() == Py_None);
  };
  if (arguments.size() > 1 || is_bytes(array)) return std::nullopt;
  if (arguments.size() == 1 && !take_axis(arguments[0])) return std::nullopt;
  for (const auto& [name, value] : keywords) {
    const bool is_literal = value.is_number() && value.boxing == Boxing::Bool && value.object;
    if (name == "axis" && arguments.empty() && take_axis(value)) continue;
    if (name != "keepdims" || !is_literal) return std::nullopt;
    keeps = value.object.get() == Py_True;
  }
  if (!axis) return keeps ? std::nullopt : reduced(function, array);
  const int axes = rank(array);
  const std::int64_t counted = *axis < 0 ? *axis + axes : *axis;
  if (counted < 0 || counted >= axes) return std::nullopt;
  if (axes > 1) return reduced_along(function, array, int(counted), keeps);
  return keeps ? std::nullopt : reduced(function, array);
}

std::optional<Known> RegionBuilder::reduced_along(std::string_view function, const Known& array, int axis, bool keeps) {
  const Reduction* const known = reduction_called(function);
  const DType of = dtype(array);
  if (known == nullptr || (function == "mean" && !is_float(of))) return std::nullopt;
  const Sharing sharing(*this);
  const Lazy values = expression(array);
  expect_c_order(values);
  const bool in_memory =
      array.kind == Known::Kind::Fresh || (array.kind != Known::Kind::Expression && rank(array) == 2);
  const Known whole = in_memory ? array : temporary(values);
  const ArrayPlace from = layout(whole);
  std::vector<ValueId> before, after, sizes;
  for (std::size_t i = 0; i < from.axes.size(); ++i) {
    if (int(i) == axis) continue;
    (int(i) < axis ? before : after).push_back(from.axes[i].size);
    sizes.push_back(from.axes[i].size);
  }
  const Axis& along = from.axes[std::size_t(axis)];
  // Of two axes, or without gaps: the others are one axis on either side.
  const ValueId outer = count(before), inner = count(after);
  const ValueId outer_step = before.empty() ? integer(0) : step_of(from.axes[std::size_t(axis) - 1]);
  const ValueId inner_step = after.empty() ? integer(1) : step_of(from.axes.back());
  note_elements({outer, along.size, inner});
  if (known->along != "sums") leave_if(op(Op::eq, {along.size, integer(0)}));
  const std::string name = std::string(known->along) + "_" + std::string(fj::name(of));
  const DType result = function == "argmax" || function == "argmin" ? DType::I64
                       : known->along != "sums" || is_float(of)    ? of
                       : is_unsigned_integer(of)                    ? DType::U64
                                                                    : DType::I64;
  const Known made = fresh(result, sizes);
  if (is_float(of)) run("clear_reports", {});
  run(name, {address(from), outer, outer_step, along.size, step_of(along), inner, inner_step, made.value});
  if (is_float(of)) leave_if(op(Op::ne, {run("reports", {}), integer(0)}));
  if (!in_memory) run("release", {whole.value});
  Known shaped = made;
  if (keeps) shaped.items.insert(shaped.items.begin() + axis, python_int(integer(1)));
  if (function != "mean") return shaped;
  leave_if(op(Op::eq, {along.size, integer(0)}));
  return array_binary(NB_TRUE_DIVIDE, shaped, python_int(along.size));
}

Known RegionBuilder::rolled(const Known& array, ValueId shift, std::optional<std::int64_t> axis) {
  const int axes = rank(array);
  const std::int64_t at = !axis ? 0 : *axis < 0 ? *axis + axes : *axis;
  if (at < 0 || at >= axes || (!axis && axes > 1)) throw Unknown{"a roll of such an array"};
  const Sharing sharing(*this);
  expect_c_order(expression(array));
  const Known whole = array.kind == Known::Kind::Fresh ? array : temporary(expression(array));
  std::vector<ValueId> before, after{integer(std::int64_t(size_in_bytes(whole.dtype)))}, sizes;
  for (int i = 0; i < axes; ++i) {
    const ValueId size = whole.items[std::size_t(i)].value;
    sizes.push_back(size);
    if (i != at) (i < at ? before : after).push_back(size);
  }
  const Known made = fresh(whole.dtype, sizes);
  run("roll", {whole.value, count(before), sizes[std::size_t(at)], count(after), shift, made.value});
  if (array.kind != Known::Kind::Fresh) run("release", {whole.value});
  return made;
}

/// An elementwise function of floats.
std::optional<Known> RegionBuilder::function_of(Op function, const Known& array) {
  if (!is_float(dtype(array))) return std::nullopt;
  auto made = std::make_shared<Expression>(*apply(function, {expression(array)}));
  made->looked_at = function != Op::floor && function != Op::ceil && function != Op::trunc;
  made->reports = true;  // a signalling NaN is reported by each
  if (made->looked_at) made->scalar = opaque(constant(made->dtype, INFINITY));
  return lazy(made);
}

/// Of vectors and matrices of one type of floats.
std::optional<Known> RegionBuilder::product(const Known& a, const Known& b) {
  const Sharing sharing(*this);
  if (!a.is_array() || !b.is_array() || is_bytes(a) || is_bytes(b)) return std::nullopt;
  const DType of = dtype(a);
  const int rank_a = rank(a), rank_b = rank(b);
  if (of != dtype(b) || !is_float(of) || rank_a > 2 || rank_b > 2) return std::nullopt;
  const std::string suffix = "_" + std::string(fj::name(of));
  const auto in_memory = [&](const Known& known) {
    return known.kind == Known::Kind::Expression ? temporary(known.expression) : known;
  };
  const Known left = in_memory(a), right = in_memory(b);
  const ArrayPlace p = layout(left), q = layout(right);
  const Axis& depth = p.axes.back();
  expect_equal(depth.size, q.axes.front().size);
  std::vector<ValueId> work;
  for (const Axis& axis : p.axes) work.push_back(axis.size);
  if (rank_b == 2) work.push_back(q.axes[1].size);
  note_elements(work);
  run("clear_reports", {});
  Known made;
  if (rank_a == 1 && rank_b == 1) {
    made = numpy(run("dot" + suffix, {address(p), step_of(depth), address(q), step_of(q.axes[0]), depth.size}), of);
  } else {
    const ValueId one = integer(1);
    const ValueId rows = rank_a == 2 ? p.axes[0].size : one, columns = rank_b == 2 ? q.axes[1].size : one;
    std::vector<ValueId> sizes;
    if (rank_a == 2) sizes.push_back(rows);
    if (rank_b == 2) sizes.push_back(columns);
    made = fresh(of, sizes);
    run("product" + suffix, {rows, columns, depth.size, address(p), rank_a == 2 ? step_of(p.axes[0]) : depth.size,
                             step_of(depth), address(q), step_of(q.axes[0]), rank_b == 2 ? step_of(q.axes[1]) : one,
                             made.value});
  }
  leave_if(op(Op::ne, {run("reports", {}), integer(0)}));
  return made;
}

/// What a number or a tuple of numbers says as a shape.
std::optional<std::vector<ValueId>> RegionBuilder::shape_of(const Known& sizes) {
  std::vector<ValueId> made;
  if (sizes.is_number()) {
    made.push_back(index(sizes));
  } else if (const auto items = tuple_items(sizes)) {
    for (const Known& item : *items) {
      if (!item.is_number()) return std::nullopt;
      made.push_back(index(item));
    }
  }
  if (made.empty()) return std::nullopt;
  return made;
}

std::optional<Known> RegionBuilder::method(const std::string& name, const Known& of,
                                           const std::vector<Known>& arguments, const NamedArguments& keywords) {
  if (of.is_tensor()) return keywords.empty() ? tensor_method(name, of, arguments) : std::nullopt;
  if (is_bytes(of)) return std::nullopt;
  if (name == "dot" && arguments.size() == 1 && keywords.empty()) return product(of, arguments[0]);
  if (!arguments.empty() || !keywords.empty()) return reduction(name, of, arguments, keywords);
  if (name == "copy") return temporary(expression(of));
  if (name == "transpose") return transposed(of);
  return reduced(name, of);
}

/// In the array's own order, as np.copy has it.
Known RegionBuilder::copied(const Known& array) { return computed(lazy(expression(array))); }

/// An array of the type and shape of another; `value`: of that in each place.
Known RegionBuilder::like(const Known& array, std::optional<double> value) {
  const Lazy of = expression(looked_at(array));
  expect_c_order(of);
  return filled(of->dtype, of->sizes, value);
}

Known RegionBuilder::filled(DType dtype, const std::vector<ValueId>& sizes, std::optional<double> value) {
  const Sharing sharing(*this);
  const Known made = fresh(dtype, sizes);
  if (!value) return made;
  if (*value == 0) {
    run("clear", {made.value, op(Op::mul, {count(sizes), integer(std::int64_t(size_in_bytes(dtype)))})});
    return made;
  }
  auto number = std::make_shared<Expression>();
  number->dtype = dtype;
  number->scalar = is_float(dtype)             ? constant(dtype, *value)
                   : dtype == DType::Bool      ? constant(dtype, *value != 0)
                   : is_signed_integer(dtype) ? constant(dtype, std::int64_t(*value))
                                               : constant(dtype, std::uint64_t(*value));
  fill(layout(made), number, -1);
  return made;
}

}  // namespace fj
