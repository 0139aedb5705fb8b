/// Collectives of torch.distributed as nodes of the graph.
///
/// The library's own function runs on the program's arrays, in program order. What it writes is an argument, whose new
/// contents are the node's results; nothing is predicted. Other processes take part in the call, so it can't be undone:
/// where the program fails later, CPython runs the piece with what the call gave (PastCall). And other processes look
/// at memory they share once the call is done, which a program that writes its inputs last would come too late for: it
/// runs on memory that nobody shares (has_private_memory).
#include "tracer/library_calls/collectives.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/ops.h"
#include "graph_ir/rules/conditions.h"
#include "runtime/base/error.h"
#include "segment/library_calls/collective_versions.h"
#include "segment/library_calls/extern_prediction.h"
#include "tracer/frontends/builders.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/devices.h"
#include "tracer/state/modes.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/state/warning_ledger.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/outside_objects.h"

namespace fj {

namespace {

struct Collective {
  std::string name;
  Ref<> function, code;                 // code: of what does the work, below the library's decorators
  std::vector<std::string> parameters;  // slot i of the frame
  int written = -1;                     // of the parameters
  int version_moves = 0;
  bool queues = false;                  // makes what is called inside of it later: no node
};

Ref<> attribute(const Ref<>& object, const char* name) {
  Ref<> found = object ? Ref<>::steal(PyObject_GetAttrString(object.get(), name)) : Ref<>();
  PyErr_Clear();
  return found;
}

/// Below functools.wraps; null: a decorator does work of its own there.
Ref<> undecorated(Ref<> function) {
  while (function && PyFunction_Check(function.get())) {
    if (attribute(function, "__deprecated__")) return {};  // it warns
    Ref<> inner = attribute(function, "__wrapped__");
    if (!inner) return function;
    function = std::move(inner);
  }
  return {};
}

/// By the function in torch.distributed.
std::unordered_map<PyObject*, Collective>& collectives() {
  auto* table = once([] {
    struct Row {
      const char *name, *written;
      int version_moves;
    };
    constexpr Row rows[] = {
#define FJ_COLLECTIVE(name, written, version_moves) {name, written, version_moves},
#include "tracer/library_calls/collectives.def"
    };
    auto* known = new std::unordered_map<PyObject*, Collective>;
    const Ref<> module = imported("torch.distributed", "distributed_c10d");
    PyErr_Clear();
    // Without it nobody can tell whether calls are queued.
    if (!attribute(attribute(module, "_world"), "pg_coalesce_state")) return known;
    for (const Row& row : rows) {
      const Ref<> function = attribute(module, row.name), inner = undecorated(function);
      if (!inner) continue;
      Collective found{row.name, function, attribute(inner, "__code__"), {}, -1, row.version_moves};
      auto* code = reinterpret_cast<PyCodeObject*>(found.code.get());
      const Ref<> names = attribute(found.code, "co_varnames");
      if (!names || code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) continue;
      for (int i = 0; i < code->co_argcount + code->co_kwonlyargcount; ++i)
        found.parameters.push_back(text_of(PyTuple_GET_ITEM(names.get(), i)));
      const auto written = std::find(found.parameters.begin(), found.parameters.end(), row.written);
      if (written != found.parameters.end()) found.written = int(written - found.parameters.begin());
      if (found.written < 0 && *row.written) continue;
      known->emplace(function.get(), std::move(found));
    }
    Collective manager;
    manager.function = attribute(module, "_coalescing_manager");
    manager.queues = true;
    if (PyObject* function = manager.function.get()) known->emplace(function, std::move(manager));
    return known;
  });
  return *table;
}

bool is_of_distributed(PyObject* function) {
  Ref<> module = attribute(Ref<>::borrow(function), "__module__");
  return module && PyUnicode_Check(module.get()) &&
         PyUnicode_CompareWithASCIIString(module.get(), "torch.distributed.distributed_c10d") == 0;
}

struct CollectiveBuilder {
  TraceRun& t;
  const Collective& collective;
  ExternCall call{};
  OnceCall once{};
  std::vector<std::shared_ptr<ArrayValue>> arrays{};

  int version_moves() const { return corrected_versions(collective.code.get()).value_or(collective.version_moves); }

  [[noreturn]] void refuse(const std::string& what) const {
    break_graph(BreakReason::UnsupportedOperation, "`" + collective.name + "` " + what);
  }

