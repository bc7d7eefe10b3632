// Tensors in parts: compressed, taken from a file before, through pipes; failing storage and killed processes leave a whole file.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "serialization/checkpoint_parts.h"
#include "serialization/framing.h"
#include "tests/serialization/checkpoint_support.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/one_file.h"
#include "tests/support/temp_dir.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// Tensors with one, two and three parts; noise that stays as it is, and small numbers that zstd likes.
State PartedState(uint32_t seed = 1) {
  State state;
  state.AddTensor(0, "noise", DType::kF32, {20'000});
  state.AddTensor(0, "two", DType::kBF16, {(5 << 20) / 2});
  state.AddTensor(0, "three", DType::kI32, {(9 << 20) / 4 + 3});
  state.AddTensor(0, "small", DType::kF64, {11});
  for (size_t i = 1; i < 3; ++i) {
    std::vector<std::byte>& bytes = state.values[i];
    for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<std::byte>(k % 4 == 0 ? (k >> 6) + seed : 0);
  }
  return state;
}

absl::Status Save(const std::string& path, State& state, bool compress, const std::string& base = "",
                  FileSystem* fs = nullptr) {
  SaveOptions options;
  options.fs = fs;
  options.compress = compress;
  options.base = base;
  options.durability = fs == nullptr ? Durability::kProcess : Durability::kPower;
  return SaveCheckpoint(path, state.tree, state, options);
}

TEST(CheckpointParts, ComeBackFromAFileAndInAnyPiece) {
  TempDir dir;
  State state = PartedState();
  ASSERT_TRUE(Save(dir / "plain", state, false).ok());
  ASSERT_TRUE(Save(dir / "small", state, true).ok());
  EXPECT_LT(std::filesystem::file_size(dir / "small") * 4, std::filesystem::file_size(dir / "plain"));
  State changed = PartedState();
  changed.values[2][(6 << 20) + 1] ^= std::byte{1};  // in the second of its parts
  ASSERT_TRUE(Save(dir / "next", changed, false, "small").ok());
  EXPECT_LT(std::filesystem::file_size(dir / "next"), uint64_t{5} << 20);
  for (const Verify verify : {Verify::kAll, Verify::kUse, Verify::kOff}) {
    for (const auto& [name, of] : {std::pair("small", &state), std::pair("next", &changed)}) {
      auto reader = CheckpointReader::Open(dir / name, {.verify = verify});
      ASSERT_TRUE(reader.ok()) << reader.status();
      ASSERT_TRUE((*reader)->LoadAll().ok());
      ExpectSameState(**reader, *of);
      EXPECT_TRUE((*reader)->VerifyPayloads().ok());
      std::minstd_rand random(7);
      for (int i = 0; i < 60; ++i) {
        const uint32_t id = i % 3;
        const std::vector<std::byte>& all = of->values[id];
        const uint64_t offset = random() % all.size(), size = std::min<uint64_t>(random() % (5 << 20), all.size() - offset);
        std::vector<std::byte> out(size);
        ASSERT_TRUE((*reader)->ReadPart(id, offset, out).ok());
        ASSERT_TRUE(std::equal(out.begin(), out.end(), all.begin() + static_cast<ptrdiff_t>(offset)));
      }
    }
  }
}

TEST(CheckpointParts, GoThroughAPipe) {
  State state = PartedState();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  absl::Status sent;
  std::thread sender([&] {
    SaveOptions options;
    options.compress = true;
    sent = StreamCheckpoint(ends[1], "pipe", state.tree, state, options);
    close(ends[1]);
  });
  std::vector<std::vector<std::byte>> found(state.values.size());
  StreamHandler handler;
  handler.tensor = [&](const TensorRecord& tensor) { return found[tensor.id].resize(tensor.bytes), absl::OkStatus(); };
  handler.piece = [&](uint32_t id, uint64_t offset, std::span<const std::byte> data) {
    std::copy(data.begin(), data.end(), found[id].begin() + static_cast<ptrdiff_t>(offset));
    return absl::OkStatus();
  };
  const auto result = ReadCheckpointStream(ends[0], "pipe", handler);
  sender.join();
  close(ends[0]);
  ASSERT_TRUE(sent.ok()) << sent;
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->tree == state.tree);
  EXPECT_TRUE(found == state.values);
}

TEST(CheckpointParts, AreRefusedWhenAnyBitIsFlippedOrTheFileIsCut) {
  TempDir dir;
  State state;
  state.AddTensor(0, "a", DType::kF32, {20'000});
  for (size_t k = 0; k < 80'000; ++k) state.values[0][k] = static_cast<std::byte>(k % 400 == 0 ? k / 400 : 0);
  state.AddTensor(0, "b", DType::kU8, {70'000});
  ASSERT_TRUE(Save(dir / "a", state, true).ok());
  OneFile file;
  file.bytes = Contents(dir / "a");
  const std::string good = file.bytes;
  const auto stream = [&] {
    file.Rewind();
    return ReadCheckpointStream(3, "file", {}, &file).status();
  };
  ASSERT_TRUE(OpenAndReadAll("file", &file).ok());
  ASSERT_TRUE(stream().ok());
  std::minstd_rand random(11);
  for (int i = 0; i < 3000; ++i) {
    const size_t at = i < 1500 ? static_cast<size_t>(i) % 600 * 8 + random() % 8 : random() % good.size();
    file.bytes[at] = static_cast<char>(file.bytes[at] ^ 1 << random() % 8);
    ASSERT_FALSE(OpenAndReadAll("file", &file).ok()) << at;
    ASSERT_FALSE(stream().ok()) << at;
    file.bytes[at] = good[at];
  }
  for (size_t size = 0; size < good.size(); size += 997) {
    file.bytes.resize(size);
    ASSERT_FALSE(OpenAndReadAll("file", &file).ok()) << size;
    ASSERT_FALSE(stream().ok()) << size;
    file.bytes = good;
  }
  // A hostile file has checksums that match: the code behind them meets damaged bytes here.
  IgnoreChecksumsForFuzzing(true);
  for (int i = 0; i < 3000; ++i) {
    const size_t at = random() % good.size();
    file.bytes[at] = static_cast<char>(random());
    (void)OpenAndReadAll("file", &file);
    (void)stream();
    file.bytes[at] = good[at];
  }
  IgnoreChecksumsForFuzzing(false);
}

TEST(CheckpointParts, ExpandOnlyToTheLengthThatIsKnown) {
  std::vector<std::byte> raw(1 << 16), out(raw.size());
  PartCompressor compressor;
  const auto stored = compressor.Compress(DType::kF32, raw);
  ASSERT_TRUE(stored.ok() && !stored->empty());
  const std::vector<std::byte> kept(stored->begin(), stored->end());
  const auto expand = [&](std::span<const std::byte> bytes, size_t length, PartCodec codec = PartCodec::kZstd) {
    return ExpandPart(codec, DType::kF32, bytes, std::span(out).first(length), "file", 64);
  };
  EXPECT_TRUE(expand(kept, raw.size()).ok());
  std::vector<std::byte> longer = kept;
  longer.push_back(std::byte{0});
  std::vector<std::byte> twice = kept;
  twice.insert(twice.end(), kept.begin(), kept.end());
  for (const absl::Status& bad : {expand(kept, raw.size() - 4), expand(longer, raw.size()), expand(twice, raw.size()),
                                  expand(std::span(kept).first(kept.size() - 1), raw.size()), expand({}, raw.size()),
                                  expand(kept, raw.size(), PartCodec::kNone),
                                  expand(kept, raw.size(), static_cast<PartCodec>(7))}) {
    EXPECT_EQ(bad.code(), absl::StatusCode::kDataLoss) << bad;
    EXPECT_THAT(std::string(bad.message()), HasSubstr("'file' is damaged at byte 64"));
  }
}

// The N-th call of a save that compresses and takes parts over fails: the old file or the new one, and the base as it was.
TEST(CheckpointFaults, EveryFailingCallOfASaveWithPartsLeavesOldOrNew) {
  State before, old = SmallState();
  before.AddTensor(0, "same", DType::kF32, {20'000});
  before.AddTensor(0, "other", DType::kI32, {1 << 18});
  for (size_t k = 0; k < before.values[1].size(); ++k) before.values[1][k] = static_cast<std::byte>(k % 4 == 0 ? k >> 8 : 0);
  State state = before;
  state.values[1][5] ^= std::byte{1};
  int failed = 0, survived = 0;
  for (const int error : FaultErrors({EIO, ENOSPC})) {
    for (const auto fault : {FaultyFileSystem::Fault::kOnce, FaultyFileSystem::Fault::kForever}) {
      TempDir dir;
      ASSERT_TRUE(Save(dir / "base", before, true).ok());
      for (int64_t n = 1;; ++n) {
        ASSERT_TRUE(Save(dir / "a", old, false).ok());
        FaultyFileSystem fs;
        fs.In(fault == FaultyFileSystem::Fault::kOnce ? "parts, once" : "parts, for ever");
        fs.Arm(n, error, fault);
        const absl::Status status = Save(dir / "a", state, true, "base", &fs);
        const std::string what = absl::StrCat("call ", n, " (", fs.failed_call(), "), errno ", error, ": ", status.ToString());
        fs.Disarm();
        auto reader = CheckpointReader::Open(dir / "a");
        ASSERT_TRUE(reader.ok()) << what;
        const bool is_new = (*reader)->tensor_count() == state.values.size();
        ExpectSameState(**reader, is_new ? state : old);
        if (!fs.hit()) break;
        ASSERT_TRUE(is_new || !status.ok()) << what;
        if (!status.ok()) {
          ASSERT_THAT(std::string(status.message()), HasSubstr(dir / "a")) << what;
        }
        ++(status.ok() ? survived : failed);
        for (const std::string& name : dir.Names()) {
          if (name == "a" || name == "base") continue;
          ASSERT_TRUE(fault == FaultyFileSystem::Fault::kForever) << what << name;
          std::filesystem::remove(dir / name);
        }
      }
      ASSERT_TRUE(OpenAndReadAll(dir / "base").ok());
    }
  }
  EXPECT_GT(failed, 20);
  EXPECT_GT(survived, 5);  // without what only makes things nicer, and with parts of a base that cannot be read written anew
}

// A process that saves one state after the other, plain, compressed, upon a base, synced and not, dies at any moment. WEFT_FULL_KILLS
// says how often.
TEST(CheckpointFaults, AProcessKilledAtAnyMomentLeavesAWholeFile) {
  const char* const full = std::getenv("WEFT_FULL_KILLS");
  const int kills = full != nullptr ? std::atoi(full) : 30;
  TempDir dir;
  State states[] = {PartedState(1), PartedState(2), SmallState()};
  ASSERT_TRUE(Save(dir / "base", states[0], true).ok());
  ASSERT_TRUE(Save(dir / "a", states[2], false).ok());
  const uint32_t seed = static_cast<uint32_t>(getpid());
  std::printf("seed %u\n", seed);
  std::minstd_rand random(seed);
  const auto from = std::chrono::steady_clock::now();
  for (State& state : states) ASSERT_TRUE(Save(dir / "measured", state, true, "", PosixFileSystem()).ok());
  const auto most = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - from) * 2;
  std::filesystem::remove(dir / "measured");
  int found[3] = {};
  for (int round = 0; round < kills; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (uint32_t i = static_cast<uint32_t>(round);; ++i) {
        SaveOptions options;
        options.compress = i % 3 == 1;
        options.base = i % 4 == 2 ? "base" : "";
        options.durability = i % 5 < 3 ? Durability::kPower : Durability::kProcess;
        State& state = states[i % 3];
        if (!SaveCheckpoint(dir / "a", state.tree, state, options).ok()) _exit(1);
      }
    }
    usleep(static_cast<useconds_t>(random() % most.count()));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int how = 0;
    waitpid(child, &how, 0);
    ASSERT_TRUE(WIFSIGNALED(how)) << "the saver ended by itself";
    auto reader = CheckpointReader::Open(dir / "a");
    ASSERT_TRUE(reader.ok()) << reader.status();
    const size_t which = (*reader)->tensor_count() != states[0].values.size() ? 2 : [&]() -> size_t {
      std::byte first[1];
      EXPECT_TRUE((*reader)->ReadPart(1, 0, first).ok());
      return first[0] == states[0].values[1][0] ? 0 : 1;
    }();
    ++found[which];
    ExpectSameState(**reader, states[which]);
  }
  EXPECT_GT((found[0] > 0) + (found[1] > 0) + (found[2] > 0), 1);
  std::printf("%d kills left a file whole; found: %d, %d, %d\n", kills, found[0], found[1], found[2]);
  ASSERT_TRUE(Save(dir / "a", states[2], false).ok());
  EXPECT_THAT(dir.Names(), ::testing::UnorderedElementsAre("a", "base"));  // what the killed ones left is gone
}

}  // namespace
}  // namespace weft::testing
