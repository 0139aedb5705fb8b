#include "frame_hook/cache/place.h"

#include <algorithm>
#include <bit>

#include "frame_hook/cache/savings.h"
#include "guards/check_program.h"

namespace fj {

namespace {

/// Few segments are asked one by one in less time than it takes to look at a call.
constexpr std::size_t kFew = 4;
/// However much they save: a call that matches none asks all.
constexpr std::int64_t kMostSegments = 256;

bool has_paid(const Segment& segment) {
  if (segment.races && segment.races->retired()) return false;
  return double(segment.uses) * saved_nanoseconds(segment) >= compile_nanoseconds(segment);
}

struct Words {
  std::uint64_t look = 0, numbers = 0;
};

/// What guards are most often about, in two words: calls that need different segments mostly differ in `look`, and
/// calls that need the same one should not, as numbers are mostly inputs of the program. Runs no Python code.
Words words_of(std::span<PyObject* const> values, bool sizes) {
  constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15ull;
  std::uint64_t look = 0, numbers = 0;
  const auto mix = [&](std::uint64_t word) { look = (std::rotl(look, 5) ^ word) * kSpread; };
  const auto mix_number = [&](std::uint64_t word) { numbers = (std::rotl(numbers, 5) ^ word) * kSpread; };
  const auto identity = [&](const void* object) { mix(reinterpret_cast<std::uintptr_t>(object) >> 4); };
  for (PyObject* value : values) {
    if (value == nullptr) continue;
    identity(Py_TYPE(value));
    ArrayView view;
    if (PyUnicode_CheckExact(value)) {
      mix(std::uint64_t(PyObject_Hash(value)));
    } else if (PyFloat_CheckExact(value)) {
      mix_number(std::bit_cast<std::uint64_t>(PyFloat_AS_DOUBLE(value)));
    } else if (PyLong_CheckExact(value)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
      const bool small = overflow == 0 && number >= -1 && number < 256;  // a mode or a place, not a counter for long
      small ? mix(std::uint64_t(number)) : mix_number(std::uint64_t(number));
    } else if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
      mix(std::uint64_t(Py_SIZE(value)));
    } else if (PyDict_CheckExact(value)) {
      mix(std::uint64_t(PyDict_GET_SIZE(value)));
    } else if (PyFunction_Check(value)) {
      identity(reinterpret_cast<PyFunctionObject*>(value)->func_code);
    } else if (guard_program::read_any_array(value, view)) {
      mix(std::uint64_t(view.dtype) * 64 + std::uint64_t(view.rank));
      for (int d = 0; sizes && d < view.rank; ++d) mix(std::uint64_t(view.shape[d]));
    } else {
      identity(value);
    }
  }
  return {look, numbers};
}

Search::Look look_of(const FrameValues& values) {
  const auto [look, numbers] = words_of(values.slots, false);
  return {std::uint8_t(look >> 56), std::uint16_t((look ^ numbers) >> 32)};
}

/// The sizes too, and which arguments are named.
std::uint64_t whole_look(std::span<PyObject* const> args, PyObject* kwnames) {
  return words_of(args, true).look ^ reinterpret_cast<std::uintptr_t>(kwnames);
}

}  // namespace

bool Place::may_grow(std::int64_t limit) const {
  const auto made = std::int64_t(segments.size());
  if (made < limit) return true;
  if (limit <= 0 || made >= std::max(limit, kMostSegments)) return false;
  constexpr std::uint32_t kPatience = 64;  // calls refused before they allow one more
  const auto unpaid =
      std::count_if(segments.begin(), segments.end(), [](const auto& segment) { return !has_paid(*segment); });
  return unpaid < limit + std::bit_width(refused / kPatience);
}

bool Place::leaves(std::span<PyObject* const> args, PyObject* kwnames) {
  return ++left_ % kLeft != 0 && whole_look(args, kwnames) == left_look_;
}

void Place::note_left(std::span<PyObject* const> args, PyObject* kwnames) {
  const std::uint64_t look = whole_look(args, kwnames);
  left_ = look == std::exchange(left_look_, look) ? left_ + 1 : 1;
}

const std::shared_ptr<const Segment>* Search::next() {
  const auto& segments = place_.segments;
  if (position_ == 1 && !look_ && segments.size() > kFew) {
    look_ = look_of(values_);
    if (place_.by_look_) {
      const std::size_t index = (*place_.by_look_)[look_->look].index;
      if (index < segments.size() && index != place_.last()) {
        alike_ = given_ = index;
        return &segments[given_];
      }
    }
  }
  for (; position_ < segments.size(); ++position_) {
    given_ = place_.in_order(position_);
    if (alike_ == given_) continue;
    ++position_;
    return &segments[given_];
  }
  return nullptr;
}

void Search::found() {
  place_.served_ = given_;
  note(std::uint16_t(given_));
}

bool Search::none_served_alike() const {
  if (!look_ || !place_.by_look_) return false;
  const Place::Known& known = (*place_.by_look_)[look_->look];
  return known.index == Place::Known::kNone && known.numbers == look_->numbers;
}

void Search::found_none() { note(Place::Known::kNone); }

void Search::note(std::uint16_t index) {
  if (!look_) return;
  if (!place_.by_look_) place_.by_look_ = std::make_unique<std::array<Place::Known, 256>>();
  (*place_.by_look_)[look_->look] = {index, look_->numbers};
}

}  // namespace fj
