/// Exceptions raised and caught within one trace.
///
/// A raise whose handler is in a frame being traced goes there, as a C++ exception; one that would leave the outermost
/// frame is a break at the raise, which Python then performs with a true traceback. An exception that was raised can't
/// be handed back to Python (its traceback is missing), nor can a frame that is handling one: see ExitBuilder.
#include "tracer/interpreter/exceptions.h"

#include "tracer/data_loops.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/base/error.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/outside_objects.h"

namespace fj {

static bool can_catch(TraceRun& t);

namespace {

bool is_exception(const V& value) {
  auto* instance = as<InstanceValue>(value);
  return instance && PyType_IsSubtype(instance->type.get(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

}  // namespace

namespace {

void set_exception_field(InstanceValue& exception, const char* name, const V& value) {
  for (auto& [key, old] : exception.attributes)
    if (PyUnicode_CompareWithASCIIString(key.get(), name) == 0) {
      old = value;
      return;
    }
  exception.attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString(name)), value);
}

/// Takes `exception` out of the chain of contexts that starts at `from`, of which it will be the head.
void cut_context(const V& from, const V& exception) {
  std::set<Value*> seen;
  for (auto* at = as<InstanceValue>(from); at && seen.insert(at).second;) {
    auto context = std::find_if(at->attributes.begin(), at->attributes.end(), [](auto& field) {
      return PyUnicode_CompareWithASCIIString(field.first.get(), "__context__") == 0;
    });
    if (context == at->attributes.end()) return;
    if (context->second == exception) {
      at->attributes.erase(context);
      return;
    }
    at = as<InstanceValue>(context->second);
  }
}

}  // namespace

bool can_catch(TraceRun& t) {
  if (t.exceptions->catching > 0) return true;
  FjHandler handler;
  for (const Frame* frame : t.frames)
    if (fj_find_handler(frame->co, frame->code->instrs[frame->executing].executing, &handler)) return true;
  return false;
}

void raise(TraceRun& t, const V& exception, BreakReason reason, const std::string& detail) {
  auto& instance = *as<InstanceValue>(exception);
  // One that is raised again breaks, if it comes to that, for the reason and at the place of its first raise.
  auto known = std::find_if(t.exceptions->raises.begin(), t.exceptions->raises.end(),
                            [&](const RaisedInTrace& old) { return old.exception == exception; });
  if (!can_catch(t)) {
    if (t.request.way && !t.request.way->events.empty()) {
      t.request.way->end = TracedWay::End::Raise;
      throw WayEnds{t.none()};
    }
    if (known == t.exceptions->raises.end()) break_graph(reason, detail);
    t.break_location = known->where;
    t.break_function = known->function;
    t.step = known->step;
    break_graph(known->reason, known->detail);
  }
  instance.raised = true;
  if (!t.exceptions->handling.empty() && t.exceptions->handling.back() != exception) {
    cut_context(t.exceptions->handling.back(), exception);
    set_context(t, instance, t.exceptions->handling.back());
  }
  if (known == t.exceptions->raises.end()) {
    t.exceptions->raises.push_back(
        {exception, reason, detail, t.location(), text_of(t.frames.back()->co->co_qualname), t.step});
    throw RaisedInTrace(t.exceptions->raises.back());
  }
  throw RaisedInTrace(*known);
}

void set_cause(TraceRun& t, InstanceValue& exception, const V& cause) {
  set_exception_field(exception, "__cause__", cause);
  set_exception_field(exception, "__suppress_context__", t.boolean(true));
}

void set_context(TraceRun& t, InstanceValue& exception, const V& context) {
  set_exception_field(exception, "__context__", context);
}

std::optional<V> exception_attribute(TraceRun& t, InstanceValue& exception, const std::string& name) {
  auto* base = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  if (!PyType_IsSubtype(exception.type.get(), base)) return std::nullopt;
  if (name == "args") return t.tuple(exception.args);
  if (name == "__cause__" || name == "__context__") return t.none();  // not set: those that are set are attributes
  if (name == "__suppress_context__") return t.boolean(false);
  if (name == "value" && PyType_IsSubtype(exception.type.get(), reinterpret_cast<PyTypeObject*>(PyExc_StopIteration)))
    return exception.args.empty() ? t.none() : exception.args[0];
  // Fields of C that are set from the arguments in ways of their own: OSError.errno, UnicodeError.start, ...
  Ref<> text = Ref<>::steal(PyUnicode_FromString(name.c_str()));
  PyObject* found = text ? fj_type_lookup(exception.type.get(), text.get()) : nullptr;
  if (!found) PyErr_Clear();
  if (found && (Py_TYPE(found) == &PyMemberDescr_Type || Py_TYPE(found) == &PyGetSetDescr_Type) &&
      !(PyDescr_TYPE(found)->tp_flags & Py_TPFLAGS_HEAPTYPE))
    break_graph(BreakReason::UnsupportedObject, "attribute '" + name + "' of an exception");
  return std::nullopt;
}

bool set_exception_attribute(TraceRun& t, const V& owner, const std::string& name, const V& value) {
  if (!is_exception(owner)) return false;
  auto& exception = *as<InstanceValue>(owner);
  // An exception raised in the trace has no traceback that could be looked at.
  if (name == "__traceback__") return exception.raised;
  if (name != "__cause__" && name != "__context__" && name != "__suppress_context__") return false;
  t.effects->note_write(owner.get());
  if (name == "__cause__") set_cause(t, exception, value);
  else set_exception_field(exception, name.c_str(), value);
  return true;
}

V exception_info(TraceRun& t) {
  if (t.exceptions->handling.empty()) {
    // Whoever called the function may be handling one: asked again at every call.
    Ref<> function = t.keep(imported("sys", "exception"));
    static PyObject* const nothing = PyTuple_New(0);
    Ref<> outside = function ? Ref<>::steal(PyObject_CallNoArgs(function.get())) : Ref<>();
    if (outside.get() != Py_None)
      break_graph(BreakReason::UnsupportedObject, "sys.exc_info() of an exception that is handled outside");
    t.is_none(t.wrap(Py_None, t.sources().make(SourceKind::Answer, t.sources().constant(function.get()), 0, nothing)));
    return t.tuple({t.none(), t.none(), t.none()});
  }
  V exception = t.exceptions->handling.back();
  auto traceback = std::make_shared<InstanceValue>();
  traceback->type = Ref<PyTypeObject>::borrow(&PyTraceBack_Type);
  traceback->raised = true;
  return t.tuple(
      {wrap_constant(t, reinterpret_cast<PyObject*>(as<InstanceValue>(exception)->type.get())), exception, traceback});
}

bool is_stop(TraceRun& t, const V& exception, PyObject* other) {
  auto& instance = *as<InstanceValue>(exception);
  if (other && PyType_IsSubtype(instance.type.get(), reinterpret_cast<PyTypeObject*>(other))) return true;
  if (!PyType_IsSubtype(instance.type.get(), reinterpret_cast<PyTypeObject*>(PyExc_StopIteration))) return false;
  t.exceptions->stopped_with = instance.args.empty() ? t.none() : instance.args[0];
  return true;
}

void raise_python_error(TraceRun& t) {
  Ref<> error = Ref<>::steal(fj_take_exception());
  FJ_CHECK(error, "no error is set");
  const std::string detail = std::string(Py_TYPE(error.get())->tp_name) + ": " + text_of(error.get());
  // Only what its arguments and attributes say all of; an OSError or UnicodeError has more.
  constexpr const char* kSimple[] = {"ValueError",        "TypeError",     "KeyError",           "IndexError",
                                     "ZeroDivisionError", "OverflowError", "AttributeError",     "ArithmeticError",
                                     "LookupError",       "RuntimeError",  "NotImplementedError"};
  const bool simple = std::any_of(std::begin(kSimple), std::end(kSimple), [&](const char* name) {
    auto* known = reinterpret_cast<PyTypeObject*>(PyDict_GetItemString(PyEval_GetBuiltins(), name));
    PyTypeObject* const type = Py_TYPE(error.get());
    return type == known ||
           (type->tp_base == known && type->tp_new == known->tp_new && type->tp_init == known->tp_init);
  });
  Ref<> arguments = simple ? Ref<>::steal(PyObject_GetAttrString(error.get(), "args")) : Ref<>();
  Ref<> attributes = simple ? Ref<>::steal(PyObject_GetAttrString(error.get(), "__dict__")) : Ref<>();
  PyErr_Clear();
  if (!arguments || !attributes) break_graph(BreakReason::ErrorWhileTracing, detail);
  const auto known = [&](PyObject* item) {
    if (!is_plain(item)) break_graph(BreakReason::ErrorWhileTracing, detail);
    return wrap_constant(t, t.keep(Ref<>::borrow(item)).get());
  };
  auto exception = std::make_shared<InstanceValue>();
  exception->type = Ref<PyTypeObject>::borrow(Py_TYPE(error.get()));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.get()); ++i)
    exception->args.push_back(known(PyTuple_GET_ITEM(arguments.get(), i)));
  Py_ssize_t at = 0;
  for (PyObject *key, *item; PyDict_Next(attributes.get(), &at, &key, &item);)
    exception->attributes.emplace_back(Ref<>::borrow(key), known(item));
  raise(t, exception, BreakReason::ErrorWhileTracing, detail);
}

