// See mesh.h.
#include "src/ir/mesh.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft::ir {
namespace {

// More devices no program has, and products of sizes stay far from overflow.
constexpr int64_t kMostDevices = int64_t{1} << 24;

bool IsName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

std::string AxesText(const Mesh& mesh) {
  return absl::StrJoin(mesh.axes, ", ",
                       [](std::string* out, const Mesh::Axis& axis) { absl::StrAppend(out, axis.name); });
}

std::string NameOf(const Mesh& mesh, uint32_t axis) {
  return axis < mesh.axes.size() ? mesh.axes[axis].name : absl::StrCat("number ", axis);
}

}  // namespace

size_t Sharding::given() const {
  size_t given = dimensions.size();
  while (given > 0 && dimensions[given - 1] == Dimension()) --given;
  return given;
}

bool operator==(const Sharding& a, const Sharding& b) {
  const size_t given = a.given();
  return given == b.given() &&
         std::equal(a.dimensions.begin(), a.dimensions.begin() + static_cast<ptrdiff_t>(given), b.dimensions.begin());
}

bool AllWhole(const std::vector<Sharding>& shardings) { return std::ranges::all_of(shardings, &Sharding::whole); }

bool operator==(const Participants& a, const Participants& b) {
  const auto same = [](const std::vector<Sharding>& x, const std::vector<Sharding>& y) {
    return x == y || (AllWhole(x) && AllWhole(y));
  };
  return a.replicas == b.replicas && a.partitions == b.partitions && a.mesh == b.mesh &&
         same(a.parameters, b.parameters) && same(a.results, b.results);
}

// Asked at every cut.
bool Participants::usual() const {
  return replicas == 1 && partitions == 1 && mesh.none() && AllWhole(parameters) && AllWhole(results);
}

std::string ToString(const Mesh& mesh) {
  std::string text = absl::StrJoin(mesh.axes, ",", [](std::string* out, const Mesh::Axis& axis) {
    absl::StrAppend(out, axis.name, "=", axis.size);
  });
  if (!mesh.slots.empty()) absl::StrAppend(&text, "@", absl::StrJoin(mesh.slots, ","));
  return text;
}

std::string ToString(const Mesh& mesh, const Sharding& sharding, size_t rank) {
  std::vector<std::string> words;
  for (size_t d = 0; d < std::max(rank, sharding.given()); ++d) {
    const Sharding::Dimension dimension =
        d < sharding.dimensions.size() ? sharding.dimensions[d] : Sharding::Dimension();
    std::string word = absl::StrJoin(
        dimension.axes, "+", [&](std::string* out, uint32_t axis) { absl::StrAppend(out, NameOf(mesh, axis)); });
    words.push_back(absl::StrCat(word.empty() ? "-" : word, dimension.open ? "?" : ""));
  }
  return absl::StrJoin(words, ",");
}

absl::StatusOr<Mesh> ParseMesh(std::string_view text) {
  Mesh mesh;
  const std::pair<std::string_view, std::string_view> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  for (const std::string_view axis : absl::StrSplit(parts.first, ',')) {
    const std::pair<std::string_view, std::string_view> sides = absl::StrSplit(axis, absl::MaxSplits('=', 1));
    int64_t size = 0;
    if (!absl::SimpleAtoi(sides.second, &size)) {
      return UserError("the mesh '", text, "' has an axis '", axis, "'; it must be a name, '=' and a size");
    }
    mesh.axes.push_back({std::string(sides.first), size});
  }
  if (text.find('@') != text.npos) {
    for (const std::string_view slot : absl::StrSplit(parts.second, ',')) {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(slot, &number)) return UserError("the mesh '", text, "' has a slot '", slot, "'");
      mesh.slots.push_back(number);
    }
  }
  WEFT_RETURN_IF_ERROR(Check(mesh));
  return mesh;
}

absl::StatusOr<Sharding> ParseSharding(std::string_view text, const Mesh& mesh) {
  Sharding sharding;
  if (text.empty()) return sharding;
  for (std::string_view word : absl::StrSplit(text, ',')) {
    Sharding::Dimension& dimension = sharding.dimensions.emplace_back();
    if (word.ends_with('?')) {
      dimension.open = true;
      word.remove_suffix(1);
    }
    if (word == "-") continue;
    for (const std::string_view name : absl::StrSplit(word, '+')) {
      const auto found = std::ranges::find(mesh.axes, name, &Mesh::Axis::name);
      if (found == mesh.axes.end()) {
        return UserError("the sharding '", text, "' names the axis '", name, "'; the mesh has ",
                         mesh.none() ? "none" : AxesText(mesh));
      }
      dimension.axes.push_back(static_cast<uint32_t>(found - mesh.axes.begin()));
    }
  }
  sharding.dimensions.resize(sharding.given());
  return sharding;
}

