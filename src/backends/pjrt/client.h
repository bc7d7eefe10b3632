// A plugin's client: its devices, and buffers on them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "src/backends/pjrt/create_options.h"
#include "src/backends/pjrt/plugin.h"
#include "src/runtime/buffer.h"

namespace weft::pjrt {

// PJRT's number for an element type; kInvalid for those that programs do not compute with.
api::ElementType ElementTypeOf(DType dtype);

// What a device of the plugin's holds for us, counted here: not every plugin counts.
struct Usage {
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> peak{0};
  void Add(int64_t more);
};

// Owned by its backend and by every buffer and executable of it. Thread rule: any thread.
class Client {
 public:
  static absl::StatusOr<std::shared_ptr<Client>> Create(const Plugin& plugin, const CreateOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return plugin_; }
  api::Client* get() const { return client_; }
  const std::string& platform() const { return platform_; }
  // What code depends on of these devices: Topology::fingerprint, or the next best thing where the plugin has no topology.
  const std::string& fingerprint() const { return fingerprint_; }
  const std::vector<api::Device*>& devices() const { return devices_; }
  std::string KindOf(api::Device* device) const;
  Usage& usage(int device) const { return usage_[device]; }

 private:
  explicit Client(const Plugin& plugin) : plugin_(plugin) {}

  const Plugin& plugin_;
  api::Client* client_ = nullptr;
  std::string platform_, fingerprint_;
  std::vector<api::Device*> devices_;
  std::unique_ptr<Usage[]> usage_;
};

// Thread rule: any thread.
class PjrtBuffer final : public Buffer {
 public:
  // Takes the plugin's buffer over. `bytes` count for the device until it is gone.
  PjrtBuffer(std::shared_ptr<Client> client, Device* device, DType dtype, Dims dims, Ref<Event> ready,
             api::Buffer* buffer);

  // The host cannot read it in place.
  void* host_data() override { return nullptr; }
  api::Buffer* get() const { return buffer_; }

  // Copies bytes from `offset` on, as they lie in a dense row-major tensor. What is asked for in pieces is fetched once, and kept
  // until its last byte was.
  absl::Status Read(int64_t offset, std::span<std::byte> destination);

 private:
  ~PjrtBuffer() override;
  absl::Status Fetch(std::span<std::byte> destination);

  const std::shared_ptr<Client> client_;
  api::Buffer* const buffer_;
  Mutex mutex_;
  std::byte* fetched_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace weft::pjrt
