/// Where a value that came from outside was found, so that it can be fetched again on the next call.
///
/// Sources form a tree: `L.self._modules['fc1'].weight`. A Source is immutable, interned in its
/// SourceTable, and evaluated over a FrameValues: the locals, cells and value stack at the
/// start of a segment (for a call that has no frame yet: the bound arguments).
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cpython/ref.h"

namespace fj {

/// What a segment starts from. Borrowed; entries may be null (unbound, NULL stack entries).
struct FrameValues {
  PyFunctionObject* function = nullptr;
  std::span<PyObject* const> slots;  // co_nlocalsplus, then the value stack
};

enum class SourceKind : std::uint8_t {
#define FJ_SOURCE(name, text) name,
#include "guards/source.def"
};

class Source;
/// Sources live as long as the segment that made them; identity is equality within one table.
using SourceRef = const Source*;

class Source {
 public:
  SourceKind kind;
  SourceRef base = nullptr;   // null for roots
  std::int64_t index = 0;     // slot, tuple/list index, closure cell index
  Ref<PyObject> key;          // name or dict key; for Constant the object itself
  std::vector<SourceRef> operands;  // Result, ItemOf: what else it is made of
  std::int32_t id = 0;        // position in the table: bases and operands come before what is built on them
  int depth = 0;              // of operands in operands

  std::string text() const;   // "L.x", "G.np", "L.self.weight", "L.xs[2]", "L.d['k']"
};

class SourceTable {
 public:
  SourceRef slot(int slot, std::string name);           // local, cell, free variable or stack entry
  SourceRef global(PyObject* name);                     // function.__globals__[name]
  SourceRef builtin(PyObject* name);                    // function.__builtins__[name]
  SourceRef function();                                 // the function object itself
  SourceRef constant(PyObject* object);                 // an object held alive by the segment
  SourceRef make(SourceKind kind, SourceRef base, std::int64_t index = 0, PyObject* key = nullptr,
                 const std::vector<SourceRef>& operands = {});

  std::span<const std::unique_ptr<Source>> all() const { return sources_; }
  /// New reference, or null without an error set when a step fails (missing key, wrong type).
  Ref<PyObject> fetch(SourceRef source, const FrameValues& values) const;

 private:
  std::vector<std::unique_ptr<Source>> sources_;
  std::unordered_multimap<std::size_t, SourceRef> interned_;
};

/// The place in a function's defaults that an index of a FunctionDefault means. A parameter's default is counted from
/// the end, as CPython binds it: -1 is that of the last parameter, however many have one.
inline std::int64_t from_the_end(std::int64_t index, PyObject* defaults) {
  return index < 0 && PyTuple_Check(defaults) ? index + PyTuple_GET_SIZE(defaults) : index;
}

/// collections.deque
PyTypeObject* deque_type();
/// Exactly collections.deque.
bool is_deque(PyObject* object);

/// One step of a fetch: the value of `source` given that of its base (null for roots). Borrowed, and kept alive by the
/// base, except for a step that makes an object: that one is put into `owned`. Null without an error set if the step
/// fails.
PyObject* fetch_step(const Source& source, PyObject* base, const FrameValues& values, Ref<>& owned,
                     std::span<PyObject* const> operands = {});

/// Exactly int, float, bool, str, bytes or None: functions of C make of them what they make of them, and run no Python
/// code.
bool is_plain_operand(PyObject* object);

/// What a Result may be made of: a plain operand, a slice, a tuple of plain ones, a re.Match or re.Pattern, which
/// nothing changes and whose methods are C's.
bool is_operand(PyObject* object);

/// re.Pattern and re.Match: nothing derives from them, and their methods are C's. A match is never compared, only
/// asked.
bool is_pattern(PyObject* object);
bool is_match(PyObject* object);

/// A Result, what is in one, or an item under a key that is fetched: another one at each call.
bool is_made_anew(SourceRef source);

/// How an object is named in guards and messages. Runs no Python code: values of builtin types by repr, the
/// rest by what they are ("function relu", "Encoder object").
std::string describe_object(PyObject* object);

/// Of the texts of source.def and guard.def: what stands in the place of the first such hole.
void fill_in(std::string& text, std::string_view hole, const std::string& with);

}  // namespace fj
