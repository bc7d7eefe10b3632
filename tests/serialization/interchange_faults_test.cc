// Other people's formats when storage fails: each call of a save and of a load in turn. The old file or the new one is there, whole;
// nothing is left beside it; a load gives an error or the right bytes.
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "serialization/checkpoint_salvage.h"
#include "serialization/interchange/convert.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/tensor_file.h"
#include "tests/serialization/checkpoint_support.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using weft::testing::FaultErrors;
using weft::testing::FaultyFileSystem;
using weft::testing::State;
using weft::testing::TempDir;

constexpr FileFormat kWritten[] = {FileFormat::kSafetensors, FileFormat::kNpy, FileFormat::kNpz, FileFormat::kGguf};

// One tensor of more than a piece, and, where the format holds more, small ones.
State StateFor(FileFormat format) {
  State state;
  state.AddTensor(0, "large", DType::kI8, {5'000'000});
  if (format == FileFormat::kNpy) return state;
  state.AddTensor(0, "w.x", DType::kF32, {3, 5});
  state.AddTensor(0, "empty", DType::kI32, {0, 4});
  if (format != FileFormat::kGguf) state.AddTensor(0, "mask", DType::kBool, {7});
  return state;
}

absl::Status Save(FileFormat format, const std::string& path, State& state, FileSystem* fs) {
  WEFT_ASSIGN_OR_RETURN(FilePlace place, FilePlace::Find(fs, path));
  WEFT_ASSIGN_OR_RETURN(const FlatTree flat, FlattenFor(format, state.tree, {}, Tied::kRefuse));
  SaveOptions options;
  options.fs = fs;
  return SaveForeign(format, std::move(place), flat, state, options);
}

// Every tensor of the file is the state's. An .npy file calls its only one otherwise.
absl::Status Compare(const std::string& path, const State& state, FileSystem* fs) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorFile> file, OpenTensorFile(path, {.fs = fs}));
  EXPECT_EQ(file->tensor_count(), state.values.size());
  for (uint32_t i = 0; i < state.values.size(); ++i) {
    std::optional<uint32_t> id = 0;
    if (file->tensor_count() > 1) {
      WEFT_ASSIGN_OR_RETURN(id, file->Find(state.tree.PathOf(state.tree.tensors()[i].node)));
    }
    EXPECT_TRUE(id.has_value());
    std::vector<std::byte> bytes(file->tensor(*id).bytes);
    WEFT_RETURN_IF_ERROR(file->ReadTensor(*id, bytes));
    EXPECT_EQ(bytes, state.values[i]);
  }
  return absl::OkStatus();
}

void WalkSaves(FileFormat format, int error, FaultyFileSystem::Fault fault) {
  State state = StateFor(format);
  TempDir dir;
  const std::string path = dir / "a";
  std::ofstream(path) << "old";
  FaultyFileSystem fs;
  fs.In(std::string(NameOf(format)));
  int failed = 0;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 500);
    fs.Arm(n, error, fault);
    const absl::Status status = Save(format, path, state, &fs);
    if (!fs.hit()) {
      ASSERT_TRUE(status.ok()) << status;
      break;
    }
    const bool is_new = std::filesystem::file_size(path) != 3;
    ASSERT_TRUE(is_new || !status.ok()) << n;
    if (is_new) {
      ASSERT_TRUE(Compare(path, state, PosixFileSystem()).ok());
    }
    if (!status.ok()) {
      ++failed;
      ASSERT_THAT(std::string(status.message()), HasSubstr(path)) << n;
    }
    if (fault == FaultyFileSystem::Fault::kOnce) {
      ASSERT_EQ(dir.Names().size(), 1u) << fs.failed_call();
    }
    for (const std::string& name : dir.Names()) std::filesystem::remove(dir / name);
    std::ofstream(path) << "old";
  }
  EXPECT_GT(failed, 3) << NameOf(format);
}

TEST(InterchangeFaults, EveryFailingCallOfASaveLeavesOldOrNew) {
  for (const FileFormat format : kWritten) {
    for (const int error : FaultErrors({ENOSPC})) {
      WalkSaves(format, error, FaultyFileSystem::Fault::kOnce);
      WalkSaves(format, error, FaultyFileSystem::Fault::kForever);
    }
  }
}

void WalkLoads(FileFormat format, int error) {
  TempDir dir;
  const std::string path = dir / "a";
  State state = StateFor(format);
  ASSERT_TRUE(Save(format, path, state, PosixFileSystem()).ok());
  FaultyFileSystem fs;
  fs.In(std::string(NameOf(format)));
  int failed = 0;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 500);
    fs.Arm(n, error, FaultyFileSystem::Fault::kOnce);
    const absl::Status status = Compare(path, state, &fs);
    if (!fs.hit()) {
      ASSERT_TRUE(status.ok()) << status;
      break;
    }
    failed += status.ok() ? 0 : 1;
  }
  EXPECT_GT(failed, 2) << NameOf(format);
  fs.Arm(1, EINTR, FaultyFileSystem::Fault::kShort);
  EXPECT_TRUE(Compare(path, state, &fs).ok());
}

TEST(InterchangeFaults, EveryFailingOrShortCallOfALoadIsAnErrorOrNoMatter) {
  for (const FileFormat format : kWritten) {
    for (const int error : FaultErrors({EIO})) WalkLoads(format, error);
  }
}

