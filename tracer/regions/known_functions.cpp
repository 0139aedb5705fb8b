// Calls of known_functions.def.
#include <opcode.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "arrays/arrays.h"
#include "graph_ir/ops.h"
#include "tracer/frontends/numpy/equal_zeros.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

struct Call {
  RegionBuilder& b;
  const std::vector<Known>& arguments;
  const NamedArguments& keywords;
  const char* name;
  int given;

  std::size_t count() const { return arguments.size(); }
  bool numbers(std::size_t wanted) const {
    if (count() != wanted) return false;
    for (const Known& argument : arguments)
      if (!argument.is_number()) return false;
    return true;
  }
  bool arrays(std::size_t wanted) const {
    return count() == wanted && std::all_of(arguments.begin(), arguments.end(), [&](const Known& argument) {
             return argument.is_array() && !b.is_bytes(argument);
           });
  }
  ValueId real(std::size_t i) const { return b.as_float(arguments[i]); }
};
using Result = std::optional<Known>;
using Rule = Result (*)(const Call&);

Result complex(const Call& call) {
  if (!call.numbers(2) || call.arguments[0].is_numpy() || call.arguments[1].is_numpy()) return std::nullopt;
  return RegionBuilder::complex(call.real(0), call.real(1));
}

Result absolute(const Call& call) {
  if (call.count() == 1 && call.arguments[0].kind == Known::Kind::Complex) {
    const Known& of = call.arguments[0];
    call.b.leave_unless_finite(of.value);
    call.b.leave_unless_finite(of.imaginary);
    const ValueId size = call.b.call("hypot", {of.value, of.imaginary});
    call.b.leave_unless_finite(size);
    return RegionBuilder::python_float(size);
  }
  if (call.count() == 1 && call.arguments[0].is_tensor()) return call.b.tensor_unary(Op::abs, call.arguments[0]);
  if (!call.numbers(1)) return std::nullopt;
  return call.b.absolute(call.arguments[0]);
}

Result convert(const Call& call) {
  if (!call.numbers(1)) return std::nullopt;
  return call.b.converted(call.arguments[0], Boxing(call.given), DType::I64);
}

Result to_numpy(const Call& call) {
  if (!call.numbers(1)) return std::nullopt;
  return call.b.converted(call.arguments[0], Boxing::Numpy, DType(call.given));
}

Result divmod(const Call& call) {
  if (!call.numbers(2) || call.arguments[0].is_numpy() || call.arguments[1].is_numpy()) return std::nullopt;
  Known made;
  made.kind = Known::Kind::Tuple;
  for (int operation : {NB_FLOOR_DIVIDE, NB_REMAINDER})
    made.items.push_back(call.b.binary(operation, call.arguments[0], call.arguments[1]));
  return made;
}

Result power(const Call& call) {
  if (!call.numbers(2)) return std::nullopt;
  return call.b.binary(NB_POWER, call.arguments[0], call.arguments[1]);
}

Result enumerate(const Call& call) {
  if (call.count() < 1 || call.count() > 2) return std::nullopt;
  Known made;
  made.kind = Known::Kind::Enumerate;
  made.items.push_back(call.b.iterator(call.arguments[0]));
  if (call.count() == 2 && (!call.arguments[1].is_number() || call.arguments[1].boxing != Boxing::Int))
    return std::nullopt;
  made.items.push_back(call.count() == 2 ? RegionBuilder::python_int(call.b.as_int(call.arguments[1]))
                                         : RegionBuilder::python_int(call.b.integer(0)));
  return made;
}

Result zip(const Call& call) {
  if (call.count() == 0) return std::nullopt;
  Known made;
  made.kind = Known::Kind::Zip;
  for (const Known& argument : call.arguments) made.items.push_back(call.b.iterator(argument));
  return made;
}

