// Shape rules shared by whole families.
#include "src/ops/families.h"

namespace weft::ops {

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

}  // namespace weft::ops
