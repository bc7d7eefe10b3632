// Generated code as bytes: export, import in a fresh set, refusal of what is not ours; the JIT wrapper's own errors.
#include "src/backends/cpu/jit/jit.h"
#include "src/runtime/alloc_hook.h"
#include "tests/kernels/kernels_support.h"
#include "tests/support/cpu_under_test.h"

namespace weft::cpu {
namespace {

// More rows and columns than are streamed without generated code; the columns are equal.
constexpr int64_t kRows = 9;

GemmCall SmallCall(float* result = nullptr) {
  static const float a[3 * kRows] = {1, 2, 3, 4, 5, 6}, b[3] = {1, 10, 100};
  GemmCall call;
  call.m = call.n = kRows;
  call.k = 3;
  call.a = {a, 3, 1, {}};
  call.b = {b, 1, 0, {}};
  call.c = result;
  return call;
}
absl::Status SmallProduct(KernelSet& kernels, ThreadPool& pool, float* result) {
  return kernels.Gemm(SmallCall(result), pool);
}

TEST(KernelSet, CompilesNothingAfterAnImport) {
  ThreadPool pool(1);
  const CpuTarget target = test::TargetUnderTest();
  KernelSet first(target), second(target);
  float result[kRows * kRows];
  ASSERT_TRUE(SmallProduct(first, pool, result).ok());
  EXPECT_GT(first.compiled(), 0);
  const std::string objects = first.ExportObjects();
  ASSERT_TRUE(second.ImportObjects(std::as_bytes(std::span(objects.data(), objects.size()))).ok());
  float again[kRows * kRows];
  ASSERT_TRUE(SmallProduct(second, pool, again).ok());
  EXPECT_EQ(second.compiled(), 0);
  EXPECT_EQ(again[0], 321.0f);
  EXPECT_EQ(again[kRows], 654.0f);
  EXPECT_EQ(second.ExportObjects(), objects);
}

TEST(KernelSet, CompilesWhatWasImportedAndCannotBeLinked) {
  ThreadPool pool(1);
  const CpuTarget target = test::TargetUnderTest();
  KernelSet first(target), second(target);
  float result[kRows * kRows];
  ASSERT_TRUE(SmallProduct(first, pool, result).ok());
  std::string objects = first.ExportObjects();
  for (size_t at = objects.find("\x7f" "ELF"); at != objects.npos; at = objects.find("\x7f" "ELF", at)) objects[at] = 0;
  ASSERT_TRUE(second.ImportObjects(std::as_bytes(std::span(objects.data(), objects.size()))).ok());
  float again[kRows * kRows] = {};
  ASSERT_TRUE(SmallProduct(second, pool, again).ok());
  EXPECT_EQ(second.compiled(), first.compiled());
  EXPECT_EQ(again[kRows], 654.0f);
  EXPECT_EQ(second.ExportObjects(), first.ExportObjects());
}

TEST(KernelSet, PreparesWhatACallNeeds) {
  ThreadPool pool(1);
  KernelSet kernels(test::TargetUnderTest());
  ScratchNeeds needs;
  ASSERT_TRUE(kernels.PrepareGemm(SmallCall(), 1, needs).ok());
  const int64_t compiled = kernels.compiled();
  EXPECT_GT(compiled, 0);
  float result[kRows * kRows];
  ASSERT_TRUE(SmallProduct(kernels, pool, result).ok());
  EXPECT_EQ(kernels.compiled(), compiled);
}

TEST(KernelSet, SaysWhatItWouldGenerate) {
  KernelSet kernels(test::TargetUnderTest());
  ScratchNeeds needs;
  const auto prepare = [&] { EXPECT_TRUE(kernels.PrepareGemm(SmallCall(), 1, needs).ok()); };
  const std::vector<int> missing = kernels.MissingAfter(prepare);
  EXPECT_FALSE(missing.empty());
  EXPECT_EQ(kernels.compiled(), 0);
  for (const int kernel : missing) EXPECT_TRUE(kernels.Generate(kernel).ok());
  EXPECT_EQ(kernels.compiled(), static_cast<int64_t>(missing.size()));
  prepare();
  EXPECT_EQ(kernels.compiled(), static_cast<int64_t>(missing.size()));
  EXPECT_TRUE(kernels.MissingAfter(prepare).empty());
}

TEST(KernelSet, RefusesTruncatedOrForeignObjects) {
  ThreadPool pool(1);
  KernelSet first(test::TargetUnderTest());
  float result[kRows * kRows];
  ASSERT_TRUE(SmallProduct(first, pool, result).ok());
  const std::string objects = first.ExportObjects();
  for (size_t length : {size_t{0}, size_t{7}, size_t{16}, size_t{40}, objects.size() - 1}) {
    KernelSet fresh(test::TargetUnderTest());
    const absl::Status status = fresh.ImportObjects(std::as_bytes(std::span(objects.data(), length)));
    EXPECT_FALSE(status.ok()) << length;
    ASSERT_TRUE(SmallProduct(fresh, pool, result).ok());
  }
  Jit jit(test::TargetUnderTest());
  EXPECT_EQ(jit.Load("not an object").status().message(), "compiled object of 13 bytes is not an ELF file");
}

TEST(KernelSet, ReportsExhaustedMemoryByItsPurpose) {
  // A fresh thread has no packing space yet.
  std::thread([] {
    ThreadPool pool(1);
    KernelSet kernels(test::TargetUnderTest());
    std::vector<float> a(64 * 300), b(300 * 300), c(64 * 300);
    GemmCall call;
    call.m = 64;
    call.k = 300;
    call.n = 300;
    call.a = {a.data(), 300, 1, {}};
    call.b = {b.data(), 1, 300, {}};
    call.c = c.data();
    SetLargeAllocationGate([](void*, size_t) { return false; }, nullptr);
    const absl::Status status = kernels.Gemm(call, pool);
    SetLargeAllocationGate(nullptr, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message().substr(0, 51), "out of memory for a matrix product's packed blocks:") << status.message();
    EXPECT_TRUE(kernels.Gemm(call, pool).ok());
  }).join();
}

TEST(Isa, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(TargetFromName("sse9").status().message(),
            "unknown instruction set 'sse9'; expected auto, amx, avx512, avx2, portable or amx-model");
  EXPECT_TRUE(TargetFromName("portable").ok());
  EXPECT_NE(TargetFromName("portable")->Fingerprint(), "");
}

}  // namespace
}  // namespace weft::cpu
