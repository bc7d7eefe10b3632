// See order.h.
#include "src/ops/sort/order.h"

#include <cmath>

namespace weft::ops {
namespace {

using namespace ir;

// Makes the key that is compared in place of x. The key of a float is a whole number: its bits, counting down below 0.
Value KeyOf(Builder& b, Value x) {
  if (IsNarrow(x.dtype())) x = Convert(b, x, ComputeType(x.dtype()));
  const DType dtype = x.dtype();
  if (!IsFloat(dtype)) return x;
  const DType whole = BytesOf(dtype) == 2 ? DType::kI16 : BytesOf(dtype) == 4 ? DType::kI32 : DType::kI64;
  x = Select(b, Compare(b, Direction::kEq, x, 0), Scalar(b, dtype, 0), x);
  x = Select(b, Compare(b, Direction::kNe, x, x), Scalar(b, dtype, NAN), x);
  const Value bits = Call(b, kOp_bitcast_convert, {x}, {whole});
  HostTensor magnitude(whole, {});
  magnitude.SetInt(0, INT64_MAX >> (64 - BitsOf(whole)));
  const Value mirrored = Call(b, kOp_bitwise_xor, {bits, Constant(b, std::move(magnitude))});
  return Select(b, Compare(b, Direction::kLt, bits, 0), mirrored, bits);
}

}  // namespace

absl::StatusOr<Ref<const Function>> Comparator(std::span<const DType> types, bool descending) {
  std::vector<DType> pairs;
  for (const DType type : types) pairs.insert(pairs.end(), 2, type);
  return MakeScalarFunction(descending ? "greater" : "less", pairs, [&](Builder& b, std::span<const Value> p) {
    return Values{Compare(b, descending ? Direction::kGt : Direction::kLt, KeyOf(b, p[0]), KeyOf(b, p[1]))};
  });
}

Values SortByFirst(Builder& b, Values tensors, int64_t axis, bool descending) {
  const size_t count = tensors.size();
  if (!b.ok()) return Values(count);
  std::vector<DType> types;
  for (const Value& tensor : tensors) types.push_back(tensor.dtype());
  const absl::StatusOr<Ref<const Function>> comparator = Comparator(types, descending);
  if (!comparator.ok()) {
    b.Fail(comparator.status());
    return Values(count);
  }
  Values sorted = CallAll(b, kOp_sort_by, std::move(tensors), {axis, int64_t{1}}, {&*comparator, 1});
  if (!b.ok()) return Values(count);
  return sorted;
}

}  // namespace weft::ops
