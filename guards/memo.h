/// What one successful run of a check program saw of the process, as words of memory.
///
/// Most steps of a check program ask about things that hardly ever change: globals, classes, the attributes of modules.
/// The memo of a run has, for each such step, the words whose values decided it: an object's type, where its dict is,
/// the dict's version, a class's version, the items of a tuple. While every word still has its value each of those
/// steps would do what it did, so a call compares the words, takes the values fetched then, and runs only the other
/// steps.
///
/// A word is compared only after those that prove its address is in a live object: an object is reached from the
/// frame's slots, the running function or an object the guards hold, by words compared before. No conclusion rests on
/// two objects of different times having one address: what is read of an object is read again.
///
/// A dict that has changed is asked again for the few keys that count: a script's globals change with every statement.
#pragma once

#include <Python.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cpython/ref.h"
#include "guards/guard_set.h"

namespace fj::guard_program {

struct Step;
class CheckProgram;

class Memo {
 public:
  /// Built from `bindings`, which a run of `program` over `frame` that held has just filled. `varies`: registers of
  /// slots that have another object again and again; what is reached from one is looked at in each call.
  Memo(const CheckProgram& program, const FrameValues& frame, const GuardBindings& bindings,
       const std::vector<bool>& varies);

  /// Steps to run at every call: those that need nothing from here, and those to run after `holds`. Indices into the
  /// program.
  const std::vector<std::uint32_t>& before() const { return before_; }
  const std::vector<std::uint32_t>& after() const { return after_; }

  /// True if the steps that are in neither list would hold; `bindings` then has the values they would fetch.
  bool holds(const FrameValues& frame, GuardBindings& bindings);
  /// The slot whose other object was why the last `holds` was false, by its register; -1: it was something else.
  std::int32_t other_root() const { return other_root_; }

 private:
  enum class Place : std::uint8_t {
    Unknown,
    Frame,
    Here,
    Call
  };  // who fills a register: the frame, the memo, or a step of each call

  /// (word at address & mask) == expected.
  struct Word {
    const void* address;
    std::uint64_t expected, mask;
  };
  /// What a dict was asked.
  struct Fact {
    enum class Kind : std::uint8_t { Value, Has, Lacks, KeyAt, Keys } kind;
    PyObject* key;             // borrowed from the guards; Keys: tuple
    PyObject* expected;        // Value, KeyAt
    std::int64_t index;        // KeyAt
    std::int32_t target;       // Value: the register
    bool replaceable;          // another value will do: only steps of each call look at it
  };
  struct Dict {
    PyObject* dict;
    std::size_t word;          // index into words_
    std::vector<Fact> facts;
  };
  struct Root {
    std::int32_t target;
    PyObject* object;
  };
  struct Value {
    std::int32_t target;
    PyObject* object;
  };

  void note(const CheckProgram& program, std::uint32_t index, const FrameValues& frame, const GuardBindings& bindings,
            const std::vector<bool>& varies);
  template <class Attempt>
  bool whole(Attempt attempt);
  bool fetch(const Step& step, const FrameValues& frame, const GuardBindings& bindings);
  bool fetch_other(const Source& source, PyObject* base, PyObject* found, std::int32_t target,
                   const FrameValues& frame);
  bool test(const Step& step, const Guard& guard, PyObject* value);
  bool class_unchanged(PyTypeObject* type);
  bool attribute(PyObject* owner, PyObject* name, std::int32_t target);
  void item(PyObject* sequence, PyObject* const* items, std::int64_t index);
  void type_of(PyObject* object);
  void word(const void* address, std::uint64_t expected, std::uint64_t mask = ~0ull);
  void pointer(const void* address, const void* expected);
  Dict& of_dict(PyObject* dict);
  void fact(PyObject* dict, Fact fact);
  void use(std::int32_t target, PyObject* object);
  bool ask_again(Dict& dict);

  std::vector<Word> words_;
  std::vector<Dict> dicts_;
  std::vector<Root> roots_;
  std::vector<Value> values_;
  std::vector<Ref<>> kept_;                      // plain constants, so that one address is one value
  PyObject *globals_ = nullptr, *builtins_ = nullptr;  // of the running function; null: not asked
  std::vector<std::uint32_t> before_, after_;
  std::uint64_t serial_;
  std::int32_t other_root_ = -1;

  // While it is built.
  std::vector<Place> places_;
  std::vector<bool> pinned_;
  std::unordered_map<const void*, std::size_t> word_at_, dict_at_;
  bool symbols_after_ = false;
};

}  // namespace fj::guard_program
