/// Extern nodes: an array library's own function run inside the program.
///
/// What comes back is predicted (extern_prediction.h), and checked at each run. With sizes that are symbols the
/// prediction is made for the sizes of now and for others near them, and the results' sizes are fitted to those
/// (fitted_sizes.h): again a prediction that each run checks. Start reading at ExternBuilder::run.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "runtime/base/error.h"
#include "segment/autograd/extern_derivative.h"
#include "segment/library_calls/extern_schema.h"
#include "tracer/frontends/builders.h"
#include "tracer/frontends/numpy/calls.h"
#include "tracer/frontends/torch/torch.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/calls.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/library_calls/fitted_sizes.h"
#include "tracer/modes/devices.h"
#include "tracer/nesting.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/modes.h"
#include "tracer/state/placement.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/state/warning_ledger.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/size_ranges.h"

namespace fj {

namespace {

/// Gives up on one call: another way to run it exists.
[[noreturn]] void give_up(const std::string& what) { break_graph(BreakReason::UnsupportedOperation, what); }

class ExternBuilder {
 public:
  /// `declared`: it is a node of framejit.library_function, of arrays of this library.
  ExternBuilder(TraceRun& tracer, const V& callable, std::optional<Library> declared) : t_(tracer) {
    call_.callable = as<ObjectValue>(callable)->object;
    Ref<> name = Ref<>::steal(PyObject_GetAttrString(call_.callable.get(), "__name__"));
    if (!name) PyErr_Clear();
    static const NumpyCall any_function{{}, false, true, nullptr};
    numpy_ = !declared                     ? find_numpy_call(call_.callable.get())
             : declared == Library::Numpy ? &any_function
                                           : nullptr;
    ufunc_ = call_.callable;
    if (declared) {
      declared_ = call_.callable;
      call_.library = *declared;
      call_.stacked = true;
    } else if (numpy_) {
      call_.library = Library::Numpy;
      call_.callable = numpy_->function;
    } else {
      call_.name = torch_operator_name(call_.callable.get());
    }
    if (call_.name.empty())
      call_.name = name ? text_of(name.get()) : std::string(Py_TYPE(call_.callable.get())->tp_name);
    const Location where = t_.location();
    call_.place = where.file + ":" + std::to_string(where.line) + ":";
    if (numpy_) return;
    call_.grad = t_.modes->now.grad;
    call_.inference = t_.modes->now.inference && !t_.modes->outside.inference;
    t_.modes->autocast.note(call_);
  }

  V run(const std::vector<V>& positional, const Keywords& keywords);

 private:
  ExternArgument argument(const V& value);
  ExternArgument size(const SymDim& expression);
  SymDim number_as_size(ValueId contents);
  void refuse_special_numbers();
  void guard_special_numbers();
  void note_kind(const char* kind, int rank) {
    Ref<> made = kind ? Ref<>::steal(PyUnicode_FromString(kind)) : Ref<>::steal(PyLong_FromLong(rank));
    FJ_CHECK(made && PyList_Append(kinds_.get(), made.get()) == 0, "no memory");
  }
  void prepare_declared();
  void prepare_numpy();
  Strides layout_given(const ArrayValue& array) const;
  void write_numpy(const ExternArgument& argument);
  V view_of_new(ValueId value, const ExternResult& result);
  SymDim offset_as(const ArrayValue& base, DType dtype);
  std::vector<ExternArray> operand_arrays(std::span<const std::int64_t> symbols) const;
  const Prediction& predicted(std::span<const std::int64_t> symbols) {
    return predict(call_, operand_arrays(symbols), symbols);
  }
  void refuse_places();
  /// The argument for a parameter; null: its default.
  const ExternArgument* given(const ExternParameter& parameter) const;
  void find_mutated(const Prediction& prediction);
  /// Sizes and strides of every result as expressions over the graph's symbols.
  std::vector<ExternResult> results_of(const Prediction& now);
  V build(const ExternStructure& structure, const std::vector<V>& arrays) const;
  void add_derivatives(std::size_t returned, const std::vector<ValueId>& values);
  void record();
  void add_pullbacks(const std::vector<V>& positional, const std::vector<ValueId>& values);

