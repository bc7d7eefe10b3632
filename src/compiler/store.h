// Where compiled programs live between processes, as the program cache sees it. The files are serialization's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/runtime/status.h"

namespace weft::compiler {

struct Key {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Key&, const Key&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Key& key) {
    return H::combine(std::move(h), key.low, key.high);
  }
};

// Thread rule: any thread. Errors are for counters and warnings: they never fail a computation.
class ProgramStore {
 public:
  virtual ~ProgramStore() = default;
  // What Backend::Load takes, nothing on a miss. The stored canonical form has been compared.
  virtual absl::StatusOr<std::optional<std::string>> Lookup(Key key, std::string_view canonical) = 0;
  // May return before anything is on disk.
  virtual absl::Status Publish(Key key, std::string canonical, std::string program) = 0;
  // Until everything published is on disk.
  virtual absl::Status Drain() = 0;
};

}  // namespace weft::compiler
