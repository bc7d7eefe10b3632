// Where compiled programs live between processes, as the program cache sees it. The files are serialization's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// The kept results of one compilation. The texts are for people who ask why something was not found.
struct StoreEntry {
  Key key;
  std::string canonical;
  std::string program;  // Executable::Serialize
  std::string backend, target, options;
  int64_t compile_nanoseconds = 0;
  int64_t nodes = 0;
  uint64_t shape = 0;  // what OfShape finds it by; 0: it is not found
};

// Thread rule: any thread. Nothing that goes wrong here fails a computation: it is a miss, and the store's own warning.
class ProgramStore {
 public:
  virtual ~ProgramStore() = default;
  // Returns the bytes that Backend::Load takes; nothing on a miss. The stored canonical form has been compared. May
  // wait while another process makes the program. After a miss this process has to make it, and others wait until
  // Publish or Abandon.
  virtual std::optional<std::string> Lookup(Key key, std::string_view canonical) = 0;
  // May return before anything is on disk.
  virtual void Publish(StoreEntry entry) = 0;
  // Ends what a miss began: from here on nothing will be published that has not been. Else nothing.
  virtual void Abandon(Key) {}
  // The canonical forms of programs of this shape, the last published first, at most so many of each place.
  virtual std::vector<std::string> OfShape(uint64_t, size_t) { return {}; }
  // The backend could not use what Lookup gave.
  virtual void Reject(Key key, std::string_view why) = 0;
  // Until everything published is on disk, or has failed.
  virtual void Drain() = 0;
};

}  // namespace weft::compiler
