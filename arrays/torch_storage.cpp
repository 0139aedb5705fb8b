// A storage holds its memory as c10::DataPtr: the address, what to free, and the function that frees it. Calibrated
// like the rest of torch's layout: the function of torch's own memory is the same for every tensor and lies in torch's
// library, what it frees is the address itself; memory that torch was lent has another function and another thing to
// free.
#include "arrays/torch_storage.h"

#include <dlfcn.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "arrays/arrays.h"
#include "arrays/torch_arrays.h"
#include "cpython/ref.h"
#include "runtime/allocator.h"

namespace fj {
namespace {

using Deleter = void (*)(void*);

struct StoragePlace {
  int implementation = 0, storage = 0;         // as in TorchLayout
  int data = 0, context = 0, deleter = 0;      // in the StorageImpl
  Deleter torchs = nullptr;                    // of memory from torch's own allocator
};

template <class T>
T& at(void* base, int offset) {
  return *reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}

void* storage_of(const StoragePlace& place, PyObject* tensor) {
  return at<void*>(at<void*>(tensor, place.implementation), place.storage);
}

void exchange(const StoragePlace& place, void* storage, void* block, Deleter deleter) {
  void* old = at<void*>(storage, place.context);
  const Deleter free_old = at<Deleter>(storage, place.deleter);
  at<void*>(storage, place.data) = block;
  at<void*>(storage, place.context) = block;
  at<Deleter>(storage, place.deleter) = deleter;
  free_old(old);
}

bool in_torchs_core(Deleter function) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(function), &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libc10") != std::string_view::npos;
}

bool find_place(StoragePlace& place, const TorchLayout& layout) {
  place.implementation = layout.implementation;
  place.storage = layout.storage;
  place.data = layout.storage_data;
  const Ref<> own[] = {torch_evaluate("torch.empty((3,), device='cpu')"),
                       torch_evaluate("torch.empty((1000,), device='cpu', dtype=torch.float64)"),
                       torch_evaluate("torch.empty((300000,), device='cpu')")};
  const Ref<> lent = torch_evaluate("torch.frombuffer(bytearray(64), dtype=torch.float32)");
  if (!own[0] || !own[1] || !own[2] || !lent) return false;
  int fitting = 0;
  // The two orders in which C++ libraries lay out a pointer beside the function that frees it.
  for (const auto& [deleter, context] : {std::pair{8, 16}, std::pair{16, 8}}) {
    bool fits = true;
    const Deleter common = at<Deleter>(storage_of(place, own[0].get()), place.data + deleter);
    for (const Ref<>& tensor : own) {
      void* storage = storage_of(place, tensor.get());
      fits = fits && at<void*>(storage, place.data) == at<void*>(storage, place.data + context) &&
             at<Deleter>(storage, place.data + deleter) == common;
    }
    void* storage = storage_of(place, lent.get());
    fits = fits && at<void*>(storage, place.data) != at<void*>(storage, place.data + context) &&
           at<Deleter>(storage, place.data + deleter) != common && in_torchs_core(common);
    if (!fits) continue;
    ++fitting;
    place.context = place.data + context;
    place.deleter = place.data + deleter;
    place.torchs = common;
  }
  return fitting == 1;
}

int frees_seen = 0;
void free_and_count(void* block) {
  ++frees_seen;
  release_owned(block);
}

/// A tensor over a block behaves as one over torch's memory, when it is written, grown and dropped.
bool prove(const StoragePlace& place) {
  for (const bool grown : {false, true}) {
    const Ref<> tensor = torch_evaluate("torch.empty((7,), device='cpu')");
    const Ref<> check = torch_evaluate(
        grown ? "lambda t: t.fill_(3).resize_(5000)[:7].sum().item() == 21 and t.untyped_storage().nbytes() == 20000"
              : "lambda t: t.fill_(3).sum().item() == 21 and t.untyped_storage().nbytes() == 28 and "
                "t.untyped_storage().resizable()"
                " and t.clone().equal(t)");
    void* block = tensor && check ? allocate_owned(28) : nullptr;
    if (block == nullptr || (grown && frees_seen != 1)) return false;  // dropping the first tensor freed its block
    frees_seen = 0;
    exchange(place, storage_of(place, tensor.get()), block, free_and_count);
    const Ref<> right = Ref<>::steal(PyObject_CallOneArg(check.get(), tensor.get()));
    PyErr_Clear();
    if (right.get() != Py_True || data_pointer(tensor.get()) == nullptr ||
        (data_pointer(tensor.get()) == block) == grown)
      return false;
    if (frees_seen != (grown ? 1 : 0)) return false;
  }
  return frees_seen == 1;  // when it grew: dropping it has freed torch's memory
}

const StoragePlace* place() {
  return tried_out<StoragePlace>(
      [](StoragePlace& found, const TorchLayout& layout) { return find_place(found, layout) && prove(found); });
}

}  // namespace

void put_block_into(void* implementation, std::size_t bytes) {
  if (bytes < kOwnedBytes) return;
  const StoragePlace* known = place();
  if (known == nullptr) return;
  void* storage = at<void*>(implementation, known->storage);
  // The user's own allocator for torch stays in charge, and tensors without memory stay so.
  if (storage == nullptr || at<Deleter>(storage, known->deleter) != known->torchs) return;
  if (void* block = allocate_owned(bytes)) exchange(*known, storage, block, release_owned);
}

bool is_memory_of_torch(PyObject* tensor) {
  const StoragePlace* known = place();
  void* storage = known != nullptr ? storage_of(*known, tensor) : nullptr;
  if (storage == nullptr) return false;
  const Deleter deleter = at<Deleter>(storage, known->deleter);
  return deleter == known->torchs || deleter == release_owned;
}

}  // namespace fj
