/// Indexing shared by the libraries: `x[key]` and `x[key] = value` for keys of ints, slices, None, Ellipsis, integer
/// arrays, and one boolean mask.
///
/// Basic keys give views. Integer arrays and lists give a `gather`; writes through them (NumPy's) a `scatter`. A
/// boolean mask is the indices of its true elements, as many as there are at run time; a boolean mask write of one
/// value is a `where`.
#pragma once

#include "tracer/frontends/builders.h"

namespace fj {

/// A key taken apart.
struct Index {
  struct Item {
    enum class Kind { Integer, Slice, NewAxis, Ellipsis, IntegerArray, Mask } kind;
    SymDim integer;          // Integer
    V start, stop, step;     // Slice; null or None: absent
    V array;                 // IntegerArray, Mask: an Array
    ValueId computed = {};   // Integer, in place of `integer`: one that the program computes
  };
  std::vector<Item> items;
  bool has(Item::Kind kind) const;
};

Index parse_index(Tracer& tracer, Library library, const V& key, int rank);
/// The view a basic index selects (rank 0 for all-integer keys: NumPy's caller makes the scalar).
Array index_view(Tracer& tracer, const Array& x, const Index& index);
/// Rows of `source` along an axis; indices are checked at run time, which needs an element of each row to be computed.
ValueId gather(Tracer& tracer, ValueId source, ValueId indices, std::int64_t axis);
/// For each axis of a bool value the indices of its true elements: i64[n], n a size that depends on data.
std::vector<ValueId> coordinates(Tracer& tracer, ValueId mask);
/// Reads by integer arrays, broadcast together, and a mask; the other items are basic.
Array index_gather(Tracer& tracer, const Array& x, const Index& index);
/// x[index] = value for an index with integer arrays (`op` scatter), or what np.add.at does (scatter_add): NumPy's
/// rules.
void index_scatter(Tracer& tracer, const Array& x, const Index& index, ValueId value, Op op = Op::scatter);
/// x[index] = value: `value` is broadcast and cast.
void index_assign(Tracer& tracer, const Array& x, const Index& index, ValueId value);
/// The place that an index means which the program computes, counted from the front. The program fails where it is out of
/// range, and the library raises.
SymDim computed_index(Tracer& tracer, ValueId index, const SymDim& size);
/// start and size of a slice on an axis of `size` elements, by Python's rules.
struct SliceBounds {
  SymDim start, size;
  std::int64_t step = 1;
};
SliceBounds slice_bounds(Tracer& tracer, const Index::Item& item, const SymDim& size);

}  // namespace fj
