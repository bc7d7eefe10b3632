// The placement of values that a text gives with sdy, for readers that keep it: meshes, shardings, constraints and functions of each device.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "src/ir/mesh.h"
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {

// Thread rule: one thread, one text, which outlives it.
class TextShardings {
 public:
  explicit TextShardings(const Parser& parser) : parser_(parser) {}

  // A sdy.mesh of the module. UNIMPLEMENTED for axes that differ from those of an earlier one; a mesh without axes is a device by itself,
  // and what lies there is whole.
  absl::Status AddMesh(const Operation& op);
  // The mesh, and how parameters and results of the entry lie; what the text does not say is open. Nothing where there is no mesh.
  absl::Status Entry(const Operation& function, ir::Participants* who) const;
  // The results of a sdy operation, by which a value lies otherwise: weft.shard, or weft.per_device. Nothing for other operations, and
  // where there is no mesh.
  std::optional<ir::Values> Read(ir::StableHloOp& op) const;

 private:
  absl::StatusOr<ir::Sharding> Parse(std::string_view text) const;
  absl::StatusOr<std::string> Specs(std::string_view list, std::span<const ir::Type> types) const;
  absl::StatusOr<ir::Values> Constraint(ir::StableHloOp& op) const;
  absl::StatusOr<ir::Values> Manual(ir::StableHloOp& op) const;
  std::string TextOf(ir::StableHloOp& op, std::string_view attribute) const;

  const Parser& parser_;
  ir::Mesh mesh_;
  std::vector<std::string> empty_;  // names of meshes without axes
};

}  // namespace weft::stablehlo
