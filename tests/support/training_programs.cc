// The two networks of the benchmarks.
#include "tests/support/training_programs.h"

#include <cmath>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "src/ops/sample.h"

namespace weft::test {
namespace {

// Sums of up to 9,216 products and what follows from them; the largest single operation allows 1e-5.
constexpr ir::Tolerance kStepTolerance = {.f32 = 2e-5, .absolute = 2e-6};

class Step {
 public:
  explicit Step(std::string name) {
    program_.name = name;
    program_.group = std::move(name);
    program_.tolerance = kStepTolerance;
    program_.module.argument_words = 1;
    rate_ = Input({DType::kF32, ir::Type::Kind::kTensor, {}, nullptr}, 0.05, 0.05);
    infos_.back() = {.role = ir::ParameterInfo::Role::kWords, .word = 0};
  }

  ir::Builder& b() { return b_; }

  ir::Value Input(ir::Type type, double low, double high, int64_t below = 0) {
    parameters_.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {type}), 0});
    infos_.emplace_back();
    const ops::SampleOperand operand{.type = std::move(type), .bounded = below > 0, .low = 0, .high = below};
    program_.inputs.push_back(ops::FillSample({"", low, high}, operand, parameters_.size()));
    return parameters_.back();
  }
  ir::Value F32(Dims dims, double low, double high) { return Input(ir::Type::Tensor(DType::kF32, std::move(dims)), low, high); }

  // A trained parameter; small enough that activations stay near one.
  ir::Value Weight(Dims dims, int64_t fan_in) {
    const double bound = std::sqrt(3.0 / static_cast<double>(fan_in));
    ir::Value weight = F32(std::move(dims), -bound, bound);
    weight.node->set_needs_gradient();
    weights_.push_back(weight);
    return weight;
  }

  // By name, so that attributes read like the C API's options.
  ir::Value Call(std::string_view op_name, ir::Values operands,
                 std::initializer_list<std::pair<std::string_view, ir::AttrValue>> given = {}) {
    const ir::OpDef* op = ops::FindOp(op_name);
    if (op == nullptr) return b_.Fail(InternalError("no operation ", op_name)), ir::Value();
    ir::Attrs attrs;
    for (const auto& [name, value] : given) {
      size_t at = 0;
      while (at < op->attrs.size() && op->attrs[at].name != name) ++at;
      if (at == op->attrs.size()) return b_.Fail(InternalError(op_name, " has no attribute ", name)), ir::Value();
      attrs.set(at, value);
    }
    return ops::Call(b_, *op, std::move(operands), std::move(attrs));
  }
  ir::Value Linear(ir::Value x, int64_t in, int64_t out) {
    ir::Value w = Weight({in, out}, in);
    return Call("linear", {std::move(x), std::move(w), Weight({out}, in)});
  }

  absl::StatusOr<OpProgram> Finish(const ir::Value& loss, double momentum) {
    WEFT_RETURN_IF_ERROR(b_.status());
    WEFT_ASSIGN_OR_RETURN(auto gradients, autodiff::Gradient(b_, loss, weights_));
    std::vector<ir::Value> results = {loss}, velocities;
    for (size_t i = 0; i < weights_.size(); ++i) {
      ir::Value step = gradients[i];
      if (momentum != 0) {
        ir::Value velocity = F32(weights_[i].dims(), -0.01, 0.01);
        step = ops::Add(b_, ops::Mul(b_, velocity, momentum), step);
        velocities.push_back(step);
      }
      results.push_back(ops::Sub(b_, weights_[i], ops::Mul(b_, step, rate_)));
    }
    results.insert(results.end(), velocities.begin(), velocities.end());
    WEFT_RETURN_IF_ERROR(b_.status());
    program_.forward_results = results.size();
    program_.module.functions = {
        ir::Function::Create("main", std::move(parameters_), std::move(results), std::move(infos_))};
    return std::move(program_);
  }

 private:
  ir::Builder b_;
  OpProgram program_;
  std::vector<ir::Value> parameters_, weights_;
  std::vector<ir::ParameterInfo> infos_;
  ir::Value rate_;
};

}  // namespace

absl::StatusOr<OpProgram> MlpStep(int64_t batch) {
  Step step("mlp_step");
  ir::Value x = step.F32({batch, 784}, 0, 1);
  ir::Value labels = step.Input(ir::Type::Tensor(DType::kI32, {batch}), 0, 0, 10);
  ir::Value h = step.Call("relu", {step.Linear(x, 784, 512)});
  h = step.Call("relu", {step.Linear(h, 512, 256)});
  return step.Finish(step.Call("cross_entropy", {step.Linear(h, 256, 10), labels}), 0);
}

absl::StatusOr<OpProgram> CnnStep(int64_t batch) {
  Step step("cnn_step");
  ir::Value x = step.F32({batch, 28, 28, 1}, 0, 1);
  ir::Value labels = step.Input(ir::Type::Tensor(DType::kI32, {batch}), 0, 0, 10);
  ir::Value h = step.Call("conv", {x, step.Weight({3, 3, 1, 32}, 9)});
  h = step.Call("relu", {step.Call("add", {h, step.Weight({32}, 9)})});
  h = step.Call("conv", {h, step.Weight({3, 3, 32, 64}, 288)});
  h = step.Call("relu", {step.Call("add", {h, step.Weight({64}, 288)})});
  h = step.Call("max_pool", {h}, {{"window", ir::Ints{2, 2}}});
  h = step.Call("reshape", {h}, {{"shape", ir::Ints{batch, 9216}}});
  h = step.Call("relu", {step.Linear(h, 9216, 128)});
  return step.Finish(step.Call("cross_entropy", {step.Linear(h, 128, 10), labels}), 0.9);
}

}  // namespace weft::test
