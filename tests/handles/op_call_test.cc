// The way from C to an operation that carries a function, which no exported one does yet.
#include "src/c_api/op_call.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/c_api/context.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {
namespace {

TEST(OpCall, CarriesFunctions) {
  weft_context* ctx = nullptr;
  ASSERT_EQ(weft_context_create(nullptr, &ctx), nullptr);
  weft_tensor *p = nullptr, *twice = nullptr, *x = nullptr, *y = nullptr;
  {
    const Pin<Context> context = Find(ctx);
    lazy::Engine& engine = context->engine();
    const ir::Type scalar = ir::Type::Scalar(DType::kF32);
    lazy::Tensors parameters;
    const auto frame = engine.BeginFunction({}, "twice", {&scalar, 1}, &parameters);
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_TRUE(MakeTensor(parameters[0], &p).ok());
    ASSERT_EQ(weft_add(ctx, p, p, &twice), nullptr);  // through the program's handle: its operand is in the body
    float value = 0;
    weft_error* error = weft_tensor_to_host(twice, &value, sizeof(value));
    EXPECT_THAT(weft_error_message(error, nullptr), testing::HasSubstr("in the body of @twice"));
    weft_error_release(error);
    error = weft_sync(ctx, nullptr, nullptr);
    EXPECT_EQ(error, nullptr);
    const Pin<lazy::Tensor> output = Find(twice);
    lazy::Tensor* const outputs[] = {output.get()};
    const auto finished = engine.FinishFunction(**frame, outputs);
    ASSERT_TRUE(finished.ok()) << finished.status();

    const float values[] = {1, -2, 3};
    const int64_t dims[] = {3};
    ASSERT_EQ(weft_tensor_from_host(ctx, nullptr, WEFT_F32, dims, 1, values, sizeof(values), &x), nullptr);
    OpCall call(ops::kOp_map, ctx);
    call.Variadic(&x, 1);
    call.Region(finished->function);
    const absl::Status status = call.Record({&y});
    ASSERT_TRUE(status.ok()) << status;
  }
  float result[3];
  ASSERT_EQ(weft_tensor_to_host(y, result, sizeof(result)), nullptr);
  EXPECT_THAT(result, testing::ElementsAre(2, -4, 6));
  for (weft_tensor* tensor : {p, twice, x, y}) weft_tensor_release(tensor);
  weft_context_release(ctx);
}

}  // namespace
}  // namespace weft::c_api
