// Update rules, written as the operations a user could have recorded. PyTorch's forms, and optax's of Lion and LAMB.
// Sources: SGD, Sutskever et al. 2013; Adam and Adamax, Kingma and Ba 2015, the bias corrections folded into the step size; AdamW,
// Loshchilov and Hutter 2019; AMSGrad, Reddi et al. 2018; RMSprop, Hinton 2012 and Graves 2013; Adagrad, Duchi et al. 2011; Adadelta,
// Zeiler 2012; NAdam, Dozat 2016; RAdam, Liu et al. 2020; ASGD, Polyak and Juditsky 1992; Rprop, Riedmiller and Braun 1993; Lion, Chen
// et al. 2023; LAMB, You et al. 2020; Adafactor, Shazeer and Stern 2018; Muon, Jordan et al. 2024.
#include "src/lazy/optimizer_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ops/build.h"

namespace weft::lazy {
namespace {

using ir::Value;
using ops::Add;
using ops::Direction;
using ops::Div;
using ops::Mul;
using ops::Sub;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr OptimizerSetting Decay(double usual = 0) { return {"weight_decay", usual, 0, kInfinity}; }
constexpr OptimizerSetting kMaximize = {"maximize", 0, 0, 2, true};
constexpr OptimizerSetting Share(std::string_view name, double usual) { return {name, usual, 0, 1}; }
constexpr OptimizerSetting Epsilon(double usual) { return {"epsilon", usual, 0, kInfinity}; }

// The gradient that a rule goes by: the other way up where it maximizes, with the decay of weights added where there is one.
Value Slope(const RuleCall& c, const Value& decay) {
  Value g = c.group.on("maximize") ? ops::Neg(c.b, c.g) : c.g;
  return decay && c.group.on("weight_decay") ? Add(c.b, g, Mul(c.b, c.p, decay)) : g;
}
// share * old + rest * fresh.
Value Mixed(const RuleCall& c, const Value& old, const Value& share, const Value& fresh, const Value& rest) {
  return Add(c.b, Mul(c.b, old, share), Mul(c.b, fresh, rest));
}
Value MixedSquares(const RuleCall& c, const Value& old, const Value& share, const Value& g, const Value& rest) {
  return Add(c.b, Mul(c.b, old, share), Mul(c.b, Mul(c.b, g, g), rest));
}
Value Less(const RuleCall& c, const Value& p, const Value& step, const Value& rate) {
  return Sub(c.b, p, Mul(c.b, step, rate));
}
// The 2-norm of all elements.
Value Length(ir::Builder& b, const Value& x) {
  if (!x) return {};
  return ops::Sqrt(b, ops::Reduce(b, Mul(b, x, x), ops::Reducer::kSum, ops::Axes(x.dims().size())));
}
double RootOfCount(const Value& x) { return x ? std::sqrt(std::max(1.0, static_cast<double>(x.type().count()))) : 1; }

// --- SGD

constexpr OptimizerSetting kSgd[] = {{"momentum", 0, 0, kInfinity},
                                     {"dampening", 0, -kInfinity, kInfinity},
                                     Decay(),
                                     {"nesterov", 0, 0, 2, true},
                                     kMaximize};
constexpr std::string_view kMomentum[] = {"momentum"};

absl::Status CheckSgd(const OptimizerGroup& group) {
  if (!group.on("nesterov")) return absl::OkStatus();
  if (!group.on("momentum")) return UserError("nesterov needs a momentum above 0");
  return group.on("dampening") ? UserError("nesterov needs a dampening of 0") : absl::OkStatus();
}
// The first step has nothing to dampen.
void SgdScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  out->insert(out->end(),
              {rate, group.at("momentum"), group.at("weight_decay"), t > 1 ? 1 - group.at("dampening") : 1});
}
Value Sgd(const RuleCall& c) {
  enum { kRate, kAmount, kShrink, kFresh };
  const auto& s = c.scalars;
  const Value g = Slope(c, s[kShrink]);
  Value direction = g;
  if (c.group.on("momentum")) {
    const Value fresh = c.group.on("dampening") ? Mul(c.b, g, s[kFresh]) : g;
    const Value kept = Add(c.b, Mul(c.b, c.was("momentum"), s[kAmount]), fresh);
    c.Keep("momentum", kept);
    direction = c.group.on("nesterov") ? Add(c.b, g, Mul(c.b, kept, s[kAmount])) : kept;
  }
  return Less(c, c.p, direction, s[kRate]);
}

// --- Adam and its kin. Their first numbers are the same.

constexpr OptimizerSetting kAdam[] = {
    Share("beta1", 0.9), Share("beta2", 0.999), Epsilon(1e-8), Decay(), {"amsgrad", 0, 0, 2, true}, kMaximize};
constexpr OptimizerSetting kAdamW[] = {Share("beta1", 0.9), Share("beta2", 0.999),      Epsilon(1e-8),
                                       Decay(0.01),         {"amsgrad", 0, 0, 2, true}, kMaximize};
constexpr std::string_view kMoments[] = {"m", "v"};
constexpr std::string_view kLargest[] = {"v_max"};
constexpr std::string_view kAmsgrad[] = {"amsgrad"};

// kStep = lr / (1 - beta1^t), kScale = 1 / sqrt(1 - beta2^t); kRest1 = 1 - beta1, kRest2 = 1 - beta2; kShrink = 1 - lr * decay where that
// is decoupled, else decay.
enum Adams { kStep, kScale, kBeta1, kRest1, kBeta2, kRest2, kEpsilon, kShrink, kOther1, kOther2 };

void AdamNumbers(const OptimizerGroup& group, double rate, double t, bool decoupled, OptimizerScalars* out) {
  const double beta1 = group.at("beta1"), beta2 = group.at("beta2"), decay = group.at("weight_decay");
  out->insert(out->end(), {rate / (1 - std::pow(beta1, t)), 1 / std::sqrt(1 - std::pow(beta2, t)), beta1, 1 - beta1,
                           beta2, 1 - beta2, group.at("epsilon"), decoupled ? 1 - rate * decay : decay});
}
template <bool decoupled>
void AdamScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  AdamNumbers(group, rate, t, decoupled, out);
}
struct Moments {
  Value m, v;
};
Moments KeepMoments(const RuleCall& c, const Value& g) {
  const auto& s = c.scalars;
  const Moments now = {Mixed(c, c.was("m"), s[kBeta1], g, s[kRest1]),
                       MixedSquares(c, c.was("v"), s[kBeta2], g, s[kRest2])};
  c.Keep("m", now.m);
  c.Keep("v", now.v);
  return now;
}
// sqrt(v) * kScale + epsilon.
Value Spread(const RuleCall& c, const Value& v) {
  return Add(c.b, Mul(c.b, ops::Sqrt(c.b, v), c.scalars[kScale]), c.scalars[kEpsilon]);
}
template <bool decoupled>
Value Adam(const RuleCall& c) {
  const auto& s = c.scalars;
  auto [m, v] = KeepMoments(c, Slope(c, decoupled ? Value() : s[kShrink]));
  if (c.group.on("amsgrad")) {
    v = ops::Maximum(c.b, c.was("v_max"), v);
    c.Keep("v_max", v);
  }
  const Value p = decoupled && c.group.on("weight_decay") ? Mul(c.b, c.p, s[kShrink]) : c.p;
  return Less(c, p, Div(c.b, m, Spread(c, v)), s[kStep]);
}

