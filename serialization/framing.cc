// Little-endian machines only, so fields are copied as they are; a big-endian build is refused at compile time.
#include "serialization/framing.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "serialization/limits.h"
#include "src/runtime/file_kind.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr uint64_t kTrailerMagic = 0x4B4354646E45D70Au;
constexpr uint32_t kFrameMagic = 0x6D724657;  // "WFrm"
constexpr uint8_t kHugeAlignLog2 = std::countr_zero(kHugeAlign), kSumBytesLog2 = std::countr_zero(kSumBytes);

template <typename T>
void Put(std::byte* base, size_t offset, T value) {
  std::memcpy(base + offset, &value, sizeof(T));
}
template <typename T>
T Get(const std::byte* base, size_t offset) {
  T value;
  std::memcpy(&value, base + offset, sizeof(T));
  return value;
}

uint32_t PrefixHash(const std::byte prefix[kPrefixBytes]) {
  std::byte copy[kPrefixBytes];
  std::memcpy(copy, prefix, kPrefixBytes);
  Put<uint32_t>(copy, 12, 0);
  return static_cast<uint32_t>(Checksum64(copy));
}

std::string_view NameOfKind(uint8_t kind) {
  constexpr std::string_view kNames[] = {"?",          "header", "tree", "sums", "data", "pack",
                                         "index page", "footer", "blob", "pad",  "part", "parts"};
  return kind < std::size(kNames) ? kNames[kind] : kNames[0];
}

}  // namespace

Uuid NewUuid() {
  Uuid uuid;
  // Sixteen bytes come whole once the pool is initialised; a failure would leave zeros, which is a legal, if dull, name.
  if (getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size())) uuid.fill(std::byte{0});
  return uuid;
}

std::string ToHex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::byte b : bytes) {
    text += kDigits[static_cast<uint8_t>(b) >> 4];
    text += kDigits[static_cast<uint8_t>(b) & 15];
  }
  return text;
}

void EncodePrologue(const Prologue& prologue, std::byte out[kPrologueBytes]) {
  std::memset(out, 0, kPrologueBytes);
  std::memcpy(out, kCheckpointMagic, 8);
  Put<uint16_t>(out, 8, kFormatMajor);
  Put<uint16_t>(out, 10, kFormatMinor);
  Put<uint8_t>(out, 12, kHugeAlignLog2);
  Put<uint8_t>(out, 13, kSumBytesLog2);
  Put<uint64_t>(out, 16, prologue.required);
  std::memcpy(out + 24, prologue.uuid.data(), 16);
  Put<uint64_t>(out, 56, Checksum64({out, 56}));
}

absl::StatusOr<Prologue> DecodePrologue(std::span<const std::byte> bytes, const std::string& file) {
  const std::byte* in = bytes.data();
  if (bytes.size() < kPrologueBytes || std::memcmp(in, kCheckpointMagic, 8) != 0) {
    return UserError("'", file, "' is not a Weft checkpoint: it does not start with the checkpoint magic", ItIs(bytes));
  }
  if (!ChecksumsMatch(Get<uint64_t>(in, 56), Checksum64({in, 56})))
    return Damaged(file, 56, "the checksum of the prologue does not match");
  const uint16_t major = Get<uint16_t>(in, 8);
  if (major != kFormatMajor) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "' has checkpoint format ", major, ".",
                       Get<uint16_t>(in, 10), "; this library reads format ", kFormatMajor);
  }
  Prologue prologue;
  prologue.required = Get<uint64_t>(in, 16);
  if ((prologue.required & kFeatureUnstable) != 0) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file,
                       "' was written before the format was final, marked unstable, and this library does not read it; "
                       "load it with the release that wrote it and save it as safetensors there");
  }
  if ((prologue.required & ~kKnownFeatures) != 0) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file,
                       "' needs features that this library does not have (bits ",
                       absl::Hex(prologue.required & ~kKnownFeatures), " of ", absl::Hex(prologue.required), ")");
  }
  const bool zeros = Get<uint16_t>(in, 14) == 0 && Get<uint64_t>(in, 40) == 0 && Get<uint64_t>(in, 48) == 0;
  if (Get<uint8_t>(in, 12) != kHugeAlignLog2 || Get<uint8_t>(in, 13) != kSumBytesLog2 || !zeros) {
    return Damaged(file, 12, "the prologue holds an alignment, checksum size or reserved field that is not allowed");
  }
  std::memcpy(prologue.uuid.data(), in + 24, 16);
  return prologue;
}

