// The unified hierarchy ("0::/user.slice/job" in /proc/self/cgroup), mounted at /sys/fs/cgroup.
#include "runtime/control_group.h"

#include <cstdio>
#include <cstring>

namespace fj {

std::vector<std::string> control_group_values(const char* name) {
  std::string group = "/";
  char line[4096];
  if (FILE* file = std::fopen("/proc/self/cgroup", "r")) {
    while (std::fgets(line, sizeof line, file) != nullptr)
      if (std::strncmp(line, "0::", 3) == 0) group.assign(line + 3, std::strcspn(line + 3, "\n"));
    std::fclose(file);
  }
  std::vector<std::string> values;
  while (true) {
    if (FILE* file = std::fopen(("/sys/fs/cgroup" + group + "/" + name).c_str(), "r")) {
      if (std::fgets(line, sizeof line, file) != nullptr) values.push_back(line);
      std::fclose(file);
    }
    if (group.size() <= 1) return values;
    group.resize(group.find_last_of('/'));
  }
}

}  // namespace fj
