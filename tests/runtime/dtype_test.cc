// Element types by number: of all codes, widths and numbers of lanes, only those that the table names are known or computable.
#include "src/runtime/dtype.h"

#include <gtest/gtest.h>

#include <set>

namespace weft {
namespace {

TEST(DTypes, ComputableOnesAreThoseAndNoOtherNumber) {
  const std::set<uint32_t> computable = {
      static_cast<uint32_t>(DType::kBool), static_cast<uint32_t>(DType::kI8),   static_cast<uint32_t>(DType::kI16),
      static_cast<uint32_t>(DType::kI32),  static_cast<uint32_t>(DType::kI64),  static_cast<uint32_t>(DType::kU8),
      static_cast<uint32_t>(DType::kU16),  static_cast<uint32_t>(DType::kU32),  static_cast<uint32_t>(DType::kU64),
      static_cast<uint32_t>(DType::kF16),  static_cast<uint32_t>(DType::kBF16), static_cast<uint32_t>(DType::kF32),
      static_cast<uint32_t>(DType::kF64),  static_cast<uint32_t>(DType::kC64),  static_cast<uint32_t>(DType::kC128)};
  for (uint32_t lanes = 0; lanes < 4; ++lanes) {
    for (uint32_t low = 0; low < 0x10000; ++low) {
      const uint32_t number = lanes << 16 | low;
      ASSERT_EQ(computable.contains(number), IsComputable(static_cast<DType>(number))) << std::hex << number;
      if (computable.contains(number)) ASSERT_TRUE(IsKnown(number)) << std::hex << number;
    }
  }
}

}  // namespace
}  // namespace weft
