// Scatter and gather against a walk over all updates, element by element: the same bits, whatever the instruction set, the number of
// threads, and the order of the indices.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/control_programs.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Ints;
using ir::Type;
using ir::Value;
using Vec = std::vector<Value>;

constexpr int64_t kSet = 6;           // reducer
constexpr int64_t kPlainSums = 4096;  // more boxes than these, and sums keep what rounding takes

// StableHLO's dimension numbers, and the shapes.
struct Form {
  const char* name;
  Dims x, indices, updates;
  Ints window, inserted, map;
  int64_t vector;
  Ints batching = {}, index_batching = {};
};

// `n` boxes among `rows` rows.
std::vector<Form> Forms(int64_t n, int64_t rows) {
  return {
      {"rows", {rows, 17}, {n}, {n, 17}, {1}, {0}, {0}, 1},
      {"wide rows", {rows / 8 + 1, 300}, {n / 8 + 1}, {n / 8 + 1, 300}, {1}, {0}, {0}, 1},
      {"parts of rows", {rows, 17}, {n}, {n, 9}, {1}, {0}, {0}, 1},
      {"rows of planes", {rows, 3, 5}, {n}, {n, 3, 5}, {1, 2}, {0}, {0}, 1},
      {"elements", {rows}, {n}, {n}, {}, {0}, {0}, 1},
      {"columns", {3, rows}, {n}, {3, n}, {0}, {1}, {1}, 1},
      {"middle", {2, rows, 9}, {n}, {2, n, 9}, {0, 2}, {1}, {1}, 1},
      {"along", {3, rows, 9}, {3, n / 3}, {3, n / 3, 9}, {2}, {1}, {1}, 2, {0}, {0}},
      {"each its place", {rows, 5}, {n / 5, 5}, {n / 5, 5}, {}, {0}, {0}, 2, {1}, {1}},
      {"two numbers", {7, rows, 10}, {n, 2}, {n, 10}, {1}, {0, 1}, {0, 1}, 1},
      {"numbers in front", {rows, 7, 4}, {2, n}, {n, 4}, {1}, {0, 1}, {1, 0}, 0},
      {"a grid of boxes", {rows, 6}, {n / 4, 4}, {n / 4, 4, 6}, {2}, {0}, {0}, 2},
      {"windows in front", {rows, 6}, {n / 4, 4}, {6, n / 4, 4}, {0}, {0}, {0}, 2},
      {"windows between", {rows, 6}, {n / 4, 4}, {n / 4, 6, 4}, {1}, {0}, {0}, 2},
      {"boxes that overlap", {rows, 4}, {n, 1}, {n, 3, 4}, {1, 2}, {}, {0}, 1},
      {"nothing", {rows, 4}, {0}, {0, 4}, {1}, {0}, {0}, 1},
  };
}

bool Has(const Ints& list, int64_t d) { return std::ranges::find(list, d) != list.end(); }

// Where an element of the updates goes; -1: outside.
int64_t PlaceOf(const Form& form, const HostTensor& indices, const Dims& element, bool held) {
  Ints batch;
  for (size_t d = 0; d < element.size(); ++d) {
    if (!Has(form.window, static_cast<int64_t>(d))) batch.push_back(element[d]);
  }
  const Dims strides = StridesOf(form.indices);
  const auto index_at = [&](int64_t component) {
    int64_t at = 0;
    size_t next = 0;
    for (int64_t d = 0; d < static_cast<int64_t>(form.indices.size()); ++d) at += strides[d] * (d == form.vector ? component : batch[next++]);
    return indices.GetInt(at);
  };
  int64_t place = 0;
  size_t window = 0;
  for (int64_t d = 0; d < static_cast<int64_t>(form.x.size()); ++d) {
    int64_t at = 0, width = 1;
    if (!Has(form.inserted, d) && !Has(form.batching, d)) {
      width = form.updates[form.window[window]];
      at = element[form.window[window++]];
    }
    for (size_t k = 0; k < form.map.size(); ++k) {
      if (form.map[k] != d) continue;
      const int64_t start = index_at(static_cast<int64_t>(k));
      at += held ? std::clamp<int64_t>(start, 0, form.x[d] - width) : start;
    }
    for (size_t k = 0; k < form.batching.size(); ++k) {
      if (form.batching[k] != d) continue;
      int64_t next = 0;
      for (int64_t e = 0; e < form.index_batching[k]; ++e) next += e != form.vector;
      at += batch[next];
    }
    if (at < 0 || at >= form.x[d]) return -1;
    place = place * form.x[d] + at;
  }
  return place;
}

