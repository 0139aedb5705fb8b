// Result shapes. Sizes are compared as polynomials: equal text is equal value; what the front ends know to be equal by
// a guard they restate with a reshape.
#include <algorithm>
#include <set>

#include "graph_ir/ops.h"
#include "graph_ir/rules/rules.h"

namespace fj::rules::shape {
namespace {

std::string text(const Dims& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) result += (i ? ", " : "") + shape[i].text();
  return result + "]";
}

void expect_shape(std::size_t operand, const Dims& found, const Dims& expected) {
  if (found != expected)
    throw Violation{"operand " + std::to_string(operand) + " has shape " + text(found) + ", expected " +
                    text(expected)};
}

void expect_count(const char* attr, std::size_t found, std::size_t expected) {
  if (found != expected)
    throw Violation{std::string("attribute ") + attr + " has " + std::to_string(found) + " entries, expected " +
                    std::to_string(expected)};
}

std::size_t axis_of(const Operation& o, std::size_t rank) {
  const std::int64_t axis = o.attrs.get<std::int64_t>("axis");
  if (axis < 0 || std::size_t(axis) >= rank)
    throw Violation{"axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank)};
  return std::size_t(axis);
}

using Integers = std::vector<std::int64_t>;

/// Of a part of an axis whose numbers are constants; verify.cpp asks for the ranges of those that are not.
void expect_inside(const char* does, std::size_t axis, const SymDim& first, const SymDim& count, std::int64_t step,
                   const SymDim& extent) {
  const auto start = first.constant(), size = count.constant(), whole = extent.constant();
  if (size && *size < 0)
    throw Violation{"dimension " + std::to_string(axis) + " has the size " + std::to_string(*size)};
  if (!start || !size || !whole || *size == 0) return;
  const __int128 last = *start + __int128(*size - 1) * step;
  if (*start >= 0 && *start < *whole && last >= 0 && last < *whole) return;
  const bool fits = last >= INT64_MIN && last <= INT64_MAX;
  throw Violation{"dimension " + std::to_string(axis) + " " + does + " " + std::to_string(*start) + " to " +
                  (fits ? std::to_string(std::int64_t(last)) : "more than 64 bits") + " of size " +
                  std::to_string(*whole)};
}

}  // namespace

Dims Scalar(const Operation&) { return {}; }

Dims Attr(const Operation& o) {
  const Dims& shape = o.attrs.get<Dims>("shape");
  if (o.op == Op::iota) axis_of(o, shape.size());
  if (o.op == Op::broadcast) {
    const Dims& from = o.operands[0].shape;
    const auto& dims = o.attrs.get<Integers>("dims");
    expect_count("dims", dims.size(), from.size());
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < 0 || std::size_t(dims[i]) >= shape.size() || (i > 0 && dims[i] <= dims[i - 1]))
        throw Violation{"dims must increase and stay below the rank " + std::to_string(shape.size())};
      if (from[i] != shape[std::size_t(dims[i])] && from[i] != SymDim(1))
        throw Violation{"dimension " + std::to_string(i) + " of size " + from[i].text() + " cannot become size " +
                        shape[std::size_t(dims[i])].text()};
    }
  }
  if (o.op == Op::reshape) {
    const SymDim from = product(o.operands[0].shape), to = product(shape);
    if (from.is_constant() && to.is_constant() && from != to)
      throw Violation{"cannot reshape " + from.text() + " elements to " + text(shape)};
  }
  return shape;
}

Dims Same(const Operation& o) {
  for (std::size_t i = 1; i < o.operands.size(); ++i) expect_shape(i, o.operands[i].shape, o.operands[0].shape);
  if (const fj::Attr* axis = o.attrs.find("axis"); axis && row(o.op).lowering == Lowering::Scan)
    axis_of(o, o.operands[0].shape.size());
  return o.operands[0].shape;
}

/// What operands from `first` on, which are indices of one shape, pick from operand 0.
Dims picked(const Operation& o, std::size_t first) {
  const Dims& from = o.operands[0].shape;
  const std::size_t axis = axis_of(o, from.size()), count = o.operands.size() - first;
  if (count == 0) throw Violation{"takes at least one operand of indices"};
  if (axis + count > from.size())
    throw Violation{"has more indices than the operand has axes from " + std::to_string(axis) + " on"};
  for (std::size_t i = first + 1; i < o.operands.size(); ++i)
    expect_shape(i, o.operands[i].shape, o.operands[first].shape);
  Dims shape(from.begin(), from.begin() + long(axis));
  shape.insert(shape.end(), o.operands[first].shape.begin(), o.operands[first].shape.end());
  shape.insert(shape.end(), from.begin() + long(axis + count), from.end());
  return shape;
}

/// The first operand's shape; the others are checked by what they mean.
Dims Same0(const Operation& o) {
  const Dims& base = o.operands[0].shape;
  if (o.op == Op::slice_update) {
    const Dims &starts = o.attrs.get<Dims>("starts"), &update = o.operands[1].shape;
    const auto& steps = o.attrs.get<Integers>("steps");
    expect_count("starts", starts.size(), base.size());
    expect_count("steps", steps.size(), base.size());
    if (update.size() != base.size())
      throw Violation{"operand 1 has rank " + std::to_string(update.size()) + ", expected " +
                      std::to_string(base.size())};
    for (std::size_t i = 0; i < base.size(); ++i)
      expect_inside("writes", i, starts[i], update[i], steps[i], base[i]);
  } else {  // scatter, scatter_add
    expect_shape(1, o.operands[1].shape, picked(o, 2));
  }
  return base;
}

