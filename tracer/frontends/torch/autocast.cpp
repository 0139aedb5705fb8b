/// What torch's autocast of the CPU does to the operands of functions that have a row: they are cast before the row
/// runs, as its kernels do before the function (aten/src/ATen/autocast_mode.h of torch). In-place forms and those with
/// `out` it leaves alone.
#include <unordered_map>

#include "arrays/torch_modes.h"
#include "cpython/objects.h"
#include "tracer/frontends/library.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

enum class Policy : std::uint8_t {
  Lower,    // to autocast's dtype
  Float32,
  Widest,   // to the widest dtype there is
  Library,  // the function is several that are cast, or one that casts in another way: it runs under autocast
};

const std::unordered_map<Handler, Policy>& policies() {
  const auto* known = once([] {
    auto* rows = new std::unordered_map<Handler, Policy>;
    for (Handler handler : {torch_matmul, torch_mm, torch_bmm, torch_addmm, torch_baddbmm, torch_linear, torch_conv1d,
                            torch_conv2d, torch_conv3d})
      rows->emplace(handler, Policy::Lower);
    for (Handler handler : {torch_f_mse_loss, torch_f_l1_loss, torch_f_nll_loss, torch_f_cross_entropy})
      rows->emplace(handler, Policy::Float32);
    for (Handler handler : {torch_cat, torch_stack}) rows->emplace(handler, Policy::Widest);
    for (Handler handler : {torch_inner, torch_einsum, torch_prod, torch_hstack, torch_vstack, torch_f_attention,
                            torch_encoder_layer, torch_lstm_cell, torch_gru_cell, torch_rnn_tanh_cell,
                            torch_rnn_relu_cell})
      rows->emplace(handler, Policy::Library);
    return rows;
  });
  return *known;
}

/// Of a list: whether all tensors in it have one dtype, so that none is the widest.
bool of_one_dtype(Tracer& tracer, const Arguments& arguments) {
  const V list = arguments.positional.empty() ? nullptr : arguments.positional[0];
  if (!list || !is_sequence(list)) return false;
  std::optional<DType> first;
  for (const V& item : tracer.sequence_items(list)) {
    const Array array = array_of(item);
    if (!array || (first && array->dtype != *first)) return false;
    first = array->dtype;
  }
  return true;
}

V cast_argument(Tracer& tracer, const V& value, DType to) {
  const Array array = value ? array_of(value) : nullptr;
  if (!array || array->library != Library::Torch || array->storage->device != kHost || !is_float(array->dtype) ||
      array->dtype == DType::F64 || array->dtype == to)
    return value;
  return torch_like(tracer, array, torch_cast(tracer, tracer.read(*array), to));
}

}  // namespace

std::optional<Arguments> torch_autocast(Tracer& tracer, Handler handler, const Arguments& arguments) {
  const auto policy = policies().find(handler);
  if (policy == policies().end()) return std::nullopt;
  const auto lower = torch_autocast_dtype();
  if (!lower) return std::nullopt;
  const bool widest = policy->second == Policy::Widest;
  if (policy->second == Policy::Library || (widest && !of_one_dtype(tracer, arguments)))
    unsupported("an operation that autocast casts");
  if (widest) return std::nullopt;
  const DType to = policy->second == Policy::Lower ? *lower : DType::F32;
  Arguments cast = arguments;
  for (V& value : cast.positional) value = cast_argument(tracer, value, to);
  for (auto& [name, value] : cast.keywords) value = cast_argument(tracer, value, to);
  return cast;
}

}  // namespace fj