template <typename Visit>
void ForEachElement(const Dims& dims, Visit visit) {
  Dims at(dims.size(), 0);
  for (int64_t i = 0; i < CountOf(dims); ++i) {
    visit(i, at);
    for (size_t d = dims.size(); d-- > 0 && ++at[d] == dims[d];) at[d] = 0;
  }
}

template <typename Rule, typename T>
T Combined(int64_t reducer, T a, T b) {
  switch (reducer) {
    case 0: return Rule::Add(a, b);
    case 1: return Rule::Multiply(a, b);
    case 2:
    case 3:
      if (a != a) return a;
      if (b != b) return b;
      return reducer == 2 ? (a < b ? b : a) : (b < a ? b : a);
    case 4:
    case 5:
      if constexpr (std::is_integral_v<T>) return static_cast<T>(reducer == 4 ? a & b : a | b);
      return b;
    default: return b;
  }
}

// One update after the other. Sums of 16-bit floats go on in f32.
template <typename T>
HostTensor Walk(const Form& form, int64_t reducer, const HostTensor& x, const HostTensor& indices, const HostTensor& updates) {
  using Rule = ElementRule<T>;
  using Sum = typename Rule::Sum;
  const T* const from = reinterpret_cast<const T*>(x.bytes().data());
  const T* const terms = reinterpret_cast<const T*>(updates.bytes().data());
  HostTensor result = x;
  T* const to = reinterpret_cast<T*>(result.mutable_bytes().data());
  std::vector<Sum> sums(x.count()), lost(x.count());
  std::vector<bool> touched(x.count());
  for (int64_t i = 0; i < x.count(); ++i) sums[i] = Rule::Load(from[i]);
  int64_t boxes = 1;
  for (size_t d = 0; d < form.updates.size(); ++d) boxes *= Has(form.window, static_cast<int64_t>(d)) ? 1 : form.updates[d];
  const bool rounds_each = sizeof(T) != sizeof(Sum) && reducer > 1;
  ForEachElement(form.updates, [&](int64_t i, const Dims& at) {
    const int64_t place = PlaceOf(form, indices, at, false);
    if (place < 0) return;
    touched[place] = true;
    const Sum term = Rule::Load(terms[i]);
    if constexpr (std::is_floating_point_v<Sum>) {
      if (reducer == 0 && boxes > kPlainSums) {
        const Sum rest = term - lost[place], after = sums[place] + rest, more = (after - sums[place]) - rest;
        sums[place] = after;
        lost[place] = more - more == 0 ? more : Sum{0};
        return;
      }
    }
    if (reducer == kSet) {
      to[place] = terms[i];
      touched[place] = false;
      return;
    }
    sums[place] = Combined<Rule>(reducer, sums[place], term);
    if (rounds_each) sums[place] = Rule::Load(Rule::Store(sums[place]));
  });
  for (int64_t i = 0; i < x.count(); ++i) {
    if (touched[i]) to[i] = Rule::Store(sums[i]);
  }
  return result;
}

// The same bits, or NaN in both: which NaN the sum of two is, no rule says.
bool Same(const HostTensor& a, const HostTensor& b) {
  if (std::ranges::equal(a.bytes(), b.bytes())) return true;
  if (!IsFloat(a.dtype())) return false;
  const size_t bytes = static_cast<size_t>(BytesOf(a.dtype()));
  for (int64_t i = 0; i < a.count(); ++i) {
    const bool equal = std::memcmp(a.bytes().data() + i * bytes, b.bytes().data() + i * bytes, bytes) == 0;
    if (!equal && !(std::isnan(a.GetDouble(i)) && std::isnan(b.GetDouble(i)))) return false;
  }
  return true;
}

enum class Order { kAny, kSorted, kHot, kOne, kOutside };

