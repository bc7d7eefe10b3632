// Gradients of called functions and of loops: one forward step that keeps what is dear, one backward step, for all calls of a function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/autodiff/gradient.h"
#include "src/backends/reference/interpreter.h"
#include "src/ir/rewrite.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/build.h"
#include "src/ops/random/bits.h"
#include "src/passes/passes.h"
#include "tests/support/control_programs.h"

namespace weft::autodiff {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using test::MakeFunction;
using Vec = std::vector<Value>;

const Type kSquare = Type::Tensor(DType::kF64, {3, 3}), kNumber = Type::Scalar(DType::kF64);
const Type kCount = Type::Scalar(DType::kI32), kStream = Type::Tensor(DType::kU64, {3});

Ref<const Function> Interned(std::string name, const std::vector<Type>& types, const test::Formula& formula) {
  return ir::Intern(MakeFunction(std::move(name), types, formula));
}

Vec CallOf(Builder& b, const Ref<const Function>& f, const Vec& operands) {
  const ir::Values results = ops::CallAll(b, ops::kOp_call, {operands.begin(), operands.end()}, {}, {&f, 1});
  return {results.begin(), results.end()};
}

Value Product(Builder& b, const Value& x, const Value& y) {
  const ir::Ints none, last = {1}, first = {0};
  return ops::Call(b, ops::kOp_dot_general, {x, y}, {none, none, last, first});
}

// x, w -> tanh(2 x w) w, exp(x w): one dear value that no result shows, one that is a result.
Ref<const Function> Layer() {
  return Interned("layer", {kSquare, kSquare}, [](Builder& b, const Vec& p) {
    const Value xw = Product(b, p[0], p[1]);
    return Vec{Product(b, ops::Tanh(b, ops::Mul(b, xw, 2)), p[1]), ops::Exp(b, xw)};
  });
}

HostTensor Numbers(const Type& type, int from) {
  HostTensor value(type.dtype, type.dims);
  for (int64_t i = 0; i < value.count(); ++i) value.SetDouble(i, IsFloat(type.dtype) ? std::sin(from + 1.7 * static_cast<double>(i)) : from);
  return value;
}

std::vector<HostTensor> Arguments(const Function& f) {
  std::vector<HostTensor> all;
  for (const Value& parameter : f.parameters()) all.push_back(Numbers(parameter.type(), static_cast<int>(all.size()) + 1));
  return all;
}

std::vector<HostTensor> Run(const Function& f, const std::vector<HostTensor>& arguments) {
  auto results = reference::Interpret(f, arguments);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *std::move(results) : std::vector<HostTensor>(8);
}

// Float results, weighted, in one number.
double Loss(const Function& f, const std::vector<HostTensor>& arguments, std::span<const HostTensor> seeds) {
  double sum = 0;
  size_t next = 0;
  for (const HostTensor& result : Run(f, arguments)) {
    if (!IsFloat(result.dtype())) continue;
    for (int64_t i = 0; i < result.count(); ++i) sum += result.GetDouble(i) * seeds[next].GetDouble(i);
    ++next;
  }
  return sum;
}

Ref<const Function> Of(const Function& f, const std::vector<bool>& wanted) {
  absl::InlinedVector<bool, 8> flags(wanted.begin(), wanted.end());
  const auto gradient = RegionGradient(f, std::span(flags.data(), flags.size()));
  EXPECT_TRUE(gradient.ok()) << gradient.status();
  if (!gradient.ok()) return nullptr;
  ir::Module module;
  module.functions.push_back(ir::CopyFunction(**gradient));
  const absl::Status valid = ir::Verify(module);
  EXPECT_TRUE(valid.ok()) << valid;
  const auto merged = passes::MergeCalls(module, {});
  EXPECT_TRUE(merged.ok() && ir::Verify(*merged).ok()) << merged.status();
  return merged->functions[0];
}

std::vector<bool> Floats(const Function& f) {
  std::vector<bool> wanted;
  for (const Value& parameter : f.parameters()) wanted.push_back(IsFloat(parameter.dtype()));
  return wanted;
}

// The same function with its calls written out.
Ref<const Function> Expanded(const Function& f) {
  ir::Module module;
  module.functions.push_back(ir::CopyFunction(f));
  return passes::InlineCalls(module, {})->functions[0];
}

// Gradients by calls are what differences say and, of first order, the bits of those of what is written out. (Of second order
// sums are made call by call.) Then the gradient's gradient.
void Check(const Function& f, bool second = true, bool first = true) {
  const Ref<const Function> called = Of(f, Floats(f)), plain = Of(*Expanded(f), Floats(f));
  ASSERT_TRUE(called != nullptr && plain != nullptr);
  const std::vector<HostTensor> arguments = Arguments(*called);
  const auto have = Run(*called, arguments), want = Run(*plain, arguments);
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; first && i < have.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(have[i].bytes(), want[i].bytes())) << "gradient " << i << " of @" << f.name();
  }
  std::vector<HostTensor> own(arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(f.parameters().size()));
  const std::span<const HostTensor> seeds = std::span(arguments).subspan(own.size());
  size_t next = 0;
  for (HostTensor& argument : own) {
    if (!IsFloat(argument.dtype())) continue;
    for (int64_t i = 0; i < argument.count(); ++i) {
      const double at = argument.GetDouble(i);
      argument.SetDouble(i, at + 1e-6);
      const double up = Loss(f, own, seeds);
      argument.SetDouble(i, at - 1e-6);
      const double down = Loss(f, own, seeds);
      argument.SetDouble(i, at);
      const double slope = (up - down) / 2e-6;
      EXPECT_NEAR(have[next].GetDouble(i), slope, 1e-6 * (1 + std::fabs(slope))) << "gradient " << next << " of @" << f.name();
    }
    ++next;
  }
  if (second) Check(*called, false, false);
}

