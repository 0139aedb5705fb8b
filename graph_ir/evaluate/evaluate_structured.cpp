// Operations whose result elements come from other places than their own: sources, index maps, reductions,
// scans, gathers and products. Index maps only move bytes, so they are the same for every dtype.
#include <algorithm>
#include <optional>

#include "graph_ir/evaluate/elements.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"

namespace fj::detail {
namespace {

using Index = std::vector<std::int64_t>;

/// Calls `visit(index)` for every index of `shape` in row-major order.
template <class Visit>
void for_each_index(const Index& shape, Visit&& visit) {
  for (std::int64_t size : shape)
    if (size <= 0) return;
  Index index(shape.size(), 0);
  while (true) {
    visit(index);
    std::size_t axis = shape.size();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

std::int64_t offset(const Index& shape, const Index& index) {
  std::int64_t result = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    FJ_CHECK(index[i] >= 0 && index[i] < shape[i],
             "index " + std::to_string(index[i]) + " of an axis of size " + std::to_string(shape[i]));
    result = result * shape[i] + index[i];
  }
  return result;
}

void copy_element(DenseArray& to, std::int64_t to_offset, const DenseArray& from, std::int64_t from_offset) {
  std::memcpy(to.element(to_offset), from.element(from_offset), size_in_bytes(to.dtype));
}

/// result[index] = x[source(index)] for all indices.
template <class Source>
void pull(DenseArray& result, const DenseArray& x, Source&& source) {
  std::int64_t position = 0;
  for_each_index(result.shape,
                 [&](const Index& index) { copy_element(result, position++, x, offset(x.shape, source(index))); });
}

std::int64_t axis_of(const Node& node) { return node.attrs.get<std::int64_t>("axis"); }

/// A negative index counts from the end. False if out of range.
bool resolve(std::int64_t& index, std::int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size;
}

std::int64_t index_at(const DenseArray& indices, std::int64_t position) {
  return Element<DType::I64>::load(indices.element(position));
}

// What sums and products of a dtype accumulate in.
template <DType dtype>
using Accumulator = std::conditional_t<
    std::is_same_v<typename Element<dtype>::Compute, float> && dtype == DType::F32, double,
    std::conditional_t<std::is_same_v<typename Element<dtype>::Compute, std::complex<float>>, std::complex<double>,
                       std::conditional_t<std::is_integral_v<typename Element<dtype>::Compute>, std::uint64_t,
                                          typename Element<dtype>::Compute>>>;

template <DType dtype, class Sum>
void store_accumulated(std::byte* place, Sum sum) {
  using Compute = typename Element<dtype>::Compute;
  if constexpr (std::is_integral_v<Compute>)
    Element<dtype>::store(place, Compute(sum));
  else
    Element<dtype>::store(place, convert<Compute>(sum));
}

template <class T>
T multiply(T a, T b) {
  if constexpr (is_complex_type<T>)
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  else
    return a * b;
}

// NaN counts as the extreme value, and the first one wins.
template <class T>
bool replaces(bool want_larger, T candidate, T best) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(best)) return false;
    if (std::isnan(candidate)) return true;
    return want_larger ? std::isgreater(candidate, best) : std::isless(candidate, best);
  } else {
    return want_larger ? candidate > best : candidate < best;
  }
}

