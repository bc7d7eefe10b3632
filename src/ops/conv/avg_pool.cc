// avg_pool: the mean under each window.
#include <algorithm>

#include "src/ops/conv/pool.h"
#include "src/ops/generated/attributes.h"

namespace weft::ops {
namespace {

using namespace ir;

// Padding is not counted: a window at the edge is divided by the elements it really has.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Attrs attrs, PoolAttrs(call.op, call.attrs, x.dims(), Reducer::kSum));
  Value sum = Call(b, kOp_reduce_window, {x}, attrs);
  const ReduceWindowAttrs pooled{attrs};
  const Ints& padding = pooled.padding();
  if (std::all_of(padding.begin(), padding.end(), [](int64_t p) { return p == 0; })) {
    double count = 1;  // of a window, which may be larger than any tensor where there are no windows
    for (int64_t size : pooled.window_dimensions()) count *= static_cast<double>(size);
    results[0] = Mul(b, sum, 1.0 / count);
  } else {
    results[0] = Div(b, sum, Call(b, kOp_reduce_window, {FullLike(b, x, 1)}, attrs));
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,4,6,3] window=[2,2]"},
                               {"T[1,5,7,2] window=[3,3] strides=[2,2] padding=same"},
                               {"T[1,5,5,1] window=[3,2] strides=[1,2] padding=explicit pads=[1,1,0,1]"},
                               {"T[2,7,3] window=[3]"},
                               {"T[0,4,4,1] window=[2,2]"}};

}  // namespace

constinit const OpDef kOp_avg_pool = {
    .name = "weft.avg_pool",
    .c_name = "avg_pool",
    .kind = Kind::kMacro,
    .doc = "The mean under each window of channels-last data; padding is not counted.",
    .example = "h = wf_avg_pool(s, h, WF_INTS(7, 7));",
    .operands = kPoolOperands,
    .attrs = kPoolAttrs,
    .results = kResult,
    .infer = InferPool,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
