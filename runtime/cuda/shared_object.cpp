// dlopen and dlsym.
#include "runtime/cuda/shared_object.h"

#include <dlfcn.h>

namespace fj::cuda {

SharedObject::SharedObject(const std::vector<std::string>& names, bool loaded) {
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | (loaded ? RTLD_NOLOAD : 0));
    if (!handle_) continue;
    opened_ = name;
    return;
  }
}

void* SharedObject::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

}  // namespace fj::cuda
