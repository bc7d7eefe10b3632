// Reductions, windows, scatters and sorts by functions: on the CPU and on the reference, their rules, gradients and text.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "src/autodiff/gradient.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ir/stablehlo.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/scalar_function.h"
#include "src/ops/sort/order.h"
#include "tests/cpu/run_all.h"
#include "tests/support/body_programs.h"
#include "tests/support/control_programs.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::Type;
using ir::Value;
using ir::Values;
using test::MakeFunction;
using test::Ties;
using testing::HasSubstr;
using testing::Not;

constexpr DType kF = DType::kF32;
constexpr DType kI = DType::kI32;

HostTensor Tensor(DType dtype, Dims dims, const std::vector<double>& values) {
  HostTensor t(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, values[static_cast<size_t>(i)]);
  return t;
}
std::vector<double> Elements(const HostTensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.count(); ++i) values.push_back(t.GetDouble(i));
  return values;
}

// Functions of floats may differ by their tolerance; all else is the same bits everywhere.
TEST(Bodies, EveryProgramIsTheSameEverywhere) {
  const auto programs = test::BodyPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  EXPECT_GT(programs->size(), 300u);
  for (size_t i = 0; i < programs->size(); i += test::kOneCaseIn) {
    const test::OpProgram& program = (*programs)[i];
    if (program.name.find("logsumexp") != std::string::npos) continue;
    SCOPED_TRACE(program.name);
    RunAll(program.module.functions[0], program.inputs);
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Bodies, AReductionOfPairsFindsTheFirstOfTheLargest) {
  const HostTensor x = Tensor(kF, {2, 4}, {1, 7, 7, 3, NAN, 2, NAN, 9});
  const auto results = RunAll(test::ExtremeAndPlace(kF, {2, 4}, {1}, true), {x});
  EXPECT_EQ(Elements(results[1]), (std::vector<double>{1, 0}));
  EXPECT_EQ(results[0].GetDouble(0), 7);
  EXPECT_TRUE(std::isnan(results[0].GetDouble(1)));
}

// Long rows are cut into pieces; what is associative does not notice, the order of elements stays.
TEST(Bodies, ALongReductionKeepsTheOrderOfItsElements) {
  const auto body = MakeFunction("last_but_zero", {Type::Scalar(kI), Type::Scalar(kI)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Select(b, ops::Compare(b, ops::Direction::kEq, p[1], 0), p[0], p[1])};
  });
  for (const Dims& dims : {Dims{10000}, Dims{3, 5000}, Dims{2, 300, 7}, Dims{129}, Dims{128}, Dims{200, 3, 1}, Dims{1, 3, 400}}) {
    const Ints dimensions = dims.size() == 3 ? Ints{0, 2} : Ints{static_cast<int64_t>(dims.size()) - 1};
    const auto main = MakeFunction("main", {Type::Tensor(kI, dims)}, [&](Builder& b, const std::vector<Value>& p) {
      const Value first[] = {ops::Scalar(b, kI, -1)};
      const Values all = ops::ReduceBy(b, {&p[0], 1}, first, body, dimensions);
      return std::vector<Value>(all.begin(), all.end());
    });
    HostTensor x(kI, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.SetInt(i, i % 11 == 3 && i < x.count() * 9 / 10 ? i : 0);
    RunAll(main, {x});
  }
}

// What padding makes of an operand is counted: 2^40 in each of three dimensions would be 0 elements in 64 bits.
TEST(Bodies, WindowsOverMoreThanMemoryHoldsAreRefused) {
  const int64_t far = (int64_t{1} << 40) - 2, step = int64_t{1} << 40;
  const auto main = MakeFunction("main", {Type::Tensor(kF, {2, 2, 2})}, [&](Builder& b, const std::vector<Value>& p) {
    ir::Attrs attrs;
    attrs.set(ops::ReduceWindowAttrs::kWindowDimensions, Ints{1, 1, 1});
    attrs.set(ops::ReduceWindowAttrs::kReducer, static_cast<int64_t>(ops::Reducer::kProd));
    attrs.set(ops::ReduceWindowAttrs::kWindowStrides, Ints{step, step, step});
    attrs.set(ops::ReduceWindowAttrs::kPadding, Ints{far, 0, far, 0, far, 0});
    return std::vector{ops::Call(b, ops::kOp_reduce_window, {p[0]}, std::move(attrs))};
  });
  ASSERT_EQ(main->results()[0].dims(), (Dims{1, 1, 1}));
  ir::Module module;
  module.functions.push_back(main);
  EXPECT_THAT(std::string(LowerModule(module, *TargetFor(Isa::kPortable)).status().message()),
              HasSubstr("padding and dilation make [1099511627776, 1099511627776, 1099511627776] of [2, 2, 2], more elements than memory could hold"));
}

TEST(Bodies, WhatIsPlainIsRecordedAsThePlainOperation) {
  const auto add = MakeFunction("add", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Add(b, p[1], p[0])};
  });
  Builder b;
  const Value x = test::NewParameter(Type::Tensor(kF, {3, 4}));
  const Value zero[] = {ops::Scalar(b, kF, 0)}, one[] = {ops::Scalar(b, kF, 1)};
  const Value plain = ops::ReduceBy(b, {&x, 1}, zero, add, {1})[0];
  EXPECT_EQ(&plain.node->op(), &ops::kOp_reduce);
  EXPECT_EQ(&ops::ReduceBy(b, {&x, 1}, one, add, {1})[0].node->op(), &ops::kOp_add);
  EXPECT_EQ(&ops::ReduceWindowBy(b, {&x, 1}, zero, add, {Ints{1, 2}})[0].node->op(), &ops::kOp_reduce_window);
  EXPECT_EQ(&ops::ReduceWindowBy(b, {&x, 1}, one, add, {Ints{1, 2}})[0].node->op(), &ops::kOp_reduce_window_by);
  const Value indices = test::NewParameter(Type::Tensor(kI, {2})), rows = test::NewParameter(Type::Tensor(kF, {2, 4}));
  const ir::Attrs dims = {Ints{1}, Ints{0}, Ints{0}, int64_t{1}};
  EXPECT_EQ(&ops::ScatterBy(b, {x, indices, rows}, add, dims)[0].node->op(), &ops::kOp_scatter);
  const auto set = MakeFunction("set", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder&, const std::vector<Value>& p) { return std::vector{p[1]}; });
  const Value replaced = ops::ScatterBy(b, {x, indices, rows}, set, dims)[0];
  EXPECT_EQ(replaced.node->attrs().Int(4), 6);
  const auto ge = MakeFunction("ge", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Compare(b, ops::Direction::kGe, p[0], p[1])};
  });
  const Value source = test::NewParameter(Type::Tensor(kF, {3, 3}));
  EXPECT_EQ(&ops::SelectAndScatterBy(b, {x, source, zero[0]}, ge, add, {Ints{1, 2}}).node->op(), &ops::kOp_select_and_scatter);
  EXPECT_EQ(&ops::SelectAndScatterBy(b, {x, source, one[0]}, ge, add, {Ints{1, 2}}).node->op(), &ops::kOp_select_and_scatter_by);
  EXPECT_TRUE(b.ok()) << b.status();
}

