// See window.h.
#include "src/lazy/value/window.h"

#include "src/ir/builder.h"
#include "src/runtime/status.h"

namespace weft::lazy {

absl::Status Window::Fits(const Tensor& tensor, DType dtype, size_t size, std::string_view what) const {
  const int64_t bytes = tensor.type().count() * BytesOf(dtype), wanted = static_cast<int64_t>(size);
  if (box == nullptr) {
    if (offset >= 0 && wanted <= bytes && offset <= bytes - wanted) return absl::OkStatus();
    return UserError(what, ": bytes ", offset, " to ", offset + wanted, " of a tensor ", ir::ShortType(tensor.type()),
                     ", which has ", bytes);
  }
  const auto& [starts, sizes] = *box;
  int64_t count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (starts[d] < 0 || sizes[d] < 0 || starts[d] > tensor.dims()[d] - sizes[d]) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, what, ": ", sizes[d], " elements from ", starts[d],
                         " on along dimension ", d, " of a tensor ", ir::ShortType(tensor.type()));
    }
    count *= sizes[d];
  }
  if (count * BytesOf(dtype) == wanted) return absl::OkStatus();
  return UserError(what, ": the box ", DimsToString(sizes), " of a tensor ", ir::ShortType(tensor.type()), " has ",
                   count * BytesOf(dtype), " bytes; size is ", wanted);
}

}  // namespace weft::lazy
