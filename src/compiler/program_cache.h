// From a trace to something that can be launched: memory first, then the store, then passes and the backend. The key is
// right, not lucky: a hit counts only if the stored canonical form is equal.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "src/backends/backend.h"
#include "src/compiler/store.h"
#include "src/compiler/trace.h"
#include "src/runtime/metrics.h"

namespace weft::compiler {

// Loaded and ready.
struct Program {
  std::string canonical;
  std::unique_ptr<Executable> executable;
  uint64_t last_used = 0;
};

// XXH3-128 of the canonical form, cut to `bits`.
Key KeyOf(std::string_view canonical, int bits = 128);

// One per backend and engine. Thread rule: under the engine's lock.
class ProgramCache {
 public:
  struct Config {
    Backend* backend = nullptr;
    CompileOptions options;
    int hash_bits = 128;
    // What is kept in memory at most: a loop over ever new shapes would otherwise grow for ever, by 2 KB for a sum and
    // 50 KB for an MLP's step. Programs take about three times the size of their canonical form.
    int64_t max_programs = 2'048;
    int64_t max_canonical_bytes = int64_t{256} << 20;
    ProgramStore* store = nullptr;  // may be null
    Metrics* metrics = nullptr;
    std::function<void(std::string text)> warn;
  };
  explicit ProgramCache(Config config);

  // The program lives until the next call at least. Compiles once per canonical form as long as it is kept; the one that
  // was not asked for for longest goes first. On an error nothing is remembered, so the call may be repeated.
  absl::StatusOr<const Program*> Get(const Trace& trace);
  int64_t size() const { return size_; }

 private:
  // Null on any kind of miss.
  std::unique_ptr<Executable> Load(Key key);
  void DropOldest();
  absl::StatusOr<std::unique_ptr<Executable>> Compile(Key key, const Trace& trace);

  Config config_;
  std::string prefix_;     // options, versions and target: the beginning of every canonical form
  std::string canonical_;  // of the trace in hand; keeps its capacity
  absl::flat_hash_map<Key, absl::InlinedVector<std::unique_ptr<Program>, 1>> programs_;
  int64_t size_ = 0;
  int64_t canonical_bytes_ = 0;  // of all programs
  uint64_t calls_ = 0;
};

}  // namespace weft::compiler
