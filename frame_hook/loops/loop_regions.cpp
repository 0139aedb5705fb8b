#include "frame_hook/loops/loop_regions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <optional>

#include "arrays/arrays.h"
#include "cpython/tuples.h"
#include "frame_hook/c_stack.h"
#include "frame_hook/loops/extents.h"
#include "frame_hook/loops/pass_threads.h"
#include "frame_hook/loops/python_lists.h"
#include "runtime/background.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/thread_pool.h"

namespace fj {

namespace {

using Cell = CompiledRegion::Cell;

bool is_number(PyObject* object, const RegionGuard& guard) {
  switch (guard.boxing) {
    case Boxing::Int: {
      int overflow = 0;
      if (!PyLong_CheckExact(object)) return false;
      if (guard.dtype == DType::U64) return is_unsigned_int(object);
      (void)PyLong_AsLongLongAndOverflow(object, &overflow);
      return overflow == 0;
    }
    case Boxing::Float: return PyFloat_CheckExact(object);
    case Boxing::Bool: return PyBool_Check(object);
    case Boxing::Numpy: return numpy_scalar_dtype(object) == guard.dtype;
  }
  return false;
}

Cell cell_of(double number) {
  Cell cell = 0;
  std::memcpy(&cell, &number, sizeof number);
  return cell;
}

Cell cell_of(PyObject* number) {
  Cell cell = 0;
  if (PyComplex_CheckExact(number)) return cell_of(PyComplex_RealAsDouble(number));
  if (PyBool_Check(number)) return number == Py_True;
  if (PyLong_CheckExact(number)) return Cell(PyLong_AsUnsignedLongLongMask(number));
  if (PyFloat_CheckExact(number)) return cell_of(PyFloat_AS_DOUBLE(number));
  std::memcpy(&cell, number_pointer(number), size_in_bytes(*numpy_scalar_dtype(number)));
  return cell;
}

double double_of(Cell cell) {
  double value;
  std::memcpy(&value, &cell, sizeof value);
  return value;
}

Ref<> number_of(const Holding& holding, Cell cell) {
  switch (holding.boxing) {
    case Boxing::Int:
      return Ref<>::steal(holding.dtype == DType::U64 ? PyLong_FromUnsignedLongLong(cell)
                                                      : PyLong_FromLongLong(std::int64_t(cell)));
    case Boxing::Float: return Ref<>::steal(PyFloat_FromDouble(double_of(cell)));
    case Boxing::Bool: return Ref<>::steal(PyBool_FromLong(long(cell & 0xff)));
    case Boxing::Numpy: return numpy_scalar(holding.dtype, &cell);
  }
  return {};
}

/// Memory for one run, on the C stack unless it is much: a loop may be entered for a few passes only.
class Room {
 public:
  std::pmr::memory_resource* get() { return &resource_; }

 private:
  std::array<std::byte, 4096> bytes_;
  std::pmr::monotonic_buffer_resource resource_{bytes_.data(), bytes_.size()};
};

/// What one run has looked at.
struct Entrance {
  struct Made {
    int value;
    Boxing boxing;
    Ref<> object;
  };

  Entrance(const LoopRegion& loop, const FrameValues& values, std::pmr::memory_resource* room)
      : loop(loop), values(values), objects(values.slots.begin(), values.slots.end(), room), held(room), arrays(room),
        iterators(room), numbers(room), arrays_made(room), tensors(room), rows(room) {
    objects.resize(values.slots.size() + loop.reached.size());
    arrays.reserve(loop.memories.size());
  }

  const LoopRegion& loop;
  const FrameValues& values;
  std::pmr::vector<PyObject*> objects;        // by place
  std::pmr::vector<Ref<>> held;
  std::pmr::vector<ArrayView> arrays;         // by memory
  std::pmr::vector<std::pair<int, IteratorState>> iterators;
  std::pmr::vector<Made> numbers;
  std::pmr::vector<std::pair<Cell, Ref<>>> arrays_made;  // by address
  std::pmr::vector<std::pair<int, Ref<>>> tensors;       // made, by the number of the value that tells them apart

  std::pmr::vector<std::pair<Ref<>, Ref<>>> rows;        // tensors, and the tuples of their rows

  void reach(int from, ReachedPlace::How how, auto&& object) {
    for (std::size_t i = 0; i < loop.reached.size(); ++i)
      if (loop.reached[i].from == from && loop.reached[i].how == how) {
        PyObject* const found = object(loop.reached[i].index);
        held.push_back(Ref<>::borrow(found));
        objects[values.slots.size() + i] = found;
      }
  }

