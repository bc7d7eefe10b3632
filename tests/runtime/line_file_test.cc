// Files to whose end reports go: what cannot be written is lost with one warning, and nothing is waited for.
#include "src/runtime/line_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

class LineFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "weft-line-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const char* name) const { return (folder_ / name).string(); }
  // The warnings of two records.
  std::vector<std::string> WarningsOf(const std::string& path) {
    std::vector<std::string> warnings;
    LineFile file(path, [&](std::string text) { warnings.push_back(std::move(text)); });
    file.Write("one\n");
    file.Write("two\n");
    return warnings;
  }

  std::filesystem::path folder_;
};

TEST_F(LineFiles, GetRecordsAtTheirEnd) {
  std::ofstream(Path("file")) << "before\n";
  EXPECT_TRUE(WarningsOf(Path("file")).empty());
  std::ostringstream text;
  text << std::ifstream(Path("file")).rdbuf();
  EXPECT_EQ(text.str(), "before\none\ntwo\n");
}

TEST_F(LineFiles, AFifoThatNobodyReadsIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(WarningsOf(Path("fifo")),
              testing::ElementsAre("'" + Path("fifo") + "' cannot be written: it is a FIFO that nobody reads, or a socket; "
                                   "what follows for it is lost"));
}

TEST_F(LineFiles, WhoReadsAFifoGetsTheRecords) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  const int reader = open(Path("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(WarningsOf(Path("fifo")).empty());
  char bytes[16] = {};
  EXPECT_EQ(read(reader, bytes, sizeof bytes), 8);
  EXPECT_STREQ(bytes, "one\ntwo\n");
  close(reader);
}

TEST_F(LineFiles, WhatIsNoFileIsSaidOnce) {
  EXPECT_THAT(WarningsOf(folder_.string()), testing::ElementsAre(testing::HasSubstr("Is a directory")));
  EXPECT_THAT(WarningsOf(Path("not there/file")), testing::ElementsAre(testing::HasSubstr("No such file or directory")));
  EXPECT_THAT(WarningsOf("/dev/full"), testing::ElementsAre(testing::HasSubstr("No space left on device")));
  EXPECT_TRUE(WarningsOf("/dev/null").empty());
  const int socket_file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, Path("socket").c_str(), sizeof name.sun_path - 1);
  ASSERT_EQ(bind(socket_file, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  EXPECT_THAT(WarningsOf(Path("socket")), testing::ElementsAre(testing::HasSubstr("or a socket")));
  close(socket_file);
}

}  // namespace
}  // namespace weft
