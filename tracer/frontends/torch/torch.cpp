/// torch's side of the registry: the table of callables, operators, attributes, and what may run as an extern node.
///
/// Rows are in torch.def; their handlers are in the other files of this folder and in ../mixed.cpp. Here is the
/// dispatch of syntax (`x + y`, `x[i]`, `x.T`) to those rows as Tensor's methods do it.
#include "tracer/frontends/torch/torch.h"

#include <opcode.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "arrays/torch_modes.h"
#include "cpython/cpython.h"
#include "segment/library_calls/extern_schema.h"
#include "tracer/frontends/indexing.h"

namespace fj {

std::span<const HandlerRow> torch_rows() {
  static const HandlerRow rows[] = {
#define FJ_TORCH(path, handler) {path, handler},
#define FJ_TORCH_BOTH(name, handler) {"torch." #name, handler}, {"torch.Tensor." #name, handler},
#define FJ_TORCH_TUPLE(name, handler) {"torch." #name, WithTuple<handler>}, {"torch.Tensor." #name, handler},
#define FJ_TORCH_ALL(name, handler) \
  FJ_TORCH_BOTH(name, handler) {"torch.Tensor." #name "_", InPlace<handler>}, {"torch." #name "_", InPlace<handler>},
#define FJ_TORCH_UNARY(name, function, op)                                                   \
  {"torch." #name, Row<function, op>}, {"torch.Tensor." #name, Row<function, op>},           \
      {"torch.Tensor." #name "_", InPlace<Row<function, op>>}, {"torch." #name "_", InPlace<Row<function, op>>},
#define FJ_TORCH_EXTERN(path)
#define FJ_TORCH_FOREACH(name) \
  {"torch._foreach_" #name, torch_foreach_##name}, {"torch._foreach_" #name "_", torch_foreach_write_##name},
#include "tracer/frontends/torch/torch.def"
#undef FJ_TORCH
#undef FJ_TORCH_BOTH
#undef FJ_TORCH_TUPLE
#undef FJ_TORCH_ALL
#undef FJ_TORCH_UNARY
#undef FJ_TORCH_EXTERN
#undef FJ_TORCH_FOREACH
  };
  return rows;
}

bool torch_gradient_known(Handler handler) {
  const auto* known = once([] {
    auto* result = new std::unordered_set<Handler>;
    for (const HandlerRow& row : numpy_rows()) result->insert(row.handler);
    // These call methods, each of which is asked.
    for (const HandlerRow& row : torch_rows())
      if (std::string_view(row.name).substr(0, 15) == "torch._foreach_") result->insert(row.handler);
#define FJ_GRADIENT(handler) result->insert({handler, InPlace<handler>, WithTuple<handler>});
#define FJ_GRADIENT_ROW(function, op) result->insert({Row<function, Op::op>, InPlace<Row<function, Op::op>>});
#define FJ_SAVES(handler, saved)
#define FJ_SAVES_ROW(function, op, saved)
#include "tracer/frontends/gradients.def"
    return result;
  });
  return known->count(handler) != 0;
}

namespace {

/// A word of a row of FJ_SAVES in gradients.def.
struct SavedPart {
  enum Kind : std::uint8_t { Argument, Result, By } kind;
  std::size_t place = 0;
  std::string name;
  enum When : std::uint8_t { Always, IsTensor, IsNone, NeedsGradient } when = Always;
  std::size_t other = 0;  // the argument that this depends on
  std::string other_name;
};

std::vector<SavedPart> parse_saved(std::string_view text) {
  std::vector<SavedPart> parts;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t end = std::min(word.find_first_of("@!?"), word.size());
    SavedPart part{word.substr(0, end) == "result" ? SavedPart::Result
                   : word.substr(0, end) == "by"   ? SavedPart::By
                                                   : SavedPart::Argument};
    if (part.kind == SavedPart::Argument) {
      part.place = std::size_t(word[0] - '0');
      part.name = word.substr(2, end - 2);
    }
    if (end < word.size()) {
      part.when = word[end] == '@'   ? SavedPart::IsTensor
                  : word[end] == '!' ? SavedPart::IsNone
                                     : SavedPart::NeedsGradient;
      part.other = std::size_t(word[end + 1] - '0');
      part.other_name = word.substr(end + 3);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Array torch_argument(const Arguments& arguments, std::size_t place, const std::string& name) {
  V found = place < arguments.positional.size() ? arguments.positional[place] : nullptr;
  for (const auto& [keyword, value] : arguments.keywords)
    if (keyword == name) found = value;
  Array array = found ? array_of(found) : nullptr;
  return array && array->library == Library::Torch ? array : nullptr;
}

}  // namespace

void torch_note_saved(Tracer& tracer, Handler handler, const Arguments& arguments, const V& result) {
  const auto* known = once([] {
    auto* rows = new std::unordered_map<Handler, std::vector<SavedPart>>;
#define FJ_GRADIENT(handler)
#define FJ_GRADIENT_ROW(function, op)
#define FJ_SAVES(handler, saved) rows->emplace(handler, parse_saved(saved));
#define FJ_SAVES_ROW(function, op, saved) rows->emplace(Row<function, Op::op>, parse_saved(saved));
#include "tracer/frontends/gradients.def"
    return rows;
  });
  const auto row = known->find(handler);
  if (row == known->end()) return;
  const Array made = array_of(result);
  if (!made || !tracer.requires_gradient(*made)) return;
  tracer.read(*made);
  const ValueId contents = made->storage->contents;  // what was computed, if a view of that is returned
  auto holds = [&](const SavedPart& part) {
    const Array other =
        part.when == SavedPart::Always ? nullptr : torch_argument(arguments, part.other, part.other_name);
    if (part.when == SavedPart::Always || part.when == SavedPart::IsNone)
      return part.when == SavedPart::Always || !other;
    return other && (part.when == SavedPart::IsTensor || tracer.requires_gradient(*other));
  };
  std::vector<ValueId> saved;
  bool any = true;  // of `by`
  for (const SavedPart& part : row->second)
    if (part.kind == SavedPart::By) any = false;
  for (const SavedPart& part : row->second) {
    if (!holds(part)) continue;
    any = any || part.kind == SavedPart::By;
    if (part.kind == SavedPart::Result) saved.push_back(contents);
    if (const Array argument =
            part.kind == SavedPart::Argument ? torch_argument(arguments, part.place, part.name) : nullptr)
      saved.push_back(tracer.read(*argument));
  }
  if (any) tracer.also_saves(contents, std::move(saved));
}

V torch_into(Tracer& tracer, Handler handler, const Arguments& arguments, PyObject* callable) {
  // No schema says which of torch's functions take it in Python; methods don't.
  static const std::set<std::string_view> kTaking = {
      "abs",  "add",     "addcdiv", "addcmul", "clamp", "cos",     "div", "exp",  "log", "matmul", "maximum",
      "mean", "minimum", "mul",     "neg",     "pow",   "sigmoid", "sin", "sqrt", "sub", "sum",    "tanh"};
  if (!PyCFunction_Check(callable) || !kTaking.count(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name))
    return nullptr;
  const auto given = std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                                  [](const auto& keyword) { return keyword.first == "out"; });
  const Array out = given == arguments.keywords.end() ? nullptr : array_of(given->second);
  if (!out || out->library != Library::Torch) return nullptr;
  if (torch_autocast_dtype()) unsupported("out= under autocast");  // which casts nothing there
  // These read what they have written already, as their loops happen to go.
  static const std::set<std::string_view> kReducing = {"matmul", "mean", "sum"};
  if (kReducing.count(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name))
    for (const V& operand : arguments.positional)
      if (const Array read = array_of(operand); read && read->storage == out->storage)
        unsupported("out= that an argument shares memory with");
  Arguments others = arguments;
  others.keywords.erase(others.keywords.begin() + (given - arguments.keywords.begin()));
  for (const V& operand : others.positional) refuse_overlap(out, operand);
  for (const auto& [name, operand] : others.keywords) refuse_overlap(out, operand);
  const V result = run_handler(tracer, handler, others);
  const Array made = array_of(result);
  // Another shape is resized to, and a gradient is refused.
  if (!made || made->is_view || made->dtype != out->dtype || !(made->shape == out->shape) ||
      tracer.requires_gradient(*made) || tracer.requires_gradient(*out))
    unsupported("out=");
  return torch_write(tracer, given->second, result);
}

// ---- operators

namespace {

Arguments of(V a, V b) { return {{std::move(a), std::move(b)}, {}}; }

/// The operator with the tensor on the left, by Tensor.__op__.
V forward(Tracer& tracer, int op, const V& a, const V& b) {
  switch (op) {
    case NB_ADD: return torch_add(tracer, of(a, b));
    case NB_SUBTRACT: return torch_sub(tracer, of(a, b));
    case NB_MULTIPLY: return run_handler(tracer, torch_mul, of(a, b));
    case NB_TRUE_DIVIDE: return run_handler(tracer, torch_true_divide, of(a, b));
    case NB_FLOOR_DIVIDE: return torch_floor_divide(tracer, of(a, b));
    case NB_REMAINDER: return torch_remainder(tracer, of(a, b));
    case NB_POWER: return run_handler(tracer, torch_pow, of(a, b));
    case NB_MATRIX_MULTIPLY: return run_handler(tracer, torch_matmul, of(a, b));
    case NB_AND: return torch_bitwise(tracer, Op::bit_and, of(a, b));
    case NB_OR: return torch_bitwise(tracer, Op::bit_or, of(a, b));
    case NB_XOR: return torch_bitwise(tracer, Op::bit_xor, of(a, b));
    case NB_LSHIFT: return torch_shift(tracer, Op::shift_left, of(a, b));
    case NB_RSHIFT: return torch_shift(tracer, Op::shift_right, of(a, b));
    default: unsupported("this operator on a tensor");
  }
}

/// A number on the left: Tensor.__rop__.
V reflected(Tracer& tracer, int op, const V& number, const V& tensor) {
  switch (op) {
    case NB_ADD:
    case NB_MULTIPLY:
    case NB_AND:
    case NB_OR:
    case NB_XOR: return forward(tracer, op, tensor, number);
    case NB_SUBTRACT: return torch_rsub(tracer, of(tensor, number));
    // Tensor.__rtruediv__ is reciprocal() * other: two roundings.
    case NB_TRUE_DIVIDE: return run_handler(tracer, torch_mul, of(torch_reciprocal(tracer, {{tensor}, {}}), number));
    case NB_POWER: return run_handler(tracer, torch_pow, of(number, tensor));
    default: unsupported("this operator between a number and a tensor");
  }
}

constexpr int kFirstInPlace = NB_INPLACE_ADD;
static_assert(NB_INPLACE_XOR - NB_INPLACE_ADD == NB_XOR - NB_ADD,
              "in-place operators follow the others in the same order");

}  // namespace

bool torch_operator_gradient_known(int nb_op) {
  switch (nb_op >= kFirstInPlace ? nb_op - kFirstInPlace : nb_op) {
    case NB_ADD:
    case NB_SUBTRACT:
    case NB_MULTIPLY:
    case NB_TRUE_DIVIDE:
    case NB_REMAINDER:
    case NB_POWER:
    case NB_MATRIX_MULTIPLY: return true;
    default: return false;
  }
}

V torch_binary(Tracer& tracer, int nb_op, const V& a, const V& b) {
  const bool in_place = nb_op >= kFirstInPlace;
  const int op = in_place ? nb_op - kFirstInPlace : nb_op;
  // What a tensor does not take returns NotImplemented: the other side or TypeError decides.
  if (!try_torch_operand(tracer, a) || !try_torch_operand(tracer, b))
    unsupported("an operator between a tensor and this object");
  // `x **= y` and `x //= y` write into x too; `x @= y` does not.
  const bool writes = in_place && op != NB_MATRIX_MULTIPLY && array_of(a);
  if (writes) refuse_operand(tracer, array_of(a), b);
  const std::size_t first = tracer.graph().nodes.size();
  V result = array_of(a) ? forward(tracer, op, a, b) : reflected(tracer, op, a, b);
  if (!torch_operator_gradient_known(nb_op)) require_no_gradient(tracer, first);
  return writes ? torch_write(tracer, a, result) : result;
}

V torch_compare(Tracer& tracer, int comparison, const V& a, const V& b) {
  if (!array_of(a)) {
    static constexpr int mirrored[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
    return torch_compare(tracer, mirrored[comparison], b, a);
  }
  if (!array_of(b) && tracer.is_none(b) && (comparison == Py_EQ || comparison == Py_NE))
    return tracer.boolean(comparison == Py_NE);
  if (!try_torch_operand(tracer, b)) unsupported("a comparison between a tensor and this object");
  static constexpr Op ops[] = {Op::lt, Op::le, Op::eq, Op::ne, Op::gt, Op::ge};
  return torch_comparison(tracer, ops[comparison], of(a, b));
}

V torch_unary(Tracer& tracer, int opcode, const Array& a) {
  Arguments self{{a}, {}};
  switch (opcode) {
    case FJ_UNARY_NEGATIVE: return torch_same_unary(tracer, Op::neg, self);
    case FJ_UNARY_POSITIVE: return torch_positive(tracer, self);
    case FJ_UNARY_INVERT: return torch_bitwise_not(tracer, self);
    default: unsupported("this operator on a tensor");
  }
}

V torch_get_item(Tracer& tracer, const Array& array, const V& key) {
  if (key->kind == ValueKind::List) unsupported("a tensor indexed by a list");
  Index index = parse_index(tracer, Library::Torch, key, array->rank());
  for (const auto& item : index.items)
    if (item.kind == Index::Item::Kind::Slice && item.step && !tracer.is_none(item.step) &&
        int_argument(tracer, item.step) <= 0)
      refuse("a slice of a tensor with a step that is not positive");
  if (index.has(Index::Item::Kind::IntegerArray) || index.has(Index::Item::Kind::Mask)) {
    for (const auto& item : index.items)
      if (item.array && array_of(item.array)->library != Library::Torch)
        unsupported("a tensor indexed by a NumPy array");
    // uint8 is a mask, and what is neither int64 nor int32 is refused.
    for (const auto& item : index.items)
      if (item.kind == Index::Item::Kind::IntegerArray && array_of(item.array)->dtype != DType::I64 &&
          array_of(item.array)->dtype != DType::I32)
        unsupported("a tensor indexed by a tensor of this dtype");
    // An index of 0 dimensions selects like an int but copies; eager's layout follows the tensor's unless that is
    // row-major.
    for (const auto& item : index.items)
      if (item.kind == Index::Item::Kind::IntegerArray && array_of(item.array)->shape.empty())
        unsupported("a tensor indexed by a 0-d tensor");
    V result = index_gather(tracer, array, index);
    if (const Array made = array_of(result); tracer.requires_gradient(*made)) {
      std::vector<ValueId> indices;
      for (const auto& item : index.items)
        if (item.array) indices.push_back(tracer.read(*array_of(item.array)));
      tracer.also_saves(tracer.read(*made), indices);
    }
    return result;
  }
  return index_view(tracer, array, index);
}

void torch_set_item(Tracer& tracer, const Array& array, const V& key, const V& value) {
  if (key->kind == ValueKind::List) unsupported("a tensor indexed by a list");
  Index index = parse_index(tracer, Library::Torch, key, array->rank());
  for (const auto& item : index.items)
    if (item.kind == Index::Item::Kind::Slice && item.step && !tracer.is_none(item.step) &&
        int_argument(tracer, item.step) <= 0)
      refuse("a slice of a tensor with a step that is not positive");
  // torch writes Python's numbers, and of NumPy's those that are or count as such: float64 and the integers.
  const auto* given = as<ArrayValue>(value);
  const auto* object = as<ObjectValue>(value);
  const auto scalar = given && given->library == Library::Numpy ? std::optional(given->dtype)
                      : object                                  ? numpy_scalar_dtype(object->object.get())
                                                                : std::nullopt;
  if (scalar &&
      ((given && !given->numpy_scalar) || !(*scalar == DType::F64 || (is_integer(*scalar) && *scalar != DType::Bool))))
    refuse("NumPy's arrays and this of its scalars are no numbers to torch");
  TorchOperand operand = torch_operand(tracer, value);
  if (!operand.array && operand.dtype == DType::F64 && !is_float(array->dtype))
    unsupported("writing a float into integers");
  const bool by_integers = index.has(Index::Item::Kind::IntegerArray),
             by_arrays = by_integers || index.has(Index::Item::Kind::Mask);
  // One number fills what is shown, one element what a mask shows; anything else is copied there.
  const bool one = operand.array && (operand.array->shape.empty() ||
                                     (by_arrays && !by_integers && product(operand.array->shape) == SymDim(1)));
  const bool fills = one && !is_float(array->dtype);
  if (fills && (by_arrays || !index_view(tracer, array, index)->shape.empty()))
    refuse_gradient_into(tracer, array->dtype, operand);
  // One element goes through a mask in any dtype.
  if (by_arrays && given && given->library == Library::Torch && given->dtype != array->dtype &&
      (by_integers || !(product(given->shape) == SymDim(1))))
    refuse("index_put of another dtype");
  if (operand.array && operand.array->storage == array->storage)
    refuse_overlap(by_arrays ? array : index_view(tracer, array, index), value);
  // `y[0] += x`: what is written is there already. To the derivative that is nothing.
  if (Array target = by_arrays || !operand.array || !tracer.requires_gradient(*array) || array->storage->input_array
                         ? nullptr
                         : index_view(tracer, array, index);
      target && !operand.array->stops_gradient && !operand.array->detached && same_memory(target, operand.array))
    return tracer.write_itself(*array);
  index_assign(tracer, array, index, torch_value(tracer, operand, array->dtype));
}

// ---- attributes

V torch_attribute(Tracer& tracer, const Array& array, std::string_view name) {
  const int rank = array->rank();
  auto last_two = [&]() -> V {
    Axes permutation = all_axes(rank);
    std::swap(permutation[rank - 1], permutation[rank - 2]);
    return view_transpose(tracer, array, permutation);
  };
  if (name == "shape") return torch_size(tracer, array->shape);
  if (name == "dtype") return tracer.constant(dtype_object(Library::Torch, array->dtype));
  if (name == "ndim") return tracer.integer(std::int64_t(rank));
  if (name == "itemsize") return tracer.integer(std::int64_t(size_in_bytes(array->dtype)));
  if (name == "nbytes")
    return tracer.integer(product(array->shape) * SymDim(std::int64_t(size_in_bytes(array->dtype))));
  if (name == "device") {
    Ref<> type = torch_object("device");
    Ref<> device =
        type ? Ref<>::steal(PyObject_CallFunction(type.get(), "s", device_text(array->storage->device).c_str()))
             : Ref<>();
    if (!device) PyErr_Clear(), unsupported("torch.device");
    return tracer.constant(std::move(device));
  }
  if (name == "real" && !is_complex(array->dtype)) return array;  // itself
  if (name == "T") {
    if (rank == 2) return last_two();
    unsupported("T of a tensor that has not two dimensions");  // torch warns
  }
  if (name == "mT") {
    if (rank < 2) refuse("mT of fewer than two dimensions");
    return last_two();
  }
  if (!is_complex(array->dtype) && ((name == "mH" && rank >= 2) || (name == "H" && rank == 2))) return last_two();
  if (name == "is_cuda") return tracer.boolean(array->storage->device != kHost);
  if (name == "is_sparse" || name == "is_quantized" || name == "is_meta" || name == "is_mkldnn" || name == "is_mps" ||
      name == "is_xpu" || name == "is_nested" || name == "is_ipu" || name == "is_xla" || name == "is_sparse_csr")
    return tracer.boolean(false);
  if (name == "is_cpu") return tracer.boolean(array->storage->device == kHost);
  if (name == "layout") return torch_constant(tracer, "strided");
  if (name == "requires_grad") {
    tracer.note_autograd(*array, AutogradFact::RequiresGrad, array->requires_grad);
    if (array->source) return tracer.boolean(array->requires_grad);
    const bool needs = tracer.requires_gradient(*array);
    // Some views inherit it in a mode that records nothing.
    const bool inherits =
        array->storage->input_array ? array->requires_grad : tracer.requires_gradient(array->storage->contents);
    if (array->is_view && !array->detached && inherits && !needs)
      unsupported("requires_grad of a view made where nothing is recorded");
    return tracer.boolean(needs);
  }
  if (name == "grad") return tracer.gradient_field(array);
  if (name == "is_leaf" || name == "grad_fn") {
    const bool leaf = tracer.is_leaf(array);
    tracer.note_autograd(*array, AutogradFact::IsLeaf, leaf);
    if (name == "is_leaf") return tracer.boolean(leaf);
    if (leaf) return tracer.none();
  }
  if (name == "data") return torch_data(tracer, array);
  if (name == "grad_fn" || name == "_version" || name == "_base" ||
      name == "retains_grad" || name == "names")
    unsupported("the attribute Tensor." + std::string(name));
  return nullptr;
}

// ---- extern nodes

namespace {

const std::unordered_set<PyObject*>& extern_functions() {
  std::unordered_set<PyObject*>* functions = once([] {
    auto* result = new std::unordered_set<PyObject*>;
    for (const char* path : {
#define FJ_TORCH(path, handler)
#define FJ_TORCH_BOTH(name, handler)
#define FJ_TORCH_TUPLE(name, handler)
#define FJ_TORCH_ALL(name, handler)
#define FJ_TORCH_UNARY(name, function, op)
#define FJ_TORCH_EXTERN(path) path,
#define FJ_TORCH_FOREACH(name)
#include "tracer/frontends/torch/torch.def"
#undef FJ_TORCH
#undef FJ_TORCH_BOTH
#undef FJ_TORCH_TUPLE
#undef FJ_TORCH_ALL
#undef FJ_TORCH_UNARY
#undef FJ_TORCH_EXTERN
#undef FJ_TORCH_FOREACH
         })
      // Kept alive for ever, so that an address can't come to mean another callable.
      if (Ref<> function = torch_object(std::string_view(path).substr(std::strlen("torch."))))
        result->insert(function.release());
    return result;
  });
  return *functions;
}

/// "aten::mul" of torch.ops.aten.mul and torch.ops.aten.mul.Tensor; "" of anything else.
std::string dispatcher_name(PyObject* callable) {
  const std::string_view type = Py_TYPE(callable)->tp_name;
  if (type != "OpOverloadPacket" && type != "OpOverload") return "";
  const auto& classes =
      once([] { return std::array{torch_object("_ops.OpOverloadPacket"), torch_object("_ops.OpOverload")}; });
  if (reinterpret_cast<PyObject*>(Py_TYPE(callable)) != classes[0].get() &&
      reinterpret_cast<PyObject*>(Py_TYPE(callable)) != classes[1].get())
    return "";
  Ref<> name;
  if (type == "OpOverload") {
    Ref<> schema = Ref<>::steal(PyObject_GetAttrString(callable, "_schema"));
    if (schema) name = Ref<>::steal(PyObject_GetAttrString(schema.get(), "name"));
  } else {
    name = Ref<>::steal(PyObject_GetAttrString(callable, "_qualified_op_name"));
  }
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  PyErr_Clear();
  return text ? text : "";
}

/// The name of a builtin function of torch's operator namespaces; "" if it is none.
std::string operator_name(PyObject* callable) {
  if (std::string name = dispatcher_name(callable); !name.empty())
    return name.rfind("aten::", 0) == 0 ? name.substr(6) : name;
  if (!PyCFunction_Check(callable)) return "";
  // torch's builtins: methods of torch._C._VariableFunctions, torch._C._nn and the like.
  const char* name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  for (const char* home : {"_C._VariableFunctions", "_C._nn", "_C._special", "_C._linalg", "_C._fft"}) {
    Ref<> module = torch_object(home);
    Ref<> same = module ? Ref<>::steal(PyObject_GetAttrString(module.get(), name)) : Ref<>();
    PyErr_Clear();
    if (same && same.get() == callable) return name;
  }
  return "";
}

}  // namespace

std::string torch_operator_name(PyObject* callable) { return operator_name(callable); }

ExternUse torch_extern_use(PyObject* callable) {
  if (extern_functions().count(callable)) return ExternUse::WithArray;
  const std::string name = operator_name(callable);
  if (name.empty()) return ExternUse::No;
  const ExternEffects& effects = extern_effects(name);
  return !effects.known ? ExternUse::No : effects.factory ? ExternUse::Always : ExternUse::WithArray;
}

V torch_method_fallback(Tracer& tracer, const Array& array, std::string_view name, const Arguments& arguments) {
  const std::string text(name);
  Ref<> method = torch_object("Tensor." + text);
  if (!method || Py_TYPE(method.get()) != &PyMethodDescr_Type || !extern_effects(text).known)
    unsupported("the method torch.Tensor." + text);
  Arguments with_self{{array}, arguments.keywords};
  with_self.positional.insert(with_self.positional.end(), arguments.positional.begin(), arguments.positional.end());
  return torch_extern(tracer, "Tensor." + text, with_self);
}

namespace {

V python_function(Tracer& tracer, const char* module_name, const char* name, const std::vector<V>& operands) {
  Ref<> module = Ref<>::steal(PyImport_ImportModule(module_name));
  Ref<> function = module ? Ref<>::steal(PyObject_GetAttrString(module.get(), name)) : Ref<>();
  if (!function) PyErr_Clear(), unsupported("this operator on a tensor");
  return tracer.extern_call(tracer.constant(std::move(function)), operands, {});
}

}  // namespace

V torch_syntax(Tracer& tracer, const char* name, const std::vector<V>& operands) {
  return python_function(tracer, "operator", name, operands);
}
V torch_builtin(Tracer& tracer, const char* name, const std::vector<V>& operands) {
  return python_function(tracer, "builtins", name, operands);
}

}  // namespace fj
