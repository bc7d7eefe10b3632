// Running sums, products and extremes: what the elements up to each one along an axis combine to, in one pass. A long line is cut into
// pieces, by its shape alone: what each piece combines to, then what lies before each, then the elements. Sums and products of
// floats go on in f64, of f64 sums with what each addition lost beside them, so that they are rounded once, at the element.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/launch/running_call.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kColumns = 64;         // that go along side by side where the axis is not the last
constexpr int64_t kManyLines = 64;       // that keep all threads busy without being cut
constexpr int64_t kPiece = 1 << 16;      // elements of a piece
constexpr int64_t kAtOnce = 1 << 12;     // elements between two looks whether the launch ends
constexpr int64_t kInlineWork = 20'000;  // elements that one thread does as quickly

template <typename T, typename From>
T Rounded(From value) {
  if constexpr (std::is_same_v<T, BF16>) {
    return {DoubleToBF16(value)};
  } else if constexpr (std::is_same_v<T, F16>) {
    return {DoubleToF16(value)};
  } else {
    return static_cast<T>(value);
  }
}

// Sums and products go on in this.
template <typename T>
using Wide = std::conditional_t<std::is_integral_v<typename ElementRule<T>::Sum>, typename ElementRule<T>::Sum, double>;

// How elements T combine: what that begins with, how it takes an element and what comes behind it, and what is stored of it.
template <typename T>
struct RunningSum {
  using State = Wide<T>;
  // -0 is what a sum of floats begins with: 0 would take the sign of a first -0.
  static State Begin() { return static_cast<State>(-0.0); }
  static void Take(State& state, T x, int64_t) { Join(state, static_cast<State>(ElementRule<T>::Load(x))); }
  static void Join(State& state, State next) { state = ElementRule<State>::Add(state, next); }
  static T Value(State state) { return Rounded<T>(state); }
  static int32_t At(State) { return 0; }
};

template <>
struct RunningSum<double> {
  struct State {
    double sum = -0.0, lost = 0;
  };
  static State Begin() { return {}; }
  static void Take(State& state, double x, int64_t) {
    const double sum = state.sum + x, taken = sum - state.sum;
    state.lost += (state.sum - (sum - taken)) + (x - taken);
    state.sum = sum;
  }
  static void Join(State& state, const State& next) {
    Take(state, next.sum, 0);
    state.lost += next.lost;
  }
  // Beside inf or NaN nothing is lost that counts; -0 stays -0.
  static double Value(const State& state) {
    return state.lost == 0 || !std::isfinite(state.sum) ? state.sum : state.sum + state.lost;
  }
  static int32_t At(const State&) { return 0; }
};

template <typename T>
struct RunningProduct {
  using State = Wide<T>;
  static State Begin() { return 1; }
  static void Take(State& state, T x, int64_t) {
    state = ElementRule<State>::Multiply(state, static_cast<State>(ElementRule<T>::Load(x)));
  }
  static void Join(State&, State) {}  // lines are whole: a part may overflow where the line does not
  static T Value(State state) { return Rounded<T>(state); }
  static int32_t At(State) { return 0; }
};

// The later of equal elements stays, and from the first NaN on the latest one.
template <typename T, bool largest>
struct RunningExtreme {
  using Rule = ElementRule<T>;
  struct State {
    T best = {};
    int32_t at = -1;
  };
  static State Begin() { return {}; }
  static void Take(State& state, T x, int64_t at) { Join(state, {x, static_cast<int32_t>(at)}); }
  static void Join(State& state, const State& next) {
    if (next.at < 0) return;
    const auto was = Rule::Load(state.best), is = Rule::Load(next.best);
    const bool orders = largest ? is >= was : is <= was;
    if (state.at < 0 || orders || IsNan(is)) state = next;
  }
  static T Value(const State& state) { return state.best; }
  static int32_t At(const State& state) { return state.at; }

 private:
  template <typename Number>
  static bool IsNan(Number x) {
    if constexpr (std::is_floating_point_v<Number>) return std::isnan(x);
    return false;
  }
};

template <typename T, typename Op>
class Running {
 public:
  using State = decltype(Op::Begin());

  Running(const RunningCall& c, const HostCall& call)
      : c_(c),
        x_(static_cast<const T*>(call.buffers[0])),
        y_(static_cast<T*>(call.buffers[1])),
        at_(c.extreme() ? static_cast<int32_t*>(call.buffers[2]) : nullptr),
        space_(static_cast<State*>(call.buffers.back())) {}

  void Run(ThreadPool& pool) {
    const int64_t pieces = c_.pieces(), lines = c_.lines();
    const auto deal = [&](int64_t count, auto f) {
      if (c_.outer * c_.length * c_.inner < kInlineWork) {
        for (int64_t i = 0; i < count; ++i) f(i);
      } else {
        pool.ParallelFor(count, f);
      }
    };
    if (pieces > 1) {
      deal(lines * pieces, [&](int64_t i) { OnePiece(i / pieces, i % pieces, false); });
      deal(lines, [&](int64_t line) { Before(line); });
    }
    deal(lines * pieces, [&](int64_t i) { OnePiece(i / pieces, i % pieces, true); });
  }

