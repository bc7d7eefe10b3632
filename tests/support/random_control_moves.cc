// Moves with functions of their own: loops, branches and calls, whose bodies are random programs again, with captures.
#include <algorithm>

#include "tests/support/random_moves.h"

namespace weft::test {
namespace {

constexpr int64_t kMostTrips = 4;

// A body as it is made: a program whose first leaves are its inputs, at their values in the first run; further ones are captures.
class Body {
 public:
  explicit Body(ProgramMaker& outer) : outer_(outer), inner_(outer.rng.Next(), Options(outer)) {
    inner_.main = outer.main;
    inner_.sizes = outer.sizes;
    inner_.wild = outer.wild;
    inner_.hollow = outer.hollow;
    inner_.control = true;
    inner_.depth = outer.depth + 1;
  }

  ProgramMaker& inner() { return inner_; }
  int Input(HostTensor value) { return inner_.LeafOf(std::move(value)); }
  int Input(int outer) { return Input(outer_.host(outer)); }
  // Uses values of the program around it; after the inputs.
  void Capture() {
    for (int64_t n = outer_.rng.Below(3); n > 0; --n) {
      const int x = AnyValue(outer_);
      if (x < 0 || outer_.type(x).count() > inner_.max_elements()) continue;
      Input(x);
      captured_.push_back(x);
    }
  }
  void Fill() {
    const std::vector<const Move*> moves = WeightedMoves(inner_);
    for (int64_t n = inner_.rng.Between(1, 5); n > 0; --n) inner_.rng.Pick(moves)->make(inner_);
  }
  // A value of the type: a computed one if there is one.
  int OfType(const ir::Type& type) {
    for (int tries = 0; tries < 4; ++tries) {
      const int x = inner_.Find([&](const ir::Type& t) { return t == type; });
      if (x >= 0 && (inner_.is_computed(x) || inner_.rng.Chance(0.2))) return x;
    }
    const int x = Like(inner_, type.dtype, type.dims);
    if (x < 0 || inner_.is_computed(x) || IsBool(type.dtype)) return x;
    const int larger = inner_.Call(ops::kOp_maximum, {x, Like(inner_, type.dtype, type.dims)});
    return larger >= 0 ? larger : x;
  }
  // The leaves that came by themselves become arguments of the program around it; `operands` gets all captures.
  RandomProgram Finish(size_t inputs, std::vector<int> outputs, std::vector<int>* operands) {
    operands->insert(operands->end(), captured_.begin(), captured_.end());
    const std::vector<int>& leaves = inner_.leaves();
    for (size_t i = inputs + captured_.size(); i < leaves.size(); ++i) operands->push_back(outer_.LeafOf(inner_.host(leaves[i])));
    return inner_.Finish(std::move(outputs));
  }

 private:
  static RandomOptions Options(const ProgramMaker& outer) {
    RandomOptions options = outer.options;
    options.random = false;
    return options;
  }

