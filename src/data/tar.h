// Members of tar archives, grouped into items as WebDataset does: files that follow each other and whose paths are equal up to the first
// dot of the name are the parts of one item.
// Formats: POSIX.1-2017 "pax Interchange Format" (ustar and pax), and GNU's long names and sizes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::data {

struct TarPart {
  std::string extension;   // behind that dot, in small letters: "npy", "cls", "left.npy"
  std::string_view bytes;  // in the archive
};
struct TarItem {
  std::string key;  // the path up to that dot
  std::vector<TarPart> parts;
};

// Tells whether an archive begins so: its first header has the right checksum. `first` has kTarBlock bytes, else it is none.
bool IsTar(std::string_view first);
inline constexpr size_t kTarBlock = 512;

// Regular files alone; folders and links are passed over. DATA_LOSS names the place where a header is damaged or the archive is cut off,
// INVALID_ARGUMENT a file without a dot in its name, or one part twice. `path` stands in errors.
absl::StatusOr<std::vector<TarItem>> ReadTar(const std::string& path, std::string_view bytes);

}  // namespace weft::data