  bool comes(int place, Ref<> object) {
    objects[std::size_t(place)] = object.get();
    if (object) held.push_back(std::move(object));
    return objects[std::size_t(place)] != nullptr;
  }

  bool iterates(PyObject* object, const RegionGuard& guard) {
    static constexpr IteratorState::Kind kKinds[] = {IteratorState::Kind::Range, IteratorState::Kind::Items,
                                                     IteratorState::Kind::Enumerate, IteratorState::Kind::Zip,
                                                     IteratorState::Kind::Rows};
    // Nothing but the frame holds it, or the iterator that goes through it and this run.
    if (Py_REFCNT(object) > (guard.place < int(values.slots.size()) ? 1 : 2)) return false;
    const IteratorState state = read_iterator(object);
    if (state.kind != kKinds[int(guard.kind) - int(RegionGuard::Kind::Range)]) return false;
    if (guard.kind == RegionGuard::Kind::Range && state.step != guard.step) return false;
    if (guard.natural && state.position < 0) return false;
    if (guard.kind == RegionGuard::Kind::Zip && int(state.count()) != guard.rank) return false;
    Ref<> joined;
    if (guard.kind == RegionGuard::Kind::Rows) {
      joined = joined_rows(state.over, state.position);
      if (!joined) return false;
      rows.emplace_back(joined, Ref<>::borrow(state.over));
    }
    reach(guard.place, ReachedPlace::How::Iterated,
          [&](int index) { return joined ? joined.get() : state.item(std::size_t(index)); });
    iterators.emplace_back(guard.place, state);
    return true;
  }

  bool holds(const RegionGuard& guard) {
    if (guard.kind == RegionGuard::Kind::Name) {
      PyObject* const found = PyDict_GetItemWithError(guard.names.get(), guard.object.get());
      if (found == nullptr) PyErr_Clear();
      return found == guard.value.get();
    }
    if (guard.kind == RegionGuard::Kind::Function) {
      const auto* function = reinterpret_cast<PyFunctionObject*>(guard.object.get());
      return function->func_code == guard.value.get() && function->func_defaults == guard.names.get();
    }
    if (guard.kind == RegionGuard::Kind::Global) {
      PyObject* const found = PyDict_GetItemWithError(guard.names.get(), guard.object.get());
      if (found == nullptr) PyErr_Clear();
      return comes(guard.place, Ref<>::borrow(found));
    }
    if (guard.kind == RegionGuard::Kind::Attribute || guard.kind == RegionGuard::Kind::Method) {
      PyObject* const owner = objects[std::size_t(guard.owner)];
      if (owner == nullptr) return false;
      auto* const type = reinterpret_cast<PyTypeObject*>(guard.value.get());
      if (guard.kind == RegionGuard::Kind::Method)
        return has_method(owner, type, guard.object.get(), guard.names.get());
      if (guard.writes && type->tp_setattro != PyObject_GenericSetAttr) return false;
      return comes(guard.place, own_attribute(owner, type, guard.object.get()));
    }
    PyObject* const object = objects[std::size_t(guard.place)];
    if (guard.kind == RegionGuard::Kind::Unbound) return object == nullptr;
    if (object == nullptr) return false;
    switch (guard.kind) {
      case RegionGuard::Kind::Bound: return true;
      case RegionGuard::Kind::Number: return is_number(object, guard);
      case RegionGuard::Kind::Complex: return PyComplex_CheckExact(object);
      case RegionGuard::Kind::Array: {
        ArrayView view;
        if (array_library(object) != Library::Numpy || !read_numpy(object, view)) return false;
        if (view.dtype != guard.dtype || view.rank != guard.rank || !view.aligned) return false;
        if (guard.ends && !ends_unseen(object)) return false;
        if (guard.writes && (!view.writeable || warns_of_writes(object))) return false;
        const std::int64_t last = view.strides[view.rank - 1];
        if (guard.dense && last != view.stride_unit) return false;
        for (int axis = 0; axis < view.rank; ++axis)
          if (view.strides[axis] % view.stride_unit != 0) return false;
        arrays.push_back(view);
        return true;
      }
      case RegionGuard::Kind::Tensor: {
        ArrayView view;
        if (array_library(object) != Library::Torch || !read_torch(object, view)) return false;
        if (view.dtype != guard.dtype || view.rank != guard.rank || !view.aligned || view.requires_grad) return false;
        if (view.key_set != guard.keys || view.device != kHost) return false;
        if (guard.ends && !tensor_ends_unseen(object)) return false;
        if (guard.dense && view.strides[view.rank - 1] != 1) return false;
        arrays.push_back(view);
        return true;
      }
      case RegionGuard::Kind::Bytes: {
        static constexpr std::int64_t kOne = 1;
        if (!PyBytes_CheckExact(object)) return false;
        ArrayView view{};
        view.dtype = DType::U8;
        view.rank = 1;
        view.shape = reinterpret_cast<const std::int64_t*>(&reinterpret_cast<PyVarObject*>(object)->ob_size);
        view.strides = &kOne;
        view.stride_unit = 1;
        view.data = PyBytes_AS_STRING(object);
        arrays.push_back(view);
        return true;
      }
      case RegionGuard::Kind::List: return PyList_CheckExact(object) && (!guard.ends || list_ends_unseen(object));
      case RegionGuard::Kind::Cell: {
        if (!PyCell_Check(object) || PyCell_GET(object) == nullptr) return false;
        reach(guard.place, ReachedPlace::How::Cell, [&](int) { return PyCell_GET(object); });
        return true;
      }
      case RegionGuard::Kind::Same: return object == guard.value.get();
      default: return iterates(object, guard);
    }
  }

