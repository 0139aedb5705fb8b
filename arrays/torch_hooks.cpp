// torch keeps such a node only while somebody else does, so mostly there is none and one call of torch says so: a
// function found by its C++ name that returns a counted pointer. Where the node counts and where it lists its hooks is
// found out on probes, as the layout of tensors is.
#include "arrays/torch_hooks.h"

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "arrays/torch_arrays.h"
#include "arrays/torch_layout.h"
#include "cpython/ref.h"

namespace fj {
namespace {

/// c10::intrusive_ptr<Node>, returned through memory. Whoever holds one gives it back by counting down.
struct NodeHandle {
  char* node = nullptr;
  ~NodeHandle() {}
};
using TryGet = NodeHandle (*)(const void* tensor);

constexpr int kCount = 8;  // behind the pointer to the virtual functions: the low half is how many hold it
constexpr std::size_t kMostBytes = 512;

std::uint64_t own_word(const char* base, int offset) {
  std::uint64_t value;
  std::memcpy(&value, base + offset, sizeof value);
  return value;
}

struct Accumulators {
  TryGet try_get = nullptr;
  int implementation = 0;              // as in TorchLayout
  int before = 0, after = 0;           // in the node: vectors of hooks

  /// The node of a tensor, if there is one, held by somebody else.
  char* node_of(PyObject* tensor) const {
    const NodeHandle handle = try_get(reinterpret_cast<char*>(tensor) + implementation);
    // Nothing is freed by us: the GIL is held, and who had the node has it still.
    if (handle.node) std::atomic_ref(*reinterpret_cast<std::uint32_t*>(handle.node + kCount)).fetch_sub(1);
    return handle.node;
  }

  bool has_hooks(PyObject* tensor) const {
    const char* node = node_of(tensor);
    if (!node) return false;
    auto any = [&](int vector) { return own_word(node, vector) != own_word(node, vector + 8); };
    return any(before) || any(after);
  }

  bool find(const TorchLayout& layout) {
    void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    try_get = library ? reinterpret_cast<TryGet>(
                            dlsym(library, "_ZN5torch8autograd4impl24try_get_grad_accumulatorERKN2at10TensorBaseE"))
                      : nullptr;
    implementation = layout.implementation;
    if (!try_get) return false;
    const Ref<> leaf =
        torch_evaluate("torch.inference_mode(False)(lambda: torch.empty(3, device='cpu', requires_grad=True))()");
    if (!leaf || try_get(reinterpret_cast<char*>(leaf.get()) + implementation).node) return false;
    const Ref<> get = torch_evaluate(
        "torch.inference_mode(False)(torch.enable_grad()(lambda leaf: "
        "leaf.view_as(leaf).grad_fn.next_functions[0][0]))");
    const Ref<> object = Ref<>::steal(get ? PyObject_CallOneArg(get.get(), leaf.get()) : nullptr);
    if (!object) return false;
    char* node;
    std::memcpy(&node, reinterpret_cast<char*>(object.get()) + sizeof(PyObject), sizeof node);
    const auto count = std::uint32_t(own_word(node, kCount));
    const NodeHandle held = try_get(reinterpret_cast<char*>(leaf.get()) + implementation);
    // A torch that returns another kind of pointer gives something else here.
    if (held.node != node || std::uint32_t(own_word(node, kCount)) != count + 1) return false;
    if (node_of(leaf.get()) != node || std::uint32_t(own_word(node, kCount)) != count + 1) return false;
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(node + kCount)).fetch_sub(1);

    const auto first = vector_that_grows(object.get(), node, "register_prehook"),
               second = vector_that_grows(object.get(), node, "register_hook");
    if (!first || !second || *first == *second) return false;
    before = *first;
    after = *second;
    return has_hooks(leaf.get());
  }

  /// The only place where no pointers become one when a hook is put on the node.
  static std::optional<int> vector_that_grows(PyObject* object, const char* node, const char* method) {
    const int bytes = int(std::min(malloc_usable_size(const_cast<char*>(node)), kMostBytes));
    const std::vector<char> old(node, node + bytes);
    const Ref<> hook = torch_evaluate("lambda *gradients: None");
    const Ref<> handle = Ref<>::steal(hook ? PyObject_CallMethod(object, method, "O", hook.get()) : nullptr);
    if (!handle) return std::nullopt;
    std::optional<int> found;
    for (int offset = 0; offset + 24 <= bytes; offset += 8) {
      const std::uint64_t begin = own_word(node, offset);
      if (own_word(old.data(), offset) != 0 || own_word(old.data(), offset + 8) != 0 || begin == 0 ||
          own_word(node, offset + 8) != begin + 8)
        continue;
      if (found) return std::nullopt;
      found = offset;
    }
    return found;
  }
};

const Accumulators* accumulators() {
  return tried_out<Accumulators>([](Accumulators& found, const TorchLayout& layout) { return found.find(layout); });
}

PyObject* may_have_accumulator_hooks(PyObject*, PyObject* tensor) {
  if (!is_torch_array(tensor)) Py_RETURN_FALSE;
  const Accumulators* known = accumulators();
  return PyBool_FromLong(!known || known->has_hooks(tensor));
}

}  // namespace

PyObject* accumulator_hooks_function() {
  static PyMethodDef definition = {"may_have_accumulator_hooks", may_have_accumulator_hooks, METH_O, nullptr};
  PyObject* const function = once([] { return PyCFunction_New(&definition, nullptr); });
  return function;
}

}  // namespace fj
