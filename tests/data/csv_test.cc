// Tables of numbers: what is read, and what is said of cells that are none.
#include "src/data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace weft::data {
namespace {

using ::testing::HasSubstr;

class CsvTest : public ::testing::Test {
 protected:
  absl::StatusOr<CsvTable> Read(const std::string& text, CsvOptions options = {}) {
    const std::string path = dir_.path() + "/table.csv";
    std::ofstream(path, std::ios::binary) << text;
    return ReadCsv(PosixFileSystem(), path, options);
  }
  std::string Refused(const std::string& text, CsvOptions options = {}) {
    const absl::StatusOr<CsvTable> table = Read(text, options);
    return table.ok() ? "read" : std::string(table.status().message());
  }
  testing::TempDir dir_;
};

TEST_F(CsvTest, ReadsNumbersNamesAndQuotations) {
  const absl::StatusOr<CsvTable> table = Read("\xEF\xBB\xBF\"a\",\"the \"\"b\"\"\"\r\n1, +2.5\r\n\r\n\"-3\",1e-60\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->names, (std::vector<std::string>{"a", "the \"b\""}));
  EXPECT_EQ(table->rows.dims(), (Dims{2, 2}));
  EXPECT_EQ(table->rows.GetDouble(1), 2.5);
  EXPECT_EQ(table->rows.GetDouble(2), -3);
  EXPECT_EQ(table->rows.GetDouble(3), 0);
}

TEST_F(CsvTest, ReadsOtherTypesAndSeparators) {
  const absl::StatusOr<CsvTable> table = Read("9007199254740993\t-1\n", {.separator = '\t', .dtype = DType::kI64});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->names.empty());
  EXPECT_EQ(table->rows.GetInt(0), 9007199254740993);
  ASSERT_TRUE(Read("nan,inf\n1,2").ok());
  EXPECT_TRUE(std::isnan(Read("nan,inf\n1,2")->rows.GetDouble(0)));
}

TEST_F(CsvTest, NamesLineAndColumnOfWhatIsWrong) {
  EXPECT_THAT(Refused("1,2\n3,x\n"), HasSubstr("line 2, column 2: 'x' is no f32"));
  EXPECT_THAT(Refused("1,2\n3,\n"), HasSubstr("line 2, column 2: '' is no f32"));
  EXPECT_THAT(Refused("1,2\n3\n"), HasSubstr("line 2: 1 cells; the first line has 2"));
  EXPECT_THAT(Refused("1,2\n3,1e60\n"), HasSubstr("'1e60' is no f32"));
  EXPECT_THAT(Refused("1.5\n", {.dtype = DType::kI32}), HasSubstr("column 1: '1.5' is no i32"));
  EXPECT_THAT(Refused("1\n\"2\n"), HasSubstr("line 2: a quotation mark is never closed"));
  EXPECT_THAT(Refused("1\n\"2\"3\n"), HasSubstr("line 2: text after a closing quotation mark"));
  EXPECT_THAT(Refused(""), HasSubstr("has no line of numbers"));
  EXPECT_THAT(Refused("a,b\n"), HasSubstr("has no line of numbers"));
  EXPECT_THAT(Refused("1\n", {.dtype = DType::kU8}), HasSubstr("f32, f64, i32 or i64, not u8"));
}

}  // namespace
}  // namespace weft::data
