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

// Loaded and ready. Lives as long as its cache.
struct Program {
  std::string canonical;
  std::unique_ptr<Executable> executable;
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
    ProgramStore* store = nullptr;  // may be null
    Metrics* metrics = nullptr;
    std::function<void(std::string text)> warn;
  };
  explicit ProgramCache(Config config);

  // Compiles at most once per canonical form. On an error nothing is remembered, so the call may be repeated.
  absl::StatusOr<const Program*> Get(const Trace& trace);
  size_t size() const { return size_; }

 private:
  // Null on any kind of miss.
  std::unique_ptr<Executable> Load(Key key);
  absl::StatusOr<std::unique_ptr<Executable>> Compile(Key key, const Trace& trace);

  Config config_;
  std::string prefix_;     // options, versions and target: the beginning of every canonical form
  std::string canonical_;  // of the trace in hand; keeps its capacity
  absl::flat_hash_map<Key, absl::InlinedVector<std::unique_ptr<Program>, 1>> programs_;
  size_t size_ = 0;
};

}  // namespace weft::compiler
