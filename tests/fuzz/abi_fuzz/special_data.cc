// Data sets, samplers and loaders whose numbers fit together, or do not.
#include <cstring>

#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

constexpr int64_t kItems = 6;
float g_values[kItems * 4];  // outlives every data set

weft_error* ReadOnes(void*, const int64_t*, size_t, weft_rows* rows, size_t count) {
  for (size_t i = 0; i < count; ++i) std::memset(rows[i].data, 1, rows[i].size);
  return nullptr;
}
weft_error* ReadNone(void*, const int64_t* items, size_t, weft_rows* rows, size_t) {
  if (items[0] % 2 == 0) return weft_error_new(WEFT_DATA_LOSS, "none", 4);
  rows[0].size = 0;
  return nullptr;
}

// Draws f32[4], or something that is refused.
weft_tensor_info* DrawnField(Fuzz& f) {
  auto* const field = static_cast<weft_tensor_info*>(f.Block(sizeof(weft_tensor_info)));
  std::memset(field, 0, sizeof *field);
  field->dtype = f.Wrong() ? static_cast<weft_dtype>(f.DTypeNumber()) : WEFT_F32;
  field->rank = f.Wrong() ? f.Of<uint32_t>({0, 2, 31, 33, UINT32_MAX}) : 1;
  field->dims[0] = f.Wrong() ? f.Of<int64_t>({-1, 0, INT64_MAX, int64_t{1} << 58}) : 4;
  return f.Wrong() ? nullptr : field;
}
int64_t DrawnCount(Fuzz& f) { return f.Wrong() ? f.Of<int64_t>({-1, 0, 1, INT64_MAX}) : kItems; }

}  // namespace

void Call_weft_dataset_create(Fuzz& f) {
  auto* const options = f.Options<weft_dataset_options>();
  if (options != nullptr) {
    options->count = DrawnCount(f);
    options->fields = DrawnField(f);
    options->field_count = f.Wrong() ? f.Of<uint64_t>({0, UINT64_MAX, uint64_t{1} << 40}) : 1;
    options->read = f.Wrong() ? nullptr : f.OneIn(4) ? ReadNone : ReadOnes;
    options->user_data = nullptr, options->release = nullptr;
    options->most_at_once = f.Wrong() ? f.Integer() : f.Roll(3);
  }
  auto* const out = f.Out<weft_dataset*>(false);
  f.Enter();
  if (f.Leave(weft_dataset_create(options, out))) f.Keep(out);
}

void Call_weft_dataset_from_memory(Fuzz& f) {
  const int64_t count = DrawnCount(f);
  const weft_tensor_info* const field = DrawnField(f);
  auto* const rows = static_cast<weft_rows*>(f.Block(sizeof(weft_rows)));
  *rows = {.data = f.Wrong() ? nullptr : g_values, .size = f.Wrong() ? f.Of<uint64_t>({0, 1, UINT64_MAX}) : sizeof g_values, .row_bytes = 0};
  const size_t fields = f.Wrong() ? f.Of<size_t>({0, SIZE_MAX, size_t{1} << 40}) : 1;
  auto* const out = f.Out<weft_dataset*>(false);
  f.Enter();
  if (f.Leave(weft_dataset_from_memory(count, field, f.Wrong() ? nullptr : rows, fields, nullptr, nullptr, out))) f.Keep(out);
}

void Call_weft_sampler_create(Fuzz& f) {
  const int64_t items = DrawnCount(f);
  auto* const options = f.Options<weft_sampler_options>();
  if (options != nullptr) {
    options->batch = f.Wrong() ? f.Integer() : 1 + f.Roll(3);
    options->order = static_cast<weft_order>(f.Wrong() ? static_cast<int>(f.Integer()) : f.Roll(3));
    options->tail = static_cast<weft_tail>(f.Wrong() ? static_cast<int>(f.Integer()) : f.Roll(2));
    options->seed = static_cast<uint64_t>(f.Integer());
    options->ranks = f.Wrong() ? f.Integer() : f.Roll(3);
    options->rank = f.Wrong() ? f.Integer() : 0;
    options->draws = f.Wrong() ? f.Integer() : 0;
    options->weights = nullptr, options->weight_count = 0;
    if (options->order == WEFT_ORDER_WEIGHTED || f.Wrong()) {
      auto* const weights = static_cast<double*>(f.Block(kItems * sizeof(double)));
      for (int i = 0; i < kItems; ++i) weights[i] = f.Wrong() ? f.Real() : i;
      options->weights = f.Wrong() ? nullptr : weights;
      options->weight_count = f.Wrong() ? f.Of<uint64_t>({1, UINT64_MAX, uint64_t{1} << 50}) : kItems;
      if (items != kItems && options->weight_count == static_cast<uint64_t>(items)) options->weight_count = 0;  // more than there are
    }
  }
  auto* const out = f.Out<weft_sampler*>(false);
  f.Enter();
  if (f.Leave(weft_sampler_create(items, options, out))) f.Keep(out);
}

void Call_weft_loader_create(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_dataset* const dataset = f.Handle<weft_dataset>(false);
  weft_sampler* const sampler = f.Handle<weft_sampler>(false);
  auto* const options = f.Options<weft_loader_options>();
  if (options != nullptr) {
    options->device = f.OneIn(2) ? f.Handle<weft_device>(true) : nullptr;
    options->mesh = f.OneIn(4) ? f.Handle<weft_mesh>(true) : nullptr;
    const Text axis = f.OneIn(4) ? f.DrawText(Words::kSpecs) : Text{};
    options->axis = axis.data, options->axis_length = axis.length;
    options->depth = f.Wrong() ? f.Integer() : f.Roll(3);
    options->threads = f.Wrong() ? f.Integer() : f.Roll(3);
    options->timeout_ms = f.Wrong() ? f.Of<int64_t>({-1, INT64_MIN}) : 1 + f.Roll(1000);
    options->batches_per_execution = f.Wrong() ? f.Integer() : f.Roll(3);
    options->job = f.OneIn(4) ? f.Handle<weft_job>(true) : nullptr;
  }
  auto* const out = f.Out<weft_loader*>(false);
  f.Enter();
  if (f.Leave(weft_loader_create(ctx, dataset, sampler, options, out))) f.Keep(out);
}

void Call_weft_job_reduce(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_job* const job = f.Handle<weft_job>(false);
  weft_tensor* const made = f.MakeTensor(WEFT_F32, {2, 3});
  weft_tensor* const list[2] = {made, f.Wrong() ? f.Handle<weft_tensor>(true) : made};
  const size_t count = f.Wrong() ? f.Of<size_t>({0, 1, SIZE_MAX}) : 2;
  const auto reduction = static_cast<weft_job_reduction>(f.OneOf({0, 6, 6, 1}));
  auto* const options = f.Options<weft_job_reduce_options>();
  if (options != nullptr) options->first_bucket_bytes = f.Integer(), options->bucket_bytes = f.Integer();
  weft_tensor** out = static_cast<weft_tensor**>(f.Block(2 * sizeof(weft_tensor*)));
  if (f.Wrong()) out = nullptr;
  f.Enter();
  if (!f.Leave(weft_job_reduce(ctx, job, list, count, reduction, options, out))) return;
  for (size_t i = 0; i < count; ++i) f.KeepHandle(Kind::kTensor, out[i]);
}

}  // namespace weft::fuzz
