/// What a library that `framejit.ExportedProgram.build` has made and the runtime that runs it (libframejit_program.so)
/// say to each other, in C. build_library.cpp writes a FramejitLibrary as data and functions that call framejit_run.
#pragma once

#include <cstdint>

#define FRAMEJIT_EXPORT __attribute__((visibility("default")))

extern "C" {

/// The program for processors that have the features of `cpu`.
struct FramejitVersion {
  const char* cpu;            // "x86-64-v3"; "": every processor of the architecture
  const char* image;          // program_image.h
  std::uint64_t image_bytes;
  const void* const* kernels;  // functions of kernels
};

struct FramejitLibrary {
  std::uint32_t interface;  // kFramejitInterface
  std::uint32_t version_count;
  const FramejitVersion* versions;  // the first that this processor can run is run
  const char* name;
  const void* const* state;       // arrays of the program's own
  std::uint64_t function_count;   // of framejit's functions that kernels call
  const char* const* function_names;
  void** functions;               // the runtime writes their addresses there
  void* loaded;                   // the runtime's; null at first
};

constexpr std::uint32_t kFramejitInterface = 1;

/// What the functions return. A built library's header has them under its own name.
enum FramejitStatus : int {
  kFramejitOk = 0,
  kFramejitArgument = 1,    // a null pointer, or a size out of its range
  kFramejitValue = 2,       // an index out of range, a division of an integer by zero
  kFramejitMemory = 3,
  kFramejitProcessor = 4,   // it can't run the machine code
  kFramejitInternal = 5,
  kFramejitCondition = 6,   // an IEEE condition that the caller has asked for
};

/// Runs the program. `sizes`: those that the caller gives; `arguments`, `results`: contiguous arrays, by number;
/// `trapped`: IEEE conditions that end the call (KernelStatus), of a library that collects them. If it is not
/// kFramejitOk, results are undefined, and framejit_error says why.
FRAMEJIT_EXPORT int framejit_run(FramejitLibrary* library, const std::int64_t* sizes, void* const* arguments,
                                 void* const* results, std::uint32_t trapped);
/// What the last call of framejit_run in this thread has found wrong; "" if nothing.
FRAMEJIT_EXPORT const char* framejit_error();
/// Threads that work on a call, the caller included; 0: as many as there are cores. Of all libraries in the process.
FRAMEJIT_EXPORT void framejit_set_threads(int threads);
}
