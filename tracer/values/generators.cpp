/// Generators inlined in the trace: running one on, its methods, and which may not be left half-run.
///
/// Start at `resume_generator`: one step of a generator's frame, until it yields, returns or raises.
#include "runtime/base/error.h"
#include "tracer/interpreter/interpreter.h"

namespace fj {

namespace {

struct Count {
  int& value;
  explicit Count(int& counter) : value(counter) { ++value; }
  ~Count() { --value; }
};

struct Running {
  bool& running;
  explicit Running(bool& flag) : running(flag) { running = true; }
  ~Running() { running = false; }
};

bool is_a(const V& exception, PyObject* type) {
  auto* instance = as<InstanceValue>(exception);
  return instance && PyType_IsSubtype(instance->type.get(), reinterpret_cast<PyTypeObject*>(type));
}

}  // namespace

V TraceRun::make_generator(std::shared_ptr<Frame> frame) {
  frame->generator = true;
  auto iterator = std::make_shared<IteratorValue>();
  iterator->frame = std::move(frame);
  iterator->next = [this, raw = iterator.get()] { return resume_generator(*raw, none(), nullptr); };
  generators.push_back(iterator);
  return iterator;
}

V TraceRun::resume_generator(IteratorValue& generator, const V& sent, const V& thrown) {
  Frame& frame = *generator.frame;
  generator.started = true;
  note_write(&generator);
  if (frame.running)
    raise(PyExc_ValueError, {string("generator already executing")}, BreakReason::Generator, "a generator that runs already");
  if (frame.finished || (frame.pc == 0 && thrown)) {
    frame.finished = true;
    generator.returned = none();
    if (thrown) raise(thrown, BreakReason::Raise, source_text());
    return nullptr;
  }
  if (frame.pc == 0) {
    if (!is_none(sent))
      raise(PyExc_TypeError, {string("can't send non-None value to a just-started generator")}, BreakReason::Generator,
            "a value is sent to a generator that has not started");
  } else if (thrown) {
    // What it delegates to would have to handle it first.
    if (frame.code->instrs[frame.executing - 1].opcode == FJ_SEND) break_graph(BreakReason::Generator, "throw() into a `yield from`");
    frame.thrown = thrown;
  } else {
    frame.stack.back() = sent;
  }
  // The exceptions it was handling when it yielded are handled again, on top of those of whoever runs it.
  const std::size_t outside = handling.size();
  handling.insert(handling.end(), frame.handling.begin(), frame.handling.end());
  frame.handling.clear();
  Running running(frame.running);
  V item;
  try {
    item = run_frame(frame);
  } catch (const RaisedInTrace& raised) {
    handling.resize(outside);
    if (!is_a(raised.exception, PyExc_StopIteration)) throw;
    raise(stop_iteration_error(raised.exception), raised.reason, raised.detail);
  }
  frame.handling.assign(handling.begin() + std::ptrdiff_t(outside), handling.end());
  handling.resize(outside);
  if (!frame.finished) return item;
  generator.returned = item;
  return nullptr;
}

V TraceRun::stop_iteration_error(const V& exception) {
  if (!is_a(exception, PyExc_StopIteration)) return exception;
  auto error = std::make_shared<InstanceValue>();
  error->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(PyExc_RuntimeError));
  error->args = {string("generator raised StopIteration")};
  set_cause(*error, exception);
  set_context(*error, exception);
  return error;
}

void TraceRun::send_instruction(Frame& frame, const FjInstr& instr) {
  V sent = frame.stack.back();
  frame.stack.pop_back();
  V receiver = frame.stack.back();
  auto* iterator = as<IteratorValue>(receiver);
  V item, returned = none();
  if (iterator && iterator->frame) {
    item = resume_generator(*iterator, sent, nullptr);
    if (!item) returned = iterator->returned;
  } else {
    if (!is_none(sent)) break_graph(BreakReason::Generator, "a value is sent through `yield from` to " + describe(receiver));
    item = next(receiver);
    if (!item) returned = stopped_with;
  }
  if (item) return frame.stack.push_back(item);
  if (!(instr.arg2 & 1)) frame.stack.pop_back();
  frame.stack.push_back(returned);
  frame.pc = instr.arg;
}

bool TraceRun::may_be_abandoned(const IteratorValue& generator) const {
  const Frame& frame = *generator.frame;
  if (frame.finished || frame.pc == 0) return true;
  // Dropped, a generator raises GeneratorExit where it stands, which a `try` or `with` around it would see. The handler that
  // every generator has, and that of a `yield from`, are no such.
  FjHandler handler;
  for (int unit = frame.code->instrs[frame.executing].executing; fj_find_handler(frame.co, unit, &handler); unit = handler.target) {
    const int opcode = frame.code->instrs[frame.code->index_of[handler.target]].opcode;
    if (opcode != FJ_STOPITERATION_ERROR && opcode != FJ_UNSUPPORTED) return false;
  }
  return true;
}

V TraceRun::next_or_raise(const V& iterator) {
  if (V item = next(iterator)) return item;
  std::vector<V> arguments;
  if (!is_none(stopped_with)) arguments.push_back(stopped_with);
  raise(PyExc_StopIteration, std::move(arguments), BreakReason::Raise, "StopIteration");
}

V TraceRun::iterator_method(const V& owner, const std::string& name, std::vector<V>& positional) {
  auto& iterator = *as<IteratorValue>(owner);
  if (name == "__iter__" && positional.empty()) return owner;
  if (name == "__next__" && positional.empty()) return next_or_raise(owner);
  if (!iterator.frame) return nullptr;
  auto result = [&](const V& item) {
    if (item) return item;
    std::vector<V> arguments;
    if (!is_none(iterator.returned)) arguments.push_back(iterator.returned);
    raise(PyExc_StopIteration, std::move(arguments), BreakReason::Raise, "StopIteration");
  };
  if (name == "send" && positional.size() == 1) return result(resume_generator(iterator, positional[0], nullptr));
  if (name == "throw" && !positional.empty()) {
    V exception = positional[0];
    if (positional.size() > 1 && !is_none(positional[1])) exception = positional[1];
    if (auto* object = as<ObjectValue>(exception); object && PyExceptionClass_Check(object->object.get())) exception = call(exception, {}, {});
    if (!is_a(exception, PyExc_BaseException)) return nullptr;
    return result(resume_generator(iterator, none(), exception));
  }
  if (name == "close" && positional.empty()) {
    Frame& frame = *iterator.frame;
    if (frame.pc == 0) frame.finished = true;
    if (frame.finished) return none();
    Count catcher(catching);
    try {
      if (resume_generator(iterator, none(), make_exception(reinterpret_cast<PyTypeObject*>(PyExc_GeneratorExit), {}, {})))
        break_graph(BreakReason::Generator, "a generator that yields when it is closed");
    } catch (const RaisedInTrace& raised) {
      if (!is_a(raised.exception, PyExc_GeneratorExit) && !is_a(raised.exception, PyExc_StopIteration)) throw;
      return none();
    }
    // What it returns is seen from 3.13 on.
    if (!is_none(iterator.returned)) break_graph(BreakReason::Generator, "a closed generator that returns a value");
    return none();
  }
  return nullptr;
}

}  // namespace fj
