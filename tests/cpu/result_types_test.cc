// Products whose result is of another type than their factors, on every instruction set and by the reference: sums happen in the
// result's type. Factors are the ends of their type, so that a sum kept in any shorter type is another number.
#include <cmath>
#include <limits>

#include "src/autodiff/gradient.h"
#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/random_program.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Ints;
using ir::Value;
using ops::Call;

constexpr DType kIntegers[] = {DType::kI8,  DType::kU8, DType::kI16, DType::kU16, DType::kI32, DType::kU32, DType::kI64,
                               DType::kU64, DType::kI4, DType::kU4};
constexpr DType kFloats[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kF8E4M3FN, DType::kF8E5M2};

Value NewParameter(DType dtype, const Dims& dims) {
  return Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(dtype, dims)}), 0};
}

// A product of x [2, 3, 3, n] and a second factor, as a call of some operation on two parameters.
struct Product {
  const char* name;
  Dims x, y;
  Value (*call)(Builder& b, const Value& x, const Value& y, DType dtype);
};

ir::Attrs Windows(DType dtype, int64_t feature_groups, int64_t batch_groups) {
  const Ints images = {0, 3, 1, 2}, kernels = {2, 3, 0, 1}, ones = {1, 1};
  ir::Attrs attrs = {ones, Ints{1, 1, 1, 1}, ones, ones, images, kernels, images, feature_groups, batch_groups};
  attrs.set(ops::ConvolutionAttrs::kDtype, dtype);
  return attrs;
}

constexpr int64_t kFeatures = 36;
const Product kProducts[] = {
    {"matmul", {9, kFeatures}, {kFeatures, 20},
     [](Builder& b, const Value& x, const Value& y, DType dtype) { return Call(b, ops::kOp_matmul, {x, y}, {dtype}); }},
    {"matmul of one row", {1, kFeatures}, {kFeatures, 20},
     [](Builder& b, const Value& x, const Value& y, DType dtype) { return Call(b, ops::kOp_matmul, {x, y}, {dtype}); }},
    {"matmul of many rows", {40, 130}, {130, 35},
     [](Builder& b, const Value& x, const Value& y, DType dtype) { return Call(b, ops::kOp_matmul, {x, y}, {dtype}); }},
    {"dot_general", {3, kFeatures, 5}, {3, 7, kFeatures},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_dot_general, {x, y}, {Ints{0}, Ints{0}, Ints{1}, Ints{2}, dtype});
     }},
    {"linear", {4, kFeatures}, {kFeatures, 6},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       if (IsNarrow(x.dtype())) return Call(b, ops::kOp_matmul, {x, y}, {dtype});
       return Call(b, ops::kOp_linear, {x, y, Value()}, {dtype});
     }},
    {"conv", {2, 5, 4, kFeatures}, {3, 3, kFeatures, 5},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_conv, {x, y}, {{}, {}, {}, {}, {}, dtype});
     }},
    {"conv_transpose", {2, 3, 2, kFeatures}, {3, 3, kFeatures, 5},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_conv_transpose, {x, y}, {Ints{2, 2}, {}, {}, {}, {}, dtype});
     }},
    {"convolution 1x1", {1, 3, 3, kFeatures}, {1, 1, kFeatures, 2},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_convolution, {x, y}, Windows(dtype, 1, 1));
     }},
    {"convolution in groups", {1, 3, 3, kFeatures}, {2, 2, kFeatures / 2, 4},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_convolution, {x, y}, Windows(dtype, 2, 1));
     }},
    {"convolution of each channel", {1, 6, 6, kFeatures}, {3, 3, 1, kFeatures},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_convolution, {x, y}, Windows(dtype, kFeatures, 1));
     }},
    {"convolution in groups of the batch", {4, 3, 3, kFeatures}, {2, 2, kFeatures, 4},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_convolution, {x, y}, Windows(dtype, 1, 2));
     }},
    {"convolution with many channels", {1, 5, 5, 40}, {3, 3, 40, 33},
     [](Builder& b, const Value& x, const Value& y, DType dtype) {
       return Call(b, ops::kOp_convolution, {x, y}, Windows(dtype, 1, 1));
     }},
};

