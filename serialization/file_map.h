// A file's bytes in memory without reading them: private, so that writing to them changes no file, and there until the
// last reference goes. A process that cuts the file off while it is mapped makes a later access end this process
// (SIGBUS), as with every mapping: that is why only local files are mapped unasked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "src/runtime/io.h"
#include "src/runtime/ref.h"

namespace weft {

// Makes the pages of a part of a map be there, all at once, which costs half of what touching them one by one does. Where that is
// not to be had (Linux before 5.14), nothing happens.
void TouchPages(std::span<const std::byte> part);

// Thread rule: any thread.
class FileMap final : public RefCounted {
 public:
  // The first `bytes` of the file, which must still have them.
  static absl::StatusOr<Ref<FileMap>> Make(const File& file, uint64_t bytes);
  // Tells whether its file system is one whose files nobody else cuts off: ext4, xfs, btrfs or tmpfs of this machine.
  static bool IsLocal(const File& file);

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  FileMap(FileSystem* fs, std::span<std::byte> bytes) : fs_(fs), bytes_(bytes) {}
  ~FileMap() override { fs_->Unmap(bytes_.data(), bytes_.size()); }

  FileSystem* const fs_;
  const std::span<std::byte> bytes_;
};

}  // namespace weft
