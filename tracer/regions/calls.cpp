// Calls: of functions that are known, and of Python functions, whose instructions are run as the loop's own.
#include "tracer/regions/region_builder.h"

#include <algorithm>

#include "cpython/objects.h"

namespace fj {

/// `names`: of the last ones that are given, or null.
bool RegionBuilder::call_instruction(int given, PyObject* names) {
  // Below the arguments: what is called and its first argument, or where there is none, NULL on either side.
  const bool callable_first = fj_call_layout_callable_first() || peek(given + 2).kind != Known::Kind::Empty;
  Known& called = peek(given + (callable_first ? 2 : 1));
  called = resolve(called);
  const bool function = called.kind == Known::Kind::Object && PyFunction_Check(called.object.get()) &&
                        !is_prange(called.object.get());
  if (function) expect_none_pending();
  std::vector<Known> arguments;
  for (int i = given; i > 0; --i) arguments.push_back(resolve(peek(i)));
  state_.places.resize(state_.places.size() - std::size_t(given));
  NamedArguments keywords;
  if (names != nullptr) {
    const std::size_t positional = arguments.size() - std::size_t(PyTuple_GET_SIZE(names));
    for (std::size_t i = positional; i < arguments.size(); ++i)
      keywords.emplace_back(text_of(PyTuple_GET_ITEM(names, Py_ssize_t(i - positional))), arguments[i]);
    arguments.resize(positional);
  }
  Known second = pop(), first = pop();
  Known callable = callable_first ? first : second;
  const Known self = callable_first ? second : first;
  if (self.kind != Known::Kind::Empty) {
    if (!function && self.is_list() && Py_TYPE(callable.object.get()) == &PyMethodDescr_Type && keywords.empty()) {
      const std::string name = text_of(PyDescr_NAME(callable.object.get()));
      if (!list_method(name, self, arguments)) throw Unknown{"a call of the method `" + name + "`"};
      return !ended_;
    }
    if (!function) throw Unknown{"a call of a method"};
    arguments.insert(arguments.begin(), self);
  }
  if (callable.kind == Known::Kind::Method) {
    auto made = method(text_of(callable.object.get()), callable.items[0], arguments, keywords);
    if (!made) throw Unknown{"a call of the method `" + text_of(callable.object.get()) + "`"};
    push(std::move(*made));
    return true;
  }
  if (callable.kind != Known::Kind::Object) throw Unknown{"a call of what is not known"};
  if (function)
    return enter_function(reinterpret_cast<PyFunctionObject*>(callable.object.get()), arguments, keywords, at_);
  auto made = call_known(callable.object.get(), arguments, keywords);
  if (ended_) return false;
  if (!made) throw Unknown{"a call of `" + text_of(callable.object.get()) + "`"};
  push(std::move(*made));
  return true;
}

RegionBuilder::Context* RegionBuilder::inlined(PyFunctionObject* function, int call) {
  for (const auto& known : contexts_)
    if (known->caller == context_ && known->call == call && known->globals == function->func_globals &&
        known->object == reinterpret_cast<PyCodeObject*>(function->func_code))
      return known.get();
  std::shared_ptr<const FjCode> code;
  for (const auto& decoded : decoded_)
    if (decoded->code == function->func_code) code = decoded;
  if (code == nullptr) {
    code = {fj_decode(reinterpret_cast<PyCodeObject*>(function->func_code)), fj_free_code};
    if (code == nullptr) {
      PyErr_Clear();
      throw Unknown{"a function that can't be decoded"};
    }
    decoded_.push_back(code);
  }
  contexts_.emplace_back(new Context{code, reinterpret_cast<PyCodeObject*>(code->code), function->func_globals,
                                     function->func_builtins, 0, code->count - 1, count_entrances(*code), context_,
                                     call});
  ++contexts_.back()->entrances[0];  // by the call
  return contexts_.back().get();
}

/// `before_` is the state at the call; the places of the function come behind it.
bool RegionBuilder::enter_function(PyFunctionObject* function, const std::vector<Known>& arguments,
                                   const NamedArguments& keywords, int call) {
  constexpr int kDepth = 4;
  int depth = 0;
  for (const Context* context = context_; context != nullptr; context = context->caller) ++depth;
  if (depth > kDepth) throw Unknown{"calls nested deeply"};
  made_.calls = std::max(made_.calls, depth);
  if (function->func_dict != nullptr && PyDict_GET_SIZE(function->func_dict) != 0)
    throw Unknown{"a call of a function with attributes"};  // framejit.disable and its like
  const auto* object = reinterpret_cast<PyCodeObject*>(function->func_code);
  const int taken = object->co_argcount;
  PyObject* const defaults = function->func_defaults;
  const int given_by_default = defaults ? int(PyTuple_GET_SIZE(defaults)) : 0;
  const auto refuse = [&] {
    throw Unknown{"a call of `" + text_of(function->func_qualname) + "` with such arguments"};
  };
  if (object->co_flags & (CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR) ||
      object->co_kwonlyargcount != 0 || int(arguments.size()) > taken || !PyDict_CheckExact(function->func_globals) ||
      !PyDict_CheckExact(function->func_builtins))
    refuse();
  std::vector<std::optional<Known>> given(arguments.begin(), arguments.end());
  given.resize(std::size_t(taken));
  for (const auto& [name, value] : keywords) {
    int slot = object->co_posonlyargcount;
    while (slot < taken && text_of(PyTuple_GET_ITEM(object->co_localsplusnames, slot)) != name) ++slot;
    if (slot == taken || given[std::size_t(slot)]) refuse();
    given[std::size_t(slot)] = value;
  }
  for (int i = 0; i < taken; ++i) {
    if (given[std::size_t(i)]) continue;
    if (i < taken - given_by_default) refuse();
    given[std::size_t(i)] = literal(PyTuple_GET_ITEM(defaults, i - taken + given_by_default));
  }
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::Function;
  guard.object = Ref<>::borrow(reinterpret_cast<PyObject*>(function));
  guard.value = Ref<>::borrow(function->func_code);
  guard.names = Ref<>::borrow(defaults);
  made_.guards.push_back(std::move(guard));
  Context* const context = inlined(function, call);
  State inside = before_;
  context->base = inside.places.size();
  if (repeatable(context) == context) inside.stored_at_call = inside.stored;
  for (const auto& argument : given) {
    if (argument->kind == Known::Kind::Empty || argument->is_iterator()) throw Unknown{"a call with an iterator"};
    inside.places.push_back(*argument);
  }
  inside.places.resize(context->base + std::size_t(object->co_nlocalsplus));
  inside.passes = state_.passes;
  ++entrances(call + 1);  // the function may return at several places
  region::Terminator terminator;
  terminator.kind = region::Terminator::Kind::Jump;
  terminator.yes.block = int(region_.blocks.size());
  region_.blocks.emplace_back();
  pending_.push_back({terminator.yes.block, 0, std::move(inside), context});
  end(std::move(terminator));
  return false;
}

bool RegionBuilder::return_from_function() {
  Known result = resolve(pop());
  const Context& context = *context_;
  State state = state_;
  state.places.resize(context.base);
  // The call's operands: what is called, its NULL, the arguments and their names.
  const FjInstr& call = context.caller->code->instrs[context.call];
  state.places.resize(state.places.size() - std::size_t(call.arg) - 2 - (call.opcode == FJ_CALL_KW ? 1 : 0));
  state.places.push_back(std::move(result));
  const int after = context.call + 1;
  context_ = context.caller;
  if (repeatable(context_) == nullptr) state.stored_at_call.clear();
  jump(after, std::move(state));
  return false;
}

}  // namespace fj
