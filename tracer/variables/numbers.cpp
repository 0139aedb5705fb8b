/// Operators and comparisons: plain constants through CPython's own functions, symbolic ints as polynomials, arrays
/// through their front ends, objects through their Python methods.
#include <opcode.h>

#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "tracer/interpreter.h"

namespace fj {

namespace {

using NumberFunction = PyObject* (*)(PyObject*, PyObject*);
PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

struct BinaryRow {
  int op;
  NumberFunction function;
  const char* method;
  const char* reflected;
};
/// By NB_ number; in-place forms are these plus NB_INPLACE_ADD.
constexpr BinaryRow kBinary[] = {
    {NB_ADD, PyNumber_Add, "__add__", "__radd__"},
    {NB_AND, PyNumber_And, "__and__", "__rand__"},
    {NB_FLOOR_DIVIDE, PyNumber_FloorDivide, "__floordiv__", "__rfloordiv__"},
    {NB_LSHIFT, PyNumber_Lshift, "__lshift__", "__rlshift__"},
    {NB_MATRIX_MULTIPLY, PyNumber_MatrixMultiply, "__matmul__", "__rmatmul__"},
    {NB_MULTIPLY, PyNumber_Multiply, "__mul__", "__rmul__"},
    {NB_REMAINDER, PyNumber_Remainder, "__mod__", "__rmod__"},
    {NB_OR, PyNumber_Or, "__or__", "__ror__"},
    {NB_POWER, power, "__pow__", "__rpow__"},
    {NB_RSHIFT, PyNumber_Rshift, "__rshift__", "__rrshift__"},
    {NB_SUBTRACT, PyNumber_Subtract, "__sub__", "__rsub__"},
    {NB_TRUE_DIVIDE, PyNumber_TrueDivide, "__truediv__", "__rtruediv__"},
    {NB_XOR, PyNumber_Xor, "__xor__", "__rxor__"},
};

const BinaryRow& binary_row(int op) {
  const int plain = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  for (const BinaryRow& row : kBinary)
    if (row.op == plain) return row;
  break_graph(BreakReason::UnsupportedBytecode, "operator " + std::to_string(op));
}

/// Constants whose result would be huge are left to Python.
bool is_large(int op, PyObject* a, PyObject* b) {
  auto small = [](PyObject* x, long limit) {
    if (!PyLong_Check(x)) return true;
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(x, &overflow);
    return !overflow && number >= -limit && number <= limit;
  };
  if (op == NB_POWER) return PyLong_Check(a) && !(small(b, 500) && small(a, 1L << 32));
  if (op == NB_LSHIFT) return !small(b, 1000);
  if (op == NB_MULTIPLY && (PyUnicode_Check(a) || PyBytes_Check(a) || PyTuple_Check(a))) return !small(b, 10000);
  if (op == NB_MULTIPLY && (PyUnicode_Check(b) || PyBytes_Check(b) || PyTuple_Check(b))) return !small(a, 10000);
  return false;
}

int degree(const SymDim& expression) {
  std::size_t result = 0;
  for (const auto& term : expression.terms()) result = std::max(result, term.symbols.size());
  return int(result);
}

bool compare_numbers(std::int64_t a, int comparison, std::int64_t b) {
  switch (comparison) {
    case Py_LT: return a < b;
    case Py_LE: return a <= b;
    case Py_EQ: return a == b;
    case Py_NE: return a != b;
    case Py_GT: return a > b;
    default: return a >= b;
  }
}

constexpr const char* kComparisonMethod[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
constexpr int kReflected[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};

/// Known without a guard.
bool never_negative(const Graph& graph, const SymDim& expression) {
  for (const auto& term : expression.terms()) {
    if (term.coefficient < 0) return false;
    for (SymbolId symbol : term.symbols)
      if (graph.symbols[symbol.index].min < 0) return false;
  }
  return true;
}

bool sizes_only(const Graph& graph, const SymDim& expression) {
  for (SymbolId symbol : expression.symbols())
    if (graph.symbols[symbol.index].min < 0) return false;
  return true;
}

}  // namespace

std::int64_t TracerImpl::hint(const SymDim& expression) const {
  std::vector<std::int64_t> values;
  for (const Symbol& symbol : graph->symbols) values.push_back(symbol.hint);
  return expression.evaluate(values);
}

V TracerImpl::integer(const SymDim& value) {
  if (auto constant = value.constant()) return tracer.integer(*constant);
  return std::make_shared<SymIntValue>(value);
}

std::optional<SymDim> TracerImpl::int_expression(const V& value) {
  if (auto* symbolic = as<SymIntValue>(value)) return symbolic->expression;
  auto* object = as<ObjectValue>(value);
  if (!object || !PyLong_CheckExact(object->object.get())) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object->object.get(), &overflow);
  if (overflow) return std::nullopt;
  guard_value(*object);
  return SymDim(number);
}

bool TracerImpl::decide(const SymDim& a, int comparison, const SymDim& b) {
  const SymDim difference = a - b;
  if (auto constant = difference.constant()) return compare_numbers(*constant, comparison, 0);
  // Sizes are never negative: n >= 0 and n > -1 need no guard.
  if ((comparison == Py_GE || comparison == Py_LT) && never_negative(*graph, difference)) return comparison == Py_GE;
  const bool answer = compare_numbers(hint(a), comparison, hint(b));
  Guard guard;
  guard.kind = GuardKind::Relation;
  constexpr int kOpposite[] = {Py_GE, Py_GT, Py_NE, Py_EQ, Py_LE, Py_LT};
  guard.number = answer ? comparison : kOpposite[comparison];
  guard.left = a;
  guard.right = b;
  const Location where = location();
  guard.location = where.file + ":" + std::to_string(where.line);
  guards->add(std::move(guard));
  return answer;
}

std::optional<V> TracerImpl::symbolic_binary(int op, const V& a, const V& b) {
  if (a->kind != ValueKind::SymInt && b->kind != ValueKind::SymInt) return std::nullopt;
  auto left = int_expression(a), right = int_expression(b);
  if (!left || !right) {
    // With a float, the number of this run.
    auto settle = [&](const V& value) { return value->kind == ValueKind::SymInt ? tracer.integer(*tracer.constant_int(value)) : value; };
    return binary(op, settle(a), settle(b));
  }
  const int plain = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  if (plain == NB_ADD) return integer(*left + *right);
  if (plain == NB_SUBTRACT) return integer(*left - *right);
  // Int arguments are within 31 bits (see wrap), so two factors can't overflow; products of sizes are bounded by memory.
  if (plain == NB_MULTIPLY && (degree(*left) + degree(*right) <= 2 || (sizes_only(*graph, *left) && sizes_only(*graph, *right))))
    return integer(*left * *right);
  if (plain == NB_FLOOR_DIVIDE || plain == NB_REMAINDER) {
    if (decide(*right, Py_EQ, 0)) break_graph(BreakReason::ErrorWhileTracing, "integer division by zero");
    if (auto exact = left->divide_exactly(*right)) return integer(plain == NB_FLOOR_DIVIDE ? *exact : SymDim(0));
    if (decide(*right, Py_GT, 0)) {
      const std::int64_t dividend = hint(*left), divisor = hint(*right);
      std::int64_t quotient = dividend / divisor, remainder = dividend % divisor;
      if (remainder < 0) --quotient, remainder += divisor;
      Symbol symbol;
      symbol.name = "s" + std::to_string(graph->symbols.size());
      symbol.min = plain == NB_REMAINDER || never_negative(*graph, *left) ? 0 : INT64_MIN;
      symbol.hint = plain == NB_REMAINDER ? remainder : quotient;
      symbol.definition = Symbol::Quotient{*left, *right, plain == NB_REMAINDER};
      const SymbolId defined = graph->new_symbol(symbol);
      guards->define(defined, *symbol.definition);
      return integer(SymDim(defined));
    }
  }
  return binary(op, tracer.integer(*tracer.constant_int(a)), tracer.integer(*tracer.constant_int(b)));
}

namespace {

bool is_array(const V& value) { return value->kind == ValueKind::Array; }
bool is_unwrapped_array(const V& value) { return as<ObjectValue>(value) && array_library(as<ObjectValue>(value)->object.get()); }

/// A method written in Python of an object or instance; null if the type has none or it is C's.
PyObject* python_method(TracerImpl& tracer, const V& value, const char* name) {
  if (value->kind != ValueKind::Object && value->kind != ValueKind::Instance) return nullptr;
  PyTypeObject* type = tracer.type_of(value);
  Ref<> text = Ref<>::steal(PyUnicode_InternFromString(name));
  PyObject* found = tracer.class_attribute(type, text.get());
  return found && PyFunction_Check(found) ? found : nullptr;
}

}  // namespace

V TracerImpl::binary(int op, const V& a, const V& b) {
  const BinaryRow& row = binary_row(op);
  const bool in_place = op >= NB_INPLACE_ADD;
  if (is_unwrapped_array(a) || is_unwrapped_array(b)) break_graph(BreakReason::UnsupportedArray, describe(is_unwrapped_array(a) ? a : b));
  if (is_array(a) || is_array(b)) return array_binary(tracer, op, a, b);
  if (auto symbolic = symbolic_binary(op, a, b)) return *symbolic;
  if (auto* list = as<ListValue>(a)) {
    if (row.op == NB_ADD && (b->kind == ValueKind::List || in_place)) {
      std::vector<V> items = sequence_items(b);
      if (in_place) {
        note_mutation(a);
        list->items.insert(list->items.end(), items.begin(), items.end());
        return a;
      }
      std::vector<V> joined = list->items;
      joined.insert(joined.end(), items.begin(), items.end());
      return tracer.list(joined);
    }
  }
  if (auto* tuple = as<TupleValue>(a); tuple && row.op == NB_ADD && b->kind == ValueKind::Tuple) {
    auto* other = as<TupleValue>(b);
    if (!other->type || other->type.get() == tuple->type.get()) {
      auto joined = std::make_shared<TupleValue>();
      joined->items = tuple->items;
      joined->items.insert(joined->items.end(), other->items.begin(), other->items.end());
      if (tuple->type && !std::strcmp(reinterpret_cast<PyTypeObject*>(tuple->type.get())->tp_name, "torch.Size")) joined->type = tuple->type;
      return joined;
    }
  }
  if (a->kind == ValueKind::Set && b->kind == ValueKind::Set &&
      (row.op == NB_OR || row.op == NB_AND || row.op == NB_SUBTRACT || row.op == NB_XOR)) {
    auto& set = *as<SetValue>(a);
    V result = set_binary(row.op, set, *as<SetValue>(b));
    if (!in_place || set.frozen) return result;
    note_mutation(a);
    set.items = as<SetValue>(result)->items;
    return a;
  }
  if (row.op == NB_MULTIPLY && in_place && a->kind == ValueKind::List) {
    V repeated = binary(NB_MULTIPLY, a, b);
    note_mutation(a);
    as<ListValue>(a)->items = as<ListValue>(repeated)->items;
    return a;
  }
  if (row.op == NB_MULTIPLY && !in_place) {
    const V& sequence = a->kind == ValueKind::List || a->kind == ValueKind::Tuple ? a : b;
    const V& number = &sequence == &a ? b : a;
    const bool is_list = sequence->kind == ValueKind::List;
    auto* tuple = as<TupleValue>(sequence);
    if (is_list || (tuple && !tuple->type)) {
      if (auto count = tracer.constant_int(number); count && *count < 10000) {
        std::vector<V> items = sequence_items(sequence), repeated;
        for (std::int64_t i = 0; i < *count; ++i) repeated.insert(repeated.end(), items.begin(), items.end());
        return is_list ? tracer.list(repeated) : tracer.tuple(repeated);
      }
    }
  }
  if (row.op == NB_OR && a->kind == ValueKind::Dict && b->kind == ValueKind::Dict && !in_place && !as<DictValue>(a)->type) {
    open(*as<DictValue>(a));
    open(*as<DictValue>(b));
    auto joined = std::make_shared<DictValue>();
    for (auto* part : {as<DictValue>(a), as<DictValue>(b)})
      for (auto& [key, value] : part->items) dict_store(joined, key, value);
    return joined;
  }
  for (int side = 0; side < 2; ++side) {
    const V& self = side ? b : a;
    const V& other = side ? a : b;
    if (in_place && side == 0)
      if (PyObject* method = python_method(*this, self, ("__i" + std::string(row.method + 2)).c_str()))
        return call(wrap_constant(method), {self, other}, {});
    if (PyObject* method = python_method(*this, self, side ? row.reflected : row.method)) {
      V answer = call(wrap_constant(method), {self, other}, {});
      if (auto* object = as<ObjectValue>(answer); object && object->object.get() == Py_NotImplemented) continue;
      return answer;
    }
  }
  PyObject* left = constant_object(a);
  PyObject* right = constant_object(b);
  auto foldable = [](PyObject* x) { return x && (is_plain(x) || PyTuple_CheckExact(x)); };
  if (foldable(left) && foldable(right) && !is_large(row.op, left, right)) {
    Ref<> result = Ref<>::steal(row.function(left, right));
    if (!result) raise_python_error();
    return wrap_constant(keep(result).get());
  }
  break_graph(BreakReason::UnsupportedObject, "operator on " + describe(a) + " and " + describe(b));
}

V TracerImpl::unary(int opcode, const V& a) {
  if (is_array(a)) return array_unary(tracer, opcode, a);
  if (auto* symbolic = as<SymIntValue>(a)) {
    if (opcode == FJ_UNARY_NEGATIVE) return integer(SymDim(0) - symbolic->expression);
    if (opcode == FJ_UNARY_POSITIVE) return integer(symbolic->expression);
    return integer(SymDim(-1) - symbolic->expression);
  }
  const char* name = opcode == FJ_UNARY_NEGATIVE ? "__neg__" : opcode == FJ_UNARY_POSITIVE ? "__pos__" : "__invert__";
  if (PyObject* method = python_method(*this, a, name)) return call(wrap_constant(method), {a}, {});
  PyObject* object = constant_object(a);
  if (!object || !is_plain(object)) break_graph(BreakReason::UnsupportedObject, "operator on " + describe(a));
  Ref<> result = Ref<>::steal(opcode == FJ_UNARY_NEGATIVE   ? PyNumber_Negative(object)
                              : opcode == FJ_UNARY_POSITIVE ? PyNumber_Positive(object)
                                                            : PyNumber_Invert(object));
  if (!result) raise_python_error();
  return wrap_constant(keep(result).get());
}

V TracerImpl::compare(int comparison, const V& a, const V& b) {
  if (is_unwrapped_array(a) || is_unwrapped_array(b)) break_graph(BreakReason::UnsupportedArray, describe(is_unwrapped_array(a) ? a : b));
  if (is_array(a) || is_array(b)) return array_compare(tracer, comparison, a, b);
  const bool equality = comparison == Py_EQ || comparison == Py_NE;
  if (a->kind == ValueKind::SymInt || b->kind == ValueKind::SymInt) {
    auto left = int_expression(a), right = int_expression(b);
    if (left && right) return tracer.boolean(decide(*left, comparison, *right));
    auto settle = [&](const V& value) { return value->kind == ValueKind::SymInt ? tracer.integer(*tracer.constant_int(value)) : value; };
    return compare(comparison, settle(a), settle(b));
  }
  if (equality && strings_differ(a, b)) return tracer.boolean(comparison == Py_NE);
  const bool both_tuples = a->kind == ValueKind::Tuple && b->kind == ValueKind::Tuple;
  const bool both_lists = a->kind == ValueKind::List && b->kind == ValueKind::List;
  if (both_tuples || both_lists) {
    std::vector<V> left = sequence_items(a), right = sequence_items(b);
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      // As CPython: identity first, then ==; the first difference decides the order.
      if (left[i] == right[i] || truth(compare(Py_EQ, left[i], right[i]))) continue;
      if (equality) return tracer.boolean(comparison == Py_NE);
      return compare(comparison, left[i], right[i]);
    }
    return tracer.boolean(compare_numbers(std::int64_t(left.size()), comparison, std::int64_t(right.size())));
  }
  if (a->kind == ValueKind::Set && b->kind == ValueKind::Set) return tracer.boolean(set_compare(comparison, *as<SetValue>(a), *as<SetValue>(b)));
  if (a->kind == ValueKind::Dict && b->kind == ValueKind::Dict && equality) {
    auto &left = *as<DictValue>(a), &right = *as<DictValue>(b);
    open(left);
    open(right);
    bool same = left.items.size() == right.items.size();
    for (auto& [key, value] : left.items) {
      if (!same) break;
      V other = dict_find(right, key.get());
      same = other && (other == value || truth(compare(Py_EQ, value, other)));
    }
    return tracer.boolean(same == (comparison == Py_EQ));
  }
  for (int side = 0; side < 2; ++side) {
    const V& self = side ? b : a;
    const V& other = side ? a : b;
    if (PyObject* method = python_method(*this, self, kComparisonMethod[side ? kReflected[comparison] : comparison])) {
      V answer = call(wrap_constant(method), {self, other}, {});
      if (auto* object = as<ObjectValue>(answer); object && object->object.get() == Py_NotImplemented) continue;
      return answer;
    }
  }
  PyObject* left = constant_object(a);
  PyObject* right = constant_object(b);
  if (left && right) {
    Ref<> result = Ref<>::steal(PyObject_RichCompare(left, right, comparison));
    if (!result) raise_python_error();
    return wrap_constant(keep(result).get());
  }
  if (equality && a->kind != b->kind && a->kind != ValueKind::Instance && b->kind != ValueKind::Instance) {
    // A container and None, a str and a list, ...: types that have nothing in common are unequal.
    auto builtin = [](const V& value) {
      if (auto* object = as<ObjectValue>(value)) return is_plain(object->object.get());
      return value->kind == ValueKind::Tuple || value->kind == ValueKind::List || value->kind == ValueKind::Dict;
    };
    if (builtin(a) && builtin(b)) return tracer.boolean(comparison == Py_NE);
  }
  if (equality && a->kind == ValueKind::Object && b->kind == ValueKind::Object) {
    // Neither type defines ==: identity.
    PyTypeObject *left_type = type_of(a), *right_type = type_of(b);
    if (left_type->tp_richcompare == PyBaseObject_Type.tp_richcompare && right_type->tp_richcompare == PyBaseObject_Type.tp_richcompare) {
      static PyObject* const names[] = {PyUnicode_InternFromString("__eq__"), PyUnicode_InternFromString("__ne__")};
      for (PyObject* name : names) {
        class_attribute(left_type, name);
        class_attribute(right_type, name);
      }
      return tracer.boolean(same_object(a, b) == (comparison == Py_EQ));
    }
  }
  break_graph(BreakReason::UnsupportedObject, "compares " + describe(a) + " with " + describe(b));
}

