// Python's pickles (the opcodes of protocol 2), without Python: values are built, nothing is ever called or looked up. What a pickle
// wants constructed is asked of a PickleHost, which knows a few names and refuses the rest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft {

// Numbers of values of one Pickle. Values refer to each other by them, in cycles too if the pickle says so.
using PickleId = uint32_t;

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kBigInt,  // text: little-endian two's complement
    kFloat,
    kText,  // valid or not
    kBytes,
    kTuple,
    kList,
    kDict,     // items: key, value, key, value, …
    kGlobal,   // text: "module.name", one that the host knows
    kObject,   // the host's: number is what it pleases
    kStorage,  // the host's
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  double real = 0;
  std::string text;
  std::vector<PickleId> items;
};
std::string_view NameOf(PickleValue::Kind kind);

class Pickle;
class PickleHost {
 public:
  virtual ~PickleHost() = default;
  // Checks that the name may stand in the pickle; an error names it.
  virtual absl::Status Global(const std::string& name) = 0;
  // Returns the value that `function` (a kGlobal) makes of a tuple.
  virtual absl::StatusOr<PickleValue> Reduce(const Pickle& pickle, const std::string& function,
                                             std::span<const PickleId> arguments) = 0;
  // Returns the object that lies outside the pickle under this name.
  virtual absl::StatusOr<PickleValue> Persistent(const Pickle& pickle, PickleId name) = 0;
};

// The bytes of one or several pickles: a text, or a file from some place on, of which no more is read than they have.
class PickleBytes {
 public:
  explicit PickleBytes(std::string text) : bytes_(std::move(text)) {}
  PickleBytes(const File* file, uint64_t file_bytes) : file_(file), left_(file_bytes) {}
  uint64_t position() const { return at_; }
  // `size` bytes, good until the next call; empty where there are not so many.
  std::string_view Take(uint64_t size, absl::Status* status);
  // Up to and with the next newline, which is not given; at most 4,096 bytes.
  std::string_view Line(absl::Status* status);

 private:
  bool Have(uint64_t size, absl::Status* status);
  const File* file_ = nullptr;
  uint64_t left_ = 0;  // of the file, not yet in bytes_
  std::string bytes_;
  uint64_t at_ = 0;
};

class Pickle {
 public:
  // The next pickle, up to its end. `what` names the file in errors.
  static absl::StatusOr<Pickle> Read(PickleBytes& bytes, PickleHost& host, const std::string& what);

  const PickleValue& value(PickleId id) const { return values_[id]; }
  PickleId root() const { return root_; }
  size_t size() const { return values_.size(); }

 private:
  friend class PickleMachine;
  std::vector<PickleValue> values_;
  PickleId root_ = 0;
};

inline constexpr uint64_t kMaxPickleBytes = 64 << 20;
inline constexpr size_t kMaxPickleStack = 32 << 10;  // Python writes lists and dicts 1,000 entries at a time
inline constexpr size_t kMaxPickleValues = 8 << 20;  // about 80 bytes each

}  // namespace weft
