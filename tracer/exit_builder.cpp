/// From the symbolic state at an exit to a Segment: the graph's outputs and writes, and the recipe that rebuilds every live
/// value and replays the side effects in order.
///
/// Each Value gets one register, so objects that are the same come back as the same. Making steps come first, effects
/// after them. A Value that can't be rebuilt breaks with CannotRebuild and the step it was born at, and the trace is ended
/// before that step instead.
#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/error.h"
#include "tracer/liveness.h"
#include "tracer/interpreter.h"
#include "tracer/restart.h"

namespace fj {

class ExitBuilder {
 public:
  explicit ExitBuilder(TracerImpl& tracer) : t_(tracer), segment_(std::make_unique<Segment>()) {}

  /// `result`: of a return; else the frame is left where it stands, and `kind` says what happens there.
  std::unique_ptr<Segment> finish(const Frame& frame, const V* result, Exit::Kind kind);

 private:
  int build(const V& value);
  int make(const V& value);
  int build_array(const V& value);
  int storage_owner(FakeStorage& storage, const std::shared_ptr<FakeStorage>& shared);
  int output_of(ValueId value, Library library, const Strides& strides, bool scalar);
  void build_effects();
  [[noreturn]] void cannot(const V& value) { throw CannotRebuildValue{value->born, describe(value)}; }

  RecipeStep& step(RecipeOp op, std::vector<int> args = {}) {
    RecipeStep step;
    step.op = op;
    step.args = std::move(args);
    step.target = segment_->recipe.register_count++;
    steps_.push_back(std::move(step));
    return steps_.back();
  }
  RecipeStep& effect(RecipeOp op, std::vector<int> args) {
    RecipeStep step;
    step.op = op;
    step.args = std::move(args);
    effects_.push_back(std::move(step));
    return effects_.back();
  }
  int from_source(SourceRef source) {
    RecipeStep& made = step(RecipeOp::FromSource);
    made.source = source;
    return made.target;
  }
  int constant(Ref<> object) {
    RecipeStep& made = step(RecipeOp::Constant);
    made.object = std::move(object);
    return made.target;
  }

