// What the evaluator's files share about cuts that cannot be had as they are.
#pragma once

#include <algorithm>

#include "src/lazy/device_state.h"

namespace weft::lazy {

// A cut whose owner has the lock open: its outputs are shown, and no other launch takes over what they are made of.
class OpenCut {
 public:
  OpenCut(DeviceState& state, const Cut& cut) : state_(state), cut_(cut) {
    state_.open_cuts.push_back(&cut_);
    for (const ir::Value& output : cut_.outputs) output.node->Show();
  }
  ~OpenCut() {
    for (const ir::Value& output : cut_.outputs) output.node->Hide();
    state_.open_cuts.erase(std::ranges::find(state_.open_cuts, &cut_));
  }
  OpenCut(const OpenCut&) = delete;
  OpenCut& operator=(const OpenCut&) = delete;

 private:
  DeviceState& state_;
  const Cut& cut_;
};

// RESOURCE_EXHAUSTED names the largest of the outputs; other outcomes as they are.
absl::Status OutOfMemory(const Cut& cut, const absl::Status& status);

}  // namespace weft::lazy
