// Runs a loop kernel as machine code and through the evaluator on the same random memory.
#pragma once

#include <cmath>
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "src/backends/cpu/loop/codegen.h"
#include "src/backends/cpu/loop/loop.h"
#include "src/runtime/host_tensor.h"
#include "support/loop_eval.h"

namespace weft::cpu {

inline std::vector<CpuTarget> TestTargets() {
  std::vector<CpuTarget> targets;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    absl::StatusOr<CpuTarget> target = TargetFor(isa);
    if (target.ok()) targets.push_back(*target);
  }
  return targets;
}

// All tasks of a kernel that needs no scratch, as machine code.
inline void RunLoop(const Jit& jit, const LoopKernel& kernel, std::vector<void*> buffers) {
  const LoopKernel* const one = &kernel;
  const std::string symbol = "loop";
  const absl::StatusOr<std::string> object = CompileLoops(jit, {&one, 1}, {&symbol, 1});
  ASSERT_TRUE(object.ok()) << object.status();
  const auto library = jit.Load(*object);
  ASSERT_TRUE(library.ok()) << library.status();
  const LoopPlan plan = PlanLoop(kernel, jit.target());
  (*(*library)->Function<LoopFn>("loop"))(buffers.data(), plan.params.data(), 0, plan.tasks, nullptr);
}

struct LoopBuffer {
  DType dtype;
  int64_t count;
  double low = -2, high = 2;
};

// Compares every buffer after both runs: floats within `tolerance` relative and absolute, the rest exactly. Buffers have a
// page of canaries behind them.
inline void CheckLoop(const LoopKernel& kernel, const std::vector<LoopBuffer>& specs, double tolerance, int splits = 1) {
  for (const CpuTarget& target : TestTargets()) {
    SCOPED_TRACE(NameOf(target.isa));
    Jit jit(target);
    const LoopKernel* one = &kernel;
    const std::string symbol = "loop";
    absl::StatusOr<std::string> object = CompileLoops(jit, {&one, 1}, {&symbol, 1});
    ASSERT_TRUE(object.ok()) << object.status();
    auto library = jit.Load(*object);
    ASSERT_TRUE(library.ok()) << library.status();
    auto fn = (*library)->Function<LoopFn>("loop");
    ASSERT_TRUE(fn.ok()) << fn.status();
    std::mt19937_64 random(7);
    std::vector<HostTensor> ours, theirs;
    for (const LoopBuffer& spec : specs) {
      HostTensor t(spec.dtype, {spec.count + 64});
      std::uniform_real_distribution<double> values(spec.low, spec.high);
      for (int64_t i = 0; i < t.count(); ++i) {
        const double v = values(random);
        if (IsFloat(spec.dtype)) {
          t.SetDouble(i, v);
        } else if (IsBool(spec.dtype)) {
          t.SetInt(i, v > 0);
        } else {
          t.SetInt(i, static_cast<int64_t>(v));
        }
      }
      ours.push_back(t);
      theirs.push_back(t);
    }
    std::vector<void*> a, b;
    for (HostTensor& t : ours) a.push_back(t.mutable_bytes().data());
    for (HostTensor& t : theirs) b.push_back(t.mutable_bytes().data());
    const LoopPlan plan = PlanLoop(kernel, target);
    std::vector<double> scratch(plan.scratch_bytes / 8 + 8);
    for (int s = 0; s < splits; ++s) {
      (*fn)(a.data(), plan.params.data(), plan.tasks * s / splits, plan.tasks * (s + 1) / splits, scratch.data());
    }
    test::EvaluateLoop(kernel, b);
    for (size_t k = 0; k < specs.size(); ++k) {
      for (int64_t i = 0; i < ours[k].count(); ++i) {
        if (!IsFloat(specs[k].dtype)) {
          ASSERT_EQ(ours[k].GetInt(i), theirs[k].GetInt(i)) << "buffer " << k << " element " << i << "\n" << ToString(kernel);
          continue;
        }
        const double x = ours[k].GetDouble(i), y = theirs[k].GetDouble(i);
        if (std::isnan(y)) {
          ASSERT_TRUE(std::isnan(x)) << "buffer " << k << " element " << i;
        } else if (std::isinf(y)) {
          ASSERT_EQ(x, y) << "buffer " << k << " element " << i;
        } else {
          ASSERT_NEAR(x, y, tolerance * (1 + std::fabs(y))) << "buffer " << k << " element " << i << "\n" << ToString(kernel);
        }
      }
    }
  }
}

}  // namespace weft::cpu