  std::int64_t position(int place, bool end) const {
    for (const auto& [of, state] : iterators)
      if (of == place) return end ? state.end : state.position;
    return 0;
  }

  const ArrayView& array(int place) const {
    std::size_t number = 0;  // among those that are arrays
    for (std::size_t memory = 0; loop.memories[memory] != place; ++memory) number += loop.memories[memory] >= 0;
    return arrays[number];
  }

  Cell input(const RegionInput& input) const {
    switch (input.kind) {
      case RegionInput::Kind::Number: return cell_of(objects[std::size_t(input.place)]);
      case RegionInput::Kind::Imaginary: return cell_of(PyComplex_ImagAsDouble(objects[std::size_t(input.place)]));
      case RegionInput::Kind::Size: return Cell(array(input.place).shape[input.axis]);
      case RegionInput::Kind::Stride: {
        const ArrayView& view = array(input.place);
        return Cell(view.strides[input.axis] / view.stride_unit);
      }
      case RegionInput::Kind::Position: return Cell(position(input.place, false));
      case RegionInput::Kind::End: return Cell(position(input.place, true));
        case RegionInput::Kind::Passes: return 0;
      case RegionInput::Kind::Address: return Cell(word_address(objects[std::size_t(input.place)]));
    }
    return 0;
  }

  /// An array that the region has made, as NumPy's; the cells are its address and its sizes.
  Ref<> array_at(const Holding& holding, const Cell* cells) {
    for (const auto& [address, object] : arrays_made)
      if (address == cells[0]) return object;
    std::vector<std::int64_t> sizes(cells + 1, cells + 1 + holding.rank), strides(sizes.size());
    std::int64_t count = 1;
    for (std::size_t axis = sizes.size(); axis-- > 0; count *= sizes[axis]) strides[axis] = count;
    Ref<> made = allocate(Library::Numpy, holding.dtype, sizes, strides);
    if (!made) return {};
    std::memcpy(data_pointer(made.get()), reinterpret_cast<const void*>(std::uintptr_t(cells[0])),
                std::size_t(count) * size_in_bytes(holding.dtype));
    arrays_made.emplace_back(cells[0], made);
    return made;
  }

  /// Objects that the region knows by their addresses are held before others are made: that may run Python code.
  void hold_pointers(const Holding& holding, const Cell* left) {
    if (holding.kind == Holding::Kind::Pointer)
      held.push_back(Ref<>::borrow(object_at(std::int64_t(left[holding.value]))));
    for (const Holding& item : holding.items) hold_pointers(item, left);
  }

