// See body_programs.h.
#include "tests/support/body_programs.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/ops/scalar_function.h"
#include "tests/support/control_programs.h"

namespace weft::test {
namespace {

using ir::Attrs;
using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::Type;
using ir::Value;
using ir::Values;
using ops::Direction;

constexpr DType kAll[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI8,  DType::kI16, DType::kI32,
                          DType::kI64, DType::kU8,  DType::kU16,  DType::kU32, DType::kU64, DType::kBool};

constexpr std::string_view kCaptured = ", captured";

std::vector<Value> All(Values values) { return {values.begin(), values.end()}; }
Value Or(Builder& b, Value x, Value y) { return ops::Call(b, ops::kOp_bitwise_or, {std::move(x), std::move(y)}); }

std::vector<Type> Scalars(const std::vector<DType>& types) {
  std::vector<Type> scalars;
  for (const DType type : types) scalars.push_back(Type::Scalar(type));
  return scalars;
}

// A program of one call: operands are parameters of the tensors' types.
OpProgram Program(std::string name, const ir::OpDef& op, Attrs attrs, const std::vector<Ref<const Function>>& bodies,
                  std::vector<HostTensor> inputs, ir::Tolerance tolerance = {0, 0, 0, 0, 0}) {
  std::vector<Type> types;
  for (const HostTensor& input : inputs) types.push_back(Type::Tensor(input.dtype(), input.dims()));
  OpProgram program{.name = std::move(name), .group = std::string(op.c_name), .inputs = std::move(inputs)};
  program.module.functions.push_back(MakeFunction("main", types, [&](Builder& b, const std::vector<Value>& p) {
    return All(ops::CallAll(b, op, Values(p.begin(), p.end()), attrs, bodies));
  }));
  program.forward_results = program.module.main().results().size();
  program.tolerance = tolerance;
  return program;
}

HostTensor One(DType dtype, double value) {
  HostTensor t(dtype, {});
  t.SetDouble(0, value);
  return t;
}

HostTensor Lowest(DType dtype) { return ops::Identity(ops::Reducer::kMax, dtype); }

Ref<const Function> ExtremeBody(DType dtype, bool largest) {
  return MakeFunction("extreme", Scalars({dtype, DType::kI32, dtype, DType::kI32}),
                      [&](Builder& b, const std::vector<Value>& p) {
                        const Value better = Compare(b, largest ? Direction::kGt : Direction::kLt, p[0], p[2]);
                        const Value keeps = Or(b, better, Compare(b, Direction::kNe, p[0], p[0]));
                        const Value tie = ops::And(b, Compare(b, Direction::kEq, p[0], p[2]),
                                                   Compare(b, Direction::kLt, p[1], p[3]));
                        return std::vector{ops::Select(b, keeps, p[0], p[2]),
                                           ops::Select(b, Or(b, keeps, tie), p[1], p[3])};
                      });
}

// f(x) < f(y) of the first pair: in total order, as sort's own; by size; of the first pair, then of the second.
Ref<const Function> ByMagnitude(const std::vector<DType>& types) {
  return MakeFunction("by_magnitude", Scalars(types), [&](Builder& b, const std::vector<Value>& p) {
    return std::vector{Compare(b, Direction::kGt, ops::Abs(b, p[0]), ops::Abs(b, p[1]))};
  });
}
Ref<const Function> ByTwoKeys(const std::vector<DType>& types) {
  return MakeFunction("by_two_keys", Scalars(types), [&](Builder& b, const std::vector<Value>& p) {
    const Value second = ops::And(b, Compare(b, Direction::kEq, p[0], p[1]), Compare(b, Direction::kGt, p[2], p[3]));
    return std::vector{Or(b, Compare(b, Direction::kLt, p[0], p[1]), second)};
  });
}
// By the distance from a captured scalar.
Ref<const Function> ByDistance(DType dtype) {
  return MakeFunction("by_distance", Scalars({dtype, dtype, dtype}), [&](Builder& b, const std::vector<Value>& p) {
    const auto distance = [&](const Value& x) { return ops::Abs(b, ops::Sub(b, x, p[2])); };
    return std::vector{Compare(b, Direction::kLt, distance(p[0]), distance(p[1]))};
  });
}

void AddReductions(std::vector<OpProgram>& programs) {
  struct Case {
    Dims dims;
    Ints dimensions;
  };
  const Case cases[] = {{{3, 7}, {1}},      {{7, 3}, {0}}, {{300}, {0}},    {{2, 3, 50}, {0, 2}}, {{0, 3}, {0}}, {{3, 0}, {0}},
                        {{70, 9}, {1}},   {{5}, {}},     {{9000}, {0}}, {{3, 1, 90, 2}, {2, 3}}};
  for (const DType dtype : kAll) {
    size_t number = 0;
    for (const Case& c : cases) {
      if (CountOf(c.dims) > 1000 && dtype != DType::kF32 && dtype != DType::kI8) continue;
      const bool largest = number++ % 2 == 0;
      OpProgram program{.name = absl::StrCat("reduce_by ", largest ? "argmax" : "argmin", " ", NameOf(dtype), DimsToString(c.dims)),
                        .group = "reduce_by"};
      program.module.functions.push_back(ExtremeAndPlace(dtype, c.dims, c.dimensions, largest));
      program.inputs = {Ties(dtype, c.dims, number)};
      program.forward_results = 2;
      program.tolerance = ops::kExact;
      programs.push_back(std::move(program));
    }
  }
  // Not associative: one after the other, from a first value that is not neutral; with a capture.
  for (const DType dtype : {DType::kI32, DType::kI8, DType::kU16, DType::kI64}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      std::vector<DType> types = {dtype, DType::kU32, dtype, DType::kU32};
      std::vector<HostTensor> inputs = {Ties(dtype, {9, 5}, seed), Ties(DType::kU32, {9, 5}, seed + 1), One(dtype, 3), One(DType::kU32, 5)};
      const bool captures = seed % 3 == 0;
      if (captures) types.push_back(dtype), inputs.push_back(One(dtype, 7));
      programs.push_back(Program(absl::StrCat("reduce_by random ", NameOf(dtype), " ", seed, captures ? kCaptured : ""), ops::kOp_reduce_by,
                                 {Ints{static_cast<int64_t>(seed % 2)}}, {RandomBody(seed, types, {dtype, DType::kU32})}, std::move(inputs)));
    }
  }
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    OpProgram program{.name = absl::StrCat("reduce_by logsumexp ", NameOf(dtype)), .group = "reduce_by"};
    program.module.functions.push_back(LogSumExpByPairs(dtype, {4, 37}, {1}));
    program.inputs = {Ties(dtype, {4, 37}, 3, false)};
    program.forward_results = 1;
    program.tolerance = {.f32 = 4e-6, .f64 = 1e-13, .absolute = 4e-6};
    const bool wanted[] = {true};
    auto gradient = autodiff::RegionGradient(program.module.main(), wanted);
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    OpProgram slope = program;
    slope.name += " gradient";
    slope.module.functions = {*gradient};
    slope.inputs.push_back(Ties(dtype, {4}, 4, false));
    slope.forward_results = 0;
    programs.push_back(std::move(program));
    programs.push_back(std::move(slope));
  }
}

