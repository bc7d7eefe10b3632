// What live tensors hold, in words: for whoever is told that memory is short.
#pragma once

#include <string>

#include "src/lazy/live_list.h"

namespace weft::lazy {

// "; the largest of 14 live tensors, which hold 812646400 bytes: f32[4096,4096] of 67108864 bytes (add, train.c:12), …";
// empty if none holds anything. Under the engine's lock.
std::string LargestLive(const LiveList& live);

}  // namespace weft::lazy
