// The scalar rule of every elementwise operation computes what its reference computes.
#include <gtest/gtest.h>

#include "tests/ops/op_matrix.h"
#include "tests/ops/plain_scalar_builder.h"

namespace weft {
namespace {

TEST(ScalarRules, AgreeWithTheReferenceOnEveryElement) {
  int elements = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (op->lowering != ir::Lowering::kScalar || op->c_name == "constant") continue;
    for (const ir::Sample& sample : op->samples) {
      for (DType dtype : ops::SampleTypes(*op, sample)) {
        auto made = test::MakeCase(*op, sample, dtype);
        ASSERT_TRUE(made.ok()) << made.status();
        SCOPED_TRACE(made->name);
        ir::Attrs attrs = made->parsed.attrs;
        ir::Builder b;
        // Through CallAll, so that operands are broadcast; the node's operands are then evaluated.
        const ir::Value result = ops::Call(b, *op, made->operands, attrs);
        ASSERT_TRUE(b.ok()) << b.status();
        std::vector<ir::Value> wanted(result.node->operands().begin(), result.node->operands().end());
        wanted.push_back(result);
        const auto values = test::Evaluate(*made, wanted);
        ASSERT_TRUE(values.ok()) << values.status();
        const HostTensor& want = values->back();
        HostTensor got(want.dtype(), want.dims());
        for (int64_t i = 0; i < want.count(); ++i) {
          test::PlainScalarBuilder scalar;
          std::vector<ir::ScalarValue> operands;
          for (size_t k = 0; k + 1 < values->size(); ++k) operands.push_back(scalar.Load((*values)[k], i));
          const ir::ScalarValue v =
              op->scalar(ir::ScalarCall{scalar, operands, result.node->attrs(), want.dtype()});
          ASSERT_EQ(v.dtype, want.dtype());
          const size_t size = BytesOf(want.dtype());
          std::memcpy(got.mutable_bytes().data() + i * size, scalar.Get(v).bytes().data(), size);
          ++elements;
        }
        EXPECT_EQ(test::Differences(got, want, op->tolerance), "");
      }
    }
  }
  EXPECT_GT(elements, 10000);
}

}  // namespace
}  // namespace weft