Result length(const Call& call) {
  if (call.count() != 1) return std::nullopt;
  const Known& of = call.arguments[0];
  switch (of.kind) {
    case Known::Kind::Array: case Known::Kind::Fresh: case Known::Kind::View: case Known::Kind::Expression:
      return RegionBuilder::python_int(call.b.size(call.b.looked_at(of), 0));
    case Known::Kind::List: case Known::Kind::InnerList: return RegionBuilder::python_int(call.b.length(of));
    case Known::Kind::Tensor:
      if (call.b.rank(of) == 0) return std::nullopt;
      return RegionBuilder::python_int(call.b.size(of, 0));
    case Known::Kind::Tuple: case Known::Kind::Sizes:
      return RegionBuilder::python_int(call.b.integer(std::int64_t(of.items.size())));
    default: return std::nullopt;
  }
}

/// The first argument stays unless another one is greater (less): which object it is decides its type.
Result extreme(const Call& call) {
  if (call.count() < 2) return std::nullopt;
  for (const Known& argument : call.arguments)
    if (!argument.is_number() && !(argument.is_tensor() && call.count() == 2)) return std::nullopt;
  Known best = call.arguments[0];
  for (std::size_t i = 1; i < call.count(); ++i) {
    const Known& next = call.arguments[i];
    if (next.is_tensor() || best.is_tensor()) {
      call.b.fork(call.b.tensor_compare(call.given, next, best).value, next, best);
      return best;
    }
    const ValueId better = call.b.truth(call.b.compare(call.given, next, best));
    if (next.boxing == best.boxing && next.dtype == best.dtype) {
      best = RegionBuilder::number(best.boxing, best.dtype, call.b.op(Op::where, {better, next.value, best.value}));
      continue;
    }
    if (call.count() != 2) return std::nullopt;
    call.b.fork(better, next, best);
    return best;
  }
  return best;
}

Result range(const Call& call) {
  if (call.count() < 1 || call.count() > 3) return std::nullopt;
  for (const Known& argument : call.arguments)
    if (!argument.is_number() || is_float(argument.dtype) || argument.dtype == DType::Bool ||
        argument.dtype == DType::U64)
      return std::nullopt;
  Known made;
  made.kind = Known::Kind::Range;
  if (call.count() == 3) {
    const auto step = call.b.known_int(call.arguments[2]);
    if (step && (*step == 0 || std::abs(*step) > (1 << 20))) return std::nullopt;
    made.step = step.value_or(0);
  }
  // The items of a range of NumPy's integers are Python's.
  const ValueId start = call.count() == 1 ? call.b.integer(0) : call.b.as_int(call.arguments[0]);
  const ValueId end = call.b.as_int(call.arguments[call.count() == 1 ? 0 : 1]);
  made.items = {RegionBuilder::python_int(start), RegionBuilder::python_int(end)};
  if (made.step == 0) {
    made.items.push_back(RegionBuilder::python_int(call.b.as_int(call.arguments[2])));
    // A loop that goes down by a step that varies is one of a few; one that goes up is known better.
    const auto step = call.b.hint(made.items[2].value);
    made.forwards = step && *step > 0;
    call.b.leave_if(call.b.op(made.forwards ? Op::le : Op::eq, {made.items[2].value, call.b.integer(0)}));
  }
  // What is added to does not wrap.
  const ValueId far = call.b.integer(std::int64_t(1) << 61), back = call.b.integer(-(std::int64_t(1) << 61));
  for (const Known& item : made.items)
    call.b.leave_if(
        call.b.op(Op::bit_or, {call.b.op(Op::gt, {item.value, far}), call.b.op(Op::lt, {item.value, back})}));
  return made;
}

Result reversed(const Call& call) {
  if (call.count() != 1 || call.arguments[0].kind != Known::Kind::Range || std::abs(call.arguments[0].step) != 1)
    return std::nullopt;
  const Known& of = call.arguments[0];
  Known made;
  made.kind = Known::Kind::RangeIterator;
  made.step = -of.step;
  const ValueId start = of.items[0].value, step = call.b.integer(of.step);
  // Of an empty range the end may lie before the start.
  const ValueId empty = call.b.op(of.step > 0 ? Op::ge : Op::le, {start, of.items[1].value});
  const ValueId end = call.b.op(Op::where, {empty, start, of.items[1].value});
  made.items = {RegionBuilder::python_int(call.b.op(Op::sub, {end, step})),
                RegionBuilder::python_int(call.b.op(Op::sub, {start, step}))};
  return made;
}

