// The text before every kernel. Under FJ_EMULATION (tests) the functions of the first part come from the emulation.
#include "codegen/cuda/prelude.h"

namespace fj::cuda {

const std::string_view prelude = R"cuda(
#define FJ_INLINE __device__ __forceinline__
#define FJ_WARP 0xffffffffu

namespace fj {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

/// What a launch over several kernels has of each: a row of addresses and numbers.
template <int count> struct Table { u64 at[count]; };

// ---- elements in memory

struct boolean { u8 bits; };
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

#ifndef FJ_EMULATION
FJ_INLINE float half_to_float(u16 bits) { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }
FJ_INLINE u16 float_to_half(float x) { u16 bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits; }
FJ_INLINE u32 bits_of(float x) { return __float_as_uint(x); }
FJ_INLINE u64 bits_of(double x) { return u64(__double_as_longlong(x)); }
FJ_INLINE float float_of(u32 bits) { return __uint_as_float(bits); }
FJ_INLINE double double_of(u64 bits) { return __longlong_as_double(i64(bits)); }
#endif

FJ_INLINE bool is_nan(float x) { return x != x; }
FJ_INLINE bool is_nan(double x) { return x != x; }
template <class T> FJ_INLINE bool is_nan(T) { return false; }

#if !defined(FJ_EMULATION) && __CUDA_ARCH__ >= 800
FJ_INLINE u16 float_to_brain(float x) { u16 bits; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits; }
#else
FJ_INLINE u16 float_to_brain(float x) {
  const u32 bits = bits_of(x);
  return is_nan(x) ? u16(0x7fc0) : u16((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
#endif
FJ_INLINE float brain_to_float(u16 bits) { return float_of(u32(bits) << 16); }

template <class T> struct In { typedef T Register; };
template <> struct In<boolean> { typedef bool Register; };
template <> struct In<f16> { typedef float Register; };
template <> struct In<bf16> { typedef float Register; };

template <class T> FJ_INLINE T read(T x) { return x; }
#ifndef FJ_EMULATION
// NVRTC 13.0 loads sixteen of them at once, and forgets in one of four to extend a sum's sign: what passes through here
// is a whole number.
FJ_INLINE i8 read(i8 x) { int whole = x; asm("" : "+r"(whole)); return i8(whole); }
FJ_INLINE u8 read(u8 x) { int whole = x; asm("" : "+r"(whole)); return u8(whole); }
#endif
FJ_INLINE bool read(boolean x) { return x.bits != 0; }
FJ_INLINE float read(f16 x) { return half_to_float(x.bits); }
FJ_INLINE float read(bf16 x) { return brain_to_float(x.bits); }

template <class T> struct Writing { static FJ_INLINE T write(T x) { return x; } };
template <> struct Writing<boolean> { static FJ_INLINE boolean write(bool x) { boolean r; r.bits = u8(x); return r; } };
template <> struct Writing<f16> { static FJ_INLINE f16 write(float x) { f16 r; r.bits = float_to_half(x); return r; } };
// A register of this type holds one of its values: nothing to round, and a NaN that is only copied keeps its bits.
template <> struct Writing<bf16> { static FJ_INLINE bf16 write(float x) { bf16 r; r.bits = u16(bits_of(x) >> 16); return r; } };
template <class T> FJ_INLINE T write(typename In<T>::Register x) { return Writing<T>::write(x); }

/// A float to the nearest value of a half type, still as float.
template <class T> struct Rounding;
template <> struct Rounding<f16> { static FJ_INLINE float round(float x) { return half_to_float(float_to_half(x)); } };
template <> struct Rounding<bf16> { static FJ_INLINE float round(float x) { return brain_to_float(float_to_brain(x)); } };
template <class T> FJ_INLINE float rounded(float x) { return Rounding<T>::round(x); }

/// Neighbouring elements that are loaded and stored at once.
template <class T, int count> struct alignas(sizeof(T) * count > 16 ? 16 : sizeof(T) * count) Pack { T at[count]; };
template <int count, class T> FJ_INLINE Pack<T, count> load_pack(const T* from) { return *reinterpret_cast<const Pack<T, count>*>(from); }
template <int count, class T> FJ_INLINE void store_pack(T* to, const Pack<T, count>& pack) { *reinterpret_cast<Pack<T, count>*>(to) =
    pack; }

// ---- types in registers

template <class T> struct Unsigned { typedef T Type; };
template <> struct Unsigned<i8> { typedef u8 Type; };
template <> struct Unsigned<i16> { typedef u16 Type; };
template <> struct Unsigned<i32> { typedef u32 Type; };
template <> struct Unsigned<i64> { typedef u64 Type; };

template <class T> struct Limits { static const bool is_signed = T(-1) < T(0); static const int bits = int(sizeof(T)) * 8;
  static FJ_INLINE T lowest() { return is_signed ? T(u64(1) << (bits - 1)) : T(0); }
  static FJ_INLINE T largest() { return is_signed ? T(~(u64(1) << (bits - 1))) : T(~u64(0)); } };
template <> struct Limits<bool> { static FJ_INLINE bool lowest() { return false; } static FJ_INLINE bool largest() { return true; } };
template <> struct Limits<float> {
  static FJ_INLINE float lowest() { return float_of(0xff800000u); } static FJ_INLINE float largest() { return float_of(0x7f800000u); } };
template <> struct Limits<double> {
  static FJ_INLINE double lowest() { return double_of(0xfff0000000000000ull);
      } static FJ_INLINE double largest() { return double_of(0x7ff0000000000000ull); } };

// ---- arithmetic: integers wrap, booleans are sets of one element

template <class T> FJ_INLINE T add(T a, T b) { typedef typename Unsigned<T>::Type U; return T(U(U(a) + U(b))); }
template <class T> FJ_INLINE T subtract(T a, T b) { typedef typename Unsigned<T>::Type U; return T(U(U(a) - U(b))); }
template <class T> FJ_INLINE T multiply(T a, T b) { typedef typename Unsigned<T>::Type U; return T(U(u64(U(a)) * u64(U(b)))); }
template <class T> FJ_INLINE T negate(T a) { typedef typename Unsigned<T>::Type U; return T(U(U(0) - U(a))); }
FJ_INLINE bool add(bool a, bool b) { return a || b; }
FJ_INLINE bool subtract(bool a, bool b) { return a != b; }
FJ_INLINE bool multiply(bool a, bool b) { return a && b; }
FJ_INLINE bool negate(bool a) { return a; }
#define FJ_REAL(T) \
  FJ_INLINE T add(T a, T b) { return a + b; } \
  FJ_INLINE T subtract(T a, T b) { return a - b; } \
  FJ_INLINE T multiply(T a, T b) { return a * b; } \
  FJ_INLINE T divide(T a, T b) { return a / b; } \
  FJ_INLINE T negate(T a) { return -a; }
FJ_REAL(float)
FJ_REAL(double)
#undef FJ_REAL
FJ_INLINE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
FJ_INLINE double fma(double a, double b, double c) { return ::fma(a, b, c); }

// CUDA's own functions: what the array libraries call on the device too.
#define FJ_MATH1(name) FJ_INLINE float name(float x) { return ::name##f(x); } FJ_INLINE double name(double x) { return ::name(x); }
#define FJ_MATH2(name) FJ_INLINE float name(float x, float y) { return ::name##f(x, y); } FJ_INLINE double name(double x, \
    double y) { return ::name(x, y); }
FJ_MATH1(sqrt) FJ_MATH1(exp) FJ_MATH1(exp2) FJ_MATH1(expm1) FJ_MATH1(log) FJ_MATH1(log2) FJ_MATH1(log10) FJ_MATH1(log1p)
FJ_MATH1(sin) FJ_MATH1(cos) FJ_MATH1(tan) FJ_MATH1(asin) FJ_MATH1(acos) FJ_MATH1(atan) FJ_MATH1(sinh) FJ_MATH1(cosh) FJ_MATH1(tanh)
FJ_MATH1(asinh) FJ_MATH1(acosh) FJ_MATH1(atanh) FJ_MATH1(erf) FJ_MATH1(floor) FJ_MATH1(ceil) FJ_MATH1(rint) FJ_MATH1(trunc) FJ_MATH1(fabs)
FJ_MATH2(atan2) FJ_MATH2(hypot) FJ_MATH2(copysign) FJ_MATH2(fmod) FJ_MATH2(pow)
#undef FJ_MATH1
template <class T> FJ_INLINE T floor(T x) { return x; }
template <class T> FJ_INLINE T ceil(T x) { return x; }
template <class T> FJ_INLINE T rint(T x) { return x; }
template <class T> FJ_INLINE T trunc(T x) { return x; }
template <class T> FJ_INLINE T reciprocal_root(T x) { return T(1) / sqrt(x); }

template <class T> FJ_INLINE T absolute(T x) { return x < T(0) ? negate(x) : x; }
FJ_INLINE float absolute(float x) { return fabs(x); }
FJ_INLINE double absolute(double x) { return fabs(x); }
FJ_INLINE bool absolute(bool x) { return x; }
template <class T> FJ_INLINE T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : is_nan(x) ? x : T(0); }
FJ_INLINE bool sign(bool x) { return x; }

FJ_INLINE bool is_inf(float x) { return fabs(x) == Limits<float>::largest(); }
FJ_INLINE bool is_inf(double x) { return fabs(x) == Limits<double>::largest(); }
template <class T> FJ_INLINE bool is_inf(T) { return false; }
template <class T> FJ_INLINE bool is_finite(T x) { return !is_nan(x) && !is_inf(x); }
FJ_INLINE bool sign_bit(float x) { return bits_of(x) >> 31; }
FJ_INLINE bool sign_bit(double x) { return bits_of(x) >> 63; }
FJ_INLINE bool sign_bit(bool) { return false; }
template <class T> FJ_INLINE bool sign_bit(T x) { return x < T(0); }
template <class T> FJ_INLINE bool logical_not(T x) { return x == T(0); }
FJ_INLINE bool bit_not(bool x) { return !x; }
template <class T> FJ_INLINE T bit_not(T x) { return T(~x); }
template <class T> FJ_INLINE T popcount(T x) {
  u64 bits = u64(typename Unsigned<T>::Type(x)), count = 0;
  for (; bits; bits &= bits - 1) ++count;
  return T(count);
}

template <class T> FJ_INLINE T shift_left(T a, T b) {
  typedef typename Unsigned<T>::Type U;
  return U(b) < U(sizeof(T) * 8) ? T(U(u64(U(a)) << U(b))) : T(0);
}
FJ_INLINE bool shift_left(bool a, bool b) { return a && !b; }
template <class T> FJ_INLINE T shift_right(T a, T b) {
  typedef typename Unsigned<T>::Type U;
  return U(b) < U(sizeof(T) * 8) ? T(a >> U(b)) : a < T(0) ? T(-1) : T(0);
}
FJ_INLINE bool shift_right(bool a, bool b) { return a && !b; }

// fmax and fmin give the operand that is no NaN, and take -0 for less than +0: CUDA's own. maximum and minimum give a
// NaN of either.
FJ_MATH2(fmax) FJ_MATH2(fmin)
template <class T> FJ_INLINE T fmax(T a, T b) { return b > a ? b : a; }
template <class T> FJ_INLINE T fmin(T a, T b) { return b < a ? b : a; }
template <class T> FJ_INLINE T maximum(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : fmax(a, b); }
template <class T> FJ_INLINE T minimum(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : fmin(a, b); }

#undef FJ_MATH2

// ---- what can fail: reported in one word for the whole program

const u32 kIndexOutOfRange = 1, kIntegerDivisionByZero = 2;
FJ_INLINE void report(u32* status, u32 bits) { atomicOr(status, bits); }

template <class T> FJ_INLINE T divisor(T b, u32* status) {
  if (b == T(0)) report(status, kIntegerDivisionByZero);
  return b == T(0) ? T(1) : b;
}
template <class T> FJ_INLINE T quotient(T a, T b) { return Limits<T>::is_signed && b == T(-1) ? negate(a) : T(a / b); }
template <class T> FJ_INLINE T rest(T a, T b) { return Limits<T>::is_signed && b == T(-1) ? T(0) : T(a % b); }
template <class T> FJ_INLINE T truncated_divide(T a, T b, u32* status) { return quotient(a, divisor(b, status)); }
template <class T> FJ_INLINE T remainder(T a, T b, u32* status) { return rest(a, divisor(b, status)); }
template <class T> FJ_INLINE T floor_divide(T a, T b, u32* status) {
  b = divisor(b, status);
  const T left = rest(a, b);
  return T(quotient(a, b) - T(left != T(0) && (left < T(0)) != (b < T(0))));
}
template <class T> FJ_INLINE T modulo(T a, T b, u32* status) {
  b = divisor(b, status);
  const T left = rest(a, b);
  return left != T(0) && (left < T(0)) != (b < T(0)) ? T(left + b) : left;
}
// Python's and the libraries' definition: the quotient fits the remainder, which has the sign of the divisor.
template <class T> FJ_INLINE T modulo_real(T a, T b) {
  const T left = fmod(a, b);
  if (b == T(0) || is_nan(left)) return left;
  if (left == T(0)) return copysign(T(0), b);
  return (b < T(0)) != (left < T(0)) ? left + b : left;
}
template <class T> FJ_INLINE T floor_divide_real(T a, T b) {
  if (b == T(0)) return a / b;
  const T left = fmod(a, b);
  T whole = (a - left) / b;
  if (left != T(0) && (b < T(0)) != (left < T(0))) whole = whole - T(1);
  if (whole == T(0)) return copysign(T(0), a / b);
  const T below = floor(whole);
  return whole - below > T(0.5) ? below + T(1) : below;
}
FJ_INLINE float remainder(float a, float b, u32*) { return fmod(a, b); }
FJ_INLINE double remainder(double a, double b, u32*) { return fmod(a, b); }
FJ_INLINE float modulo(float a, float b, u32*) { return modulo_real(a, b); }
FJ_INLINE double modulo(double a, double b, u32*) { return modulo_real(a, b); }
FJ_INLINE float floor_divide(float a, float b, u32*) { return floor_divide_real(a, b); }
FJ_INLINE double floor_divide(double a, double b, u32*) { return floor_divide_real(a, b); }

/// Integer powers by squaring, wrapping; a negative exponent gives the truncated reciprocal.
template <class T> FJ_INLINE T power(T base, T exponent) {
  if (Limits<T>::is_signed && exponent < T(0))
    return base == T(1) ? T(1) : base == T(-1) ? (u64(exponent) & 1 ? T(-1) : T(1)) : T(0);
  u64 result = 1, factor = u64(base);
  for (u64 left = u64(exponent); left; left >>= 1) {
    if (left & 1) result *= factor;
    factor *= factor;
  }
  return T(result);
}
FJ_INLINE bool power(bool base, bool exponent) { return base || !exponent; }
FJ_INLINE float power(float base, float exponent) { return pow(base, exponent); }
FJ_INLINE double power(double base, double exponent) { return pow(base, exponent); }

/// An index into a dimension of `size`: negative ones count from the end. What is outside is reported where it counts, and is not to be
/// used.
FJ_INLINE i64 checked_index(i64 index, i64 size, bool counts, u32* status) {
  const i64 wrapped = index < 0 ? index + size : index;
  if (counts && u64(wrapped) >= u64(size)) report(status, kIndexOutOfRange);
  return wrapped;
}

// ---- casts: one rounding; floats to integers as CUDA's own conversion

template <class T, class F> struct Conversion {
  static FJ_INLINE typename In<T>::Register of(typename In<F>::Register x) { return typename In<T>::Register(x); }
};
template <class F> struct Conversion<boolean, F> { static FJ_INLINE bool of(typename In<F>::Register x) { return x !=
    typename In<F>::Register(0); } };
/// By whole numbers with a sign, as torch's kernels: -2.0 is 254.
template <> struct Conversion<u8, float> { static FJ_INLINE u8 of(float x) { return u8(i64(x)); } };
template <> struct Conversion<u8, double> { static FJ_INLINE u8 of(double x) { return u8(i64(x)); } };
template <> struct Conversion<u8, f16> { static FJ_INLINE u8 of(float x) { return u8(i64(x)); } };
template <> struct Conversion<u8, bf16> { static FJ_INLINE u8 of(float x) { return u8(i64(x)); } };
template <class F> struct Conversion<f16, F> { static FJ_INLINE float of(typename In<F>::Register x) { return rounded<f16>(float(x)); } };
template <class F> struct Conversion<bf16, F> { static FJ_INLINE float of(typename In<F>::Register x) { return rounded<bf16>(float(x)); } };
/// On its way to a half type: to float with ties and losses marked in the last bit, so that the second rounding is the only one.
FJ_INLINE float truncated_to_odd(double x) {
  const float narrow = float(x);
  const double back = double(narrow);
  if (back == x || is_nan(x)) return narrow;
  return float_of((bits_of(narrow) - u32(fabs(back) > fabs(x))) | 1u);
}
template <> struct Conversion<f16, double> { static FJ_INLINE float of(double x) { return rounded<f16>(truncated_to_odd(x)); } };
template <> struct Conversion<bf16, double> { static FJ_INLINE float of(double x) { return rounded<bf16>(truncated_to_odd(x)); } };
template <> struct Conversion<f16, f16> { static FJ_INLINE float of(float x) { return x; } };
template <> struct Conversion<bf16, bf16> { static FJ_INLINE float of(float x) { return x; } };
template <class T, class F> FJ_INLINE typename In<T>::Register convert(typename In<F>::Register x) { return Conversion<T, F>::of(x); }

// ---- reductions: how two partial results become one

struct Sum { template <class T> static FJ_INLINE T combine(T a, T b) { return add(a, b); } };
struct Product { template <class T> static FJ_INLINE T combine(T a, T b) { return multiply(a, b); } };
// Of equal ones the second, as torch's kernels: that of zeros is seen.
struct Max { template <class T> static FJ_INLINE T combine(T a, T b) { return is_nan(a) || a > b ? a : b; } };
struct Min { template <class T> static FJ_INLINE T combine(T a, T b) { return is_nan(a) || a < b ? a : b; } };
struct And { template <class T> static FJ_INLINE T combine(T a, T b) { return T(a & b); } };
struct Or { template <class T> static FJ_INLINE T combine(T a, T b) { return T(a | b); } };

/// A value and where it was found: a NaN before all others, of equal ones the first.
template <class T> struct Found { T value; i64 index; };
template <class T> FJ_INLINE Found<T> found(T value, i64 index) { Found<T> r; r.value = value; r.index = index; return r; }
template <class T> FJ_INLINE bool ties(Found<T> a, Found<T> b) { return a.value == b.value || (is_nan(a.value) && is_nan(b.value)); }
struct ArgMax {
  template <class T> static FJ_INLINE Found<T> combine(Found<T> a, Found<T> b) {
    return b.value > a.value || (is_nan(b.value) && !is_nan(a.value)) || (ties(a, b) && b.index < a.index) ? b : a;
  }
};
struct ArgMin {
  template <class T> static FJ_INLINE Found<T> combine(Found<T> a, Found<T> b) {
    return b.value < a.value || (is_nan(b.value) && !is_nan(a.value)) || (ties(a, b) && b.index < a.index) ? b : a;
  }
};

// Small types travel as int; a Found as its two parts.
#define FJ_SHUFFLE(name, intrinsic) \
  FJ_INLINE int name(int x, int from) { return intrinsic(FJ_WARP, x, from); } \
  FJ_INLINE u32 name(u32 x, int from) { return intrinsic(FJ_WARP, x, from); } \
  FJ_INLINE i64 name(i64 x, int from) { return intrinsic(FJ_WARP, x, from); } \
  FJ_INLINE u64 name(u64 x, int from) { return intrinsic(FJ_WARP, x, from); } \
  FJ_INLINE float name(float x, int from) { return intrinsic(FJ_WARP, x, from); } \
  FJ_INLINE double name(double x, int from) { return intrinsic(FJ_WARP, x, from); } \
  template <class T> FJ_INLINE T name(T x, int from) { return T(intrinsic(FJ_WARP, int(x), from)); } \
  template <class T> FJ_INLINE Found<T> name(Found<T> x, int from) { return found(name(x.value, from), name(x.index, from)); }
FJ_SHUFFLE(shuffle_down, __shfl_down_sync)
FJ_SHUFFLE(shuffle_from, __shfl_sync)
#undef FJ_SHUFFLE
template <class T> FJ_INLINE T shuffle_up(T x, int distance) { return T(__shfl_up_sync(FJ_WARP, x, distance)); }

/// The partial results of a team's threads as one, which all of them get: lanes by halves, then warps in order. A fixed order.
template <class Combine, int threads, class T> FJ_INLINE T team_reduce(T value) {
  #pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = Combine::combine(value, shuffle_down(value, distance));
  if (threads == 32) return shuffle_from(value, 0);
  __shared__ T partial[threads / 32];
  __syncthreads();  // whoever read the last results has done so
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = partial[0];
  #pragma unroll
  for (int warp = 1; warp < threads / 32; ++warp) value = Combine::combine(value, partial[warp]);
  return value;
}

/// Running results along the threads of a team. `total` becomes that of all.
template <class Combine, int threads, class T> FJ_INLINE T team_scan(T value, T neutral, T& total) {
  const int lane = int(threadIdx.x) % 32;
  #pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T before = shuffle_up(value, distance);
    if (lane >= distance) value = Combine::combine(before, value);
  }
  if (threads == 32) {
    total = shuffle_from(value, 31);
    return value;
  }
  __shared__ T partial[threads / 32];
  __syncthreads();
  if (lane == 31) partial[threadIdx.x / 32] = value;
  __syncthreads();
  T before = neutral;
  total = neutral;
  #pragma unroll
  for (int warp = 0; warp < threads / 32; ++warp) {
    if (warp == int(threadIdx.x) / 32) before = total;
    total = Combine::combine(total, partial[warp]);
  }
  return Combine::combine(before, value);
}

FJ_INLINE void add_to(float* to, float value) { atomicAdd(to, value); }
FJ_INLINE void add_to(double* to, double value) { atomicAdd(to, value); }
FJ_INLINE void add_to(i32* to, i32 value) { atomicAdd(to, value); }
FJ_INLINE void add_to(u32* to, u32 value) { atomicAdd(to, value); }
FJ_INLINE void add_to(i64* to, i64 value) { atomicAdd(reinterpret_cast<u64*>(to), u64(value)); }
FJ_INLINE void add_to(u64* to, u64 value) { atomicAdd(to, value); }

)cuda";

}  // namespace fj::cuda
