/// The tracer: runs bytecode on symbolic values and returns a segment.
///
/// Tracing is deterministic and has no effect outside the tracer: side effects are logged, no array kernel runs. That
/// makes rollback simple: a break throws, `trace` chooses a step n of the outermost frame (the instruction that broke,
/// the header of a loop around it, the making of a value that can't be live at an exit), and the trace is run again
/// with the order to stop before step n, where the exit is built.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays/marked_axes.h"
#include "cpython/cpython.h"
#include "segment/break_reason.h"
#include "segment/library_calls/recorded_call.h"
#include "segment/segment.h"
#include "tracer/value.h"

namespace fj {

using Keywords = std::vector<std::pair<std::string, V>>;

/// What failed guards of earlier segments at this place have taught: leaves to generalise from the start.
struct Generalisations {
  std::vector<std::string>
      sources;  // ints that become symbols, floats that become inputs, texts that change, by Source::text()
  std::vector<std::string> lengths;            // strings whose length becomes a symbol
  std::vector<std::pair<std::string, int>> dimensions;  // sizes that become symbols: array source, axis
  std::vector<std::pair<std::string, DynamicAxis>> marks;  // as mark_dynamic's, by array source
  bool all_dynamic = false;
  bool never_dynamic = false;
  bool builtin_backend = false;  // ours: it takes a float's memory for a 0-d array, and runs the nodes of a frame in it
};

/// A loop is compiled some passes at a time as long as so many are left.
inline constexpr int kPassesOfAPiece = 16;

struct TraceRequest {
  PyThreadState* thread = nullptr;
  PyFunctionObject* function = nullptr;
  const FjCode* code = nullptr;
  int start_instruction = 0;
  FrameValues values;
  std::vector<bool> fragile;                   // by slot: what lets go of its object runs Python code (finalizers.h)
  Generalisations generalise;
  bool many = false;                           // several pieces start here already, for other values
  bool reached = false;                        // what a break calls: the user did not ask to compile this function
  int instruction_limit = 200000;
  int node_limit = 20000;
  bool cut = false;  // node_limit is the size that compiling could bear
  bool regions = false;  // loops over elements are to be left to regions (regions/loop_region.h)
  /// The piece starts at the header of a loop over a range, and is to be several of its passes.
  bool passes = false;
  /// Headers of loops that are unrolled however many passes they have.
  std::vector<int> unrolled;
  std::vector<int> without_region;  // headers of loops whose regions did not pay
  /// A branch on data does not end the graph: it is decided as the arrays of this call decide it, and the segment says
  /// so (Segment::conditions). `decisions`: the outcomes of the first branches, as a run has found them.
  bool follow = false;
  std::vector<bool> decisions;
  /// Both ways of a branch on data are to be in the graph, where that can be (branches.h). `way`: the one to trace.
  bool branches = false;
  bool copies_results = false;  // what ways return of arrays from outside may be copies, where other ways compute them
  int most_in_ways = std::numeric_limits<int>::max();  // operations, in all traces of ways together
  struct TracedWay* way = nullptr;
  /// What torch's questions whether code is compiled are answered. Not given: false as in CPython, and true if that
  /// trace breaks where the other does not.
  std::optional<bool> torch_is_compiling;
  /// Is given the piece when its graph is as captured, before derivatives are taken of it. True: the graph has been
  /// changed, all but its inputs and the types of its results.
  std::function<bool(Segment&, const GuardSet&, const SourceTable&)> edit;
  /// See Tracer::only_operations.
  bool only_operations = false;
  /// Where calls of the array libraries are to be noted; null: nowhere.
  std::vector<RecordedCall>* record = nullptr;
  /// Why programs can't work on arrays of a device; "": they can. An empty function: they can on the host's alone.
  std::function<std::string(int device)> refusal;
};

/// What code asks of an array, or of torch's modes, that decides nothing of its values by itself.
/// Stop: nothing, but a derivative ends there, if there is one.
enum class AutogradFact : std::uint8_t { RequiresGrad, IsLeaf, IsInference, GradMode, InferenceMode, Stop };

/// What the front ends see of a trace. The one implementation is TraceRun (interpreter/trace_run.h), a new object each
/// time that the trace is run.
class Tracer {
 public:
  virtual Graph& graph() const = 0;
  virtual GuardSet& guards() const = 0;
  virtual SourceTable& sources() const = 0;
  virtual Location location() const = 0;       // the user's line being traced
  virtual std::string function() const = 0;    // and the qualified name of its function
  /// What torch's questions whether code is compiled are answered in this trace; noted as asked.
  virtual bool torch_is_compiling() = 0;

  // ---- making values
  virtual V constant(Ref<> object) = 0;        // no guard needed
  virtual V none() const = 0;
  virtual V boolean(bool value) const = 0;
  static V integer(std::int64_t value);
  virtual V integer(const SymDim& value) = 0;  // constant or SymInt
  static V real(double value);
  static V string(std::string_view text);
  static V tuple(std::vector<V> items);
  static V list(std::vector<V> items);
  /// The one Value of a real object, wrapped lazily. Arrays become graph inputs when first used.
  virtual V wrap(PyObject* object, SourceRef source) = 0;

