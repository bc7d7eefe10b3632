// The table of moves, and how a program is made of them: a few arguments, calls that use what is there, at times a gradient,
// several results. Operations that only need operands of the right types come from their samples, so that a new operation
// joins by itself; those where shapes make the difference have a move of their own.
#include "tests/support/random_moves.h"

#include <algorithm>

namespace weft::test {

using ir::Ints;

namespace {

constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65};
constexpr int64_t kHollowSizes[] = {0, 1, 2, 3, 4, 7, 9, 17};
constexpr int64_t kLargeSizes[] = {1, 3, 16, 64, 65, 96, 128, 129, 200, 255, 257, 300};
constexpr int kDeepest = 3;  // bodies in bodies

}  // namespace

int64_t Size(ProgramMaker& m) {
  if (m.hollow && m.rng.Chance(0.6)) return m.rng.Below(2);
  if (m.rng.Chance(0.01)) return 0;
  if (m.rng.Chance(0.15)) return 1;
  if (m.rng.Chance(0.85)) return m.rng.Pick(m.sizes);
  return m.large ? m.rng.Pick(kLargeSizes) : m.rng.Pick(kSizes);
}

Dims Shape(ProgramMaker& m, size_t low_rank, size_t high_rank) {
  Dims dims;
  auto rank = static_cast<size_t>(m.rng.Between(static_cast<int64_t>(low_rank), static_cast<int64_t>(high_rank) + 1));
  if (m.hollow && m.rng.Chance(0.2)) rank = low_rank;
  int64_t count = 1;
  while (dims.size() < rank) {
    int64_t size = Size(m);
    if (count * size > m.max_elements() / 2) size = m.rng.Between(1, 3);
    if (count * size > m.max_elements()) size = 1;
    dims.push_back(size);
    count *= size;
  }
  return dims;
}

DType AnyFloat(ProgramMaker& m) { return m.options.smooth || m.rng.Chance(0.8) ? m.main : m.rng.Pick(kFloats); }

bool IsAcceptableFloat(ProgramMaker& m, const ir::Type& type) {
  return IsFloat(type.dtype) && (!m.options.smooth || type.dtype == DType::kF64);
}

int FloatValue(ProgramMaker& m, size_t low_rank, size_t high_rank) {
  int found = -1;
  if (m.rng.Chance(0.93)) {
    found = m.Find([&](const ir::Type& t) { return IsAcceptableFloat(m, t) && t.rank() >= low_rank && t.rank() <= high_rank; });
  }
  return found >= 0 ? found : m.Leaf(AnyFloat(m), Shape(m, low_rank, high_rank));
}

int AnyValue(ProgramMaker& m, size_t low_rank, size_t high_rank) {
  const int found = m.Find([&](const ir::Type& t) { return t.rank() >= low_rank && t.rank() <= high_rank; });
  return found >= 0 ? found : FloatValue(m, low_rank, std::min<size_t>(high_rank, 4));
}

int Reshape(ProgramMaker& m, int x, const Dims& dims) {
  return m.Call(ops::kOp_reshape, {x}, {{"shape", ops::ToInts(dims)}});
}

namespace {

int Part(ProgramMaker& m, int x, int64_t start, int64_t count) {
  return m.Call(ops::kOp_slice, {x}, {{"start_indices", Ints{start}}, {"limit_indices", Ints{start + count}}, {"strides", Ints{1}}});
}

}  // namespace