HostTensor SomeIndices(const Form& form, Order order, DType dtype, std::mt19937_64& random) {
  HostTensor indices(dtype, form.indices);
  std::vector<int64_t> values(indices.count());
  const int64_t most = std::min<int64_t>(form.x[form.map[0]], BytesOf(dtype) == 1 ? 100 : form.x[form.map[0]]);
  for (int64_t& value : values) {
    value = static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    if (order == Order::kHot && random() % 5 != 0) value = std::min<int64_t>(most - 1, 2);
    if (order == Order::kOne) value = std::min<int64_t>(most - 1, 3);
    if (order == Order::kOutside && random() % 4 == 0) value = random() % 2 == 0 ? most + static_cast<int64_t>(random() % 3) : -1 - static_cast<int64_t>(random() % 3);
  }
  if (order == Order::kSorted) std::ranges::sort(values);
  for (int64_t i = 0; i < indices.count(); ++i) indices.SetInt(i, values[i]);
  return indices;
}

HostTensor SomeValues(DType dtype, const Dims& dims, std::mt19937_64& random) {
  HostTensor values(dtype, dims);
  if (!IsFloat(dtype)) {
    for (std::byte& b : values.mutable_bytes()) b = static_cast<std::byte>(IsBool(dtype) ? random() % 2 : random() % 256);
    return values;
  }
  std::normal_distribution<double> normal;
  constexpr double kSpecial[] = {-0.0, 0.0, HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN()};
  for (int64_t i = 0; i < values.count(); ++i) {
    const uint64_t die = random() % 4000;
    values.SetDouble(i, die < std::size(kSpecial) ? kSpecial[die] : normal(random) * (die % 3 == 0 ? 100 : 1));
  }
  return values;
}

CpuBackend& BackendOf(int threads) {
  static CpuBackend* const one = test::NewCpuBackend({.threads = 1})->release();
  static CpuBackend* const five = test::NewCpuBackend({.threads = 5})->release();
  return threads == 1 ? *one : threads == 5 ? *five : TestBackend();
}

Ref<const ir::Function> ScatterOf(const Form& form, DType dtype, DType index, int64_t reducer) {
  return test::MakeFunction("main", {Type::Tensor(dtype, form.x), Type::Tensor(index, form.indices), Type::Tensor(dtype, form.updates)},
                            [&](Builder& b, const Vec& p) {
                              return Vec{ops::Call(b, ops::kOp_scatter, {p[0], p[1], p[2]}, {form.window, form.inserted, form.map, form.vector, reducer, form.batching, form.index_batching})};
                            });
}

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI8, DType::kI16, DType::kI32,
                            DType::kI64, DType::kU8, DType::kU16, DType::kU32, DType::kU64, DType::kBool};

bool IsReducerOf(DType dtype, int64_t reducer) { return !IsFloat(dtype) || (reducer != 4 && reducer != 5); }

void ExpectBits(const Form& form, DType dtype, int64_t reducer, Order order, DType index, int seed) {
  std::mt19937_64 random(seed);
  const HostTensor arguments[] = {SomeValues(dtype, form.x, random), SomeIndices(form, order, index, random), SomeValues(dtype, form.updates, random)};
  HostTensor want;
  VisitElement(dtype, [&]<typename T>() { want = Walk<T>(form, reducer, arguments[0], arguments[1], arguments[2]); });
  const auto scatter = ScatterOf(form, dtype, index, reducer);
  int threads = 0;
  for (const std::string& isa : TestIsas()) {
    for (int k = 0; k < (seed < 1000 ? 1 : 2); ++k) {
      const int count = std::array{1, 2, 5}[(seed + threads++) % 3];
      const auto have = RunOnCpu(BackendOf(count), scatter, arguments, isa);
      ASSERT_TRUE(have.ok()) << have.status();
      ASSERT_TRUE(Same((*have)[0], want)) << form.name << " " << DimsToString(form.x) << " " << DimsToString(form.updates) << " " << NameOf(dtype) << " reducer " << reducer << " order "
                                          << static_cast<int>(order) << " indices " << NameOf(index) << ", " << isa << ", " << count << " threads, seed " << seed;
    }
  }
}

class ScatterBits : public ::testing::TestWithParam<DType> {};

TEST_P(ScatterBits, OfFewUpdatesAreThoseOfAWalk) {
  int seed = 1;
  for (const int64_t rows : {11, 3000}) {
    for (const Form& form : Forms(40, rows)) {
      for (int64_t reducer = 0; reducer <= kSet; ++reducer) {
        if (IsReducerOf(GetParam(), reducer)) ExpectBits(form, GetParam(), reducer, static_cast<Order>(seed % 5), seed % 2 == 0 ? DType::kI32 : DType::kI64, seed);
        ++seed;
      }
    }
  }
}

