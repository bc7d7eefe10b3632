// An optimizer's state in parts, as a tree has it: who gives it out, who takes it, and checkpoints of jobs, which put it together.
#pragma once

#include <string_view>

namespace weft::c_api::state_keys {

// Whose part it is, of how many; of 1: whole.
inline constexpr std::string_view kRank = "rank", kRanks = "ranks";
inline constexpr std::string_view kShapes = "shapes";  // of the parameters, a list of sizes each
inline constexpr std::string_view kSlots = "slots";    // by name: a list of tensors, one a parameter

}  // namespace weft::c_api::state_keys