  TracerImpl& t_;
  std::unique_ptr<Segment> segment_;
  std::vector<RecipeStep> steps_, effects_;
  std::map<Value*, int> registers_;
  std::map<FakeStorage*, int> owners_;
  std::set<int*> moved_versions_;
  std::vector<V> alive_;  // a key of registers_ must not be freed and reused
};

int ExitBuilder::build(const V& value) {
  if (auto known = registers_.find(value.get()); known != registers_.end()) {
    if (known->second < 0) cannot(value);  // contains itself
    return known->second;
  }
  alive_.push_back(value);
  registers_[value.get()] = -1;
  const int target = make(value);
  registers_[value.get()] = target;
  return target;
}

int ExitBuilder::make(const V& value) {
  auto all = [&](const std::vector<V>& values) {
    std::vector<int> targets;
    for (const V& item : values) targets.push_back(build(item));
    return targets;
  };
  if (value->kind == ValueKind::Object && as<ObjectValue>(value)->object && !value->source) return constant(as<ObjectValue>(value)->object);
  if (value->source && value->source->kind == SourceKind::Constant && value->kind == ValueKind::Object)
    return constant(as<ObjectValue>(value)->object);
  if (value->source) return from_source(value->source);
  switch (value->kind) {
    case ValueKind::SymInt: {
      RecipeStep& made = step(RecipeOp::Int);
      made.expression = as<SymIntValue>(value)->expression;
      return made.target;
    }
    case ValueKind::Array: return build_array(value);
    case ValueKind::Tuple: {
      auto& tuple = *as<TupleValue>(value);
      auto* type = reinterpret_cast<PyTypeObject*>(tuple.type.get());
      if (tuple.view_of) {
        // dict.items(d) and the like.
        const char* method = type == &PyDictItems_Type ? "items" : type == &PyDictKeys_Type ? "keys" : "values";
        const int dict = build(tuple.view_of);
        RecipeStep& made = step(RecipeOp::Call, {dict});
        made.object = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyDict_Type), method));
        return made.target;
      }
      std::vector<int> args = all(tuple.items);
      if (!tuple.type) return step(RecipeOp::Tuple, args).target;
      RecipeStep& made = step(RecipeOp::NamedTuple, args);  // also torch.Size and torch.return_types
      made.object = tuple.type;
      return made.target;
    }
    case ValueKind::List: return step(RecipeOp::List, all(as<ListValue>(value)->items)).target;
    case ValueKind::Dict: {
      auto& dict = *as<DictValue>(value);
      if (dict.type) cannot(value);
      std::vector<int> args;
      for (auto& [key, item] : dict.items) {
        args.push_back(constant(key));
        args.push_back(build(item));
      }
      return step(RecipeOp::Dict, args).target;
    }
    case ValueKind::Set: {
      auto& set = *as<SetValue>(value);
      std::vector<int> args;
      for (const Ref<>& item : set.items) args.push_back(constant(item));
      return step(set.frozen ? RecipeOp::FrozenSet : RecipeOp::Set, args).target;
    }
    case ValueKind::Slice: {
      auto& slice = *as<SliceValue>(value);
      return step(RecipeOp::Slice, all({slice.start, slice.stop, slice.step})).target;
    }
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(value);
      return step(RecipeOp::Range, all({t_.integer(range.start), t_.integer(range.stop), t_.integer(SymDim(range.step))})).target;
    }
    case ValueKind::Iterator: {
      auto& iterator = *as<IteratorValue>(value);
      V rest = iterator.remaining ? iterator.remaining() : nullptr;
      if (rest) return step(RecipeOp::Iter, {build(rest)}).target;
      if (!iterator.maker || iterator.started) cannot(value);
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
      return made.target;
    }
    case ValueKind::BoundMethod: {
      auto& method = *as<BoundMethodValue>(value);
      return step(RecipeOp::BoundMethod, all({method.function, method.self})).target;
    }
    case ValueKind::Partial: {
      auto& partial = *as<PartialValue>(value);
      std::vector<int> names;
      for (auto& [name, item] : partial.keywords) {
        names.push_back(constant(Ref<>::steal(PyUnicode_InternFromString(name.c_str()))));
        names.push_back(build(item));
      }
      std::vector<int> args{step(RecipeOp::Dict, names).target, build(partial.function)};
      for (const V& item : partial.positional) args.push_back(build(item));
      RecipeStep& made = step(RecipeOp::CallWithKeywords, args);
      made.object = Ref<>::borrow(reinterpret_cast<PyObject*>(partial.type.get()));
      return made.target;
    }
    case ValueKind::Cell: {
      // Empty first: what it holds may refer to it.
      const int target = step(RecipeOp::Cell).target;
      registers_[value.get()] = target;
      if (V contents = as<CellValue>(value)->contents) effect(RecipeOp::SetCell, {target, build(contents)});
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
          effect(RecipeOp::SetAttr, {exception, attribute}).object = name;
        }
        return exception;
      }
      RecipeStep& made = step(RecipeOp::Instance);
      made.object = Ref<>::borrow(reinterpret_cast<PyObject*>(instance.type.get()));
      const int target = made.target;
      registers_[value.get()] = target;
      for (auto& [name, item] : instance.attributes) {
        const int attribute = build(item);
        effect(RecipeOp::SetAttr, {target, attribute}).object = name;
      }
      return target;
    }
    case ValueKind::Builtin: {
      auto& method = *as<BuiltinValue>(value);
      const int owner = build(method.owner);
      RecipeStep& made = step(RecipeOp::GetAttr, {owner});
      made.object = Ref<>::steal(PyUnicode_InternFromString(method.name.c_str()));
      return made.target;
    }
    case ValueKind::Null: return step(RecipeOp::Null).target;
    default: cannot(value);
  }
}

int ExitBuilder::output_of(ValueId value, Library library, const Strides& strides, bool scalar) {
  RecipeStep& made = step(scalar ? RecipeOp::OutputScalar : RecipeOp::Output);
  made.index = std::int64_t(t_.graph->outputs.size());
  t_.graph->outputs.push_back({value, strides});
  segment_->output_library.push_back(library);
  return made.target;
}