  TraceRun& t_;
  ExternCall call_;
  std::vector<ValueId> operands_;
  std::vector<std::shared_ptr<ArrayValue>> operand_values_;
  std::vector<std::optional<Dims>> operand_strides_;
  std::vector<std::int64_t> derived_;  // operands that torch would derive by, where it records
  bool requires_grad_ = false;
  bool symbolic_ = false;
  bool late_ = false;
  std::vector<std::pair<SymbolId, std::int64_t>> numbers_;  // that are computed: their symbols, at the number 0
  const NumpyCall* numpy_ = nullptr;
  Ref<> ufunc_;  // the function of NumPy as the program has it
  Ref<> declared_;  // a node of framejit.library_function
  Ref<> kinds_ = Ref<>::steal(PyList_New(0));  // of its arrays, as its Python code takes them
};

bool is_dense(const ArrayValue& array, TraceRun& t);

/// How an operand lies in the memory it is given in. What has gaps or overlaps, or runs backwards, NumPy's functions
/// are given as a copy with the axes in the same order, which is how they lay their results out.
Strides ExternBuilder::layout_given(const ArrayValue& array) const {
  if (!numpy_ || is_dense(array, t_)) return array.strides;
  if (std::any_of(array.strides.begin(), array.strides.end(),
                  [&](const SymDim& stride) { return t_.decide(stride, Py_EQ, 0); }))
    give_up("`" + call_.name + "` of an array that shows elements more than once");
  return numpy_sorted_strides(t_, {array.shape, array.strides});
}

ExternArgument ExternBuilder::size(const SymDim& expression) {
  ExternArgument result;
  result.kind = ExternArgument::Kind::Size;
  result.expression = expression;
  late_ = late_ || t_.graph().is_late(expression);
  symbolic_ = true;
  return result;
}

/// A number that the program computes, where torch takes an int: a size, and the program fails where it is negative; or
/// how far such a size lies above the least number.
SymDim ExternBuilder::number_as_size(ValueId contents) {
  constexpr std::int64_t kGuess = 2;  // what it may be is often bounded
  constexpr std::int64_t kLowest = -(std::int64_t(1) << 32);
  const std::int64_t least = extern_effects(call_.name).signed_numbers ? kLowest : 0;
  const ValueId above = least == 0 ? contents : pointwise(t_, Op::sub, {contents, constant(t_, DType::I64, least)});
  const SymDim size = t_.size_of_number(above, kLargestSize, kGuess - least);
  for (SymbolId symbol : size.symbols()) numbers_.emplace_back(symbol, -least);
  return size + SymDim(least);
}

/// Some functions have no derivative at special numbers (a norm of order 0): breaks where torch's derivative is another
/// one at 0 or 1 than at the guess.
void ExternBuilder::refuse_special_numbers() {
  const std::vector<std::int64_t> hints = symbol_hints(t_.graph().symbols);
  const ExternSaved now = saved_by(call_, operand_arrays(hints), hints, derived_);
  for (auto [symbol, zero] : numbers_)
    for (std::int64_t number : {0, 1}) {
      std::vector<std::int64_t> symbols = hints;
      symbols[symbol.index] = zero + number;
      if (!predicted(symbols).refusal.empty()) continue;
      const ExternSaved& other = saved_by(call_, operand_arrays(symbols), symbols, derived_);
      const bool reads_no_more = std::equal(
          now.operands.begin(), now.operands.end(), other.operands.begin(), other.operands.end(),
          [](auto one, auto two) { return one != ExternSaved::Unread || two == ExternSaved::Unread; });
      if (other.paths != now.paths || !reads_no_more)
        break_graph(BreakReason::Gradient, "`" + call_.name + "` of a number that decides whether it has a derivative");
    }
}

void for_each_argument(ExternArgument& argument, const std::function<void(ExternArgument&)>& visit) {
  visit(argument);
  for (ExternArgument& item : argument.items) for_each_argument(item, visit);
}

bool same_derivative(const ExternSaved& one, const ExternSaved& other) {
  return one.operands == other.operands && one.results == other.results && one.any == other.any &&
         one.paths == other.paths;
}

/// The same for ints that are arguments of the traced function: torch's derivative of a power is another one at 0, at 1
/// and below, and what it reads is asked for once. The number is guarded to stay on its side; and a size of 0 or 1 to
/// stay where others have another derivative, as that of `ormqr` without elements is none.
void ExternBuilder::guard_special_numbers() {
  const std::vector<std::int64_t> hints = symbol_hints(t_.graph().symbols);
  const std::vector<ExternArray> arrays = operand_arrays(hints);
  const ExternSaved now = saved_by(call_, arrays, hints, derived_);
  ExternCall probe = call_;
  const auto guard = [&](ExternArgument& argument) {
    const SymDim number = argument.expression;
    if (argument.kind != ExternArgument::Kind::Size || number.is_constant() || t_.graph().is_late(number)) return;
    const std::int64_t hint = number.evaluate(hints);
    const auto differs_at = [&](std::int64_t other) {
      argument.expression = SymDim(other);
      const bool differs = predict(probe, arrays, hints).refusal.empty() &&
                           !same_derivative(now, saved_by(probe, arrays, hints, derived_));
      argument.expression = number;
      return differs;
    };
    const bool special = hint >= -1 && hint <= 1;
    if (special && (differs_at(-2) || differs_at(2) || differs_at(3))) {
      t_.decide(number, Py_EQ, hint);
      return;
    }
    const bool sign_counts = differs_at(hint < 0 ? 2 : -2);
    if (sign_counts) t_.decide(number, Py_LT, 0);
    for (std::int64_t other : {-1, 0, 1})
      if (!(sign_counts && (other < 0) != (hint < 0)) && differs_at(other)) t_.decide(number, Py_EQ, other);
  };
  for (ExternArgument& given : probe.positional) for_each_argument(given, guard);
  for (auto& [name, given] : probe.keywords) for_each_argument(given, guard);

  const auto differs_with = [&](const std::vector<std::int64_t>& symbols) {
    return predicted(symbols).refusal.empty() &&
           !same_derivative(now, saved_by(call_, operand_arrays(symbols), symbols, derived_));
  };
  std::set<SymbolId> small;
  for (const auto& value : operand_values_)
    for (const SymDim& size : value->shape)
      for (SymbolId symbol : size.symbols())
        if (hints[symbol.index] <= 1 && !t_.graph().is_late(SymDim(symbol))) small.insert(symbol);
  // Sizes that have to agree are changed together.
  for (std::int64_t other : {2, 3}) {
    std::vector<std::int64_t> all = hints;
    for (SymbolId symbol : small) all[symbol.index] = other;
    bool differs = !small.empty() && differs_with(all);
    for (SymbolId symbol : small) {
      std::vector<std::int64_t> symbols = hints;
      symbols[symbol.index] = other;
      differs = differs || differs_with(symbols);
    }
    if (!differs) continue;
    for (SymbolId symbol : small) t_.decide(SymDim(symbol), Py_EQ, hints[symbol.index]);
    return;
  }
}

ExternArgument ExternBuilder::argument(const V& value) {
  const Nesting nesting;
  ExternArgument result;
  switch (value->kind) {
    case ValueKind::Array: {
      auto array = std::static_pointer_cast<ArrayValue>(value);
      if (array->library != call_.library) give_up("`" + call_.name + "` of another library's array");
      if (array->storage->device != t_.placement->made_on)
        give_up("`" + call_.name + "` of a number of " + device_text(array->storage->device) + " beside tensors of " +
                device_text(t_.placement->made_on));
      // Universal functions take an array of rank 0 for the scalar it is given as.
      if (declared_)
        note_kind(array->numpy_scalar ? "scalar" : nullptr, array->rank());
      else if (array->numpy_scalar && std::strcmp(Py_TYPE(call_.callable.get())->tp_name, "numpy.ufunc"))
        give_up("`" + call_.name + "` of a NumPy scalar");
      result.kind = ExternArgument::Kind::Operand;
      // One array given twice is one operand: the function may look at that.
      const auto known = std::find(operand_values_.begin(), operand_values_.end(), array);
      result.index = int(known - operand_values_.begin());
      if (known != operand_values_.end()) return result;
      requires_grad_ = requires_grad_ || t_.requires_gradient(*array);
      for (const Dims* dims : {&array->shape, &array->strides})
        for (const SymDim& size : *dims) {
          symbolic_ = symbolic_ || !size.is_constant();
          if (!t_.graph().is_late(size)) continue;
          late_ = true;  // what becomes of it is fitted to sizes near the one guessed, and checked
        }
      operands_.push_back(array_contents(t_, *array));
      operand_values_.push_back(array);
      operand_strides_.push_back(layout_given(*array));
      return result;
    }
    case ValueKind::SymInt: return size(as<SymIntValue>(value)->expression);
    case ValueKind::Tuple: case ValueKind::List:
      if (auto* tuple = as<TupleValue>(value); tuple && tuple->view_of)
        give_up("`" + call_.name + "` of " + describe(value));
      // A deque, which is no list to the library.
      if (value->kind == ValueKind::List && !PyType_HasFeature(t_.type_of(value), Py_TPFLAGS_LIST_SUBCLASS))
        give_up("`" + call_.name + "` of " + describe(value));
      result.kind = value->kind == ValueKind::Tuple ? ExternArgument::Kind::Tuple : ExternArgument::Kind::List;
      for (const V& item : t_.sequence_items(value)) result.items.push_back(argument(item));
      return result;
    case ValueKind::Slice: {
      auto& slice = *as<SliceValue>(value);
      result.kind = ExternArgument::Kind::Slice;
      for (const V& part : {slice.start, slice.stop, slice.step}) result.items.push_back(argument(part));
      return result;
    }
    default: {
      // A number that only a run knows: an array of rank 0 to the program.
      ValueId number;
      if (auto* known = declared_ ? as<NumberValue>(value) : nullptr) number = known->contents;
      if (declared_ && value->kind == ValueKind::Object) number = t_.float_input(value);
      if (number.valid()) {
        note_kind("number", 0);
        result.kind = ExternArgument::Kind::Operand;
        result.index = int(operands_.size());
        operands_.push_back(number);
        operand_values_.push_back(t_.new_array(call_.library, number));
        operand_strides_.push_back(Strides{});
        return result;
      }
      if (numpy_ && value->kind == ValueKind::Object && t_.float_input(value).valid())
        give_up("`" + call_.name + "` of a float that changes between calls");
      if (auto* computed = as<NumberValue>(value);
          computed && !numpy_ && computed->dtype == DType::I64 && !computed->known)
        return size(number_as_size(computed->contents));
      PyObject* object = t_.constant_object(value);
      if (!object) give_up("`" + call_.name + "` of " + describe(value));
      result.object = Ref<>::borrow(object);
      return result;
    }
  }
}

std::vector<ExternArray> ExternBuilder::operand_arrays(std::span<const std::int64_t> symbols) const {
  std::vector<ExternArray> arrays;
  for (const auto& value : operand_values_) {
    ExternArray array;
    array.dtype = value->dtype;
    for (const SymDim& size : value->shape) array.shape.push_back(size.evaluate(symbols));
    for (const SymDim& stride : *operand_strides_[arrays.size()]) array.strides.push_back(stride.evaluate(symbols));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

bool is_dense(const ArrayValue& array, TraceRun& t) { return is_dense(t, array.shape, array.strides); }

const ExternArgument* ExternBuilder::given(const ExternParameter& parameter) const {
  if (parameter.position < call_.positional.size()) return &call_.positional[parameter.position];
  for (auto& [name, argument] : call_.keywords)
    if (text_of(name.get()) == parameter.name) return &argument;
  return nullptr;
}

void ExternBuilder::find_mutated(const Prediction& prediction) {
  std::set<int> written;
  for (std::size_t i = 0; i < prediction.version_moves.size(); ++i)
    if (prediction.version_moves[i] > 0) written.insert(int(i));
  for (const auto* parameters : {&extern_effects(call_.name).writes, &extern_effects(call_.name).declared_writes})
    for (const ExternParameter& parameter : *parameters)
      if (const ExternArgument* argument = given(parameter);
          argument && argument->kind == ExternArgument::Kind::Operand)
        written.insert(argument->index);
  for (int index : written) {
    const auto& array = operand_values_[std::size_t(index)];
    if (!is_dense(*array, t_)) give_up("`" + call_.name + "` writes into a tensor with gaps or overlaps");
    for (std::size_t i = 0; i < operand_values_.size(); ++i)
      if (int(i) != index && operand_values_[i]->storage == array->storage)
        give_up("`" + call_.name + "` writes into a tensor that shares memory with another argument");
    call_.mutated.push_back(index);
  }
}

/// The function for these kinds of arguments, and the rule for its result.
void ExternBuilder::prepare_declared() {
  Ref<> kinds = Ref<>::steal(PyList_AsTuple(kinds_.get()));
  Ref<> call = kinds ? Ref<>::steal(PyObject_CallMethod(declared_.get(), "call_of", "(O)", kinds.get())) : Ref<>();
  Ref<> rule = call ? Ref<>::steal(PyObject_GetAttrString(call.get(), "rule")) : Ref<>();
  Ref<> one = rule ? Ref<>::steal(PyObject_GetAttrString(call.get(), "of_one")) : Ref<>();
  if (!one) give_up("`" + call_.name + "`: " + take_error());
  call_.callable = one;
  call_.rule = rule;
  call_.of_all = call;
  if (requires_grad_ && t_.modes->now.records())
    break_graph(BreakReason::NoDerivativeRule, "`" + call_.name + "`, which has neither a vjp nor a jvp");
}

/// What the function writes into: its first argument, or what it is given as `out`.
void ExternBuilder::prepare_numpy() {
  if (requires_grad_) break_graph(BreakReason::NoDerivativeRule, "`" + call_.name + "`");
  call_.stacked = numpy_->stacked;
  if (!call_.stacked && std::any_of(operands_.begin(), operands_.end(),
                                    [&](ValueId operand) { return depends_on_example(t_, operand); }))
    break_graph(BreakReason::OneExample, "`" + call_.name + "` is called once for all examples");
  if (!t_.request.generalise.builtin_backend)
    give_up("`" + call_.name + "` for a back end that runs nodes without the frame they are from");
  ArrayValue any;
  note_array(t_, any);
  if (!t_.uses_torch) t_.externs->operand_library = Library::Numpy;
  if (numpy_->writes && call_.positional.empty()) give_up("`" + call_.name + "` of an array by its name");
  if (numpy_->writes) write_numpy(call_.positional[0]);
  Ref<> inputs = Ref<>::steal(PyObject_GetAttrString(ufunc_.get(), "nin"));
  PyErr_Clear();
  for (std::size_t i = inputs ? PyLong_AsSize_t(inputs.get()) : call_.positional.size(); i < call_.positional.size();
       ++i)
    write_numpy(call_.positional[i]);
  for (auto& [name, argument] : call_.keywords)
    if (PyUnicode_CompareWithASCIIString(name.get(), "out") == 0) write_numpy(argument);
}

/// Where the array begins in its memory, in elements of the dtype of a view of it.
SymDim ExternBuilder::offset_as(const ArrayValue& base, DType dtype) {
  const auto before = std::int64_t(size_in_bytes(base.dtype)), after = std::int64_t(size_in_bytes(dtype));
  if (before % after == 0) return base.offset * SymDim(before / after);
  if (!base.offset.is_constant() || base.offset.value() * before % after)
    give_up("`" + call_.name + "` returns a view as another dtype of memory at an offset");
  return base.offset.value() * before / after;
}

/// An array that owns memory, with the axes in the order in which they lie in it, and the result as a view of that.
V ExternBuilder::view_of_new(ValueId value, const ExternResult& result) {
  Axes order = all_axes(int(result.shape.size())), back(order.size());
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const SymDim &first = result.strides[std::size_t(a)], &second = result.strides[std::size_t(b)];
    const std::int64_t one = hint(t_, first), other = hint(t_, second);
    return one != other
               ? one > other
               : first != second && first.divide_exactly(second);  // further out by an axis that has one element now
  });
  for (std::size_t i = 0; i < order.size(); ++i) back[std::size_t(order[i])] = std::int64_t(i);
  if (std::is_sorted(order.begin(), order.end()))
    return view_alias(t_, t_.new_array(call_.library, value, result.strides));
  const ValueId turned = transpose(t_, value, order);
  return view_transpose(t_, t_.new_array(call_.library, turned, row_major(shape_of(t_, turned))), back);
}

void ExternBuilder::write_numpy(const ExternArgument& argument) {
  if (argument.kind == ExternArgument::Kind::Tuple) {
    for (const ExternArgument& item : argument.items) write_numpy(item);
    return;
  }
  if (argument.kind == ExternArgument::Kind::Constant && argument.object.get() == Py_None) return;
  if (argument.kind != ExternArgument::Kind::Operand) give_up("`" + call_.name + "` writes into no array");
  const ArrayValue& array = *operand_values_[std::size_t(argument.index)];
  if (array.numpy_scalar || !array.writeable || !is_dense(array, t_))
    give_up("`" + call_.name + "` writes into an array that is read-only, or has gaps or overlaps");
  for (std::size_t i = 0; i < operand_values_.size(); ++i)
    if (int(i) != argument.index && operand_values_[i]->storage == array.storage)
      give_up("`" + call_.name + "` writes into an array that shares memory with another argument");
  // As an input and as what is written it would be two arrays.
  call_.mutated.push_back(argument.index);
}

// ---- results with symbols

std::vector<ExternResult> ExternBuilder::results_of(const Prediction& now) {
  std::vector<ExternResult> results;
  const std::vector<ExternArray> arrays = now.arrays;  // the reference does not last
  if (!symbolic_) {
    for (const ExternArray& array : arrays) {
      ExternResult result{array.dtype,
                          {array.shape.begin(), array.shape.end()},
                          {array.strides.begin(), array.strides.end()},
                          array.view_of,
                          array.offset,
                          array.made_as_view,
                          array.version};
      results.push_back(std::move(result));
    }
    return results;
  }
  if (is_unpredictable(call_))
    break_graph(BreakReason::DataDependentShape, "`" + call_.name + "` gives sizes framejit can't predict");
  // The symbols that sizes and ints are made of; strides that are symbols of their own stay as they are.
  std::set<SymbolId> moving;
  std::function<void(const SymDim&)> collect = [&](const SymDim& dim) {
    for (SymbolId symbol : dim.symbols()) {
      const auto& definition = t_.graph().symbols[symbol.index].definition;
      if (!definition) {
        moving.insert(symbol);
        continue;
      }
      collect(definition->dividend);
      collect(definition->divisor);
    }
  };
  std::function<void(const ExternArgument&)> collect_argument = [&](const ExternArgument& argument) {
    if (argument.kind == ExternArgument::Kind::Size) collect(argument.expression);
    for (const ExternArgument& item : argument.items) collect_argument(item);
  };
  for (const auto& value : operand_values_)
    for (const SymDim& size : value->shape) collect(size);
  for (const ExternArgument& argument : call_.positional) collect_argument(argument);
  for (auto& [name, argument] : call_.keywords) collect_argument(argument);
  std::vector<SymDim> counts;
  for (const auto& value : operand_values_)
    if (!value->shape.empty()) counts.push_back(product(value->shape));
  FittedSizes fit(t_, {moving.begin(), moving.end()}, std::move(counts),
          [this](std::span<const std::int64_t> symbols) -> const Prediction& { return predicted(symbols); });
  for (std::size_t r = 0; r < arrays.size(); ++r) {
    const ExternArray& array = arrays[r];
    ExternResult result;
    result.dtype = array.dtype;
    result.view_of = array.view_of;
    result.made_as_view = array.made_as_view;
    result.version = array.version;
    for (std::size_t d = 0; d < array.shape.size(); ++d)
      result.shape.push_back(fit.expression([&](const Prediction& p) { return p.arrays[r].shape[d]; }));
    // Dense in some order of the axes, as it is now; a view's strides are those of what it shows.
    std::vector<std::size_t> order(array.shape.size());
    for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (array.strides[a] != array.strides[b]) return array.strides[a] < array.strides[b];
      const bool one = array.shape[a] <= 1, other = array.shape[b] <= 1;
      return one != other ? one : a > b;
    });
    SymDim expected = 1;
    std::int64_t expected_now = 1;
    bool dense = array.view_of < 0;
    const bool empty = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
    result.strides.resize(order.size());
    for (std::size_t d : order) {
      dense = dense && (empty || array.strides[d] == expected_now);
      result.strides[d] = expected;
      expected = expected * result.shape[d];
      expected_now *= array.shape[d];
    }
    if (!dense)
      for (std::size_t d = 0; d < order.size(); ++d)
        result.strides[d] = fit.expression([&](const Prediction& p) { return p.arrays[r].strides[d]; });
    if (array.view_of >= 0) result.offset = fit.expression([&](const Prediction& p) { return p.arrays[r].offset; });
    results.push_back(std::move(result));
  }
  return results;
}