void reduce(const Node& node, const DenseArray& x, DenseArray& result) {
  std::vector<bool> dropped(x.shape.size(), false);
  if (const Attr* axes = node.attrs.find("axes"))
    for (std::int64_t axis : std::get<std::vector<std::int64_t>>(*axes)) dropped[std::size_t(axis)] = true;
  else
    dropped[std::size_t(axis_of(node))] = true;

  Index inner;
  for (std::size_t i = 0; i < x.shape.size(); ++i)
    if (dropped[i]) inner.push_back(x.shape[i]);

  std::int64_t position = 0;
  for_each_index(result.shape, [&](const Index& outer) {
    Index source(x.shape.size());
    for (std::size_t i = 0, o = 0; i < source.size(); ++i)
      if (!dropped[i]) source[i] = outer[o++];
    auto each = [&](auto&& visit) {
      for_each_index(inner, [&](const Index& index) {
        for (std::size_t i = 0, n = 0; i < source.size(); ++i)
          if (dropped[i]) source[i] = index[n++];
        visit(x.element(offset(x.shape, source)));
      });
    };
    std::byte* place = result.element(position++);

    with_dtype(x.dtype, [&]<DType dtype>() {
      using Compute = typename Element<dtype>::Compute;
      switch (node.op) {
        case Op::reduce_sum:
        case Op::reduce_prod: {
          const bool is_sum = node.op == Op::reduce_sum;
          Accumulator<dtype> total(is_sum ? 0 : 1);
          each([&](const std::byte* element) {
            const Accumulator<dtype> value(Element<dtype>::load(element));
            total = is_sum ? Accumulator<dtype>(total + value) : multiply(total, value);
          });
          store_accumulated<dtype>(place, total);
          break;
        }
        case Op::reduce_and:
        case Op::reduce_or: {
          bool all = true, any = false;
          each([&](const std::byte* element) {
            const bool value = Element<DType::Bool>::load(element);
            all = all && value;
            any = any || value;
          });
          Element<DType::Bool>::store(place, node.op == Op::reduce_and ? all : any);
          break;
        }
        case Op::reduce_max:
        case Op::reduce_min:
        case Op::argmax:
        case Op::argmin:
          if constexpr (!is_complex_type<Compute>) {
            const bool want_larger = node.op == Op::reduce_max || node.op == Op::argmax;
            Compute best{};
            std::int64_t best_index = 0, count = 0;
            each([&](const std::byte* element) {
              const Compute value = Element<dtype>::load(element);
              if (count == 0 || replaces(want_larger, value, best)) best = value, best_index = count;
              ++count;
            });
            if (node.op == Op::argmax || node.op == Op::argmin)
              Element<DType::I64>::store(place, best_index);
            else
              Element<dtype>::store(place, best);
          }
          break;
        default:
          FJ_CHECK(false, std::string(name(node.op)) + " is not a reduction");
      }
    });
  });
}

void scan(const Node& node, const DenseArray& x, DenseArray& result) {
  const std::size_t axis = std::size_t(axis_of(node));
  Index outer = x.shape;
  outer[axis] = 1;
  with_dtype(x.dtype, [&]<DType dtype>() {
    for_each_index(outer, [&](const Index& start) {
      Accumulator<dtype> total =
          node.op == Op::cumsum ? Accumulator<dtype>(-0.0) : Accumulator<dtype>(1);  // -0.0 + x is x
      Index index = start;
      for (index[axis] = 0; index[axis] < x.shape[axis]; ++index[axis]) {
        const std::int64_t position = offset(x.shape, index);
        const Accumulator<dtype> value(Element<dtype>::load(x.element(position)));
        total = node.op == Op::cumsum ? Accumulator<dtype>(total + value) : multiply(total, value);
        store_accumulated<dtype>(result.element(position), total);
        total = Accumulator<dtype>(Element<dtype>::load(result.element(position)));  // every step is rounded
      }
    });
  });
}

void matmul(const DenseArray& a, const DenseArray& b, DenseArray& result) {
  const std::size_t rank = a.shape.size();
  const std::int64_t m = a.shape[rank - 2], k = a.shape[rank - 1], n = b.shape[rank - 1];
  const std::int64_t batches = m * n == 0 ? 0 : result.element_count() / (m * n);
  with_dtype(a.dtype, [&]<DType dtype>() {
    for (std::int64_t batch = 0; batch < batches; ++batch)
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          Accumulator<dtype> total(0);
          for (std::int64_t p = 0; p < k; ++p)
            total = total + multiply(Accumulator<dtype>(Element<dtype>::load(a.element((batch * m + i) * k + p))),
                                     Accumulator<dtype>(Element<dtype>::load(b.element((batch * k + p) * n + j))));
          store_accumulated<dtype>(result.element((batch * m + i) * n + j), total);
        }
  });
}

/// Where an index of gather's result (or scatter's updates) leads to.
class Picked {
 public:
  using Operands = std::span<const DenseArray* const>;
  Picked(const Node& node, const DenseArray& base, Operands indices)
      : axis_(std::size_t(axis_of(node))), base_(base), indices_(indices) {}

