// A context's options of recording, cutting and compiling.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/compiler/program_dump.h"
#include "src/ir/location.h"
#include "src/lazy/service/bad_values.h"
#include "src/lazy/service/generated/engine_options.h"
#include "src/runtime/generated/program_options.h"
#include "src/runtime/held_types.h"
#include "src/runtime/log.h"

namespace weft::ops {
class CustomFunctions;
}

namespace weft::lazy {

class GraphFile;

enum class Mode : uint8_t {
  kLazy,   // record, cut at barriers and reads
  kEager,  // cut after each operation, asynchronous
  kDebug,  // eager, waits for each operation, and reports the first one that makes a NaN out of none
};

// Says which position a recorded operation gets that nobody has given one.
enum class Positions : uint8_t {
  kOff,
  kCall,   // where the exported function was called from
  kStack,  // and the callers of that, as far as they have frame pointers
};

// Says what a call may do that reads a value which is not computed yet.
enum class HostReads : uint8_t { kAllow, kWarn, kForbid };

// The options of the description, and what has none there. A whole training step of a large network records 3,000 nodes.
struct Options : EngineOptions {
  Mode mode = Mode::kLazy;
  Positions positions = Positions::kCall;
  std::string positions_root;  // a folder that files of positions are told from; empty: as they are marked
  Bad first_bad = Bad::kOff;   // looked for in the results of launches
  HostReads host_read = HostReads::kAllow;
  std::function<ir::Location()> caller;         // where the call in progress was made; may be null
  std::shared_ptr<compiler::ProgramDump> dump;  // where texts of compiled programs go; may be null
  // Graphs are computed one operation at a time, each its own program.
  bool read_op_by_op = false, sync_op_by_op = false;
  std::shared_ptr<const GraphFile> graphs;       // where each that is launched is written; may be null
  ProgramOptions program;                        // part of every compilation
  std::shared_ptr<ops::CustomFunctions> custom;  // what the engine calls where programs cannot; may be null
  HeldTypes held;                                // what devices hold for the types that callers see
  int64_t max_programs = 2'048;                  // kept in memory, ready to launch
  // Cuts with smaller outputs do not ask how much memory there is: the answer costs 50 µs, as much as writing 1 MiB.
  int64_t large_cut_bytes = int64_t{256} << 20;
  // Test hook: steps that arrive as before are not built.
  bool replay = true;
  // Test hook: bits of the program key that are looked at. Fewer only make the stored canonical form decide more often.
  int hash_bits = 128;
};

using weft::LogHook;
using weft::LogLevel;

}  // namespace weft::lazy
