// Which items make up which batch: a pure function of where a run stands, so that a run goes on from three numbers
// (seed, epoch, position), with as many processes as it then has.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/ref.h"

namespace weft::data {

enum class Order : uint8_t { kSequential, kRandom, kWeighted };
enum class Tail : uint8_t { kDrop, kPad };

struct SamplerSpec {
  int64_t items = 0;  // of the data set
  Order order = Order::kSequential;
  Tail tail = Tail::kDrop;
  uint64_t seed = 0;
  int64_t batch = 1;  // rows of one rank's batch
  int64_t rank = 0, ranks = 1;
  std::vector<double> weights;  // of kWeighted: one an item, need not add up to 1
  int64_t draws = 0;            // of kWeighted: items of an epoch; 0: as many as there are items
};

// The place of a run: `position` items of the epoch have been given out, to all ranks together.
struct Place {
  uint64_t seed = 0;
  int64_t epoch = 0, position = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

// One rank's batch. Behind the first `kept` come items that only fill up the batch.
struct Batch {
  std::vector<int64_t> items;
  int64_t kept = 0;
  Place next;  // where the run stands behind it
};

// All ranks together take the next `batch * ranks` items of the epoch's order, rank after rank, so that one process
// with that batch and any number of ranks see the same global batches, and as many batches each. Thread rule: any
// thread; immutable.
class Sampler final : public RefCounted {
 public:
  static absl::StatusOr<Ref<Sampler>> Create(SamplerSpec spec);

  const SamplerSpec& spec() const { return spec_; }
  // Items of an epoch.
  int64_t length() const { return length_; }
  // Batches of an epoch from a position on; the same for all ranks.
  int64_t BatchesFrom(int64_t position) const;
  // OUT_OF_RANGE where the epoch has no more batch there.
  absl::Status BatchAt(const Place& at, Batch* out) const;
  // INVALID_ARGUMENT if no run of this sampler can stand there.
  absl::Status Check(const Place& at) const;

 private:
  explicit Sampler(SamplerSpec spec);
  int64_t WeightedItem(double uniform) const;
  SamplerSpec spec_;
  int64_t length_;
  std::vector<double> up_to_;  // sums of weights
};

}  // namespace weft::data