constexpr OptimizerSetting kAdamax[] = {Share("beta1", 0.9), Share("beta2", 0.999), Epsilon(1e-8), Decay(), kMaximize};
constexpr std::string_view kNorms[] = {"m", "norm"};
Value Adamax(const RuleCall& c) {
  const auto& s = c.scalars;
  const Value g = Slope(c, s[kShrink]), m = Mixed(c, c.was("m"), s[kBeta1], g, s[kRest1]);
  const Value norm = ops::Maximum(c.b, Mul(c.b, c.was("norm"), s[kBeta2]), Add(c.b, ops::Abs(c.b, g), s[kEpsilon]));
  c.Keep("m", m);
  c.Keep("norm", norm);
  return Less(c, c.p, Div(c.b, m, norm), s[kStep]);
}

constexpr OptimizerSetting kNadam[] = {Share("beta1", 0.9),
                                       Share("beta2", 0.999),
                                       Epsilon(1e-8),
                                       Decay(),
                                       {"momentum_decay", 4e-3, 0, kInfinity},
                                       {"decoupled", 0, 0, 2, true},
                                       kMaximize};
// The momentum of step t, and the product of those up to it. The product of factors below 1 is nothing beside 1 long before many
// steps have been made: 437 with the usual settings.
double NadamMomentum(const OptimizerGroup& group, double t) {
  return group.at("beta1") * (1 - 0.5 * std::pow(0.96, t * group.at("momentum_decay")));
}
double NadamProduct(const OptimizerGroup& group, double t) {
  double product = 1;
  for (double i = 1; i <= t && product > 1e-20; ++i) product *= NadamMomentum(group, i);
  return product;
}
// kOther1: the gradient's factor; kStep: the moment's.
void NadamScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  const size_t first = out->size();
  AdamNumbers(group, rate, t, group.on("decoupled"), out);
  const double now = NadamMomentum(group, t), next = NadamMomentum(group, t + 1), product = NadamProduct(group, t);
  (*out)[first + kStep] = rate * next / (1 - product * next);
  out->push_back(rate * (1 - now) / (1 - product));
}
Value Nadam(const RuleCall& c) {
  const auto& s = c.scalars;
  const bool decoupled = c.group.on("decoupled");
  const Value g = Slope(c, decoupled ? Value() : s[kShrink]);
  const auto [m, v] = KeepMoments(c, g);
  const Value p = decoupled && c.group.on("weight_decay") ? Mul(c.b, c.p, s[kShrink]) : c.p, spread = Spread(c, v);
  return Less(c, Less(c, p, Div(c.b, g, spread), s[kOther1]), Div(c.b, m, spread), s[kStep]);
}

