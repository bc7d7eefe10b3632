// See in_process.h.
#include "src/distributed/in_process.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "src/distributed/board.h"
#include "src/distributed/reduce.h"
#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"

namespace weft::distributed {
namespace {

// Bytes that a member works on between two looks at whether the group is poisoned.
constexpr int64_t kLookBytes = 256 << 10;
// The bytes of a result that goes to all outputs: a piece stays in the first cache until it has.
constexpr int64_t kTileBytes = 8 << 10;

struct Buffers {
  const void* input;
  void* output;
};

struct Group final : CauseKeeper {
  explicit Group(int members)
      : size(members), cells(new Cell[static_cast<size_t>(members)]()), buffers(static_cast<size_t>(members)) {
    meeting.Init(static_cast<uint32_t>(members), /*shared=*/false);
    fork.Started();
  }

  void Keep(const absl::Status& why) override {
    const MutexLock lock(mutex);
    cause = why;
  }
  absl::Status Kept() const override {
    const MutexLock lock(mutex);
    return cause;
  }

  const int size;
  Rendezvous meeting;
  const std::unique_ptr<Cell[]> cells;
  std::vector<Buffers> buffers;  // by rank; of the call that all are in
  std::atomic<int> working{0};   // members that may touch others' buffers
  ForkGuard fork;
  mutable Mutex mutex;
  absl::Status cause ABSL_GUARDED_BY(mutex);
};

class Member final : public BoardMember {
 public:
  Member(std::shared_ptr<Group> group, int rank)
      : BoardMember(rank, group->size, &group->meeting, group->cells.get(), group.get()),
        group_(std::move(group)),
        inputs_(static_cast<size_t>(size())),
        at_(static_cast<size_t>(size())) {}
  ~Member() override {
    if (!group_->fork.Forked()) Leave();
  }

 private:
  absl::Status Usable() const override {
    if (!group_->fork.Forked()) return absl::OkStatus();
    return UserErrorOf(
        absl::StatusCode::kFailedPrecondition,
        "the group was made before fork, and its other members did not come along; make a new group in the child");
  }

  void Publish(const Collective& call) override {
    group_->buffers[static_cast<size_t>(rank())] = {call.input, call.output};
  }

  bool Exchange(const Collective& call, const Patience& patience) override {
    group_->working.fetch_add(1, std::memory_order_seq_cst);
    const bool whole = !poisoned() && Work(call);
    group_->working.fetch_sub(1, std::memory_order_seq_cst);
    if (!whole) return false;
    Arrive();
    return Await(patience);
  }

  // False if the group was poisoned meanwhile.
  bool Work(const Collective& call) {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i] = group_->buffers[i].input;
    if (call.kind == CollectiveKind::kAllReduce) return AddOwnPart(call);
    Pull(call, inputs_, call.count);
    return true;
  }

  // Elements [rank / P, (rank + 1) / P) of all inputs go to all outputs.
  bool AddOwnPart(const Collective& call) {
    const int64_t each = BytesOf(call.dtype), tile = kTileBytes / each;
    const int64_t tiles = (call.count + tile - 1) / tile;
    const int64_t begin = std::min(call.count, tiles * rank() / size() * tile);
    const int64_t end = std::min(call.count, tiles * (rank() + 1) / size() * tile);
    auto* const own = static_cast<std::byte*>(call.output);
    for (int64_t i = begin; i < end; i += tile) {
      if ((i - begin) * each % kLookBytes == 0 && poisoned()) return false;
      const int64_t n = std::min(tile, end - i);
      const size_t offset = static_cast<size_t>(i * each), bytes = static_cast<size_t>(n * each);
      for (size_t k = 0; k < inputs_.size(); ++k) at_[k] = static_cast<const std::byte*>(inputs_[k]) + offset;
      Reduce(call.dtype, call.reduction, at_, own + offset, n);
      for (const Buffers& other : group_->buffers) {
        auto* const to = static_cast<std::byte*>(other.output);
        if (to != own) std::memcpy(to + offset, own + offset, bytes);
      }
    }
    return true;
  }

  // A member that works looks at the poison soon and never waits, so this is short.
  void Quiesce() override {
    while (group_->working.load(std::memory_order_seq_cst) != 0) sched_yield();
  }

  const std::shared_ptr<Group> group_;
  std::vector<const void*> inputs_, at_;  // room
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeInProcessGroup(int size, const std::vector<std::string>& labels) {
  auto group = std::make_shared<Group>(std::max(size, 1));
  std::vector<std::unique_ptr<Communicator>> members;
  for (int rank = 0; rank < group->size; ++rank) {
    const std::string_view label =
        static_cast<size_t>(rank) < labels.size() ? labels[static_cast<size_t>(rank)] : std::string_view();
    Cell& cell = group->cells[static_cast<size_t>(rank)];
    label.copy(cell.label, sizeof cell.label - 1);
    members.push_back(std::make_unique<Member>(group, rank));
  }
  return members;
}

}  // namespace weft::distributed