// The kernels of the library that the program of one sort calls.
std::vector<std::string> KernelsOf(const Ref<const Function>& function) {
  const auto module = Prepared(TestBackend(), function);
  EXPECT_TRUE(module.ok()) << module.status();
  const CpuTarget target = *TargetFor(Isa::kPortable);
  const auto lowered = LowerModule(*module, target);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return lowered->program.host_kernels;
}

Ref<const Function> SortMain(DType dtype, const Dims& dims, const Ref<const Function>& comparator) {
  return MakeFunction("main", {Type::Tensor(dtype, dims)}, [&](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::CallAll(b, ops::kOp_sort_by, {p[0]}, {int64_t{-1}, int64_t{1}}, {&comparator, 1})[0]};
  });
}

TEST(Bodies, TheUsualComparatorsSortByKeys) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI8, DType::kU16, DType::kI32, DType::kU64, DType::kBool}) {
    for (const bool descending : {false, true}) {
      const DType types[] = {dtype};
      const auto total = ops::Comparator(types, descending);
      ASSERT_TRUE(total.ok()) << total.status();
      const auto plain = MakeFunction("plain", {Type::Scalar(dtype), Type::Scalar(dtype)}, [&](Builder& b, const std::vector<Value>& p) {
        return std::vector{ops::Compare(b, ops::Direction::kGt, p[descending ? 0 : 1], p[descending ? 1 : 0])};
      });
      EXPECT_THAT(KernelsOf(SortMain(dtype, {3, 40}, *total)), testing::ElementsAre("sort_keys")) << NameOf(dtype);
      EXPECT_THAT(KernelsOf(SortMain(dtype, {3, 40}, plain)), testing::ElementsAre("sort_keys")) << NameOf(dtype);
      RunAll(SortMain(dtype, {3, 40}, *total), {Ties(dtype, {3, 40}, 1)});
      RunAll(SortMain(dtype, {3, 40}, plain), {Ties(dtype, {3, 40}, 1, false)});
    }
  }
  // Of other pairs, of both, of what is not the same function of the two: by comparing.
  const auto odd = MakeFunction("odd", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Compare(b, ops::Direction::kLt, ops::Mul(b, p[0], 2), ops::Mul(b, p[1], 3))};
  });
  EXPECT_THAT(KernelsOf(SortMain(kF, {40}, odd)), testing::ElementsAre("sort_by"));
}

