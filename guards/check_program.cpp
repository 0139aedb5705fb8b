// Building and running the check program.
//
// Start at CheckProgram::CheckProgram: it orders guards, emits the fetches each needs, then what needs all symbols
// bound. CheckProgram::decide is the one place where a step is tested.
#include "guards/check_program.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>

#include "cpython/cpython.h"
#include "guards/memo.h"
#include "runtime/base/error.h"

namespace fj::guard_program {
namespace {

using Kind = Step::Kind;
using Test = ArrayCheck::Test;

enum class LooksAt : std::uint8_t { Source, Several };

struct GuardRow {
  int order;
  LooksAt looks_at;
};

constexpr GuardRow kRows[] = {
#define FJ_GUARD(name, order, looks_at, text) {order, LooksAt::looks_at},
#include "guards/guard.def"
};

constexpr const GuardRow& row(GuardKind kind) { return kRows[std::size_t(kind)]; }

bool is_string(PyObject* object) { return PyUnicode_CheckExact(object); }

/// No Python code: keys are exact str (of the guard) against whatever the dict holds; see source.cpp.
bool same_key(PyObject* a, PyObject* b) {
  return a == b || (is_string(a) && is_string(b) && PyUnicode_Compare(a, b) == 0) || same_constant(a, b);
}

PyObject* lookup(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (!found) PyErr_Clear();
  return found;
}

using Extent = GuardBindings::Extent;

Extent extent(const ArrayView& view, bool written = false) {
  auto* low = static_cast<const char*>(view.data);
  auto* high = low + size_in_bytes(view.dtype);
  std::int64_t to_bytes = view.stride_unit == 1 ? std::int64_t(size_in_bytes(view.dtype)) : 1;
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] == 0) return {low, low, written};
    std::int64_t reach = (view.shape[i] - 1) * view.strides[i] * to_bytes;
    (reach < 0 ? low : high) += reach;
  }
  return {low, high, written};
}

/// No written extent shares a byte with another one. In the order of their starts one look at each is enough: an
/// optimiser's step has hundreds.
bool written_apart(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::less<>()(a.low, b.low); });
  const char *any_end = nullptr, *written_end = nullptr;
  for (const Extent& extent : extents) {
    if (extent.low == extent.high) continue;
    if (extent.low < (extent.written ? any_end : written_end)) return false;
    any_end = std::max(any_end, extent.high);
    if (extent.written) written_end = std::max(written_end, extent.high);
  }
  return true;
}

}  // namespace

/// Emits steps; knows which registers are filled and which symbols are bound at each point.
class Builder {
 public:
  Builder(CheckProgram& program, const SourceTable& sources)
      : program_(program), fetched_(sources.all().size(), false) {}

