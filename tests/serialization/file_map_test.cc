// Mapped files: private pages, errors that say why.
#include "serialization/file_map.h"

#include "gmock/gmock.h"
#include "tests/serialization/checkpoint_support.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

File Opened(FileSystem* fs, const std::string& path) {
  FileInfo info;
  absl::StatusOr<File> file = File::OpenToRead(fs, path, &info);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

TEST(FileMap, GivesTheFilesBytesAndKeepsItsOwnChanges) {
  TempDir dir;
  WriteContents(dir / "a", std::string(10'000, 'x'));
  const File file = Opened(PosixFileSystem(), dir / "a");
  absl::StatusOr<Ref<FileMap>> map = FileMap::Make(file, 10'000);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ((*map)->bytes()[9'999], std::byte{'x'});
  (*map)->bytes()[5'000] = std::byte{'y'};
  EXPECT_EQ(Contents(dir / "a"), std::string(10'000, 'x'));
  std::filesystem::remove(dir / "a");  // what is mapped stays
  EXPECT_EQ((*map)->bytes()[5'000], std::byte{'y'});
}

TEST(FileMap, SaysWhyAFileCannotBeMapped) {
  TempDir dir;
  WriteContents(dir / "a", std::string(10'000, 'x'));
  FaultyFileSystem fs;
  const File file = Opened(&fs, dir / "a");
  EXPECT_EQ(FileMap::Make(file, 10'001).status().message(),
            "'" + (dir / "a") + "' had 10001 bytes when it was opened and has 10000 now");
  fs.Arm(2, ENOMEM, FaultyFileSystem::Fault::kOnce);  // the first call asks for the size
  const absl::Status status = FileMap::Make(file, 10'000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot map '" + (dir / "a") + "'"));
  fs.Arm(1, EIO, FaultyFileSystem::Fault::kOnce);
  EXPECT_FALSE(FileMap::IsLocal(file));
  fs.Disarm();
  EXPECT_TRUE(FileMap::Make(file, 10'000).ok());
}

}  // namespace
}  // namespace weft::testing
