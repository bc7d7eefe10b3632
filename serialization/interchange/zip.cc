// See zip.h. Reading.
#include "serialization/interchange/zip.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "serialization/framing.h"
#include "serialization/interchange/tensor_file.h"
#include "serialization/tree.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50, kLocatorMagic = 0x07064b50;
constexpr uint32_t kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr uint64_t kMaxDirectoryBytes = 256 << 20;
constexpr uint64_t kMostInflation = 1032;  // of deflate: 258 bytes from a quarter of a byte
constexpr size_t kInputBytes = 64 << 10;

template <typename T>
T Number(std::span<const std::byte> bytes, size_t at) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | static_cast<T>(bytes[at + i]));
  return value;
}

// Where the directory is, and how many entries it has.
struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

// The 64-bit end, where the other one says so.
absl::Status ReadEnd64(const File& file, uint64_t end, Directory* directory) {
  const std::string& path = file.path();
  std::byte raw[kEnd64Bytes];
  if (end < kLocatorBytes + kEnd64Bytes) return Damaged(path, end, "the 64-bit end of the ZIP archive is missing");
  const std::span<std::byte> locator(raw, kLocatorBytes);
  WEFT_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(end - kLocatorBytes), locator));
  const auto at = Number<uint64_t>(locator, 8);
  if (Number<uint32_t>(locator, 0) != kLocatorMagic || at > end - kLocatorBytes - kEnd64Bytes) {
    return Damaged(path, end - kLocatorBytes, "the 64-bit end of the ZIP archive is missing");
  }
  WEFT_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(at), raw));
  if (Number<uint32_t>(raw, 0) != kEnd64Magic || Number<uint64_t>(raw, 4) != end - kLocatorBytes - at - 12) {
    return Damaged(path, at, "the 64-bit end of the ZIP archive is not where its locator says");
  }
  directory->entries = Number<uint64_t>(raw, 32);
  directory->bytes = Number<uint64_t>(raw, 40);
  directory->offset = Number<uint64_t>(raw, 48);
  if (directory->bytes > at || directory->offset != at - directory->bytes) {
    return Damaged(path, at, "the ZIP archive's directory does not end where its end begins");
  }
  return absl::OkStatus();
}

absl::StatusOr<Directory> FindDirectory(const File& file, uint64_t file_bytes) {
  const std::string& path = file.path();
  constexpr uint64_t kMostComment = 0xFFFF;
  std::vector<std::byte> tail(std::min(file_bytes, kEndBytes + kMostComment));
  const uint64_t begin = file_bytes - tail.size();
  WEFT_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(begin), tail));
  for (size_t at = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes + 1; at-- > 0;) {
    if (Number<uint32_t>(tail, at) != kEndMagic) continue;
    if (Number<uint16_t>(tail, at + 20) != tail.size() - at - kEndBytes) continue;
    const std::span<const std::byte> end = std::span(tail).subspan(at);
    if (Number<uint16_t>(end, 4) != 0 || Number<uint16_t>(end, 6) != 0) {
      return NotForWeft(path, "a ZIP archive of several parts");
    }
    Directory directory{
        .offset = Number<uint32_t>(end, 16), .bytes = Number<uint32_t>(end, 12), .entries = Number<uint16_t>(end, 10)};
    const uint64_t end_at = begin + at;
    if (directory.entries == 0xFFFF || directory.bytes == 0xFFFFFFFF || directory.offset == 0xFFFFFFFF) {
      WEFT_RETURN_IF_ERROR(ReadEnd64(file, end_at, &directory));
    } else if (directory.bytes > end_at || directory.offset != end_at - directory.bytes) {
      // PyTorch writes the 64-bit end always, and also says here where the directory is.
      Directory wide;
      WEFT_RETURN_IF_ERROR(ReadEnd64(file, end_at, &wide));
      if (wide.offset != directory.offset || wide.bytes != directory.bytes || wide.entries != directory.entries) {
        return Damaged(path, end_at, "the two ends of the ZIP archive contradict each other");
      }
    }
    if (directory.bytes > kMaxDirectoryBytes || directory.entries > directory.bytes / kEntryBytes) {
      return Damaged(path, end_at, "the ZIP archive is said to have ", directory.entries, " members in a directory of ",
                     directory.bytes, " bytes");
    }
    return directory;
  }
  return Damaged(path, file_bytes, "the end of the ZIP archive is missing");
}