void EncodeTrailer(const Trailer& trailer, std::byte out[kTrailerBytes]) {
  std::memset(out, 0, kTrailerBytes);
  Put(out, 0, kTrailerMagic);
  Put(out, 8, trailer.footer_offset);
  Put(out, 16, trailer.footer_bytes);
  Put(out, 24, trailer.file_bytes);
  Put(out, 32, trailer.footer_hash);
  Put(out, 40, trailer.root_hash_low);
  Put<uint64_t>(out, 56, Checksum64({out, 56}));
}

absl::StatusOr<Trailer> DecodeTrailer(std::span<const std::byte> bytes, uint64_t file_bytes, const std::string& file) {
  const std::byte* in = bytes.data();
  const uint64_t at = file_bytes - kTrailerBytes;
  if (Get<uint64_t>(in, 0) != kTrailerMagic) {
    return Damaged(file, at, "the trailer is missing; the file is incomplete (", file_bytes,
                   " bytes), cut off or has bytes added at its end");
  }
  if (!ChecksumsMatch(Get<uint64_t>(in, 56), Checksum64({in, 56})))
    return Damaged(file, at, "the checksum of the trailer does not match");
  const Trailer trailer = {Get<uint64_t>(in, 8), Get<uint64_t>(in, 16), Get<uint64_t>(in, 24), Get<uint64_t>(in, 32),
                           Get<uint64_t>(in, 40)};
  if (Get<uint64_t>(in, 48) != 0) return Damaged(file, at + 48, "a reserved field of the trailer is not zero");
  if (trailer.file_bytes != file_bytes) {
    return Damaged(file, at, "the trailer says ", trailer.file_bytes, " bytes, the file has ", file_bytes);
  }
  if (trailer.footer_bytes > kMaxFooterBytes + kPrefixBytes + kFrameAlign || trailer.footer_bytes < kPrefixBytes ||
      trailer.footer_offset < kPrologueBytes || trailer.footer_offset % kFrameAlign != 0 ||
      trailer.footer_offset > at || at - trailer.footer_offset != trailer.footer_bytes) {
    return Damaged(file, at, "the trailer places the footer at ", trailer.footer_offset, " with ", trailer.footer_bytes,
                   " bytes, which is not allowed");
  }
  return trailer;
}

void EncodePrefix(FrameKind kind, std::span<const std::byte> meta, uint64_t payload, std::byte out[kPrefixBytes]) {
  std::memset(out, 0, kPrefixBytes);
  Put(out, 0, kFrameMagic);
  Put(out, 4, static_cast<uint8_t>(kind));
  Put(out, 8, static_cast<uint32_t>(meta.size() / 8));
  Put(out, 16, payload);
  Put(out, 24, Checksum64(meta));
  Put(out, 12, PrefixHash(out));
}

