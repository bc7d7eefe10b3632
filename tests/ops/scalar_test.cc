// The scalar rule of every elementwise operation computes what its reference computes.
#include <gtest/gtest.h>

#include "tests/ops/op_matrix.h"
#include "tests/ops/plain_scalar_builder.h"
#include "tests/support/only_op.h"

namespace weft {
namespace {

// Builds nothing and notes what a rule is made of.
class CountingBuilder final : public ir::ScalarBuilder {
 public:
  using ScalarValue = ir::ScalarValue;
  using ScalarOp = ir::ScalarOp;
  int functions = 0, slow = 0;

  ScalarValue Unary(ScalarOp op, ScalarValue x) override {
    Note(op);
    return {0, op == ScalarOp::kIsFinite || op == ScalarOp::kIsNan ? DType::kBool : x.dtype};
  }
  ScalarValue Binary(ScalarOp op, ScalarValue x, ScalarValue) override {
    Note(op);
    return {0, op >= ScalarOp::kEq && op <= ScalarOp::kGe ? DType::kBool : x.dtype};
  }
  ScalarValue Select(ScalarValue, ScalarValue x, ScalarValue) override { return x; }
  ScalarValue Fma(ScalarValue x, ScalarValue, ScalarValue) override { return x; }
  ScalarValue Constant(DType dtype, double) override { return {0, dtype}; }
  ScalarValue IntConstant(DType dtype, int64_t) override { return {0, dtype}; }
  ScalarValue Convert(ScalarValue, DType to) override { return {0, to}; }
  ScalarValue Bitcast(ScalarValue, DType to) override { return {0, to}; }

 private:
  void Note(ScalarOp op) {
    functions += ir::FactsOf(op).function;
    slow += op == ScalarOp::kDiv || op == ScalarOp::kRem || op == ScalarOp::kSqrt || op == ScalarOp::kRsqrt;
  }
};

// Fusion computes what is cheap once for every reader: a function there would run as often as its result is read.
TEST(ScalarRules, ContainAFunctionOfFloatsOnlyWhereTheOperationSaysThatItCostsOne) {
  int functions = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (weft::test::LeftOut(*op)) continue;
    if (op->scalar == nullptr || op->c_name == "constant") continue;
    CountingBuilder counting;
    for (const ir::Sample& sample : op->samples) {
      for (DType dtype : ops::SampleTypes(*op, sample)) {
        const auto made = test::MakeCase(*op, sample, dtype);
        ASSERT_TRUE(made.ok()) << made.status();
        ir::Builder b;
        const ir::Value result = ops::Call(b, *op, made->operands, made->parsed.attrs);
        ASSERT_TRUE(b.ok()) << b.status();
        std::vector<ir::ScalarValue> operands;
        for (const ir::Value& x : result.node->operands()) operands.push_back({0, ComputeType(x.dtype())});
        op->scalar(ir::ScalarCall{counting, operands, result.node->attrs(), result.dtype()});
      }
    }
    const bool declared = op->cost == ir::Cost::kFunction;
    EXPECT_TRUE(declared || counting.functions == 0) << op->c_name << " contains a function and says it is cheap";
    EXPECT_TRUE(!declared || counting.functions + counting.slow > 0) << op->c_name << " says it costs a function";
    functions += declared;
  }
  EXPECT_GT(functions, 20);
}

TEST(ScalarRules, AgreeWithTheReferenceOnEveryElement) {
  int elements = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (weft::test::LeftOut(*op)) continue;
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
