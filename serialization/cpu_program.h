// The CPU backend's compiled programs as plain data: a tree of launch lists, where every buffer lies, the code; and their
// bytes in a compile-cache entry (schema/cpu_program.capnp), which has the checksums. What the data mean and whether they
// make sense is src/backends/cpu/launch's business.
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
    kCarried,   // index: Program::carried
  };
  Place place = Place::kArena;
  uint32_t index = 0;
  int64_t offset = 0;
  friend bool operator==(const BufferRef&, const BufferRef&) = default;
};

// One step of a launch list.
struct Entry {
  enum class Type : uint8_t {
    kLoop,    // generated code: `code` is its position in Program::loops
    kHost,    // a kernel of the library: `code` is its position in Program::host_kernels
    kRepeat,  // a list run again and again: `code` is its position in Program::controls
    kBranch,  // one of several lists, likewise
  };
  Type type = Type::kLoop;
  uint32_t code = 0;
  // A repeat's: first, if it has a condition, the byte that tells; then pairs of carried buffers, which change places
  // after every run of the body. A branch's: the i32 that chooses.
  std::vector<BufferRef> buffers;
  std::vector<int64_t> params;
  int64_t tasks = 0;          // of a loop
  int64_t cost = 0;           // CostOf
  int64_t scratch_bytes = 0;  // per thread
  int64_t writes = 0;         // bytes that one run writes, about
  int64_t reads = 0;          // and reads, each once
  int64_t flops = -1;         // of a loop: operations on floats; -1: see the kernel's parameters
  // The epilogue of a product: a loop that runs over each finished block of its result while that is in cache. Its
  // buffers are the last `epilogue_buffers` of `buffers`; its parameters are those of two dimensions, rows and columns
  // of the result.
  int32_t epilogue = -1;  // position in Program::loops
  uint32_t epilogue_buffers = 0;
  std::vector<int64_t> epilogue_params;
  // The position among those buffers of the product's result where only the epilogue reads it, or -1.
  int32_t epilogue_consumes = -1;
  std::vector<uint32_t> origins;  // positions in Program::origins
};
using EntryList = std::vector<Entry>;

// The lists of a repeat or a branch. Every list but the first belongs to one control, and stands behind the list that the
// control's entry is in.
struct Control {
  // A counted repeat's body; a condition, which leaves its byte, and the body that runs as long as the byte is not 0; a
  // branch's cases, of which the last also serves indices that have none.
  std::vector<uint32_t> lists;
  int64_t trips = -1;  // of a counted repeat
};

// A node that an entry came from.
struct Origin {
  std::string op;
  // "train.py:42", "" if unknown: of the recording for which the program was compiled. Other recordings may get the same
  // program, so this is not part of its bytes: a program from a file has none.
  std::string where;
  friend bool operator==(const Origin&, const Origin&) = default;
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
  std::vector<std::string> loops;                            // keys
  std::vector<std::string> host_kernels;                     // names
  std::vector<EntryList> lists = std::vector<EntryList>(1);  // the first is the program's
  std::vector<Control> controls;
  std::vector<Origin> origins;
  int64_t arena_bytes = 0;
  std::vector<int64_t> carried;  // where in the arena each begins a launch
  std::string constants;         // 64-byte aligned pieces
  std::vector<std::shared_ptr<const CodeObject>> objects;
  std::string micro_kernels;  // KernelSet::ExportObjects
};

// INTERNAL if it is larger than a cache entry may be.
absl::StatusOr<std::string> EncodeProgram(const Program& program);
// DATA_LOSS for what is no such message; `bytes` may be anything. References inside are not checked.
absl::StatusOr<Program> DecodeProgram(std::string_view bytes);

}  // namespace weft::cpu
