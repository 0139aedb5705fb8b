/// What the callables of an array library mean: tables from real callables to graph builders.
///
/// A row of numpy.def or torch.def names a callable and a handler. Three outcomes: lowered (the handler adds nodes
/// and returns a value), extern (torch functions without a row: `Tracer::extern_call`), or break (throws).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tracer/tracer.h"

namespace fj {

/// Arguments of one call as the user wrote them.
struct Arguments {
  std::vector<V> positional;
  std::vector<std::pair<std::string, V>> keywords;
};

/// A handler may be called only with the arguments its library's function accepts; it throws BreakGraph
/// (ErrorWhileTracing) where the library would raise.
using Handler = V (*)(Tracer& tracer, const Arguments& arguments);

/// The handler for a real callable (np.add, torch.sum, a method descriptor, F.gelu ...), or null. By identity.
Handler find_handler(PyObject* callable);
/// Callables of an array library that have no row, or whose row does not cover the arguments: may they run as extern
/// nodes?
enum class ExternUse : std::uint8_t { No, WithArray, Always };
ExternUse extern_use(PyObject* callable);
/// Its name in torch's schema registry, without "aten::"; "" if it is none of torch's operators.
std::string torch_operator_name(PyObject* callable);
/// True if what a row does not cover (BreakReason::UnsupportedOperation) is to be tried as if there were no row.
bool goes_on_without_row(PyObject* callable);
/// Whether what a row refuses for this reason may still be a call of the library in the graph.
bool is_left_to_library(BreakReason reason);

/// Runs a handler. Where a gradient would flow through what it has added, its derivative must be known to be the
/// library's: gradients.def lists the handlers of which that is so; else the graph breaks there. `callable`: what was
/// called, if it is an object.
V run_handler(Tracer& tracer, Handler handler, const Arguments& arguments, PyObject* callable = nullptr);

/// One call that a row answers, not for another row. It throws UnsupportedOperation if this one is to be the library's
/// (whole_parts.cpp).
class LibraryChoice {
 public:
  explicit LibraryChoice(Tracer& tracer);
  ~LibraryChoice();
  void done();

 private:
  class TraceRun& run_;
  const std::size_t first_;
};

/// Nodes from `first` on must not lie between a tensor that requires a gradient and a result. Index maps are linear:
/// their derivative is what it is. What writes asks this before.
void require_no_gradient(Tracer& tracer, std::size_t first);

/// Operators and attributes of arrays, by the libraries' own dispatch rules.
V array_binary(Tracer& tracer, int nb_op, const V& a, const V& b);       // either is an Array
V array_compare(Tracer& tracer, int comparison, const V& a, const V& b);
V array_unary(Tracer& tracer, int opcode, const V& a);                    // FJ_UNARY_NEGATIVE...
V array_get_item(Tracer& tracer, const V& array, const V& key);
void array_set_item(Tracer& tracer, const V& array, const V& key, const V& value);
/// `.shape`, `.dtype`, `.T`, `.ndim`...; a BuiltinValue for methods; breaks if unknown.
V array_attribute(Tracer& tracer, const V& array, std::string_view name);
V array_method(Tracer& tracer, const V& array, std::string_view name, const Arguments& arguments);
V array_length(Tracer& tracer, const V& array);
/// How many rows a loop over the array goes through; breaks if they are too many.
std::int64_t rows_to_unroll(Tracer& tracer, const V& value);
std::vector<V> array_iterate(Tracer& tracer, const V& array);             // along axis 0, unrolled

}  // namespace fj
