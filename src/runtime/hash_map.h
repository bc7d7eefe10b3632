// Hash tables for whatever a caller's thread does: an insertion that finds no memory throws and leaves them whole. Abseil's flat
// ones, which are faster, are torn by an allocation that fails while they grow; they are for compiling.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "absl/hash/hash.h"

namespace weft {

template <typename Key, typename Value>
using HashMap = std::unordered_map<Key, Value, absl::Hash<Key>>;
template <typename Key>
using HashSet = std::unordered_set<Key, absl::Hash<Key>>;

}  // namespace weft
