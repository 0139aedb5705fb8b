/// Storages of torch's own over memory that is used again.
///
/// A new tensor keeps the storage torch made for it (resizable, torch's allocator, owning), only the memory inside is
/// exchanged for a block of runtime/allocator.h with the function that gives it back: when nobody holds the storage any
/// more, or it is resized, torch calls that function, as it does for every storage.
#pragma once

#include <Python.h>

#include <cstddef>

#include "arrays/torch_layout.h"

namespace fj {

/// Puts a block of ours into the storage of a tensor that was made just now and whose memory nobody has seen. Leaves it
/// as it is if it is small, there is no memory, or this torch keeps its storages in a way we do not know.
void put_block_into(void* tensor_implementation, std::size_t bytes);

/// The tensor's memory is from torch's allocator or ours: no other process has it.
bool is_memory_of_torch(PyObject* tensor);

}  // namespace fj
