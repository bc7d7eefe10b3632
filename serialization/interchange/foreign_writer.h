// Writes a tree of tensors in other people's formats. The file appears whole or not at all, as a checkpoint does; the bytes come
// from the same TensorSource, piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/atomic_file.h"
#include "serialization/checkpoint_writer.h"
#include "serialization/interchange/tensor_file.h"

namespace weft {

// This says what becomes of a tensor's second and further names. The numbers are those of the C interface.
enum class Tied : uint32_t {
  kRefuse = 0,
  kTwice = 1,  // each name is a tensor of its own
  kOnce = 2,   // the others stand in the metadata; safetensors only
};

// A tree laid flat: what formats hold that know names only.
struct FlatTensor {
  std::string name;               // keys joined by ".", as they stand
  uint32_t leaf = 0;              // of tree.tensors()
  DType dtype = DType::kInvalid;  // as stored
  Dims dims;
  uint64_t bytes = 0;  // as the source gives them
};
struct FlatTree {
  std::vector<FlatTensor> tensors;                        // in preorder
  std::vector<std::pair<std::string, std::string>> tied;  // name, and the name that is stored
};

// Tells whether a format has a type for it.
bool HasTypeFor(FileFormat format, DType dtype);
// Everything that a format has no place for is refused here, by name, before a byte is written.
absl::StatusOr<FlatTree> FlattenFor(FileFormat format, const Tree& tree, const HeldTypes& held, Tied tied);

// Replaces the file at `place`; options as for a checkpoint. `flat` is FlattenFor's of the same format.
absl::Status SaveForeign(FileFormat format, FilePlace place, const FlatTree& flat, TensorSource& source,
                         const SaveOptions& options);

// One tensor's bytes in pieces of at most 4 MiB, in order, to `write`; counts them for options.progress.
class PieceReader {
 public:
  PieceReader(const FlatTree& flat, TensorSource& source, const SaveOptions& options);
  absl::Status Each(const FlatTensor& tensor, const std::function<absl::Status(std::span<std::byte>)>& write);

 private:
  TensorSource& source_;
  const SaveOptions& options_;
  uint64_t done_ = 0, total_ = 0;
  std::vector<std::byte> buffer_;
};

// The formats' own parts; the file is open and gets committed by SaveForeign.
absl::Status WriteSafetensors(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options);
absl::Status WriteNpy(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options);
absl::Status WriteGguf(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options);
absl::Status WriteNpz(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options);

}  // namespace weft