  /// Null with an error set: there is no memory for it.
  Ref<> object(const Holding& holding, const Cell* left) {
    const auto item = [&](std::size_t i) { return object(holding.items[i], left); };
    switch (holding.kind) {
      case Holding::Kind::Kept: return Ref<>::borrow(objects[std::size_t(holding.place)]);
      case Holding::Kind::Empty: return {};
      case Holding::Kind::Object: return holding.object;
      case Holding::Kind::Number: {
        for (const Made& made : numbers)
          if (made.value == holding.value && made.boxing == holding.boxing) return made.object;
        numbers.push_back({holding.value, holding.boxing, number_of(holding, left[holding.value])});
        return numbers.back().object;
      }
      case Holding::Kind::Complex:
        return Ref<>::steal(PyComplex_FromDoubles(double_of(left[holding.value]), double_of(left[holding.value + 1])));
      case Holding::Kind::Range: {
        Ref<> range = Ref<>::steal(PyObject_CallFunction(
            reinterpret_cast<PyObject*>(&PyRange_Type), "LLL", static_cast<long long>(left[holding.value]),
            static_cast<long long>(left[holding.value + 1]),
            static_cast<long long>(holding.step ? holding.step : std::int64_t(left[holding.value + 2]))));
        if (!range || !holding.iterates) return range;
        return Ref<>::steal(PyObject_GetIter(range.get()));
      }
      case Holding::Kind::Items: {
        const Ref<> over = item(0);
        if (over && PyList_CheckExact(over.get()))
          return Ref<>::steal(fj_list_iterator(over.get(), Py_ssize_t(left[holding.value])));
        const bool tensor = over && array_library(over.get()) == Library::Torch;
        const auto known =
            std::find_if(rows.begin(), rows.end(), [&](const auto& one) { return one.first.get() == over.get(); });
        const Ref<> parts = known != rows.end() ? known->second
                            : tensor            ? Ref<>::steal(PyObject_CallMethod(over.get(), "unbind", nullptr))
                                                : over;
        Ref<> made = !parts   ? Ref<>()
                     : tensor ? Ref<>::steal(PyObject_GetIter(parts.get()))
                              : Ref<>::steal(PySeqIter_New(parts.get()));
        const Ref<> done = made ? Ref<>::steal(PyObject_CallMethod(made.get(), "__setstate__", "L",
                                                                   static_cast<long long>(left[holding.value])))
                                : Ref<>();
        return done ? made : Ref<>();
      }
      case Holding::Kind::Enumerate: {
        const Ref<> over = item(0);
        return over ? Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyEnum_Type), "OL", over.get(),
                                                         static_cast<long long>(left[holding.value])))
                    : Ref<>();
      }
      case Holding::Kind::Zip: case Holding::Kind::Tuple: {
        std::vector<Ref<>> items;
        for (std::size_t i = 0; i < holding.items.size(); ++i) {
          items.push_back(item(i));
          if (!items.back()) return {};
        }
        Ref<> tuple = tuple_of(items);
        if (!tuple || holding.kind == Holding::Kind::Tuple) return tuple;
        return Ref<>::steal(PyObject_CallObject(reinterpret_cast<PyObject*>(&PyZip_Type), tuple.get()));
      }
      case Holding::Kind::Slice: {
        const Ref<> start = item(0), stop = item(1), step = item(2);
        return start && stop && step ? Ref<>::steal(PySlice_New(start.get(), stop.get(), step.get())) : Ref<>();
      }
      case Holding::Kind::TensorNumber: {
        for (const auto& [value, tensor] : tensors)
          if (value == holding.value) return tensor;
        const Ref<> made = allocate(Library::Torch, holding.dtype, {}, {});
        if (!made) return {};
        std::memcpy(data_pointer(made.get()), left + holding.value, size_in_bytes(holding.dtype));
        if (!add_to_version(made.get(), std::int64_t(left[holding.items[0].value]))) return {};
        tensors.emplace_back(holding.value, made);
        return made;
      }
      case Holding::Kind::Fresh: return array_at(holding, left + holding.value);
      case Holding::Kind::Pointer: return Ref<>::borrow(object_at(std::int64_t(left[holding.value])));
      case Holding::Kind::View: {
        const Ref<> base = item(0);
        const Cell* const cells = left + holding.value;
        std::vector<std::int64_t> sizes, strides;
        for (int axis = 0; axis < holding.rank; ++axis) {
          sizes.push_back(std::int64_t(cells[1 + 2 * axis]));
          strides.push_back(std::int64_t(cells[2 + 2 * axis]));
        }
        std::int64_t offset = std::int64_t(cells[0]);
        if (const Holding& of = holding.items[0]; of.kind == Holding::Kind::Fresh)  // counted from the heap's beginning
          offset -= std::int64_t(left[of.value] / size_in_bytes(holding.dtype));
        const bool is_one = holding.items.size() > 1;  // which several may hold
        for (const auto& [value, tensor] : tensors)
          if (is_one && value == holding.items[1].value) return tensor;
        if (holding.unbound) {
          sizes.insert(sizes.begin(), 1);
          strides.insert(strides.begin(), 0);
        }
        Ref<> made = base ? view_of(base.get(), holding.dtype, sizes, strides, offset) : Ref<>();
        if (made && holding.unbound) {
          const auto views = Ref<>::steal(PyObject_CallMethod(made.get(), "unbind", nullptr));
          made = views ? Ref<>::steal(PySequence_GetItem(views.get(), 0)) : Ref<>();
        }
        if (made && is_one) tensors.emplace_back(holding.items[1].value, made);
        return made;
      }
    }
    return {};
  }
};

