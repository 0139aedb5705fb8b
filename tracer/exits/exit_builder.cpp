// Builds an exit: recipe steps for the live Values (`build`), then for the effects (`build_effects`), and the segment
// around them (start at `finish`). What torch's derivatives ask of an exit is in exit_gradients.cpp.
#include "tracer/exits/exit_builder.h"

#include <algorithm>

#include "graph_ir/passes/equal_sizes.h"
#include "runtime/base/error.h"
#include "tracer/branches.h"
#include "tracer/gradients/backward_call.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/liveness.h"
#include "tracer/modes/modes.h"
#include "tracer/state/argument_ledger.h"
#include "tracer/state/cached_calls.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/identity.h"
#include "tracer/state/modes.h"
#include "tracer/state/placement.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_statement.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/generators.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"

namespace fj {

namespace {

/// The Value in a key whose class has a __hash__ in Python; null: the key has none.
V hashed_by_its_class(PyObject* key) {
  if (V value = proxied(key)) {
    auto* text = as<ObjectValue>(value);
    return hashes_by_address(key) || (text && PyUnicode_CheckExact(text->object.get())) ? nullptr : value;
  }
  if (PyTuple_Check(key))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (V value = hashed_by_its_class(PyTuple_GET_ITEM(key, i))) return value;
  return nullptr;
}

/// An object of a class derived from list, dict or set.
bool is_derived_container(const V& value) {
  auto* object = as<ObjectValue>(value);
  return object && (PyList_Check(object->object.get()) || PyDict_Check(object->object.get()) ||
                    PyAnySet_Check(object->object.get()));
}

}  // namespace

int ExitBuilder::key(Ref<> object) {
  // A __hash__ in Python would run a second time.
  if (V value = hashed_by_its_class(object.get())) cannot(value);
  if (V value = proxied(object.get())) return build(value);
  // Fetched again: a segment keeps no object of the program alive.
  if (auto known = t_.identity->keys.find(object.get()); known != t_.identity->keys.end()) return build(known->second);
  if (holds_proxy(object.get())) return build(wrap_constant(t_, t_.keep(object).get()));
  return constant(std::move(object));
}

int ExitBuilder::build(const V& value) {
  if (auto known = registers_.find(value.get()); known != registers_.end()) {
    if (known->second < 0) cannot(value);  // contains itself
    return known->second;
  }
  // Containers nested so deep would take the C stack; the segment ends before this one was made.
  constexpr int kDeepest = 200;
  if (depth_ >= kDeepest) cannot(value);
  alive_.push_back(value);
  registers_[value.get()] = -1;
  ++depth_;
  if (auto here = t_.transforms->only_here.find(value); here != t_.transforms->only_here.end())
    throw CannotRebuildValue{value->born, here->second};
  const int target = make(value);
  --depth_;
  registers_[value.get()] = target;
  return target;
}

int ExitBuilder::make(const V& value) {
  auto all = [&](const std::vector<V>& values) {
    std::vector<int> targets;
    for (const V& item : values) targets.push_back(build(item));
    return targets;
  };
  if (PyObject* object = as<ObjectValue>(value) ? as<ObjectValue>(value)->object.get() : nullptr)
    if (auto step = made_class_at(t_, object)) throw CannotRebuildValue{*step, describe(value)};
  if (auto* instance = as<InstanceValue>(value))
    if (auto step = made_class_at(t_, reinterpret_cast<PyObject*>(instance->type.get())))
      throw CannotRebuildValue{*step, describe(value)};
  if (value->kind == ValueKind::Object && as<ObjectValue>(value)->object && !value->source)
    return constant(as<ObjectValue>(value)->object);
  if (value->source && value->source->kind == SourceKind::Constant) return constant(value->source->key);
  if (value->source) return from_source(value->source);
  switch (value->kind) {
    case ValueKind::SymInt: {
      RecipeStep& made = step(RecipeOp::Int);
      made.expression = as<SymIntValue>(value)->expression;
      return made.target;
    }
    case ValueKind::Number: {
      if (t_.placement->on_device()) cannot(value);  // it is on the device: Python would have to wait for it
      auto& number = *as<NumberValue>(value);
      const int target = output_of(number.contents, t_.uses_torch ? Library::Torch : Library::Numpy, {}, false);
      steps_.back().op = RecipeOp::OutputNumber;
      return target;
    }
    case ValueKind::Array: return build_array(value);
    case ValueKind::Tuple: {
      auto& tuple = *as<TupleValue>(value);
      auto* type = reinterpret_cast<PyTypeObject*>(tuple.type.get());
      if (tuple.view_of) {
        // dict.items(d) and the like.
        const bool ordered = type == &PyODictItems_Type || type == &PyODictKeys_Type || type == &PyODictValues_Type;
        const char* method = type == &PyDictItems_Type || type == &PyODictItems_Type ? "items"
                             : type == &PyDictKeys_Type || type == &PyODictKeys_Type ? "keys"
                                                                                    : "values";
        const int dict = build(tuple.view_of);
        RecipeStep& made = step(RecipeOp::Call, {dict});
        made.object = Ref<>::steal(
            PyObject_GetAttrString(reinterpret_cast<PyObject*>(ordered ? &PyODict_Type : &PyDict_Type), method));
        return made.target;
      }
      std::vector<int> args = all(tuple.items);
      if (!tuple.type) return step(RecipeOp::Tuple, args).target;
      RecipeStep& made = step(RecipeOp::NamedTuple, args);  // also torch.Size and torch.return_types
      made.object = tuple.type;
      return made.target;
    }
    case ValueKind::List: {
      auto& list = *as<ListValue>(value);
      if (!list.type) {
        if (!contains_itself(value)) return step(RecipeOp::List, all(list.items)).target;
        // Empty first: the list is among its own items.
        const int target = step(RecipeOp::List).target;
        registers_[value.get()] = target;
        const int items = step(RecipeOp::List, all(list.items)).target;
        effect_step(RecipeOp::SetItems, {target, items});
        return target;
      }
      const int items = step(RecipeOp::List, all(list.items)).target;
      const int longest =
          constant(list.longest ? Ref<>::steal(PyLong_FromLongLong(*list.longest)) : Ref<>::borrow(Py_None));
      RecipeStep& made = step(RecipeOp::Call, {items, longest});
      made.object = list.type;
      return made.target;
    }
    case ValueKind::Dict: {
      auto& dict = *as<DictValue>(value);
      if (dict.attributes_of) {
        // Its items are set as attributes of the object.
        const int owner = build(dict.attributes_of);
        RecipeStep& made = step(RecipeOp::GetAttr, {owner});
        made.object = Ref<>::steal(
            PyUnicode_InternFromString(dict.attributes_of->kind == ValueKind::Partial ? "keywords" : "__dict__"));
        return made.target;
      }
      if (contains_itself(value)) {
        if (dict.type) cannot(value);
        const int target = step(RecipeOp::Dict).target;
        registers_[value.get()] = target;
        fill_dict(target, dict);
        return target;
      }
      const int items = step(RecipeOp::Dict, dict_items(dict)).target;
      if (!dict.type) return items;
      std::vector<int> args{items};
      if (dict.type.get() != reinterpret_cast<PyObject*>(&PyODict_Type))
        args.insert(args.begin(),
                    dict.default_factory ? build(dict.default_factory) : constant(Ref<>::borrow(Py_None)));
      RecipeStep& made = step(RecipeOp::Call, args);
      made.object = dict.type;
      return made.target;
    }
    case ValueKind::Set: {
      auto& set = *as<SetValue>(value);
      Ref<> items = Ref<>::steal(PySequence_List(set.real.get()));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i)
        if (hashed_by_its_class(PyList_GET_ITEM(items.get(), i))) cannot(value);
      if (set.ordered) {
        // A set put together in this order has to iterate in this order.
        Ref<> again = Ref<>::steal(PySet_New(nullptr));
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i)
          PySet_Add(again.get(), PyList_GET_ITEM(items.get(), i));
        Ref<> order = Ref<>::steal(PySequence_List(again.get()));
        PyErr_Clear();
        if (PyList_GET_SIZE(order.get()) != PyList_GET_SIZE(items.get())) cannot(value);
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i)
          if (PyList_GET_ITEM(order.get(), i) != PyList_GET_ITEM(items.get(), i)) cannot(value);
      }
      std::vector<int> args;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i)
        args.push_back(key(Ref<>::borrow(PyList_GET_ITEM(items.get(), i))));
      return step(set.frozen ? RecipeOp::FrozenSet : RecipeOp::Set, args).target;
    }
    case ValueKind::Slice: {
      auto& slice = *as<SliceValue>(value);
      return step(RecipeOp::Slice, all({slice.start, slice.stop, slice.step})).target;
    }
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(value);
      return step(RecipeOp::Range,
                  all({t_.integer(range.start), t_.integer(range.stop), t_.integer(SymDim(range.step))}))
          .target;
    }
    case ValueKind::Iterator: {
      auto& iterator = *as<IteratorValue>(value);
      V rest = iterator.remaining ? iterator.remaining() : nullptr;
      if (rest) return step(RecipeOp::Iter, {build(rest)}).target;
      if (!iterator.maker || iterator.started) cannot(value);
      for (const V& argument : iterator.arguments) {
        // An iterator over a dict or a set, made before the effects, would see it change.
        auto* view = as<TupleValue>(argument);
        const V owner = view && view->view_of ? view->view_of : argument;
        if (owner->source && (as<DictValue>(owner) || as<SetValue>(owner)) && t_.written_since(owner.get(), {}))
          cannot(value);
      }
      std::vector<int> args = all(iterator.arguments);
      RecipeStep& made = step(RecipeOp::Call, args);
      made.object = iterator.maker;
      return made.target;
    }
    case ValueKind::Function: {
      auto& function = *as<FunctionValue>(value);
      auto optional = [&](const V& part) { return part ? build(part) : -1; };
      int closure = -1;
      if (!function.closure.empty()) closure = step(RecipeOp::Tuple, all(function.closure)).target;
      const int globals = constant(function.globals);
      const int defaults = optional(function.defaults), kwdefaults = optional(function.kwdefaults);
      const int annotations = optional(function.annotations), qualname = constant(function.qualname);
      RecipeStep& made = step(RecipeOp::Function, {globals, defaults, kwdefaults, annotations, closure, qualname});
      made.object = Ref<>::borrow(reinterpret_cast<PyObject*>(function.code.get()));
      const int target = made.target;
      registers_[value.get()] = target;
      for (const auto& members : {function.fields, function.attributes})
        for (auto& [name, item] : members->items) {
          const int attribute = build(item);
          effect_step(RecipeOp::SetAttr, {target, attribute}).object = name;
        }
      return target;
    }
    case ValueKind::BoundMethod: {
      auto& method = *as<BoundMethodValue>(value);
      return step(RecipeOp::BoundMethod, all({method.function, method.self})).target;
    }
    case ValueKind::Partial: {
      auto& partial = *as<PartialValue>(value);
      std::vector<int> args{step(RecipeOp::Dict, dict_items(*partial.keywords)).target, build(partial.function)};
      for (const V& item : partial.positional) args.push_back(build(item));
      RecipeStep& made = step(RecipeOp::CallWithKeywords, args);
      made.object = Ref<>::borrow(reinterpret_cast<PyObject*>(partial.type.get()));
      return made.target;
    }
    case ValueKind::Cell: {
      // Empty first: what it holds may refer to it.
      const int target = step(RecipeOp::Cell).target;
      registers_[value.get()] = target;
      if (V contents = as<CellValue>(value)->contents) effect_step(RecipeOp::SetCell, {target, build(contents)});
      return target;
    }
    case ValueKind::Instance: {
      auto& instance = *as<InstanceValue>(value);
      if (is_mode(instance) || instance.raised) cannot(value);
      if (PyType_IsSubtype(instance.type.get(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException))) {
        RecipeStep& made = step(RecipeOp::Exception, all(instance.args));
        made.object = Ref<>::borrow(reinterpret_cast<PyObject*>(instance.type.get()));
        const int exception = made.target;
        registers_[value.get()] = exception;
        for (auto& [name, item] : instance.attributes) {
          const int attribute = build(item);
          effect_step(RecipeOp::SetAttr, {exception, attribute}).object = name;
        }
        return exception;
      }
      return build_instance(value, instance);
    }
    case ValueKind::Builtin: {
      auto& method = *as<BuiltinValue>(value);
      const int owner = build(method.owner);
      if (method.descriptor && (method.owner->kind == ValueKind::Instance || method.owner->kind == ValueKind::Object)) {
        // super().append: not what the owner itself has under that name.
        RecipeStep& made = step(RecipeOp::Call, {owner});
        made.object = Ref<>::steal(PyObject_GetAttrString(method.descriptor.get(), "__get__"));
        return made.target;
      }
      RecipeStep& made = step(RecipeOp::GetAttr, {owner});
      made.object = Ref<>::steal(PyUnicode_InternFromString(method.name.c_str()));
      return made.target;
    }
    case ValueKind::Null: return step(RecipeOp::Null).target;
    default: cannot(value);
  }
}