// How many nodes of an operation a function has, without those it calls.
ptrdiff_t CountOf(const Function& f, std::string_view op) {
  return std::ranges::count_if(f.nodes(), [&](const ir::Node* node) { return node->op().c_name == op; });
}

Ref<const ir::SplitGradient> SplitOf(const Function& f, std::initializer_list<bool> wanted, std::initializer_list<bool> given) {
  const auto split = RegionSplit(f, std::span(wanted.begin(), wanted.size()), std::span(given.begin(), given.size()));
  EXPECT_TRUE(split.ok()) << split.status();
  return *split;
}

TEST(SplitGradient, ForwardKeepsWhatIsDearAndBackwardComputesTheRestAgain) {
  const auto f = Layer();
  const auto split = SplitOf(*f, {true, true}, {true, true});
  ASSERT_NE(split->forward, nullptr);
  // tanh: the product before it is not read, the second result is known. Parameters, results and residuals are numbered through.
  EXPECT_EQ(split->forward->results().size(), 3u);
  EXPECT_EQ(CountOf(*split->backward, "tanh") + CountOf(*split->backward, "exp"), 0);
  EXPECT_EQ(CountOf(*split->backward, "dot_general"), 4);
  std::vector<uint32_t> reads = split->reads;
  std::ranges::sort(reads);
  EXPECT_THAT(reads, testing::ElementsAre(0, 1, 3, 4, 5, 6));
  // Once for each question; equal ones are the same object.
  EXPECT_EQ(SplitOf(*f, {true, true}, {true, true}), split);
  EXPECT_EQ(SplitOf(*Layer(), {true, true}, {true, true}), split);
  // Of the second result with respect to x alone nothing inside is read.
  const auto less = SplitOf(*f, {true, false}, {false, true});
  EXPECT_EQ(less->forward, nullptr);
  std::vector<uint32_t> few = less->reads;
  std::ranges::sort(few);
  EXPECT_THAT(few, testing::ElementsAre(1, 3, 4));
}

TEST(SplitGradient, CheapChainsAreComputedAgainFromOneValue) {
  const auto f = Interned("chain", {kSquare, kSquare}, [](Builder& b, const Vec& p) {
    const Value h = Product(b, p[0], p[0]);
    const Value a = ops::Add(b, ops::Mul(b, h, h), 1), c = ops::Mul(b, ops::Sub(b, 2, h), p[1]);
    return Vec{Product(b, a, c), Product(b, c, a)};
  });
  const auto split = SplitOf(*f, {true, true}, {true, true});
  ASSERT_NE(split->forward, nullptr);
  EXPECT_EQ(split->forward->results().size(), 3u);  // h
  Check(*MakeFunction("main", {kSquare, kSquare}, [&](Builder& b, const Vec& p) { return CallOf(b, f, p); }), false);
}

TEST(SplitGradient, OfCallsIsThatOfWhatTheyCompute) {
  const auto f = Layer();
  Check(*MakeFunction("once", {kSquare, kSquare}, [&](Builder& b, const Vec& p) { return CallOf(b, f, p); }));
  const auto outer = Interned("outer", {kSquare, kSquare, kSquare}, [&](Builder& b, const Vec& p) {
    const Vec first = CallOf(b, f, {p[0], p[1]});
    return Vec{CallOf(b, f, {first[0], p[2]})[0], first[1]};
  });
  Check(*MakeFunction("nested", {kSquare, kSquare, kSquare}, [&](Builder& b, const Vec& p) { return CallOf(b, outer, p); }));
}