  /// The offset in base; nullopt: out of range.
  std::optional<std::int64_t> element(const Index& index) const {
    const auto last = index.begin() + long(axis_ + indices_[0]->shape.size());
    const std::int64_t position = offset(indices_[0]->shape, Index(index.begin() + long(axis_), last));
    Index result(index.begin(), index.begin() + long(axis_));
    for (const DenseArray* indices : indices_) {
      result.push_back(index_at(*indices, position));
      if (!resolve(result.back(), base_.shape[result.size() - 1])) return std::nullopt;
    }
    result.insert(result.end(), last, index.end());
    return offset(base_.shape, result);
  }

 private:
  std::size_t axis_;
  const DenseArray& base_;
  Operands indices_;
};

std::uint32_t gather(const Node& node, const DenseArray& x, Picked::Operands indices, DenseArray& result) {
  const Picked picked(node, x, indices);
  std::uint32_t status = kOk;
  std::int64_t position = 0;
  for_each_index(result.shape, [&](const Index& index) {
    if (const auto element = picked.element(index))
      copy_element(result, position, x, *element);
    else
      status |= kIndexOutOfRange;
    ++position;
  });
  // Without result elements (another axis is empty) no index was looked at, as in both libraries' kernels.
  return status;
}

std::uint32_t take_along(const Node& node, const DenseArray& x, const DenseArray& indices, DenseArray& result) {
  const std::size_t axis = std::size_t(axis_of(node));
  std::uint32_t status = kOk;
  std::int64_t position = 0;
  for_each_index(result.shape, [&](const Index& index) {
    Index source = index;
    source[axis] = index_at(indices, position);
    if (resolve(source[axis], x.shape[axis]))
      copy_element(result, position, x, offset(x.shape, source));
    else
      status |= kIndexOutOfRange;
    ++position;
  });
  return status;
}

std::uint32_t scatter(const Node& node, const DenseArray& base, const DenseArray& updates, Picked::Operands indices,
                      DenseArray& result) {
  const Picked picked(node, base, indices);
  std::uint32_t status = kOk;
  result.data = base.data;
  with_dtype(base.dtype, [&]<DType dtype>() {
    using Compute = typename Element<dtype>::Compute;
    std::int64_t position = 0;
    for_each_index(updates.shape, [&](const Index& index) {
      const auto element = picked.element(index);
      if (element && node.op == Op::scatter) {
        copy_element(result, *element, updates, position);
      } else if (element) {
        std::byte* place = result.element(*element);
        const Compute old = Element<dtype>::load(place), update = Element<dtype>::load(updates.element(position));
        if constexpr (std::is_integral_v<Compute>)
          Element<dtype>::store(place, Compute(std::uint64_t(old) + std::uint64_t(update)));
        else
          Element<dtype>::store(place, old + update);
      } else {
        status |= kIndexOutOfRange;
      }
      ++position;
    });
  });
  return status;
}

}  // namespace

