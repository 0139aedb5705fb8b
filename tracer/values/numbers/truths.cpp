/// bool(), `not` and `in`. Where an array or a number of the program decides, the answer is a bool that the program
/// computes: it is handed back, stored and negated like another, and a branch on it is a break.
///
/// A container is asked in CPython's order: each element by identity first, then by `==` and the truth of what that
/// gives. From the first element on whose answer only the program knows, the others are compared in any case, so these
/// must be compared without code of the user's.
#include "tracer/values/numbers/truths.h"

#include "tracer/frontends/builders.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/numbers/computed_numbers.h"
#include "tracer/values/numbers/constant_conditions.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/outside_objects.h"

namespace fj {
namespace {

V bool_of(ValueId contents) { return std::make_shared<NumberValue>(contents, DType::Bool); }

/// Equality of these runs no code of the user's.
bool compares_quietly(const V& value) {
  auto* object = as<ObjectValue>(value);
  if (object) return is_plain(object->object.get());
  return value->kind == ValueKind::Array || value->kind == ValueKind::Number || value->kind == ValueKind::SymInt;
}

/// A number of the program is an object of its own.
bool is_same(TraceRun& t, const V& a, const V& b) {
  if (a->kind == ValueKind::Number || b->kind == ValueKind::Number) return a == b;
  return same_object(t, a, b);
}

/// `in` of what is iterated: takes items until one is found.
V iterates_to(TraceRun& t, const V& container, const V& item) {
  ValueId found;  // one of those before was found, which the program knows
  V iterator = make_iterator(t, container);
  while (V element = next(t, iterator)) {
    if (found.valid() && !(compares_quietly(element) && compares_quietly(item)))
      break_graph(BreakReason::BranchOnData, "`" + t.source_text() + "` compares " + describe(element) +
                                                 " if no element before it is equal");
    const bool computed = element->kind == ValueKind::Array || element->kind == ValueKind::Number ||
                          item->kind == ValueKind::Array || item->kind == ValueKind::Number;
    if (!computed) {
      if (same_or_equal(t, element, item)) return t.boolean(true);
    } else if (is_same(t, element, item)) {
      return t.boolean(true);
    } else {
      V equal = truth_value(t, t.compare(Py_EQ, element, item));
      if (auto* number = as<NumberValue>(equal))
        found = found.valid() ? emit(t, Op::bit_or, {found, number->contents}) : number->contents;
      else if (t.truth(equal))
        return equal;
    }
    t.check_limits();
  }
  return found.valid() ? bool_of(found) : t.boolean(false);
}

/// `in` of an array: any element that is equal. What torch refuses is left to torch.
V array_contains(TraceRun& t, const V& array, const V& item) {
  const bool torch = as<ArrayValue>(array)->library == Library::Torch;
  auto* other = as<ArrayValue>(item);
  auto* object = as<ObjectValue>(item);
  const bool number = item->kind == ValueKind::SymInt || item->kind == ValueKind::Number ||
                      (object && PyNumber_Check(object->object.get()) && is_plain(object->object.get()));
  if (torch && !number && !(other && other->library == Library::Torch))
    break_graph(BreakReason::UnsupportedObject, "`in` of " + describe(array) + " with " + describe(item));
  V equal = torch ? t.compare(Py_EQ, item, array) : t.compare(Py_EQ, array, item);
  if (equal->kind != ValueKind::Array)
    break_graph(BreakReason::UnsupportedObject, "`in` of " + describe(array) + " with " + describe(item));
  return truth_value(t, t.call(t.get_attribute(equal, "any"), {}));
}

}  // namespace

V truth_value(TraceRun& t, const V& value) {
  if (auto* number = as<NumberValue>(value)) {
    if (V known = settled(t, value); known != value) return t.boolean(t.truth(known));
    if (number->dtype == DType::Bool) return value;
    return bool_of(emit(t, Op::ne, {number->contents, constant(t, number->dtype, 0)}));
  }
  auto* array = as<ArrayValue>(value);
  if (!array || t.request.follow) return t.boolean(t.truth(value));
  if (array->dtype == DType::Bool)
    if (auto known = constant_condition(t.graph(), array_contents(t, *array))) return t.boolean(*known);
  for (const SymDim& size : array->shape)
    if (!size.is_constant() || size.constant() != 1) return t.boolean(t.truth(value));
  return truth_value(t, t.number(*array));
}

V negated(TraceRun& t, const V& value) {
  V truth = truth_value(t, value);
  if (auto* number = as<NumberValue>(truth)) return bool_of(emit(t, Op::logical_not, {number->contents}));
  return t.boolean(!t.truth(truth));
}

V contains(TraceRun& t, const V& container, const V& item) {
  switch (container->kind) {
    case ValueKind::Tuple:
      if (as<TupleValue>(container)->view_of) return t.boolean(view_contains(t, *as<TupleValue>(container), item));
      [[fallthrough]];
    case ValueKind::List: case ValueKind::Range: case ValueKind::Iterator:
      if (V method = python_method(t, container, "__contains__")) return truth_value(t, t.call(method, {item}, {}));
      return iterates_to(t, container, item);
    case ValueKind::Dict:
      return t.boolean(dict_find(t, *as<DictValue>(container), dict_key(t, container, item).get()) != nullptr);
    case ValueKind::Set: {
      Ref<> key = item->kind == ValueKind::Set ? as<SetValue>(item)->real : constant_key(t, item);
      return t.boolean(set_contains(t, *as<SetValue>(container), key));
    }
    case ValueKind::Array:
      if (!as<ArrayValue>(container)->numpy_scalar) return array_contains(t, container, item);
      break;
    default: break;
  }
  if (V method = python_method(t, container, "__contains__")) return truth_value(t, t.call(method, {item}, {}));
  if (V part = builtin_part(t, container)) return contains(t, part, item);
  if (V mapping = proxied_mapping(t, container)) return contains(t, mapping, item);
  auto* text = as<ObjectValue>(container);
  PyObject* const contains_function = once([] { return operator_function("contains"); });
  if (V answer = text && PyUnicode_CheckExact(text->object.get()) ? result_of(t, contains_function, {container, item})
                                                                  : nullptr)
    return t.boolean(t.truth(answer));
  PyObject* left = t.constant_object(container);
  if (left && is_plain(left)) {
    Ref<> right = t.constant_object(number_part(t, item));
    if (right) {
      const int answer = PySequence_Contains(left, right.get());
      if (answer < 0) raise_python_error(t);
      return t.boolean(answer);
    }
  } else if (container->kind == ValueKind::Object || container->kind == ValueKind::Instance) {
    return iterates_to(t, container, item);
  }
  break_graph(BreakReason::UnsupportedObject, "`in` of " + describe(container));
}

}  // namespace fj
