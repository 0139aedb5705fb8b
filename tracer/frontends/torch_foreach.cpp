/// torch._foreach_*: one operation on each tensor of a list, as the optimisers of torch.optim use them with foreach=True.
///
/// On the CPU torch runs the method of that name on each tensor in turn, so that is what they mean here; the kernels of a program are then batched
/// like any others. Their grouping of tensors by dtype is the other half.
#include "tracer/frontends/torch.h"

#include <opcode.h>

#include "frame_hook/cpython/cpython.h"
#include "runtime/base/error.h"

namespace fj {

V torch_foreach(Tracer& tracer, std::string_view name, const Arguments& arguments) {
  if (arguments.positional.empty()) unsupported("a list given by name");
  const bool in_place = name.back() == '_';
  const std::string_view function = in_place ? name.substr(0, name.size() - 1) : name;
  // A number before the list: pow(2, tensors).
  const std::size_t self = array_of(arguments.positional[0]) || !is_sequence(arguments.positional[0]) ? 1 : 0;
  if (self >= arguments.positional.size() || !is_sequence(arguments.positional[self])) unsupported("this form of a function on lists");
  if (self == 1 && function != "pow") unsupported("this form of a function on lists");
  const std::vector<V> tensors = tracer.sequence_items(arguments.positional[self]);
  if (tensors.empty()) unsupported("an empty list of tensors");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    if (const Array tensor = i == self ? nullptr : array_of(arguments.positional[i]); tensor && !tensor->shape.empty()) unsupported("a tensor of several elements for a list");
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
      if (const Array result = array_of(made); !result || result->dtype != array_of(tensors[k])->dtype || result->shape != array_of(tensors[k])->shape)
        unsupported("a result of another dtype or shape");
      tracer.call(tracer.get_attribute(tensors[k], "copy_"), {made});
    } else {
      results.push_back(tracer.call(tracer.get_attribute(tensors[k], name), std::move(positional), std::move(keywords)));
    }
  }
  return in_place ? arguments.positional[0] : tracer.tuple(std::move(results));
}

/// {(device, dtype): (the lists, the indices)}. Of several dtypes the order of the groups is that of a hash table in C++.
V torch_group_tensors(Tracer& tracer, const Arguments& arguments) {
  if (!arguments.keywords.empty()) unsupported("arguments by name");
  Parameters p(tracer, "_group_tensors_by_device_and_dtype", arguments, "tensorlistlist, with_indices");
  std::vector<V> lists;
  std::optional<DType> dtype;
  std::size_t count = 0;
  for (const V& list : tracer.sequence_items(p.required("tensorlistlist"))) {
    const std::vector<V> items = tracer.sequence_items(list);
    if (lists.empty()) {
      count = items.size();
      for (const V& item : items) {
        const Array tensor = torch_tensor(tracer, item);
        if (dtype && *dtype != tensor->dtype) unsupported("tensors of several dtypes in one list");
        dtype = tensor->dtype;
      }
    }
    for (const V& item : items)
      if (!tracer.is_none(item)) torch_tensor(tracer, item);
    lists.push_back(tracer.list(items));
  }
  if (!dtype) unsupported("an empty list of tensors");
  std::vector<V> indices;
  if (p["with_indices"] && tracer.truth(p["with_indices"]))
    for (std::size_t i = 0; i < count; ++i) indices.push_back(tracer.integer(std::int64_t(i)));
  auto groups = std::make_shared<DictValue>();
  Ref<> device = Ref<>::steal(PyObject_CallMethod(torch_module(), "device", "s", "cpu"));
  const Ref<> type = dtype_object(Library::Torch, *dtype);
  Ref<> key = device && type ? Ref<>::steal(PyTuple_Pack(2, device.get(), type.get())) : Ref<>();
  FJ_CHECK(key, "a device and a dtype");
  groups->items.emplace_back(std::move(key), tracer.tuple({tracer.list(std::move(lists)), tracer.list(std::move(indices))}));
  return groups;
}

}  // namespace fj
