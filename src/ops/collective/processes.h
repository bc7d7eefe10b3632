// These functions say what operations have to do with the processes that run a program together. An operation's own
// rule sees its groups alone; only the module knows how many processes there are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/ir/builder.h"
#include "src/ir/function.h"
#include "src/ir/op_def.h"
#include "src/ir/stablehlo.h"

namespace weft::ops {

// Tells whether the operation means another thing where there are several processes: it talks to others, or says which
// one this is.
bool IsCollective(const ir::OpDef& op);
// The same, or it says how a value lies on them. Where there is more than one process, none of these is expanded.
bool SpeaksOfProcesses(const ir::OpDef& op);

// INVALID_ARGUMENT unless a call of the operation suits a program of `count` processes: groups name processes that there
// are, and all of them where each takes part.
absl::Status CheckProcesses(const ir::OpDef& op, const ir::Attrs& attrs, uint64_t count);
// The same of every node of the module, at any depth.
absl::Status CheckProcesses(const ir::Module& module);

// INVALID_ARGUMENT unless the function, and all that it carries, suits values of this mesh: axes that it cuts along are the mesh's and
// come out even, and what each device runs is for a mesh like it.
absl::Status CheckAxes(const ir::Mesh& mesh, const ir::Function& function);

// replica_groups (i64 [groups, size]) of a collective along these axes of a mesh: places in row-major order, a group for each place along
// the other axes, its members in the order of the axes as they are listed, the last one fastest.
ir::AttrValue GroupsAlong(const ir::Mesh& mesh, std::span<const uint32_t> axes);

// These functions write what all processes of a program compute by one of these operations as operations of one
// process: operands[i][p] is the operand i of process p, so are the results. Sums are those of the processes in the order of their numbers.
using OfProcesses = std::vector<ir::Values>;
absl::StatusOr<OfProcesses> Together(ir::Builder& b, const ir::Node& node, const OfProcesses& operands,
                                     size_t processes);

// Returns the channel_handle of a node that has the attributes `handle` and `type`, or "" where it has none and the
// program needs none. Among partitions each collective has one: libtpu waits for ever without.
std::string ChannelOf(const ir::Node& node, ir::StableHloWriter& writer);
// Tells whether groups are written as groups of devices, whatever the node says. Among the partitions of one replica
// the two are the same.
inline bool NamesDevices(const ir::Participants& who) { return who.partitions > 1 && who.replicas == 1; }

// UNIMPLEMENTED for a module of more than one process; names its first collective. For platforms that run one.
absl::Status RefuseOthers(const ir::Module& module, std::string_view platform);

}  // namespace weft::ops
