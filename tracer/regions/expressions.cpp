// Elementwise operations on arrays: put together while instructions follow each other, computed in one loop nest where
// the result is stored, or needed as an array. NumPy's reports are the processor's flags, looked at behind the loop:
// where there is one, nothing has been stored, and CPython runs the statement again.
#include <opcode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph_ir/ops.h"
#include "runtime/base/error.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

constexpr int kMostOperations = 64;  // of one expression

Lazy scalar(ValueId value, DType dtype) {
  auto made = std::make_shared<Expression>();
  made->dtype = dtype;
  made->scalar = value;
  return made;
}

Op elementwise(int operation, DType dtype) {
  switch (operation) {
    case NB_ADD: return Op::add;
    case NB_SUBTRACT: return Op::sub;
    case NB_MULTIPLY: return Op::mul;
    case NB_TRUE_DIVIDE: return Op::div;
    case NB_AND: case NB_OR: case NB_XOR:
      if (is_float(dtype)) throw Unknown{"a bitwise operation of floats"};
      return operation == NB_AND ? Op::bit_and : operation == NB_OR ? Op::bit_or : Op::bit_xor;
    default: throw Unknown{"an operator of arrays"};
  }
}

bool is_plain(const Known& value, double number) {
  return value.is_number() && value.object && !value.is_numpy() && PyFloat_AsDouble(value.object.get()) == number;
}

}  // namespace

Known RegionBuilder::lazy(Lazy expression) {
  Known made;
  made.kind = Known::Kind::Expression;
  made.expression = std::move(expression);
  return made;
}

Lazy RegionBuilder::expression(const Known& value) {
  if (value.kind == Known::Kind::Expression) return value.expression;
  FJ_CHECK(value.is_array(), "an array");
  auto made = std::make_shared<Expression>();
  made->kind = Expression::Kind::Elements;
  made->of = value;
  made->layout = layout(value);
  made->dtype = made->layout.dtype;
  for (const Axis& axis : made->layout.axes) made->sizes.push_back(axis.size);
  return made;
}

Lazy RegionBuilder::cast(const Lazy& value, DType to) {
  if (value->dtype == to) return value;
  if (value->kind == Expression::Kind::Scalar) return scalar(cast(value->scalar, to), to);
  // A number that the type does not hold is the library's.
  if (is_float(value->dtype) && !is_float(to)) throw Unknown{"an array of floats that becomes one of integers"};
  auto made = std::make_shared<Expression>(*value);
  made->kind = Expression::Kind::Operation;
  made->op = Op::cast;
  made->operands = {value};
  made->dtype = to;
  made->reports = made->reports || (is_float(value->dtype) && size_in_bytes(to) < size_in_bytes(value->dtype));
  return made;
}

void RegionBuilder::expect_equal(ValueId a, ValueId b) {
  const Sharing sharing(*this);
  if (a != b) leave_if(op(Op::ne, {a, b}));
}

/// To sizes that NumPy broadcasts it to. Which axes have one element is taken from where the region is built.
Lazy RegionBuilder::broadcast(const Lazy& of, const std::vector<ValueId>& sizes) {
  const Sharing sharing(*this);
  if (of->kind == Expression::Kind::Scalar || of->sizes == sizes) return of;
  if (of->sizes.size() > sizes.size()) throw Unknown{"arrays that are not broadcast to one shape"};
  const std::size_t more = sizes.size() - of->sizes.size();
  std::vector<bool> fixed(of->sizes.size());
  for (std::size_t i = 0; i < of->sizes.size(); ++i) {
    const ValueId own = of->sizes[i], wanted = sizes[i + more];
    if (own == wanted) continue;
    fixed[i] = hint(own) == 1 && hint(wanted) != 1;
    if (fixed[i]) leave_if(op(Op::ne, {own, integer(1)}));
    else expect_equal(own, wanted);
  }
  if (more == 0 && std::find(fixed.begin(), fixed.end(), true) == fixed.end()) return of;
  auto made = std::make_shared<Expression>(*of);
  made->sizes = sizes;
  if (of->kind == Expression::Kind::Elements) {
    std::vector<Axis> axes(more, Axis{integer(1), {}, true});
    for (std::size_t i = 0; i < fixed.size(); ++i) {
      axes.push_back(of->layout.axes[i]);
      axes.back().fixed = axes.back().fixed || fixed[i];
    }
    made->layout.axes = std::move(axes);
    return made;
  }
  // Each operand is broadcast as the whole is.
  for (Lazy& operand : made->operands) {
    if (operand->kind == Expression::Kind::Scalar) continue;
    std::vector<ValueId> wanted = sizes;
    operand = broadcast(operand, wanted);
  }
  return made;
}