absl::Status DecodePrefix(std::span<const std::byte> bytes, uint64_t offset, uint64_t limit, const std::string& file,
                          Frame* frame) {
  const std::byte* in = bytes.data();
  if (Get<uint32_t>(in, 0) != kFrameMagic) return Damaged(file, offset, "a frame was expected here");
  if (!ChecksumsMatch(Get<uint32_t>(in, 12), PrefixHash(in)))
    return Damaged(file, offset, "the checksum of a frame's prefix does not match");
  if (Get<uint16_t>(in, 6) != 0) return Damaged(file, offset + 6, "a reserved field of a frame is not zero");
  const uint8_t kind = Get<uint8_t>(in, 4);
  frame->kind = static_cast<FrameKind>(kind);
  frame->flags = Get<uint8_t>(in, 5);
  const bool known = kind >= 1 && kind <= 11;
  if (!known && (frame->flags & kFrameSkippable) == 0) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "' holds a frame of unknown kind ", kind,
                       " at byte ", offset);
  }
  if ((frame->flags & ~kFrameSkippable) != 0)
    return Damaged(file, offset + 5, "unknown flags ", frame->flags, " of a frame");
  const uint64_t meta = uint64_t{Get<uint32_t>(in, 8)} * 8;
  frame->payload_bytes = Get<uint64_t>(in, 16);
  frame->offset = offset;
  const bool carries = kind == 4 || kind == 5 || (kind >= 8 && kind <= 10) || !known;
  if (!carries && frame->payload_bytes != 0)
    return Damaged(file, offset, "a ", NameOfKind(kind), " frame has a payload");
  if (meta > kMaxMetaBytes || frame->payload_bytes > (kind == 4 ? kMaxDataBytes : kMaxPackBytes)) {
    return Damaged(file, offset, "a ", NameOfKind(kind), " frame of ", meta, " + ", frame->payload_bytes,
                   " bytes is larger than allowed");
  }
  frame->payload_offset = PayloadOffset(offset, meta, frame->payload_bytes);
  frame->end = FrameEnd(offset, meta, frame->payload_bytes);
  if (frame->end > limit) {
    return Damaged(file, offset, "a ", NameOfKind(kind), " frame ends at byte ", frame->end, ", past ", limit);
  }
  std::memcpy(frame->prefix.data(), in, kPrefixBytes);
  frame->meta.resize(meta);
  return absl::OkStatus();
}

absl::Status CheckMeta(const Frame& frame, const std::string& file) {
  if (ChecksumsMatch(Get<uint64_t>(frame.prefix.data(), 24), Checksum64(frame.meta))) return absl::OkStatus();
  return Damaged(file, frame.offset + kPrefixBytes, "the checksum of a ", NameOfKind(static_cast<uint8_t>(frame.kind)),
                 " message does not match");
}

absl::StatusOr<Frame> ParseFrame(std::span<const std::byte> bytes, uint64_t offset, FrameKind kind,
                                 const std::string& file) {
  Frame frame;
  if (bytes.size() < kPrefixBytes) return Damaged(file, offset, "a frame is cut off");
  WEFT_RETURN_IF_ERROR(DecodePrefix(bytes, offset, offset + bytes.size(), file, &frame));
  if (frame.kind != kind) {
    return Damaged(file, offset, "a ", NameOfKind(static_cast<uint8_t>(kind)), " frame was expected, found a ",
                   NameOfKind(static_cast<uint8_t>(frame.kind)), " frame");
  }
  if (frame.payload_bytes != 0 || frame.end != offset + bytes.size()) {
    return Damaged(file, offset, "a frame's length is not what refers to it says");
  }
  std::memcpy(frame.meta.data(), bytes.data() + kPrefixBytes, frame.meta.size());
  WEFT_RETURN_IF_ERROR(CheckMeta(frame, file));
  const size_t used = kPrefixBytes + frame.meta.size();
  WEFT_RETURN_IF_ERROR(CheckZero(bytes.subspan(used), offset + used, file));
  return frame;
}

absl::Status CheckZero(std::span<const std::byte> bytes, uint64_t offset, const std::string& file) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
  if (bad == bytes.end()) return absl::OkStatus();
  return Damaged(file, offset + static_cast<uint64_t>(bad - bytes.begin()), "padding is not zero");
}

// --- reading forward -----------------------------------------------------------------------------------------------

