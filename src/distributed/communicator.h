// How members of a group run collectives together, whatever carries the bytes. Engines: in_process.h (threads of one process).
#pragma once

#include <cstdint>

#include "src/distributed/collective.h"
#include "src/distributed/watch.h"
#include "src/runtime/cancel.h"

namespace weft::distributed {

// How long Wait waits for the others.
struct Patience {
  int64_t deadline_ns = INT64_MAX;      // by MonotonicNow
  const CancelToken* cancel = nullptr;  // looked at each 10 ms while waiting
  int64_t began_ns = 0;                 // when the work began that `cancel` may end
  const Watch* watch = nullptr;         // hears of a wait that is long
};

// One member's end of a group. All members make the same calls in the same order; each call is Start and then Wait, one at a
// time. Whatever goes wrong for one member goes wrong for all, with the same status, which names the rank and the call:
//   FAILED_PRECONDITION  members called with another kind, reduction, type, count, root, pairs, tag or in another order
//   INVALID_ARGUMENT     a member made a call that CheckCollective refuses
//   DEADLINE_EXCEEDED    a member did not come, or did not end its part, before the deadline of the first whose patience ended
//   CANCELLED            a member's CancelToken ended the wait
//   UNAVAILABLE          a member left the group (its Communicator was destroyed) or died
//   any                  what a member gave to Abort
// From then on the group is poisoned: each later Start and Wait answers with that status at once. Nothing ever hangs beyond the
// deadline, and nothing is retried: make another group. A Wait that came back OK came back OK on all members that are not Unheard.
//
// When Wait has come back, with whatever, nobody reads or writes this member's buffers any more. After an error, what the output
// holds is undefined.
//
// Thread rule: one thread at a time, but Abort: any thread, at any time before the destructor. Members may be destroyed in any
// order; destroying one between Start and Wait poisons the group first. No allocation but for errors.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Says what this member calls, and returns without waiting. FAILED_PRECONDITION, with the group as it was, if the last call has
  // not been waited for.
  virtual absl::Status Start(const Collective& call) = 0;
  // Waits for the others, does this member's part, and waits until the result is whole.
  virtual absl::Status Wait(const Patience& patience) = 0;

  absl::Status Run(const Collective& call, const Patience& patience = {}) {
    WEFT_RETURN_IF_ERROR(Start(call));
    return Wait(patience);
  }

  // Poisons the group with this status, which is not OK, unless it is poisoned already. Does not wait.
  virtual void Abort(const absl::Status& why) = 0;
  // OK, or what the group is poisoned with. For members that do something else meanwhile.
  virtual absl::Status Poisoned() const = 0;
  // True where the group is poisoned without rank 0's word, which ended or was silent: it may have come back OK from the call that failed
  // here, and have acted on it. Where all members share memory that cannot be.
  virtual bool Unheard() const { return false; }

 protected:
  Communicator() = default;
};

}  // namespace weft::distributed
