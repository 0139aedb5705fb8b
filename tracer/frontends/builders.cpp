/// Nodes, sizes and dtypes: the half of builders.h that knows no memory. Strides and views are in layout.cpp.
///
/// Start with `pointwise` (broadcast, then one node) and `broadcast_shapes` (what a size question costs: constants
/// and structurally equal sizes are free, everything else is a guard by Tracer::decide).
#include "tracer/frontends/builders.h"

#include <algorithm>
#include <numeric>

#include "graph_ir/evaluate/evaluate.h"
#include "runtime/base/error.h"
#include "tracer/values/numbers/constant_conditions.h"
#include "tracer/values/numbers/size_ranges.h"

namespace fj {

void refuse(const std::string& what) { break_graph(BreakReason::ErrorWhileTracing, what); }
void unsupported(const std::string& what) { break_graph(BreakReason::UnsupportedOperation, what); }

// ---- nodes

namespace {

/// Where the last bit of a single number may decide the whole number that it becomes. Of arrays too much would be the
/// library's.
void ask_whole_part(Tracer& tracer, Op op, std::span<const ValueId> operands) {
  switch (op) {
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc:
    case Op::floor_div:
    case Op::mod:
    case Op::fmod: break;
    default: return;
  }
  for (ValueId operand : operands)
    if (const Type& type = tracer.graph().type(operand); type.shape.empty() && is_float(type.dtype))
      tracer.round_as_library(operand);
}

}  // namespace

ValueId emit(Tracer& tracer, Op op, std::vector<ValueId> operands, Attrs attrs) {
  ask_whole_part(tracer, op, operands);
  return tracer.graph().add(op, std::move(operands), std::move(attrs), tracer.location());
}

Type type_of(Tracer& tracer, ValueId value) { return tracer.graph().type(value); }

Scalar scalar_of(DType dtype, double value) {
  switch (category(dtype)) {
    case DTypeCategory::Bool: return value != 0;
    case DTypeCategory::Signed: return std::int64_t(value);
    case DTypeCategory::Unsigned: return std::uint64_t(value);
    case DTypeCategory::Float: return value;
    case DTypeCategory::Complex: return std::pair<double, double>(value, 0.0);
  }
  FJ_CHECK(false, "dtype without a category");
  return 0.0;
}

Scalar scalar_of(DType dtype, std::int64_t value) {
  switch (category(dtype)) {
    case DTypeCategory::Bool: return value != 0;
    case DTypeCategory::Signed: return value;
    case DTypeCategory::Unsigned: return std::uint64_t(value);
    case DTypeCategory::Float: return double(value);
    case DTypeCategory::Complex: return std::pair<double, double>(double(value), 0.0);
  }
  FJ_CHECK(false, "dtype without a category");
  return 0.0;
}

ValueId constant(Tracer& tracer, DType dtype, Scalar value) {
  // Kernels compute half types in f32: what a constant loses must be lost here.
  if (is_half(dtype)) value = scalar_array(dtype, value).scalar(0);
  Attrs attrs;
  attrs.set("value", Attr(std::move(value)));
  attrs.set("to", dtype);
  return emit(tracer, Op::constant, {}, std::move(attrs));
}
ValueId constant(Tracer& tracer, DType dtype, double value) { return constant(tracer, dtype, scalar_of(dtype, value)); }
ValueId constant(Tracer& tracer, DType dtype, std::int64_t value) {
  return constant(tracer, dtype, scalar_of(dtype, value));
}

ValueId size_value(Tracer& tracer, const SymDim& size, DType dtype) {
  if (auto known = size.constant()) return constant(tracer, dtype, *known);
  Attrs attrs;
  attrs.set("value", size);
  return cast(tracer, emit(tracer, Op::dim, {}, std::move(attrs)), dtype);
}

std::pair<std::int64_t, std::int64_t> integer_range(DType dtype) {
  const int bits = int(size_in_bytes(dtype)) * 8;
  if (is_unsigned_integer(dtype)) return {0, bits == 64 ? INT64_MAX : (std::int64_t(1) << bits) - 1};
  return {bits == 64 ? INT64_MIN : -(std::int64_t(1) << (bits - 1)),
          bits == 64 ? INT64_MAX : (std::int64_t(1) << (bits - 1)) - 1};
}

bool has_integer(Tracer& tracer, DType dtype, const SymDim& number) {
  const auto [low, high] = integer_range(dtype);
  return (low == INT64_MIN || !tracer.decide(number, Py_LT, low)) &&
         (high == INT64_MAX || !tracer.decide(number, Py_GT, high));
}

ValueId constant_like(Tracer& tracer, ValueId x, double value) {
  Type type = type_of(tracer, x);
  return full(tracer, type.dtype, scalar_of(type.dtype, value), type.shape);
}

ValueId full(Tracer& tracer, DType dtype, Scalar value, const Dims& shape) {
  return broadcast_to(tracer, constant(tracer, dtype, std::move(value)), shape);
}

ValueId same_again(Tracer& tracer, ValueId x) {
  Attrs attrs;
  attrs.set("shape", shape_of(tracer, x));
  return emit(tracer, Op::reshape, {x}, std::move(attrs));
}

ValueId cast(Tracer& tracer, ValueId x, DType to) {
  if (dtype_of(tracer, x) == to) return x;
  // What an optimiser makes of such a constant is no promise of the machine's.
  if (is_out_of_range(tracer.graph(), x, to))
    unsupported("a constant that " + std::string(name(to)) + " does not hold");
  const Type type = type_of(tracer, x);
  if (type.shape.empty() && is_float(type.dtype) && is_integer(to)) tracer.round_as_library(x);
  Attrs attrs;
  attrs.set("to", to);
  return emit(tracer, Op::cast, {x}, std::move(attrs));
}

ValueId broadcast_to(Tracer& tracer, ValueId x, const Dims& shape) {
  Dims from = shape_of(tracer, x);
  if (from == shape) return x;
  if (from.size() > shape.size()) refuse("an array of more dimensions does not broadcast to fewer");
  const std::size_t offset = shape.size() - from.size();
  // The node wants sizes that are 1 or structurally equal; sizes only guarded to be so are restated first.
  Dims restated = from;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const SymDim& wanted = shape[offset + i];
    if (from[i] == wanted || from[i] == SymDim(1)) continue;
    if (tracer.decide(from[i], Py_EQ, wanted)) restated[i] = wanted;
    else if (tracer.decide(from[i], Py_EQ, 1)) restated[i] = 1;
    else refuse("operands could not be broadcast together");
  }
  x = reshape(tracer, x, restated);
  if (restated == shape) return x;
  Axes dims(from.size());
  std::iota(dims.begin(), dims.end(), std::int64_t(offset));
  Attrs attrs;
  attrs.set("dims", std::move(dims));
  attrs.set("shape", shape);
  return emit(tracer, Op::broadcast, {x}, std::move(attrs));
}

