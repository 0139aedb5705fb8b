/// What torch's autocast of the CPU does to the operands of functions that have a row: they are cast before the row
/// runs, as its kernels do before the function (aten/src/ATen/autocast_mode.h of torch). Other functions that it casts
/// are the library's, which is called under autocast.
#include <unordered_map>

#include "arrays/torch_modes.h"
#include "cpython/objects.h"
#include "tracer/frontends/library.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

enum class Policy : std::uint8_t { Lower, Float32, Widest };

const std::unordered_map<Handler, Policy>& policies() {
  const auto* known = once([] {
    return new std::unordered_map<Handler, Policy>{
        {torch_matmul, Policy::Lower},      {torch_mm, Policy::Lower},          {torch_bmm, Policy::Lower},
        {torch_addmm, Policy::Lower},       {torch_baddbmm, Policy::Lower},     {torch_linear, Policy::Lower},
        {torch_conv1d, Policy::Lower},      {torch_conv2d, Policy::Lower},      {torch_conv3d, Policy::Lower},
        {torch_f_mse_loss, Policy::Float32}, {torch_f_l1_loss, Policy::Float32}, {torch_f_nll_loss, Policy::Float32},
        {torch_f_cross_entropy, Policy::Float32},
        {torch_cat, Policy::Widest},        {torch_stack, Policy::Widest},
    };
  });
  return *known;
}

/// Set while a row runs whose operands are cast.
thread_local bool operands_are_cast = false;

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

void leave_to_autocast() {
  if (!operands_are_cast && torch_autocast_dtype()) unsupported("an operation that autocast casts");
}

AutocastOperands::AutocastOperands(Tracer& tracer, Handler handler, const Arguments& arguments) : outside_(operands_are_cast) {
  operands_are_cast = false;
  const auto policy = policies().find(handler);
  if (policy == policies().end()) return;
  const auto lower = torch_autocast_dtype();
  if (!lower || (policy->second == Policy::Widest && !of_one_dtype(tracer, arguments))) return;
  operands_are_cast = true;
  if (policy->second == Policy::Widest) return;
  const DType to = policy->second == Policy::Lower ? *lower : DType::F32;
  cast_ = arguments;
  for (V& value : cast_->positional) value = cast_argument(tracer, value, to);
  for (auto& [name, value] : cast_->keywords) value = cast_argument(tracer, value, to);
}

AutocastOperands::~AutocastOperands() { operands_are_cast = outside_; }

}  // namespace fj
