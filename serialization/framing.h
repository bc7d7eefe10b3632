// The raw parts of a checkpoint file: prologue, frame prefixes, trailer, paddings, and a scanner that walks frames forward
// from a file or a pipe with every byte checked. docs/formats.md is the description; this is its code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "serialization/checksum.h"
#include "src/runtime/io.h"

namespace weft {

using Uuid = std::array<std::byte, 16>;
Uuid NewUuid();
std::string ToHex(std::span<const std::byte> bytes);

inline constexpr size_t kPrologueBytes = 64;
inline constexpr size_t kTrailerBytes = 64;
inline constexpr size_t kPrefixBytes = 32;
inline constexpr uint64_t kFrameAlign = 64;
inline constexpr uint64_t kLargePayload = 64 << 10;  // payloads from here on start at a page of 4 KiB …
inline constexpr uint64_t kHugePayload = 1 << 20;    // … and from here on at one of 64 KiB, which some machines have
inline constexpr uint64_t kPageAlign = 4096;
inline constexpr uint64_t kHugeAlign = 65536;
inline constexpr uint64_t kSmallAlign = 256;
inline constexpr uint64_t kSumBytes = 4 << 20;  // of a payload under one checksum, while that makes at most kMostSums
inline constexpr uint64_t kMostSums = 16384;
inline constexpr uint16_t kFormatMajor = 1;
inline constexpr uint16_t kFormatMinor = 0;
// Required feature bits. A reader that meets one it does not know refuses the file.
inline constexpr uint64_t kFeatureUnstable = 1;  // the layouts before the final one; no reader knows them any more
inline constexpr uint64_t kFeatureParts = 2;     // tensors that stand in parts, which may be compressed
inline constexpr uint64_t kFeatureBases = 4;     // parts that stand in other files
inline constexpr uint64_t kKnownFeatures = kFeatureParts | kFeatureBases;

enum class FrameKind : uint8_t {
  kHeader = 1,
  kTree = 2,
  kSums = 3,
  kData = 4,
  kPack = 5,
  kIndexPage = 6,
  kFooter = 7,
  kBlob = 8,
  kPad = 9,
  kPart = 10,
  kParts = 11,
};
inline constexpr uint8_t kFrameSkippable = 1;  // flag: a reader that does not know the kind may pass over it

constexpr uint64_t RoundUp(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }
constexpr uint64_t PayloadAlign(uint64_t payload) {
  return payload >= kHugePayload ? kHugeAlign : payload >= kLargePayload ? kPageAlign : kSmallAlign;
}
// How many bytes of a tensor of `bytes` are under one checksum: 4 MiB, doubled until there are at most 16,384.
constexpr uint64_t SumBytes(uint64_t bytes) {
  uint64_t each = kSumBytes;
  while (bytes > each * kMostSums) each *= 2;
  return each;
}
constexpr uint64_t SumCount(uint64_t bytes) { return (bytes + SumBytes(bytes) - 1) / SumBytes(bytes); }
// Where the payload of a frame at `offset` starts, and where the next frame does.
constexpr uint64_t PayloadOffset(uint64_t offset, uint64_t meta_bytes, uint64_t payload) {
  const uint64_t end = offset + kPrefixBytes + meta_bytes;
  return payload == 0 ? end : RoundUp(end, PayloadAlign(payload));
}
constexpr uint64_t FrameEnd(uint64_t offset, uint64_t meta_bytes, uint64_t payload) {
  return RoundUp(PayloadOffset(offset, meta_bytes, payload) + payload, kFrameAlign);
}

struct Prologue {
  uint64_t required = 0;
  Uuid uuid{};
};
void EncodePrologue(const Prologue& prologue, std::byte out[kPrologueBytes]);
absl::StatusOr<Prologue> DecodePrologue(std::span<const std::byte> bytes, const std::string& file);

struct Trailer {
  uint64_t footer_offset = 0;
  uint64_t footer_bytes = 0;  // the whole frame
  uint64_t file_bytes = 0;
  uint64_t footer_hash = 0;  // XXH3-64 of the whole frame
  uint64_t root_hash_low = 0;
};
void EncodeTrailer(const Trailer& trailer, std::byte out[kTrailerBytes]);
// `file_bytes`: what the file system says; must agree.
absl::StatusOr<Trailer> DecodeTrailer(std::span<const std::byte> bytes, uint64_t file_bytes, const std::string& file);

struct Frame {
  FrameKind kind{};
  uint8_t flags = 0;
  uint64_t offset = 0;
  uint64_t payload_bytes = 0;
  uint64_t payload_offset = 0;
  uint64_t end = 0;                              // of the padding after the payload
  std::array<std::byte, kPrefixBytes> prefix{};  // as stored; the root hash runs over these
  std::vector<std::byte> meta;                   // checked against the prefix
};
// Fills the prefix for a message and a payload.
void EncodePrefix(FrameKind kind, std::span<const std::byte> meta, uint64_t payload, std::byte out[kPrefixBytes]);
// Decodes a prefix that stands at `offset`; `limit` is the first byte the frame may not touch. Leaves meta empty, sized.
absl::Status DecodePrefix(std::span<const std::byte> bytes, uint64_t offset, uint64_t limit, const std::string& file,
                          Frame* frame);
absl::Status CheckMeta(const Frame& frame, const std::string& file);

// A whole frame without payload (index page, footer) out of memory that starts at `offset` in the file.
absl::StatusOr<Frame> ParseFrame(std::span<const std::byte> bytes, uint64_t offset, FrameKind kind,
                                 const std::string& file);

absl::Status CheckZero(std::span<const std::byte> bytes, uint64_t offset, const std::string& file);

// DATA_LOSS "'file' is damaged at byte 128: ..."; every parse error of a checkpoint has this form.
template <typename... Text>
absl::Status Damaged(const std::string& file, uint64_t offset, const Text&... text);

// Bytes in order, from a pipe or from a part of a file. Buffers 64 KiB.
class ByteSource {
 public:
  // The rest of a pipe or socket.
  explicit ByteSource(File* stream) : file_(stream) {}
  // A file between two offsets; can skip without reading.
  ByteSource(File* file, uint64_t begin, uint64_t end) : file_(file), position_(begin), end_(end), seekable_(true) {}