Lazy RegionBuilder::apply(Op op, std::vector<Lazy> operands) {
  const Sharing sharing(*this);
  std::vector<ValueId> sizes;
  for (const Lazy& operand : operands) {
    if (operand->sizes.size() > sizes.size())
      sizes.insert(sizes.begin(), operand->sizes.begin(), operand->sizes.end() - std::ptrdiff_t(sizes.size()));
    for (std::size_t i = 0; i < operand->sizes.size(); ++i) {
      ValueId& size = sizes[i + sizes.size() - operand->sizes.size()];
      if (hint(size) == 1 && hint(operand->sizes[i]) != 1) size = operand->sizes[i];
    }
  }
  auto made = std::make_shared<Expression>();
  made->kind = Expression::Kind::Operation;
  made->op = op;
  made->sizes = sizes;
  made->dtype = row(op).type_rule == "Bool" ? DType::Bool : operands.back()->dtype;
  static constexpr Op kReported[] = {Op::add, Op::sub, Op::mul, Op::div, Op::sqrt};
  made->reports =
      is_float(made->dtype) && std::find(std::begin(kReported), std::end(kReported), op) != std::end(kReported);
  made->cost = 1;
  for (Lazy& operand : operands) {
    operand = broadcast(operand, sizes);
    made->reports = made->reports || operand->reports;
    made->cost += operand->cost;
  }
  made->operands = std::move(operands);
  if (made->cost > kMostOperations) throw Unknown{"an expression of many operations"};
  return made;
}

Known RegionBuilder::array_binary(int operation, const Known& a, const Known& b) {
  if (operation == NB_MATRIX_MULTIPLY) {
    auto made = product(a, b);
    if (!made) throw Unknown{"a product of such arrays"};
    return *made;
  }
  if (operation == NB_POWER && a.is_array()) {
    if (is_plain(b, 2) && b.boxing == Boxing::Int && dtype(a) != DType::Bool) {
      const Lazy base = expression(a);
      return lazy(apply(Op::mul, {base, base}));
    }
    throw Unknown{"a power of arrays"};
  }
  // A half of each element is less work than division by two, and the same.
  int exponent = 0;
  if (operation == NB_TRUE_DIVIDE && b.is_number() && b.object && !b.is_numpy() && b.boxing != Boxing::Bool &&
      is_float(dtype(a)) && std::frexp(PyFloat_AsDouble(b.object.get()), &exponent) == 0.5 && std::abs(exponent) < 100)
    return array_binary(NB_MULTIPLY, a, python_float(real(std::ldexp(1.0, 1 - exponent))));
  const auto [type, p, q] = promoted_operands(a, b, operation == NB_TRUE_DIVIDE);
  if (type == DType::Bool && operation != NB_AND && operation != NB_OR && operation != NB_XOR)
    throw Unknown{"arithmetic of arrays of bools"};
  return lazy(apply(elementwise(operation, type), {p, q}));
}

