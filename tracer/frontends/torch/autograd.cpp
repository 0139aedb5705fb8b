/// backward() and what else asks autograd for derivatives: the arguments; the tracer does the rest
/// (tracer/gradients/backward_call.cpp).
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// One tensor, or a tuple or list of them.
std::vector<V> tensors_of(Tracer& tracer, const V& value) {
  if (array_of(value)) return {value};
  if (value->kind != ValueKind::Tuple && value->kind != ValueKind::List) unsupported("a backward from this object");
  return tracer.sequence_items(value);
}

Tracer::Backward results_of(Tracer& tracer, const Parameters& p, std::string_view results,
                            std::string_view cotangents) {
  Tracer::Backward call;
  call.results = tensors_of(tracer, p.required(results));
  if (!p.absent(cotangents)) call.cotangents = tensors_of(tracer, p[cotangents]);
  call.cotangents.resize(std::max(call.cotangents.size(), call.results.size()));
  if (call.cotangents.size() != call.results.size()) refuse("another number of gradients than of tensors");
  if (p.flag("create_graph", false)) break_graph(BreakReason::Gradient, "a backward that is to be derived itself");
  call.retain = p.flag("retain_graph", false);
  return call;
}

V run(Tracer& tracer, const Parameters& p, std::string_view results, std::string_view cotangents) {
  Tracer::Backward call = results_of(tracer, p, results, cotangents);
  if (!p.absent("inputs")) {
    call.only_inputs = true;
    call.inputs = tensors_of(tracer, p["inputs"]);
    if (call.inputs.empty()) refuse("a backward to no tensors");
  }
  tracer.backward(call);
  return tracer.none();
}

}  // namespace

V torch_backward(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "backward", arguments, "input, gradient, retain_graph, create_graph, inputs");
  return run(tracer, p, "input", "gradient");
}

V torch_autograd_backward(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "backward", arguments,
               "tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs");
  p.unsupported("grad_variables");
  return run(tracer, p, "tensors", "grad_tensors");
}

V torch_autograd_grad(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "grad", arguments,
               "outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, "
               "is_grads_batched, materialize_grads");
  if (!p.flag("only_inputs", true) || p.flag("is_grads_batched", false)) unsupported("grad() with these arguments");
  Tracer::Backward call = results_of(tracer, p, "outputs", "grad_outputs");
  call.inputs = tensors_of(tracer, p.required("inputs"));
  const bool materialize = p.flag("materialize_grads", false);
  if (materialize && !p.absent("allow_unused") && !p.flag("allow_unused", false))
    refuse("grad(materialize_grads=True, allow_unused=False)");
  std::vector<V> gradients = tracer.grad(call);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!tracer.is_none(gradients[i])) continue;
    if (materialize)
      gradients[i] = torch_zeros_like(tracer, {{call.inputs[i]}, {}});
    else if (!p.flag("allow_unused", false))
      refuse("a derivative by a tensor that was not used");
  }
  return tracer.tuple(std::move(gradients));
}

/// The one element as a Python number.
V torch_item(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "item", arguments, "input");
  return tracer.number(*torch_tensor(tracer, p.required("input")));
}

}  // namespace fj
