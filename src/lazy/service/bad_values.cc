// See bad_values.h.
#include "src/lazy/service/bad_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft::lazy {
namespace {

// Looks at four vectors at a time, which -O2 of either compiler keeps in registers; a loop over elements is a third as fast. `add`
// joins what has been found, 0 so far, with the next vector and leaves 0 where all its numbers are finite.
template <typename T, typename Add>
bool AnyIn(std::span<const std::byte> elements, Add add) {
  constexpr size_t kBytes = 16, kRow = 4 * kBytes;
  typedef T Vector __attribute__((vector_size(kBytes)));
  const auto at = [](const std::byte* place) {
    Vector x;
    std::memcpy(&x, place, kBytes);
    return x;
  };
  Vector a = {}, b = {}, c = {}, d = {};
  constexpr size_t kAskAhead = 4096;  // a page: the processor's own prefetch stops at its end
  for (; elements.size() >= kRow; elements = elements.subspan(kRow)) {
    const std::byte* const row = elements.data();
    __builtin_prefetch(row + kAskAhead);
    a = add(a, at(row));
    b = add(b, at(row + kBytes));
    c = add(c, at(row + 2 * kBytes));
    d = add(d, at(row + 3 * kBytes));
  }
  std::byte rest[kRow] = {};  // zeros are finite
  std::ranges::copy(elements, rest);
  a = add(a, at(rest));
  b = add(b, at(rest + kBytes));
  c = add(c, at(rest + 2 * kBytes));
  d = add(d, at(rest + 3 * kBytes));
  for (const Vector& found : {a, b, c, d}) {
    for (size_t i = 0; i < kBytes / sizeof(T); ++i) {
      if (!(found[i] == T{})) return true;
    }
  }
  return false;
}

// x - x is 0, or NaN where x is not finite.
template <typename Float>
bool AnyNotFinite(std::span<const std::byte> elements) {
  return AnyIn<Float>(elements, [](auto found, auto x) { return found + (x - x); });
}

// A 16-bit float is not finite if all bits of its exponent are set.
bool AnyNotFinite(std::span<const std::byte> elements, uint16_t exponent) {
  return AnyIn<uint16_t>(elements, [exponent](auto found, auto x) {
    return found | reinterpret_cast<decltype(x)>((x & exponent) == exponent);
  });
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
