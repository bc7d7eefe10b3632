// See picture.h.
#include "src/c_api/picture.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/runtime/shape.h"

namespace weft::c_api {
namespace {

// "3" of "cpu:3".
std::string_view NumberOf(const Device& device) {
  const std::string_view name = device.name;
  return name.substr(name.rfind(':') + 1);
}

}  // namespace

std::string PictureOf(const Dims& dims, std::span<const ShardPart> parts) {
  const size_t rank = dims.size();
  // Where a part begins down and across; what has fewer dimensions has one row, or one cell.
  const auto down = [&](const ir::Box& box) { return rank >= 2 ? box.starts[rank - 2] : 0; };
  const auto across = [&](const ir::Box& box) { return rank >= 1 ? box.starts[rank - 1] : 0; };
  std::set<int64_t> rows, columns;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> cells;
  for (const ShardPart& part : parts) {
    rows.insert(down(part.box));
    columns.insert(across(part.box));
    cells[{down(part.box), across(part.box)}].emplace_back(NumberOf(*part.device));
  }
  size_t width = 1;
  for (const auto& [at, names] : cells) width = std::max(width, absl::StrJoin(names, " ").size());
  std::string rule = "+";
  for (size_t i = 0; i < columns.size(); ++i) absl::StrAppend(&rule, std::string(width + 2, '-'), "+");
  std::string text = absl::StrCat(
      DimsToString(dims), ", devices ",
      parts.empty() ? "" : parts[0].device->name.substr(0, parts[0].device->name.rfind(':')), "\n", rule, "\n");
  for (const int64_t row : rows) {
    text += "|";
    for (const int64_t column : columns) {
      const std::string names = absl::StrJoin(cells[{row, column}], " ");
      const size_t left = (width - names.size()) / 2;
      absl::StrAppend(&text, " ", std::string(left, ' '), names, std::string(width - names.size() - left, ' '), " |");
    }
    absl::StrAppend(&text, "\n", rule, "\n");
  }
  return text;
}

}  // namespace weft::c_api