TEST(InterchangeFaults, AFileCutShortAfterItWasOpenedIsAnError) {
  for (const FileFormat format : kWritten) {
    TempDir dir;
    const std::string path = dir / "a";
    State state = StateFor(format);
    ASSERT_TRUE(Save(format, path, state, PosixFileSystem()).ok());
    const auto file = OpenTensorFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    std::filesystem::resize_file(path, 1000);
    std::vector<std::byte> bytes(5'000'000);
    const std::optional<uint32_t> id = (*file)->Find(format == FileFormat::kNpy ? "arr_0" : "large").value();
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ((*file)->ReadTensor(*id, bytes).code(), absl::StatusCode::kDataLoss) << NameOf(format);
  }
}

void WalkConversions(const std::string& in, State& state, FileFormat wanted, const std::string& scenario, int error) {
  TempDir dir;
  const std::string path = dir / "a";
  FaultyFileSystem fs;
  fs.In(scenario);
  int failed = 0;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 1000);
    std::ofstream(path) << "old";
    fs.Arm(n, error, FaultyFileSystem::Fault::kOnce);
    const absl::Status status = [&]() -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorFile> file, OpenTensorFile(in, {.fs = &fs}));
      SaveOptions save;
      save.fs = &fs;
      return ConvertFile(*file, path, {.tensors = {}, .format = wanted}, save);
    }();
    if (std::filesystem::file_size(path) != 3) {
      ASSERT_TRUE(Compare(path, state, PosixFileSystem()).ok()) << n;
    } else {
      ASSERT_FALSE(status.ok()) << n;
    }
    failed += status.ok() ? 0 : 1;
    ASSERT_EQ(dir.Names().size(), 1u) << fs.failed_call();
    std::filesystem::remove(path);
    if (!fs.hit()) {
      ASSERT_TRUE(status.ok()) << status;
      break;
    }
  }
  EXPECT_GT(failed, 5) << scenario;
}

// From each format to each, in parts, with shards, and from a checkpoint.
TEST(InterchangeFaults, EveryFailingCallOfAConversionLeavesOldOrNew) {
  TempDir from;
  for (const FileFormat format : kWritten) {
    State state = StateFor(format);
    const std::string in = from / std::string(NameOf(format));
    ASSERT_TRUE(Save(format, in, state, PosixFileSystem()).ok());
    for (const FileFormat wanted : {FileFormat::kWeft, format}) {
      const std::string scenario = absl::StrCat(NameOf(format), " to ", NameOf(wanted));
      for (const int error : FaultErrors({EIO})) WalkConversions(in, state, wanted, scenario, error);
    }
  }
}

TEST(InterchangeFaults, ShardsThatCannotAllBeWrittenAreNotThere) {
  TempDir from, dir;
  State state = StateFor(FileFormat::kSafetensors);
  const std::string in = from / "in", path = dir / "a.safetensors.index.json";
  ASSERT_TRUE(Save(FileFormat::kSafetensors, in, state, PosixFileSystem()).ok());
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 1000);
    FaultyFileSystem fs;
    const auto file = OpenTensorFile(in);
    ASSERT_TRUE(file.ok());
    SaveOptions save;
    save.fs = &fs;
    fs.Arm(n, ENOSPC, FaultyFileSystem::Fault::kOnce);
    const absl::Status status =
        ConvertFile(**file, path, {.tensors = {}, .format = FileFormat::kSafetensors, .shard_bytes = 100}, save);
    if (status.ok()) {
      ASSERT_EQ(Compare(path, state, PosixFileSystem()), absl::OkStatus()) << fs.failed_call();
      if (!fs.hit()) break;
    } else if (std::filesystem::exists(path)) {  // its folder's sync, the last step
      ASSERT_TRUE(Compare(path, state, PosixFileSystem()).ok());
    } else {
      ASSERT_TRUE(dir.Names().empty() || fs.failed_call() == "unlink" || fs.failed_call() == "stat") << fs.failed_call();
    }
    for (const std::string& name : dir.Names()) std::filesystem::remove(dir / name);
  }
}

TEST(InterchangeFaults, EveryFailingCallOfASalvageLeavesOldOrNew) {
  TempDir from;
  State state = StateFor(FileFormat::kSafetensors);
  const std::string in = from / "in";
  ASSERT_TRUE(SaveCheckpoint(in, state.tree, state, {}).ok());
  for (const bool cut : {false, true}) {
    if (cut) std::filesystem::resize_file(in, std::filesystem::file_size(in) - 100);
    TempDir dir;
    const std::string path = dir / "a";
    FaultyFileSystem fs;
    for (int64_t n = 1;; ++n) {
      ASSERT_LT(n, 1000);
      std::ofstream(path) << "old";
      fs.Arm(n, ENOSPC, FaultyFileSystem::Fault::kOnce);
      SaveOptions save;
      save.fs = &fs;
      const absl::StatusOr<Salvaged> salvaged = SalvageCheckpoint(in, path, save);
      if (salvaged.ok()) {
        ASSERT_LE(salvaged->whole.size(), 4u);
        const auto file = OpenTensorFile(path);
        ASSERT_TRUE(file.ok()) << file.status();
        ASSERT_EQ((*file)->tensor_count(), salvaged->whole.size());
        ASSERT_TRUE((*file)->Verify().ok());
      } else {
        ASSERT_TRUE(std::filesystem::file_size(path) == 3 || Compare(path, state, PosixFileSystem()).ok()) << n;
      }
      ASSERT_TRUE(dir.Names().size() == 1 || fs.failed_call() == "unlink") << fs.failed_call();
      for (const std::string& name : dir.Names()) std::filesystem::remove(dir / name);
      if (!fs.hit()) {
        ASSERT_TRUE(salvaged.ok()) << salvaged.status();
        ASSERT_EQ(salvaged->whole.size(), 4u);
        break;
      }
    }
  }
}

}  // namespace
}  // namespace weft