// f may be one chain of many operations, of which the lowering takes no stack.
TEST(Bodies, AComparatorOfALongChainSortsByKeys) {
  const auto chain = MakeFunction("chain", {Type::Scalar(kI), Type::Scalar(kI)}, [](Builder& b, const std::vector<Value>& p) {
    Value x = p[0], y = p[1];
    for (int i = 0; i < 30000; ++i) x = ops::Neg(b, x), y = ops::Neg(b, y);
    return std::vector{ops::Compare(b, ops::Direction::kLt, x, y)};
  });
  const CpuTarget target = *TargetFor(Isa::kPortable);
  ir::Module module;
  module.functions.push_back(SortMain(kI, {40}, chain));
  const auto lowered = LowerModule(module, target);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(lowered->program.host_kernels, testing::ElementsAre("sort_keys"));
}

// Rows of more elements than one thread sorts, or than are merged; every key and its place.
TEST(Bodies, LongRowsSortStablyByKeysAndByComparing) {
  const auto odd = MakeFunction("by_third", {Type::Scalar(kI), Type::Scalar(kI), Type::Scalar(kI), Type::Scalar(kI)},
                                [](Builder& b, const std::vector<Value>& p) {
                                  const Value three = ops::Scalar(b, kI, 3);
                                  return std::vector{ops::Compare(b, ops::Direction::kLt, ops::Div(b, p[0], three),
                                                                  ops::Div(b, ops::Add(b, p[1], 0), three))};
                                });
  const DType types[] = {kI, kI};
  const auto keyed = ops::Comparator(types, false);
  ASSERT_TRUE(keyed.ok()) << keyed.status();
  for (const Dims& dims : {Dims{3, 700}, Dims{150000}, Dims{2, 66000}}) {
    HostTensor x(kI, dims), places(kI, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.SetInt(i, i * 7919 % 10007 - 5000), places.SetInt(i, i % dims.back());
    for (const auto& [comparator, divisor] : {std::pair{*keyed, 1}, {odd, 3}}) {
      const auto main = MakeFunction("main", {Type::Tensor(kI, dims), Type::Tensor(kI, dims)}, [&](Builder& b, const std::vector<Value>& p) {
        const Values sorted = ops::CallAll(b, ops::kOp_sort_by, {p[0], p[1]}, {int64_t{-1}, int64_t{1}}, {&comparator, 1});
        return std::vector<Value>(sorted.begin(), sorted.end());
      });
      const auto have = RunOnCpu(TestBackend(), main, std::vector{x, places});
      ASSERT_TRUE(have.ok()) << have.status();
      for (int64_t row = 0; row < x.count() / dims.back(); ++row) {
        std::vector<int64_t> order(static_cast<size_t>(dims.back()));
        std::iota(order.begin(), order.end(), 0);
        const auto key = [&](int64_t k) { return x.GetInt(row * dims.back() + k) / divisor; };
        std::ranges::stable_sort(order, [&](int64_t p, int64_t q) { return key(p) < key(q); });
        for (int64_t k = 0; k < dims.back(); ++k) ASSERT_EQ((*have)[1].GetInt(row * dims.back() + k), order[static_cast<size_t>(k)]) << k;
      }
    }
  }
}

// A comparator that orders nothing still gives some order of the same elements.
TEST(Bodies, AComparatorThatContradictsItselfPermutes) {
  const auto always = MakeFunction("always", {Type::Scalar(kI), Type::Scalar(kI)}, [](Builder& b, const std::vector<Value>&) {
    return std::vector{ops::Scalar(b, DType::kBool, 1)};
  });
  HostTensor x(kI, {1000});
  for (int64_t i = 0; i < 1000; ++i) x.SetInt(i, i);
  const auto have = RunOnCpu(TestBackend(), SortMain(kI, {1000}, always), std::vector{x});
  ASSERT_TRUE(have.ok()) << have.status();
  std::vector<double> found = Elements((*have)[0]);
  std::ranges::sort(found);
  EXPECT_EQ(found, Elements(x));
}

TEST(Bodies, GradientsFollowSortedElements) {
  const auto main = MakeFunction("main", {Type::Tensor(kF, {5}), Type::Tensor(kF, {5})}, [](Builder& b, const std::vector<Value>& p) {
    const Values sorted = ops::SortByFirst(b, {p[0], p[1]}, 0, true);
    return std::vector{sorted[0], sorted[1]};
  });
  const bool wanted[] = {true, true};
  const auto gradient = autodiff::RegionGradient(*main, wanted);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  const HostTensor x = Tensor(kF, {5}, {3, 1, 4, 1, 5}), y = Tensor(kF, {5}, {1, 2, 3, 4, 5});
  const auto results = RunAll(*gradient, {x, y, Tensor(kF, {5}, {10, 20, 30, 40, 50}), Tensor(kF, {5}, {6, 7, 8, 9, 0})});
  EXPECT_EQ(Elements(results[0]), (std::vector<double>{30, 40, 20, 50, 10}));
  EXPECT_EQ(Elements(results[1]), (std::vector<double>{8, 9, 7, 0, 6}));
}

TEST(Bodies, AReductionByPairsHasItsGradient) {
  for (const auto& [dims, dimensions] : {std::pair{Dims{3, 7}, Ints{1}}, {Dims{5, 2}, Ints{0}}, {Dims{2, 3, 4}, Ints{0, 2}}, {Dims{1}, Ints{0}}}) {
    const auto main = test::LogSumExpByPairs(DType::kF64, dims, dimensions);
    const bool wanted[] = {true};
    const auto gradient = autodiff::RegionGradient(*main, wanted);
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    const HostTensor x = Ties(DType::kF64, dims, 1, false);
    HostTensor seed(DType::kF64, main->results()[0].dims());
    for (int64_t i = 0; i < seed.count(); ++i) seed.SetDouble(i, 1);
    const auto have = RunOnCpu(TestBackend(), *gradient, std::vector{x, seed});
    const auto value = RunOnCpu(TestBackend(), main, std::vector{x});
    ASSERT_TRUE(have.ok() && value.ok()) << have.status() << value.status();
    double total = 0;
    for (const double g : Elements((*have)[0])) total += g;
    EXPECT_NEAR(total, static_cast<double>(seed.count()), 1e-9);  // softmax of each row
    EXPECT_NEAR((*have)[0].GetDouble(0), std::exp(x.GetDouble(0) - (*value)[0].GetDouble(0)), 1e-9);
  }
}

TEST(Bodies, OtherGradientsAreRefusedByName) {
  const auto times = MakeFunction("times", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, ops::Add(b, p[0], 1), p[1])};
  });
  const auto main = MakeFunction("main", {Type::Tensor(kF, {6})}, [&](Builder& b, const std::vector<Value>& p) {
    const Value one[] = {ops::Scalar(b, kF, 1)};
    return std::vector{ops::ReduceWindowBy(b, {&p[0], 1}, one, times, {Ints{2}})[0]};
  });
  const bool wanted[] = {true};
  EXPECT_THAT(autodiff::RegionGradient(*main, wanted).status().message(),
              HasSubstr("reduce_window by the function @times has no gradient; what adds or compares"));
}

