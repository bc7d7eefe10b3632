// A repeat with a condition has one of these for its number of runs (trips).
#pragma once

#include <cstdint>

namespace weft::cpu {

inline constexpr int64_t kNobodyKnows = -1;
inline constexpr int64_t kEndsByItself = -2;

}  // namespace weft::cpu
