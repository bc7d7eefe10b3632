// weft_split, weft_chunk, weft_unstack: slices of one tensor, recorded all or not at all.
#include <algorithm>

#include "src/c_api/context.h"
#include "src/c_api/op_call.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "weft.h"

namespace weft::c_api {
namespace {

constexpr uint64_t kMostParts = 1 << 20;

// The tensor that is cut, and along what.
struct Cut {
  Pin<Context> context;
  Pin<lazy::Tensor> x;
  int64_t axis = 0;
  int64_t size = 0;  // of the axis
};

absl::StatusOr<Cut> Begin(weft_context* ctx, weft_tensor* x, int64_t axis) {
  Cut cut;
  WEFT_ASSIGN_OR_RETURN(cut.context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(cut.context->Usable());
  WEFT_ASSIGN_OR_RETURN(cut.x, GetTensor(x, "x"));
  if (&cut.x->engine() != &cut.context->engine()) return UserError("x belongs to another context");
  WEFT_ASSIGN_OR_RETURN(cut.axis, ops::NormalizeAxis("axis", axis, cut.x->dims().size()));
  cut.size = cut.x->dims()[static_cast<size_t>(cut.axis)];
  return cut;
}

absl::Status CheckCapacity(const Cut& cut, size_t count, size_t capacity) {
  WEFT_RETURN_IF_ERROR(CheckedLength("capacity", capacity, kMostParts));
  if (count <= capacity) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kOutOfRange, "axis ", cut.axis, " of ", ir::ShortType(cut.x->type()), " gives ",
                     count, " tensors; capacity is ", capacity);
}

// Consecutive ranges of the axis, without the axis itself where that is asked for.
absl::Status Slices(const Cut& cut, std::span<const int64_t> sizes, bool squeeze, weft_tensor** outputs) {
  using Slice = ops::SliceInDimAttrs;
  using Call = lazy::Engine::Call;
  const size_t steps = squeeze ? 2 : 1;
  std::vector<Call> calls(sizes.size() * steps);
  std::vector<lazy::Tensor*> operands(calls.size());
  std::vector<Call::Earlier> slices(sizes.size());
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t at = i * steps;
    operands[at] = cut.x.get();
    calls[at].op = &ops::kOp_slice_in_dim;
    calls[at].operands = {&operands[at], 1};
    calls[at].attrs.set(Slice::kAxis, cut.axis);
    calls[at].attrs.set(Slice::kStart, start);
    calls[at].attrs.set(Slice::kLimit, start + sizes[i]);
    start += sizes[i];
    if (!squeeze) continue;
    slices[i] = {.operand = 0, .call = at, .result = 0};
    calls[at + 1].op = &ops::kOp_squeeze;
    calls[at + 1].operands = {&operands[at + 1], 1};
    calls[at + 1].earlier = {&slices[i], 1};
    calls[at + 1].attrs.set(ops::SqueezeAttrs::kDims, ir::Ints{cut.axis});
  }
  size_t failed = 0;
  const auto found = [] { return absl::OkStatus(); };
  WEFT_RETURN_IF_ERROR(cut.context->engine().RecordMany(calls, found, CurrentLocation(cut.context->engine()), &failed,
                                                        cut.context->frame()));
  std::vector<Ref<lazy::Tensor>> results;
  for (size_t i = steps - 1; i < calls.size(); i += steps) results.push_back(std::move(calls[i].results[0]));
  std::vector<weft_tensor*> made;
  WEFT_RETURN_IF_ERROR(MakeTensors(results, &made));
  std::copy(made.begin(), made.end(), outputs);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_split(weft_context* ctx, weft_tensor* x, const int64_t* sizes, size_t size_count, int64_t axis,
                       weft_tensor** outputs) noexcept {
  return Guard([&]() -> absl::Status {
    if (size_count > 0) WEFT_NOT_NULL(sizes);
    if (size_count > 0) WEFT_NOT_NULL(outputs);
    WEFT_RETURN_IF_ERROR(CheckedLength("sizes", size_count, kMostParts));
    WEFT_ASSIGN_OR_RETURN(const Cut cut, Begin(ctx, x, axis));
    int64_t sum = 0;
    for (size_t i = 0; i < size_count; ++i) {
      if (sizes[i] < 0) return UserError("sizes[", i, "] is ", sizes[i], "; it must not be negative");
      sum = std::min(sum, cut.size) + std::min(sizes[i], cut.size + 1);  // too much stays too much
    }
    if (sum != cut.size) {
      return UserError("sizes must add up to ", cut.size, ", axis ", cut.axis, " of ", ir::ShortType(cut.x->type()),
                       "; they are ", sum < cut.size ? absl::StrCat(sum, " together") : "more");
    }
    return Slices(cut, {sizes, size_count}, false, outputs);
  });
}

weft_error* weft_chunk(weft_context* ctx, weft_tensor* x, int64_t chunks, int64_t axis, weft_tensor** outputs,
                       size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_NOT_NULL(outputs);
    WEFT_ASSIGN_OR_RETURN(const Cut cut, Begin(ctx, x, axis));
    if (chunks < 1) return UserError("chunks is ", chunks, "; it must be at least 1");
    // There are as many parts as are asked for, or fewer that are full; if there are no elements, all are empty.
    const int64_t most = std::max<int64_t>(cut.size / chunks + (cut.size % chunks != 0 ? 1 : 0), 1);
    const int64_t count = cut.size == 0 ? chunks : (cut.size - 1) / most + 1;
    WEFT_RETURN_IF_ERROR(CheckCapacity(cut, static_cast<size_t>(count), capacity));
    std::vector<int64_t> sizes(static_cast<size_t>(count), std::min(most, cut.size));
    sizes.back() = cut.size - (count - 1) * sizes.front();
    WEFT_RETURN_IF_ERROR(Slices(cut, sizes, false, outputs));
    *out_count = sizes.size();
    return absl::OkStatus();
  });
}

weft_error* weft_unstack(weft_context* ctx, weft_tensor* x, int64_t axis, weft_tensor** outputs, size_t capacity,
                         size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(outputs);
    WEFT_ASSIGN_OR_RETURN(const Cut cut, Begin(ctx, x, axis));
    WEFT_RETURN_IF_ERROR(CheckCapacity(cut, static_cast<size_t>(cut.size), capacity));
    WEFT_RETURN_IF_ERROR(Slices(cut, std::vector<int64_t>(static_cast<size_t>(cut.size), 1), true, outputs));
    *out_count = static_cast<size_t>(cut.size);
    return absl::OkStatus();
  });
}

}  // extern "C"
