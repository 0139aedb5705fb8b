/// Which call of torch made a view: what autograd tells of a view (errors, grad_fn) and what it refuses depend on it.
///
/// A view is handed back by the same call again (view_step.h). That needs its arguments as plain objects; a view whose
/// arguments are not known to be constants is made of its steps instead.
#include "tracer/frontends/torch/torch.h"
#include "tracer/nesting.h"

#include <algorithm>

namespace fj {
namespace {

/// An argument as an object of plain Python: numbers, None, dtypes and the like; slices, tuples and lists of these.
/// Null: it is something else.
Ref<> plain(Tracer& tracer, const V& value) {
  const Nesting nesting;
  auto parts = [&](const std::vector<V>& items) {
    Ref<> tuple = Ref<>::steal(PyTuple_New(Py_ssize_t(items.size())));
    for (std::size_t i = 0; tuple && i < items.size(); ++i) {
      Ref<> part = plain(tracer, items[i]);
      if (!part) return Ref<>();
      PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), part.release());
    }
    return tuple;
  };
  if (auto* object = as<ObjectValue>(value)) {
    PyObject* real = object->object.get();
    if (real == Py_None || real == Py_Ellipsis || PyLong_CheckExact(real) || PyBool_Check(real)) {
      // From outside it was looked at by now, or is not what matters.
      return value->source && !object->guarded_value ? Ref<>() : Ref<>::borrow(real);
    }
    return value->source ? Ref<>() : Ref<>::borrow(real);
  }
  if (auto* slice = as<SliceValue>(value)) {
    Ref<> bounds = parts({slice->start, slice->stop, slice->step});
    return bounds ? Ref<>::steal(PySlice_New(PyTuple_GET_ITEM(bounds.get(), 0), PyTuple_GET_ITEM(bounds.get(), 1),
                                             PyTuple_GET_ITEM(bounds.get(), 2)))
                  : Ref<>();
  }
  if (auto* tuple = as<TupleValue>(value)) return tuple->view_of ? Ref<>() : parts(tuple->items);
  auto* list = as<ListValue>(value);
  if (!list || list->type) return {};
  Ref<> items = parts(list->items);
  return items ? Ref<>::steal(PySequence_List(items.get())) : Ref<>();
}

}  // namespace

void torch_note_views(Tracer& tracer, const V& base, PyObject* function, const std::vector<V>& arguments,
                      const std::vector<std::pair<std::string, V>>& keywords, const V& result) {
  const Array from = array_of(base);
  std::vector<V> results{result};
  if (auto* tuple = as<TupleValue>(result)) results = tuple->items;
  if (auto* list = as<ListValue>(result)) results = list->items;
  auto is_made = [&](const V& value) {
    const Array view = array_of(value);
    return from && view && view != from && view->storage == from->storage && view->library == Library::Torch &&
           view->view.size() > from->view.size() && !view->view[from->view.size()].made_by;
  };
  if (!function || std::none_of(results.begin(), results.end(), is_made)) return;
  ViewCall call;
  call.function = Ref<>::borrow(function);
  auto tuple = std::make_shared<TupleValue>();
  tuple->items = arguments;
  call.arguments = plain(tracer, tuple);
  if (!keywords.empty()) call.keywords = Ref<>::steal(PyDict_New());
  bool known = bool(call.arguments);
  for (const auto& [name, value] : keywords) {
    Ref<> object = plain(tracer, value);
    known = known && object && PyDict_SetItemString(call.keywords.get(), name.c_str(), object.get()) == 0;
  }
  PyErr_Clear();
  if (!known) return;
  call.together = std::make_shared<const char>();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!is_made(results[i])) continue;
    const Array view = array_of(results[i]);
    call.which = results[i] == result ? -1 : int(i);
    call.steps = view->view.size() - from->view.size();
    if (call.which >= 0 && view->refused_since < 0) view->refused_since = view->born;
    view->view[from->view.size()].made_by = std::make_shared<ViewCall>(call);
  }
}

namespace {

/// `x.t_()` for a view `x.t()`: the tensor itself is laid out so.
V turned(Tracer& tracer, Handler view, const Arguments& arguments) {
  Array x = arguments.positional.empty() ? nullptr : array_of(arguments.positional[0]);
  if (!arguments.keywords.empty())
    unsupported(
        "a torch function that changes the sizes of its argument, by keyword");  // which the functions name differently
  if (!x || !tracer.turn(x, [&] { return view(tracer, arguments); }))
    unsupported("a torch function that changes the sizes of its argument");
  return x;
}

}  // namespace

V torch_t_in_place(Tracer& tracer, const Arguments& arguments) {
  if (arguments.positional.size() != 1) refuse("t_() takes no arguments");
  return turned(tracer, torch_t, arguments);
}
V torch_transpose_in_place(Tracer& tracer, const Arguments& arguments) {
  return turned(tracer, torch_transpose, arguments);
}
V torch_squeeze_in_place(Tracer& tracer, const Arguments& arguments) {
  return turned(tracer, torch_squeeze, arguments);
}
V torch_unsqueeze_in_place(Tracer& tracer, const Arguments& arguments) {
  return turned(tracer, torch_unsqueeze, arguments);
}

}  // namespace fj
