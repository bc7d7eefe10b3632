// A data set of the items of a tar archive.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "src/data/dataset.h"

namespace weft::c_api {

// Each part of the items is a field, named by its extension: arrays of NumPy (`npy`, `left.npy`), whole numbers as text (`cls`, `id`,
// `index`, `count`) as i64, and everything else as its bytes, u8, which must be equally many in all items. Items have the same parts.
absl::StatusOr<Ref<data::Dataset>> OpenTarItems(const std::string& path);

}  // namespace weft::c_api
