// Attention as one kernel against its definition in double, on every path.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/backends/cpu/kernels/attention/attention_rows.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/cpu_under_test.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Type;
using ir::Value;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Which keys a query sees; kUpperLeft is what causal=true says.
enum Causal : int64_t { kAll = 0, kUpperLeft = 1, kLowerRight = 2 };
constexpr Causal kEvery[] = {kAll, kUpperLeft, kLowerRight};

struct Case {
  Dims lead;
  int64_t queries, keys, width, value_width;
  Causal causal = kAll;
  double scale = 0;  // 0: not given
  Dims mask;         // none
  double size = 1;   // of the elements of q
  bool hides = false;  // every third element of the mask is -inf, and so is all that the second query sees
  int64_t group = 1;   // heads that share a key head
  bool nan_if_unseen = false;

  std::string Name() const {
    const char* const seen = causal == kAll ? "" : causal == kUpperLeft ? " causal" : " lower right";
    return absl::StrCat("lead ", DimsToString(lead), " ", queries, " queries ", keys, " keys ", width, " to ", value_width, seen,
                        " scale ", scale, " mask ", DimsToString(mask), " size ", size, hides ? " hides" : "", " group ", group,
                        nan_if_unseen ? " nan_if_unseen" : "");
  }
  // Keys that query i sees are those before.
  int64_t SeenBy(int64_t i) const { return causal == kAll ? keys : i + 1 + (causal == kLowerRight ? keys - queries : 0); }
  Dims Of(int64_t rows, int64_t columns) const {
    Dims dims = lead;
    dims.push_back(rows);
    dims.push_back(columns);
    return dims;
  }
  Dims OfKeys(int64_t columns) const {
    Dims dims = Of(keys, columns);
    if (group > 1) dims[lead.size() - 1] /= group;
    return dims;
  }
};

struct Program {
  Ref<const ir::Function> function;
  std::vector<HostTensor> arguments;
};

Program Make(const Case& c, DType dtype, bool gradient = false) {
  std::mt19937 random(7);
  std::normal_distribution<double> draw(0, 1);
  Builder b;
  Program program;
  ir::Values operands;
  std::vector<Value> parameters;
  const auto add = [&](const Dims& dims, double size) -> HostTensor& {
    parameters.push_back(test::NewParameter(Type::Tensor(dtype, dims)));
    operands.push_back(parameters.back());
    HostTensor& t = program.arguments.emplace_back(dtype, dims);
    for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, draw(random) * size);
    return t;
  };
  add(c.Of(c.queries, c.width), c.size);
  add(c.OfKeys(c.width), 1);
  add(c.OfKeys(c.value_width), 1);
  if (gradient) add(c.Of(c.queries, c.value_width), 1);
  if (!c.mask.empty()) {
    HostTensor& mask = add(c.mask, 1);
    if (c.hides) {
      const int64_t columns = c.mask.back();
      for (int64_t i = 0; i < mask.count(); i += 3) mask.SetDouble(i, -kInfinity);
      for (int64_t i = columns; i < std::min(2 * columns, mask.count()); ++i) mask.SetDouble(i, -kInfinity);
    }
  }
  if (c.mask.empty()) operands.emplace_back();
  ir::Attrs attrs = {int64_t{c.causal == kUpperLeft}};
  if (c.scale != 0) attrs.set(1, c.scale);
  if (c.group > 1) attrs.set(gradient ? 2 : 3, int64_t{1});
  if (c.causal == kLowerRight) attrs.set(gradient ? 3 : 4, int64_t{kLowerRight});
  if (c.nan_if_unseen) attrs.set(gradient ? 4 : 5, int64_t{1});
  const ir::OpDef& op = gradient ? ops::kOp_scaled_dot_product_attention_gradient : ops::kOp_scaled_dot_product_attention;
  const ir::Values results = ops::CallAll(b, op, operands, attrs);
  EXPECT_TRUE(b.ok()) << b.status();
  program.function = ir::Function::Create("main", parameters, {results.begin(), results.end()});
  return program;
}

