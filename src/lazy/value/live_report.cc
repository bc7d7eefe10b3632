// See live_report.h.
#include "src/lazy/value/live_report.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/ir/builder.h"
#include "src/ops/registry.h"
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

bool LiveReporter::IsNew(const Data* data) {
  constexpr size_t kFirst = 1024;
  if (2 * (seen_count_ + 1) > seen_.size()) {
    std::vector<const Data*> larger(std::max(kFirst, 2 * seen_.size()));
    larger.swap(seen_);
    seen_count_ = 0;
    for (const Data* const one : larger) {
      if (one != nullptr) IsNew(one);
    }
  }
  size_t at = absl::Hash<const Data*>()(data) & (seen_.size() - 1);
  for (; seen_[at] != nullptr; at = (at + 1) & (seen_.size() - 1)) {
    if (seen_[at] == data) return false;
  }
  seen_[at] = data;
  ++seen_count_;
  return true;
}

void LiveReporter::Add(LiveList::Iterator& at, size_t most) {
  // Tensors and what they show lie far apart: several of them are fetched side by side.
  constexpr size_t kBatch = 64;
  std::array<const Tensor*, kBatch> tensors;
  std::array<const Data*, kBatch> shown;
  const LiveList::Iterator end(nullptr);
  while (most > 0 && !(at == end)) {
    size_t count = 0;
    for (; count < std::min(kBatch, most) && !(at == end); ++at) tensors[count++] = &*at;
    most -= count;
    for (size_t i = 0; i < count; ++i) {
      const ir::Value& value = tensors[i]->value();
      shown[i] = value ? DataOf(value) : nullptr;
      if (value && shown[i] == nullptr) ++report_.pending;
    }
    for (size_t i = 0; i < count; ++i) {
      if (shown[i] != nullptr) __builtin_prefetch(shown[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Data* const data = shown[i];
      if (data != nullptr && data->word_count == 0 && !data->shards().empty() && IsNew(data)) Count(*tensors[i], *data);
    }
  }
}

void LiveReporter::Count(const Tensor& tensor, const Data& data) {
  const bool made = tensor.state.maker != nullptr && tensor.state.maker != &ops::kOp_parameter;
  const ir::OpDef* const maker = made ? tensor.state.maker : nullptr;
  const ir::Location at = tensor.state.location;
  const int64_t bytes = data.bytes();
  std::vector<size_t>& alike = groups_[{{maker, uint64_t{at.file} << 32 | at.line}, static_cast<uint64_t>(bytes)}];
  const auto same = [&](size_t i) { return report_.groups[i].type == tensor.type(); };
  const auto found = std::ranges::find_if(alike, same);
  const size_t number = found != alike.end() ? *found : report_.groups.size();
  if (found == alike.end()) {
    alike.push_back(number);
    report_.groups.push_back({maker, at, tensor.type(), 0, 0, 0, tensor.state.born + 1, 0});
  }
  LiveReport::Group& group = report_.groups[number];
  ++group.count, ++report_.tensors;
  group.bytes += bytes, report_.bytes += bytes;
  group.held += data.held() ? 1 : 0;
  group.first_barrier = std::min(group.first_barrier, tensor.state.born + 1);
  group.last_barrier = std::max(group.last_barrier, tensor.state.born + 1);
}

LiveReport LiveReporter::Take() {
  std::ranges::stable_sort(report_.groups, std::ranges::greater(), [](const auto& group) { return group.bytes; });
  return std::move(report_);
}

LiveReport LiveReportOf(const LiveList& live) {
  LiveReporter reporter;
  LiveList::Iterator at = live.begin();
  reporter.Add(at, std::numeric_limits<size_t>::max());
  return reporter.Take();
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
