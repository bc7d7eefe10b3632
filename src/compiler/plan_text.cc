// See plan_text.h.
#include "src/compiler/plan_text.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::compiler {
namespace {

constexpr size_t kColumns = 7;
using Row = std::array<std::string, kColumns>;

// A count that nobody knows is a dash.
std::string Number(int64_t number) { return number < 0 ? "-" : absl::StrCat(number); }

std::string PlaceText(const BufferDescription& buffer) {
  const bool arena = buffer.place == "arena";
  return absl::StrCat(buffer.place, arena ? absl::StrCat("+", buffer.offset) : absl::StrCat(" ", buffer.index),
                      buffer.first == buffer.last ? "" : absl::StrCat(" [", buffer.first, "-", buffer.last, "]"));
}

// "dot_general, relu a.c:4; add a.c:5": operations by the place that recorded them, each once.
std::string Origins(const KernelDescription& kernel) {
  std::vector<std::pair<std::string, std::vector<std::string>>> places;
  for (size_t i = 0; i < kernel.operations.size(); ++i) {
    const std::string place = i < kernel.positions.size() ? kernel.positions[i] : "";
    auto at = std::ranges::find(places, place, [](const auto& known) { return known.first; });
    if (at == places.end()) at = places.insert(places.end(), {place, {}});
    if (std::ranges::find(at->second, kernel.operations[i]) == at->second.end())
      at->second.push_back(kernel.operations[i]);
  }
  return absl::StrJoin(places, "; ", [](std::string* out, const auto& place) {
    absl::StrAppend(out, absl::StrJoin(place.second, ", "), place.first.empty() ? "" : " ", place.first);
  });
}

Row RowOf(const KernelDescription& kernel, size_t at) {
  const std::string indent(static_cast<size_t>(kernel.depth) * 2, ' ');
  const std::string name = absl::StrCat(indent, kernel.within.empty() ? "" : absl::StrCat(kernel.within, ": "),
                                        kernel.control ? kernel.name : kernel.implementation,
                                        kernel.implementation.starts_with("loop") ? absl::StrCat(" ", kernel.name) : "",
                                        kernel.epilogue.empty() ? "" : absl::StrCat(" + ", kernel.epilogue));
  if (kernel.control) return {absl::StrCat(at), name, "", "", "", "", ""};
  return {absl::StrCat(at),
          name,
          Number(kernel.tasks),
          Number(kernel.flops),
          Number(kernel.bytes_read),
          Number(kernel.bytes_written),
          Origins(kernel)};
}

}  // namespace

absl::StatusOr<std::string> PlanText(const Program& program, std::string_view device) {
  const LaunchDescription description = program.executable->Describe();
  const ExecutableStats stats = program.executable->stats();
  if (description.kernels.empty() && stats.kernels > 0) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the device '", device,
                       "' does not say what it runs; WEFT_TEXT_PLAN is of the platform cpu");
  }
  std::vector<Row> rows = {{"#", "implementation", "tasks", "flops", "read", "written", "operations"}};
  for (size_t i = 0; i < description.kernels.size(); ++i) rows.push_back(RowOf(description.kernels[i], i));
  std::array<size_t, kColumns> widths = {};
  for (const Row& row : rows) {
    for (size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text =
      absl::StrCat("program ", program.name, ": ", program.nodes, " nodes, ", stats.kernels, " entries, code of ",
                   stats.code_bytes, " bytes, arena of ", description.arena_bytes, " bytes\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string line;
    for (size_t c = 0; c < kColumns; ++c) {
      const std::string pad(widths[c] - rows[i][c].size(), ' ');
      const bool number = c == 0 || (c >= 2 && c <= 5);
      absl::StrAppend(&line, c == 0 ? "" : "  ", number ? pad : "", rows[i][c], number ? "" : pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
    if (i == 0 || description.kernels[i - 1].buffers.empty()) continue;
    absl::StrAppend(&text, std::string(widths[0] + 4, ' '),
                    absl::StrJoin(description.kernels[i - 1].buffers, ", ",
                                  [](std::string* out, const BufferDescription& b) { *out += PlaceText(b); }),
                    "\n");
  }
  return text;
}

}  // namespace weft::compiler