  uint64_t position() const { return position_; }
  uint64_t end() const { return end_; }
  const std::string& name() const { return file_->path(); }
  absl::Status Read(std::span<std::byte> out);
  absl::Status Skip(uint64_t bytes);
  // Tells whether there is nothing more (waits for a pipe).
  absl::StatusOr<bool> AtEnd();

 private:
  absl::Status FillBuffer();

  File* file_;
  uint64_t position_ = 0;
  uint64_t end_ = ~uint64_t{0};
  bool seekable_ = false;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, size_ = 0;  // what is left of the buffer
};

// Walks frames forward. Next, then ReadPayload or SkipPayload (if payload_bytes > 0), then Next …
class FrameScanner {
 public:
  explicit FrameScanner(ByteSource* source) : source_(source) {}
  // The next frame, its message verified and the padding before its payload zero.
  absl::Status Next(Frame* frame);
  // Pieces of the payload, in order.
  absl::Status ReadPayload(std::span<std::byte> out) { return source_->Read(out); }
  absl::Status SkipPayload(uint64_t bytes) { return source_->Skip(bytes); }
  // The padding after the payload.
  absl::Status Finish(const Frame& frame);

 private:
  absl::Status ReadZeros(uint64_t count);
  ByteSource* source_;
};

template <typename... Text>
absl::Status Damaged(const std::string& file, uint64_t offset, const Text&... text) {
  return absl::DataLossError(absl::StrCat("'", file, "' is damaged at byte ", offset, ": ", text...));
}

}  // namespace weft
