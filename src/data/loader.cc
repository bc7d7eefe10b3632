// The threads of a loader and the queue between them and the caller. Slots stand in order; whichever thread is faster
// fills its own.
#include "src/data/loader.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "src/runtime/clock.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"
#include "src/runtime/trace.h"

namespace weft::data {
namespace {

constexpr int64_t kLookNs = 20'000'000;
constexpr int64_t kMostDepth = 1024, kMostThreads = 256;

// One batch on its way. `at` and `ends` never change; the rest is its thread's until it is ready, then the caller's.
struct Slot {
  Place at;
  bool ends = false;  // no batch, but an epoch's end
  bool ready = false;
  int64_t began_ns = 0;
  Batch batch;
  absl::Status status;
  std::shared_ptr<void> made;
};

// In order. No deque: that allocates where it is made, and a loader's end must not need memory.
using Slots = std::vector<std::shared_ptr<Slot>>;

std::string WhereText(const Place& at) { return absl::StrCat("epoch ", at.epoch, ", position ", at.position); }

}  // namespace

struct Loader::Core {
  Core(Ref<Dataset> dataset, Ref<Sampler> sampler, const LoaderOptions& options, Finish finish, Metrics* metrics)
      : dataset(std::move(dataset)),
        sampler(std::move(sampler)),
        options(options),
        finish(std::move(finish)),
        metrics(metrics),
        pool(static_cast<size_t>((options.depth + 1) * this->sampler->spec().batch *
                                 (this->dataset->bytes_of_item() + 1)) +
             this->dataset->fields().size() * static_cast<size_t>(options.depth + 1) * BlockPool::kGuardBytes),
        ahead{.seed = this->sampler->spec().seed},
        here(ahead) {}

  // A thread's life.
  static void Run(const std::shared_ptr<Core>& core);
  // The next slot that has to be filled; null: the loader is gone.
  std::shared_ptr<Slot> Begin();
  void Fill(Slot* slot) const;
  absl::StatusOr<std::shared_ptr<void>> Read(Slot* slot) const;
  absl::Status ReadItems(std::span<const int64_t> items, const std::vector<Block>& blocks) const;
  // Names the item that an error of many is about, by reading each alone.
  absl::Status Blamed(std::span<const int64_t> items, const std::vector<Block>& blocks, absl::Status status) const;
  void Filled(const std::shared_ptr<Slot>& slot);
  // Tells whether fewer than `depth` slots are taken.
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return static_cast<int64_t>(slots.size()) < options.depth;
  }
  // Returns the batches that were read ahead, so that they can die without the lock.
  [[nodiscard]] Slots Restart(const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Slots dropped;
    dropped.swap(slots);
    here = ahead = place;
    full_since_ns = 0;
    warm = false;
    changed.NotifyAll();
    return dropped;
  }
  // Notes when all slots are taken and ready: from then the threads wait for the caller.
  void NoteFull() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto ready = [](const std::shared_ptr<Slot>& one) { return one->ready; };
    if (!HasRoom() && std::ranges::all_of(slots, ready)) full_since_ns = MonotonicNow();
  }

  const Ref<Dataset> dataset;
  const Ref<Sampler> sampler;
  const LoaderOptions options;
  const Finish finish;
  Metrics* const metrics;
  mutable BlockPool pool;

  mutable Mutex mutex;
  CondVar changed;
  std::atomic<bool> stopped{false};
  Place ahead ABSL_GUARDED_BY(mutex);  // the first batch that nobody has begun
  Place here ABSL_GUARDED_BY(mutex);   // the first that was not given out
  Slots slots ABSL_GUARDED_BY(mutex);
  int64_t full_since_ns ABSL_GUARDED_BY(mutex) = 0;  // since then the threads have waited; 0: they do not
  bool warm ABSL_GUARDED_BY(mutex) = false;          // a batch was given out since the start: from then on waits count
};

// --- The threads ----------------------------------------------------------------------------------------------------------

