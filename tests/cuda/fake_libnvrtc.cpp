// A libnvrtc.so.12 that compiles a text for the CPU, with the emulation before it: what it gives for a cubin is a
// shared object, which fake_libcuda.cpp loads. FAKE_COMPILER and FAKE_SOURCE (the root of the sources) are given when
// it is built.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/cuda/entrances.h"

namespace {

struct Program {
  std::string source, cubin, log;
};

int compiled = 0;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Program& program(void* handle) { return *static_cast<Program*>(handle); }
void give(const std::string& text, char* to) { text.copy(to, text.size()); }

}  // namespace

extern "C" {

int fake_nvrtc_compiled() { return compiled; }

int nvrtcVersion(int* major, int* minor) {
  *major = 12, *minor = 0;
  return 0;
}
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
int nvrtcCreateProgram(void** made, const char* source, const char*, int, const char* const*, const char* const*) {
  *made = new Program{source, "", ""};
  return 0;
}
int nvrtcDestroyProgram(void** made) {
  delete static_cast<Program*>(*made);
  return 0;
}
int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
  ++compiled;
  Program& made = program(handle);
  if (count == 0 || std::string(options[0]) != "-arch=sm_90") return 6;
  std::string folder = "/tmp/framejit-nvrtc-XXXXXX";
  if (!mkdtemp(folder.data())) return 6;
  const std::string text = folder + "/kernels.cpp", object = folder + "/kernels.so", log = folder + "/log";
  std::ofstream(text) << "#include \"" FAKE_SOURCE "/tests/cuda/emulation.h\"\n"
                      << made.source << fj::test::entrances(made.source);
  const std::string command =
      FAKE_COMPILER " -std=c++17 -O0 -w -fPIC -shared -ffp-contract=off -o " + object + " " + text + " 2> " + log;
  const int status = std::system(command.c_str());
  made.log = read(log);
  if (status == 0) made.cubin = read(object);
  for (const std::string& file : {text, object, log}) unlink(file.c_str());
  rmdir(folder.c_str());
  return status == 0 ? 0 : 6;
}
int nvrtcGetCUBINSize(void* handle, std::size_t* size) {
  *size = program(handle).cubin.size();
  return 0;
}
int nvrtcGetCUBIN(void* handle, char* to) {
  give(program(handle).cubin, to);
  return 0;
}
int nvrtcGetPTXSize(void*, std::size_t* size) {
  *size = 0;
  return 0;
}
int nvrtcGetPTX(void*, char*) { return 0; }
int nvrtcGetProgramLogSize(void* handle, std::size_t* size) {
  *size = program(handle).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* handle, char* to) {
  give(program(handle).log, to);
  to[program(handle).log.size()] = 0;
  return 0;
}

}  // extern "C"
