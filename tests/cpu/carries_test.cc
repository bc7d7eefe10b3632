// Where what loops carry lies: rows of large values are written in place, values change places without a copy, and whatever
// is still wanted stays as it is.
#include "src/autodiff/gradient.h"
#include "src/backends/cpu/executable.h"
#include "src/ops/build.h"
#include "tests/cpu/run_all.h"
#include "tests/support/control_programs.h"
#include "tests/support/random_program.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::Type;
using ir::Value;
using ir::Values;
using test::Below;
using test::MakeFunction;
using test::While;

constexpr DType kF = DType::kF32;
constexpr DType kI = DType::kI32;
const Type kCount = Type::Scalar(kI);
using List = std::vector<Value>;

HostTensor Counted(DType dtype, Dims dims, int64_t from = 0) {
  HostTensor t(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, static_cast<double>((i * 7 + from) % 19 - 9));
  return t;
}
HostTensor I(int64_t value) {
  HostTensor t(kI, {});
  t.SetDouble(0, static_cast<double>(value));
  return t;
}

Value Zero(Builder& b) { return ops::Scalar(b, kI, 0); }
Value Row(Builder& b, const Value& x, const Value& at) {
  return ops::Call(b, ops::kOp_dynamic_slice, {x, at, Zero(b)}, {Ints{1, x.dims()[1]}});
}
Value WithRow(Builder& b, const Value& x, const Value& row, const Value& at) {
  return ops::Call(b, ops::kOp_dynamic_update_slice, {x, row, at, Zero(b)});
}

// What the kernels of one launch wrote.
int64_t Written(const Ref<const Function>& function, const std::vector<HostTensor>& arguments) {
  RunAll(function, arguments);
  const auto module = Prepared(TestBackend(), function);
  EXPECT_TRUE(module.ok()) << module.status();
  const auto executable = TestBackend().Compile(*module, {});
  EXPECT_TRUE(executable.ok()) << executable.status();
  const auto results = RunExecutable(TestBackend(), **executable, arguments);
  EXPECT_TRUE(results.ok()) << results.status();
  return BytesWritten(**executable);
}

using Body = std::function<List(Builder&, const List&)>;  // (i, carried…, captures…) -> carried…
// n -> i = 0; while i < n: carried = body(i, carried); the first values are parameters of main, as the captures are.
Ref<const Function> Loop(const std::vector<Type>& carried, const std::vector<Type>& captures, const Body& body) {
  std::vector<Type> state = {kCount}, all, outside = {kCount};
  state.insert(state.end(), carried.begin(), carried.end());
  all = state;
  all.insert(all.end(), captures.begin(), captures.end());
  outside.insert(outside.end(), all.begin() + 1, all.end());
  const auto step = MakeFunction("step", all, [&](Builder& b, const List& p) {
    List next = body(b, p);
    next.insert(next.begin(), ops::Add(b, p[0], 1));
    return next;
  });
  return MakeFunction("main", outside, [&](Builder& b, const List& p) {
    Values operands = {Zero(b)};
    const auto first_capture = p.begin() + 1 + static_cast<ptrdiff_t>(carried.size());
    operands.insert(operands.end(), p.begin() + 1, first_capture);
    operands.push_back(p[0]);
    operands.insert(operands.end(), first_capture, p.end());
    const Values found = While(b, Below(state), step, operands);
    return List(found.begin() + 1, found.end());
  });
}

constexpr int64_t kRows = 96, kColumns = 64, kBytes = kRows * kColumns * 4;
const Type kStack = Type::Tensor(kF, {kRows, kColumns}), kOne = Type::Tensor(kF, {1, kColumns});
constexpr int64_t kSmall = kRows * 64;  // counters, flags and offsets of all runs

