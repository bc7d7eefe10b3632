// A tensor's bytes on one device, and the device. Contents never change while anyone but a donating launch refers to it.
#pragma once

#include <atomic>
#include <string>

#include "src/runtime/dtype.h"
#include "src/runtime/event.h"
#include "src/runtime/ref.h"
#include "src/runtime/shape.h"

namespace weft {

class Backend;

// How many bytes the buffers have that exist. Thread-safe.
struct LiveBytes final : RefCounted {
  std::atomic<int64_t> bytes{0};
};

// DLPack's device type and id, and the backend that runs it. Lives as long as its backend.
struct Device {
  static constexpr int32_t kHost = 1;  // kDLCPU: the host's memory is the device's

  int32_t type = kHost;
  int32_t id = 0;
  std::string name;  // "cpu:0"
  std::string kind;  // "x86-64 avx512"
  Backend* backend = nullptr;
  Ref<LiveBytes> live = MakeRef<LiveBytes>();  // one for all devices of a backend

  bool is_host() const { return type == kHost; }
};

// Thread rule: any thread; the bytes may be read once `ready` is done.
class Buffer : public RefCounted {
 public:
  // `has_bytes` is false for what stands for bytes that could not be, or need not be, made.
  Buffer(Device* device, DType dtype, Dims dims, Ref<Event> ready, bool has_bytes = true)
      : device_(device), dtype_(dtype), dims_(std::move(dims)), ready_(std::move(ready)) {
    if (!has_bytes) return;
    live_ = device->live;
    live_->bytes.fetch_add(bytes(), std::memory_order_relaxed);
  }

  Device* device() const { return device_; }
  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int64_t count() const { return CountOf(dims_); }
  int64_t bytes() const { return count() * BytesOf(dtype_); }
  const Event& ready() const { return *ready_; }
  const Ref<Event>& ready_event() const { return ready_; }

  // Host address, or null where the host cannot read the device.
  virtual void* host_data() = 0;

  // Exports, saves and views hold the bytes; a held buffer is never donated.
  void Hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  void Unhold() { holds_.fetch_sub(1, std::memory_order_release); }
  bool held() const { return holds_.load(std::memory_order_acquire) != 0; }

 protected:
  ~Buffer() override {
    if (live_) live_->bytes.fetch_sub(bytes(), std::memory_order_relaxed);
  }

 private:
  Device* device_;
  DType dtype_;
  Dims dims_;
  Ref<Event> ready_;
  Ref<LiveBytes> live_;  // outlives the device
  std::atomic<int32_t> holds_{0};
};

}  // namespace weft
