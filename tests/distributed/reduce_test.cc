// The sums of collectives against plain loops, for every type that has them.
#include "src/distributed/reduce.h"

#include <gtest/gtest.h>

#include "distributed/plain.h"

namespace weft::distributed {
namespace {

constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kProduct, Reduction::kMin,
                                     Reduction::kMax, Reduction::kAnd,     Reduction::kOr};

test::Bytes BytesOfTensor(const HostTensor& tensor) { return {tensor.bytes().begin(), tensor.bytes().end()}; }

void ExpectAsPlain(DType dtype, Reduction reduction, const std::vector<test::Bytes>& inputs) {
  const auto count = static_cast<int64_t>(inputs[0].size()) / BytesOf(dtype);
  std::vector<const void*> from;
  std::vector<const std::byte*> plain_from;
  for (const test::Bytes& input : inputs) {
    from.push_back(input.data());
    plain_from.push_back(input.data());
  }
  test::Bytes output(inputs[0].size()), expected(inputs[0].size());
  Reduce(dtype, reduction, from, output.data(), count);
  for (int64_t i = 0; i < count; ++i)
    test::PlainElement(dtype, reduction, plain_from, i, expected.data() + i * BytesOf(dtype));
  EXPECT_TRUE(test::SameElements(dtype, output, expected)) << NameOf(dtype) << " " << NameOf(reduction);
}

TEST(Reduce, GivesWhatAPlainLoopGivesForEveryTypeThatHasIt) {
  int pairs = 0;
  for (const DType dtype : test::AllTypes()) {
    for (const Reduction reduction : kReductions) {
      if (!HasReduction(dtype, reduction)) continue;
      ++pairs;
      for (const int64_t count : {1, 7, 1024, 2500}) {
        std::vector<test::Bytes> inputs;
        for (uint64_t rank = 0; rank < 3; ++rank)
          inputs.push_back(BytesOfTensor(test::Random(dtype, count, 7 * rank + 1)));
        ExpectAsPlain(dtype, reduction, inputs);
      }
    }
  }
  // 13 of integers and bool have all six, 12 of floats four, 2 of complex numbers two.
  EXPECT_EQ(13 * 6 + 12 * 4 + 2 * 2, pairs);
}

TEST(Reduce, RoundsEveryHalfAsItsDefinitionDoes) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> all(65536), second(65536);
    for (size_t shift : {0u, 1u, 777u, 12345u, 40000u}) {
      for (size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<uint16_t>(i);
        second[i] = static_cast<uint16_t>(shift == 0 ? 0 : i + shift);
      }
      const auto as_bytes = [](const std::vector<uint16_t>& halves) {
        const auto* const at = reinterpret_cast<const std::byte*>(halves.data());
        return test::Bytes(at, at + 2 * halves.size());
      };
      ExpectAsPlain(dtype, Reduction::kSum, {as_bytes(all), as_bytes(second)});
      ExpectAsPlain(dtype, Reduction::kProduct, {as_bytes(all), as_bytes(second)});
      ExpectAsPlain(dtype, Reduction::kMin, {as_bytes(all), as_bytes(second)});
    }
  }
}

TEST(Reduce, AddsInTheOrderOfRanks) {
  const float first = 1e8f, second = 1.0f, third = -1e8f;
  const void* const order[] = {&first, &second, &third};
  const void* const other[] = {&first, &third, &second};
  float sum = -1;
  Reduce(DType::kF32, Reduction::kSum, order, &sum, 1);
  EXPECT_EQ(0.0f, sum);
  Reduce(DType::kF32, Reduction::kSum, other, &sum, 1);
  EXPECT_EQ(1.0f, sum);
}

TEST(Reduce, KnowsWhatATypeHasNot) {
  EXPECT_FALSE(HasReduction(DType::kF32, Reduction::kAnd));
  EXPECT_FALSE(HasReduction(DType::kBF16, Reduction::kOr));
  EXPECT_FALSE(HasReduction(DType::kC64, Reduction::kMin));
  EXPECT_FALSE(HasReduction(DType::kInvalid, Reduction::kSum));
  EXPECT_TRUE(HasReduction(DType::kBool, Reduction::kSum));
}

}  // namespace
}  // namespace weft::distributed
