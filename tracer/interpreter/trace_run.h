/// The state of one trace: the symbolic interpreter, its frames and values, what it has noted. Seen by the tracer's own
/// files only.
///
/// One TraceRun for each try. `run()` executes the outermost frame step by step; a step is one resumable instruction of
/// that frame, and the unit of rollback. Structures to know: `Frame` (one symbolic frame, the outermost or an inlined
/// callee's) and the ledgers (tracer/state). Most of the interpreter is free functions that take the TraceRun: the
/// members here are what front ends see, and the instruction loop.
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
#include "segment/library_calls/extern_table.h"
#include "tracer/frontends/frontend.h"
#include "tracer/interpreter/loops.h"
#include "tracer/tracer.h"

namespace fj {

struct PassOf;

/// Decoded code objects, shared by the runs of one trace.
class DecodeCache {
 public:
  DecodeCache();
  ~DecodeCache();
  const FjCode* get(PyCodeObject* code);
  const std::vector<PassOf>& passes(const FjCode& code);
  const std::vector<Loop>& loops(const FjCode& code);

 private:
  struct Free {
    void operator()(FjCode* code) const { fj_free_code(code); }
  };
  std::unordered_map<PyCodeObject*, std::unique_ptr<FjCode, Free>> codes_;
  std::unordered_map<const FjCode*, std::vector<PassOf>> passes_;
  std::unordered_map<const FjCode*, std::vector<Loop>> loops_;
};

/// Where a call stands: the instruction of each frame, the outermost first, and how many calls the trace has made there
/// before it. A call that is made in another way the next time changes nothing about the others.
struct CallPlace {
  std::vector<std::pair<const FjCode*, int>> frames;
  int before = 0;
  auto operator<=>(const CallPlace&) const = default;
};

/// What one run of a trace has found out for the next ones (TraceAgain): every later run of the trace keeps it.
struct Learnt {
  std::set<CallPlace> library_calls;  // calls left to the library though a row would do (whole_parts.cpp)
  std::vector<std::pair<Ref<>, Ref<>>> empty_caches;  // functools.lru_cache's wrappers, and arguments for which the
                                                      // caches hold nothing: the calls break as long as that is so
  bool torch_is_compiling = false;                    // what torch's questions whether code is compiled are answered
};

/// A loop that a frame goes through pass by pass.
struct MetLoop {
  Loop loop;
  int passes = 0;
  std::size_t nodes_before = 0;  // of the first one
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
  std::vector<MetLoop> loops;
  std::map<int, std::size_t> headers;  // of loops that were met, on a way: how many branches there were before
};

/// Thrown when the step to stop before is reached.
struct StopReached {};

class EffectLog;
struct CachedCalls;
struct ClassLedger;
struct ExceptionLedger;
struct GradientLedger;
struct GraphInputs;
struct Identity;
struct ArgumentLedger;
struct ModeLedger;
struct Placement;
struct RowCalls;
struct SizeLedger;
struct TransformLedger;
struct WarningLedger;

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
  bool torch_is_compiling() override;
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
  bool copies_views() const override { return request.way != nullptr; }
  void stands_for_view(ArrayValue& copy, const ArrayValue& from) override;
  bool truth(const V& value) override;
  PyTypeObject* type_of(const V& value) override;
  std::vector<V> sequence_items(const V& value) override;
  bool decide(const SymDim& a, int comparison, const SymDim& b) override;
  bool prefers(const SymDim& a, int comparison, const SymDim& b) override;
  bool keeps_calls() const override { return request.edit && !request.only_operations; }
  bool only_operations() const override { return request.only_operations; }
  V call(const V& callable, std::vector<V> positional, Keywords keywords = {}) override;
  V call_it(const V& callable, std::vector<V> positional, Keywords keywords);  // whether it is noted or not
  V get_attribute(const V& owner, std::string_view name) override;
  V get_item(const V& container, const V& key) override;
  V binary(int nb_op, const V& a, const V& b) override;
  V compare(int comparison, const V& a, const V& b) override;
  ValueId read(const ArrayValue& array) override;
  void write(ArrayValue& array, ValueId value) override;
  void write_itself(ArrayValue& array) override;
  Mark mark() const override;
  bool written_since(const Mark& mark) const override;
  ValueId positions(ValueId mask) override;
  SymDim size_of_number(ValueId number, const SymDim& max = kLargestSize, std::int64_t guess = 64) override;
  std::shared_ptr<ArrayValue> new_array(Library library, ValueId value,
                                        std::optional<Strides> strides = std::nullopt) override;
  std::shared_ptr<ArrayValue> new_view(const std::shared_ptr<ArrayValue>& base, ViewStep step, Dims shape,
                                       Strides strides, SymDim offset) override;
  V extern_call(const V& callable, const std::vector<V>& positional, const Keywords& keywords) override;
  void composite(CompositeRule rule, std::vector<ValueId> operands, ValueId result, std::vector<ValueId> kept = {},
                 Attrs attrs = {}) override;
  void note_inner(ValueId value) override;
  void note_clone(ValueId value) override;
  void note_layout(const ArrayValue& array, const ArrayValue* result = nullptr) override;
  void note_autograd(const ArrayValue& array, AutogradFact what, bool answer) override;
  void note_stop() override;
  void note_torch() override;
  int device() const override;
  void make_on(int device) override;
  ValueId checked(ValueId value, ValueId holds) override;
  void round_as_library(const V& number) override;
  void round_as_library(ValueId number) override;
  V number(const ArrayValue& array) override;
  bool requires_gradient(const ArrayValue& array) override;
  bool requires_gradient(ValueId value) override;
  void also_saves(ValueId result, std::vector<ValueId> values) override;
  bool make_leaf(const V& tensor) override;
  V make_parameter(const V& tensor, bool requires_gradient) override;
  bool turn(const V& tensor, const std::function<V()>& view) override;
  void backward(const Backward& call) override;
  std::vector<V> grad(const Backward& call) override;
  V gradient_field(const V& tensor) override;
  bool is_leaf(const V& tensor) override;

