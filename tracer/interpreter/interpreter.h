/// The state of one trace: the symbolic interpreter, its frames and values, what it has noted. Seen by the tracer's own files only.
///
/// One TraceRun for each try. `run()` executes the outermost frame step by step; a step is one resumable
/// instruction of that frame, and the unit of rollback. Structures to know: `Frame` (one symbolic frame, the outermost or
/// an inlined callee's), `identity_` (real object -> its one Value), and the log of side effects.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arrays/marked_axes.h"
#include "cpython/cpython.h"
#include "cpython/objects.h"
#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/batch.h"
#include "graph_ir/evaluate/evaluate.h"
#include "segment/library_calls/extern_table.h"
#include "tracer/frontends/frontend.h"
#include "tracer/tracer.h"

namespace fj {

/// Decoded code objects, shared by the restarts of one trace.
class DecodeCache {
 public:
  const FjCode* get(PyCodeObject* code);

 private:
  struct Free {
    void operator()(FjCode* code) const { fj_free_code(code); }
  };
  std::unordered_map<PyCodeObject*, std::unique_ptr<FjCode, Free>> codes_;
};

/// Where a call stands: the instruction of each frame, the outermost first, and how many calls the trace has made there before it. A call that is made in
/// another way the next time changes nothing about the others.
struct CallPlace {
  std::vector<std::pair<const FjCode*, int>> frames;
  int before = 0;
  auto operator<=>(const CallPlace&) const = default;
};

/// What one run of a trace has found out for the next: TraceAgain, and restarts keep it.
struct Learnt {
  std::set<CallPlace> library_calls;  // of a row, that are the library's though the row would do (whole_parts.cpp)
  std::vector<std::pair<Ref<>, Ref<>>> empty_caches;  // functools.lru_cache's wrappers and arguments for which they hold nothing, a break as long as that is so
};

/// One symbolic frame. Slots and stack as in the real frame; a null V in `slots` is unbound.
struct Frame {
  const FjCode* code = nullptr;
  PyCodeObject* co = nullptr;
  Ref<> globals, builtins;
  std::vector<V> closure;          // cells of COPY_FREE_VARS
  std::vector<V> slots, stack;
  std::vector<bool> initial;       // outermost frame: the slot was never looked at
  int pc = 0;
  bool outermost = false;
  std::shared_ptr<DictValue> names; // of a class body: its namespace
  bool generator = false;          // an inlined generator: run until it yields
  bool finished = false;
  bool running = false;            // a generator that is being run
  V thrown;                        // a generator's: raised where it stands when it runs on
  std::vector<V> handling;         // a generator's: exceptions whose handlers it has yielded from
  int executing = 0;               // instruction being executed, for lines
};

/// Thrown when the step to stop before is reached.
struct StopReached {};

/// One change, as the program made it, of something that was there before the trace. The exit replays them in this order.
struct Effect {
  enum class Kind : std::uint8_t {
    Items,         // of a list: what it holds in the end
    Item,          // owner[key] = value of a dict (or `globals`) or deque; no value: deleted
    Call,          // method(owner, key, *arguments): C code that only acts on its owner
    Attribute,     // owner.key = value; no value: deleted
    Cell,          // its contents; no value: empty
  };
  Kind kind;
  V owner;                         // null: the dict `globals`
  Ref<> globals, key;              // key: of a dict, an element of a set, a name; null: none
  Ref<> method;                    // of the builtin type, not bound
  std::vector<V> arguments;        // the value, or what a Call is given
};

/// Modes a traced `with` changes while it lasts.
struct Modes {
  bool grad = true;
  bool inference = false;
  bool records() const { return grad && !inference; }  // what is computed has a derivative; views only inherit one
  std::uint32_t float_conditions = ~0u;  // KernelStatus bits NumPy may report, of those that are trapped outside
  std::uint32_t otherwise_reported = 0;  // of them: those an np.errstate in the trace may report by something else than a warning
};

/// torch's autocast of the CPU in this thread, which a traced `with` changes while it is traced; put back at the end of the trace.
class AutocastState {
 public:
  AutocastState() = default;
  ~AutocastState();
  AutocastState(const AutocastState&) = delete;
  /// One of torch.set_autocast_*, autocast_*_nesting.
  V call(TraceRun& tracer, PyObject* function, const std::string& name, const std::vector<V>& positional);
  bool begun() const { return begun_; }
  bool changed() const;
  /// The call runs under what is set now, if that is not what is set outside.
  void note(ExternCall& call) const;
  int changed_at = 0;  // the step that did it last

