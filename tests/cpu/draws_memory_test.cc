// Random numbers are drawn where they go: no program that makes them keeps bits, counters or halves of a loop in memory.
#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"

namespace weft::cpu {
namespace {

TEST(DrawingNumbers, NeedsNoMemoryButTheirs) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    SCOPED_TRACE(NameOf(dtype));
    ir::Builder b;
    const ir::Value state = test::NewParameter(ir::Type::Tensor(DType::kU64, {3}));
    const ir::Value x = ops::Call(b, ops::kOp_normal, {state}, {ir::Ints{1024, 1024}, 0.5, 2.0, dtype});
    ASSERT_TRUE(b.ok()) << b.status();
    const auto module = Prepared(TestBackend(), ir::Function::Create("normal", {state}, {x}));
    ASSERT_TRUE(module.ok()) << module.status();
    const auto program = TestBackend().Compile(*module, {});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_LT((*program)->stats().temporary_bytes, 64 << 10);
  }
}

}  // namespace
}  // namespace weft::cpu
