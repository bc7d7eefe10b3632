// Bytes in order to a file or a pipe, through a ring of three 4 MiB blocks: the caller fills one while a thread writes the
// others, so that reading, hashing and the disk overlap in 12 MiB whatever is written. Less than one block never starts
// the thread.
// Thread rule: one thread appends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "src/runtime/io.h"

namespace weft {

class BlockWriter {
 public:
  static constexpr size_t kBlockBytes = 4 << 20;
  static constexpr int kBlocks = 3;

  enum class Target {
    kFile,        // at offsets from 0; the file ends up exactly as long as what was appended
    kDirectFile,  // the same, opened with OpenFlags::direct
    kStream,      // a pipe or socket
  };
  // `alone`: the caller's thread writes, too. `look`, which may be empty, is asked every 10 ms while the other thread is waited
  // for; its error comes back.
  using Look = std::function<absl::Status()>;
  BlockWriter(File* file, Target target, bool alone = false, Look look = {});
  ~BlockWriter();  // stops the thread; what was not finished is dropped
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  uint64_t position() const { return position_; }
  absl::Status Append(std::span<const std::byte> data);
  absl::Status AppendZeros(uint64_t count);
  // Everything is with the system when this returns OK. The first error of the thread comes back here or from Append.
  absl::Status Finish();

 private:
  struct Ring;
  absl::Status WaitForThread(uint64_t left);
  absl::Status Room();
  absl::Status HandOver();

  File* file_;
  Target target_;
  Look look_;
  uint64_t position_ = 0;
  std::unique_ptr<Ring> ring_;
};

}  // namespace weft
