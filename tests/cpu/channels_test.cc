// Channels-first networks, forward and backward, on every instruction set: what the reference gives, and the same bits whether the
// compiler moves channels or every value must have its own order because somebody asks for it.
#include <gtest/gtest.h>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "src/ops/conv/conv_shape.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/control_programs.h"
#include "tests/support/expectation.h"
#include "tests/support/random_program.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Ints;
using ir::Type;
using ir::Value;
using Vec = std::vector<Value>;

// One network of up to 12 layers over [batch, channels, rows, columns]. Recorded twice it is the same.
class Network {
 public:
  explicit Network(uint64_t seed) : seed_(seed) {
    test::Rng rng(seed);
    constexpr int64_t kChannels[] = {3, 8, 17, 32};
    channels_ = kChannels[rng.Below(4)];
    batch_ = 1 + static_cast<int64_t>(rng.Below(3));
    side_ = 5 + static_cast<int64_t>(rng.Below(9));
  }

  std::vector<Type> types() const {
    const int64_t c = channels_;
    const auto f32 = [](Dims dims) { return Type::Tensor(DType::kF32, std::move(dims)); };
    return {f32({batch_, c, side_, side_ + 1}), f32({c, c, 3, 3}), f32({c, c, 1, 1}), f32({c, 1, 3, 3}), f32({c, 2 * c, 1, 1}), f32({c})};
  }

  // The last layer's values, sums of them and the gradients of one; with `all`, also every layer's.
  Ref<const ir::Function> Function(bool all) const {
    return test::MakeFunction("main", types(), [&](Builder& b, const Vec& p) {
      Vec layers = {p[0]};
      test::Rng rng(seed_ + 1);
      const int count = 3 + static_cast<int>(rng.Below(10));
      for (int i = 0; i < count; ++i) layers.push_back(Layer(b, p, layers, rng));
      const Value &last = layers.back(), loss = ops::Reduce(b, ops::Mul(b, last, last), ops::Reducer::kSum, {0, 1, 2, 3});
      Vec results = {ops::Reduce(b, last, ops::Reducer::kSum, {2, 3}), ops::Reduce(b, last, ops::Reducer::kSum, {0, 2, 3}), last};
      auto grads = autodiff::Gradient(b, loss, p);
      EXPECT_TRUE(grads.ok()) << grads.status();
      if (grads.ok()) results.insert(results.end(), grads->begin(), grads->end());
      if (all) results.insert(results.end(), layers.begin() + 1, layers.end());
      return results;
    });
  }

 private:
  static Value Convolution(Builder& b, const Value& x, const Value& w, int64_t stride, int64_t groups) {
    const int64_t pad = w.dims()[2] / 2;
    const Ints ones = {1, 1}, nchw = {0, 1, 2, 3}, oihw = {1, 0, 2, 3};
    return ops::Convolution(b, x, w, {Ints{stride, stride}, Ints{pad, pad, pad, pad}, ones, ones, nchw, oihw, nchw, groups, int64_t{1}});
  }
  static Value Window(Builder& b, const Value& x, ops::Reducer reducer, int64_t k, int64_t stride) {
    const int64_t low = (k - 1) / 2;
    return ops::Call(b, ops::kOp_reduce_window, {x},
                     {Ints{1, 1, k, k}, static_cast<int64_t>(reducer), Ints{1, 1, stride, stride}, Ints{1, 1, 1, 1}, Ints{1, 1, 1, 1}, Ints{0, 0, 0, 0, low, low, low, low}});
  }
  // x less its mean over all but the channels, as batch normalization has it.
  static Value Centered(Builder& b, const Value& x) {
    const double count = static_cast<double>(x.type().count() / x.dims()[1]);
    const Value mean = ops::Mul(b, ops::Reduce(b, x, ops::Reducer::kSum, {0, 2, 3}), 1 / count);
    return ops::Sub(b, x, ops::BroadcastInDim(b, mean, x.dims(), {1}));
  }
  static Value Gated(Builder& b, const Value& x) {
    const Value sum = ops::Reduce(b, x, ops::Reducer::kSum, {2, 3});
    return ops::Mul(b, x, ops::BroadcastInDim(b, ops::Sigmoid(b, sum), x.dims(), {0, 1}));
  }

  static Value Layer(Builder& b, const Vec& p, const Vec& layers, test::Rng& rng) {
    const Value& x = layers.back();
    const bool large = x.dims()[2] > 3;
    switch (rng.Below(12)) {
      case 0: return ops::Mul(b, Convolution(b, x, p[1], large ? 2 : 1, 1), 0.2);
      case 1: return ops::Mul(b, Convolution(b, x, p[1], 1, 1), 0.2);
      case 2: return Convolution(b, x, p[2], 1, 1);
      case 3: return Convolution(b, x, p[3], 1, x.dims()[1]);
      case 4: return ops::Maximum(b, x, ops::FullLike(b, x, 0));
      case 5: return Centered(b, x);
      case 6: return ops::Add(b, x, ops::BroadcastInDim(b, p[5], x.dims(), {1}));
      case 7: return Window(b, x, ops::Reducer::kMax, 3, large ? 2 : 1);
      case 8: return ops::Mul(b, Window(b, x, ops::Reducer::kSum, 2, 1), 0.25);
      case 9: return Gated(b, x);
      case 10: return Convolution(b, ops::Call(b, ops::kOp_concatenate, {x, ops::Tanh(b, x)}, {int64_t{1}}), p[4], 1, 1);
      default: {
        const Value& before = layers[static_cast<size_t>(rng.Below(static_cast<int64_t>(layers.size())))];
        return before.dims() == x.dims() ? ops::Add(b, x, before) : ops::Pad(b, x, 0, {0, 0, 1, 0}, {0, 0, 0, 1}, {0, 0, 0, 0});
      }
    }
  }

  uint64_t seed_;
  int64_t channels_ = 0, batch_ = 0, side_ = 0;
};

std::vector<HostTensor> Arguments(const std::vector<Type>& types, uint64_t seed) {
  test::Rng rng(seed);
  std::vector<HostTensor> arguments;
  for (const Type& type : types) {
    HostTensor& x = arguments.emplace_back(type.dtype, type.dims);
    for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, static_cast<double>(rng.Below(2001)) / 1000 - 1);
  }
  return arguments;
}

TEST(Channels, NetworksGiveTheReferencesResultsAndTheSameBitsInAnyLayout) {
  const auto [first, last] = test::Seeds(12);
  ASSERT_LE(first, last);
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(seed);
    const Network network(seed);
    const std::vector<HostTensor> arguments = Arguments(network.types(), seed);
    const Ref<const ir::Function> alone = network.Function(false), all = network.Function(true);
    auto expectation = test::Expectation::Of(alone, arguments);
    ASSERT_TRUE(expectation.ok()) << expectation.status();
    for (const std::string& isa : TestIsas()) {
      const auto moved = RunOnCpu(TestBackend(), alone, arguments, isa), kept = RunOnCpu(TestBackend(), all, arguments, isa);
      ASSERT_TRUE(moved.ok()) << moved.status();
      ASSERT_TRUE(kept.ok()) << kept.status();
      const auto differences = expectation->Differences(*moved);
      ASSERT_TRUE(differences.ok()) << differences.status();
      EXPECT_EQ(*differences, "") << isa;
      for (size_t r = 0; r < moved->size(); ++r) {
        EXPECT_TRUE(std::ranges::equal((*moved)[r].bytes(), (*kept)[r].bytes())) << isa << ": result " << r;
      }
    }
  }
}

// Few pixels beside a kernel in PyTorch's order: it is multiplied as it lies in all three directions, and nothing turns it round.
TEST(Channels, KernelsOfFewPixelsAreMultipliedAsTheyLie) {
  constexpr int64_t kOuts = 160;
  constexpr struct {
    int64_t batch, channels, side, window, stride;
  } kCases[] = {{3, 24, 2, 3, 1}, {2, 24, 7, 3, 2}, {5, 256, 1, 1, 1}, {1, 64, 6, 2, 3}};
  for (const auto& [batch, channels, side, window, stride] : kCases) {
    SCOPED_TRACE(absl::StrCat(batch, "x", side, "x", side, " by ", window, " stride ", stride));
    const auto type = [](Dims dims) { return Type::Tensor(DType::kF32, std::move(dims)); };
    const std::vector<Type> types = {type({batch, channels, side, side}), type({kOuts, channels, window, window})};
    const int64_t pad = window / 2;
    const auto function = test::MakeFunction("main", types, [&](Builder& b, const Vec& p) {
      const Ints strides = {stride, stride}, ones = {1, 1}, nchw = {0, 1, 2, 3}, oihw = {1, 0, 2, 3};
      const Value y = ops::Convolution(b, p[0], p[1], {strides, Ints{pad, pad, pad, pad}, ones, ones, nchw, oihw, nchw, int64_t{1}, int64_t{1}});
      const auto grads = autodiff::Gradient(b, ops::Reduce(b, ops::Mul(b, y, y), ops::Reducer::kSum, {0, 1, 2, 3}), p);
      EXPECT_TRUE(grads.ok()) << grads.status();
      return Vec{y, (*grads)[0], (*grads)[1], ops::Sub(b, p[1], ops::Mul(b, (*grads)[1], 0.125))};
    });
    const std::vector<HostTensor> arguments = Arguments(types, 3);
    auto expectation = test::Expectation::Of(function, arguments);
    ASSERT_TRUE(expectation.ok()) << expectation.status();
    for (const std::string& isa : TestIsas()) {
      const auto have = RunOnCpu(TestBackend(), function, arguments, isa);
      ASSERT_TRUE(have.ok()) << have.status();
      const auto differences = expectation->Differences(*have);
      ASSERT_TRUE(differences.ok()) << differences.status();
      EXPECT_EQ(*differences, "") << isa;
    }
    const auto module = Prepared(TestBackend(), function);
    ASSERT_TRUE(module.ok()) << module.status();
    const auto executable = TestBackend().Compile(*module, {});
    ASSERT_TRUE(executable.ok()) << executable.status();
    int columns = 0;
    for (const KernelDescription& kernel : (*executable)->Describe().kernels) {
      columns += kernel.implementation.starts_with("conv columns");
      EXPECT_FALSE(kernel.name == "transpose" && kernel.bytes_written >= types[1].bytes());
    }
    EXPECT_EQ(columns, 3);
  }
}

