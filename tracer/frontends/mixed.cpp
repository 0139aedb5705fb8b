/// Crossing between the libraries: an array of one as a view of the same memory in the other.
///
/// Nothing is copied and no node is made: the view has the same storage, so writes through either are seen by both.
#include "tracer/frontends/torch/torch.h"

namespace fj {

V torch_numpy(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy", arguments, "input, *, force");
  Array x = torch_tensor(tracer, p.required("input"));
  if (p.flag("force", false)) p.refuse("force");
  if (x->dtype == DType::BF16) refuse("numpy() of bfloat16");
  if (tracer.requires_gradient(*x)) refuse("numpy() of a tensor that requires a gradient");
  return view_as_library(tracer, x, Library::Numpy);
}

V torch_from_numpy(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "from_numpy", arguments, "ndarray");
  Array x = array_of(p.required("ndarray"));
  if (!x || x->library != Library::Numpy || x->numpy_scalar) refuse("from_numpy() of other than an array");
  // torch warns about arrays that are read-only, and refuses negative strides.
  if (!x->writeable) unsupported("from_numpy() of a read-only array");
  for (const SymDim& stride : x->strides)
    if (tracer.decide(stride, Py_LT, 0)) refuse("from_numpy() of an array with negative strides");
  return view_as_library(tracer, x, Library::Torch);
}

}  // namespace fj
