// Samples to programs.
#include "tests/support/op_programs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/ops/call.h"
#include "src/ops/sample.h"

namespace weft::test {
namespace {

void Widen(ir::Tolerance& tolerance, const ir::Tolerance& other) {
  tolerance.f32 = std::max(tolerance.f32, other.f32);
  tolerance.f64 = std::max(tolerance.f64, other.f64);
  tolerance.bf16 = std::max(tolerance.bf16, other.bf16);
  tolerance.f16 = std::max(tolerance.f16, other.f16);
  tolerance.absolute = std::max(tolerance.absolute, other.absolute);
}

ir::Value Parameter(const ir::Type& type) {
  return ir::Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {type}), 0};
}

}  // namespace

absl::StatusOr<OpProgram> MakeOpProgram(const ir::OpDef& op, const ir::Sample& sample, DType dtype, std::string name,
                                        bool gradients) {
  WEFT_ASSIGN_OR_RETURN(ops::ParsedSample parsed, ops::ParseSample(op, sample, dtype));
  OpProgram program;
  program.name = std::move(name);
  program.group = op.c_name;
  program.random = op.random;
  ir::Builder b;
  ir::Values operands;
  std::vector<ir::Value> parameters, wrt;
  for (const ops::SampleOperand& operand : parsed.operands) {
    if (operand.absent) {
      operands.push_back({});
      continue;
    }
    parameters.push_back(Parameter(operand.type));
    parameters.back().node->set_needs_gradient();
    program.inputs.push_back(ops::FillSample(sample, operand, parameters.size()));
    operands.push_back(parameters.back());
    if (IsFloat(operand.type.dtype)) wrt.push_back(parameters.back());
  }
  ir::Values called = ops::CallAll(b, op, std::move(operands), parsed.attrs);
  WEFT_RETURN_IF_ERROR(b.status());
  std::vector<ir::Value> results(called.begin(), called.end());
  program.forward_results = results.size();
  for (size_t i = 0; gradients && i < program.forward_results && !wrt.empty(); ++i) {
    const ir::Type& type = results[i].type();
    if (!type.is_tensor() || !IsFloat(type.dtype)) continue;
    parameters.push_back(Parameter(type));
    program.inputs.push_back(ops::FillSample({"", -1, 1}, {.type = type}, 100 + i));
    auto slopes = autodiff::Gradient(b, results[i], wrt, parameters.back());
    // A sample may say that its gradient is not supported (the product of a window): forward only.
    if (!sample.gradient && absl::IsUnimplemented(slopes.status())) {
      parameters.pop_back();
      program.inputs.pop_back();
      continue;
    }
    WEFT_RETURN_IF_ERROR(slopes.status());
    WEFT_RETURN_IF_ERROR(b.status());
    results.insert(results.end(), slopes->begin(), slopes->end());
  }
  program.module.functions = {ir::Function::Create("main", std::move(parameters), std::move(results))};
  program.tolerance = {0, 0, 0, 0, 0};
  for (const ir::Node* node : program.module.main().nodes()) {
    if (&node->op() != &ops::kOp_parameter) Widen(program.tolerance, node->op().tolerance);
  }
  Widen(program.tolerance, op.tolerance);
  return program;
}

absl::StatusOr<std::vector<OpProgram>> OpPrograms(bool all_types) {
  std::vector<OpProgram> programs;
  for (const ir::OpDef* op : ops::AllOps()) {
    for (size_t i = 0; i < op->samples.size(); ++i) {
      std::vector<DType> types = ops::SampleTypes(*op, op->samples[i]);
      if (types.empty()) types = {DType::kF32};
      if (auto f32 = std::ranges::find(types, DType::kF32); f32 != types.end()) std::iter_swap(types.begin(), f32);
      if (!all_types || i > 1) types.resize(1);
      for (DType dtype : types) {
        auto program = MakeOpProgram(*op, op->samples[i], dtype, absl::StrCat(op->c_name, " #", i, " ", NameOf(dtype)));
        if (!program.ok()) {
          return absl::Status(program.status().code(),
                              absl::StrCat(op->c_name, " \"", op->samples[i].call, "\": ", program.status().message()));
        }
        programs.push_back(*std::move(program));
      }
    }
  }
  return programs;
}

}  // namespace weft::test
