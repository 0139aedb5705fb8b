// Guards in words: what one says, and how the one that failed differs from what was found.
//
// The steps are those of the fast path, run one by one; only the wording is here.
#include <string_view>

#include "guards/check_program.h"
#include "guards/guard_set.h"

namespace fj {
namespace {

using guard_program::ArrayCheck;
using guard_program::Step;
using Kind = Step::Kind;

constexpr std::string_view guard_texts[] = {
#define FJ_GUARD(name, order, looks_at, text) text,
#include "guards/guard.def"
};

constexpr std::string_view comparisons[] = {"<", "<=", "==", "!=", ">", ">="};  // Py_LT...

std::string list(const Dims& dims) {
  std::string text;
  for (const SymDim& dim : dims) text += (text.empty() ? "" : ", ") + dim.text();
  return text;
}

std::string array_text(DType dtype, const Dims& shape) { return std::string(name(dtype)) + "[" + list(shape) + "]"; }

std::string expected_text(const ArrayExpectation& array) {
  std::string text = array_text(array.dtype, array.shape);
  if (array.strides != contiguous_strides(array.shape)) text += " strides (" + list(array.strides) + ")";
  if (array.device != kHost) text += " of " + device_text(array.device);
  if (array.requires_grad) text += " requires_grad";
  if (array.writeable_required) text += " writeable";
  return text;
}

std::string found_text(PyObject* object) {
  if (!object) return "missing";
  ArrayView view;
  if (!guard_program::read_any_array(object, view)) return describe_object(object);
  Dims shape(view.shape, view.shape + view.rank);
  Dims strides;
  for (int i = 0; i < view.rank; ++i) strides.push_back(view.strides[i] / view.stride_unit);
  std::string text = array_text(view.dtype, shape);
  if (strides != contiguous_strides(shape)) text += " strides (" + list(strides) + ")";
  if (view.device != kHost) text += " of " + device_text(view.device);
  if (view.requires_grad) text += " requires_grad";
  if (!view.writeable) text += " read-only";
  if (!view.aligned) text += " unaligned";
  return text;
}

std::int64_t expected_number(const ArrayCheck::Number& number, std::span<const std::int64_t> symbols) {
  if (number.test == ArrayCheck::Test::Constant) return number.constant;
  return number.expression.evaluate(symbols);
}

/// True if the arrays differ in sizes (and what follows from them) alone; `axes` are those.
bool only_sizes_differ(const ArrayCheck& check, PyObject* object, std::span<const std::int64_t> symbols,
                       std::vector<int>& axes) {
  ArrayView view;
  if (!read_array(check, object, view) || view.dtype != check.dtype || view.rank != check.rank ||
      view.requires_grad != check.requires_grad || (check.writeable_required && !view.writeable) ||
      (check.aligned_required && !view.aligned) || (check.key_set != 0 && view.key_set != check.key_set) ||
      view.device != check.device)
    return false;
  for (int i = 0; i < check.rank; ++i)
    if (view.shape[i] != expected_number(check.sizes[std::size_t(i)], symbols)) axes.push_back(i);
  return !axes.empty();
}

std::string joined(const std::vector<SourceRef>& sources) {
  std::string text;
  for (SourceRef source : sources) text += (text.empty() ? "" : ", ") + source->text();
  return text;
}

}  // namespace

std::string Guard::text() const {
  std::string result(guard_texts[int(kind)]);
  if (kind == GuardKind::TypeVersion && !names.empty()) {
    std::string attributes;
    for (std::size_t i = 0; i < names.size(); i += 2)
      if (const char* name = PyUnicode_AsUTF8(names[i].get()))
        attributes += (attributes.empty() ? "" : ", ") + source->text() + "." + name;
    fill_in(result, "{source}", attributes);
  }
  if (source) fill_in(result, "{source}", source->text());
  fill_in(result, "{object}", object_text);
  fill_in(result, "{others}", joined(others));
  if (array) fill_in(result, "{array}", expected_text(*array));
  fill_in(result, "{symbol}", "s" + std::to_string(symbol.index));
  if (left) fill_in(result, "{left}", left->text());
  if (right) fill_in(result, "{right}", right->text());
  if (kind == GuardKind::Relation) fill_in(result, "{number}", std::string(comparisons[number]));
  if (kind == GuardKind::GradMode) fill_in(result, "{number}", number ? "on" : "off");
  fill_in(result, "{number}", std::to_string(number));
  return result;
}

std::vector<std::string> GuardSet::text() const {
  std::vector<std::string> lines;
  for (const Guard& guard : guards_) lines.push_back(guard.text());
  return lines;
}

std::vector<GuardSet::Failure> GuardSet::failures(const FrameValues& values) const {
  GuardBindings bindings;
  prepare(bindings);
  std::vector<Failure> failures;
  for (const Step& step : program_->steps()) {
    if (program_->run(step, values, bindings)) continue;
    const Guard* guard = step.guard >= 0 ? &program_->guard(step) : nullptr;
    PyObject* found = step.value >= 0 ? bindings.values[std::size_t(step.value)] : nullptr;
    Failure failure{guard, "", "", {}};
    bool goes_on = false;  // leaves: nothing that is tested later depends on them
    switch (step.kind) {
      case Kind::FetchSlot:
      case Kind::FetchDictItem:
      case Kind::FetchAttribute:
      case Kind::FetchGlobal:
      case Kind::FetchMade:
      case Kind::FetchOther:
        failure.found = step.source->text() + " is missing";
        failure.expected = guard ? guard->text() : step.source->text();
        break;
      case Kind::Array:
        failure.found = found_text(found);
        failure.expected = expected_text(*guard->array);
        // A class of array is named when it is what differs.
        if (Py_TYPE(found) != guard->array->type) {
          failure.found = std::string(Py_TYPE(found)->tp_name) + " " + failure.found;
          if (guard->array->type) failure.expected = std::string(guard->array->type->tp_name) + " " + failure.expected;
        }
        goes_on = only_sizes_differ(program_->array(step), found, bindings.symbols, failure.axes);
        break;
      case Kind::ArrayDeferred:
        failure.found = found_text(found);
        failure.expected = expected_text(*guard->array);
        goes_on = only_sizes_differ(program_->array(step), found, bindings.symbols, failure.axes);
        break;
      case Kind::Equals:
      case Kind::EqualsInt:
        goes_on = true;
        [[fallthrough]];
      case Kind::Identity:
      case Kind::IdentityWeak:
        failure.found = found_text(found);
        failure.expected = guard->object_text;
        break;
      case Kind::TypeIs:
      case Kind::TypeIsWeak:
        failure.found = Py_TYPE(found)->tp_name;
        failure.expected = guard->object_text;
        break;
      case Kind::Differs:
        failure.found = found_text(found);
        failure.expected = guard->text();
        break;
      case Kind::LengthBind:
        failure.found = found_text(found);
        failure.expected = "something that has a length";
        break;
      case Kind::Length:
        goes_on = true;
        failure.found = std::to_string(guard_program::builtin_length(found));
        failure.expected = std::to_string(guard->number);
        break;
      case Kind::Elements:
      case Kind::DictKeys: {
        auto keys = Ref<>::steal(PyDict_CheckExact(found) || PyODict_CheckExact(found) || PyAnySet_CheckExact(found)
                                     ? PySequence_List(found)
                                     : nullptr);
        auto tuple = Ref<>::steal(keys ? PyList_AsTuple(keys.get()) : nullptr);
        PyErr_Clear();
        failure.found = describe_object(tuple ? tuple.get() : found);
        failure.expected = guard->object_text;
        break;
      }
      case Kind::HasKey:
      case Kind::LacksKey:
        failure.found = guard->object_text + (step.kind == Kind::HasKey ? " is not there" : " is there");
        failure.expected = guard->text();
        break;
      case Kind::TypeVersion: {
        PyObject* name = PyType_Check(found)
                             ? guard_program::changed_class_attribute(*guard, reinterpret_cast<PyTypeObject*>(found))
                             : nullptr;
        const char* text = name ? PyUnicode_AsUTF8(name) : nullptr;
        failure.found = guard->source->text() + (text ? std::string(".") + text : "") + " was changed";
        failure.expected = guard->text();
        break;
      }
      case Kind::FunctionCode:
        failure.found = PyFunction_Check(found) ? describe_object(PyFunction_GET_CODE(found)) : describe_object(found);
        failure.expected = guard->object_text;
        break;
      case Kind::IntBind:
      case Kind::IntCompare:
        failure.found = describe_object(found);
        failure.expected =
            step.kind == Kind::IntBind ? "an int of 31 bits" : std::to_string(bindings.symbols[step.symbol]);
        break;
      case Kind::Define:
        failure.found = "division by zero";
        failure.expected = "a size " + step.quotient->dividend.text() + " // " + step.quotient->divisor.text();
        break;
      case Kind::Relation: {
        auto side = [&](const SymDim& dim) { return std::to_string(dim.evaluate(bindings.symbols)); };
        failure.found = side(*guard->left) + " against " + side(*guard->right);
        failure.expected = guard->text();
        break;
      }
      case Kind::SameObject:
        failure.found = "different objects";
        failure.expected = "one object";
        break;
      case Kind::NotSame:
        failure.found = "one object";
        failure.expected = "different objects";
        break;
      case Kind::NoOverlap:
        failure.found = "shared memory";
        failure.expected = "memory apart";
        break;
      case Kind::Unbound:
        failure.found = "bound";
        failure.expected = "unbound";
        break;
      case Kind::GradMode:
        failure.found = guard->number ? "off" : "on";
        failure.expected = guard->number ? "on" : "off";
        break;
      case Kind::TorchModes:
      case Kind::NumpyErrState:
        failure.found = "changed";
        failure.expected = guard->text();
        break;
    }
    failures.push_back(std::move(failure));
    if (!goes_on) break;
  }
  return failures;
}

std::optional<GuardSet::Failure> GuardSet::first_failure(const FrameValues& values) const {
  auto all = failures(values);
  if (all.empty()) return std::nullopt;
  return std::move(all.front());
}

}  // namespace fj
