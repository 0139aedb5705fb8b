// Making the objects of a recipe and performing its effects.
//
// Effects act on the containers themselves, below any Python code of their classes: the tracer has run (and logged)
// what such code does. Contents that an effect replaces are kept until the last effect is done, because dropping them
// can run finalizers, which must find a finished state (those that are seen beforehand keep the piece from running:
// finalizers.h).
#include "segment/recipe_run.h"

#include "cpython/cpython.h"
#include "graph_ir/graph.h"
#include "runtime/base/error.h"
#include "runtime/base/layout.h"
#include "segment/held_by_cache.h"

namespace fj {

PyTypeObject* builtin_base(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__new__");
  const destructor of_python_classes = once([] {
    Ref<> made = Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "plain"));
    FJ_CHECK(made, "a class");
    return reinterpret_cast<PyTypeObject*>(made.get())->tp_dealloc;
  });
  while (type->tp_flags & Py_TPFLAGS_HEAPTYPE && type->tp_base) {
    // C code makes heap types too: those have fields that they free themselves, or a tp_new, which is found under this
    // name.
    if (type->tp_dealloc != of_python_classes && type->tp_basicsize > type->tp_base->tp_basicsize) break;
    PyObject* maker = PyDict_GetItemWithError(type->tp_dict, name);
    if (maker && PyCFunction_Check(maker) && PyCFunction_GET_SELF(maker) == reinterpret_cast<PyObject*>(type)) break;
    type = type->tp_base;
  }
  return type;
}

RecipeRun::RecipeRun(const Segment& segment, const FrameValues& values, const GuardBindings& bindings,
                     std::span<const std::int64_t> symbols)
    : segment_(segment), values_(values), bindings_(bindings), symbols_(symbols),
      registers_(std::size_t(segment.recipe.register_count)), waits_(registers_.size()) {}

PyObject* RecipeRun::argument(const RecipeStep& step, std::size_t index) const {
  if (index >= step.args.size() || step.args[index] < 0) return nullptr;
  return registers_[std::size_t(step.args[index])].get();
}

Ref<> RecipeRun::arguments_tuple(const RecipeStep& step) const {
  auto tuple = Ref<>::steal(PyTuple_New(Py_ssize_t(step.args.size())));
  for (std::size_t i = 0; tuple && i < step.args.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), Py_NewRef(argument(step, i)));
  return tuple;
}

bool RecipeRun::holds_expected(std::size_t first) const {
  const std::vector<RecipeStep>& steps = segment_.recipe.steps;
  for (std::size_t i = first; i < steps.size() && steps[i].op == RecipeOp::Expect; ++i) {
    if (steps[i].index == 0 || held_by_cache(steps[i].object.get(), argument(steps[i], 0))) continue;
    PyErr_SetString(PyExc_RuntimeError, "a cached function's result is no longer held");
    return false;
  }
  return true;
}

bool RecipeRun::before_program() {
  bool asked = false;
  for (std::size_t i = 0; i < segment_.recipe.steps.size(); ++i) {
    const RecipeStep& step = segment_.recipe.steps[i];
    if (is_effect(step.op)) continue;
    if (step.op == RecipeOp::Expect && !std::exchange(asked, true) && !holds_expected(i)) return false;
    auto target = std::size_t(step.target);
    bool waits = step.late || step.op == RecipeOp::Output || step.op == RecipeOp::OutputScalar ||
                 step.op == RecipeOp::OutputNumber;
    for (int from : step.args) waits = waits || (from >= 0 && waits_[std::size_t(from)]);
    waits_[target] = waits;
    if (waits) continue;
    registers_[target] = make(step);
    if (!registers_[target] && step.op != RecipeOp::Null) return false;
  }
  return true;
}

bool RecipeRun::objects(std::span<const ArrayRef> outputs) {
  outputs_ = outputs;
  for (const RecipeStep& step : segment_.recipe.steps) {
    if (is_effect(step.op) || !waits_[std::size_t(step.target)]) continue;
    Ref<> made = make(step);
    if (!made) return false;
    registers_[std::size_t(step.target)] = std::move(made);
  }
  return true;
}

