// rnn, gru, lstm: recurrent layers over sequences, each layer and direction one scan over the steps.
#include <algorithm>

#include "src/ops/control/scan.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/parameter.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kInput = {"x", kF, "[batch, steps, features]"};
constexpr OperandDef kHidden = {"h", kF, "first hidden state, [layers * directions, batch, hidden]; absent: 0", true};
constexpr OperandDef kWeights = {
    "weights", kF,
    "of each layer, and in it of each direction: input weight [gates * hidden, features], hidden weight [gates * hidden, "
    "hidden] and, with bias, their biases [gates * hidden]",
    false, true};
constexpr OperandDef kOperands[] = {kInput, kHidden, kWeights};
constexpr OperandDef kLstmOperands[] = {
    kInput, kHidden, {"c", kF, "first cell state, of h's shape; absent: 0", true}, kWeights};
constexpr AttrDef kAttrs[] = {
    {"layers", AttrType::kInt, "how many layers, one upon the other", false, "1"},
    {"bidirectional", AttrType::kBool, "each layer goes over the steps in both directions", false, "false"},
    {"bias", AttrType::kBool, "weights come with biases", false, "true"}};
constexpr std::string_view kCells[] = {"tanh", "relu"};
constexpr AttrDef kRnnAttrs[] = {
    kAttrs[0], kAttrs[1], kAttrs[2], {"activation", AttrType::kEnum, "tanh or relu", false, "tanh", kCells}};
constexpr std::string_view kStates[] = {"y", "h"};
constexpr std::string_view kLstmStates[] = {"y", "h", "c"};

enum class Cell : uint8_t { kRnn, kGru, kLstm };
constexpr int64_t GatesOf(Cell cell) { return cell == Cell::kRnn ? 1 : cell == Cell::kGru ? 3 : 4; }

// The sizes of a call, and where its weights are.
struct Plan {
  int64_t batch, steps, features, hidden, layers, directions;
  size_t first_weight, per_direction;

  size_t weight(int64_t layer, int64_t direction) const {
    return first_weight + static_cast<size_t>(layer * directions + direction) * per_direction;
  }
  int64_t in(int64_t layer) const { return layer == 0 ? features : hidden * directions; }
  Dims state() const { return {layers * directions, batch, hidden}; }
};

absl::Status CheckShape(std::string_view name, const Type& type, const Dims& wanted) {
  if (type.dims == wanted) return absl::OkStatus();
  return UserError(name, " must have shape ", DimsToString(wanted), ", not ", DimsToString(type.dims));
}

template <Cell cell>
absl::StatusOr<Plan> PlanOf(std::span<const Type* const> operands, const Attrs& attrs) {
  const Type& x = *operands[0];
  if (x.rank() != 3) {
    return UserError("x has shape ", DimsToString(x.dims), "; [batch, steps, features] is needed");
  }
  Plan p{};
  p.batch = x.dims[0], p.steps = x.dims[1], p.features = x.dims[2];
  p.layers = Attr<kAttrs, "layers">(attrs);
  p.directions = Attr<kAttrs, "bidirectional">(attrs) ? 2 : 1;
  p.per_direction = Attr<kAttrs, "bias">(attrs) ? 4 : 2;
  p.first_weight = cell == Cell::kLstm ? 3 : 2;
  if (p.steps > INT32_MAX) return UserError("x has ", p.steps, " steps; there can be ", INT32_MAX);
  const size_t given = operands.size() - std::min(operands.size(), p.first_weight);
  if (p.layers < 1 || p.layers > 1024) return UserError("layers is ", p.layers, "; it must be 1 to 1024");
  const size_t wanted = static_cast<size_t>(p.layers * p.directions) * p.per_direction;
  if (given != wanted) {
    return UserError(given, " weights are given; ", p.layers, " layers of ", p.directions, " directions with ",
                     p.per_direction, " weights each have ", wanted);
  }
  const Type& first = *operands[p.first_weight + 1];
  if (first.rank() != 2) {
    return UserError("weights 1 has shape ", DimsToString(first.dims), "; [gates * hidden, hidden] is needed");
  }
  p.hidden = first.dims[1];
  const int64_t rows = GatesOf(cell) * p.hidden;
  for (int64_t layer = 0; layer < p.layers; ++layer) {
    for (int64_t direction = 0; direction < p.directions; ++direction) {
      const size_t at = p.weight(layer, direction);
      for (size_t i = 0; i < p.per_direction; ++i) {
        const Dims dims = i == 0 ? Dims{rows, p.in(layer)} : i == 1 ? Dims{rows, p.hidden} : Dims{rows};
        WEFT_RETURN_IF_ERROR(CheckShape(absl::StrCat("weights ", at + i - p.first_weight), *operands[at + i], dims));
      }
    }
  }
  for (size_t i = 1; i < p.first_weight; ++i) {
    if (operands[i] != nullptr) WEFT_RETURN_IF_ERROR(CheckShape(i == 1 ? "h" : "c", *operands[i], p.state()));
  }
  return p;
}