TEST_P(ScatterBits, OfManyUpdatesAreThoseOfAWalk) {
  int seed = 1000;
  for (const int64_t rows : {19, 9000}) {
    for (const Form& form : Forms(10'000, rows)) {
      const bool sums = seed % 2 == 0;  // most of what differs by order
      const int64_t reducer = sums ? 0 : std::array<int64_t, 6>{1, 2, 3, 4, 5, kSet}[seed / 2 % 6];
      ExpectBits(form, GetParam(), IsReducerOf(GetParam(), reducer) ? reducer : 0, static_cast<Order>(seed % 5), DType::kI32, seed);
      ++seed;
    }
  }
}

TEST_P(ScatterBits, OfRowsAreThoseOfAWalkInEveryOrder) {
  int seed = 2000;
  for (const Order order : {Order::kAny, Order::kSorted, Order::kHot, Order::kOne, Order::kOutside}) {
    for (const int64_t rows : {13, 6000, 70'000}) {
      const int64_t n = 9000;
      const Form forms[] = {{"rows", {rows, 17}, {n}, {n, 17}, {1}, {0}, {0}, 1}, {"elements", {rows}, {n}, {n}, {}, {0}, {0}, 1}, {"few", {rows, 16}, {3000}, {3000, 16}, {1}, {0}, {0}, 1}};
      for (const Form& form : forms) {
        for (const int64_t reducer : {int64_t{0}, int64_t{2}, kSet}) ExpectBits(form, GetParam(), reducer, order, DType::kI64, seed++);
      }
    }
  }
}

std::string TypeName(const ::testing::TestParamInfo<DType>& info) { return std::string(NameOf(info.param)); }
INSTANTIATE_TEST_SUITE_P(Types, ScatterBits, ::testing::ValuesIn(kTypes), TypeName);

TEST(Scatter, TakesIndicesOfEveryType) {
  const Form form = {"rows", {90, 17}, {6000}, {6000, 17}, {1}, {0}, {0}, 1};
  int seed = 3000;
  for (const DType index : {DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kU8, DType::kU16, DType::kU32, DType::kU64}) {
    for (const Order order : {Order::kAny, Order::kOutside}) ExpectBits(form, DType::kF32, 0, order, index, seed++);
  }
}

// Long rows of few places are dealt to threads by columns, a hot row among others in parts of it.
TEST(Scatter, OfHotRowsHasTheBitsOfAWalk) {
  int seed = 4000;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32}) {
    for (const int64_t rows : {2, 400}) {
      for (const Order order : {Order::kHot, Order::kOne}) {
        ExpectBits({"rows", {rows, 700}, {5000}, {5000, 700}, {1}, {0}, {0}, 1}, dtype, 0, order, DType::kI32, seed++);
        ExpectBits({"rows", {rows, 700}, {600}, {600, 700}, {1}, {0}, {0}, 1}, dtype, 0, order, DType::kI32, seed++);
      }
    }
  }
}

// Indices beyond 32 bits are outside, whatever their low bits say.
TEST(Scatter, LeavesOutWhatLiesFarOutside) {
  const Form form = {"rows", {50, 9}, {5000}, {5000, 9}, {1}, {0}, {0}, 1};
  std::mt19937_64 random(5);
  HostTensor indices(DType::kU64, form.indices);
  for (int64_t i = 0; i < indices.count(); ++i) indices.SetUnsigned(i, i % 3 == 0 ? uint64_t(i) % 50 : (uint64_t{1} << (20 + i % 44)) + uint64_t(i) % 50);
  const HostTensor arguments[] = {SomeValues(DType::kF32, form.x, random), indices, SomeValues(DType::kF32, form.updates, random)};
  const HostTensor want = Walk<float>(form, 0, arguments[0], indices, arguments[2]);
  for (const std::string& isa : TestIsas()) {
    const auto have = RunOnCpu(TestBackend(), ScatterOf(form, DType::kF32, DType::kU64, 0), arguments, isa);
    ASSERT_TRUE(have.ok()) << have.status();
    EXPECT_TRUE(Same((*have)[0], want)) << isa;
  }
}