 private:
  static void set(const char* function, PyObject* value);
  bool begun_ = false;
  int nesting_ = 0;
  Ref<> enabled_, dtype_, cache_;  // outside
};

/// A Python exception on its way to a handler in the trace. The rest says how to break if it leaves the outermost frame.
struct RaisedInTrace {
  V exception;
  BreakReason reason;
  std::string detail;
  Location where;
  std::string function;
  int step;
};

class TraceRun final : public Tracer {
 public:
  TraceRun(const TraceRequest& request, DecodeCache& decodes, Learnt& learnt, int stop_before);
  ~TraceRun();

  /// Runs to the return of the outermost frame; throws StopReached or BreakGraph.
  V run();

  // ---- what front ends see (see Tracer)
  Graph& graph() const override { return *graph_; }
  GuardSet& guards() const override { return *guards_; }
  SourceTable& sources() const override { return *sources_; }
  Location location() const override;
  std::string function() const override;
  void note_asked_compiling() override { asked_compiling = true; }
  V constant(Ref<> object) override;
  V none() const override { return none_; }
  V boolean(bool value) const override { return value ? true_ : false_; }
  using Tracer::integer;
  V integer(const SymDim& value) override;
  V wrap(PyObject* object, SourceRef source) override;
  PyObject* constant_object(const V& value) override;
  Ref<> constant_object(V&& value) override;
  bool is_none(const V& value) override;
  std::optional<std::int64_t> constant_int(const V& value) override;
  std::optional<SymDim> int_expression(const V& value) override;
  std::optional<double> constant_float(const V& value) override;
  ValueId float_input(const V& value, bool always = false) override;
  V changing_scalar(const V& value, bool always = false) override;
  V scalar_index(const V& value) override;
  bool truth(const V& value) override;
  PyTypeObject* type_of(const V& value) override;
  std::vector<V> sequence_items(const V& value) override;
  bool decide(const SymDim& a, int comparison, const SymDim& b) override;
  V call(const V& callable, std::vector<V> positional, Keywords keywords = {}) override;
  V get_attribute(const V& owner, std::string_view name) override;
  V get_item(const V& container, const V& key) override;
  V binary(int nb_op, const V& a, const V& b) override;
  V compare(int comparison, const V& a, const V& b) override;
  ValueId read(const ArrayValue& array) override;
  void write(ArrayValue& array, ValueId value) override;
  void write_itself(ArrayValue& array) override;
  Mark mark() const override { return {writes_.size(), values_made}; }
  bool written_since(const Mark& mark) const override;
  ValueId positions(ValueId mask) override;
  std::shared_ptr<ArrayValue> new_array(Library library, ValueId value, std::optional<Strides> strides = std::nullopt) override;
  std::shared_ptr<ArrayValue> new_view(const std::shared_ptr<ArrayValue>& base, ViewStep step, Dims shape, Strides strides,
                                       SymDim offset) override;
  V extern_call(const V& callable, const std::vector<V>& positional, const Keywords& keywords) override;
  void composite(CompositeRule rule, std::vector<ValueId> operands, ValueId result, std::vector<ValueId> kept = {},
                 Attrs attrs = {}) override;
  void note_inner(ValueId value) override { copies.inner.insert(value); }
  void note_torch() override;
  int device() const override { return made_on; }
  void make_on(int device) override;
  ValueId checked(ValueId value, ValueId holds) override;
  void round_as_library(const V& number) override;
  void round_as_library(ValueId number) override;
  V number(const ArrayValue& array) override;
  bool requires_gradient(const ArrayValue& array) override;
  bool requires_gradient(ValueId value) override { return flow.needs(value); }
  void also_saves(ValueId result, std::vector<ValueId> values) override;
  bool make_leaf(const V& tensor) override;
  bool turn(const V& tensor, const std::function<V()>& view) override;
  void backward(const Backward& call) override;
  std::vector<V> grad(const Backward& call) override;
  V gradient_field(const V& tensor) override;
  bool is_leaf(const V& tensor) override;