std::string Refusal(const ir::OpDef& op, Values operands, const ir::Attrs& attrs, const std::vector<Ref<const Function>>& functions) {
  Builder b;
  (void)ops::CallAll(b, op, std::move(operands), attrs, functions);
  return std::string(b.status().message());
}

TEST(Bodies, WhatDoesNotFitIsRefusedByName) {
  const Value x = test::NewParameter(Type::Tensor(kF, {3})), i = test::NewParameter(Type::Scalar(kI)), f = test::NewParameter(Type::Scalar(kF));
  const auto add = MakeFunction("add", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Add(b, p[0], p[1])};
  });
  const auto less = MakeFunction("less", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Compare(b, ops::Direction::kLt, p[0], p[1])};
  });
  const auto loops = MakeFunction("loops", {Type::Scalar(kF), Type::Scalar(kF)}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Reduce(b, ops::BroadcastTo(b, ops::Add(b, p[0], p[1]), {4}), ops::Reducer::kSum, {0})};
  });
  const ir::Attrs all = {Ints{0}};
  EXPECT_EQ(Refusal(ops::kOp_reduce_by, {x, i}, all, {add}), "reduce_by(f32[3], i32[]): first value 0 is i32[]; for an input f32[3] it must be f32[]");
  EXPECT_EQ(Refusal(ops::kOp_reduce_by, {x}, all, {add}),
            "reduce_by(f32[3]): the function @add gives 1 results, so there must be 1 inputs and as many first values; there are 1 operands");
  EXPECT_EQ(Refusal(ops::kOp_reduce_by, {x, f}, all, {less}), "reduce_by(f32[3], f32[]): the function @less gives (bool[]); it must give (f32[])");
  EXPECT_EQ(Refusal(ops::kOp_reduce_by, {x, f, i}, all, {add}),
            "reduce_by(f32[3], f32[], i32[]): the function @add takes (f32[], f32[]); it must take (f32[], f32[], i32[])");
  EXPECT_THAT(Refusal(ops::kOp_reduce_by, {x, f}, all, {loops}), HasSubstr("the function @loops contains broadcast_in_dim, which does not work element by element"));
  EXPECT_EQ(Refusal(ops::kOp_sort_by, {x}, {}, {add}), "sort_by(f32[3]): the function @add gives (f32[]); it must give (bool[])");
  EXPECT_THAT(Refusal(ops::kOp_sort_by, {x, x}, {}, {less}), HasSubstr("the function @less takes 2 scalars; for n inputs and c captures it takes 2 n + c"));
  EXPECT_THAT(Refusal(ops::kOp_scatter_by, {x, i, i}, {Ints{}, Ints{0}, Ints{0}, int64_t{0}}, {add}),
              HasSubstr("update 0 is i32[]; it must be f32[]"));
}

TEST(Bodies, PrintAsStableHlo) {
  ir::Module module;
  module.functions.push_back(test::ExtremeAndPlace(kF, {3, 4}, {1}, true));
  const auto text = ir::ToStableHlo(module);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\"stablehlo.reduce\""));
  EXPECT_THAT(*text, HasSubstr("dimensions = array<i64: 1>"));
}

}  // namespace
}  // namespace weft::cpu
