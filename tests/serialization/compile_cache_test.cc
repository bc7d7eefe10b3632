// The compile cache: hits only what is right, survives anything, never fails.
#include "serialization/compile_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "serialization/mac.h"
#include "tests/serialization/cache_world.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

TEST(CacheEntry, ComesBackWhole) {
  CacheEntry entry = EntryOf(3, 100'000);
  entry.kind = CacheEntryKind::kPjrt;
  const auto bytes = EncodeCacheEntry(entry);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto back = DecodeCacheEntry(std::as_bytes(std::span(*bytes)));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->key, entry.key);
  EXPECT_EQ(back->kind, entry.kind);
  EXPECT_EQ(back->canonical, entry.canonical);
  EXPECT_EQ(back->sections, entry.sections);
  EXPECT_EQ(back->compiler_version, "19.1.7");
  EXPECT_EQ(*back->Section("launch"), "list");
  EXPECT_EQ(back->Section("none"), nullptr);
}

TEST(CacheEntry, EveryFlippedBitAndEveryTruncationIsDetected) {
  std::string bytes = EncodeCacheEntry(EntryOf(1)).value();
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    bytes[i / 8] ^= static_cast<char>(1 << i % 8);
    const auto status = DecodeCacheEntry(std::as_bytes(std::span(bytes))).status();
    ASSERT_TRUE(absl::IsDataLoss(status)) << i << ": " << status;
    bytes[i / 8] ^= static_cast<char>(1 << i % 8);
  }
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_TRUE(absl::IsDataLoss(DecodeCacheEntry(std::as_bytes(std::span(bytes).first(n))).status())) << n;
  }
  bytes += 'x';
  EXPECT_THAT(std::string(DecodeCacheEntry(std::as_bytes(std::span(bytes))).status().message()), HasSubstr("its header says"));
}

