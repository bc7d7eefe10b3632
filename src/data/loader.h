// Reads batches ahead: threads fill host memory and hand it on (to a device) while the caller computes with the batch
// before.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/data/blocks.h"
#include "src/data/dataset.h"
#include "src/data/sampler.h"
#include "src/runtime/metrics.h"

namespace weft::data {

struct LoaderOptions {
  int64_t depth = 2;    // batches that are ready or being read
  int64_t threads = 0;  // 0: as many as depth
  int64_t timeout_ms = 300'000;
};

// A batch as it was read: of field f the rows lie in blocks[f].
struct HostBatch {
  Batch batch;
  std::vector<Block> blocks;
};
// Makes the tensors of a batch on a device; the thread that read the batch calls it.
using Finish = std::function<absl::StatusOr<std::shared_ptr<void>>(HostBatch)>;

// Thread rule: one thread at a time; a second one in Next is refused. The threads of a loader that is gone end by
// themselves, when the reads that they are in do: they own what they use, so that nobody waits for a read that hangs.
class Loader {
 public:
  // No thread is started before the first Next. `metrics` must live as long as `finish`.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(Ref<Dataset> dataset, Ref<Sampler> sampler,
                                                        const LoaderOptions& options, Finish finish, Metrics* metrics);
  ~Loader();

  // The next batch in order; null at the end of an epoch, after which the next epoch begins. An error of a read comes
  // out here with the item, and the next call reads the same batch again. DEADLINE_EXCEEDED names what is being read.
  // `look` is asked every 20 ms and ends the wait with its error.
  absl::StatusOr<std::shared_ptr<void>> Next(absl::FunctionRef<absl::Status()> look);
  // The place at which the next Next goes on.
  Place place() const;
  // Drops the batches that were read ahead.
  absl::Status MoveTo(const Place& place);

  const Dataset& dataset() const;
  const Sampler& sampler() const;

 private:
  struct Core;
  explicit Loader(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  absl::Status StartThreads();

  const std::shared_ptr<Core> core_;
  std::atomic<bool> in_next_{false};
  bool started_ = false;
};

}  // namespace weft::data
