// Tensors that stand in parts, one under each checksum: a part may be compressed, and may stand in an older file beside this one,
// its base, instead of being written again. Such a tensor is never mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/atomic_file.h"
#include "serialization/checkpoint_reader.h"
#include "serialization/checkpoint_schema.h"

namespace weft {

// zstd of shuffled bytes: the first bytes of all numbers together, then the second ones, since exponents resemble each other.
// Thread rule: one thread.
class PartCompressor {
 public:
  PartCompressor();
  ~PartCompressor();
  // The bytes to store, which live until the next call; empty where that would save less than an eighth.
  absl::StatusOr<std::span<const std::byte>> Compress(DType dtype, std::span<const std::byte> raw);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Fills `out` from a part as it is stored. DATA_LOSS if that is no part of so many bytes.
absl::Status ExpandPart(PartCodec codec, DType dtype, std::span<const std::byte> stored, std::span<std::byte> out,
                        const std::string& file, uint64_t at);

// The file whose parts a new one may take over. Thread rule: one thread.
class BaseFile {
 public:
  // `name`: of a checkpoint in the folder of `place`, or of a pointer to one.
  static absl::StatusOr<BaseFile> Open(const FilePlace& place, const std::string& name);

  // The files in which parts stand that were taken: this one, or those that it takes parts from itself.
  const std::vector<BaseRecord>& records() const { return records_; }
  // The tensor's number if it is there with the same type and shape.
  std::optional<uint32_t> Find(std::string_view name, const TensorRecord& tensor);
  // Says where the part stands if it has the same bytes: compared one by one, so that what is damaged there is written anew, as is what
  // stands in the file that would be replaced.
  absl::StatusOr<std::optional<PartPlace>> Take(uint32_t id, uint64_t index, uint64_t sum,
                                                std::span<const std::byte> bytes);

 private:
  std::optional<uint16_t> Number(uint16_t file);

  std::unique_ptr<CheckpointReader> reader_;
  std::vector<BaseRecord> records_;
  BaseRecord own_;        // this file
  std::string replaced_;  // the new file's name
  std::vector<uint16_t>
      numbers_;  // of this file and those that its parts name, as the new file numbers them; 0: not yet
  std::vector<std::byte> bytes_;
};

}  // namespace weft