ValueId pointwise(Tracer& tracer, Op op, std::vector<ValueId> operands) {
  if (operands.size() > 1) {
    std::vector<Dims> shapes;
    for (ValueId x : operands) shapes.push_back(shape_of(tracer, x));
    Dims shape = broadcast_shapes(tracer, shapes);
    for (ValueId& x : operands) x = broadcast_to(tracer, x, shape);
  }
  return emit(tracer, op, std::move(operands));
}

ValueId reshape(Tracer& tracer, ValueId x, const Dims& shape) {
  if (shape_of(tracer, x) == shape) return x;
  Attrs attrs;
  attrs.set("shape", shape);
  return emit(tracer, Op::reshape, {x}, std::move(attrs));
}

ValueId transpose(Tracer& tracer, ValueId x, const Axes& permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  Attrs attrs;
  attrs.set("permutation", permutation);
  return emit(tracer, Op::transpose, {x}, std::move(attrs));
}

ValueId slice(Tracer& tracer, ValueId x, std::int64_t axis, const SymDim& start, const SymDim& size,
              std::int64_t step) {
  Dims shape = shape_of(tracer, x);
  if (start == SymDim(0) && step == 1 && size == shape[axis]) return x;
  Dims starts(shape.size(), 0);
  Axes steps(shape.size(), 1);
  starts[axis] = start;
  shape[axis] = size;
  steps[axis] = step;
  Attrs attrs;
  attrs.set("starts", std::move(starts));
  attrs.set("sizes", std::move(shape));
  attrs.set("steps", std::move(steps));
  return emit(tracer, Op::slice, {x}, std::move(attrs));
}

