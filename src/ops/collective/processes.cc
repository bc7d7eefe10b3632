// See processes.h.
#include "src/ops/collective/processes.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/status.h"

namespace weft::ops {
namespace {

using ir::OpDef;

constexpr const OpDef* kCollectives[] = {&kOp_all_gather,         &kOp_all_reduce,     &kOp_all_to_all,
                                         &kOp_collective_permute, &kOp_reduce_scatter, &kOp_collective_broadcast,
                                         &kOp_partition_id,       &kOp_replica_id};

// A process in no group of these gets zeros.
bool LeavesOut(const OpDef& op) { return &op == &kOp_collective_broadcast || &op == &kOp_collective_permute; }

bool Has(const OpDef& op, std::string_view attr) {
  return std::ranges::find(op.attrs, attr, &ir::AttrDef::name) != op.attrs.end();
}

absl::Status Unknown(std::string_view attr, int64_t process, uint64_t count) {
  if (count == 1) {
    return UserError(attr, " names process ", process,
                     "; a program has one replica and one partition, process 0, in this version");
  }
  return UserError(attr, " names process ", process, "; the program has ", count, ", 0 to ", count - 1);
}

// The module's entry and all that its functions carry.
template <typename Use>
absl::Status ForEachNode(const ir::Module& module, Use&& use) {
  for (const Ref<const ir::Function>& function : module.functions) {
    for (const ir::Function* each : ir::CalleesFirst(*function)) {
      for (const ir::Node* node : each->nodes()) WEFT_RETURN_IF_ERROR(use(*node));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool SpeaksOfProcesses(const OpDef& op) { return &op == &kOp_shard || &op == &kOp_per_device || IsCollective(op); }

bool IsCollective(const OpDef& op) { return std::ranges::find(kCollectives, &op) != std::end(kCollectives); }

absl::Status CheckProcesses(const OpDef& op, const ir::Attrs& attrs, uint64_t count) {
  const auto groups = std::ranges::find_if(op.attrs, [](const ir::AttrDef& attr) {
    return attr.name == "replica_groups" || attr.name == "source_target_pairs";
  });
  if (!IsCollective(op) || groups == op.attrs.end()) return absl::OkStatus();
  const HostTensor& named = attrs.Tensor(static_cast<size_t>(groups - op.attrs.begin()));
  HashSet<uint64_t> seen;  // what a text says of `count` may be larger than any memory
  for (int64_t i = 0; i < named.count(); ++i) {
    const int64_t process = named.GetInt(i);
    if (process == -1 && groups->name == "replica_groups") continue;  // fills up
    if (process < 0 || static_cast<uint64_t>(process) >= count) return Unknown(groups->name, process, count);
    seen.insert(static_cast<uint64_t>(process));
  }
  if (LeavesOut(op)) return absl::OkStatus();
  if (named.count() == 0) {
    // One group of all, of which shape rules do not see how large it is.
    const bool by_size = Has(op, "all_gather_dim") || Has(op, "split_count") || Has(op, "scatter_dimension");
    if (count == 1 || !by_size) return absl::OkStatus();
    return UserError("replica_groups is empty; ", op.name, " needs the ", count, " processes by name");
  }
  if (seen.size() == count) return absl::OkStatus();
  if (count == 1) return UserError("replica_groups has no group of process 0, which runs this program");
  uint64_t missing = 0;
  while (seen.contains(missing)) ++missing;
  return UserError("replica_groups leaves out process ", missing, " of ", count);
}

std::string ChannelOf(const ir::Node& node, ir::StableHloWriter& writer) {
  const auto attr = [&](std::string_view name) -> std::optional<int64_t> {
    const auto at =
        static_cast<size_t>(std::ranges::find(node.op().attrs, name, &ir::AttrDef::name) - node.op().attrs.begin());
    if (!node.attrs().has(at)) return std::nullopt;
    return node.attrs().Int(at);
  };
  std::optional<int64_t> handle = attr("handle");
  int64_t type = attr("type").value_or(1);
  if (NamesDevices(writer.participants()) && handle.value_or(0) == 0) {
    handle = writer.FreshChannel();
    type = 1;
  }
  if (!handle.has_value()) return "";
  return absl::StrCat("#stablehlo.channel_handle<handle = ", *handle, ", type = ", type, ">");
}

absl::Status CheckProcesses(const ir::Module& module) {
  return ForEachNode(module, [&](const ir::Node& node) -> absl::Status {
    const absl::Status status = CheckProcesses(node.op(), node.attrs(), module.participants.count());
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(node.op().name, ": ", status.message()));
  });
}

absl::Status CheckAxes(const ir::Mesh& mesh, const ir::Function& function) {
  for (const ir::Function* each : ir::CalleesFirst(function)) {
    for (const ir::Node* node : each->nodes()) {
      if (&node->op() == &kOp_shard) {
        absl::StatusOr<ir::Sharding> said = ir::ParseSharding(ShardAttrs{node->attrs()}.spec(), mesh);
        absl::Status status = said.ok() ? ir::Check(mesh, *said, node->type(), "a value") : said.status();
        if (!status.ok()) return WithText(status, absl::StrCat("the function @", each->name(), ": ", status.message()));
      } else if (&node->op() == &kOp_per_device) {
        const std::string& own = PerDeviceAttrs{node->attrs()}.mesh();
        WEFT_ASSIGN_OR_RETURN(const ir::Mesh wanted, ir::ParseMesh(own));
        if (wanted.axes == mesh.axes) continue;
        return UserError("the function @", each->name(), " has a weft_per_device of the mesh ", own,
                         "; it is called on the mesh ", ir::ToString(mesh));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RefuseOthers(const ir::Module& module, std::string_view platform) {
  if (module.participants.alone()) return absl::OkStatus();
  const absl::Status first = ForEachNode(module, [&](const ir::Node& node) -> absl::Status {
    if (!IsCollective(node.op())) return absl::OkStatus();
    return UserErrorOf(absl::StatusCode::kUnimplemented, node.op().name, ": the platform '", platform,
                       "' runs programs of one process; this one has ", module.participants.replicas, " replicas of ",
                       module.participants.partitions, " partitions");
  });
  if (!first.ok()) return first;
  return UserErrorOf(absl::StatusCode::kUnimplemented, "the platform '", platform,
                     "' runs programs of one process; this one has ", module.participants.replicas, " replicas of ",
                     module.participants.partitions, " partitions");
}

}  // namespace weft::ops
