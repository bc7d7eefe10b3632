// See whole_file.h. A gzip file is a sequence of members; what they inflate to is one file.
#include "src/data/whole_file.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/status.h"

namespace weft::data {
namespace {

constexpr size_t kPiece = 1 << 20;  // inflated at a time

absl::Status NoMemory(const std::string& path, size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("'", path, "' has more than ", bytes, " bytes, which the machine has no memory for"));
}

// At most `most` bytes.
absl::StatusOr<std::string> Inflate(const std::string& path, std::string_view raw, size_t most) {
  z_stream z = {};
  if (inflateInit2(&z, 15 + 16) != Z_OK) return absl::ResourceExhaustedError("zlib could not allocate its window");
  const absl::Cleanup end = [&] { inflateEnd(&z); };
  std::string out;
  size_t at = 0;
  while (out.size() < most) {
    const size_t done = out.size(), room = std::min(kPiece, most - done);
    if (!MachineHas(static_cast<int64_t>(done + 2 * room))) return NoMemory(path, done);
    out.resize(done + room);
    const size_t in = std::min<size_t>(raw.size() - at, std::numeric_limits<uInt>::max());
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(raw.data() + at));
    z.avail_in = static_cast<uInt>(in);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    z.avail_out = static_cast<uInt>(room);
    const int result = inflate(&z, Z_NO_FLUSH);
    at += in - z.avail_in;
    out.resize(done + room - z.avail_out);
    if (result == Z_STREAM_END) {
      if (at == raw.size()) break;
      if (inflateReset(&z) != Z_OK) return InternalError("zlib could not go on");
    } else if (result == Z_BUF_ERROR || (result == Z_OK && in == 0)) {
      return absl::DataLossError(
          absl::StrCat("'", path, "': the gzip stream ends early, after ", out.size(), " bytes"));
    } else if (result != Z_OK) {
      return absl::DataLossError(absl::StrCat("'", path, "': damaged gzip stream at byte ", at, " (",
                                              z.msg == nullptr ? "unknown" : z.msg, ")"));
    }
  }
  return out;
}

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1F\x8B"); }

// At most `most` bytes of the file as it is.
absl::StatusOr<std::string> ReadRaw(FileSystem* fs, const std::string& path, size_t most) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, &info));
  const size_t size = std::min(most, static_cast<size_t>(std::max<int64_t>(info.size, 0)));
  if (!MachineHas(static_cast<int64_t>(size))) return NoMemory(path, size);
  std::string bytes(size, '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> ReadFirstBytes(FileSystem* fs, const std::string& path, size_t count) {
  constexpr size_t kEnough = 64 << 10;  // for a gzip header with a name, and some of what follows
  WEFT_ASSIGN_OR_RETURN(std::string raw, ReadRaw(fs, path, kEnough));
  if (!IsGzip(raw)) return raw.substr(0, count);
  absl::StatusOr<std::string> inflated = Inflate(path, raw, count);
  // The stream is longer than what was read of it, and may be damaged: reading all of it says so.
  return inflated.ok() ? *std::move(inflated) : raw.substr(0, count);
}

absl::StatusOr<std::string> ReadWholeFile(FileSystem* fs, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::string raw, ReadRaw(fs, path, std::numeric_limits<size_t>::max() / 2));
  if (!IsGzip(raw)) return raw;
  return Inflate(path, raw, std::numeric_limits<size_t>::max() / 2);
}

absl::StatusOr<std::vector<std::string>> FilesOf(FileSystem* fs, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string pattern = slash == std::string::npos ? path : path.substr(slash + 1);
  FileInfo info;
  if (pattern.find_first_of("*?[") == std::string::npos || fs->Stat(AT_FDCWD, path.c_str(), &info) == 0) {
    return std::vector<std::string>{path};
  }
  const std::string before = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::vector<std::string> names, found;
  const int error = fs->List(AT_FDCWD, before.empty() ? "." : before.c_str(), &names);
  if (error < 0) return IoError("list", before.empty() ? "." : before, error);
  for (const std::string& name : names) {
    if (fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0) found.push_back(before + name);
  }
  if (found.empty()) {
    return UserErrorOf(absl::StatusCode::kNotFound, "no file matches '", path, "'");
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace weft::data