// ---- the call

V ExternBuilder::build(const ExternStructure& structure, const std::vector<V>& arrays) const {
  switch (structure.kind) {
    case ExternStructure::Kind::Array: return arrays[std::size_t(structure.index)];
    case ExternStructure::Kind::Number: {
      V array = arrays[std::size_t(structure.index)];
      PyTypeObject* type = reinterpret_cast<PyTypeObject*>(structure.type.get());
      const bool python = type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type;
      if (python)
        return std::make_shared<NumberValue>(array_contents(t_, *as<ArrayValue>(array)), as<ArrayValue>(array)->dtype);
      as<ArrayValue>(array)->numpy_scalar = true;
      return array;
    }
    case ExternStructure::Kind::Operand: return operand_values_[std::size_t(structure.index)];
    case ExternStructure::Kind::None: return t_.none();
    default: {
      std::vector<V> items;
      for (const ExternStructure& item : structure.items) items.push_back(build(item, arrays));
      if (structure.kind == ExternStructure::Kind::List) return t_.list(std::move(items));
      V tuple = t_.tuple(std::move(items));
      as<TupleValue>(tuple)->type = structure.type;
      return tuple;
    }
  }
}

// ---- the derivative

/// The call is made under autograd, for a derivative that needs not make it again; but where the program is shown,
/// changed or run by another back end, it is as it was written.
void ExternBuilder::record() {
  const bool plain = call_.library == Library::Torch && call_.mutated.empty() && !call_.once && !declared_ &&
                     t_.request.generalise.builtin_backend && !t_.request.edit && !t_.request.record &&
                     !t_.request.follow && t_.transforms->depth == 0;
  if (!plain) return;
  const std::vector<std::int64_t> hints = symbol_hints(t_.graph().symbols);
  if (!saved_by(call_, operand_arrays(hints), hints, derived_).any) return;  // torch's derivative needs nothing
  Ref<> places = Ref<>::steal(PyList_New(0));
  for (std::int64_t operand : derived_) {
    Ref<> number = Ref<>::steal(PyLong_FromLongLong(operand));
    FJ_CHECK(places && number && PyList_Append(places.get(), number.get()) == 0, "no memory");
  }
  Ref<> make = imported("framejit._support.autograd", "recorded");
  if (make)
    call_.recorded =
        Ref<>::steal(PyObject_CallFunctionObjArgs(make.get(), call_.callable.get(), places.get(), nullptr));
  PyErr_Clear();
  if (call_.recorded.get() == Py_None) call_.recorded = {};
  for (const auto& value : operand_values_) call_.own.push_back(!value->storage->input_array);
  if (call_.recorded) call_.results.push_back({DType::F32, Dims{0}, Dims{1}, -1, 0});
}

