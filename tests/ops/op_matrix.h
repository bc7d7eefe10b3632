// What the operation tests share: nodes for samples, evaluation on the reference backend, comparison by
// tolerance.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "src/backends/reference/interpreter.h"
#include "src/ops/call.h"
#include "src/ops/sample.h"
#include "src/passes/passes.h"

namespace weft::test {

inline ir::Value NewParameter(const ir::Type& type) {
  return {ir::Node::Create(ops::kOp_parameter, {}, {}, {type}), 0};
}

// A sample as parameters, attributes and values to run it on.
struct Case {
  std::string name;  // "add T[2,3] T[2,3] as f32"
  ops::ParsedSample parsed;
  ir::Values operands;                // absent ones empty
  std::vector<ir::Value> parameters;  // the present ones
  std::vector<HostTensor> arguments;
};

inline absl::StatusOr<Case> MakeCase(const ir::OpDef& op, const ir::Sample& sample, DType dtype,
                                     uint64_t seed = 1, ops::Spread spread = ops::Spread::kSample) {
  Case result;
  WEFT_ASSIGN_OR_RETURN(result.parsed, ops::ParseSample(op, sample, dtype));
  result.name = absl::StrCat(op.c_name, " ", sample.call, " as ", NameOf(dtype), " seed ", seed);
  for (const ops::SampleOperand& operand : result.parsed.operands) {
    if (operand.absent) {
      result.operands.push_back({});
      continue;
    }
    result.operands.push_back(NewParameter(operand.type));
    result.parameters.push_back(result.operands.back());
    result.arguments.push_back(ops::FillSample(sample, operand, seed + 1000 * result.arguments.size(), spread));
  }
  return result;
}

inline absl::StatusOr<std::vector<HostTensor>> Evaluate(const Case& c, std::span<const ir::Value> results) {
  const Ref<const ir::Function> function =
      ir::Function::Create("test", c.parameters, {results.begin(), results.end()});
  return reference::Interpret(*function, c.arguments);
}

// The same where complex values are computed with, whose references know their two parts alone.
inline absl::StatusOr<std::vector<HostTensor>> EvaluateSplit(std::span<const ir::Value> parameters, std::span<const ir::Value> results,
                                                             std::span<const HostTensor> arguments) {
  ir::Module module;
  module.functions.push_back(ir::Function::Create("test", {parameters.begin(), parameters.end()}, {results.begin(), results.end()}));
  WEFT_ASSIGN_OR_RETURN(const ir::Module split, passes::SplitComplex(module, {}));
  return reference::Interpret(split.main(), arguments);
}

inline double ToleranceFor(const ir::Tolerance& tolerance, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return tolerance.f32;
    case DType::kF64:
      return tolerance.f64;
    case DType::kBF16:
      return tolerance.bf16;
    case DType::kF16:
      return tolerance.f16;
    default:
      return 0;
  }
}

// What may come out as 0 over the whole range of a type: no normal number of the computation, f32 or f64, such as
// 1 / (x x) where x x overflows. f16 is computed in f32, where all its numbers are normal.
inline double Underflow(DType dtype) {
  if (!IsFloat(dtype) || dtype == DType::kF16) return 0;
  return std::ldexp(1, dtype == DType::kF64 ? -1022 : -126);
}

// "" where `got` is within the tolerance of `want`, or `slack` near, else the first element that is not.
inline std::string Differences(const HostTensor& got, const HostTensor& want, const ir::Tolerance& tolerance,
                               double factor = 1, double slack = 0) {
  if (got.dtype() != want.dtype() || got.dims() != want.dims()) {
    return absl::StrCat("types ", NameOf(got.dtype()), DimsToString(got.dims()), " and ",
                        NameOf(want.dtype()), DimsToString(want.dims()));
  }
  if (IsComplex(want.dtype())) {
    const std::string real = Differences(got.Part(0), want.Part(0), tolerance, factor, slack);
    return real.empty() ? Differences(got.Part(1), want.Part(1), tolerance, factor, slack) : absl::StrCat("real part: ", real);
  }
  const double relative = factor * ToleranceFor(tolerance, want.dtype());
  // The absolute part is for f32; the other types scale it by their own relative one.
  const double scale = tolerance.f32 == 0 ? 0 : relative / tolerance.f32;
  for (int64_t i = 0; i < want.count(); ++i) {
    if (!IsFloat(want.dtype())) {
      if (got.GetInt(i) != want.GetInt(i)) {
        return absl::StrCat("element ", i, " is ", got.GetInt(i), ", not ", want.GetInt(i));
      }
      continue;
    }
    const double x = got.GetDouble(i), r = want.GetDouble(i);
    if (x == r || (std::isnan(x) && std::isnan(r))) continue;
    if (!(std::fabs(x - r) <= slack + tolerance.absolute * scale + relative * std::fabs(r))) {
      return absl::StrCat("element ", i, " is ", x, ", not ", r);
    }
  }
  return "";
}

}  // namespace weft::test
