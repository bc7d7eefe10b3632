// See live_report.h.
#include "src/lazy/live_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/ir/builder.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/json_text.h"

namespace weft::lazy {
namespace {

constexpr size_t kNamed = 3;

std::string_view MakerOf(const LiveReport::Group& group) {
  return group.maker == nullptr ? "from the caller" : group.maker->c_name;
}

// "tanh, c.c:5"
std::string OriginOf(const LiveReport::Group& group) {
  const std::string at = ir::ToString(group.at);
  return absl::StrCat(MakerOf(group), at.empty() ? "" : ", ", at);
}

std::string BarriersOf(const LiveReport::Group& group) {
  if (group.first_barrier == group.last_barrier) return absl::StrCat("made in step ", group.first_barrier);
  return absl::StrCat("made in steps ", group.first_barrier, " to ", group.last_barrier);
}

}  // namespace

LiveReport LiveReportOf(const LiveList& live) {
  LiveReport report;
  HashSet<const Data*> seen;
  // Groups tensors by maker, place and type's text in short; groups are few, tensors many.
  HashMap<std::pair<std::pair<const void*, uint64_t>, uint64_t>, std::vector<size_t>> index;
  for (const Tensor& tensor : live) {
    const Data* const data = tensor.value() ? DataOf(tensor.value()) : nullptr;
    if (tensor.value() && data == nullptr) ++report.pending;
    if (data == nullptr || data->word_count > 0 || data->shards().empty() || !seen.insert(data).second) continue;
    const bool made = tensor.state.maker != nullptr && tensor.state.maker != &ops::kOp_parameter;
    const ir::OpDef* const maker = made ? tensor.state.maker : nullptr;
    const ir::Location at = tensor.state.location;
    const int64_t bytes = data->bytes();
    std::vector<size_t>& alike = index[{{maker, uint64_t{at.file} << 32 | at.line}, static_cast<uint64_t>(bytes)}];
    const auto same = [&](size_t i) { return report.groups[i].type == tensor.type(); };
    const auto found = std::ranges::find_if(alike, same);
    const size_t number = found != alike.end() ? *found : report.groups.size();
    if (found == alike.end()) {
      alike.push_back(number);
      report.groups.push_back({maker, at, tensor.type(), 0, 0, 0, tensor.state.born + 1, 0});
    }
    LiveReport::Group& group = report.groups[number];
    ++group.count, ++report.tensors;
    group.bytes += bytes, report.bytes += bytes;
    group.held += data->held() ? 1 : 0;
    group.first_barrier = std::min(group.first_barrier, tensor.state.born + 1);
    group.last_barrier = std::max(group.last_barrier, tensor.state.born + 1);
  }
  std::ranges::stable_sort(report.groups, std::ranges::greater(), [](const auto& group) { return group.bytes; });
  return report;
}

std::string TextOf(const LiveReport& report, const MemoryStats& stats, const std::string& attributes,
                   const std::string& device) {
  std::string text =
      absl::StrCat("memory of ", device, ": ", stats.bytes_in_use, " bytes in use, peak ", stats.peak_bytes,
                   stats.bytes_limit > 0 ? absl::StrCat(", limit ", stats.bytes_limit) : "", "; ", report.tensors,
                   " live tensors hold ", report.bytes, " bytes; ", report.barriers, " barriers so far\n");
  for (const LiveReport::Group& group : report.groups) {
    absl::StrAppend(&text, "  ", group.count, " x ", ir::ShortType(group.type), ", ", group.bytes, " bytes, ",
                    OriginOf(group), ", ", BarriersOf(group),
                    group.held > 0 ? absl::StrCat(", ", group.held, " held by the caller") : "", "\n");
  }
  absl::StrAppend(&text, "  pending: ", report.pending, " tensors without memory yet, ", report.pending_nodes,
                  " nodes\n");
  const std::string plain = absl::StrReplaceAll(attributes, {{"{", ""}, {"}", ""}, {"\"", ""}, {"_", " "}});
  if (!plain.empty()) absl::StrAppend(&text, "  the device's own: ", plain, "\n");
  return text;
}

std::string JsonOf(const LiveReport& report, const MemoryStats& stats, const std::string& attributes,
                   const std::string& device) {
  std::string groups;
  for (const LiveReport::Group& group : report.groups) {
    absl::StrAppend(&groups, groups.empty() ? "" : ",\n  ", "{\"count\": ", group.count,
                    ", \"type\": ", JsonText(ir::ShortType(group.type)), ", \"bytes\": ", group.bytes,
                    ", \"maker\": ", group.maker == nullptr ? "null" : JsonText(group.maker->c_name),
                    ", \"position\": ", JsonText(ir::ToString(group.at)), ", \"held\": ", group.held,
                    ", \"first_step\": ", group.first_barrier, ", \"last_step\": ", group.last_barrier, "}");
  }
  return absl::StrCat("{\"device\": ", JsonText(device), ", \"bytes_in_use\": ", stats.bytes_in_use,
                      ", \"peak_bytes\": ", stats.peak_bytes, ", \"bytes_limit\": ", stats.bytes_limit,
                      ", \"live_tensors\": ", report.tensors, ", \"live_bytes\": ", report.bytes,
                      ", \"barriers\": ", report.barriers, ", \"groups\": [", groups,
                      "], \"pending_tensors\": ", report.pending, ", \"pending_nodes\": ", report.pending_nodes,
                      ", \"attributes\": ", attributes, "}");
}

std::string LargestLive(const LiveList& live) {
  const LiveReport report = LiveReportOf(live);
  if (report.groups.empty()) return "";
  std::string text =
      absl::StrCat("; the largest of ", report.tensors, " live tensors, which hold ", report.bytes, " bytes: ");
  for (size_t i = 0; i < std::min(kNamed, report.groups.size()); ++i) {
    const LiveReport::Group& group = report.groups[i];
    const bool several = group.count > 1;
    absl::StrAppend(&text, i == 0 ? "" : ", ", several ? absl::StrCat(group.count, " x ") : "",
                    ir::ShortType(group.type), " of ", group.bytes, several ? " bytes together (" : " bytes (",
                    OriginOf(group), ")");
  }
  return text;
}

}  // namespace weft::lazy
