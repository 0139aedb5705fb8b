// A CUDA device for a torch that is built without one: two devices whose memory is the host's, so that tensors on them
// are true ones of torch. What torch computes on them the CPU's kernels do, on tensors that show the same memory.
// Loaded into the process (fake_device.py), not imported: it has no Python in it.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using at::Tensor;
using c10::Device;
using c10::DeviceType;

constexpr int kDevices = 2;
thread_local int current_device = 0;
thread_local c10::StreamId streams[kDevices] = {0, 0};
std::atomic<long> allocations[kDevices], bytes_in_use[kDevices], waits;
std::atomic<bool> out_of_memory;

struct Block {
  void* memory;
  int device;
  long bytes;
};

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    TORCH_CHECK_WITH(OutOfMemoryError, !out_of_memory, "CUDA out of memory. Tried to allocate ", bytes, " bytes.");
    const Device device(DeviceType::CUDA, c10::DeviceIndex(current_device));
    if (bytes == 0) return {nullptr, device};
    void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    // What nobody has written must not look like a result.
    std::memset(memory, 0xcd, bytes);
    ++allocations[current_device];
    bytes_in_use[current_device] += long(bytes);
    return {memory, new Block{memory, current_device, long(bytes)}, &release, device};
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    bytes_in_use[block->device] -= block->bytes;
    std::free(block->memory);
    delete block;
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

Allocator allocator;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return {DeviceType::CUDA, c10::DeviceIndex(current_device)}; }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < kDevices, "CUDA error: invalid device ordinal");
    if (device.index() >= 0) current_device = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kDevices) current_device = device.index();
  }
  c10::Stream getStream(Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, streams[device.index()]);
  }
  c10::Stream getDefaultStream(Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    streams[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  // The autograd engine orders its streams by events: everything here happens at once.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

/// What the autograd engine asks for before it runs backward on a device.
struct FakeHooks final : at::CUDAHooksInterface {
  explicit FakeHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void*) const override { return false; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return c10::DeviceIndex(::current_device); }
  int getNumGPUs() const override { return kDevices; }
};

struct OnDevice {
  explicit OnDevice(int device) : before(current_device) { if (device >= 0) current_device = device; }
  ~OnDevice() { current_device = before; }
  int before;
};

int index_of(std::optional<Device> device) { return device && device->has_index() ? device->index() : current_device; }

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const OnDevice here(index_of(device));
  return at::detail::empty_generic(sizes, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  const OnDevice here(index_of(device));
  return at::detail::empty_strided_generic(sizes, strides, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           c10::dtype_or_default(dtype));
}

Tensor& set(Tensor& tensor, c10::Storage storage, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  TORCH_CHECK(storage.device() == tensor.device(), "a storage of another device");
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}
Tensor& set_storage_at(Tensor& tensor, c10::Storage storage, std::int64_t offset, at::IntArrayRef sizes,
                       at::IntArrayRef strides) {
  return set(tensor, std::move(storage), offset, sizes, strides);
}
Tensor& set_storage(Tensor& tensor, c10::Storage storage) {
  const std::int64_t size = std::int64_t(storage.nbytes() / tensor.itemsize()), stride = 1;
  return set(tensor, std::move(storage), 0, size, stride);
}
Tensor& set_tensor(Tensor& tensor, const Tensor& source) {
  return set(tensor, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

/// Device tensors of one call, seen by the CPU.
class Seen {
 public:
  Tensor host(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      if (tensor.is_cpu() && tensor.dim() > 0) on_cpu = true;
      return tensor;
    }
    if (device >= 0 && tensor.get_device() != device) several = true;
    device = tensor.get_device();
    for (const auto& [seen, original] : tensors)
      if (original.is_same(tensor)) return seen;
    auto [known, fresh] = storages.try_emplace(tensor.storage().unsafeGetStorageImpl());
    if (fresh)
      known->second = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                                   c10::DataPtr(const_cast<void*>(tensor.storage().data()), Device(DeviceType::CPU)),
                                   c10::GetAllocator(DeviceType::CPU), true);
    Tensor seen = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(known->second),
                                                           c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    seen.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
    seen.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
    if (tensor.is_conj()) seen._set_conj(true);
    if (tensor.is_neg()) seen._set_neg(true);
    tensors.emplace_back(seen, tensor);
    return seen;
  }

  /// What a CPU kernel has returned: an operand, a view of one, or new.
  Tensor device_of(const Tensor& made) {
    if (!made.defined() || !made.is_cpu()) return made;
    for (const auto& [seen, original] : tensors)
      if (seen.is_same(made)) return original;
    for (const auto& [seen, original] : tensors)
      if (seen.storage().is_alias_of(made.storage())) return tensor_in(original.storage(), made);
    return copied(made);
  }

  /// Operands that were resized.
  void commit() {
    for (const auto& [seen, original] : tensors) {
      if (seen.sizes() == original.sizes() && seen.storage().data() == original.storage().data()) continue;
      const Tensor fresh = copied(seen);
      original.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
      original.unsafeGetTensorImpl()->set_storage_offset(fresh.storage_offset());
      original.unsafeGetTensorImpl()->set_sizes_and_strides(fresh.sizes(), fresh.strides());
    }
  }

  int device = -1;
  bool several = false, on_cpu = false;

 private:
  static Tensor tensor_in(const c10::Storage& storage, const Tensor& like) {
    Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), like.dtype());
    made.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
    return made;
  }
  Tensor copied(const Tensor& made) const {
    const OnDevice here(device);
    const std::size_t bytes = made.storage().nbytes();
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator.allocate(bytes), &allocator, true);
    if (bytes) std::memcpy(storage.mutable_data(), made.storage().data(), bytes);
    return tensor_in(storage, made);
  }

  std::vector<std::pair<Tensor, Tensor>> tensors;  // as seen, original
  std::map<c10::StorageImpl*, c10::Storage> storages;
};

