// Checkpoints of several processes: a plan gives each process its parts, reports travel between processes, and shards that no manifest
// names are deleted.
#include "serialization/checkpoint_shards.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "serialization/framing.h"

namespace weft {
namespace {

using Plan = std::vector<std::vector<ShardPiece>>;

// Every byte of a tensor that is not the manifest's is in one piece, pieces begin at parts, and none is so small that a pack would take it.
void CheckPlan(const std::vector<ShardedTensor>& tensors, const Plan& plan) {
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (size_t process = 0; process < plan.size(); ++process) {
      for (const ShardPiece& piece : plan[process]) {
        if (piece.tensor != i) continue;
        EXPECT_EQ(piece.offset % kSumBytes, 0u);
        EXPECT_GE(piece.bytes, kLargePayload);
        if (tensors[i].part_bytes != 0) {
          EXPECT_EQ(piece.offset / tensors[i].part_bytes, process);
        }
        found.emplace_back(piece.offset, piece.bytes);
      }
    }
    if (IsInManifest(tensors[i].bytes)) {
      EXPECT_TRUE(found.empty());
      continue;
    }
    std::ranges::sort(found);
    uint64_t at = 0;
    for (const auto& [offset, bytes] : found) {
      EXPECT_EQ(offset, at);
      at += bytes;
    }
    EXPECT_EQ(at, tensors[i].bytes);
  }
}

TEST(CheckpointShards, EveryByteIsInOnePiece) {
  const unsigned seed = 41;
  std::mt19937 random(seed);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<ShardedTensor> tensors;
    const int processes = 1 + static_cast<int>(random() % 9);
    for (unsigned count = random() % 12; count > 0; --count) {
      const uint64_t bytes = random() % (turn % 2 == 0 ? 200'000 : 60'000'000);
      const uint64_t part = (bytes + static_cast<uint64_t>(processes) - 1) / static_cast<uint64_t>(processes);
      tensors.push_back({.bytes = bytes, .part_bytes = random() % 2 == 0 ? 0 : part});
    }
    const absl::StatusOr<Plan> plan = PlanShards(tensors, processes);
    ASSERT_TRUE(plan.ok()) << plan.status() << " seed " << seed << " turn " << turn;
    CheckPlan(tensors, *plan);
  }
}

TEST(CheckpointShards, WhatAllHaveIsSharedOutEvenly) {
  const std::vector<ShardedTensor> tensors = {{.bytes = 400 << 20}, {.bytes = 1 << 20}, {.bytes = 100}};
  const absl::StatusOr<Plan> plan = PlanShards(tensors, 4);
  ASSERT_TRUE(plan.ok());
  for (const std::vector<ShardPiece>& pieces : *plan) {
    uint64_t bytes = 0;
    for (const ShardPiece& piece : pieces) bytes += piece.bytes;
    EXPECT_NEAR(static_cast<double>(bytes), 401 * 262144.0, 2 * kSumBytes);
  }
}

TEST(CheckpointShards, RefusesWhatItDoesNotHave) {
  const std::vector<ShardedTensor> large = {{.bytes = (kSumBytes * kMostSums) + 1}};
  EXPECT_EQ(PlanShards(large, 2).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(PlanShards({}, 257).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(CheckpointShards, ReportsComeAsTheyWere) {
  ShardReport report{.status = absl::NotFoundError("no \"folder\"\n"), .file = {.name = "a.1-of-2.ab"}, .places = {}};
  report.file.uuid[3] = std::byte{7};
  report.places.push_back({.payload = 65536, .bytes = 4 << 20, .sum = ~uint64_t{0}});
  const std::string bytes = EncodeReport(report);
  const absl::StatusOr<ShardReport> back = DecodeReport(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->status, report.status);
  EXPECT_EQ(back->file, report.file);
  EXPECT_EQ(back->places, report.places);
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(DecodeReport(bytes.substr(0, size)).ok()) << size;
  EXPECT_FALSE(DecodeReport(bytes + "x").ok());
}

TEST(CheckpointShards, OnlyShardsOfTheCheckpointGo) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weft_shards";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const auto hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(61);
  const std::string number = "0123456789abcdef";
  const std::string old = "run.weft.0-of-2." + number, kept = "run.weft.1-of-2." + number, dead = "run.weft.1-of-4." + number,
                    fresh = "run.weft.2-of-4." + number;
  const std::string others[] = {"run.weft.old", "run.weft2.0-of-2." + number, "run.weft.0-of-2.0123", "run.weft.a-of-2." + number,
                                "run.weft.0-of-2." + number + ".bak"};
  for (const std::string& name : {old, kept, dead, fresh}) std::ofstream(folder / name) << "x";
  for (const std::string& name : others) std::ofstream(folder / name) << "x";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() != fresh) std::filesystem::last_write_time(entry, hour_ago);
  }
  const absl::StatusOr<FilePlace> place = PlaceOfCheckpoint((folder / "run.weft").string());
  ASSERT_TRUE(place.ok());
  RemoveShards(*place, std::vector<std::string>{kept}, std::vector<std::string>{old});
  EXPECT_FALSE(std::filesystem::exists(folder / old));
  EXPECT_FALSE(std::filesystem::exists(folder / dead));
  EXPECT_TRUE(std::filesystem::exists(folder / kept));
  EXPECT_TRUE(std::filesystem::exists(folder / fresh));
  for (const std::string& name : others) EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft
