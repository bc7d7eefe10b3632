// Damaged files, failing storage, full disks: a clear error each time, the old file intact, no temporary left.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "serialization/framing.h"
#include "tests/serialization/checkpoint_support.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/one_file.h"
#include "tests/support/temp_dir.h"

namespace weft::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string SmallFile() {
  TempDir dir;
  State state = SmallState();
  EXPECT_TRUE(SaveCheckpoint(dir / "a", state.tree, state, {}).ok());
  return Contents(dir / "a");
}

bool IsClear(const absl::Status& status) {
  const auto code = status.code();
  const bool right_code = code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kInvalidArgument ||
                          code == absl::StatusCode::kUnimplemented;
  return right_code && absl::StrContains(status.message(), "'file'");
}

absl::Status Stream(OneFile& file) {
  file.Rewind();
  return ReadCheckpointStream(3, "file", {}, &file).status();
}

TEST(CheckpointDamage, EveryTruncationIsRefusedByFileAndStreamReaders) {
  OneFile file;
  const std::string good = SmallFile();
  for (size_t size = 0; size < good.size(); ++size) {
    file.bytes = good.substr(0, size);
    const absl::Status open = OpenAndReadAll("file", &file);
    ASSERT_TRUE(IsClear(open)) << size << ": " << open;
    const absl::Status stream = Stream(file);
    ASSERT_TRUE(IsClear(stream)) << size << ": " << stream;
  }
}

TEST(CheckpointDamage, EveryFlippedBitIsDetectedByFileAndStreamReaders) {
  OneFile file;
  file.bytes = SmallFile();
  ASSERT_TRUE(OpenAndReadAll("file", &file).ok());
  ASSERT_TRUE(Stream(file).ok());
  for (size_t i = 0; i < file.bytes.size() * 8; ++i) {
    file.bytes[i / 8] ^= static_cast<char>(1 << i % 8);
    const absl::Status open = OpenAndReadAll("file", &file);
    ASSERT_TRUE(IsClear(open)) << "bit " << i << ": " << open;
    const absl::Status stream = Stream(file);
    ASSERT_TRUE(IsClear(stream)) << "bit " << i << ": " << stream;
    file.bytes[i / 8] ^= static_cast<char>(1 << i % 8);
  }
}

