// See file_map.h.
#include "serialization/file_map.h"

#include <algorithm>
#include <iterator>

#include "src/runtime/status.h"

namespace weft {

absl::StatusOr<Ref<FileMap>> FileMap::Make(const File& file, uint64_t bytes) {
  WEFT_ASSIGN_OR_RETURN(const FileInfo info, file.Info());
  if (static_cast<uint64_t>(info.size) < bytes) {
    return absl::DataLossError(
        absl::StrCat("'", file.path(), "' had ", bytes, " bytes when it was opened and has ", info.size, " now"));
  }
  int error = 0;
  void* const memory = file.fs()->Map(file.fd(), static_cast<size_t>(bytes), &error);
  if (memory == nullptr) return IoError("map", file.path(), error);
  return Ref<FileMap>(new FileMap(file.fs(), {static_cast<std::byte*>(memory), static_cast<size_t>(bytes)}));
}

bool FileMap::IsLocal(const File& file) {
  constexpr int64_t kLocal[] = {0xEF53, 0x58465342, 0x9123683E, 0x01021994};  // ext, xfs, btrfs, tmpfs (statfs(2))
  return std::ranges::find(kLocal, file.fs()->TypeOf(file.fd())) != std::end(kLocal);
}

}  // namespace weft
