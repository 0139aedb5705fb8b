/// Locks that are taken without the GIL and outside of compilations (runtime/background.h): a process that forks takes
/// them all, so that the child finds them free and what they guard whole.
#pragma once

#include <mutex>

namespace fj {

/// `lock` lives as long as the process, and whoever holds it asks for no other one that is kept so.
void keep_over_forks(std::mutex& lock);

}  // namespace fj