  // ---- the interpreter
  V run_frame(Frame& frame);         // until return; a generator's: until yield, null when exhausted
  void execute(Frame& frame, const FjInstr& instr, std::optional<V>& result);
  void check_limits();
  std::string source_text() const;   // the user's line, for messages
  /// A local variable, wrapped at its first use in the outermost frame. Null: unbound.
  V& local(Frame& frame, int slot);
  /// The program lets go of what the slot held when the trace began. Breaks if that runs Python code.
  void let_go(int slot);
  /// The object lives as long as the trace.
  Ref<> keep(Ref<> object) { kept_.push_back(object); return object; }
  /// Whether this owner has been written since the mark.
  bool written_since(const Value* owner, const Mark& mark) const;
  /// The floating-point conditions that operations added until now may have to report.
  std::uint32_t collected_conditions();

  const TraceRequest& request;
  DecodeCache& decodes;
  Learnt& learnt;
  std::shared_ptr<SourceTable> sources_ = std::make_shared<SourceTable>();
  std::unique_ptr<GuardSet> guards_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::shared_ptr<ExternTable> externs = std::make_shared<ExternTable>();

  int step = -1;                     // the step of the outermost frame that is being executed
  std::vector<int> step_pc;          // instruction of each step
  Frame outer;
  std::vector<Frame*> frames;
  std::vector<std::string> modules;  // whose forwards are being inlined, by path
  std::vector<std::shared_ptr<IteratorValue>> generators;  // made in the trace
  std::optional<Location> break_location;
  std::string break_function;
  std::vector<std::string> break_calls;
  std::size_t nodes_before_instruction = 0;
  bool uses_torch = false, uses_numpy = false;
  bool told_compiled = false;        // the user's code, by framejit or by torch
  bool asked_torch = false;          // torch, whether code is compiled
  bool asked_beside_modules = false; // that, outside of the modules whose forwards are inlined
  bool unedited = false;             // the piece may be given up: not for the user's edit