TEST(SplitGradient, OfResultsThatAreParametersTwinsIntegersAndConstants) {
  const auto f = Interned("odd", {kSquare, kCount, kSquare}, [](Builder& b, const Vec& p) {
    const Value y = ops::Mul(b, ops::Tanh(b, p[0]), ops::BroadcastTo(b, ops::Convert(b, p[1], DType::kF64), {3, 3}));
    return Vec{p[2], y, p[1], y, ops::Full(b, DType::kF64, {3, 3}, 4)};
  });
  Check(*MakeFunction("main", {kSquare, kCount, kSquare}, [&](Builder& b, const Vec& p) { return CallOf(b, f, p); }));
  const auto twice = Interned("twice", {kNumber}, [](Builder& b, const Vec& p) { return Vec{ops::Mul(b, p[0], 2)}; });
  // Its backward step is itself.
  Check(*MakeFunction("main", {kNumber}, [&](Builder& b, const Vec& p) { return CallOf(b, twice, {CallOf(b, twice, p)[0]}); }));
  EXPECT_EQ(SplitOf(*twice, {true}, {true})->backward, twice);
}

TEST(SplitGradient, ThroughCallsInLoops) {
  const auto f = Interned("cell", {kSquare, kSquare}, [](Builder& b, const Vec& p) { return Vec{ops::Tanh(b, Product(b, p[0], p[1]))}; });
  const auto body = Interned("body", {kSquare, kSquare}, [&](Builder& b, const Vec& p) { return CallOf(b, f, p); });
  const auto main = MakeFunction("main", {kSquare, kSquare}, [&](Builder& b, const Vec& p) {
    return Vec{ops::CallAll(b, ops::kOp_scan, {p[0], p[1]}, {int64_t{4}, int64_t{1}, int64_t{0}}, {&body, 1})[0]};
  });
  Check(*main);
}

// h, n, x, w -> tanh(h w) x, n + 1 carried; x exp(h w), n out.
Ref<const Function> Cell() {
  return Interned("cell", {kSquare, kCount, kSquare, kSquare}, [](Builder& b, const Vec& p) {
    const Value hw = Product(b, p[0], p[3]);
    return Vec{ops::Mul(b, ops::Tanh(b, hw), p[2]), ops::Add(b, p[1], 1), ops::Mul(b, ops::Exp(b, hw), p[2]), ops::Convert(b, p[1], DType::kF64)};
  });
}

// The last h, what came out, and the gradients of both: two loops, one of which is the recorded one and keeps what the other reads.
TEST(SplitGradient, LoopsRunForwardOnce) {
  const auto f = Cell();
  std::vector<Value> p;
  for (const Type& type : {kSquare, kCount, Type::Tensor(DType::kF64, {5, 3, 3}), kSquare}) {
    p.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {type}), 0});
  }
  Builder b;
  const ir::Values out = ops::CallAll(b, ops::kOp_scan, {p[0], p[1], p[2], p[3]}, {int64_t{5}, int64_t{2}, int64_t{1}}, {&f, 1});
  const Value y = ops::Add(b, out[0], ops::SumTo(b, out[2], {3, 3}));
  const auto grads = Gradient(b, y, std::vector<Value>{p[0], p[2], p[3]}, ops::FullLike(b, y, 1));
  ASSERT_TRUE(grads.ok()) << grads.status();
  ir::Module module;
  std::vector<Value> results = {y, out[3]};
  std::ranges::copy(*grads, std::back_inserter(results));
  module.functions.push_back(ir::CopyFunction(*Function::Create("main", p, results)));
  const auto before = autodiff::Run(module.main(), Arguments(module.main()));
  const auto merged = passes::MergeCalls(module, {});
  ASSERT_TRUE(merged.ok() && ir::Verify(*merged).ok()) << merged.status();
  EXPECT_EQ(CountOf(module.main(), "scan"), 3);
  EXPECT_EQ(CountOf(merged->main(), "scan"), 2) << ir::Print(*merged);
  ptrdiff_t products = 0, exponentials = 0;
  for (const Function* each : ir::CalleesFirst(merged->main(), [](const Function&) { return true; })) {
    products += CountOf(*each, "dot_general");
    exponentials += CountOf(*each, "exp") + CountOf(*each, "tanh");
  }
  EXPECT_EQ(products, 3);
  EXPECT_EQ(exponentials, 2);
  const auto after = autodiff::Run(merged->main(), Arguments(module.main()));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(std::ranges::equal(before[i].bytes(), after[i].bytes())) << i;
}

