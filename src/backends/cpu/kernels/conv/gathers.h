// Convolutions as their implementations see them. An implementation is a constant in a file of its own and a line of gathers.list or
// kernel_gradients.list.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/conv/conv_gather.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

// The forward pass, or the gradient of the input.
struct Gathering {
  const CpuTarget& target;
  ConvCall call;  // checked
  bool forward = true;
  bool tiles = true;  // register tiles serve the types, by gather.types
  GatherCall gather;  // the same, its operands as they lie
};

struct GatherImplementation {
  std::string_view name;  // as plans of launches show it
  // Null: it takes the call. Else why not, a literal.
  const char* (*refuses)(const Gathering& gathering);
  // Runs it, or prepares it, as the duty says.
  absl::Status (*run)(const Gathering& gathering, KernelSet::State& state, const Duty& duty);
  bool flows = false;  // takes the lines of a padded image as it comes to them (GatherCall::padded)
  // They are there if it packs the kernel of a forward pass, and can be given it packed: its bytes (0: this one is not packed), its form, the
  // packing, and the way back, if there is one: how many elements it gives (0: none).
  int64_t (*packed_bytes)(const Gathering& gathering) = nullptr;
  std::vector<int64_t> (*packed_form)(const Gathering& gathering) = nullptr;
  absl::Status (*pack)(const Gathering& gathering, char* packed, ThreadPool& pool) = nullptr;
  int64_t (*unpackable)(const Gathering& gathering) = nullptr;
  void (*unpack)(const Gathering& gathering, const char* packed, char* weights) = nullptr;
};

#define WEFT_GATHER(name) extern const GatherImplementation kGather##name;
#include "src/backends/cpu/kernels/conv/gathers.list"
#undef WEFT_GATHER

const GatherImplementation& ChooseGather(const Gathering& gathering);

struct KernelGradient {
  const CpuTarget& target;
  const ConvCall& call;  // checked
  bool tiles = true;     // register tiles serve the types, by `types`
  TypePlan types;
};

struct KernelGradientImplementation {
  std::string_view name;
  const char* (*refuses)(const KernelGradient& gradient);
  absl::Status (*run)(const KernelGradient& gradient, KernelSet::State& state, const Duty& duty);
};

#define WEFT_KERNEL_GRADIENT(name) extern const KernelGradientImplementation kKernelGradient##name;
#include "src/backends/cpu/kernels/conv/kernel_gradients.list"
#undef WEFT_KERNEL_GRADIENT

const KernelGradientImplementation& ChooseKernelGradient(const KernelGradient& gradient);

// Tells whether the gradient of the kernel takes pairs of pixels that lie side by side, which bf16 then has in place of sums of two.
bool WeightsInPairs(const ConvCall& call, const TypePlan& types);
// The gradient of a 1x1 kernel is a matrix product over all pixels: tells whether this is one.
bool IsProduct(const ConvCall& call);

// Elements of the operands.
int64_t XCount(const ConvCall& call);
int64_t YCount(const ConvCall& call);
int64_t WCount(const ConvCall& call);

}  // namespace weft::cpu