/// Of the first results, each by itself, and of all at once.
void ExternBuilder::add_derivatives(std::size_t returned, const std::vector<ValueId>& values) {
  const std::vector<std::int64_t> hints = symbol_hints(t_.graph().symbols);
  ExternSaved saved = saved_by(call_, operand_arrays(hints), hints, derived_);
  if (!call_.mutated.empty()) {
    // What is read is no longer what it was; but results without a derivative, as the statistics of native_batch_norm,
    // have none.
    ExternSaved unknown;
    if (saved.paths.size() == returned * derived_.size()) unknown.paths = std::move(saved.paths);
    saved = std::move(unknown);
  }
  ExternResultDerivative of{
      0, {}, operands_, operands_, operand_strides_, derived_, call_.recorded ? values.back() : ValueId{}, {}};
  for (std::size_t i = 0; i < saved.operands.size(); ++i) {
    if (saved.operands[i] == ExternSaved::Copied)
      t_.gradients->copies.maps.insert(of.read[i] = same_again(t_, operands_[i]));
    if (saved.operands[i] == ExternSaved::Unread)
      of.read[i] = full(t_, operand_values_[i]->dtype, Scalar(0.0), operand_values_[i]->shape);
  }
  std::vector<std::size_t> derived;
  for (of.result = 0; of.result < returned; ++of.result) {
    if (!is_float(call_.results[of.result].dtype)) continue;
    of.value = values[of.result];
    if (of.result < saved.results.size() && saved.results[of.result])
      t_.gradients->also_saved[of.value].push_back(of.value);
    else if (saved.any)
      t_.gradients->also_saved[of.value];  // of what the call made itself: it is freed all the same
    of.paths = {};
    if (saved.paths.size() >= (of.result + 1) * derived_.size())
      of.paths = std::span(saved.paths).subspan(of.result * derived_.size(), derived_.size());
    add_extern_derivative(t_.graph(), *t_.externs, call_, of);
    derived.push_back(of.result);
  }
  if (call_.mutated.empty()) add_joint_derivative(t_.graph(), *t_.externs, call_, of, derived);
}

