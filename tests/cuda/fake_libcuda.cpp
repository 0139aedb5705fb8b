// A libcuda.so.1 whose devices are in the host's memory and whose kernels run in the emulation (emulation.h). It has
// the functions that framejit opens, does what the driver would, and writes down what it was told; fake_device.py puts
// it in the place of the true one.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/fake_graphs.h"

namespace {

using fj::cuda::KernelNode;
using fj::test::FakeExecutable;
using fj::test::FakeFunction;
using fj::test::FakeGraph;
using fj::test::FakeNode;

std::string calls, failing;
int failing_code = 0, capturing = 0;
float clock_now = 0;  // milliseconds; a launch takes as many microseconds as its blocks have threads
std::vector<int> current;  // devices whose contexts were pushed

int done(const char* function, const std::string& call) {
  calls += call + "\n";
  return function == failing ? failing_code : 0;
}

std::string hexadecimal(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%zx", std::size_t(reinterpret_cast<std::uintptr_t>(pointer)));
  return text;
}

constexpr int kContext = 0x100;

std::string on(void* stream) {
  return " on stream " + hexadecimal(stream) + " of device " +
         (current.empty() ? "none" : std::to_string(current.back()));
}

void stop_at_error(const FakeFunction& function) {
  if (const char* error = function.error()) {
    std::fprintf(stderr, "%s: %s\n", function.name.c_str(), error);
    std::abort();
  }
}

}  // namespace

extern "C" {

// ---- what the tests ask

const char* fake_cuda_calls() {
  static std::string given;
  given.swap(calls);
  calls.clear();
  return given.c_str();
}
void fake_cuda_fail(const char* function, int code) { failing = function, failing_code = code; }

void fake_cuda_capture(int on) { capturing = on; }

// ---- the driver

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int code, const char** text) {
  *text = code == 700 ? "an illegal memory access was encountered"
          : code == 2 ? "out of memory"
                      : "invalid device ordinal";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 2 ? 0 : 101;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 4;  // sm_90, processors
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(std::intptr_t(kContext + device));
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  current.push_back(int(reinterpret_cast<std::intptr_t>(context)) - kContext);
  return done("push", "push " + std::to_string(current.back()));
}
int cuCtxPopCurrent_v2(void**) {
  if (current.empty()) return 201;
  current.pop_back();
  return done("pop", "pop");
}
int cuModuleLoadData(void** module, const void* image) {
  // An ELF file ends with its table of sections.
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  const std::size_t bytes = header.e_shoff + std::size_t(header.e_shnum) * header.e_shentsize;
  char path[] = "/tmp/framejit-image-XXXXXX";
  const int file = mkstemp(path);
  const bool written = file >= 0 && write(file, image, bytes) == ssize_t(bytes);
  if (file >= 0) close(file);
  *module = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  const int code = done("load", "load");
  return *module ? code : 200;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  auto* found = new FakeFunction{
      name, reinterpret_cast<void (*)(void**, unsigned)>(dlsym(module, (std::string(name) + "_entrance").c_str())),
      reinterpret_cast<int (*)()>(dlsym(module, (std::string(name) + "_parameters").c_str())),
      reinterpret_cast<int (*)()>(dlsym(module, (std::string(name) + "_first").c_str())),
      reinterpret_cast<const char* (*)()>(dlsym(module, "emulation_error"))};
  *function = found;
  return found->run && found->error ? done("function", "function " + found->name) : 500;
}
int cuLaunchKernel(void* function, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                   void* stream, void** parameters, void**) {
  const auto& found = *static_cast<const FakeFunction*>(function);
  if (const int code = done(
          "launch", "launch " + found.name + " of " + std::to_string(x) + " x " + std::to_string(threads) + on(stream)))
    return code;
  clock_now += float(threads) / 1000;
  found.run(parameters, x);
  stop_at_error(found);
  return 0;
}

int cuDeviceGetName(char* name, int, int) {
  std::strcpy(name, "a fake device");
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  *event = new float(0);
  return 0;
}
int cuEventRecord(void* event, void*) {
  *static_cast<float*>(event) = clock_now;
  return 0;
}
int cuEventSynchronize(void*) { return done("event wait", "wait for event"); }
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  *milliseconds = *static_cast<float*>(to) - *static_cast<float*>(from);
  return 0;
}
int cuEventDestroy_v2(void* event) {
  delete static_cast<float*>(event);
  return 0;
}
int cuMemAllocAsync(std::uint64_t* address, std::size_t bytes, void* stream) {
  if (const int code = done("allocate", "allocate on stream " + hexadecimal(stream))) return code;
  *address = std::uint64_t(reinterpret_cast<std::uintptr_t>(std::malloc(bytes)));
  return 0;
}
int cuMemFreeAsync(std::uint64_t address, void*) {
  std::free(reinterpret_cast<void*>(address));
  return done("release", "release");
}
int cuMemcpyDtoDAsync_v2(std::uint64_t target, std::uint64_t source, std::size_t bytes, void* stream) {
  std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), bytes);
  return done("copy on device", "copy " + std::to_string(bytes) + " on stream " + hexadecimal(stream));
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int now = 0;
  std::swap(*mode, now);
  return 0;
}
int cuGraphCreate(void** graph, unsigned) {
  *graph = new FakeGraph;
  return done("graph", "graph");
}
int cuGraphAddKernelNode(void** node, void* graph, void* const* after, std::size_t count,
                         const KernelNode* parameters) {
  *node = static_cast<FakeGraph*>(graph)->add(*parameters, after, count);
  return *node ? done("node", "node " + static_cast<FakeNode*>(*node)->text()) : 1;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  *executable = new FakeExecutable(*static_cast<FakeGraph*>(graph));
  return done("instantiate", "instantiate");
}
int cuGraphExecKernelNodeSetParams(void* executable, void* node, const KernelNode* parameters) {
  const FakeNode* set = static_cast<FakeExecutable*>(executable)->set(node, *parameters);
  return set ? done("set node", "set node " + set->text()) : 1;
}
int cuGraphLaunch(void* executable, void* stream) {
  auto& launched = *static_cast<FakeExecutable*>(executable);
  if (const int code = done("graph launch", "launch graph" + launched.text() + on(stream))) return code;
  for (FakeNode& node : launched.nodes) {
    node.run();
    stop_at_error(*node.function);
  }
  return 0;
}
int cuGraphExecDestroy(void* executable) {
  delete static_cast<FakeExecutable*>(executable);
  return done("destroy", "destroy executable");
}
int cuGraphDestroy(void* graph) {
  delete static_cast<FakeGraph*>(graph);
  return 0;
}
int cuMemsetD32Async(std::uint64_t address, unsigned value, std::size_t count, void* stream) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(reinterpret_cast<char*>(address) + 4 * i, &value, 4);
  return done("set", "set on stream " + hexadecimal(stream));
}
int cuMemcpyHtoDAsync_v2(std::uint64_t target, const void* source, std::size_t bytes, void* stream) {
  std::memcpy(reinterpret_cast<void*>(target), source, bytes);
  return done("upload", "upload " + std::to_string(bytes) + " on stream " + hexadecimal(stream));
}
int cuMemcpyDtoHAsync_v2(void* target, std::uint64_t source, std::size_t bytes, void* stream) {
  std::memcpy(target, reinterpret_cast<const void*>(source), bytes);
  return done("copy", "copy on stream " + hexadecimal(stream));
}
int cuStreamIsCapturing(void*, int* status) {
  *status = capturing;
  return 0;
}
int cuStreamSynchronize(void* stream) { return done("wait", "wait for stream " + hexadecimal(stream)); }

}  // extern "C"
