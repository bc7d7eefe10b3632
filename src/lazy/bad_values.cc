// See bad_values.h.
#include "src/lazy/bad_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft::lazy {
namespace {

// Rows of a fixed length, which the compiler vectorizes. True if any element is NaN or infinite.
constexpr size_t kRow = 16;

// x - x is 0, or NaN where x is not finite.
template <typename Float>
bool AnyNotFinite(std::span<const std::byte> elements) {
  const size_t count = elements.size() / sizeof(Float);
  const auto* const x = reinterpret_cast<const Float*>(elements.data());
  Float sums[kRow] = {}, rest = 0;
  size_t i = 0;
  for (; i + kRow <= count; i += kRow) {
    for (size_t k = 0; k < kRow; ++k) sums[k] += x[i + k] - x[i + k];
  }
  for (; i < count; ++i) rest += x[i] - x[i];
  for (const Float sum : sums) rest += sum;
  return std::isnan(rest);
}

// A 16-bit float is not finite if all bits of its exponent are set.
bool AnyNotFinite(std::span<const std::byte> elements, uint16_t exponent) {
  const size_t count = elements.size() / sizeof(uint16_t);
  const auto* const x = reinterpret_cast<const uint16_t*>(elements.data());
  uint16_t any[kRow] = {};
  size_t i = 0;
  for (; i + kRow <= count; i += kRow) {
    for (size_t k = 0; k < kRow; ++k) any[k] |= (x[i + k] & exponent) == exponent ? 1 : 0;
  }
  for (; i < count; ++i) any[0] |= (x[i] & exponent) == exponent ? 1 : 0;
  return std::ranges::any_of(any, [](uint16_t one) { return one != 0; });
}

bool IsBad(double x, Bad bad) { return (bad != Bad::kInf && std::isnan(x)) || (bad != Bad::kNan && std::isinf(x)); }

}  // namespace

std::string_view NameOf(Bad bad) {
  constexpr std::string_view kNames[] = {"", "NaN", "infinite", "NaN or infinite"};
  return kNames[static_cast<size_t>(bad)];
}

bool HoldsBad(DType dtype, std::span<const std::byte> elements, Bad bad) {
  bool may = IsFloat(dtype);
  switch (dtype) {
    case DType::kF32:
    case DType::kC64: may = AnyNotFinite<float>(elements); break;
    case DType::kF64:
    case DType::kC128: may = AnyNotFinite<double>(elements); break;
    case DType::kBF16: may = AnyNotFinite(elements, 0x7F80); break;
    case DType::kF16: may = AnyNotFinite(elements, 0x7C00); break;
    default: break;
  }
  if (!may) return false;
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