/// The derivative that NumPy's front end has for the call, as a graph for each result: traced now, from a cotangent
/// that stands for the one to come. What is traced is spare.
void ExternBuilder::add_pullbacks(const std::vector<V>& positional, const std::vector<ValueId>& values) {
  std::vector<std::size_t> places;  // of the operands that a gradient flows through, among the arguments
  std::vector<V> arguments = positional, results;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (call_.positional[i].kind != ExternArgument::Kind::Operand) continue;
    const ValueId operand = operands_[std::size_t(call_.positional[i].index)];
    arguments[i] = t_.new_array(Library::Numpy, operand);
    if (t_.gradients->flow.needs(operand) && is_float(t_.graph().type(operand).dtype)) places.push_back(i);
  }
  if (places.empty()) return;
  for (ValueId value : values) results.push_back(t_.new_array(Library::Numpy, value));
  std::vector<ValueId> kept = operands_, wanted;
  kept.insert(kept.end(), values.begin(), values.end());
  for (std::size_t place : places) wanted.push_back(operands_[std::size_t(call_.positional[place].index)]);
  for (std::size_t r = 0; r < values.size(); ++r) {
    const Type type = t_.graph().type(values[r]);
    if (!is_float(type.dtype)) continue;
    const std::size_t before = t_.graph().nodes.size();
    const ValueId cotangent = full(t_, type.dtype, Scalar(0.0), type.shape);
    t_.gradients->flow.want(cotangent);
    std::vector<V> cotangents(values.size(), t_.none());
    cotangents[r] = t_.new_array(Library::Numpy, cotangent);
    std::vector<V> given{t_.tuple(std::move(cotangents)), t_.tuple(results)};
    given.insert(given.end(), arguments.begin(), arguments.end());
    const std::vector<V> found = static_cast<Tracer&>(t_).sequence_items(
        t_.call(t_.constant(Ref<>::borrow(numpy_->pullback)), std::move(given), {}));
    std::vector<ValueId> inputs{cotangent}, outputs;
    inputs.insert(inputs.end(), kept.begin(), kept.end());
    bool any = false;
    for (std::size_t place : places) {
      const Array gradient = array_of(found.at(place));
      any = any || gradient;
      const Type expected = t_.graph().type(operands_[std::size_t(call_.positional[place].index)]);  // what follows adds nodes
      outputs.push_back(gradient ? t_.read(*gradient) : full(t_, expected.dtype, Scalar(0.0), expected.shape));
      FJ_CHECK(t_.graph().type(outputs.back()) == expected, "the derivative of `" + call_.name + "` has another type");
    }
    for (std::size_t i = before; i < t_.graph().nodes.size(); ++i)
      if (t_.graph().nodes[i].op == Op::extern_call)
        t_.graph().spare_calls.insert(t_.graph().nodes[i].results[0]);
    auto pullback = std::make_shared<const Graph>(part_of_graph(t_.graph(), inputs, outputs));
    if (any)
      t_.graph().composites.push_back({CompositeRule::Pullback, wanted, values[r], kept, {}, std::move(pullback)});
    else
      t_.graph().composites.push_back({CompositeRule::Stop, {}, values[r], {}, {}});
  }
}