// 64-bit values stand in a field of their own, in this order, those of them that do not fit.
bool ReadWide(std::span<const std::byte> extra, ZipMember* member) {
  uint64_t* const values[] = {&member->bytes, &member->stored_bytes, &member->offset};
  bool wanted = false;
  for (const uint64_t* value : values) wanted = wanted || *value == 0xFFFFFFFF;
  if (!wanted) return true;
  while (extra.size() >= 4) {
    const size_t length = Number<uint16_t>(extra, 2);
    if (length > extra.size() - 4) return false;
    if (Number<uint16_t>(extra, 0) == 1) {
      std::span<const std::byte> field = extra.subspan(4, length);
      for (uint64_t* value : values) {
        if (*value != 0xFFFFFFFF) continue;
        if (field.size() < 8) return false;
        *value = Number<uint64_t>(field, 0);
        field = field.subspan(8);
      }
      return true;
    }
    extra = extra.subspan(4 + length);
  }
  return true;  // so long indeed
}

// One entry at the beginning of `rest`, which loses it.
absl::StatusOr<ZipMember> ReadEntry(std::span<const std::byte>* rest, const Directory& directory, uint64_t at,
                                    const std::string& path) {
  const std::span<const std::byte> entry = *rest;
  if (entry.size() < kEntryBytes || Number<uint32_t>(entry, 0) != kEntryMagic) {
    return Damaged(path, at, "no entry of the ZIP archive's directory stands here");
  }
  const uint64_t name = Number<uint16_t>(entry, 28), extra = Number<uint16_t>(entry, 30),
                 comment = Number<uint16_t>(entry, 32);
  if (kEntryBytes + name + extra + comment > entry.size()) {
    return Damaged(path, at, "an entry of the ZIP archive's directory does not end inside it");
  }
  ZipMember member{.name = std::string(reinterpret_cast<const char*>(entry.data()) + kEntryBytes, name),
                   .crc = Number<uint32_t>(entry, 16),
                   .stored_bytes = Number<uint32_t>(entry, 20),
                   .bytes = Number<uint32_t>(entry, 24),
                   .offset = Number<uint32_t>(entry, 42)};
  if (!IsMemberName(member.name)) {
    return Damaged(path, at, "a member of the ZIP archive has a name with '..' or NUL, an absolute or no UTF-8 one");
  }
  if (!ReadWide(entry.subspan(kEntryBytes + name, extra), &member)) {
    return Damaged(path, at, "member '", member.name, "': the 64-bit sizes are cut short");
  }
  const uint16_t flags = Number<uint16_t>(entry, 8), method = Number<uint16_t>(entry, 10);
  if ((flags & 0x2041) != 0) return NotForWeft(path, "member '", member.name, "' is encrypted");
  if (method != 0 && method != 8) {
    return NotForWeft(path, "member '", member.name, "' is compressed by method ", method,
                      "; Weft reads what is stored or deflated");
  }
  member.deflated = method == 8;
  if (member.offset > directory.offset || kLocalBytes + name > directory.offset - member.offset ||
      member.stored_bytes > directory.offset - member.offset - kLocalBytes - name) {
    return Damaged(path, at, "member '", member.name, "' of ", member.stored_bytes, " bytes at ", member.offset,
                   " does not lie before the directory at ", directory.offset);
  }
  const bool fits =
      member.deflated ? member.bytes / kMostInflation <= member.stored_bytes : member.bytes == member.stored_bytes;
  if (!fits) {
    return Damaged(path, at, "member '", member.name, "' of ", member.stored_bytes, " bytes is said to be ",
                   member.bytes, " bytes long, which it cannot be");
  }
  *rest = entry.subspan(kEntryBytes + name + extra + comment);
  return member;
}

}  // namespace