/// For two stack entries that LOAD_METHOD made of a method of C code: makes the first as CPython has it, the method of
/// the class (its errors name that class, those of a bound method the object's); returns self, which goes into the
/// second. Null: other entries.
V ExitBuilder::unbound_method(const V& below, const V& above) {
  const bool first = fj_call_layout_callable_first();
  const V &empty = first ? above : below, &callable = first ? below : above;
  auto* null = as<NullValue>(empty);
  auto* method = as<BuiltinValue>(callable);
  if (!null || !method || null->asked != method->owner || callable->source) return nullptr;
  PyTypeObject* type = t_.type_of(method->owner);
  if (type->tp_getattro != PyObject_GenericGetAttr) return nullptr;
  Ref<> name = Ref<>::steal(PyUnicode_InternFromString(method->name.c_str()));
  PyObject* found = method->descriptor ? method->descriptor.get() : fj_type_lookup(type, name.get());
  if (!found || !PyType_HasFeature(Py_TYPE(found), Py_TPFLAGS_METHOD_DESCRIPTOR)) return nullptr;
  constant(Ref<>::borrow(found));
  return method->owner;
}

std::vector<int> ExitBuilder::dict_items(const DictValue& dict) {
  std::vector<int> args;
  for (auto& [name, item] : dict.items) {
    args.push_back(key(name));
    args.push_back(build(item));
  }
  return args;
}