/// Functions that draw random numbers for dropout only, and have none.
bool draws_nothing(const ExternCall& call) {
  auto is_zero = [](const ExternArgument& argument) {
    return argument.kind == ExternArgument::Kind::Constant && argument.object && PyFloat_Check(argument.object.get()) &&
           PyFloat_AS_DOUBLE(argument.object.get()) == 0;
  };
  if (call.name == "scaled_dot_product_attention") {
    for (auto& [name, argument] : call.keywords)
      if (PyUnicode_CompareWithASCIIString(name.get(), "dropout_p") == 0) return is_zero(argument);
    return call.positional.size() <= 4 || is_zero(call.positional[4]);
  }
  if (call.name != "lstm" && call.name != "gru" && call.name != "rnn_tanh" && call.name != "rnn_relu") return false;
  // (input, hx, weights, bias, layers, dropout, ...) or (data, sizes, hx, weights, bias, layers, dropout, ...): its
  // only float.
  auto is_float_argument = [](const ExternArgument& argument) {
    return argument.object && PyFloat_Check(argument.object.get());
  };
  const auto dropout = std::find_if(call.positional.begin(), call.positional.end(), is_float_argument);
  return dropout != call.positional.end() && is_zero(*dropout);
}

/// A function that reads memory by its place: of the operand that the program hands over there is only what the tensor
/// shows, and it begins elsewhere.
void ExternBuilder::refuse_places() {
  // Where `storage_offset` stands among the arguments.
  const std::size_t offset = call_.name == "as_strided_scatter" ? 4 : 3;
  const bool placed = call_.positional.size() > offset ||
                      std::any_of(call_.keywords.begin(), call_.keywords.end(),
                                  [](const auto& keyword) { return text_of(keyword.first.get()) == "storage_offset"; });
  if (placed || !std::all_of(operand_values_.begin(), operand_values_.end(),
                             [&](const auto& array) { return is_dense(*array, t_); }))
    give_up("`" + call_.name + "` reads memory that the tensor may not show");
  for (const auto& array : operand_values_) t_.note_layout(*array);
}