bool RecipeRun::effects() {
  const std::vector<RecipeStep>& steps = segment_.recipe.steps;
  std::vector<PyObject*> written;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (!is_effect(steps[s].op)) continue;
    if (steps[s].op != RecipeOp::BumpVersion) {
      if (!apply(steps[s])) return false;
      continue;
    }
    written.clear();
    for (; s < steps.size() && steps[s].op == RecipeOp::BumpVersion; ++s)
      written.insert(written.end(), std::size_t(steps[s].index), argument(steps[s], 0));
    --s;
    if (!bump_versions(written)) return false;
  }
  return true;
}

void RecipeRun::fill(FrameUpdate& update) const {
  const Recipe& recipe = segment_.recipe;
  if (segment_.exit.kind == Exit::Kind::Return) {
    if (recipe.result >= 0) update.result = registers_[std::size_t(recipe.result)];
    return;
  }
  update.slots.resize(recipe.slots.size());
  for (std::size_t i = 0; i < recipe.slots.size(); ++i) {
    if (i < recipe.keep.size() && recipe.keep[i]) {
      update.slots[i] = Ref<>::borrow(i < values_.slots.size() ? values_.slots[i] : nullptr);
    } else if (recipe.slots[i] >= 0) {
      update.slots[i] = registers_[std::size_t(recipe.slots[i])];
    } else {
      update.slots[i] = nullptr;
    }
  }
}

Ref<> RecipeRun::make_instance(const RecipeStep& step, bool with_arguments) {
  auto* type = reinterpret_cast<PyTypeObject*>(step.object.get());
  PyTypeObject* base = builtin_base(type);
  Ref<> arguments = with_arguments ? arguments_tuple(step) : Ref<>::steal(PyTuple_New(0));
  if (!arguments) return {};
  auto object = Ref<>::steal(base->tp_new(type, arguments.get(), nullptr));
  // OSError, StopIteration, ... keep their arguments in fields that their C __init__ fills.
  if (object && with_arguments && base->tp_init && base->tp_init(object.get(), arguments.get(), nullptr) < 0) return {};
  return object;
}

Ref<> RecipeRun::make_named_tuple(const RecipeStep& step) {
  auto* type = reinterpret_cast<PyTypeObject*>(step.object.get());
  Ref<> items = arguments_tuple(step);
  if (!items) return {};
  auto whole = Ref<>::steal(PyTuple_Pack(1, items.get()));
  if (!whole) return {};
  // Structures of C code (torch.return_types.max) have hidden fields that only their own tp_new lays out; for the rest
  // tuple's own makes the instance without the Python __new__ of a namedtuple.
  static PyObject* const mark = PyUnicode_InternFromString("n_sequence_fields");
  PyTypeObject* maker = fj_type_lookup(type, mark) ? type : &PyTuple_Type;
  return Ref<>::steal(maker->tp_new(type, whole.get(), nullptr));
}

Ref<> RecipeRun::make_function(const RecipeStep& step) {
  auto function = Ref<>::steal(PyFunction_NewWithQualName(step.object.get(), argument(step, 0), argument(step, 5)));
  if (!function) return {};
  PyObject *defaults = argument(step, 1), *keyword_defaults = argument(step, 2), *annotations = argument(step, 3),
           *closure = argument(step, 4);
  if ((defaults && PyFunction_SetDefaults(function.get(), defaults) < 0) ||
      (keyword_defaults && PyFunction_SetKwDefaults(function.get(), keyword_defaults) < 0) ||
      (closure && PyFunction_SetClosure(function.get(), closure) < 0))
    return {};
  if (annotations) fj_set_annotations(function.get(), Py_NewRef(annotations));
  return function;
}

Ref<> RecipeRun::make_view(const RecipeStep& step) {
  if (!step.view.empty()) return torch_view(argument(step, 0), step.view, step.strides, symbols_, &views_made_);
  const std::vector<std::int64_t> shape = evaluate(step.shape, symbols_);
  std::vector<std::int64_t> strides(shape.size());
  evaluate_strides(step.shape, step.strides, shape, symbols_, strides.data());
  const std::int64_t offset = step.expression.evaluate(symbols_);
  Ref<> view = view_of(argument(step, 0), step.dtype, shape, strides, offset);
  if (view && step.index && !Ref<>::steal(PyObject_CallMethod(view.get(), "setflags", "i", 0))) return {};
  return view;
}

