// See save_line.h. A few places at most, so they stand in one list, in order.
#include "serialization/save_line.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <string>

#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft {

struct SaveTurn::Lines {
  struct Place {
    uint64_t number;
    uint64_t device, inode;  // of the folder
    std::string name;
    uint64_t bytes;
    enum { kOutside, kLetIn, kRunning } state = kOutside;
    bool SameFile(const Place& other) const {
      return inode == other.inode && device == other.device && name == other.name;
    }
  };
  using Iterator = std::list<Place>::iterator;

  // A fork's child does not have the threads that the parent's saves run on, so it has lines of its own.
  static Lines& OfThisProcess();

  Iterator Find(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.number == number; });
  }
  int Before(Iterator place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return static_cast<int>(
        std::count_if(places.begin(), place, [&](const Place& other) { return other.SameFile(*place); }));
  }
  int InState(int least) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return static_cast<int>(
        std::count_if(places.begin(), places.end(), [&](const Place& other) { return other.state >= least; }));
  }
  bool MayEnter(Iterator place, uint64_t most_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (Before(place) >= kMostOfOneFile || InState(Place::kLetIn) >= kMostLetIn) return false;
    if (InState(Place::kLetIn) < kAtAnyRate) return true;
    uint64_t held = place->bytes;
    for (const Place& other : places) {
      if (other.state != Place::kOutside && __builtin_add_overflow(held, other.bytes, &held)) return false;
    }
    return held <= most_bytes;
  }
  bool MayRun(Iterator place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return Before(place) == 0 && InState(Place::kRunning) < kMostRunning;
  }
  template <typename May>
  absl::Status Wait(const Look& look, May&& may) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  Mutex mutex;
  CondVar changed;
  std::list<Place> places ABSL_GUARDED_BY(mutex);
  uint64_t last_number ABSL_GUARDED_BY(mutex) = 0;
  const uint64_t generation = ForkGeneration();
  Lines* parents = nullptr;  // kept: nobody knows who still looks at it
};

SaveTurn::Lines& SaveTurn::Lines::OfThisProcess() {
  static constinit std::atomic<Lines*> current{nullptr};
  Lines* lines = current.load(std::memory_order_acquire);
  while (lines == nullptr || lines->generation != ForkGeneration()) {
    auto fresh = std::make_unique<Lines>();
    fresh->parents = lines;
    if (current.compare_exchange_strong(lines, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  }
  return *lines;
}

template <typename May>
absl::Status SaveTurn::Lines::Wait(const Look& look, May&& may) {
  while (!may()) {
    if (look == nullptr) {
      changed.Wait(mutex);
      continue;
    }
    changed.WaitUntil(mutex, std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
    mutex.Unlock();
    const absl::Status status = look();
    mutex.Lock();
    WEFT_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

SaveTurn& SaveTurn::operator=(SaveTurn&& other) noexcept {
  std::swap(lines_, other.lines_);
  std::swap(number_, other.number_);
  return *this;
}

SaveTurn::~SaveTurn() {
  if (lines_ == nullptr) return;
  MutexLock lock(lines_->mutex);
  lines_->places.erase(lines_->Find(number_));
  lines_->changed.NotifyAll();
}

absl::StatusOr<SaveTurn> SaveTurn::Enter(const FilePlace& place, const Look& look, uint64_t bytes,
                                         uint64_t most_bytes) {
  WEFT_ASSIGN_OR_RETURN(const FileInfo folder, place.folder.Info());
  Lines& lines = Lines::OfThisProcess();
  SaveTurn turn;
  absl::Status status;
  {
    MutexLock lock(lines.mutex);
    lines.places.push_back({++lines.last_number, folder.device, folder.inode, place.name, bytes});
    turn.lines_ = &lines;
    turn.number_ = lines.last_number;
    const Lines::Iterator mine = std::prev(lines.places.end());
    status = lines.Wait(look, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return lines.MayEnter(mine, most_bytes); });
    mine->state = Lines::Place::kLetIn;
  }
  if (!status.ok()) return status;
  return turn;
}

absl::Status SaveTurn::Begin(const Look& look) {
  MutexLock lock(lines_->mutex);
  const Lines::Iterator mine = lines_->Find(number_);
  WEFT_RETURN_IF_ERROR(lines_->Wait(look, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return lines_->MayRun(mine); }));
  mine->state = Lines::Place::kRunning;
  return absl::OkStatus();
}

}  // namespace weft
