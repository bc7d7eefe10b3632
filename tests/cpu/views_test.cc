// What attention reads and writes where it lies: no entry copies, and the bits are those of dense operands.
#include <cstring>
#include <random>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "tests/cpu/backend_support.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Type;
using ir::Value;

HostTensor Random(DType dtype, const Dims& dims, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> draw(0, 1);
  HostTensor t(dtype, dims);
  for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, draw(random));
  return t;
}

// Dimensions 1 and 2 change places.
HostTensor Turned(const HostTensor& x) {
  const Dims& d = x.dims();
  HostTensor y(x.dtype(), {d[0], d[2], d[1], d[3]});
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t w = i % d[3], c = i / d[3] % d[2], b = i / (d[3] * d[2]) % d[1], a = i / (d[3] * d[2] * d[1]);
    ops::CopyElement(x, i, y, ((a * d[2] + c) * d[1] + b) * d[3] + w);
  }
  return y;
}

void ExpectSameBits(const HostTensor& a, const HostTensor& b) {
  ASSERT_EQ(a.dims(), b.dims());
  EXPECT_EQ(0, std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()));
}

// Parameters of these types and a function of them.
template <typename F>
Ref<const ir::Function> FunctionOf(DType dtype, const std::vector<Dims>& dims, F f) {
  Builder b;
  std::vector<Value> parameters;
  for (const Dims& d : dims) parameters.push_back(test::NewParameter(Type::Tensor(dtype, d)));
  std::vector<Value> results = f(b, parameters);
  EXPECT_TRUE(b.ok()) << b.status();
  return ir::Function::Create("main", parameters, results);
}

Value Attend(Builder& b, const Value& q, const Value& k, const Value& v, bool causal = true) {
  ir::Attrs attrs = {causal};
  attrs.set(3, int64_t{1});
  return ops::Call(b, ops::kOp_scaled_dot_product_attention, {q, k, v, {}}, attrs);
}
Value Turn(Builder& b, const Value& x) { return ops::Transpose(b, x, {0, 2, 1, 3}); }

// How many entries there are, and how many of them are attention or its gradient.
struct Count {
  size_t all = 0, attention = 0;
};
Count EntriesOf(const Ref<const ir::Function>& function) {
  const auto lowered = FusedAndLowered(function);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  Count count;
  for (const Entry& entry : lowered->program.lists[0]) {
    ++count.all;
    if (entry.type != Entry::Type::kHost) continue;
    count.attention += lowered->program.host_kernels[entry.code].starts_with("attention") ? 1 : 0;
  }
  return count;
}

// A cache of keys and values lies as [batch, keys, heads, width].
TEST(Views, AttentionReadsAndWritesRowsFirst) {
  for (const auto& [queries, keys, heads, key_heads] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 300, 6, 6}, {1, 300, 6, 2}, {3, 300, 6, 2}, {256, 300, 6, 6}, {256, 256, 6, 2}}) {
    const std::vector<Dims> dims = {{2, queries, heads, 24}, {2, keys, key_heads, 24}, {2, keys, key_heads, 40}};
    std::vector<Dims> dense;
    for (const Dims& d : dims) dense.push_back({d[0], d[2], d[1], d[3]});
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(testing::Message() << NameOf(dtype) << " " << queries << " queries of " << heads << " over " << key_heads);
      const auto turned = FunctionOf(dtype, dims, [](Builder& b, std::span<const Value> p) {
        return std::vector<Value>{Turn(b, Attend(b, Turn(b, p[0]), Turn(b, p[1]), Turn(b, p[2])))};
      });
      const auto plain = FunctionOf(dtype, dense, [](Builder& b, std::span<const Value> p) {
        return std::vector<Value>{Attend(b, p[0], p[1], p[2])};
      });
      if (dtype == DType::kF32) {
        const Count count = EntriesOf(turned);
        EXPECT_EQ(count.attention, 1u);
        EXPECT_EQ(count.all, 1u);
      }
      std::vector<HostTensor> arguments, dense_arguments;
      for (size_t i = 0; i < dims.size(); ++i) {
        arguments.push_back(Random(dtype, dims[i], static_cast<unsigned>(i)));
        dense_arguments.push_back(Turned(arguments.back()));
      }
      for (const std::string& isa : TestIsas()) {
        SCOPED_TRACE(isa);
        const auto got = RunOnCpu(TestBackend(), turned, arguments, isa);
        const auto want = RunOnCpu(TestBackend(), plain, dense_arguments, isa);
        ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
        ExpectSameBits(Turned((*got)[0]), (*want)[0]);
      }
    }
  }
}

