// The table of promotions is PyTorch's, entry by entry (promotion_fixture.txt, made by make_promotion_fixture.py); composites go by it,
// primitives refuse.
#include "src/ops/promotion.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "src/ops/build.h"
#include "tests/ops/op_matrix.h"

namespace weft::ops {
namespace {

const std::map<std::string, NumberKind, std::less<>> kNumbers = {
    {"truth", NumberKind::kTruth}, {"int", NumberKind::kInt}, {"float", NumberKind::kFloat}, {"complex", NumberKind::kComplex}};

TEST(Promotion, IsPyTorchs) {
  const char* source = std::getenv("WEFT_SOURCE");  // absent: this is the folder
  std::ifstream file(absl::StrCat(source != nullptr ? source : ".", "/tests/ops/promotion_fixture.txt"));
  ASSERT_TRUE(file.is_open()) << "WEFT_SOURCE names no source tree";
  std::string line;
  int entries = 0, refused = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string first, second, result;
    words >> first >> second >> result;
    SCOPED_TRACE(line);
    const std::optional<DType> a = ParseDType(first);
    ASSERT_TRUE(a.has_value());
    if (result == "c32") result = "c64";  // there is no complex number of two f16 here
    if (const auto number = kNumbers.find(second); number != kNumbers.end()) {
      const std::optional<DType> found = PromotedWithNumber(*a, number->second);
      EXPECT_EQ(found ? NameOf(*found) : "-", result);
    } else {
      const std::optional<DType> b = ParseDType(second), found = Promoted(*a, *b);
      EXPECT_EQ(found ? NameOf(*found) : "-", result);
      refused += result == "-";
    }
    ++entries;
  }
  EXPECT_EQ(entries, 20 * 24);
  EXPECT_GT(refused, 100);
}

absl::Status StatusOf(const ir::OpDef& op, std::initializer_list<ir::Type> types, DType* result) {
  ir::Builder b;
  ir::Values operands;
  for (const ir::Type& type : types) operands.push_back(test::NewParameter(type));
  const ir::Value y = Call(b, op, std::move(operands));
  if (b.ok()) *result = y.dtype();
  return b.status();
}

TEST(Promotion, CompositesConvert) {
  const auto matrix = [](DType dtype) { return ir::Type::Tensor(dtype, {3, 3}); };
  DType found = DType::kInvalid;
  EXPECT_TRUE(StatusOf(kOp_mse, {matrix(DType::kF16), matrix(DType::kF32)}, &found).ok());
  EXPECT_EQ(found, DType::kF32);
  EXPECT_TRUE(StatusOf(kOp_matmul, {matrix(DType::kBF16), matrix(DType::kF16)}, &found).ok());
  EXPECT_EQ(found, DType::kF32);
  EXPECT_TRUE(StatusOf(kOp_linear, {matrix(DType::kI32), matrix(DType::kF64)}, &found).ok());
  EXPECT_EQ(found, DType::kF64);
  EXPECT_TRUE(StatusOf(kOp_lt, {matrix(DType::kI32), matrix(DType::kF32)}, &found).ok());
  EXPECT_EQ(found, DType::kBool);
}

TEST(Promotion, PrimitivesAndTypesWithoutPromotionAreRefusedByName) {
  DType found;
  const ir::Type f32 = ir::Type::Tensor(DType::kF32, {2}), f16 = ir::Type::Tensor(DType::kF16, {2});
  EXPECT_EQ(StatusOf(kOp_add, {f32, f16}, &found).message(),
            "add(f32[2], f16[2]): operands x and y have dtypes f32 and f16; they must agree (convert one of them)");
  EXPECT_EQ(StatusOf(kOp_mse, {f32, ir::Type::Tensor(DType::kF8E5M2, {2})}, &found).message(),
            "mse(f32[2], f8e5m2[2]): operands x and y have dtypes f32 and f8e5m2; they must agree (convert one of them)");
  EXPECT_EQ(StatusOf(kOp_lt, {ir::Type::Tensor(DType::kU16, {2}), ir::Type::Tensor(DType::kI32, {2})}, &found).message(),
            "lt(u16[2], i32[2]): operands x and y have dtypes u16 and i32; they must agree (convert one of them)");
}

}  // namespace
}  // namespace weft::ops