absl::StatusOr<std::vector<std::string_view>> ShardingWords(std::string_view text, size_t rank) {
  std::vector<std::string_view> words;
  if (!text.empty()) words = absl::StrSplit(text, ',');
  if (words.size() != rank) {
    return UserError("the sharding '", text, "' has ", words.size(), " words for ", rank,
                     " dimensions; it says one a dimension: axes joined by '+', or '-' for whole");
  }
  for (std::string_view word : words) {
    if (word == "-") continue;
    for (const std::string_view name : absl::StrSplit(word, '+')) {
      if (!IsName(name)) {
        return UserError("the sharding '", text, "' has a word '", word, "'; a word is '-' or axes joined by '+'");
      }
    }
  }
  return words;
}

namespace {

// Where a place is along each axis.
absl::InlinedVector<int64_t, 4> PlaceAlongAxes(const Mesh& mesh, int64_t at) {
  absl::InlinedVector<int64_t, 4> along(mesh.axes.size());
  for (size_t i = mesh.axes.size(); i-- > 0; at /= mesh.axes[i].size) along[i] = at % mesh.axes[i].size;
  return along;
}

}  // namespace

Box BoxOf(const Mesh& mesh, const Sharding& sharding, std::span<const int64_t> dims, int64_t at) {
  const auto along = PlaceAlongAxes(mesh, at);
  Box box = {Dims(dims.size(), 0), Dims(dims.begin(), dims.end())};
  for (size_t d = 0; d < sharding.given(); ++d) {
    int64_t pieces = 1, piece = 0;
    for (const uint32_t axis : sharding.dimensions[d].axes) {
      pieces *= mesh.axes[axis].size;
      piece = piece * mesh.axes[axis].size + along[axis];
    }
    box.sizes[d] = dims[d] / pieces;
    box.starts[d] = piece * box.sizes[d];
  }
  return box;
}

bool IsFirstCopy(const Mesh& mesh, const Sharding& sharding, int64_t at) {
  auto along = PlaceAlongAxes(mesh, at);
  for (const Sharding::Dimension& dimension : sharding.dimensions) {
    for (const uint32_t axis : dimension.axes) along[axis] = 0;
  }
  return std::ranges::all_of(along, [](int64_t index) { return index == 0; });
}

absl::Status Check(const Mesh& mesh) {
  int64_t size = 1;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const Mesh::Axis& axis = mesh.axes[i];
    if (!IsName(axis.name)) {
      return UserError("axis ", i, " of the mesh is called '", axis.name,
                       "'; a name is of letters, digits, '_' and '.'");
    }
    if (axis.size < 1) return UserError("the mesh's axis ", axis.name, " has size ", axis.size);
    const auto same = std::ranges::find(mesh.axes, axis.name, &Mesh::Axis::name);
    if (same - mesh.axes.begin() != static_cast<ptrdiff_t>(i)) {
      return UserError("two axes of the mesh are called ", axis.name);
    }
    if (axis.size > kMostDevices / size) {
      return UserError("the mesh ", ToString(mesh), " has more than ", kMostDevices, " devices");
    }
    size *= axis.size;
  }
  if (mesh.slots.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(mesh.slots.size()) != size || mesh.none()) {
    return UserError("the mesh ", ToString(mesh), " has ", mesh.slots.size(), " slots for ", size, " devices");
  }
  std::vector<bool> seen(mesh.slots.size());
  for (const uint32_t slot : mesh.slots) {
    if (slot >= seen.size()) return UserError("the mesh ", ToString(mesh), " has slot ", slot, " of ", seen.size());
    if (seen[slot]) return UserError("the mesh ", ToString(mesh), " has slot ", slot, " twice");
    seen[slot] = true;
  }
  return absl::OkStatus();
}

absl::Status Check(const Mesh& mesh, const Sharding& sharding, const Type& type, std::string_view what) {
  if (sharding.whole()) return absl::OkStatus();
  const size_t rank = type.is_tensor() ? type.rank() : 0;
  const auto wrong = [&](const auto&... why) {
    return UserError("the sharding '", ToString(mesh, sharding, rank), "' of ", what, ", ", ToString(type), ", ",
                     why...);
  };
  if (sharding.given() > rank) return wrong("is for ", sharding.given(), " dimensions; there are ", rank);
  std::vector<bool> used(mesh.axes.size());
  for (size_t d = 0; d < sharding.given(); ++d) {
    int64_t pieces = 1;
    for (const uint32_t axis : sharding.dimensions[d].axes) {
      if (axis >= used.size()) {
        return wrong("names axis number ", axis, " of a mesh that has ", used.size());
      }
      if (used[axis]) return wrong("uses the axis ", mesh.axes[axis].name, " twice");
      used[axis] = true;
      pieces *= mesh.axes[axis].size;
    }
    if (type.dims[d] % pieces != 0) {
      return wrong("cuts dimension ", d, " of size ", type.dims[d], " into ", pieces,
                   " pieces, which do not come out even");
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::ir
