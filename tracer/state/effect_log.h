/// The writes of a trace in program order, and those of them that the exit replays: to objects from before the trace.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tracer/tracer.h"

namespace fj {

/// One change, as the program made it, of an object that was there before the trace. The exit replays the effects in
/// the order of the program.
struct Effect {
  enum class Kind : std::uint8_t {
    Items,         // all items of a list, as they are at the exit
    Item,          // owner[key] = value of a dict (or `globals`) or deque; no value: deleted
    Call,          // method(owner, key, *arguments): C code that only acts on its owner
    Attribute,     // owner.key = value; no value: deleted
    Cell,          // the contents of a cell; no value: empty
  };
  Kind kind;
  V owner;                         // null: the dict `globals`
  Ref<> globals, key;              // key: of a dict, an element of a set, a name; null: none
  Ref<> method;                    // of the builtin type, not bound
  std::vector<V> arguments;        // the value, or the further arguments of a Call
};

/// Every write of the trace, by owner, and an effect for each that Python code outside the trace will see. Writes and
/// effects are only added: a moment of the trace is a place in this log.
class EffectLog {
 public:
  /// A write to a container, an array, an attribute, a cell, a global or the position of an iterator. Null: of no owner
  /// in particular.
  void note_write(const Value* owner) {
    const bool outside = owner && owner->source;
    writes_.push_back({owner, outside || !owner ? 0 : owner->number, outside && has_names(*owner)});
  }
  std::size_t write_count() const { return writes_.size(); }
  /// Whether any owner that was there at the mark has been written since; whether this one has.
  bool written_since(const Tracer::Mark& mark) const;
  bool written_since(const Value* owner, const Tracer::Mark& mark) const;
  /// As the first, but for writes to `known`, and to dicts and objects from outside, each of which has an effect.
  bool written_since(const Tracer::Mark& mark, const std::set<const Value*>& known) const;

  void add(Effect effect) { effects_.push_back(std::move(effect)); }
  const std::vector<Effect>& effects() const { return effects_; }

  /// An attribute or global, by its owner (an object's Value or the dict of globals) and its interned name. Null:
  /// deleted.
  void name(const void* owner, PyObject* name, V value) { names_[{owner, name}] = std::move(value); }
  void forget_name(const void* owner, PyObject* name) { names_.erase({owner, name}); }
  /// The value that the trace gave the name. Not engaged: none was written.
  std::optional<V> named(const void* owner, PyObject* name) const;
  /// The Value that stands for the owner in the log, however it was reached; `known_owner`: null, none does yet.
  const V& one_owner(const V& owner);
  const V* known_owner(const V& owner) const;
  bool names_any() const { return !names_.empty(); }

 private:
  struct Write {
    const Value* owner;
    std::uint64_t number;            // the owner's; 0: it was there before anything else
    bool by_name;                    // of a dict or object from outside
  };
  static bool has_names(const Value& owner) {
    return owner.kind == ValueKind::Dict || owner.kind == ValueKind::Object || owner.kind == ValueKind::Instance;
  }
  std::vector<Write> writes_;
  std::vector<Effect> effects_;      // of what came from outside
  std::map<std::pair<const void*, PyObject*>, V> names_;
  std::map<PyObject*, V> owners_;    // of objects for which there may be several Values
};

class TraceRun;

// ---- each note_ function notes a write, and the effect if its owner was there before the trace
void note_items(TraceRun& t, const V& list);  // called before the items change
void note_item(TraceRun& t, const V& owner, Ref<> key, V value);  // a null value: deleted
void note_call(TraceRun& t, const V& owner, const char* method, Ref<> key, std::vector<V> arguments);
void note_attribute(TraceRun& t, const V& owner, PyObject* name, const V& value);
void note_cell(TraceRun& t, const V& cell, const V& contents);
void note_global(TraceRun& t, PyObject* globals, PyObject* name, const V& value);
/// The value assigned to a global, or to an attribute, in the trace. Not engaged: none; null: deleted.
std::optional<V> written_global(TraceRun& t, PyObject* globals, PyObject* name);
std::optional<V> written_attribute(TraceRun& t, const V& owner, PyObject* name);
PyObject* interned(TraceRun& t, PyObject* name);

}  // namespace fj
