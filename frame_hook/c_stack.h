/// How much of this thread's C stack is left.
///
/// A call of a compiled function is a call of C code, so functions that call each other through it use the C stack,
/// which CPython bounds by counting: generously, for frames smaller than compiled code's. Here it is measured.
#pragma once

namespace fj {

enum class CStack {
  Ample,
  Short,  // too little to trace and compile
  Full,   // a call may no longer go deeper
};

CStack c_stack();

/// The stack of a process's first thread grows as it is used, and where the address space is bounded (RLIMIT_AS) and
/// used up, the process ends there. Makes it as deep now as a compilation may go, or throws std::bad_alloc.
void deepen_c_stack();

}  // namespace fj