void Loader::Core::Run(const std::shared_ptr<Core>& core) {
  while (true) {
    try {
      const std::shared_ptr<Slot> slot = core->Begin();
      if (slot == nullptr) return;
      core->Fill(slot.get());
      core->Filled(slot);
    } catch (const std::bad_alloc&) {  // not even for a slot: nothing has begun
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

std::shared_ptr<Slot> Loader::Core::Begin() {
  MutexLock lock(mutex);
  while (!stopped) {
    if (!HasRoom()) {
      changed.Wait(mutex);
      continue;
    }
    auto slot = std::make_shared<Slot>();
    slot->at = ahead;
    slot->began_ns = MonotonicNow();
    slots.push_back(slot);
    if (sampler->BatchesFrom(ahead.position) > 0) {
      ahead.position = std::min(ahead.position + sampler->spec().batch * sampler->spec().ranks, sampler->length());
      return slot;
    }
    slot->ends = slot->ready = true;
    ahead = {ahead.seed, ahead.epoch + 1, 0};
    NoteFull();
    changed.NotifyAll();
  }
  return nullptr;
}

void Loader::Core::Fill(Slot* slot) const {
  try {
    absl::StatusOr<std::shared_ptr<void>> made = Read(slot);
    slot->status = made.status();
    if (made.ok()) slot->made = *std::move(made);
  } catch (const std::bad_alloc&) {
    slot->status = absl::ResourceExhaustedError("no memory to read a batch");
  } catch (...) {
    slot->status = absl::UnknownError("reading a batch threw an exception");
  }
}

absl::StatusOr<std::shared_ptr<void>> Loader::Core::Read(Slot* slot) const {
  HostBatch batch;
  WEFT_RETURN_IF_ERROR(sampler->BatchAt(slot->at, &batch.batch));
  {
    MutexLock lock(mutex);  // a waiter for this batch may name its items
    slot->batch = batch.batch;
  }
  const std::span<const int64_t> items = batch.batch.items;
  int64_t bytes = 0;
  for (const Field& field : dataset->fields()) {
    const int64_t size = field.row_bytes * static_cast<int64_t>(items.size());
    WEFT_ASSIGN_OR_RETURN(batch.blocks.emplace_back(), pool.Take(static_cast<size_t>(size)));
    bytes += size;
  }
  const absl::Status status = ReadItems(items, batch.blocks);
  for (size_t f = 0; f < batch.blocks.size(); ++f) {
    const auto size = static_cast<size_t>(dataset->fields()[f].row_bytes) * items.size();
    if (!BlockPool::GuardIsWhole(batch.blocks[f], size)) {
      return UserError("reading ", ItemsText(items), ": field ", f, ": memory behind its ", size,
                       " bytes was written to");
    }
  }
  if (!status.ok()) return Blamed(items, batch.blocks, status);
  metrics->Add(Counter::kLoaderBytes, bytes);
  return finish(std::move(batch));
}

absl::Status Loader::Core::ReadItems(std::span<const int64_t> items, const std::vector<Block>& blocks) const {
  const std::vector<Field>& fields = dataset->fields();
  std::vector<std::byte*> into;
  std::vector<uint64_t> written;
  for (size_t f = 0; f < fields.size(); ++f) {
    into.push_back(blocks[f].get());
    written.push_back(static_cast<uint64_t>(fields[f].row_bytes) * items.size());
  }
  const std::vector<uint64_t> wanted = written;
  WEFT_RETURN_IF_ERROR(dataset->Read(items, into, written));
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto what = [&] {
      return absl::StrCat("field ", f, fields[f].name.empty() ? "" : absl::StrCat(" ('", fields[f].name, "')"), ": ");
    };
    if (written[f] != wanted[f]) {
      return UserError(what(), written[f], " bytes were written for ", items.size(),
                       items.size() == 1 ? " row; it takes " : " rows; they take ", wanted[f]);
    }
  }
  return absl::OkStatus();
}

absl::Status Loader::Core::Blamed(std::span<const int64_t> items, const std::vector<Block>& blocks,
                                  absl::Status status) const {
  std::string who = ItemsText(items);
  if (items.size() > 1) {
    for (const int64_t& item : items) {
      if (stopped) break;
      const absl::Status alone = ReadItems({&item, 1}, blocks);
      if (alone.ok()) continue;
      status = alone;
      who = ItemsText({&item, 1});
      break;
    }
  }
  return WithText(status, absl::StrCat("reading ", who, ": ", status.message()));
}

void Loader::Core::Filled(const std::shared_ptr<Slot>& slot) {
  MutexLock lock(mutex);
  slot->ready = true;
  NoteFull();
  changed.NotifyAll();
}

// --- The caller -----------------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(Ref<Dataset> dataset, Ref<Sampler> sampler,
                                                       const LoaderOptions& options, Finish finish, Metrics* metrics) {
  LoaderOptions read = options;
  if (read.depth < 1 || read.depth > kMostDepth) {
    return UserError("depth is ", read.depth, "; it is from 1 to ", kMostDepth);
  }
  if (read.threads < 0 || read.threads > kMostThreads) {
    return UserError("threads is ", read.threads, "; it is from 0 to ", kMostThreads);
  }
  if (sampler->spec().items != dataset->count()) {
    return UserError("the sampler is for ", sampler->spec().items, " items, the data set has ", dataset->count());
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(dataset->bytes_of_item() + 1, sampler->spec().batch * (read.depth + 1), &bytes)) {
    return UserError("a batch of ", sampler->spec().batch, " items of ", dataset->bytes_of_item(),
                     " bytes has more bytes than can be counted");
  }
  if (read.threads == 0) read.threads = read.depth;
  read.threads = std::min(read.threads, read.depth);
  if (dataset->most_at_once() != 0) read.threads = std::min(read.threads, dataset->most_at_once());
  return std::unique_ptr<Loader>(
      new Loader(std::make_shared<Core>(std::move(dataset), std::move(sampler), read, std::move(finish), metrics)));
}

Loader::~Loader() {
  Slots dropped;
  MutexLock lock(core_->mutex);
  core_->stopped = true;
  dropped.swap(core_->slots);
  core_->changed.NotifyAll();
}

absl::Status Loader::StartThreads() {
  if (started_) return absl::OkStatus();
  for (int64_t i = 0; i < core_->options.threads; ++i) {
    try {
      std::thread([core = core_] {
        NameThread("weft-io");
        Core::Run(core);
      }).detach();
    } catch (const std::system_error&) {
      if (i == 0) return absl::ResourceExhaustedError("the system has no thread to read data with");
      break;  // fewer do it, too
    }
  }
  started_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> Loader::Next(absl::FunctionRef<absl::Status()> look) {
  if (in_next_.exchange(true)) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "another thread is reading this loader; batches come in order, so one thread reads at a time");
  }
  const absl::Cleanup out = [this] { in_next_ = false; };
  WEFT_RETURN_IF_ERROR(StartThreads());
  Core& core = *core_;
  const int64_t began_ns = MonotonicNow(), deadline_ns = began_ns + core.options.timeout_ms * 1'000'000;
  std::shared_ptr<Slot> slot;
  Slots dropped;
  MutexLock lock(core.mutex);
  core.metrics->Add(Sample::kLoaderReady, std::ranges::count_if(core.slots, [](const auto& one) { return one->ready; }),
                    began_ns);
  while (core.slots.empty() || !core.slots.front()->ready) {
    const int64_t now = MonotonicNow();
    if (now >= deadline_ns) {
      const std::vector<int64_t> items = core.slots.empty() ? std::vector<int64_t>() : core.slots.front()->batch.items;
      return UserErrorOf(absl::StatusCode::kDeadlineExceeded, "reading ", ItemsText(items), " (", WhereText(core.here),
                         ") has not ended within ", core.options.timeout_ms, " ms");
    }
    lock.Unlock();
    const absl::Status status = look();
    lock.Lock();
    WEFT_RETURN_IF_ERROR(status);
    if (!core.slots.empty() && core.slots.front()->ready) break;
    core.changed.WaitUntil(
        core.mutex, std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(kLookNs, deadline_ns - now)));
  }
  const int64_t now = MonotonicNow();
  if (core.warm) core.metrics->Add(Counter::kNanosecondsLoaderWaits, now - began_ns);
  if (core.full_since_ns != 0) core.metrics->Add(Counter::kNanosecondsLoaderIdle, now - core.full_since_ns);
  core.full_since_ns = 0;
  slot = std::move(core.slots.front());
  core.slots.erase(core.slots.begin());
  if (!slot->status.ok()) {
    dropped = core.Restart(slot->at);
    return WithText(slot->status, absl::StrCat(slot->status.message(), " (", WhereText(slot->at), ")"));
  }
  core.warm = true;
  core.here = slot->ends ? Place{slot->at.seed, slot->at.epoch + 1, 0} : slot->batch.next;
  core.changed.NotifyAll();
  if (!slot->ends) core.metrics->Add(Counter::kLoaderBatches);
  return std::move(slot->made);
}

Place Loader::place() const {
  MutexLock lock(core_->mutex);
  return core_->here;
}

absl::Status Loader::MoveTo(const Place& place) {
  WEFT_RETURN_IF_ERROR(core_->sampler->Check(place));
  Slots dropped;
  MutexLock lock(core_->mutex);
  dropped = core_->Restart(place);
  return absl::OkStatus();
}

const Dataset& Loader::dataset() const { return *core_->dataset; }
const Sampler& Loader::sampler() const { return *core_->sampler; }

}  // namespace weft::data
