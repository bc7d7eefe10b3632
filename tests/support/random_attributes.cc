// Attributes drawn anew: any value that the operation takes, for each attribute of its schema.
#include <algorithm>

#include "tests/support/random_moves.h"

namespace weft::test {

using ir::AttrType;
using ir::Ints;

namespace {

constexpr DType kEvery[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI8,  DType::kU8, DType::kI16, DType::kU16,
                            DType::kI32, DType::kU32, DType::kI64,  DType::kU64, DType::kBool};

// A list near the one that there is: most are refused, as lists must agree with shapes.
Ints Near(ProgramMaker& m, Ints list) {
  if (list.empty() || m.rng.Chance(0.1)) {
    list.resize(static_cast<size_t>(m.rng.Below(4)));
    for (int64_t& i : list) i = m.rng.Between(-1, 3);
    return list;
  }
  const auto n = static_cast<int64_t>(list.size());
  if (m.rng.Chance(0.4)) std::swap(list[static_cast<size_t>(m.rng.Below(n))], list[static_cast<size_t>(m.rng.Below(n))]);
  if (m.rng.Chance(0.7)) list[static_cast<size_t>(m.rng.Below(n))] += m.rng.Between(-2, 3);
  return list;
}

ir::AttrValue Drawn(ProgramMaker& m, const ir::AttrDef& def, const ir::AttrValue& now) {
  switch (def.type) {
    case AttrType::kBool: return m.rng.Below(2);
    case AttrType::kEnum: return m.rng.Below(static_cast<int64_t>(def.enumerators.size()));
    case AttrType::kDType: return m.rng.Pick(kEvery);
    case AttrType::kInt: {
      const auto* value = std::get_if<int64_t>(&now);
      return (value != nullptr ? *value : 0) + m.rng.Between(-2, 3);
    }
    case AttrType::kDouble: {
      const auto* value = std::get_if<double>(&now);
      return value != nullptr && m.rng.Chance(0.5) ? *value * m.rng.Uniform(0.5, 1.5) : m.rng.Uniform(0, 1);
    }
    case AttrType::kInts: {
      const auto* list = std::get_if<Ints>(&now);
      return Near(m, list != nullptr ? *list : Ints{});
    }
    case AttrType::kDoubles:
    case AttrType::kString:
    case AttrType::kLiteral: return now;
  }
  return now;
}

}  // namespace

ir::Attrs Varied(ProgramMaker& m, const ir::OpDef& op, ir::Attrs attrs) {
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    if (!m.rng.Chance(1.2 / static_cast<double>(op.attrs.size()))) continue;
    const bool leave_out = !op.attrs[i].required && m.rng.Chance(0.1);
    attrs.set(i, leave_out ? ir::AttrValue() : Drawn(m, op.attrs[i], i < attrs.size() ? attrs.at(i) : ir::AttrValue()));
  }
  return attrs;
}

}  // namespace weft::test
