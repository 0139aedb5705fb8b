#include "runtime/code_pages.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace fj {

void release_code_pages() {
  const auto visit = [](dl_phdr_info* object, std::size_t, void* own) {
    const auto here = reinterpret_cast<std::uintptr_t>(own);
    bool ours = false;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& part = object->dlpi_phdr[i];
      const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
      ours = ours || (part.p_type == PT_LOAD && here >= begin && here - begin < part.p_memsz);
    }
    if (!ours) return 0;
    const auto page = std::uintptr_t(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& part = object->dlpi_phdr[i];
      // What was ever writable may differ from the file.
      if (part.p_type != PT_LOAD || part.p_flags & PF_W) continue;
      const std::uintptr_t begin = (object->dlpi_addr + part.p_vaddr + page - 1) / page * page;
      const std::uintptr_t end = (object->dlpi_addr + part.p_vaddr + part.p_memsz) / page * page;
      if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
    return 1;
  };
  dl_iterate_phdr(visit, reinterpret_cast<void*>(&release_code_pages));
}

void release_free_pages() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace fj
