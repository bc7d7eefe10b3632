// Figures of the writer and reader by themselves, without the engine. Not part of a normal run:
//   weft_test_serialization --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_Measure*'
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "src/runtime/alloc_hook.h"
#include "tests/serialization/checkpoint_support.h"
#include "tests/support/temp_dir.h"

namespace weft::testing {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

long StatusKiB(const char* field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(field)) return std::stol(line.substr(std::strlen(field) + 1));
  }
  return 0;
}

// Bytes that exist nowhere else: a copy out of 16 MiB of noise, as from a tensor in memory.
struct Noise : TensorSource {
  std::vector<std::byte> noise;
  Noise() : noise(16 << 20) {
    std::minstd_rand random(7);
    for (std::byte& b : noise) b = static_cast<std::byte>(random() >> 7);
  }
  absl::Status Read(uint32_t, uint64_t offset, std::span<std::byte> out) override {
    const size_t at = static_cast<size_t>(offset % (8 << 20));
    std::memcpy(out.data(), noise.data() + at, out.size());
    return absl::OkStatus();
  }
};

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void DropCache(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  fsync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

TEST(DISABLED_Measure, OneTensorOfFourGiB) {
  TempDir dir;
  Noise source;
  Tree tree;
  ASSERT_TRUE(tree.Add(0, "w", Tree::Tensor(DType::kF32, std::vector<int64_t>{1 << 20, 1 << 10})).ok());
  const long before = StatusKiB("VmHWM:");
  SaveStats stats;
  const double power = Seconds([&] { ASSERT_TRUE(SaveCheckpoint(dir / "a", tree, source, {}, &stats).ok()); });
  std::printf("save 4 GiB, durable:     %.2f GB/s, writer memory %.1f MiB, direct %d\n", stats.file_bytes / power / 1e9,
              static_cast<double>(StatusKiB("VmHWM:") - before) / 1024, stats.direct);
}

TEST(DISABLED_Measure, SavesAndLoadsOfFourGiBInSixteenTensors) {
  TempDir dir;
  Noise source;
  Tree tree;
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(tree.Add(0, absl::StrCat("w", i), Tree::Tensor(DType::kF32, std::vector<int64_t>{1 << 16, 1 << 10})).ok());
  }
  const size_t bytes = 256 << 20;
  auto* memory = static_cast<std::byte*>(AllocateLarge(bytes, 4096));
  std::memset(memory, 1, bytes);
  for (int round = 0; round < 3; ++round) {
    SaveStats stats;
    const double power = Seconds([&] { ASSERT_TRUE(SaveCheckpoint(dir / "a", tree, source, {}, &stats).ok()); });
    const double process = Seconds([&] {
      ASSERT_TRUE(SaveCheckpoint(dir / "a", tree, source, {.durability = Durability::kProcess}, &stats).ok());
    });
    const auto load = [&] {
      auto reader = CheckpointReader::Open(dir / "a");
      ASSERT_TRUE(reader.ok());
      for (uint32_t i = 0; i < 16; ++i) ASSERT_TRUE((*reader)->ReadTensor(i, {memory, bytes}).ok());
    };
    DropCache(dir / "a");
    const double cold = Seconds(load);
    const double warm = Seconds(load);
    const double open = Seconds([&] { ASSERT_TRUE(CheckpointReader::Open(dir / "a").ok()); });
    std::printf("save durable %.2f, not synced %.2f; load cold %.2f, warm %.2f GB/s; open %.1f ms\n", 4 * kGiB / power / 1e9,
                4 * kGiB / process / 1e9, 4 * kGiB / cold / 1e9, 4 * kGiB / warm / 1e9, open * 1e3);
  }
  FreeLarge(memory, bytes);
}

TEST(DISABLED_Measure, AHundredThousandTensorsOfOneKiB) {
  TempDir dir;
  Noise source;
  Tree tree;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(tree.Add(0, absl::StrCat("layer.", i), Tree::Tensor(DType::kF32, std::vector<int64_t>{256})).ok());
  }
  const long before = StatusKiB("VmHWM:");
  SaveStats stats;
  const double save = Seconds([&] { ASSERT_TRUE(SaveCheckpoint(dir / "a", tree, source, {}, &stats).ok()); });
  std::printf("100,000 x 1 KiB: save %.0f ms, file overhead %.1f %%, writer memory %.1f MiB; ", save * 1e3,
              100.0 * static_cast<double>(stats.file_bytes - stats.tensor_bytes) / static_cast<double>(stats.tensor_bytes),
              static_cast<double>(StatusKiB("VmHWM:") - before) / 1024);
  const double open = Seconds([&] { ASSERT_TRUE(CheckpointReader::Open(dir / "a").ok()); });
  const double all = Seconds([&] { ASSERT_TRUE(OpenAndReadAll(dir / "a").ok()); });
  std::printf("open %.0f ms, open and read all %.0f ms\n", open * 1e3, all * 1e3);
}

}  // namespace
}  // namespace weft::testing
