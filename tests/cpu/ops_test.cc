// Every operation on every sample and element type, on every instruction set, against the reference.
#include <cstdlib>

#include "tests/cpu/backend_support.h"

namespace weft::cpu {
namespace {

TEST(CpuOps, EverySampleAgreesWithTheReferenceOnEveryInstructionSet) {
  CpuBackend& backend = TestBackend();
  const char* only = std::getenv("WEFT_TEST_OP");  // one operation's C name, for work on it
  int runs = 0;
  std::map<std::string, int> unimplemented;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (only != nullptr && op->c_name != only) continue;
    for (const ir::Sample& sample : op->samples) {
      for (DType dtype : ops::SampleTypes(*op, sample)) {
        absl::StatusOr<test::Case> c = test::MakeCase(*op, sample, dtype);
        ASSERT_TRUE(c.ok()) << c.status();
        SCOPED_TRACE(c->name);
        ir::Builder b;
        const ir::Values results = ops::CallAll(b, *op, c->operands, c->parsed.attrs);
        ASSERT_TRUE(b.ok()) << b.status();
        const auto want = test::Evaluate(*c, results);
        ASSERT_TRUE(want.ok()) << want.status();
        const auto function = ir::Function::Create("test", c->parameters, {results.begin(), results.end()});
        for (const std::string& isa : TestIsas()) {
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
    EXPECT_GT(runs, 1000);
  }
}

}  // namespace
}  // namespace weft::cpu
