/// What an ndarray shows of itself: its memory as another dtype, `.flags` and `.flat`.
///
/// `x.flags` and `x.flat` are values that only name their array (a BuiltinValue, as its methods are): where one is
/// handed out, Python asks the array for it again.
#pragma once

#include <string_view>

#include "tracer/frontends/library.h"

namespace fj {

/// `.real` or `.imag` of complex numbers: a view of every second float.
Array view_part(Tracer& tracer, const Array& x, bool imaginary);

/// `x.flags.<name>` or `x.flags[name]`. Breaks where that can't be told.
V numpy_flag(Tracer& tracer, const Array& x, std::string_view name);

/// `x.flat[key]` by a number or a slice: an element, or a copy.
V numpy_flat_item(Tracer& tracer, const Array& x, const V& key);
/// `x.flat[key] = value` of one number, or `x.flat = value` without a key, of one number or as many.
void numpy_set_flat(Tracer& tracer, const Array& x, const V& key, const V& value);

}  // namespace fj
