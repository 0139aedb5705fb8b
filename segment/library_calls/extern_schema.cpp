/// Reads torch's schema registry, once per name. Rows below are what it does not say.
#include "segment/library_calls/extern_schema.h"

#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "arrays/arrays.h"
#include "cpython/ref.h"

namespace fj {
namespace {

/// Random without a Generator in every schema.
const std::unordered_set<std::string>& undeclared_random() {
  static const std::unordered_set<std::string> names{"dropout",
                                                     "dropout_",
                                                     "native_dropout",
                                                     "alpha_dropout",
                                                     "alpha_dropout_",
                                                     "feature_dropout",
                                                     "feature_dropout_",
                                                     "feature_alpha_dropout",
                                                     "feature_alpha_dropout_",
                                                     "rrelu",
                                                     "rrelu_",
                                                     "rand",
                                                     "randn",
                                                     "randint",
                                                     "randperm",
                                                     "rand_like",
                                                     "randn_like",
                                                     "randint_like",
                                                     "lstm",
                                                     "gru",
                                                     "rnn_tanh",
                                                     "rnn_relu",
                                                     "scaled_dot_product_attention",
                                                     "_scaled_dot_product_flash_attention_for_cpu"};
  return names;
}

/// What autocast on the CPU casts; a function missing here costs a trace more, as its first call corrects the
/// prediction.
const std::unordered_set<std::string>& lower_precision() {
  static const std::unordered_set<std::string> names{"conv1d",
                                                     "conv2d",
                                                     "conv3d",
                                                     "conv_tbc",
                                                     "conv_transpose1d",
                                                     "conv_transpose2d",
                                                     "conv_transpose3d",
                                                     "convolution",
                                                     "bmm",
                                                     "mm",
                                                     "mv",
                                                     "baddbmm",
                                                     "addmm",
                                                     "addbmm",
                                                     "linear",
                                                     "matmul",
                                                     "inner",
                                                     "dot",
                                                     "einsum",
                                                     "tensordot",
                                                     "chain_matmul",
                                                     "multi_dot",
                                                     "scaled_dot_product_attention",
                                                     "lstm",
                                                     "gru",
                                                     "rnn_tanh",
                                                     "rnn_relu"};
  return names;
}

/// Of a size that depends on data, about more than their arguments' contents, or of things that are not values.
const std::unordered_set<std::string>& excluded() {
  static const std::unordered_set<std::string> names{"nonzero",
                                                     "unique",
                                                     "unique_consecutive",
                                                     "unique_dim",
                                                     "masked_select",
                                                     "bincount",
                                                     "argwhere",
                                                     "histogram",
                                                     "from_file",
                                                     "equal",
                                                     "allclose",
                                                     "is_nonzero",
                                                     "sparse_coo_tensor",
                                                     "sparse_csr_tensor",
                                                     "to_sparse",
                                                     "set_",
                                                     "resize_",
                                                     "resize_as_",
                                                     "data",
                                                     "requires_grad_",
                                                     "retain_grad",
                                                     "record_stream",
                                                     "rename",
                                                     "rename_",
                                                     "refine_names",
                                                     "align_to",
                                                     "names",
                                                     "set_data",
                                                     "item",
                                                     "_local_scalar_dense",
                                                     "to_dense",
                                                     "to_mkldnn",
                                                     "quantize_per_tensor",
                                                     "dequantize",
                                                     "pin_memory",
                                                     "_pack_padded_sequence",
                                                     "_pad_packed_sequence",
                                                     "_version",
                                                     "is_leaf",
                                                     "output_nr",
                                                     "empty",
                                                     "empty_like",
                                                     "empty_strided",
                                                     "new_empty",
                                                     "new_empty_strided",
                                                     "_conj",
                                                     "conj",
                                                     "_neg_view",
                                                     "detach_",
                                                     "get_device",
                                                     "is_same_size",
                                                     "cudnn_convolution",
                                                     "storage_offset",
                                                     "_batch_norm_impl_index",
                                                     "batch_norm_update_stats"};
  return names;
}

/// Running statistics are written without a word of it by all that take them, but for derivatives and functions called
/// after what they don't do.
bool is_written(const std::string& function, const std::string& type, const std::string& parameter) {
  return type == "Tensor?" && parameter.rfind("running_", 0) == 0 && function.find("backward") == std::string::npos &&
         function.find("no_update") == std::string::npos;
}

/// The parameters of a schema that ask for care, of "(Tensor input, Tensor? running_mean, *, bool sparse_grad=False) ->
/// Tensor".
void read_parameters(const std::string& function, const std::string& schema, ExternEffects& effects) {
  const auto add = [](std::vector<ExternParameter>& to, std::string name, std::size_t position) {
    if (std::none_of(to.begin(), to.end(), [&](const ExternParameter& known) { return known.name == name; }))
      to.push_back({std::move(name), position});
  };
  std::size_t position = 0;
  bool by_position = true;
  for (std::size_t at = 1; at < schema.size(); ++at) {
    const std::size_t end = std::min(schema.find(", ", at), schema.rfind(") ->"));
    const std::string part = schema.substr(at, end - at), type = part.substr(0, part.find(' '));
    if (part == "*") {
      by_position = false;
    } else if (type != part) {
      const std::string name = part.substr(type.size() + 1, part.find('=') - type.size() - 1);
      const std::size_t place = by_position ? position++ : SIZE_MAX;
      if (is_written(function, type, name)) add(effects.writes, name, place);
      if (type.find('!') != std::string::npos) add(effects.declared_writes, name, place);
      if (name == "shifts" || name == "diagonal" || name == "offset") effects.signed_numbers = true;
      if (type == "bool" && (name == "sparse" || name == "sparse_grad")) add(effects.sparse, name, place);
    }
    if (end >= schema.size() || schema[end] == ')') break;
    at = end + 1;
  }
}

bool is_data_name(const std::string& name) { return name.rfind("_assert", 0) == 0 || name.rfind("_cslt", 0) == 0; }

/// Whether a registered operator is declared to draw random numbers (torch.Tag.nondeterministic_seeded).
bool is_tagged_random(const std::string& name) {
  const std::size_t colons = name.find("::"), dot = name.find('.', colons);
  const std::string home = name.substr(0, colons), own = name.substr(colons + 2, dot - colons - 2);
  Ref<> found = imported("torch", "ops");
  for (const std::string& part : {home, own, dot == std::string::npos ? std::string("default") : name.substr(dot + 1)})
    if (found) found = Ref<>::steal(PyObject_GetAttrString(found.get(), part.c_str()));
  Ref<> tags = found ? Ref<>::steal(PyObject_GetAttrString(found.get(), "tags")) : Ref<>(),
        tag = imported("torch", "Tag");
  if (tag) tag = Ref<>::steal(PyObject_GetAttrString(tag.get(), "nondeterministic_seeded"));
  const int is_among = tags && tag ? PySequence_Contains(tags.get(), tag.get()) : -1;
  PyErr_Clear();
  return is_among != 0;
}

ExternEffects read_effects(const std::string& name) {
  ExternEffects effects;
  effects.random = undeclared_random().count(name) != 0;
  effects.autocast = lower_precision().count(name) != 0;
  effects.detaches = name == "detach";
  effects.by_place = name.rfind("as_strided", 0) == 0;
  effects.joint = name == "native_group_norm";  // of its statistics
  effects.underivable = name == "floordiv" || name == "floor_divide";
  if (excluded().count(name) != 0 || is_data_name(name)) return effects;
  PyObject* torch = torch_module();
  Ref<> core = torch ? Ref<>::steal(PyObject_GetAttrString(torch, "_C")) : Ref<>();
  Ref<> find = core ? Ref<>::steal(PyObject_GetAttrString(core.get(), "_jit_get_schemas_for_operator")) : Ref<>();
  // An operator that somebody registered: its schema is all that is known of it.
  const bool foreign = name.find("::") != std::string::npos;
  Ref<> schemas =
      find ? Ref<>::steal(PyObject_CallFunction(find.get(), "s", (foreign ? name : "aten::" + name).c_str())) : Ref<>();
  for (Py_ssize_t i = 0; schemas && PyList_Check(schemas.get()) && i < PyList_GET_SIZE(schemas.get()); ++i) {
    Ref<> text = Ref<>::steal(PyObject_Str(PyList_GET_ITEM(schemas.get(), i)));
    const char* bytes = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    const char* parameters = bytes ? std::strchr(bytes, '(') : nullptr;
    if (!parameters) continue;
    const std::string schema = parameters;
    const std::size_t arrow = schema.rfind("->");
    // TorchScript's operators of the same name on lists and numbers are other functions.
    if (arrow == std::string::npos || schema.find("Tensor", arrow) == std::string::npos) continue;
    if (foreign) {
      effects.known = schema.find("Tensor(") == std::string::npos;  // writes into nothing, shares no memory
      effects.random = true;  // perhaps: never dropped, never merged with another one
      effects.signed_numbers = true;
      effects.repeatable = !is_tagged_random(name);
      if (!effects.known) break;
      continue;
    }
    effects.known = true;
    read_parameters(name, schema, effects);
    if (schema.find("Generator") != std::string::npos) effects.random = true;
    if (schema.find("Device? device") != std::string::npos) effects.factory = true;
  }
  PyErr_Clear();
  return effects;
}

}  // namespace

const ExternEffects& extern_effects(const std::string& name) {
  // Never destroyed, and its elements never move.
  static auto* known = new std::unordered_map<std::string, ExternEffects>;
  auto found = known->find(name);
  return found != known->end() ? found->second : known->emplace(name, read_effects(name)).first->second;
}

}  // namespace fj