// Test cases 1, 2 and 6 of RFC 4231.
TEST(Mac, IsThatOfTheStandard) {
  const auto hex = [](std::string_view key, std::string_view text) {
    const std::span<const std::byte> all = std::as_bytes(std::span(text));
    std::string digits;
    for (const uint8_t byte : MacOf(key, {all.first(5), all.subspan(5)})) absl::StrAppend(&digits, absl::Hex(byte, absl::kZeroPad2));
    return digits;
  };
  EXPECT_EQ(hex(std::string(20, '\x0b'), "Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex("Jefe", "what do ya want for nothing?"), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Mac, KeysAreFilesThatNobodyElseReads) {
  TempDir dir;
  const std::string path = dir / "key";
  const auto code = [&] { return ReadMacKey(PosixFileSystem(), path).status().code(); };
  EXPECT_EQ(code(), absl::StatusCode::kNotFound);
  for (const auto& [bytes, mode, want] : {std::tuple(32, 0600, absl::StatusCode::kOk), std::tuple(4096, 0400, absl::StatusCode::kOk),
                                          std::tuple(31, 0600, absl::StatusCode::kInvalidArgument),
                                          std::tuple(4097, 0600, absl::StatusCode::kInvalidArgument),
                                          std::tuple(32, 0640, absl::StatusCode::kPermissionDenied),
                                          std::tuple(32, 0602, absl::StatusCode::kPermissionDenied)}) {
    std::filesystem::remove(path);
    WriteContents(path, std::string(static_cast<size_t>(bytes), 'k'));
    chmod(path.c_str(), static_cast<mode_t>(mode));
    EXPECT_EQ(code(), want) << bytes << " " << mode;
  }
  chmod(path.c_str(), 0600);
  std::filesystem::create_symlink(path, dir / "link");
  EXPECT_FALSE(ReadMacKey(PosixFileSystem(), dir / "link").ok());
}

TEST(CacheEntry, AMacIsOfTheKeyAndOfEveryByte) {
  const auto decode = [](std::string_view bytes, std::string_view key) {
    return DecodeCacheEntry(std::as_bytes(std::span(bytes)), key).status();
  };
  const std::string with = EncodeCacheEntry(EntryOf(1), "a key").value(), without = EncodeCacheEntry(EntryOf(1)).value();
  EXPECT_TRUE(decode(with, "a key").ok());
  EXPECT_TRUE(decode(with, "").ok());  // whoever has no key trusts the folder
  EXPECT_TRUE(absl::IsPermissionDenied(decode(with, "another key")));
  EXPECT_TRUE(absl::IsPermissionDenied(decode(without, "a key")));
  // Whoever knows the format but not the key: bytes that are changed and checksums that fit again.
  int refused = 0;
  for (size_t i = 16; i < with.size(); ++i) {
    std::string forged = with;
    forged[i] ^= 1;
    const Hash128 content = Checksum128(std::as_bytes(std::span(forged)).subspan(128));
    std::memcpy(forged.data() + 64, &content, 16);
    const uint64_t header = Checksum64(std::as_bytes(std::span(forged)).first(120));
    std::memcpy(forged.data() + 120, &header, 8);
    if (forged == with) continue;  // a checksum, which was mended
    const absl::Status status = decode(forged, "a key");
    ASSERT_FALSE(status.ok()) << i;
    refused += absl::IsPermissionDenied(status);
  }
  EXPECT_GT(refused, static_cast<int>(with.size()) - 80);  // lengths and reserved fields are damage before
}

TEST(CompileCache, WithAKeyUsesOnlyWhatHasItsMac) {
  TempDir dir, local;
  CompileCacheOptions keyed;
  keyed.mac_key = std::string(32, 'k');
  {
    Store plain(dir);
    plain.store->Publish(EntryOf(1));
  }
  {
    Store cache(dir, keyed);
    EXPECT_FALSE(cache.Has(1));
    EXPECT_EQ(cache.store->stats().refused, 1u);
    ASSERT_EQ(cache.warnings.size(), 1u);
    EXPECT_THAT(cache.warnings[0], HasSubstr("the entry has no MAC"));
    cache.store->Publish(EntryOf(1));
    cache.store->Publish(EntryOf(2));
    cache.store->Drain();
    EXPECT_TRUE(cache.Has(1));
    EXPECT_EQ(cache.store->List(/*verify=*/true).entries.size(), 2u);
  }
  Store(dir).store->Publish(EntryOf(2));  // somebody without the key
  keyed.lower = {dir.path()};
  Store above(local, keyed);  // a folder that is only read
  EXPECT_TRUE(above.Has(1));
  EXPECT_FALSE(above.Has(2));
  for (const CacheListed& listed : above.store->List(/*verify=*/true).entries) {
    EXPECT_EQ(listed.about.ok(), listed.name == KeyName(EntryOf(1).key)) << listed.about.status();
  }
}

TEST(CompileCache, FindsInASecondStoreWhatTheFirstPublished) {
  TempDir dir;
  {
    Store first(dir);
    EXPECT_FALSE(first.Has(1));
    for (uint64_t i = 1; i <= 20; ++i) first.store->Publish(EntryOf(i));
  }  // releasing drains
  Store second(dir);
  for (uint64_t i = 1; i <= 20; ++i) EXPECT_TRUE(second.Has(i)) << i;
  EXPECT_EQ(second.store->stats().hits, 20u);
  EXPECT_EQ(second.store->stats().misses, 0u);
  EXPECT_EQ(second.store->stats().compile_us_saved, 20'000u);
  EXPECT_TRUE(second.warnings.empty());
}

TEST(CompileCache, ComparesTheStoredProgramAndNeverGivesAnother) {
  TempDir dir;
  Store cache(dir);
  cache.store->Publish(EntryOf(1));
  cache.store->Drain();
  EXPECT_FALSE(cache.store->Lookup(EntryOf(1).key, "another program with the same key").has_value());
  EXPECT_EQ(cache.store->stats().collisions, 1u);
  EXPECT_EQ(cache.store->stats().misses, 1u);
  EXPECT_TRUE(cache.Has(1));
}

TEST(CompileCache, TakesDamageOfEveryKindForAMissAndSaysSoOnce) {
  TempDir dir;
  Store cache(dir);
  cache.store->Publish(EntryOf(1));
  cache.store->Drain();
  const std::string good = Contents(PathOf(dir, 1));
  std::string flipped = good;
  flipped[200] ^= 4;
  for (const std::string& bad : {std::string(), good.substr(0, 100), good.substr(0, good.size() - 1), flipped, good + "x",
                                 std::string(5000, 'z'), EncodeCacheEntry(EntryOf(2)).value()}) {
    WriteContents(PathOf(dir, 1), bad);
    chmod(PathOf(dir, 1).c_str(), 0600);
    EXPECT_FALSE(cache.Has(1));
    EXPECT_FALSE(cache.Has(1));  // moved away: now simply not there
  }
  EXPECT_EQ(cache.store->stats().corrupt, 7u);
  ASSERT_EQ(cache.warnings.size(), 1u);
  EXPECT_THAT(cache.warnings[0], HasSubstr("is damaged and will be compiled again: cache entry is damaged: it has 0 bytes"));
  cache.store->Publish(EntryOf(1));
  cache.store->Drain();
  EXPECT_TRUE(cache.Has(1));
}

TEST(CompileCache, PassesOverEntriesOfAnotherVersion) {
  TempDir dir;
  Store cache(dir);
  cache.store->Publish(EntryOf(1));
  cache.store->Drain();
  std::string bytes = Contents(PathOf(dir, 1));
  bytes[8] = 9;
  const uint64_t hash = Checksum64(std::as_bytes(std::span(bytes).first(120)));
  std::memcpy(bytes.data() + 120, &hash, 8);
  WriteContents(PathOf(dir, 1), bytes);
  EXPECT_FALSE(cache.Has(1));
  EXPECT_EQ(cache.store->stats().version_rejects, 1u);
  EXPECT_EQ(cache.store->stats().corrupt, 0u);
}

TEST(CompileCache, RefusesFilesAndDirectoriesThatOthersCouldHaveWritten) {
  TempDir dir;
  {
    Store cache(dir);
    cache.store->Publish(EntryOf(1));
    cache.store->Publish(EntryOf(2));
    cache.store->Drain();
    chmod(PathOf(dir, 1).c_str(), 0666);
    EXPECT_FALSE(cache.Has(1));
    ASSERT_EQ(cache.warnings.size(), 1u);
    EXPECT_THAT(cache.warnings[0], HasSubstr("is not trusted: others may write to it"));
    std::filesystem::rename(PathOf(dir, 2), PathOf(dir, 2) + ".real");
    std::filesystem::create_symlink(PathOf(dir, 2) + ".real", PathOf(dir, 2));
    EXPECT_FALSE(cache.Has(2));
    std::filesystem::remove(PathOf(dir, 2));
    ASSERT_EQ(mkfifo(PathOf(dir, 2).c_str(), 0600), 0);
    EXPECT_FALSE(cache.Has(2));  // and does not hang
    std::filesystem::remove(PathOf(dir, 2));
    std::filesystem::create_directory(PathOf(dir, 2));
    EXPECT_FALSE(cache.Has(2));
  }
  chmod(dir.path().c_str(), 0777);
  Store cache(dir);
  EXPECT_FALSE(cache.Has(1));
  EXPECT_EQ(cache.store->stats().disabled_reason, "others may write to it (chmod go-w makes it usable)");
  chmod(dir.path().c_str(), 0700);
}

// Whatever stands in an entry's place goes out of the way, and the next publication is found.
TEST(CompileCache, HealsWhateverStandsInAnEntrysPlace) {
  TempDir dir;
  Store cache(dir);
  const auto publish = [&](uint64_t number) {
    cache.store->Publish(EntryOf(number));
    cache.store->Drain();
  };
  const std::string path = PathOf(dir, 1);
  const std::function<void()> obstacles[] = {
      [&] { chmod(path.c_str(), 0666); },
      [&] { chmod(path.c_str(), 0000); },
      [&] {
        std::filesystem::rename(path, path + ".real");
        std::filesystem::create_symlink(path + ".real", path);
      },
      [&] {
        std::filesystem::remove(path);
        std::filesystem::create_symlink("nowhere", path);
      },
      [&] {
        std::filesystem::remove(path);
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      },
      [&] {
        std::filesystem::remove(path);
        std::filesystem::create_directories(path + "/with/something");
      },
      [&] {
        std::filesystem::remove(path);
        std::filesystem::create_directories(path + "/again");
      },
  };
  for (size_t i = 0; i < std::size(obstacles); ++i) {
    for (const bool looked : {true, false}) {
      SCOPED_TRACE(absl::StrCat("obstacle ", i, looked ? "" : ", published without a look"));
      publish(1);
      ASSERT_TRUE(cache.Has(1));
      obstacles[i]();
      if (looked && !(i == 1 && geteuid() == 0)) {
        EXPECT_FALSE(cache.Has(1));
      }
      publish(1);
      EXPECT_TRUE(cache.Has(1));
      struct stat info;
      ASSERT_EQ(lstat(path.c_str(), &info), 0);
      EXPECT_TRUE(S_ISREG(info.st_mode));
      EXPECT_EQ(info.st_mode & 0777, 0600u);
      std::filesystem::remove(path + ".real");
    }
  }
  // A file in the place of the folder.
  std::filesystem::remove_all(std::filesystem::path(path).parent_path());
  WriteContents(std::filesystem::path(path).parent_path(), "no folder");
  EXPECT_FALSE(cache.Has(1));
  publish(1);
  EXPECT_TRUE(cache.Has(1));
  EXPECT_EQ(cache.store->stats().store_failures, 0u);
}

// In several processes; each gets its number.
void InProcesses(int count, const std::function<bool(int)>& body) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(body(i) ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

uint64_t EntryBytes(const TempDir& dir) {
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir / "v1")) {
    if (file.is_regular_file() && file.path().extension() == ".tce") bytes += file.file_size();
  }
  return bytes;
}

TEST(CompileCache, KeepsItsSizeOverAllProcesses) {
  TempDir dir;
  constexpr uint64_t kMost = 150'000;
  InProcesses(6, [&](int process) {
    Store cache(dir, {.max_bytes = kMost});
    for (uint64_t i = 0; i < 25; ++i) {
      CacheEntry entry = EntryOf(1000 * static_cast<uint64_t>(process) + i, 1);
      uint64_t random = entry.key.low + 1;
      for (int k = 0; k < 5000; ++k) {  // nothing that can be compressed
        random = random * 6364136223846793005u + 1442695040888963407u;
        entry.sections[0].second += static_cast<char>(random >> 56);
      }
      cache.store->Publish(std::move(entry));
      if (i % 5 == 4) cache.store->Drain();
    }
    cache.store->Drain();
    return cache.store->stats().store_failures == 0;
  });
  EXPECT_LE(EntryBytes(dir), kMost);
  EXPECT_GT(EntryBytes(dir), kMost / 2);
}

TEST(CompileCache, ProcessesThatWantOneProgramMakeItOnce) {
  TempDir dir;
  InProcesses(6, [&](int process) {
    Store cache(dir);
    for (uint64_t i = 0; i < 20; ++i) {
      const CacheEntry entry = EntryOf(i);
      if (cache.store->Lookup(entry.key, entry.canonical, /*claim=*/true).has_value()) continue;
      // Who is asked to make it says so in a file.
      std::ofstream(dir / absl::StrCat("made", process), std::ios::app) << i << "\n";
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      if (i % 7 == 3 && process % 2 == 0) {
        cache.store->Abandon(entry.key);  // a compilation that failed: the next one may try
      } else {
        cache.store->Publish(entry);
      }
    }
    cache.store->Drain();
    return cache.store->stats().store_failures == 0;
  });
  std::vector<int> made(20);
  for (int process = 0; process < 6; ++process) {
    std::ifstream in(dir / absl::StrCat("made", process));
    for (int i; in >> i;) ++made[static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < made.size(); ++i) {
    if (i % 7 == 3) {
      EXPECT_LE(made[i], 4) << i;  // by three that give up, and one
    } else {
      EXPECT_EQ(made[i], 1) << i;
    }
  }
}

TEST(CompileCache, AProcessThatDiesWhileItMakesAProgramHoldsNobodyUp) {
  TempDir dir;
  const CacheEntry entry = EntryOf(1);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    Store cache(dir);
    if (cache.store->Lookup(entry.key, entry.canonical, true).has_value()) _exit(1);
    (void)!write(ready[1], "x", 1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(child, SIGKILL);
  });
  const auto start = std::chrono::steady_clock::now();
  Store cache(dir);
  EXPECT_FALSE(cache.store->Lookup(entry.key, entry.canonical, true).has_value());
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_GT(waited, std::chrono::milliseconds(50));
  EXPECT_LT(waited, std::chrono::seconds(10));
  killer.join();
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(CompileCache, HealsAFolderThatMayNotBeWrittenTo) {
  TempDir dir;
  // Root may write anywhere.
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(0, chown(dir.path().c_str(), kNobody, kNobody));
    ASSERT_EQ(0, seteuid(kNobody));
  }
  {
    Store cache(dir);
    const std::string folder = std::filesystem::path(PathOf(dir, 1)).parent_path();
    for (const mode_t mode : {0500, 0000, 0600, 0300}) {
      SCOPED_TRACE(absl::StrCat("mode ", absl::Hex(mode)));
      cache.store->Publish(EntryOf(1));
      cache.store->Drain();
      ASSERT_TRUE(cache.Has(1));
      ASSERT_EQ(0, chmod(folder.c_str(), mode));
      cache.store->Publish(EntryOf(1));
      cache.store->Drain();
      EXPECT_TRUE(cache.Has(1));
      if (mode != 0300) {
        struct stat info;
        ASSERT_EQ(0, stat(folder.c_str(), &info));
        EXPECT_EQ(0700u, info.st_mode & 0777);
      }
    }
    EXPECT_EQ(0u, cache.store->stats().store_failures);
  }
  if (root) {
    ASSERT_EQ(0, seteuid(0));
  }
}

TEST(CompileCache, ARelativeFolderIsThatOfTheBeginning) {
  TempDir dir;
  const std::string here = std::filesystem::current_path();
  std::filesystem::create_directory(dir / "other");
  std::filesystem::current_path(dir.path());
  const auto store = CompileCacheStore::Open({.directory = "cache"});
  std::filesystem::current_path(dir / "other");
  store->Publish(EntryOf(1));
  store->Drain();
  std::filesystem::current_path(here);
  EXPECT_EQ(store->stats().stores, 1u);
  EXPECT_TRUE(std::filesystem::exists(dir / "cache/v1"));
  EXPECT_FALSE(std::filesystem::exists(dir / "other/cache"));
  EXPECT_TRUE(store->Lookup(EntryOf(1).key, EntryOf(1).canonical).has_value());
}

TEST(CompileCache, ReadOnlyTouchesNothing) {
  TempDir dir;
  {
    Store cache(dir);
    cache.store->Publish(EntryOf(1));
    cache.store->Publish(EntryOf(2));
  }
  std::string bad = Contents(PathOf(dir, 2));
  bad[150] ^= 1;
  WriteContents(PathOf(dir, 2), bad);
  FaultyFileSystem fs;
  Store cache(dir, {.read_only = true, .fs = &fs});
  EXPECT_TRUE(cache.Has(1));
  EXPECT_FALSE(cache.Has(2));
  cache.store->Publish(EntryOf(3));
  cache.store->Drain();
  EXPECT_FALSE(cache.Has(3));
  EXPECT_EQ(Contents(PathOf(dir, 2)), bad);
  EXPECT_FALSE(std::filesystem::exists(dir / "v1/bad"));
  EXPECT_EQ(cache.store->stats().stores, 0u);

  TempDir parent;
  CompileCacheOptions options = {.directory = parent / "none", .read_only = true};
  const auto missing = CompileCacheStore::Open(options);
  EXPECT_FALSE(missing->Lookup(EntryOf(1).key, "").has_value());
  EXPECT_FALSE(std::filesystem::exists(parent / "none"));
  EXPECT_THAT(missing->stats().disabled_reason, HasSubstr("No such file or directory"));
}

TEST(CompileCache, ADirectoryThatCannotBeMadeOrWrittenIsAWarningAndACounter) {
  TempDir dir;
  WriteContents(dir / "file", "not a directory");
  std::vector<std::string> warnings;
  CompileCacheOptions options = {.directory = dir / "file/cache"};
  options.warn = [&](std::string_view text) { warnings.emplace_back(text); };
  {
    const auto store = CompileCacheStore::Open(options);
    store->Publish(EntryOf(1));
    store->Publish(EntryOf(2));
    store->Drain();
    EXPECT_EQ(store->stats().store_failures, 2u);
    EXPECT_FALSE(store->Lookup(EntryOf(1).key, EntryOf(1).canonical).has_value());
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("is not used: cannot create the directory"));
}

TEST(CompileCache, EveryFailingCallIsAMissOrAStoreFailureNothingElse) {
  TempDir dir;
  for (int error : testing::FaultErrors({EIO, ENOSPC, EACCES, EROFS})) {
    for (const auto fault : {FaultyFileSystem::Fault::kOnce, FaultyFileSystem::Fault::kForever}) {
      for (int64_t n = 1; n < 60; ++n) {
        std::filesystem::remove_all(dir / "v1");
        FaultyFileSystem fs;
        fs.Arm(n, error, fault);
        {
          Store cache(dir, {.fs = &fs});
          cache.store->Publish(EntryOf(1));
          cache.store->Drain();
          cache.Has(1);
          const CompileCacheStats stats = cache.store->stats();
          EXPECT_EQ(stats.hits + stats.misses, 1u);
          EXPECT_EQ(stats.stores + stats.store_failures, 1u);
        }
        const bool hit = fs.hit();
        // Whatever happened, what is on disk is right or seen to be wrong.
        Store check(dir);
        check.Has(1);
        EXPECT_EQ(check.store->stats().corrupt, 0u);
        if (!hit) break;
      }
    }
  }
}

TEST(CompileCache, ForgetsTheLeastRecentlyUsedPastItsSize) {
  TempDir dir;
  {
    Store cache(dir);
    for (uint64_t i = 1; i <= 10; ++i) cache.store->Publish(EntryOf(i, 10'000));
  }
  for (uint64_t i = 1; i <= 10; ++i) {
    const timespec times[2] = {{1'700'000'000 + static_cast<time_t>(i), 0}, {1'700'000'000 + static_cast<time_t>(i), 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, PathOf(dir, i).c_str(), times, 0), 0);
  }
  uint64_t bytes = 0;
  for (uint64_t i = 1; i <= 10; ++i) bytes += std::filesystem::file_size(PathOf(dir, i));
  Store cache(dir, {.max_bytes = bytes});
  EXPECT_TRUE(cache.Has(1));  // the oldest; its hit makes it the youngest
  cache.store->Publish(EntryOf(11, 10'000));
  cache.store->Drain();
  EXPECT_GT(cache.store->stats().evictions, 0u);
  EXPECT_TRUE(cache.Has(11));
  EXPECT_TRUE(cache.Has(1));
  EXPECT_FALSE(cache.Has(2));
  EXPECT_TRUE(cache.Has(10));
  for (uint64_t i = 12; i <= 60; ++i) cache.store->Publish(EntryOf(i, 10'000));
  cache.store->Drain();
  uint64_t after = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir / "v1")) {
    if (file.is_regular_file()) after += file.file_size();
  }
  EXPECT_LE(after, bytes);
  EXPECT_TRUE(cache.Has(60));
}

TEST(CompileCache, RemovesWhatKilledProcessesLeft) {
  TempDir dir;
  { Store(dir).store->Publish(EntryOf(1)); }
  const std::string folder = std::filesystem::path(PathOf(dir, 1)).parent_path();
  const std::string old = folder + "/.a.tce." + std::string(32, '0') + ".tmp", young = folder + "/.b.tce." + std::string(32, '0') + ".tmp";
  WriteContents(old, "half an entry");
  WriteContents(young, "half an entry");
  const timespec long_ago[2] = {{1'700'000'000, 0}, {1'700'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, old.c_str(), long_ago, 0), 0);
  Store cache(dir);
  cache.store->Publish(EntryOf(2));
  cache.store->Drain();
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_TRUE(cache.Has(1));
}

TEST(CompileCache, ManyThreadsAndProcessesNeverSeeATornEntry) {
  TempDir dir;
  const auto stress = [&](uint64_t seed) {
    Store cache(dir, {.max_bytes = 60'000});
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        uint64_t random = seed * 2 + t + 1;
        for (int i = 0; i < 300; ++i) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          const uint64_t number = (random >> 33) % 20;
          if (i % 3 == 0) {
            cache.store->Publish(EntryOf(number, 5000));
            if (i % 12 == 0) cache.store->Drain();  // or all lookups are done before the first entry is written
          } else {
            const CacheEntry want = EntryOf(number, 5000);
            const auto got = cache.store->Lookup(want.key, want.canonical);
            if (got.has_value() && got->sections != want.sections) std::abort();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    cache.store->Drain();
    const CompileCacheStats stats = cache.store->stats();
    const bool good = stats.corrupt == 0 && stats.store_failures == 0 && stats.read_failures == 0 && stats.hits > 0;
    if (!good) {
      std::fprintf(stderr, "%zu corrupt, %zu store failures, %zu read failures, %zu hits\n", size_t{stats.corrupt},
                   size_t{stats.store_failures}, size_t{stats.read_failures}, size_t{stats.hits});
      for (const std::string& warning : cache.warnings) std::fprintf(stderr, "%s\n", warning.c_str());
    }
    return good;
  };
  std::vector<pid_t> children;
  for (uint64_t i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(stress(i) ? 0 : 1);
    children.push_back(child);
  }
  EXPECT_TRUE(stress(77));
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(CompileCache, WorksInAChildAfterAFork) {
  TempDir dir;
  Store cache(dir);
  cache.store->Publish(EntryOf(1));
  cache.store->Drain();
  const pid_t child = fork();
  if (child == 0) {
    cache.store->Publish(EntryOf(2));
    cache.store->Drain();
    _exit(cache.Has(1) && cache.Has(2) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(cache.Has(2));
}

TEST(CompileCache, DefaultDirectoryFollowsTheEnvironment) {
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(DefaultCompileCacheDirectory(), "/somewhere/weft");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(DefaultCompileCacheDirectory(), "/home/me/.cache/weft");
}

}  // namespace
}  // namespace weft::testing
