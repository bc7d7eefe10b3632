// TFRecord, tar, gzip and patterns: what is read, and what is said of files that are damaged or differ. The bytes of whole files come from
// Python in tests/python/data_test.py, which shares nothing with the reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "src/data/gzip.h"
#include "src/data/tar.h"
#include "src/data/tfrecord.h"
#include "src/data/whole_file.h"
#include "tests/support/temp_dir.h"

namespace weft::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// CRC-32C bit by bit (RFC 3720, appendix B.4).
uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}
std::string Masked(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes), masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
  return std::string(reinterpret_cast<const char*>(&masked), 4);
}
std::string Record(std::string_view bytes) {
  const uint64_t length = bytes.size();
  const std::string head(reinterpret_cast<const char*>(&length), 8);
  return head + Masked(head) + std::string(bytes) + Masked(bytes);
}
// A length-delimited field.
std::string Field(int number, std::string_view bytes) {
  EXPECT_LT(bytes.size(), 128u);
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + std::string(bytes);
}
std::string Example(const std::vector<std::pair<std::string, std::string>>& features) {
  std::string map;
  for (const auto& [key, feature] : features) map += Field(1, Field(1, key) + Field(2, feature));
  return Field(1, map);
}
std::string Floats(const std::vector<float>& values) {
  return Field(2, Field(1, {reinterpret_cast<const char*>(values.data()), values.size() * 4}));
}
std::string Texts(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += Field(1, text);
  return Field(1, list);
}

std::string Refused(std::string_view bytes) {
  const absl::StatusOr<std::vector<NamedTensor>> read = ReadExamples("f", bytes);
  return read.ok() ? "read" : std::string(read.status().message());
}

TEST(TfRecord, ChecksumIsTheStandards) { EXPECT_EQ(Crc32c("123456789"), 0xE3069283u); }

TEST(TfRecord, FeaturesBecomeFieldsByName) {
  // -1 as a packed varint, and 300 as one of its own.
  const std::string minus_one = std::string(9, '\xFF') + "\x01";
  const std::string packed = Field(3, Field(1, minus_one)), alone = Field(3, std::string("\x08\xAC\x02", 3));
  const std::string file = Record(Example({{"x", Floats({1, -2.5})}, {"n", packed}, {"t", Texts({"ab", "cd"})}})) +
                           Record(Example({{"n", alone}, {"t", Texts({"ef", "gh"})}, {"x", Floats({3, 4})}}));
  EXPECT_TRUE(IsTfRecord(file));
  const absl::StatusOr<std::vector<NamedTensor>> read = ReadExamples("f", file);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].name, "n");
  EXPECT_EQ((*read)[0].tensor.dims(), (Dims{2}));
  EXPECT_EQ((*read)[0].tensor.GetInt(0), -1);
  EXPECT_EQ((*read)[0].tensor.GetInt(1), 300);
  EXPECT_EQ((*read)[1].tensor.dims(), (Dims{2, 2, 2}));
  EXPECT_EQ((*read)[1].tensor.dtype(), DType::kU8);
  EXPECT_EQ((*read)[1].tensor.GetInt(7), 'h');
  EXPECT_EQ((*read)[2].tensor.dims(), (Dims{2, 2}));
  EXPECT_EQ((*read)[2].tensor.GetDouble(1), -2.5);
}

TEST(TfRecord, NamesTheRecordAndTheFeatureThatDiffer) {
  const std::string first = Record(Example({{"x", Floats({1, 2})}, {"t", Texts({"ab"})}}));
  const auto second = [&](const std::vector<std::pair<std::string, std::string>>& features) {
    return Refused(first + Record(Example(features)));
  };
  EXPECT_THAT(second({{"x", Floats({1})}, {"t", Texts({"ab"})}}), HasSubstr("record 1, feature 'x': 1 values; record 0 has 2"));
  EXPECT_THAT(second({{"x", Floats({1, 2})}}), HasSubstr("feature 't': it is not there"));
  EXPECT_THAT(second({{"x", Floats({1, 2})}, {"t", Texts({"abc"})}}), HasSubstr("feature 't': its texts are not all as long"));
  EXPECT_THAT(second({{"x", Texts({"12345678"})}, {"t", Texts({"ab"})}}), HasSubstr("'x': bytes_list; record 0 has float_list"));
  EXPECT_THAT(second({{"x", ""}, {"t", Texts({"ab"})}}), HasSubstr("'x': it has no values"));
  EXPECT_THAT(second({{"x", Floats({1, 2})}, {"t", Texts({"ab"})}, {"z", Floats({1})}}), HasSubstr("'z': record 0 does not have it"));
  EXPECT_THAT(Refused(Record(Example({{"t", Texts({"ab", "c"})}}))), HasSubstr("texts are not all as long"));
  EXPECT_THAT(Refused(Record("no message")), HasSubstr("record 0 is no tf.train.Example"));
  EXPECT_THAT(Refused(Record("")), HasSubstr("record 0 has no features"));
  EXPECT_THAT(Refused(""), HasSubstr("has no records"));
}

