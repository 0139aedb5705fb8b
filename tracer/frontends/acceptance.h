/// Whether a library takes these arguments, asked of the library itself before a row is used.
///
/// Signatures in the rows say what the rows lower. What the library refuses (a bool or None where it takes a number, an
/// axis out of range, an unknown keyword) is in its own parser and its own Python code, which differ from function to
/// function and from version to version. So the function is called once on stand-ins, small
/// arrays. The answer is kept. Contents are no reason: what they decide the row or the program has to find.
#pragma once

#include "tracer/frontends/library.h"

namespace fj {

/// What a break says of them, before the library's answer.
inline constexpr const char* kRefused = "arguments that the library refuses: ";

/// Breaks with UnsupportedOperation where the library raises on such arguments: then it is to raise itself. `callable`:
/// the function, or the method as its class has it, which gets the array first. `identity`: a text that names it for
/// ever.
void require_accepted(Tracer& tracer, Library library, Handler handler, PyObject* callable, const std::string& identity,
                      const Arguments& arguments);

}  // namespace fj