TEST(CheckpointDamage, AFlippedBitInAnyByteOfAChunkedFileIsDetected) {
  TempDir dir;
  State state;
  state.AddTensor(0, "chunk", DType::kU8, {70'000});  // page aligned: 4 KiB of padding before it
  state.AddTensor(0, "packed", DType::kU8, {100});
  state.AddTensor(0, "packed2", DType::kU8, {100});
  ASSERT_TRUE(SaveCheckpoint(dir / "a", state.tree, state, {}).ok());
  OneFile file;
  file.bytes = Contents(dir / "a");
  const size_t payload = file.bytes.find(std::string(reinterpret_cast<const char*>(state.values[0].data()), 70'000));
  ASSERT_EQ(payload % 4096, 0u);
  for (size_t i = 0; i < file.bytes.size(); ++i) {
    if (i > payload && i < payload + 69'000) i += 96;  // bytes of one checksum are alike
    file.bytes[i] ^= static_cast<char>(1 << i % 8);
    ASSERT_TRUE(IsClear(OpenAndReadAll("file", &file))) << "byte " << i;
    ASSERT_TRUE(IsClear(Stream(file))) << "byte " << i;
    file.bytes[i] ^= static_cast<char>(1 << i % 8);
  }
}

TEST(CheckpointDamage, BytesAddedSwappedOrZeroedAreDetected) {
  OneFile file;
  const std::string good = SmallFile();
  for (const std::string& tail : {std::string(1, 'x'), std::string(64, '\0'), good}) {
    file.bytes = good + tail;
    EXPECT_TRUE(IsClear(OpenAndReadAll("file", &file)));
    EXPECT_TRUE(IsClear(Stream(file)));
  }
  for (size_t block = 0; block + 64 <= good.size(); block += 64) {
    file.bytes = good;
    file.bytes.replace(block, 64, 64, '\0');
    if (file.bytes != good) {
      EXPECT_TRUE(IsClear(OpenAndReadAll("file", &file))) << block;
    }
    if (block + 128 > good.size()) continue;
    file.bytes = good.substr(0, block) + good.substr(block + 64, 64) + good.substr(block, 64) + good.substr(block + 128);
    if (file.bytes != good) {
      EXPECT_TRUE(IsClear(OpenAndReadAll("file", &file))) << block;
    }
  }
}

TEST(CheckpointDamage, ErrorsNameFilePlaceAndReason) {
  TempDir dir;
  const std::string path = dir / "a";
  const auto message = [&](const std::string& bytes) {
    WriteContents(path, bytes);
    return std::string(OpenAndReadAll(path).message());
  };
  std::string good = SmallFile();
  EXPECT_EQ(message("hello"), "'" + path + "' is not a Weft checkpoint: it does not start with the checkpoint magic");
  EXPECT_EQ(message(""), "'" + path + "' is not a Weft checkpoint: it does not start with the checkpoint magic");
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), HasSubstr("the trailer is missing; the file is incomplete"));
  std::string bad = good;
  bad[good.size() - 100] ^= 1;
  EXPECT_THAT(message(bad), HasSubstr("the checksum of the footer does not match"));
  bad = good;
  bad[80] ^= 1;
  EXPECT_THAT(message(bad), HasSubstr("is damaged at byte 64: the checksum of a frame's prefix does not match"));
  bad = good;
  bad[20] = 4;  // a required feature nobody knows, with a right checksum
  const uint64_t hash = Checksum64(std::as_bytes(std::span(bad).subspan(0, 56)));
  std::memcpy(bad.data() + 56, &hash, 8);
  EXPECT_THAT(message(bad), HasSubstr("needs features that this library does not have"));
  EXPECT_THAT(std::string(OpenAndReadAll(dir / "none").message()),
              AnyOf("cannot open '" + (dir / "none") + "': No such file or directory (ENOENT)"));
  EXPECT_EQ(OpenAndReadAll(dir.path()).message(), "'" + dir.path() + "' is a directory, not a regular file");
}

TEST(CheckpointDamage, BoolsOtherThanZeroAndOneAreRefused) {
  TempDir dir;
  State state;
  state.AddTensor(0, "flags", DType::kBool, {3});
  state.values[0][1] = std::byte{2};
  ASSERT_TRUE(SaveCheckpoint(dir / "a", state.tree, state, {}).ok());
  EXPECT_THAT(std::string(OpenAndReadAll(dir / "a").message()),
              HasSubstr("tensor 'flags' of bool holds the byte 2; only 0 and 1 are allowed"));
}

TEST(CheckpointDamage, AFileOfALayoutBeforeTheFinalOneIsRefused) {
  OneFile file;
  file.bytes = SmallFile();
  file.bytes[16] = 1;  // the bit "unstable", with a right checksum
  file.bytes[12] = 12;
  const uint64_t hash = Checksum64(std::as_bytes(std::span(file.bytes).subspan(0, 56)));
  std::memcpy(file.bytes.data() + 56, &hash, 8);
  for (const absl::Status& status : {OpenAndReadAll("file", &file), Stream(file)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("was written before the format was final, marked unstable"));
  }
}

TEST(CheckpointDamage, WrongPlacesToSaveToAreNamed) {
  TempDir dir;
  State state = SmallState();
  const auto message = [&](const std::string& path) {
    return std::string(SaveCheckpoint(path, state.tree, state, {}).message());
  };
  EXPECT_THAT(message(dir / "no/a"), HasSubstr("the directory '" + (dir / "no") + "' does not exist"));
  EXPECT_THAT(message(dir.path()), HasSubstr("it is a directory"));
  EXPECT_THAT(message("/dev/null"), HasSubstr("it is not a regular file"));
  EXPECT_THAT(message(""), HasSubstr("does not name a file"));
  EXPECT_THAT(message(dir.path() + "/"), HasSubstr("does not name a file"));
  EXPECT_THAT(message("/proc/a"), HasSubstr("cannot create '/proc/.a."));
  ASSERT_EQ(symlink("elsewhere", (dir / "link").c_str()), 0);
  EXPECT_EQ(message(dir / "link"), "saving checkpoint '" + (dir / "link") + "': cannot write '" + (dir / "link") +
                                       "': it is a symbolic link, which the new file would replace; give the path that it leads to");
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(message(dir / "fifo"), HasSubstr("it is not a regular file"));
  EXPECT_EQ(CheckpointReader::Open(dir / "fifo").status().message(), "'" + (dir / "fifo") + "' is a FIFO, not a regular file");
}

// The state of these is 20 MB, so that direct I/O, reservation, the writer thread and both frame kinds take part.
State MediumState() {
  State state = SmallState();
  state.AddTensor(0, "large", DType::kU8, {20'000'000});
  return state;
}

void WalkFaults(State& state, FaultyFileSystem::Fault fault, int error) {
  TempDir dir;
  const std::string path = dir / "a";
  State old = SmallState();
  ASSERT_TRUE(SaveCheckpoint(path, old.tree, old, {}).ok());
  const std::string before = Contents(path);
  FaultyFileSystem fs;
  int survived = 0, failed = 0;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 2000);
    fs.Arm(n, error, fault);
    SaveOptions options;
    options.fs = &fs;
    const absl::Status status = SaveCheckpoint(path, state.tree, state, options);
    const std::string what = absl::StrCat("call ", n, " (", fs.failed_call(), "): ", status.ToString());
    if (!fs.hit()) {
      ASSERT_TRUE(status.ok()) << what;
      break;
    }
    // Only the sync of the directory reports an error when the new file is in place already.
    auto reader = CheckpointReader::Open(path);
    ASSERT_TRUE(reader.ok()) << what;
    const bool is_new = Contents(path) != before;
    if (status.ok()) {
      ASSERT_TRUE(is_new) << what;
      ++survived;  // calls that only make things nicer: cleaning, locking, reserving
    } else {
      ++failed;
      if (is_new) {
        ASSERT_THAT(std::string(status.message()), HasSubstr("make durable the names in")) << what;
      }
      ASSERT_THAT(std::string(status.message()), HasSubstr(path)) << what;
    }
    if (is_new) ExpectSameState(**reader, state);
    // Nothing can remove a file when unlink itself fails for ever.
    if (fault != FaultyFileSystem::Fault::kForever) {
      ASSERT_EQ(dir.Names().size(), 1u) << what;
    }
    for (const std::string& name : dir.Names()) {
      if (name != "a") std::filesystem::remove(dir / name);
    }
    WriteContents(path, before);
  }
  EXPECT_GT(failed, 5);
  if (fault == FaultyFileSystem::Fault::kOnce) {
    EXPECT_GT(survived, 0);
  }
  std::printf("%d faults: %d reported, %d harmless\n", failed + survived, failed, survived);
}

TEST(CheckpointFaults, EveryFailingCallOfASmallSaveLeavesOldOrNew) {
  State state = SmallState();
  state.AddTensor(0, "more", DType::kF32, {100});
  for (int error : FaultErrors({EIO, ENOSPC, EACCES, ENOMEM})) {
    WalkFaults(state, FaultyFileSystem::Fault::kOnce, error);
    WalkFaults(state, FaultyFileSystem::Fault::kForever, error);
  }
}

TEST(CheckpointFaults, EveryFailingCallOfALargerSaveLeavesOldOrNew) {
  State state = MediumState();
  WalkFaults(state, FaultyFileSystem::Fault::kOnce, EIO);
  WalkFaults(state, FaultyFileSystem::Fault::kForever, ENOSPC);
}

TEST(CheckpointFaults, InterruptedCallsAreRepeated) {
  TempDir dir;
  State state = SmallState();
  for (int64_t n = 1; n < 40; ++n) {
    FaultyFileSystem fs;
    fs.Arm(n, EINTR, FaultyFileSystem::Fault::kOnce);
    SaveOptions options;
    options.fs = &fs;
    const absl::Status status = SaveCheckpoint(dir / "a", state.tree, state, options);
    if (!fs.hit()) break;
    if (!status.ok()) {
      EXPECT_THAT(fs.failed_call(), AnyOf("fdatasync", "fsync", "rename", "stat", "fstat")) << status;
    }
  }
}

TEST(CheckpointFaults, ShortTransfersAreCompleted) {
  TempDir dir;
  State state = MediumState();
  FaultyFileSystem fs;
  fs.Arm(1, 0, FaultyFileSystem::Fault::kShort);
  SaveOptions options;
  options.fs = &fs;
  const absl::Status saved = SaveCheckpoint(dir / "a", state.tree, state, options);
  ASSERT_TRUE(saved.ok()) << saved;
  auto reader = CheckpointReader::Open(dir / "a", {.fs = &fs});
  ASSERT_TRUE(reader.ok()) << reader.status();
  ExpectSameState(**reader, state);
}

TEST(CheckpointFaults, EveryFailingReadIsReported) {
  TempDir dir;
  State state = SmallState();
  ASSERT_TRUE(SaveCheckpoint(dir / "a", state.tree, state, {}).ok());
  FaultyFileSystem fs;
  int failed = 0;
  for (int64_t n = 1;; ++n) {
    fs.Arm(n, EIO, FaultyFileSystem::Fault::kOnce);
    const absl::Status status = OpenAndReadAll(dir / "a", &fs);
    if (!fs.hit()) break;
    if (fs.failed_call() == "close") continue;  // closing a file that was only read cannot lose anything
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("Input/output error (EIO)"));
    ++failed;
  }
  EXPECT_GT(failed, 5);
}

