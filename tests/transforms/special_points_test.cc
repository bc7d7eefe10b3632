// First and second derivatives of elementwise functions, operations and what StableHLO text brings, where formulas branch or end: 0,
// whole and half numbers, infinities and the ends of domains. The judge is special_points_fixture.txt (make_special_points.py says whose
// numbers these are); each is taken by vjp and by jvp, in every order of the two, on both platforms.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "absl/strings/str_split.h"
#include "src/backends/cpu/cpu_backend.h"
#include "src/ir/rewrite.h"
#include "src/ops/registry.h"
#include "tests/ops/op_matrix.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/run_on_backend.h"
#include "tests/support/seeds.h"
#include "tests/transforms/examples.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Value;
using test::Tensors;

struct Point {
  double x, first, second;
};

std::map<std::string, std::vector<Point>> Points() {
  const char* source = std::getenv("WEFT_SOURCE");  // absent: this is the folder
  std::ifstream file(absl::StrCat(source != nullptr ? source : ".", "/tests/transforms/special_points_fixture.txt"));
  EXPECT_TRUE(file.is_open()) << "WEFT_SOURCE names no source tree";
  std::map<std::string, std::vector<Point>> points;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, ';');
    points[cells[0]].push_back({std::strtod(cells[1].c_str(), nullptr), std::strtod(cells[2].c_str(), nullptr), std::strtod(cells[3].c_str(), nullptr)});
  }
  return points;
}

HostTensor Filled(DType dtype, size_t count, double value) {
  HostTensor x(dtype, {static_cast<int64_t>(count)});
  for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, value);
  return x;
}

// "gelu form=tanh", or "zeta 2": of two operands the first one is that number.
Ref<const Function> Make(const std::string& name, DType dtype, size_t count) {
  const std::vector<std::string> words = absl::StrSplit(name, ' ');
  const ir::OpDef* const op = ops::FindCalled(words[0]);
  EXPECT_NE(op, nullptr) << name;
  const bool two = op->operands.size() == 2;
  const std::string type = absl::StrCat("T[", count, "]");
  const std::string call = two ? absl::StrCat(type, " ", type) : words.size() > 1 ? absl::StrCat(type, " ", words[1]) : type;
  const auto c = test::MakeCase(*op, ir::Sample{.call = call}, dtype);
  EXPECT_TRUE(c.ok()) << c.status();
  Builder b;
  ir::Values operands = c->operands;
  if (two) operands[0] = ops::FullLike(b, operands[0], std::strtod(words[1].c_str(), nullptr));
  const Value y = ops::Call(b, *op, operands, c->parsed.attrs);
  EXPECT_TRUE(b.ok()) << b.status();
  return Function::Create("f", {operands.back()}, {y});
}

absl::StatusOr<Ref<const Function>> Along(const Function& f, bool forward) {
  const int64_t x[] = {0};
  const DerivativeCall call = {.function = f, .inputs = f.parameters().size(), .wrt = x};
  return forward ? Jvp(call) : Vjp(call);
}

bool Close(double found, double wanted, DType dtype) {
  if (std::isnan(wanted)) return std::isnan(found);
  if (std::isinf(wanted)) return found == wanted;
  const double relative = dtype == DType::kF64 ? 2e-10 : 5e-5, absolute = dtype == DType::kF64 ? 1e-12 : 1e-6;
  return std::abs(found - wanted) <= absolute + relative * std::abs(wanted);
}

TEST(SpecialPoints, DerivativesAreTheirLimitsInBothModesAndOrders) {
  auto backend = test::NewCpuBackend();
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto all = Points();
  ASSERT_GE(all.size(), 45u);
  size_t cases = 0;
  for (const auto& [name, points] : all) {
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      HostTensor x(dtype, {static_cast<int64_t>(points.size())});
      for (size_t i = 0; i < points.size(); ++i) x.SetDouble(static_cast<int64_t>(i), points[i].x);
      const HostTensor one = Filled(dtype, points.size(), 1);
      const Ref<const Function> f = Make(name, dtype, points.size());
      for (int modes = 0; modes < 6; ++modes) {  // one order, or two
        if (cases++ % test::kOneCaseIn != 0) continue;
        const int order = modes < 2 ? 1 : 2;
        auto derivative = Along(*f, (modes & 1) != 0);
        if (order == 2 && derivative.ok()) derivative = Along(**derivative, (modes & 2) != 0);
        ASSERT_TRUE(derivative.ok()) << name << ": " << derivative.status();
        const Tensors inputs = order == 1 ? Tensors{x, one} : Tensors{x, one, one};
        ir::Module module;
        module.functions.push_back(ir::CopyFunction(**derivative));
        const auto by_reference = reference::Interpret(**derivative, inputs);
        const auto by_cpu = test::RunOnBackend(**backend, module, inputs);
        ASSERT_TRUE(by_reference.ok() && by_cpu.ok()) << name << ": " << by_reference.status() << by_cpu.status();
        for (size_t i = 0; i < points.size(); ++i) {
          const double wanted = order == 1 ? points[i].first : points[i].second;
          for (const auto& [where, found] : {std::pair("reference", &*by_reference), {"cpu", &*by_cpu}}) {
            const double got = (*found)[0].GetDouble(static_cast<int64_t>(i));
            EXPECT_TRUE(Close(got, wanted, dtype)) << name << " as " << NameOf(dtype) << ", modes " << modes << ", at " << points[i].x << " on " << where
                                                   << ": " << got << ", not " << wanted;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::transforms