// What a product gave for q, k and v at once is neither cut nor turned.
TEST(Views, AttentionReadsPartsOfOneProduct) {
  constexpr int64_t kRows = 256, kHeads = 3, kWidth = 16, kAll = kHeads * kWidth;
  const auto parts = [&](auto part) {
    return FunctionOf(DType::kF32, {{2, kRows, 3 * kAll}}, [&](Builder& b, std::span<const Value> p) {
      Value qkv[3];
      for (int64_t i = 0; i < 3; ++i) {
        const Value cut = ops::Slice(b, p[0], {0, 0, i * kAll}, {2, kRows, (i + 1) * kAll}, {1, 1, 1});
        qkv[i] = Turn(b, ops::Reshape(b, cut, {2, kRows, kHeads, kWidth}));
      }
      return part(b, qkv);
    });
  };
  const auto forward = parts([&](Builder& b, const Value* qkv) {
    return std::vector<Value>{ops::Reshape(b, Turn(b, Attend(b, qkv[0], qkv[1], qkv[2])), {2, kRows, kAll})};
  });
  EXPECT_EQ(EntriesOf(forward).all, 1u);
  const auto gradient = parts([&](Builder& b, const Value* qkv) {
    ir::Attrs attrs = {true};
    const ir::Values three = ops::CallAll(b, ops::kOp_scaled_dot_product_attention_gradient,
                                          {qkv[0], qkv[1], qkv[2], qkv[1], {}}, attrs);
    return std::vector<Value>{three.begin(), three.end()};
  });
  EXPECT_EQ(EntriesOf(gradient).all, 1u);
  const std::vector<HostTensor> arguments = {Random(DType::kF32, {2, kRows, 3 * kAll}, 1)};
  std::vector<HostTensor> dense;
  for (int64_t i = 0; i < 3; ++i) {
    HostTensor part(DType::kF32, {2, kRows, kHeads, kWidth});
    for (int64_t r = 0; r < 2 * kRows; ++r) {
      for (int64_t c = 0; c < kAll; ++c) ops::CopyElement(arguments[0], r * 3 * kAll + i * kAll + c, part, r * kAll + c);
    }
    dense.push_back(Turned(part));
  }
  const Dims dims = {2, kHeads, kRows, kWidth};
  const auto plain = FunctionOf(DType::kF32, {dims, dims, dims}, [&](Builder& b, std::span<const Value> p) {
    std::vector<Value> results = {Attend(b, p[0], p[1], p[2])};
    const ir::Values three =
        ops::CallAll(b, ops::kOp_scaled_dot_product_attention_gradient, {p[0], p[1], p[2], p[1], {}}, ir::Attrs{true});
    results.insert(results.end(), three.begin(), three.end());
    return results;
  });
  for (const std::string& isa : TestIsas()) {
    SCOPED_TRACE(isa);
    const auto want = RunOnCpu(TestBackend(), plain, dense, isa);
    const auto got = RunOnCpu(TestBackend(), forward, arguments, isa);
    const auto slopes = RunOnCpu(TestBackend(), gradient, arguments, isa);
    ASSERT_TRUE(want.ok() && got.ok() && slopes.ok());
    const HostTensor turned = Turned((*want)[0]);
    EXPECT_EQ(0, std::memcmp((*got)[0].bytes().data(), turned.bytes().data(), turned.bytes().size()));
    for (size_t i = 0; i < 3; ++i) ExpectSameBits((*slopes)[i], (*want)[i + 1]);
  }
}