// The ends of the type, and numbers between them.
HostTensor Integers(DType dtype, const Dims& dims, test::Rng rng) {
  HostTensor t(dtype, dims);
  for (int64_t i = 0; i < t.count(); ++i) {
    const uint64_t bits = rng.Next();
    const int64_t least = IsSigned(dtype) ? int64_t{-1} << (BitsOf(dtype) - 1) : 0;
    t.SetInt(i, rng.Chance(0.5) ? (rng.Chance(0.5) ? least : ~least) : static_cast<int64_t>(bits));
  }
  return t;
}

void ExpectEverywhere(const Value& x, const Value& y, const Value& z, const std::vector<HostTensor>& arguments,
                      const std::vector<std::string>& isas, const ir::Tolerance& tolerance) {
  const auto function = ir::Function::Create("test", {x, y}, {z});
  const auto want = reference::Interpret(*function, arguments);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const std::string& isa : isas) {
    SCOPED_TRACE(isa);
    auto got = RunOnCpu(TestBackend(), function, arguments, isa);
    ASSERT_TRUE(got.ok()) << got.status();
    HostTensor& result = (*got)[0];
    if (IsNarrow(z.dtype())) result = HostTensor(z.dtype(), result.dims(), result.bytes());  // devices hold bytes
    EXPECT_EQ(test::Differences(result, (*want)[0], tolerance), "");
  }
}

std::vector<std::string> EveryIsa() {
  std::vector<std::string> isas = TestIsas();
  isas.emplace_back("amx-model");
  return isas;
}

TEST(ResultTypes, IntegersOfAnyWidthAreSummedInTheResultsType) {
  const std::vector<std::string> isas = EveryIsa();
  uint64_t seed = 0;
  for (const Product& product : kProducts) {
    for (DType factor : kIntegers) {
      for (DType result : kIntegers) {
        if (++seed % test::kOneCaseIn != 0) continue;
        SCOPED_TRACE(absl::StrCat(product.name, ": ", NameOf(factor), " to ", NameOf(result)));
        const test::Rng rng(seed);
        Builder b;
        const Value x = NewParameter(factor, product.x), y = NewParameter(factor, product.y);
        const Value z = product.call(b, x, y, result);
        ASSERT_TRUE(b.ok()) << b.status();
        const std::vector<HostTensor> arguments = {Integers(factor, product.x, rng), Integers(factor, product.y, test::Rng(seed + 1000))};
        ASSERT_NO_FATAL_FAILURE(ExpectEverywhere(x, y, z, arguments, {isas[seed % isas.size()]}, {}));
      }
    }
  }
}

TEST(ResultTypes, IntegersSumToFloatsWithoutWrapping) {
  const std::vector<std::string> isas = EveryIsa();
  uint64_t seed = 0;
  for (const Product& product : kProducts) {
    for (DType factor : kIntegers) {
      for (DType result : {DType::kF32, DType::kF64, DType::kBF16}) {
        if (++seed % test::kOneCaseIn != 0) continue;
        SCOPED_TRACE(absl::StrCat(product.name, ": ", NameOf(factor), " to ", NameOf(result)));
        Builder b;
        const Value x = NewParameter(factor, product.x), y = NewParameter(factor, product.y);
        const Value z = product.call(b, x, y, result);
        ASSERT_TRUE(b.ok()) << b.status();
        const std::vector<HostTensor> arguments = {Integers(factor, product.x, test::Rng(seed)), Integers(factor, product.y, test::Rng(seed + 1000))};
        const ir::Tolerance tolerance = {.f32 = 1e-6, .f64 = 1e-11, .bf16 = 4e-3};
        ASSERT_NO_FATAL_FAILURE(ExpectEverywhere(x, y, z, arguments, {isas[seed % isas.size()]}, tolerance));
      }
    }
  }
}

