// A board holds what members of a group know of each other: which call each is in, and of small calls the elements
// themselves. It is the part of an engine that does not depend on where large buffers lie; in_process.h stands on it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/distributed/communicator.h"
#include "src/distributed/rendezvous.h"

namespace weft::distributed {

// Inputs of so many bytes lie in the cells: everybody reads them there, and one meeting is enough.
inline constexpr int64_t kSmallBytes = 512;

// A cell holds what one member shows. Each member has two: it may be one call ahead of those who still read the last
// one's. A cell holds no pointers.
struct Cell {
  alignas(64) std::atomic<uint32_t> entered;  // calls that this member has begun
  std::atomic<uint32_t> arrived;              // phases whose end it has come to
  char label[64];                             // shown in errors behind the rank: a device, or a process and its host
  CallRecord record[2];
  alignas(64) std::byte small[2][kSmallBytes];
};

// The reason why a group is poisoned. Written once, by whom Rendezvous::ClaimPoison picked, and read when it is poisoned.
class CauseKeeper {
 public:
  virtual ~CauseKeeper() = default;
  virtual void Keep(const absl::Status& why) = 0;
  virtual absl::Status Kept() const = 0;
};

// The way of a call through a board; where the buffers of large calls lie is the engine's to say.
class BoardMember : public Communicator {
 public:
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  absl::Status Start(const Collective& call) final;
  absl::Status Wait(const Patience& patience) final;
  void Abort(const absl::Status& why) final { (void)Fail(why); }
  absl::Status Poisoned() const final;

 protected:
  // All outlive the member.
  BoardMember(int rank, int size, Rendezvous* meeting, Cell* cells, CauseKeeper* causes);

  // FAILED_PRECONDITION where this process cannot take part any more.
  virtual absl::Status Usable() const = 0;
  // Says where the buffers of a large call lie; before this member arrives at it.
  virtual void Publish(const Collective& call) = 0;
  // A large call on which all members agree: from behind the first meeting to the last. False if the group is poisoned.
  virtual bool Exchange(const Collective& call, const Patience& patience) = 0;
  // After the group was poisoned: until nobody touches this member's buffers any more.
  virtual void Quiesce() = 0;
  // A rank whose process has ended, or -1; asked each LooksEveryNs of a wait.
  virtual int EndedRank() const { return -1; }
  virtual int64_t LooksEveryNs() const { return 1'000'000'000; }
  // The engine's destructor calls this, while its other functions still work.
  void Leave();

  // This member has come to the end of `phase`; `entered`: with a call that it began just now, which its cell shows.
  virtual void Meet(uint32_t phase, [[maybe_unused]] bool entered) { meeting_->Arrive(phase); }

  // Poisons the group with this, or returns what it is poisoned with.
  absl::Status Fail(const absl::Status& why);
  // Tells whether a wait had better end now; OK: not yet.
  absl::Status WhyGiveUp(const Patience& patience) const;
  // Comes to the end of the present phase, and waits until it has ended: false if the group was poisoned before it did, as it is
  // when the patience ends.
  void Arrive(bool entered = false);
  bool Await(const Patience& patience);
  // This member's output of a call, of any kind, from the inputs of all ranks. `stride`: elements from one part of the output to
  // the next.
  void Pull(const Collective& call, std::span<const void* const> inputs, int64_t stride) const;
  bool poisoned() const { return meeting_->poisoned(); }

 private:
  absl::Status TryStart(const Collective& call);
  absl::Status TryWait(const Patience& patience);
  // Poisons the group without a reason: there is no memory for one.
  void FailSilently();
  bool IsSmall(const Collective& call) const;
  bool RunSmall() const;
  absl::Status CheckAgreement() const;
  absl::Status EndedText(int ended) const;
  // Tells the watch of a wait that has been long, where this is the first of those who wait.
  void TellWatch(const Watch& watch) const;
  // The error of a wait that ends by `code`; `when`: "before the deadline".
  absl::Status Late(absl::StatusCode code, std::string_view when) const;
  std::string NameOfRank(int rank) const;
  std::string RanksText(std::span<const int> ranks) const;
  const CallRecord& RecordOfRank(int rank) const { return cells_[rank].record[calls_ % 2]; }

  const int rank_;
  const int size_;
  Rendezvous* const meeting_;
  Cell* const cells_;
  CauseKeeper* const causes_;
  uint32_t calls_ = 0;   // begun
  uint32_t phases_ = 0;  // ended
  bool started_ = false;
  Collective call_;
  mutable std::vector<const void*> inputs_, parts_;  // room
};

}  // namespace weft::distributed
