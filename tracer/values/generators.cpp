/// Generators inlined in the trace: running one on, its methods, and which may not be left half-run.
///
/// Start at `resume_generator`: one step of a generator's frame, until it yields, returns or raises.
#include "tracer/values/generators.h"

#include "runtime/base/error.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/values/containers/iterators.h"

namespace fj {

/// Until it yields; null when it has returned. `thrown` (or null) is raised where it stands, else `sent` is delivered.
static V resume_generator(TraceRun& t, IteratorValue& generator, const V& sent, const V& thrown);

namespace {

struct Running {
  bool& running;
  explicit Running(bool& flag) : running(flag) { running = true; }
  ~Running() { running = false; }
};

bool is_a(const V& exception, PyObject* type) {
  auto* instance = as<InstanceValue>(exception);
  return instance && PyType_IsSubtype(instance->type.get(), reinterpret_cast<PyTypeObject*>(type));
}

bool has_begun(const Frame& frame) { return frame.code->instrs[frame.pc - 1].opcode != FJ_RETURN_GENERATOR; }

}  // namespace

V make_generator(TraceRun& t, std::shared_ptr<Frame> frame) {
  frame->generator = true;
  t.run_frame(*frame);  // up to RETURN_GENERATOR
  auto iterator = std::make_shared<IteratorValue>();
  iterator->frame = std::move(frame);
  iterator->next = [&t, raw = iterator.get()] { return resume_generator(t, *raw, t.none(), nullptr); };
  t.generators.push_back(iterator);
  return iterator;
}

V resume_generator(TraceRun& t, IteratorValue& generator, const V& sent, const V& thrown) {
  Frame& frame = *generator.frame;
  generator.started = true;
  t.effects->note_write(&generator);
  if (frame.running)
    raise(t, PyExc_ValueError, {t.string("generator already executing")}, BreakReason::Generator,
          "a generator that runs already");
  if (frame.finished || (thrown && !has_begun(frame))) {
    frame.finished = true;
    generator.returned = t.none();
    if (thrown) raise(t, thrown, BreakReason::Raise, t.source_text());
    return nullptr;
  }
  if (!has_begun(frame)) {
    if (!t.is_none(sent))
      raise(t, PyExc_TypeError, {t.string("can't send non-None value to a just-started generator")},
            BreakReason::Generator, "a value is sent to a generator that has not started");
  } else if (thrown) {
    // What it delegates to would have to handle it first.
    if (frame.code->instrs[frame.executing - 1].opcode == FJ_SEND)
      break_graph(BreakReason::Generator, "throw() into a `yield from`");
    frame.thrown = thrown;
  } else {
    frame.stack.back() = sent;
  }
  // The exceptions it was handling when it yielded are handled again, on top of those of whoever runs it.
  const std::size_t outside = t.exceptions->handling.size();
  t.exceptions->handling.insert(t.exceptions->handling.end(), frame.handling.begin(), frame.handling.end());
  frame.handling.clear();
  Running running(frame.running);
  V item;
  try {
    item = t.run_frame(frame);
  } catch (const RaisedInTrace& raised) {
    t.exceptions->handling.resize(outside);
    if (!is_a(raised.exception, PyExc_StopIteration)) throw;
    raise(t, stop_iteration_error(t, raised.exception), raised.reason, raised.detail);
  }
  frame.handling.assign(t.exceptions->handling.begin() + std::ptrdiff_t(outside), t.exceptions->handling.end());
  t.exceptions->handling.resize(outside);
  if (!frame.finished) return item;
  generator.returned = item;
  return nullptr;
}

V stop_iteration_error(TraceRun& t, const V& exception) {
  if (!is_a(exception, PyExc_StopIteration)) return exception;
  auto error = std::make_shared<InstanceValue>();
  error->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(PyExc_RuntimeError));
  error->args = {t.string("generator raised StopIteration")};
  set_cause(t, *error, exception);
  set_context(t, *error, exception);
  return error;
}

