// The index of shapes beside the entries of a folder: what it finds, what it forgets, and that damage costs nothing.
#include "serialization/cache_shapes.h"

#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/serialization/cache_world.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

CacheEntry Shaped(uint64_t number, uint64_t shape) {
  CacheEntry entry = EntryOf(number);
  entry.shape = shape;
  return entry;
}

TEST(CacheShapes, FindEntriesTheLastWrittenFirst) {
  TempDir dir;
  {
    Store first(dir);
    for (uint64_t i = 1; i <= 5; ++i) first.store->Publish(Shaped(i, i % 2));
    first.store->Publish(Shaped(1, 1));  // again: known
  }
  Store second(dir);
  EXPECT_THAT(second.store->OfShape(1, 9), ElementsAre("program 5", "program 3", "program 1"));
  EXPECT_THAT(second.store->OfShape(1, 2), ElementsAre("program 5", "program 3"));
  EXPECT_THAT(second.store->OfShape(2, 9), ElementsAre());
  EXPECT_THAT(second.store->OfShape(0, 9), ElementsAre());  // an entry of shape 0 is in no index
  std::filesystem::remove(PathOf(dir, 3));
  EXPECT_THAT(second.store->OfShape(1, 9), ElementsAre("program 5", "program 1"));
  EXPECT_TRUE(second.warnings.empty());
}

TEST(CacheShapes, KnowTheNewest2048In64KiB) {
  TempDir dir;
  for (uint64_t i = 1; i <= 2100; ++i) AddCacheShape(PosixFileSystem(), dir.path(), i, {i, i});
  EXPECT_LE(Contents(dir / "shapes").size(), size_t{64} << 10);
  EXPECT_TRUE(CacheKeysOfShape(PosixFileSystem(), dir.path(), 52, 1).empty());
  EXPECT_THAT(CacheKeysOfShape(PosixFileSystem(), dir.path(), 53, 1), ElementsAre(Hash128{53, 53}));
  EXPECT_THAT(CacheKeysOfShape(PosixFileSystem(), dir.path(), 2100, 1), ElementsAre(Hash128{2100, 2100}));
}

TEST(CacheShapes, DamageIsAnIndexThatBeginsAnew) {
  TempDir dir;
  { Store(dir).store->Publish(Shaped(1, 7)); }
  const std::string whole = Contents(dir / "v1/shapes");
  ASSERT_EQ(whole.size(), 8u + 24u);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteContents(dir / "v1/shapes", std::string_view(whole).substr(0, size));
    Store cache(dir);
    EXPECT_THAT(cache.store->OfShape(7, 9), ElementsAre());
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bad = whole;
    bad[i] = static_cast<char>(bad[i] ^ 0x55);
    WriteContents(dir / "v1/shapes", bad);
    Store cache(dir);
    EXPECT_THAT(cache.store->OfShape(7, 9), ElementsAre());
    EXPECT_TRUE(cache.warnings.empty());
  }
  WriteContents(dir / "v1/shapes", std::string(size_t{1} << 20, 'x'));
  {
    Store cache(dir);
    EXPECT_THAT(cache.store->OfShape(7, 9), ElementsAre());
    cache.store->Publish(Shaped(2, 7));
    cache.store->Drain();
    EXPECT_THAT(cache.store->OfShape(7, 9), ElementsAre("program 2"));
  }
}

// A folder that is only read has an index, too, and neither it nor what others may write to is touched or believed.
TEST(CacheShapes, OfLowerFoldersAreReadAndNotWritten) {
  TempDir upper, lower;
  { Store(lower).store->Publish(Shaped(1, 7)); }
  const std::string before = Contents(lower / "v1/shapes");
  CompileCacheOptions options;
  options.lower = {lower.path()};
  Store cache(upper, options);
  EXPECT_THAT(cache.store->OfShape(7, 9), ElementsAre("program 1"));
  cache.store->Publish(Shaped(2, 7));
  cache.store->Drain();
  EXPECT_THAT(cache.store->OfShape(7, 9), ElementsAre("program 2", "program 1"));
  EXPECT_EQ(Contents(lower / "v1/shapes"), before);
  chmod((lower / "v1/shapes").c_str(), 0666);
  EXPECT_THAT(cache.store->OfShape(7, 9), ElementsAre("program 2"));
}

}  // namespace
}  // namespace weft::testing
