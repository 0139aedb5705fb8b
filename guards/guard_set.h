/// The guards of one segment: the conditions under which its program may be reused.
///
/// Checked on every call before anything runs, so checks only read: they run no Python code and leave no
/// error set. A guard on a part follows the guard on its whole. `holds` is the fast path, `first_failure`
/// explains; both come from one row of guard.def, so they cannot disagree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "guards/source.h"
#include "runtime/base/dtype.h"
#include "runtime/base/sym_dim.h"

namespace fj {

enum class GuardKind : std::uint8_t {
#define FJ_GUARD(name, text) name,
#include "guards/guard.def"
};

/// What is expected of an array on every call. Entries that are nullopt are free; symbols bind on first sight
/// (a size that is exactly one symbol) or are compared after all symbols are bound (any other expression).
struct ArrayExpectation {
  PyTypeObject* type = nullptr;           // exact: numpy.ndarray, torch.Tensor, torch.nn.Parameter
  DType dtype = DType::F32;
  Dims shape;
  Dims strides;                           // in elements; those of dimensions of size <= 1 are not compared
  bool requires_grad = false;             // torch
  bool writeable_required = false;        // NumPy inputs that are written
  bool aligned = true;
  std::uint64_t key_set = 0;              // torch dispatch keys seen while tracing (0: not compared)
};

struct Guard {
  GuardKind kind;
  SourceRef source = nullptr;
  Ref<PyObject> object;                   // Identity, Equals, HasKey...
  std::int64_t number = 0;                // Length, SymbolRange, ...
  SymbolId symbol{UINT32_MAX};            // IntSymbol: binds the int's value
  std::optional<ArrayExpectation> array;
  std::optional<SymDim> left, right;      // Relation: left (number as comparison Py_LT..) right
  std::vector<SourceRef> others;          // NoOverlap, SameObject
  std::string location;                   // user's line that needed it: "model.py:41"
};

/// Values bound while checking, handed to the program.
struct GuardBindings {
  std::vector<std::int64_t> symbols;
  std::vector<PyObject*> values;          // by Source::id, borrowed from the frame for the time of the call
};

class GuardSet {
 public:
  explicit GuardSet(std::shared_ptr<SourceTable> sources);
  /// Duplicates are dropped.
  void add(Guard guard);
  /// After the last add: orders and compiles to the check program.
  void seal();

  bool holds(const FrameValues& values, GuardBindings& bindings) const;
  struct Failure {
    const Guard* guard;
    std::string found, expected;          // "shape [8, 16] -> [8, 32]"
  };
  std::optional<Failure> first_failure(const FrameValues& values) const;

  const std::vector<Guard>& all() const { return guards_; }
  const SourceTable& sources() const { return *sources_; }
  std::vector<std::string> text() const;  // "L.k == 3", one each

 private:
  std::shared_ptr<SourceTable> sources_;
  std::vector<Guard> guards_;
};

}  // namespace fj