std::tuple<DType, Lazy, Lazy> RegionBuilder::promoted_operands(const Known& a, const Known& b, bool divided) {
  const auto as_numpy = [&](const Known& known) {
    if (known.is_array()) return numpy({}, dtype(known));
    if (!known.is_number()) throw Unknown{"an operation of an array with what is no number"};
    return known;
  };
  const Known x = as_numpy(a), y = as_numpy(b);
  const std::optional<DType> type = common_dtype(x, y);
  if (!type) throw Unknown{"an operation of signed and unsigned integers of 64 bits"};
  const auto operand = [&](const Known& known) {
    Lazy made = known.is_array() ? cast(expression(known), *type) : scalar(opaque(as_dtype(known, *type)), *type);
    if (!divided || is_float(*type)) return made;
    if (*type == DType::Bool) throw Unknown{"a division of bools"};
    return cast(made, DType::F64);
  };
  const Lazy p = operand(a), q = operand(b);
  return {p->dtype, p, q};
}

Known RegionBuilder::array_compare(int operation, const Known& a, const Known& b) {
  static constexpr Op kOps[] = {Op::lt, Op::le, Op::eq, Op::ne, Op::gt, Op::ge};
  const auto [type, p, q] = promoted_operands(a, b, false);
  return lazy(apply(kOps[operation], {p, q}));
}

Known RegionBuilder::array_unary(Op op, const Known& a) {
  const DType type = dtype(a);
  Lazy of = expression(a);
  const bool logical = op == Op::bit_not && type == DType::Bool;
  if (op == Op::sqrt && !is_float(type)) throw Unknown{"a root of integers"};
  if (op == Op::bit_not && is_float(type)) throw Unknown{"`~` of floats"};
  if (type == DType::Bool && !logical) throw Unknown{"an operation of bools"};
  if (op == Op::abs && is_unsigned_integer(type)) return computed(lazy(of));
  return lazy(apply(logical ? Op::logical_not : op, {std::move(of)}));
}

Known RegionBuilder::in_place(int operation, const Known& a, const Known& b) {
  if (operation == NB_MATRIX_MULTIPLY) throw Unknown{"a product in place"};
  Known made = array_binary(operation, a, b);
  if (a.kind == Known::Kind::Expression) return made;
  if (dtype(made) != dtype(a)) throw Unknown{"an array that is changed to another type"};
  if (rank(made) != rank(a)) throw Unknown{"an array that is changed to another shape"};
  assign(a, made);
  return a;
}

Known RegionBuilder::fresh(DType dtype, std::vector<ValueId> sizes) {
  const Sharing sharing(*this);
  Known made;
  made.kind = Known::Kind::Fresh;
  made.dtype = dtype;
  // Neither negative nor so large that their product could wrap; what is too large all the same finds no memory.
  const ValueId most = constant(DType::U64, std::uint64_t(1) << (sizes.size() > 1 ? 56 / sizes.size() : 56));
  for (ValueId size : sizes) {
    leave_if(op(Op::gt, {cast(size, DType::U64), most}));
    made.items.push_back(python_int(size));
  }
  made.value = run("allocate", {op(Op::mul, {count(sizes), integer(std::int64_t(size_in_bytes(dtype)))})});
  leave_if(op(Op::eq, {made.value, integer(0)}));
  std::int64_t shift = 0;
  while (std::size_t(1) << shift < size_in_bytes(dtype)) ++shift;
  made.imaginary = op(Op::shift_right, {made.value, integer(shift)});
  return made;
}

