// HoldsBad finds NaN and infinities in every element type, at any position.
#include "src/lazy/service/bad_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weft::lazy {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kC64, DType::kC128};

HostTensor Ones(DType dtype, int64_t count) {
  HostTensor host(dtype, {count});
  for (int64_t i = 0; i < count; ++i) host.SetDouble(i, 1);
  return host;
}

TEST(BadValues, AreFoundWhereverTheyStand) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(NameOf(dtype));
    for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{4096}, int64_t{10'000}}) {
      EXPECT_FALSE(HoldsBad(dtype, Ones(dtype, count).bytes(), Bad::kAny));
      for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
        for (const double value : {static_cast<double>(NAN), -static_cast<double>(NAN), static_cast<double>(INFINITY),
                                   -static_cast<double>(INFINITY)}) {
          HostTensor host = Ones(dtype, count);
          host.SetDouble(at, value);
          const bool nan = std::isnan(value);
          EXPECT_EQ(HoldsBad(dtype, host.bytes(), Bad::kNan), nan);
          EXPECT_EQ(HoldsBad(dtype, host.bytes(), Bad::kInf), !nan);
          EXPECT_TRUE(HoldsBad(dtype, host.bytes(), Bad::kAny));
          const Contents contents = ContentsOf(host, Bad::kAny);
          EXPECT_EQ(contents.first, at);
          EXPECT_EQ(contents.bad, 1);
          EXPECT_EQ(contents.count, count);
        }
      }
    }
  }
}

TEST(BadValues, OfComplexNumbersEitherPartCounts) {
  HostTensor z(DType::kC64, {3}), parts(DType::kF32, {3});
  parts.SetDouble(1, INFINITY);
  z.SetPart(1, parts);
  EXPECT_TRUE(HoldsBad(DType::kC64, z.bytes(), Bad::kInf));
  EXPECT_EQ(ContentsOf(z, Bad::kInf).first, 1);
}

TEST(BadValues, AreNotTheLargestFiniteNumbers) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    HostTensor host(dtype, {2});
    const double largest = dtype == DType::kF64 ? 1.7976931348623157e308 : dtype == DType::kF16 ? 65504 : 3.38e38;
    host.SetDouble(0, largest);
    host.SetDouble(1, -largest);
    EXPECT_FALSE(HoldsBad(dtype, host.bytes(), Bad::kAny)) << NameOf(dtype);
  }
}

TEST(BadValues, OtherTypesHoldNone) {
  HostTensor integers(DType::kI32, {2});
  integers.SetInt(0, -1);
  EXPECT_FALSE(HoldsBad(DType::kI32, integers.bytes(), Bad::kAny));
  HostTensor narrow(DType::kF8E5M2, {2});
  narrow.SetDouble(1, INFINITY);
  EXPECT_TRUE(HoldsBad(DType::kF8E5M2, narrow.bytes(), Bad::kInf));
  EXPECT_FALSE(HoldsBad(DType::kF8E5M2, narrow.bytes(), Bad::kNan));
}

TEST(BadValues, AreToldInWords) {
  HostTensor host(DType::kF32, {4});
  host.SetDouble(0, -1.5);
  host.SetDouble(1, 2.25);
  EXPECT_EQ(TextOf(ContentsOf(host, Bad::kNan), Bad::kNan), "-1.5 to 2.25");
  host.SetDouble(3, NAN);
  EXPECT_EQ(TextOf(ContentsOf(host, Bad::kNan), Bad::kNan), "1 of 4 elements NaN, finite ones -1.5 to 2.25");
  EXPECT_EQ(TextOf(ContentsOf(HostTensor(DType::kF32, {0}), Bad::kNan), Bad::kNan), "no elements");
}

}  // namespace
}  // namespace weft::lazy
