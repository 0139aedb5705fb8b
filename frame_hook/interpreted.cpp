// The executor by itself, for its tests: it runs the first instructions of a call, then CPython goes on from there.
#include "frame_hook/interpreted.h"

#include <memory>
#include <utility>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/ref.h"
#include "frame_hook/executor.h"

namespace fj {

namespace {

struct Interpreted {
  FjCode* code;
  long count;
};

PyObject* run_frame_interpreted(void* call, PyThreadState* thread, FjFrame* frame, int throwflag) {
  const Interpreted& mine = *static_cast<const Interpreted*>(call);
  if (fj_frame_must_pass(thread, frame, throwflag) || !fj_enter_recursion(thread))
    return fj_pass_frame(thread, frame, throwflag);
  int instruction = 0;
  for (long i = 0; i < mine.count; i++) {
    const Step step = execute(thread, frame, *mine.code, instruction);
    instruction = step.next;
    if (step.kind == Step::Kind::Next) continue;
    fj_leave_recursion(thread);
    return step.kind == Step::Kind::Finished ? step.result : hand_over(thread, frame, *mine.code, instruction);
  }
  fj_leave_recursion(thread);
  return hand_over(thread, frame, *mine.code, instruction);
}

}  // namespace

PyObject* run_interpreted(PyObject* function, PyObject* args, PyObject* kwargs, long count) {
  std::unique_ptr<FjCode, void (*)(FjCode*)> code(
      fj_decode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function))), fj_free_code);
  if (!code) return nullptr;
  std::vector<PyObject*> values(&PyTuple_GET_ITEM(args, 0), &PyTuple_GET_ITEM(args, 0) + PyTuple_GET_SIZE(args));
  Ref<> names = Ref<>::steal(PyTuple_New(PyDict_GET_SIZE(kwargs)));
  if (!names) return nullptr;
  Py_ssize_t position = 0, index = 0;
  PyObject *key, *value;
  while (PyDict_Next(kwargs, &position, &key, &value)) {
    PyTuple_SET_ITEM(names.get(), index++, Py_NewRef(key));
    values.push_back(value);
  }
  Interpreted call{code.get(), count};
  return fj_call_with_evaluator(PyThreadState_Get(), function, values.data(), std::size_t(PyTuple_GET_SIZE(args)),
                                index > 0 ? names.get() : nullptr, run_frame_interpreted, &call);
}

PyObject* decoded_instructions(PyObject* code) {
  std::unique_ptr<FjCode, void (*)(FjCode*)> decoded(fj_decode(reinterpret_cast<PyCodeObject*>(code)), fj_free_code);
  if (!decoded) return nullptr;
  PyObject* list = PyList_New(decoded->count);
  for (int i = 0; list != nullptr && i < decoded->count; i++) {
    const FjInstr& instr = decoded->instrs[i];
    PyObject* row = Py_BuildValue("(siiiiO)", fj_opcode_name(instr.opcode), instr.arg, instr.arg2, instr.offset,
                                  instr.executing, instr.resumable ? Py_True : Py_False);
    if (row == nullptr) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, row);
  }
  return list;
}

}  // namespace fj
