// See objects.h.
#include "tests/pjrt/fake/objects.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "tests/pjrt/fake/faults.h"

namespace weft::pjrt::fake {
namespace {

constexpr std::pair<api::ElementType, DType> kTypes[] = {
    {api::ElementType::kPred, DType::kBool}, {api::ElementType::kS8, DType::kI8},    {api::ElementType::kS16, DType::kI16},
    {api::ElementType::kS32, DType::kI32},   {api::ElementType::kS64, DType::kI64},  {api::ElementType::kU8, DType::kU8},
    {api::ElementType::kU16, DType::kU16},   {api::ElementType::kU32, DType::kU32},  {api::ElementType::kU64, DType::kU64},
    {api::ElementType::kF16, DType::kF16},   {api::ElementType::kF32, DType::kF32},  {api::ElementType::kF64, DType::kF64},
    {api::ElementType::kBF16, DType::kBF16}, {api::ElementType::kC64, DType::kC64}, {api::ElementType::kC128, DType::kC128}};

}  // namespace

absl::StatusOr<DType> DTypeOf(api::ElementType type) {
  for (const auto& [element, dtype] : kTypes) {
    if (element == type) return dtype;
  }
  return absl::UnimplementedError(absl::StrCat("fake: element type ", static_cast<int>(type)));
}
api::ElementType ElementTypeOf(DType dtype) {
  for (const auto& [element, own] : kTypes) {
    if (own == dtype) return element;
  }
  return api::ElementType::kInvalid;
}

Line::~Line() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Line::Add(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

void Line::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !ended_) changed_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

Storage::Storage(api::Device* device, DType dtype, Dims dims)
    : device(device), dtype(dtype), dims(std::move(dims)), bytes(CountOf(this->dims) * BytesOf(dtype)) {
  const int64_t now = device->bytes += bytes;
  int64_t peak = device->peak.load();
  while (now > peak && !device->peak.compare_exchange_weak(peak, now)) {
  }
}

Storage::~Storage() { GiveBack(); }

void Storage::GiveBack() {
  if (counted_.exchange(false)) device->bytes -= bytes;
}

void Sleep(int64_t ms) {
  if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

void Pause(const api::Device& device) {
  Sleep(Current()->slow_ms);
  while (Current()->hanging_device == device.description.id) Sleep(1);
}

absl::Status Alive(const api::Device& device) {
  const auto faults = Current();
  if (device.description.id != faults->dying_device || device.launches < faults->last_launch) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("fake: device ", device.description.id, " is gone"));
}

absl::Status Room(const api::Device& device, int64_t bytes) {
  const int64_t most = Current()->memory, held = device.bytes;
  if (most == 0 || held + bytes <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("fake: ", bytes, " bytes wanted, ", held, " of ", most, " in use"));
}

api::Buffer* NewBuffer(std::shared_ptr<Storage> storage) {
  auto* const buffer = new api::Buffer;
  buffer->device = storage->device;
  buffer->type = ElementTypeOf(storage->dtype);
  buffer->dims = storage->dims;
  buffer->bytes = storage->bytes;
  MutexLock lock(buffer->mutex);
  buffer->storage = std::move(storage);
  return buffer;
}

absl::StatusOr<std::shared_ptr<Storage>> StorageOf(api::Buffer& buffer) {
  MutexLock lock(buffer.mutex);
  if (buffer.storage == nullptr) return absl::InvalidArgumentError("fake: the buffer has been deleted or donated");
  return buffer.storage;
}

}  // namespace weft::pjrt::fake