// What the mask adds to a score; its place in the whole of them is `at`.
double Added(const Case& c, const HostTensor& mask, int64_t at) {
  const Dims scores = c.Of(c.queries, c.keys);
  int64_t place = 0, stride = 1;
  for (size_t d = scores.size(); d-- > 0;) {
    const int64_t index = at % scores[d];
    at /= scores[d];
    if (d + c.mask.size() < scores.size()) continue;
    const int64_t size = c.mask[d + c.mask.size() - scores.size()];
    if (size > 1) place += index * stride;
    stride *= size;
  }
  return mask.GetDouble(place);
}

// The probabilities softmax(q k^T scale + mask) of member m's query i, in double: 0 where it sees no key.
std::vector<double> ProbabilitiesOf(const Case& c, const std::vector<HostTensor>& arguments, int64_t m, int64_t i) {
  const HostTensor &q = arguments[0], &k = arguments[1];
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.width));
  std::vector<double> row(c.keys);
  for (int64_t j = 0; j < c.keys; ++j) {
    double sum = 0;
    for (int64_t d = 0; d < c.width; ++d) {
      sum += q.GetDouble((m * c.queries + i) * c.width + d) * k.GetDouble((m / c.group * c.keys + j) * c.width + d);
    }
    row[j] = sum * scale;
    if (!c.mask.empty()) row[j] += Added(c, arguments.back(), (m * c.queries + i) * c.keys + j);
    if (j >= c.SeenBy(i)) row[j] = -kInfinity;
  }
  const double most = *std::max_element(row.begin(), row.end());
  if (most == -kInfinity) return std::vector<double>(c.keys, c.nan_if_unseen ? std::nan("") : 0);
  double sum = 0;
  for (double& s : row) sum += s = std::exp(s - most);
  for (double& s : row) s /= sum;
  return row;
}

std::vector<double> Defined(const Case& c, const std::vector<HostTensor>& arguments) {
  std::vector<double> out;
  for (int64_t m = 0; m < CountOf(c.lead); ++m) {
    for (int64_t i = 0; i < c.queries; ++i) {
      const std::vector<double> p = ProbabilitiesOf(c, arguments, m, i);
      for (int64_t d = 0; d < c.value_width; ++d) {
        double y = 0;
        for (int64_t j = 0; j < c.keys; ++j) y += p[j] * arguments[2].GetDouble((m / c.group * c.keys + j) * c.value_width + d);
        out.push_back(y);
      }
    }
  }
  return out;
}

// The cotangents of q, k and v by that of the result, which is arguments[3], in double.
std::vector<std::vector<double>> DefinedGradient(const Case& c, const std::vector<HostTensor>& arguments) {
  const HostTensor &q = arguments[0], &k = arguments[1], &v = arguments[2], &g = arguments[3];
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.width));
  std::vector<std::vector<double>> out;
  for (const HostTensor* x : {&q, &k, &v}) out.emplace_back(x->count(), 0.0);
  for (int64_t m = 0; m < CountOf(c.lead); ++m) {
    for (int64_t i = 0; i < c.queries; ++i) {
      const std::vector<double> p = ProbabilitiesOf(c, arguments, m, i);
      const int64_t query = m * c.queries + i;
      std::vector<double> dp(c.keys);
      double along = 0;
      for (int64_t j = 0; j < c.keys; ++j) {
        for (int64_t d = 0; d < c.value_width; ++d) {
          dp[j] += g.GetDouble(query * c.value_width + d) * v.GetDouble((m / c.group * c.keys + j) * c.value_width + d);
        }
        along += p[j] * dp[j];
      }
      for (int64_t j = 0; j < c.keys; ++j) {
        if (j >= c.SeenBy(i)) continue;
        const int64_t key = m / c.group * c.keys + j;
        const double ds = p[j] * (dp[j] - along) * scale;
        for (int64_t d = 0; d < c.width; ++d) {
          out[0][query * c.width + d] += ds * k.GetDouble(key * c.width + d);
          out[1][key * c.width + d] += ds * q.GetDouble(query * c.width + d);
        }
        for (int64_t d = 0; d < c.value_width; ++d) {
          out[2][key * c.value_width + d] += p[j] * g.GetDouble(query * c.value_width + d);
        }
      }
    }
  }
  return out;
}

