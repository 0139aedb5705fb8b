// Looking a callable up among the rows.
#include "tracer/builtins/builtin_table.h"

#include <functional>
#include <string_view>
#include <unordered_map>

namespace fj {

namespace {

/// What a callable is: itself, or, for functions of C, which may be new objects at each look (dict.fromkeys), the
/// function and what it is bound to.
struct Identity {
  const void* function;
  const void* bound_to;
  bool operator==(const Identity&) const = default;
};
struct Hash {
  std::size_t operator()(const Identity& identity) const {
    return std::hash<const void*>()(identity.function) * 31 + std::hash<const void*>()(identity.bound_to);
  }
};

Identity identity_of(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return {callable, nullptr};
  return {reinterpret_cast<PyCFunctionObject*>(callable)->m_ml, PyCFunction_GET_SELF(callable)};
}

class Table {
 public:
  Table() {
    for (auto rows : {builtin_rows(), iteration_rows()})
      for (const BuiltinRow& row : rows) add(row);
  }
  BuiltinHandler find(PyObject* callable) {
    if (!waiting_.empty() && torch_module())
      for (const BuiltinRow* row : std::exchange(waiting_, {})) add(*row);
    auto found = handlers_.find(identity_of(callable));
    return found == handlers_.end() ? nullptr : found->second;
  }

 private:
  void add(const BuiltinRow& row) {
    if (std::string_view(row.module) == "torch" && !torch_module())
      return waiting_.push_back(&row);  // imported by others, or never
    PyObject* found = PyImport_ImportModule(row.module);
    std::string_view path = row.name;
    while (found && !path.empty()) {
      const auto dot = path.find('.');
      found = PyObject_GetAttrString(
          found, std::string(path.substr(0, dot)).c_str());  // held for ever, as what it is found in
      path = dot == path.npos ? "" : path.substr(dot + 1);
    }
    if (!found) PyErr_Clear();  // itertools.batched came with 3.12
    if (found) handlers_[identity_of(found)] = row.handler;
  }

  std::unordered_map<Identity, BuiltinHandler, Hash> handlers_;
  std::vector<const BuiltinRow*> waiting_;
};

}  // namespace

BuiltinHandler find_builtin(PyObject* callable) {
  return once([] { return Table(); }).find(callable);
}

void unknown_call(const char* name, const std::vector<V>& arguments) {
  std::string text = std::string(name) + "(";
  bool computed = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    text += (i ? ", " : "") + describe(arguments[i]);
    computed = computed || arguments[i]->kind == ValueKind::Number;
  }
  break_graph(computed ? BreakReason::ScalarFromArray : BreakReason::UnknownCall, text + ")");
}

void unknown_call(const char* name) { break_graph(BreakReason::UnknownCall, std::string(name) + "() called this way"); }

V take_keyword(Keywords& keywords, const char* name) {
  for (auto it = keywords.begin(); it != keywords.end(); ++it)
    if (it->first == name) {
      V value = it->second;
      keywords.erase(it);
      return value;
    }
  return nullptr;
}

void expect(const char* name, const std::vector<V>& arguments, const Keywords& keywords, std::size_t least,
            std::size_t most) {
  if (!keywords.empty() || arguments.size() < least || arguments.size() > most) unknown_call(name, arguments);
}

V made_by(const char* module, const char* name, const std::shared_ptr<IteratorValue>& iterator,
          std::vector<V> arguments) {
  iterator->maker = imported(module, name);
  iterator->arguments = std::move(arguments);
  return iterator;
}

}  // namespace fj