Result rounded(const Call& call) {
  if (!call.numbers(1) || call.arguments[0].is_numpy()) return std::nullopt;
  return call.b.floored(call.arguments[0], Op::round);
}

Result whole(const Call& call) {
  if (!call.numbers(1)) return std::nullopt;
  if (call.arguments[0].is_numpy() && call.arguments[0].dtype != DType::F64) return std::nullopt;
  return call.b.floored(call.arguments[0], Op(call.given));
}

Result on_floats(const Call& call) {
  const Op op = Op(call.given);
  if (!call.numbers(row(op).operands.size())) return std::nullopt;
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < call.count(); ++i) operands.push_back(call.real(i));
  return RegionBuilder::python_float(call.b.op(op, std::move(operands)));
}

Result asked(const Call& call) {
  if (!call.numbers(1)) return std::nullopt;
  return RegionBuilder::python_bool(call.b.op(Op(call.given), {call.real(0)}));
}

/// The C library's function of the same name, where numbers are finite and so is its result: else math may raise.
Result library(const Call& call) {
  const int number = region::function_number(call.name);
  if (!call.numbers(std::size_t(region::functions()[std::size_t(number)].operands))) return std::nullopt;
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < call.count(); ++i) {
    operands.push_back(call.real(i));
    call.b.leave_unless_finite(operands.back());
  }
  const ValueId made = call.b.call(call.name, operands);
  call.b.leave_unless_finite(made);
  return RegionBuilder::python_float(made);
}

Result logarithm(const Call& call) {
  if (!call.numbers(1)) return std::nullopt;
  const ValueId of = call.real(0);
  call.b.leave_if(call.b.op(Op::logical_not, {call.b.op(Op::gt, {of, call.b.real(0)})}));
  return library(call);
}

Result math_power(const Call& call) {
  if (!call.numbers(2)) return std::nullopt;
  return RegionBuilder::python_float(
      call.b.binary(NB_POWER, RegionBuilder::python_float(call.real(0)), RegionBuilder::python_float(call.real(1)))
          .value);
}

Result root(const Call& call) {
  if (!call.numbers(1)) return std::nullopt;
  const ValueId of = call.real(0);
  call.b.leave_unless_finite(of);
  call.b.leave_if(call.b.op(Op::lt, {of, call.b.real(0)}));
  return RegionBuilder::python_float(call.b.op(Op::sqrt, {of}));
}

Result numpy_root(const Call& call) {
  if (call.arrays(1)) return call.b.array_unary(Op::sqrt, call.arguments[0]);
  if (!call.numbers(1)) return std::nullopt;
  const Known& of = call.arguments[0];
  if (of.dtype == DType::Bool || (of.is_numpy() && !is_float(of.dtype))) return std::nullopt;
  const ValueId value = of.is_numpy() ? of.value : call.real(0);
  call.b.leave_unless_finite(value);
  call.b.leave_if(call.b.op(Op::lt, {value, call.b.constant(call.b.type(value), 0.0)}));
  return RegionBuilder::numpy(call.b.op(Op::sqrt, {value}), call.b.type(value));
}

Result numpy_abs(const Call& call) {
  if (call.arrays(1)) return call.b.array_unary(Op::abs, call.arguments[0]);
  if (!call.numbers(1) || call.arguments[0].dtype == DType::Bool) return std::nullopt;
  const Known made = call.b.absolute(call.arguments[0]);
  return RegionBuilder::numpy(made.value, made.dtype);
}

/// Elementwise functions of floats, of arrays and of NumPy's scalars, as exact as docs/numerics.md says.
Result numpy_function(const Call& call) {
  if (call.count() != 1) return std::nullopt;
  const Known& of = call.arguments[0];
  if (of.is_array()) return call.b.is_bytes(of) ? std::nullopt : call.b.function_of(Op(call.given), of);
  if (!of.is_number() || of.dtype == DType::Bool || (of.is_numpy() && !is_float(of.dtype))) return std::nullopt;
  const Op op = Op(call.given);
  // Integers that are rounded may stay what they are.
  if (!is_float(of.dtype) && (op == Op::floor || op == Op::ceil || op == Op::trunc)) return std::nullopt;
  const ValueId value = of.is_numpy() ? of.value : call.real(0);
  const ValueId made = call.b.op(op, {value});
  call.b.leave_if_reported(made, {value});
  return RegionBuilder::numpy(made, call.b.type(value));
}