ValueId flip(Tracer& tracer, ValueId x, const Axes& axes) {
  for (std::int64_t axis : axes) {
    SymDim size = shape_of(tracer, x)[axis];
    x = slice(tracer, x, axis, size - 1, size, -1);
  }
  return x;
}

ValueId expand_axis(Tracer& tracer, ValueId x, std::int64_t axis) {
  Dims shape = shape_of(tracer, x);
  shape.insert(shape.begin() + axis, SymDim(1));
  return reshape(tracer, x, shape);
}

ValueId reduce(Tracer& tracer, Op op, ValueId x, Axes axes, bool keepdims) {
  Dims shape = shape_of(tracer, x);
  ValueId result = x;
  if (!axes.empty()) {
    Attrs attrs;
    attrs.set("axes", axes);
    result = emit(tracer, op, {x}, std::move(attrs));
  }
  if (!keepdims) return result;
  for (std::int64_t axis : axes) shape[axis] = 1;
  return reshape(tracer, result, shape);
}

ValueId matmul(Tracer& tracer, ValueId a, ValueId b) {
  Dims left = shape_of(tracer, a), right = shape_of(tracer, b);
  if (left.empty() || right.empty()) refuse("matmul: an operand has no dimensions");
  const bool vector_left = left.size() == 1, vector_right = right.size() == 1;
  if (vector_left) left.insert(left.begin(), SymDim(1));
  if (vector_right) right.push_back(SymDim(1));
  SymDim inner = left.back();
  const SymDim other = right[right.size() - 2];
  if (!(inner == other)) {
    if (!tracer.decide(inner, Py_EQ, other)) refuse("matmul: inner sizes differ");
    if (other.is_constant()) inner = other;
  }
  left.back() = inner;
  right[right.size() - 2] = inner;
  const Dims batches[] = {Dims(left.begin(), left.end() - 2), Dims(right.begin(), right.end() - 2)};
  Dims batch = broadcast_shapes(tracer, batches);
  auto prepare = [&](ValueId x, const Dims& matrix, bool vector) {
    Dims full_shape = batch;
    full_shape.insert(full_shape.end(), matrix.end() - 2, matrix.end());
    const ValueId whole = reshape(tracer, x, matrix);
    if (vector) tracer.note_inner(whole);
    return broadcast_to(tracer, whole, full_shape);
  };
  // On a device the library's products are the fast ones, each a call in the program.
  if (tracer.device() != kHost) unsupported("a product of tensors of " + device_text(tracer.device()));
  // torch makes a matrix of a vector that is multiplied by one matrix from the right.
  const bool of_matrix = vector_left && !vector_right && right.size() == 2;
  ValueId product =
      emit(tracer, Op::matmul, {prepare(a, left, vector_left && !of_matrix), prepare(b, right, vector_right)});
  Dims shape = batch;
  if (!vector_left) shape.push_back(left[left.size() - 2]);
  if (!vector_right) shape.push_back(right.back());
  product = reshape(tracer, product, shape);
  if (vector_left && vector_right && is_float(dtype_of(tracer, product)))
    tracer.composite(CompositeRule::Dot, {a, b}, product);
  return product;
}

