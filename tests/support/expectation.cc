// See expectation.h.
#include "tests/support/expectation.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "src/backends/reference/interpreter.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "tests/support/edges.h"
#include "tests/support/op_programs.h"
#include "tests/support/random_program.h"

namespace weft::test {
namespace {

constexpr int kFirstRuns = 3;
constexpr int kMoreRuns = 40;   // before a difference is believed
constexpr double kSlack = 4;

double Relative(const ir::Tolerance& tolerance, DType dtype) {
  switch (dtype) {
    case DType::kF32: return tolerance.f32;
    case DType::kF64: return tolerance.f64;
    case DType::kBF16: return tolerance.bf16;
    case DType::kF16: return tolerance.f16;
    default: return 0;
  }
}

void DisturbTensor(HostTensor& x, double relative, double absolute, Rng& rng) {
  for (int64_t i = 0; i < x.count(); ++i) {
    const double v = x.GetDouble(i);
    const auto sign = [&] { return rng.Uniform(0.5, 1) * (rng.Chance(0.5) ? 1.0 : -1.0); };
    // What vanishes beside the absolute part may vanish altogether: one more than some tiny number is one.
    const bool gone = std::fabs(v) <= absolute && rng.Chance(0.3);
    x.SetDouble(i, gone ? 0 : v + sign() * relative * v + sign() * absolute);
  }
}

// Where results depend on what nobody promises: whether the zeros of a convolution's padding meet the kernel's infinities,
// and in which order numbers are added or multiplied that overflow on the way.
bool AnythingGoes(const ir::OpDef& op, std::span<const HostTensor* const> operands) {
  if (op.scalar != nullptr) return false;
  const bool padded = &op == &ops::kOp_convolution || &op == &ops::kOp_conv_backward_input || &op == &ops::kOp_conv_backward_kernel;
  double product = 1, limit = 1e300;
  for (const HostTensor* x : operands) {
    if (x == nullptr || Relative(op.tolerance, x->dtype()) == 0) continue;
    double largest = 1;
    for (int64_t i = 0; i < x->count(); ++i) {
      const double v = std::fabs(x->GetDouble(i));
      if (std::isfinite(v)) largest = std::max(largest, v);
      if (padded && !std::isfinite(v)) return true;
    }
    product *= largest;
    if (x->dtype() != DType::kF64) limit = 1e35;
  }
  return product > limit;
}

// For the functions that operations carry: one on this thread, as references take a plain function to run them by.
thread_local Rng* g_rng = nullptr;
absl::StatusOr<std::vector<HostTensor>> RunDisturbed(const ir::Function& function, std::span<const HostTensor> arguments, Rng& rng);
absl::StatusOr<std::vector<HostTensor>> RunRegion(const ir::Function& function, std::span<const HostTensor> arguments) {
  return RunDisturbed(function, arguments, *g_rng);
}

absl::StatusOr<std::vector<HostTensor>> CallDisturbed(const ir::Node& node, std::vector<const HostTensor*> operands, Rng& rng) {
  if (node.regions().empty() || node.op().reference == nullptr) {
    return reference::InterpretCall(node.op(), operands, node.attrs(), node.results(), node.regions());
  }
  std::vector<HostTensor> results;
  for (const ir::Type& type : node.results()) results.emplace_back(type.dtype, type.dims);
  operands.resize(std::max(operands.size(), node.op().operands.size()), nullptr);
  g_rng = &rng;
  WEFT_RETURN_IF_ERROR(node.op().reference(ir::ReferenceCall{node.op(), operands, node.attrs(), results, node.regions(), &RunRegion}));
  return results;
}

absl::StatusOr<std::vector<HostTensor>> RunDisturbed(const ir::Function& function, std::span<const HostTensor> arguments, Rng& rng) {
  absl::flat_hash_map<const ir::Node*, std::vector<HostTensor>> values;
  for (size_t i = 0; i < arguments.size(); ++i) values[function.parameters()[i].node.get()] = {arguments[i]};
  for (const ir::Node* node : function.nodes()) {
    if (values.contains(node)) continue;
    const ir::Tolerance& tolerance = node->op().tolerance;
    std::vector<HostTensor> copies;
    copies.reserve(node->operands().size());
    std::vector<const HostTensor*> operands;
    for (const ir::Value& operand : node->operands()) {
      const HostTensor* x = operand ? &values.at(operand.node.get())[operand.result] : nullptr;
      // The order of a sum is free, and so is where a product of narrow types is rounded, but not that one for an f64 is one of f64.
      if (x != nullptr && node->op().scalar == nullptr && Relative(tolerance, x->dtype()) > 0) {
        const bool wide = node->results()[0].is_tensor() && node->type().dtype == DType::kF64;
        copies.push_back(*x);
        DisturbTensor(copies.back(), Relative(tolerance, wide ? DType::kF64 : x->dtype()), 0, rng);
        x = &copies.back();
      }
      operands.push_back(x);
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<HostTensor> results, CallDisturbed(*node, operands, rng));
    if (AnythingGoes(node->op(), operands)) {
      for (int64_t i = 0; i < results[0].count(); ++i) results[0].SetDouble(i, rng.Chance(0.5) ? NAN : rng.Uniform(-1, 1));
    }
    for (HostTensor& result : results) {
      const double relative = Relative(tolerance, result.dtype());
      if (relative > 0) DisturbTensor(result, relative, tolerance.f32 > 0 ? tolerance.absolute * relative / tolerance.f32 : 0, rng);
    }
    values[node] = std::move(results);
  }
  std::vector<HostTensor> results;
  for (const ir::Value& result : function.results()) results.push_back(values.at(result.node.get())[result.result]);
  return results;
}

}  // namespace

absl::StatusOr<Expectation> Expectation::Of(Ref<const ir::Function> function, std::vector<HostTensor> arguments) {
  Expectation expectation;
  WEFT_ASSIGN_OR_RETURN(expectation.want_, reference::Interpret(*function, arguments));
  passes::PipelineOptions options;
  options.claims = [](const ir::Node& node) { return node.op().reference != nullptr; };
  ir::Module module;
  module.functions.push_back(std::move(function));
  WEFT_ASSIGN_OR_RETURN(module, passes::ExpandComposites(module, options));
  expectation.function_ = module.functions[0];
  expectation.arguments_ = std::move(arguments);
  for (const HostTensor& want : expectation.want_) {
    const auto n = static_cast<size_t>(want.count());
    expectation.bounds_.push_back({std::vector<double>(n), std::vector<uint8_t>(n)});
  }
  WEFT_RETURN_IF_ERROR(expectation.Disturb(kFirstRuns));
  return expectation;
}

absl::Status Expectation::Disturb(int runs) {
  for (; runs > 0; --runs) {
    Rng rng(static_cast<uint64_t>(++runs_));
    WEFT_ASSIGN_OR_RETURN(const std::vector<HostTensor> other, RunDisturbed(*function_, arguments_, rng));
    for (size_t r = 0; r < want_.size(); ++r) {
      const HostTensor& want = want_[r];
      for (int64_t i = 0; i < want.count(); ++i) {
        if (!IsFloat(want.dtype())) {
          if (other[r].GetInt(i) != want.GetInt(i)) bounds_[r].loose[i] = 1;
          continue;
        }
        const double x = other[r].GetDouble(i), w = want.GetDouble(i);
        if (x == w || (std::isnan(x) && std::isnan(w))) continue;
        if (std::isfinite(x) && std::isfinite(w)) {
          bounds_[r].spread[i] = std::max(bounds_[r].spread[i], std::fabs(x - w));
        } else {
          bounds_[r].loose[i] = 1;
        }
      }
    }
  }
  return absl::OkStatus();
}

std::string Expectation::Check(std::span<const HostTensor> got) const {
  if (got.size() != want_.size()) return absl::StrCat(got.size(), " results, not ", want_.size());
  for (size_t r = 0; r < want_.size(); ++r) {
    const HostTensor &x = got[r], &want = want_[r];
    if (x.dtype() != want.dtype() || x.dims() != want.dims()) return absl::StrCat("result ", r, " is of another type");
    const double tiny = IsFloat(want.dtype()) ? EdgeFloat(want.dtype(), 10) : 0;  // half of the smallest number rounds either way
    for (int64_t i = 0; i < want.count(); ++i) {
      if (bounds_[r].loose[i] != 0) continue;
      if (!IsFloat(want.dtype())) {
        if (x.GetInt(i) != want.GetInt(i)) {
          return absl::StrCat("result ", r, " element ", i, " is ", x.GetInt(i), ", not ", want.GetInt(i));
        }
        continue;
      }
      const double v = x.GetDouble(i), w = want.GetDouble(i);
      if (v == w || (std::isnan(v) && std::isnan(w))) continue;
      const double allowed = kSlack * bounds_[r].spread[i] + tiny;
      if (!(std::fabs(v - w) <= allowed)) {
        return absl::StrCat("result ", r, " element ", i, " is ", v, ", not ", w, " (± ", allowed, ")");
      }
    }
  }
  return "";
}

absl::StatusOr<std::string> Expectation::Differences(std::span<const HostTensor> got) {
  std::string found = Check(got);
  if (found.empty() || runs_ > kFirstRuns) return found;
  WEFT_RETURN_IF_ERROR(Disturb(kMoreRuns));
  return Check(got);
}

}  // namespace weft::test