/// Item by item: the items may refer to the dict.
void ExitBuilder::fill_dict(int target, const DictValue& dict) {
  const std::vector<int> items = dict_items(dict);
  for (std::size_t i = 0; i < items.size(); i += 2) effect_step(RecipeOp::SetItem, {target, items[i], items[i + 1]});
}

/// Whether a list or dict is reached from its own items.
bool ExitBuilder::contains_itself(const V& value) {
  std::set<Value*> seen;
  std::vector<Value*> open{value.get()};
  while (!open.empty()) {
    Value* at = open.back();
    open.pop_back();
    auto visit = [&](const V& item) {
      if (item && !item->source && seen.insert(item.get()).second) open.push_back(item.get());
    };
    if (auto* list = dynamic_cast<ListValue*>(at)) for (const V& item : list->items) visit(item);
    if (auto* tuple = dynamic_cast<TupleValue*>(at)) for (const V& item : tuple->items) visit(item);
    if (auto* dict = dynamic_cast<DictValue*>(at)) for (auto& [name, item] : dict->items) visit(item);
    if (seen.count(value.get())) return true;
  }
  return false;
}

/// An instance made in the trace, of a class from outside: bare, then (as effects, since they may refer to it) its
/// contents and attributes.
int ExitBuilder::build_instance(const V& value, InstanceValue& instance) {
  PyTypeObject* type = instance.type.get();
  if (type == &PyDictProxy_Type) {
    RecipeStep& made = step(RecipeOp::Call, {build(instance.contents)});
    made.object = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
    return made.target;
  }
  const bool immutable = instance.contents &&
                         (instance.contents->kind == ValueKind::Object || instance.contents->kind == ValueKind::Tuple);
  std::vector<int> given;
  if (immutable) given.push_back(build(instance.contents));
  RecipeStep& made =
      step(immutable ? RecipeOp::Exception : RecipeOp::Instance, given);  // both: by the builtin base's tp_new
  made.object = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
  const int target = made.target;
  registers_[value.get()] = target;
  if (V part = immutable ? nullptr : instance.contents) {
    registers_[part.get()] = target;
    if (auto* list = as<ListValue>(part)) {
      std::vector<int> items;
      for (const V& item : list->items) items.push_back(build(item));
      effect_step(RecipeOp::SetItems, {target, step(RecipeOp::List, items).target});
    } else if (auto* dict = as<DictValue>(part)) {
      if (dict->default_factory) cannot(value);
      fill_dict(target, *dict);
    } else if (auto* set = as<SetValue>(part)) {
      PyObject* const add =
          once([] { return PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySet_Type), "add"); });
      Ref<> list = Ref<>::steal(PySequence_List(set->real.get()));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
        const int element = key(Ref<>::borrow(PyList_GET_ITEM(list.get(), i)));
        effect_step(RecipeOp::Mutate, {target, element}).object = Ref<>::borrow(add);
      }
    }
  }
  int members = -1;
  for (auto& [name, item] : instance.attributes) {
    const int attribute = build(item);
    PyObject* descriptor = fj_type_lookup(type, name.get());
    if (descriptor && Py_TYPE(descriptor)->tp_descr_set && Py_TYPE(descriptor) != &PyMemberDescr_Type) {
      // The class has a descriptor of this name, so the item goes into the instance's dict.
      if (members < 0) {
        RecipeStep& dict = step(RecipeOp::GetAttr, {target});
        dict.object = Ref<>::steal(PyUnicode_InternFromString("__dict__"));
        members = dict.target;
      }
      effect_step(RecipeOp::SetItem, {members, constant(name), attribute});
    } else {
      effect_step(RecipeOp::SetAttr, {target, attribute}).object = name;
    }
  }
  return target;
}

