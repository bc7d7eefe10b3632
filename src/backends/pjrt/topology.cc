// See topology.h.
#include "src/backends/pjrt/topology.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "src/backends/pjrt/attributes.h"

namespace weft::pjrt {
namespace {

struct Family {
  std::string_view name;
  size_t dimensions;  // of a grid of chips
};
constexpr Family kFamilies[] = {{"v2", 2}, {"v3", 2}, {"v4", 3}, {"v5e", 2}, {"v5p", 3}, {"v6e", 2}, {"tpu7x", 3}};
constexpr int kMostChipsAside = 64;

}  // namespace

absl::Status CheckTpuTopology(std::string_view name) {
  const size_t colon = name.find(':');
  const auto* const family =
      std::ranges::find_if(kFamilies, [&](const Family& one) { return one.name == name.substr(0, colon); });
  if (family == std::end(kFamilies) || colon == name.npos) {
    return UserError("option topology: '", name,
                     "' is not a family of TPUs and a grid of chips, such as v5e:2x2 or v4:2x2x1; ",
                     "families are v2, v3, v4, v5e, v5p, v6e and tpu7x");
  }
  const std::vector<std::string_view> sides = absl::StrSplit(name.substr(colon + 1), 'x');
  const bool numbers = std::ranges::all_of(sides, [](std::string_view side) {
    int chips = 0;
    return std::ranges::all_of(side, absl::ascii_isdigit) && absl::SimpleAtoi(side, &chips) && chips > 0 &&
           chips <= kMostChipsAside;
  });
  if (numbers && sides.size() == family->dimensions) return absl::OkStatus();
  return UserError("option topology: '", name, "': the grid of a ", family->name, " has ", family->dimensions,
                   " sides of 1 to ", kMostChipsAside, " chips, such as ", family->name,
                   family->dimensions == 2 ? ":2x2" : ":2x2x1");
}

absl::StatusOr<std::unique_ptr<Topology>> Topology::Create(const Plugin& plugin, std::string_view platform,
                                                           std::string_view name, const CreateOptions& options) {
  if (platform == "tpu") WEFT_RETURN_IF_ERROR(CheckTpuTopology(name));
  const std::vector<api::NamedValue> values = options.NamedValues();
  api::TopologyCreate create{
      .name = name.data(), .name_size = name.size(), .options = values.data(), .num_options = values.size()};
  if (const absl::Status status = plugin.Call(api::Function::kTopologyDescriptionCreate, &create); !status.ok()) {
    return options.Explain(absl::Status(status.code(), absl::StrCat("plugin '", plugin.path(), "' knows no topology '",
                                                                    name, "': ", status.message())));
  }
  std::unique_ptr<Topology> topology(new Topology(plugin, create.topology, /*owned=*/true));
  WEFT_RETURN_IF_ERROR(topology->Look());
  if (topology->kinds_.empty()) return UserError("option topology: '", name, "' has no devices");
  return topology;
}

absl::StatusOr<std::unique_ptr<Topology>> Topology::Of(const Plugin& plugin, api::Client* client) {
  api::ClientTopology get{.client = client};
  WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kClientTopologyDescription, &get));
  std::unique_ptr<Topology> topology(new Topology(plugin, get.topology, /*owned=*/false));
  WEFT_RETURN_IF_ERROR(topology->Look());
  return topology;
}

Topology::~Topology() {
  if (owned_) plugin_.Destroy(api::Function::kTopologyDescriptionDestroy, api::OfTopology{.topology = topology_});
}

absl::Status Topology::Look() {
  api::TopologyText name{.topology = topology_}, version{.topology = topology_};
  WEFT_RETURN_IF_ERROR(plugin_.Call(api::Function::kTopologyDescriptionPlatformName, &name));
  WEFT_RETURN_IF_ERROR(plugin_.Call(api::Function::kTopologyDescriptionPlatformVersion, &version));
  platform_.assign(name.text, name.size);
  version_.assign(version.text, version.size);
  api::TopologyDevices devices{.topology = topology_};
  WEFT_RETURN_IF_ERROR(plugin_.Call(api::Function::kTopologyDescriptionGetDeviceDescriptions, &devices));
  for (size_t i = 0; i < devices.num_descriptions; ++i) {
    api::DescriptionKind kind{.description = devices.descriptions[i]};
    WEFT_RETURN_IF_ERROR(plugin_.Call(api::Function::kDeviceDescriptionKind, &kind));
    kinds_.emplace_back(kind.kind, kind.size);
    ids_.push_back(plugin_.IdOf(devices.descriptions[i], static_cast<int64_t>(i)));
    attributes_.push_back(AttributesOf(plugin_, devices.descriptions[i]));
  }
  return absl::OkStatus();
}

std::string Topology::fingerprint() const {
  return absl::StrCat(platform_, " ", version_, " ", kinds_.size(), " of ", kinds_.empty() ? "nothing" : kinds_[0]);
}

}  // namespace weft::pjrt