template <Cell cell>
absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Plan p, PlanOf<cell>(call.operands, call.attrs));
  const DType dtype = call.operands[0]->dtype;
  results->push_back(Type::Tensor(dtype, {p.batch, p.steps, p.directions * p.hidden}));
  for (size_t i = 1; i < call.op.results.size(); ++i) results->push_back(Type::Tensor(dtype, p.state()));
  return absl::OkStatus();
}

// Part `i` of the gates, which stand side by side in the last dimension.
Value Gate(Builder& b, const Value& gates, int64_t i, int64_t hidden) {
  if (!gates) return {};
  return Slice(b, gates, {0, i * hidden}, {gates.dims()[0], (i + 1) * hidden}, {1, 1});
}

// One step: from what the input gives for all gates, what the hidden state gives, and the states before to the states behind.
struct Step {
  Value h, c;
};
Step RnnStep(Builder& b, const Value& input, const Value& from_h, bool relu) {
  const Value sum = Add(b, input, from_h);
  return {relu ? Unary(b, kOp_relu, sum) : Tanh(b, sum), {}};
}
Step GruStep(Builder& b, const Value& input, const Value& from_h, const Value& h, int64_t hidden) {
  const auto both = [&](int64_t i) {
    return Sigmoid(b, Add(b, Gate(b, input, i, hidden), Gate(b, from_h, i, hidden)));
  };
  const Value reset = both(0), update = both(1);
  const Value fresh = Tanh(b, Add(b, Gate(b, input, 2, hidden), Mul(b, reset, Gate(b, from_h, 2, hidden))));
  return {Add(b, fresh, Mul(b, update, Sub(b, h, fresh))), {}};
}
Step LstmStep(Builder& b, const Value& input, const Value& from_h, const Value& c, int64_t hidden) {
  const Value gates = Add(b, input, from_h);
  const Value in = Sigmoid(b, Gate(b, gates, 0, hidden)), forget = Sigmoid(b, Gate(b, gates, 1, hidden));
  const Value fresh = Tanh(b, Gate(b, gates, 2, hidden)), out = Sigmoid(b, Gate(b, gates, 3, hidden));
  const Value cell = Add(b, Mul(b, forget, c), Mul(b, in, fresh));
  return {Mul(b, out, Tanh(b, cell)), cell};
}

// x w^T, and the bias where there is one.
Value Affine(Builder& b, const Value& x, const Value& weight, const Value& bias) {
  if (!x || !weight) return {};
  const auto last = static_cast<int64_t>(x.dims().size()) - 1;
  const Value y = Call(b, kOp_dot_general, {x, weight}, {Ints{}, Ints{}, Ints{last}, Ints{1}});
  return y && bias ? Add(b, y, BroadcastInDim(b, bias, y.dims(), {last})) : y;
}

// The states of one layer in one direction: `y` at each step, [steps, batch, hidden], and the last ones.
struct Ran {
  Value y, h, c;
};

// The input's part of the gates is one product for all steps; the body has the hidden state's alone.
template <Cell cell>
Ran RunLayer(Builder& b, const Plan& p, const Value& x, std::span<const Value> weights, const Step& before,
             bool reverse, bool relu) {
  const Value &h = before.h, &c = before.c;
  const bool biased = weights.size() == 4;
  const Value inputs = Affine(b, x, weights[0], biased ? weights[2] : Value());
  if (!inputs || !h || (cell == Cell::kLstm && !c)) return {};
  Values operands = {h};
  std::vector<Value> parameters = {Parameter(h.type())};
  if (cell == Cell::kLstm) {
    operands.push_back(c);
    parameters.push_back(Parameter(c.type()));
  }
  const auto carried = static_cast<int64_t>(parameters.size());
  operands.push_back(inputs);
  parameters.push_back(Parameter(Type::Tensor(inputs.dtype(), Dims(inputs.dims().begin() + 1, inputs.dims().end()))));
  for (size_t i = 1; i < weights.size(); i += 2) {
    operands.push_back(weights[i]);
    parameters.push_back(Parameter(weights[i].type()));
  }
  Builder body(b.location());
  const Value &own_h = parameters[0], &input = parameters[carried], &weight = parameters[carried + 1];
  const Value from_h = Affine(body, own_h, weight, biased ? parameters[carried + 2] : Value());
  const Step next = cell == Cell::kRnn   ? RnnStep(body, input, from_h, relu)
                    : cell == Cell::kGru ? GruStep(body, input, from_h, own_h, p.hidden)
                                         : LstmStep(body, input, from_h, parameters[1], p.hidden);
  if (!body.ok()) {
    b.Fail(body.status());
    return {};
  }
  std::vector<Value> out = {next.h};
  if (cell == Cell::kLstm) out.push_back(next.c);
  out.push_back(next.h);
  const Ref<const Function> step = Intern(Function::Create("step", std::move(parameters), std::move(out)));
  Attrs attrs;
  attrs.set(AttrPosition<kScanAttrs, "length">(), p.steps);
  attrs.set(AttrPosition<kScanAttrs, "carried">(), carried);
  attrs.set(AttrPosition<kScanAttrs, "scanned">(), int64_t{1});
  attrs.set(AttrPosition<kScanAttrs, "reverse">(), int64_t{reverse});
  const Values ran = CallAll(b, kOp_scan, std::move(operands), std::move(attrs), {&step, 1});
  if (!b.ok()) return {};
  return {ran[static_cast<size_t>(carried)], ran[0], cell == Cell::kLstm ? ran[1] : Value()};
}

