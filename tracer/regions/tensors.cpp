// Elements of torch's tensors. `x[i]` is a view without axes, whose element is read where it is used; what is computed
// of such is a tensor of its own, which variables may share and operators change in place.
#include <opcode.h>

#include <cfloat>

#include "graph_ir/ops.h"
#include "tracer/frontends/torch/torch.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

bool is_followed(DType dtype) {
  return dtype == DType::F64 || dtype == DType::F32 || dtype == DType::I64 || dtype == DType::I32 ||
         dtype == DType::Bool;
}

/// Of tensors without axes, and of Python's numbers, which are weak.
DType result_type(const Known& a, DType dtype_a, const Known& b, DType dtype_b) {
  const auto operand = [](const Known& known, DType dtype) {
    return TorchOperand{known.is_number() ? nullptr : std::make_shared<ArrayValue>(), nullptr, dtype};
  };
  return torch_result_type(TorchOperands{operand(a, dtype_a), operand(b, dtype_b)});
}

}  // namespace

Known RegionBuilder::tensor_number(ValueId value) {
  Known made;
  made.kind = Known::Kind::TensorNumber;
  made.value = value;
  made.dtype = type(value);
  made.imaginary = integer(0);
  return made;
}

/// The part that begins at the element. Each is an object of its own: no other value is its identity.
Known RegionBuilder::tensor_at(const Known& tensor, ValueId offset, const std::vector<Axis>& axes, bool unbound) {
  Known made;
  made.kind = Known::Kind::Tensor;
  made.place = tensor.place;
  made.step = 0;
  made.unbound = unbound || tensor.unbound;
  made.value = offset.valid() ? offset : integer(0);
  region::Instruction identity{};
  identity.code = Code::Constant;
  identity.constant = std::int64_t(0);
  identity.result = made.imaginary = region_.new_value(DType::I64);
  block().body.push_back(identity);
  for (const Axis& axis : axes) {
    made.items.push_back(python_int(axis.size));
    made.items.push_back(python_int(step_of(axis)));
  }
  return made;
}

/// Where indices of all axes, or of the first ones, lead. One that a tensor of integers gives is a number as well.
Known RegionBuilder::tensor_part(const Known& tensor, const std::vector<Known>& indices) {
  if (tensor.kind != Known::Kind::Tensor) throw Unknown{"an element of a tensor without axes"};
  const ArrayPlace of = layout(tensor);
  if (indices.empty() || indices.size() > of.axes.size()) throw Unknown{"an index of another rank than the tensor's"};
  ValueId offset = of.offset;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    Known index = indices[i];
    if (index.is_tensor()) {
      const DType dtype = this->dtype(index);
      if (rank(index) != 0 || (dtype != DType::I64 && dtype != DType::I32)) throw Unknown{"an index that is a tensor"};
      index = python_int(cast(tensor_value(index), DType::I64));
    }
    if (!index.is_number() || index.is_numpy() || index.boxing != Boxing::Int)
      throw Unknown{"an index of a tensor that is no int"};
    offset = moved(offset, counted_index(index, of.axes[i].size), of.axes[i].stride);
  }
  return tensor_at(tensor, offset, {of.axes.begin() + std::ptrdiff_t(indices.size()), of.axes.end()}, false);
}

/// What a tensor without axes holds now.
ValueId RegionBuilder::tensor_value(const Known& tensor) {
  if (tensor.kind == Known::Kind::TensorNumber) return tensor.value;
  const ArrayPlace of = layout(tensor);
  if (!of.axes.empty()) throw Unknown{"an operation on a tensor that has axes"};
  if (!is_followed(of.dtype)) throw Unknown{"an element of a tensor of such a type"};
  region::Instruction load{};
  load.code = Code::Load;
  load.memory = of.memory;
  load.operands = {of.offset.valid() ? of.offset : integer(0)};
  load.result = region_.new_value(of.dtype);
  block().body.push_back(load);
  return load.result;
}