constexpr OptimizerSetting kRadam[] = {
    Share("beta1", 0.9), Share("beta2", 0.999), Epsilon(1e-8), Decay(), {"decoupled", 0, 0, 2, true}, kMaximize};
// Either of two factors is 0: kOther1 that of the moment alone, in the first steps, kOther2 that of the moment over the spread.
void RadamScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  const size_t first = out->size();
  AdamNumbers(group, rate, t, group.on("decoupled"), out);
  const double beta2 = group.at("beta2"), most = 2 / (1 - beta2) - 1, power = std::pow(beta2, t);
  const double length = most - 2 * t * power / (1 - power), step = (*out)[first + kStep];
  const bool certain = length > 5;
  const double rectified =
      std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) * std::sqrt(1 - power);
  out->insert(out->end(), {certain ? 0 : step, certain ? step * rectified : 0});
}
Value Radam(const RuleCall& c) {
  const auto& s = c.scalars;
  const bool decoupled = c.group.on("decoupled");
  const auto [m, v] = KeepMoments(c, Slope(c, decoupled ? Value() : s[kShrink]));
  const Value p = decoupled && c.group.on("weight_decay") ? Mul(c.b, c.p, s[kShrink]) : c.p;
  const Value spread = Add(c.b, ops::Sqrt(c.b, v), s[kEpsilon]);
  return Sub(c.b, p, Mul(c.b, m, Add(c.b, Div(c.b, s[kOther2], spread), s[kOther1])));
}