int Coerce(ProgramMaker& m, int x, const Dims& dims) {
  if (x < 0 || m.dims(x) == dims) return x;
  const auto broadcast = ops::BroadcastDims(m.dims(x), dims);
  if (broadcast.ok() && *broadcast == dims && m.rng.Chance(0.8)) {
    return m.Call(ops::kOp_broadcast_to, {x}, {{"shape", ops::ToInts(dims)}});
  }
  const int64_t count = CountOf(dims), have = m.type(x).count();
  if (have == 0 && count > 0) return m.Leaf(m.type(x).dtype, dims);
  int flat = Reshape(m, x, {have});
  if (flat >= 0 && count < have) {
    const int64_t start = m.rng.Between(0, have - count + 1);
    flat = Part(m, flat, start, count);
  } else if (flat >= 0 && count > have) {
    if (count > 8 * have) return m.Leaf(m.type(x).dtype, dims);
    std::vector<int> parts(static_cast<size_t>((count + have - 1) / have), flat);
    flat = m.Call(ops::kOp_concatenate, parts, {{"dimension", int64_t{0}}});
    if (flat >= 0) flat = Part(m, flat, 0, count);
  }
  return flat < 0 ? flat : Reshape(m, flat, dims);
}

int Like(ProgramMaker& m, DType dtype, const Dims& dims) {
  int x = m.rng.Chance(0.7) ? m.Find([&](const ir::Type& t) { return t.dtype == dtype && t.dims == dims; }) : -1;
  if (x < 0 && m.rng.Chance(0.4)) x = Coerce(m, m.Find([&](const ir::Type& t) { return t.dtype == dtype; }), dims);
  return x >= 0 ? x : m.Leaf(dtype, dims);
}

int Partner(ProgramMaker& m, DType dtype, const Dims& dims) {
  int x = -1;
  if (m.rng.Chance(0.75)) {
    x = m.Find([&](const ir::Type& t) {
      const auto both = ops::BroadcastDims(t.dims, dims);
      return t.dtype == dtype && both.ok() && CountOf(*both) <= m.max_elements();
    });
  }
  if (x >= 0) return x;
  Dims smaller = dims;
  if (m.rng.Chance(0.5)) smaller.erase(smaller.begin(), smaller.begin() + m.rng.Below(static_cast<int64_t>(dims.size()) + 1));
  for (int64_t& d : smaller) {
    if (m.rng.Chance(0.15)) d = 1;
  }
  if (m.rng.Chance(0.15)) {
    const double value = m.rng.Chance(0.5) ? static_cast<double>(m.rng.Between(-1, 3)) : m.rng.Uniform(-2, 2);
    return m.Call(ops::kOp_full, {}, {{"shape", ops::ToInts(smaller)}, {"value", value}, {"dtype", dtype}});
  }
  return Like(m, dtype, smaller);
}

int Squash(ProgramMaker& m, int x, double low, double high) {
  const HostTensor& value = m.host(x);
  bool inside = true;
  for (int64_t i = 0; i < value.count(); ++i) inside = inside && value.GetDouble(i) >= low && value.GetDouble(i) <= high;
  if (inside) return x;
  const DType dtype = m.type(x).dtype;
  x = m.Call(ops::kOp_sigmoid, {x});
  if (x >= 0) x = m.Call(ops::kOp_mul, {x, Number(m, dtype, high - low)});
  return x < 0 ? x : m.Call(ops::kOp_add, {x, Number(m, dtype, low)});
}

int Number(ProgramMaker& m, DType dtype, double value) {
  return m.Call(ops::kOp_full, {}, {{"shape", ops::Axes(0)}, {"value", value}, {"dtype", dtype}});
}

namespace {

// A float scalar of the value: its elements weighted, so that errors in different ones cannot cancel.
int ToScalar(ProgramMaker& m, int x) {
  const int weighted = m.Call(ops::kOp_mul, {x, m.Leaf(m.type(x).dtype, m.dims(x), -1, 1)});
  return weighted < 0 ? weighted : m.Call(ops::kOp_sum, {weighted});
}

void Differentiate(ProgramMaker& m) {
  int loss = -1;
  for (int64_t n = m.rng.Between(1, 4); n > 0; --n) {
    const int x = m.Find([&](const ir::Type& t) { return IsAcceptableFloat(m, t) && (t.count() > 0 || m.hollow) && (loss < 0 || t.dtype == m.type(loss).dtype); });
    const int part = x < 0 ? -1 : ToScalar(m, x);
    if (part < 0) continue;
    const int sum = loss < 0 ? part : m.Call(ops::kOp_add, {loss, part});
    if (sum >= 0) loss = sum;
  }
  std::vector<int> wrt;
  for (int leaf : m.leaves()) {
    if (IsAcceptableFloat(m, m.type(leaf)) && m.rng.Chance(0.7)) wrt.push_back(leaf);
  }
  if (loss >= 0 && !wrt.empty()) m.Gradient(loss, wrt);
}

}  // namespace

