// The workloads by name: what is recorded for one step of each.
#pragma once

#include <span>

#include "net.h"

namespace workloads {

enum class Does : uint8_t {
  kInfer,      // computes what the network gives
  kGradients,  // and the gradients of its parameters; the network gives the loss
  kMomentum,   // the same and a step of SGD with momentum
  kAdamW,      // the same of AdamW
  kUpdate,     // AdamW's step alone: the inputs are the gradients
};

struct Workload {
  const char* name;
  Does does;
  double gbytes;  // that must go through memory once; 0: products count alone
  Tensor (*network)(Net& net);
  bool in_bf16 = true;  // makes sense there, too
  const char* text = "";
  bool images = false;  // that may be channels-first
  bool channels_first = false;
  int passes = 3;  // with gradients, over the products: forwards, for what is multiplied, for parameters
};

std::span<const Workload> All();
// Layers alone that show what channels first cost beside channels last; no rows of the table.
std::span<const Workload> Layers();

}  // namespace workloads
