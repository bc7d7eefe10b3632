// See shardings.h.
#include "src/backends/pjrt/shardings.h"

#include <algorithm>
#include <vector>

#include "src/backends/pjrt/fields.h"
#include "src/passes/shardings.h"

namespace weft::pjrt {
namespace {

// PJRT_Shardings_Extension, number 19 of the extensions; either function may be missing.
constexpr int kShardings = 19;
struct Extension {
  api::Extension base;
  void* parameter_shardings = nullptr;
  void* output_shardings = nullptr;
};
static_assert(sizeof(Extension) == 40);
// Serialised xla.OpShardings, which live as long as the executable; null where the plugin does not support it.
struct OutputShardings {
  api::Head head;
  api::Executable* executable = nullptr;
  size_t num_outputs = 0;
  const char* const* shardings = nullptr;
  const size_t* sizes = nullptr;
};
constexpr char kOutputShardings[] = "PJRT_Executable_OutputShardings";

const Extension* ShardingsOf(const Plugin& plugin) {
  return static_cast<const Extension*>(plugin.FindExtension(kShardings, sizeof(Extension)));
}

// --- xla.OpSharding --------------------------------------------------------------------------------------------------------

// The fields of a message, which say what tile of each dimension each device has.
struct Tiles {
  std::vector<int64_t> type, sizes, devices, replicated_last, last_types, reshape, order;
};

std::optional<Tiles> ReadTiles(std::string_view bytes) {
  Tiles tiles;
  Fields fields(bytes);
  while (fields.Next()) {
    std::vector<int64_t> other;
    std::vector<int64_t>* const lists[] = {
        &tiles.type, nullptr,           &tiles.sizes,   &tiles.devices, nullptr, &tiles.replicated_last,
        nullptr,     &tiles.last_types, &tiles.reshape, &tiles.order};
    const int at = fields.number() - 1;
    if (at >= 0 && at < static_cast<int>(std::size(lists)) && lists[at] != nullptr) fields.AppendTo(lists[at]);
  }
  return fields.ok() ? std::optional(tiles) : std::nullopt;
}

// The product of sizes, each at least 1; 0 where it is not `most` at the most.
int64_t Product(const std::vector<int64_t>& sizes, int64_t most) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size < 1 || size > most / product) return 0;
    product *= size;
  }
  return product;
}

// The place of each device in the list of tiles, by its number.
std::optional<std::vector<int64_t>> PlacesOf(const Tiles& tiles, int64_t count) {
  std::vector<int64_t> devices = tiles.devices;
  if (devices.empty()) {
    // The numbers in order, as an array of the sizes `reshape` with its dimensions in another order.
    const size_t rank = tiles.reshape.size();
    std::vector<int64_t> strides(rank, 1), sorted = tiles.order;
    std::ranges::sort(sorted);
    for (size_t d = 0; d < rank; ++d) {
      if (sorted.size() != rank || sorted[d] != static_cast<int64_t>(d)) return std::nullopt;
    }
    if (rank == 0 || Product(tiles.reshape, count) != count) return std::nullopt;
    for (size_t d = rank - 1; d-- > 0;) strides[d] = strides[d + 1] * tiles.reshape[d + 1];
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, device = 0;
      for (size_t d = rank; d-- > 0;) {
        const auto from = static_cast<size_t>(tiles.order[d]);
        device += rest % tiles.reshape[from] * strides[from];
        rest /= tiles.reshape[from];
      }
      devices.push_back(device);
    }
  }
  std::vector<int64_t> places(static_cast<size_t>(count), -1);
  if (static_cast<int64_t>(devices.size()) != count) return std::nullopt;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t device = devices[static_cast<size_t>(i)];
    if (device < 0 || device >= count || places[static_cast<size_t>(device)] >= 0) return std::nullopt;
    places[static_cast<size_t>(device)] = i;
  }
  return places;
}

// The axes that count the tiles of a dimension, the major one first, where `tile` gives the tile at each place of the mesh.
ir::Sharding::Dimension AxesOf(const ir::Mesh& mesh, const std::vector<int64_t>& tile) {
  std::vector<std::pair<int64_t, uint32_t>> steps;
  int64_t stride = 1;
  for (size_t a = mesh.axes.size(); a-- > 0; stride *= mesh.axes[a].size) {
    if (mesh.axes[a].size == 1) continue;
    const int64_t step = tile[static_cast<size_t>(stride)] - tile[0];
    if (step != 0) steps.emplace_back(-step, static_cast<uint32_t>(a));
  }
  std::ranges::sort(steps);
  ir::Sharding::Dimension dimension;
  for (const auto& [step, axis] : steps) dimension.axes.push_back(axis);
  return dimension;
}

}  // namespace

