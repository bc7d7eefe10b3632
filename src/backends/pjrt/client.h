// A plugin's client: its devices, and buffers on them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/backends/pjrt/aside.h"
#include "src/backends/pjrt/create_options.h"
#include "src/backends/pjrt/plugin.h"
#include "src/backends/pjrt/usage.h"
#include "src/backends/pjrt/watch.h"
#include "src/runtime/buffer.h"

namespace weft::pjrt {

// PJRT's number for an element type; kInvalid for those that programs do not compute with.
api::ElementType ElementTypeOf(DType dtype);

// The limits of each device; 0: none.
struct Limits {
  int64_t bytes = 0;
  int64_t deadline_ms = 0;  // of a launch or a copy
};

// Owned by its backend and by every buffer and executable of it. Thread rule: any thread.
class Client {
 public:
  static absl::StatusOr<std::shared_ptr<Client>> Create(const Plugin& plugin, const CreateOptions& options,
                                                        const Limits& limits);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return plugin_; }
  api::Client* get() const { return client_; }
  const std::string& platform() const { return platform_; }
  // Names everything about these devices that code depends on: Topology::fingerprint, or the next best where the plugin
  // has no topology.
  const std::string& fingerprint() const { return fingerprint_; }
  const std::vector<api::Device*>& devices() const { return devices_; }
  std::string KindOf(api::Device* device) const;
  api::DeviceDescription* DescriptionOf(api::Device* device) const;  // null: the plugin has none
  // Returns the device's number as the plugin counts, on all machines.
  int64_t IdOf(int device) const;
  Usage& usage(int device) const { return usage_[device]; }
  // Tells whether the plugin has shown that its programs are each for one device alone.
  bool alone() const { return alone_.load(std::memory_order_relaxed); }
  void SetAlone() { alone_.store(true, std::memory_order_relaxed); }
  // Tells whether a part of a buffer's bytes may be asked for: the devices are CPUs, which keep tensors dense and
  // row-major, and have not refused.
  bool raw() const { return raw_.load(std::memory_order_relaxed); }
  void SetRaw(bool raw) const { raw_.store(raw, std::memory_order_relaxed); }
  // Null: there is no deadline.
  Watch* watch() const { return watch_.get(); }
  // Has a device do something within the deadline. `begin` calls the plugin; where it succeeds, its last call is the Forward that
  // completes the event that it is given. `done` is completed then, when `begin` fails, or when the time is over: the outcome is
  // nothing if `begin` has not returned by then. It goes on without its caller, so it owns what it uses. `what` is for the error.
  using Begins = std::function<absl::Status(const Ref<Event>& ended)>;
  std::optional<absl::Status> Begin(int device, std::string what, Begins begin, const Ref<Event>& done) const;
  // Ends the threads of the deadline, when nothing begins any more.
  void Close() const;

 private:
  explicit Client(const Plugin& plugin) : plugin_(plugin) {}

  const Plugin& plugin_;
  api::Client* client_ = nullptr;
  std::string platform_, fingerprint_;
  std::vector<api::Device*> devices_;
  std::unique_ptr<Usage[]> usage_;
  std::unique_ptr<Watch> watch_;
  mutable Aside aside_;
  std::atomic<bool> alone_{false};
  mutable std::atomic<bool> raw_{false};
};

// Thread rule: any thread.
class PjrtBuffer final : public Buffer {
 public:
  // Takes the plugin's buffer over, and the count of its bytes. Null: a launch or copy that was given up has none, and `ready` is an
  // error already.
  PjrtBuffer(std::shared_ptr<Client> client, Device* device, DType dtype, Dims dims, Ref<Event> ready, Share share,
             api::Buffer* buffer);

  // The host cannot read it in place.
  void* host_data() override { return nullptr; }
  api::Buffer* get() const { return buffer_; }
  // A launch owns the buffer now, and has given its bytes back, too.
  void TakenOver() { share_.Forget(); }

  // Copies bytes from `offset` on, as they lie in a dense row-major tensor. Where devices do not give pieces, a buffer
  // that is asked for in pieces is fetched once and kept until its last byte was asked for.
  absl::Status Read(int64_t offset, std::span<std::byte> destination);

 private:
  ~PjrtBuffer() override;
  absl::Status Fetch(std::span<std::byte> destination);
  // Some bytes, where the device has them as the host does. False: it cannot, or will not be asked.
  bool FetchSome(int64_t offset, std::span<std::byte> destination) const;

  const std::shared_ptr<Client> client_;
  Share share_;
  api::Buffer* const buffer_;
  Mutex mutex_;
  std::byte* fetched_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace weft::pjrt
