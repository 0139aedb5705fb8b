/// torch._foreach_*: one operation on each tensor of a list, as the optimisers of torch.optim use them with
/// foreach=True.
///
/// On the CPU torch runs the method of that name on each tensor in turn, so that is what they mean here; the kernels of
/// a program are then batched like any others. Their grouping of tensors by dtype is the other half.
#include "tracer/frontends/torch/torch.h"

#include <opcode.h>

#include "cpython/cpython.h"
#include "runtime/base/error.h"

namespace fj {

V torch_foreach(Tracer& tracer, std::string_view name, const Arguments& arguments) {
  if (arguments.positional.empty()) unsupported("a list given by name");
  const bool in_place = name.back() == '_';
  const std::string_view function = in_place ? name.substr(0, name.size() - 1) : name;
  // A number before the list: pow(2, tensors).
  const std::size_t self = array_of(arguments.positional[0]) || !is_sequence(arguments.positional[0]) ? 1 : 0;
  if (self >= arguments.positional.size() || !is_sequence(arguments.positional[self]))
    unsupported("this form of a function on lists");
  if (self == 1 && function != "pow") unsupported("this form of a function on lists");
  const std::vector<V> tensors = tracer.sequence_items(arguments.positional[self]);
  if (tensors.empty()) unsupported("an empty list of tensors");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    if (const Array tensor = i == self ? nullptr : array_of(arguments.positional[i]); tensor && !tensor->shape.empty())
      unsupported("a tensor of several elements for a list");
  auto each = [&](const V& argument) -> std::optional<std::vector<V>> {
    if (array_of(argument) || !is_sequence(argument)) return std::nullopt;
    std::vector<V> items = tracer.sequence_items(argument);
    if (items.size() != tensors.size()) refuse("lists of different lengths");
    return items;
  };
  std::vector<std::optional<std::vector<V>>> lists;
  for (const V& argument : arguments.positional) lists.push_back(each(argument));
  // What the method takes by name only: addcmul(a, b, value=...), add(a, alpha=...).
  const bool scaled = function == "addcmul" || function == "addcdiv";
  std::vector<V> results;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (!array_of(tensors[k])) refuse("a list of what are no tensors");
    std::vector<V> positional;
    auto keywords = arguments.keywords;
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
      if (i == self && self == 0) continue;
      V argument = lists[i] ? (*lists[i])[k] : arguments.positional[i];
      if (scaled && i == 3) keywords.emplace_back("value", argument);
      else positional.push_back(argument);
    }
    if (self == 1) {
      results.push_back(tracer.binary(NB_POWER, arguments.positional[0], tensors[k]));
    } else if (in_place && (function == "maximum" || function == "minimum")) {
      // These have no method that writes.
      V made = tracer.call(tracer.get_attribute(tensors[k], function), std::move(positional), std::move(keywords));
      if (const Array result = array_of(made);
          !result || result->dtype != array_of(tensors[k])->dtype || result->shape != array_of(tensors[k])->shape)
        unsupported("a result of another dtype or shape");
      tracer.call(tracer.get_attribute(tensors[k], "copy_"), {made});
    } else {
      results.push_back(
          tracer.call(tracer.get_attribute(tensors[k], name), std::move(positional), std::move(keywords)));
    }
  }
  return in_place ? arguments.positional[0] : tracer.tuple(std::move(results));
}

V torch_foreach_zero(Tracer& tracer, const Arguments& arguments) { return torch_foreach(tracer, "zero_", arguments); }
V torch_foreach_copy(Tracer& tracer, const Arguments& arguments) { return torch_foreach(tracer, "copy_", arguments); }

namespace {

/// What torch's own function makes of empty tensors of these dtypes and devices: of several, the order of the groups is
/// that of a hash table in C++.
Ref<> grouped_by_torch(const std::vector<std::pair<DType, int>>& tensors_in_order) {
  const std::int64_t none[] = {0}, one[] = {1};
  Ref<> tensors = Ref<>::steal(PyList_New(0));
  for (auto [dtype, device] : tensors_in_order) {
    const Ref<> tensor = allocate(Library::Torch, dtype, none, one, device);
    if (!tensor || PyList_Append(tensors.get(), tensor.get()) < 0) return {};
  }
  const Ref<> core = Ref<>::steal(PyObject_GetAttrString(torch_module(), "_C"));
  return core ? Ref<>::steal(PyObject_CallMethod(core.get(), "_group_tensors_by_device_and_dtype", "[O]O",
                                                 tensors.get(), Py_True))
              : Ref<>();
}

}  // namespace

/// {(device, dtype): (the lists, the indices)}
V torch_group_tensors(Tracer& tracer, const Arguments& arguments) {
  if (!arguments.keywords.empty()) unsupported("arguments by name");
  Parameters p(tracer, "_group_tensors_by_device_and_dtype", arguments, "tensorlistlist, with_indices");
  std::vector<std::vector<V>> lists;
  for (const V& list : tracer.sequence_items(p.required("tensorlistlist"))) {
    lists.push_back(tracer.sequence_items(list));
    for (const V& item : lists.back())
      if (!tracer.is_none(item)) torch_tensor(tracer, item);
    if (!lists.back().empty() && lists.back().size() != lists[0].size()) unsupported("lists of different lengths");
  }
  if (lists.empty() || lists[0].empty()) unsupported("an empty list of tensors");
  std::vector<std::pair<DType, int>> tensors;
  for (const V& item : lists[0])
    tensors.emplace_back(torch_tensor(tracer, item)->dtype, torch_tensor(tracer, item)->storage->device);
  const bool with_indices = p["with_indices"] && tracer.truth(p["with_indices"]);
  const Ref<> groups = grouped_by_torch(tensors);
  if (!groups || !PyDict_Check(groups.get())) {
    PyErr_Clear();
    unsupported("these tensors");
  }
  auto result = std::make_shared<DictValue>();
  PyObject *key, *group;
  for (Py_ssize_t position = 0; PyDict_Next(groups.get(), &position, &key, &group);) {
    PyObject* places = PyTuple_GetItem(group, 1);
    FJ_CHECK(places && PyList_Check(places), "the indices of a group");
    std::vector<V> indices, parts;
    for (const std::vector<V>& list : lists) {
      std::vector<V> part;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places) && !list.empty(); ++i)
        part.push_back(list.at(PyLong_AsSize_t(PyList_GET_ITEM(places, i))));
      parts.push_back(tracer.list(std::move(part)));
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places) && with_indices; ++i)
      indices.push_back(tracer.integer(PyLong_AsLongLong(PyList_GET_ITEM(places, i))));
    result->items.emplace_back(Ref<>::borrow(key),
                               tracer.tuple({tracer.list(std::move(parts)), tracer.list(std::move(indices))}));
  }
  return result;
}

}  // namespace fj
