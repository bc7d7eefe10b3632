// Products that leave loops, and those that stay.
#include "src/passes/hoist_products.h"

#include <gtest/gtest.h>

#include "src/ir/rewrite.h"
#include "src/ir/verify.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "src/passes/pipeline.h"
#include "tests/support/control_programs.h"

namespace weft::passes {
namespace {

using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::Node;
using ir::Type;
using ir::Value;
using ir::Values;
using test::MakeFunction;

constexpr DType kF = DType::kF32;
using Vec = std::vector<Value>;

Value Dot(Builder& b, const Value& x, const Value& y) {
  const auto last = static_cast<int64_t>(x.dims().size()) - 1;
  return ops::Call(b, ops::kOp_dot_general, {x, y}, {Ints{}, Ints{}, Ints{last}, Ints{0}});
}

// What makes h, [rows, width], of the run's row of a stack, [rows, depth], the matrix w, [depth, width], and h.
using Step = std::function<Value(Builder& b, const Value& h, const Value& x, const Value& w)>;
Value PlainStep(Builder& b, const Value& h, const Value& x, const Value& w) { return ops::Tanh(b, ops::Add(b, h, Dot(b, x, w))); }

struct Sizes {
  int64_t runs = 6, rows = 16, depth = 8, width = 12;
  bool reverse = false, counted = false;
  DType stack = kF, matrix = kF;
};
// (h, xs, w) -> all h; of run-time counts (h, xs, w, count).
Ref<const Function> ScanOf(const Sizes& s, const Step& step) {
  const Type h = Type::Tensor(kF, {s.rows, s.width}), x = Type::Tensor(s.stack, {s.rows, s.depth}),
             w = Type::Tensor(s.matrix, {s.depth, s.width});
  const auto body = MakeFunction("body", {h, x, w}, [&](Builder& b, const Vec& p) {
    const Value next = step(b, p[0], p[1], p[2]);
    return Vec{next, next};
  });
  std::vector<Type> types = {h, Type::Tensor(s.stack, {s.runs, s.rows, s.depth}), w};
  if (s.counted) types.push_back(Type::Scalar(DType::kI32));
  return MakeFunction("main", types, [&](Builder& b, const Vec& p) {
    Values operands = {p[0], p[1], p[2]};
    if (s.counted) operands.insert(operands.begin(), p[3]);
    // length, carried, scanned, reverse, indexed, counted, kept
    const Values all = ops::CallAll(b, ops::kOp_scan, std::move(operands),
                                    {s.runs, int64_t{1}, int64_t{1}, int64_t{s.reverse}, int64_t{0}, int64_t{s.counted}, int64_t{0}},
                                    {&body, 1});
    return Vec{all[1]};
  });
}

// Before and after: products outside of loops and in their bodies, bodies of loops in loops among them.
struct Found {
  int64_t outside = 0, inside = 0;
  Ref<const Function> function;
};
int64_t Products(const Function& function) {
  return std::ranges::count_if(function.nodes(), [](const Node* node) { return &node->op() == &ops::kOp_dot_general; });
}
Found After(const Ref<const Function>& function, const HoistOptions& options = {}) {
  ir::Module module;
  module.functions.push_back(function);
  auto prepared = RunPipeline(std::move(module), {});
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  auto hoisted = HoistProducts(prepared->main(), options);
  EXPECT_TRUE(hoisted.ok()) << hoisted.status();
  Found found;
  found.function = *hoisted;
  ir::Module checked;
  checked.functions.push_back(found.function);
  EXPECT_TRUE(ir::Verify(checked).ok()) << ir::Verify(checked);
  found.outside = Products(*found.function);
  for (const Function* each : ir::CalleesFirst(*found.function)) found.inside += Products(*each);
  found.inside -= found.outside;
  return found;
}
bool Leaves(const Ref<const Function>& function, const HoistOptions& options = {}) {
  const Found found = After(function, options);
  EXPECT_EQ(found.outside + found.inside, 1);
  return found.outside == 1;
}

TEST(HoistProducts, OfTheRowsOfAStackByAMatrixThatAllRunsHaveInCommon) {
  for (const bool reverse : {false, true}) {
    const Sizes sizes{.reverse = reverse};
    const Found found = After(ScanOf(sizes, PlainStep));
    EXPECT_EQ(found.outside, 1);
    EXPECT_EQ(found.inside, 0);
    for (const Node* node : found.function->nodes()) {
      if (&node->op() == &ops::kOp_dot_general) {
        EXPECT_EQ(node->type().dims, (Dims{6, 16, 12}));
      }
      if (&node->op() != &ops::kOp_while) continue;
      // Neither the stack nor the matrix is held as long as the loop runs.
      for (const Value& operand : node->operands()) {
        EXPECT_FALSE(operand == found.function->parameters()[1]);
        EXPECT_FALSE(operand == found.function->parameters()[2]);
      }
    }
  }
}

TEST(HoistProducts, OfConvertedAndReshapedRowsByMovedMatrices) {
  EXPECT_TRUE(Leaves(ScanOf({.depth = 24, .stack = DType::kBF16, .matrix = DType::kBF16},
                            [](Builder& b, const Value& h, const Value& x, const Value& w) {
                              return PlainStep(b, h, ops::Convert(b, x, kF), ops::Convert(b, w, kF));
                            })));
  EXPECT_TRUE(Leaves(ScanOf({.depth = 24}, [](Builder& b, const Value& h, const Value& x, const Value& w) {
    const auto half = [&](const Value& v) { return ops::Convert(b, v, DType::kBF16); };
    return ops::Add(b, h, ops::Convert(b, Dot(b, half(x), half(w)), kF));
  })));
  EXPECT_TRUE(Leaves(ScanOf({}, [](Builder& b, const Value& h, const Value& x, const Value& w) {
    const Value product = Dot(b, ops::Reshape(b, x, {2, 8, 8}), ops::Transpose(b, ops::Reshape(b, w, {12, 8}), {1, 0}));
    return ops::Add(b, h, ops::Reshape(b, product, {16, 12}));
  })));
}

TEST(HoistProducts, OnlyWhereAKnownNumberOfRunsReadsARowEach) {
  EXPECT_FALSE(Leaves(ScanOf({.counted = true}, PlainStep)));
  // Of what is carried; of a row that is computed; by what is carried.
  EXPECT_FALSE(Leaves(ScanOf({.depth = 12}, [](Builder& b, const Value& h, const Value& x, const Value& w) {
    return ops::Add(b, Dot(b, h, w), x);
  })));
  EXPECT_FALSE(Leaves(ScanOf({.depth = 12}, [](Builder& b, const Value& h, const Value& x, const Value& w) {
    return PlainStep(b, h, ops::Mul(b, x, h), w);
  })));
  EXPECT_FALSE(Leaves(ScanOf({.depth = 16}, [](Builder& b, const Value& h, const Value& x, const Value& w) {
    return ops::Add(b, Dot(b, x, h), ops::Reshape(b, w, {16, 12}));
  })));
  // By the row itself.
  EXPECT_FALSE(Leaves(ScanOf({.depth = 16, .width = 16}, [](Builder& b, const Value& h, const Value& x, const Value& w) {
    return ops::Add(b, h, Dot(b, w, x));
  })));
}

TEST(HoistProducts, OnlyOfSoManyRowsAndWithinBounds) {
  const auto leaves = [](int64_t rows, const HoistOptions& options = {}) { return Leaves(ScanOf({.rows = rows}, PlainStep), options); };
  EXPECT_FALSE(leaves(8));
  EXPECT_TRUE(leaves(9));
  EXPECT_TRUE(leaves(256));
  EXPECT_FALSE(leaves(257));
  EXPECT_FALSE(Leaves(ScanOf({.width = 1}, PlainStep)));
  // 6 x 16 x 12 x 4 bytes.
  EXPECT_TRUE(leaves(16, {.most_times = 0, .most_bytes = 4608}));
  EXPECT_FALSE(leaves(16, {.most_times = 0, .most_bytes = 4607}));
  EXPECT_FALSE(leaves(16, {.most_times = 1, .most_bytes = 0}));
  EXPECT_TRUE(leaves(16, {.most_times = 2, .most_bytes = 0}));
  // Both products of one stack count.
  const auto twice = ScanOf({}, [](Builder& b, const Value& h, const Value& x, const Value& w) {
    return ops::Mul(b, PlainStep(b, h, x, w), Dot(b, x, ops::Reshape(b, ops::Transpose(b, w, {1, 0}), {8, 12})));
  });
  EXPECT_EQ(After(twice, {.most_times = 0, .most_bytes = 9215}).outside, 1);
  EXPECT_EQ(After(twice, {.most_times = 0, .most_bytes = 9216}).outside, 2);
}

// A stack of stacks: the product leaves the inner loop, and the outer one as long as its runs have few rows.
TEST(HoistProducts, OutOfInnerLoopsFirst) {
  for (const int64_t rows : {16, 60}) {
    const auto inner = ScanOf({.rows = rows}, PlainStep);
    const Type h = Type::Tensor(kF, {rows, 12}), w = Type::Tensor(kF, {8, 12});
    const auto body = MakeFunction("outer", {h, Type::Tensor(kF, {6, rows, 8}), w}, [&](Builder& b, const Vec& p) {
      const Values all = ir::Inline(*inner, p);
      const Value last = ops::Slice(b, all[0], {5, 0, 0}, {6, rows, 12}, {1, 1, 1});
      return Vec{ops::Reshape(b, last, {rows, 12}), all[0]};
    });
    const auto main = MakeFunction("main", {h, Type::Tensor(kF, {4, 6, rows, 8}), w}, [&](Builder& b, const Vec& p) {
      const Values all = ops::CallAll(b, ops::kOp_scan, {p[0], p[1], p[2]},
                                      {int64_t{4}, int64_t{1}, int64_t{1}, int64_t{0}, int64_t{0}, int64_t{0}, int64_t{0}}, {&body, 1});
      return Vec{all[1]};
    });
    const Found found = After(main);
    EXPECT_EQ(found.outside + found.inside, 1);
    EXPECT_EQ(found.outside, rows == 16 ? 1 : 0);
  }
}

}  // namespace
}  // namespace weft::passes
