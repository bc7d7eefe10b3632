// The parts of random programs: what every move needs, and the moves of each file. See random_moves.cc for the table.
#pragma once

#include <span>

#include "src/ops/build.h"
#include "tests/support/random_program.h"

namespace weft::test {

// Adds a call or a few; whatever does not fit is left out.
struct Move {
  int weight;
  void (*make)(ProgramMaker& m);
};
std::span<const Move> ElementMoves();  // random_element_moves.cc
std::span<const Move> NetworkMoves();  // random_network_moves.cc
std::span<const Move> ControlMoves();  // random_control_moves.cc

// Every move as often as it weighs, those with control flow as the program likes them.
std::vector<const Move*> WeightedMoves(const ProgramMaker& m);

inline constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
inline constexpr DType kOthers[] = {DType::kI32, DType::kI8, DType::kU8, DType::kBool, DType::kI64, DType::kI32, DType::kBool, DType::kU32};

inline constexpr DType kIntegers[] = {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32, DType::kU32, DType::kI64, DType::kU64};

// A dimension and a shape as the program likes them.
int64_t Size(ProgramMaker& m);
Dims Shape(ProgramMaker& m, size_t low_rank = 0, size_t high_rank = 4);
DType AnyFloat(ProgramMaker& m);
// Finite differences want f64.
bool IsAcceptableFloat(ProgramMaker& m, const ir::Type& type);

// A float value of some rank, a new leaf if there is none; a value of any type.
int FloatValue(ProgramMaker& m, size_t low_rank = 0, size_t high_rank = 4);
int AnyValue(ProgramMaker& m, size_t low_rank = 0, size_t high_rank = 5);
int Reshape(ProgramMaker& m, int x, const Dims& dims);
// x in other dimensions: broadcast where that works, else its first elements, repeated as far as need be.
int Coerce(ProgramMaker& m, int x, const Dims& dims);
// A value of the type: one that is there, made to fit, or a new leaf.
int Like(ProgramMaker& m, DType dtype, const Dims& dims);
// Something that broadcasts with `dims` under NumPy's rules and does not make it larger, mostly.
int Partner(ProgramMaker& m, DType dtype, const Dims& dims);
// The attributes with some of them drawn anew. An operation may refuse them.
ir::Attrs Varied(ProgramMaker& m, const ir::OpDef& op, ir::Attrs attrs);
// A call of the operation with the attributes of one of its samples, or near those; operands come from the program. -1 if it has no
// sample that the program may have.
int SampleCall(ProgramMaker& m, const ir::OpDef& op);
// Into [low, high], smoothly.
int Squash(ProgramMaker& m, int x, double low, double high);
int Number(ProgramMaker& m, DType dtype, double value);

}  // namespace weft::test
