#include "codegen/perf_map.h"

#include <cinttypes>
#include <cstdio>
#include <fcntl.h>
#include <llvm/Object/ObjectFile.h>
#include <unistd.h>

#include "runtime/base/options.h"

namespace fj {

namespace {

/// Bytes from a function to the end of its section, which has no other; 0: not known.
std::uint64_t size_of(const std::string& object, const std::string& symbol) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) return llvm::consumeError(file.takeError()), 0;
  for (const llvm::object::SymbolRef& found : (*file)->symbols()) {
    auto name = found.getName();
    auto section = found.getSection();
    const bool known = name && section;
    if (known && *name == symbol && *section != (*file)->section_end()) return (*section)->getSize();
    if (!name) llvm::consumeError(name.takeError());
    if (!section) llvm::consumeError(section.takeError());
  }
  return 0;
}

}  // namespace

bool writes_perf_map() { return environment_options().perf_map; }

void note_in_perf_map(const std::string& object, const std::string& symbol, const void* address,
                      const std::string& name) {
  const std::uint64_t size = size_of(object, symbol);
  if (size == 0) return;
  // A process that was forked has a number of its own, and perf looks for a file of that number.
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  char range[64];
  std::snprintf(range, sizeof range, "%" PRIxPTR " %" PRIx64 " ", reinterpret_cast<std::uintptr_t>(address), size);
  std::string line = range + ("framejit:" + name);
  for (char& letter : line)
    if (letter == '\n') letter = ' ';
  line += '\n';
  // One call at the end of the file: whole.
  [[maybe_unused]] const auto written = write(file, line.data(), line.size());
  close(file);
}

}  // namespace fj
