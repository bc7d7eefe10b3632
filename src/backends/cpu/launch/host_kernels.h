// Kernels of a launch list that are library code: products, convolutions, pooling, data movement. Each has a name, which
// cached programs carry, and decodes its sizes from integers.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "src/backends/cpu/kernels/attention/attention.h"
#include "src/backends/cpu/kernels/kernels.h"
#include "src/backends/cpu/loop/block_loop.h"
#include "src/backends/cpu/loop/loop_ending.h"

namespace weft::cpu {

struct HostCall {
  std::span<void* const> buffers;
  std::span<const int64_t> params;
  KernelSet& kernels;
  ThreadPool& pool;
  const BlockLoop* epilogue = nullptr;  // of products; of kernels that call generated code, that code
  const void* packed = nullptr;         // what HostKernel::pack wrote, instead of the operand that it packs
  const void* plan = nullptr;           // what HostKernel::plan made; null: nothing
  // For kernels that read pieces: gives the bytes of the first operand from one on, in place of memory where it lies.
  const std::function<void(int64_t first, std::span<std::byte> to)>* piece = nullptr;
};
using HostFn = absl::Status (*)(const HostCall& call);

// A call that will be made: preparing it makes its tiles and scratch ready.
struct HostPreparation {
  std::span<const int64_t> params;
  KernelSet& kernels;
  int threads = 1;      // of the pool to come
  ScratchNeeds& needs;  // what the call will ask for is added
  const BlockLoop* epilogue = nullptr;
};

// The operand that every call packs anew, where it packs all of it.
struct PackedOperand {
  int buffer = -1;            // its position; none
  int64_t bytes = 0;          // as pack writes it
  std::vector<int64_t> form;  // calls for which it is equal write the same
  int64_t elements = 0;       // that `unpack` gives back, one after another; 0: it does not
};

struct HostKernel {
  std::string_view name;
  HostFn run;
  // Generates the micro-kernels that the call needs, says how much scratch, and refuses what cannot run. Null: it needs none.
  absl::Status (*prepare)(const HostPreparation& call) = nullptr;
  // Once for all launches, behind `prepare`: what `run` need not find out again. Null: nothing.
  std::shared_ptr<const void> (*plan)(const HostPreparation& call) = nullptr;
  // For kernels that take an operand packed: which one, if it is worth keeping so; and how it is packed.
  PackedOperand (*packs)(std::span<const int64_t> params, const CpuTarget& target) = nullptr;
  absl::Status (*pack)(const HostCall& call, void* to) = nullptr;
  // The operand's bytes from `first` on, as they lay before they were packed; whole elements.
  void (*unpack)(std::span<const int64_t> params, const CpuTarget& target, const void* packed, int64_t first,
                 std::span<std::byte> to) = nullptr;
  bool unpacks_pieces = false;  // quickly enough for a row at a time
  // Takes HostCall::piece: an embedding's rows are read out of the panel that a product made of it.
  bool reads_pieces = false;
  // Runs in place of `run`: the last buffer, a carried one, is from now on the first buffer from so many bytes on.
  int64_t (*find)(const HostCall& call) = nullptr;
  // For people: multiplications and additions of a call, and the type of what it multiplies.
  int64_t (*flops)(std::span<const int64_t> params) = nullptr;
  DType (*input)(std::span<const int64_t> params) = nullptr;
};

// Null for an unknown name.
const HostKernel* FindHostKernel(std::string_view name);

// Calls as integers: fields of kernels.h in order, pointers left out.
std::vector<int64_t> EncodeGemm(const GemmCall& call);
GemmCall DecodeGemm(std::span<const int64_t> params);
std::vector<int64_t> EncodeConv(const ConvCall& call);
// Adds to what EncodeConv made: the convolution's epilogue is this ending of its result.
void AppendEnding(const LoopEnding& ending, std::vector<int64_t>* params);
std::vector<int64_t> EncodePool(const PoolCall& call);
std::vector<int64_t> EncodeAttention(const AttentionGradientCall& call);  // or of its forward call alone

// Elements of the room that decompositions and solves of batches of [n, n] work in.
int64_t CholeskyPanel(int64_t n);
int64_t SolvePacked(int64_t batch, int64_t n);

// One list a file.
#define WEFT_CPU_RULES(name)
#define WEFT_CPU_KERNELS(name) std::span<const HostKernel> name##HostKernels();
#define WEFT_CPU_BOTH(name) WEFT_CPU_KERNELS(name)
#include "src/backends/cpu/launch/operations.list"
#undef WEFT_CPU_RULES
#undef WEFT_CPU_KERNELS
#undef WEFT_CPU_BOTH

}  // namespace weft::cpu