bool IsAttention(const ir::Node& node) {
  return &node.op() == &ops::kOp_scaled_dot_product_attention || &node.op() == &ops::kOp_scaled_dot_product_attention_gradient;
}

// Whole, whatever its sizes.
absl::StatusOr<std::vector<HostTensor>> RunWhole(CpuBackend& backend, const Program& program, std::string_view isa = "") {
  ir::Module module;
  module.functions.push_back(program.function);
  passes::PipelineOptions options;
  options.claims = IsAttention;
  WEFT_ASSIGN_OR_RETURN(module, passes::RunPipeline(std::move(module), options));
  EXPECT_TRUE(IsAttention(*module.main().results()[0].node));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, backend.Compile(module, {{.isa = std::string(isa)}}));
  return RunExecutable(backend, *executable, program.arguments);
}

void ExpectDefined(const Case& c, DType dtype, const std::vector<std::string>& isas) {
  SCOPED_TRACE(absl::StrCat(NameOf(dtype), " ", c.Name()));
  const Program program = Make(c, dtype);
  const std::vector<double> want = Defined(c, program.arguments);
  // Scores of f32 are off by their size, and so are the logarithms of probabilities.
  const double bound = dtype == DType::kBF16 ? 2e-2 : 1e-5 + 2e-6 * c.size;
  for (const std::string& isa : isas) {
    SCOPED_TRACE(isa);
    const auto got = RunWhole(TestBackend(), program, isa);
    ASSERT_TRUE(got.ok()) << got.status();
    for (int64_t i = 0; i < (*got)[0].count(); ++i) {
      const double x = (*got)[0].GetDouble(i);
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(x)) << "element " << i << ": " << x << ", not NaN";
      } else {
        ASSERT_LE(std::abs(x - want[i]), bound * (1 + std::abs(want[i]))) << "element " << i << ": " << x << ", not " << want[i];
      }
    }
  }
}

void ExpectGradientDefined(const Case& c, DType dtype, const std::vector<std::string>& isas) {
  SCOPED_TRACE(absl::StrCat(NameOf(dtype), " ", c.Name()));
  const Program program = Make(c, dtype, true);
  const auto want = DefinedGradient(c, program.arguments);
  // Of bf16, too, nothing is rounded to fewer digits than f32 has.
  for (const std::string& isa : isas) {
    SCOPED_TRACE(isa);
    const auto got = RunWhole(TestBackend(), program, isa);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t r = 0; r < want.size(); ++r) {
      ASSERT_EQ((*got)[r].dtype(), DType::kF32);
      double most = 1;
      for (const double x : want[r]) most = std::isnan(x) ? most : std::max(most, std::abs(x));
      const double bound = (1e-5 + 2e-6 * c.size) * most;
      for (int64_t i = 0; i < (*got)[r].count(); ++i) {
        const double x = (*got)[r].GetDouble(i);
        if (std::isnan(want[r][i])) {
          ASSERT_TRUE(std::isnan(x)) << "result " << r << ", element " << i << ": " << x << ", not NaN";
        } else {
          ASSERT_LE(std::abs(x - want[r][i]), bound) << "result " << r << ", element " << i << ": " << x << ", not " << want[r][i];
        }
      }
    }
  }
}

std::vector<std::string> AllIsas() {
  std::vector<std::string> isas = TestIsas();
  isas.emplace_back("amx-model");
  return isas;
}

class Attention : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Attention, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(Attention, OfAnyLengthsIsItsDefinition) {
  for (const int64_t keys : {1, 7, 64, 65, 300}) {
    for (const int64_t queries : {1, 7, 9, 64, 65, 300}) {
      for (const Causal causal : kEvery) ExpectDefined({{2, 1}, queries, keys, 16, 24, causal}, GetParam(), AllIsas());
    }
  }
}