int ExitBuilder::output_of(ValueId value, Library library, const Strides& strides, bool scalar, bool inference) {
  if (!t_.transforms->batches.empty()) check_example(t_, value);
  RecipeStep& made = step(scalar ? RecipeOp::OutputScalar : RecipeOp::Output);
  made.index = std::int64_t(t_.graph().outputs.size());
  t_.graph().outputs.push_back({value, strides});
  segment_->output_library.push_back(library);
  if (inference)
    segment_->inference_outputs.resize(t_.graph().outputs.size(), false), segment_->inference_outputs.back() = true;
  return made.target;
}

/// The array that owns a storage, whether the program still knows it or not: views are made from it.
int ExitBuilder::storage_owner(FakeStorage& storage, const std::shared_ptr<FakeStorage>& shared) {
  if (auto known = owners_.find(&storage); known != owners_.end()) return known->second;
  int target = -1;
  if (storage.input_array) {
    target = from_source(storage.input_array->source);
  } else {
    owner_outputs_[&storage] = int(t_.graph().outputs.size());
    const bool freed = is_freed(t_, shared->contents);
    target = output_of(freed ? stopped(t_, shared->contents) : shared->contents, storage.library, storage.strides,
                       false, storage.inference);
    if (storage.read_only) {
      RecipeStep& made = step(RecipeOp::Call, {target, constant(Ref<>::borrow(Py_False))});
      const Ref<> type = imported("numpy", "ndarray");
      made.object = type ? Ref<>::steal(PyObject_GetAttrString(type.get(), "setflags")) : Ref<>();
      FJ_CHECK(made.object, "numpy.ndarray.setflags");
    }
    if (freed && !t_.inputs->requiring_gradient.empty()) {
      // It has a history, which a backward in the trace has used up.
      const int leaf = build(input_array(t_, t_.inputs->requiring_gradient.front()));
      RecipeStep& made = step(RecipeOp::Call, {target, leaf});
      Ref<> module = Ref<>::steal(PyImport_ImportModule("framejit._support.autograd"));
      made.object = module ? Ref<>::steal(PyObject_GetAttrString(module.get(), "freed")) : Ref<>();
      FJ_CHECK(made.object, "framejit._support.autograd.freed");
      target = made.target;
      freed_.insert(&storage);
    }
  }
  owners_[&storage] = target;
  return target;
}

/// The tensor without a base that `detach()` or `.data` made.
int ExitBuilder::detached_tensor(const DetachedTensor& detached, DType dtype, int owner) {
  auto [known, fresh] = detached_.emplace(&detached, -1);
  if (!fresh) return known->second;
  RecipeStep& view = step(RecipeOp::View, {owner});
  view.dtype = dtype;
  view.shape = detached.shape;
  view.strides = detached.strides;
  view.expression = detached.offset;
  RecipeStep& made = step(RecipeOp::Call, {view.target});
  Ref<> tensor = Ref<>::steal(PyObject_GetAttrString(torch_module(), "Tensor"));
  Ref<> how = tensor ? Ref<>::steal(PyObject_GetAttrString(tensor.get(), detached.data ? "data" : "detach")) : Ref<>();
  made.object = how && detached.data ? Ref<>::steal(PyObject_GetAttrString(how.get(), "__get__")) : how;
  FJ_CHECK(made.object, "torch.Tensor has no detach or data");
  return known->second = made.target;
}

/// Autograd refuses to record a write into this view: it is one of several that a call has returned, or made in another
/// mode than the exit's. Of integers too: it asks this before it looks at the dtype.
bool ExitBuilder::is_marked(const ArrayValue& array) const {
  if (array.refused_since < 0 || array.storage->inference || array.detached) return false;
  const bool records = t_.modes->outside.records();
  return std::any_of(array.view.begin(), array.view.end(), [&](const ViewStep& step) {
    return step.recorded != records || (step.recorded && step.made_by && step.made_by->which >= 0);
  });
}