constexpr OptimizerSetting kLamb[] = {Share("beta1", 0.9), Share("beta2", 0.999), Epsilon(1e-6), Decay(), kMaximize};
// kOther1: the rate.
void LambScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  AdamNumbers(group, 1, t, false, out);
  out->push_back(rate);
}
Value Lamb(const RuleCall& c) {
  ir::Builder& b = c.b;
  const auto& s = c.scalars;
  const auto [m, v] = KeepMoments(c, Slope(c, {}));
  Value step = Mul(b, Div(b, m, Spread(c, v)), s[kStep]);
  if (c.group.on("weight_decay")) step = Add(b, step, Mul(b, c.p, s[kShrink]));
  const Value p_length = Length(b, c.p), length = Length(b, step);
  const Value none =
      ops::Call(b, ops::kOp_bitwise_or,
                {ops::Compare(b, Direction::kEq, p_length, 0), ops::Compare(b, Direction::kEq, length, 0)});
  const Value trust = none ? ops::Select(b, none, ops::FullLike(b, length, 1), Div(b, p_length, length)) : Value();
  return Less(c, c.p, step, Mul(b, trust, s[kOther1]));
}

// --- Squares of gradients

constexpr OptimizerSetting kRmsprop[] = {
    Share("alpha", 0.99),        Epsilon(1e-8), Decay(), {"momentum", 0, 0, kInfinity},
    {"centered", 0, 0, 2, true}, kMaximize};
constexpr std::string_view kSquares[] = {"square"};
constexpr std::string_view kRmspropMore[] = {"momentum", "mean"};
constexpr std::string_view kRmspropAsked[] = {"momentum", "centered"};
void RmspropScalars(const OptimizerGroup& group, double rate, double, OptimizerScalars* out) {
  const double alpha = group.at("alpha");
  out->insert(out->end(),
              {rate, alpha, 1 - alpha, group.at("epsilon"), group.at("weight_decay"), group.at("momentum")});
}
Value Rmsprop(const RuleCall& c) {
  enum { kRate, kAlpha, kRest, kTiny, kWeight, kAmount };
  ir::Builder& b = c.b;
  const auto& s = c.scalars;
  const Value g = Slope(c, s[kWeight]);
  Value square = MixedSquares(c, c.was("square"), s[kAlpha], g, s[kRest]);
  c.Keep("square", square);
  if (c.group.on("centered")) {
    const Value mean = Mixed(c, c.was("mean"), s[kAlpha], g, s[kRest]);
    c.Keep("mean", mean);
    square = Sub(b, square, Mul(b, mean, mean));
  }
  Value step = Div(b, g, Add(b, ops::Sqrt(b, square), s[kTiny]));
  if (c.group.on("momentum")) {
    step = Add(b, Mul(b, c.was("momentum"), s[kAmount]), step);
    c.Keep("momentum", step);
  }
  return Less(c, c.p, step, s[kRate]);
}

constexpr OptimizerSetting kAdagrad[] = {
    {"lr_decay", 0, 0, kInfinity}, Epsilon(1e-10), Decay(), {"initial", 0, 0, kInfinity}, kMaximize};
constexpr std::string_view kSums[] = {"sum"};
void AdagradScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  out->insert(out->end(), {rate / (1 + (t - 1) * group.at("lr_decay")), group.at("epsilon"), group.at("weight_decay"),
                           group.at("initial")});
}
Value Adagrad(const RuleCall& c) {
  enum { kRate, kTiny, kWeight, kInitial };
  const auto& s = c.scalars;
  const Value g = Slope(c, s[kWeight]), sum = Add(c.b, c.was("sum"), Mul(c.b, g, g));
  c.Keep("sum", sum);
  const Value all = c.group.on("initial") ? Add(c.b, sum, s[kInitial]) : sum;
  return Less(c, c.p, Div(c.b, g, Add(c.b, ops::Sqrt(c.b, all), s[kTiny])), s[kRate]);
}