TEST_P(Attention, OfLongSequencesIsItsDefinition) {
  const std::vector<std::string> best = {""};
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{512, 512}, {1000, 1000}, {65, 1000}, {1000, 65}}) {
    for (const Causal causal : kEvery) ExpectDefined({{1, 2}, queries, keys, 64, 64, causal}, GetParam(), best);
  }
}

TEST_P(Attention, OfFewQueriesJoinsThePartsOfTheKeys) {
  for (const int64_t queries : {1, 3, 8}) {
    for (const Causal causal : kEvery) {
      ExpectDefined({{3}, queries, 1300, 40, 33, causal}, GetParam(), AllIsas());
      ExpectDefined({{17}, queries, 1300, 16, 16, causal}, GetParam(), TestIsas());
    }
  }
}

TEST_P(Attention, TakesWidthsThatAreNoVectors) {
  for (const auto& [width, value_width] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {17, 1}, {80, 130}, {256, 256}}) {
    ExpectDefined({{2}, 33, 70, width, value_width, kUpperLeft}, GetParam(), AllIsas());
    ExpectDefined({{2}, 2, 70, width, value_width}, GetParam(), AllIsas());
  }
}

TEST_P(Attention, AddsMasksOfEveryBroadcast) {
  for (const Dims& mask : {Dims{2, 3, 20, 40}, {1, 3, 20, 40}, {2, 1, 20, 40}, {2, 3, 1, 40}, {2, 3, 20, 1}, {3, 20, 40},
                           {20, 40}, {40}, {1, 1}, {2, 1, 1, 40}}) {
    ExpectDefined({{2, 3}, 20, 40, 16, 16, kAll, 0.3, mask}, GetParam(), AllIsas());
  }
  ExpectDefined({{2, 3}, 4, 40, 16, 16, kUpperLeft, 0.3, {2, 1, 1, 40}}, GetParam(), AllIsas());
}

Case NanIfUnseen(Case c) {
  c.nan_if_unseen = true;
  return c;
}

TEST_P(Attention, HidesKeysAndGivesZeroWhereAQuerySeesNone) {
  for (const int64_t queries : {4, 100}) {
    for (const Causal causal : kEvery) {
      const Case c = {{2}, queries, 700, 16, 16, causal, 0, {queries, 700}, 1, true};
      ExpectDefined(c, GetParam(), AllIsas());
      ExpectDefined(NanIfUnseen(c), GetParam(), AllIsas());
    }
  }
}

// Blocks of queries of which none sees a key, some do, all do.
TEST_P(Attention, OfMoreQueriesThanKeysIsItsDefinition) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{8, 3}, {300, 40}, {300, 299}}) {
    for (const Causal causal : {kUpperLeft, kLowerRight}) {
      const Case c = {{2}, queries, keys, 16, 16, causal};
      ExpectDefined(c, GetParam(), AllIsas());
      ExpectDefined(NanIfUnseen(c), GetParam(), AllIsas());
      ExpectGradientDefined(c, GetParam(), AllIsas());
    }
  }
}

TEST_P(Attention, OfLargeScoresIsItsDefinition) {
  for (const int64_t queries : {2, 70}) {
    for (const int64_t keys : {50, 600}) {
      Case c = {{2}, queries, keys, 1, 8};
      c.size = 4096;
      ExpectDefined(c, GetParam(), AllIsas());
    }
  }
}

Case Grouped(Case c, int64_t group) {
  c.group = group;
  return c;
}

