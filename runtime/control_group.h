/// The limits a container sets for its processes.
#pragma once

#include <string>
#include <vector>

namespace fj {

/// Lines of the file `name` ("cpu.max", "memory.max") of this process's control group and of every group above it,
/// innermost first; groups without the file are left out.
std::vector<std::string> control_group_values(const char* name);

}  // namespace fj
