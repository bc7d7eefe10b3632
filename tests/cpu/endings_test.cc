// A convolution whose result is normalised by known variances, joined by a residual and bounded does all that itself,
// and its bits are those of the loop that does it where others read the convolution, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/backends/cpu/launch/host_kernels.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/control_programs.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using Vec = std::vector<Value>;

struct Layer {
  int64_t channels_in, channels, window, stride, groups;
  bool residual;
  const ir::OpDef* bounds;  // none
  bool ends;                // in f32
};
const Layer kLayers[] = {
    {16, 40, 1, 1, 1, false, &ops::kOp_relu6, true},
    {16, 40, 1, 1, 1, true, &ops::kOp_relu, true},
    {40, 16, 1, 1, 1, true, nullptr, true},
    {3, 32, 3, 2, 1, false, &ops::kOp_relu6, true},
    {24, 24, 3, 1, 24, false, &ops::kOp_relu6, true},
    {24, 24, 3, 2, 24, false, nullptr, true},
    {16, 40, 1, 1, 1, false, &ops::kOp_tanh, false},
};

// `both`: the convolution is a result, too.
Ref<const Function> Program(const Layer& layer, DType dtype, bool both) {
  const Type number = Type::Tensor(dtype, {layer.channels});
  const int64_t out = 12 / layer.stride;
  const int64_t depth = layer.channels_in / layer.groups;
  const std::vector<Type> types = {Type::Tensor(dtype, {2, 12, 12, layer.channels_in}),
                                   Type::Tensor(dtype, {layer.window, layer.window, depth, layer.channels}),
                                   number, number, number, number, Type::Tensor(dtype, {2, out, out, layer.channels})};
  return test::MakeFunction("main", types, [&](Builder& b, const Vec& p) {
    const Value y = ops::Call(b, ops::kOp_conv, {p[0], p[1]},
                              {ir::Ints{layer.stride, layer.stride}, int64_t{1}, {}, {}, layer.groups});
    Value x = ops::Call(b, ops::kOp_batch_norm_inference, {y, p[2], p[3], p[4], p[5]});
    if (layer.residual) x = ops::Add(b, x, p[6]);
    if (layer.bounds != nullptr) x = ops::Unary(b, *layer.bounds, x);
    return both ? Vec{x, y} : Vec{x};
  });
}

std::vector<HostTensor> Arguments(const Function& program, const std::vector<int64_t>& variances = {5}) {
  std::vector<HostTensor> arguments;
  for (const Value& parameter : program.parameters()) {
    HostTensor value(parameter.dtype(), parameter.dims());
    const auto seed = static_cast<int64_t>(arguments.size());
    for (int64_t i = 0; i < value.count(); ++i) {
      const bool variance = std::ranges::find(variances, seed) != variances.end();
      value.SetDouble(i, std::sin(static_cast<double>(7 * i + seed)) + (variance ? 1.5 : 0));
    }
    arguments.push_back(std::move(value));
  }
  return arguments;
}

TEST(Endings, HaveTheBitsOfTheLoop) {
  for (const std::string& isa : TestIsas()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const Layer& layer : kLayers) {
        SCOPED_TRACE(isa + " " + std::to_string(&layer - kLayers) + " " + std::string(NameOf(dtype)));
        const Ref<const Function> alone = Program(layer, dtype, false), both = Program(layer, dtype, true);
        const auto ended = RunOnCpu(TestBackend(), ir::CopyFunction(*alone), Arguments(*alone), isa);
        const auto looped = RunOnCpu(TestBackend(), ir::CopyFunction(*both), Arguments(*both), isa);
        ASSERT_TRUE(ended.ok() && looped.ok()) << ended.status() << looped.status();
        EXPECT_TRUE(std::ranges::equal((*ended)[0].bytes(), (*looped)[0].bytes()));
      }
    }
  }
}