  const TraceRequest& request;
  std::shared_ptr<SourceTable> sources_ = std::make_shared<SourceTable>();
  std::unique_ptr<GuardSet> guards_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();

  // ---- steps of the outermost frame (interpreter.cpp, loops in restart.cpp)
  int step = -1;                     // the one being executed
  std::vector<int> step_pc;          // instruction of each step
  std::optional<Location> break_location;
  std::string break_function;
  int instruction_count = 0;

  // ---- frames (interpreter.cpp)
  std::vector<Frame*> frames;
  V run_frame(Frame& frame);         // until return; a generator's: until yield, null when exhausted
  void execute(Frame& frame, const FjInstr& instr, std::optional<V>& result);
  bool logs_instructions = false;
  void log_instruction(const Frame& frame, const FjInstr& instr) const;
  std::string source_text() const;   // the user's line, for messages
  /// A local variable, wrapped at its first use in the outermost frame. Null: unbound.
  V& local(Frame& frame, int slot);
  void check_limits();

  // ---- calls (inline_call.cpp, calls.cpp)

  // ---- modes (modes.cpp). Null: something else.
  AutocastState autocast;

  // ---- warnings.catch_warnings() and its filters (warning_filters.cpp)
  struct WarningFilter {
    std::string action;
    Ref<> category;
    bool conditional = false;        // for some messages or places only
  };
  /// Inside of such a `with`: code that may warn can't be part of the trace.
  bool filters_warnings() const { return !warning_contexts_.empty(); }
  int warnings_changed_at = 0;
  std::vector<std::pair<Ref<>, V>> context_values;        // what context variables were set to; null: as outside
  int context_changed_at = 0;
  int inference_read_at = -1;                             // the first step that read an inference tensor outside of inference mode

  // ---- classes (values/classes/classes.cpp)

  // ---- the class statement (values/classes/class_statement.cpp)


  // ---- exceptions (exceptions.cpp)
  std::vector<V> handling;           // exceptions whose handlers run, innermost last
  int catching = 0;                  // builtins that catch what they call

  // ---- generators (values/generators.cpp)
  std::vector<std::shared_ptr<IteratorValue>> generators;  // made in the trace
  V stopped_with;                    // value of the StopIteration that ended the last `next`

  // ---- values from outside (values/outside_objects.cpp)
  Ref<> keep(Ref<> object) { kept_.push_back(object); return object; }

  // ---- attributes of classes that traced code assigns (values/classes/class_variables.cpp)
  bool assigned_classes() const { return !class_variables_.empty(); }

  // ---- attributes (values/classes/attributes.cpp, attribute_writes.cpp)

  // ---- globals, cells

  // ---- numbers and comparison (values/numbers/operators.cpp)
  struct BinaryMethods {
    const char *method, *reflected;
  };

  // ---- containers and iteration (values/containers/containers.cpp, iterators.cpp)
  // ---- arrays (values/fake_arrays.cpp)
  // ---- gradients (values/fake_arrays.cpp). Inputs need one where grad mode is on outside, and what is derived here (graph_transforms.cpp).
  GradientFlow flow{*graph_};
  Copies copies;
  AlsoSaved also_saved;
  std::vector<int> inputs_requiring_gradient;             // of the graph
  std::vector<std::shared_ptr<FakeStorage>> input_storages;
  std::vector<SourceRef> graph_inputs;                    // in order
  std::vector<bool> host_inputs;                          // by input: it is in the host's memory
  // ---- devices (devices.cpp)
  /// Where the graph's arrays are, once it is known: a program runs on one device. Numbers of the host may be among its inputs.
  std::optional<int> graph_device;
  bool on_device() const { return graph_device.value_or(kHost) != kHost; }
  int made_on = kHost;                                    // DeviceScope
  bool made_of_arrays = false;
  int scopes = 0;
  std::vector<std::shared_ptr<FakeStorage>> written_inputs;  // in order of first write
  bool uses_torch = false, uses_numpy = false;
  Modes modes;
  int mode_changed_at = 0;           // the step that changed the grad or inference mode last
  const Modes& modes_outside() const { return modes_outside_; }
  /// The floating-point conditions that operations added until now may have to report.
  std::uint32_t collected_conditions();