bool IsMemberName(std::string_view name) {
  if (name.empty() || name.size() > 4096 || name[0] == '/' || !IsCleanText(name)) return false;
  if (name.find('\\') != std::string_view::npos) return false;
  for (size_t at = 0; at != std::string_view::npos;) {
    const size_t end = name.find('/', at);
    if (name.substr(at, end == std::string_view::npos ? end : end - at) == "..") return false;
    at = end == std::string_view::npos ? end : end + 1;
  }
  return true;
}

absl::StatusOr<std::vector<ZipMember>> ReadZipDirectory(const File& file, uint64_t file_bytes) {
  const std::string& path = file.path();
  WEFT_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(file, file_bytes));
  std::vector<std::byte> bytes(directory.bytes);
  WEFT_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(directory.offset), bytes));
  std::vector<ZipMember> members;
  absl::flat_hash_set<std::string> names;
  std::span<const std::byte> rest(bytes);
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const uint64_t at = directory.offset + (bytes.size() - rest.size());
    WEFT_ASSIGN_OR_RETURN(ZipMember member, ReadEntry(&rest, directory, at, path));
    if (!names.insert(member.name).second) {
      return Damaged(path, at, "member '", member.name, "' stands in the ZIP archive twice");
    }
    members.push_back(std::move(member));
  }
  if (!rest.empty()) {
    return Damaged(path, directory.offset + (bytes.size() - rest.size()),
                   "the ZIP archive's directory goes on behind its last member");
  }
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return members[a].offset < members[b].offset; });
  for (size_t i = 0; i < order.size(); ++i) {
    ZipMember& member = members[order[i]];
    member.limit = i + 1 < order.size() ? members[order[i + 1]].offset : directory.offset;
    if (member.limit - member.offset < kLocalBytes + member.name.size() + member.stored_bytes) {
      return Damaged(path, member.offset, "member '", member.name, "' of the ZIP archive overlaps the next one");
    }
  }
  return members;
}

ZipStream::~ZipStream() {
  if (inflater_) inflateEnd(inflater_.get());
}

absl::Status ZipStream::Open(const File* file, const ZipMember& member, std::string what) {
  file_ = file;
  member_ = member;
  what_ = std::move(what);
  std::vector<std::byte> local(kLocalBytes + member.name.size());
  WEFT_RETURN_IF_ERROR(file->ReadAt(static_cast<int64_t>(member.offset), local));
  const uint64_t start = local.size() + Number<uint16_t>(local, 28);
  if (Number<uint32_t>(local, 0) != kLocalMagic || Number<uint16_t>(local, 26) != member.name.size() ||
      std::memcmp(local.data() + kLocalBytes, member.name.data(), member.name.size()) != 0 ||
      Number<uint16_t>(local, 8) != (member.deflated ? 8 : 0) || start > member.limit - member.offset ||
      member.stored_bytes > member.limit - member.offset - start) {
    return Damaged(file->path(), member.offset, "member '", member.name,
                   "' does not stand where the ZIP archive's directory says");
  }
  data_ = member.offset + start;
  crc_ = static_cast<uint32_t>(crc32_z(0, nullptr, 0));
  if (!member.deflated) return absl::OkStatus();
  inflater_ = std::make_unique<z_stream_s>();
  constexpr int kRaw = -15;  // no header, the largest window
  if (inflateInit2(inflater_.get(), kRaw) == Z_OK) return absl::OkStatus();
  inflater_.reset();
  return absl::ResourceExhaustedError("no memory to inflate");
}

