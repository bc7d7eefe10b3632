// See callback_queue.h.
#include "src/lazy/service/callback_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace weft::lazy {
namespace {

// A record is some hundred bytes.
constexpr size_t kMostRecords = 4096;

}  // namespace

thread_local constinit bool CallbackQueue::running_ = false;

absl::StatusOr<std::shared_ptr<CallbackQueue>> CallbackQueue::Create() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("callbacks=queued: eventfd: ", std::strerror(errno)));
  return std::shared_ptr<CallbackQueue>(new CallbackQueue(fd));
}

CallbackQueue::~CallbackQueue() { close(fd_); }

void CallbackQueue::Append(One& one) {
  mutex_.AssertHeld();
  if (waiting_.empty()) {
    const uint64_t some = 1;
    (void)!write(fd_, &some, sizeof(some));
  }
  waiting_.splice(waiting_.end(), one);
}

void CallbackQueue::Add(One one) {
  {
    MutexLock lock(mutex_);
    if (!closed_) return Append(one);
  }
  RunEach(one);
}

void CallbackQueue::AddRecord(std::function<void()> record) {
  One one;
  one.push_back(std::move(record));
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      if (records_ == kMostRecords) {
        ++left_out_;
        return;
      }
      ++records_;
      return Append(one);
    }
  }
  RunEach(one);
}

CallbackQueue::One CallbackQueue::TakeAll(size_t* left_out) {
  mutex_.AssertHeld();
  uint64_t count = 0;
  (void)!read(fd_, &count, sizeof(count));
  *left_out = std::exchange(left_out_, 0);
  records_ = 0;
  return std::exchange(waiting_, {});
}

void CallbackQueue::RunEach(const One& all) {
  for (const auto& one : all) one();
}

size_t CallbackQueue::Run(const std::function<void(size_t left_out)>& say) {
  One now;
  size_t left_out = 0;
  {
    MutexLock lock(mutex_);
    now = TakeAll(&left_out);
  }
  const bool outer = std::exchange(running_, true);
  const absl::Cleanup back = [outer] { running_ = outer; };
  RunEach(now);
  if (left_out > 0) say(left_out);
  return now.size();
}

void CallbackQueue::Close() {
  One now;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    size_t left_out = 0;
    now = TakeAll(&left_out);
  }
  RunEach(now);
}

}  // namespace weft::lazy
