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

// DLPack's device type and id, and who runs it. Lives as long as its backend.
struct Device {
  static constexpr int32_t kHost = 1;  // kDLCPU: the host's memory is the device's

  int32_t type = kHost;
  int32_t id = 0;
  std::string name;  // "cpu:0"
  std::string kind;  // "x86-64 avx512"
  Backend* backend = nullptr;

  bool is_host() const { return type == kHost; }
};

// Thread rule: any thread; the bytes may be read once `ready` is done.
class Buffer : public RefCounted {
 public:
  Buffer(Device* device, DType dtype, Dims dims, Ref<Event> ready)
      : device_(device), dtype_(dtype), dims_(std::move(dims)), ready_(std::move(ready)) {}

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
  ~Buffer() override = default;

 private:
  Device* device_;
  DType dtype_;
  Dims dims_;
  Ref<Event> ready_;
  std::atomic<int32_t> holds_{0};
};

}  // namespace weft
