// Values of more elements than the interpreter takes at a time, 65,536: constants, functions of one and of two, of types of every size.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"

namespace weft {
namespace {

TEST(LargeValues, AreComputedWholeByTheInterpreter) {
  constexpr int64_t kCount = 3 * 65'536 + 17;
  for (const DType dtype : {DType::kBool, DType::kI8, DType::kF16, DType::kI32, DType::kF64, DType::kC128, DType::kU4}) {
    HostTensor given(dtype, {kCount});
    for (int64_t i = 0; i < kCount; ++i) given.SetInt(i, i % 2);
    ir::Builder b;
    const ir::Value constant = ops::Constant(b, given);
    const ir::Value same = ops::Compare(b, ops::Direction::kEq, constant, constant);
    const ir::Value chosen = ops::Select(b, same, constant, constant);
    ASSERT_TRUE(b.ok()) << b.status();
    const auto found = reference::Interpret(*ir::Function::Create("f", {}, {constant, same, chosen}), {});
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(std::ranges::equal((*found)[0].bytes(), given.bytes())) << NameOf(dtype);
    EXPECT_TRUE(std::ranges::all_of((*found)[1].bytes(), [](std::byte x) { return x == std::byte{1}; })) << NameOf(dtype);
    EXPECT_TRUE(std::ranges::equal((*found)[2].bytes(), given.bytes())) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace weft
