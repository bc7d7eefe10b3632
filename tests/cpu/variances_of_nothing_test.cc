// Variances and deviations over count - correction where that is 0 or less.
#include <cmath>

#include "absl/strings/str_cat.h"
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

TEST(Variance, VariancesOfNothingAreNaN) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    struct Case {
      int64_t size, correction;
      double want;
    };
    const double nan = std::nan(""), inf = HUGE_VAL;
    for (const Case& at : {Case{0, 0, nan}, Case{0, 1, nan}, Case{1, 1, nan}, Case{2, 2, inf}, Case{2, 5, inf}}) {
      const auto function = test::MakeFunction("main", {Type::Tensor(dtype, {at.size})}, [&](Builder& b, const Vec& p) {
        const ir::Attrs attrs = {Ints{0}, false, at.correction};
        return Vec{ops::Call(b, ops::kOp_var, {p[0]}, attrs), ops::Call(b, ops::kOp_std, {p[0]}, attrs)};
      });
      HostTensor x(dtype, {at.size});
      for (int64_t i = 0; i < at.size; ++i) x.SetDouble(i, static_cast<double>(i) + 1);
      for (const std::string& isa : TestIsas()) {
        SCOPED_TRACE(absl::StrCat(NameOf(dtype), "[", at.size, "] - ", at.correction, " ", isa));
        const auto have = RunOnCpu(TestBackend(), function, {&x, 1}, isa);
        ASSERT_TRUE(have.ok()) << have.status();
        for (const HostTensor& y : *have) {
          const double value = y.GetDouble(0);
          EXPECT_TRUE(std::isnan(at.want) ? std::isnan(value) : value == at.want) << value;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
