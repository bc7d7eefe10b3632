// f8, i4, u4, i2 and u2 on every instruction set against the reference: all their elements to every type and back, every
// operation that takes them, and bodies and loops that carry them. What the reference says is compared with ml_dtypes in
// tests/ops/narrow_test.py.
#include <cmath>
#include <cstring>
#include <random>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "src/ops/scalar_function.h"
#include "src/runtime/narrow.h"
#include "tests/cpu/run_all.h"
#include "tests/ops/op_matrix.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

constexpr DType kNarrow[] = {DType::kF8E3M4,     DType::kF8E4M3, DType::kF8E4M3B11FNUZ, DType::kF8E4M3FN, DType::kF8E4M3FNUZ,
                             DType::kF8E5M2,     DType::kF8E5M2FNUZ, DType::kF8E8M0FNU, DType::kI2,      DType::kI4,
                             DType::kU2,         DType::kU4};
constexpr DType kOthers[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32,  DType::kI64, DType::kU8, DType::kU16,
                             DType::kU32,  DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

HostTensor AllOf(DType dtype) {
  const int64_t count = int64_t{1} << BitsOf(dtype);
  HostTensor all(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    const int code = BitsOf(dtype) < 8 ? Wrapped(dtype, static_cast<uint64_t>(i)) : static_cast<int>(i);
    all.mutable_bytes()[i] = static_cast<std::byte>(code);
  }
  return all;
}

// Of types of 16 bits all elements; of wider ones what lies on, between and just beside the narrow types' numbers, and any bits.
HostTensor Spread(DType dtype) {
  if (BitsOf(dtype) <= 16 && !IsBool(dtype)) {
    const int64_t count = int64_t{1} << BitsOf(dtype);
    HostTensor all(dtype, {count});
    for (int64_t i = 0; i < count; ++i) std::memcpy(all.mutable_bytes().data() + i * BytesOf(dtype), &i, BytesOf(dtype));
    return all;
  }
  std::mt19937_64 random(7);
  std::vector<double> numbers = {0, -0.0, NAN, INFINITY, -INFINITY, 1e300, -1e300, 5e-324, 0x1p-127, 0x1p-128, 0x1.8p-127};
  for (const DType narrow : kNarrow) {
    const HostTensor all = AllOf(narrow);
    for (int64_t i = 0; i + 1 < all.count(); ++i) {
      const double middle = (all.GetDouble(i) + all.GetDouble(i + 1)) / 2;
      for (const double x : {all.GetDouble(i), middle, std::nextafter(middle, HUGE_VAL), std::nextafter(middle, -HUGE_VAL),
                             middle * (1 + 0x1p-23), middle * (1 - 0x1p-24)}) {
        numbers.push_back(x);
        numbers.push_back(-x);
      }
    }
  }
  const int64_t fixed = static_cast<int64_t>(numbers.size()), count = fixed + 20000;
  HostTensor values(dtype, {count});
  for (int64_t i = 0; i < fixed; ++i) values.SetDouble(i, numbers[i]);
  for (int64_t i = fixed; i < count; ++i) {
    const uint64_t bits = IsBool(dtype) ? random() & 1 : random() >> (IsFloat(dtype) ? 0 : random() % BitsOf(dtype));
    std::memcpy(values.mutable_bytes().data() + i * BytesOf(dtype), &bits, BytesOf(dtype));
  }
  return values;
}

Ref<const ir::Function> Conversion(const ir::Type& type, std::span<const DType> to) {
  ir::Builder b;
  const ir::Value x = test::NewParameter(type);
  std::vector<ir::Value> results;
  for (const DType dtype : to) results.push_back(ops::Convert(b, x, dtype));
  EXPECT_TRUE(b.ok()) << b.status();
  return ir::Function::Create("convert", {x}, std::move(results));
}

TEST(Narrow, ElementsBecomeEveryOtherType) {
  for (const DType from : kNarrow) {
    SCOPED_TRACE(NameOf(from));
    const HostTensor all = AllOf(from);
    const ir::Type type = ir::Type::Tensor(from, all.dims());
    (void)RunAll(Conversion(type, kOthers), {all});
    (void)RunAll(Conversion(type, kNarrow), {all});
  }
}

TEST(Narrow, EveryOtherTypeBecomesElements) {
  for (const DType from : kOthers) {
    SCOPED_TRACE(NameOf(from));
    const HostTensor values = Spread(from);
    (void)RunAll(Conversion(ir::Type::Tensor(from, values.dims()), kNarrow), {values});
  }
}

// Neighbours where functions of f32 and of double may round to either side, NaN where both are.
std::string Apart(const HostTensor& got, const HostTensor& want) {
  if (!IsNarrow(got.dtype())) return "";
  for (int64_t i = 0; i < got.count(); ++i) {
    const double a = got.GetDouble(i), b = want.GetDouble(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const auto code = [](const HostTensor& t, int64_t at) { return static_cast<int>(t.bytes()[at]); };
    const bool near = IsFloat(got.dtype()) && std::abs(code(got, i) - code(want, i)) == 1;
    if (!near) return absl::StrCat("element ", i, " is ", a, ", not ", b);
  }
  return "";
}

TEST(Narrow, OperationsComputeInAWiderTypeAndRoundOnce) {
  int runs = 0, compared = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    for (const ir::Sample& sample : op->samples) {
      const auto parsed = ops::ParseSample(*op, sample, DType::kF32);
      if (!parsed.ok() || !parsed->generic || &sample - op->samples.data() > (test::EveryCase() ? 2 : 0)) continue;
      for (const DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2, DType::kI4, DType::kU2}) {
        size_t first = 0;
        while (!parsed->operands[first].generic) ++first;
        const ir::TypeSet set = op->operands[std::min(first, op->operands.size() - 1)].types;
        if (!ir::Contains(set & ~ir::kWhole, dtype)) continue;
        const absl::StatusOr<test::Case> c = test::MakeCase(*op, sample, dtype);
        ASSERT_TRUE(c.ok()) << c.status();
        SCOPED_TRACE(c->name);
        ir::Builder b;
        const ir::Values results = ops::CallAll(b, *op, c->operands, c->parsed.attrs);
        if (set & ir::kWhole) {
          EXPECT_FALSE(b.ok());
          continue;
        }
        ASSERT_TRUE(b.ok()) << b.status();
        const auto want = test::Evaluate(*c, results);
        ASSERT_TRUE(want.ok()) << want.status();
        const auto function = ir::Function::Create("test", c->parameters, {results.begin(), results.end()});
        const auto got = RunOnCpu(TestBackend(), function, c->arguments, TestIsas()[0]);
        ASSERT_TRUE(got.ok()) << got.status();
        const std::vector<HostTensor> typed = InTypesOf(*function, *got);
        for (size_t i = 0; i < results.size() && !op->random; ++i) {
          compared += IsNarrow(typed[i].dtype());
          EXPECT_EQ(Apart(typed[i], (*want)[i]), "") << i;
        }
        ++runs;
      }
    }
  }
  EXPECT_GT(runs, 200);
  EXPECT_GT(compared, 200);
}