constexpr OptimizerSetting kAdadelta[] = {Share("rho", 0.9), Epsilon(1e-6), Decay(), kMaximize};
constexpr std::string_view kDeltas[] = {"square", "delta"};
void AdadeltaScalars(const OptimizerGroup& group, double rate, double, OptimizerScalars* out) {
  const double rho = group.at("rho");
  out->insert(out->end(), {rate, rho, 1 - rho, group.at("epsilon"), group.at("weight_decay")});
}
Value Adadelta(const RuleCall& c) {
  enum { kRate, kRho, kRest, kTiny, kWeight };
  ir::Builder& b = c.b;
  const auto& s = c.scalars;
  const Value g = Slope(c, s[kWeight]), square = MixedSquares(c, c.was("square"), s[kRho], g, s[kRest]);
  const auto root = [&](const Value& x) { return ops::Sqrt(b, Add(b, x, s[kTiny])); };
  const Value step = Mul(b, Div(b, root(c.was("delta")), root(square)), g);
  c.Keep("square", square);
  c.Keep("delta", MixedSquares(c, c.was("delta"), s[kRho], step, s[kRest]));
  return Less(c, c.p, step, s[kRate]);
}

constexpr OptimizerSetting kAdafactor[] = {{"beta2_decay", -0.8, -kInfinity, 0},
                                           {"epsilon1", 0, 0, kInfinity},
                                           {"epsilon2", 1e-3, 0, kInfinity},
                                           {"clip", 1, 0, kInfinity},
                                           Decay(),
                                           kMaximize};
constexpr std::string_view kFactors[] = {"row", "column"};
absl::Status CheckAdafactor(const OptimizerGroup& group) {
  return group.on("clip") ? absl::OkStatus() : UserError("clip is 0; it must be above 0");
}
// Matrices keep the mean squares of rows and of columns; what has one dimension or none keeps all squares as "row".
Dims FactorShape(std::string_view slot, const Dims& parameter) {
  Dims dims = parameter;
  if (dims.size() < 2) return slot == "row" ? dims : Dims();
  dims[dims.size() - (slot == "row" ? 1 : 2)] = 1;
  return dims;
}
void AdafactorScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  const double fresh = std::pow(t, group.at("beta2_decay"));
  out->insert(out->end(), {std::min(rate, 1 / std::sqrt(t)), 1 - fresh, fresh, group.at("epsilon1"),
                           group.at("epsilon2"), group.at("clip"), 1 - rate * group.at("weight_decay")});
}
Value MeanAlong(ir::Builder& b, const Value& x, int64_t axis) {
  if (!x) return {};
  const double size = std::max(1.0, static_cast<double>(x.dims()[axis]));
  return Mul(b, ops::ReduceKeep(b, x, ops::Reducer::kSum, {axis}), 1 / size);
}
Value Adafactor(const RuleCall& c) {
  enum { kRate, kOld, kFresh, kTiny1, kTiny2, kClip, kWeight };
  ir::Builder& b = c.b;
  const auto& s = c.scalars;
  const Value g = Slope(c, {}), squares = Mul(b, g, g);
  if (!squares) return {};
  const double own =
      g.dtype() == DType::kF64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const Value tiny = c.group.on("epsilon1") ? s[kTiny1] : ops::Scalar(b, g.dtype(), own);
  const auto rank = static_cast<int64_t>(g.dims().size());
  const auto keep = [&](std::string_view slot, const Value& fresh) {
    const Value now = Mixed(c, c.was(slot), s[kOld], fresh, s[kFresh]);
    c.Keep(slot, now);
    return now;
  };
  Value estimate;
  if (rank > 1) {
    const Value row = keep("row", MeanAlong(b, squares, rank - 1)),
                column = keep("column", MeanAlong(b, squares, rank - 2));
    estimate = Div(b, Mul(b, row, column), ops::Maximum(b, MeanAlong(b, row, rank - 2), tiny));
  } else {
    estimate = keep("row", squares);
  }
  const Value step = Mul(b, ops::Rsqrt(b, ops::Maximum(b, estimate, Mul(b, tiny, tiny))), g);
  const Value size = Mul(b, Length(b, c.p), 1 / RootOfCount(c.p));
  const Value factor = Mul(b, ops::Maximum(b, size, s[kTiny2]), s[kRate]);
  const Value long_ = Div(b, Mul(b, Length(b, step), 1 / RootOfCount(step)), s[kClip]);
  if (!long_) return {};
  const Value p = c.group.on("weight_decay") ? Mul(b, c.p, s[kWeight]) : c.p;
  return Less(c, p, step, Div(b, factor, ops::Maximum(b, long_, ops::FullLike(b, long_, 1))));
}