void AddWindows(std::vector<OpProgram>& programs) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI32, DType::kU8}) {
    const Attrs windows = {Ints{3, 2}, Ints{2, 1}, Ints{1, 2}, Ints{1, 1}, Ints{1, 1, 0, 1}};
    programs.push_back(Program(absl::StrCat("reduce_window_by argmax ", NameOf(dtype)), ops::kOp_reduce_window_by, windows,
                               {ExtremeBody(dtype, true)},
                               {Ties(dtype, {7, 5}, 1), Ties(DType::kI32, {7, 5}, 2), Lowest(dtype), One(DType::kI32, -1)}));
    programs.push_back(Program(absl::StrCat("reduce_window_by plain ", NameOf(dtype)), ops::kOp_reduce_window_by,
                               {Ints{2, 2}, Ints{2, 2}}, {ExtremeBody(dtype, false)},
                               {Ties(dtype, {6, 4}, 1), Ties(DType::kI32, {6, 4}, 2), One(dtype, 1), One(DType::kI32, 99)}));
  }
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<DType> types = {DType::kI32, DType::kI32};
    std::vector<HostTensor> inputs = {Ties(DType::kI32, {5, 9}, seed), One(DType::kI32, 4)};
    const bool captures = seed % 2 == 0;
    if (captures) types.push_back(DType::kI32), inputs.push_back(One(DType::kI32, 2));
    programs.push_back(Program(absl::StrCat("reduce_window_by random ", seed, captures ? kCaptured : ""), ops::kOp_reduce_window_by,
                               {Ints{2, 3}, Ints{1, 2}, Ints{1, 1}, Ints{1, 2}, Ints{0, 1, 2, 0}},
                               {RandomBody(seed + 20, types, {DType::kI32})}, std::move(inputs)));
  }
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kU8}) {
    const auto select = MakeFunction("select", Scalars({dtype, dtype}), [&](Builder& b, const std::vector<Value>& p) {
      return std::vector{Compare(b, Direction::kLe, p[0], p[1])};
    });
    const auto scatter = MakeFunction("scatter", Scalars({dtype, dtype}), [&](Builder& b, const std::vector<Value>& p) {
      return std::vector{ops::Add(b, ops::Mul(b, p[0], 2), p[1])};
    });
    const auto captures = MakeFunction("captures", Scalars({dtype, dtype, dtype}), [&](Builder& b, const std::vector<Value>& p) {
      return std::vector{ops::Add(b, ops::Mul(b, p[0], p[2]), p[1])};
    });
    // Without ties within a window: XLA goes through columns first.
    HostTensor x(dtype, {6, 5});
    for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, static_cast<double>(i * 7 % 31));
    programs.push_back(Program(absl::StrCat("select_and_scatter_by ", NameOf(dtype)), ops::kOp_select_and_scatter_by,
                               {Ints{3, 2}, Ints{2, 1}, Ints{1, 0, 0, 1}}, {select, scatter},
                               {x, Ties(dtype, {3, 5}, 2, false), One(dtype, 1)}, {.f32 = 1e-6, .f64 = 0, .bf16 = 0, .f16 = 0}));
    programs.push_back(Program(absl::StrCat("select_and_scatter_by ", NameOf(dtype), kCaptured), ops::kOp_select_and_scatter_by,
                               {Ints{3, 2}, Ints{2, 1}, Ints{1, 0, 0, 1}}, {select, captures},
                               {x, Ties(dtype, {3, 5}, 2, false), One(dtype, 1), One(dtype, 2)}));
  }
}