// Rows that lie across memory are summed as those that lie along it.
TEST(Channels, SumsHaveTheBitsOfUnmovedOnes) {
  for (const int64_t columns : {3, 16, 70, 300, 3000}) {
    for (const int64_t channels : {4, 24, 33}) {
      for (const int64_t batch : {1, 8}) {
        if (columns == 3000 && channels * batch > 32) continue;
        SCOPED_TRACE(absl::StrCat(batch, "x", channels, "x9x", columns));
        const Dims nchw = {batch, channels, 9, columns}, nhwc = {batch, 9, columns, channels};
        const auto sums = [](Builder& b, const Value& x, const Value& y) {
          return Vec{ops::Reduce(b, x, ops::Reducer::kSum, {0, 2, 3}), ops::Reduce(b, ops::Mul(b, x, y), ops::Reducer::kSum, {2, 3}),
                     ops::Mul(b, ops::Reduce(b, ops::Exp(b, ops::Mul(b, ops::Sub(b, x, y), ops::Add(b, x, y))), ops::Reducer::kSum, {0, 2, 3}), 0.5)};
        };
        const auto type = [](const Dims& dims) { return Type::Tensor(DType::kF32, dims); };
        const auto along = test::MakeFunction("main", {type(nchw), type(nchw)}, [&](Builder& b, const Vec& p) { return sums(b, p[0], p[1]); });
        const auto across = test::MakeFunction("main", {type(nhwc), type(nhwc)}, [&](Builder& b, const Vec& p) {
          return sums(b, ops::Transpose(b, p[0], {0, 3, 1, 2}), ops::Transpose(b, p[1], {0, 3, 1, 2}));
        });
        const std::vector<HostTensor> given = Arguments({type(nhwc), type(nhwc)}, 7);
        std::vector<HostTensor> turned;
        for (const HostTensor& x : given) {
          HostTensor& to = turned.emplace_back(DType::kF32, nchw);
          const int64_t pixels = 9 * columns;
          for (int64_t i = 0; i < x.count(); ++i) {
            const int64_t n = i / (pixels * channels), pixel = i / channels % pixels, c = i % channels;
            to.SetDouble((n * channels + c) * pixels + pixel, x.GetDouble(i));
          }
        }
        for (const std::string& isa : TestIsas()) {
          const auto want = RunOnCpu(TestBackend(), along, turned, isa), have = RunOnCpu(TestBackend(), across, given, isa);
          ASSERT_TRUE(want.ok() && have.ok()) << want.status() << have.status();
          for (size_t r = 0; r < want->size(); ++r) {
            EXPECT_TRUE(std::ranges::equal((*have)[r].bytes(), (*want)[r].bytes())) << isa << ": result " << r;
          }
        }
      }
    }
  }
}

// Every element type's width, sizes around the tile's, leading and middle dimensions that stay.
TEST(Channels, TransposesMoveEveryElement) {
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{16, 4096}, {17, 1031}, {250, 333}, {3, 9000}}) {
      SCOPED_TRACE(absl::StrCat(NameOf(dtype), " ", rows, "x", columns));
      for (const Ints& order : {Ints{0, 2, 1}, Ints{2, 0, 1}, Ints{2, 1, 0}}) {
        const Type type = Type::Tensor(dtype, {2, rows, columns});
        const auto function = test::MakeFunction("main", {type}, [&](Builder& b, const Vec& p) { return Vec{ops::Transpose(b, p[0], order)}; });
        HostTensor x(dtype, type.dims);
        for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, static_cast<double>(i % 251));
        const Dims strides = StridesOf(type.dims);
        for (const std::string& isa : TestIsas()) {
          const auto have = RunOnCpu(TestBackend(), function, {&x, 1}, isa);
          ASSERT_TRUE(have.ok()) << have.status();
          const Dims& dims = (*have)[0].dims();
          int64_t wrong = 0;
          for (int64_t i = 0; i < x.count(); ++i) {
            const int64_t a = i / (dims[1] * dims[2]), c = i / dims[2] % dims[1], d = i % dims[2];
            const int64_t from = a * strides[order[0]] + c * strides[order[1]] + d * strides[order[2]];
            wrong += (*have)[0].GetDouble(i) != x.GetDouble(from);
          }
          EXPECT_EQ(wrong, 0) << isa;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