  ProgramMaker& outer_;
  ProgramMaker inner_;
  std::vector<int> captured_;
};

HostTensor Count(int64_t value) {
  HostTensor count(DType::kI32, {});
  count.SetInt(0, value);
  return count;
}

// Values that a loop carries or a function takes: some that are there, small enough to run often.
std::vector<int> SomeValues(ProgramMaker& m, int64_t least) {
  std::vector<int> values;
  for (int64_t n = m.rng.Between(least, 4); n > 0; --n) {
    const int x = AnyValue(m, 0, 3);
    if (x >= 0 && m.type(x).count() <= 600) values.push_back(x);
  }
  if (values.empty() && least > 0) values.push_back(m.Leaf(m.main, {2}));
  return values;
}

// Counts up to a literal, or stops before if a carried value says so.
void While(ProgramMaker& m) {
  if (m.options.smooth) return;
  std::vector<int> operands = {m.LeafOf(Count(m.rng.Between(-1, 2)))};
  for (const int x : SomeValues(m, 1)) operands.push_back(x);
  const size_t carried = operands.size();
  Body condition(m), body(m);
  for (size_t i = 0; i < carried; ++i) condition.Input(operands[i]), body.Input(operands[i]);
  ProgramMaker& asks = condition.inner();
  const auto below = static_cast<int64_t>(ops::Direction::kLt);
  int more = asks.Call(ops::kOp_compare, {0, Number(asks, DType::kI32, static_cast<double>(m.rng.Between(0, kMostTrips + 1)))}, {{"direction", below}});
  if (m.rng.Chance(0.4)) {
    condition.Fill();
    const int also = condition.OfType(ir::Type::Scalar(DType::kBool));
    if (also >= 0) more = asks.Call(ops::kOp_bitwise_and, {more, also});
  }
  if (more < 0) return;
  std::vector<RandomProgram> bodies;
  bodies.push_back(condition.Finish(carried, {more}, &operands));
  body.Capture();
  body.Fill();
  std::vector<int> outputs = {body.inner().Call(ops::kOp_add, {0, Number(body.inner(), DType::kI32, 1)})};
  for (size_t i = 1; i < carried; ++i) outputs.push_back(body.OfType(m.type(operands[i])));
  if (std::ranges::find(outputs, -1) != outputs.end()) return;
  bodies.push_back(body.Finish(carried, std::move(outputs), &operands));
  m.Call(ops::kOp_while, std::move(operands), ir::Attrs(), std::move(bodies));
}

void Scan(ProgramMaker& m) {
  const std::vector<int> carried = SomeValues(m, 0);
  const int64_t length = m.rng.Below(kMostTrips + 1);
  const bool counted = !m.options.smooth && m.rng.Chance(0.3), indexed = m.rng.Chance(0.4);
  std::vector<int> operands, scanned;
  if (counted) operands.push_back(m.LeafOf(Count(m.rng.Between(-1, length + 1))));
  operands.insert(operands.end(), carried.begin(), carried.end());
  Body body(m);
  if (indexed) body.Input(Count(0));
  for (const int x : carried) body.Input(x);
  for (int64_t n = m.rng.Below(3); n > 0; --n) {
    const int x = AnyValue(m, 0, 2);
    if (x < 0 || m.type(x).count() > 150) continue;
    Dims stacked = m.dims(x);
    stacked.insert(stacked.begin(), length);
    const int all = Like(m, m.type(x).dtype, stacked);
    if (all < 0) continue;
    operands.push_back(all);
    scanned.push_back(x);
    body.Input(x);  // any value of a slice's type
  }
  body.Capture();
  body.Fill();
  std::vector<int> outputs;
  for (const int x : carried) outputs.push_back(body.OfType(m.type(x)));
  for (int64_t n = m.rng.Below(3); n > 0; --n) outputs.push_back(AnyValue(body.inner(), 0, 3));
  if (outputs.empty() || std::ranges::find(outputs, -1) != outputs.end()) return;
  const size_t inputs = (indexed ? 1 : 0) + carried.size() + scanned.size();
  std::vector<RandomProgram> bodies;
  bodies.push_back(body.Finish(inputs, std::move(outputs), &operands));
  m.Call(ops::kOp_scan, std::move(operands),
         {{"length", length}, {"carried", static_cast<int64_t>(carried.size())}, {"scanned", static_cast<int64_t>(scanned.size())}, {"reverse", m.rng.Chance(0.3)},
          {"indexed", indexed}, {"counted", counted}, {"kept", m.options.smooth || m.rng.Chance(0.5)}, {"unroll", m.rng.Chance(0.7) ? int64_t{1} : m.rng.Between(2, 4)},
          {"keep_every", m.rng.Chance(0.6) ? int64_t{1} : m.rng.Between(2, 4)}},
         std::move(bodies));
}

// The first function says of what types the results are.
void Branch(ProgramMaker& m) {
  const bool two = m.rng.Chance(0.5);
  std::vector<int> operands;
  if (two) {
    operands.push_back(Like(m, DType::kBool, {}));
  } else {
    operands.push_back(m.rng.Chance(0.5) ? Like(m, DType::kI32, {}) : m.LeafOf(Count(m.rng.Between(-1, 4))));
  }
  if (operands[0] < 0) return;
  std::vector<ir::Type> types;
  std::vector<RandomProgram> bodies;
  for (int64_t n = two ? 2 : m.rng.Between(1, 4); n > 0; --n) {
    Body body(m);
    body.Capture();
    body.Fill();
    std::vector<int> outputs;
    if (bodies.empty()) {
      for (int64_t k = m.rng.Between(1, 4); k > 0; --k) {
        outputs.push_back(AnyValue(body.inner()));
        if (outputs.back() < 0) return;
        types.push_back(body.inner().type(outputs.back()));
      }
    } else {
      for (const ir::Type& type : types) outputs.push_back(body.OfType(type));
      if (std::ranges::find(outputs, -1) != outputs.end()) return;
    }
    bodies.push_back(body.Finish(0, std::move(outputs), &operands));
  }
  m.Call(two ? ops::kOp_if : ops::kOp_case, std::move(operands), ir::Attrs(), std::move(bodies));
}

// Once, or again on what it gave: equal functions are one object.
void CallFunction(ProgramMaker& m) {
  const std::vector<int> inputs = SomeValues(m, 1);
  Body body(m);
  for (const int x : inputs) body.Input(x);
  body.Capture();
  body.Fill();
  std::vector<int> operands = inputs, outputs;
  for (const int x : inputs) outputs.push_back(body.OfType(m.type(x)));
  if (std::ranges::find(outputs, -1) != outputs.end()) return;
  const RandomProgram function = body.Finish(inputs.size(), std::move(outputs), &operands);
  const int first = m.Call(ops::kOp_call, operands, ir::Attrs(), {function});
  if (first < 0 || m.rng.Chance(0.5)) return;
  for (size_t i = 0; i < inputs.size(); ++i) operands[i] = first + static_cast<int>(i);
  m.Call(ops::kOp_call, operands, ir::Attrs(), {function});
}

constexpr Move kMoves[] = {{24, While}, {24, Scan}, {24, Branch}, {14, CallFunction}};

}  // namespace

std::span<const Move> ControlMoves() { return kMoves; }

}  // namespace weft::test
