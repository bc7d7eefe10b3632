// Work in parts on threads of its own.
#include "src/runtime/on_threads.h"

#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/runtime/thread_pool.h"

namespace weft {
namespace {

TEST(OnThreads, DoesEachPartOnce) {
  for (const int threads : {-1, 1, 2, 7}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{1000}}) {
      std::vector<std::atomic<int>> done(count);
      EXPECT_TRUE(OnThreads(count, threads, [&](size_t i) { return ++done[i], absl::OkStatus(); }).ok());
      for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
    }
  }
}

TEST(OnThreads, BeginsNoPartAfterAFailure) {
  std::atomic<size_t> begun{0};
  const absl::Status status = OnThreads(100'000, 2, [&](size_t i) -> absl::Status {
    ++begun;
    if (i == 3) return absl::DataLossError("part 3");
    std::this_thread::sleep_for(std::chrono::microseconds(10));  // so that nobody is through before the failure is known
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::DataLossError("part 3"));
  EXPECT_LT(begun, 100'000u);
  EXPECT_EQ(OnThreads(8, 2, [](size_t) -> absl::Status { throw std::bad_alloc(); }).code(), absl::StatusCode::kResourceExhausted);
}

// Nobody's functions run on threads that others wait for.
TEST(OnThreads, OthersAreTheLibrarysOwn) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> other{false};
  EXPECT_TRUE(OnThreads(2, 2, [&](size_t) -> absl::Status {
                const bool here = std::this_thread::get_id() == caller;
                EXPECT_EQ(OnLibraryThread(), !here);
                if (!here) other = true;
                while (!other) std::this_thread::yield();  // until the other thread has a part
                return absl::OkStatus();
              }).ok());
}

}  // namespace
}  // namespace weft