TEST(CheckpointFaults, AFullDiskIsReportedAndTheOldFileStays) {
  TempDir dir;
  // Needs the right to mount; without it the walk above has injected ENOSPC at every call instead.
  if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs is not permitted here; ENOSPC is injected by EveryFailingCallOf…";
  }
  State small = SmallState();
  State large;
  large.AddTensor(0, "packed", DType::kU8, {60'000});
  large.AddTensor(0, "large", DType::kU8, {3'000'000});
  State huge = MediumState();  // fails at the reservation already
  EXPECT_TRUE(SaveCheckpoint(dir / "a", small.tree, small, {}).ok());
  const std::string before = Contents(dir / "a");
  for (State* state : {&large, &huge}) {
    const absl::Status status = SaveCheckpoint(dir / "a", state->tree, *state, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device (ENOSPC)"));
    EXPECT_EQ(Contents(dir / "a"), before);
    EXPECT_EQ(dir.Names().size(), 1u);
  }
  umount(dir.path().c_str());
}

TEST(CheckpointFaults, AFileSizeLimitIsAnErrorNotASignal) {
  TempDir dir;
  State state;
  state.AddTensor(0, "large", DType::kU8, {3'000'000});
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status status = SaveCheckpoint(dir / "a", state.tree, state, {});
    _exit(absl::StrContains(status.message(), "File too large (EFBIG)") ? 7 : 8);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 7) << result;
  EXPECT_TRUE(dir.Names().empty());
}

TEST(CheckpointFaults, AKilledSaveLeavesTheOldFile) {
  TempDir dir;
  State old = SmallState();
  ASSERT_TRUE(SaveCheckpoint(dir / "a", old.tree, old, {}).ok());
  State state = MediumState();
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) (void)SaveCheckpoint(dir / "a", state.tree, state, {});
    }
    usleep(static_cast<useconds_t>(3000 + round * 7000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    auto reader = CheckpointReader::Open(dir / "a");
    ASSERT_TRUE(reader.ok()) << reader.status();
    ExpectSameState(**reader, (*reader)->tensor_count() == old.values.size() ? old : state);
  }
  ASSERT_TRUE(SaveCheckpoint(dir / "a", old.tree, old, {}).ok());
  EXPECT_EQ(dir.Names().size(), 1u);  // what the killed ones left is gone
}

}  // namespace
}  // namespace weft::testing