  // ---- the ledgers, each with a header in tracer/state
  std::unique_ptr<Identity> identity;
  std::unique_ptr<EffectLog> effects;
  std::unique_ptr<GraphInputs> inputs;
  std::unique_ptr<GradientLedger> gradients;
  std::unique_ptr<ModeLedger> modes;
  std::unique_ptr<WarningLedger> warnings;
  std::unique_ptr<ClassLedger> classes;
  std::unique_ptr<SizeLedger> sizes;
  std::unique_ptr<TransformLedger> transforms;
  std::unique_ptr<ExceptionLedger> exceptions;
  std::unique_ptr<CachedCalls> cached;
  std::unique_ptr<Placement> placement;
  std::unique_ptr<RowCalls> rows;
  std::unique_ptr<ArgumentLedger> assumed;  // null: only graphs that are edited or kept need it
  bool meets_region = false;  // the trace ends at a loop that will be one, or at the call of a function with a loop

 private:
  friend class ExitBuilder;
  void log_instruction(const Frame& frame, const FjInstr& instr) const;
  int stop_before_;
  void look_at_loop(Frame& frame);
  bool meets_no_array() const;
  bool is_without_region(int header) const;
  void cut_long_loop(const Frame& frame, std::size_t nodes_of_a_pass);
  int instruction_count_ = 0;
  bool logs_instructions_ = false;
  V none_, true_, false_;
  std::vector<Ref<>> kept_;
  std::vector<bool> held_;           // slots that still hold what they held when the trace began
  std::vector<V> initial_stack_;     // stack entries of the start that are still in their place
  std::size_t collected_nodes_ = 0;
  std::uint32_t collected_ = 0;
};

/// The handler of a row of builtins.def or itertools.def: runs a function of C, which no library's front end has a row
/// for, on symbolic values.
using BuiltinHandler = V (*)(TraceRun& tracer, std::vector<V>& positional, Keywords& keywords);
/// Null if the callable has no row.
BuiltinHandler find_builtin(PyObject* callable);
/// Functions without effects that may be called on constants while tracing (math.*, operator.*, str methods).
bool is_pure(PyObject* callable);
/// Calls `callable` on constants; throws BreakGraph if it raises. Null if an argument is not a constant.
V fold_call(TraceRun& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
/// The same for functions that only read their arguments and give text or a plain value: containers are given as
/// copies, objects as proxies (see values/proxies.h).
V fold_reading_call(TraceRun& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
/// A function of the module operator; borrowed.
PyObject* operator_function(const char* name);
/// Whether it is a member of an Enum: made once, and compared by identity or as the int or str it is.
bool is_enum_member(PyObject* object);
/// What a message calls a value: "a f32[] tensor", "an object of type Encoder".
std::string describe(const V& value);
/// A lock of _thread. Other threads may read and change the data it protects before it is taken and after it is
/// released, so no piece may contain either: each is an instruction of its own between two pieces.
bool is_lock(PyObject* object);
/// A row of numpy_random.def.
bool is_random_method(PyObject* callable);
/// A row of python_random.def.
bool is_python_random_method(PyObject* callable);
/// For a bound method of C, its object and name: the function of the class, if the object is a generator of Python's;
/// null: another object.
PyObject* python_random_method(PyObject* object, std::string_view name);
/// Whether the instance is a mode that can't be handed back half-run: torch.no_grad() and its like, np.errstate's
/// settings, the token of a context variable.
bool is_mode(const InstanceValue& instance);
/// Whether the class is warnings.catch_warnings.
bool is_warning_context(PyTypeObject* type);

/// Whether these are the globals of a module inside one of these packages.
bool is_of_packages(PyObject* globals, std::initializer_list<std::string_view> packages);

}  // namespace fj
