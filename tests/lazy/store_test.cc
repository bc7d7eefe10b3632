// The program store behind the engine: a second engine compiles nothing, and no trouble with the store is ever an error.
#include "src/compiler/disk_store.h"
#include "serialization/compile_cache.h"
#include "tests/lazy/shelf.h"
#include "tests/lazy/world.h"
#include "tests/support/temp_dir.h"

namespace weft::lazy {
namespace {

void Step(World& w) {
  T x = w.Vector({1, 2});
  T y = w.Op("mul", {w.Tmp("add", {x, x}), w.Number(3)});
  w.Sync();
  EXPECT_THAT(w.Read(y), ElementsAre(6, 12));
}

TEST(Store, ASecondEngineCompilesNothing) {
  Shelf shelf;
  {
    World w({}, 1, false, std::make_unique<FakeStore>(&shelf));
    Step(w);
    EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
    EXPECT_EQ(shelf.entries.size(), 1u);
    ASSERT_TRUE(w.engine->Close().ok());
    EXPECT_EQ(shelf.drained, 1);
  }
  World w({}, 1, false, std::make_unique<FakeStore>(&shelf));
  Step(w);
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 0);
  EXPECT_EQ(w.Count(Counter::kProgramsLoaded), 1);
  EXPECT_EQ(w.Count(Counter::kDiskCacheHits), 1);
}

TEST(Store, ABackendThatCannotSerialiseAsksForNothingAndClaimsNothing) {
  Shelf shelf;
  World w({}, 1, false, std::make_unique<FakeStore>(&shelf));
  w.backend->serializes = false;
  Step(w);
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
  EXPECT_EQ(w.Count(Counter::kDiskCacheMisses), 0);
  EXPECT_TRUE(shelf.entries.empty());
  EXPECT_EQ(shelf.looked_up, 0);
}

TEST(Store, AProgramThatCannotBeLoadedIsRejectedWarnedAboutAndCompiled) {
  Shelf shelf;
  {
    World w({}, 1, false, std::make_unique<FakeStore>(&shelf));
    Step(w);
  }
  World w({}, 1, false, std::make_unique<FakeStore>(&shelf));
  w.backend->fail_loads = 1;
  Step(w);
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
  EXPECT_EQ(w.Count(Counter::kDiskCacheErrors), 1);
  EXPECT_EQ(shelf.rejected, 1);
  EXPECT_THAT(w.engine->services().LastWarnings(), ElementsAre("a cached program could not be loaded and is compiled again: "
                                                    "fake: the program is damaged"));
}

TEST(Store, AnEntryOfAnotherProgramUnderTheSameKeyIsAMiss) {
  Options options;
  options.hash_bits = 1;
  Shelf shelf;
  World w(options, 1, false, std::make_unique<FakeStore>(&shelf));
  T x = w.Vector({1, 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(w.Read(w.Op("add", {x, x})), ElementsAre(2, 4));
    EXPECT_THAT(w.Read(w.Op("mul", {x, x})), ElementsAre(1, 4));
    EXPECT_THAT(w.Read(w.Op("sub", {x, x})), ElementsAre(0, 0));
  }
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 3);
}

TEST(Store, OnDiskServesASecondProcessOfTheSameBuild) {
  testing::TempDir dir;
  CompileCacheOptions options;
  options.directory = dir.path() + "/cache";
  for (int process = 0; process < 2; ++process) {
    std::shared_ptr<CompileCacheStore> cache = CompileCacheStore::Open(options);
    World w({}, 1, false, compiler::MakeDiskStore(cache));
    Step(w);
    ASSERT_TRUE(w.engine->Close().ok());
    EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1 - process);
  }
}

}  // namespace
}  // namespace weft::lazy
