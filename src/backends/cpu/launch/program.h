// A compiled module before and after its way through the cache: the launch list, where every buffer lies, and the code.
// Plain data; execution is in executable.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "src/runtime/dtype.h"
#include "src/runtime/shape.h"

namespace weft::cpu {

// Where an entry finds a buffer.
struct BufferRef {
  enum class Place : uint8_t {
    kArgument,  // index: buffer argument
    kWords,     // offset into the launch's argument block
    kResult,    // index: result
    kArena,     // offset into the arena
    kConstant,  // offset into the constants
  };
  Place place = Place::kArena;
  uint32_t index = 0;
  int64_t offset = 0;
  friend bool operator==(const BufferRef&, const BufferRef&) = default;
};

// Rough picoseconds of one thread as a program keeps them. Sizes that no memory holds are planned too, so the largest
// stands for whatever is larger.
inline constexpr int64_t kMostCost = int64_t{1} << 50;
int64_t CostOf(double picoseconds);

// One step of the launch list.
struct Entry {
  enum class Type : uint8_t {
    kLoop,  // generated code: `code` is its position in Program::loops
    kHost,  // a kernel of the library: `code` is its position in Program::host_kernels
  };
  Type type = Type::kLoop;
  uint32_t code = 0;
  std::vector<BufferRef> buffers;
  std::vector<int64_t> params;
  int64_t tasks = 0;          // of a loop
  int64_t cost = 0;           // CostOf
  int64_t scratch_bytes = 0;  // per thread
  // Of a product: a loop that runs over each finished block of its result while that is in cache. Its buffers are the
  // last `epilogue_buffers` of `buffers`; its parameters are those of two dimensions, rows and columns of the result.
  int32_t epilogue = -1;  // position in Program::loops
  uint32_t epilogue_buffers = 0;
  std::vector<int64_t> epilogue_params;
  // Of those buffers, the product's result where only the epilogue reads it, or -1.
  int32_t epilogue_consumes = -1;
};

struct ValueSpec {
  DType dtype = DType::kInvalid;
  Dims dims;
};

// Machine code of some loops, as the linker takes it.
struct CodeObject {
  std::string bytes;
  std::vector<std::string> keys;  // form of each function, see LoopPlan::key
  std::vector<std::string> symbols;
};

struct Program {
  std::string fingerprint;
  std::string isa;
  std::vector<ValueSpec> arguments;
  std::vector<ValueSpec> results;
  std::vector<int32_t> donor;  // per result: the argument whose memory it may take over, or -1
  uint32_t words = 0;
  std::vector<std::string> loops;         // keys
  std::vector<std::string> host_kernels;  // names
  std::vector<Entry> entries;
  int64_t arena_bytes = 0;
  std::string constants;  // 64-byte aligned pieces
  std::vector<std::shared_ptr<const CodeObject>> objects;
  std::string micro_kernels;  // KernelSet::ExportObjects

  int64_t TotalCost() const;
};

// Little-endian, lengths before contents, a checksum over all. DATA_LOSS with the reason for anything else.
std::string SerializeProgram(const Program& program);
absl::StatusOr<Program> ParseProgram(std::string_view bytes);

// Checks that every reference stays inside what it refers to; ParseProgram has done it.
absl::Status CheckProgram(const Program& program);

// "k3 loop 0 (tasks 1): r0 <- a0 a1": for tests and dumps.
std::string ToString(const Program& program);

}  // namespace weft::cpu