/// The array that owns a storage, whether the program still knows it or not: views are made from it.
int ExitBuilder::storage_owner(FakeStorage& storage, const std::shared_ptr<FakeStorage>& shared) {
  if (auto known = owners_.find(&storage); known != owners_.end()) return known->second;
  int target = -1;
  if (storage.input_array) {
    target = from_source(storage.input_array->source);
  } else {
    target = output_of(shared->contents, storage.library, storage.strides, false);
  }
  owners_[&storage] = target;
  return target;
}

int ExitBuilder::build_array(const V& value) {
  auto& array = *as<ArrayValue>(value);
  FakeStorage& storage = *array.storage;
  if (array.numpy_scalar) return output_of(t_.read(array), Library::Numpy, contiguous_strides(array.shape), true);
  int target = storage_owner(storage, array.storage);
  const bool owner = array.view.empty() && !array.is_view;
  const bool crosses = array.library != storage.library;
  // Of the owner's library again by way of the other one: a tensor of its own, no view.
  const bool returns = array.library == Library::Torch && !crosses && array.torch_version != storage.torch_version;
  if (!owner && !((crosses || returns) && array.view.empty())) {
    RecipeStep& made = step(RecipeOp::View, {target});
    made.dtype = array.dtype;
    made.shape = array.shape;
    made.strides = array.strides;
    made.expression = array.offset;
    made.index = !array.writeable;  // a read-only view
    target = made.target;
  }
  for (int crossing = 0; crossing < (crosses ? 1 : returns ? 2 : 0); ++crossing) target = step(RecipeOp::CrossView, {target}).target;
  // Views share a counter with their base; tensors made of NumPy's memory have each their own.
  const bool of_input = storage.input_array && array.torch_version == storage.torch_version;
  if (*array.torch_version && !of_input && (crosses || returns || moved_versions_.insert(array.torch_version.get()).second))
    effect(RecipeOp::BumpVersion, {target}).index = *array.torch_version;
  return target;
}

void ExitBuilder::build_effects() {
  auto not_same = [&](const V& written, auto&& is_other) {
    // In another call two of these could be one object; then the trace would be wrong.
    for (const V& other : t_.tracked_values()) {
      if (other == written || !other->source || !is_other(other)) continue;
      Guard guard;
      guard.kind = GuardKind::NotSame;
      guard.source = written->source;
      guard.others = {other->source};
      t_.guards->add(std::move(guard));
    }
  };
  for (const V& container : t_.mutated) {
    const int target = build(container);
    if (auto* list = as<ListValue>(container)) {
      std::vector<int> args;
      for (const V& item : list->items) args.push_back(build(item));
      const int fresh = step(RecipeOp::List, args).target;
      effect(RecipeOp::SetItems, {target, fresh});
      not_same(container, [](const V& other) { return other->kind == ValueKind::List; });
    } else if (auto* dict = as<DictValue>(container)) {
      std::vector<int> args;
      for (auto& [key, item] : dict->items) {
        args.push_back(constant(key));
        args.push_back(build(item));
      }
      const int fresh = step(RecipeOp::Dict, args).target;
      effect(RecipeOp::DictAssign, {target, fresh});
      not_same(container, [](const V& other) { return other->kind == ValueKind::Dict; });
    } else if (auto* set = as<SetValue>(container)) {
      std::vector<int> args;
      for (const Ref<>& item : set->items) args.push_back(constant(item));
      const int fresh = step(RecipeOp::Set, args).target;
      effect(RecipeOp::SetAssign, {target, fresh});
    } else if (auto* cell = as<CellValue>(container)) {
      if (!cell->contents) cannot(container);
      const int contents = build(cell->contents);
      effect(RecipeOp::SetCell, {target, contents});
      not_same(container, [](const V& other) { return other->kind == ValueKind::Cell; });
    }
  }
  for (const AttributeWrite& write : t_.attribute_writes) {
    const int owner = build(write.owner);
    if (write.value) {
      const int value = build(write.value);
      effect(RecipeOp::SetAttr, {owner, value}).object = write.name;
    } else {
      effect(RecipeOp::DelAttr, {owner}).object = write.name;
    }
    if (write.owner->source) {
      PyTypeObject* type = Py_TYPE(as<ObjectValue>(write.owner)->object.get());
      not_same(write.owner, [&](const V& other) {
        auto* object = as<ObjectValue>(other);
        return object && Py_TYPE(object->object.get()) == type;
      });
    }
  }
  for (const GlobalWrite& write : t_.global_writes) {
    const int globals = constant(write.globals), value = build(write.value);
    effect(RecipeOp::StoreGlobal, {globals, value}).object = write.name;
  }
  for (const auto& storage : t_.written_inputs) {
    t_.graph->writes.push_back({storage->input, storage->contents});
    SourceRef written = storage->input_array->source;
    Guard guard;
    guard.kind = GuardKind::NoOverlap;
    guard.source = written;
    for (const auto& other : t_.input_storages)
      if (other != storage) guard.others.push_back(other->input_array->source);
    if (!guard.others.empty()) t_.guards->add(std::move(guard));
    if (storage->library == Library::Numpy)
      for (const Guard& known : std::vector<Guard>(t_.guards->all()))
        if (known.kind == GuardKind::Array && known.source == written) {
          Guard writeable = known;
          writeable.array->writeable_required = true;
          t_.guards->add(std::move(writeable));
        }
    if (const int writes = *storage->torch_version)
      effect(RecipeOp::BumpVersion, {from_source(written)}).index = writes;
  }
}