int traverse_holding(const Holding& holding, visitproc visit, void* arg) {
  Py_VISIT(holding.object.get());
  for (const Holding& item : holding.items)
    if (const int stop = traverse_holding(item, visit, arg)) return stop;
  return 0;
}

}  // namespace

CompiledLoop::CompiledLoop(LoopRegion loop, std::unique_ptr<CompiledRegion> code, std::string tier,
                           int threads, StepAccount account)
    : loop_(std::move(loop)), code_(std::move(code)), tier_(std::move(tier)), threads_(threads),
      account_(std::move(account)) {
  std::vector<char> stores(loop_.memories.size());
  for (const region::Block& block : loop_.region.blocks) {
    most_left_ = std::max(most_left_, block.end.leave.values.size());
    for (const region::Instruction& made : block.body) {
      most_left_ = std::max(most_left_, made.leave.values.size());
      if (made.code == region::Code::Run && region_library()[std::size_t(made.function)].name == "allocate")
        makes_arrays_ = true;
      if (made.code == region::Code::Store) stores[std::size_t(made.memory)] = 1;
    }
  }
  for (std::size_t i = 0; i < stores.size(); ++i)
    if (loop_.memories[i] >= 0) stores_.push_back(stores[i]);
  for (const RegionGuard& guard : loop_.guards)
    for (const RegionGuard& other : loop_.guards)
      if (guard.writes && guard.is_alias_of(other)) apart_.emplace_back(guard.owner, other.owner);
}

int CompiledLoop::traverse(visitproc visit, void* arg) const {
  for (const RegionGuard& guard : loop_.guards)
    for (const Ref<>& object : {std::cref(guard.names), std::cref(guard.object), std::cref(guard.value)})
      Py_VISIT(object.get());
  for (const RegionExit& exit : loop_.exits) {
    for (const Holding& holding : exit.places)
      if (const int stop = traverse_holding(holding, visit, arg)) return stop;
    for (const RegionExit::Called& called : exit.called)
      for (const Holding& holding : called.places)
        if (const int stop = traverse_holding(holding, visit, arg)) return stop;
    for (const RegionExit::Stored& stored : exit.stored)
      if (const int stop = traverse_holding(stored.value, visit, arg)) return stop;
  }
  return 0;
}

bool CompiledLoop::possible() {
  return (numpy_trapped_conditions() & (kFloatUnderflow | (kFloatUnderflow << 16))) == 0;
}

bool CompiledLoop::takes(Improved& improved, bool disjoint) {
  const bool at_once = tier_ == "optimised" && disjoint;
  if (!improved.made && (at_once || (tier_ == "auto" && entries_ > 0 && passes_ >= kManyPasses))) {
    improved.made = std::make_shared<Made>();
    region::Region region = loop_.region;
    region.disjoint = disjoint;
    const LoopForm form = grants_ ? LoopForm::GrantingChunks : LoopForm::Chunks;
    auto make = [made = improved.made, region = std::move(region), form] {
      try {
        made->code = compile_region(region, target_for(""), form);
        made->done.store(true, std::memory_order_release);
      } catch (const std::exception& error) {
        // The other code is right; this is a bug of ours all the same.
        log(Artifact::fallbacks,
            std::string("framejit: the optimised code of a loop could not be made: ") + error.what(),
            LogLevel::warning);
      }
    };
    if (at_once) {
      deepen_c_stack();
      const NoFork section;
      make();
    } else {
      run_in_background(std::move(make));
    }
  }
  if (!improved.is_there()) return false;
  return improved.turns < kTurns ? improved.turns % 2 == 1 : improved.least[1] < improved.least[0];
}