/// NumPy makes the result in the order of its operands: only results in C's order are made here.
void RegionBuilder::expect_c_order(const Lazy& of) {
  const Sharing sharing(*this);
  for (const Lazy& operand : of->operands) expect_c_order(operand);
  if (of->kind != Expression::Kind::Elements || of->of.kind == Known::Kind::Fresh) return;
  const auto& axes = of->layout.axes;
  for (std::size_t i = 0; i < axes.size(); ++i)
    for (std::size_t j = i + 1; j < axes.size(); ++j) {
      if (axes[i].fixed || axes[j].fixed) continue;
      const ValueId outer = step_of(axes[i]), inner = step_of(axes[j]);
      const auto is_one = [&](const Axis& axis) { return hint(axis.size).value_or(2) <= 1; };
      const auto known_outer = hint(outer), known_inner = hint(inner);
      if (known_outer && known_inner && std::abs(*known_outer) < std::abs(*known_inner) && !is_one(axes[i]) &&
          !is_one(axes[j]) && *known_outer != 0)
        throw Unknown{"an array in Fortran's order"};
      const ValueId few =
          op(Op::bit_or, {op(Op::le, {axes[i].size, integer(1)}), op(Op::le, {axes[j].size, integer(1)})});
      const ValueId ordered = op(Op::ge, {op(Op::abs, {outer}), op(Op::abs, {inner})});
      leave_if(op(Op::logical_not, {op(Op::bit_or, {few, ordered})}));
    }
}

Known RegionBuilder::computed(const Known& array) {
  if (array.kind != Known::Kind::Expression) return array;
  expect_c_order(array.expression);
  return temporary(array.expression);
}

/// The result. Where it became NaN or infinite and its operand was not so, the processor is made to report: infinity is
/// taken from infinity.
ValueId RegionBuilder::raised_where_reported(ValueId result, ValueId operand, ValueId infinity) {
  const DType dtype = type(result);
  const ValueId nan = op(Op::bit_and, {op(Op::is_nan, {result}), op(Op::logical_not, {op(Op::is_nan, {operand})})});
  const ValueId infinite = op(Op::bit_and, {op(Op::is_inf, {result}), op(Op::is_finite, {operand})});
  const ValueId raised = op(Op::where, {op(Op::bit_or, {nan, infinite}), infinity, constant(dtype, 0.0)});
  return op(Op::sub, {result, op(Op::sub, {raised, raised})});
}

ValueId RegionBuilder::element(const Lazy& of, const std::vector<ValueId>& indices, bool dense, int apart) {
  if (of->kind == Expression::Kind::Scalar) return of->scalar;
  if (of->kind == Expression::Kind::Elements) {
    ValueId offset = of->layout.offset;
    const auto& axes = of->layout.axes;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const bool last = i + 1 == axes.size();
      if (!axes[i].fixed) offset = moved(offset, indices[i], last && dense ? ValueId() : axes[i].stride);
    }
    region::Instruction load{};
    load.code = Code::Load;
    load.memory = of->layout.memory;
    load.operands = {offset.valid() ? offset : integer(0)};
    load.result = region_.new_value(of->dtype);
    load.apart = apart;
    block().body.push_back(load);
    return load.result;
  }
  std::vector<ValueId> operands;
  for (const Lazy& operand : of->operands) operands.push_back(element(operand, indices, dense, apart));
  if (of->looked_at) return raised_where_reported(op(of->op, {operands[0]}), operands[0], of->scalar);
  if (of->op != Op::cast) return op(of->op, std::move(operands));
  // A bool has no way to a float of its own. What becomes of it is one of two constants: an optimiser must not know.
  if (of->operands[0]->dtype == DType::Bool && is_float(of->dtype))
    return opaque(cast(cast(operands[0], DType::I64), of->dtype));
  return cast(operands[0], of->dtype);
}