// --- Signs

constexpr OptimizerSetting kLion[] = {Share("beta1", 0.9), Share("beta2", 0.99), Decay(), kMaximize};
constexpr std::string_view kOneMoment[] = {"m"};
void LionScalars(const OptimizerGroup& group, double rate, double, OptimizerScalars* out) {
  const double beta1 = group.at("beta1"), beta2 = group.at("beta2");
  out->insert(out->end(), {rate, beta1, 1 - beta1, beta2, 1 - beta2, group.at("weight_decay")});
}
Value Lion(const RuleCall& c) {
  enum { kRate, kOwn1, kFresh1, kOwn2, kFresh2, kWeight };
  const auto& s = c.scalars;
  const Value g = Slope(c, {});
  Value step = ops::Unary(c.b, ops::kOp_sign, Mixed(c, c.was("m"), s[kOwn1], g, s[kFresh1]));
  c.Keep("m", Mixed(c, c.was("m"), s[kOwn2], g, s[kFresh2]));
  if (c.group.on("weight_decay")) step = Add(c.b, step, Mul(c.b, c.p, s[kWeight]));
  return Less(c, c.p, step, s[kRate]);
}

constexpr OptimizerSetting kRprop[] = {Share("eta_minus", 0.5),
                                       {"eta_plus", 1.2, 1, kInfinity},
                                       {"step_min", 1e-6, 0, kInfinity},
                                       {"step_max", 50, 0, kInfinity},
                                       kMaximize};
constexpr std::string_view kSteps[] = {"gradient", "size"};
absl::Status CheckRprop(const OptimizerGroup& group) {
  if (!group.on("step_min")) return UserError("step_min is 0; it must be above 0");
  if (group.at("step_min") <= group.at("step_max")) return absl::OkStatus();
  return UserError("step_min is ", group.at("step_min"), " and step_max ", group.at("step_max"),
                   "; the first must not exceed the second");
}
void RpropScalars(const OptimizerGroup& group, double rate, double, OptimizerScalars* out) {
  out->insert(out->end(),
              {rate, group.at("eta_minus"), group.at("eta_plus"), group.at("step_min"), group.at("step_max")});
}
// A size of 0 is that of a parameter without a step so far: the rate.
Value Rprop(const RuleCall& c) {
  enum { kRate, kMinus, kPlus, kLeast, kMost };
  ir::Builder& b = c.b;
  const auto& s = c.scalars;
  const Value g = c.group.on("maximize") ? ops::Neg(b, c.g) : c.g, both = Mul(b, g, c.was("gradient"));
  if (!both) return {};
  const auto like = [&](const Value& number) { return ops::BroadcastTo(b, number, both.dims()); };
  const Value same = ops::Compare(b, Direction::kGt, both, 0), turned = ops::Compare(b, Direction::kLt, both, 0);
  const Value began = ops::Compare(b, Direction::kEq, c.was("size"), 0);
  const Value factor =
      ops::Select(b, same, like(s[kPlus]), ops::Select(b, turned, like(s[kMinus]), ops::FullLike(b, both, 1)));
  const Value old = ops::Select(b, began, like(s[kRate]), c.was("size"));
  const Value size = ops::Minimum(b, ops::Maximum(b, Mul(b, old, factor), s[kLeast]), s[kMost]);
  const Value counts = ops::Select(b, turned, ops::FullLike(b, both, 0), g);
  c.Keep("gradient", counts);
  c.Keep("size", size);
  return Sub(b, c.p, Mul(b, ops::Unary(b, ops::kOp_sign, counts), size));
}

