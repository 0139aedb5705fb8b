/// Views as another dtype are steps of their own (ViewStep): NumPy reads them in a call of the graph; a write through
/// one breaks it.
#include "tracer/frontends/numpy/parts.h"

#include <algorithm>

#include "tracer/frontends/indexing.h"
#include "tracer/frontends/library.h"
#include "tracer/frontends/numpy/numpy.h"

namespace fj {
namespace {

/// Strides and offset in elements of `dtype`. `reader`: the function of framejit._support.numpy that gives the view's
/// elements in an array of their own.
Array view_as(Tracer& tracer, const Array& x, const char* reader, std::vector<V> more, DType dtype, Dims shape,
              Strides strides, SymDim offset) {
  if (x->crosses || x->crossed || x->storage->library != Library::Numpy)
    unsupported("a tensor's memory as another dtype");
  Ref<> helpers = Ref<>::steal(PyImport_ImportModule("framejit._support.numpy"));
  Ref<> function = helpers ? Ref<>::steal(PyObject_GetAttrString(helpers.get(), reader)) : Ref<>();
  if (!function) PyErr_Clear(), unsupported(reader);
  more.insert(more.begin(), x);
  const Array copy = array_of(tracer.extern_call(tracer.constant(function), more, {}));
  if (!copy || copy->dtype != dtype) unsupported("memory as another dtype");
  const ValueId contents = tracer.read(*copy);
  const auto& nodes = tracer.graph().nodes;
  const auto gives = [&](const Node& node) { return node.op == Op::extern_call && node.results[0] == contents; };
  const auto made = std::find_if(nodes.rbegin(), nodes.rend(), gives);
  if (made == nodes.rend() || made->results.size() != 1) unsupported("memory as another dtype");
  ViewStep step{Op::extern_call, made->attrs, x->shape, shape, {tracer.graph().type(contents)}, 0};
  Array view = tracer.new_view(x, std::move(step), std::move(shape), std::move(strides), std::move(offset));
  view->dtype = dtype;
  view->contents = contents;
  view->contents_version = view->storage->version;
  return view;
}

Strides scaled(const Strides& strides, std::int64_t factor) {
  Strides result;
  for (const SymDim& stride : strides) result.push_back(stride * SymDim(factor));
  return result;
}

bool is_place(Tracer& tracer, const V& key) {
  if (key->kind == ValueKind::Slice || key->kind == ValueKind::SymInt) return true;
  auto* object = as<ObjectValue>(key);
  return object && PyLong_CheckExact(object->object.get()) && tracer.constant_int(key);
}

/// What `x.flat` goes through, as a view of one dimension.
Array flat_view(Tracer& tracer, const Array& x) {
  const Array row = view_reshape(tracer, x, {product(x->shape)});
  if (!row) unsupported(".flat of an array with gaps");
  return row;
}

}  // namespace

Array view_part(Tracer& tracer, const Array& x, bool imaginary) {
  const DType part = x->dtype == DType::C64 ? DType::F32 : DType::F64;
  SymDim offset = x->offset * SymDim(2) + SymDim(imaginary ? 1 : 0);
  return view_as(tracer, x, imaginary ? "imaginary_part" : "real_part", {}, part, x->shape, scaled(x->strides, 2),
                 std::move(offset));
}

V numpy_view(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndarray.view", arguments, "a, dtype, type");
  p.unsupported("type");
  Array x = array_of(p.required("a"));
  if (!x || x->numpy_scalar) unsupported("view() of a NumPy scalar");
  if (!p["dtype"]) return view_alias(tracer, x);
  if (p.absent("dtype")) p.refuse("None for a dtype");
  const auto dtype = numpy_dtype_argument(tracer, p["dtype"]);
  // Any byte but 0 is true to NumPy.
  if (!dtype || (*dtype == DType::Bool && x->dtype != DType::Bool)) p.refuse("this dtype");
  if (*dtype == x->dtype) return view_alias(tracer, x);
  const auto before = std::int64_t(size_in_bytes(x->dtype)), after = std::int64_t(size_in_bytes(*dtype));
  if (before % after) p.refuse("a dtype with larger elements");
  const std::int64_t pieces = before / after;
  Dims shape = x->shape;
  Strides strides = scaled(x->strides, pieces);
  if (pieces > 1) {
    const bool together =
        !shape.empty() && x->strides.back() == SymDim(1) && shape.back().is_constant() && shape.back().value() > 1;
    if (!together) p.refuse("a dtype with smaller elements of an array with gaps");
    shape.back() = shape.back() * SymDim(pieces);
    strides.back() = 1;
  }
  const V given = tracer.constant(dtype_object(Library::Numpy, *dtype));
  return view_as(tracer, x, "as_dtype", {given}, *dtype, std::move(shape), std::move(strides),
                 x->offset * SymDim(pieces));
}

V numpy_flag(Tracer& tracer, const Array& x, std::string_view name) {
  tracer.note_layout(*x);
  const auto rows = [&] { return is_contiguous(tracer, x->shape, x->strides); };
  const auto columns = [&] { return is_column_major(tracer, x->shape, x->strides); };
  if (name == "c_contiguous" || name == "contiguous" || name == "C_CONTIGUOUS" || name == "CONTIGUOUS" || name == "C")
    return tracer.boolean(rows());
  if (name == "f_contiguous" || name == "F_CONTIGUOUS" || name == "FORTRAN" || name == "F")
    return tracer.boolean(columns());
  if (name == "forc" || name == "FORC") return tracer.boolean(rows() || columns());
  if (name == "fnc" || name == "FNC") return tracer.boolean(columns() && !rows());
  unsupported("the flag " + std::string(name) + " of an array");
}

V numpy_flat_item(Tracer& tracer, const Array& x, const V& key) {
  if (!is_place(tracer, key)) unsupported("an item of .flat by this object");
  const Array row = reshape_or_copy(tracer, x, {product(x->shape)});
  V item = numpy_get_item(tracer, row, key);
  const Array part = array_of(item);
  return part->numpy_scalar ? item : V(tracer.new_array(Library::Numpy, tracer.read(*part), row_major(part->shape)));
}

void numpy_set_flat(Tracer& tracer, const Array& x, const V& key, const V& value) {
  // As many elements: none is given twice. In memory of its own, since each is written before the next is read.
  const Array given = array_of(value);
  if (!key && given && given->library == Library::Numpy && !given->numpy_scalar && given->dtype == x->dtype &&
      given->storage != x->storage && tracer.decide(product(given->shape), Py_EQ, product(x->shape))) {
    const Array row = flat_view(tracer, x);
    return numpy_set_item(tracer, row, tracer.constant(Ref<>::borrow(Py_Ellipsis)),
                          reshape_or_copy(tracer, given, row->shape));
  }
  const bool number = is_numpy_operand(value) && !as<NumberValue>(value) && numpy_operand(tracer, value).rank() == 0;
  // Other conversions are an array's, not an assignment's.
  if (!number || !is_float(x->dtype) || (key && !is_place(tracer, key))) unsupported("this assignment to .flat");
  const Array row = flat_view(tracer, x);
  V all = tracer.constant(Ref<>::borrow(Py_Ellipsis));
  numpy_set_item(tracer, row, key ? key : all, value);
}

}  // namespace fj
