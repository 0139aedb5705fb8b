/// Between cuLaunchKernel, which is given pointers to arguments, and the kernels of a text that was compiled for the
/// CPU (emulation.h).
#pragma once

#include <regex>
#include <string>

namespace fj::test {

/// For every kernel of the text a function that takes what cuLaunchKernel is given, one that tells how many parameters
/// there are, and one how many numbers of 8 bytes the first is (a table).
inline std::string entrances(const std::string& source) {
  static const std::regex kernel(R"(extern "C" __global__ void __launch_bounds__\((\d+), \d+\) (\w+)\(([^)]*)\) \{)");
  std::string out;
  for (std::sregex_iterator at(source.begin(), source.end(), kernel), end; at != end; ++at) {
    const std::string threads = (*at)[1], name = (*at)[2], parameters = (*at)[3];
    std::string call, first = "u64";
    int number = 0;
    for (std::size_t from = 0; from < parameters.size();) {
      std::size_t to = parameters.find(", ", from);
      if (to == std::string::npos) to = parameters.size();
      std::string type = parameters.substr(from, parameters.rfind(' ', to - 1) - from);
      if (const std::size_t found = type.find(" __restrict__"); found != std::string::npos) type.erase(found);
      if (number == 0 && type.find("Table") != std::string::npos) first = type;
      call += (number ? ", " : "") + std::string("*(") + type + "*)p[" + std::to_string(number) + "]";
      ++number;
      from = to + 2;
    }
    out += "extern \"C\" int " + name + "_parameters() { return " + std::to_string(number) + "; }\n";
    out += "extern \"C\" int " + name + "_first() { using namespace fj; return sizeof(" + first + ") / 8; }\n";
    out += "extern \"C\" void " + name +
           "_entrance(void** parameters, unsigned blocks) {\n  using namespace fj;\n  emulation::blocks = blocks;\n" +
           "  emulation::launch(" + threads + ", [](void* context) { void** p = static_cast<void**>(context); " + name +
           "(" + call + "); }, parameters);\n}\n";
  }
  return out;
}

}  // namespace fj::test