  ExternArgument operand(const V& value, int slot, int item) {
    auto array = std::static_pointer_cast<ArrayValue>(value);
    if (array->library != Library::Torch || array->numpy_scalar) refuse("of another library's array");
    if (array->stops_gradient || t.requires_gradient(*array) ||
        (array->storage->input_array && static_cast<ArrayValue*>(array->storage->input_array)->requires_grad))
      break_graph(BreakReason::Gradient, "`" + collective.name + "` of a tensor that requires a gradient");
    for (const Dims* dims : {&array->shape, &array->strides})
      for (const SymDim& size : *dims)
        if (t.graph().is_late(size))
          break_graph(BreakReason::DataDependentShape,
                      "`" + collective.name + "` of an array whose size depends on data");
    ExternArgument argument;
    argument.kind = ExternArgument::Kind::Operand;
    const auto known = std::find(arrays.begin(), arrays.end(), array);
    argument.index = int(known - arrays.begin());
    const bool again = known != arrays.end();
    if (!again) arrays.push_back(array);
    if (slot == collective.written) {
      if (again) refuse("of one tensor as several arguments");
      call.mutated.push_back(argument.index);
      once.written.push_back({slot, item});
    }
    return argument;
  }

  ExternArgument argument(const V& value, int slot) {
    if (value->kind == ValueKind::Array) return operand(value, slot, -1);
    ExternArgument result;
    if (value->kind == ValueKind::Tuple || value->kind == ValueKind::List) {
      if (auto* tuple = as<TupleValue>(value); tuple && tuple->view_of) refuse("of " + describe(value));
      result.kind = value->kind == ValueKind::Tuple ? ExternArgument::Kind::Tuple : ExternArgument::Kind::List;
      int place = 0;
      for (const V& item : t.sequence_items(value)) {
        if (item->kind == ValueKind::Array) {
          result.items.push_back(operand(item, slot, place++));
          continue;
        }
        PyObject* object = slot == collective.written ? nullptr : t.constant_object(item);
        if (!object) refuse("of a list with " + describe(item));
        result.items.emplace_back().object = Ref<>::borrow(object);
        ++place;
      }
      return result;
    }
    // A process group: fetched for each run, so that nothing keeps it alive.
    auto* object = as<ObjectValue>(value);
    if (object && object->object && object->source && collective.parameters[std::size_t(slot)] == "group" &&
        !t.is_none(value)) {
      result.kind = ExternArgument::Kind::Held;
      result.index = t.externs->hold(object->source);
      return result;
    }
    PyObject* constant = t.constant_object(value);
    if (!constant) refuse("of " + describe(value));
    result.object = Ref<>::borrow(constant);
    return result;
  }

  /// Nothing of this graph that a gradient flows through has read what is written: eager's backward would read what is
  /// there afterwards.
  void refuse_needed(const ArrayValue& array) const {
    std::vector<bool> same(t.graph().value_count());
    same[array.storage->contents.index] = true;
    auto reads = [&](const std::vector<ValueId>& values) {
      return std::any_of(values.begin(), values.end(), [&](ValueId value) { return same[value.index]; });
    };
    auto needed = [&] {
      break_graph(BreakReason::Gradient, "`" + collective.name + "` of a tensor that a derivative reads");
    };
    for (const Node& node : t.graph().nodes) {
      if (!reads(node.operands)) continue;
      if (std::any_of(node.results.begin(), node.results.end(),
                      [&](ValueId result) { return t.requires_gradient(result); }))
        needed();
      if (stands_for_operand(node.op)) same[node.results[0].index] = true;
    }
    for (const auto& composite : t.graph().composites)
      if ((reads(composite.operands) || reads(composite.kept)) && t.requires_gradient(composite.result)) needed();
  }

  /// What eager would raise before it makes the call, this program finds before it makes the call.
  std::vector<ValueId> awaited() const {
    const auto& nodes = t.graph().nodes;
    std::vector<const Node*> definition(t.graph().value_count());
    for (const Node& node : nodes)
      for (ValueId result : node.results) definition[result.index] = &node;
    std::vector<ValueId> found;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (node->op == Op::extern_call && (*t.externs)[node->attrs.get<std::int64_t>("handle")].once)
        break;  // it has waited
      if (t.uses_numpy && may_raise_condition(t.graph(), *node)) refuse("behind what NumPy may warn about");
      if (!counts_size(node->op) && may_fail(t.graph(), definition, *node)) found.push_back(node->results[0]);
    }
    return found;
  }

