// One cut of the pending graph as a value: what is to be computed, out of what. Made by the planner, launched by the
// launcher; in between the engine's lock may be open.
#pragma once

#include <vector>

#include "src/compiler/trace.h"
#include "src/lazy/value/data.h"

namespace weft::lazy {

struct Cut {
  std::vector<ir::Value> outputs;  // pending and distinct
  // Per output: known data that its tensor has been assigned over, which the launch may take over; null if there is none.
  std::vector<Ref<Data>> offered;
  compiler::Trace trace;             // of the outputs; its nodes may be looked at until the lock is opened
  std::vector<Ref<Data>> arguments;  // of the trace
  size_t replayed = 0;               // nodes, where the trace has none because a noted program is launched
  size_t asked = 0;                  // so many of the outputs somebody asked for; the others may be left out
  uint64_t time = 0;                 // the recorder's, when it was planned: what came later is not in it

  bool empty() const { return outputs.empty(); }
  void Add(const ir::Value& value, Ref<Data> over = nullptr) {
    outputs.push_back(value);
    offered.push_back(std::move(over));
  }
  // Everything goes, the vectors' room stays: a steady loop allocates next to nothing.
  void Clear() {
    outputs.clear();
    offered.clear();
    trace.Clear();
    arguments.clear();
    replayed = asked = 0;
  }
  // Tells whether nothing of the cut has been computed by somebody else.
  bool Pending() const {
    for (const ir::Value& output : outputs) {
      if (DataOf(output) != nullptr) return false;
    }
    return true;
  }
};

}  // namespace weft::lazy