void raise(TraceRun& t, PyObject* type, std::vector<V> arguments, BreakReason reason, const std::string& detail) {
  auto exception = std::make_shared<InstanceValue>();
  exception->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(type));
  exception->args = std::move(arguments);
  raise(t, exception, reason, detail);
}

void raise_instruction(TraceRun& t, Frame& frame, int arguments) {
  V cause;
  if (arguments == 2) {
    cause = frame.stack.back();
    frame.stack.pop_back();
  }
  if (arguments == 0) {
    if (t.exceptions->handling.empty()) break_graph(BreakReason::Raise, t.source_text());
    raise(t, t.exceptions->handling.back(), BreakReason::Raise, t.source_text());
  }
  V exception = frame.stack.back();
  auto* object = as<ObjectValue>(exception);
  if (object && PyExceptionClass_Check(object->object.get())) exception = t.call(exception, {}, {});
  if (!is_exception(exception)) break_graph(BreakReason::Raise, t.source_text());
  if (cause) {
    auto* made = as<ObjectValue>(cause);
    if (made && PyExceptionClass_Check(made->object.get())) cause = t.call(cause, {}, {});
    if (!t.is_none(cause) && !is_exception(cause)) break_graph(BreakReason::Raise, t.source_text());
    set_cause(t, *as<InstanceValue>(exception), cause);
  }
  raise(t, exception, BreakReason::Raise, t.source_text());
}