absl::Status ZipStream::Read(std::span<std::byte> out) {
  if (out.size() > member_.bytes - given_) {
    return Damaged(what_, given_, "the member ends at byte ", member_.bytes, "; ", out.size(), " more were wanted");
  }
  if (member_.deflated) {
    WEFT_RETURN_IF_ERROR(Inflate(out));
  } else {
    WEFT_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(data_ + given_), out));
  }
  if (out.empty()) return absl::OkStatus();  // whose address may be null, which zlib takes for the beginning
  crc_ = static_cast<uint32_t>(crc32_z(crc_, reinterpret_cast<const Bytef*>(out.data()), out.size()));
  given_ += out.size();
  return absl::OkStatus();
}

absl::Status ZipStream::Refill() {
  if (inflater_->avail_in > 0 || taken_ == member_.stored_bytes) return absl::OkStatus();
  input_.resize(std::min<uint64_t>(kInputBytes, member_.stored_bytes - taken_));
  WEFT_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(data_ + taken_), input_));
  taken_ += input_.size();
  inflater_->next_in = reinterpret_cast<Bytef*>(input_.data());
  inflater_->avail_in = static_cast<uInt>(input_.size());
  return absl::OkStatus();
}

absl::Status ZipStream::Inflate(std::span<std::byte> out) {
  z_stream_s& stream = *inflater_;
  while (!out.empty()) {
    WEFT_RETURN_IF_ERROR(Refill());
    const size_t room = std::min<size_t>(out.size(), std::numeric_limits<uInt>::max());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(room);
    const int outcome = ended_ ? Z_STREAM_END : inflate(&stream, Z_NO_FLUSH);
    ended_ = outcome == Z_STREAM_END;
    out = out.subspan(room - stream.avail_out);
    if (outcome == Z_MEM_ERROR) return absl::ResourceExhaustedError("no memory to inflate");
    if ((outcome != Z_OK && outcome != Z_STREAM_END) || (ended_ && !out.empty()) ||
        (outcome == Z_OK && stream.avail_out > 0 && stream.avail_in == 0 && taken_ == member_.stored_bytes)) {
      return Damaged(what_, data_ + taken_ - stream.avail_in, "the deflated data is damaged, or ends too early");
    }
  }
  return absl::OkStatus();
}

absl::Status ZipStream::Skip(uint64_t bytes) {
  std::vector<std::byte> buffer(std::min<uint64_t>(bytes, 1 << 20));
  while (bytes > 0) {
    const size_t piece = std::min<uint64_t>(bytes, buffer.size());
    WEFT_RETURN_IF_ERROR(Read(std::span(buffer).first(piece)));
    bytes -= piece;
  }
  return absl::OkStatus();
}

absl::Status ZipStream::Finish() {
  if (given_ != member_.bytes) return InternalError("a member that was not read to its end");
  // The end of the deflated data is a code of its own, which may be in what is left.
  for (std::byte more[1]; member_.deflated && !ended_;) {
    z_stream_s& stream = *inflater_;
    WEFT_RETURN_IF_ERROR(Refill());
    stream.next_out = reinterpret_cast<Bytef*>(more);
    stream.avail_out = 1;
    const int outcome = inflate(&stream, Z_NO_FLUSH);
    ended_ = outcome == Z_STREAM_END;
    if (stream.avail_out == 0 ||
        (!ended_ && (outcome != Z_OK || (stream.avail_in == 0 && taken_ == member_.stored_bytes)))) {
      return Damaged(what_, data_ + taken_, "the deflated data does not end where the directory says");
    }
  }
  if (member_.deflated && (inflater_->avail_in > 0 || taken_ != member_.stored_bytes)) {
    return Damaged(what_, data_ + taken_ - inflater_->avail_in, "the deflated data ends too early");
  }
  if (crc_ == member_.crc) return absl::OkStatus();
  return Damaged(what_, data_, "the checksum of ", member_.bytes, " bytes does not match");
}

}  // namespace weft
