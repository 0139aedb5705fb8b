// Views that a gradient flows through, made as the user made them.
//
// By the call that made each, or else by one call of torch for each step, since as_strided(), which could make any view
// at once, derives otherwise: it treats the memory of a tensor that shows elements more than once as the variable, and
// its derivative writes into new memory where that of transpose() is a view.
#include "segment/view_step.h"

#include <algorithm>

#include "arrays/arrays.h"
#include "arrays/torch_modes.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

using Symbols = std::span<const std::int64_t>;

Ref<> int_tuple(std::span<const std::int64_t> values) {
  auto tuple = Ref<>::steal(PyTuple_New(Py_ssize_t(values.size())));
  for (std::size_t i = 0; tuple && i < values.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), PyLong_FromLongLong(values[i]));
  return tuple;
}

Ref<> call(PyObject* tensor, const char* method, std::span<const std::int64_t> sizes) {
  Ref<> tuple = int_tuple(sizes);
  return tuple ? Ref<>::steal(PyObject_CallMethod(tensor, method, "(O)", tuple.get())) : Ref<>();
}

/// tensor[:, ..., start : start + (size - 1) * step + 1 : step] on each axis that is not shown whole.
Ref<> slice(PyObject* tensor, const ViewStep& view, Symbols symbols) {
  const auto starts = evaluate(view.attrs.get<Dims>("starts"), symbols), sizes = evaluate(view.shape_after, symbols),
             before = evaluate(view.shape_before, symbols);
  const auto& steps = view.attrs.get<std::vector<std::int64_t>>("steps");
  Ref<> result = Ref<>::borrow(tensor);
  for (std::size_t axis = 0; result && axis < starts.size(); ++axis) {
    if (starts[axis] == 0 && sizes[axis] == before[axis] && steps[axis] == 1) continue;
    if (steps[axis] == 1) {
      result = Ref<>::steal(PyObject_CallMethod(result.get(), "narrow", "nLL", Py_ssize_t(axis),
                                                (long long)starts[axis], (long long)sizes[axis]));
      continue;
    }
    auto index = Ref<>::steal(PyTuple_New(Py_ssize_t(axis) + 1));
    const std::int64_t end = sizes[axis] == 0 ? starts[axis] : starts[axis] + (sizes[axis] - 1) * steps[axis] + 1;
    for (std::size_t i = 0; index && i <= axis; ++i) {
      Ref<> bounds[3];
      if (i == axis) {
        const std::int64_t values[] = {starts[axis], end, steps[axis]};
        for (int k = 0; k < 3; ++k) bounds[k] = Ref<>::steal(PyLong_FromLongLong(values[k]));
      }
      PyTuple_SET_ITEM(index.get(), Py_ssize_t(i), PySlice_New(bounds[0].get(), bounds[1].get(), bounds[2].get()));
    }
    result = index ? Ref<>::steal(PyObject_GetItem(result.get(), index.get())) : Ref<>();
  }
  return result.get() == tensor ? call(tensor, "view", sizes) : std::move(result);  // one that shows all of it
}

/// The axis from which a slice of one element and a reshape without that axis select; -1: they don't.
int selected_axis(std::span<const ViewStep> steps) {
  if (steps.size() < 2 || steps[0].op != Op::slice || steps[1].op != Op::reshape ||
      steps[1].shape_after.size() + 1 != steps[0].shape_after.size())
    return -1;
  for (std::size_t axis = 0; axis < steps[0].shape_after.size(); ++axis) {
    Dims others = steps[0].shape_before, left = others;
    others[axis] = 1;
    left.erase(left.begin() + std::ptrdiff_t(axis));
    if (others == steps[0].shape_after && left == steps[1].shape_after && !(steps[0].shape_before[axis] == SymDim(1)))
      return int(axis);
  }
  return -1;
}

/// Where `longer` has one axis of one element more than `shorter`; -1: it doesn't.
int added_axis(const Dims& longer, const Dims& shorter) {
  if (longer.size() != shorter.size() + 1) return -1;
  for (std::size_t axis = longer.size(); axis-- > 0;) {
    Dims left = longer;
    left.erase(left.begin() + std::ptrdiff_t(axis));
    if (longer[axis] == SymDim(1) && left == shorter) return int(axis);
  }
  return -1;
}

/// view() gives axes of one element other strides than unsqueeze() does.
Ref<> reshape(PyObject* tensor, const ViewStep& view, Symbols symbols) {
  if (const int axis = added_axis(view.shape_after, view.shape_before); axis >= 0)
    return Ref<>::steal(PyObject_CallMethod(tensor, "unsqueeze", "i", axis));
  if (const int axis = added_axis(view.shape_before, view.shape_after); axis >= 0)
    return Ref<>::steal(PyObject_CallMethod(tensor, "squeeze", "i", axis));
  return call(tensor, "view", evaluate(view.shape_after, symbols));
}

