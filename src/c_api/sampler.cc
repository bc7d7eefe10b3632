// weft_sampler_*: which items make up which batch.
#include "src/data/sampler.h"

#include <algorithm>
#include <vector>

#include "src/c_api/data_objects.h"
#include "src/c_api/options.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

absl::StatusOr<data::SamplerSpec> SpecFrom(int64_t items, const weft_sampler_options* options) {
  weft_sampler_options read = WEFT_SAMPLER_OPTIONS_INIT;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof read, "weft_sampler_options", &read));
  if (read.order < WEFT_ORDER_SEQUENTIAL || read.order > WEFT_ORDER_WEIGHTED) {
    return UserError("order is ", static_cast<int>(read.order), "; there are 0 to 2");
  }
  if (read.tail < WEFT_TAIL_DROP || read.tail > WEFT_TAIL_PAD) {
    return UserError("tail is ", static_cast<int>(read.tail), "; there are 0 and 1");
  }
  data::SamplerSpec spec;
  spec.items = items;
  spec.order = static_cast<data::Order>(read.order);
  spec.tail = static_cast<data::Tail>(read.tail);
  spec.seed = read.seed;
  spec.batch = read.batch;
  spec.rank = read.rank;
  spec.ranks = read.ranks == 0 ? 1 : read.ranks;
  spec.draws = read.draws;
  if (read.weight_count > 0) {
    WEFT_RETURN_IF_ERROR(CheckedLength("weight_count", read.weight_count, kMostBytes / sizeof(double)));
    if (read.weights == nullptr) return NullArgument("options->weights");
    if (static_cast<int64_t>(read.weight_count) != items) {  // before they are read
      return UserError("there are ", read.weight_count, " weights for ", items, " items");
    }
    spec.weights.assign(read.weights, read.weights + read.weight_count);
  }
  return spec;
}

}  // namespace

extern "C" {

weft_error* weft_sampler_create(int64_t items, const weft_sampler_options* options, weft_sampler** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_NOT_NULL(options);
    WEFT_ASSIGN_OR_RETURN(data::SamplerSpec spec, SpecFrom(items, options));
    WEFT_ASSIGN_OR_RETURN(Ref<data::Sampler> sampler, data::Sampler::Create(std::move(spec)));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_sampler>(std::move(sampler)));
    return absl::OkStatus();
  });
}

weft_error* weft_sampler_batches(weft_sampler* sampler, int64_t position, int64_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(const Pin<data::Sampler> object, Get(sampler, "sampler"));
    WEFT_RETURN_IF_ERROR(object->Check({.position = position}));
    *out_count = object->BatchesFrom(position);
    return absl::OkStatus();
  });
}

weft_error* weft_sampler_batch(weft_sampler* sampler, int64_t epoch, int64_t position, int64_t* out_items,
                               size_t capacity, size_t* out_count, int64_t* out_kept) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Pin<data::Sampler> object, Get(sampler, "sampler"));
    const auto wanted = static_cast<size_t>(object->spec().batch);
    if (capacity < wanted) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "a batch has ", wanted, " items; capacity is ", capacity);
    }
    WEFT_NOT_NULL(out_items);
    data::Batch batch;
    WEFT_RETURN_IF_ERROR(object->BatchAt({object->spec().seed, epoch, position}, &batch));
    std::ranges::copy(batch.items, out_items);
    if (out_count != nullptr) *out_count = batch.items.size();
    if (out_kept != nullptr) *out_kept = batch.kept;
    return absl::OkStatus();
  });
}

void weft_sampler_retain(weft_sampler* sampler) noexcept { RetainHandle(sampler, HandleType::kSampler); }
void weft_sampler_release(weft_sampler* sampler) noexcept { ReleaseHandle(sampler, HandleType::kSampler); }

}  // extern "C"