// The stack comes into the loop and out of it, a row is read, computed and written: five times the stack's bytes where one
// that is copied in each run takes ninety-six times as many.
TEST(Carries, RowsAreWrittenInPlace) {
  const std::vector<HostTensor> arguments = {I(kRows), Counted(kF, {kRows, kColumns}), Counted(kF, {kRows, kColumns}, 5)};
  const auto one = Loop({kStack}, {kStack}, [](Builder& b, const List& p) {
    return List{WithRow(b, p[1], ops::Neg(b, Row(b, p[2], p[0])), p[0])};
  });
  EXPECT_LE(Written(one, arguments), 5 * kBytes + kSmall);
  // Two updates, the second of which reads what the first has written.
  const auto two = Loop({kStack}, {kStack}, [](Builder& b, const List& p) {
    const Value first = WithRow(b, p[1], ops::Neg(b, Row(b, p[2], p[0])), p[0]);
    return List{WithRow(b, first, ops::Add(b, Row(b, first, p[0]), Row(b, first, Zero(b))), Zero(b))};
  });
  EXPECT_LE(Written(two, arguments), 9 * kBytes + kSmall);
  // The old rows are read behind the update.
  const auto late = Loop({kStack, kOne}, {kStack}, [](Builder& b, const List& p) {
    const Value updated = WithRow(b, p[1], Row(b, p[3], p[0]), p[0]);
    return List{updated, ops::Add(b, p[2], Row(b, p[1], p[0]))};
  });
  EXPECT_LE(Written(late, {arguments[0], arguments[1], Counted(kF, {1, kColumns}), arguments[2]}), 7 * kBytes + kSmall);
  // Added to rows that an index tensor names.
  const auto scattered = Loop({kStack}, {kStack}, [](Builder& b, const List& p) {
    return List{ops::Call(b, ops::kOp_scatter, {p[1], ops::Reshape(b, p[0], {1, 1}), Row(b, p[2], p[0])},
                          {Ints{1}, Ints{0}, Ints{0}, int64_t{1}, int64_t{0}, Ints{}, Ints{}})};
  });
  EXPECT_LE(Written(scattered, arguments), 5 * kBytes + kSmall);
}

TEST(Carries, RowsAreWrittenInPlaceInABranch) {
  const std::vector<HostTensor> arguments = {I(kRows), Counted(kF, {kRows, kColumns}), Counted(kF, {kRows, kColumns}, 5)};
  const auto update = MakeFunction("update", {kStack, kOne, kCount}, [](Builder& b, const List& p) {
    return List{WithRow(b, p[0], p[1], p[2])};
  });
  const auto skip = MakeFunction("skip", {kStack}, [](Builder&, const List& p) { return List{p[0]}; });
  const auto sometimes = Loop({kStack}, {kStack}, [&](Builder& b, const List& p) {
    const Value row = Row(b, p[2], p[0]), odd = ops::Call(b, ops::kOp_rem, {p[0], ops::Scalar(b, kI, 2)});
    const Value last = WithRow(b, p[1], row, ops::Scalar(b, kI, kRows - 1));
    return List{ops::Call(b, ops::kOp_if, {ops::Compare(b, ops::Direction::kEq, odd, 1), last, row, p[0], last}, {},
                          std::vector{update, skip})};
  });
  EXPECT_LE(Written(sometimes, arguments), 6 * kBytes + kSmall);
}

TEST(Carries, LoopsInLoopsWriteRowsInPlace) {
  constexpr int64_t kTimes = 7;
  const std::vector<HostTensor> arguments = {I(kTimes), Counted(kF, {kRows, kColumns}), Counted(kF, {kRows, kColumns}, 5)};
  const auto inner = MakeFunction("inner", {kCount, kStack, kStack}, [](Builder& b, const List& p) {
    const Value row = ops::Add(b, Row(b, p[1], p[0]), Row(b, p[2], p[0]));
    return List{ops::Add(b, p[0], 1), WithRow(b, p[1], row, p[0])};
  });
  const auto outer = Loop({kStack}, {kStack}, [&](Builder& b, const List& p) {
    return List{While(b, Below({kCount, kStack}), inner, {Zero(b), p[1], ops::Scalar(b, kI, 12), p[2]})[1]};
  });
  EXPECT_LE(Written(outer, arguments), 2 * kBytes + kTimes * 12 * (5 * kColumns * 4 + 64));
}

TEST(Carries, ValuesChangePlacesWithoutACopy) {
  const std::vector<HostTensor> arguments = {I(kRows), Counted(kF, {kRows, kColumns}), Counted(kF, {kRows, kColumns}, 5),
                                             Counted(kF, {kRows, kColumns}, 11)};
  const auto around = Loop({kStack, kStack, kStack}, {}, [](Builder&, const List& p) { return List{p[2], p[3], p[1]}; });
  EXPECT_LE(Written(around, arguments), 6 * kBytes + kSmall);
  const auto two = Loop({kStack, kStack, kStack}, {}, [](Builder&, const List& p) { return List{p[2], p[1], p[3]}; });
  EXPECT_LE(Written(two, arguments), 6 * kBytes + kSmall);
  // Each run computes one new value, the others move on.
  const auto shift = Loop({kStack, kStack, kStack}, {}, [](Builder& b, const List& p) {
    return List{p[2], p[3], ops::Sub(b, p[1], ops::Reverse(b, p[3], {0}))};
  });
  EXPECT_LE(Written(shift, arguments), 6 * kBytes + kRows * kBytes + kSmall);
}