Result numpy_asked(const Call& call) {
  if (!call.numbers(1)) return std::nullopt;
  return RegionBuilder::numpy(call.b.op(Op(call.given), {call.real(0)}), DType::Bool);
}

/// The operator's elementwise function, where one of both is an array.
Result numpy_operator(const Call& call) {
  if (call.count() != 2 || !(call.arguments[0].is_array() || call.arguments[1].is_array())) return std::nullopt;
  return call.b.array_binary(call.given, call.arguments[0], call.arguments[1]);
}

Result numpy_compare(const Call& call) {
  if (call.count() != 2 || !(call.arguments[0].is_array() || call.arguments[1].is_array())) return std::nullopt;
  return call.b.array_compare(call.given, call.arguments[0], call.arguments[1]);
}

Result numpy_pair(const Call& call) {
  if (call.count() != 2 || !(call.arguments[0].is_array() || call.arguments[1].is_array())) return std::nullopt;
  auto [type, a, b] = call.b.promoted_operands(call.arguments[0], call.arguments[1], false);
  if (type == DType::Bool) return std::nullopt;
  // The operation gives the first of two that are equal.
  const Op op = Op(call.given);
  const EqualZeros zeros = equal_zeros(type);
  if (zeros == EqualZeros::First) return RegionBuilder::lazy(call.b.apply(op, {a, b}));
  const Lazy second = call.b.apply(op, {b, a});
  if (zeros == EqualZeros::Second) return RegionBuilder::lazy(second);
  const Lazy first = call.b.apply(op, {a, b}), negative = call.b.apply(Op::sign_bit, {a});
  return RegionBuilder::lazy(op == Op::maximum ? call.b.apply(Op::where, {negative, second, first})
                                               : call.b.apply(Op::where, {negative, first, second}));
}

Result numpy_square(const Call& call) {
  if (!call.arrays(1) || call.b.dtype(call.arguments[0]) == DType::Bool) return std::nullopt;
  const Lazy of = call.b.expression(call.arguments[0]);
  return RegionBuilder::lazy(call.b.apply(Op::mul, {of, of}));
}

Result numpy_where(const Call& call) {
  if (call.count() != 3 || !call.arguments[0].is_array() || call.b.dtype(call.arguments[0]) != DType::Bool)
    return std::nullopt;
  Known yes = call.arguments[1];
  // Two numbers of Python's are NumPy's of their types.
  if (yes.is_number() && call.arguments[2].is_number() && !call.arguments[2].is_numpy())
    yes = RegionBuilder::numpy(yes.value, yes.dtype);
  auto [type, a, b] = call.b.promoted_operands(yes, call.arguments[2], false);
  return RegionBuilder::lazy(call.b.apply(Op::where, {call.b.expression(call.arguments[0]), a, b}));
}

Result numpy_reduce(const Call& call) {
  if (call.count() == 0 || !call.arguments[0].is_array()) return std::nullopt;
  return call.b.reduction(call.name, call.arguments[0], std::span(call.arguments).subspan(1), call.keywords);
}

Result numpy_product(const Call& call) {
  if (call.count() != 2) return std::nullopt;
  return call.b.product(call.arguments[0], call.arguments[1]);
}

/// `given`: the number that is everywhere; -1: none is.
Result numpy_make(const Call& call) {
  if (call.count() != 1 || call.keywords.size() > 1) return std::nullopt;
  std::optional<DType> dtype = DType::F64;
  for (const auto& [name, value] : call.keywords) {
    if (name != "dtype" || value.kind != Known::Kind::Object) return std::nullopt;
    PyObject* const wanted = value.object.get();
    dtype = wanted == reinterpret_cast<PyObject*>(&PyFloat_Type) ? DType::F64 : dtype_from_object(wanted);
    if (!dtype || is_complex(*dtype) || is_half(*dtype)) return std::nullopt;
  }
  const auto shape = call.b.shape_of(call.arguments[0]);
  if (!shape) return std::nullopt;
  return call.b.filled(*dtype, *shape, call.given < 0 ? std::nullopt : std::optional<double>(call.given));
}