void CompiledLoop::note_turn(Improved& improved, bool taken, double nanoseconds, std::int64_t passes) {
  if (improved.turns >= kTurns || passes == 0 || !improved.is_there()) return;
  improved.least[taken] = std::min(improved.least[taken], nanoseconds / double(passes));
  ++improved.turns;
}

bool CompiledLoop::push_iterator(std::int64_t next, std::span<const CompiledRegion::Cell> inputs,
                                 std::vector<Ref<>>& places) const {
  long long end = 0;
  for (std::size_t i = 0; i < loop_.inputs.size(); ++i)
    if (loop_.inputs[i].kind == RegionInput::Kind::End && loop_.inputs[i].place == loop_.threads->place)
      end = static_cast<long long>(inputs[i]);
  const Ref<> range =
      Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "LLL",
                                         static_cast<long long>(next), end,
                                         static_cast<long long>(loop_.threads->step)));
  if (!range) return false;
  places.push_back(Ref<>::steal(PyObject_GetIter(range.get())));
  if (!places.back()) return false;
  places.resize(places.size() + std::size_t(fj_iterator_entries() - 1));
  return true;
}

int CompiledLoop::threads() const { return threads_ > 0 ? std::min(threads_, thread_count()) : thread_count(); }

CompiledLoop::ThreadsRace& CompiledLoop::race_of(std::int64_t passes) {
  return races_[std::size_t(std::bit_width(std::uint64_t(passes)))];
}

bool CompiledLoop::takes_threads(std::int64_t passes) {
  if (threads() <= 1) return false;
  if (tier_ == "optimised" || outer_pass_ == 0) return true;
  if (outer_pass_ * double(passes) <= kWorthThreads) return false;
  const ThreadsRace& race = race_of(passes);
  return race.turns < kThreadTurns ? race.turns % 2 == 0 : race.several_win();
}

void CompiledLoop::note_threads(bool several, double nanoseconds, std::int64_t passes) {
  ThreadsRace& race = race_of(passes);
  if (++race.turns > kAskAgain) race = {};
  if (race.turns > kThreadTurns) return;
  race.sum[several] += nanoseconds / double(passes);
  race.most[several] = std::max(race.most[several], nanoseconds / double(passes));
}

bool CompiledLoop::is_brief() const { return pass_ > 0 && pass_ * double(last_passes_) < kBrief; }

