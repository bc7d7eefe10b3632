// Attribute lists.
#include "src/ir/attr.h"

#include <algorithm>
#include <cstring>

#include "src/runtime/lasting.h"

namespace weft::ir {

namespace {

constinit Lasting<AttrValue> g_absent;

}  // namespace

const AttrValue& Attrs::at(size_t i) const { return i < values_.size() ? values_[i] : g_absent.Get(); }

void Attrs::set(size_t i, AttrValue value) {
  if (i >= values_.size()) values_.resize(i + 1);
  values_[i] = std::move(value);
}

bool operator==(const Attrs& a, const Attrs& b) {
  auto same = [](const AttrValue& x, const AttrValue& y) {
    if (x.index() != y.index()) return false;
    if (const auto* literal = std::get_if<Ref<const Literal>>(&x)) {
      return (*literal)->value == std::get<Ref<const Literal>>(y)->value;
    }
    // Doubles by their bits: NaN equals itself, -0 differs from 0; a program must not change its constants.
    if (const double* number = std::get_if<double>(&x)) {
      return __builtin_bit_cast(uint64_t, *number) == __builtin_bit_cast(uint64_t, std::get<double>(y));
    }
    if (const auto* numbers = std::get_if<std::vector<double>>(&x)) {
      const auto& others = std::get<std::vector<double>>(y);
      return numbers->size() == others.size() &&
             (numbers->empty() || std::memcmp(numbers->data(), others.data(), numbers->size() * sizeof(double)) == 0);
    }
    return x == y;
  };
  const size_t n = std::max(a.size(), b.size());
  for (size_t i = 0; i < n; ++i) {
    if (!same(a.at(i), b.at(i))) return false;
  }
  return true;
}

}  // namespace weft::ir