Result numpy_like(const Call& call) {
  if (!call.arrays(1)) return std::nullopt;
  return call.b.like(call.arguments[0], call.given < 0 ? std::nullopt : std::optional<double>(call.given));
}

/// np.roll along one axis.
Result numpy_roll(const Call& call) {
  std::vector<Known> given = call.arguments;
  for (const auto& [name, value] : call.keywords) {
    if (name != "axis" || given.size() != 2) return std::nullopt;
    given.push_back(value);
  }
  if (given.size() < 2 || given.size() > 3 || !given[0].is_array() || call.b.is_bytes(given[0])) return std::nullopt;
  const auto axis = given.size() == 3 ? call.b.known_int(given[2]) : std::optional<std::int64_t>();
  if ((given.size() == 3) != axis.has_value() || !given[1].is_number()) return std::nullopt;
  return call.b.rolled(given[0], call.b.index(given[1]), axis);
}

Result numpy_copy(const Call& call) {
  if (!call.arrays(1)) return std::nullopt;
  return call.b.copied(call.arguments[0]);
}

struct Row {
  const char *module, *name;
  Rule rule;
  int given;
};
constexpr Row kRows[] = {
#define FJ_FUNCTION(module, name, rule, given) {module, name, rule, given},
#include "tracer/regions/known_functions.def"
};

/// The functions themselves, by row. Never released.
std::array<PyObject*, std::size(kRows)>& functions_by_row() {
  static std::array<PyObject*, std::size(kRows)> found{};
  return found;
}

const Row* row_of(PyObject* callable) {
  const auto& found = functions_by_row();
  const auto at = std::find(found.begin(), found.end(), callable);
  return at == found.end() ? nullptr : &kRows[at - found.begin()];
}

/// Tensors among the arguments become what the function takes them for. False: it asks them for a method of their own.
bool takes_tensors(RegionBuilder& b, const Row& row, std::vector<Known>& arguments) {
  static constexpr Rule kOfNumbers[] = {on_floats, asked, library, logarithm, math_power, root};
  const auto is_any = [&](std::span<const Rule> rules) {
    return std::find(rules.begin(), rules.end(), row.rule) != rules.end();
  };
  static constexpr Rule kOfTensors[] = {length, extreme, absolute};
  const bool floats = std::string_view(row.module) == "math" && is_any(kOfNumbers);  // by `__float__`
  for (Known& argument : arguments) {
    if (!argument.is_tensor() || is_any(kOfTensors)) continue;
    if (row.rule != convert && !floats) return false;
    argument = b.item_of(argument);
    if (floats) argument = RegionBuilder::python_float(b.as_float(argument));
  }
  return true;
}

}  // namespace

void remember_known_functions() {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    PyObject*& function = functions_by_row()[i];
    if (function != nullptr) continue;
    // NumPy is not imported for a program that does without.
    const bool numpy = std::string_view(kRows[i].module) == "numpy";
    const Ref<> module = numpy ? Ref<>::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), kRows[i].module))
                               : Ref<>::steal(PyImport_ImportModule(kRows[i].module));
    if (module) function = PyObject_GetAttrString(module.get(), kRows[i].name);
    PyErr_Clear();
  }
}

bool is_prange(PyObject* callable) {
  const Row* const row = callable != nullptr ? row_of(callable) : nullptr;
  return row != nullptr && std::string_view(row->name) == "prange";
}

std::optional<Known> RegionBuilder::call_known(PyObject* callable, const std::vector<Known>& arguments,
                                               const NamedArguments& keywords) {
  const Row* const row = row_of(callable);
  if (row == nullptr) return std::nullopt;
  if (!keywords.empty() && row->rule != numpy_reduce && row->rule != numpy_make && row->rule != numpy_roll)
    return std::nullopt;
  std::vector<Known> given = arguments;
  if (!takes_tensors(*this, *row, given)) return std::nullopt;
  if (std::string_view(row->module) == "numpy" && row->rule != to_numpy)
    for (Known& argument : given) argument = with_sign(argument);
  return row->rule(Call{*this, given, keywords, row->name, row->given});
}

}  // namespace fj