  void build(const SourceTable& sources, const std::vector<std::pair<SymbolId, Symbol::Quotient>>& definitions) {
    const auto& guards = program_.guards_;
    emitted_.assign(guards.size(), false);
    by_source_.resize(fetched_.size());
    for (std::size_t i = 0; i < guards.size(); ++i)
      if (guards[i].source && row(guards[i].kind).looks_at == LooksAt::Source)
        by_source_[std::size_t(guards[i].source->id)].push_back(i);
    // An item with guards of its own is fetched for them, which fails where the key is missing.
    std::vector<std::vector<SourceRef>> items(fetched_.size());  // guarded ones, by base
    std::vector<SourceRef> globals;
    for (const auto& item : sources.all()) {
      if (by_source_[std::size_t(item->id)].empty()) continue;
      if (item->kind == SourceKind::Global) globals.push_back(item.get());
      if (item->base) items[std::size_t(item->base->id)].push_back(item.get());
    }
    for (std::size_t i = 0; i < guards.size(); ++i) {
      if (guards[i].kind != GuardKind::HasKey) continue;
      SourceRef dict = guards[i].source;
      if (dict->kind == SourceKind::FunctionGlobals && dict->base->kind == SourceKind::Function)
        for (SourceRef item : globals)
          if (same_key(item->key.get(), guards[i].object.get())) emitted_[i] = true;
      for (SourceRef holder : {dict, dict->kind == SourceKind::InstanceDict ? dict->base : dict})
        for (SourceRef item : items[std::size_t(holder->id)])
          if (is_item(*item, guards[i])) emitted_[i] = true;
    }
    std::vector<std::size_t> order(guards.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      auto key = [&](std::size_t i) {
        // By depth within a kind: what hangs on a root's object is reached after the roots.
        return std::tuple(row(guards[i].kind).order, guards[i].source ? depth(guards[i].source) : 0);
      };
      return key(a) < key(b);
    });
    for (std::size_t i : order)
      if (guards[i].kind != GuardKind::Relation) guard(i);
    for (const auto& [symbol, quotient] : definitions) {
      require(quotient.dividend);
      require(quotient.divisor);
      Step step{Kind::Define};
      step.symbol = symbol.index;
      step.quotient = &quotient;
      bind(symbol.index);
      push(step);
    }
    for (std::size_t at = 0; at < program_.arrays_.size(); ++at) {
      if (!program_.arrays_[at].deferred) continue;
      for (const auto* numbers : {&program_.arrays_[at].sizes, &program_.arrays_[at].strides})
        for (const auto& number : *numbers)
          if (number.test == Test::Deferred) require(number.expression);
      Step step = array_steps_[at];
      step.kind = Kind::ArrayDeferred;
      current_ = step.guard;
      push(step);
    }
    current_ = -1;
    for (std::size_t i : order)
      if (guards[i].kind == GuardKind::Relation) guard(i);
    program_.symbol_count_ = bound_.size();
  }

 private:
  /// The item whose presence `guard` asks for.
  static bool is_item(const Source& item, const Guard& guard) {
    const bool in_dict = item.kind == SourceKind::DictItem && item.base == guard.source;
    const bool of_instance = (item.kind == SourceKind::Attribute || item.kind == SourceKind::ClassVariable) &&
                             guard.source->kind == SourceKind::InstanceDict && item.base == guard.source->base;
    return (in_dict || of_instance) && same_key(item.key.get(), guard.object.get());
  }

  static int depth(SourceRef source) {
    int depth = 0;
    while ((source = source->base)) ++depth;
    return depth;
  }

  void push(Step step) {
    step.guard = current_;
    program_.steps_.push_back(step);
  }

  void bind(std::uint32_t symbol) {
    if (bound_.size() <= symbol) bound_.resize(symbol + 1, false);
    bound_[symbol] = true;
  }
  bool bound(std::uint32_t symbol) const { return symbol < bound_.size() && bound_[symbol]; }
  bool bound(const SymDim& expression) const {
    for (SymbolId symbol : expression.symbols())
      if (!bound(symbol.index)) return false;
    return true;
  }
  void require(const SymDim& expression) const {
    for (SymbolId symbol : expression.symbols())
      FJ_CHECK(bound(symbol.index), "no guard binds symbol s" + std::to_string(symbol.index));
  }

  /// Guards on a source and its bases, before what is built on it is fetched.
  void guards_of(SourceRef source) {
    for (std::size_t i : by_source_[std::size_t(source->id)]) guard(i);
  }

  void fetch(SourceRef source) {
    if (fetched_[std::size_t(source->id)]) return;
    if (source->base) {
      fetch(source->base);
      std::int32_t asked_for = current_;
      guards_of(source->base);
      current_ = asked_for;
      if (fetched_[std::size_t(source->id)]) return;
    }
    for (SourceRef operand : source->operands) {
      fetch(operand);
      std::int32_t asked_for = current_;
      guards_of(operand);
      current_ = asked_for;
    }
    if (fetched_[std::size_t(source->id)]) return;
    fetched_[std::size_t(source->id)] = true;
    Step step{source->operands.empty() ? Kind::FetchOther : Kind::FetchMade};
    if (source->kind == SourceKind::Slot) step.kind = Kind::FetchSlot;
    if (source->kind == SourceKind::DictItem) step.kind = Kind::FetchDictItem;
    if (source->kind == SourceKind::Attribute) step.kind = Kind::FetchAttribute;
    if (source->kind == SourceKind::Global) step.kind = Kind::FetchGlobal;
    step.value = source->id;
    step.base = source->base ? source->base->id : -1;
    step.source = source;
    step.number = source->index;
    step.object = source->key.get();
    push(step);
  }

  void guard(std::size_t index) {
    if (emitted_[index]) return;
    emitted_[index] = true;
    const Guard& guard = program_.guards_[index];
    std::int32_t outer = current_;
    current_ = std::int32_t(index);
    if (guard.kind == GuardKind::Unbound) {
      if (guard.source->base) fetch(guard.source->base);
    } else {
      if (guard.source) fetch(guard.source);
      for (SourceRef other : guard.others) fetch(other);
    }
    Step step{Kind::TypeIs};
    step.value = guard.source ? guard.source->id : -1;
    step.source = guard.source;
    step.object = guard.weak ? guard.weak.get() : guard.object.get();
    step.number = guard.number;
    switch (guard.kind) {
      case GuardKind::TypeIs: step.kind = guard.weak ? Kind::TypeIsWeak : Kind::TypeIs; break;
      case GuardKind::Identity: step.kind = guard.weak ? Kind::IdentityWeak : Kind::Identity; break;
      case GuardKind::Equals: equals(step); break;
      case GuardKind::Differs: step.kind = Kind::Differs; break;
      case GuardKind::Length: step.kind = Kind::Length; break;
      case GuardKind::LengthSymbol:
        step.kind = Kind::LengthBind;
        step.symbol = guard.symbol.index;
        bind(guard.symbol.index);
        break;
      case GuardKind::DictKeys: step.kind = Kind::DictKeys; break;
      case GuardKind::Elements: step.kind = Kind::Elements; break;
      case GuardKind::HasKey: step.kind = Kind::HasKey; break;
      case GuardKind::LacksKey: step.kind = Kind::LacksKey; break;
      case GuardKind::TypeVersion:
        step.kind = Kind::TypeVersion;
        step.version = std::uint64_t(guard.number);
        break;
      case GuardKind::FunctionCode: step.kind = Kind::FunctionCode; break;
      case GuardKind::Array: array(step, *guard.array); break;
      case GuardKind::IntSymbol:
        step.kind = bound(guard.symbol.index) ? Kind::IntCompare : Kind::IntBind;
        step.symbol = guard.symbol.index;
        bind(guard.symbol.index);
        break;
      case GuardKind::Relation:
        require(*guard.left);
        require(*guard.right);
        step.kind = Kind::Relation;
        break;
      case GuardKind::SameObject: step.kind = Kind::SameObject; break;
      case GuardKind::NotSame: step.kind = Kind::NotSame; break;
      case GuardKind::NoOverlap: step.kind = Kind::NoOverlap; break;
      case GuardKind::Unbound:
        step.kind = Kind::Unbound;
        step.base = guard.source->base ? guard.source->base->id : -1;
        break;
      case GuardKind::GradMode: step.kind = Kind::GradMode; break;
      case GuardKind::TorchModes: step.kind = Kind::TorchModes; break;
      case GuardKind::NumpyErrState: step.kind = Kind::NumpyErrState; break;
    }
    push(step);
    current_ = outer;
  }

  static void equals(Step& step) {
    PyObject* object = step.object;
    step.kind = Kind::Equals;
    if (object == Py_None || PyBool_Check(object)) {
      step.kind = Kind::Identity;  // one object each
    } else if (PyLong_CheckExact(object)) {
      int overflow = 0;
      step.number = PyLong_AsLongLongAndOverflow(object, &overflow);
      if (overflow == 0) step.kind = Kind::EqualsInt;
    }
  }

  ArrayCheck::Number number(const SymDim& dim, bool bindable) {
    ArrayCheck::Number number;
    if (auto constant = dim.constant()) {
      number.constant = *constant;
      return number;
    }
    number.expression = dim;
    if (bindable) {
      std::uint32_t symbol = dim.terms()[0].symbols[0].index;
      number.symbol = symbol;
      number.test = bound(symbol) ? Test::Symbol : Test::Bind;
      bind(symbol);
    } else {
      number.test = bound(dim) ? Test::Expression : Test::Deferred;
    }
    return number;
  }

  static bool is_symbol(const SymDim& dim) {
    return dim.terms().size() == 1 && dim.terms()[0].coefficient == 1 && dim.terms()[0].symbols.size() == 1;
  }

  void array(Step& step, const ArrayExpectation& expected) {
    ArrayCheck check;
    check.type = expected.type;
    check.dtype = expected.dtype;
    check.rank = int(expected.shape.size());
    check.requires_grad = expected.requires_grad;
    check.writeable_required = expected.writeable_required;
    check.aligned_required = expected.aligned;
    check.key_set = expected.key_set;
    check.device = expected.device;
    FJ_CHECK(expected.strides.size() == expected.shape.size(), "an array guard has as many strides as sizes");
    // Sizes that bind come first: the other numbers of the same array may need them.
    check.sizes.resize(expected.shape.size());
    for (bool binding : {true, false})
      for (std::size_t i = 0; i < expected.shape.size(); ++i)
        if (is_symbol(expected.shape[i]) == binding) check.sizes[i] = number(expected.shape[i], binding);
    for (const SymDim& size : expected.shape) check.constant &= size.is_constant();
    for (const SymDim& stride : expected.strides) check.constant &= stride.is_constant();
    check.contiguous = !check.constant && expected.strides == contiguous_strides(expected.shape);
    for (const SymDim& stride : expected.strides)
      check.strides.push_back(check.contiguous ? ArrayCheck::Number{} : number(stride, is_symbol(stride)));
    for (const auto* numbers : {&check.sizes, &check.strides})
      for (const auto& number : *numbers) {
        check.deferred |= number.test == Test::Deferred;
        if (check.constant) check.constants.push_back(number.constant);
      }
    step.kind = Kind::Array;
    step.array = std::uint32_t(program_.arrays_.size());
    program_.arrays_.push_back(std::move(check));
    step.guard = current_;
    array_steps_.push_back(step);
  }

  CheckProgram& program_;
  std::vector<bool> fetched_, emitted_, bound_;
  std::vector<std::vector<std::size_t>> by_source_;  // guards that look at nothing but the source with this id
  std::vector<Step> array_steps_;
  std::int32_t current_ = -1;
};

