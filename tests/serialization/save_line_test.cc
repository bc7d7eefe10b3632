// The order of saves: one runs, one waits, a third waits outside; and how many there are over all files.
#include "serialization/save_line.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace weft::testing {
namespace {

FilePlace PlaceOf(const std::string& path) { return FilePlace::Find(PosixFileSystem(), path).value(); }

// Looks `times` times, then gives up.
SaveTurn::Look Impatient(int times = 2) {
  return [left = times]() mutable { return --left < 0 ? absl::CancelledError("enough") : absl::OkStatus(); };
}

SaveTurn Entered(const FilePlace& place) {
  auto turn = SaveTurn::Enter(place, Impatient());
  EXPECT_TRUE(turn.ok()) << turn.status();
  return *std::move(turn);
}

TEST(SaveLine, OneRunsOneWaitsAThirdIsNotLetIn) {
  TempDir dir;
  const FilePlace place = PlaceOf(dir / "a");
  auto first = std::make_unique<SaveTurn>(Entered(place));
  ASSERT_TRUE(first->Begin(nullptr).ok());
  SaveTurn second = Entered(place);
  EXPECT_TRUE(absl::IsCancelled(second.Begin(Impatient())));
  EXPECT_TRUE(absl::IsCancelled(SaveTurn::Enter(place, Impatient()).status()));
  SaveTurn other = Entered(PlaceOf(dir / "b"));
  EXPECT_TRUE(other.Begin(Impatient()).ok());
  first.reset();
  EXPECT_TRUE(second.Begin(Impatient()).ok());
  SaveTurn third = Entered(place);
  EXPECT_TRUE(absl::IsCancelled(third.Begin(Impatient())));
}

TEST(SaveLine, KnowsAFileByWhateverPathItIsCalled) {
  TempDir dir;
  std::filesystem::create_directory(dir / "folder");
  std::filesystem::create_directory_symlink(dir / "folder", dir / "link");
  SaveTurn first = Entered(PlaceOf(dir / "folder/a"));
  ASSERT_TRUE(first.Begin(nullptr).ok());
  SaveTurn second = Entered(PlaceOf(dir / "link/../folder/./a"));
  EXPECT_TRUE(absl::IsCancelled(second.Begin(Impatient())));
}

TEST(SaveLine, LetsAStatedNumberInAndAStatedNumberRun) {
  TempDir dir;
  std::vector<SaveTurn> turns;
  for (int i = 0; i < SaveTurn::kMostLetIn; ++i) turns.push_back(Entered(PlaceOf(dir / absl::StrCat(i))));
  EXPECT_TRUE(absl::IsCancelled(SaveTurn::Enter(PlaceOf(dir / "more"), Impatient()).status()));
  for (int i = 0; i < SaveTurn::kMostRunning; ++i) EXPECT_TRUE(turns[i].Begin(Impatient()).ok());
  EXPECT_TRUE(absl::IsCancelled(turns.back().Begin(Impatient())));
  turns.erase(turns.begin());
  EXPECT_TRUE(turns.back().Begin(Impatient()).ok());
  EXPECT_TRUE(SaveTurn::Enter(PlaceOf(dir / "more"), Impatient()).ok());
}

TEST(SaveLine, HoldsSoManyBytesOrTwoSaves) {
  TempDir dir;
  const auto enter = [&](const char* name, uint64_t bytes) {
    return SaveTurn::Enter(PlaceOf(dir / name), Impatient(), bytes, /*most_bytes=*/100);
  };
  auto a = enter("a", 90), b = enter("b", 10);
  ASSERT_TRUE(a.ok() && b.ok());  // 100 together
  EXPECT_TRUE(absl::IsCancelled(enter("c", 1).status()));
  ASSERT_TRUE(a->Begin(nullptr).ok());
  EXPECT_TRUE(absl::IsCancelled(enter("c", 1).status()));
  EXPECT_TRUE(enter("c", 0).ok());
  a = absl::CancelledError("");
  auto huge = enter("e", ~uint64_t{0});
  EXPECT_TRUE(huge.ok());  // the second
  EXPECT_TRUE(absl::IsCancelled(enter("f", 1).status()));  // the sum is no number of 64 bits
}

TEST(SaveLine, ManyThreadsGoOneByOne) {
  TempDir dir;
  const FilePlace places[] = {PlaceOf(dir / "a"), PlaceOf(dir / "b"), PlaceOf(dir / "c")};
  std::atomic<int> inside[3] = {}, most{0}, running{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const int at = (t + i) % 3;
        auto turn = SaveTurn::Enter(places[at], nullptr);
        if (!turn.ok() || !turn->Begin(nullptr).ok()) std::abort();
        if (inside[at].fetch_add(1) != 0) std::abort();
        const int now = running.fetch_add(1) + 1;
        int before = most.load();
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
        running.fetch_sub(1);
        inside[at].fetch_sub(1);
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 1600);
  EXPECT_LE(most, SaveTurn::kMostRunning);
}

TEST(SaveLine, AForksChildHasLinesOfItsOwn) {
  TempDir dir;
  const FilePlace place = PlaceOf(dir / "a");
  SaveTurn first = Entered(place), second = Entered(place);
  ASSERT_TRUE(first.Begin(nullptr).ok());
  const pid_t child = fork();
  if (child == 0) {
    auto turn = SaveTurn::Enter(place, Impatient());
    _exit(turn.ok() && turn->Begin(Impatient()).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft::testing