/// As `item()` gives it.
Known RegionBuilder::item_of(const Known& tensor) {
  const ValueId value = tensor_value(tensor);
  if (type(value) == DType::Bool) return python_bool(value);
  return is_float(type(value)) ? python_float(cast(value, DType::F64)) : python_int(cast(value, DType::I64));
}

ValueId RegionBuilder::tensor_operand(const Known& known, DType dtype) {
  if (known.is_number()) return as_dtype(known, dtype);
  const ValueId value = tensor_value(known);
  return type(value) == DType::Bool && is_float(dtype) ? cast(cast(value, DType::I64), dtype) : cast(value, dtype);
}

DType RegionBuilder::tensor_operand_dtype(const Known& known) {
  if (known.is_number() && !known.is_numpy()) return known.dtype == DType::U64 ? DType::I64 : known.dtype;
  if (!known.is_tensor()) throw Unknown{"an operation of a tensor with what is neither a tensor nor a number"};
  const DType made = dtype(known);
  if (rank(known) != 0) throw Unknown{"an operation on a tensor that has axes"};
  if (!is_followed(made)) throw Unknown{"an element of a tensor of such a type"};
  return made;
}

Known RegionBuilder::tensor_binary(int operation, const Known& a, const Known& b) {
  const DType type_a = tensor_operand_dtype(a), type_b = tensor_operand_dtype(b);
  DType type = result_type(a, type_a, b, type_b);
  if (operation == NB_TRUE_DIVIDE) type = float_dtype(type);
  if (operation == NB_SUBTRACT && (type_a == DType::Bool || type_b == DType::Bool))
    throw Unknown{"a subtraction of bools from tensors"};
  const bool square = operation == NB_POWER && is_float(type) && a.is_tensor() && known_int(b) == 2;
  const bool logical = operation == NB_AND || operation == NB_OR || operation == NB_XOR;
  if (logical ? type != DType::Bool : type == DType::Bool) throw Unknown{"such an operator of tensors of this type"};
  const ValueId p = tensor_operand(a, type);
  if (square) return tensor_number(op(Op::mul, {p, p}));
  const ValueId q = tensor_operand(b, type);
  switch (operation) {
    case NB_ADD: return tensor_number(op(Op::add, {p, q}));
    case NB_SUBTRACT: return tensor_number(op(Op::sub, {p, q}));
    case NB_MULTIPLY: return tensor_number(op(Op::mul, {p, q}));
    case NB_TRUE_DIVIDE:
      // A number over a tensor is its reciprocal times the number (torch.Tensor.__rtruediv__).
      if (a.is_number()) return tensor_number(op(Op::mul, {op(Op::div, {constant(type, 1.0), q}), p}));
      return tensor_number(op(Op::div, {p, q}));
    case NB_AND: return tensor_number(op(Op::bit_and, {p, q}));
    case NB_OR: return tensor_number(op(Op::bit_or, {p, q}));
    case NB_XOR: return tensor_number(op(Op::bit_xor, {p, q}));
    default: throw Unknown{"an operator of tensors"};
  }
}

Known RegionBuilder::tensor_compare(int operation, const Known& a, const Known& b) {
  static constexpr Op kOps[] = {Op::lt, Op::le, Op::eq, Op::ne, Op::gt, Op::ge};
  const DType type = result_type(a, tensor_operand_dtype(a), b, tensor_operand_dtype(b));
  if (type == DType::Bool) throw Unknown{"a comparison of tensors of bools"};
  const ValueId p = tensor_operand(a, type), q = tensor_operand(b, type);
  return tensor_number(op(kOps[operation], {p, q}));
}

Known RegionBuilder::tensor_unary(Op operation, const Known& of) {
  const ValueId value = tensor_value(of);
  if (operation == Op::bit_not ? is_float(type(value)) : (type(value) == DType::Bool) != (operation == Op::logical_not))
    throw Unknown{"such an operation of tensors of this type"};
  return tensor_number(op(operation, {value}));
}