  // ---- transformations of the graph so far (graph_transforms.cpp)
  struct Batch {
    std::vector<Batched> examples;
    Dependence dependence;
    bool ended;                       // or left by an exception
  };
  std::vector<Batch> batches;
  /// What means something to this trace alone, and what it is: marks of what is derived by, transformed functions. No exit hands
  /// them back: a piece ends before they are made, and CPython makes real ones.
  std::unordered_map<V, const char*> only_here;
  int batch_depth = 0;                // not ended
  struct Followed {
    ValueId condition;
    bool outcome;
  };
  std::vector<Followed> followed;

  // ---- backward in the trace (backward_call.cpp)
  struct MadeLeaf {
    V tensor;
    ValueId value;
    int step;                                             // which made it
  };
  std::vector<MadeLeaf> made_leaves;
  bool ran_backward = false;
  bool asked_compiling = false;

  // ---- results of values from outside that change between calls (values/numbers/derived_values.cpp)
  struct Known {
    Ref<> object;
    SourceRef source = nullptr;
  };

  // ---- numbers that the program computes (values/numbers/computed_numbers.cpp)
  // ---- results that are rounded as the library rounds them (whole_parts.cpp)
  struct RowCall {
    CallPlace place;
    std::size_t first, last;                              // nodes
  };
  std::vector<RowCall> rounded_calls;                     // those whose results are the library's within a bound only
  std::map<CallPlace, int> row_calls;                     // how many a place (with before = 0) has seen
  int row_depth = 0;                                      // rows that call rows
  CallPlace row_call;                                     // of the outermost


  // ---- side effects (effect_log.cpp)
  std::vector<Effect> effects;       // of what came from outside, in program order
  /// Whether this one was.
  bool written_since(const Value* owner, const Mark& mark) const;

  /// Calls of functools.lru_cache's wrappers and what they have to give, in order.
  struct Expectation {
    Ref<> callable, arguments, keywords, result;
    bool only_held = false;  // the function must not run: it would run before what the trace has written is there
    V value;                 // in place of `result`: the object that the cache holds when the guards are asked
  };
  std::vector<Expectation> expectations;
  bool expecting = false;                                 // a cached function is being traced
  std::vector<std::pair<Ref<>, V>> cached_results;        // of cached functions: (wrapper, arguments...) and what they gave

  // ---- exits (exit_builder.cpp)

  std::shared_ptr<ExternTable> externs = std::make_shared<ExternTable>();

  V none_, true_, false_;
  Frame outer;
  DecodeCache& decodes;
  Learnt& learnt;

  /// The program lets go of what the slot held when the trace began. Breaks if that runs Python code.
  void let_go(int slot);