 private:
  // Makes what a piece of some columns combines to, or stores its elements behind what is before it.
  void OnePiece(int64_t line, int64_t piece, bool stored) {
    if (LaunchEnds()) return;
    const int64_t blocks = Blocks(), column = line % blocks * kColumns, columns = std::min(kColumns, c_.inner - column);
    const int64_t first = piece * c_.piece(), end = std::min(c_.length, first + c_.piece());
    const int64_t base = line / blocks * c_.length * c_.inner + column;
    State* const kept = c_.pieces() > 1 ? Kept(line, piece) : nullptr;
    const auto begin = [&](int64_t k) { return stored && kept != nullptr ? kept[k] : Op::Begin(); };
    if (c_.inner == 1) {
      State state = begin(0);
      Along(&state, 1, base, first, end, stored);
      if (!stored) *kept = state;
      return;
    }
    State states[kColumns];
    for (int64_t k = 0; k < columns; ++k) states[k] = begin(k);
    Along(states, columns, base, first, end, stored);
    if (!stored) std::copy_n(states, columns, kept);
  }

  void Along(State* states, int64_t columns, int64_t base, int64_t first, int64_t end, bool stored) {
    for (; first < end && !LaunchEnds(); first += kAtOnce) {
      const int64_t next = std::min(end, first + kAtOnce);
      if (columns > 1) {
        stored ? Elements<true>(states, columns, base, first, next)
               : Elements<false>(states, columns, base, first, next);
      } else {  // in a register
        State state = *states;
        stored ? Elements<true>(&state, 1, base, first, next) : Elements<false>(&state, 1, base, first, next);
        *states = state;
      }
    }
  }

  template <bool stored>
  [[gnu::always_inline]] void Elements(State* states, int64_t columns, int64_t base, int64_t first, int64_t end) const {
    for (int64_t i = first; i < end; ++i) {
      const int64_t place = c_.reverse ? c_.length - 1 - i : i, row = base + place * c_.inner;
      for (int64_t k = 0; k < columns; ++k) {
        Op::Take(states[k], x_[row + k], place);
        if constexpr (!stored) continue;
        y_[row + k] = Op::Value(states[k]);
        if (at_ != nullptr) at_[row + k] = Op::At(states[k]);
      }
    }
  }

  int64_t Blocks() const { return (c_.inner + kColumns - 1) / kColumns; }
  State* Kept(int64_t line, int64_t piece) const { return space_ + (line * c_.pieces() + piece) * kColumns; }

  // Turns the combined values of pieces into the values before each piece.
  void Before(int64_t line) {
    if (LaunchEnds()) return;
    const int64_t columns = std::min(kColumns, c_.inner - line % Blocks() * kColumns);
    for (int64_t k = 0; k < columns; ++k) {
      State before = Op::Begin();
      for (int64_t piece = 0; piece < c_.pieces(); ++piece) {
        const State own = std::exchange(Kept(line, piece)[k], before);
        Op::Join(before, own);
      }
    }
  }

  const RunningCall& c_;
  const T* const x_;
  T* const y_;
  int32_t* const at_;
  State* const space_;
};

RunningCall Decode(std::span<const int64_t> params) {
  RunningCall c;
  if (params.size() != 6) return c;
  c.kind = static_cast<RunningCall::Kind>(params[0]);
  c.dtype = static_cast<DType>(params[1]);
  c.outer = params[2];
  c.length = params[3];
  c.inner = params[4];
  c.reverse = params[5] != 0;
  return c;
}

// Buffers: x, y, of extremes their positions, space.
absl::Status RunRunning(const HostCall& call) {
  const RunningCall c = Decode(call.params);
  VisitElement(c.dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, Bool>) {
      switch (c.kind) {
        case RunningCall::Kind::kSum: return Running<T, RunningSum<T>>(c, call).Run(call.pool);
        case RunningCall::Kind::kProduct: return Running<T, RunningProduct<T>>(c, call).Run(call.pool);
        default: break;
      }
    }
    if (c.kind == RunningCall::Kind::kMax) return Running<T, RunningExtreme<T, true>>(c, call).Run(call.pool);
    if (c.kind == RunningCall::Kind::kMin) return Running<T, RunningExtreme<T, false>>(c, call).Run(call.pool);
  });
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {{"running", RunRunning}};

}  // namespace

int64_t RunningCall::lines() const { return outer * ((inner + kColumns - 1) / kColumns); }
int64_t RunningCall::pieces() const {
  if (lines() >= kManyLines || kind == Kind::kProduct) return 1;
  return std::max<int64_t>(1, (length + kPiece - 1) / kPiece);
}
int64_t RunningCall::piece() const { return (length + pieces() - 1) / pieces(); }
int64_t RunningCall::space_bytes() const { return pieces() == 1 ? 16 : lines() * pieces() * kColumns * 16; }

std::vector<int64_t> EncodeRunning(const RunningCall& c) {
  return {static_cast<int64_t>(c.kind), static_cast<int64_t>(c.dtype), c.outer, c.length, c.inner, c.reverse};
}

std::span<const HostKernel> RunningHostKernels() { return kKernels; }

}  // namespace weft::cpu