std::vector<const Move*> WeightedMoves(const ProgramMaker& m) {
  std::vector<const Move*> moves;
  for (const std::span<const Move> file : {ElementMoves(), NetworkMoves()}) {
    for (const Move& move : file) moves.insert(moves.end(), static_cast<size_t>(move.weight), &move);
  }
  const std::span<const Move> control = m.control && m.depth < kDeepest ? ControlMoves() : std::span<const Move>();
  for (const Move& move : control) moves.insert(moves.end(), static_cast<size_t>(move.weight), &move);
  return moves;
}

RandomProgram MakeRandomProgram(uint64_t seed, const RandomOptions& options) {
  ProgramMaker m(seed, options);
  constexpr DType kMain[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF32, DType::kF64, DType::kF64, DType::kBF16, DType::kF16};
  m.main = options.smooth ? DType::kF64 : m.rng.Pick(kMain);
  m.wild = !options.smooth && m.rng.Chance(options.wild);
  m.large = !options.smooth && m.rng.Chance(options.large);
  m.hollow = options.hollow > 0 && m.rng.Chance(options.hollow);
  m.control = options.control > 0 && m.rng.Chance(options.control);
  // Few sizes make many shapes that fit one another, and square ones, which tell dimensions apart.
  for (int64_t n = m.rng.Between(2, 5); n > 0; --n) m.sizes.push_back(m.hollow ? m.rng.Pick(kHollowSizes) : m.large ? m.rng.Pick(kLargeSizes) : m.rng.Pick(kSizes));
  for (int64_t n = m.rng.Between(1, 4); n > 0; --n) m.Leaf(m.main, Shape(m));
  if (!options.smooth && m.rng.Chance(0.3)) m.Leaf(m.rng.Pick(kOthers), Shape(m));
  // Each program has a taste of its own: it makes one move more often than others.
  const std::vector<const Move*> moves = WeightedMoves(m);
  const Move& favourite = *m.rng.Pick(moves);
  const size_t start = m.size();
  const int64_t calls = m.rng.Between(2, (m.large ? options.calls / 3 : options.calls) + 1);
  for (int64_t tries = 0; static_cast<int64_t>(m.size() - start) < calls && tries < 4 * calls; ++tries) {
    (m.rng.Chance(0.15) ? favourite : *m.rng.Pick(moves)).make(m);
  }
  if (options.gradients) {
    for (int64_t n = m.rng.Below(3); n > 0; --n) Differentiate(m);
  }
  // What nothing uses, all or in part, and some of what is used too.
  std::vector<int> outputs = {static_cast<int>(m.size()) - 1};
  const double share = m.rng.Chance(0.5) ? 1 : m.rng.Uniform();
  for (int i = 0; i + 1 < static_cast<int>(m.size()); ++i) {
    if (!m.is_used(i) && m.rng.Chance(share)) outputs.push_back(i);
  }
  for (int64_t n = m.rng.Below(4); n > 0; --n) outputs.push_back(static_cast<int>(m.rng.Below(static_cast<int64_t>(m.size()))));
  if (m.rng.Chance(0.3)) outputs.push_back(m.rng.Pick(outputs));
  return m.Finish(std::move(outputs));
}

}  // namespace weft::test