bool TracerImpl::contains(const V& container, const V& item) {
  switch (container->kind) {
    case ValueKind::Tuple: case ValueKind::List:
      for (const V& element : sequence_items(container))
        if (element == item || truth(compare(Py_EQ, element, item))) return true;
      return false;
    case ValueKind::Dict: {
      return dict_find(*as<DictValue>(container), constant_key(item).get()) != nullptr;
    }
    case ValueKind::Set: {
      Ref<> key = constant_key(item);
      for (const Ref<>& element : as<SetValue>(container)->items) {
        const int same = PyObject_RichCompareBool(element.get(), key.get(), Py_EQ);
        if (same < 0) break_graph(BreakReason::ErrorWhileTracing, take_error());
        if (same) return true;
      }
      return false;
    }
    case ValueKind::Range: {
      for (const V& element : sequence_items(container))
        if (truth(compare(Py_EQ, element, item))) return true;
      return false;
    }
    default: break;
  }
  if (PyObject* method = python_method(*this, container, "__contains__")) return truth(call(wrap_constant(method), {container, item}, {}));
  PyObject* left = constant_object(container);
  PyObject* right = constant_object(item);
  if (left && right && is_plain(left)) {
    const int answer = PySequence_Contains(left, right);
    if (answer < 0) break_graph(BreakReason::ErrorWhileTracing, take_error());
    return answer;
  }
  break_graph(BreakReason::UnsupportedObject, "`in` of " + describe(container));
}

}  // namespace fj