CheckProgram::CheckProgram(const SourceTable& sources, const std::vector<Guard>& guards,
                 const std::vector<std::pair<SymbolId, Symbol::Quotient>>& definitions)
    : guards_(guards) {
  Builder(*this, sources).build(sources, definitions);
}

CheckProgram::~CheckProgram() = default;

PyObject* changed_class_attribute(const Guard& guard, PyTypeObject* type) {
  auto now = [](PyObject* was) {
    return was && PyWeakref_Check(was) ? reinterpret_cast<PyWeakReference*>(was)->wr_object : was;
  };
  // Name, then what was found (a weak reference if it can be).
  for (std::size_t i = 0; i + 1 < guard.names.size(); i += 2) {
    PyObject *name = guard.names[i].get(), *was = guard.names[i + 1].get();
    if (name != GuardSet::bases_name()) {
      if (fj_type_lookup(type, name) != now(was)) return name;
      continue;
    }
    if (PyTuple_GET_SIZE(type->tp_mro) != PyTuple_GET_SIZE(was)) return name;
    for (Py_ssize_t b = 0; b < PyTuple_GET_SIZE(was); ++b)
      if (PyTuple_GET_ITEM(type->tp_mro, b) != now(PyTuple_GET_ITEM(was, b))) return name;
  }
  return nullptr;
}

bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyFloat_Type) {
    // Bitwise: 0.0 and -0.0 differ in what they compute; a NaN is the NaN it was.
    double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (type == &PyComplex_Type) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (type == &PyTuple_Type) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
      if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  }
  if (type != &PyLong_Type && type != &PyUnicode_Type && type != &PyBytes_Type) return false;
  int same = PyObject_RichCompareBool(a, b, Py_EQ);
  if (same < 0) PyErr_Clear();
  return same == 1;
}

Py_ssize_t builtin_length(PyObject* object) {
  if (PyTuple_Check(object)) return PyTuple_GET_SIZE(object);
  if (PyList_Check(object)) return PyList_GET_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyUnicode_Check(object)) return PyUnicode_GET_LENGTH(object);
  if (PyBytes_Check(object)) return PyBytes_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (is_deque(object)) return Py_SIZE(object);
  return -1;
}

bool read_array(const ArrayCheck& check, PyObject* object, ArrayView& view) {
  if (Py_TYPE(object) != check.type) return false;
  if (!check.library) {
    check.library = array_library(object);
    if (!check.library) return false;
  }
  return *check.library == Library::Numpy ? read_numpy(object, view) : read_torch(object, view);
}

/// NumPy makes arrays without elements with strides of zeros or row-major ones, by no rule that its users could know.
static bool strides_count(const ArrayCheck& check, const ArrayView& view) {
  return *check.library == Library::Torch || std::find(view.shape, view.shape + view.rank, 0) == view.shape + view.rank;
}

