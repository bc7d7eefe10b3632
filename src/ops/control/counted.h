// Loops that count: those that end by themselves, which weft_cancel leaves alone, and those whose number of runs is known.
#pragma once

#include <optional>

#include "src/ir/function.h"

namespace weft::ops {

// Of a while: it goes on as long as one of the integers it carries is below a bound that all runs have in common, and the body
// adds 1 to it, or so little more that it cannot overflow. So are all scans and the loops of run-time counts; as they are recorded, or fused.
bool EndsByItself(const ir::Function& condition, const ir::Function& body);

// A while whose number of runs is known: one of the values it carries begins with 0 and grows by 1 up to it.
struct KnownRuns {
  size_t counter = 0;  // which of the values
  int64_t count = 0;
};
std::optional<KnownRuns> RunsOf(const ir::Node& loop);

// Whether a value of the loop's body is another number of [0, count) in each run: the counter, or count - 1 less it.
bool IsRowOfRun(const ir::Node& loop, const KnownRuns& runs, const ir::Value& value);

// Whether the runs write all rows of what the loop carries i-th, each its own, and nothing in the loop reads it: what it is
// before the first run is lost.
bool WritesEveryRow(const ir::Node& loop, const KnownRuns& runs, size_t i);

}  // namespace weft::ops
