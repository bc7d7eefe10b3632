// What the fake plugin's handles stand for.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/backends/pjrt/api.h"
#include "src/ir/function.h"
#include "src/runtime/event.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft::pjrt::fake {

absl::StatusOr<DType> DTypeOf(api::ElementType type);
api::ElementType ElementTypeOf(DType dtype);

// A device: a thread that does one thing after the other. Thread rule: any thread, but Stop.
class Line {
 public:
  Line() : thread_([this] { Run(); }) {}
  ~Line();
  void Add(std::function<void()> task);
  bool IsThisThread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void Run();
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Bytes on a device, counted until the last who uses them lets go.
struct Storage {
  Storage(api::Device* device, DType dtype, Dims dims);
  ~Storage();
  void GiveBack();  // the count alone: what is here was taken over

  api::Device* const device;
  const DType dtype;
  const Dims dims;
  const int64_t bytes;
  const Ref<weft::Event> ready = MakeRef<weft::Event>();
  HostTensor value;  // there when `ready` is done without an error
 private:
  std::atomic<bool> counted_{true};
};

struct Compiled {
  std::string text;
  ir::Module module;            // of whole values; its participants say which device has which part
  Ref<const ir::Function> run;  // what all devices compute together, of whole values
  std::vector<api::ElementType> types;
  std::vector<int64_t> dims;
  std::vector<size_t> ranks;
};

}  // namespace weft::pjrt::fake

namespace weft::pjrt::api {

struct Error {
  absl::Status status;
};
struct Event {
  Ref<weft::Event> event;
};
struct DeviceDescription {
  int id = 0;
};
struct Device {
  DeviceDescription description;
  Client* client = nullptr;
  std::atomic<int64_t> bytes{0}, peak{0}, launches{0};
  fake::Line line;
};
struct Topology {
  std::deque<DeviceDescription> owned;
  std::vector<DeviceDescription*> descriptions;
};
struct Client {
  Topology topology;
  std::vector<std::unique_ptr<Device>> owned;
  std::vector<Device*> devices;
};
struct Buffer {
  Mutex mutex;
  std::shared_ptr<fake::Storage> storage ABSL_GUARDED_BY(mutex);  // null: deleted
  Device* device = nullptr;
  ElementType type = ElementType::kInvalid;
  Dims dims;
  int64_t bytes = 0;
};
struct Executable {
  std::shared_ptr<const fake::Compiled> compiled;
  int64_t device = -1;  // whose it is; -1: any may run it
  std::vector<int64_t> all = {};  // of several: the device of each partition
};
struct LoadedExecutable {
  Client* client = nullptr;
  std::shared_ptr<const fake::Compiled> compiled;
  int64_t device = -1;
  std::vector<int64_t> all = {};
};
struct SerializedExecutable {
  std::string bytes;
};

}  // namespace weft::pjrt::api

namespace weft::pjrt::fake {

void Sleep(int64_t ms);
// On a device's thread: how long it takes for anything.
void Pause(const api::Device& device);
// UNAVAILABLE once the device is gone, RESOURCE_EXHAUSTED where it has no room for so much more.
absl::Status Alive(const api::Device& device);
absl::Status Room(const api::Device& device, int64_t bytes);

api::Buffer* NewBuffer(std::shared_ptr<Storage> storage);
absl::StatusOr<std::shared_ptr<Storage>> StorageOf(api::Buffer& buffer);

}  // namespace weft::pjrt::fake