  struct WarningContext {
    const InstanceValue* context;
    std::size_t filters;             // as many were there before
    std::uint32_t conditions;
  };
  std::vector<WarningFilter> warning_filters_;  // the uppermost last
  std::vector<WarningContext> warning_contexts_;
  std::vector<std::pair<const InstanceValue*, WarningFilter>> warning_plans_;  // catch_warnings(action=...)
  std::vector<V> warning_values_;    // keeps their addresses
  int warning_changes_ = 0;          // of the filters, since the outermost `with` was entered
  int stop_before_;
  Modes modes_outside_;
  std::map<std::pair<const Value*, PyObject*>, V> outside_fields_;
  /// What torch does to a gradient in place, whether a leaf copies it, of how many views it is, and its value before it is stopped.
  struct GradientVersion {
    int additions;
    bool copied;
    int views;  // that repeat, see Collected
    ValueId gradient;
  };
  std::map<ValueId, std::size_t> overwritten_;  // contents of tensors only
  std::map<int, int> written_with_history;      // nodes before an in-place operation that autograd records: its step
  std::size_t nodes_before_instruction_ = 0;
  std::set<ValueId> freed_;          // results of operations whose derivative has been taken, and what it reads freed
  std::size_t collected_nodes_ = 0;
  std::uint32_t collected_ = 0;
  std::unordered_map<PyObject*, V> identity_;
  std::unordered_map<SourceRef, ValueId> number_inputs_;
  std::map<ValueId, ValueId> positions_;  // by mask
  struct AskedSize {
    SymDim difference;
    int comparison;
    bool answer;
  };
  std::vector<AskedSize> asked_sizes_;  // questions about sizes that depend on data which are followed
  std::set<ValueId> in_memory_;      // contents of some array
  std::unordered_map<SourceRef, SymbolId> lengths_;
  std::map<SymbolId, SourceRef> symbol_sources_;  // of symbols that guards bind
  std::unordered_map<SourceRef, V> results_;
  std::vector<Ref<>> kept_;
  std::unordered_map<std::uint32_t, DenseArray> evaluated_;  // values a followed condition is made of, as in this call
  struct Write {
    const Value* owner;
    std::uint64_t number;            // the owner's; 0: it was there before anything else
  };
  std::unordered_map<PyObject*, V> outside_keys_;  // what keys stand for: objects from outside, tuples
  std::vector<Write> writes_;
  std::vector<bool> held_;           // slots that still hold what they held when the trace began
  std::vector<V> initial_stack_;     // what is left of it in its place
  int comparisons_ = 0;              // of each other's parts, that are under way
  std::map<std::pair<const PyTypeObject*, PyObject*>, V> class_variables_;  // by class and interned name
  std::map<std::pair<const void*, PyObject*>, V> written_names_;  // (object or globals, interned name); null: deleted
  std::set<std::pair<PyTypeObject*, PyObject*>> versioned_types_;  // and the interned name; null: anything
  std::vector<RaisedInTrace> raises_;  // the first raise of each exception
  std::unordered_map<PyObject*, V> made_functions_;
  std::unordered_map<PyObject*, int> made_classes_;
  std::map<void*, V> identity_numbers_;
  std::map<std::string, SymbolId> named_sizes_;  // by the name of a Dim
  std::vector<V> identity_owners_;   // kept, so that their addresses are not used again
};

/// How the tracer treats a function of C that no library's front end has a row for: a row of builtins.def or itertools.def.
using BuiltinHandler = V (*)(TraceRun& tracer, std::vector<V>& positional, Keywords& keywords);
/// Null if the callable has no row.
BuiltinHandler find_builtin(PyObject* callable);
/// Functions without effects that may be called on constants while tracing (math.*, operator.*, str methods).
bool is_pure(PyObject* callable);
/// Calls `callable` on constants; throws BreakGraph if it raises. Null if an argument is not a constant.
V fold_call(TraceRun& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
/// The same for functions that only read their arguments and give text or a plain value: containers are given as copies,
/// objects as proxies (see values/proxies.h).
V fold_reading_call(TraceRun& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
/// Of the module operator; borrowed.
PyObject* operator_function(const char* name);
/// Members of an Enum are made once and compare by identity, or as the int or str they are.
bool is_enum_member(PyObject* object);
/// What a message calls a value: "a f32[] tensor", "an object of type Encoder".
std::string describe(const V& value);
/// Of _thread: what it protects other threads may read and change before it is taken and after it is released, so no piece may hold
/// either; each is an instruction of its own between two pieces.
bool is_lock(PyObject* object);
/// A row of numpy_random.def.
bool is_random_method(PyObject* callable);
/// A row of python_random.def.
bool is_python_random_method(PyObject* callable);
/// The same of C code: what the class has under the name, if the object is a generator of Python's; null: it is none.
PyObject* python_random_method(PyObject* object, std::string_view name);
/// torch.no_grad() and its like, np.errstate's settings, the token of a context variable: they can't be handed back half-run.
bool is_mode(const InstanceValue& instance);
/// warnings.catch_warnings
bool is_warning_context(PyTypeObject* type);

}  // namespace fj