  // ---- looking at values; each adds the guards it relies on and throws BreakGraph where it can't answer
  /// The real object if the value is a constant known exactly (guards value or identity); null if it is not one.
  virtual PyObject* constant_object(const V& value) = 0;
  virtual Ref<> constant_object(V&& value) = 0;  // of a Value that may hold the only reference to it
  virtual bool is_none(const V& value) = 0;
  virtual std::optional<std::int64_t> constant_int(
      const V& value) = 0;  // bool and int; specialises a SymInt only if asked
  virtual std::optional<SymDim> int_expression(const V& value) = 0;      // int or SymInt (not bool)
  virtual std::optional<double> constant_float(const V& value) = 0;      // float only
  /// A Python float that changes between calls, or that the program computes, as a graph value f64[]; invalid for every
  /// other. `always`: also a float that has not changed yet.
  virtual ValueId float_input(const V& value, bool always = false) = 0;
  /// A NumPy scalar from outside that has changed between calls, as an array of rank 0 that the program reads. Null: no
  /// such scalar. `always`: also a scalar that has not changed yet.
  virtual V changing_scalar(const V& value, bool always = false) = 0;
  /// Python's int of a NumPy scalar of integers from outside, known by its value. Null: no such scalar.
  virtual V scalar_index(const V& value) = 0;
  virtual bool truth(const V& value) = 0;      // breaks on arrays
  virtual PyTypeObject* type_of(const V& value) = 0;
  /// Items of a tuple, list, torch.Size, range or other finite sequence.
  virtual std::vector<V> sequence_items(const V& value) = 0;
  /// Decides `a (comparison) b` now, by constants or hints, and guards the answer. comparison: Py_LT...
  virtual bool decide(const SymDim& a, int comparison, const SymDim& b) = 0;
  /// The same where the answer decides about speed alone: nothing is guarded in a graph that is captured for all sizes,
  /// and of a size that depends on data nothing is known (false).
  virtual bool prefers(const SymDim& a, int comparison, const SymDim& b) = 0;
  /// Whether users see the graph and change it: in that a call of theirs stays one where it would be many operations.
  virtual bool keeps_calls() const = 0;
  /// Whether the graph is to run where the libraries are not: whatever operations can say is no call, however slow.
  virtual bool only_operations() const = 0;

  // ---- acting on values, as the interpreter's instructions do
  virtual V call(const V& callable, std::vector<V> positional, Keywords keywords = {}) = 0;
  virtual V get_attribute(const V& owner, std::string_view name) = 0;
  virtual V get_item(const V& container, const V& key) = 0;
  virtual V binary(int nb_op, const V& a, const V& b) = 0;     // NB_ADD...; in-place forms too
  virtual V compare(int comparison, const V& a, const V& b) = 0;

  // ---- arrays
  /// Contents of an array as a graph value in its logical shape (view steps applied to the storage's current version).
  /// Breaks for arrays that no operation takes.
  virtual ValueId read(const ArrayValue& array) = 0;
  /// In-place: the array's elements become `value` (same dtype and shape); moves the storage to a new version.
  virtual void write(ArrayValue& array, ValueId value) = 0;
  /// A write that leaves the contents of a tensor made in the trace as they are, and only moves its version.
  virtual void write_itself(ArrayValue& array) = 0;
  /// A moment of the trace, for questions about what was written since.
  struct Mark {
    std::size_t writes;
    std::uint64_t values;
  };
  virtual Mark mark() const = 0;
  /// Whether anything that was there at the mark has been written: contents of containers and arrays, attributes,
  /// cells, globals, positions of iterators. A call that has written and then can't go on is not tried in another way:
  /// it would write twice.
  virtual bool written_since(const Mark& mark) const = 0;
  /// The row-major positions at which a bool value is true, i64[n], n being a size that depends on data; one value per
  /// mask.
  virtual ValueId positions(ValueId mask) = 0;
  /// A number that the program computes, i64[], as a size; of 0 to `max`, where the caller knows, and about `guess`
  /// until it is known. A number has one symbol.
  virtual SymDim size_of_number(ValueId number, const SymDim& max = kLargestSize, std::int64_t guess = 64) = 0;
  /// A new array made by an operation, contents `value`, with strides (default contiguous).
  virtual std::shared_ptr<ArrayValue> new_array(Library library, ValueId value,
                                                std::optional<Strides> strides = std::nullopt) = 0;
  /// A view of `base` made by one more step.
  virtual std::shared_ptr<ArrayValue> new_view(const std::shared_ptr<ArrayValue>& base, ViewStep step, Dims shape,
                                               Strides strides, SymDim offset) = 0;
  /// What the library's own function returns, run as a node of the graph: see extern_call in ops.def. Breaks with
  /// UnsupportedOperation, having written nothing, if it can't be predicted.
  virtual V extern_call(const V& callable, const std::vector<V>& positional, const Keywords& keywords) = 0;
  /// A function of a library whose derivative is a rule of its own. The result is the last node's.
  virtual void composite(CompositeRule rule, std::vector<ValueId> operands, ValueId result,
                         std::vector<ValueId> kept = {}, Attrs attrs = {}) = 0;
  /// Where several ways through the function are joined a place that is computed is no size, by which a view could
  /// begin: a view there is a copy, which `stands_for_view`: neither it nor what it is `from` may be written, nor it
  /// handed out.
  virtual bool copies_views() const = 0;
  virtual void stands_for_view(ArrayValue& copy, const ArrayValue& from) = 0;
  /// The value is inside one function of the library: see Copies.
  virtual void note_inner(ValueId value) = 0;
  /// The value is a copy whose gradient is handed on as it is.
  virtual void note_clone(ValueId value) = 0;
  /// The trace goes on as it does because the array lies in memory as it does: the user's code sees how, or what is
  /// `result` would, in another layout, be a copy, or be none.
  virtual void note_layout(const ArrayValue& array, const ArrayValue* result = nullptr) = 0;
  /// The user's code sees this of the array, which is so.
  virtual void note_autograd(const ArrayValue& array, AutogradFact what, bool answer) = 0;
  /// A derivative ends here, if there is one: of arguments that require a gradient.
  virtual void note_stop() = 0;
  /// The trace relies on torch's modes.
  virtual void note_torch() = 0;