TEST(Endings, AreSaidByTheProgram) {
  for (const Layer& layer : kLayers) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(std::to_string(&layer - kLayers) + " " + std::string(NameOf(dtype)));
      const auto lowered = FusedAndLowered(Program(layer, dtype, false));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      int endings = 0;
      for (const Entry& entry : lowered->program.lists[0]) {
        if (entry.type != Entry::Type::kHost || lowered->program.host_kernels[entry.code] != "conv") continue;
        if (entry.params.size() > EncodeConv({}).size()) ++endings;
        EXPECT_GE(entry.epilogue, 0);
      }
      EXPECT_EQ(endings, layer.ends && dtype != DType::kF16 ? 1 : 0);
    }
  }
}

// relu(norm(conv(x)) + norm(conv(z))): each convolution ends its own sums.
TEST(Endings, AreThoseOfBothConvolutionsThatAreAdded) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(NameOf(dtype));
    const Type number = Type::Tensor(dtype, {40}), image = Type::Tensor(dtype, {2, 12, 12, 16});
    const Type kernel = Type::Tensor(dtype, {1, 1, 16, 40});
    std::vector<Type> types = {image, image, kernel, kernel};
    types.insert(types.end(), 8, number);
    const auto program = [&](bool all) {
      return test::MakeFunction("main", types, [&](Builder& b, const Vec& p) {
        Vec sums, results;
        for (const size_t i : {0, 1}) {
          const Value y = ops::Call(b, ops::kOp_conv, {p[i], p[2 + i]},
                                    {ir::Ints{1, 1}, int64_t{1}, {}, {}, int64_t{1}});
          const size_t at = 4 + 4 * i;
          sums.push_back(ops::Call(b, ops::kOp_batch_norm_inference, {y, p[at], p[at + 1], p[at + 2], p[at + 3]}));
          results.push_back(y);
        }
        results.insert(results.begin(), ops::Unary(b, ops::kOp_relu, ops::Add(b, sums[0], sums[1])));
        return all ? results : Vec{results[0]};
      });
    };
    const Ref<const Function> alone = program(false), all = program(true);
    const auto lowered = FusedAndLowered(alone);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    int endings = 0;
    for (const Entry& entry : lowered->program.lists[0]) {
      if (entry.type == Entry::Type::kHost && entry.params.size() > EncodeConv({}).size()) ++endings;
    }
    EXPECT_EQ(endings, 2);
    for (const std::string& isa : TestIsas()) {
      const auto ended = RunOnCpu(TestBackend(), ir::CopyFunction(*alone), Arguments(*alone, {7, 11}), isa);
      const auto looped = RunOnCpu(TestBackend(), ir::CopyFunction(*all), Arguments(*all, {7, 11}), isa);
      ASSERT_TRUE(ended.ok() && looped.ok()) << ended.status() << looped.status();
      EXPECT_TRUE(std::ranges::equal((*ended)[0].bytes(), (*looped)[0].bytes())) << isa;
    }
  }
}

// The second of three stands before what follows the first one, and is not wanted before the end.
TEST(Endings, AreThoseOfConvolutionsThatStandElsewhere) {
  const Type number = Type::Tensor(DType::kF32, {40}), image = Type::Tensor(DType::kF32, {2, 6, 6, 40});
  const Ref<const Function> program = test::MakeFunction(
      "main", {image, Type::Tensor(DType::kF32, {1, 1, 40, 40}), number}, [&](Builder& b, const Vec& p) {
        const auto conv = [&](const Value& x) {
          return ops::Call(b, ops::kOp_conv, {x, p[1]}, {ir::Ints{1, 1}, int64_t{1}, {}, {}, int64_t{1}});
        };
        const auto norm = [&](const Value& x) {
          return ops::Call(b, ops::kOp_batch_norm_inference, {x, p[2], p[2], p[2], p[2]});
        };
        const auto relu = [&](const Value& x) { return ops::Unary(b, ops::kOp_relu, x); };
        const Value one = conv(p[0]), two = conv(relu(p[0]));
        const Value three = norm(conv(relu(norm(one))));
        return Vec{relu(ops::Add(b, three, relu(norm(two))))};
      });
  const auto lowered = FusedAndLowered(program);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  int endings = 0;
  for (const Entry& entry : lowered->program.lists[0]) {
    if (entry.type == Entry::Type::kHost && entry.params.size() > EncodeConv({}).size()) ++endings;
  }
  EXPECT_EQ(endings, 3);
}

}  // namespace
}  // namespace weft::cpu
