// What a repeat with a condition has for the number of its trips.
#pragma once

#include <cstdint>

namespace weft::cpu {

inline constexpr int64_t kNobodyKnows = -1;
inline constexpr int64_t kEndsByItself = -2;

}  // namespace weft::cpu