TEST(SplitGradient, OfLoopsIsThatOfWhatTheyCompute) {
  const auto f = Cell();
  const Type stack = Type::Tensor(DType::kF64, {4, 3, 3});
  for (const bool reverse : {false, true}) {
    for (const int64_t every : {1, 3}) {
      Check(*MakeFunction("main", {kSquare, kCount, stack, kSquare}, [&](Builder& b, const Vec& p) {
        const ir::Values out = ops::CallAll(b, ops::kOp_scan, {p[0], p[1], p[2], p[3]},
                                            {int64_t{4}, int64_t{2}, int64_t{1}, int64_t{reverse}, int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, every}, {&f, 1});
        return Vec{out[0], out[2]};
      }));
    }
  }
}

// What a run carries out is what the next one carried in: nothing is stacked twice.
TEST(SplitGradient, LoopsKeepNothingTwice) {
  const auto f = Interned("cell", {kSquare, kSquare}, [](Builder& b, const Vec& p) { return Vec{ops::Tanh(b, Product(b, p[0], p[1]))}; });
  const auto main = MakeFunction("main", {kSquare, kSquare}, [&](Builder& b, const Vec& p) {
    return Vec{ops::CallAll(b, ops::kOp_scan, {p[0], p[1]}, {int64_t{4}, int64_t{1}, int64_t{0}}, {&f, 1})[0]};
  });
  const auto gradient = Of(*main, {true, true});
  EXPECT_EQ(CountOf(*gradient, "scan"), 2);
  size_t results = 0;
  for (const ir::Node* node : gradient->nodes()) {
    if (node->op().c_name == "scan" && node->regions()[0]->name() == "cell") results = node->results().size();
  }
  EXPECT_EQ(results, 2u);  // the last, and what was carried into each
}

TEST(SplitGradient, DrawsOnce) {
  const auto f = Interned("dropout", {kSquare, kStream}, [](Builder& b, const Vec& p) {
    const Value bits = ops::RandomBits(b, p[1], {3, 3}, DType::kU32);
    return Vec{ops::Select(b, ops::Compare(b, ops::Direction::kGt, ops::Convert(b, bits, DType::kF64), 2e9), p[0],
                           ops::FullLike(b, p[0], 0))};
  });
  const auto split = SplitOf(*f, {true, false}, {true});
  ASSERT_NE(split->forward, nullptr);
  EXPECT_EQ(split->forward->results().size(), 2u);
  EXPECT_EQ(CountOf(*split->backward, "rng_bit_generator"), 0);
  Check(*MakeFunction("main", {kSquare, kStream}, [&](Builder& b, const Vec& p) { return CallOf(b, f, p); }));
}

// In the program of value and gradient the forward step stands in for the call that was there before, at every depth.
TEST(SplitGradient, ForwardRunsOnce) {
  const auto f = Layer();
  const auto outer = Interned("outer", {kSquare, kSquare}, [&](Builder& b, const Vec& p) {
    return Vec{CallOf(b, f, {CallOf(b, f, p)[0], p[1]})[0]};
  });
  std::vector<Value> p = {Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {kSquare}), 0},
                          Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {kSquare}), 0}};
  Builder b;
  const Value y = CallOf(b, outer, p)[0];
  const auto grads = Gradient(b, y, p, ops::FullLike(b, y, 1));
  ASSERT_TRUE(grads.ok()) << grads.status();
  ir::Module module;
  module.functions.push_back(ir::CopyFunction(*Function::Create("main", p, {y, (*grads)[0], (*grads)[1]})));
  auto merged = passes::MergeCalls(module, {});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(CountOf(merged->main(), "call"), 2) << ir::Print(*merged);
  merged = passes::InlineCalls(*merged, {});
  merged = passes::MergeEqual(*merged, {});
  EXPECT_EQ(CountOf(merged->main(), "tanh"), 2) << ir::Print(*merged);
  // Even without writing anything out.
  const auto kept = passes::MergeCalls(module, {});
  std::string names;
  for (const Function* each : ir::CalleesFirst(kept->main())) names += each->name() + " ";
  EXPECT_EQ(names, "layer.forward outer.forward layer.backward outer.backward main ");
}

}  // namespace
}  // namespace weft::autodiff