Ref<> RecipeRun::make(const RecipeStep& step) {
  switch (step.op) {
    case RecipeOp::FromSource: {
      auto id = std::size_t(step.source->id);
      if (id < bindings_.values.size() && bindings_.values[id]) return Ref<>::borrow(bindings_.values[id]);
      Ref<> found = segment_.guards->sources().fetch(step.source, values_);
      if (!found) PyErr_Format(PyExc_RuntimeError, "%s is missing", step.source->text().c_str());
      return found;
    }
    case RecipeOp::Constant: return step.object;
    case RecipeOp::Output: return Ref<>::borrow(static_cast<PyObject*>(outputs_[std::size_t(step.index)].object));
    case RecipeOp::OutputScalar: {
      const Graph& graph = *segment_.graph;
      auto index = std::size_t(step.index);
      return numpy_scalar(graph.type(graph.outputs[index].value).dtype, outputs_[index].data);
    }
    case RecipeOp::OutputNumber: {
      const auto index = std::size_t(step.index);
      const void* data = data_pointer(static_cast<PyObject*>(outputs_[index].object));
      switch (segment_.graph->type(segment_.graph->outputs[index].value).dtype) {
        case DType::F64: return Ref<>::steal(PyFloat_FromDouble(*static_cast<const double*>(data)));
        case DType::Bool: return Ref<>::steal(PyBool_FromLong(*static_cast<const bool*>(data)));
        default: return Ref<>::steal(PyLong_FromLongLong(*static_cast<const std::int64_t*>(data)));
      }
    }
    case RecipeOp::View: return make_view(step);
    case RecipeOp::CrossView: {
      auto library = array_library(argument(step, 0));
      FJ_CHECK(library, "a cross view is of an array");
      return cross_view(argument(step, 0), *library == Library::Numpy ? Library::Torch : Library::Numpy);
    }
    case RecipeOp::Int: return Ref<>::steal(PyLong_FromLongLong(step.expression.evaluate(symbols_)));
    case RecipeOp::Null: return {};
    case RecipeOp::Tuple: return arguments_tuple(step);
    case RecipeOp::List: {
      auto list = Ref<>::steal(PyList_New(Py_ssize_t(step.args.size())));
      for (std::size_t i = 0; list && i < step.args.size(); ++i)
        PyList_SET_ITEM(list.get(), Py_ssize_t(i), Py_NewRef(argument(step, i)));
      return list;
    }
    case RecipeOp::Set:
    case RecipeOp::FrozenSet: {
      auto set = Ref<>::steal(step.op == RecipeOp::Set ? PySet_New(nullptr) : PyFrozenSet_New(nullptr));
      for (std::size_t i = 0; set && i < step.args.size(); ++i)
        if (PySet_Add(set.get(), argument(step, i)) < 0) return {};
      return set;
    }
    case RecipeOp::Dict: {
      auto dict = Ref<>::steal(PyDict_New());
      for (std::size_t i = 0; dict && i + 1 < step.args.size(); i += 2)
        if (PyDict_SetItem(dict.get(), argument(step, i), argument(step, i + 1)) < 0) return {};
      return dict;
    }
    case RecipeOp::NamedTuple: return make_named_tuple(step);
    case RecipeOp::Slice: return Ref<>::steal(PySlice_New(argument(step, 0), argument(step, 1), argument(step, 2)));
    case RecipeOp::Range: {
      Ref<> arguments = arguments_tuple(step);
      return arguments ? Ref<>::steal(PyObject_CallObject(reinterpret_cast<PyObject*>(&PyRange_Type), arguments.get()))
                       : Ref<>();
    }
    case RecipeOp::Iter: return Ref<>::steal(PyObject_GetIter(argument(step, 0)));
    case RecipeOp::Cell: return Ref<>::steal(PyCell_New(argument(step, 0)));
    case RecipeOp::Function: return make_function(step);
    case RecipeOp::BoundMethod: return Ref<>::steal(PyMethod_New(argument(step, 0), argument(step, 1)));
    case RecipeOp::Instance: return make_instance(step, false);
    case RecipeOp::Exception: return make_instance(step, true);
    case RecipeOp::GetAttr: return Ref<>::steal(PyObject_GetAttr(argument(step, 0), step.object.get()));
    case RecipeOp::Call: {
      Ref<> arguments = arguments_tuple(step);
      return arguments ? Ref<>::steal(PyObject_CallObject(step.object.get(), arguments.get())) : Ref<>();
    }
    case RecipeOp::CallWithKeywords: {
      Ref<> all = arguments_tuple(step);
      auto arguments = all ? Ref<>::steal(PyTuple_GetSlice(all.get(), 1, PyTuple_GET_SIZE(all.get()))) : Ref<>();
      return arguments ? Ref<>::steal(PyObject_Call(step.object.get(), arguments.get(), argument(step, 0))) : Ref<>();
    }
    case RecipeOp::Expect: {
      auto result = Ref<>::steal(PyObject_Call(step.object.get(), argument(step, 0), argument(step, 1)));
      if (!result || result.get() == argument(step, 2)) return result;
      if (step.index != 2 && Py_TYPE(result.get()) == Py_TYPE(argument(step, 2)) &&
          PyObject_RichCompareBool(result.get(), argument(step, 2), Py_EQ) == 1)
        return result;
      PyErr_SetString(PyExc_RuntimeError, "a cached function gives something else than when it was traced");
      return {};
    }
    default: break;
  }
  fail_check(__FILE__, __LINE__, "is_effect", "a recipe step that makes nothing has a target");
}

