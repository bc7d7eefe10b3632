// Scratch reserved from what kernels say they need. (Every other test here that runs products and convolutions reserves no
// byte more than that.)
#include <thread>

#include "src/runtime/alloc_hook.h"
#include "tests/kernels/kernels_support.h"

namespace weft::cpu {
namespace {

class Scratch : public EveryIsa {};

// Batches are dealt out whole, or their members in parts, or run on one thread: each asks for other scratch.
TEST_P(Scratch, OfBatchesIsWhatTheySayForAnyNumberOfThreads) {
  for (const int64_t members : {2, 3, 7, 40}) {
    for (const auto& [m, k, n] : {std::array<int64_t, 3>{5, 9, 17}, {37, 131, 77}, {130, 449, 65}}) {
      for (const bool narrow : {false, true}) {
        for (const bool transposed : {false, true}) {
          SCOPED_TRACE(testing::Message() << members << " of " << m << "x" << k << "x" << n << (narrow ? " bf16" : " f32")
                                          << (transposed ? " transposed" : ""));
          GemmCall call;
          call.input = call.output = narrow ? DType::kBF16 : DType::kF32;
          const int64_t bytes = BytesOf(call.input);
          std::vector<char> a(members * m * k * bytes), b(members * k * n * bytes), c(members * m * n * bytes);
          call.m = m;
          call.k = k;
          call.n = n;
          call.batch_rank = 1;
          call.batch_sizes[0] = members;
          call.a = {a.data(), transposed ? 1 : k, transposed ? m : 1, {m * k}};
          call.b = {b.data(), n, 1, {k * n}};
          call.c = c.data();
          call.c_batch_strides[0] = m * n;
          for (ThreadPool* pool : {&one_, &two_, &Five()}) {
            const absl::Status status = ReservedGemm(*kernels_, call, *pool);
            EXPECT_TRUE(status.ok()) << pool->threads() << " threads: " << status;
          }
        }
      }
    }
  }
}
WEFT_EVERY_ISA(Scratch);

TEST(ScratchSet, RefusesLoudlyWhatNobodySaidWasNeeded) {
  ScratchNeeds needs;
  needs.Each(ScratchSlot::kPackA, 100);
  needs.Once(ScratchSlot::kPackA, 300);
  const auto set = *ScratchSet::Reserve(nullptr, 2, needs);
  EXPECT_NE(set->Get(0, ScratchSlot::kPackA, 300), nullptr);
  EXPECT_NE(set->Get(1, ScratchSlot::kPackA, 100), nullptr);
  EXPECT_TRUE(set->Overrun().ok());
  EXPECT_EQ(set->Get(1, ScratchSlot::kPackA, 101), nullptr);
  EXPECT_EQ(set->Overrun().code(), absl::StatusCode::kInternal);
  EXPECT_NE(set->Overrun().message().find("a kernel asked for 101 bytes of scratch in slot 0 where it had said 100"),
            std::string::npos)
      << set->Overrun();
}

TEST(ScratchSet, GrowsBesideTheSetThatARunningLaunchHas) {
  ScratchNeeds small, large;
  small.Each(ScratchSlot::kPackA, 100);
  small.Each(ScratchSlot::kPackB, 5000);
  large.Each(ScratchSlot::kPackA, 10000);
  const auto first = *ScratchSet::Reserve(nullptr, 2, small);
  void* const a = first->Get(1, ScratchSlot::kPackA, 100);
  void* const b = first->Get(1, ScratchSlot::kPackB, 5000);
  EXPECT_EQ(*ScratchSet::Reserve(first, 2, small), first);
  const int64_t live = GetLargeMemoryStats().live_bytes;
  SetLargeAllocationGate([](void*, size_t) { return false; }, nullptr);
  const auto refused = ScratchSet::Reserve(first, 2, large);
  SetLargeAllocationGate(nullptr, nullptr);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetLargeMemoryStats().live_bytes, live);
  const auto second = *ScratchSet::Reserve(first, 2, large);
  EXPECT_NE(second->Get(1, ScratchSlot::kPackA, 10000), a);
  EXPECT_EQ(second->Get(1, ScratchSlot::kPackB, 5000), b);  // what suffices is shared
  EXPECT_EQ(first->Get(1, ScratchSlot::kPackA, 100), a);
}

}  // namespace
}  // namespace weft::cpu
