// See file_map.h.
#include "serialization/file_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "src/runtime/status.h"

namespace weft {

void TouchPages(std::span<const std::byte> part) {
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ; older headers have no name for it
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(part.data()) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(part.data()) + part.size()) / kPage * kPage;
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateRead);
}

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
