// Conversions to narrower floats round once, on every instruction set, in the reference and in HostTensor. The judge looks for
// the nearest number among all of the type's, in long double, which holds every value here.
#include <cmath>
#include <cstring>
#include <random>

#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"
#include "tests/cpu/run_all.h"

namespace weft::cpu {
namespace {

uint64_t BitsAt(const HostTensor& t, int64_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, t.bytes().data() + i * BytesOf(t.dtype()), BytesOf(t.dtype()));
  return bits;
}

// The finite numbers from 0 up, by their bits; then where infinity begins to be nearest.
std::vector<long double> Numbers(DType dtype) {
  std::vector<long double> numbers;
  const int digits = dtype == DType::kBF16 ? 7 : 10, bias = dtype == DType::kBF16 ? 127 : 15;
  const int end = ((2 * bias + 1) << digits);
  for (int bits = 0; bits <= end; ++bits) {
    const int exponent = bits >> digits, fraction = bits & ((1 << digits) - 1);
    numbers.push_back(exponent == 0 ? std::ldexp(static_cast<long double>(fraction), 1 - bias - digits)
                                    : std::ldexp(static_cast<long double>(fraction + (1 << digits)), exponent - bias - digits));
  }
  return numbers;
}

uint64_t Nearest(const std::vector<long double>& numbers, long double x) {
  const uint64_t sign = std::signbit(x) ? 0x8000 : 0;
  const long double magnitude = std::fabs(x);
  const size_t above = std::lower_bound(numbers.begin(), numbers.end(), magnitude) - numbers.begin();
  if (above == numbers.size()) return sign | (numbers.size() - 1);
  if (numbers[above] == magnitude) return sign | above;
  const long double down = magnitude - numbers[above - 1], up = numbers[above] - magnitude;
  return sign | (down < up || (down == up && (above - 1) % 2 == 0) ? above - 1 : above);
}

template <typename T>
std::vector<T> AwkwardIntegers() {
  std::vector<T> values;
  const auto add = [&](uint64_t v) {
    for (uint64_t d : {0, 1, -1}) {
      values.push_back(static_cast<T>(v + d));
      values.push_back(static_cast<T>(-(v + d)));
    }
  };
  for (int high = 0; high < 64; ++high) {
    for (int low = 0; low < high; ++low) {
      add((uint64_t{1} << high) | (uint64_t{1} << low));
      for (int lowest = 0; lowest < low; lowest += 5) add((uint64_t{1} << high) | (uint64_t{1} << low) | (uint64_t{1} << lowest));
    }
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 5000; ++i) add(random() >> (random() % 64));
  return values;
}

// Halfway between two 16-bit numbers, and a little to either side of that: what rounds to the middle first goes wrong.
std::vector<double> AwkwardDoubles() {
  std::vector<double> values;
  for (int exponent : {-160, -150, -134, -133, -127, -126, -30, -26, -25, -24, -15, -14, -1, 0, 3, 15, 16, 100, 127, 128}) {
    for (int bits : {0, 1, 2, 3, 1022, 1023}) {
      for (int digits : {7, 8, 10, 11}) {
        for (int away = 20; away <= 52; away += 4) {
          for (int side : {-1, 0, 1}) {
            const double m = 1 + bits * 0x1p-10 + std::ldexp(1.0, -digits) + side * std::ldexp(1.0, -away);
            values.push_back(std::ldexp(m, exponent));
            values.push_back(-std::ldexp(m, exponent));
          }
        }
      }
    }
  }
  return values;
}

template <typename T>
void CheckConversions(DType from, const std::vector<T>& values) {
  HostTensor x(from, {static_cast<int64_t>(values.size())});
  std::memcpy(x.mutable_bytes().data(), values.data(), values.size() * sizeof(T));
  for (DType to : {DType::kBF16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(std::string(NameOf(from)) + " to " + std::string(NameOf(to)));
    std::vector<uint64_t> want;
    const std::vector<long double> numbers = to == DType::kF32 ? std::vector<long double>() : Numbers(to);
    for (T value : values) {
      want.push_back(to == DType::kF32 ? __builtin_bit_cast(uint32_t, static_cast<float>(static_cast<long double>(value)))
                                       : Nearest(numbers, value));
    }
    const auto check = [&](const HostTensor& got, std::string_view who) {
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(BitsAt(got, i), want[i]) << who << " of " << std::hexfloat << static_cast<long double>(values[i]);
      }
    };
    ir::Builder b;
    const ir::Value parameter{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(from, x.dims())}), 0};
    const ir::Value y = ops::Convert(b, parameter, to);
    ASSERT_TRUE(b.ok());
    const auto function = ir::Function::Create("convert", {parameter}, {y});
    for (const std::string& isa : TestIsas()) {
      const auto got = RunOnCpu(TestBackend(), function, {&x, 1}, isa);
      ASSERT_TRUE(got.ok()) << got.status();
      check((*got)[0], isa);
    }
    const auto reference = reference::Interpret(*function, {&x, 1});
    ASSERT_TRUE(reference.ok());
    check((*reference)[0], "reference");
    HostTensor host(to, x.dims());
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, double>) {
        host.SetDouble(i, values[i]);
      } else if constexpr (std::is_signed_v<T>) {
        host.SetInt(i, values[i]);
      } else {
        host.SetUnsigned(i, values[i]);
      }
    }
    check(host, "HostTensor");
  }
}