namespace {

/// Whether what runs at the exit could look at the frame's locals. The callees that can't are listed, and what they are given
/// must be of exact builtin or array types.
bool looks_at_frame(const Frame& frame, Exit::Kind kind) {
  if (kind == Exit::Kind::Loop) return false;
  const FjInstr& instr = frame.code->instrs[frame.pc];
  auto entry = [&](int depth) { return int(frame.stack.size()) >= depth ? frame.stack[frame.stack.size() - std::size_t(depth)] : nullptr; };
  auto harmless = [](const V& value) {
    if (!value) return false;
    if (auto* object = as<ObjectValue>(value)) return is_plain(object->object.get());
    return value->kind == ValueKind::Array || value->kind == ValueKind::SymInt || value->kind == ValueKind::Null;
  };
  switch (instr.opcode) {
    case FJ_POP_JUMP_IF_FALSE: case FJ_POP_JUMP_IF_TRUE: case FJ_JUMP_IF_FALSE_OR_POP: case FJ_JUMP_IF_TRUE_OR_POP: case FJ_TO_BOOL:
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

std::unique_ptr<Segment> ExitBuilder::finish(const Frame& frame, const V* result, Exit::Kind kind) {
  Recipe& recipe = segment_->recipe;
  if (!t_.handling.empty()) cannot(t_.handling.front());
  if (t_.modes.grad != t_.modes_outside().grad)
    throw CannotRebuildValue{t_.mode_changed_at, "a grad mode that is not what it was outside"};
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
    for (const V& value : frame.stack) {
      recipe.keep.push_back(false);
      recipe.slots.push_back(value->kind == ValueKind::Null ? -1 : build(value));
    }
  }
  build_effects();
  recipe.steps = std::move(steps_);
  for (RecipeStep& effect : effects_) recipe.steps.push_back(std::move(effect));
  segment_->inputs = t_.graph_inputs;
  segment_->needs_gradient = t_.needs_gradient;
  if (t_.uses_numpy)
    segment_->collects = t_.collected_conditions() & (kFloatDivide | kFloatOverflow | kFloatUnderflow | kFloatInvalid);
  segment_->nodes = int(t_.graph->nodes.size());
  segment_->graph = t_.graph;
  segment_->externs = t_.externs;
  segment_->guards = std::move(t_.guards);
  return std::move(segment_);
}

std::unique_ptr<Segment> TracerImpl::build_return(const V& result) { return ExitBuilder(*this).finish(outer, &result, Exit::Kind::Return); }

std::unique_ptr<Segment> TracerImpl::build_stop(Exit exit) {
  auto segment = ExitBuilder(*this).finish(outer, nullptr, exit.kind);
  segment->exit = std::move(exit);
  return segment;
}

std::vector<V> TracerImpl::tracked_values() const {
  std::vector<V> values;
  for (auto& [object, value] : identity_) values.push_back(value);
  // By source, so that guards come out in the same order in every run.
  std::sort(values.begin(), values.end(), [](const V& a, const V& b) {
    return (a->source ? a->source->id : -1) < (b->source ? b->source->id : -1);
  });
  return values;
}

}  // namespace fj