/// Each index of the axes of `order`, the last one innermost.
void RegionBuilder::for_each(const std::vector<ValueId>& sizes, const std::vector<int>& order,
                             const std::function<void(const std::vector<ValueId>&)>& body) {
  look_at_reports();
  std::vector<ValueId> indices(sizes.size());
  const auto nest = [&](auto&& self, std::size_t depth) -> void {
    if (depth == order.size()) return body(indices);
    const ValueId zero = integer(0);
    const auto known = computed_;  // behind the loop nothing of its body is
    const int header = int(region_.blocks.size());
    region_.blocks.resize(region_.blocks.size() + 3);
    const auto jump_to = [&](ValueId index) {
      block().end = {};
      block().end.kind = region::Terminator::Kind::Jump;
      block().end.yes = {header, {index}};
    };
    jump_to(zero);
    block_ = header;
    const ValueId index = region_.new_value(DType::I64);
    block().parameters.push_back(index);
    const ValueId more = op(Op::lt, {index, sizes[std::size_t(order[depth])]});
    block().end.kind = region::Terminator::Kind::Branch;
    block().end.condition = more;
    block().end.yes.block = header + 1;
    block().end.no.block = header + 2;
    block_ = header + 1;
    indices[std::size_t(order[depth])] = index;
    self(self, depth + 1);
    jump_to(add_no_wrap(index, integer(1)));
    block_ = header + 2;
    computed_ = known;
  };
  nest(nest, 0);
}

/// Whether the elements are one after the other in all axes, as those of `like` are.
bool RegionBuilder::is_without_gaps(const ArrayPlace& of, const ArrayPlace& like) {
  if (of.axes.size() != like.axes.size()) return false;
  ValueId step;
  for (std::size_t i = of.axes.size(); i-- > 0;) {
    if (of.axes[i].fixed || of.axes[i].size != like.axes[i].size || of.axes[i].stride != step) return false;
    step = step.valid() ? op(Op::mul, {of.axes[i].size, step}) : of.axes[i].size;
  }
  return true;
}

/// The expression as one of one axis, where nothing in it has gaps; else nothing.
Lazy RegionBuilder::flat(const Lazy& of, const ArrayPlace& like, ValueId count) {
  if (of->kind == Expression::Kind::Scalar) return of;
  if (of->kind == Expression::Kind::Elements && !is_without_gaps(of->layout, like)) return nullptr;
  auto made = std::make_shared<Expression>(*of);
  made->sizes = {count};
  made->layout.axes = {{count, {}}};
  for (Lazy& operand : made->operands)
    if (operand = flat(operand, like, count); !operand) return nullptr;
  return made;
}

void RegionBuilder::fill(const ArrayPlace& to, const Lazy& value, int apart) {
  const Sharing sharing(*this);
  if (to.axes.size() > 1 && is_without_gaps(to, to)) {
    std::vector<ValueId> all;
    for (const Axis& axis : to.axes) all.push_back(axis.size);
    const ValueId elements = count(all);
    if (const Lazy one = flat(value, to, elements)) {
      ArrayPlace row = to;
      row.axes = {{elements, {}}};
      return fill(row, one, apart);
    }
  }
  std::vector<ValueId> sizes;
  std::vector<int> order;
  for (const Axis& axis : to.axes) {
    order.push_back(int(sizes.size()));
    sizes.push_back(axis.size);
  }
  // The axis is innermost along which the target goes on in steps of one.
  const auto is_one = [&](const Axis& axis) { return !axis.stride.valid() || hint(axis.stride) == 1; };
  for (std::size_t i = 0; i + 1 < order.size() && !is_one(to.axes[std::size_t(order.back())]); ++i)
    if (is_one(to.axes[i])) std::swap(order[i], order.back());
  const std::size_t inner = std::size_t(order.back());
  note_elements(sizes, hint(sizes[inner]).value_or(kShort));
  // Steps of one become vectors: where they are so now, the loop is made for that.
  std::vector<ValueId> steps;
  const auto collect = [&](auto&& self, const Lazy& of) -> void {
    if (of->kind == Expression::Kind::Elements) {
      const Axis& axis = of->layout.axes[inner];
      if (!axis.fixed && axis.stride.valid()) steps.push_back(axis.stride);
    }
    for (const Lazy& operand : of->operands) self(self, operand);
  };
  collect(collect, value);
  if (to.axes[inner].stride.valid()) steps.push_back(to.axes[inner].stride);
  const bool dense = inner + 1 == sizes.size() &&
                     std::all_of(steps.begin(), steps.end(), [&](ValueId step) { return hint(step) == 1; });
  if (dense)
    for (ValueId step : steps) expect_equal(step, integer(1));
  for_each(sizes, order, [&](const std::vector<ValueId>& indices) {
    ValueId offset = to.offset;
    for (std::size_t i = 0; i < indices.size(); ++i)
      offset = moved(offset, indices[i], dense && i + 1 == indices.size() ? ValueId() : to.axes[i].stride);
    store(to, offset, element(value, indices, dense, apart), apart);
  });
}

