// See live_report.h.
#include "src/lazy/live_report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/ir/builder.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"

namespace weft::lazy {
namespace {

constexpr size_t kNamed = 3;

}  // namespace

std::string LargestLive(const LiveList& live) {
  std::vector<std::pair<int64_t, const Tensor*>> found;
  HashSet<const Data*> seen;
  int64_t total = 0;
  for (const Tensor& tensor : live) {
    const Data* const data = tensor.value() ? DataOf(tensor.value()) : nullptr;
    if (data == nullptr || data->word_count > 0 || data->shards().empty() || !seen.insert(data).second) continue;
    found.emplace_back(data->bytes(), &tensor);
    total += data->bytes();
  }
  if (found.empty()) return "";
  const size_t named = std::min(kNamed, found.size());
  std::ranges::partial_sort(found, found.begin() + static_cast<ptrdiff_t>(named), std::ranges::greater(),
                            [](const auto& entry) { return entry.first; });
  std::string text = absl::StrCat("; the largest of ", found.size(), " live tensors, which hold ", total, " bytes: ");
  for (size_t i = 0; i < named; ++i) {
    const auto& [bytes, tensor] = found[i];
    const ir::OpDef* const maker = tensor->state.maker;
    const std::string at = ir::ToString(tensor->state.location);
    absl::StrAppend(&text, i == 0 ? "" : ", ", ir::ShortType(tensor->type()), " of ", bytes, " bytes (",
                    maker == nullptr || maker == &ops::kOp_parameter ? "from the caller" : maker->c_name,
                    at.empty() ? "" : ", ", at, ")");
  }
  return text;
}

}  // namespace weft::lazy
