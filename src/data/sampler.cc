// Batches by position.
#include "src/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/data/permutation.h"
#include "src/runtime/number_text.h"
#include "src/runtime/status.h"

namespace weft::data {
namespace {

// Items, batches and ranks stay so far below 2^63 that no product of a batch and the ranks overflows.
constexpr int64_t kMostItems = int64_t{1} << 48, kMostBatch = int64_t{1} << 31, kMostRanks = int64_t{1} << 20;

absl::Status CheckWeights(const SamplerSpec& spec) {
  if (spec.order != Order::kWeighted) {
    if (spec.weights.empty() && spec.draws == 0) return absl::OkStatus();
    return UserError("weights and draws are for the weighted order");
  }
  if (static_cast<int64_t>(spec.weights.size()) != spec.items) {
    return UserError("there are ", spec.weights.size(), " weights for ", spec.items, " items");
  }
  if (spec.draws < 0 || spec.draws > kMostItems) return UserError("draws is ", spec.draws, "; it is 0 or a count");
  double sum = 0;
  for (size_t i = 0; i < spec.weights.size(); ++i) {
    const double weight = spec.weights[i];
    if (!(weight >= 0) || std::isinf(weight)) {
      return UserError("weight ", i, " is ", NumberText(weight, std::chars_format::general, 6),
                       "; weights are finite and not negative");
    }
    sum += weight;
  }
  if (!(sum > 0)) return UserError("all ", spec.items, " weights are 0: no item can be drawn");
  if (std::isinf(sum)) return UserError("the sum of the weights is not finite");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Ref<Sampler>> Sampler::Create(SamplerSpec spec) {
  if (spec.items <= 0) return UserError("a sampler needs items; there are ", spec.items);
  if (spec.items > kMostItems) return UserError("there are ", spec.items, " items; ", kMostItems, " are allowed");
  if (spec.batch <= 0 || spec.batch > kMostBatch) {
    return UserError("batch is ", spec.batch, "; it is from 1 to ", kMostBatch);
  }
  if (spec.ranks <= 0 || spec.ranks > kMostRanks) {
    return UserError("ranks is ", spec.ranks, "; it is from 1 to ", kMostRanks);
  }
  if (spec.rank < 0 || spec.rank >= spec.ranks) {
    return UserError("rank is ", spec.rank, "; with ", spec.ranks, " ranks it is from 0 to ", spec.ranks - 1);
  }
  WEFT_RETURN_IF_ERROR(CheckWeights(spec));
  Ref<Sampler> sampler(new Sampler(std::move(spec)));
  if (sampler->BatchesFrom(0) == 0) {
    return UserError("an epoch of ", sampler->length_, " items has no whole batch of ", sampler->spec_.batch, " for ",
                     sampler->spec_.ranks, sampler->spec_.ranks == 1 ? " rank" : " ranks",
                     "; take a smaller batch, or pad the tail");
  }
  return sampler;
}

Sampler::Sampler(SamplerSpec spec) : spec_(std::move(spec)), length_(spec_.draws != 0 ? spec_.draws : spec_.items) {
  double sum = 0;
  up_to_.reserve(spec_.weights.size());
  for (const double weight : spec_.weights) up_to_.push_back(sum += weight);
}

int64_t Sampler::BatchesFrom(int64_t position) const {
  const int64_t left = std::max<int64_t>(length_ - position, 0), step = spec_.batch * spec_.ranks;
  return spec_.tail == Tail::kPad ? (left + step - 1) / step : left / step;
}

absl::Status Sampler::Check(const Place& at) const {
  if (at.epoch < 0) return UserError("epoch is ", at.epoch, "; epochs are from 0 on");
  if (at.position < 0 || at.position > length_) {
    return UserError("position is ", at.position, "; an epoch of this sampler has ", length_, " items");
  }
  return absl::OkStatus();
}

// The first item whose sum of weights is above; items of weight 0 are never it.
int64_t Sampler::WeightedItem(double uniform) const {
  const double wanted = uniform * up_to_.back();
  auto found = std::upper_bound(up_to_.begin(), up_to_.end(), wanted);
  if (found == up_to_.end()) {  // the product was rounded up
    found = std::lower_bound(up_to_.begin(), up_to_.end(), up_to_.back());
  }
  return found - up_to_.begin();
}

absl::Status Sampler::BatchAt(const Place& at, Batch* out) const {
  WEFT_RETURN_IF_ERROR(Check(at));
  if (BatchesFrom(at.position) == 0) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, "epoch ", at.epoch, " has no batch at position ", at.position);
  }
  const Permutation permutation(static_cast<uint64_t>(length_), at.seed, static_cast<uint64_t>(at.epoch));
  const int64_t first = at.position + spec_.rank * spec_.batch, step = spec_.batch * spec_.ranks;
  out->items.resize(static_cast<size_t>(spec_.batch));
  for (int64_t i = 0; i < spec_.batch; ++i) {
    const int64_t place = (first + i) % length_;  // what fills up begins the epoch's order again
    int64_t& item = out->items[static_cast<size_t>(i)];
    switch (spec_.order) {
      case Order::kSequential: item = place; break;
      case Order::kRandom: item = static_cast<int64_t>(permutation.At(static_cast<uint64_t>(place))); break;
      case Order::kWeighted:
        item = WeightedItem(UniformAt(static_cast<uint64_t>(place), at.seed, static_cast<uint64_t>(at.epoch)));
        break;
    }
  }
  out->kept = std::clamp<int64_t>(length_ - first, 0, spec_.batch);
  out->next = at;
  out->next.position = std::min(at.position + step, length_);
  return absl::OkStatus();
}

}  // namespace weft::data