Value StateOf(Builder& b, const Value& all, int64_t i, const Plan& p, DType dtype) {
  if (!all) return Full(b, dtype, {p.batch, p.hidden}, 0);
  return Reshape(b, Slice(b, all, {i, 0, 0}, {i + 1, p.batch, p.hidden}, {1, 1, 1}), {p.batch, p.hidden});
}

template <Cell cell>
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  std::vector<const Type*> types;
  for (const Value& x : call.operands) types.push_back(x ? &x.type() : nullptr);
  WEFT_ASSIGN_OR_RETURN(const Plan p, PlanOf<cell>(types, call.attrs));
  bool relu = false;
  if constexpr (cell == Cell::kRnn) relu = Attr<kRnnAttrs, "activation">(call.attrs) == 1;
  const DType dtype = call.operands[0].dtype();
  Value x = Transpose(b, call.operands[0], {1, 0, 2});  // a step is a row of the scan
  Values hs, cs;
  for (int64_t layer = 0; layer < p.layers && b.ok(); ++layer) {
    Values directions;
    for (int64_t direction = 0; direction < p.directions; ++direction) {
      const int64_t i = layer * p.directions + direction;
      const Step before = {StateOf(b, call.operands[1], i, p, dtype),
                           cell == Cell::kLstm ? StateOf(b, call.operands[2], i, p, dtype) : Value()};
      const auto weights = call.operands.subspan(p.weight(layer, direction), p.per_direction);
      const Ran ran = RunLayer<cell>(b, p, x, weights, before, direction == 1, relu);
      directions.push_back(ran.y);
      hs.push_back(ran.h);
      cs.push_back(ran.c);
    }
    x = p.directions == 1 ? directions[0] : Call(b, kOp_concatenate, directions, {int64_t{2}});
  }
  if (!b.ok()) return b.status();
  results[0] = Transpose(b, x, {1, 0, 2});
  results[1] = Call(b, kOp_stack, hs, {int64_t{0}});
  if (cell == Cell::kLstm) results[2] = Call(b, kOp_stack, cs, {int64_t{0}});
  return b.status();
}

constexpr Sample kRnns[] = {{"T[2,3,4] T[1,2,5] T[5,4] T[5,5] T[5] T[5]", -1, 1},
                            {"T[2,3,4] none T[5,4] T[5,5] T[5,5] T[5,5] layers=2 bias=false", -1, 1}};
constexpr Sample kGrus[] = {{"T[2,3,4] T[1,2,2] T[6,4] T[6,2] T[6] T[6]", -1, 1},
                            {"T[2,3,4] none T[6,4] T[6,2] T[6,4] T[6,2] bidirectional=true bias=false", -1, 1}};
constexpr Sample kLstms[] = {{"T[2,3,4] T[1,2,2] T[1,2,2] T[8,4] T[8,2] T[8] T[8]", -1, 1},
                             {"T[2,3,4] none none T[8,4] T[8,2] T[8,4] T[8,2] bidirectional=true bias=false", -1, 1}};
constexpr Tolerance kTolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 2e-5};

}  // namespace

constinit const OpDef kOp_rnn = Formula({
    .name = "weft.rnn",
    .c_name = "rnn",
    .doc =
        "A recurrent layer, or several: h' = tanh(W x + b + U h + c) at each step, the states of all steps and the last ones. "
        "PyTorch's RNN, batch first. Source: Elman (1990).",
    .example = "y = wf_rnn(s, x, NULL, WF_TENSORS(w, u, b, c));",
    .operands = kOperands,
    .attrs = kRnnAttrs,
    .results = kStates,
    .infer = Infer<Cell::kRnn>,
    .expand = Expand<Cell::kRnn>,
    .samples = kRnns,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_gru = Formula({
    .name = "weft.gru",
    .c_name = "gru",
    .doc =
        "A layer of gated recurrent units, or several; the gates are reset, update and new, and the reset comes behind the "
        "hidden product. PyTorch's GRU, batch first. Source: Cho et al. (2014).",
    .example = "y = wf_gru(s, x, NULL, WF_TENSORS(w, u, b, c));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kStates,
    .infer = Infer<Cell::kGru>,
    .expand = Expand<Cell::kGru>,
    .samples = kGrus,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_lstm = Formula({
    .name = "weft.lstm",
    .c_name = "lstm",
    .doc =
        "A layer of long short-term memory, or several; the gates are input, forget, cell and output. PyTorch's LSTM, batch "
        "first. Source: Hochreiter and Schmidhuber (1997).",
    .example = "y = wf_lstm(s, x, NULL, NULL, WF_TENSORS(w, u, b, c));",
    .operands = kLstmOperands,
    .attrs = kAttrs,
    .results = kLstmStates,
    .infer = Infer<Cell::kLstm>,
    .expand = Expand<Cell::kLstm>,
    .samples = kLstms,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
