// See zip.h. Writing.
#include "absl/strings/str_cat.h"
#include "serialization/interchange/zip.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kWide = 0xFFFFFFFF;  // from here on a size stands in a 64-bit field
constexpr uint16_t kPadding = 0x5745;   // an extra field that nobody else gives a meaning
constexpr uint16_t kUtf8 = 0x0800;
constexpr uint16_t kFirstDay = 0x21;  // of the format's time: 1 January 1980, so that equal tensors give equal files

void Put(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i) & 0xFF);
}

uint16_t FlagsOf(const ZipMember& member) {
  for (const char c : member.name) {
    if (static_cast<unsigned char>(c) >= 0x80) return kUtf8;
  }
  return 0;
}

// Writes the fields that local header and directory entry have in common: from "version needed" to the two sizes.
void PutCommon(std::string* out, const ZipMember& member, bool wide) {
  Put(out, wide ? 45 : 20, 2);
  Put(out, FlagsOf(member), 2);
  Put(out, 0, 2);  // stored
  Put(out, 0, 2);
  Put(out, kFirstDay, 2);
  Put(out, member.crc, 4);
  Put(out, wide ? kWide : member.bytes, 4);
  Put(out, wide ? kWide : member.bytes, 4);
  Put(out, member.name.size(), 2);
}

// 20 bytes of sizes where they do not fit, then padding up to the data.
std::string LocalExtra(const ZipMember& member) {
  std::string extra;
  if (member.bytes >= kWide) {
    Put(&extra, 1, 2);
    Put(&extra, 16, 2);
    Put(&extra, member.bytes, 8);
    Put(&extra, member.bytes, 8);
  }
  const uint64_t before = member.offset + kLocalBytes + member.name.size() + extra.size();
  uint64_t padding = (kAlignment - before % kAlignment) % kAlignment;
  if (padding == 0) return extra;
  if (padding < 4) padding += kAlignment;
  Put(&extra, kPadding, 2);
  Put(&extra, padding - 4, 2);
  extra.append(padding - 4, '\0');
  return extra;
}

std::string Local(const ZipMember& member) {
  const std::string extra = LocalExtra(member);
  std::string out;
  Put(&out, 0x04034b50, 4);
  PutCommon(&out, member, member.bytes >= kWide);
  Put(&out, extra.size(), 2);
  return absl::StrCat(out, member.name, extra);
}

}  // namespace

void ZipWriter::Begin(std::string name, uint64_t bytes) {
  ZipMember member{.name = std::move(name), .stored_bytes = bytes, .bytes = bytes, .offset = at_};
  member.crc = static_cast<uint32_t>(crc32_z(0, nullptr, 0));
  at_ += Local(member).size();
  data_ = at_;
  members_.push_back(std::move(member));
}

absl::Status ZipWriter::Write(std::span<const std::byte> piece) {
  if (piece.empty()) return absl::OkStatus();
  ZipMember& member = members_.back();
  member.crc = static_cast<uint32_t>(crc32_z(member.crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size()));
  WEFT_RETURN_IF_ERROR(file_->WriteAt(static_cast<int64_t>(at_), piece));
  at_ += piece.size();
  return absl::OkStatus();
}

absl::Status ZipWriter::End() {
  const ZipMember& member = members_.back();
  if (at_ - data_ != member.bytes) return InternalError("a member of ", member.bytes, " bytes got ", at_ - data_);
  const std::string local = Local(member);
  return file_->WriteAt(static_cast<int64_t>(member.offset), std::as_bytes(std::span(local)));
}

absl::Status ZipWriter::Finish() {
  std::string out;
  for (const ZipMember& member : members_) {
    std::string extra;
    const bool wide = member.bytes >= kWide, far = member.offset >= kWide;
    if (wide || far) {
      Put(&extra, 1, 2);
      Put(&extra, (wide ? 16 : 0) + (far ? 8 : 0), 2);
      if (wide) Put(&extra, member.bytes, 8), Put(&extra, member.bytes, 8);
      if (far) Put(&extra, member.offset, 8);
    }
    Put(&out, 0x02014b50, 4);
    Put(&out, 3 << 8 | 45, 2);  // made on Unix
    PutCommon(&out, member, wide);
    Put(&out, extra.size(), 2);
    Put(&out, 0, 2);  // comment
    Put(&out, 0, 2);  // part
    Put(&out, 0, 2);
    Put(&out, uint64_t{0100644} << 16, 4);
    Put(&out, far ? kWide : member.offset, 4);
    absl::StrAppend(&out, member.name, extra);
  }
  const uint64_t bytes = out.size(), count = members_.size();
  const bool wide = count >= 0xFFFF || bytes >= kWide || at_ >= kWide;
  if (wide) {
    Put(&out, 0x06064b50, 4);
    Put(&out, 44, 8);
    Put(&out, 3 << 8 | 45, 2);
    Put(&out, 45, 2);
    Put(&out, 0, 8);  // parts
    Put(&out, count, 8), Put(&out, count, 8);
    Put(&out, bytes, 8);
    Put(&out, at_, 8);
    Put(&out, 0x07064b50, 4);
    Put(&out, 0, 4);
    Put(&out, at_ + bytes, 8);
    Put(&out, 1, 4);
  }
  Put(&out, 0x06054b50, 4);
  Put(&out, 0, 4);  // parts
  Put(&out, wide ? 0xFFFF : count, 2), Put(&out, wide ? 0xFFFF : count, 2);
  Put(&out, wide ? kWide : bytes, 4);
  Put(&out, wide ? kWide : at_, 4);
  Put(&out, 0, 2);
  return file_->WriteAt(static_cast<int64_t>(at_), std::as_bytes(std::span(out)));
}

}  // namespace weft