ValueId concatenate(Tracer& tracer, std::vector<ValueId> parts, std::int64_t axis) {
  if (parts.empty()) refuse("need at least one array to concatenate");
  Dims first = shape_of(tracer, parts[0]);
  for (ValueId& part : parts) {
    Dims shape = shape_of(tracer, part);
    if (shape.size() != first.size()) refuse("arrays to concatenate have different numbers of dimensions");
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (std::int64_t(i) == axis || shape[i] == first[i]) continue;
      if (!tracer.decide(shape[i], Py_EQ, first[i])) refuse("arrays to concatenate have different sizes");
      shape[i] = first[i];
    }
    part = reshape(tracer, part, shape);
  }
  if (parts.size() == 1) return parts[0];
  Attrs attrs;
  attrs.set("axis", axis);
  return emit(tracer, Op::concat, std::move(parts), std::move(attrs));
}

ValueId stack(Tracer& tracer, const std::vector<ValueId>& parts, std::int64_t axis) {
  if (parts.empty()) refuse("need at least one array to stack");
  std::vector<ValueId> expanded;
  for (ValueId part : parts) expanded.push_back(expand_axis(tracer, part, axis));
  return concatenate(tracer, std::move(expanded), axis);
}

namespace {

ValueId iota(Tracer& tracer, const Dims& shape, std::int64_t axis) {
  Attrs attrs;
  attrs.set("shape", shape);
  attrs.set("axis", axis);
  return emit(tracer, Op::iota, {}, std::move(attrs));
}

}  // namespace

ValueId arange(Tracer& tracer, DType dtype, Scalar start, Scalar step, const SymDim& count) {
  Dims shape{count};
  ValueId index = cast(tracer, iota(tracer, shape, 0), dtype);
  ValueId scaled = emit(tracer, Op::mul, {index, full(tracer, dtype, std::move(step), shape)});
  return emit(tracer, Op::add, {full(tracer, dtype, std::move(start), shape), scaled});
}

ValueId eye(Tracer& tracer, DType dtype, const SymDim& rows, const SymDim& columns, std::int64_t diagonal) {
  Dims shape{rows, columns};
  ValueId offset = emit(tracer, Op::sub, {iota(tracer, shape, 1), iota(tracer, shape, 0)});
  return cast(tracer, emit(tracer, Op::eq, {offset, full(tracer, DType::I64, Scalar(diagonal), shape)}), dtype);
}

ValueId triangle_mask(Tracer& tracer, const Dims& shape, std::int64_t diagonal, bool upper) {
  const std::int64_t rank = std::int64_t(shape.size());
  ValueId offset = emit(tracer, Op::sub, {iota(tracer, shape, rank - 1), iota(tracer, shape, rank - 2)});
  return emit(tracer, upper ? Op::ge : Op::le, {offset, full(tracer, DType::I64, Scalar(diagonal), shape)});
}

// ---- sizes

Dims broadcast_shapes(Tracer& tracer, std::span<const Dims> shapes) {
  std::size_t rank = 0;
  for (const Dims& shape : shapes) rank = std::max(rank, shape.size());
  Dims result(rank, SymDim(1));
  for (const Dims& shape : shapes) {
    const std::size_t offset = rank - shape.size();
    for (std::size_t i = 0; i < shape.size(); ++i) {
      SymDim& common = result[offset + i];
      const SymDim& size = shape[i];
      if (size == common || size == SymDim(1)) continue;
      if (common == SymDim(1)) {
        common = size;
      } else if (tracer.decide(size, Py_EQ, common)) {
        if (size.is_constant()) common = size;
      } else if (tracer.decide(common, Py_EQ, 1)) {
        common = size;
      } else if (!tracer.decide(size, Py_EQ, 1)) {
        refuse("operands could not be broadcast together with sizes " + common.text() + " and " + size.text());
      }
    }
  }
  return result;
}