std::uint32_t evaluate_structured(const Node& node, std::span<const DenseArray* const> operands,
                                  std::span<const std::int64_t> symbols, DenseArray& result) {
  const Attrs& attrs = node.attrs;
  using Integers = std::vector<std::int64_t>;
  switch (node.op) {
    case Op::constant:
      result = scalar_array(result.dtype, attrs.get<Scalar>("value"));
      return kOk;
    case Op::dim:
      Element<DType::I64>::store(result.element(0), attrs.get<SymDim>("value").evaluate(symbols));
      return kOk;
    case Op::iota: {
      const std::size_t axis = std::size_t(axis_of(node));
      std::int64_t position = 0;
      for_each_index(result.shape,
                     [&](const Index& index) { Element<DType::I64>::store(result.element(position++), index[axis]); });
      return kOk;
    }
    case Op::broadcast: {
      const DenseArray& x = *operands[0];
      const Integers& dims = attrs.get<Integers>("dims");
      pull(result, x, [&](const Index& index) {
        Index source(x.shape.size());
        for (std::size_t i = 0; i < source.size(); ++i) {
          const std::int64_t to = result.shape[std::size_t(dims[i])];
          FJ_CHECK(x.shape[i] == 1 || x.shape[i] == to,
                   "broadcast of size " + std::to_string(x.shape[i]) + " to " + std::to_string(to));
          source[i] = x.shape[i] == 1 ? 0 : index[std::size_t(dims[i])];
        }
        return source;
      });
      return kOk;
    }
    case Op::reshape:
      FJ_CHECK(operands[0]->data.size() == result.data.size(),
               "reshape of " + std::to_string(operands[0]->element_count()) + " elements to " +
                   std::to_string(result.element_count()));
      result.data = operands[0]->data;
      return kOk;
    case Op::transpose: {
      const Integers& permutation = attrs.get<Integers>("permutation");
      pull(result, *operands[0], [&](const Index& index) {
        Index source(index.size());
        for (std::size_t i = 0; i < index.size(); ++i) source[std::size_t(permutation[i])] = index[i];
        return source;
      });
      return kOk;
    }
    case Op::slice: {
      const Index starts = evaluate(attrs.get<Dims>("starts"), symbols);
      const Integers& steps = attrs.get<Integers>("steps");
      pull(result, *operands[0], [&](const Index& index) {
        Index source(index.size());
        for (std::size_t i = 0; i < index.size(); ++i) source[i] = starts[i] + index[i] * steps[i];
        return source;
      });
      return kOk;
    }
    case Op::windows: {
      const std::size_t axis = std::size_t(axis_of(node));
      const std::int64_t step = attrs.get<std::int64_t>("step");
      pull(result, *operands[0], [&](const Index& index) {
        Index source(index.begin(), index.end() - 1);
        source[axis] = index[axis] * step + index.back();
        return source;
      });
      return kOk;
    }
    case Op::slice_update: {
      const DenseArray& update = *operands[1];
      const Index starts = evaluate(attrs.get<Dims>("starts"), symbols);
      const Integers& steps = attrs.get<Integers>("steps");
      result.data = operands[0]->data;
      std::int64_t position = 0;
      for_each_index(update.shape, [&](const Index& index) {
        Index target(index.size());
        for (std::size_t i = 0; i < index.size(); ++i) target[i] = starts[i] + index[i] * steps[i];
        copy_element(result, offset(result.shape, target), update, position++);
      });
      return kOk;
    }
    case Op::pad: {
      const DenseArray& x = *operands[0];
      const Index low = evaluate(attrs.get<Dims>("low"), symbols);
      std::int64_t position = 0;
      for_each_index(result.shape, [&](const Index& index) {
        Index source(index.size());
        bool inside = true;
        for (std::size_t i = 0; i < index.size(); ++i) {
          source[i] = index[i] - low[i];  // a negative pad crops
          inside = inside && source[i] >= 0 && source[i] < x.shape[i];
        }
        if (inside)
          copy_element(result, position++, x, offset(x.shape, source));
        else
          copy_element(result, position++, *operands[1], 0);
      });
      return kOk;
    }
    case Op::concat: {
      const std::size_t axis = std::size_t(axis_of(node));
      std::int64_t start = 0;
      for (const DenseArray* x : operands) {
        std::int64_t position = 0;
        for_each_index(x->shape, [&](const Index& index) {
          Index target = index;
          target[axis] += start;
          copy_element(result, offset(result.shape, target), *x, position++);
        });
        start += x->shape[axis];
      }
      return kOk;
    }
    case Op::cumsum:
    case Op::cumprod:
      scan(node, *operands[0], result);
      return kOk;
    case Op::gather:
      return gather(node, *operands[0], operands.subspan(1), result);
    case Op::take_along:
      return take_along(node, *operands[0], *operands[1], result);
    case Op::scatter:
    case Op::scatter_add:
      return scatter(node, *operands[0], *operands[1], operands.subspan(2), result);
    case Op::as_size:
      result = *operands[0];
      return kOk;
    case Op::nonzero: {
      std::int64_t found = 0;
      for (std::int64_t position = 0; position < operands[0]->element_count(); ++position)
        if (*operands[0]->element(position) != std::byte{0})
          Element<DType::I64>::store(result.element(found++), position);
      return kOk;
    }
    case Op::matmul:
      matmul(*operands[0], *operands[1], result);
      return kOk;
    default:
      FJ_CHECK(row(node.op).lowering == Lowering::Reduce, std::string(name(node.op)) + " cannot be evaluated here");
      reduce(node, *operands[0], result);
      return kOk;
  }
}

}  // namespace fj::detail
