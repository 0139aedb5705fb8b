/// The tracer: runs bytecode on symbolic values and returns a segment.
///
/// Tracing is deterministic and has no effect outside the tracer: side effects are logged, no array kernel runs. That makes
/// rollback simple: a break found at step n (an outer instruction, a loop header, the creation of something that can't be
/// live at an exit) throws, and the trace is run again with the order to stop before step n, where the exit is built.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpython/cpython.h"
#include "segment/break_reason.h"
#include "segment/segment.h"
#include "tracer/value.h"

namespace fj {

/// What failed guards of earlier segments at this place have taught: leaves to generalise from the start.
struct Generalisations {
  std::vector<std::string> sources;            // ints that become symbols, floats that become inputs, texts that change, by Source::text()
  std::vector<std::string> lengths;            // strings whose length becomes a symbol
  std::vector<std::pair<std::string, int>> dimensions;  // sizes that become symbols: array source, axis
  bool all_dynamic = false;
  bool never_dynamic = false;
  bool float_inputs = false;                   // the back end takes a float's memory for a 0-d array
};

struct TraceRequest {
  PyThreadState* thread = nullptr;
  PyFunctionObject* function = nullptr;
  const FjCode* code = nullptr;
  int start_instruction = 0;
  FrameValues values;
  std::vector<bool> fragile;                   // by slot: what lets go of its object runs Python code (finalizers.h)
  Generalisations generalise;
  bool many = false;                           // several pieces start here already, for other values
  int instruction_limit = 200000;
  int node_limit = 20000;
  bool cut = false;  // node_limit is what compiling could bear
  /// A branch on data does not end the graph: it is decided as the arrays of this call decide it, and the segment says so
  /// (Segment::conditions). `decisions`: the outcomes of the first ones, as a run has found them.
  bool follow = false;
  std::vector<bool> decisions;
  /// Why programs can't work on arrays of a device; "": they can. None: on the host's alone.
  std::function<std::string(int device)> refusal;
};

/// The front of the machinery the interpreter and the front ends share. One per trace run.
class Tracer {
 public:
  Graph& graph();
  GuardSet& guards();
  SourceTable& sources();
  Location location() const;                   // the user's line being traced
  std::string function() const;                // and the qualified name of its function
  void note_asked_compiling();                 // the user's code does something else where it is compiled

  // ---- making values
  V constant(Ref<> object);                    // no guard needed
  V none();
  V boolean(bool value);
  V integer(std::int64_t value);
  V integer(const SymDim& value);              // constant or SymInt
  V real(double value);
  V string(std::string_view text);
  V tuple(std::vector<V> items);
  V list(std::vector<V> items);
  /// The one Value of a real object, wrapped lazily. Arrays become graph inputs when first used.
  V wrap(PyObject* object, SourceRef source);

  // ---- looking at values; each adds the guards it relies on and throws BreakGraph where it can't answer
  /// The real object if the value is a constant known exactly (guards value or identity); null if it is not one.
  PyObject* constant_object(const V& value);
  Ref<> constant_object(V&& value);  // of a Value that may hold the only reference to it
  bool is_none(const V& value);
  std::optional<std::int64_t> constant_int(const V& value);    // bool and int; specialises a SymInt only if asked
  std::optional<SymDim> int_expression(const V& value);        // int or SymInt (not bool)
  std::optional<double> constant_float(const V& value);        // float only
  /// A Python float that has changed between calls as a graph value f64[]; invalid for every other.
  ValueId float_input(const V& value);
  /// requires_grad_() and t_() of a tensor made in the trace: as in TracerImpl.
  bool make_leaf(const V& tensor);
  bool turn(const V& tensor, const std::function<V()>& view);
  V changing_scalar(const V& value);
  V scalar_index(const V& value);
  bool truth(const V& value);                                  // breaks on arrays
  PyTypeObject* type_of(const V& value);
  /// Items of a tuple, list, torch.Size, range or other finite sequence.
  std::vector<V> sequence_items(const V& value);
  /// Decides `a (comparison) b` now, by constants or hints, and guards the answer. comparison: Py_LT...
  bool decide(const SymDim& a, int comparison, const SymDim& b);

  // ---- acting on values, as the interpreter's instructions do
  V call(const V& callable, std::vector<V> positional, std::vector<std::pair<std::string, V>> keywords = {});
  V get_attribute(const V& owner, std::string_view name);
  V get_item(const V& container, const V& key);
  V binary(int nb_op, const V& a, const V& b);                 // NB_ADD...; inplace forms too
  V compare(int comparison, const V& a, const V& b);

