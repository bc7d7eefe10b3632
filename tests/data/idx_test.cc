// IDX files: what is read, and what is said of files that are not.
#include "src/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft {
namespace {

using ::testing::HasSubstr;

class IdxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-idx-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/file";
  }
  void TearDown() override {
    unlink((folder_ + "/file").c_str());
    rmdir(folder_.c_str());
  }
  void Write(const std::string& bytes) {
    FILE* f = fopen(path_.c_str(), "wb");
    ASSERT_NE(f, nullptr);
    ASSERT_EQ(fwrite(bytes.data(), 1, bytes.size(), f), bytes.size());
    fclose(f);
  }
  void WriteGzip(const std::string& bytes) {
    gzFile f = gzopen(path_.c_str(), "wb");
    ASSERT_NE(f, nullptr);
    ASSERT_EQ(gzwrite(f, bytes.data(), bytes.size()), static_cast<int>(bytes.size()));
    gzclose(f);
  }
  absl::StatusOr<HostTensor> Read() { return ReadIdx(PosixFileSystem(), path_); }
  std::string Error() { return std::string(Read().status().message()); }
  std::string folder_, path_;
};

const std::string kSmall("\0\0\x08\x02\0\0\0\x02\0\0\0\x03\1\2\3\4\5\6", 18);

TEST_F(IdxTest, ReadsPlainBytes) {
  Write(kSmall);
  auto tensor = Read();
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dims(), (Dims{2, 3}));
  EXPECT_EQ(tensor->dtype(), DType::kU8);
  EXPECT_EQ(tensor->GetInt(5), 6);
}

TEST_F(IdxTest, ReadsGzipWhateverTheName) {
  WriteGzip(kSmall);
  auto tensor = Read();
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->GetInt(0), 1);
}

TEST_F(IdxTest, SwapsBigEndianElements) {
  Write(std::string("\0\0\x0C\x01\0\0\0\x02\0\0\1\2\xFF\xFF\xFF\xFE", 16));
  auto tensor = Read();
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->GetInt(0), 258);
  EXPECT_EQ(tensor->GetInt(1), -2);
}

TEST_F(IdxTest, EveryTruncationIsDataLoss) {
  for (size_t n = 0; n < kSmall.size(); ++n) {
    Write(kSmall.substr(0, n));
    EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss) << n;
  }
}

TEST_F(IdxTest, ATruncatedGzipStreamSaysSo) {
  WriteGzip(kSmall);
  FILE* f = fopen(path_.c_str(), "rb");
  char bytes[256];
  const size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  Write(std::string(bytes, 22));
  ASSERT_GT(n, 22u);
  EXPECT_THAT(Error(), HasSubstr("the gzip stream ends early"));
}

TEST_F(IdxTest, DamageOfAGzipStreamIsAnErrorOrChangesNothing) {
  WriteGzip(kSmall);
  FILE* f = fopen(path_.c_str(), "rb");
  std::string good(256, '\0');
  good.resize(fread(good.data(), 1, good.size(), f));
  fclose(f);
  for (size_t n = 0; n < good.size(); ++n) {
    Write(good.substr(0, n));
    EXPECT_FALSE(Read().ok()) << "cut to " << n;
  }
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    Write(bad);
    const auto tensor = Read();  // a time or system in the header may be anything
    if (tensor.ok()) EXPECT_EQ(std::memcmp(tensor->bytes().data(), kSmall.data() + 12, 6), 0) << "bit " << bit;
  }
}

TEST_F(IdxTest, AHugeClaimAllocatesNothing) {
  Write(std::string("\0\0\x08\x03\x7F\xFF\xFF\xFF\x7F\xFF\xFF\xFF\0\0\0\x09", 16));
  EXPECT_THAT(Error(), HasSubstr("which its 16 bytes cannot hold"));
}

TEST_F(IdxTest, OtherFilesAreNamedAsSuch) {
  Write("hello, world");
  EXPECT_THAT(Error(), HasSubstr("is not an IDX file: the first four bytes are 104 101 108 108"));
}

TEST_F(IdxTest, TrailingBytesAreRefused) {
  Write(kSmall + "x");
  EXPECT_THAT(Error(), HasSubstr("has bytes after its data"));
}

TEST_F(IdxTest, FoldersAndPipesAreNamedAsSuch) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Error(), "'" + path_ + "' is a FIFO, not a regular file");
  path_ = "/tmp";
  EXPECT_EQ(Error(), "'/tmp' is a directory, not a regular file");
}

TEST_F(IdxTest, AMissingFileIsNotFound) { EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound); }

}  // namespace
}  // namespace weft