void AddScatters(std::vector<OpProgram>& programs) {
  const Attrs rows = {Ints{1}, Ints{0}, Ints{0}, int64_t{1}};
  HostTensor indices(DType::kI32, {8});
  for (const int64_t i : {0, 1, 2, 3, 4, 5, 6, 7}) indices.SetInt(i, i * 5 % 7 - 1);
  for (const DType dtype : kAll) {
    if (IsBool(dtype)) continue;
    const auto body = MakeFunction("twice_and", Scalars({dtype, dtype}), [&](Builder& b, const std::vector<Value>& p) {
      return std::vector{ops::Add(b, ops::Mul(b, p[0], 2), p[1])};
    });
    const auto captures = MakeFunction("times_and", Scalars({dtype, dtype, dtype}), [&](Builder& b, const std::vector<Value>& p) {
      return std::vector{ops::Add(b, ops::Mul(b, p[0], p[2]), p[1])};
    });
    programs.push_back(Program(absl::StrCat("scatter_by in order ", NameOf(dtype), kCaptured), ops::kOp_scatter_by, rows, {captures},
                               {Ties(dtype, {5, 3}, 1, false), indices, Ties(dtype, {8, 3}, 2, false), One(dtype, 3)}));
    programs.push_back(Program(absl::StrCat("scatter_by in order ", NameOf(dtype)), ops::kOp_scatter_by, rows, {body},
                               {Ties(dtype, {5, 3}, 1, false), indices, Ties(dtype, {8, 3}, 2, false)},
                               {.f32 = 1e-6, .f64 = 1e-14, .bf16 = 2e-2, .f16 = 2e-3}));
  }
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const DType other = seed % 2 == 0 ? DType::kU8 : DType::kI64;
    const auto body = RandomBody(seed + 40, {DType::kI32, other, DType::kI32, other}, {DType::kI32, other});
    programs.push_back(Program(absl::StrCat("scatter_by random ", seed), ops::kOp_scatter_by, rows, {body},
                               {Ties(DType::kI32, {5, 3}, seed), Ties(other, {5, 3}, seed), indices, Ties(DType::kI32, {8, 3}, seed + 2),
                                Ties(other, {8, 3}, seed + 3)}));
  }
}