  // ---- arrays
  /// Contents of an array as a graph value in its logical shape (view steps applied to the storage's current version).
  ValueId read(const ArrayValue& array);
  /// In-place: the array's elements become `value` (same dtype and shape); moves the storage to a new version.
  void write(ArrayValue& array, ValueId value);
  void write_itself(ArrayValue& array);
  /// A moment of the trace, for questions about what was written since.
  struct Mark {
    std::size_t writes;
    std::uint64_t values;
  };
  Mark mark() const;
  /// Whether anything that was there at the mark has been written. A call that has and then can't go on is not tried in another way: it
  /// would write twice.
  bool written_since(const Mark& mark) const;
  /// The row-major positions at which a bool value is true, i64[n], n being a size that depends on data; one value per mask.
  ValueId positions(ValueId mask);
  /// A new array made by an operation, contents `value`, with strides (default contiguous).
  std::shared_ptr<ArrayValue> new_array(Library library, ValueId value, std::optional<Strides> strides = std::nullopt);
  /// A view of `base` made by one more step.
  std::shared_ptr<ArrayValue> new_view(const std::shared_ptr<ArrayValue>& base, ViewStep step, Dims shape, Strides strides,
                                       SymDim offset);
  /// What the library's own function returns, run as a node of the graph: see extern_call in ops.def. Breaks with
  /// UnsupportedOperation, having written nothing, if it can't be predicted.
  V extern_call(const V& callable, const std::vector<V>& positional, const std::vector<std::pair<std::string, V>>& keywords);
  /// A function of a library whose derivative is a rule of its own. The result is the last node's.
  void composite(CompositeRule rule, std::vector<ValueId> operands, ValueId result, std::vector<ValueId> kept = {}, Attrs attrs = {});
  /// torch saves these of the operation that has made `result`, whether or not the rule here reads them.
  void also_saves(ValueId result, std::vector<ValueId> values);
  /// The value is inside one function of the library: see Copies.
  void note_inner(ValueId value);
  /// The trace relies on torch's modes.
  void note_torch();
  /// Whether a gradient would flow back through the array (or value).
  bool requires_gradient(const ArrayValue& array);
  bool requires_gradient(ValueId value);

  /// Where what is being made will be: with the operands of the function that is being traced (DeviceScope).
  int device() const;
  /// A function that makes an array of no other was told where.
  void make_on(int device);

  /// The value, where `holds`; else the program fails and the piece runs in CPython.
  ValueId checked(ValueId value, ValueId holds);
  /// The whole part of a number is asked for (whole_parts.cpp).
  void round_as_library(const V& number);
  void round_as_library(ValueId number);
  /// A Python number that the program computes: the one element of the array.
  V number(const ArrayValue& array);
  /// What torch.autograd.backward does, or (grad) torch.autograd.grad.
  struct Backward {
    std::vector<V> results, cotangents;          // as many; None or null: 1
    bool retain = false;
    bool only_inputs = false;
    std::vector<V> inputs;                       // of only_inputs
  };
  void backward(const Backward& call);
  std::vector<V> grad(const Backward& call);     // None for an input that no result depends on
  /// The fields of tensors that autograd has.
  V gradient_field(const V& tensor);
  bool is_leaf(const V& tensor);

  void attach(class TracerImpl* impl) { impl_ = impl; }

 private:
  friend class DeviceScope;
  friend class LibraryChoice;
  class TracerImpl* impl_ = nullptr;
};

/// While a function of an array library is traced: what it makes is where its operands are. They are all on one device, but for tensors of no
/// dimensions in the host's memory, which torch takes beside those of any device; else the graph breaks, and the library says what is wrong.
class DeviceScope {
 public:
  DeviceScope(Tracer& tracer, std::span<const V> operands, std::span<const std::pair<std::string, V>> keywords = {});
  DeviceScope(Tracer& tracer, std::initializer_list<V> operands) : DeviceScope(tracer, std::span(operands.begin(), operands.size())) {}
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;

 private:
  class TracerImpl& impl_;
  int device_;
  bool of_arrays_;
};

struct TraceResult {
  std::unique_ptr<Segment> segment;            // never null
  std::string internal_error;                  // set if the tracer itself failed: the segment is a Handover at its start
};

/// Traces from a live state. The program is not compiled yet.
TraceResult trace(const TraceRequest& request);

}  // namespace fj