TEST(Narrow, ASumRoundsOnce) {
  // 2049 ones are 2048 and the half of a step in f8e5m2, which one rounding makes 2048; a running sum in f8 would stop at 8.
  HostTensor ones(DType::kF8E5M2, {2049});
  for (int64_t i = 0; i < ones.count(); ++i) ones.SetDouble(i, 1);
  ir::Builder b;
  const ir::Value x = test::NewParameter(ir::Type::Tensor(ones.dtype(), ones.dims()));
  const ir::Value sum = ops::Reduce(b, x, ops::Reducer::kSum, {0});
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(RunAll(ir::Function::Create("sum", {x}, {sum}), {ones})[0].GetDouble(0), 2048);
}

TEST(Narrow, GradientsGoThrough) {
  HostTensor x(DType::kF8E4M3FN, {3});
  for (int64_t i = 0; i < 3; ++i) x.SetDouble(i, 1.5 + static_cast<double>(i));
  ir::Builder b;
  const ir::Value p = test::NewParameter(ir::Type::Tensor(x.dtype(), x.dims()));
  p.node->set_needs_gradient();
  const ir::Value y = ops::Reduce(b, ops::Mul(b, p, p), ops::Reducer::kSum, {0});
  const auto slopes = autodiff::Gradient(b, y, {&p, 1}, ops::Scalar(b, x.dtype(), 1));
  ASSERT_TRUE(slopes.ok()) << slopes.status();
  const HostTensor g = RunAll(ir::Function::Create("grad", {p}, {(*slopes)[0]}), {x})[0];
  ASSERT_EQ(g.dtype(), DType::kF8E4M3FN);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(g.GetDouble(i), 3 + 2 * static_cast<double>(i));
}