int ExitBuilder::build_array(const V& value) {
  auto& array = *as<ArrayValue>(value);
  FakeStorage& storage = *array.storage;
  if (t_.placement->on_device() && storage.device == kHost && !storage.input_array)
    throw CannotRebuildValue{value->born, "an array of cpu made in a piece on " + device_text(*t_.placement->graph),
                             BreakReason::SeveralDevices};
  if (storage.stands_for_view)
    throw CannotRebuildValue{value->born, "a view at a computed place, behind a branch or in a loop on data"};
  // torch remembers the mode a view was made in, and that can't be set from here.
  if (array.viewed_in_inference) cannot(value);
  if (storage.parameter_since >= 0 || (array.parameter && !value->source))
    throw CannotRebuildValue{storage.parameter_since >= 0 ? storage.parameter_since : value->born,
                             "a Parameter that is made here", BreakReason::Gradient};
  GradientLedger::Leaf* const leaf = made_leaf(t_, array);
  if (leaf && leaf->lost) refuse_leaf(*leaf);
  if (leaf) leaf->left = true;
  if (!leaf && t_.requires_gradient(array)) refuse_made_history(t_, array_contents(t_, array));
  if (array.numpy_scalar)
    return output_of(array_contents(t_, array), Library::Numpy, contiguous_strides(array.shape), true);
  const auto view = [&](int owner, const SymDim& offset) -> RecipeStep& {
    RecipeStep& made = step(RecipeOp::View, {owner});
    made.dtype = array.dtype;
    made.shape = array.shape;
    made.strides = array.strides;
    made.expression = offset;
    made.index = array.shown_read_only;
    return made;
  };
  // NumPy's windows are of an object that only has the array for its base, which `base` of them shows.
  if (array.library == Library::Numpy && array.shown_read_only &&
      std::any_of(array.view.begin(), array.view.end(), [](const ViewStep& step) { return step.op == Op::windows; }))
    cannot(value);
  if (array.crossed) return view(build(array.crossed), array.offset - array.crossed->offset).target;
  int target = storage_owner(storage, array.storage);
  if (leaf) {
    const int yes = constant(Ref<>::borrow(Py_True));
    effect_step(RecipeOp::SetAttr, {target, yes}).object = Ref<>::borrow(intern("requires_grad"));
    return target;
  }
  // New contents are in an array of ours, which to torch is no view.
  const bool was_view =
      storage.made_as_view && storage.version > 0 && !storage.inference && !t_.requires_gradient(array);
  bool owner = array.view.empty() && !array.is_view && !was_view;
  // To torch view(dtype) shares memory and is no view: nothing here makes another such tensor.
  if (array.library == Library::Torch && std::any_of(array.view.begin(), array.view.end(), [](const ViewStep& step) {
        return step.op == Op::extern_call && step.attrs.get<std::string>("callee") == "view";
      }))
    cannot(value);
  const bool crosses = array.library != storage.library;
  // Of the owner's library again by way of the other one: a tensor of its own, no view.
  const bool returns = array.library == Library::Torch && !crosses && array.torch_version != storage.torch_version &&
                       !(array.detached && array.detached->data);
  if (array.detached && !crosses && !returns) {
    target = detached_tensor(*array.detached, array.dtype, target);
    owner = array.detached->itself == &array;
  }
  bool unrecorded = false;
  if (!owner && !((crosses || returns) && array.view.empty())) {
    RecipeStep& made = view(target, array.offset);
    target = made.target;
    if (!crosses && !returns && t_.requires_gradient(array)) {
      made.view = array.view;
      gradient_views_.push_back({&array, target});
    }
    // Made where nothing was recorded: autograd knows that of it, and refuses writes into it.
    unrecorded = array.stops_gradient && !array.detached && !crosses && !returns;
    const bool marked = !crosses && !returns && is_marked(array);
    if (unrecorded || marked) {
      const bool foreign = std::any_of(array.view.begin(), array.view.end(),
                                       [](const ViewStep& step) { return step.op == Op::extern_call; });
      if (foreign && unrecorded) cannot(value);
      if (!foreign) made.view = array.view;
    }
  }
  if (array.stops_gradient && !array.detached && !crosses && !unrecorded) {
    RecipeStep& made = step(RecipeOp::Call, {target});
    made.object = Ref<>::steal(PyObject_GetAttrString(torch_module(), "Tensor"));
    made.object = Ref<>::steal(PyObject_GetAttrString(made.object.get(), "detach"));
    target = made.target;
  }
  for (int crossing = 0; crossing < (crosses ? 1 : returns ? 2 : 0); ++crossing)
    target = step(RecipeOp::CrossView, {target}).target;
  // Views share a counter with their base; tensors made of NumPy's memory have each their own.
  const bool of_input = storage.input_array && array.torch_version == storage.torch_version;
  if (storage.inference && (crosses || returns) && !t_.modes->outside.inference) cannot(value);
  if (*array.torch_version && !of_input && !storage.inference &&
      (crosses || returns || moved_versions_.insert(array.torch_version.get()).second)) {
    if (!crosses && !returns && array.torch_version == storage.torch_version)
      segment_->output_versions.emplace_back(owner_outputs_.at(&storage),
                                             *array.torch_version + storage.library_version);
    else
      effect_step(RecipeOp::BumpVersion, {target}).index = *array.torch_version;
  }
  return target;
}

/// The inputs that are written share memory with no other input; those that are read may with each other.
void ExitBuilder::keep_written_apart() {
  if (t_.inputs->written.empty() || t_.inputs->storages.size() < 2) return;
  Guard guard;
  guard.kind = GuardKind::NoOverlap;
  for (const auto& storage : t_.inputs->written) {
    const SourceRef written = storage->input_array->source;
    if (guard.source == nullptr) {
      guard.source = written;
    } else {
      guard.others.push_back(written);
    }
  }
  guard.number = std::int64_t(guard.others.size());
  for (const auto& storage : t_.inputs->storages)
    if (std::find(t_.inputs->written.begin(), t_.inputs->written.end(), storage) == t_.inputs->written.end())
      guard.others.push_back(storage->input_array->source);
  t_.guards().add(std::move(guard));
}

/// Guards that none of `others` is the object that `written` is.
void ExitBuilder::guard_apart(SourceRef written, const std::vector<SourceRef>& others) {
  Guard guard;
  guard.kind = GuardKind::NotSame;
  guard.source = written;
  guard.others.reserve(others.size());  // for each object written, all that are known
  for (SourceRef other : others)
    if (other != written) guard.others.push_back(other);
  if (!guard.others.empty()) t_.guards().add(std::move(guard));
}