void send_instruction(TraceRun& t, Frame& frame, const FjInstr& instr) {
  V sent = frame.stack.back();
  frame.stack.pop_back();
  const std::size_t entries = std::size_t(fj_iterator_entries());
  V receiver = frame.stack[frame.stack.size() - entries];
  auto* iterator = as<IteratorValue>(receiver);
  V item, returned = t.none();
  if (iterator && iterator->frame) {
    item = resume_generator(t, *iterator, sent, nullptr);
    if (!item) returned = iterator->returned;
  } else {
    if (!t.is_none(sent))
      break_graph(BreakReason::Generator, "a value is sent through `yield from` to " + describe(receiver));
    item = next(t, receiver);
    if (!item) returned = t.exceptions->stopped_with;
  }
  if (item) return frame.stack.push_back(item);
  if (!(instr.arg2 & 1)) frame.stack.resize(frame.stack.size() - entries);
  frame.stack.push_back(returned);
  frame.pc = instr.arg;
}

bool may_be_abandoned(TraceRun& t, const IteratorValue& generator) {
  const Frame& frame = *generator.frame;
  if (frame.finished || !has_begun(frame)) return true;
  // Dropped, a generator raises GeneratorExit where it stands, which a `try` or `with` around it would see. The handler
  // that every generator has, and that of a `yield from`, are no such.
  FjHandler handler;
  for (int unit = frame.code->instrs[frame.executing].executing; fj_find_handler(frame.co, unit, &handler);
       unit = handler.target) {
    const int opcode = frame.code->instrs[frame.code->index_of[handler.target]].opcode;
    if (opcode != FJ_STOPITERATION_ERROR && opcode != FJ_UNSUPPORTED) return false;
  }
  return true;
}

V next_or_raise(TraceRun& t, const V& iterator) {
  if (V item = next(t, iterator)) return item;
  std::vector<V> arguments;
  if (!t.is_none(t.exceptions->stopped_with)) arguments.push_back(t.exceptions->stopped_with);
  raise(t, PyExc_StopIteration, std::move(arguments), BreakReason::Raise, "StopIteration");
}

V iterator_method(TraceRun& t, const V& owner, const std::string& name, std::vector<V>& positional) {
  auto& iterator = *as<IteratorValue>(owner);
  if (name == "__iter__" && positional.empty()) return owner;
  if (name == "__next__" && positional.empty()) return next_or_raise(t, owner);
  if (!iterator.frame) return nullptr;
  auto result = [&](const V& item) {
    if (item) return item;
    std::vector<V> arguments;
    if (!t.is_none(iterator.returned)) arguments.push_back(iterator.returned);
    raise(t, PyExc_StopIteration, std::move(arguments), BreakReason::Raise, "StopIteration");
  };
  if (name == "send" && positional.size() == 1) return result(resume_generator(t, iterator, positional[0], nullptr));
  if (name == "throw" && !positional.empty()) {
    V exception = positional[0];
    if (positional.size() > 1 && !t.is_none(positional[1])) exception = positional[1];
    if (auto* object = as<ObjectValue>(exception); object && PyExceptionClass_Check(object->object.get()))
      exception = t.call(exception, {}, {});
    if (!is_a(exception, PyExc_BaseException)) return nullptr;
    return result(resume_generator(t, iterator, t.none(), exception));
  }
  if (name == "close" && positional.empty()) {
    Frame& frame = *iterator.frame;
    if (!has_begun(frame)) frame.finished = true;
    if (frame.finished) return t.none();
    const Catching catching(t);
    try {
      if (resume_generator(t, iterator, t.none(),
                           make_exception(t, reinterpret_cast<PyTypeObject*>(PyExc_GeneratorExit), {}, {})))
        break_graph(BreakReason::Generator, "a generator that yields when it is closed");
    } catch (const RaisedInTrace& raised) {
      if (!is_a(raised.exception, PyExc_GeneratorExit) && !is_a(raised.exception, PyExc_StopIteration)) throw;
      return t.none();
    }
    // What it returns is seen from 3.13 on.
    if (!t.is_none(iterator.returned)) break_graph(BreakReason::Generator, "a closed generator that returns a value");
    return t.none();
  }
  return nullptr;
}

}  // namespace fj
