// See bad_values.h.
#include "src/lazy/bad_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft::lazy {
namespace {

// Of IEEE 754's binary formats: a number whose exponent is all ones is infinite if the rest is 0, else NaN.
template <typename Bits>
bool AnyBad(std::span<const std::byte> elements, Bits exponent, Bad bad) {
  constexpr size_t kBlock = 4096;  // between two looks whether there was one, so that the loop is vectorized
  constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << (8 * sizeof(Bits) - 1)));
  const size_t count = elements.size() / sizeof(Bits);
  const auto* const bits = reinterpret_cast<const Bits*>(elements.data());
  const Bits least = bad == Bad::kNan ? static_cast<Bits>(exponent + 1) : exponent;
  const Bits most = bad == Bad::kInf ? exponent : kMagnitude;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    Bits any = 0;
    for (size_t i = begin; i < std::min(begin + kBlock, count); ++i) {
      const Bits magnitude = bits[i] & kMagnitude;
      any |= static_cast<Bits>(magnitude >= least && magnitude <= most);
    }
    if (any != 0) return true;
  }
  return false;
}

bool IsBad(double x, Bad bad) { return (bad != Bad::kInf && std::isnan(x)) || (bad != Bad::kNan && std::isinf(x)); }

}  // namespace

std::string_view NameOf(Bad bad) {
  constexpr std::string_view kNames[] = {"", "NaN", "infinite", "NaN or infinite"};
  return kNames[static_cast<size_t>(bad)];
}

bool HoldsBad(DType dtype, std::span<const std::byte> elements, Bad bad) {
  switch (dtype) {
    case DType::kF32:
    case DType::kC64: return AnyBad<uint32_t>(elements, 0x7F800000u, bad);
    case DType::kF64:
    case DType::kC128: return AnyBad<uint64_t>(elements, 0x7FF0000000000000u, bad);
    case DType::kBF16: return AnyBad<uint16_t>(elements, 0x7F80u, bad);
    case DType::kF16: return AnyBad<uint16_t>(elements, 0x7C00u, bad);
    default: break;
  }
  if (!IsFloat(dtype)) return false;
  const Dims dims = {static_cast<int64_t>(elements.size()) / BytesOf(dtype)};
  return ContentsOf(HostTensor(dtype, dims, elements), bad).bad > 0;
}

Contents ContentsOf(const HostTensor& host, Bad bad) {
  std::vector<HostTensor> parts;
  if (IsComplex(host.dtype())) {
    parts.push_back(host.Part(0));
    parts.push_back(host.Part(1));
  } else {
    parts.push_back(host);
  }
  Contents contents;
  contents.count = host.count();
  for (int64_t i = 0; i < host.count(); ++i) {
    bool is_bad = false;
    for (const HostTensor& part : parts) {
      const double x = part.GetDouble(i);
      is_bad = is_bad || IsBad(x, bad);
      if (!std::isfinite(x)) continue;
      const bool first = contents.finite++ == 0;
      contents.least = first ? x : std::min(contents.least, x);
      contents.largest = first ? x : std::max(contents.largest, x);
    }
    if (!is_bad) continue;
    if (contents.bad++ == 0) contents.first = i;
  }
  return contents;
}

std::string TextOf(const Contents& contents, Bad bad) {
  if (contents.count == 0) return "no elements";
  std::string text;
  if (contents.bad > 0) text = absl::StrCat(contents.bad, " of ", contents.count, " elements ", NameOf(bad));
  if (contents.finite == 0) return text.empty() ? "no finite number" : text;
  return absl::StrCat(text, text.empty() ? "" : ", finite ones ", contents.least, " to ", contents.largest);
}

}  // namespace weft::lazy
