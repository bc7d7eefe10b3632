// This table lists what a PyTorch pickle may construct: storages, tensors over them, ordered dicts, sizes, types.
// Nothing else is looked up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "serialization/interchange/pickle.h"
#include "src/runtime/dtype.h"
#include "src/runtime/shape.h"

namespace weft {

struct TorchStorage {
  std::string key;
  DType dtype = DType::kInvalid;  // kInvalid: untyped, counted in bytes
  uint64_t elements = 0;
};

// A view of a storage.
struct TorchTensor {
  uint32_t storage = 0;
  DType dtype = DType::kInvalid;
  int64_t offset = 0;  // in elements, as strides
  Dims dims, strides;
  bool conjugated = false, negated = false;
};

class TorchHost final : public PickleHost {
 public:
  explicit TorchHost(std::string file) : file_(std::move(file)) {}
  std::vector<TorchStorage> storages;
  std::vector<TorchTensor> tensors;  // kObject's numbers

  absl::Status Global(const std::string& name) override;
  absl::StatusOr<PickleValue> Reduce(const Pickle& pickle, const std::string& function,
                                     std::span<const PickleId> arguments) override;
  absl::StatusOr<PickleValue> Persistent(const Pickle& pickle, PickleId name) override;

 private:
  absl::StatusOr<PickleValue> Rebuild(const Pickle& pickle, const std::string& function,
                                      std::span<const PickleId> arguments, size_t metadata);
  absl::Status CheckPlace(const TorchTensor& tensor) const;
  std::string file_;
  absl::flat_hash_map<std::string, uint32_t> by_key_;
};

// "torch.float32"; nullopt for other names.
std::optional<DType> TorchDType(std::string_view name);

}  // namespace weft
