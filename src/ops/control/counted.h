// Loops that count: those that end by themselves, which weft_cancel leaves alone, and those whose number of runs is known.
#pragma once

#include <optional>

#include "src/ir/function.h"

namespace weft::ops {

// Tells whether a while surely ends: it goes on as long as one carried integer is below a bound that all runs have in
// common, and the body adds 1 to it, or so little more that it cannot overflow. This holds for all scans and for loops
// of run-time counts, as they are recorded or fused.
bool EndsByItself(const ir::Function& condition, const ir::Function& body);

// A while whose number of runs is known: one of the values it carries begins with 0 and grows by 1 up to it.
struct KnownRuns {
  size_t counter = 0;  // which of the values
  int64_t count = 0;
};
std::optional<KnownRuns> RunsOf(const ir::Node& loop);

// Tells whether a value of the loop's body is another number of [0, count) in each run: the counter, or count - 1 minus
// the counter.
bool IsRowOfRun(const ir::Node& loop, const KnownRuns& runs, const ir::Value& value);

// Tells whether the runs together write all rows of carried value i, each run its own, and nothing in the loop reads
// it. Its initial value is then dead.
bool WritesEveryRow(const ir::Node& loop, const KnownRuns& runs, size_t i);

}  // namespace weft::ops
