/// The pages of this library's own file that are in memory. Most of them ran or were read once: while the library was
/// loaded, and in the compiler.
#pragma once

namespace fj {

/// Lends them back to their file: those that are needed again come back by themselves, 16 at a fault. From any thread,
/// at any time.
void release_code_pages();
/// Gives the pages that lie free in the C library's heap back to the system. It does so itself only at the heap's end,
/// and behind what the compiler needed once lies what stays. From any thread, at any time.
void release_free_pages();

}  // namespace fj