bool same_shape(Tracer& tracer, const Dims& a, const Dims& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i]) && !tracer.decide(a[i], Py_EQ, b[i])) return false;
  return true;
}

namespace {

/// What of `size` the divisor divides, divided, and the rest, whose coefficients are less than the divisor: equal
/// quotients then have equal definitions, (n - 3) // 2 and (n + 1) // 2 - 2.
std::pair<SymDim, SymDim> divided(const SymDim& size, std::int64_t divisor) {
  SymDim whole, rest;
  for (const SymDim::Term& term : size.terms()) {
    SymDim product = 1;
    for (const SymbolId symbol : term.symbols) product = product * SymDim(symbol);
    const std::int64_t times = *floor_quotient(term.coefficient, divisor, false);
    whole = whole + product * SymDim(times);
    rest = rest + product * SymDim(term.coefficient - times * divisor);
  }
  return {whole, rest};
}

/// The symbol of a quotient or a remainder.
SymDim defined(Tracer& tracer, const SymDim& a, const SymDim& b, bool remainder) {
  Graph& graph = tracer.graph();
  for (std::uint32_t i = 0; i < graph.symbols.size(); ++i) {
    const auto& definition = graph.symbols[i].definition;
    if (definition && definition->remainder == remainder && definition->dividend == a && definition->divisor == b)
      return SymbolId{i};
  }
  const std::vector<std::int64_t> hints = symbol_hints(graph.symbols);
  Symbol symbol;
  symbol.name = "s" + std::to_string(graph.symbols.size());
  symbol.min = remainder || never_negative(graph, a) ? 0 : INT64_MIN;
  symbol.hint = floor_quotient(a.evaluate(hints), b.evaluate(hints), remainder).value_or(0);  // late: it has none
  symbol.definition = Symbol::Quotient{a, b, remainder};
  const SymbolId made = graph.new_symbol(symbol);
  if (!graph.symbols[made.index].late) tracer.guards().define(made, *symbol.definition);
  return made;
}

}  // namespace

SymDim floor_divide(Tracer& tracer, const SymDim& a, const SymDim& b) {
  if (auto exact = a.divide_exactly(b)) return *exact;
  if (!b.is_constant()) return defined(tracer, a, b, false);
  const auto [whole, rest] = divided(a, b.value());
  return rest.is_constant() ? whole : whole + defined(tracer, rest, b, false);
}

SymDim floor_remainder(Tracer& tracer, const SymDim& a, const SymDim& b) {
  if (a.divide_exactly(b)) return 0;
  if (!b.is_constant()) return defined(tracer, a, b, true);
  const SymDim rest = divided(a, b.value()).second;
  return rest.is_constant() ? rest : defined(tracer, rest, b, true);
}

std::int64_t concrete(Tracer& tracer, const SymDim& size) {
  if (auto known = size.constant()) return *known;
  auto value = tracer.constant_int(tracer.integer(size));
  if (!value) unsupported("a size that changes between calls");
  return *value;
}

std::int64_t normalise_axis(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    refuse("axis " + std::to_string(axis) + " is out of bounds for an array of dimension " + std::to_string(rank));
  return axis < 0 ? axis + rank : axis;
}

