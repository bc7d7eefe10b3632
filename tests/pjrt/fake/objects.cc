// See objects.h.
#include "tests/pjrt/fake/objects.h"

namespace weft::pjrt::fake {

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