/// `inner`: as many are one after the other in a loop. Short loops are no vectors, which kernels make of their outer
/// ones.
void RegionBuilder::note_elements(const std::vector<ValueId>& sizes, std::int64_t inner) {
  constexpr std::int64_t kPrice = 256;
  std::int64_t elements = 1;
  for (ValueId size : sizes) elements *= std::max<std::int64_t>(hint(size).value_or(1), 0);
  if (inner < kShort) elements *= kPrice;
  made_.elements = std::max(made_.elements, elements);
}

/// Elements of one axis that NumPy stores without a copy though the arrays overlap: what is read may have been stored
/// before. With equal strides it chooses the order in which that doesn't show, with opposite ones it copies.
void RegionBuilder::leave_if_stored_in_order(const ArrayPlace& to, const ArrayPlace& from) {
  if (to.axes.size() != 1 || from.axes.empty()) return;
  const Axis &written = to.axes[0], &read = from.axes.back();
  if (read.fixed || (to.dtype == from.dtype && step_of(written) == step_of(read))) return;
  const auto bytes = [&](const ArrayPlace& of, ValueId elements) {
    return op(Op::mul, {elements, integer(std::int64_t(size_in_bytes(of.dtype)))});
  };
  const auto ends = [&](const ArrayPlace& of, const Axis& axis) {
    const ValueId first = address(of);
    const ValueId steps = op(Op::mul, {op(Op::sub, {axis.size, integer(1)}), step_of(axis)});
    const ValueId last = op(Op::add, {first, bytes(of, steps)});
    return std::pair{op(Op::minimum, {first, last}), op(Op::maximum, {first, last})};
  };
  const ValueId a = bytes(to, step_of(written)), b = bytes(from, step_of(read)), none = integer(0);
  const auto [to_first, to_last] = ends(to, written);
  const auto [from_first, from_last] = ends(from, read);
  ValueId in_order = op(Op::eq, {op(Op::lt, {a, none}), op(Op::lt, {b, none})});
  for (const ValueId condition : {op(Op::ne, {a, b}), op(Op::gt, {read.size, integer(1)}),
                                  op(Op::le, {to_first, from_last}), op(Op::le, {from_first, to_last})})
    in_order = op(Op::bit_and, {in_order, condition});
  leave_if(in_order);
}

void RegionBuilder::assign(const Known& array, const Known& value) {
  const Sharing sharing(*this);
  ArrayPlace to = layout(array);
  if (value.kind == Known::Kind::View || value.kind == Known::Kind::Array || value.kind == Known::Kind::Fresh) {
    // `a[i:j] += x` assigns what it has changed to where it is.
    const ArrayPlace from = layout(value);
    bool same = from.memory == to.memory && from.offset == to.offset && from.axes.size() == to.axes.size();
    for (std::size_t i = 0; same && i < to.axes.size(); ++i)
      same = from.axes[i].size == to.axes[i].size && from.axes[i].stride == to.axes[i].stride;
    if (same) return written(array);
  }
  std::vector<ValueId> sizes;
  for (const Axis& axis : to.axes) sizes.push_back(axis.size);
  if (value.is_number()) {
    const ValueId element = stored(value, to.dtype);
    written(array);
    return fill(to, scalar(element, to.dtype), -1);
  }
  if (!value.is_array()) throw Unknown{"an assignment of what is no array"};
  const Lazy from = broadcast(cast(expression(value), to.dtype), sizes);
  for (std::size_t i = 0; i < from->sizes.size(); ++i) expect_equal(from->sizes[i], sizes[i]);
  // What has been computed is somewhere else than all that the user has.
  const bool users = array.kind == Known::Kind::Array ||
                     (array.kind == Known::Kind::View && array.items[0].kind == Known::Kind::Array);
  const bool apart = from->kind == Expression::Kind::Elements &&
                     (value.kind == Known::Kind::Fresh ||
                      (value.kind == Known::Kind::View && value.items[0].kind == Known::Kind::Fresh)) == users;
  if (apart) {
    written(array);
    return fill(to, from, nests_++);
  }
  if (value.kind != Known::Kind::Expression) leave_if_stored_in_order(to, layout(value));
  const Known made = temporary(from);
  written(array);
  copy(to, made.value);
  run("release", {made.value});
}

