// From a trace to something that can be launched: memory first, then the store, then passes and the backend. The key is
// right, not lucky: a hit counts only if the stored canonical form is equal.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "src/backends/backend.h"
#include "src/compiler/build_id.h"
#include "src/compiler/store.h"
#include "src/compiler/trace.h"
#include "src/ir/function.h"
#include "src/runtime/held_types.h"
#include "src/runtime/metrics.h"
#include "src/runtime/mutex.h"

namespace weft::compiler {

// Loaded and ready.
struct Program {
  std::string canonical;
  std::unique_ptr<Executable> executable;
  int64_t bytes = 0;
  mutable uint64_t last_used = 0;  // the cache's, under its lock
};

// A program that is not there yet, and everything it can be made of without looking at the recorded graph again.
struct Wanted {
  Key key;
  std::string canonical;
  ir::Module module;
  int64_t nodes = 0;
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
    // What is kept in memory at most: a loop over ever new shapes would otherwise grow for ever. Bytes are those of canonical
    // forms and of what executables say that they take; 0: no limit.
    int64_t max_programs = 2'048;
    int64_t max_bytes = int64_t{256} << 20;
    ProgramStore* store = nullptr;  // may be null
    Metrics* metrics = nullptr;
    std::function<void(std::string text)> warn;
    // What goes its way: `text` is asked only if somebody listens. May be empty.
    std::function<void(absl::FunctionRef<std::string()> text)> note;
  };
  explicit ProgramCache(Config config);

  // The program of the trace, or null and what it takes to make it.
  std::shared_ptr<const Program> Find(const Trace& trace, Wanted* wanted);
  // What the program computes, its parameters the arguments of the trace: as it was recorded, before all passes.
  absl::StatusOr<Ref<const ir::Function>> Source(const Program& program) const;
  // What somebody has kept is launched again without being looked for: a hit like others.
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
  // Null on any kind of miss.
  absl::StatusOr<std::unique_ptr<Executable>> Load(const Place& place);
  // Of a module that went through the passes.
  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Wanted& wanted, const Place& place,
                                                      CompileProgress* progress, int64_t start);
  std::shared_ptr<const Program> Keep(Wanted& wanted, std::unique_ptr<Executable> executable);
  // The one that comes back from there; it ends without the lock.
  std::shared_ptr<Program> TakeOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Config config_;
  std::string prefix_;     // options, versions and target: the beginning of every canonical form
  std::string target_;     // the beginning of every source
  std::string canonical_;  // of the trace in hand; keeps its capacity
  mutable Mutex mutex_;
  absl::flat_hash_map<Key, absl::InlinedVector<std::shared_ptr<Program>, 1>> programs_ ABSL_GUARDED_BY(mutex_);
  int64_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of all programs
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::compiler
