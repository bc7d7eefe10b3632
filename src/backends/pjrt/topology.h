// Devices that a plugin knows and that need not be there: what it compiles for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/backends/pjrt/create_options.h"
#include "src/backends/pjrt/plugin.h"

namespace weft::pjrt {

// Immutable. Thread rule: any thread.
class Topology {
 public:
  // Makes the topology of a name: "v5e:2x2". Names of TPUs are checked here, because libtpu takes an empty one for a
  // v2.
  static absl::StatusOr<std::unique_ptr<Topology>> Create(const Plugin& plugin, std::string_view platform,
                                                          std::string_view name, const CreateOptions& options);
  // Makes the topology of a client, which owns the plugin's object. UNIMPLEMENTED where the plugin does not tell.
  static absl::StatusOr<std::unique_ptr<Topology>> Of(const Plugin& plugin, api::Client* client);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  api::Topology* get() const { return topology_; }
  const std::string& platform() const { return platform_; }
  // Per device.
  const std::vector<std::string>& kinds() const { return kinds_; }
  const std::vector<std::string>& attributes() const { return attributes_; }
  // Returns the id that the plugin gives a device.
  int64_t IdOf(size_t device) const { return ids_[device]; }
  int64_t first_id() const { return ids_.empty() ? 0 : ids_[0]; }
  // Names everything that code for it depends on, the same for a name and for the machine of that name.
  std::string fingerprint() const;

 private:
  Topology(const Plugin& plugin, api::Topology* topology, bool owned)
      : plugin_(plugin), topology_(topology), owned_(owned) {}
  absl::Status Look();

  const Plugin& plugin_;
  api::Topology* const topology_;
  const bool owned_;
  std::string platform_, version_;
  std::vector<std::string> kinds_, attributes_;
  std::vector<int64_t> ids_;
};

// INVALID_ARGUMENT unless it is a family of TPUs and a grid of chips: "v5e:2x2", "v4:2x2x1".
absl::Status CheckTpuTopology(std::string_view name);

}  // namespace weft::pjrt