/// The object stays what it is: all that hold it have the new number.
Known RegionBuilder::tensor_in_place(int operation, const Known& a, const Known& b) {
  const DType type = tensor_operand_dtype(a);
  const Known made = tensor_binary(operation, a, b);
  if (!torch_can_cast(made.dtype, type)) throw Unknown{"a tensor that is changed to another type"};
  const ValueId value = cast(made.value, type);
  if (a.kind == Known::Kind::Tensor) {
    const ArrayPlace of = layout(a);
    tensor_written(a.place);
    store(of, of.offset, value);
    return a;
  }
  note_writer();
  expect_none_pending();
  const ValueId before = a.value, version = op(Op::add, {a.imaginary, integer(1)});
  const auto renew = [&](auto&& self, Known& known) -> void {
    if (known.kind == Known::Kind::TensorNumber && known.value == before)
      std::tie(known.value, known.imaginary) = std::pair(value, version);
    for (Known& item : known.items) self(self, item);
  };
  state_.each_known([&](Known& known) { renew(renew, known); });
  Known changed = a;
  changed.value = value;
  changed.imaginary = version;
  return changed;
}

/// What eager's operation does to `_version`; the tensor gets it where the region is left.
void RegionBuilder::tensor_written(int place) {
  note_writer();
  expect_none_pending();
  const Sharing sharing(*this);
  const auto count = state_.written.try_emplace(place, python_int(integer(0))).first;
  count->second = python_int(op(Op::add, {count->second.value, integer(1)}));
}

void RegionBuilder::store_element(const Known& tensor, const std::vector<Known>& indices, const Known& value) {
  const Known element = tensor_part(tensor, indices);
  const ArrayPlace of = layout(element);
  if (!of.axes.empty()) throw Unknown{"an assignment to a part of a tensor"};
  const DType given = tensor_operand_dtype(value);
  // An int beyond 2**63 is an error where it is stored, and none in arithmetic with floats.
  if (is_large(value)) throw Unknown{"an int of more than 63 bits as an element"};
  if (!is_followed(of.dtype) || !torch_can_cast(given, of.dtype)) throw Unknown{"an element of another type"};
  if (value.is_number() && given == DType::F64 && of.dtype == DType::F32) {
    // Beyond what the type holds torch raises.
    const ValueId large = op(Op::gt, {op(Op::abs, {value.value}), real(FLT_MAX)});
    leave_if(op(Op::bit_and, {large, op(Op::is_finite, {value.value})}));
  }
  const ValueId stored = tensor_operand(value, of.dtype);
  tensor_written(tensor.place);
  store(of, of.offset, stored);
}

std::optional<Known> RegionBuilder::tensor_attribute(const std::string& name, const Known& tensor) {
  if (name == "ndim") return python_int(integer(rank(tensor)));
  if (name != "shape") return std::nullopt;
  Known shape;
  shape.kind = Known::Kind::Sizes;
  for (int axis = 0; axis < rank(tensor); ++axis) shape.items.push_back(python_int(size(tensor, axis)));
  return shape;
}

std::optional<Known> RegionBuilder::tensor_method(const std::string& name, const Known& tensor,
                                                  const std::vector<Known>& arguments) {
  if (name == "size" && arguments.size() == 1) {
    const auto axis = known_int(arguments[0]);
    const std::int64_t counted = axis ? *axis + (*axis < 0 ? rank(tensor) : 0) : -1;
    if (counted < 0 || counted >= rank(tensor)) return std::nullopt;
    return python_int(size(tensor, int(counted)));
  }
  if (!arguments.empty()) return std::nullopt;
  if (name == "item") return item_of(tensor);
  if (name == "dim") return python_int(integer(rank(tensor)));
  if (name == "abs") return tensor_unary(Op::abs, tensor);
  if (name != "numel") return std::nullopt;
  std::vector<ValueId> sizes;
  for (int axis = 0; axis < rank(tensor); ++axis) sizes.push_back(size(tensor, axis));
  return python_int(count(sizes));
}

}  // namespace fj