TEST(TfRecord, EveryDamageIsFound) {
  const std::string file = Record(Example({{"x", Floats({1, 2})}}));
  for (size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_EQ(ReadExamples("f", damaged).status().code(), absl::StatusCode::kDataLoss) << at;
    }
  }
  for (size_t size = 1; size < file.size(); ++size) EXPECT_THAT(Refused(file.substr(0, size)), HasSubstr("cut off at byte 0"));
}

std::string TarHeader(const std::string& name, size_t size, char type = '0') {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  char digits[13];
  snprintf(digits, sizeof(digits), "%011zo", size);
  block.replace(124, 11, digits);
  block[156] = type;
  block.replace(257, 8, std::string("ustar\0" "00", 8));
  block.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<uint8_t>(c);
  snprintf(digits, sizeof(digits), "%06o", sum);
  block.replace(148, 7, std::string(digits, 7));
  return block;
}
std::string Member(const std::string& name, const std::string& data, char type = '0') {
  return TarHeader(name, data.size(), type) + data + std::string((512 - data.size() % 512) % 512, '\0');
}

TEST(Tar, FilesOfOneKeyAreAnItem) {
  const std::string pax = "26 path=folder/b.left.npy\n";
  ASSERT_EQ(pax.size(), 26u);
  const std::string file = Member("folder/", "", '5') + Member("folder/a.cls", "1") + Member("folder/a.LEFT.npy", "xy") +
                           Member("PaxHeader", pax, 'x') + Member("cut", "z") + Member("folder/b.cls", "2") + std::string(1024, '\0');
  EXPECT_TRUE(IsTar(file));
  const absl::StatusOr<std::vector<TarItem>> items = ReadTar("f", file);
  ASSERT_TRUE(items.ok()) << items.status();
  ASSERT_EQ(items->size(), 2u);
  EXPECT_EQ((*items)[0].key, "folder/a");
  EXPECT_EQ((*items)[0].parts[1].extension, "left.npy");
  EXPECT_EQ((*items)[0].parts[1].bytes, "xy");
  EXPECT_EQ((*items)[1].key, "folder/b");
  EXPECT_EQ((*items)[1].parts[0].bytes, "z");
}

TEST(Tar, SaysWhatIsWrong) {
  const auto refused = [](std::string_view bytes) {
    const absl::StatusOr<std::vector<TarItem>> items = ReadTar("f", bytes);
    return items.ok() ? "read" : std::string(items.status().message());
  };
  const std::string good = Member("a.x", "data");
  EXPECT_THAT(refused(good.substr(0, 700)), HasSubstr("read"));  // whole data, no padding
  EXPECT_THAT(refused(good.substr(0, 514)), HasSubstr("a member is cut off at byte 0"));
  EXPECT_THAT(refused(good + "tail"), HasSubstr("a header is cut off at byte 1024"));
  std::string damaged = good;
  damaged[0] = 'b';
  EXPECT_THAT(refused(damaged), HasSubstr("checksum of a header does not match at byte 0"));
  EXPECT_THAT(refused(Member("name", "data")), HasSubstr("'name' has no extension"));
  EXPECT_THAT(refused(good + good), HasSubstr("'a.x' comes twice"));
  EXPECT_THAT(refused(Member("h", "5 path=", 'x') + good), HasSubstr("an extended header cannot be read"));
}

class WholeFile : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = dir_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  testing::TempDir dir_;
};

TEST_F(WholeFile, GzipIsInflatedMemberAfterMember) {
  const std::string text(100'000, 'x');
  const std::string path = Write("a", *Gzip(text) + *Gzip("yz"));
  EXPECT_EQ(*ReadWholeFile(PosixFileSystem(), path), text + "yz");
  EXPECT_EQ(*ReadFirstBytes(PosixFileSystem(), path, 3), "xxx");
  EXPECT_EQ(*ReadFirstBytes(PosixFileSystem(), Write("b", "plain"), 16), "plain");
  const std::string whole = *Gzip(text);
  EXPECT_THAT(ReadWholeFile(PosixFileSystem(), Write("c", whole.substr(0, whole.size() - 9))).status().message(),
              HasSubstr("the gzip stream ends early"));
  std::string damaged = whole;
  damaged[whole.size() - 5] = static_cast<char>(damaged[whole.size() - 5] ^ 1);  // the checksum
  EXPECT_THAT(ReadWholeFile(PosixFileSystem(), Write("d", damaged)).status().message(), HasSubstr("damaged gzip stream"));
}

TEST_F(WholeFile, PatternsStandForTheFilesThatMatchByName) {
  const std::string b = Write("s-b.tar", ""), a = Write("s-a.tar", ""), odd = Write("odd[1].tar", "");
  Write("other", "");
  EXPECT_THAT(*FilesOf(PosixFileSystem(), dir_.path() + "/s-*.tar"), ElementsAre(a, b));
  EXPECT_THAT(*FilesOf(PosixFileSystem(), odd), ElementsAre(odd));  // there is such a file
  EXPECT_THAT(*FilesOf(PosixFileSystem(), "/nowhere/x"), ElementsAre("/nowhere/x"));
  EXPECT_EQ(FilesOf(PosixFileSystem(), dir_.path() + "/z-*").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft::data
