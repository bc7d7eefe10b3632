// See places.h.
#include "src/ops/sizes/places.h"

#include "src/ops/shape/gather_dims.h"

namespace weft::ops {

using namespace ir;

absl::Status CheckSize(const Attrs& attrs, size_t size_attr) {
  const int64_t size = attrs.Int(size_attr);
  if (size < 0 || size > INT32_MAX) return UserError("size is ", size, "; it must be 0 to ", INT32_MAX);
  return absl::OkStatus();
}

absl::Status CheckPlaces(std::string_view name, const Type& x) {
  if (x.count() <= INT32_MAX) return absl::OkStatus();
  return UserError(name, " has ", x.count(), " elements; their positions must fit i32");
}

Places FirstTrue(Builder& b, const Value& mask, int64_t size) {
  if (!b.ok()) return {};
  const int64_t n = mask.type().count();
  if (n == 0) {
    return {Full(b, DType::kI32, {size}, 0), Full(b, DType::kBool, {size}, 0), Scalar(b, DType::kI32, 0)};
  }
  if (size == 0) {  // a count alone
    const Value all = Reduce(b, Convert(b, mask, DType::kI32), Reducer::kSum, {0});
    return {Full(b, DType::kI32, {0}, 0), Full(b, DType::kBool, {0}, 0), all};
  }
  // How many are true up to each one: a true element's number among them, and in the end all.
  const Value upto = Call(b, kOp_cumsum, {Convert(b, mask, DType::kI32)}, {int64_t{0}, int64_t{0}});
  Places places;
  places.count = Reshape(b, Slice(b, upto, {n - 1}, {n}, {1}), {});
  const Value slots = Select(b, mask, Add(b, upto, -1), FullLike(b, upto, static_cast<double>(size)));
  places.at = PutAt(b, slots, Iota(b, DType::kI32, {n}, 0), size, 0);
  places.there =
      Compare(b, Direction::kLt, Iota(b, DType::kI32, {size}, 0), BroadcastInDim(b, places.count, {size}, {}));
  return places;
}

Value PutAt(Builder& b, const Value& slots, const Value& values, int64_t count, double fill, bool add) {
  if (!b.ok()) return {};
  Dims dims = values.dims();
  dims[0] = count;
  const Value begun = Full(b, values.dtype(), dims, fill);
  if (count == 0) return Slice(b, values, Ints(dims.size(), 0), ToInts(dims), Ints(dims.size(), 1));
  Ints window = Axes(dims.size());
  window.erase(window.begin());
  return Call(b, kOp_scatter, {begun, slots, values},
              {window, Ints{0}, Ints{0}, int64_t{1}, add ? int64_t{0} : kScatterSet});
}

Value WhereThere(Builder& b, const Value& there, const Value& x, int64_t axis, double fill) {
  if (!b.ok()) return {};
  return Select(b, BroadcastInDim(b, there, x.dims(), {axis}), x, FullLike(b, x, fill));
}

}  // namespace weft::ops