// What somebody else reads, too, is there for them; what strides cannot say is copied.
TEST(Views, WhatIsWantedOtherwiseIsCopied) {
  const Dims rows_first = {1, 256, 2, 16};
  struct Row {
    const char* what;
    size_t entries;
    std::vector<Value> (*f)(Builder& b, std::span<const Value> p);
  };
  for (const Row& row : {Row{"k is a result", 2,
                             [](Builder& b, std::span<const Value> p) {
                               const Value k = Turn(b, p[1]);
                               return std::vector<Value>{Attend(b, Turn(b, p[0]), k, Turn(b, p[2])), k};
                             }},
                         Row{"the result in both orders", 2,
                             [](Builder& b, std::span<const Value> p) {
                               const Value y = Attend(b, Turn(b, p[0]), Turn(b, p[1]), Turn(b, p[2]));
                               return std::vector<Value>{y, Turn(b, y)};
                             }},
                         Row{"attention of attention", 2,
                             [](Builder& b, std::span<const Value> p) {
                               const Value y = Turn(b, Attend(b, Turn(b, p[0]), Turn(b, p[1]), Turn(b, p[2])));
                               return std::vector<Value>{Attend(b, Turn(b, y), Turn(b, p[1]), Turn(b, p[2]))};
                             }},
                         Row{"values across their rows", 2,
                             [](Builder& b, std::span<const Value> p) {
                               const Value v = ops::Transpose(b, ops::Reshape(b, p[2], {1, 2, 16, 256}), {0, 1, 3, 2});
                               return std::vector<Value>{Attend(b, Turn(b, p[0]), Turn(b, p[1]), v)};
                             }}}) {
    SCOPED_TRACE(row.what);
    const auto function = FunctionOf(DType::kF32, {rows_first, rows_first, rows_first}, row.f);
    EXPECT_EQ(EntriesOf(function).all, row.entries);
    std::vector<HostTensor> arguments;
    for (unsigned i = 0; i < 3; ++i) arguments.push_back(Random(DType::kF32, rows_first, i));
    // Every value that is an operand or a result of attention is a result, so that all are copied.
    const auto copied = FunctionOf(DType::kF32, {rows_first, rows_first, rows_first}, [&](Builder& b, std::span<const Value> p) {
      std::vector<Value> results = row.f(b, p);
      const size_t count = results.size();
      for (size_t i = 0; i < count; ++i) {
        const auto one = ir::Function::Create("one", {p.begin(), p.end()}, {results[i]});
        for (const ir::Node* node : one->nodes()) {
          if (&node->op() == &ops::kOp_transpose) results.push_back({Ref<const ir::Node>::Share(node), 0});
        }
      }
      return results;
    });
    const auto got = RunOnCpu(TestBackend(), function, arguments), want = RunOnCpu(TestBackend(), copied, arguments);
    ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
    for (size_t i = 0; i < got->size(); ++i) ExpectSameBits((*got)[i], (*want)[i]);
  }
}

// Queries 4,096 bytes apart would crowd each other out of the first cache.
TEST(Views, CrowdedQueriesAreCopied) {
  const auto entries = [](int64_t heads) {
    const Dims dims = {1, 256, heads, 64};
    return EntriesOf(FunctionOf(DType::kF32, {dims, dims, dims}, [](Builder& b, std::span<const Value> p) {
             return std::vector<Value>{Attend(b, Turn(b, p[0]), Turn(b, p[1]), Turn(b, p[2]))};
           }))
        .all;
  };
  EXPECT_EQ(entries(12), 1u);
  EXPECT_EQ(entries(16), 2u);
}

}  // namespace
}  // namespace weft::cpu
