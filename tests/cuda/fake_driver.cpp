#include "tests/cuda/fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/cuda/entrances.h"
#include "tests/cuda/fake_graphs.h"
#include "tests/cuda/harness.h"

namespace fj::test {

namespace {

FakeDriver* fake = nullptr;
std::vector<std::unique_ptr<Emulated>> images;
std::map<std::string, std::size_t> numbers;  // of images, by text

int done(const std::string& function, const std::string& call) {
  fake->calls.push_back(call);
  return function == fake->failing ? fake->code : 0;
}

std::string hexadecimal(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%zx", std::size_t(reinterpret_cast<std::uintptr_t>(pointer)));
  return text;
}

using Run = void (*)(void** parameters, unsigned blocks);
std::vector<std::unique_ptr<FakeFunction>> functions;

}  // namespace

FakeDriver::FakeDriver() {
  fake = this;
  table_.initialise = [](unsigned) { return 0; };
  table_.error_text = [](int code, const char** text) {
    *text = code == 700 ? "an illegal memory access was encountered" : "out of memory";
    return 0;
  };
  table_.device = [](int* device, int ordinal) {
    *device = ordinal;
    return 0;
  };
  table_.attribute = [](int* value, int attribute, int) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 4;
    return 0;
  };
  table_.retain_context = [](void** context, int device) {
    *context = reinterpret_cast<void*>(std::intptr_t(0x100 + device));
    return 0;
  };
  table_.push_context = [](void* context) { return done("push", "push " + hexadecimal(context)); };
  table_.pop_context = [](void**) { return done("pop", "pop"); };
  table_.load_module = [](void** module, const void* image) {
    EXPECT_EQ(fake->capture_mode, 2) << "may disturb what another thread records";
    *module = images[std::size_t(std::atoi(static_cast<const char*>(image)))].get();
    return done("load", "load");
  };
  table_.function = [](void** function, void* module, const char* name) {
    const auto& image = *static_cast<const Emulated*>(module);
    functions.push_back(std::make_unique<FakeFunction>(
        FakeFunction{name, reinterpret_cast<Run>(image[std::string(name) + "_entrance"]),
                     reinterpret_cast<int (*)()>(image[std::string(name) + "_parameters"]),
                     reinterpret_cast<int (*)()>(image[std::string(name) + "_first"])}));
    *function = functions.back().get();
    return done("function", std::string("function ") + name);
  };
  table_.launch = [](void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned, unsigned,
                     void* stream, void** parameters, void**) {
    const auto& found = *static_cast<const FakeFunction*>(function);
    EXPECT_TRUE(found.run && y == 1 && z == 1);
    const int code = done("launch", "launch " + found.name + " of " + std::to_string(x) + " x " +
                                        std::to_string(threads) + " on " + hexadecimal(stream));
    if (!code) found.run(parameters, x);
    if (fake->cost) fake->clock += fake->cost(found.name, threads);
    return code;
  };
  table_.set_words = [](std::uint64_t address, unsigned value, std::size_t count, void* stream) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(reinterpret_cast<char*>(address) + 4 * i, &value, 4);
    return done("set", "set on " + hexadecimal(stream));
  };
  table_.copy_to_device = [](std::uint64_t target, const void* source, std::size_t bytes, void* stream) {
    std::memcpy(reinterpret_cast<void*>(target), source, bytes);
    return done("upload", "upload " + std::to_string(bytes) + " on " + hexadecimal(stream));
  };
  table_.copy_to_host = [](void* target, std::uint64_t source, std::size_t bytes, void* stream) {
    std::memcpy(target, reinterpret_cast<const void*>(source), bytes);
    return done("copy", "copy on " + hexadecimal(stream));
  };
  table_.capturing = [](void*, int* status) {
    *status = fake->capturing;
    return 0;
  };
  table_.exchange_capture_mode = [](int* mode) {
    std::swap(*mode, fake->capture_mode);
    return 0;
  };
  table_.graph_create = [](void** graph, unsigned) {
    EXPECT_EQ(fake->capture_mode, 2) << "may disturb what another thread records";
    *graph = new FakeGraph;
    ++fake->graphs;
    return done("graph", "graph");
  };
  table_.graph_add_kernel = [](void** node, void* graph, void* const* after, std::size_t count,
                               const cuda::KernelNode* parameters) {
    *node = static_cast<FakeGraph*>(graph)->add(*parameters, after, count);
    EXPECT_TRUE(*node) << "not after the node before";
    return done("node", "node " + static_cast<FakeNode*>(*node)->text());
  };
  table_.graph_instantiate = [](void** executable, void* graph, unsigned long long) {
    EXPECT_EQ(fake->capture_mode, 2) << "may disturb what another thread records";
    if (const int code = done("instantiate", "instantiate")) return code;
    *executable = new FakeExecutable(*static_cast<FakeGraph*>(graph));
    ++fake->executables;
    return 0;
  };
  table_.graph_set_kernel = [](void* executable, void* node, const cuda::KernelNode* parameters) {
    const FakeNode* set = static_cast<FakeExecutable*>(executable)->set(node, *parameters);
    EXPECT_TRUE(set) << "no node of the graph, or another function";
    return done("set node", "set " + set->text());
  };
  table_.graph_launch = [](void* executable, void* stream) {
    auto& launched = *static_cast<FakeExecutable*>(executable);
    if (const int code = done("graph launch", "launch graph" + launched.text() + " on " + hexadecimal(stream)))
      return code;
    for (FakeNode& node : launched.nodes) node.run();
    return 0;
  };
  table_.graph_destroy_executable = [](void* executable) {
    delete static_cast<FakeExecutable*>(executable);
    if (fake) --fake->executables;
    return 0;
  };
  table_.graph_destroy = [](void* graph) {
    delete static_cast<FakeGraph*>(graph);
    if (fake) --fake->graphs;
    return 0;
  };
  table_.name = [](char* name, int, int) {
    std::strcpy(name, "a fake device");
    return 0;
  };
  table_.event_create = [](void** event, unsigned) {
    EXPECT_EQ(fake->capture_mode, 2) << "may disturb what another thread records";
    *event = new float(0);
    ++fake->events;
    return 0;
  };
  table_.event_record = [](void* event, void*) {
    *static_cast<float*>(event) = fake->clock;
    return 0;
  };
  table_.event_wait = [](void*) {
    EXPECT_EQ(fake->capture_mode, 2) << "may disturb what another thread records";
    return done("event wait", "wait for event");
  };
  table_.event_elapsed = [](float* milliseconds, void* from, void* to) {
    *milliseconds = *static_cast<float*>(to) - *static_cast<float*>(from);
    return 0;
  };
  table_.event_destroy = [](void* event) {
    delete static_cast<float*>(event);
    --fake->events;
    return 0;
  };
  table_.allocate = [](std::uint64_t* address, std::size_t bytes, void*) {
    EXPECT_EQ(fake->capture_mode, 2) << "may disturb what another thread records";
    if (const int code = done("allocate", "allocate")) return code;
    *address = std::uint64_t(reinterpret_cast<std::uintptr_t>(std::malloc(bytes)));
    ++fake->blocks;
    return 0;
  };
  table_.release = [](std::uint64_t address, void*) {
    EXPECT_EQ(fake->capture_mode, 2) << "may disturb what another thread records";
    std::free(reinterpret_cast<void*>(address));
    --fake->blocks;
    return 0;
  };
  table_.copy_on_device = [](std::uint64_t target, std::uint64_t source, std::size_t bytes, void*) {
    std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), bytes);
    return done("copy on device", "copy " + std::to_string(bytes));
  };
  table_.wait = [](void* stream) { return done("wait", "wait for " + hexadecimal(stream)); };
}

FakeDriver::~FakeDriver() { fake = nullptr; }

CudaOptions FakeDriver::options() {
  CudaOptions options;
  options.device = std::make_shared<cuda::CudaDevice>(table_, 1);
  options.compiler = "the emulation";
  options.compile = [this](std::string_view source, int architecture) {
    EXPECT_EQ(architecture, 90);
    ++compiled;
    const std::string text = std::string(source) + entrances(std::string(source));
    const auto [known, fresh] = numbers.try_emplace(text, images.size());
    if (fresh) images.push_back(std::make_unique<Emulated>(text));
    cuda::Compiled result;
    result.cubin = std::to_string(known->second);
    return result;
  };
  return options;
}

}  // namespace fj::test