namespace {

/// Below any Python code of a derived class. A null item: deleted.
int store_item(PyObject* owner, PyObject* key, PyObject* item) {
  if (PyODict_Check(owner)) return PyODict_Type.tp_as_mapping->mp_ass_subscript(owner, key, item);
  if (PyDict_Check(owner)) return item ? PyDict_SetItem(owner, key, item) : PyDict_DelItem(owner, key);
  const Py_ssize_t place = PyLong_AsSsize_t(key);
  return item ? PySequence_SetItem(owner, place, item) : PySequence_DelItem(owner, place);
}

}  // namespace

bool RecipeRun::apply(const RecipeStep& step) {
  PyObject *owner = argument(step, 0), *value = argument(step, 1);
  switch (step.op) {
    case RecipeOp::SetItems: {
      auto old = Ref<>::steal(PyList_GetSlice(owner, 0, PyList_GET_SIZE(owner)));
      if (!old || PyList_SetSlice(owner, 0, PyList_GET_SIZE(owner), value) < 0) return false;
      dropped_.push_back(std::move(old));
      return true;
    }
    case RecipeOp::SetItem: {
      if (PyDict_Check(owner))
        if (PyObject* old = PyDict_GetItemWithError(owner, value)) dropped_.push_back(Ref<>::borrow(old));
      return store_item(owner, value, argument(step, 2)) == 0;
    }
    case RecipeOp::Mutate: {
      std::vector<PyObject*> arguments;
      for (std::size_t i = 0; i < step.args.size(); ++i) arguments.push_back(argument(step, i));
      if (PyDict_Check(owner) && step.args.size() == 1)
        dropped_.push_back(Ref<>::steal(PyDict_Copy(owner)));  // clear()
      auto result = Ref<>::steal(PyObject_Vectorcall(step.object.get(), arguments.data(), arguments.size(), nullptr));
      if (!result) return false;
      dropped_.push_back(std::move(result));
      return true;
    }
    case RecipeOp::SetAttr:
    case RecipeOp::DelAttr: {
      PyObject* stored = step.op == RecipeOp::SetAttr ? value : nullptr;
      // A class's own setter also tells its method caches.
      if (PyType_Check(owner)) return PyType_Type.tp_setattro(owner, step.object.get(), stored) == 0;
      return PyObject_GenericSetAttr(owner, step.object.get(), stored) == 0;
    }
    case RecipeOp::SetCell: {
      dropped_.push_back(Ref<>::steal(PyCell_Get(owner)));
      return PyCell_Set(owner, value) == 0;
    }
    default: break;
  }
  fail_check(__FILE__, __LINE__, "is_effect", "a recipe step without a target is no effect");
}

}  // namespace fj
