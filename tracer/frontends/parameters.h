/// Binding the arguments of one call to a library function's parameters.
///
///     Parameters p(tracer, "sum", arguments, "a, axis, dtype, out, keepdims, initial, where");
///     V axis = p["axis"];              // null if not given
///
/// Names after `*` are keyword-only. An argument the signature does not have breaks the graph: either the library
/// raises there, or it is a feature the row does not lower.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tracer/frontends/frontend.h"

namespace fj {

class Parameters {
 public:
  Parameters(Tracer& tracer, std::string function, const Arguments& arguments, std::string_view signature);

  /// The argument, or null if it was not given.
  V operator[](std::string_view name) const;
  /// The argument; breaks (the library raises TypeError) if it was not given.
  V required(std::string_view name) const;
  /// True if it was not given or is None.
  bool absent(std::string_view name) const;
  /// torch takes bools alone; what NumPy takes differs between functions, it has been asked (acceptance.h).
  bool flag(std::string_view name, bool otherwise) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  double number(std::string_view name, double otherwise) const;  // int or float constant
  /// A constant str, or `otherwise` if not given.
  std::string text(std::string_view name, std::string_view otherwise) const;
  /// Breaks if any of these comma-separated parameters was given other than as None; `initial` and `where`: than not
  /// at all.
  void unsupported(std::string_view names) const;
  /// Breaks with UnsupportedOperation, naming the function.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  Tracer& tracer_;
  std::string function_;
  std::vector<std::pair<std::string, V>> bound_;
};

}  // namespace fj
