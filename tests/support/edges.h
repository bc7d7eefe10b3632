// The values at which implementations of elementwise operations go wrong, and calls made of every pair of them.
#pragma once

#include <cmath>
#include <limits>
#include <span>

#include "src/ops/sample.h"

namespace weft::test {

inline constexpr int64_t kEdges = 11;

// What breaks fast implementations: signed zeros, infinities, NaN, the ends of the range, denormals.
inline double EdgeFloat(DType dtype, int64_t i) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const int top = dtype == DType::kF64 ? 1023 : dtype == DType::kF16 ? 15 : 127;
  const int tiny = dtype == DType::kF64 ? -1074 : dtype == DType::kF16 ? -24 : dtype == DType::kF32 ? -149 : -133;
  const double edges[] = {0.0,  -0.0, 1, -1, 0.5, kInf, -kInf, std::nan(""), std::ldexp(1.5, top), -std::ldexp(1.5, top),
                          std::ldexp(1, tiny)};
  return edges[i % std::size(edges)];
}
inline int64_t EdgeInt(DType dtype, int64_t i) {
  const int bits = BitsOf(dtype);
  const uint64_t ones = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t edges[] = {0, 1, ones, ones >> 1, (ones >> 1) + 1, ones - 1, (ones >> 1) + 2, 2, 7, static_cast<uint64_t>(bits), 100};
  const uint64_t value = edges[i % std::size(edges)] & ones;
  // Sign-extended where the type is signed.
  return IsSigned(dtype) && value > ones >> 1 && bits < 64 ? static_cast<int64_t>(value | ~ones) : static_cast<int64_t>(value);
}

// A sample of equal shapes with room for every pair of edges; null where the operation has none.
inline const ir::Sample* EdgeSample(const ir::OpDef& op) {
  const ir::Sample* found = nullptr;
  for (const ir::Sample& sample : op.samples) {
    const auto parsed = ops::ParseSample(op, sample, DType::kF32);
    bool wide = op.scalar != nullptr && parsed.ok() && !parsed->operands.empty();
    if (!wide) continue;
    for (const ops::SampleOperand& operand : parsed->operands) {
      wide = wide && operand.generic && operand.type.count() >= kEdges * kEdges && operand.type.dims == parsed->operands[0].type.dims;
    }
    if (wide) found = &sample;
  }
  return found;
}

// The first tensor runs through the edges, the second keeps each for one such run, and so on.
inline void FillWithEdges(std::span<HostTensor> tensors) {
  int64_t step = 1;
  for (HostTensor& x : tensors) {
    for (int64_t i = 0; i < x.count(); ++i) {
      if (IsFloat(x.dtype())) {
        x.SetDouble(i, EdgeFloat(x.dtype(), i / step));
      } else {
        x.SetInt(i, IsBool(x.dtype()) ? i / step % 2 : EdgeInt(x.dtype(), i / step));
      }
    }
    step *= kEdges;
  }
}

}  // namespace weft::test
