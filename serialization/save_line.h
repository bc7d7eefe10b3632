// The order of saves in this process. Saves to one file (a name in a folder, whatever path led there) take effect in the
// order of their calls: one runs, one waits behind it, a third waits before it takes hold of anything. A save that has been
// let in keeps the values that it will write, and one that runs about 20 MiB; so both are counted over all files, too, and so
// are the bytes of the values: past a limit two are let in, of which one can write while the other's values are taken hold of.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/atomic_file.h"

namespace weft {

// A place in the line of one file, given up by the destructor. Thread rule: one thread at a time; may move to another thread.
class SaveTurn {
 public:
  static constexpr int kMostOfOneFile = 2;  // let in: one runs, one waits
  static constexpr int kMostLetIn = 16;     // in the process
  static constexpr int kMostRunning = 4;
  static constexpr int kAtAnyRate = 2;

  // Asked every 20 ms while waiting; an error ends the wait and comes back from it. May be empty.
  using Look = std::function<absl::Status()>;

  SaveTurn() = default;
  SaveTurn(SaveTurn&& other) noexcept { *this = std::move(other); }
  SaveTurn& operator=(SaveTurn&& other) noexcept;
  ~SaveTurn();

  // Takes the last place in the line and waits until it is let in: with those that are in, the values have at most `most_bytes`,
  // or fewer than kAtAnyRate are in.
  static absl::StatusOr<SaveTurn> Enter(const FilePlace& place, const Look& look, uint64_t bytes = 0,
                                        uint64_t most_bytes = ~uint64_t{0});
  // Waits until all earlier saves to the file are over and there is room to run.
  absl::Status Begin(const Look& look);

 private:
  struct Lines;
  Lines* lines_ = nullptr;
  uint64_t number_ = 0;
};

}  // namespace weft
