// See objects.h.
#include "tests/pjrt/fake/objects.h"

#include "absl/strings/str_cat.h"

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

}  // namespace weft::pjrt::fake