Ref<> follow(PyObject* tensor, const ViewStep& view, Symbols symbols) {
  switch (view.op) {
    case Op::slice: return slice(tensor, view, symbols);
    case Op::transpose: return call(tensor, "permute", view.attrs.get<std::vector<std::int64_t>>("permutation"));
    case Op::reshape: return reshape(tensor, view, symbols);
    case Op::windows:
      return Ref<>::steal(PyObject_CallMethod(
          tensor, "unfold", "LLL", (long long)view.attrs.get<std::int64_t>("axis"),
          (long long)view.attrs.get<std::int64_t>("size"), (long long)view.attrs.get<std::int64_t>("step")));
    case Op::broadcast: return call(tensor, "expand", evaluate(view.shape_after, symbols));
    default: fail_check(__FILE__, __LINE__, "op", "no gradient flows through a library's own view");
  }
}

/// As the user made it; the tensor of other sizes that this gives nobody, if it does: null then, without an error.
Ref<> made_again(PyObject* tensor, const ViewCall& call, const Dims& shape, Symbols symbols, ViewsMade* known) {
  Ref<>* views = call.which >= 0 && known ? &(*known)[{call.together.get(), tensor}] : nullptr;
  Ref<> view = views ? *views : Ref<>();
  if (!view) {
    const Py_ssize_t count = PyTuple_GET_SIZE(call.arguments.get());
    auto arguments = Ref<>::steal(PyTuple_New(count + 1));
    if (!arguments) return {};
    PyTuple_SET_ITEM(arguments.get(), 0, Py_NewRef(tensor));
    for (Py_ssize_t i = 0; i < count; ++i)
      PyTuple_SET_ITEM(arguments.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(call.arguments.get(), i)));
    view = Ref<>::steal(PyObject_Call(call.function.get(), arguments.get(), call.keywords.get()));
    if (views) *views = view;
  }
  if (view && call.which >= 0) view = Ref<>::steal(PySequence_GetItem(view.get(), call.which));
  ArrayView seen;
  const std::vector<std::int64_t> expected = evaluate(shape, symbols);
  if (view && read_torch(view.get(), seen) && std::size_t(seen.rank) == expected.size() &&
      std::equal(expected.begin(), expected.end(), seen.shape))
    return view;
  PyErr_Clear();
  return {};
}

bool has_strides(PyObject* tensor, std::span<const std::int64_t> strides) {
  ArrayView view;
  return read_torch(tensor, view) && std::size_t(view.rank) == strides.size() &&
         std::equal(strides.begin(), strides.end(), view.strides);
}

bool has_no_elements(PyObject* tensor) {
  ArrayView view;
  return read_torch(tensor, view) && std::find(view.shape, view.shape + view.rank, 0) != view.shape + view.rank;
}

bool repeats_elements(PyObject* tensor) {
  ArrayView view;
  if (!read_torch(tensor, view)) return true;
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] > 1 && view.strides[i] == 0) return true;
  return false;
}

}  // namespace

Ref<> torch_view(PyObject* tensor, std::span<const ViewStep> steps, const Strides& strides, Symbols symbols,
                 ViewsMade* made) {
  Ref<> view = Ref<>::borrow(tensor);
  while (view && !steps.empty()) {
    const GradMode mode(steps[0].recorded);
    if (const ViewCall* call = steps[0].made_by.get(); call != nullptr && call->steps <= steps.size())
      if (Ref<> again = made_again(view.get(), *call, steps[call->steps - 1].shape_after, symbols, made)) {
        view = std::move(again);
        steps = steps.subspan(call->steps);
        continue;
      }
    if (const int axis = selected_axis(steps); axis >= 0) {
      const std::int64_t index = steps[0].attrs.get<Dims>("starts")[std::size_t(axis)].evaluate(symbols);
      view = Ref<>::steal(PyObject_CallMethod(view.get(), "select", "iL", axis, (long long)index));
      steps = steps.subspan(2);
    } else {
      view = follow(view.get(), steps[0], symbols);
      steps = steps.subspan(1);
    }
  }
  if (!view) return {};
  // Axes of one element may have other strides by another way. A gradient counts for more than those.
  const std::vector<std::int64_t> expected = evaluate(strides, symbols);
  if (has_no_elements(view.get()) || has_strides(view.get(), expected) || repeats_elements(view.get())) return view;
  const Ref<> sizes = Ref<>::steal(PyObject_GetAttrString(view.get(), "shape")), steps_there = int_tuple(expected);
  return sizes && steps_there
             ? Ref<>::steal(PyObject_CallMethod(view.get(), "as_strided", "OO", sizes.get(), steps_there.get()))
             : Ref<>();
}

}  // namespace fj