// --- Averages and whole matrices

constexpr OptimizerSetting kAsgd[] = {
    {"lambd", 1e-4, 0, kInfinity}, {"alpha", 0.75, 0, kInfinity}, {"t0", 1e6, 0, kInfinity}, Decay(), kMaximize};
constexpr std::string_view kAverage[] = {"average"};
void AsgdScalars(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out) {
  const double lambd = group.at("lambd"), eta = rate / std::pow(1 + lambd * rate * (t - 1), group.at("alpha"));
  const double share = 1 / std::max(1.0, t - 1 - group.at("t0"));
  out->insert(out->end(), {eta, 1 - lambd * eta, share, 1 - share, group.at("weight_decay")});
}
Value Asgd(const RuleCall& c) {
  enum { kEta, kLess, kFresh, kOld, kWeight };
  const auto& s = c.scalars;
  const Value p = Less(c, Mul(c.b, c.p, s[kLess]), Slope(c, s[kWeight]), s[kEta]);
  c.Keep("average", Mixed(c, c.was("average"), s[kOld], p, s[kFresh]));
  return p;
}

constexpr OptimizerSetting kMuon[] = {
    Share("momentum", 0.95), {"nesterov", 1, 0, 2, true}, Epsilon(1e-7), Decay(0.1), kMaximize};
void MuonScalars(const OptimizerGroup& group, double rate, double, OptimizerScalars* out) {
  const double momentum = group.at("momentum");
  out->insert(out->end(), {rate, momentum, 1 - momentum, group.at("epsilon"), 1 - rate * group.at("weight_decay")});
}
// The nearest matrix of orthogonal rows or columns, by five steps of Newton and Schulz on singular values of at most 1.
Value Orthogonal(ir::Builder& b, Value x, const Value& tiny) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  if (!x) return {};
  const bool tall = x.dims()[0] > x.dims()[1];
  if (tall) x = ops::Transpose(b, x, {1, 0});
  x = Div(b, x, ops::Maximum(b, Length(b, x), tiny));
  for (int i = 0; i < 5 && x; ++i) {
    const Value square = ops::BatchMatmul(b, x, x, false, true);
    const Value mixed = Add(b, Mul(b, square, kB), Mul(b, ops::BatchMatmul(b, square, square, false, false), kC));
    x = Add(b, Mul(b, x, kA), ops::BatchMatmul(b, mixed, x, false, false));
  }
  return tall && x ? ops::Transpose(b, x, {1, 0}) : x;
}
Value Muon(const RuleCall& c) {
  enum { kRate, kAmount, kFresh, kTiny, kWeight };
  ir::Builder& b = c.b;
  const auto& s = c.scalars;
  const Value g = Slope(c, {}), m = Mixed(c, c.was("m"), s[kAmount], g, s[kFresh]);
  c.Keep("m", m);
  const Value step = Orthogonal(b, c.group.on("nesterov") ? Mixed(c, m, s[kAmount], g, s[kFresh]) : m, s[kTiny]);
  if (!step) return {};
  const double ratio = static_cast<double>(step.dims()[0]) / std::max(1.0, static_cast<double>(step.dims()[1]));
  const Value p = c.group.on("weight_decay") ? Mul(b, c.p, s[kWeight]) : c.p;
  return Less(c, p, Mul(b, step, std::sqrt(std::max(1.0, ratio))), s[kRate]);
}