void AddSorts(std::vector<OpProgram>& programs) {
  const Dims shapes[] = {{9}, {3, 7}, {4, 3, 5}, {90}, {0, 3}, {1}};
  for (const DType dtype : kAll) {
    for (const Dims& dims : shapes) {
      const auto dimension = static_cast<int64_t>(dims.size()) / 2;
      const auto name = [&](std::string_view what) {
        return absl::StrCat("sort_by ", what, " ", NameOf(dtype), DimsToString(dims));
      };
      const HostTensor x = Ties(dtype, dims, 5, false);
      if (!IsBool(dtype) && !IsUnsigned(dtype)) {
        programs.push_back(Program(name("magnitude"), ops::kOp_sort_by, {dimension, int64_t{1}}, {ByMagnitude({dtype, dtype})}, {x}));
        programs.push_back(Program(name("distance") + std::string(kCaptured), ops::kOp_sort_by, {dimension, int64_t{1}}, {ByDistance(dtype)}, {x, One(dtype, 1)}));
      }
      programs.push_back(Program(name("two keys"), ops::kOp_sort_by, {dimension, int64_t{1}},
                                 {ByTwoKeys({dtype, dtype, DType::kI16, DType::kI16, DType::kF64, DType::kF64})},
                                 {x, Ties(DType::kI16, dims, 6), Ties(DType::kF64, dims, 7)}));
    }
  }
}

void AddMaps(std::vector<OpProgram>& programs) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto body = RandomBody(seed + 60, {DType::kI32, DType::kI32, DType::kU8}, {DType::kI32});
    programs.push_back(Program(absl::StrCat("map random ", seed), ops::kOp_map, {}, {body},
                               {Ties(DType::kI32, {3, 5}, seed), Ties(DType::kI32, {3, 5}, seed + 2), Ties(DType::kU8, {3, 5}, seed + 1)}));
  }
}

}  // namespace

Ref<const Function> ExtremeAndPlace(DType dtype, const Dims& dims, const Ints& dimensions, bool largest) {
  const auto body = ExtremeBody(dtype, largest);
  return MakeFunction("main", {Type::Tensor(dtype, dims)}, [&](Builder& b, const std::vector<Value>& p) {
    const ops::Reducer reducer = largest ? ops::Reducer::kMax : ops::Reducer::kMin;
    const Value places = dimensions.empty() ? ops::Full(b, DType::kI32, dims, 2) : ops::Iota(b, DType::kI32, dims, dimensions.back());
    const Value inputs[] = {p[0], places};
    const Value first[] = {ops::Constant(b, ops::Identity(reducer, dtype)), ops::Scalar(b, DType::kI32, 0)};
    return All(ops::ReduceBy(b, inputs, first, body, dimensions));
  });
}

