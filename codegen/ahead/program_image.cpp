// One function for each type, which writes and reads: Writer and Reader have the same `value`.
#include "codegen/ahead/program_image.h"

#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"

namespace fj {

namespace {

constexpr std::uint32_t kImageVersion = 3;

struct Writer {
  std::string bytes;

  template <class T>
  void value(const T& plain) {
    bytes.append(reinterpret_cast<const char*>(&plain), sizeof plain);
  }
};

struct Reader {
  std::string_view bytes;

  template <class T>
  void value(T& plain) {
    FJ_CHECK(bytes.size() >= sizeof plain, "a program's image ends early");
    std::memcpy(&plain, bytes.data(), sizeof plain);
    bytes.remove_prefix(sizeof plain);
  }
};

// `A` is Writer with a const T, or Reader with a T.
template <class A, class T>
  requires(std::is_arithmetic_v<std::remove_const_t<T>> || std::is_enum_v<std::remove_const_t<T>>)
void pass(A& archive, T& plain) {
  archive.value(plain);
}

template <class T>
concept IsSequence = requires(T t) { t.size(), t.begin(), t[0]; };

template <class A, class T>
  requires IsSequence<T>
void pass(A& archive, T& sequence);

void pass(Writer& archive, const SymDim& size) {
  archive.value(std::uint64_t(size.terms().size()));
  for (const SymDim::Term& term : size.terms()) {
    archive.value(term.coefficient);
    archive.value(std::uint64_t(term.symbols.size()));
    for (const SymbolId symbol : term.symbols) archive.value(symbol.index);
  }
}

void pass(Reader& archive, SymDim& size) {
  std::uint64_t terms = 0;
  archive.value(terms);
  size = 0;
  for (; terms > 0; --terms) {
    std::int64_t coefficient = 0;
    std::uint64_t factors = 0;
    archive.value(coefficient);
    archive.value(factors);
    SymDim term = coefficient;
    for (; factors > 0; --factors) {
      SymbolId symbol{};
      archive.value(symbol.index);
      term = term * SymDim(symbol);
    }
    size = size + term;
  }
}

template <class A, class... T>
void pass_all(A& archive, T&... values) {
  (pass(archive, values), ...);
}

// A type's row names its members once. `Value` is the type, const where it is written.
#define FJ_MEMBERS(Type, ...)                                                             \
  template <class A, class Value>                                                         \
    requires std::is_same_v<std::remove_const_t<Value>, Type>                             \
  void pass(A& archive, Value& x) {                                                       \
    pass_all(archive, __VA_ARGS__);                                                       \
  }

FJ_MEMBERS(SymbolId, x.index)
FJ_MEMBERS(ProgramSymbol, x.defined, x.dividend, x.divisor, x.remainder)
FJ_MEMBERS(ProgramBuffer, x.kind, x.number, x.dtype, x.shape, x.strides, x.scratch_offset)
FJ_MEMBERS(ProgramKernel, x.name, x.buffers, x.items, x.elements_per_item, x.nanoseconds_per_element, x.items_per_step,
           x.unshared_speedup, x.scratch_bytes, x.reads, x.writes)
FJ_MEMBERS(ProgramMatmul, x.a, x.b, x.c, x.dtype, x.batch, x.m, x.n, x.k, x.a_strides, x.b_strides, x.c_strides)
FJ_MEMBERS(ProgramCount, x.source, x.result, x.of_number, x.count, x.excluded)
FJ_MEMBERS(ProgramCopies::Part, x.source, x.from, x.to, x.sizes, x.from_strides, x.to_strides)
FJ_MEMBERS(ProgramCopies, x.target, x.parts, x.apart)
FJ_MEMBERS(ProgramBlocks::Local, x.buffer, x.row_bytes)

template <class A, class Value>
  requires std::is_same_v<std::remove_const_t<Value>, ProgramStep>
void pass(A& archive, Value& step);

FJ_MEMBERS(ProgramBlocks, x.steps, x.rows_per_item, x.rows, x.row_bytes, x.together, x.has_product, x.locals)
// Calls of an array library are in no image.
FJ_MEMBERS(ProgramCond, x.condition, x.operands, x.results, x.if_true, x.if_false)
FJ_MEMBERS(ProgramLoop, x.condition, x.given, x.results, x.pass)
FJ_MEMBERS(ProgramStep, x.kind, x.kernel, x.batch, x.matmul, x.count, x.blocks, x.copies, x.cond, x.loop, x.commit)

template <class A, class Value>
  requires std::is_same_v<std::remove_const_t<Value>, ProgramParts>
void pass(A& archive, Value& parts);

FJ_MEMBERS(ProgramParts, x.symbols, x.graph_symbols, x.buffers, x.output_buffers, x.kernels, x.steps,
           x.float_conditions, x.makes_infinities, x.makes_nan, x.threads, x.name, x.branches)
FJ_MEMBERS(ImageSize, x.name, x.symbol, x.low, x.high)
FJ_MEMBERS(ProgramImage, x.parts, x.functions, x.sizes, x.arguments, x.argument_names, x.result_names)
#undef FJ_MEMBERS

template <class A, class T>
  requires IsSequence<T>
void pass(A& archive, T& sequence) {
  auto count = std::uint64_t(sequence.size());
  archive.value(count);
  if constexpr (!std::is_const_v<T>) {
    FJ_CHECK(count <= archive.bytes.size(), "a program's image ends early");
    sequence.resize(count);
  }
  for (auto& item : sequence) pass(archive, item);
}

}  // namespace

std::string write_image(const ProgramImage& image) {
  Writer writer;
  pass(writer, kImageVersion);
  pass(writer, image);
  return std::move(writer.bytes);
}

ProgramImage read_image(std::string_view bytes) {
  Reader reader{bytes};
  std::uint32_t version = 0;
  pass(reader, version);
  FJ_CHECK(version == kImageVersion, "a program's image of another version");
  ProgramImage image;
  pass(reader, image);
  FJ_CHECK(reader.bytes.empty(), "a program's image goes on behind its end");
  return image;
}

}  // namespace fj