bool handle(TraceRun& t, Frame& frame, const FjInstr& instr, const RaisedInTrace& raised) {
  FjHandler handler;
  if (!fj_find_handler(frame.co, instr.executing, &handler)) return false;
  FJ_CHECK(int(frame.stack.size()) >= handler.depth, "a handler deeper than the stack");
  frame.stack.resize(std::size_t(handler.depth));
  if (handler.lasti) frame.stack.push_back(t.constant(Ref<>::steal(fj_position(instr.executing))));
  frame.stack.push_back(raised.exception);
  frame.pc = frame.code->index_of[handler.target];
  return true;
}

bool handler_instruction(TraceRun& t, Frame& frame, const FjInstr& instr) {
  switch (instr.opcode) {
    case FJ_PUSH_EXC_INFO: {
      V exception = frame.stack.back();
      if (!is_exception(exception)) return false;
      frame.stack.back() = t.exceptions->handling.empty() ? t.none() : t.exceptions->handling.back();
      frame.stack.push_back(exception);
      t.exceptions->handling.push_back(exception);
      return true;
    }
    case FJ_POP_EXCEPT:
      if (t.exceptions->handling.empty()) return false;
      t.exceptions->handling.pop_back();
      frame.stack.pop_back();
      return true;
    case FJ_CHECK_EXC_MATCH: {
      V filter = frame.stack.back();
      const V& exception = frame.stack[frame.stack.size() - 2];
      if (!is_exception(exception)) return false;
      frame.stack.pop_back();
      bool matches = false;
      for (const V& one : filter->kind == ValueKind::Tuple ? t.sequence_items(filter) : std::vector<V>{filter}) {
        PyObject* type = t.constant_object(one);
        if (!type || !PyExceptionClass_Check(type))
          break_graph(BreakReason::UnsupportedObject, "except " + describe(one));
        matches = matches ||
                  PyType_IsSubtype(as<InstanceValue>(exception)->type.get(), reinterpret_cast<PyTypeObject*>(type));
      }
      frame.stack.push_back(t.boolean(matches));
      return true;
    }
    case FJ_RERAISE: {
      V exception = frame.stack.back();
      if (!is_exception(exception)) return false;
      frame.stack.pop_back();
      raise(t, exception, BreakReason::Raise, t.source_text());
    }
    default: return false;
  }
}

namespace {

/// Classes of C that do nothing with their arguments but keep them. OSError makes one of its subclasses, ExceptionGroup
/// and UnicodeError look at what they are given.
bool keeps_its_arguments(PyTypeObject* type) {
  while (type->tp_flags & Py_TPFLAGS_HEAPTYPE && type->tp_base) type = type->tp_base;
  auto* plain = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  if (type->tp_new != plain->tp_new) return false;
  if (type->tp_init == plain->tp_init) return true;
  for (PyObject* known :
       {PyExc_StopIteration, PyExc_NameError, PyExc_UnboundLocalError, PyExc_AttributeError, PyExc_SystemExit})
    if (type == reinterpret_cast<PyTypeObject*>(known)) return true;
  return false;
}

}  // namespace

V make_exception(TraceRun& t, PyTypeObject* type, std::vector<V> positional, Keywords keywords) {
  static PyObject* const new_name = PyUnicode_InternFromString("__new__");
  static PyObject* const init_name = PyUnicode_InternFromString("__init__");
  PyObject *maker = class_attribute(t, type, new_name), *init = class_attribute(t, type, init_name);
  const bool python_init = init && is_python_method(t, init);
  if (Py_TYPE(type) != &PyType_Type || !maker || PyFunction_Check(maker) || Py_TYPE(maker) == &PyStaticMethod_Type ||
      (!keywords.empty() && !python_init) || !keeps_its_arguments(type))
    break_graph(BreakReason::Raise, t.source_text());
  guard_bases(t, type);
  auto exception = std::make_shared<InstanceValue>();
  exception->type = Ref<PyTypeObject>::borrow(type);
  exception->args = positional;
  if (python_init) {
    positional.insert(positional.begin(), exception);
    t.call(wrap_constant(t, init), std::move(positional), std::move(keywords));
  }
  return exception;
}

}  // namespace fj