absl::Status ByteSource::FillBuffer() {
  constexpr size_t kBuffer = 64 << 10;
  if (buffer_.empty()) buffer_.resize(kBuffer);
  begin_ = size_ = 0;
  if (seekable_) {
    // A walk that skips payloads needs one prefix, one message and a padding a time; 8 KiB holds them.
    const size_t want = static_cast<size_t>(std::min<uint64_t>(8 << 10, end_ - position_));
    if (want == 0) return Damaged(name(), position_, "the file ends inside a frame");
    WEFT_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(position_), {buffer_.data(), want}));
    size_ = want;
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(size_, file_->ReadSome(buffer_));
  if (size_ == 0) return Damaged(name(), position_, "the stream ends inside a frame");
  return absl::OkStatus();
}

absl::Status ByteSource::Read(std::span<std::byte> out) {
  if (out.size() > end_ - position_) return Damaged(name(), position_, "the file ends inside a frame");
  while (!out.empty()) {
    if (size_ == 0 && out.size() >= (64 << 10)) {  // large payloads do not pass through the buffer
      size_t n = out.size();
      if (seekable_) {
        WEFT_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(position_), out));
      } else {
        WEFT_ASSIGN_OR_RETURN(n, file_->ReadSome(out));
        if (n == 0) return Damaged(name(), position_, "the stream ends inside a frame");
      }
      position_ += n;
      out = out.subspan(n);
      continue;
    }
    if (size_ == 0) WEFT_RETURN_IF_ERROR(FillBuffer());
    const size_t n = std::min(out.size(), size_);
    std::memcpy(out.data(), buffer_.data() + begin_, n);
    begin_ += n;
    size_ -= n;
    position_ += n;
    out = out.subspan(n);
  }
  return absl::OkStatus();
}

absl::Status ByteSource::Skip(uint64_t bytes) {
  if (bytes > end_ - position_) return Damaged(name(), position_, "the file ends inside a frame");
  const size_t buffered = static_cast<size_t>(std::min<uint64_t>(bytes, size_));
  begin_ += buffered;
  size_ -= buffered;
  position_ += buffered;
  bytes -= buffered;
  if (seekable_) {
    position_ += bytes;
    return absl::OkStatus();
  }
  std::byte scratch[4096];
  while (bytes > 0) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(bytes, sizeof(scratch)));
    WEFT_RETURN_IF_ERROR(Read({scratch, n}));
    bytes -= n;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ByteSource::AtEnd() {
  if (size_ > 0) return false;
  if (seekable_) return position_ == end_;
  if (buffer_.empty()) buffer_.resize(64 << 10);
  begin_ = 0;
  WEFT_ASSIGN_OR_RETURN(size_, file_->ReadSome(buffer_));
  return size_ == 0;
}

absl::Status FrameScanner::Next(Frame* frame) {
  std::array<std::byte, kPrefixBytes> prefix;
  const uint64_t offset = source_->position();
  WEFT_RETURN_IF_ERROR(source_->Read(prefix));
  WEFT_RETURN_IF_ERROR(DecodePrefix(prefix, offset, source_->end(), source_->name(), frame));
  WEFT_RETURN_IF_ERROR(source_->Read(frame->meta));
  WEFT_RETURN_IF_ERROR(CheckMeta(*frame, source_->name()));
  return ReadZeros(frame->payload_offset - source_->position());
}

absl::Status FrameScanner::Finish(const Frame& frame) { return ReadZeros(frame.end - source_->position()); }

absl::Status FrameScanner::ReadZeros(uint64_t count) {
  std::byte padding[kPageAlign];
  while (count > 0) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(count, sizeof(padding)));
    const uint64_t offset = source_->position();
    WEFT_RETURN_IF_ERROR(source_->Read({padding, n}));
    WEFT_RETURN_IF_ERROR(CheckZero({padding, n}, offset, source_->name()));
    count -= n;
  }
  return absl::OkStatus();
}

}  // namespace weft