Axes all_axes(int rank) {
  Axes axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

bool is_sequence(const V& value) {
  if (auto* tuple = as<TupleValue>(value)) return !tuple->view_of;  // a view of a dict is none
  if (value->kind == ValueKind::List) return true;
  if (auto* object = as<ObjectValue>(value))
    return PyTuple_Check(object->object.get()) || PyList_Check(object->object.get());
  return false;
}

std::vector<V> items_of_sequence(Tracer& tracer, const V& value) {
  if (!is_sequence(value) && !array_of(value)) {
    PyTypeObject* type = tracer.type_of(value);
    const bool numbered = type && type->tp_as_sequence && type->tp_as_sequence->sq_item;
    if (!numbered || PyType_HasFeature(type, Py_TPFLAGS_DICT_SUBCLASS))
      unsupported("what has no numbered items where a sequence is taken");
  }
  return tracer.sequence_items(value);
}

Axes axes_argument(Tracer& tracer, const V& axis, int rank) {
  if (!axis || tracer.is_none(axis)) return all_axes(rank);
  Axes axes;
  if (is_sequence(axis)) {
    for (const V& item : tracer.sequence_items(axis)) axes.push_back(normalise_axis(int_argument(tracer, item), rank));
  } else {
    axes.push_back(normalise_axis(int_argument(tracer, axis), rank));
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) refuse("duplicate value in 'axis'");
  return axes;
}

std::vector<SymDim> dims_argument(Tracer& tracer, const V& shape) {
  if (!is_sequence(shape)) return {dim_argument(tracer, shape)};
  std::vector<SymDim> dims;
  for (const V& item : tracer.sequence_items(shape)) dims.push_back(dim_argument(tracer, item));
  return dims;
}

Dims resolve_reshape(Tracer& tracer, const Dims& from, Dims to) {
  const SymDim total = product(from);
  int unknown = -1;
  SymDim known = 1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == SymDim(-1)) {
      if (unknown >= 0) refuse("can only specify one unknown dimension");
      unknown = int(i);
    } else {
      if (to[i].is_constant() && to[i].value() < 0) refuse("negative dimensions are not allowed");
      known = known * to[i];
    }
  }
  if (unknown < 0) {
    if (!(known == total) && !tracer.decide(known, Py_EQ, total)) refuse("cannot reshape array into the shape given");
    return to;
  }
  if (tracer.decide(known, Py_EQ, 0)) refuse("cannot reshape with an unknown dimension beside a zero one");
  to[unknown] = floor_divide(tracer, total, known);
  const SymDim back = to[unknown] * known;
  if (!(back == total) && !tracer.decide(back, Py_EQ, total)) refuse("cannot reshape array into the shape given");
  return to;
}

ValueId computed_integer(Tracer& tracer, const V& value) {
  if (auto* number = as<NumberValue>(value))
    return number->dtype == DType::I64 && !number->known ? number->contents : ValueId{};
  const Array array = array_of(value);
  const bool integer = array && array->rank() == 0 && is_integer(array->dtype) && array->dtype != DType::Bool &&
                       array->dtype != DType::U64;
  return integer && !tracer.constant_int(value) ? cast(tracer, tracer.read(*array), DType::I64) : ValueId{};
}

SymDim dim_argument(Tracer& tracer, const V& value) {
  if (auto expression = tracer.int_expression(value)) return *expression;
  if (V index = tracer.scalar_index(value)) return dim_argument(tracer, index);
  if (const ValueId computed = computed_integer(tracer, value); computed.valid())
    return tracer.size_of_number(computed);
  return int_argument(tracer, value);
}

std::int64_t int_argument(Tracer& tracer, const V& value) {
  // A bool is an index to Python; the libraries mostly refuse it.
  if (auto* object = as<ObjectValue>(value); object && PyBool_Check(object->object.get()))
    unsupported("a bool where an int is taken");
  if (auto known = tracer.constant_int(value)) return *known;
  if (V index = tracer.scalar_index(value)) return int_argument(tracer, index);
  if (PyObject* object = tracer.constant_object(value); object && PyIndex_Check(object)) {
    Ref<> index = Ref<>::steal(PyNumber_Index(object));
    int overflow = 0;
    if (index) {
      std::int64_t result = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
      if (!overflow) return result;
    }
    PyErr_Clear();
  }
  tracer.round_as_library(value);
  unsupported("an argument that should be an int is not one known while tracing");
}

V shape_tuple(Tracer& tracer, const Dims& shape) {
  std::vector<V> items;
  for (const SymDim& size : shape) items.push_back(tracer.integer(size));
  return tracer.tuple(std::move(items));
}

}  // namespace fj