std::optional<ir::Sharding> ReadOpSharding(std::string_view bytes, const ir::Mesh& mesh, const ir::Type& type) {
  constexpr int64_t kReplicated = 0, kTiled = 3;
  const std::optional<Tiles> tiles = ReadTiles(bytes);
  if (!tiles.has_value()) return std::nullopt;
  const int64_t kind = tiles->type.empty() ? kReplicated : tiles->type.back();
  if (kind == kReplicated) return ir::Sharding();
  const size_t rank = type.rank();
  const int64_t count = mesh.size();
  // Behind the value's dimensions come those along which devices have copies.
  const bool copies = (!tiles->replicated_last.empty() && tiles->replicated_last.back() != 0) ||
                      std::ranges::any_of(tiles->last_types, [](int64_t last) { return last == kReplicated; });
  if (kind != kTiled || tiles->sizes.size() < rank || (tiles->sizes.size() > rank && !copies) ||
      std::ranges::any_of(tiles->last_types, [](int64_t last) { return last != kReplicated; }) ||
      Product(tiles->sizes, count) != count) {
    return std::nullopt;
  }
  const std::optional<std::vector<int64_t>> places = PlacesOf(*tiles, count);
  if (!places.has_value()) return std::nullopt;
  // The tile of each dimension, a list of all places of the mesh.
  std::vector<std::vector<int64_t>> tile(rank, std::vector<int64_t>(static_cast<size_t>(count)));
  for (int64_t at = 0; at < count; ++at) {
    const auto slot = mesh.slots.empty() ? static_cast<size_t>(at) : mesh.slots[static_cast<size_t>(at)];
    int64_t rest = (*places)[slot];
    for (size_t d = tiles->sizes.size(); d-- > 0; rest /= tiles->sizes[d]) {
      if (d < rank) tile[d][static_cast<size_t>(at)] = rest % tiles->sizes[d];
    }
  }
  ir::Sharding sharding;
  for (size_t d = 0; d < rank; ++d) sharding.dimensions.push_back(AxesOf(mesh, tile[d]));
  if (!ir::Check(mesh, sharding, type, "a result").ok()) return std::nullopt;
  for (int64_t at = 0; at < count; ++at) {
    const ir::Box box = ir::BoxOf(mesh, sharding, type.dims, at);
    for (size_t d = 0; d < rank; ++d) {
      const bool same = box.sizes[d] * tiles->sizes[d] == type.dims[d] &&
                        box.starts[d] == box.sizes[d] * tile[d][static_cast<size_t>(at)];
      if (!same) return std::nullopt;
    }
  }
  return sharding;
}

bool TellsShardings(const Plugin& plugin) {
  const Extension* const extension = ShardingsOf(plugin);
  return extension != nullptr && extension->output_shardings != nullptr;
}

absl::StatusOr<bool> AskShardings(const Plugin& plugin, api::Executable* executable, Program* program) {
  const Extension* const extension = ShardingsOf(plugin);
  if (extension == nullptr || extension->output_shardings == nullptr) return false;
  OutputShardings told{.head = {sizeof(told), nullptr}, .executable = executable};
  WEFT_RETURN_IF_ERROR(plugin.CallOfExtension(extension->output_shardings, kOutputShardings, &told));
  if (told.shardings == nullptr || told.sizes == nullptr || told.num_outputs != program->results.size()) return false;
  bool all = true;
  for (size_t i = 0; i < told.num_outputs; ++i) {
    if (!passes::IsOpen(program->lying[i])) continue;
    if (told.shardings[i] == nullptr && told.sizes[i] > 0) {
      all = false;
      continue;
    }
    ir::Type& type = program->results[i];
    const std::optional<ir::Sharding> read = ReadOpSharding({told.shardings[i], told.sizes[i]}, program->mesh, type);
    if (!read.has_value()) {
      all = false;
      continue;
    }
    type = ir::Type::Tensor(type.dtype, ir::BoxOf(program->mesh, *read, type.dims, 0).sizes);
    program->lying[i] = *read;
  }
  return all;
}

ir::Module WithoutOpenResults(const ir::Module& module, const Program& program) {
  ir::Module closed = module;
  closed.participants.results = program.lying;
  for (ir::Sharding& sharding : closed.participants.results) {
    if (passes::IsOpen(sharding)) sharding = ir::Sharding();
  }
  return closed;
}

}  // namespace weft::pjrt
