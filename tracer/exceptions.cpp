/// Exceptions raised and caught within one trace.
///
/// A raise whose handler is in a frame being traced goes there, as a C++ exception; one that would leave the outermost frame
/// is a break at the raise, which Python then performs with a true traceback. An exception that was raised can't be handed
/// back to Python (its traceback is missing), nor can a frame that is handling one: see ExitBuilder.
#include <cstring>

#include "runtime/base/error.h"
#include "tracer/interpreter.h"

namespace fj {

namespace {

bool is_exception(const V& value) {
  auto* instance = as<InstanceValue>(value);
  return instance && PyType_IsSubtype(instance->type.get(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

}  // namespace

bool TracerImpl::can_catch() const {
  if (catching > 0) return true;
  FjHandler handler;
  for (const Frame* frame : frames)
    if (fj_find_handler(frame->co, frame->code->instrs[frame->executing].executing, &handler)) return true;
  return false;
}

void TracerImpl::raise(const V& exception, BreakReason reason, const std::string& detail) {
  if (!can_catch()) break_graph(reason, detail);
  as<InstanceValue>(exception)->raised = true;
  throw RaisedInTrace{exception, reason, detail, location(), text_of(frames.back()->co->co_qualname), step};
}

void TracerImpl::raise(PyObject* type, std::vector<V> arguments, BreakReason reason, const std::string& detail) {
  auto exception = std::make_shared<InstanceValue>();
  exception->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(type));
  exception->args = std::move(arguments);
  raise(exception, reason, detail);
}

void TracerImpl::raise_instruction(Frame& frame, int arguments) {
  V cause;
  if (arguments == 2) {
    cause = frame.stack.back();
    frame.stack.pop_back();
  }
  if (arguments == 0) {
    if (handling.empty()) break_graph(BreakReason::Raise, source_text());
    raise(handling.back(), BreakReason::Raise, source_text());
  }
  V exception = frame.stack.back();
  auto* object = as<ObjectValue>(exception);
  if (object && PyExceptionClass_Check(object->object.get())) exception = call(exception, {}, {});
  // What a cause adds is only seen where the exception is, outside.
  if (!is_exception(exception)) break_graph(BreakReason::Raise, source_text());
  raise(exception, BreakReason::Raise, source_text());
}

bool TracerImpl::handle(Frame& frame, const FjInstr& instr, const RaisedInTrace& raised) {
  FjHandler handler;
  if (!fj_find_handler(frame.co, instr.executing, &handler)) return false;
  FJ_CHECK(int(frame.stack.size()) >= handler.depth, "a handler deeper than the stack");
  frame.stack.resize(std::size_t(handler.depth));
  if (handler.lasti) frame.stack.push_back(tracer.integer(std::int64_t(instr.executing)));
  frame.stack.push_back(raised.exception);
  frame.pc = frame.code->index_of[handler.target];
  return true;
}

bool TracerImpl::handler_instruction(Frame& frame, const FjInstr& instr) {
  switch (instr.opcode) {
    case FJ_PUSH_EXC_INFO: {
      V exception = frame.stack.back();
      if (!is_exception(exception)) return false;
      frame.stack.back() = handling.empty() ? none : handling.back();
      frame.stack.push_back(exception);
      handling.push_back(exception);
      return true;
    }
    case FJ_POP_EXCEPT:
      if (handling.empty()) return false;
      handling.pop_back();
      frame.stack.pop_back();
      return true;
    case FJ_CHECK_EXC_MATCH: {
      V filter = frame.stack.back();
      const V& exception = frame.stack[frame.stack.size() - 2];
      if (!is_exception(exception)) return false;
      frame.stack.pop_back();
      bool matches = false;
      for (const V& one : filter->kind == ValueKind::Tuple ? sequence_items(filter) : std::vector<V>{filter}) {
        PyObject* type = constant_object(one);
        if (!type || !PyExceptionClass_Check(type)) break_graph(BreakReason::UnsupportedObject, "except " + describe(one));
        matches = matches || PyType_IsSubtype(as<InstanceValue>(exception)->type.get(), reinterpret_cast<PyTypeObject*>(type));
      }
      frame.stack.push_back(tracer.boolean(matches));
      return true;
    }
    case FJ_RERAISE: {
      V exception = frame.stack.back();
      if (!is_exception(exception)) return false;
      frame.stack.pop_back();
      raise(exception, BreakReason::Raise, source_text());
    }
    default: return false;
  }
}

V TracerImpl::make_exception(PyTypeObject* type, std::vector<V> positional, Keywords keywords) {
  static PyObject* const new_name = PyUnicode_InternFromString("__new__");
  static PyObject* const init_name = PyUnicode_InternFromString("__init__");
  PyObject *maker = class_attribute(type, new_name), *init = class_attribute(type, init_name);
  const bool python_init = init && PyFunction_Check(init);
  if (Py_TYPE(type) != &PyType_Type || !maker || PyFunction_Check(maker) || Py_TYPE(maker) == &PyStaticMethod_Type ||
      (!keywords.empty() && !python_init))
    break_graph(BreakReason::Raise, source_text());
  guard_bases(type);
  auto exception = std::make_shared<InstanceValue>();
  exception->type = Ref<PyTypeObject>::borrow(type);
  exception->args = positional;
  if (python_init) {
    positional.insert(positional.begin(), exception);
    call(wrap_constant(init), std::move(positional), std::move(keywords));
  }
  return exception;
}

}  // namespace fj
