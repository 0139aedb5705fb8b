/// Names of machine code for Linux's perf, which finds none in memory: /tmp/perf-PID.map, one line for each function.
/// CPython writes into the same file (-X perf).
#pragma once

#include <string>

namespace fj {

/// Whether FRAMEJIT_PERF_MAP asks for it.
bool writes_perf_map();
/// `object`: the file the code was linked from, which knows how long `symbol` is. Does nothing if the map can't be
/// written.
void note_in_perf_map(const std::string& object, const std::string& symbol, const void* address,
                      const std::string& name);

}  // namespace fj