/// The array has passed the check.
static void prepare_quick(const ArrayCheck& check, PyObject* array, const ArrayView& view) {
  if (!strides_count(check, view)) return;
  QuickCheck quick;
  quick.writeable = check.writeable_required;
  quick.aligned = check.aligned_required;
  quick.requires_grad = check.requires_grad;
  quick.numbers = check.constants;
  for (std::size_t i = std::size_t(check.rank); i < quick.numbers.size(); ++i) quick.numbers[i] *= view.stride_unit;
  if (!make_quick(*check.library, array, quick)) return;
  quick.rank = check.rank;
  check.quick = std::move(quick);
}

bool read_any_array(PyObject* object, ArrayView& view) {
  auto library = array_library(object);
  if (!library) return false;
  return *library == Library::Numpy ? read_numpy(object, view) : read_torch(object, view);
}

bool may_overlap(const ArrayView& a, const ArrayView& b) {
  Extent x = extent(a), y = extent(b);
  if (x.low == x.high || y.low == y.high) return false;
  return x.low < y.high && y.low < x.high;
}

bool layout_matches(const ArrayCheck& check, const ArrayView& view, std::span<std::int64_t> symbols, bool deferred) {
  auto matches = [&](const ArrayCheck::Number& number, std::int64_t found, std::int64_t unit) {
    switch (number.test) {
      case Test::Constant: return deferred || found == number.constant * unit;
      case Test::Bind:
        return found % unit == 0;
      case Test::Symbol: return deferred || found == symbols[number.symbol] * unit;
      case Test::Expression: return deferred || found == number.expression.evaluate(symbols) * unit;
      case Test::Deferred: return !deferred || found == number.expression.evaluate(symbols) * unit;
    }
    return false;
  };
  auto rank = std::size_t(check.rank);
  const bool compared = strides_count(check, view);
  if (check.constant) {
    const std::int64_t *sizes = check.constants.data(), *strides = sizes + rank;
    for (std::size_t i = 0; i < rank; ++i) {
      if (view.shape[i] != sizes[i]) return false;
      if (compared && view.strides[i] != strides[i] * view.stride_unit) return false;
    }
    return true;
  }
  // What binds comes first: the rest of the array may need it, and an explanation goes on after a size that differs.
  if (!deferred)
    for (std::size_t i = 0; i < rank; ++i) {
      if (check.sizes[i].test == Test::Bind) {
        if (view.shape[i] > kLargestSize) return false;
        symbols[check.sizes[i].symbol] = view.shape[i];
      }
      if (check.strides[i].test == Test::Bind) symbols[check.strides[i].symbol] = view.strides[i] / view.stride_unit;
    }
  for (std::size_t i = 0; i < rank; ++i)
    if (!matches(check.sizes[i], view.shape[i], 1)) return false;
  if (check.contiguous) {
    std::int64_t expected = view.stride_unit;
    bool matches_all = true;
    for (std::size_t i = rank; i-- > 0;) {
      matches_all &= view.strides[i] == expected;
      expected *= std::max<std::int64_t>(view.shape[i], 1);
    }
    return matches_all || !compared;
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& stride = check.strides[i];
    if (!compared && stride.test != Test::Bind) continue;  // a symbol must get a value
    if (!matches(stride, view.strides[i], view.stride_unit)) return false;
  }
  return true;
}

