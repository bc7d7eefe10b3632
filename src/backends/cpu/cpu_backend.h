// The CPU backend: devices that share one memory, code compiled for the instruction set at hand, launches run in order on a thread of the
// device with the process's workers.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/backends/backend.h"
#include "src/backends/cpu/cpu_buffer.h"
#include "src/backends/cpu/jit/isa.h"
#include "src/backends/cpu/jit/jit.h"
#include "src/backends/has_workers.h"
#include "src/backends/host_writable.h"
#include "src/backends/shows_code.h"
#include "src/ops/custom/functions.h"
#include "src/runtime/backend_services.h"
#include "src/runtime/device_row.h"
#include "src/runtime/mutex.h"
#include "src/runtime/thread_pool.h"

namespace weft::cpu {

struct CpuOptions {
  int64_t devices = 1;       // that programs may name; launches of all run one after the other, by the same threads
  int threads = 0;           // below 1: as many as this process may use
  int compile_threads = 0;   // below 1: as many as `threads`
  std::string isa = "auto";  // "avx512", "avx2", "portable"; CompileOptions::isa overrides it
  std::shared_ptr<ops::CustomFunctions> custom = nullptr;  // what programs may call by name
  CodeWatch watch = {};                                    // its log is that of `services`
  BackendServices services = {};                           // the budget: of tensors, temporaries and scratch
};

class CodeCache;
class LaunchQueue;

class CpuBackend final : public Backend, public HostWritable, public HasWorkers, public ShowsCode {
 public:
  // FAILED_PRECONDITION if this machine cannot run the instruction set, INVALID_ARGUMENT for an unknown one.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const CpuOptions& options = {});
  // Waits for all launches.
  ~CpuBackend() override;

  std::string_view platform() const override { return "cpu"; }
  std::span<Device* const> devices() const override { return devices_.all(); }
  bool shares_memory() const override { return true; }
  Target target(const CompileOptions& options) const override;
  bool Claims(const ir::Node& composite) const override;
  absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module, const CompileOptions& options) override;
  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized) override;
  absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes) override;
  absl::StatusOr<Writable> NewWritable(Device* device, DType dtype, std::span<const int64_t> dims) override;
  absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release) override;
  absl::Status FromDevice(Buffer& buffer, int64_t offset, std::span<std::byte> destination) override;
  void Split(int64_t count, ThreadPool::RangeFn fn) override { pool()->ParallelRanges(count, fn); }
  // kLoops: behind the fused module and the launch list.
  absl::StatusOr<std::string> CodeText(const ir::Module& module, const CompileOptions& options, CodeForm form) override;
  MemoryStats memory_stats(Device* device) const override;
  // A JSON object says what the memory is used for, in bytes.
  std::string attributes(Device* device) const override;
  int64_t bytes_available(Device* device) const override;

  bool Help() override;
  void Trim(Device* device) override;
  void Close() override;

  std::shared_ptr<ThreadPool> pool() const;
  const KeptPanels& panels() const { return *panels_; }

 private:
  CpuBackend(const CpuOptions& options, CpuTarget target);
  absl::StatusOr<std::shared_ptr<CodeCache>> CodeFor(std::string_view isa);

  CpuOptions options_;
  CpuTarget target_;
  const DeviceRow devices_;
  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<KeptPanels> panels_;
  std::shared_ptr<BlockPool> blocks_;
  std::shared_ptr<LaunchQueue> queue_;
  const int threads_, compile_threads_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<CodeCache>> code_ ABSL_GUARDED_BY(mutex_);  // by fingerprint
};

}  // namespace weft::cpu
