// What var and std share.
#include "src/ops/reduce/variance.h"

#include <algorithm>

namespace weft::ops {

using namespace ir;

absl::Status InferVariance(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  const int64_t correction = Attr<kVarianceAttrs, "correction">(call.attrs);
  if (correction < 0) return UserError("correction is ", correction, "; it must be 0 or more");
  return absl::OkStatus();
}

absl::StatusOr<Value> Variance(const ExpandCall& call) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        AxesOrAll(call.attrs, AttrPosition<kVarianceAttrs, "dims">(), x.dims().size()));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(call.attrs, x.dims()));
  Value mean = Mul(b, ReduceKeep(b, x, Reducer::kSum, axes), 1.0 / static_cast<double>(count));
  WEFT_ASSIGN_OR_RETURN(Value sum, ReduceByAttrs(call, Reducer::kSum, Square(b, Sub(b, x, mean))));
  // Over 0 or less there is no variance: NaN where nothing is left to be divided, else infinity, as NumPy and PyTorch have it.
  const int64_t divisor = std::max<int64_t>(0, count - Attr<kVarianceAttrs, "correction">(call.attrs));
  return Mul(b, sum, 1.0 / static_cast<double>(divisor));
}

}  // namespace weft::ops
