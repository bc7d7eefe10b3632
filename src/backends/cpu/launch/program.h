// The meaning of a compiled program's data (serialization/cpu_program.h): costs, the walk over its tree of lists,
// whether references make sense. Execution is in executable.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "serialization/cpu_program.h"

namespace weft::cpu {

// Rough picoseconds of one thread as a program keeps them. Sizes that no memory holds are planned too, so the largest
// stands for whatever is larger.
inline constexpr int64_t kMostCost = int64_t{1} << 50;
int64_t CostOf(double picoseconds);

// Lists in lists at most; who walks them may recurse.
inline constexpr int kMostNesting = 32;

inline bool IsControl(const Entry& entry) { return entry.type >= Entry::Type::kRepeat; }

// Entries have their own: a repeat that of its trips, a branch that of its dearest case.
int64_t TotalCost(const EntryList& list);
// Negative trips: nobody knows how many, so it costs the most.
int64_t CostOfRepeat(int64_t trips, int64_t body);

// Per result the first entry of the first list that refers to it, itself or in a list of its own; the list's length if none does.
std::vector<size_t> FirstUses(const Program& program);

// A launch that has begun to write into memory that it took over runs to its end. So it takes over only what it first refers to
// where no more than this is left to do: ten seconds by the estimates, which are of one thread and high.
inline constexpr int64_t kMostToTheEnd = 10'000'000'000'000;
int64_t CostFrom(const EntryList& list, size_t first);

// About what it takes in memory, without machine code.
int64_t BytesOfProgram(const Program& program);

// Entries that run something, in all lists.
void ForEachKernel(const Program& program, absl::FunctionRef<void(const Entry&)> visit);

// DecodeProgram, and CheckProgram.
absl::StatusOr<Program> ParseProgram(std::string_view bytes);

// Checks that lists form a tree and that every reference stays inside what it refers to.
absl::Status CheckProgram(const Program& program);

// One entry a line, lists within an entry indented: "loop 0 tasks 1: a0 a1 r0; add, exp (train.py:42)". For dumps.
std::string ToString(const Program& program);

}  // namespace weft::cpu
