// Numbers that nobody wants, NaN and infinities: whether a tensor holds any, and how what it holds is told.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/runtime/host_tensor.h"

namespace weft::lazy {

// The option first_bad: which numbers are bad.
enum class Bad : uint8_t { kOff, kNan, kInf, kAny };
// "NaN", "infinite", "NaN or infinite".
std::string_view NameOf(Bad bad);

// Reads the elements of a float or complex type once, again where one is not finite; other types hold none.
bool HoldsBad(DType dtype, std::span<const std::byte> elements, Bad bad);

// A summary of a tensor's elements. A complex element is bad if either part is.
struct Contents {
  int64_t first = -1;  // bad element; -1: none
  int64_t bad = 0, count = 0;
  double least = 0, largest = 0;  // of those that are neither NaN nor infinite; only if there are some
  int64_t finite = 0;
};
Contents ContentsOf(const HostTensor& host, Bad bad);
// "-1.5 to 2.25", "12 of 32 elements NaN, the others 0.1 to 3", "no elements".
std::string TextOf(const Contents& contents, Bad bad);

}  // namespace weft::lazy
