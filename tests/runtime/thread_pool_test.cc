// The workers: every index once, nesting, several callers, parking and waking, fork.
#include "src/runtime/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/runtime/parallel_pieces.h"

namespace weft {
namespace {

TEST(ThreadPool, StartsNoThreadBeforeTheFirstRegion) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.started_workers(), 0);
  pool.ParallelFor(3, [](int64_t) {});
  EXPECT_EQ(pool.started_workers(), 2);
}

TEST(ThreadPool, RunsEveryIndexOnceForAnyCount) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> seen(count);
      pool.ParallelFor(count, [&](int64_t i) { ++seen[i]; });
      for (auto& value : seen) ASSERT_EQ(value, 1);
    }
  }
}

TEST(ThreadPool, RunsEveryIndexOnceInPieces) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 5, 27, 1000}) {
      for (int64_t pieces : {1, 2, 16}) {
        std::vector<std::atomic<int>> seen(count);
        ParallelPieces(pool, count, pieces, [&](int64_t begin, int64_t end, int worker) {
          if (count > 1) EXPECT_EQ(worker, ThreadPool::share());  // one is done where it is, whatever its number
          for (int64_t i = begin; i < end; ++i) ++seen[i];
        });
        for (auto& value : seen) ASSERT_EQ(value, 1);
      }
    }
  }
}

TEST(ThreadPool, GivesPiecesOfAThreadThatIsHeldUpToTheOthers) {
  ThreadPool pool(2);
  std::atomic<int64_t> done{0}, held{0};
  ParallelPieces(pool, 20, 10, [&](int64_t begin, int64_t end, int) {
    done += end - begin;
    if (begin != 0) return;
    held = end;
    while (done < 20) std::this_thread::yield();  // for what the other one takes
  });
  EXPECT_EQ(done, 20);
  EXPECT_LT(held, 10);
}

TEST(ThreadPool, KeepsTheSameShareOnTheSameWorker) {
  ThreadPool pool(4);
  std::vector<int64_t> first(4, -1), second(4, -1);
  pool.ParallelRanges(10, [&](int64_t begin, int64_t, int worker) { first[worker] = begin; });
  pool.ParallelRanges(10, [&](int64_t begin, int64_t, int worker) { second[worker] = begin; });
  EXPECT_EQ(first, second);
}

TEST(ThreadPool, RunsANestedRegionInline) {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  pool.ParallelFor(4, [&](int64_t) { pool.ParallelFor(5, [&](int64_t) { ++sum; }); });
  EXPECT_EQ(sum, 20);
}

TEST(ThreadPool, ServesSeveralCallersAtOnce) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) pool.ParallelFor(8, [&](int64_t) { sum.fetch_add(1, std::memory_order_relaxed); });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 500 * 8);
}

TEST(ThreadPool, WakesWorkersThatHaveParked) {
  ThreadPool pool(2);
  std::vector<int> plain(2);  // written without atomics: the region's end must publish it
  for (int i = 0; i < 20; ++i) {
    pool.BeginRun();
    pool.ParallelFor(2, [&](int64_t j) { ++plain[j]; });
    pool.EndRun();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(plain[0], 20);
  EXPECT_EQ(plain[1], 20);
}

// They are woken away from the caller's CPU, and free to go there afterwards.
TEST(ThreadPool, WorkersMayRunWhereverTheProcessMay) {
  const int all = AvailableCpus();
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    pool.ParallelFor(3, [](int64_t) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  int least = 0;
  for (int round = 0; round < 5'000 && least < all; ++round) {
    std::atomic<int> cpus[3];
    pool.ParallelFor(3, [&](int64_t i) { cpus[i] = AvailableCpus(); });
    least = std::min({cpus[0].load(), cpus[1].load(), cpus[2].load()});
  }
  EXPECT_EQ(least, all);
  EXPECT_EQ(AvailableCpus(), all);
}

TEST(ThreadPool, TellsEveryShareItsNumberAndWhoseItIs) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    int mine = 0;
    const ThreadPool::Scope scope(&mine);
    std::vector<int> share(6, -1), inner(6, -1);
    std::atomic<int> wrong{0};
    pool.ParallelRanges(6, [&](int64_t begin, int64_t end, int worker) {
      if (ThreadPool::owner() != &mine || ThreadPool::share() != worker) ++wrong;
      for (int64_t i = begin; i < end; ++i) share[i] = worker;
      // A region inside a share keeps the share's number: it runs on the same thread, with the same scratch.
      pool.ParallelRanges(2, [&](int64_t, int64_t, int) {
        if (ThreadPool::owner() != &mine || ThreadPool::share() != worker) ++wrong;
      });
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(share.front(), 0);
    EXPECT_EQ(share.back(), threads - 1);
    EXPECT_EQ(ThreadPool::share(), 0);
  }
  EXPECT_EQ(ThreadPool::owner(), nullptr);
}

TEST(ThreadPool, IsOneForAllWhoWantSoManyThreads) {
  std::shared_ptr<ThreadPool> one = ThreadPool::Shared(2), other = ThreadPool::Shared(2), three = ThreadPool::Shared(3);
  EXPECT_EQ(one, other);
  EXPECT_NE(one, three);
  EXPECT_EQ(ThreadPool::Shared(0)->threads(), AvailableCpus());
}

#if !defined(WEFT_SANITIZED)  // a forked child of a threaded process is outside what the sanitizers support
TEST(ThreadPool, ReportsAForkAndStillRunsOnTheCaller) {
  ThreadPool pool(2);
  pool.ParallelFor(2, [](int64_t) {});
  EXPECT_TRUE(pool.CheckProcess().ok());
  const pid_t child = fork();
  if (child == 0) {
    int sum = 0;
    pool.ParallelFor(4, [&](int64_t) { ++sum; });
    _exit(pool.CheckProcess().code() == absl::StatusCode::kFailedPrecondition && sum == 4 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ThreadPool, MadeButNotUsedBeforeAForkServesTheChild) {
  ThreadPool pool(2);
  const pid_t child = fork();
  if (child == 0) {
    pool.ParallelFor(2, [](int64_t) {});
    _exit(pool.CheckProcess().ok() && pool.started_workers() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ThreadPool, OfAForkedChildIsItsOwn) {
  std::shared_ptr<ThreadPool> pool = ThreadPool::Shared(2);
  pool->ParallelFor(2, [](int64_t) {});
  const pid_t child = fork();
  if (child == 0) {
    std::shared_ptr<ThreadPool> own = ThreadPool::Shared(2);
    own->ParallelFor(2, [](int64_t) {});
    _exit(own != pool && own->CheckProcess().ok() && own->started_workers() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

}  // namespace
}  // namespace weft