bool takes_both(const std::string& name) {
  for (const char* one :
       {"aten::copy_", "aten::_copy_from", "aten::index", "aten::_index_put_impl_", "aten::index_put_"})
    if (name == one || name.rfind(std::string(one) + ".", 0) == 0) return true;
  return false;
}

/// Every other function of torch: the CPU's, on what it sees.
void on_host(const c10::OperatorHandle& function, torch::jit::Stack* stack) {
  Seen seen;
  const std::size_t count = function.schema().arguments().size();
  const std::string& name = function.schema().name();
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = seen.host(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> hosts;
      for (const Tensor& tensor : value.toTensorVector()) hosts.push_back(seen.host(tensor));
      value = hosts;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> hosts;
      for (const std::optional<Tensor>& tensor : value.toOptionalTensorList().vec())
        hosts.push_back(tensor ? std::optional(seen.host(*tensor)) : std::nullopt);
      value = hosts;
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      if (seen.device < 0) seen.device = index_of(value.toDevice());
      value = Device(DeviceType::CPU);
    }
  }
  TORCH_CHECK(takes_both(name) || !seen.on_cpu,
              "Expected all tensors to be on the same device, but found at least two devices, cuda:", seen.device,
              " and cpu!");
  TORCH_CHECK(takes_both(name) || !seen.several,
              "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!");
  if (name == "aten::_local_scalar_dense" || (name == "aten::copy_" && seen.on_cpu)) ++waits;
  function.callBoxed(stack);
  seen.commit();
  const std::size_t results = function.schema().returns().size();
  for (std::size_t i = stack->size() - results; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = seen.device_of(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& tensor : value.toTensorVector()) made.push_back(seen.device_of(tensor));
      value = made;
    }
  }
}

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_at));
  library.impl("set_.source_Storage", TORCH_FN(set_storage));
  library.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  // It has a kernel for every device that ends in one of the device's own.
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&on_host>());
}

}  // namespace

namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", FakeHooks)
}

extern "C" {
void fake_device_open() { c10::SetAllocator(DeviceType::CUDA, &allocator, 1); }
long fake_device_stream(int device) { return streams[device < 0 ? current_device : device]; }
void fake_device_set_stream(int device, long stream) { streams[device] = stream; }
int fake_device_current() { return current_device; }
void fake_device_set_current(int device) { current_device = device; }
long fake_device_allocations(int device) { return allocations[device]; }
long fake_device_bytes(int device) { return bytes_in_use[device]; }
long fake_device_waits() { return waits; }
void fake_device_out_of_memory(int on) { out_of_memory = on; }
}