TEST_P(Attention, OfHeadsThatShareAKeyHeadIsItsDefinition) {
  for (const int64_t queries : {1, 3, 9, 130}) {
    for (const Causal causal : kEvery) {
      for (const int64_t group : {2, 3, 6}) ExpectDefined(Grouped({{2, 6}, queries, 300, 16, 24, causal}, group), GetParam(), AllIsas());
    }
    for (const Dims& mask : {Dims{2, 6, queries, 40}, {6, 1, 40}, {2, 1, queries, 1}, {40}}) {
      ExpectDefined(Grouped({{2, 6}, queries, 40, 16, 16, kUpperLeft, 0.3, mask}, 3), GetParam(), TestIsas());
    }
  }
  ExpectDefined(Grouped({{20}, 1, 1300, 40, 33}, 20), GetParam(), AllIsas());
  ExpectDefined(Grouped({{8}, 300, 300, 32, 32, kUpperLeft}, 4), GetParam(), AllIsas());
}

TEST_P(Attention, ItsGradientAddsUpHeadsThatShareAKeyHead) {
  for (const int64_t queries : {1, 9, 130}) {
    for (const Causal causal : kEvery) {
      for (const int64_t group : {2, 6}) {
        ExpectGradientDefined(Grouped({{2, 6}, queries, 150, 16, 24, causal}, group), GetParam(), AllIsas());
      }
    }
    for (const Dims& mask : {Dims{2, 6, queries, 140}, {6, 1, 140}, {2, 1, queries, 1}}) {
      ExpectGradientDefined(Grouped({{2, 6}, queries, 140, 16, 16, kUpperLeft, 0.3, mask}, 3), GetParam(), TestIsas());
    }
  }
  ExpectGradientDefined(Grouped({{32}, 130, 130, 16, 16, kUpperLeft}, 2), GetParam(), TestIsas());
}

TEST_P(Attention, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Case& c : {Case{{2}, 300, 1000, 32, 32, kUpperLeft}, Case{{1}, 3, 5000, 64, 64}, Case{{1, 3}, 40, 700, 24, 40},
                        Grouped({{1, 6}, 70, 300, 32, 32, kUpperLeft}, 3), Grouped({{1, 6}, 1, 900, 32, 32}, 3),
                        Case{{9}, 70, 90, 32, 32, kUpperLeft}}) {
    SCOPED_TRACE(c.Name());
    const Program program = Make(c, GetParam());
    std::vector<HostTensor> first;
    for (const int threads : {1, 2, 5}) {
      const auto backend = *test::NewCpuBackend({.threads = threads});
      const auto got = RunWhole(*backend, program);
      ASSERT_TRUE(got.ok()) << got.status();
      if (first.empty()) {
        first = *got;
      } else {
        EXPECT_EQ(0, std::memcmp(first[0].bytes().data(), (*got)[0].bytes().data(), first[0].bytes().size())) << threads;
      }
    }
  }
}

// The model's vectors are this machine's.
TEST(Attention, OnTilesHasTheModelsBits) {
  if (!IsSupported(Isa::kAmx)) GTEST_SKIP() << "this machine has no tiles";
  for (const Case& c : {Case{{2}, 200, 700, 40, 70, kLowerRight}, Case{{9}, 70, 90, 64, 64},
                        Case{{2, 3}, 33, 100, 17, 5, kUpperLeft, 0.3, {2, 3, 33, 100}}}) {
    SCOPED_TRACE(c.Name());
    for (const bool gradient : {false, true}) {
      const Program program = Make(c, DType::kBF16, gradient);
      const auto tiles = RunWhole(TestBackend(), program, "amx"), model = RunWhole(TestBackend(), program, "amx-model");
      ASSERT_TRUE(tiles.ok() && model.ok());
      for (size_t r = 0; r < tiles->size(); ++r) {
        EXPECT_EQ(0, std::memcmp((*tiles)[r].bytes().data(), (*model)[r].bytes().data(), (*tiles)[r].bytes().size())) << r;
      }
    }
  }
}

TEST_P(Attention, ItsGradientOfAnyLengthsIsItsDefinition) {
  for (const int64_t keys : {1, 7, 64, 65, 300}) {
    for (const int64_t queries : {1, 7, 9, 64, 65, 300}) {
      for (const Causal causal : kEvery) ExpectGradientDefined({{2, 1}, queries, keys, 16, 24, causal}, GetParam(), AllIsas());
    }
  }
}

