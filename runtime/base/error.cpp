#include "runtime/base/error.h"

namespace fj {

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " + condition + " does not hold: " + message);
}

}  // namespace fj
