// A backend compiles a module for a target, loads it and runs it. Nothing above this interface knows which one runs.
// Compiling never needs a device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ir/function.h"
#include "src/runtime/buffer.h"
#include "src/runtime/cancel.h"
#include "src/runtime/event.h"
#include "src/runtime/generated/program_options.h"
#include "src/runtime/status.h"

namespace weft {

// A kind of device to compile for. `fingerprint` names everything machine code depends on (features, tuning, LLVM
// version); it is part of the cache key.
struct Target {
  std::string platform;     // "cpu"
  std::string fingerprint;  // "x86-64 avx512f,… llvm 19.1.7"
};

// How far a compilation is. The backend writes it, anybody may look at any time.
struct CompileProgress {
  // Says what is done with the program as long as no kernels are counted, behind "it is"; a literal.
  std::atomic<const char*> phase{"being loaded or prepared for the compiler"};
  std::atomic<int64_t> kernels{0};  // to be compiled; 0: not known yet
  std::atomic<int64_t> done{0};
};

struct CompileOptions : ProgramOptions {
  CompileProgress* progress = nullptr;  // may be null
  // Which devices run the module's processes, replica by replica and in each partition by partition: places among the
  // backend's devices, each once. Empty: any device for a program of one process, the backend's choice for others.
  std::vector<uint32_t> assignment = {};
};

struct ExecutableStats {
  int64_t kernels = 0;  // entries of the launch list
  int64_t temporary_bytes = 0;
  int64_t code_bytes = 0;
  int64_t kernels_compiled = 0;  // 0 if loaded
  int64_t memory_bytes = 0;      // that it takes while it is there: code and lists, not what launches use; 0: unknown
  // The bytes of arguments that a device has, and of those that become results, when the program was compiled here; -1: nobody counts.
  int64_t argument_bytes = -1;
  int64_t alias_bytes = -1;
  // As the device's compiler counts them for one run; -1: it does not.
  int64_t flops = -1;
  int64_t bytes_accessed = -1;
};

// A buffer of an entry, and the first and last entry that name the same place.
struct BufferDescription {
  std::string_view place;  // "argument", "result", "arena", …
  uint32_t index = 0;
  int64_t offset = 0;
  int64_t first = 0, last = 0;
};
// An entry of a launch list, as people read it.
struct KernelDescription {
  std::string name;            // "gemm", "weft.exponential_add.3fa2"
  std::string implementation;  // which code runs: "gemm few rows avx2 f32"
  std::string epilogue;        // a loop that runs over its finished blocks; may be empty
  bool control = false;        // the entries behind it that are deeper belong to it
  int depth = 0;
  std::string within;                              // of what it belongs to: "body", "condition", "case 1"
  std::vector<std::string> operations, positions;  // it came from; positions are empty for a program from a file
  int64_t tasks = 0;                               // of a loop
  int64_t flops = -1, bytes_read = -1, bytes_written = -1;  // of one run, about; -1: nobody knows
  std::vector<BufferDescription> buffers;
};
struct LaunchDescription {
  std::vector<KernelDescription> kernels;  // in order; what a control runs stands behind it
  int64_t arena_bytes = 0;
};

// Arguments of one device, in the order of the entry function's kBuffer parameters.
struct DeviceArguments {
  std::span<const Ref<Buffer>> buffers;
  std::span<const uint32_t> words;   // the launch's argument block
  std::span<const uint8_t> donated;  // per buffer: 1 = the executable may take it over
  // A running launch polls this token every few milliseconds, and ends with its status once it is cancelled or past its deadline.
  CancelToken cancel = {};
  Device* device = nullptr;  // where; null: the backend's first
};

struct DeviceResults {
  std::vector<Ref<Buffer>> buffers;  // in the order of the entry function's results; ready when `done` is
  Ref<Event> done;                   // an error sticks to the event and to every result
};

// Loaded and ready to launch. Thread rule: any thread may Execute; launches of one device run in call order. May be
// destroyed while its launches run.
class Executable {
 public:
  virtual ~Executable() = default;
  // Everything that can fail for the caller's or the machine's reasons (allocation, checks) fails here, before the
  // first kernel; then nothing has been donated.
  virtual absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) = 0;
  // Bytes that Backend::Load takes in another process of the same fingerprint.
  virtual absl::StatusOr<std::string> Serialize() const = 0;
  virtual ExecutableStats stats() const = 0;
  // Empty where the backend does not know what its device runs.
  virtual LaunchDescription Describe() const { return {}; }
};

struct MemoryStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes = 0;
  int64_t bytes_limit = 0;  // 0: unknown
};

// The callers of custom operations: programs; the engine between two of them, where a device's programs cannot call the
// host; nobody where nothing runs.
enum class CustomCallers : uint8_t { kPrograms, kEngine, kNobody };

// One per platform and context. Thread rule: any thread.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view platform() const = 0;
  virtual std::span<Device* const> devices() const = 0;
  // Tells whether every device reads and writes every buffer of the others in place. A value of several devices is then
  // one buffer, of the first of them, and a program for several is one launch there.
  virtual bool shares_memory() const { return false; }
  virtual Target target(const CompileOptions& options) const = 0;

  // Tells whether the composite runs whole here; otherwise it is expanded before this backend sees it.
  virtual bool Claims(const ir::Node& composite) const = 0;
  virtual CustomCallers custom_callers() const { return CustomCallers::kPrograms; }
  // The module after the shared passes: primitives and claimed composites. The backend itself decides which operations
  // become one kernel; src/passes/fuse.h helps those that want to.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module,
                                                              const CompileOptions& options) = 0;
  virtual absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized) = 0;
  // Tells whether its executables can be serialised; otherwise nothing is looked up or kept on disk.
  virtual bool Serializes() const { return true; }
  // Where code depends on the target and on a text alone, not on what this library has in it: the text. By it a program is then
  // looked up on disk, whichever build wrote it there.
  virtual bool HasSource() const { return false; }
  virtual absl::StatusOr<std::string> Source(const ir::Module& module) const {
    return InternalError("the platform ", platform(), " has no text of a module of ", module.functions.size(),
                         " functions");
  }

  // Copies host bytes (dense, row-major) to a new buffer. The source may be reused when the call returns.
  virtual absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                               std::span<const std::byte> bytes) = 0;
  // Takes over foreign host memory without a copy where the device can read it in place; `release` runs exactly once.
  virtual absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                            std::function<void()> release) = 0;
  // Waits for the buffer, then copies `destination.size()` bytes from byte `offset`.
  virtual absl::Status FromDevice(Buffer& buffer, int64_t offset, std::span<std::byte> destination) = 0;
  virtual MemoryStats memory_stats(Device* device) const = 0;
  // Returns further facts about the device, by the names that its maker gave them: a JSON object.
  virtual std::string attributes(Device* /*device*/) const { return "{}"; }
  // Returns the bytes that new tensors and temporaries may still take: the rest of the device's limit, or of the
  // machine's memory, with the bytes that this backend keeps for reuse. -1: unknown. May read files: for decisions
  // about hundreds of MiB.
  virtual int64_t bytes_available(Device* device) const = 0;
  // For a thread that waits: does a short launch that has not begun, if one is next. False: it can do nothing. Under no lock.
  virtual bool Help() { return false; }
  // Gives what is kept for reuse and not in use back to the system.
  virtual void Trim(Device* /*device*/) {}
  // Nothing runs and nothing will be launched: ends the threads, so that the release of the last buffer joins none.
  virtual void Close() {}
};

}  // namespace weft
