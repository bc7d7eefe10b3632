// A family of kernels is a list of implementations. The first that takes a call computes it, whoever asks: a preparation, a run, or a
// caller that keeps an operand packed. So no two of them can choose differently.
#pragma once

#include <iterator>

namespace weft::cpu {

// `list` has pointers to implementations; each has `refuses`, which gives null where it takes the call, else a literal that says why
// not. The last of a list takes every call.
template <typename List, typename Call>
const auto& FirstThatTakes(const List& list, const Call& call) {
  for (const auto* const implementation : list) {
    if (implementation->refuses(call) == nullptr) return *implementation;
  }
  return **(std::end(list) - 1);
}

}  // namespace weft::cpu