// An embedding's gradient: nothing is kept beside the table that is as large as the table.
TEST(Scatter, NeedsMemoryForUpdatesAndNotForTheTable) {
  constexpr int64_t kRows = 1 << 20, kUpdates = 5000, kWidth = 16;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto lowered = FusedAndLowered(ScatterOf({"rows", {kRows, kWidth}, {kUpdates}, {kUpdates, kWidth}, {1}, {0}, {0}, 1}, dtype, DType::kI32, 0));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_TRUE(std::ranges::count(lowered->program.host_kernels, "scatter_rows") == 1);
    EXPECT_LE(lowered->program.arena_bytes, kUpdates * 64);
  }
}

// A step of gradient descent on rows of a table: p - rate * g, where g is what a scatter adds to zeros.
Ref<const ir::Function> StepOf(const Form& form, DType dtype, bool gives_gradient = false) {
  return test::MakeFunction("main", {Type::Tensor(dtype, form.x), Type::Tensor(DType::kI32, form.indices), Type::Tensor(dtype, form.updates), Type::Scalar(dtype)},
                            [&](Builder& b, const Vec& p) {
                              const Value zeros = ops::FullLike(b, p[0], 0);
                              const Value g = ops::Call(b, ops::kOp_scatter, {zeros, p[1], p[2]}, {form.window, form.inserted, form.map, form.vector, int64_t{0}});
                              const Value stepped = ops::Sub(b, p[0], ops::Mul(b, g, p[3]));
                              return gives_gradient ? Vec{stepped, g} : Vec{stepped};
                            });
}

