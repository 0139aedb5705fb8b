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
  void load_attribute(Frame& frame, const V& owner, PyObject* name);
  [[noreturn]] void raise_no_attribute(const V& owner, PyObject* name);
  void check_limits();

  // ---- calls (inline_call.cpp, calls.cpp)
  V make_torch_leaf(const V& callable, PyObject* object, const std::vector<V>& positional, const Keywords& keywords);
  V call_object(const V& callable, PyObject* object, std::vector<V> positional, Keywords keywords);
  V call_numpy_implementation(const V& callable, PyObject* object, const std::vector<V>& positional, const Keywords& keywords);
  V call_without_row(const V& callable, PyObject* object, std::vector<V> positional, Keywords keywords);
  V bound_to(ObjectValue& method);
  V call_builtin_method(BuiltinValue& method, std::vector<V> positional, Keywords keywords);
  V call_module(const V& module, std::vector<V> positional, Keywords keywords);
  V call_type(const V& callable, PyTypeObject* type, std::vector<V> positional, Keywords keywords);
  V make_partial(PyTypeObject* type, const std::vector<V>& positional, Keywords keywords);

  // ---- modes (modes.cpp). Null: something else.
  V make_mode(const V& callable, PyTypeObject* type, std::vector<V>& positional, Keywords& keywords);
  V make_errstate(const Keywords& keywords);
  V call_mode_function(PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
  V call_mode_method(const V& owner, const std::string& name);
  /// Its __enter__ and __exit__ are known here, whatever code they are.
  static bool mode_is_known(const InstanceValue& instance);
  V call_context_variable(const V& owner, const std::string& name, const std::vector<V>& positional);
  /// A call of a generator's method, with the generator as its first argument, and the numbers that it draws.
  ExternCall drawing_call(const std::string& name, PyObject* method, ObjectValue& generator);
  ValueId draw(ExternCall call, DType dtype, const Dims& shape);
  /// A method of NumPy's generators (numpy_random.cpp): see is_random_method.
  V call_random(PyObject* callable, std::vector<V> positional, const Keywords& keywords);
  /// A method of random.Random (python_random.cpp): see is_python_random_method. Null: of an object of another class.
  V call_python_random(PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
  /// A function of torch.distributed as a node (collectives.cpp); null: none, or not with these arguments.
  V call_collective(const V& callable, PyObject* object, const std::vector<V>& positional, const Keywords& keywords);
  /// At an exit: throws CannotRebuildValue if a mode is not what it was outside.
  void refuse_open_modes();
  /// Whether code that ran outside now would run under other modes than the trace.
  bool modes_changed() const;
  AutocastState autocast;

  // ---- warnings.catch_warnings() and its filters (warning_filters.cpp)
  struct WarningFilter {
    std::string action;
    Ref<> category;
    bool conditional = false;        // for some messages or places only
  };
  V make_warning_context(PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
  void enter_warning_context(const InstanceValue& context);
  void leave_warning_context(const InstanceValue& context);
  V call_warnings_function(PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
  /// Inside of such a `with`: code that may warn can't be part of the trace.
  bool filters_warnings() const { return !warning_contexts_.empty(); }
  /// `warnings.filters` in such a `with`: what is there is not what the program set.
  void refuse_warning_filters(PyObject* module, PyObject* name, bool written);
  int warnings_changed_at = 0;
  std::vector<std::pair<Ref<>, V>> context_values;        // what context variables were set to; null: as outside
  int context_changed_at = 0;
  int inference_read_at = -1;                             // the first step that read an inference tensor outside of inference mode

  // ---- classes (values/classes/classes.cpp)
  V new_instance(PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
  V make_instance(PyTypeObject* type, std::vector<V> positional, Keywords keywords);
  V make_named_tuple(PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
  V object_method(const V& owner, const std::string& name, std::vector<V>& positional, Keywords& keywords);
  V bound_method(const V& function, const V& self);

  // ---- the class statement (values/classes/class_statement.cpp)
  V build_class(const std::vector<V>& positional, const Keywords& keywords);
  V make_class(const std::string& name, const std::vector<V>& bases, const std::vector<std::pair<Ref<>, V>>& members);
  /// property(f) and the like of functions made in the trace; null: something else.
  V make_class_wrapper(PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
  /// A real function in the place of one of the trace, for namespaces of classes made here.
  Ref<> stand_in(FunctionValue& function, const V& value);
  /// The step at which this class (or descriptor) was made in the trace.
  std::optional<int> made_class_at(PyObject* object) const;

  V inline_function(PyCodeObject* code, PyObject* globals, const std::vector<V>& defaults,
                    const std::vector<std::pair<std::string, V>>& kwdefaults, std::vector<V> closure, const char* name,
                    std::vector<V> positional, Keywords keywords);
  void guard_code(SourceRef source, PyFunctionObject* function);
  V inline_python_function(const V& function, PyFunctionObject* object, std::vector<V> positional, Keywords keywords);
  V inline_made_function(FunctionValue& function, std::vector<V> positional, Keywords keywords);

  // ---- exceptions (exceptions.cpp)
  std::vector<V> handling;           // exceptions whose handlers run, innermost last
  int catching = 0;                  // builtins that catch what they call
  bool can_catch() const;
  /// To a handler that is part of the trace, or a break for `reason`.
  [[noreturn]] void raise(const V& exception, BreakReason reason, const std::string& detail);
  [[noreturn]] void raise(PyObject* type, std::vector<V> arguments, BreakReason reason, const std::string& detail);
  void raise_instruction(Frame& frame, int arguments);
  /// The Python error that is set, which a function called on constants has raised.
  [[noreturn]] void raise_python_error();
  bool handle(Frame& frame, const FjInstr& instr, const RaisedInTrace& raised);
  /// The instructions of handlers; false: not of an exception raised in the trace.
  bool handler_instruction(Frame& frame, const FjInstr& instr);
  V make_exception(PyTypeObject* type, std::vector<V> positional, Keywords keywords);
  void set_cause(InstanceValue& exception, const V& cause);
  void set_context(InstanceValue& exception, const V& context);
  /// Attributes that BaseException and StopIteration have in C; not engaged: an attribute like any other.
  std::optional<V> exception_attribute(InstanceValue& exception, const std::string& name);
  /// Its cause, context and traceback; false: an attribute like any other.
  bool set_exception_attribute(const V& owner, const std::string& name, const V& value);
  V exception_info();                // of sys.exc_info()
  /// What `call` returns, or null if it raises StopIteration (then `stopped_with` is its value) or `other`.
  template <class Call>
  V catch_stop_iteration(Call call, PyObject* other = nullptr) {
    ++catching;
    struct Restore {
      int& catching;
      ~Restore() { --catching; }
    } restore{catching};
    try {
      return call();
    } catch (const RaisedInTrace& raised) {
      if (!is_stop(raised.exception, other)) throw;
      return nullptr;
    }
  }
  bool is_stop(const V& exception, PyObject* other);

  // ---- generators (values/generators.cpp)
  std::vector<std::shared_ptr<IteratorValue>> generators;  // made in the trace
  V stopped_with;                    // value of the StopIteration that ended the last `next`
  V make_generator(std::shared_ptr<Frame> frame);
  /// Until it yields; null when it has returned. `thrown` (or null) is raised where it stands, else `sent` is delivered.
  V resume_generator(IteratorValue& generator, const V& sent, const V& thrown);
  void send_instruction(Frame& frame, const FjInstr& instr);
  V stop_iteration_error(const V& exception);
  /// Whether Python would do nothing when the generator is dropped where it stands.
  bool may_be_abandoned(const IteratorValue& generator) const;
  V iterator_method(const V& owner, const std::string& name, std::vector<V>& positional);
  V next_or_raise(const V& iterator);

  // ---- values from outside (values/outside_objects.cpp)
  V wrap_array(PyObject* object, SourceRef source);
  SymbolId size_symbol(const DynamicAxis& mark, std::int64_t size);
  V wrap_constant(PyObject* object); // held by the segment: class attributes, constants of the code
  /// Guards that the value is exactly the object it was while tracing, by equality or identity. False: not such a value.
  bool guard_value(ObjectValue& value);
  void guard_type(ObjectValue& value);
  void add_guard(GuardKind kind, SourceRef source, PyObject* object = nullptr, std::int64_t number = 0);
  void add_guard(Guard guard);
  /// len() of a str or bytes from outside without looking at what is in it; null: not such a value.
  V string_length(const V& value);
  /// len() of a list from outside without looking at its items; null: they have been looked at.
  V unopened_length(const V& value);
  /// The length of what is there, once it has changed a symbol.
  SymDim bound_length(SourceRef source, Py_ssize_t size);
  /// True if two strings differ, and only that is guarded.
  bool strings_differ(const V& a, const V& b);
  bool object_truth(const V& value);
  bool same_object(const V& a, const V& b);
  Ref<> keep(Ref<> object) { kept_.push_back(object); return object; }

  // ---- attributes of classes that traced code assigns (values/classes/class_variables.cpp)
  /// Null: the class has none of this name, or nobody assigns it.
  V class_variable(PyTypeObject* type, PyObject* name);
  void set_class_variable(const V& owner, PyTypeObject* type, PyObject* name, const V& value);
  /// Breaks if the trace has assigned an attribute of the class or of a base: the real ones do not have it yet.
  void refuse_assigned_class(PyTypeObject* type);
  bool assigned_classes() const { return !class_variables_.empty(); }

  // ---- attributes (values/classes/attributes.cpp, attribute_writes.cpp)
  /// Null if there is no such attribute (guarded).
  V find_attribute(const V& owner, PyObject* name);
  /// By the class's __getattribute__ and __getattr__, if it has them.
  V class_attribute_rules(const V& owner, PyObject* name);
  /// As object.__getattribute__ does: of an Object or Instance.
  V attribute_by_default(const V& owner, PyObject* name);
  V object_attribute(const V& owner, ObjectValue& value, PyObject* name);
  V cached_property(const V& owner, PyObject* property, PyObject* name);
  /// The __dict__ of an object from outside: from now on attributes of that object are its items.
  V outside_dict(const V& owner, ObjectValue& value, PyObject* members);
  void adopt_writes(const V& dict, PyObject* real);
  V type_attribute(const V& owner, PyTypeObject* type, PyObject* name);
  V attribute_of_class(PyObject* found, const V& owner, PyTypeObject* type);
  V super_attribute(SuperValue& super, PyObject* name);
  V module_member(const V& owner, ObjectValue& value, PyObject* name);
  /// An attribute found in the class: bound to `self` as its kind says.
  V bind_class_attribute(PyObject* found, const V& self, PyTypeObject* type);
  void set_attribute(const V& owner, PyObject* name, const V& value);
  /// As object.__setattr__ does; a null value deletes.
  void store_attribute(const V& owner, PyObject* name, const V& value);
  void store_in_module(ObjectValue& module, PyObject* name, const V& value);
  bool plain_module_store(const V& owner, ObjectValue& object, PyObject* setter, PyObject* name, const V& value);
  [[noreturn]] void refuse_attribute(const V& owner, PyObject* name, const std::string& message);
  void delete_attribute(const V& owner, PyObject* name);
  /// What the class or its bases have under a name, null if nothing; either is guarded.
  PyObject* class_attribute(PyTypeObject* type, PyObject* name);
  /// The class's bases are relied on.
  void guard_bases(PyTypeObject* type);
  /// Nothing at all of the class may change. Costs a trace for each write to it: name what counts instead.
  void guard_type_version(PyTypeObject* type);

  // ---- globals, cells
  V load_global(Frame& frame, PyObject* name);
  [[noreturn]] void raise_undefined(PyObject* name);
  SourceRef globals_source(PyObject* globals);
  /// The Value of the dict at `place`, if the trace knows it as one: all that names its items goes by it. Null: it was never
  /// looked at whole.
  V known_dict(PyObject* dict, SourceRef place);
  SourceRef globals_place(const Frame& frame);
  V cell_contents(CellValue& cell);  // null: empty
  void set_cell(const V& cell, V contents);

  // ---- numbers and comparison (values/numbers/operators.cpp)
  void guard_relation(const SymDim& a, int comparison, const SymDim& b);
  /// The sum, difference or product (NB_ADD, NB_SUBTRACT, NB_MULTIPLY) of two ints as Python has it; nullopt where that can't be an
  /// int of 64 bits at each call.
  std::optional<SymDim> exact(int op, const SymDim& a, const SymDim& b);
  /// `difference (comparison) 0` for a size that depends on data: see data_dependent_sizes.cpp.
  bool decide_late(const SymDim& difference, int comparison);
  bool follow_size(const SymDim& difference, int comparison);
  std::int64_t hint(const SymDim& expression) const;
  /// The same once the classes of the operands have been asked for their Python code.
  V builtin_binary(int nb_op, const V& a, const V& b);
  V unary(int opcode, const V& a);
  V builtin_compare(int comparison, const V& a, const V& b);
  bool contains(const V& container, const V& item);
  std::optional<V> try_comparison(int comparison, const V& a, const V& b);
  struct BinaryMethods {
    const char *method, *reflected;
  };
  /// What the classes of a and b define in Python for the operator.
  std::optional<V> try_operator(const BinaryMethods& methods, bool in_place, const V& a, const V& b);
  /// `a.__add__(b)` and so on of C types; null: `name` is no operator's.
  V operator_method(const std::string& name, const V& owner, const V& other);
  static bool operator_method_known(const std::string& name);
  /// `str % value`; null: not such operands.
  V format_percent(const V& format, const V& value);
  /// A method of the class that is Python code, bound; null: the class has none, or C's.
  V python_method(const V& value, const char* name);
  bool is_python_method(PyObject* found);
  /// The int (float, str) that an object of a class derived from int is; else the value itself.
  V number_part(const V& value);
  /// The same for an operand of an array, as its library takes it.
  V array_operand(const V& value, const V& array);
  /// operator.index(value) of what has Python code for it; else as number_part.
  V index_number(const V& value);
  V hash_of(const V& value);
  /// id(value): a value of its own, good for comparing and as a key only.
  V identity_number(const V& value);
  std::optional<V> symbolic_binary(int nb_op, const V& a, const V& b);

  // ---- containers and iteration (values/containers/containers.cpp, iterators.cpp)
  /// As list() and tuple() take them: they ask for the length first.
  std::vector<V> listed_items(const V& value);
  /// iter(value), whose class is then asked how long it is.
  V make_measured_iterator(const V& value);
  void set_item(const V& container, const V& key, const V& value);
  void delete_item(const V& container, const V& key);
  V length(const V& value);
  void open(DictValue& dict);
  void open_by_place(DictValue& dict, PyObject* keys, const std::vector<std::pair<Ref<>, V>>& fetched);
  void add_to_set(SetValue& set, Ref<> item);
  V dict_find(DictValue& dict, PyObject* key);           // null: absent (guarded)
  void dict_store(const V& dict, Ref<> key, const V& value);
  bool has_plain_keys(DictValue& dict);
  /// Its place among the items; their number if it is not there. Runs __eq__ of keys.
  std::size_t dict_place(DictValue& dict, PyObject* key);
  /// Puts a value into an opened dict, or deletes the key, without a note of it.
  void dict_put(DictValue& dict, Ref<> key, const V& value);
  void dict_store_at(const V& dict, std::size_t place, Ref<> key, const V& value);
  void dict_erase(const V& dict, std::size_t place);
  std::vector<V> set_items(const SetValue& set);          // in the set's order
  [[noreturn]] void no_key(const V& key);
  void refresh_view(TupleValue& view);
  bool view_contains(TupleValue& view, const V& item);
  /// A container from outside, or what an object of a derived class is of it; null: too long, or with keys unknown here.
  V wrap_builtin(PyObject* object, SourceRef source);
  /// The List, Dict, Set, Tuple or constant that an object of a derived class is; null: it is none.
  V builtin_part(const V& value);
  /// The dict behind a types.MappingProxyType from outside; null: something else.
  V proxied_mapping(const V& value);
  V make_iterator(const V& value);
  V next(const V& iterator);                              // null: exhausted
  /// One item after the other, as a `for` loop takes them: what `body` does between two of them the iterator sees.
  template <class Body>
  void for_each(const V& value, Body body) {
    V iterator = make_iterator(value);
    while (V item = next(iterator)) {
      body(item);
      check_limits();
    }
  }
  /// Sorts as list.sort does, in place, asking for the same comparisons in the same order. If one raises, the items are left as
  /// CPython leaves them.
  void sort(std::vector<V>& items, const V& key, bool descending);
  /// The items of an operand of `**`: a dict, or what has keys() and items.
  std::vector<std::pair<V, V>> mapping_items(const V& mapping);
  std::shared_ptr<IteratorValue> iterate_sequence(const V& sequence);
  V container_method(const V& owner, const std::string& name, std::vector<V>& positional, Keywords& keywords);
  Ref<> constant_key(const V& value);                     // breaks if not a constant
  /// The same, but that a text that changes between calls need not be known: it is told from the other keys (dict_place).
  Ref<> dict_key(const V& dict, const V& value);

  // ---- arrays (values/fake_arrays.cpp)
  ValueId array_contents(const ArrayValue& array);
  /// The view it was made of, if no write has come between: torch makes the history of all views anew after one, from their base.
  static const ArrayValue* viewed_now(const ArrayValue& view);
  void ensure_input(FakeStorage& storage);
  ValueId number_input(ObjectValue& held, DType dtype);
  V scalar_float(const V& value);
  V scalar_as(ObjectValue& scalar, PyObject* function);
  void note_array(const ArrayValue& array);               // guards of the library's modes
  // ---- gradients (values/fake_arrays.cpp). Inputs need one where grad mode is on outside, and what is derived here (graph_transforms.cpp).
  /// Breaks the graph if an in-place operation that autograd records can't be one more value of it.
  void refuse_history(const ArrayValue& array, bool needed);
  bool shows_again(const FakeStorage& storage);
  /// The value as a constant of the derivative.
  ValueId stopped(ValueId value);
  /// The value, or if some array has it as its contents another one that is equal.
  ValueId apart(ValueId value);
  GradientFlow flow{*graph_};
  /// An array has got memory with these contents.
  void note_memory(ValueId contents);
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
  /// The graph works on arrays of this device; breaks if it does on another's.
  void place_graph(int device);
  /// It reads this array.
  void place_graph(const ArrayValue& array);
  int made_on = kHost;                                    // DeviceScope
  bool made_of_arrays = false;
  int scopes = 0;
  std::string refusal(int device) const;                  // TraceRequest::refusal
  std::vector<std::shared_ptr<FakeStorage>> written_inputs;  // in order of first write
  bool uses_torch = false, uses_numpy = false;
  Modes modes;
  int mode_changed_at = 0;           // the step that changed the grad or inference mode last
  const Modes& modes_outside() const { return modes_outside_; }
  /// The floating-point conditions that operations added until now may have to report.
  std::uint32_t collected_conditions();

  // ---- transformations of the graph so far (graph_transforms.cpp)
  /// What the functions of framejit/_transforms.py mean that have a marker. Null: none of these.
  V transform(const std::string& marker, const std::vector<V>& arguments);
  /// A branch on data, where these are followed: how it goes in this call.
  bool follow(const ArrayValue& array);
  /// How the next condition goes, if a run or the reference evaluator said it.
  std::optional<bool> outcome_of(ValueId condition);
  /// The value may not be used here: it belongs to one example of a function that has been batched.
  void check_example(ValueId value);
  bool depends_on_example(ValueId value);
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
  void set_gradient_field(const V& tensor, PyObject* name, const V& value);
  struct MadeLeaf {
    V tensor;
    ValueId value;
    int step;                                             // which made it
  };
  std::vector<MadeLeaf> made_leaves;
  const MadeLeaf* made_leaf(const ArrayValue& array) const;
  void refuse_made_history(ValueId value);
  /// Whether a backward through the value would meet what one in the trace has freed: eager raises there.
  bool is_freed(ValueId value);
  bool ran_backward = false;
  bool asked_compiling = false;

  // ---- results of values from outside that change between calls (values/numbers/derived_values.cpp)
  /// Whether another value has been seen there, and nothing here depends on which it is.
  bool changes(const V& value);
  /// What a pure function of C gives, as a value from outside. Null: no operand changes, or one is no plain number or text from outside.
  /// `looked_at`: more than its source will be used.
  V result_of(PyObject* function, const std::vector<V>& operands, bool looked_at = true);
  /// The same, whether or not an operand changes.
  V made_by(PyObject* function, const std::vector<V>& operands, bool looked_at = true);
  /// A method of a text, a pattern or a match, of operands that are plain. Null: not such ones.
  V text_method(const V& owner, const std::string& name, const std::vector<V>& positional, const Keywords& keywords);
  V result_of_operator(const char* name, const std::vector<V>& operands);
  V result_of_comparison(int comparison, const V& a, const V& b);
  /// What a dict from outside has under a key that changes; null: it is looked up by what the key is in this call.
  V item_of(const V& container, const V& key);
  struct Known {
    Ref<> object;
    SourceRef source = nullptr;
  };
  Known known_outside(const V& value);
  SourceRef source_of(const SymDim& expression);

  // ---- numbers that the program computes (values/numbers/computed_numbers.cpp)
  /// Of a number the program computes, or of a float that changes between calls; nothing: of neither, or not such an operator.
  std::optional<V> computed_binary(int nb_op, const V& a, const V& b);
  std::optional<V> computed_unary(int opcode, const V& a);
  std::optional<V> computed_compare(int comparison, const V& a, const V& b);
  /// Whether the back end gives back numbers that a program computes.
  bool computes_numbers() const;
  /// The number as a value from outside, where it is computed from such alone; else the value as it is.
  V settled(const V& value);
  /// float() of an int that is a symbol; null: it is none.
  V symbol_as_float(const V& value);
  /// abs and math.sqrt of such a number; null: it is none.
  V computed_function(Op op, const V& a);
  /// One of two floats by a condition that the program computes; null: it is none, or they are not both floats.
  V computed_choice(const V& condition, const V& yes, const V& no);
  /// int() and float() of a NumberValue; null: not without looking at it.
  V computed_int(const V& number);
  V computed_float(const V& number);
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
  /// Every write of the trace is noted, by the functions below if it is an effect. Null: nobody's in particular.
  void note_write(const Value* owner);
  void note_items(const V& list);                          // before they change
  void note_item(const V& owner, Ref<> key, V value);      // a null value: deleted
  void note_call(const V& owner, const char* method, Ref<> key, std::vector<V> arguments);
  void note_attribute(const V& owner, PyObject* name, const V& value);
  void note_cell(const V& cell, const V& contents);
  void note_global(PyObject* globals, PyObject* name, const V& value);
  /// What was assigned to a global in the trace. Not engaged: nothing; null: deleted.
  std::optional<V> written_global(PyObject* globals, PyObject* name);
  std::optional<V> written_attribute(const V& owner, PyObject* name);

  /// Calls of functools.lru_cache's wrappers and what they have to give, in order.
  struct Expectation {
    Ref<> callable, arguments, keywords, result;
    bool only_held = false;  // the function must not run: it would run before what the trace has written is there
    V value;                 // in place of `result`: the object that the cache holds when the guards are asked
  };
  std::vector<Expectation> expectations;
  bool expecting = false;                                 // a cached function is being traced
  /// Guards that the caches which ended the piece are still empty.
  void ask_empty_caches();
  std::vector<std::pair<Ref<>, V>> cached_results;        // of cached functions: (wrapper, arguments...) and what they gave

  // ---- exits (exit_builder.cpp)
  std::unique_ptr<Segment> build_return(const V& result);
  std::unique_ptr<Segment> build_stop(Exit exit);

  std::vector<V> tracked_values() const;                  // Values of real objects that have an identity
  std::shared_ptr<ExternTable> externs = std::make_shared<ExternTable>();

  V none_, true_, false_;
  Frame outer;
  DecodeCache& decodes;
  Learnt& learnt;

  /// The program lets go of what the slot held when the trace began. Breaks if that runs Python code.
  void let_go(int slot);

 private:
  friend class ExitBuilder;
  struct WarningContext {
    const InstanceValue* context;
    std::size_t filters;             // as many were there before
    std::uint32_t conditions;
  };
  WarningFilter read_filter(const V& action, const V& category, std::initializer_list<V> patterns, const V& line, const V& append);
  void add_filter(const WarningFilter& filter);
  PyObject* warned_category(const V& message, const V& category, const V& level);
  V warn(const std::vector<V>& positional, const Keywords& keywords);
  std::vector<WarningFilter> warning_filters_;  // the uppermost last
  std::vector<WarningContext> warning_contexts_;
  std::vector<std::pair<const InstanceValue*, WarningFilter>> warning_plans_;  // catch_warnings(action=...)
  std::vector<V> warning_values_;    // keeps their addresses
  int warning_changes_ = 0;          // of the filters, since the outermost `with` was entered
  int stop_before_;
  Modes modes_outside_;
  V outside_field(const V& tensor, PyObject* name);  // of a real tensor, that C code reads
  std::map<std::pair<const Value*, PyObject*>, V> outside_fields_;
  void ask_no_anomaly();
  V input_array(int input);
  /// By value: it is one of these, or their derivative leads to it.
  std::vector<bool> history(const std::vector<ValueId>& of);
  void refuse_overwritten(std::size_t first);
  /// What torch does to a gradient in place, whether a leaf copies it, of how many views it is, and its value before it is stopped.
  struct GradientVersion {
    int additions;
    bool copied;
    int views;  // that repeat, see Collected
    ValueId gradient;
  };
  std::vector<ValueId> pass_back(const Tracer::Backward& call, const std::vector<ValueId>& wanted, std::vector<GradientVersion>& versions);
  V repeated(ValueId gradient, int views);
  /// Values that in-place operations have replaced, and what stood for them: the number of nodes before that operation, which
  /// may read what it replaces.
  std::map<ValueId, std::size_t> overwritten() const;
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
  const DenseArray* evaluated(ValueId value);
  struct Write {
    const Value* owner;
    std::uint64_t number;            // the owner's; 0: it was there before anything else
  };
  std::unordered_map<PyObject*, V> outside_keys_;  // what keys stand for: objects from outside, tuples
  std::vector<Write> writes_;
  std::vector<bool> held_;           // slots that still hold what they held when the trace began
  std::vector<V> initial_stack_;     // what is left of it in its place
  int comparisons_ = 0;              // of each other's parts, that are under way
  PyObject* interned(PyObject* name);
  PyTypeObject* assigned_owner(PyTypeObject* type, PyObject* name);  // the class whose attribute it is, where the trace assigned it
  void guard_class_lookup(PyTypeObject* type, PyTypeObject* owner, PyObject* name);
  std::map<std::pair<const PyTypeObject*, PyObject*>, V> class_variables_;  // by class and interned name
  std::map<std::pair<const void*, PyObject*>, V> written_names_;  // (object or globals, interned name); null: deleted
  void note_class(PyTypeObject* type, PyObject* name);
  void note_descriptor(PyTypeObject* type);
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