// A scan, and its gradient with what was kept for it.
TEST(Carries, ScansAndTheirGradientsWriteEachRowOnce) {
  const Type row = Type::Tensor(kF, {kColumns});
  const auto body = MakeFunction("body", {row, row, row}, [](Builder& b, const List& p) {
    const Value h = ops::Add(b, ops::Mul(b, p[0], p[2]), p[1]);
    return List{h, ops::Mul(b, h, 2)};
  });
  const auto scan = [&](int64_t keep_every) {
    return MakeFunction("main", {row, kStack, row}, [&](Builder& b, const List& p) {
      const ir::Attrs attrs = {kRows,      int64_t{1}, int64_t{1}, int64_t{0}, int64_t{0},
                               int64_t{0}, int64_t{1}, int64_t{1}, keep_every};
      const Values found = ops::CallAll(b, ops::kOp_scan, {p[0], p[1], p[2]}, attrs, {&body, 1});
      return List{found[0], found[1]};
    });
  };
  const auto main = scan(1);
  HostTensor w(kF, {kColumns});
  for (int64_t i = 0; i < kColumns; ++i) w.SetDouble(i, i % 2 == 0 ? 1 : -1);
  const HostTensor h = Counted(kF, {kColumns}), xs = Counted(kF, {kRows, kColumns}, 3);
  EXPECT_LE(Written(main, {h, xs, w}), 6 * kBytes + 2 * kSmall);
  const bool wanted[] = {true, true, true};
  const auto gradient = autodiff::RegionGradient(*main, wanted);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  EXPECT_LE(Written(*gradient, {h, xs, w, h, xs}), 24 * kBytes + 4 * kSmall);
  // Of which only every tenth value carried was kept: the runs of a segment once more, rows of what is kept of it meanwhile.
  const auto again = autodiff::RegionGradient(*scan(10), wanted);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_LE(Written(*again, {h, xs, w, h, xs}), 18 * kBytes + 4 * kSmall);
  const auto want = RunAll(*gradient, {h, xs, w, h, xs}), have = RunAll(*again, {h, xs, w, h, xs});
  for (size_t r = 0; r < want.size(); ++r) EXPECT_TRUE(std::ranges::equal(have[r].bytes(), want[r].bytes())) << r;
}

// ---- Random bodies of integers, which are exact whatever the order.

const Type kSquare = Type::Tensor(kI, {4, 4});

class RandomBody {
 public:
  RandomBody(Builder& b, test::Rng& rng, int depth) : b_(b), rng_(rng), depth_(depth) {}

  // (i, values…) -> so many values.
  List Make(const List& p, size_t results) {
    at_ = p[0];
    values_.assign(p.begin() + 1, p.end());
    const size_t given = values_.size();
    for (int64_t steps = rng_.Below(6); steps > 0; --steps) values_.push_back(Step());
    List out;
    for (size_t r = 0; r < results; ++r) {
      // As it was, any of the given, anything, or another value's result.
      const double kind = rng_.Uniform();
      out.push_back(kind < 0.15  ? values_[r]
                    : kind < 0.3 ? values_[static_cast<size_t>(rng_.Below(static_cast<int64_t>(given)))]
                    : kind < 0.9 ? Latest()
                    : out.empty() ? ops::Full(b_, kI, {4, 4}, 3)
                                  : out.back());
    }
    return out;
  }

 private:
  Value Any() { return rng_.Pick(values_); }
  Value Latest() { return rng_.Chance(0.5) ? values_.back() : Any(); }

  Value Step() {
    const Value x = Latest();
    switch (rng_.Below(depth_ > 0 ? 10 : 8)) {
      case 0:
      case 1:
      case 2: return WithRow(b_, x, rng_.Chance(0.5) ? Row(b_, Any(), at_) : ops::Neg(b_, Row(b_, x, at_)), at_);
      case 3: return ops::Add(b_, x, Any());
      case 4: return ops::Sub(b_, 1, x);
      case 5: return ops::Reverse(b_, x, {rng_.Below(2)});
      case 6: return ops::BatchMatmul(b_, x, Any(), false, false);
      case 7:
        return ops::Call(b_, ops::kOp_scatter, {x, ops::Reshape(b_, at_, {1, 1}), Row(b_, Any(), at_)},
                         {Ints{1}, Ints{0}, Ints{0}, int64_t{1}, int64_t{0}, Ints{}, Ints{}});
      case 8: return Branch();
      default: return Inner();
    }
  }
  // A function (i, four values) -> so many values.
  Ref<const Function> Region(size_t results, bool counts) {
    return MakeFunction("region", {kCount, kSquare, kSquare, kSquare, kSquare}, [&](Builder& b, const List& p) {
      List out = RandomBody(b, rng_, depth_ - 1).Make(p, results);
      if (counts) out.insert(out.begin(), ops::Add(b, p[0], 1));
      return out;
    });
  }
  Value Branch() {
    const auto yes = Region(2, false), no = Region(2, false);
    const Value odd = ops::Call(b_, ops::kOp_rem, {at_, ops::Scalar(b_, kI, 2)});
    Values operands = {ops::Compare(b_, ops::Direction::kEq, odd, 1)};
    for (int i = 0; i < 2; ++i) {
      operands.push_back(at_);
      for (int k = 0; k < 4; ++k) operands.push_back(Latest());
    }
    const Values found = ops::CallAll(b_, ops::kOp_if, operands, {}, std::vector{yes, no});
    values_.push_back(found[0]);
    return found[1];
  }
  Value Inner() {
    const auto body = Region(3, true);
    Values operands = {Zero(b_)};
    for (int k = 0; k < 3; ++k) operands.push_back(Latest());
    operands.push_back(ops::Scalar(b_, kI, static_cast<double>(rng_.Below(4))));
    operands.push_back(Latest());
    const Values found = While(b_, Below({kCount, kSquare, kSquare, kSquare}), body, operands);
    for (size_t i = 1; i < 3; ++i) values_.push_back(found[i]);
    return found[3];
  }

