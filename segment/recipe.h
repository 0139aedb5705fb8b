/// How to build Python objects from a program's results: a flat list of register instructions, each making one object
/// or performing one side effect. Run after the program has succeeded; objects first, then effects in program order.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "arrays/arrays.h"
#include "cpython/ref.h"
#include "guards/source.h"
#include "runtime/base/sym_dim.h"
#include "segment/view_step.h"

namespace fj {

enum class RecipeOp : std::uint8_t {
  // make: registers[target] =
  FromSource,     // source
  Constant,       // object
  Output,         // program output `index` (a library array)
  OutputScalar,   // program output `index` as NumPy scalar
  OutputNumber,   // program output `index` as Python float, int or bool
  View,           // view_of(register a, dtype, dims shape, strides, offset); index 1: read-only
  CrossView,      // array a as the other library's
  Int,            // expression
  Null,           // NULL
  Tuple,
  List,
  Set,
  FrozenSet,  // args
  Dict,           // args: key, value, key, value
  NamedTuple,     // object: type; args
  Slice,          // args: 3
  Range,          // args: 3
  Iter,           // iter(args[0])
  Cell,           // args[0] or empty
  Function,  // object: code; args: globals, defaults|-1, kwdefaults|-1, annotations|-1, closure tuple|-1, qualname
  BoundMethod,  // args: function, self
  Instance,  // object.__new__(object: type), no __init__
  Exception,  // object: type; args
  GetAttr,  // getattr(args[0], object)
  Call,  // object(*args): pure constructors only
  CallWithKeywords,  // object(*args[1:], **args[0])
  Expect,  // object(*args[0], **args[1]); fails unless it gives args[2], before anything has happened; index 1: unless
           // its cache holds that; 2: that very object
  // effects
  SetItems,  // list args[0][:] = args[1]
  SetItem,  // dict, OrderedDict or deque args[0][args[1]] = args[2]; args[2] absent: deleted
  Mutate,  // object(*args): a method of C code that acts on args[0] only
  SetAttr,  // args[0].(object) = args[1], without Python code
  DelAttr,
  SetCell,  // cell args[0] = args[1]; absent: empty
  BumpVersion,  // tensor args[0], by `index`
};

inline bool is_effect(RecipeOp op) { return op >= RecipeOp::SetItems; }

/// The class of C code a class is built on, whose tp_new makes its instances.
PyTypeObject* builtin_base(PyTypeObject* type);

struct RecipeStep {
  RecipeOp op;
  int target = -1;                 // register
  std::vector<int> args;           // registers; -1: absent
  SourceRef source = nullptr;
  Ref<> object;
  std::int64_t index = 0;
  SymDim expression;               // Int; View's offset
  Dims shape, strides;             // View
  std::vector<ViewStep> view;      // View of a tensor, if a gradient flows through it: from args[0]
  DType dtype = DType::F32;
  bool late = false;               // made of a size that the program counts
};

struct Recipe {
  std::vector<RecipeStep> steps;
  int register_count = 0;
  std::vector<int> slots;          // register of each local and stack entry after the segment; -1: NULL
  std::vector<bool> keep;          // slot is unchanged: leave what is there
  std::vector<int> let_go;         // slots whose objects the program let go of before the end
  int result = -1;                 // Return
};

}  // namespace fj