/// Guards that no other known object of its kind is the written one: in another call they could be one, and the trace
/// would be wrong.
void ExitBuilder::keep_apart(const V& written) {
  auto* object = as<ObjectValue>(written);
  auto is_other = [&](const V& other) {
    if (object) {
      auto* like = as<ObjectValue>(other);
      return like && Py_TYPE(like->object.get()) == Py_TYPE(object->object.get());
    }
    return other->kind == written->kind || (written->kind != ValueKind::Cell && is_derived_container(other));
  };
  std::vector<SourceRef> others;
  for (const V& other : tracked())
    if (other != written && other->source && is_other(other)) others.push_back(other->source);
  guard_apart(written->source, others);
  if (object && Py_TYPE(object->object.get())->tp_dictoffset != 0 && !PyType_Check(object->object.get()))
    keep_apart_from_dicts(t_.sources().make(SourceKind::InstanceDict, written->source));
  auto* dict = as<DictValue>(written);
  if (!dict) return;
  // A dict may be the attributes of an object, or a module's globals.
  others.clear();
  const std::size_t count = t_.sources().all().size();
  for (std::size_t i = 0; i < count; ++i) {
    SourceRef space = t_.sources().all()[i].get();
    if (space->kind != SourceKind::InstanceDict && space->kind != SourceKind::FunctionGlobals) continue;
    Ref<> now = t_.sources().fetch(space, t_.request.values);
    if (now && now.get() != dict->real.get()) others.push_back(space);
  }
  guard_apart(written->source, others);
}

/// Guards that no tracked dict is the namespace, which is written.
void ExitBuilder::keep_apart_from_dicts(SourceRef space) {
  Ref<> now = t_.sources().fetch(space, t_.request.values);
  std::vector<SourceRef> others;
  for (const V& other : tracked())
    if (other->source && other->kind == ValueKind::Dict && as<DictValue>(other)->real.get() != now.get())
      others.push_back(other->source);
  guard_apart(space, others);
}

/// False: the argument was put into a deque and is gone from it at the exit, so anything may stand for it.
bool ExitBuilder::held_in_the_end(const Value& owner, const V& argument) {
  auto* deque = dynamic_cast<const ListValue*>(&owner);
  return !deque || argument->kind == ValueKind::Object ||
         std::find(deque->items.begin(), deque->items.end(), argument) != deque->items.end();
}

void ExitBuilder::build_effects() {
  // Nobody sees a value that is assigned over, or whose key goes, before the exit: it need not be made.
  std::map<std::pair<const void*, PyObject*>, std::size_t> last;
  std::vector<bool> seen(t_.effects->effects().size(), true);
  std::vector<V> values(t_.effects->effects().size());
  for (std::size_t i = 0; i < t_.effects->effects().size(); ++i) {
    const Effect& effect = t_.effects->effects()[i];
    if (effect.kind == Effect::Kind::Call) {
      // clear() and the like: a value assigned afterwards replaces none from before.
      last.erase(last.lower_bound({effect.owner.get(), nullptr}), last.lower_bound({effect.owner.get() + 1, nullptr}));
      continue;
    }
    if (!effect.arguments.empty()) values[i] = effect.arguments[0];
    const bool of_dict = effect.kind == Effect::Kind::Item && (!effect.owner || effect.owner->kind == ValueKind::Dict);
    if (!of_dict && effect.kind != Effect::Kind::Attribute && effect.kind != Effect::Kind::Cell) continue;
    auto [known, fresh] = last.emplace(
        std::pair<const void*, PyObject*>{
            effect.owner ? effect.owner.get() : static_cast<const void*>(effect.globals.get()), effect.key.get()},
        i);
    if (fresh) continue;
    const bool stored_before = values[known->second] != nullptr;
    if (stored_before && values[i]) {
      values[known->second] = values[i];
      seen[i] = false;
      continue;
    }
    if (stored_before) values[known->second] = t_.none();
    known->second = i;
  }
  std::set<const void*> kept_apart;
  for (std::size_t i = 0; i < t_.effects->effects().size(); ++i) {
    const Effect& effect = t_.effects->effects()[i];
    if (!seen[i]) continue;
    const int owner = effect.owner ? build(effect.owner) : constant(effect.globals);
    switch (effect.kind) {
      case Effect::Kind::Items: {
        std::vector<int> items;
        for (const V& item : as<ListValue>(effect.owner)->items) items.push_back(build(item));
        effect_step(RecipeOp::SetItems, {owner, step(RecipeOp::List, items).target});
        break;
      }
      case Effect::Kind::Item: {
        const int at = key(effect.key), value = values[i] ? build(values[i]) : -1;
        effect_step(RecipeOp::SetItem, {owner, at, value});
        break;
      }
      case Effect::Kind::Call: {
        std::vector<int> arguments{owner};
        if (effect.key) arguments.push_back(key(effect.key));
        for (const V& argument : effect.arguments)
          arguments.push_back(build(held_in_the_end(*effect.owner, argument) ? argument : t_.none()));
        effect_step(RecipeOp::Mutate, arguments).object = effect.method;
        break;
      }
      case Effect::Kind::Attribute:
        if (values[i])
          effect_step(RecipeOp::SetAttr, {owner, build(values[i])}).object = effect.key;
        else
          effect_step(RecipeOp::DelAttr, {owner}).object = effect.key;
        break;
      case Effect::Kind::Cell: effect_step(RecipeOp::SetCell, {owner, values[i] ? build(values[i]) : -1}); break;
    }
    if (effect.owner && effect.owner->source && kept_apart.insert(effect.owner.get()).second) keep_apart(effect.owner);
    if (!effect.owner && kept_apart.insert(effect.globals.get()).second)
      keep_apart_from_dicts(t_.sources().constant(effect.globals.get()));
  }
  keep_written_apart();
  for (const auto& storage : t_.inputs->written) {
    refuse_made_history(t_, storage->contents);
    t_.graph().writes.push_back({storage->input, storage->contents});
    SourceRef written = storage->input_array->source;
    if (storage->library == Library::Numpy)
      for (const Guard& known : std::vector<Guard>(t_.guards().all()))
        if (known.kind == GuardKind::Array && known.source == written) {
          Guard writeable = known;
          writeable.array->writeable_required = true;
          t_.guards().add(std::move(writeable));
        }
    if (const int writes = storage->inference ? 0 : *storage->torch_version)  // those have no counter
      segment_->input_versions.emplace_back(storage->input, writes);
  }
}

