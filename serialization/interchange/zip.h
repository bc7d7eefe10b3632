// ZIP archives, as far as NumPy and PyTorch write them (PKWARE APPNOTE 6.3, with its 64-bit fields): members stored or deflated.
// Only the central directory counts: writers that stream leave sizes out of the local headers.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft {

// UTF-8 without NUL; no "..", nothing absolute, no backslash.
bool IsMemberName(std::string_view name);

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t stored_bytes = 0;  // in the file
  uint64_t bytes = 0;         // inflated
  uint64_t offset = 0;        // of the local header
  uint64_t limit = 0;         // where the next member, or the directory, begins
};

// Members lie apart from each other and inside the file, no name stands twice, and none claims to inflate further than
// deflate can.
absl::StatusOr<std::vector<ZipMember>> ReadZipDirectory(const File& file, uint64_t file_bytes);

// One member's bytes in order.
class ZipStream {
 public:
  ZipStream() = default;
  ZipStream(const ZipStream&) = delete;
  ZipStream& operator=(const ZipStream&) = delete;
  ~ZipStream();

  // `what` names the member in errors. Looks at the local header, which has to be the member's.
  absl::Status Open(const File* file, const ZipMember& member, std::string what);
  // Exactly so many bytes.
  absl::Status Read(std::span<std::byte> out);
  absl::Status Skip(uint64_t bytes);
  // After the last byte: nothing follows, and the checksum is right.
  absl::Status Finish();
  // Where the member's bytes begin in the file.
  uint64_t data_offset() const { return data_; }

 private:
  absl::Status Refill();
  absl::Status Inflate(std::span<std::byte> out);

  const File* file_ = nullptr;
  ZipMember member_;
  std::string what_;
  uint64_t data_ = 0, taken_ = 0, given_ = 0;  // taken of stored_bytes, given of bytes
  uint32_t crc_ = 0;
  std::unique_ptr<z_stream_s> inflater_;
  bool ended_ = false;  // the deflated data, by itself
  std::vector<std::byte> input_;
};

// Writes members that are stored, each member's data at a multiple of 64. A member's name and length come first; the
// caller writes its bytes.
class ZipWriter {
 public:
  explicit ZipWriter(File* file) : file_(file) {}
  void Begin(std::string name, uint64_t bytes);
  absl::Status Write(std::span<const std::byte> piece);
  absl::Status End();
  // The directory.
  absl::Status Finish();

 private:
  File* const file_;
  std::vector<ZipMember> members_;
  uint64_t at_ = 0;  // end of what is written
  uint64_t data_ = 0;
};

}  // namespace weft