  Builder& b_;
  test::Rng& rng_;
  const int depth_;
  Value at_;
  List values_;
};

TEST(Carries, RandomBodiesComputeWhatTheReferenceComputes) {
  const auto [first, last] = test::Seeds(120);
  ASSERT_LE(first, last);
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(seed);
    test::Rng rng(seed);
    const auto carried = static_cast<size_t>(rng.Between(1, 5)), captured = static_cast<size_t>(rng.Between(1, 3));
    const auto loop = Loop(std::vector<Type>(carried, kSquare), std::vector<Type>(captured, kSquare),
                           [&](Builder& b, const List& p) { return RandomBody(b, rng, 2).Make(p, carried); });
    // Two values may begin as one; what they began as is used afterwards.
    const bool same = rng.Chance(0.3);
    std::vector<Type> types(1 + carried + captured, kSquare);
    types[0] = kCount;
    const auto main = MakeFunction("main", types, [&](Builder& b, const List& p) {
      List arguments = p;
      for (size_t i = 1; i < arguments.size(); ++i) {
        if (rng.Chance(0.5)) arguments[i] = ops::Neg(b, arguments[i]);
      }
      if (same) arguments[1 + carried] = arguments[1];
      if (same && carried > 1) arguments[2] = arguments[1];
      Values operands(arguments.begin(), arguments.end());
      const Values found = ops::CallAll(b, ops::kOp_call, operands, {}, {&loop, 1});
      List results(found.begin(), found.end());
      if (rng.Chance(0.5)) results.push_back(ops::Add(b, arguments[1], found[0]));
      if (rng.Chance(0.5)) results.push_back(arguments.back());
      return results;
    });
    std::vector<HostTensor> arguments = {I(rng.Below(6))};
    for (size_t i = 0; i < carried + captured; ++i) arguments.push_back(Counted(kI, {4, 4}, static_cast<int64_t>(i) * 5));
    RunAll(main, arguments);
    if (HasFailure()) return;
  }
}

// A product that reads what its own epilogue gives.
TEST(Carries, AProductsEpilogueDoesNotOverwriteItsFactor) {
  const Type state = Type::Tensor(kF, {70, 70});
  const auto loop = Loop({state, state}, {state}, [](Builder& b, const List& p) {
    const Value h = ops::Add(b, ops::BatchMatmul(b, p[1], p[3], false, false), p[1]);
    return List{ops::Mul(b, h, 0.5), ops::Add(b, ops::BatchMatmul(b, p[3], p[3], false, false), p[2])};
  });
  HostTensor moves(kF, {70, 70});
  for (int64_t i = 0; i < 70; ++i) moves.SetDouble(i * 70 + (i + 1) % 70, 1);
  RunAll(loop, {I(3), Counted(kF, {70, 70}), Counted(kF, {70, 70}, 4), moves});
}

TEST(Carries, EmptyValuesAndLoopsThatNeverRun) {
  const Type empty = Type::Tensor(kF, {0, 4});
  const auto loop = Loop({empty, empty, kStack, kStack}, {kStack}, [](Builder& b, const List& p) {
    return List{p[2], ops::Add(b, p[1], p[2]), p[5], p[3]};
  });
  for (const int64_t n : {0, 1, 3}) {
    RunAll(loop, {I(n), HostTensor(kF, {0, 4}), HostTensor(kF, {0, 4}), Counted(kF, {kRows, kColumns}),
                  Counted(kF, {kRows, kColumns}, 1), Counted(kF, {kRows, kColumns}, 2)});
  }
}

}  // namespace
}  // namespace weft::cpu