namespace {

/// Whether the instruction at the exit could look at the frame's locals. The callees that can't are listed, and their
/// arguments must be of exact builtin or array types.
bool looks_at_frame(const Frame& frame, Exit::Kind kind) {
  if (kind == Exit::Kind::Loop) return false;
  const FjInstr& instr = frame.code->instrs[frame.pc];
  auto entry = [&](int depth) {
    return int(frame.stack.size()) >= depth ? frame.stack[frame.stack.size() - std::size_t(depth)] : nullptr;
  };
  auto harmless = [](const V& value) {
    if (!value) return false;
    if (auto* object = as<ObjectValue>(value)) return is_plain(object->object.get());
    return value->kind == ValueKind::Array || value->kind == ValueKind::SymInt || value->kind == ValueKind::Number ||
           value->kind == ValueKind::Null;
  };
  switch (instr.opcode) {
    case FJ_POP_JUMP_IF_FALSE:
    case FJ_POP_JUMP_IF_TRUE:
    case FJ_JUMP_IF_FALSE_OR_POP:
    case FJ_JUMP_IF_TRUE_OR_POP:
    case FJ_TO_BOOL:
    case FJ_UNARY_NOT: return !harmless(entry(1));
    case FJ_CALL: break;
    default: return true;
  }
  for (int depth = 1; depth <= instr.arg; ++depth)
    if (!harmless(entry(depth))) return true;
  for (int depth : {instr.arg + 1, instr.arg + 2}) {
    V callee = entry(depth);
    if (!callee || callee->kind == ValueKind::Null) continue;
    if (auto* method = as<BuiltinValue>(callee))
      return !(method->owner->kind == ValueKind::Array && (method->name == "item" || method->name == "tolist"));
    auto* object = as<ObjectValue>(callee);
    constexpr const char* kBlind[] = {"print", "bool", "float", "int", "len", "str", "repr"};
    PyObject* builtins = PyEval_GetBuiltins();
    for (const char* name : kBlind)
      if (object && PyDict_GetItemString(builtins, name) == object->object.get()) return false;
    return true;
  }
  return true;
}

}  // namespace

/// Without the guards of the trace its graph is right where the arrays lie in memory as they did, if what the code did
/// rests on it.
void ExitBuilder::keep_assumptions() {
  std::set<const FakeStorage*> leaving;
  for (const V& value : alive_)
    if (value->kind == ValueKind::Array) leaving.insert(as<ArrayValue>(value)->storage.get());
  std::set<SourceRef> found;
  std::set<ValueId> computed;
  for (const ArgumentLedger::Layout& layout : t_.assumed->layouts) {
    if (!layout.matters([&](const FakeStorage* storage) { return leaving.count(storage) != 0; })) continue;
    if (layout.source) found.insert(layout.source);
    else computed.insert(layout.contents);
  }
  for (int input : inputs_behind(computed)) found.insert(segment_->inputs[std::size_t(input)]);
  segment_->lie_as_traced.assign(found.begin(), found.end());
  for (const auto& [storage, output] : owner_outputs_)
    if (storage->laid) segment_->laid_outputs.push_back(output);

  std::map<std::pair<AutogradFact, int>, std::pair<SourceRef, bool>> asked;  // in the order of their sources
  for (const ArgumentLedger::Autograd& seen : t_.assumed->autograd)
    asked[{seen.what, seen.source ? seen.source->id : -1}] = {seen.source, seen.answer};
  static constexpr const char* kNames[] = {"requires_grad", "is_leaf", "is_inference", "is_grad_enabled",
                                           "is_inference_mode_enabled", "stop"};
  for (const auto& [key, answer] : asked)
    segment_->autograd_as_traced.push_back({kNames[int(key.first)], answer.first, answer.second});
}

std::vector<int> ExitBuilder::inputs_behind(const std::set<ValueId>& values) const {
  const Graph& graph = t_.graph();
  std::vector<bool> behind(graph.value_count());
  for (ValueId value : values) behind[value.index] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node)
    if (std::any_of(node->results.begin(), node->results.end(), [&](ValueId made) { return behind[made.index]; }))
      for (ValueId operand : node->operands) behind[operand.index] = true;
  std::vector<int> found;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    if (behind[graph.inputs[i].value.index]) found.push_back(int(i));
  return found;
}