Ref<const Function> LogSumExpByPairs(DType dtype, const Dims& dims, const Ints& dimensions) {
  const auto body = MakeFunction("log_add_exp", Scalars({dtype, dtype}), [&](Builder& b, const std::vector<Value>& p) {
    const Value most = ops::Maximum(b, p[0], p[1]);
    const Value sum = ops::Add(b, ops::Exp(b, ops::Sub(b, p[0], most)), ops::Exp(b, ops::Sub(b, p[1], most)));
    return std::vector{ops::Add(b, most, ops::Log(b, sum))};
  });
  return MakeFunction("main", {Type::Tensor(dtype, dims)}, [&](Builder& b, const std::vector<Value>& p) {
    const Value first[] = {ops::Scalar(b, dtype, -1e4)};
    return All(ops::ReduceBy(b, {&p[0], 1}, first, body, dimensions));
  });
}

Ref<const Function> RandomBody(uint64_t seed, const std::vector<DType>& parameters, const std::vector<DType>& results) {
  return MakeFunction(absl::StrCat("random_", seed), Scalars(parameters), [&](Builder& b, const std::vector<Value>& p) {
    std::mt19937_64 random(seed);
    std::vector<Value> values = p;
    const auto pick = [&](DType dtype) {
      std::vector<Value> fitting;
      for (const Value& value : values) {
        if (value.dtype() == dtype) fitting.push_back(value);
      }
      if (fitting.empty()) fitting.push_back(ops::Scalar(b, dtype, static_cast<double>(random() % 5)));
      return fitting[random() % fitting.size()];
    };
    const ir::OpDef* const binary[] = {&ops::kOp_add,     &ops::kOp_sub,         &ops::kOp_mul,        &ops::kOp_maximum,
                                       &ops::kOp_minimum, &ops::kOp_bitwise_and, &ops::kOp_bitwise_xor};
    const size_t steps = 4 + random() % 8;
    for (size_t i = 0; i < steps; ++i) {
      const DType dtype = parameters[random() % parameters.size()];
      switch (random() % 8) {
        case 0: values.push_back(ops::Convert(b, values[random() % values.size()], dtype)); break;
        case 1: values.push_back(ops::Compare(b, static_cast<Direction>(random() % 6), pick(dtype), pick(dtype))); break;
        case 2: values.push_back(ops::Select(b, pick(DType::kBool), pick(dtype), pick(dtype))); break;
        case 3: values.push_back(ops::Unary(b, ops::kOp_bitwise_not, pick(dtype))); break;
        default: values.push_back(ops::Call(b, *binary[random() % std::size(binary)], {pick(dtype), pick(dtype)}));
      }
    }
    std::vector<Value> made;
    // The last value of each type, mixed with what is taken in, so that every element matters.
    for (size_t r = 0; r < results.size(); ++r) {
      Value last;
      for (const Value& value : values) last = value.dtype() == results[r] ? value : last;
      made.push_back(ops::Add(b, last, ops::Mul(b, p[results.size() + r], ops::Add(b, p[r], 3))));
    }
    return made;
  });
}

HostTensor Ties(DType dtype, const Dims& dims, uint64_t seed, bool edges) {
  HostTensor t(dtype, dims);
  std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(dtype));
  for (int64_t i = 0; i < t.count(); ++i) {
    const auto drawn = static_cast<int64_t>(random() % 23) - (IsSigned(dtype) || IsFloat(dtype) ? 11 : 0);
    if (!IsFloat(dtype)) {
      t.SetInt(i, IsBool(dtype) ? drawn & 1 : drawn);
      continue;
    }
    t.SetDouble(i, static_cast<double>(drawn) / 4);
    if (!edges) continue;
    const double inf = std::numeric_limits<double>::infinity();
    const double special[] = {std::numeric_limits<double>::quiet_NaN(), inf, -inf, -0.0, 0.0};
    if (random() % 16 < 5) t.SetDouble(i, special[random() % std::size(special)]);
  }
  return t;
}

absl::StatusOr<std::vector<OpProgram>> BodyPrograms() {
  std::vector<OpProgram> programs;
  AddReductions(programs);
  AddWindows(programs);
  AddScatters(programs);
  AddSorts(programs);
  AddMaps(programs);
  return programs;
}

}  // namespace weft::test