inline __attribute__((always_inline)) bool CheckProgram::decide(const Step& step, const FrameValues& frame,
                                                           GuardBindings& bindings) const {
  PyObject** values = bindings.values.data();
  auto symbols = std::span(bindings.symbols);
  auto value = [&] { return values[step.value]; };
  switch (step.kind) {
    case Kind::FetchSlot:
      if (std::size_t(step.number) >= frame.slots.size()) return false;
      return (values[step.value] = frame.slots[std::size_t(step.number)]) != nullptr;
    case Kind::FetchDictItem:
    case Kind::FetchGlobal: {
      PyObject* dict = step.kind == Kind::FetchGlobal ? (frame.function ? frame.function->func_globals : nullptr)
                                                      : values[step.base];
      if (!dict || !PyDict_Check(dict)) return false;
      std::uint64_t version = fj_dict_version(dict);
      if (version == 0 || version != step.version) {
        step.remembered = lookup(dict, step.object);
        step.version = version;
      }
      return (values[step.value] = step.remembered) != nullptr;
    }
    case Kind::FetchAttribute: {
      PyObject* dict = fj_instance_dict(values[step.base]);
      if (!dict) return false;
      std::uint64_t version = fj_dict_version(dict);
      if (version == 0 || version != step.version) {
        step.remembered = lookup(dict, step.object);
        step.version = version;
      }
      return (values[step.value] = step.remembered) != nullptr;
    }
    case Kind::FetchMade: {
      const auto& from = step.source->operands;
      PyObject* few[4];
      std::vector<PyObject*> many(from.size() > std::size(few) ? from.size() : 0);
      PyObject** operands = many.empty() ? few : many.data();
      for (std::size_t i = 0; i < from.size(); ++i) operands[i] = values[from[i]->id];
      Ref<> owned;
      values[step.value] =
          fetch_step(*step.source, step.base < 0 ? nullptr : values[step.base], frame, owned, {operands, from.size()});
      if (owned) bindings.owned.push_back(std::move(owned));
      return values[step.value] != nullptr;
    }
    case Kind::FetchOther: {
      Ref<> owned;
      values[step.value] = fetch_step(*step.source, step.base < 0 ? nullptr : values[step.base], frame, owned);
      if (owned) bindings.owned.push_back(std::move(owned));
      return values[step.value] != nullptr;
    }
    case Kind::TypeIs: return reinterpret_cast<PyObject*>(Py_TYPE(value())) == step.object;
    case Kind::TypeIsWeak:
      return reinterpret_cast<PyWeakReference*>(step.object)->wr_object ==
             reinterpret_cast<PyObject*>(Py_TYPE(value()));
    case Kind::Identity: return value() == step.object;
    // A weak reference whose object died holds None, which no live value but None equals.
    case Kind::IdentityWeak: return reinterpret_cast<PyWeakReference*>(step.object)->wr_object == value();
    case Kind::EqualsInt: {
      if (!PyLong_CheckExact(value())) return false;
      int overflow = 0;
      long long number = PyLong_AsLongLongAndOverflow(value(), &overflow);
      return overflow == 0 && number == step.number;
    }
    case Kind::Equals: return same_constant(value(), step.object);
    case Kind::Differs: return !same_constant(step.object, value());
    case Kind::Length: return builtin_length(value()) == step.number;
    case Kind::LengthBind: {
      const Py_ssize_t length = builtin_length(value());
      if (length < 0 || length > kLargestInt) return false;
      symbols[step.symbol] = length;
      return true;
    }
    case Kind::DictKeys: {
      if (!PyDict_Check(value())) return false;
      std::uint64_t version = fj_dict_version(value());
      if (version != 0 && version == step.version) return true;
      PyObject* keys = step.object;  // tuple
      if (PyDict_GET_SIZE(value()) != PyTuple_GET_SIZE(keys)) return false;
      Py_ssize_t position = 0, index = 0;
      PyObject *key, *item;
      while (PyDict_Next(value(), &position, &key, &item))
        if (index >= PyTuple_GET_SIZE(keys) || !same_key(PyTuple_GET_ITEM(keys, index++), key)) return false;
      step.version = version;
      return true;
    }
    case Kind::Elements: {
      PyObject* object = value();
      if (!PyAnySet_Check(object) && !PyODict_Check(object)) return false;
      const Py_ssize_t size = builtin_length(object);
      if (size != PyTuple_GET_SIZE(step.object)) return false;
      // By the builtin's own iterator, which runs no Python code whatever the object's class says.
      PyTypeObject* base = PyODict_Check(object) ? &PyODict_Type
                           : PySet_Check(object) ? &PySet_Type
                                                 : &PyFrozenSet_Type;
      Ref<> iterator = Ref<>::steal(base->tp_iter(object));
      bool same = bool(iterator);
      for (Py_ssize_t i = 0; same && i < size; ++i) {
        Ref<> item = Ref<>::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
        same = item && same_key(PyTuple_GET_ITEM(step.object, i), item.get());
      }
      PyErr_Clear();
      return same;
    }
    case Kind::HasKey:
    case Kind::LacksKey: {
      if (!PyDict_Check(value())) return false;
      std::uint64_t version = fj_dict_version(value());
      if (version != 0 && version == step.version) return true;
      if ((lookup(value(), step.object) != nullptr) != (step.kind == Kind::HasKey)) return false;
      step.version = version;
      return true;
    }
    case Kind::TypeVersion: {
      if (!PyType_Check(value())) return false;
      auto* type = reinterpret_cast<PyTypeObject*>(value());
      if (type->tp_version_tag != 0 && type->tp_version_tag == step.version) return true;
      const Guard& guard = guards_[std::size_t(step.guard)];
      if (guard.names.empty() ||
          value() != (guard.weak ? reinterpret_cast<PyWeakReference*>(step.object)->wr_object : step.object))
        return false;
      // The class changed: only what the segment relied on counts.
      if (changed_class_attribute(guard, type) != nullptr) return false;
      step.version = type->tp_version_tag;  // the lookups have given it one, or 0: look again next time
      return true;
    }
    case Kind::FunctionCode: {
      PyObject* code = guards_[std::size_t(step.guard)].weak
                           ? reinterpret_cast<PyWeakReference*>(step.object)->wr_object
                           : step.object;
      return PyFunction_Check(value()) && PyFunction_GET_CODE(value()) == code;
    }
    case Kind::Array: {
      const ArrayCheck& check = arrays_[step.array];
      if (check.quick.rank >= 0 && Py_TYPE(value()) == check.type) {
        void* data;
        if (*check.library == Library::Numpy ? quick_numpy(value(), check.quick, data)
                                             : quick_torch(value(), check.quick, data)) {
          bindings.data[std::size_t(step.value)] = data;
          return true;
        }
      }
      ArrayView view;
      if (!read_array(check, value(), view) || view.dtype != check.dtype || view.rank != check.rank) return false;
      if (view.requires_grad != check.requires_grad || (check.writeable_required && !view.writeable) ||
          (check.aligned_required && !view.aligned) || (check.key_set != 0 && view.key_set != check.key_set) ||
          view.device != check.device)
        return false;
      bindings.data[std::size_t(step.value)] = view.data;
      if (!layout_matches(check, view, symbols, false)) return false;
      if (check.constant && check.quick.rank < 0) prepare_quick(check, value(), view);
      return true;
    }
    case Kind::ArrayDeferred: {
      ArrayView view;
      return read_array(arrays_[step.array], value(), view) && layout_matches(arrays_[step.array], view, symbols, true);
    }
    case Kind::IntBind:
    case Kind::IntCompare: {
      if (!PyLong_CheckExact(value())) return false;
      int overflow = 0;
      long long number = PyLong_AsLongLongAndOverflow(value(), &overflow);
      if (overflow != 0 || number > kLargestInt || number < -kLargestInt) return false;
      if (step.kind == Kind::IntCompare) return symbols[step.symbol] == number;
      symbols[step.symbol] = number;
      return true;
    }
    case Kind::Define: {
      const Symbol::Quotient& quotient = *step.quotient;
      const auto found =
          floor_quotient(quotient.dividend.evaluate(symbols), quotient.divisor.evaluate(symbols), quotient.remainder);
      if (found) symbols[step.symbol] = *found;
      return found.has_value();
    }
    case Kind::Relation: {
      const Guard& guard = guards_[std::size_t(step.guard)];
      const auto left = guard.left->evaluate_exactly(symbols), right = guard.right->evaluate_exactly(symbols);
      return left && right && compare_numbers(*left, int(guard.number), *right);
    }
    case Kind::SameObject:
    case Kind::NotSame: {
      bool same = step.kind == Kind::SameObject;
      for (SourceRef other : guards_[std::size_t(step.guard)].others)
        if ((values[other->id] == value()) != same) return false;
      return true;
    }
    case Kind::NoOverlap: {
      ArrayView view;
      if (!read_any_array(value(), view)) return false;
      const Guard& guard = guards_[std::size_t(step.guard)];
      bindings.extents.assign(1, extent(view, true));
      for (SourceRef other : guard.others) {
        if (!read_any_array(values[other->id], view)) return false;
        bindings.extents.push_back(extent(view, std::int64_t(bindings.extents.size()) <= guard.number));
      }
      return written_apart(bindings.extents);
    }
    case Kind::Unbound: {
      Ref<> owned;
      FJ_CHECK(step.source->operands.empty(), "what is made of others is never unbound");
      return fetch_step(*step.source, step.base < 0 ? nullptr : values[step.base], frame, owned) == nullptr;
    }
    case Kind::GradMode: return torch_grad_enabled() == (step.number != 0);
    case Kind::TorchModes: return torch_modes() == std::uint64_t(step.number);
    case Kind::NumpyErrState: return numpy_trapped_conditions() == std::uint32_t(step.number);
  }
  return false;
}