std::unique_ptr<Segment> ExitBuilder::finish(const Frame& frame, const V* result, Exit::Kind kind) {
  Recipe& recipe = segment_->recipe;
  if (!t_.exceptions->handling.empty()) cannot(t_.exceptions->handling.front());
  for (const auto& generator : t_.generators)
    if (!may_be_abandoned(t_, *generator)) cannot(generator);
  refuse_open_modes(t_);
  // The results expected of caches are fetched first: one that its cache has lost ends the recipe before another cache
  // has counted a hit.
  std::vector<std::vector<int>> asked_for;
  for (const CachedCalls::Expectation& expected : t_.cached->expectations)
    asked_for.push_back({constant(expected.arguments), constant(expected.keywords),
                         expected.value ? build(expected.value) : constant(expected.result)});
  for (std::size_t i = 0; i < asked_for.size(); ++i) {
    const CachedCalls::Expectation& expected = t_.cached->expectations[i];
    RecipeStep& asked = step(RecipeOp::Expect, asked_for[i]);
    asked.object = expected.callable;
    asked.index = expected.value ? 2 : expected.only_held;
  }
  if (result) {
    recipe.result = build(*result);
  } else {
    const std::vector<bool> live = looks_at_frame(frame, kind) ? std::vector<bool>(frame.slots.size(), true)
                                                               : live_slots(*frame.code, frame.pc);
    for (std::size_t i = 0; i < frame.slots.size(); ++i) {
      recipe.keep.push_back(frame.initial[i]);
      const V& local = frame.slots[i];
      const bool wanted = !frame.initial[i] && local && (live[i] || local->source);
      recipe.slots.push_back(wanted ? build(local) : -1);
    }
    for (std::size_t i = 0; i < frame.stack.size(); ++i) {
      recipe.keep.push_back(false);
      if (V self = i + 1 < frame.stack.size() ? unbound_method(frame.stack[i], frame.stack[i + 1]) : nullptr) {
        recipe.slots.push_back(steps_.back().target);
        recipe.keep.push_back(false);
        recipe.slots.push_back(build(self));
        ++i;
        continue;
      }
      const V& value = frame.stack[i];
      recipe.slots.push_back(value->kind == ValueKind::Null ? -1 : build(value));
    }
  }
  build_effects();
  for (std::size_t i = 0; i < t_.held_.size(); ++i)
    if (!t_.held_[i] && t_.request.values.slots[i]) recipe.let_go.push_back(int(i));
  if (!t_.transforms->followed.empty() && !t_.graph().writes.empty())
    break_graph(BreakReason::MutationOfInput, "an array from outside is written in a function that branches on data");
  for (const TransformLedger::Followed& followed : t_.transforms->followed) {
    segment_->conditions.push_back({int(t_.graph().outputs.size()), followed.outcome});
    t_.graph().outputs.push_back({followed.condition, std::nullopt});
    segment_->output_library.push_back(Library::Numpy);
  }
  order_views();
  recipe.steps = std::move(steps_);
  for (RecipeStep& effect : effects_) recipe.steps.push_back(std::move(effect));
  segment_->inputs = t_.inputs->sources;
  segment_->device = t_.placement->graph.value_or(kHost);
  segment_->host_inputs = t_.inputs->of_host;
  // Kernels read the results of library calls, so these must be on the same device.
  for (std::size_t i = 0; t_.placement->on_device() && i < t_.externs->size(); ++i)
    if ((*t_.externs)[std::int64_t(i)].device != segment_->device)
      break_graph(BreakReason::SeveralDevices, "`" + (*t_.externs)[std::int64_t(i)].name + "` of " +
                                                   device_text((*t_.externs)[std::int64_t(i)].device) +
                                                   " in a piece on " + device_text(segment_->device));
  // A function that follows branches (framejit.grad and its like) has no eager run that could report floating-point
  // conditions. The conditions that NumPy reports are guarded (NumpyErrState).
  if (t_.uses_numpy && !t_.request.follow && !t_.placement->on_device())
    segment_->collects = t_.collected_conditions() & numpy_trapped_conditions() &
                         (kFloatDivide | kFloatOverflow | kFloatUnderflow | kFloatInvalid);
  std::vector<std::pair<SymDim, SymDim>> equal;
  for (const Guard& guard : t_.guards().all())
    if (guard.kind == GuardKind::Relation && guard.number == Py_EQ) equal.emplace_back(*guard.left, *guard.right);
  equate_sizes(t_.graph(), equal);
  if (t_.request.way && t_.request.way->join) t_.request.way->join(t_.graph(), t_.guards(), *segment_);
  segment_->nodes = int(t_.graph().nodes.size());
  segment_->graph = t_.graph_;
  segment_->externs = t_.externs;
  if (t_.assumed) keep_assumptions();
  segment_->edited = t_.request.edit && !t_.unedited && t_.request.edit(*segment_, t_.guards(), t_.sources());
  if (segment_->edited) segment_->collects = 0;
  if (!t_.request.way || t_.request.way->join) derive();
  segment_->ran_backward = t_.gradients->ran_backward;
  segment_->told_compiled = t_.told_compiled;
  segment_->guards = std::move(t_.guards_);
  const auto is_late = [&](const Dims& sizes) {
    return std::any_of(sizes.begin(), sizes.end(), [&](const SymDim& size) { return t_.graph().is_late(size); });
  };
  for (RecipeStep& step : recipe.steps) {
    step.late = is_late({step.expression}) || is_late(step.shape) || is_late(step.strides);
    for (const ViewStep& view : step.view)
      step.late = step.late || is_late(view.shape_before) || is_late(view.shape_after);
  }
  return std::move(segment_);
}

std::unique_ptr<Segment> build_return(TraceRun& t, const V& result) {
  return ExitBuilder(t).finish(t.outer, &result, Exit::Kind::Return);
}

std::unique_ptr<Segment> build_stop(TraceRun& t, Exit exit) {
  auto segment = ExitBuilder(t).finish(t.outer, nullptr, exit.kind);
  segment->exit = std::move(exit);
  return segment;
}

std::vector<V> tracked_values(TraceRun& t) {
  std::vector<V> values;
  for (auto& [object, value] : t.identity->values) values.push_back(value);
  // By source, so that guards come out in the same order in every run.
  std::sort(values.begin(), values.end(), [](const V& a, const V& b) {
    return (a->source ? a->source->id : -1) < (b->source ? b->source->id : -1);
  });
  return values;
}

}  // namespace fj
