/// Our own bugs. A failed FJ_CHECK never reaches the user as an exception: whoever entered the
/// compiler (the frame hook, a test) catches InternalError, reports it and runs the frame eagerly.
#pragma once

#include <stdexcept>
#include <string>

namespace fj {

/// A broken invariant of framejit itself.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& message);

}  // namespace fj

/// FJ_CHECK(a == b, "operand has rank " + std::to_string(a)): evaluated in every build.
#define FJ_CHECK(condition, message)                                          \
  do {                                                                        \
    if (!(condition)) ::fj::fail_check(__FILE__, __LINE__, #condition, message); \
  } while (0)
