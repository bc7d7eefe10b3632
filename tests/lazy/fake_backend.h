// A backend for tests of the engine: runs modules through the operations' own reference functions, on a thread of its
// own if asked, fails on demand, and ruins donated buffers, so that a wrong donation shows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "src/backends/backend.h"

namespace weft::testing {

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(int device_count = 1, bool asynchronous = false);
  ~FakeBackend() override;

  std::string_view platform() const override { return "fake"; }
  std::span<Device* const> devices() const override { return device_pointers_; }
  Target target(const CompileOptions&) const override { return {"fake", "fake 1"}; }
  bool Claims(const ir::Node&) const override { return false; }
  absl::StatusOr<std::unique_ptr<Executable>> Compile(const ir::Module& module, const CompileOptions&) override;
  absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized) override;
  bool Serializes() const override { return serializes; }
  absl::StatusOr<Ref<Buffer>> ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes) override;
  absl::StatusOr<Ref<Buffer>> Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                    std::function<void()> release) override;
  absl::Status FromDevice(Buffer& buffer, int64_t offset, std::span<std::byte> destination) override;
  MemoryStats memory_stats(Device*) const override { return {live_bytes.load(), peak_bytes.load(), 0}; }
  int64_t bytes_available(Device*) const override { return room.load(); }

  // Runs before each compilation, on its thread. Set it while none is on its way.
  std::function<void()> on_compile;
  bool serializes = true;
  std::string refuses;  // no program with this in its text compiles
  // The next so many calls fail.
  std::atomic<int> fail_compiles{0};
  std::atomic<int> fail_executes{0};
  std::atomic<int> fail_runs{0};  // a kernel of the launch fails, after Execute has returned
  // A program with this operation fails when it runs, with this code; what it was to take over is as it was, or not.
  std::string refuses_to_run;
  absl::StatusCode run_code = absl::StatusCode::kInternal;
  bool spoils = false;
  std::atomic<int> fail_loads{0};
  std::atomic<int64_t> room{-1};  // what bytes_available says
  std::atomic<int64_t> live_bytes{0};
  std::atomic<int64_t> peak_bytes{0};
  std::atomic<int64_t> compiles{0};
  std::string last_module;  // text of the last one compiled
  // Of the last launch: the argument block, and how many buffers came with it.
  std::vector<uint32_t> last_words;
  size_t last_buffers = 0;

  // Runs now, or later in order.
  void Post(std::function<void()> task);

 private:
  void Work();

  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Device*> device_pointers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace weft::testing
