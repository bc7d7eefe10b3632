// A vmapped function beside one example after the other, both on the reference interpreter; and what tests of derivatives share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "src/backends/reference/interpreter.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/build.h"
#include "src/transforms/derivative.h"
#include "src/transforms/vmap.h"

namespace weft::test {

using Tensors = std::vector<HostTensor>;

inline HostTensor Random(const ir::Type& type, std::mt19937_64& random) {
  HostTensor x(type.dtype, type.dims);
  for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, std::uniform_real_distribution(-1.0, 1.0)(random));
  return x;
}

// What HostTensor reads and writes as a double; complex_test.cc has the others that carry derivatives.
inline bool IsReal(const ir::Value& value) { return value.type().is_tensor() && IsFloat(value.dtype()); }

// Whether a float goes in and a float comes out.
// Real functions: those of complex numbers are tests/ops/complex_gradient_test.cc's.
inline bool Differentiable(const ir::Function& f) {
  const auto complex = [](const ir::Value& x) { return x.type().is_tensor() && IsComplex(x.dtype()); };
  return std::ranges::none_of(f.parameters(), complex) && std::ranges::any_of(f.parameters(), IsReal) && std::ranges::any_of(f.results(), IsReal);
}

// The derivative with respect to all inputs.
inline transforms::DerivativeCall All(const ir::Function& function, bool values = false) {
  return {.function = function, .inputs = function.parameters().size(), .values = values};
}

// Examples along an axis, and one of them.
inline HostTensor Stacked(const Tensors& examples, int64_t axis) {
  Dims dims = examples[0].dims();
  dims.insert(dims.begin() + axis, static_cast<int64_t>(examples.size()));
  HostTensor all(examples[0].dtype(), dims);
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(axis) + 1; d < dims.size(); ++d) inner *= dims[d];
  const auto size = static_cast<int64_t>(examples.size());
  for (int64_t e = 0; e < size; ++e) {
    for (int64_t i = 0; i < examples[e].count(); ++i) {
      ops::CopyElement(examples[e], i, all, (i / inner * size + e) * inner + i % inner);
    }
  }
  return all;
}

// What is wrong with `found`, in units of what `tolerance` allows.
inline double Error(const HostTensor& found, const HostTensor& expected, const ir::Tolerance& tolerance) {
  if (found.dtype() != expected.dtype() || found.dims() != expected.dims()) return HUGE_VAL;
  if (!IsFloat(found.dtype())) return std::ranges::equal(found.bytes(), expected.bytes()) ? 0 : HUGE_VAL;
  const double relative = found.dtype() == DType::kF64    ? tolerance.f64
                          : found.dtype() == DType::kBF16 ? tolerance.bf16
                          : found.dtype() == DType::kF16  ? tolerance.f16
                                                          : tolerance.f32;
  const double scale = found.dtype() == DType::kF64 ? 1e-8 : IsHalf(found.dtype()) ? 8192 : 1;
  double worst = 0;
  for (int64_t i = 0; i < found.count(); ++i) {
    const double x = found.GetDouble(i), y = expected.GetDouble(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double error = std::abs(x - y) / (tolerance.absolute * scale + relative * std::abs(y));
    worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error);
  }
  return worst;
}

// The function mapped along these axes of its inputs. Inputs without one are the first example's. All results along `out_axis`.
inline void ExpectAsALoop(const ir::Function& function, std::span<const Tensors> examples, std::span<const int64_t> in_axes,
                          int64_t out_axis, const ir::Tolerance& tolerance, std::vector<std::string_view>* loops) {
  const std::vector<int64_t> out_axes(function.results().size(), out_axis);
  const auto size = static_cast<int64_t>(examples.size());
  const auto vmapped = transforms::Vmap({.function = function, .size = size, .in_axes = in_axes, .out_axes = out_axes}, loops);
  ASSERT_TRUE(vmapped.ok()) << vmapped.status();
  ir::Module module;
  module.functions.push_back(*vmapped);
  ASSERT_EQ(ir::Verify(module), absl::OkStatus());
  const auto axis_of = [](int64_t axis, const HostTensor& one) {
    return axis < 0 ? axis + static_cast<int64_t>(one.dims().size()) + 1 : axis;
  };
  Tensors inputs;
  for (size_t i = 0; i < in_axes.size(); ++i) {
    Tensors each;
    for (const Tensors& example : examples) each.push_back(example[i]);
    inputs.push_back(in_axes[i] == transforms::kNotMapped ? each[0] : Stacked(each, axis_of(in_axes[i], each[0])));
  }
  std::vector<Tensors> expected(function.results().size());
  for (const Tensors& example : examples) {
    Tensors one;
    for (size_t i = 0; i < in_axes.size(); ++i) one.push_back(in_axes[i] == transforms::kNotMapped ? examples[0][i] : example[i]);
    auto given = reference::Interpret(function, one);
    ASSERT_TRUE(given.ok()) << given.status();
    for (size_t r = 0; r < given->size(); ++r) expected[r].push_back(std::move((*given)[r]));
  }
  const auto found = reference::Interpret(**vmapped, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  for (size_t r = 0; r < expected.size(); ++r) {
    EXPECT_LE(Error((*found)[r], Stacked(expected[r], axis_of(out_axis, expected[r][0])), tolerance), 1) << "result " << r << "\n" << ir::Print(module);
  }
}

}  // namespace weft::test