TEST_P(Attention, ItsGradientOfLongSequencesIsItsDefinition) {
  const std::vector<std::string> best = {""};
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{513, 513}, {1000, 1000}, {65, 1000}, {1000, 65}}) {
    for (const Causal causal : kEvery) ExpectGradientDefined({{1, 1}, queries, keys, 32, 32, causal}, GetParam(), best);
  }
  ExpectGradientDefined({{17}, 150, 150, 16, 16, kUpperLeft}, GetParam(), best);
}

TEST_P(Attention, ItsGradientTakesWidthsThatAreNoVectors) {
  for (const auto& [width, value_width] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {17, 1}, {80, 130}, {256, 256}}) {
    ExpectGradientDefined({{2}, 33, 70, width, value_width, kUpperLeft}, GetParam(), AllIsas());
    ExpectGradientDefined({{2}, 2, 70, width, value_width}, GetParam(), AllIsas());
  }
}

TEST_P(Attention, ItsGradientAddsMasksOfEveryBroadcast) {
  for (const Dims& mask : {Dims{2, 3, 70, 140}, {1, 3, 70, 140}, {2, 1, 70, 140}, {2, 3, 1, 140}, {2, 3, 70, 1}, {3, 70, 140},
                           {70, 140}, {140}, {1, 1}, {2, 1, 1, 140}}) {
    ExpectGradientDefined({{2, 3}, 70, 140, 8, 8, kAll, 0.3, mask}, GetParam(), AllIsas());
  }
  ExpectGradientDefined({{2, 3}, 70, 140, 8, 8, kUpperLeft, -0.3, {2, 1, 1, 140}}, GetParam(), AllIsas());
}

TEST_P(Attention, ItsGradientHidesKeysAndGivesZeroWhereAQuerySeesNone) {
  for (const Causal causal : kEvery) ExpectGradientDefined({{2}, 100, 300, 16, 16, causal, 0, {100, 300}, 1, true}, GetParam(), AllIsas());
}

TEST_P(Attention, ItsGradientOfLargeScoresIsItsDefinition) {
  for (const int64_t keys : {50, 600}) {
    Case c = {{2}, 70, keys, 1, 8};
    c.size = 4096;
    ExpectGradientDefined(c, GetParam(), AllIsas());
  }
}

TEST_P(Attention, ItsGradientHasTheSameBitsForAnyNumberOfThreads) {
  for (const Case& c : {Case{{2}, 300, 1000, 32, 32, kUpperLeft}, Case{{1}, 700, 100, 24, 40}, Case{{3, 7}, 130, 130, 16, 16, kUpperLeft},
                        Grouped({{2, 6}, 130, 130, 16, 16, kUpperLeft}, 3)}) {
    SCOPED_TRACE(c.Name());
    const Program program = Make(c, GetParam(), true);
    std::vector<HostTensor> first;
    for (const int threads : {1, 2, 5}) {
      const auto backend = *test::NewCpuBackend({.threads = threads});
      const auto got = RunWhole(*backend, program);
      ASSERT_TRUE(got.ok()) << got.status();
      if (first.empty()) first = *got;
      for (size_t r = 0; r < first.size(); ++r) {
        EXPECT_EQ(0, std::memcmp(first[r].bytes().data(), (*got)[r].bytes().data(), first[r].bytes().size())) << threads;
      }
    }
  }
}

bool Stays(const Ref<const ir::Function>& function) {
  const auto module = Prepared(TestBackend(), function);
  EXPECT_TRUE(module.ok()) << module.status();
  const auto nodes = module->main().nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const ir::Node* node) { return &node->op() == &ops::kOp_scaled_dot_product_attention; });
}

bool GradientStays(DType dtype, const Case& c) {
  const auto module = Prepared(TestBackend(), Make(c, dtype, true).function);
  EXPECT_TRUE(module.ok()) << module.status();
  return module->main().results()[0].node->op().kind == ir::Kind::kComposite;
}

