// From a trace to something that can be launched: memory first, then the store, then passes and the backend. The key is
// right, not lucky: a hit counts only if the stored canonical form is equal.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "src/backends/backend.h"
#include "src/backends/shows_code.h"
#include "src/compiler/build_id.h"
#include "src/compiler/program_dump.h"
#include "src/compiler/reasons.h"
#include "src/compiler/store.h"
#include "src/compiler/trace.h"
#include "src/ir/function.h"
#include "src/runtime/held_types.h"
#include "src/runtime/metrics.h"
#include "src/runtime/mutex.h"

namespace weft::passes {
struct UnknownResult;
}

namespace weft::compiler {

// Loaded and ready.
struct Program {
  std::string canonical;
  std::unique_ptr<Executable> executable;
  std::vector<ir::Sharding> results;  // how its results lie on the mesh; empty: there is none
  int64_t whole_results = 0;          // of these, whole because nothing says how they would lie
  int64_t bytes = 0;
  std::string name;  // 16 digits, as the disk cache names its file
  int64_t nodes = 0, made_nanoseconds = 0;
  bool loaded = false;             // from the disk cache
  Reason reason = Reason::kFirst;  // why it was not in memory
  ir::Location at;                 // of the reason
  std::string why;                 // the reason in a sentence; empty where nothing is like it
  // The cache's, under its lock.
  mutable uint64_t last_used = 0, runs = 0;
  mutable std::shared_ptr<const Outline> outline;  // null once there are too many
  // The engine's, under its lock: `results` as the mesh keeps them that launched it last. A launch looks none of them up.
  struct Lying {
    const void* mesh = nullptr;
    std::vector<const ir::Sharding*> results;
  };
  mutable Lying lying;
  mutable std::vector<bool> to_look;  // which results first_bad looks at; empty: nobody asked
};

// A program that is not there yet, and everything it can be made of without looking at the recorded graph again.
struct Wanted {
  Key key;
  std::string canonical;
  ir::Module module;
  int64_t nodes = 0;
  // Why it is wanted, though nobody may know a program that is like it; `near` is null then.
  std::shared_ptr<const Outline> outline, outline_near;
  std::shared_ptr<const Program> near;
  Difference difference;
  uint64_t shape = 0;      // see ShapeOf; 0: nobody will ask
  std::string stored_why;  // the difference from a program that an earlier process left on disk; empty: none is known
  std::string drawing;     // for a dump
};

// XXH3-128 of the canonical form, cut to `bits`.
Key KeyOf(std::string_view canonical, int bits = 128);

// One per backend and engine. Thread rule: Find by one thread at a time, the rest by any.
class ProgramCache {
 public:
  struct Config {
    Backend* backend = nullptr;
    CompileOptions options;
    HeldTypes held;  // part of every key
    int hash_bits = 128;
    std::string build = BuildId();  // whose code this cache takes
    // The limits of what is kept in memory: a loop over ever new shapes would otherwise grow for ever. Bytes are those
    // of canonical forms and those that executables say they take; 0: no limit.
    int64_t max_programs = 2'048;
    int64_t max_bytes = int64_t{256} << 20;
    ProgramStore* store = nullptr;  // may be null
    Metrics* metrics = nullptr;
    std::function<void(std::string text)> warn;
    std::shared_ptr<std::atomic<int64_t>> made = std::make_shared<std::atomic<int64_t>>(0);  // what made() counts
    // Programs for another target than the engine's own.
    bool other_target = false;
    // Why a program was not in memory, once it is there. May be empty.
    std::function<void(absl::FunctionRef<std::string()> text)> explain;
    // Hears of each launch; empty: nobody asked.
    std::function<void(absl::FunctionRef<std::string()> text)> explain_launch;
    // Where texts of what is compiled go, and who draws a trace there; null: nowhere.
    std::shared_ptr<ProgramDump> dump;
    std::string (*draw)(const Trace& trace, std::string_view name) = nullptr;
    // Gets messages about what happens to programs: `text` is built only if somebody listens. May be empty.
    std::function<void(absl::FunctionRef<std::string()> text)> note;
  };
  explicit ProgramCache(Config config);

