// See captures.h.
#include "src/ops/control/captures.h"

#include "src/ir/builder.h"
#include "src/ir/function.h"

namespace weft::ops {

absl::Status CheckParameters(const ir::Function& function, size_t first, std::span<const ir::Type* const> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Type& parameter = function.parameters()[first + i].type();
    if (parameter == *operands[i]) continue;
    return UserError("parameter ", first + i, " of the function @", function.name(), " is ", ir::ShortType(parameter),
                     "; the operand for it is ", ir::ShortType(*operands[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckCarried(const ir::Function& body, size_t i, const ir::Type& first) {
  const ir::Type& next = body.results()[i].type();
  if (first == next) return absl::OkStatus();
  return UserError("carried value ", i, " begins as ", ir::ShortType(first), " and goes on as ", ir::ShortType(next),
                   " (result ", i, " of the function @", body.name(), "); they must be of one type");
}

}  // namespace weft::ops