bool ForwardStays(DType dtype, const Case& c) { return Stays(Make(c, dtype).function); }

TEST(Attention, ExpandsWhatTheKernelDoesNotServe) {
  const Case long_one = {{2}, 1024, 1024, 16, 16};
  const CpuTarget best = test::TargetUnderTest();
  const bool pairs = best.has_bf16_dot || best.tiles != TileUnit::kNone;
  EXPECT_FALSE(ForwardStays(DType::kF64, long_one));
  EXPECT_FALSE(ForwardStays(DType::kF16, long_one));
  EXPECT_FALSE(ForwardStays(DType::kF32, {{2}, 1024, 1024, 257, 16}));
  EXPECT_FALSE(ForwardStays(DType::kF32, {{2}, 1024, 1024, 16, 257}));
  EXPECT_FALSE(ForwardStays(DType::kF32, {{}, 1024, 1024, 16, 16}));
  EXPECT_FALSE(GradientStays(DType::kF64, long_one));
  EXPECT_FALSE(GradientStays(DType::kF32, {{2}, 1024, 1024, 257, 16}));
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const bool served = dtype == DType::kF32 || pairs;
    EXPECT_FALSE(GradientStays(dtype, {{2}, 1, 512, 16, 16}));
    EXPECT_EQ(GradientStays(dtype, {{2}, 600, 599, 16, 16, kLowerRight}), served);  // the first query sees no key
    EXPECT_FALSE(GradientStays(dtype, NanIfUnseen({{2}, 600, 599, 16, 16, kLowerRight})));
    EXPECT_EQ(ForwardStays(dtype, {{2}, 1, 256, 16, 16}), served);
    EXPECT_FALSE(ForwardStays(dtype, {{2}, 1, 255, 16, 16}));
    EXPECT_FALSE(ForwardStays(dtype, {{2}, 1, 2048, 16, 16}));
  }
}

// As many queries and keys as it takes, and one less.
TEST(Attention, IsAKernelFromTheSizesThatItsTargetSays) {
  const CpuTarget best = test::TargetUnderTest();
  const bool tiles = best.tiles != TileUnit::kNone, pairs = best.has_bf16_dot || tiles;
  const auto expect = [](DType dtype, Causal causal, int64_t forward, int64_t gradient) {
    for (const int64_t less : {0, 1}) {
      EXPECT_EQ(ForwardStays(dtype, {{2}, forward - less, forward - less, 16, 16, causal}), less == 0) << forward;
      EXPECT_EQ(GradientStays(dtype, {{2}, gradient - less, gradient - less, 16, 16, causal}), less == 0) << gradient;
    }
  };
  expect(DType::kF32, kAll, tiles ? 512 : 1024, tiles ? 512 : 1024);
  expect(DType::kF32, kUpperLeft, tiles ? 128 : 256, tiles ? 128 : 256);
  if (pairs) expect(DType::kBF16, kAll, tiles ? 64 : 4096, tiles ? 512 : 1024);
  if (pairs) expect(DType::kBF16, kUpperLeft, tiles ? 64 : 256, tiles ? 128 : 256);
  EXPECT_EQ(ForwardStays(DType::kBF16, {{2}, 4096, 4096, 16, 16}), pairs);
}

// Types and shapes alone decide, so that a cut before the gradient changes no bit.
TEST(Attention, StaysWholeBesideItsGradient) {
  const Program program = Make({{2}, 1024, 1024, 16, 16}, DType::kF32);
  ASSERT_TRUE(Stays(program.function));
  const std::span<const Value> parameters = program.function->parameters();
  const Value y = program.function->results()[0];
  Builder b;
  for (const Value& x : parameters) {
    const auto slopes = autodiff::Gradient(b, y, {{x}}, y);
    ASSERT_TRUE(slopes.ok()) << slopes.status();
    EXPECT_TRUE(Stays(ir::Function::Create("main", {parameters.begin(), parameters.end()}, {y, (*slopes)[0]})));
  }
}

