// Helpers of the kernel tests: targets that this machine runs, random operands, loud skips.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/backends/cpu/kernels/kernels.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_pool.h"

namespace weft::cpu {

// Tests over every instruction set; what the machine cannot run is SKIPPED with the reason, never replaced.
class EveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    absl::StatusOr<CpuTarget> target = TargetFor(GetParam());
    if (!target.ok()) GTEST_SKIP() << "SKIPPED: " << target.status().message();
    kernels_ = std::make_unique<KernelSet>(*target);
  }
  std::unique_ptr<KernelSet> kernels_;
  ThreadPool one_{1};
  ThreadPool two_{2};
};

// More threads than most calls have work for.
inline ThreadPool& Five() {
  static ThreadPool pool(5);
  return pool;
}

// Makes a call as a launch does: with as much scratch as it said it needs and no byte more.
template <typename Prepare, typename Run>
absl::Status Reserved(ThreadPool& pool, Prepare prepare, Run run) {
  ScratchNeeds needs;
  WEFT_RETURN_IF_ERROR(prepare(pool.threads(), needs));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<ScratchSet> set, ScratchSet::Reserve(nullptr, pool.threads(), needs));
  RunningLaunch launch{.scratch = set.get()};
  const ThreadPool::Scope scope(&launch);
  const absl::Status status = run(pool);
  WEFT_RETURN_IF_ERROR(set->Overrun());
  return status;
}
inline absl::Status ReservedGemm(KernelSet& kernels, const GemmCall& call, ThreadPool& pool) {
  return Reserved(
      pool, [&](int threads, ScratchNeeds& needs) { return kernels.PrepareGemm(call, threads, needs); },
      [&](ThreadPool& p) -> absl::Status {
        // As a loaded program does, which has planned it.
        WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const PlannedGemm> planned, kernels.PlanGemm(call));
        if (planned == nullptr) return kernels.Gemm(call, p);
        return kernels.Gemm(*planned, {call.a.data, call.b.data, call.c, call.epilogue}, p);
      });
}

inline std::string IsaName(const ::testing::TestParamInfo<Isa>& info) {
  std::string name(NameOf(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

#define WEFT_EVERY_ISA(Suite)                                                                               \
  INSTANTIATE_TEST_SUITE_P(Paths, Suite, ::testing::ValuesIn(kEveryIsa), IsaName)

// Values of one call's operands, with NaN on both sides: a kernel that reads beyond its operands shows it.
template <typename T>
class Operand {
 public:
  explicit Operand(int64_t count) : count_(count), memory_(count + 2 * kGuard) { Poison(); }

  T* data() { return memory_.data() + kGuard; }
  const T* data() const { return memory_.data() + kGuard; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  int64_t size() const { return count_; }

  void Randomize(std::mt19937& random) {
    std::uniform_int_distribution<int> pick(-8, 8);
    for (int64_t i = 0; i < count_; ++i) data()[i] = ElementRule<T>::Store(static_cast<Sum>(pick(random)) / Scale());
  }
  void Poison() {
    for (T& value : memory_) std::memset(&value, 0xFF, sizeof(T));
  }
  // The bytes around the values are as Poison left them: nothing was written outside.
  bool GuardsHold() const {
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(memory_.data());
    for (size_t i = 0; i < kGuard * sizeof(T); ++i) {
      if (bytes[i] != 0xFF || bytes[memory_.size() * sizeof(T) - 1 - i] != 0xFF) return false;
    }
    return true;
  }
  double At(int64_t i) const { return static_cast<double>(ElementRule<T>::Load(data()[i])); }
  bool SameBits(const Operand& other) const { return std::memcmp(data(), other.data(), count_ * sizeof(T)) == 0; }

 private:
  using Sum = typename ElementRule<T>::Sum;
  // Eighths are exact in every float type here, so that sums are exact too and results can be compared closely.
  static Sum Scale() {
    if constexpr (std::is_floating_point_v<Sum>) return Sum{8};
    return Sum{1};
  }
  static constexpr int64_t kGuard = 64;
  int64_t count_;
  std::vector<T> memory_;
};

}  // namespace weft::cpu