  V run(const std::vector<V>& positional, const Keywords& keywords) {
    const auto& parameters = collective.parameters;
    std::vector<V> given(parameters.size());
    if (positional.size() > parameters.size()) return nullptr;
    std::copy(positional.begin(), positional.end(), given.begin());
    for (auto& [name, value] : keywords) {
      const auto parameter = std::find(parameters.begin(), parameters.end(), name);
      if (parameter == parameters.end() || given[std::size_t(parameter - parameters.begin())]) return nullptr;
      given[std::size_t(parameter - parameters.begin())] = value;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (given[i] && parameters[i] == "async_op" && t.constant_object(given[i]) != Py_False) return nullptr;
    if (t.transforms->depth > 0)
      break_graph(BreakReason::OneExample, "`" + collective.name + "` is called once for all examples");
    // A graph for other decisions would run from the start.
    if (t.request.follow || !t.request.generalise.builtin_backend) refuse("in a function that may run in parts");
    if (t.warnings->any()) break_graph(BreakReason::Warning, "`" + collective.name + "`, a library call");

    call.name = collective.name;
    call.callable = Ref<>(collective.function);
    call.grad = t.modes->now.grad;
    call.inference = t.modes->now.inference && !t.modes->outside.inference;
    const Location where = t.location();
    call.place = where.file + ":" + std::to_string(where.line) + ":";
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!given[i]) continue;
      ExternArgument made = argument(given[i], int(i));
      if (i < positional.size())
        call.positional.push_back(std::move(made));
      else
        call.keywords.emplace_back(Ref<>::steal(PyUnicode_InternFromString(parameters[i].c_str())), std::move(made));
    }
    for (int index : call.mutated) {
      const ArrayValue& array = *arrays[std::size_t(index)];
      if (!is_dense(t, array.shape, array.strides)) refuse("of a tensor with gaps or overlaps");
      for (std::size_t i = 0; i < arrays.size(); ++i)
        if (int(i) != index && arrays[i]->storage == array.storage)
          refuse("of a tensor that shares memory with another argument");
    }
    once.code = collective.code;
    once.version_moves = version_moves();
    call.once = once;
    t.note_torch();

    std::vector<ValueId> operands;
    std::vector<std::optional<Dims>> operand_strides, strides;
    for (const auto& array : arrays) {
      operands.push_back(array_contents(t, *array));
      operand_strides.push_back(array->strides);
    }
    for (int index : call.mutated) refuse_needed(*arrays[std::size_t(index)]);
    std::vector<Type> types;
    for (int index : call.mutated) {
      const ArrayValue& array = *arrays[std::size_t(index)];
      call.results.push_back({array.dtype, array.shape, array.strides, -1, 0});
      types.push_back({array.dtype, array.shape});
      strides.push_back(array.strides);
    }
    for (ValueId value : awaited()) operands.push_back(t.requires_gradient(value) ? stopped(t, value) : value);
    Attrs attrs;
    t.externs->put(attrs, t.graph(), call);
    attrs.set("operand_strides", operand_strides);
    attrs.set("result_strides", strides);
    const std::vector<ValueId> values = t.graph().add_extern(operands, attrs, types, where);
    for (std::size_t i = 0; i < call.mutated.size(); ++i) {
      ArrayValue& array = *arrays[std::size_t(call.mutated[i])];
      t.write(array, values[i]);
      *array.torch_version += version_moves() - 1;
    }
    return t.none();
  }
};

}  // namespace

V call_collective(TraceRun& t, const V& callable, PyObject* object, const std::vector<V>& positional,
                  const Keywords& keywords) {
  if (!is_of_distributed(object)) return nullptr;
  const auto found = collectives().find(object);
  if (found == collectives().end()) return nullptr;
  if (found->second.queues)
    break_graph(BreakReason::UnsupportedOperation,
                "`" + text_of(attribute(found->second.function, "__name__").get()) + "` of torch.distributed");
  place_graph(t, kHost);  // what has failed on a device is known too late
  auto& value = *as<ObjectValue>(callable);
  if (!guard_value(t, value) && value.source) add_guard(t, GuardKind::Identity, value.source, object);
  return CollectiveBuilder{t, found->second}.run(positional, keywords);
}

}  // namespace fj
