// Writes the tensors of a file of any format as a file of another, piece by piece: what is held is two windows of 4 MiB and the
// tables of contents, whatever the tensors' sizes. A tensor that its format cannot give in parts is held whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/tensor_file.h"

namespace weft {

struct ConvertTensor {
  uint32_t id = 0;                // in the file
  std::string name;               // in the new one
  DType dtype = DType::kInvalid;  // another float type for a float; kInvalid: as it is
};

struct ConvertOptions {
  std::vector<ConvertTensor> tensors;
  // Everything that is not in `tensors`, too: the whole tree under its own names.
  bool rest = true;
  bool nest = false;  // for a checkpoint: names become dicts at each "."
  FileFormat format = FileFormat::kWeft;
  Tied tied = Tied::kRefuse;
  uint64_t shard_bytes = 0;  // 0: one file
};

// `save` has the step, the metadata and how durable the file is to be. The new file appears whole or not at all; of shards, the
// index comes last.
absl::Status ConvertFile(TensorFile& file, const std::string& to, const ConvertOptions& options,
                         const SaveOptions& save);

}  // namespace weft