Dims Permute(const Operation& o) {
  const auto& permutation = o.attrs.get<Integers>("permutation");
  const Dims& from = o.operands[0].shape;
  expect_count("permutation", permutation.size(), from.size());
  if (std::set<std::int64_t>(permutation.begin(), permutation.end()).size() != from.size() ||
      std::any_of(permutation.begin(), permutation.end(),
                  [&](auto p) { return p < 0 || std::size_t(p) >= from.size(); }))
    throw Violation{"not a permutation"};
  Dims shape;
  for (std::int64_t p : permutation) shape.push_back(from[std::size_t(p)]);
  return shape;
}

Dims Sizes(const Operation& o) {
  const Dims& from = o.operands[0].shape;
  const Dims& sizes = o.attrs.get<Dims>("sizes");
  const Dims& starts = o.attrs.get<Dims>("starts");
  const auto& steps = o.attrs.get<Integers>("steps");
  expect_count("sizes", sizes.size(), from.size());
  expect_count("starts", starts.size(), from.size());
  expect_count("steps", steps.size(), from.size());
  for (std::size_t i = 0; i < from.size(); ++i) expect_inside("reads", i, starts[i], sizes[i], steps[i], from[i]);
  return sizes;
}

Dims Windows(const Operation& o) {
  Dims shape = o.operands[0].shape;
  const std::size_t axis = axis_of(o, shape.size());
  const SymDim& count = o.attrs.get<SymDim>("count");
  const auto size = o.attrs.get<std::int64_t>("size"), step = o.attrs.get<std::int64_t>("step");
  if (size < 0 || step < 1)
    throw Violation{"windows of " + std::to_string(size) + " elements, " + std::to_string(step) + " apart"};
  const auto many = count.constant(), extent = shape[axis].constant();
  if (many && extent && (*many < 0 || (*many > 0 && __int128(*many - 1) * step + size > *extent)))
    throw Violation{std::to_string(*many) + " windows of " + std::to_string(size) + " elements, " +
                    std::to_string(step) + " apart, are not in size " + std::to_string(*extent)};
  shape[axis] = count;
  shape.push_back(size);
  return shape;
}

Dims Pad(const Operation& o) {
  const Dims& from = o.operands[0].shape;
  const Dims& low = o.attrs.get<Dims>("low");
  const Dims& high = o.attrs.get<Dims>("high");
  expect_count("low", low.size(), from.size());
  expect_count("high", high.size(), from.size());
  expect_shape(1, o.operands[1].shape, {});
  Dims shape;
  for (std::size_t i = 0; i < from.size(); ++i) shape.push_back(from[i] + low[i] + high[i]);
  return shape;
}

Dims Concat(const Operation& o) {
  if (o.operands.empty()) throw Violation{"takes at least one operand"};
  Dims shape = o.operands[0].shape;
  const std::size_t axis = axis_of(o, shape.size());
  for (std::size_t i = 1; i < o.operands.size(); ++i) {
    Dims expected = shape;
    if (o.operands[i].shape.size() == shape.size()) expected[axis] = o.operands[i].shape[axis];
    expect_shape(i, o.operands[i].shape, expected);
    shape[axis] = shape[axis] + o.operands[i].shape[axis];
  }
  return shape;
}

Dims DropAxes(const Operation& o) {
  const auto& axes = o.attrs.get<Integers>("axes");
  const Dims& from = o.operands[0].shape;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] < 0 || std::size_t(axes[i]) >= from.size() || (i > 0 && axes[i] <= axes[i - 1]))
      throw Violation{"axes must increase and stay below the rank " + std::to_string(from.size())};
  Dims shape;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (std::find(axes.begin(), axes.end(), std::int64_t(i)) == axes.end()) shape.push_back(from[i]);
  return shape;
}

Dims DropAxis(const Operation& o) {
  Dims shape = o.operands[0].shape;
  shape.erase(shape.begin() + long(axis_of(o, shape.size())));
  return shape;
}

Dims Gather(const Operation& o) { return picked(o, 1); }

Dims Along(const Operation& o) {
  Dims expected = o.operands[0].shape;
  const std::size_t axis = axis_of(o, expected.size());
  if (o.operands[1].shape.size() == expected.size()) expected[axis] = o.operands[1].shape[axis];
  expect_shape(1, o.operands[1].shape, expected);
  return o.operands[1].shape;
}

static const SymDim& counted_symbol(const Operation& o) {
  const SymDim& count = o.attrs.get<SymDim>("count");
  if (count.symbols().size() != 1 || !(count == SymDim(count.symbols()[0])))
    throw Violation{"count is " + count.text() + ", expected a symbol"};
  return count;
}

Dims Count(const Operation& o) {
  const SymDim& count = counted_symbol(o);
  if (o.operands[0].dtype != DType::Bool)
    throw Violation{"operand 0 is " + std::string(name(o.operands[0].dtype)) + ", expected bool"};
  return {count};
}

Dims SameCount(const Operation& o) {
  counted_symbol(o);
  expect_shape(0, o.operands[0].shape, {});
  return {};
}

Dims Matmul(const Operation& o) {
  const Dims &a = o.operands[0].shape, &b = o.operands[1].shape;
  if (a.size() < 2 || b.size() != a.size())
    throw Violation{"operands have ranks " + std::to_string(a.size()) + " and " + std::to_string(b.size())};
  Dims expected = a;
  expected[a.size() - 2] = a.back();
  expected.back() = b.back();
  expect_shape(1, b, expected);
  Dims shape = a;
  shape.back() = b.back();
  return shape;
}

Dims Given(const Operation&) { throw Violation{"result types of this operation are given, not inferred"}; }

}  // namespace fj::rules::shape