bool CheckProgram::run(const Step& step, const FrameValues& frame, GuardBindings& bindings) const {
  return decide(step, frame, bindings);
}

bool CheckProgram::all_hold(const FrameValues& frame, GuardBindings& bindings) const {
  bindings.filled_by = 0;
  for (const Step& step : steps_)
    if (!decide(step, frame, bindings)) return false;
  return true;
}

bool CheckProgram::holds(const FrameValues& frame, GuardBindings& bindings) const {
  constexpr std::uint32_t kPatience = 8, kPause = 64, kOften = 4;
  bool varied = false;
  if (memo_) {
    for (std::uint32_t index : memo_->before())
      if (!decide(steps_[index], frame, bindings)) return false;
    ++memo_calls_;
    if (memo_->holds(frame, bindings)) {
      memo_failures_ = 0;
      for (std::uint32_t index : memo_->after())
        if (!decide(steps_[index], frame, bindings)) return false;
      return true;
    }
    if (const std::int32_t root = memo_->other_root(); root >= 0) {
      other_objects_.resize(bindings.values.size());
      const std::uint32_t times = ++other_objects_[std::size_t(root)];
      if (times >= kOften && times >= memo_calls_ / kOften) varied = true, varies_[std::size_t(root)] = true;
    }
  }
  if (!all_hold(frame, bindings)) return false;
  varies_.resize(bindings.values.size());
  if (!memo_ || varied || ++memo_failures_ < kPatience || memo_failures_ % kPause == 0)
    memo_ = std::make_unique<Memo>(*this, frame, bindings, varies_);
  return true;
}

}  // namespace fj::guard_program
