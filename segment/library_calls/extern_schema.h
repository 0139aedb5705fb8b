/// What torch says about its own functions: which may run as extern nodes, which draw random numbers, which write into
/// arguments without saying so.
///
/// Aliasing and mutation are read from each call on meta tensors (extern_prediction.h): the schemas only decide whether
/// to try.
#pragma once

#include <string>
#include <vector>

namespace fj {

struct ExternParameter {
  std::string name;
  std::size_t position;  // among positional arguments; SIZE_MAX: by keyword only
};

struct ExternEffects {
  bool known = false;            // an operator of torch's that makes tensors of its arguments
  bool random = false;
  bool repeatable = false;       // though random may be: another namespace's operator that is not declared to draw numbers
  bool autocast = false;         // autocast on the CPU casts its f32 tensors to the lower precision
  bool factory = false;          // takes `device=`: may make tensors from none
  bool detaches = false;         // its result shares memory, but torch calls it no view
  bool joint = false;            // a result has a derivative only where others have a cotangent too
  bool underivable = false;      // torch differentiates through it only to say that it can't
  bool signed_numbers = false;   // takes numbers that say how far and which way: negative ones are no error
  bool by_place = false;         // reads its tensor's memory by places that the tensor need not show
  std::vector<ExternParameter> declared_writes;  // `Tensor(a!)` of a schema
  std::vector<ExternParameter> writes;  // running statistics, which are written though the schema does not say so
  std::vector<ExternParameter> sparse;  // flags by which torch's derivative is a sparse tensor
};

/// Effects of the aten operator or Python function `name` ("namespace::name": another namespace's operator), from
/// torch's schema registry and a table of what that omits.
const ExternEffects& extern_effects(const std::string& name);

}  // namespace fj