TEST(Conversions, OfF64RoundOnce) { CheckConversions(DType::kF64, AwkwardDoubles()); }
TEST(Conversions, OfI64RoundOnce) { CheckConversions(DType::kI64, AwkwardIntegers<int64_t>()); }
TEST(Conversions, OfU64RoundOnce) { CheckConversions(DType::kU64, AwkwardIntegers<uint64_t>()); }
TEST(Conversions, OfI32RoundOnce) { CheckConversions(DType::kI32, AwkwardIntegers<int32_t>()); }
TEST(Conversions, OfU32RoundOnce) { CheckConversions(DType::kU32, AwkwardIntegers<uint32_t>()); }

// Of complex numbers: what their real parts become; bool says whether either part is not 0.
TEST(Conversions, OfComplexAreThoseOfTheirParts) {
  const double parts[][2] = {{0, 0}, {0, 2}, {-8, 1}, {300, 0}, {-0.0, -0.0}, {1e30, 3}, {NAN, 0}, {0, NAN}, {-INFINITY, 7}, {2.75, -1}};
  constexpr int64_t kCount = std::size(parts);
  const auto convert = [&](DType from, DType to) {
    ir::Builder b;
    const ir::Value parameter{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(from, {kCount})}), 0};
    return ir::Function::Create("convert", {parameter}, {ops::Convert(b, parameter, to)});
  };
  for (const DType from : {DType::kC64, DType::kC128}) {
    HostTensor planes[] = {HostTensor(PartOf(from), {kCount}), HostTensor(PartOf(from), {kCount})};
    for (int64_t i = 0; i < kCount; ++i) {
      for (const int part : {0, 1}) planes[part].SetDouble(i, parts[i][part]);
    }
    HostTensor x(from, {kCount});
    for (const int part : {0, 1}) x.SetPart(part, planes[part]);
    for (const DType to : {DType::kI8, DType::kU8, DType::kI32, DType::kU64, DType::kI64, DType::kF16, DType::kF32, DType::kF64, DType::kBool}) {
      SCOPED_TRACE(NameOf(to));
      const HostTensor have = RunAll(convert(from, to), {x})[0], real = RunAll(convert(PartOf(from), to), {planes[0]})[0];
      for (int64_t i = 0; i < kCount; ++i) {
        const bool other = IsBool(to) && parts[i][1] != 0;
        EXPECT_EQ(BitsAt(have, i), other ? 1 : BitsAt(real, i)) << parts[i][0] << " " << parts[i][1];
      }
    }
    for (const DType to : {DType::kC64, DType::kC128}) {
      const HostTensor have = RunAll(convert(from, to), {x})[0];
      for (const int part : {0, 1}) {
        const HostTensor want = RunAll(convert(PartOf(from), PartOf(to)), {planes[part]})[0];
        for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(BitsAt(have.Part(part), i), BitsAt(want, i)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
