// Reports what live tensors hold, in words and as JSON: when memory is short, and on request.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/backends/backend.h"
#include "src/lazy/value/live_list.h"
#include "src/runtime/hash_map.h"

namespace weft::lazy {

struct LiveReport {
  // Tensors that one line made and that have one type.
  struct Group {
    const ir::OpDef* maker = nullptr;  // null: from the caller
    ir::Location at;
    ir::Type type;
    int64_t count = 0, bytes = 0;
    int64_t held = 0;                              // of these, by the caller: no launch writes there
    uint64_t first_barrier = 0, last_barrier = 0;  // before which they were made, from 1
  };
  std::vector<Group> groups;  // the most bytes first; equal ones as they were made
  int64_t tensors = 0, bytes = 0;
  int64_t pending = 0;  // tensors that have no memory yet
  int64_t pending_nodes = 0;
  uint64_t barriers = 0;
};
// Collects a report over some tensors at a time, so that a lock need not be held for all: what comes or goes between is in it or is
// not. Memory that several tensors show counts once.
class LiveReporter {
 public:
  // Adds the next so many tensors from `at` on, which moves. Under the engine's lock.
  void Add(LiveList::Iterator& at, size_t most);
  LiveReport Take();

 private:
  // Tells whether it has not been seen yet, and notes it.
  bool IsNew(const Data* data);
  void Count(const Tensor& tensor, const Data& data);

  LiveReport report_;
  std::vector<const Data*> seen_;  // a table, half of it free
  size_t seen_count_ = 0;
  // By maker, place and bytes: groups are few, tensors many.
  HashMap<std::pair<std::pair<const void*, uint64_t>, uint64_t>, std::vector<size_t>> groups_;
};
LiveReport LiveReportOf(const LiveList& live);
std::string TextOf(const LiveReport& report, const MemoryStats& stats, const std::string& attributes,
                   const std::string& device);
std::string JsonOf(const LiveReport& report, const MemoryStats& stats, const std::string& attributes,
                   const std::string& device);

// "; the largest of 14 live tensors, which hold 812646400 bytes: f32[4096,4096] of 67108864 bytes (add, train.c:12), 3 x f32[8] of
// 96 bytes together (exp, train.c:9), …"; empty if none holds anything. Under the engine's lock.
std::string LargestLive(const LiveList& live);

}  // namespace weft::lazy