// Also where there is no infinity: what text says that a maximum begins with is below all, and no NaN.
TEST(Narrow, ExtremesBeginWithNumbers) {
  for (const DType dtype : kNarrow) {
    const HostTensor all = AllOf(dtype);
    const double low = ops::Identity(ops::Reducer::kMax, dtype).GetDouble(0), high = ops::Identity(ops::Reducer::kMin, dtype).GetDouble(0);
    for (int64_t i = 0; i < all.count(); ++i) {
      const double x = all.GetDouble(i);
      EXPECT_TRUE(std::isnan(x) || (low <= x && x <= high)) << NameOf(dtype) << " " << x;
    }
  }
}

TEST(Narrow, BodiesCarryThem) {
  for (const DType dtype : {DType::kF8E4M3FN, DType::kI4}) {
    SCOPED_TRACE(NameOf(dtype));
    HostTensor x(dtype, {4, 5});
    for (int64_t i = 0; i < x.count(); ++i) x.SetInt(i, i % 7 - 3);
    const DType types[] = {dtype, dtype};
    const auto body = ops::MakeScalarFunction("add_once", types, [](ir::Builder& b, std::span<const ir::Value> p) {
      return ir::Values{ops::Add(b, ops::Add(b, p[0], p[1]), 1)};
    });
    ASSERT_TRUE(body.ok()) << body.status();
    ir::Builder b;
    const ir::Value p = test::NewParameter(ir::Type::Tensor(dtype, x.dims()));
    const ir::Values sums = ops::CallAll(b, ops::kOp_reduce_by, {p, ops::Scalar(b, dtype, 0)}, {ir::Ints{1}}, {&*body, 1});
    ASSERT_TRUE(b.ok()) << b.status();
    (void)RunAll(ir::Function::Create("sums", {p}, {sums[0]}), {x});
  }
}

TEST(Narrow, BitsOfAnF8AreABytes) {
  ir::Builder b;
  const HostTensor all = AllOf(DType::kF8E5M2);
  const ir::Value x = test::NewParameter(ir::Type::Tensor(all.dtype(), all.dims()));
  const ir::Value bits = ops::Call(b, ops::kOp_bitcast_convert, {x}, {DType::kU8});
  const ir::Value back = ops::Call(b, ops::kOp_bitcast_convert, {bits}, {DType::kF8E5M2});
  ASSERT_TRUE(b.ok()) << b.status();
  const auto results = RunAll(ir::Function::Create("bits", {x}, {bits, back}), {all});
  EXPECT_TRUE(std::ranges::equal(results[0].bytes(), all.bytes()));
  EXPECT_TRUE(std::ranges::equal(results[1].bytes(), all.bytes()));
}

}  // namespace
}  // namespace weft::cpu