/// A piece has no frame at the line of its call, and a call without any frame stands at the caller's. A warning names
/// the line of the Python function that calls the library, and is counted in that one's globals.
Ref<> caller_at(const Location& where, PyObject* globals) {
  Ref<> make = imported("framejit._support.torch", "calling_from");
  Ref<> made =
      make ? Ref<>::steal(PyObject_CallFunction(make.get(), "siO", where.file.c_str(), where.line, globals)) : Ref<>();
  if (!made) PyErr_Clear();
  return made;
}

V ExternBuilder::run(const std::vector<V>& positional, const Keywords& keywords) {
  // Its warnings would go by the filters outside; NumPy's calls give none.
  if (t_.warnings->any() && !numpy_) break_graph(BreakReason::Warning, "`" + call_.name + "`, a library call");
  for (const V& value : positional) call_.positional.push_back(argument(value));
  for (auto& [name, value] : keywords)
    call_.keywords.emplace_back(Ref<>::steal(PyUnicode_InternFromString(name.c_str())), argument(value));
  static const ExternEffects nothing{};
  if (declared_) prepare_declared();
  if (numpy_) prepare_numpy();
  const ExternEffects& effects = numpy_ || declared_ ? nothing : extern_effects(call_.name);
  call_.random = effects.random && !draws_nothing(call_);
  if (call_.random && t_.transforms->depth > 0)
    break_graph(BreakReason::OneExample, "`" + call_.name + "` draws once for all examples");
  if (operands_.empty() && !numpy_) {
    if (!effects.factory) give_up("`" + call_.name + "` without a tensor");
    for (auto& [name, value] : keywords)
      if (name == "device") t_.make_on(device_argument(t_, value, kHost));
    t_.note_torch();
  } else {
    for (auto& [name, value] : keywords)
      if (name == "device") require_device(t_, value, t_.placement->made_on);
  }
  place_graph(t_, t_.placement->made_on);
  call_.device = t_.placement->made_on;
  if (effects.by_place) refuse_places();
  const bool derived = requires_grad_ && t_.modes->now.records();
  if (derived && effects.joint)
    break_graph(BreakReason::Gradient, "`" + call_.name + "`, of which torch derives some results beside others alone");
  if (derived && effects.underivable)
    break_graph(BreakReason::Gradient, "`" + call_.name + "`, which torch refuses to derive");
  for (const ExternParameter& flag : effects.sparse)
    if (const ExternArgument* argument = given(flag);
        derived && argument && argument->object && PyObject_IsTrue(argument->object.get()) == 1)
      break_graph(BreakReason::Gradient, "`" + call_.name + "`, whose gradient is a sparse tensor");
  if (derived && call_.random && !effects.repeatable)
    break_graph(BreakReason::Gradient, "`" + call_.name + "` draws random numbers in torch, which has its derivative");
  call_.grad = call_.grad && !derived;  // its derivative is recorded when it is asked for

  const std::vector<std::int64_t> hints = symbol_hints(t_.graph().symbols);
  const Prediction& now = predicted(hints);
  if (!now.refusal.empty()) give_up("`" + call_.name + "`: " + now.refusal);
  const ExternStructure structure = now.structure;
  const std::vector<int> moves = now.version_moves;
  if (!numpy_) find_mutated(now);
  call_.structure = structure;
  const std::size_t symbols = t_.graph().symbols.size();
  call_.results = results_of(now);
  // Guards can't derive a size from one that is known later.
  if (late_ && t_.graph().symbols.size() > symbols)
    break_graph(BreakReason::DataDependentShape, "`" + call_.name + "` of an array whose size depends on data");
  const std::size_t returned = call_.results.size();
  if (derived && !call_.mutated.empty() && effects.writes.empty())
    break_graph(BreakReason::Gradient, "`" + call_.name + "` writes into a tensor");
  for (std::size_t i = 0; i < returned; ++i)
    if (call_.results[i].view_of >= 0 && derived)
      break_graph(BreakReason::Gradient, "`" + call_.name + "` returns a view of a tensor that requires a gradient");
  for (std::size_t i = 0; i < returned; ++i)
    if (call_.results[i].view_of >= 0 && (operands_.size() != 1 || !call_.mutated.empty()))
      give_up("`" + call_.name + "` returns a view of one of several tensors");
  for (int index : call_.mutated) {
    const ArrayValue& array = *operand_values_[std::size_t(index)];
    call_.results.push_back({array.dtype, array.shape, array.strides, -1, 0});
  }
  // Nothing but what it was given, as dropout in eval mode.
  const bool passes_on = call_.results.empty() && returned == 0 && structure.kind == ExternStructure::Kind::Operand;
  if (passes_on && call_.mutated.empty()) return operand_values_[std::size_t(structure.index)];
  if (call_.results.empty()) give_up("`" + call_.name + "` returns no tensor");

  bool real = true;  // without a composite the results have no derivative here
  for (std::size_t i = 0; derived && i < operands_.size(); ++i) {
    if (!t_.requires_gradient(operands_[i])) continue;
    derived_.push_back(std::int64_t(i));
    real = real && is_float(operand_values_[i]->dtype);
  }
  real = real && std::any_of(call_.results.begin(), call_.results.begin() + std::ptrdiff_t(returned),
                             [](const ExternResult& result) { return is_float(result.dtype); });
  if (!derived_.empty() && real) refuse_special_numbers();
  if (!derived_.empty() && real && symbolic_ && !numpy_) guard_special_numbers();
  if (!derived_.empty() && real) record();

  std::vector<Type> types;
  std::vector<std::optional<Dims>> strides;
  for (const ExternResult& result : call_.results) {
    types.push_back({result.dtype, result.shape});
    strides.push_back(result.view_of < 0 ? result.strides : contiguous_strides(result.shape));
  }
  Attrs attrs;
  if (!numpy_) call_.caller = caller_at(t_.location(), t_.frames.back()->globals.get());
  t_.externs->put(attrs, t_.graph(), call_);
  attrs.set("operand_strides", operand_strides_);
  attrs.set("result_strides", strides);
  std::vector<ValueId> values = t_.graph().add_extern(operands_, attrs, types, t_.location());
  if (derived) {
    // Their old contents, gone by then, say nothing of the derivative.
    for (std::size_t i = 0; i < call_.mutated.size(); ++i) {
      operands_[std::size_t(call_.mutated[i])] = values[returned + i];
      t_.gradients->copies.twice.insert(values[returned + i]);  // the derivative makes the call again, which writes:
                                                                // into a copy that nobody else sees
    }
    if (real) add_derivatives(returned, values);
  }
  // No gradient flows into what is computed where nothing is recorded, into running statistics and into a record.
  // Nobody has read them yet.
  for (std::size_t i = derived ? returned : 0; requires_grad_ && i < values.size(); ++i)
    t_.graph().composites.push_back({CompositeRule::Stop, {}, values[i], {}, {}});
  if (numpy_ && numpy_->pullback) add_pullbacks(positional, values);

  std::vector<V> arrays;
  for (std::size_t i = 0; i < returned; ++i) {
    const ExternResult& result = call_.results[i];
    if (result.view_of < 0) {
      if (result.view_of == ExternArray::kOfNewMemory) {
        arrays.push_back(view_of_new(values[i], result));
        continue;
      }
      auto made = t_.new_array(call_.library, values[i], result.strides);
      made->storage->library_version = result.version;
      // A gradient is told of the view: what is written into it, autograd sees at the view and at what it is of.
      const bool linked = result.made_as_view && t_.requires_gradient(*made);
      made->storage->made_as_view = result.made_as_view && !linked;
      arrays.push_back(linked ? view_alias(t_, made) : std::move(made));
      continue;
    }
    const auto& base = operand_values_[std::size_t(result.view_of)];
    ViewStep step{Op::extern_call, attrs, base->shape, result.shape, types, int(i)};
    const SymDim start = offset_as(*base, result.dtype);
    auto view = t_.new_view(base, std::move(step), result.shape, result.strides, start + result.offset);
    view->dtype = result.dtype;
    view->contents = values[i];
    view->contents_version = view->storage->version;
    if (effects.detaches) {
      view->detached =
          std::make_shared<DetachedTensor>(DetachedTensor{view.get(), view->shape, view->strides, view->offset});
      view->stops_gradient = true;
    }
    arrays.push_back(view);
  }
  for (std::size_t i = 0; i < call_.mutated.size(); ++i) {
    ArrayValue& array = *operand_values_[std::size_t(call_.mutated[i])];
    t_.write(array, values[returned + i]);
    if (numpy_) continue;
    *array.torch_version += (moves.empty() ? 1 : moves[std::size_t(call_.mutated[i])]) - 1;
  }
  return build(structure, arrays);
}

}  // namespace

