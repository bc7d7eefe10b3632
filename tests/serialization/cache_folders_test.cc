// The folders of the compile cache: who may write to them, those below the first, and what lists and removes their entries.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/serialization/cache_world.h"

namespace weft::testing {
namespace {

// Every level above an entry counts: who may write to one puts entries there.
TEST(CompileCache, UsesNoFolderOfAnyLevelThatOthersMayWriteTo) {
  TempDir dir;
  { Store(dir).store->Publish(EntryOf(1)); }
  const std::string folder = std::filesystem::path(PathOf(dir, 1)).parent_path();
  Store cache(dir);
  EXPECT_TRUE(cache.Has(1));
  chmod(folder.c_str(), 0777);
  EXPECT_FALSE(cache.Has(1));
  ASSERT_EQ(cache.warnings.size(), 1u);
  EXPECT_EQ(cache.warnings[0], absl::StrCat("compile cache: a folder is not used: '", folder,
                                            "': others may write to it (chmod go-w makes it usable)"));
  const std::string before = Contents(PathOf(dir, 1));
  cache.store->Publish(EntryOf(1, 5000));
  cache.store->Drain();
  EXPECT_EQ(Contents(PathOf(dir, 1)), before);
  EXPECT_EQ(cache.store->stats().refused, 2u);
  EXPECT_EQ(cache.store->stats().stores, 0u);
  EXPECT_EQ(cache.store->stats().store_failures, 0u);
  chmod(folder.c_str(), 0700);
  EXPECT_TRUE(cache.Has(1));

  chmod((dir / "v1").c_str(), 0770);
  EXPECT_FALSE(cache.Has(1));
  Store again(dir);
  EXPECT_FALSE(again.Has(1));
  EXPECT_EQ(again.store->stats().disabled_reason,
            absl::StrCat("'", dir / "v1", "': others may write to it (chmod go-w makes it usable)"));
  chmod((dir / "v1").c_str(), 0700);
}

TEST(CompileCache, CopiesUpWhatALowerFolderHas) {
  TempDir upper, lower, refused;
  { Store(lower).store->Publish(EntryOf(1)); }
  { Store(refused).store->Publish(EntryOf(2)); }
  chmod(refused.path().c_str(), 0777);
  const std::string before = Contents(PathOf(lower, 1));
  uint64_t written = 0;
  Hash128 key;
  CompileCacheOptions options = {.lower = {refused.path(), lower.path(), lower / "none"}};
  options.published = [&](const Hash128& of, uint64_t bytes) { key = of, written += bytes; };
  {
    Store cache(upper, options);
    EXPECT_EQ(cache.warnings.size(), 1u);
    EXPECT_TRUE(cache.Has(1));
    EXPECT_FALSE(cache.Has(2));
    cache.store->Drain();
    EXPECT_EQ(cache.store->stats().hits, 1u);
    EXPECT_EQ(cache.store->stats().bytes_read, before.size());
  }
  EXPECT_EQ(written, std::filesystem::file_size(PathOf(upper, 1)));
  EXPECT_EQ(key, EntryOf(1).key);
  EXPECT_EQ(Contents(PathOf(lower, 1)), before);
  EXPECT_TRUE(Store(upper).Has(1));
  EXPECT_FALSE(std::filesystem::exists(PathOf(upper, 2)));

  // Damage below is a miss and stays where it is; without a folder to write to there is nothing to copy into.
  std::string bad = before;
  bad[150] ^= 1;
  WriteContents(PathOf(lower, 1), bad);
  TempDir other;
  Store damaged(other, {.lower = {lower.path()}});
  EXPECT_FALSE(damaged.Has(1));
  EXPECT_EQ(damaged.store->stats().corrupt, 1u);
  EXPECT_EQ(Contents(PathOf(lower, 1)), bad);
  WriteContents(PathOf(lower, 1), before);
  Store reading(other, {.lower = {lower.path()}, .read_only = true});
  EXPECT_TRUE(reading.Has(1));
  reading.store->Drain();
  EXPECT_FALSE(std::filesystem::exists(PathOf(other, 1)));
  chmod(refused.path().c_str(), 0700);
}

TEST(CompileCache, ListsAndPrunes) {
  TempDir dir, lower;
  { Store(lower).store->Publish(EntryOf(9)); }
  {
    Store cache(dir);
    for (uint64_t i = 1; i <= 4; ++i) cache.store->Publish(EntryOf(i, 10'000));
  }
  for (uint64_t i = 1; i <= 4; ++i) {
    const timespec times[2] = {{1'700'000'000 + static_cast<time_t>(i), 0}, {1'700'000'000 + static_cast<time_t>(i), 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, PathOf(dir, i).c_str(), times, 0), 0);
  }
  std::string bad = Contents(PathOf(dir, 2));
  bad.back() ^= 1;
  WriteContents(PathOf(dir, 2), bad);  // and is the one that was used last
  Store cache(dir, {.lower = {lower.path()}});
  const CacheListing quick = cache.store->List(/*verify=*/false), whole = cache.store->List(/*verify=*/true);
  ASSERT_EQ(quick.folders.size(), 2u);
  EXPECT_EQ(quick.folders[0].use, CacheFolder::kWrite);
  EXPECT_EQ(quick.folders[1].use, CacheFolder::kRead);
  ASSERT_EQ(quick.entries.size(), 5u);
  int damaged = 0;
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(quick.entries[i].about.ok());
    EXPECT_EQ(quick.entries[i].about->backend, "cpu");
    EXPECT_EQ(quick.entries[i].about->graph_ops, 5u);
    damaged += whole.entries[i].about.ok() ? 0 : 1;
    EXPECT_EQ(whole.entries[i].about.ok(), whole.entries[i].path != PathOf(dir, 2));
  }
  EXPECT_EQ(damaged, 1);
  EXPECT_EQ(quick.entries.back().name + ".tce", std::filesystem::path(PathOf(dir, 1)).filename());
  const uint64_t two = std::filesystem::file_size(PathOf(dir, 2)) + std::filesystem::file_size(PathOf(dir, 4));
  const auto removed = cache.store->Prune(two, -1);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(removed->entries, 2u);
  EXPECT_TRUE(cache.Has(4));
  EXPECT_FALSE(cache.Has(1) || cache.Has(3));
  EXPECT_EQ(cache.store->Prune(UINT64_MAX, int64_t{86'400} * 1'000'000'000)->entries, 0u);  // a hit renewed 4, damage 2
  EXPECT_EQ(cache.store->Prune(0, -1)->entries, 2u);
  EXPECT_TRUE(cache.Has(9));
  Store reading(dir, {.read_only = true});
  EXPECT_EQ(reading.store->Prune(0, -1).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace weft::testing