constexpr OptimizerRule kRules[] = {
    {"sgd", kSgd, {}, kMomentum, kMomentum, SgdScalars, Sgd, CheckSgd},
    {"adam", kAdam, kMoments, kLargest, kAmsgrad, AdamScalars<false>, Adam<false>},
    {"adamw", kAdamW, kMoments, kLargest, kAmsgrad, AdamScalars<true>, Adam<true>},
    {"adamax", kAdamax, kNorms, {}, {}, AdamScalars<false>, Adamax},
    {"nadam", kNadam, kMoments, {}, {}, NadamScalars, Nadam},
    {"radam", kRadam, kMoments, {}, {}, RadamScalars, Radam},
    {"rmsprop", kRmsprop, kSquares, kRmspropMore, kRmspropAsked, RmspropScalars, Rmsprop},
    {"adagrad", kAdagrad, kSums, {}, {}, AdagradScalars, Adagrad},
    {"adadelta", kAdadelta, kDeltas, {}, {}, AdadeltaScalars, Adadelta},
    {"lion", kLion, kOneMoment, {}, {}, LionScalars, Lion},
    {"rprop", kRprop, kSteps, {}, {}, RpropScalars, Rprop, CheckRprop},
    {"asgd", kAsgd, kAverage, {}, {}, AsgdScalars, Asgd},
    {"lamb", kLamb, kMoments, {}, {}, LambScalars, Lamb, nullptr, nullptr, false, -1, true},
    {"adafactor",
     kAdafactor,
     kFactors,
     {},
     {},
     AdafactorScalars,
     Adafactor,
     CheckAdafactor,
     FactorShape,
     false,
     -1,
     true},
    {"muon", kMuon, kOneMoment, {}, {}, MuonScalars, Muon, nullptr, nullptr, false, 2, true},
};

}  // namespace

double OptimizerGroup::at(std::string_view setting) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (rule->settings[i].name == setting) return values[i];
  }
  return 0;  // the rule has no such setting
}

size_t RuleCall::Number(std::string_view slot) const {
  return static_cast<size_t>(std::ranges::find(slots, slot) - slots.begin());
}

std::span<const OptimizerRule> OptimizerRules() { return kRules; }

const OptimizerRule* FindOptimizerRule(std::string_view name) {
  const auto found = std::ranges::find(kRules, name, &OptimizerRule::name);
  return found == std::end(kRules) ? nullptr : found;
}

OptimizerGroup UsualGroup(const OptimizerRule& rule) {
  OptimizerGroup group{&rule, {}};
  for (const OptimizerSetting& setting : rule.settings) group.values.push_back(setting.usual);
  return group;
}

absl::Status CheckGroup(const OptimizerGroup& group) {
  for (size_t i = 0; i < group.values.size(); ++i) {
    const auto& [name, usual, low, high, truth] = group.rule->settings[i];
    const double value = group.values[i];
    if (truth && value != 0 && value != 1) return UserError(name, " is ", value, "; it must be 0 or 1");
    if (std::isfinite(value) && value >= low && value < high) continue;
    if (std::isinf(low)) return UserError(name, " is ", value, "; it must be finite and below ", high);
    return UserError(name, " is ", value, "; it must be in [", low, ", ", high, ")");
  }
  return group.rule->check != nullptr ? group.rule->check(group) : absl::OkStatus();
}

std::vector<std::string_view> SlotsOf(std::span<const OptimizerGroup> groups) {
  const OptimizerRule& rule = *groups[0].rule;
  std::vector<std::string_view> slots(rule.slots.begin(), rule.slots.end());
  for (size_t i = 0; i < rule.more_slots.size(); ++i) {
    if (std::ranges::any_of(groups, [&](const OptimizerGroup& group) { return group.on(rule.asked_by[i]); })) {
      slots.push_back(rule.more_slots[i]);
    }
  }
  return slots;
}

size_t ScalarCount(const OptimizerGroup& group) {
  OptimizerScalars scalars;
  group.rule->scalars(group, 0, 1, &scalars);
  return scalars.size();
}

}  // namespace weft::lazy
