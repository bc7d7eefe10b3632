// Calls of custom operations as launch lists make them: a million of each kind, guarded and not, and what is refused.
#include "src/backends/custom_call/custom_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

namespace weft::custom {
namespace {

using ops::CustomFunction;
using ops::CustomFunctions;
using ops::CustomKind;
using ops::CustomSignature;

double Half(double x, int* odd) {
  *odd = static_cast<int>(x) % 2;
  return x / 2;
}
int32_t Add(const float* x, const float* y, uint64_t n, float* room, float* out) {
  for (uint64_t i = 0; i < n; ++i) room[i] = x[i] + y[i];
  for (uint64_t i = 0; i < n; ++i) out[i] = room[i];
  return n == 3 ? 0 : 1;
}

Ref<const CustomFunction> Function(std::string name, CustomKind kind, std::string_view signature, void* address) {
  auto function = MakeRef<CustomFunction>();
  function->name = std::move(name);
  function->signature = *CustomSignature::Parse(kind, signature);
  function->address = address;
  function->turn = ops::TurnOf(address);
  return function;
}

class CustomCallTest : public testing::Test {
 protected:
  CustomCallTest() {
    Register("half", CustomKind::kElements, "double(double, int*)", reinterpret_cast<void*>(&Half));
    Register("add", CustomKind::kBuffers, "status(const float*[n], const float*[n], size_t=n, scratch float*[n], float*[n])",
             reinterpret_cast<void*>(&Add));
  }
  void Register(std::string name, CustomKind kind, std::string_view signature, void* address) {
    const Ref<const CustomFunction> function = Function(name, kind, signature, address);
    names_.push_back(CustomKernelName(name, function->signature));
    ASSERT_TRUE(registered_->Add(function).ok());
  }
  std::shared_ptr<const CustomCall> Find(size_t i) { return *CustomCall::Find(names_[i], registered_); }

  const std::shared_ptr<CustomFunctions> registered_ = std::make_shared<CustomFunctions>();
  std::vector<std::string> names_;
  ThreadPool pool_{2};
};

TEST_F(CustomCallTest, AMillionElementsAreAMillionCalls) {
  constexpr int64_t kCount = 1'000'000;
  std::vector<double> x(kCount), y(kCount);
  std::vector<int> odd(kCount);
  std::iota(x.begin(), x.end(), 0.0);
  void* const buffers[] = {x.data(), y.data(), odd.data()};
  const int64_t bytes[] = {kCount * 8, kCount * 4};
  for (const bool guarded : {false, true}) {
    registered_->guarded = guarded;
    ASSERT_EQ(absl::OkStatus(), Find(0)->Run(buffers, EncodeCustom({kCount, bytes, {}}), pool_));
    for (int64_t i = 0; i < kCount; i += 999) {
      ASSERT_EQ(static_cast<double>(i) / 2, y[i]);
      ASSERT_EQ(i % 2, odd[i]);
    }
    std::ranges::fill(y, -1);
  }
}

TEST_F(CustomCallTest, AMillionCallsOfBuffers) {
  float x[3] = {1, 2, 3}, y[3] = {10, 20, 30}, sum[3], room[3];
  void* const buffers[] = {x, y, sum, room};
  const int64_t bytes[] = {12, 12}, n[] = {3};
  const std::vector<int64_t> params = EncodeCustom({0, bytes, n});
  const std::shared_ptr<const CustomCall> call = Find(1);
  for (const bool guarded : {false, true}) {
    registered_->guarded = guarded;
    for (int i = 0; i < (guarded ? 10'000 : 1'000'000); ++i) {
      x[0] = static_cast<float>(i % 1000);
      ASSERT_TRUE(call->Run(buffers, params, pool_).ok());
      ASSERT_EQ(x[0] + 10, sum[0]);
      ASSERT_EQ(33, sum[2]);
    }
  }
}

TEST_F(CustomCallTest, IsFoundByNameAndSignatureAlone) {
  EXPECT_EQ("custom:e:half:double(double, int*)", names_[0]);
  EXPECT_THAT(std::string(CustomCall::Find("custom:e:never:double(double)", registered_).status().message()),
              testing::HasSubstr("no custom operation 'never' is registered in this context; there are add, half"));
  EXPECT_EQ("the custom operation 'half' is registered with the signature 'double(double, int*)'; the program calls it with 'double(double)'",
            CustomCall::Find("custom:e:half:double(double)", registered_).status().message());
  EXPECT_FALSE(CustomCall::Find("custom:b:half:double(double, int*)", registered_).ok());
  for (const char* damaged : {"custom:", "custom:e", "custom:e:", "custom::half:"}) EXPECT_FALSE(CustomCall::Find(damaged, registered_).ok());
  EXPECT_FALSE(CustomCall::Find(names_[0], nullptr).ok());
}

TEST_F(CustomCallTest, RefusesEntriesThatItsSignatureDoesNotHave) {
  const int64_t bytes[] = {8, 4}, n[] = {3};
  const std::shared_ptr<const CustomCall> half = Find(0), add = Find(1);
  EXPECT_TRUE(half->Check(3, EncodeCustom({1, bytes, {}})).ok());
  EXPECT_TRUE(add->Check(4, EncodeCustom({0, bytes, n})).ok());
  EXPECT_TRUE(absl::IsDataLoss(half->Check(2, EncodeCustom({1, bytes, {}}))));
  EXPECT_TRUE(absl::IsDataLoss(half->Check(3, EncodeCustom({-1, bytes, {}}))));
  EXPECT_TRUE(absl::IsDataLoss(half->Check(3, EncodeCustom({1, {}, {}}))));
  EXPECT_TRUE(absl::IsDataLoss(add->Check(4, EncodeCustom({0, bytes, {}}))));
  EXPECT_TRUE(absl::IsDataLoss(add->Check(4, {})));
}

std::atomic<int> g_inside{0}, g_most{0};
double CountsThoseInside(double x) {
  const int inside = ++g_inside;
  int most = g_most.load();
  while (inside > most && !g_most.compare_exchange_weak(most, inside)) {
  }
  std::this_thread::yield();
  --g_inside;
  return x;
}

// Two contexts with one function that takes one call at a time.
TEST(CustomCall, OfOneAddressTakeTurnsInTheWholeProcess) {
  constexpr int64_t kCount = 20'000;
  const auto run = [] {
    const auto registered = std::make_shared<CustomFunctions>();
    const auto function = Function("f", CustomKind::kElements, "double(double)", reinterpret_cast<void*>(&CountsThoseInside));
    ASSERT_TRUE(registered->Add(function).ok());
    const auto call = *CustomCall::Find(CustomKernelName("f", function->signature), registered);
    std::vector<double> x(kCount), y(kCount);
    void* const buffers[] = {x.data(), y.data()};
    const int64_t bytes[] = {kCount * 8};
    ThreadPool pool(2);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(call->Run(buffers, EncodeCustom({kCount, bytes, {}}), pool).ok());
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_EQ(1, g_most.load());
}

}  // namespace
}  // namespace weft::custom
