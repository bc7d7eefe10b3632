// Every operation on every sample and element type against the reference: on one instruction set after the other, on all of them
// in the long tier.
#include <cmath>
#include <cstdlib>

#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/edges.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

// Sanitizers watch the compiler and the kernels of the library, not the generated code: every second case will do.
using test::kSanitized;

TEST(CpuOps, EverySampleAgreesWithTheReference) {
  CpuBackend& backend = TestBackend();
  const char* only = std::getenv("WEFT_TEST_OP");  // one operation's C name, for work on it
  int runs = 0;
  size_t cases = 0;
  constexpr size_t kOneCaseInHere = 4;  // of the short tier, each on one instruction set in turn
  std::map<std::string, int> unimplemented;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (only != nullptr && op->c_name != only) continue;
    for (const ir::Sample& sample : op->samples) {
      for (DType dtype : ops::SampleTypes(*op, sample)) {
        std::vector<std::string> chosen = TestIsas();
        if (dtype == DType::kBF16) chosen.emplace_back("amx-model");  // other types never meet tiles
        if (only == nullptr && !test::EveryCase()) {
          const size_t number = cases++;
          if (number % kOneCaseInHere != 0) continue;
          chosen = {chosen[number / kOneCaseInHere % chosen.size()]};
        }
        absl::StatusOr<test::Case> c = test::MakeCase(*op, sample, dtype);
        ASSERT_TRUE(c.ok()) << c.status();
        SCOPED_TRACE(c->name);
        ir::Builder b;
        const ir::Values results = ops::CallAll(b, *op, c->operands, c->parsed.attrs);
        ASSERT_TRUE(b.ok()) << b.status();
        const auto want = test::Evaluate(*c, results);
        ASSERT_TRUE(want.ok()) << want.status();
        const auto function = ir::Function::Create("test", c->parameters, {results.begin(), results.end()});
        for (const std::string& isa : chosen) {
          SCOPED_TRACE(isa);
          const auto got = RunOnCpu(backend, function, c->arguments, isa);
          if (got.status().code() == absl::StatusCode::kUnimplemented) {
            ++unimplemented[std::string(op->c_name) + ": " + std::string(got.status().message())];
            continue;
          }
          ASSERT_TRUE(got.ok()) << got.status();
          for (size_t i = 0; i < results.size(); ++i) {
            EXPECT_EQ(test::Differences((*got)[i], (*want)[i], op->tolerance), "") << "result " << i;
          }
          ++runs;
        }
      }
    }
  }
  for (const auto& [what, times] : unimplemented) {
    ADD_FAILURE() << times << " cases cannot run: " << what;
  }
  if (only == nullptr) {
    EXPECT_GT(runs, kSanitized ? 200 : 700);
  }
}

// On edges or on values of all magnitudes.
void CompareElementwise(bool edges) {
  CpuBackend& backend = TestBackend();
  const char* only = std::getenv("WEFT_TEST_OP");
  int operations = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (op->scalar == nullptr || (only != nullptr && op->c_name != only)) continue;
    const ir::Sample* sample = test::EdgeSample(*op);
    if (sample == nullptr) continue;
    ++operations;
    for (DType dtype : ops::SampleTypes(*op, *sample)) {
      absl::StatusOr<test::Case> c = test::MakeCase(*op, *sample, dtype, /*seed=*/1, ops::Spread::kWhole);
      ASSERT_TRUE(c.ok()) << c.status();
      SCOPED_TRACE(c->name);
      if (edges) test::FillWithEdges(c->arguments);
      ir::Builder b;
      const ir::Values results = ops::CallAll(b, *op, c->operands, c->parsed.attrs);
      ASSERT_TRUE(b.ok()) << b.status();
      const auto want = test::Evaluate(*c, results);
      ASSERT_TRUE(want.ok()) << want.status();
      const auto function = ir::Function::Create("test", c->parameters, {results.begin(), results.end()});
      for (const std::string& isa : TestIsas()) {
        const auto got = RunOnCpu(backend, function, c->arguments, isa);
        ASSERT_TRUE(got.ok()) << got.status();
        for (int64_t i = 0; i < (*want)[0].count(); ++i) {
          HostTensor one((*got)[0].dtype(), {}), other((*want)[0].dtype(), {});
          ops::CopyElement((*got)[0], i, one, 0);
          ops::CopyElement((*want)[0], i, other, 0);
          // Half of the smallest number rounds either way.
          const double slack = std::max(test::EdgeFloat(one.dtype(), 10), edges ? 0 : test::Underflow(one.dtype()));
          if (IsFloat(one.dtype()) && std::fabs(one.GetDouble(0) - other.GetDouble(0)) <= slack) continue;
          const std::string difference = test::Differences(one, other, op->tolerance);
          if (difference.empty()) continue;
          std::string operands;
          for (const HostTensor& x : c->arguments) {
            absl::StrAppend(&operands, " ", IsFloat(x.dtype()) ? absl::StrCat(x.GetDouble(i)) : absl::StrCat(x.GetInt(i)));
          }
          ADD_FAILURE() << isa << ", operands" << operands << ": " << difference;
          break;  // one a case is enough to read
        }
      }
    }
  }
  if (only == nullptr) {
    EXPECT_GT(operations, 40);
  }
}

TEST(CpuOps, ElementwiseOperationsAgreeWithTheReferenceAtTheEdgesOfTheirTypes) { CompareElementwise(/*edges=*/true); }

TEST(CpuOps, ElementwiseOperationsAgreeWithTheReferenceOverTheWholeRangeOfTheirTypes) { CompareElementwise(/*edges=*/false); }

}  // namespace
}  // namespace weft::cpu
