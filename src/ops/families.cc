// Shape rules shared by whole families.
#include "src/ops/families.h"

namespace weft::ops {

absl::Status CheckIndices(std::string_view name, const HostTensor& values, int64_t most) {
  for (int64_t i = 0; i < values.count(); ++i) {
    const int64_t value = values.GetInt(i);
    if (value >= 0 && value <= most) continue;
    const bool huge = value < 0 && IsUnsigned(values.dtype());
    return UserErrorOf(absl::StatusCode::kOutOfRange, name, ": element ", i, " is ",
                       huge ? absl::StrCat(static_cast<uint64_t>(value)) : absl::StrCat(value), "; 0 to ", most,
                       " are possible (checked in debug mode)");
  }
  return absl::OkStatus();
}

absl::Status CheckReducer(std::string_view reducer, DType dtype) {
  const bool bits = reducer == "and" || reducer == "or";
  if (bits && IsFloat(dtype)) {
    return UserError("reducer ", reducer, " takes integers or bool, not ", NameOf(dtype));
  }
  if (IsComplex(dtype) && (bits || reducer == "max" || reducer == "min")) {
    return UserError("reducer ", reducer, " does not take ", NameOf(dtype),
                     "; of complex elements there are sum and prod");
  }
  return absl::OkStatus();
}

absl::Status InferSame(const ir::InferCall& call, ir::Types* results) {
  const ir::Type& first = *call.operands[0];
  for (const ir::Type* other : call.operands) {
    if (other != nullptr && other->dims != first.dims) {
      return UserError("shapes ", DimsToString(first.dims), " and ", DimsToString(other->dims), " must be equal");
    }
  }
  results->push_back(first);
  return absl::OkStatus();
}

absl::Status InferBool(const ir::InferCall& call, ir::Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  results->back().dtype = DType::kBool;
  return absl::OkStatus();
}

absl::Status InferReduction(const ir::InferCall& call, ir::Types* results) {
  const ir::Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const ir::Ints axes, AxesOrAll(call.attrs, AttrPosition<kReductionAttrs, "dims">(), x.rank()));
  Dims dims = x.dims;
  for (int64_t axis : axes) dims[axis] = 1;
  results->push_back(
      ir::Type::Tensor(x.dtype, Attr<kReductionAttrs, "keepdims">(call.attrs) ? dims : Without(x.dims, axes)));
  return absl::OkStatus();
}

absl::StatusOr<ir::Value> ReduceByAttrs(const ir::ExpandCall& call, Reducer reducer, const ir::Value& x) {
  WEFT_ASSIGN_OR_RETURN(const ir::Ints axes,
                        AxesOrAll(call.attrs, AttrPosition<kReductionAttrs, "dims">(), call.operands[0].dims().size()));
  return Attr<kReductionAttrs, "keepdims">(call.attrs) ? ReduceKeep(call.b, x, reducer, axes)
                                                       : Reduce(call.b, x, reducer, axes);
}

absl::StatusOr<int64_t> ReducedCount(const ir::Attrs& attrs, const Dims& dims) {
  WEFT_ASSIGN_OR_RETURN(const ir::Ints axes, AxesOrAll(attrs, AttrPosition<kReductionAttrs, "dims">(), dims.size()));
  int64_t count = 1;
  for (int64_t axis : axes) count *= dims[axis];
  return count;
}

std::vector<double> ToDoubles(const HostTensor& x) {
  std::vector<double> values(x.count());
  for (int64_t i = 0; i < x.count(); ++i) values[i] = x.GetDouble(i);
  return values;
}

}  // namespace weft::ops