bool is_library_function(PyObject* callable) {
  PyObject* const type = once([] { return imported("framejit._library_functions", "Node").release(); });
  return reinterpret_cast<PyObject*>(Py_TYPE(callable)) == type;
}

V TraceRun::extern_call(const V& callable, const std::vector<V>& positional,
                        const std::vector<std::pair<std::string, V>>& keywords) {
  for (auto& [name, value] : keywords)
    if (name == "requires_grad" && constant_object(value) != Py_False)
      break_graph(BreakReason::Gradient, "a library call that makes a leaf");
  FJ_CHECK(as<ObjectValue>(callable), "extern call of something made in the trace");
  if (V done = call_transformed_numpy(*this, callable, positional, keywords)) return done;
  const DeviceScope scope(*this, positional, keywords);
  std::optional<Library> declared;
  if (is_library_function(as<ObjectValue>(callable)->object.get())) {
    const auto is_torch = [&](const V& value) {
      const Array array = array_of(value);
      return array && array->library == Library::Torch;
    };
    std::vector<V> all = positional;
    for (auto& [name, value] : keywords) all.push_back(value);
    declared = std::any_of(all.begin(), all.end(), is_torch) ? Library::Torch : Library::Numpy;
  }
  return ExternBuilder(*this, callable, declared).run(positional, keywords);
}

}  // namespace fj
