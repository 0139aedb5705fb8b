// The functions that regions call.
#include <cmath>

#include "graph_ir/region/region.h"

namespace fj::region {
namespace {

constexpr Function function(std::string_view name, double (*one)(double)) { return {name, 1, one, nullptr}; }
constexpr Function function(std::string_view name, double (*two)(double, double)) { return {name, 2, nullptr, two}; }
template <int operands>
struct Signature;
template <>
struct Signature<1> {
  using Type = double (*)(double);
};
template <>
struct Signature<2> {
  using Type = double (*)(double, double);
};

constexpr Function kFunctions[] = {
#define FJ_FUNCTION(name, operands) function(#name, static_cast<Signature<operands>::Type>(::name)),
#include "graph_ir/region/functions.def"
};

}  // namespace

std::span<const Function> functions() { return kFunctions; }

int function_number(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kFunctions); ++i)
    if (kFunctions[i].name == name) return int(i);
  return -1;
}

}  // namespace fj::region