TEST(RowSteps, HaveTheBitsOfTheWholeStep) {
  int seed = 6000;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const int64_t n : {70, 3000, 9000}) {
      for (const Order order : {Order::kAny, Order::kSorted, Order::kHot, Order::kOutside}) {
        for (const int64_t width : {1, 19, 300}) {
          const int64_t rows = width == 300 && n < 9000 ? 3000 : 10'000;
          const Form form = {"rows", {rows, width}, {n}, {n, width}, {1}, {0}, {0}, 1};
          std::mt19937_64 random(seed++);
          HostTensor rate(dtype, {});
          rate.SetDouble(0, 0.3);
          const HostTensor arguments[] = {SomeValues(dtype, form.x, random), SomeIndices(form, order, DType::kI32, random), SomeValues(dtype, form.updates, random), rate};
          HostTensor want(dtype, form.x);
          VisitElement(dtype, [&]<typename T>() {
            if constexpr (std::is_floating_point_v<T>) {
              const HostTensor g = Walk<T>(form, 0, want, arguments[1], arguments[2]);
              for (int64_t i = 0; i < want.count(); ++i) {
                const T product = static_cast<T>(g.GetDouble(i)) * static_cast<T>(rate.GetDouble(0));
                want.SetDouble(i, static_cast<T>(arguments[0].GetDouble(i)) - product);
              }
            }
          });
          for (const std::string& isa : TestIsas()) {
            const int threads = std::array{1, 2, 5}[static_cast<size_t>(seed) % 3];
            const auto have = RunOnCpu(BackendOf(threads), StepOf(form, dtype), arguments, isa);
            ASSERT_TRUE(have.ok()) << have.status();
            ASSERT_TRUE(Same((*have)[0], want)) << NameOf(dtype) << " " << n << "x" << width << " order " << static_cast<int>(order) << " " << isa << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

// Neither zeros nor a gradient as large as the table are there, and the table itself is changed where it is donated.
TEST(RowSteps, TouchOnlyRowsThatUpdatesName) {
  const Form form = {"rows", {1 << 20, 16}, {4096}, {4096, 16}, {1}, {0}, {0}, 1};
  const auto lowered = FusedAndLowered(StepOf(form, DType::kF32));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(std::ranges::count(lowered->program.host_kernels, "step_rows"), 1);
  EXPECT_LE(lowered->program.arena_bytes, 4096 * 64);
  ASSERT_EQ(lowered->program.lists[0].size(), 2u);  // a copy, which goes where the table is donated, and the step
  const auto both = FusedAndLowered(StepOf(form, DType::kF32, true));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(std::ranges::count(both->program.host_kernels, "step_rows"), 0);
}

// A layer of a graph network: rows that edges name are added where other numbers of theirs say.
TEST(Scatter, AddsGatheredRowsFromWhereTheyLie) {
  constexpr int64_t kNodes = 6000, kEdges = 20'000, kWidth = 24;
  int seed = 7000;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const Order order : {Order::kAny, Order::kSorted, Order::kHot, Order::kOutside}) {
      const auto sums = test::MakeFunction("main", {Type::Tensor(dtype, {kNodes, kWidth}), Type::Tensor(DType::kI32, {kEdges}), Type::Tensor(DType::kI64, {kEdges})}, [&](Builder& b, const Vec& p) {
        const Value rows = ops::Call(b, ops::kOp_take, {p[0], p[1]});
        return Vec{ops::Call(b, ops::kOp_scatter, {ops::FullLike(b, p[0], 0), p[2], rows}, {Ints{1}, Ints{0}, Ints{0}, int64_t{1}, int64_t{0}})};
      });
      const auto lowered = FusedAndLowered(sums);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_EQ(std::ranges::count(lowered->program.host_kernels, "scatter_gathered"), 1);
      EXPECT_LE(lowered->program.arena_bytes, kEdges * 20);  // no row is copied
      const Form form = {"edges", {kNodes, kWidth}, {kEdges}, {kEdges, kWidth}, {1}, {0}, {0}, 1};
      std::mt19937_64 random(seed++);
      const HostTensor arguments[] = {SomeValues(dtype, form.x, random), SomeIndices(form, Order::kOutside, DType::kI32, random), SomeIndices(form, order, DType::kI64, random)};
      HostTensor rows(dtype, form.updates);
      const size_t bytes = static_cast<size_t>(BytesOf(dtype) * kWidth);
      for (int64_t i = 0; i < kEdges; ++i) {
        const int64_t from = std::clamp<int64_t>(arguments[1].GetInt(i), 0, kNodes - 1);
        std::memcpy(rows.mutable_bytes().data() + static_cast<size_t>(i) * bytes, arguments[0].bytes().data() + static_cast<size_t>(from) * bytes, bytes);
      }
      HostTensor want;
      VisitElement(dtype, [&]<typename T>() { want = Walk<T>(form, 0, HostTensor(dtype, form.x), arguments[2], rows); });
      for (const std::string& isa : TestIsas()) {
        const auto have = RunOnCpu(BackendOf(std::array{1, 2, 5}[static_cast<size_t>(seed) % 3]), sums, arguments, isa);
        ASSERT_TRUE(have.ok()) << have.status();
        ASSERT_TRUE(Same((*have)[0], want)) << NameOf(dtype) << " order " << static_cast<int>(order) << " " << isa;
      }
    }
  }
}

TEST(Gather, TakesTheElementsOfAWalk) {
  int seed = 5000;
  for (const int64_t n : {int64_t{40}, int64_t{9000}}) {
    for (const int64_t rows : {int64_t{11}, int64_t{3000}}) {
      for (const Form& form : Forms(n, rows)) {
        const DType dtype = kTypes[static_cast<size_t>(seed) % std::size(kTypes)];
        std::mt19937_64 random(seed);
        const HostTensor arguments[] = {SomeValues(dtype, form.x, random), SomeIndices(form, static_cast<Order>(seed % 5), DType::kI32, random)};
        Ints sizes;
        size_t window = 0;
        for (int64_t d = 0; d < static_cast<int64_t>(form.x.size()); ++d) {
          const bool gone = Has(form.inserted, d) || Has(form.batching, d);
          sizes.push_back(gone ? 1 : form.updates[form.window[window++]]);
        }
        const auto gather = test::MakeFunction("main", {Type::Tensor(dtype, form.x), Type::Tensor(DType::kI32, form.indices)}, [&](Builder& b, const Vec& p) {
          return Vec{ops::Call(b, ops::kOp_gather, {p[0], p[1]}, {form.window, form.inserted, form.map, form.vector, sizes, form.batching, form.index_batching})};
        });
        HostTensor want(dtype, form.updates);
        const size_t bytes = static_cast<size_t>(BytesOf(dtype));
        ForEachElement(form.updates, [&](int64_t i, const Dims& at) {
          std::memcpy(want.mutable_bytes().data() + i * bytes, arguments[0].bytes().data() + PlaceOf(form, arguments[1], at, true) * bytes, bytes);
        });
        for (const int threads : {1, 2, 5}) {
          const auto have = RunOnCpu(BackendOf(threads), gather, arguments);
          ASSERT_TRUE(have.ok()) << have.status();
          ASSERT_TRUE(std::ranges::equal((*have)[0].bytes(), want.bytes())) << form.name << " " << NameOf(dtype) << " seed " << seed << ", " << threads << " threads";
        }
        ++seed;
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
