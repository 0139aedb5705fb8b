// The functions of libnvrtc that are used, and the figures in the ELF file it makes.
#include "runtime/cuda/nvrtc.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "runtime/cuda/shared_object.h"

namespace fj::cuda {

using Program = void*;

struct Functions {
  int (*version)(int*, int*);
  const char* (*error_string)(int);
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int, const char* const*);
  int (*cubin_size)(Program, std::size_t*);
  int (*cubin)(Program, char*);
  int (*ptx_size)(Program, std::size_t*);
  int (*ptx)(Program, char*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
};

namespace {

/// The folder's files whose names begin so, newest version first.
std::vector<std::string> files(const std::string& folder, const std::string& beginning) {
  std::vector<std::string> found;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable))
    if (entry.path().filename().string().starts_with(beginning)) found.push_back(entry.path().string());
  std::sort(found.rbegin(), found.rend());
  return found;
}

template <class Function>
bool find(const SharedObject& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.symbol(name));
  return function != nullptr;
}

}  // namespace

Nvrtc::Nvrtc(const std::vector<std::string>& folders) {
  const std::vector<std::string> usual{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  // The array library's own, if it has opened one: two in a process are one too many.
  SharedObject library(usual, true);
  if (library.opened().empty()) {
    std::vector<std::string> names;
    for (const std::string& folder : folders) {
      // Its second half must be there first: it looks for it by name alone.
      for (const std::string& file : files(folder, "libnvrtc-builtins.so")) SharedObject({file});
      for (const std::string& file : files(folder, "libnvrtc.so")) names.push_back(file);
    }
    names.insert(names.end(), usual.begin(), usual.end());
    library = SharedObject(names);
  }
  if (library.opened().empty()) {
    missing_ =
        "no CUDA kernels can be compiled: libnvrtc was not found; install it with `pip install nvidia-cuda-nvrtc-cu12`";
    return;
  }
  auto functions = new Functions;
  const bool all =
      find(library, "nvrtcVersion", functions->version) &&
      find(library, "nvrtcGetErrorString", functions->error_string) &&
      find(library, "nvrtcCreateProgram", functions->create) &&
      find(library, "nvrtcDestroyProgram", functions->destroy) &&
      find(library, "nvrtcCompileProgram", functions->compile) &&
      find(library, "nvrtcGetCUBINSize", functions->cubin_size) && find(library, "nvrtcGetCUBIN", functions->cubin) &&
      find(library, "nvrtcGetPTXSize", functions->ptx_size) && find(library, "nvrtcGetPTX", functions->ptx) &&
      find(library, "nvrtcGetProgramLogSize", functions->log_size) &&
      find(library, "nvrtcGetProgramLog", functions->log);
  if (!all) {
    missing_ = "no CUDA kernels can be compiled: " + library.opened() +
               " lacks functions that are needed; install version 12 or later";
    delete functions;
    return;
  }
  functions_ = functions;  // as long as the library: the process
  int major = 0, minor = 0;
  functions->version(&major, &minor);
  version_ = std::to_string(major) + "." + std::to_string(minor);
}

Compiled Nvrtc::compile(std::string_view source, int architecture, bool figures) const {
  Compiled result;
  if (!functions_) {
    result.error = missing_;
    return result;
  }
  Program program = nullptr;
  auto failed = [&](int code, const char* what) {
    if (code == 0) return false;
    result.error = std::string(what) + ": " + functions_->error_string(code);
    return true;
  };
  if (failed(functions_->create(&program, std::string(source).c_str(), "kernel.cu", 0, nullptr, nullptr),
      "nvrtcCreateProgram")) return result;
  const std::string arch = "-arch=sm_" + std::to_string(architecture);
  const char* const options[] = {arch.c_str(),       "-std=c++17",  "--fmad=false",   "--prec-div=true",
                                 "--prec-sqrt=true", "--ftz=false", "-default-device"};
  const int code = functions_->compile(program, int(std::size(options)), options);
  std::size_t size = 0;
  if (functions_->log_size(program, &size) == 0 && size > 1) {
    result.log.resize(size);
    functions_->log(program, result.log.data());
    result.log.resize(std::strlen(result.log.c_str()));
  }
  if (!failed(code, "nvrtcCompileProgram") && !failed(functions_->cubin_size(program, &size), "nvrtcGetCUBINSize")) {
    result.cubin.resize(size);
    failed(functions_->cubin(program, result.cubin.data()), "nvrtcGetCUBIN");
  }
  if (figures && result.error.empty() && functions_->ptx_size(program, &size) == 0) {
    result.ptx.resize(size);
    functions_->ptx(program, result.ptx.data());
  }
  functions_->destroy(&program);
  return result;
}

namespace {

struct Section {
  std::uint32_t name, type;
  std::uint64_t flags, address, offset, size;
  std::uint32_t link, info;
  std::uint64_t alignment, entry_size;
};

template <class T>
T at(std::string_view bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Attributes of .nv.info: a byte each for format and name, two bytes of value or of size.
constexpr std::uint8_t kBySize = 0x04;  // the others have no more than the two bytes
constexpr std::uint8_t kRegisterCount = 0x2f, kFrameSize = 0x11;

}  // namespace

KernelFigures kernel_figures(std::string_view cubin, const std::string& kernel) {
  KernelFigures figures;
  const auto table = at<std::uint64_t>(cubin, 0x28);
  const auto entry = at<std::uint16_t>(cubin, 0x3a), count = at<std::uint16_t>(cubin, 0x3c),
             names = at<std::uint16_t>(cubin, 0x3e);
  if (cubin.substr(0, 4) != "\x7f" "ELF" || entry != sizeof(Section)) return figures;
  auto section = [&](std::size_t number) { return at<Section>(cubin, table + number * entry); };
  const Section strings = section(names);
  auto name = [&](std::size_t from, std::uint64_t offset) { return std::string(cubin.data() + from + offset); };
  Section text{}, shared{}, info{}, symbols{};
  for (std::size_t s = 0; s < count; ++s) {
    const Section here = section(s);
    const std::string called = name(strings.offset, here.name);
    if (called == ".text." + kernel) text = here;
    if (called == ".nv.shared." + kernel) shared = here;
    if (called == ".nv.info") info = here;
    if (here.type == 2) symbols = here;
  }
  if (text.size == 0) return figures;
  figures.shared_bytes = int(shared.size);
  // The number of the kernel's symbol: .nv.info speaks of it.
  std::uint32_t number = 0;
  const Section symbol_names = section(symbols.link);
  for (std::uint64_t s = 0; s * 24 < symbols.size; ++s)
    if (name(symbol_names.offset, at<std::uint32_t>(cubin, symbols.offset + s * 24)) == kernel)
      number = std::uint32_t(s);
  for (std::uint64_t p = info.offset; p < info.offset + info.size;) {
    const auto format = at<std::uint8_t>(cubin, p), attribute = at<std::uint8_t>(cubin, p + 1);
    const auto size = at<std::uint16_t>(cubin, p + 2);
    if (format == kBySize && size >= 8 && at<std::uint32_t>(cubin, p + 4) == number) {
      const auto value = at<std::uint32_t>(cubin, p + 8);
      if (attribute == kRegisterCount) figures.registers = int(value);
      if (attribute == kFrameSize) figures.local_bytes = int(value);
    }
    p += 4 + (format == kBySize ? size : 0u);
  }
  return figures;
}

}  // namespace fj::cuda
