// Another process's memory, read while it runs.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace weft::cli {

// The number of bytes that were read: fewer where the memory ends, 0 where it may not be read.
inline size_t ReadMemory(pid_t process, uint64_t address, void* out, size_t bytes) {
  const iovec here = {out, bytes};
  const iovec there = {reinterpret_cast<void*>(static_cast<uintptr_t>(address)), bytes};
  const ssize_t got = process_vm_readv(process, &here, 1, &there, 1, 0);
  return got < 0 ? 0 : static_cast<size_t>(got);
}
// A plain object, whole or not at all.
template <typename Plain>
bool ReadMemory(pid_t process, uint64_t address, Plain* out) {
  return ReadMemory(process, address, out, sizeof *out) == sizeof *out;
}

}  // namespace weft::cli