/// From an array of the same sizes, without gaps, at the address.
void RegionBuilder::copy(const ArrayPlace& to, ValueId from) {
  const std::size_t rank = to.axes.size();
  const Axis& inner = to.axes.back();
  std::vector<ValueId> sizes;
  for (std::size_t i = 0; i + 2 < rank; ++i) sizes.push_back(to.axes[i].size);
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  const ValueId rows = rank > 1 ? to.axes[rank - 2].size : integer(1);
  const ValueId row_step = rank > 1 ? step_of(to.axes[rank - 2]) : integer(0);
  const ValueId bytes = integer(std::int64_t(size_in_bytes(to.dtype)));
  const ValueId plane = op(Op::mul, {op(Op::mul, {rows, inner.size}), bytes});
  for_each(sizes, order, [&](const std::vector<ValueId>& indices) {
    ArrayPlace part = to;
    ValueId source = from, planes = indices.empty() ? ValueId() : indices[0];
    for (std::size_t i = 0; i < indices.size(); ++i) {
      part.offset = moved(part.offset, indices[i], step_of(to.axes[i]));
      if (i > 0) planes = op(Op::add, {op(Op::mul, {planes, sizes[i]}), indices[i]});
    }
    if (planes.valid()) source = op(Op::add, {from, op(Op::mul, {planes, plane})});
    run("copy", {address(part), row_step, step_of(inner), source, rows, inner.size, bytes});
  });
}

/// What is computed to be stored elsewhere, of any order.
Known RegionBuilder::temporary(const Lazy& of) {
  const Known made = fresh(of->dtype, of->sizes);
  if (of->reports) run("clear_reports", {});
  fill(layout(made), of, nests_++);
  if (of->reports) leave_if(op(Op::ne, {run("reports", {}), integer(0)}));
  return made;
}

void RegionBuilder::force() {
  std::vector<std::pair<Lazy, Known>> made;
  for (Known& known : state_.places) {
    if (known.kind != Known::Kind::Expression) continue;
    const Lazy of = known.expression;
    const auto found = std::find_if(made.begin(), made.end(), [&](const auto& one) { return one.first == of; });
    if (found == made.end()) made.emplace_back(of, computed(known));
  }
  const auto replace = [&](State& state) {
    for (Known& known : state.places)
      for (const auto& [of, computed] : made)
        if (known.kind == Known::Kind::Expression && known.expression == of) known = computed;
  };
  replace(state_);
  replace(before_);
}

/// Of an array only its shape is used: what NumPy would report of it is looked for all the same.
Known RegionBuilder::looked_at(const Known& array) {
  return array.kind == Known::Kind::Expression && array.expression->reports ? computed(array) : array;
}

bool RegionBuilder::has_pending() const {
  return std::any_of(state_.places.begin(), state_.places.end(), [](const Known& known) { return known.is_pending(); });
}

void RegionBuilder::expect_none_pending() {
  force();
  if (has_pending()) throw Unknown{"a branch, or a call, among the arguments of a method"};
}

}  // namespace fj
