/// What each array library gives the registry in frontend.cpp: its table of callables and its operator rules.
///
/// A library is two sets of functions with equal names but for the prefix. frontend.cpp owns the dispatch
/// between them (whose operator runs when a tensor meets an ndarray); a library owns everything about its own.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tracer/frontends/frontend.h"

namespace fj {

/// One row of numpy.def or torch.def. `name` is the dotted path from the module in sys.modules: "numpy.add",
/// "numpy.ndarray.sum", "torch.Tensor.mul_", "torch.nn.functional.gelu". Rows "numpy.ndarray.X" and "torch.Tensor.X"
/// are the methods of arrays too: the handler gets the array as its first positional argument.
struct HandlerRow {
  const char* name;
  Handler handler;
};

using Array = std::shared_ptr<ArrayValue>;

std::span<const HandlerRow> numpy_rows();
V numpy_binary(Tracer& tracer, int nb_op, const V& a, const V& b);
V numpy_compare(Tracer& tracer, int comparison, const V& a, const V& b);
V numpy_unary(Tracer& tracer, int opcode, const Array& a);
V numpy_get_item(Tracer& tracer, const Array& array, const V& key);
void numpy_set_item(Tracer& tracer, const Array& array, const V& key, const V& value);
/// Null if the attribute is not one we answer (then: a method with a row, or a break).
V numpy_attribute(Tracer& tracer, const Array& array, std::string_view name);

std::span<const HandlerRow> torch_rows();
V torch_binary(Tracer& tracer, int nb_op, const V& a, const V& b);
V torch_compare(Tracer& tracer, int comparison, const V& a, const V& b);
V torch_unary(Tracer& tracer, int opcode, const Array& a);
V torch_get_item(Tracer& tracer, const Array& array, const V& key);
void torch_set_item(Tracer& tracer, const Array& array, const V& key, const V& value);
V torch_attribute(Tracer& tracer, const Array& array, std::string_view name);
/// Whether a torch function without a row may run as an extern node.
ExternUse torch_extern_use(PyObject* callable);
/// `operator.<name>` on tensors, as an extern node.
V torch_syntax(Tracer& tracer, const char* name, const std::vector<V>& operands);
/// Whether the derivative of what a handler (or an operator) makes is torch's own, at singular points too: a row of
/// gradients.def. Handlers of NumPy: true.
bool torch_gradient_known(Handler handler);
bool torch_operator_gradient_known(int nb_op);
/// A function of torch with `out`, a tensor of the result's dtype and shape: null if it has none or is not one of those
/// listed there.
V torch_into(Tracer& tracer, Handler handler, const Arguments& arguments, PyObject* callable);
/// Notes what torch saves of the call besides: a row of gradients.def.
void torch_note_saved(Tracer& tracer, Handler handler, const Arguments& arguments, const V& result);
/// The arguments as torch's autocast gives them to the function of a row; nothing: as they are. Breaks
/// (UnsupportedOperation) where the library's function is to run under autocast.
std::optional<Arguments> torch_autocast(Tracer& tracer, Handler handler, const Arguments& arguments);
/// Notes that function(base, *arguments, **keywords) returns `result`, if that is a view of base, or several.
void torch_note_views(Tracer& tracer, const V& base, PyObject* function, const std::vector<V>& arguments,
                      const std::vector<std::pair<std::string, V>>& keywords, const V& result);
/// A function of the module builtins on a tensor, as an extern node.
V torch_builtin(Tracer& tracer, const char* name, const std::vector<V>& operands);
/// A method of a tensor without a row: run as an extern node, or break.
V torch_method_fallback(Tracer& tracer, const Array& array, std::string_view name, const Arguments& arguments);

}  // namespace fj