// By hand, for the reference's sake: 36 times 128 * 128.
TEST(ResultTypes, TheSmallestBytesSumToWhatTheyAre) {
  Builder b;
  const Value x = NewParameter(DType::kI8, {1, 36}), y = NewParameter(DType::kI8, {36, 1});
  const Value z = Call(b, ops::kOp_matmul, {x, y}, {DType::kI32});
  ASSERT_TRUE(b.ok()) << b.status();
  std::vector<HostTensor> arguments = {HostTensor(DType::kI8, {1, 36}), HostTensor(DType::kI8, {36, 1})};
  for (HostTensor& t : arguments) {
    for (int64_t i = 0; i < 36; ++i) t.SetInt(i, -128);
  }
  const auto got = RunOnCpu(TestBackend(), ir::Function::Create("test", {x, y}, {z}), arguments);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].GetInt(0), 36 * 128 * 128);
}

TEST(ResultTypes, FloatsOfAnyWidthAreSummedInTheWiderType) {
  const std::vector<std::string> isas = EveryIsa();
  uint64_t seed = 0;
  for (const Product& product : kProducts) {
    for (DType factor : kFloats) {
      for (DType result : kFloats) {
        if (++seed % test::kOneCaseIn != 0) continue;
        SCOPED_TRACE(absl::StrCat(product.name, ": ", NameOf(factor), " to ", NameOf(result)));
        test::Rng rng(seed);
        Builder b;
        const Value x = NewParameter(factor, product.x), y = NewParameter(factor, product.y);
        const Value z = product.call(b, x, y, result);
        ASSERT_TRUE(b.ok()) << b.status();
        std::vector<HostTensor> arguments = {HostTensor(factor, product.x), HostTensor(factor, product.y)};
        for (HostTensor& t : arguments) {
          for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, rng.Uniform(-1, 1));
        }
        const ir::Tolerance tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-4};
        ASSERT_NO_FATAL_FAILURE(ExpectEverywhere(x, y, z, arguments, {isas[seed % isas.size()]}, tolerance));
      }
    }
  }
}

// What f32 cannot hold, forward and in gradients: 1e30 * 1e30 is a number of f64.
TEST(ResultTypes, WhatOverflowsTheFactorsTypeIsFiniteInTheResults) {
  for (const Product& product : kProducts) {
    SCOPED_TRACE(product.name);
    Builder b;
    const Value x = NewParameter(DType::kF32, product.x), y = NewParameter(DType::kF32, product.y);
    const Value z = product.call(b, x, y, DType::kF64);
    ASSERT_TRUE(b.ok()) << b.status();
    // The slope of z * 1e-60 at such numbers is about 1e-30 times 1e30 times what f32 holds.
    const Value g = Call(b, ops::kOp_mul, {Call(b, ops::kOp_sum, {z}, {}), ops::Full(b, DType::kF64, {}, 1e-60)});
    const auto slopes = autodiff::Gradient(b, g, std::vector<Value>{x, y});
    ASSERT_TRUE(slopes.ok()) << slopes.status();
    std::vector<HostTensor> arguments = {HostTensor(DType::kF32, product.x), HostTensor(DType::kF32, product.y)};
    for (HostTensor& t : arguments) {
      for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, 1e30f);
    }
    const auto function = ir::Function::Create("test", {x, y}, {z, (*slopes)[0], (*slopes)[1]});
    const auto want = reference::Interpret(*function, arguments);
    ASSERT_TRUE(want.ok()) << want.status();
    EXPECT_GE((*want)[0].GetDouble((*want)[0].count() / 2), 8e59);
    for (const std::string& isa : EveryIsa()) {
      SCOPED_TRACE(isa);
      const auto got = RunOnCpu(TestBackend(), function, arguments, isa);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(test::Differences((*got)[0], (*want)[0], {.f64 = 1e-13}), "");
      for (size_t i : {1, 2}) {
        // At least 1e-30, which is 0 where the cotangent became an f32 first.
        EXPECT_GT((*got)[i].GetDouble((*got)[i].count() / 2), 5e-31);
        EXPECT_EQ(test::Differences((*got)[i], (*want)[i], {.f32 = 1e-6}), "");
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