  // The program of the trace, or null and what it takes to make it.
  std::shared_ptr<const Program> Find(const Trace& trace, Wanted* wanted);
  // Returns what the passes make of a module, for this cache's backend.
  absl::StatusOr<ir::Module> Optimised(ir::Module module) const;
  // Returns the code that the backend would generate of it.
  absl::StatusOr<std::string> CodeText(ir::Module module, CodeForm form) const;
  // Returns the function that the program computes, its parameters the arguments of the trace: as it was recorded,
  // before all passes. `participants`: who runs it; may be null.
  absl::StatusOr<Ref<const ir::Function>> Source(const Program& program,
                                                 ir::Participants* participants = nullptr) const;
  // The reason in a sentence. Without any lock.
  std::string Why(const Wanted& wanted) const;
  // How many have been made or loaded so far, by all caches that count together.
  int64_t made() const { return config_.made->load(std::memory_order_relaxed); }
  // Counts a program that is missing; the caller that wants it has it made.
  void CountMissing(const Wanted& wanted) const;
  void ExplainLaunch(absl::FunctionRef<std::string()> text) const {
    if (config_.explain_launch) config_.explain_launch(text);
  }
  // A line a reason, with how often and, where one place stands out, where; empty if nothing was made.
  std::string Summary();
  // For weft_program_list, the newest first: a JSON object each.
  std::vector<std::string> List();
  // All of them, in no order.
  std::vector<std::shared_ptr<const Program>> Programs() const;
  // Positions of a program's nodes in its canonical form, as they were when it was made; none if memory has let go of them.
  std::vector<ir::Location> PositionsOf(const Program& program);
  // Counts a launch of a program that its owner kept, without a lookup: a hit like others.
  void Used(const Program& program);
  // Loads or compiles it, unless somebody has done so meanwhile; takes as long as that takes. Programs are kept until
  // there are too many: the one that was not asked for for longest goes first. An error is not remembered.
  // `progress` may be null.
  absl::StatusOr<std::shared_ptr<const Program>> Make(Wanted wanted, CompileProgress* progress = nullptr);

 private:
  void Note(absl::FunctionRef<std::string()> text) const {
    if (config_.note) config_.note(text);
  }
  bool Stores() const { return config_.store != nullptr && config_.backend->Serializes(); }
  std::shared_ptr<Program> Known(Key key, std::string_view canonical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Under what the store has a program: its trace with this build, or its source, whose text `source` then holds.
  struct Place {
    Key key;
    std::string_view canonical;
  };
  absl::StatusOr<Place> PlaceOf(const Wanted& wanted, std::string* source) const;
  absl::Status Lower(Wanted& wanted) const;
  // `module`: behind the passes.
  void Dump(const Program& program, const ir::Module& module, std::string_view drawing) const;
  // Null on any kind of miss.
  absl::StatusOr<std::unique_ptr<Executable>> Load(const Place& place);
  // Compiles a module that went through the passes.
  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Wanted& wanted, const Place& place,
                                                      CompileProgress* progress, int64_t start);
  struct Made {
    std::string name;
    int64_t nanoseconds = 0;
    bool loaded = false;
    int64_t whole_results = 0;  // Program::whole_results
  };
  // Names the results of which no rule knows how they lie and nobody else did, and counts them.
  int64_t CountWhole(const ir::Module& module, std::span<const passes::UnknownResult> unknown) const;
  std::shared_ptr<const Program> Keep(Wanted& wanted, std::unique_ptr<Executable> executable, Made made);
  // Finds what a missing program differs in from the known program that is nearest.
  void FindReason(const Trace& trace, Wanted* wanted);
  std::shared_ptr<const Program> NearestTo(const Outline& outline, Difference* difference)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts how often this reason has come at this place, this time included.
  int64_t CountAt(const Difference& difference);
  // Notes the shape of a program that has to be compiled, whose module has not been through the passes; where memory has nothing like
  // it, looks on disk for one of the same shape.
  void FindStoredReason(Wanted* wanted) const;
  void KeepOutline(const std::shared_ptr<Program>& program, std::shared_ptr<const Outline> outline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Explain(const Wanted& wanted, const std::string& why, const Made& made);
  // The one that comes back from there; it ends without the lock.
  std::shared_ptr<Program> TakeOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Config config_;
  std::string prefix_;  // options, versions and target: the beginning of every canonical form
  std::string target_;  // the beginning of every source
  // The trace in hand; they keep their capacity.
  std::string canonical_;
  PassedNodes passed_nodes_;
  mutable Mutex mutex_;
  absl::flat_hash_map<Key, absl::InlinedVector<std::shared_ptr<Program>, 1>> programs_ ABSL_GUARDED_BY(mutex_);
  int64_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of all programs
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  // Outlines take at most so many bytes; so many keys of dropped programs are remembered.
  static constexpr size_t kMostOutlineBytes = size_t{16} << 20, kMostDropped = 4096;
  size_t outline_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<Key> dropped_ ABSL_GUARDED_BY(mutex_);
  // By reason and place.
  absl::flat_hash_map<std::pair<uint8_t, uint64_t>, int64_t> times_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::compiler
