/// What the code is made for: the features that change what we emit. Decided by features, never by model names.
#pragma once

#include <string>

namespace fj {

struct Machine {
  int vector_bytes = 16;
  int vector_registers = 16;
  int scalable_bytes = 0;   // the length of SVE's, where they are longer than 16 bytes
  bool saturates = false;   // float to integer: the nearest one there is, 0 for NaN (elements.h); else as x86 does
  bool converts_i64 = false;  // between vectors of 64-bit integers and of doubles
  bool loud_compares = false;  // comparing vectors is an invalid operation where there is a NaN, but for equality
  bool avx512 = false;  // F, BW, DQ and VL together
  bool fma = false;
  bool f16c = false;
};

struct Target {
  std::string cpu;       // as asked for: "" is the host
  std::string triple, layout;
  std::string identity;  // triple, model and every feature: code for one identity runs on no other
  Machine machine;
};

/// `cpu`: "" for the host, else a model name such as "x86-64-v3". Made once for each.
const Target& target_for(const std::string& cpu);

}  // namespace fj