CompiledLoop::Outcome CompiledLoop::run(PyThreadState* thread, const FrameValues& values, FrameUpdate& update,
                                        int& instruction, std::vector<Resumed>& called) {
  Room room;
  Entrance entrance(loop_, values, room.get());
  if (loop_.has_tensors && !are_tensors_plain()) return Outcome::Other;
  for (const RegionGuard& guard : loop_.guards)
    if (!entrance.holds(guard)) return Outcome::Other;
  for (const auto& [owner, other] : apart_)
    if (share_attributes(entrance.objects[std::size_t(owner)], entrance.objects[std::size_t(other)]))
      return Outcome::Other;
  // CPython says at which call there are too many.
  if (loses() || fj_recursion_left(thread) <= loop_.calls) return Outcome::Loses;

  std::pmr::vector<Cell> inputs(room.get());
  inputs.reserve(loop_.inputs.size());
  for (const RegionInput& input : loop_.inputs) inputs.push_back(entrance.input(input));
  std::pmr::vector<void*> memories(room.get());
  memories.reserve(loop_.memories.size());
  std::size_t array = 0;
  for (int place : loop_.memories) memories.push_back(place < 0 ? nullptr : entrance.arrays[array++].data);
  std::optional<PythonLists> lists;
  if (loop_.has_lists) lists.emplace();
  RegionHeap heap(lists ? &*lists : nullptr);
  std::pmr::vector<Cell> left(most_left_, room.get());
  const CompiledRegion::Asked asked{fj_pending_word(thread), fj_signal_word(thread)};
  const volatile std::uint8_t* const signal = fj_tripped_word();
  const bool disjoint = are_disjoint(entrance.arrays, stores_);
  Improved& improved = improved_[disjoint];
  const bool taken = takes(improved, disjoint);
  // Held: other threads may find meanwhile that it had to be undone.
  const std::shared_ptr<Made> held = taken ? improved.made : nullptr;
  const CompiledRegion& code = held ? *held->code : *code_;
  const std::int64_t passes = loop_.threads ? count_passes(*loop_.threads, loop_, inputs) : 0;
  const bool divided = loop_.threads && loop_.threads->why.empty() && threads_lost_ < kMostLost &&
                       count_stretches(*loop_.threads, passes) > 1 && are_apart(loop_, entrance.arrays);
  const bool several = divided && takes_threads(passes);
  const bool in_stretches = several || (divided && loop_.threads->gathers_floats);
  const int workers = several ? threads() : 1;
  // With the GIL it leaves as soon as another thread asks for that.
  PyThreadState* const self = loop_.has_lists || (is_brief() && !in_stretches) ? nullptr : fj_release_gil();
  const bool timed = loop_.threads ||
      self != nullptr || (improved.made && improved.turns < kTurns) || entries_ % kTimed == 0 || is_profiling();
  const auto begun = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  std::optional<PassesRun> together;
  if (in_stretches)
    together =
        run_on_threads({loop_, code, inputs, memories, entrance.arrays, signal, most_left_, workers});
  on_threads_ = several && together;
  if (in_stretches && !together) ++threads_lost_;
  const int number =
      together ? together->exit : code.run(inputs.data(), memories.data(), left.data(), asked, heap);
  if (together) std::copy(together->left.begin(), together->left.end(), left.begin());
  const auto took = timed ? std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun)
                          : std::chrono::duration<double, std::nano>();
  if (self != nullptr) fj_take_gil(self);
  if (timed && is_profiling()) [[unlikely]]
    count_profiled_run(profile_id_, loop_.region.name, account_, std::int64_t(took.count()));

  constexpr Py_ssize_t kLooked = 64;  // rows, of which the look costs what an entry does
  ++entries_;
  for (const auto& [joined, tuple] : entrance.rows) entries_ += PyTuple_GET_SIZE(tuple.get()) / kLooked;
  last_passes_ = std::int64_t(left[0]);
  passes_ += last_passes_;
  if (timed && passes > 0) {
    outer_pass_ = took.count() * workers / double(passes);
    if (divided && improved.turns >= kTurns) note_threads(several, took.count(), passes);
  }
  if (timed) {
    pass_ = took.count() / double(std::max<std::int64_t>(last_passes_, 1));
    note_turn(improved, taken, took.count(), last_passes_);
  }
  undone_ += together ? together->undone : heap.undone();
  if (grants_ && undone_ >= kMostUndone) {
    grants_ = false;
    for (Improved& one : improved_) one = {};
  }
  const RegionExit& exit = loop_.exits[std::size_t(number)];
  update.clear();
  for (const Holding& holding : exit.places) entrance.hold_pointers(holding, left.data());
  for (const RegionExit::Called& one : exit.called)
    for (const Holding& holding : one.places) entrance.hold_pointers(holding, left.data());
  for (const RegionExit::Stored& one : exit.stored) entrance.hold_pointers(one.value, left.data());
  const auto make = [&](const std::vector<Holding>& places, std::vector<Ref<>>& slots) {
    for (const Holding& holding : places) {
      slots.push_back(entrance.object(holding, left.data()));
      if (!slots.back() && PyErr_Occurred()) return false;
    }
    return true;
  };
  if (!make(exit.places, update.slots)) return Outcome::Failed;
  if (together && together->next && !push_iterator(*together->next, inputs, update.slots)) return Outcome::Failed;
  called.clear();
  for (const RegionExit::Called& one : exit.called) {
    called.push_back({one.code, one.instruction, {}});
    if (!make(one.places, called.back().slots)) return Outcome::Failed;
  }
  for (const auto& [tensor, times] : exit.written)
    if (!add_to_version(entrance.objects[std::size_t(tensor)], std::int64_t(left[std::size_t(times)])))
      return Outcome::Failed;
  std::vector<Ref<>> stored;
  for (const RegionExit::Stored& one : exit.stored) {
    stored.push_back(entrance.object(one.value, left.data()));
    if (!stored.back()) return Outcome::Failed;
  }
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const RegionExit::Stored& one = exit.stored[i];
    PyObject* const owner = entrance.objects[std::size_t(one.owner)];
    if (PyObject_GenericSetAttr(owner, one.name.get(), stored[i].get()) != 0) return Outcome::Failed;
  }
  instruction = together && together->next ? loop_.threads->header : exit.instruction;
  return Outcome::Ran;
}

}  // namespace fj
