// Writes what is whole of a checkpoint that was cut short or damaged as a new one. A file whose index is there is read tensor by
// tensor; of another one its frames are followed from the start, as those of a stream, as far as they go.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "serialization/checkpoint_writer.h"

namespace weft {

struct Salvaged {
  std::vector<std::string> whole, lost;  // paths of tensors; lost ones are those that the file announced
  std::string problem;                   // what ended the reading; empty: the file is well
};

// Tensors keep their paths, as dicts inside dicts; of a file that is well the tree is as it was. While it runs their bytes lie in a
// temporary beside the new file. DATA_LOSS, and no file, if nothing is whole.
absl::StatusOr<Salvaged> SalvageCheckpoint(const std::string& path, const std::string& to, const SaveOptions& save);

}  // namespace weft