  /// The device of the arrays made now: that of the operands of the function being traced (DeviceScope).
  virtual int device() const = 0;
  /// The user has named the device, to a function that makes an array from no other.
  virtual void make_on(int device) = 0;

  // ---- numbers that the program computes
  /// The value, where `holds` is true; else the program fails and the piece runs in CPython.
  virtual ValueId checked(ValueId value, ValueId holds) = 0;
  /// The number is asked for its whole part, where the last bit may decide: the sums and the like that it is computed
  /// from become calls of the library, and the trace begins again (whole_parts.cpp).
  virtual void round_as_library(const V& number) = 0;
  virtual void round_as_library(ValueId number) = 0;
  /// A Python number that the program computes: the one element of the array.
  virtual V number(const ArrayValue& array) = 0;

  // ---- gradients
  /// Whether a gradient would flow back through the array (or value).
  virtual bool requires_gradient(const ArrayValue& array) = 0;
  virtual bool requires_gradient(ValueId value) = 0;
  /// torch saves these values for the derivative of the operation that has made `result`; the rule here may not read
  /// them.
  virtual void also_saves(ValueId result, std::vector<ValueId> values) = 0;
  /// requires_grad_() of a tensor made in the trace that nobody has seen a part of: its contents are a variable of
  /// their own from here on. False: no such tensor. The leaf may leave the trace, or what is computed from it may, less
  /// the part of its history that begins there.
  virtual bool make_leaf(const V& tensor) = 0;
  /// torch.nn.Parameter of such a tensor, which is read and written no more. Null: no such tensor. A Parameter stays in
  /// the trace: one that is to leave it is torch's to make.
  virtual V make_parameter(const V& tensor, bool requires_gradient) = 0;
  /// t_() and its like: a tensor made in the trace, whose memory nobody else has, gets the sizes and strides of a view
  /// of all of it. False: no such tensor.
  virtual bool turn(const V& tensor, const std::function<V()>& view) = 0;
  /// What torch.autograd.backward does, or (grad) torch.autograd.grad.
  struct Backward {
    std::vector<V> results, cotangents;          // as many; None or null: 1
    bool retain = false;
    bool only_inputs = false;
    std::vector<V> inputs;                       // of only_inputs
  };
  virtual void backward(const Backward& call) = 0;
  virtual std::vector<V> grad(const Backward& call) = 0;     // None for an input that no result depends on
  /// The fields of tensors that autograd has.
  virtual V gradient_field(const V& tensor) = 0;
  virtual bool is_leaf(const V& tensor) = 0;

 protected:
  ~Tracer() = default;
};

/// While a function of an array library is traced: its results are where its operands are. They are all on one device,
/// but for tensors of no dimensions in the host's memory, which torch takes beside those of any device; else the graph
/// breaks, and the library says what is wrong.
class DeviceScope {
 public:
  DeviceScope(Tracer& tracer, std::span<const V> operands, std::span<const std::pair<std::string, V>> keywords = {});
  DeviceScope(Tracer& tracer, std::initializer_list<V> operands)
      : DeviceScope(tracer, std::span(operands.begin(), operands.size())) {}
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;

 private:
  class TraceRun& run_;
  int device_;
  bool of_arrays_;
};

struct TraceResult {
  std::unique_ptr<Segment> segment;            // never null
  std::string internal_error;  // set if the tracer itself failed: the segment is a Handover at its start
};

/// Traces from a live state. The program is not compiled yet.
TraceResult trace(const TraceRequest& request);

}  // namespace fj
