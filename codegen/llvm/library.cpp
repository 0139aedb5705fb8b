// One row per function; the templates make the loop over lanes for each dtype. Complex arguments come as all real
// parts, then all imaginary parts.
#include "codegen/llvm/library.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>

#include "graph_ir/region/region.h"
#include "runtime/region_library.h"

namespace fj {

namespace {

template <class T, auto function>
void map1(const T* a, T* result, std::int64_t lanes) {
  for (std::int64_t i = 0; i < lanes; ++i) result[i] = function(a[i]);
}

template <class T, auto function>
void map2(const T* a, const T* b, T* result, std::int64_t lanes) {
  for (std::int64_t i = 0; i < lanes; ++i) result[i] = function(a[i], b[i]);
}

template <class T, auto function>
void map_complex1(const T* a, T* result, std::int64_t lanes) {
  for (std::int64_t i = 0; i < lanes; ++i) {
    const std::complex<T> value = function(std::complex<T>(a[i], a[i + lanes]));
    result[i] = value.real();
    result[i + lanes] = value.imag();
  }
}

template <class T, auto function>
void map_complex2(const T* a, const T* b, T* result, std::int64_t lanes) {
  for (std::int64_t i = 0; i < lanes; ++i) {
    const std::complex<T> value = function(std::complex<T>(a[i], a[i + lanes]), std::complex<T>(b[i], b[i + lanes]));
    result[i] = value.real();
    result[i + lanes] = value.imag();
  }
}

using Symbols = std::vector<std::pair<std::string, void*>>;

template <class Function>
void* address(Function* function) { return reinterpret_cast<void*>(function); }

Symbols make_symbols() {
  Symbols symbols;
#define FJ_UNARY(name)                                                                                        \
  symbols.push_back({"fj_" #name "_f32", address(map1<float, [](float x) { return std::name(x); }>)});        \
  symbols.push_back({"fj_" #name "_f64", address(map1<double, [](double x) { return std::name(x); }>)});
#define FJ_BINARY(name)                                                                                                \
  symbols.push_back({"fj_" #name "_f32", address(map2<float, [](float x, float y) { return std::name(x, y); }>)});     \
  symbols.push_back({"fj_" #name "_f64", address(map2<double, [](double x, double y) { return std::name(x, y); }>)});
#define FJ_COMPLEX(name)                                                                                       \
  symbols.push_back(                                                                                           \
      {"fj_" #name "_c64", address(map_complex1<float, [](std::complex<float> x) { return std::name(x); }>)}); \
  symbols.push_back(                                                                                           \
      {"fj_" #name "_c128", address(map_complex1<double, [](std::complex<double> x) { return std::name(x); }>)});
  FJ_UNARY(exp) FJ_UNARY(exp2) FJ_UNARY(expm1) FJ_UNARY(log) FJ_UNARY(log2) FJ_UNARY(log10) FJ_UNARY(log1p)
  FJ_UNARY(sin) FJ_UNARY(cos) FJ_UNARY(tan) FJ_UNARY(asin) FJ_UNARY(acos) FJ_UNARY(atan)
  FJ_UNARY(sinh) FJ_UNARY(cosh) FJ_UNARY(tanh) FJ_UNARY(asinh) FJ_UNARY(acosh) FJ_UNARY(atanh) FJ_UNARY(erf)
  FJ_BINARY(pow) FJ_BINARY(atan2) FJ_BINARY(hypot) FJ_BINARY(fmod)
  FJ_COMPLEX(exp) FJ_COMPLEX(log) FJ_COMPLEX(log10) FJ_COMPLEX(sin) FJ_COMPLEX(cos) FJ_COMPLEX(tan) FJ_COMPLEX(asin)
  FJ_COMPLEX(acos) FJ_COMPLEX(atan) FJ_COMPLEX(sinh) FJ_COMPLEX(cosh) FJ_COMPLEX(tanh) FJ_COMPLEX(asinh)
  FJ_COMPLEX(acosh) FJ_COMPLEX(atanh) FJ_COMPLEX(sqrt)
#undef FJ_UNARY
#undef FJ_BINARY
#undef FJ_COMPLEX
  constexpr auto power = [](auto x, auto y) { return std::pow(x, y); };
  symbols.push_back({"fj_pow_c64", address(map_complex2<float, power>)});
  symbols.push_back({"fj_pow_c128", address(map_complex2<double, power>)});

  // What regions call: the C library's own, bit for bit.
  for (const region::Function& function : region::functions())
    symbols.push_back({"fj_libm_" + std::string(function.name),
                       function.operands == 1 ? address(function.one) : address(function.two)});

  for (const LibraryFunction& function : region_library())
    symbols.push_back({"fj_region_" + std::string(function.name), const_cast<void*>(function.address)});

  // What instruction selection may call on machines without the instruction.
#define FJ_ROUND(name)                                                                             \
  symbols.push_back({#name, address(static_cast<double (*)(double)>(::name))});                    \
  symbols.push_back({#name "f", address(static_cast<float (*)(float)>(::name##f))});
  FJ_ROUND(floor) FJ_ROUND(ceil) FJ_ROUND(trunc) FJ_ROUND(rint) FJ_ROUND(nearbyint) FJ_ROUND(round) FJ_ROUND(sqrt)
#undef FJ_ROUND
  // Rounding to even is rint in the default rounding mode.
  symbols.push_back({"roundeven", address(static_cast<double (*)(double)>(::rint))});
  symbols.push_back({"roundevenf", address(static_cast<float (*)(float)>(::rintf))});
  symbols.push_back({"fma", address(static_cast<double (*)(double, double, double)>(::fma))});
  symbols.push_back({"fmaf", address(static_cast<float (*)(float, float, float)>(::fmaf))});
  symbols.push_back({"memcpy", address(::memcpy)});
  symbols.push_back({"memset", address(::memset)});
  symbols.push_back({"memmove", address(::memmove)});
  return symbols;
}

}  // namespace

std::string library_symbol(const std::string& name, DType dtype) {
  return "fj_" + name + "_" + std::string(fj::name(dtype));
}

const Symbols& library_symbols() {
  static const Symbols symbols = make_symbols();
  return symbols;
}

bool is_library_symbol(const std::string& symbol) {
  for (const auto& [name, address] : library_symbols())
    if (name == symbol) return true;
  return false;
}

}  // namespace fj
