/// Recurrent networks: stacks of layers that drop elements, and the cells of the CPU, as the operations that torch
/// makes them of (framejit/_support/torch.py). Any other stack of layers is one call, and so is a cell of a device, for
/// which torch has kernels.
#include "runtime/base/error.h"

#include <algorithm>
#include "tracer/frontends/builders.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// A stack of recurrent layers with dropout between them: layer by layer, where a derivative is wanted. What torch
/// draws has no other. In a graph of operations alone, which drops nothing: step by step.
V layer_by_layer(Tracer& tracer, const Arguments& arguments, const char* name) {
  const std::vector<V>& given = arguments.positional;
  if (given.size() != 9 || !arguments.keywords.empty() || given[2]->kind != ValueKind::List)
    unsupported("recurrent layers over packed sequences");
  if (tracer.device() != kHost) unsupported("recurrent layers on " + device_text(tracer.device()));
  std::vector<V> passed{tracer.constant(torch_object(name))};
  passed.insert(passed.end(), given.begin(), given.end());
  const auto computed_by = [&](const char* function) {
    const Ref<> found = imported("framejit._support.torch", function);
    FJ_CHECK(found, "framejit._support.torch has the layers");
    return tracer.call(tracer.constant(found), std::move(passed));
  };
  const auto probability = tracer.constant_float(given[5]);
  if (tracer.only_operations() && (!tracer.truth(given[6]) || (probability && *probability == 0)))
    return computed_by("steps");
  if (!probability || *probability <= 0 || *probability >= 1 || !tracer.truth(given[6]) ||
      int_argument(tracer, given[4]) < 2)
    unsupported("recurrent layers that drop nothing");
  const auto derived = [&](const V& argument) {
    const Array array = array_of(argument);
    return array && tracer.requires_gradient(*array);
  };
  std::vector<V> operands = tracer.sequence_items(given[2]);
  if (given[1]->kind == ValueKind::Tuple)
    for (const V& state : tracer.sequence_items(given[1])) operands.push_back(state);
  else
    operands.push_back(given[1]);
  operands.push_back(given[0]);
  if (std::none_of(operands.begin(), operands.end(), derived))
    unsupported("recurrent layers that nothing is derived from");
  return computed_by("layers");
}

/// torch.gru_cell and its like, of `gates` matrices in each weight. What torch refuses stays a call, which raises.
V cell(Tracer& tracer, const Arguments& arguments, const char* name, int gates) {
  Parameters p(tracer, name, arguments, "input, hx, w_ih, w_hh, b_ih, b_hh");
  const bool pair = std::string_view(name) == "lstm_cell";
  std::vector<V> state{p.required("hx")};
  if (pair) {
    if (state[0]->kind != ValueKind::Tuple && state[0]->kind != ValueKind::List)
      unsupported("a cell without its states");
    state = tracer.sequence_items(state[0]);
    if (state.size() != 2) unsupported("a cell without its states");
  }
  const Array input = torch_tensor(tracer, p.required("input"));
  if (input->rank() != 2 || input->storage->device != kHost ||
      (input->dtype != DType::F32 && input->dtype != DType::F64))
    unsupported("a cell of tensors of this kind");
  const auto check = [&](const V& value, const Dims& shape) {
    const Array array = torch_tensor(tracer, value);
    if (array->dtype != input->dtype || array->storage->device != kHost || array->rank() != int(shape.size()) ||
        !same_shape(tracer, array->shape, shape))
      unsupported("a cell of these tensors");
  };
  const Array first = torch_tensor(tracer, state[0]);
  if (first->rank() != 2) unsupported("a cell of tensors of this kind");
  const SymDim count = input->shape[0], width = first->shape[1], rows = width * std::int64_t(gates);
  for (const V& part : state) check(part, {count, width});
  check(p.required("w_ih"), {rows, input->shape[1]});
  check(p.required("w_hh"), {rows, width});
  for (const char* bias : {"b_ih", "b_hh"})
    if (!p.absent(bias)) check(p[bias], {rows});
  const Ref<> function = imported("framejit._support.torch", name);
  FJ_CHECK(function, "framejit._support.torch has the cells");
  std::vector<V> passed{p["input"]};
  passed.insert(passed.end(), state.begin(), state.end());
  for (const char* parameter : {"w_ih", "w_hh", "b_ih", "b_hh"})
    passed.push_back(p.absent(parameter) ? tracer.none() : p[parameter]);
  return tracer.call(tracer.constant(function), std::move(passed));
}

}  // namespace

V torch_lstm(Tracer& tracer, const Arguments& arguments) { return layer_by_layer(tracer, arguments, "lstm"); }
V torch_gru(Tracer& tracer, const Arguments& arguments) { return layer_by_layer(tracer, arguments, "gru"); }
V torch_rnn_tanh(Tracer& tracer, const Arguments& arguments) { return layer_by_layer(tracer, arguments, "rnn_tanh"); }
V torch_rnn_relu(Tracer& tracer, const Arguments& arguments) { return layer_by_layer(tracer, arguments, "rnn_relu"); }


V torch_lstm_cell(Tracer& tracer, const Arguments& arguments) { return cell(tracer, arguments, "lstm_cell", 4); }
V torch_gru_cell(Tracer& tracer, const Arguments& arguments) { return cell(tracer, arguments, "gru_cell", 3); }
V torch_rnn_tanh_cell(Tracer& tracer, const Arguments& arguments) {
  return cell(tracer, arguments, "rnn_tanh_cell", 1);
}
V torch_rnn_relu_cell(Tracer& tracer, const Arguments& arguments) {
  return cell(tracer, arguments, "rnn_relu_cell", 1);
}

}  // namespace fj
