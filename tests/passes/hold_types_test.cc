// Type modes: every operation of the list in each of them, on the CPU backend. What a mode makes of an operation is compared, bit
// for bit, with the operation written in the device's types, and with what the caller wrote, run in the caller's types and
// converted afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/backends/cpu/cpu_backend.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "src/ops/sample.h"
#include "src/passes/pipeline.h"
#include "src/runtime/held_types.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/op_programs.h"
#include "tests/support/run_on_backend.h"
#include "tests/support/seeds.h"

namespace weft::passes {
namespace {

constexpr HeldTypes kBf16 = {.f32 = DType::kBF16, .f64 = DType::kBF16};
constexpr HeldTypes kDowncast = {.f32 = DType::kBF16, .f64 = DType::kF32};
constexpr HeldTypes kLong = {.i64 = DType::kI32, .u64 = DType::kU32};

cpu::CpuBackend& TestBackend() {
  static cpu::CpuBackend* backend = test::NewCpuBackend({.threads = 2})->release();
  return *backend;
}

HostTensor As(const HostTensor& value, DType dtype) {
  if (value.dtype() == dtype) return value;
  HostTensor result(dtype, value.dims());
  ConvertHeld(value.dtype(), value.bytes(), dtype, result.mutable_bytes());
  return result;
}

absl::StatusOr<std::vector<HostTensor>> RunHeld(const HeldTypes& held, const ir::Module& module,
                                                std::span<const HostTensor> inputs) {
  PipelineOptions options;
  options.held = held;
  options.verify_between = true;
  options.claims = [](const ir::Node& node) { return TestBackend().Claims(node); };
  WEFT_ASSIGN_OR_RETURN(const ir::Module lowered, RunPipeline(module, options));
  return test::RunLowered(TestBackend(), lowered, inputs);
}

// The first element that is further from `want` than the tolerance allows; empty if there is none.
std::string Apart(const HostTensor& got, const HostTensor& want, double relative, double absolute) {
  if (got.dtype() != want.dtype() || got.dims() != want.dims()) return "another type";
  const bool exact = !IsFloat(got.dtype()) && !IsComplex(got.dtype());
  for (int64_t i = 0; i < got.count(); ++i) {
    if (exact && got.GetInt(i) == want.GetInt(i)) continue;
    const double a = got.GetDouble(i), b = want.GetDouble(i);
    if (!exact && (a == b || (std::isnan(a) && std::isnan(b)))) continue;
    if (!exact && std::abs(a - b) <= absolute + relative * std::abs(b)) continue;
    return absl::StrCat("element ", i, " is ", a, ", not ", b);
  }
  return "";
}

// A product that the held type rounds may fall on another step.
constexpr std::string_view kSteps[] = {"round_decimals"};
constexpr std::string_view kLookAtBits[] = {"clz", "popcount", "shift_left", "shift_right_arithmetic", "shift_right_logical"};

// Whether an element is the maximum or minimum of no elements, which is an end of the type.
bool OfNothing(const HostTensor& value) {
  for (int64_t i = 0; value.dtype() == DType::kI64 && i < value.count(); ++i) {
    if (value.GetInt(i) == INT64_MIN || value.GetInt(i) == INT64_MAX) return true;
  }
  return false;
}

struct Counts {
  int run = 0, equal = 0;
};

void RunOne(const HeldTypes& held, const ir::OpDef& op, const ir::Sample& sample, DType dtype, Counts& counts) {
  const auto program = test::MakeOpProgram(op, sample, dtype, "", false);
  ASSERT_TRUE(program.ok()) << program.status();
  const ir::Function& main = program->module.main();
  const auto touched = [&](const ir::Value& value) {
    return value.type().is_tensor() && held.Of(value.dtype()) != value.dtype();
  };
  if (std::ranges::none_of(main.parameters(), touched) && std::ranges::none_of(main.results(), touched)) return;
  ++counts.run;
  std::vector<HostTensor> inputs, seen;
  for (const HostTensor& input : program->inputs) {
    inputs.push_back(As(input, held.Of(input.dtype())));
    seen.push_back(As(inputs.back(), input.dtype()));
  }
  const auto got = RunHeld(held, program->module, inputs);
  ASSERT_TRUE(got.ok()) << got.status();
  // What the caller wrote, on the same numbers.
  const auto wide = test::RunOnBackend(TestBackend(), program->module, seen);
  ASSERT_TRUE(wide.ok()) << wide.status();
  ASSERT_EQ(got->size(), wide->size());
  const ir::Tolerance& t = program->tolerance;
  for (size_t i = 0; i < got->size(); ++i) {
    const DType type = held.Of((*wide)[i].dtype());
    ASSERT_EQ(NameOf((*got)[i].dtype()), NameOf(type)) << "result " << i;
    if (program->random && held.Of(dtype) != dtype) continue;  // other numbers in another type
    if (std::ranges::find(kSteps, op.c_name) != std::end(kSteps)) continue;
    if (OfNothing((*wide)[i])) continue;  // the least of i64 is no i32
    const bool to_bf16 = held.Of(dtype) == DType::kBF16 || type == DType::kBF16;
    const double relative = to_bf16 ? std::max(2e-2, 2 * t.bf16) : 2e-3, absolute = to_bf16 ? 2e-2 + 100 * t.absolute : 2e-3;
    EXPECT_EQ("", Apart((*got)[i], As((*wide)[i], type), relative, absolute)) << "result " << i << ", from the caller's types";
  }
  // The same written in the device's type.
  if (held.Of(dtype) == dtype) return;
  const auto hand = test::MakeOpProgram(op, sample, held.Of(dtype), "", false);
  if (!hand.ok() || hand->inputs.size() != inputs.size()) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (hand->inputs[i].dtype() != inputs[i].dtype() || hand->inputs[i].dims() != inputs[i].dims()) return;
  }
  const auto want = test::RunOnBackend(TestBackend(), hand->module, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  if (want->size() != got->size()) return;
  bool equal = true;
  for (size_t i = 0; i < got->size(); ++i) equal = equal && (*got)[i] == (*want)[i];
  counts.equal += equal ? 1 : 0;
  // Macros are written out while the caller records, in the caller's types; what looks at bits sees those of the caller's type.
  const bool looks = std::ranges::find(kLookAtBits, op.c_name) != std::end(kLookAtBits);
  if (op.kind == ir::Kind::kMacro || looks) return;
  for (size_t i = 0; i < got->size(); ++i) {
    if ((*got)[i].dtype() != (*want)[i].dtype()) continue;
    EXPECT_EQ("", Apart((*got)[i], (*want)[i], 0, 0)) << "result " << i << ", by hand in " << NameOf(held.Of(dtype));
  }
}

// The order of eigenvalues, and the signs of vectors, are LAPACK's to choose: of numbers that are rounded otherwise others.
constexpr std::string_view kChooses[] = {"eig", "eigh", "eigvals", "matrix_factors", "svd"};

Counts RunTable(const HeldTypes& held) {
  Counts counts;
  size_t samples = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (std::ranges::find(kChooses, op->c_name) != std::end(kChooses)) continue;
    for (size_t i = 0; i < op->samples.size(); ++i) {
      // The short tier takes an operation's first sample and of the others every second one.
      if (i != 0 && !test::EveryCase() && samples++ % 2 != 0) continue;
      std::vector<DType> types = ops::SampleTypes(*op, op->samples[i]);
      if (types.empty()) types = {DType::kF32};
      if (types.size() > 1) std::erase_if(types, [&](DType dtype) { return held.Of(dtype) == dtype; });
      // The short tier takes one type of each sample, another one each time.
      if (types.size() > 1 && !test::EveryCase()) {
        std::ranges::rotate(types, types.begin() + static_cast<std::ptrdiff_t>(counts.run % types.size()));
        types.resize(1);
      } else if (i > 1 && types.size() > 1) {
        types.resize(1);
      }
      for (const DType dtype : types) {
        SCOPED_TRACE(absl::StrCat(op->c_name, " \"", op->samples[i].call, "\" ", NameOf(dtype)));
        RunOne(held, *op, op->samples[i], dtype, counts);
      }
    }
  }
  return counts;
}

// So many of the samples there are at least, so that the table cannot shrink unseen.
TEST(HeldTypes, EveryOperationRunsWithFloatsAsBf16) {
  const Counts counts = RunTable(kBf16);
  EXPECT_GT(counts.run, 600);
  EXPECT_GT(counts.equal, 550);
}

TEST(HeldTypes, EveryOperationRunsWithFloatsOneSizeDown) {
  const Counts counts = RunTable(kDowncast);
  EXPECT_GT(counts.run, 600);
  EXPECT_GT(counts.equal, 550);
}

TEST(HeldTypes, EveryOperationRunsWithLongsOf32Bits) {
  const Counts counts = RunTable(kLong);
  EXPECT_GT(counts.run, 350);
  EXPECT_GT(counts.equal, 330);
}

TEST(HeldTypes, WhatLooksAtBitsSeesThoseOfTheCallersType) {
  ir::Builder b;
  const ir::Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(DType::kI64, {3})}), 0};
  const ir::Value forty = ops::FullLike(b, x, 40);
  std::vector<ir::Value> results = {
      ops::Call(b, ops::kOp_popcount, {x}), ops::Call(b, ops::kOp_clz, {x}),
      ops::Call(b, ops::kOp_shift_right_logical, {x, forty}),
      ops::Call(b, ops::kOp_bitcast_convert, {ops::Call(b, ops::kOp_bitcast_convert, {x}, {DType::kF64})}, {DType::kI64})};
  ASSERT_TRUE(b.ok()) << b.status();
  ir::Module module;
  module.functions = {ir::Function::Create("main", {x}, results)};
  HostTensor input(DType::kI32, {3});
  for (int i = 0; i < 3; ++i) input.SetInt(i, i - 1);
  const auto got = RunHeld(kLong, module, {&input, 1});
  ASSERT_TRUE(got.ok()) << got.status();
  const int64_t want[4][3] = {{64, 0, 1}, {0, 64, 63}, {0xFFFFFF, 0, 0}, {-1, 0, 1}};
  for (size_t r = 0; r < 4; ++r) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ((*got)[r].GetInt(i), want[r][i]) << r << " " << i;
  }
}

}  // namespace
}  // namespace weft::passes