// A result read before its gradient, beside it or never: the same bits.
TEST_P(Attention, ItsGradientHasTheSameBitsWhereverItIsCut) {
  const Case c = {{2, 2}, 512, 512, 32, 32, kUpperLeft};
  const Program forward = Make(c, GetParam()), gradient = Make(c, GetParam(), true);
  const std::span<const Value> x = forward.function->parameters();
  const Value y = forward.function->results()[0], g = test::NewParameter(y.type());
  Builder b;
  const auto slopes = autodiff::Gradient(b, y, x.first(3), g);
  ASSERT_TRUE(slopes.ok()) << slopes.status();
  const std::vector<Value> parameters = {x[0], x[1], x[2], g};
  std::vector<Value> both = {y};
  both.insert(both.end(), slopes->begin(), slopes->end());
  const auto run = [&](const std::vector<Value>& results) {
    auto got = RunOnCpu(TestBackend(), ir::Function::Create("main", parameters, results), gradient.arguments);
    EXPECT_TRUE(got.ok()) << got.status();
    return *std::move(got);
  };
  std::vector<HostTensor> apart = run({y});
  for (HostTensor& slope : run(*slopes)) apart.push_back(std::move(slope));
  const std::vector<HostTensor> beside = run(both);
  ASSERT_EQ(beside.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(apart[i].dtype(), GetParam());
    EXPECT_EQ(0, std::memcmp(apart[i].bytes().data(), beside[i].bytes().data(), apart[i].bytes().size())) << i;
  }
}

// Of some operands alone it is expanded.
TEST(Attention, ItsGradientAgreesWithThatOfSomeOperands) {
  const Case c = {{2}, 256, 256, 16, 16, kUpperLeft};
  const Program forward = Make(c, DType::kF32), with_g = Make(c, DType::kF32, true);
  const std::span<const Value> x = forward.function->parameters();
  const Value y = forward.function->results()[0], g = test::NewParameter(y.type());
  Builder b;
  const auto all = autodiff::Gradient(b, y, x.first(3), g), one = autodiff::Gradient(b, y, x.subspan(1, 1), g);
  ASSERT_TRUE(all.ok() && one.ok());
  const auto got = RunOnCpu(TestBackend(), ir::Function::Create("main", {x[0], x[1], x[2], g}, {(*all)[1], (*one)[0]}), with_g.arguments);
  ASSERT_TRUE(got.ok()) << got.status();
  for (int64_t i = 0; i < (*got)[0].count(); ++i) ASSERT_NEAR((*got)[0].GetDouble(i), (*got)[1].GetDouble(i), 2e-5);
}

TEST(Attention, ItsExponentialIsWithinTwoUlp) {
  std::vector<const AttentionKernels*> sets = {&kAttentionPortable};
  if (IsSupported(Isa::kAvx2)) sets.push_back(&kAttentionAvx2);
  if (IsSupported(Isa::kAvx512)) sets.push_back(&kAttentionAvx512);
  std::vector<float> x, y;
  for (float v = 0; v > -87.3F; v = std::nextafter(v - 1e-4F, -100.0F)) x.push_back(v);
  x.resize(x.size() / kAttentionLanes * kAttentionLanes);
  y.resize(x.size());
  for (const AttentionKernels* set : sets) {
    set->exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
      ASSERT_LE(std::abs(y[i] - want), 2 * ulp) << x[i];
    }
    std::vector<float> special(kAttentionLanes, -std::numeric_limits<float>::infinity());
    special[1] = -100;
    special[2] = std::numeric_limits<float>::quiet_NaN();
    special[3] = 0;
    set->exp(special.data(), special.data(), kAttentionLanes);
    EXPECT_EQ(special[0], 0);
    EXPECT_EQ(special[1], 0);
    EXPECT_TRUE(std::isnan(special[2]));
    EXPECT_EQ(special[3], 1);
  }
}

}  // namespace
}  // namespace weft::cpu
