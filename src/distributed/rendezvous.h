// Where members of a group meet: a counter and a word of phases in memory that all of them see. Spins for a moment, then sleeps on
// a futex. Holds no pointers, so that it works in memory that processes share, too.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::distributed {

// Members come to phase after phase; the one that comes last opens the next. Poisoning freezes the phase: a phase that was not
// open by then never opens, so that all members agree on whether it did. Thread rule: any.
class Rendezvous {
 public:
  // `shared`: members are in several processes. Before anybody else sees it.
  void Init(uint32_t members, bool shared);

  // One member comes to the end of phase `phase`, the number of phases that have opened since Init.
  void Arrive(uint32_t phase);
  // Waits until that phase has ended or the group is poisoned, at most `limit_ns`, and sometimes for no reason less.
  // Tells whether one of both is so.
  bool Sleep(uint32_t phase, int64_t limit_ns);
  // The same for a moment, and on the processor.
  bool Spin(uint32_t phase) const;
  bool Ended(uint32_t phase) const { return (word_.load(std::memory_order_acquire) & ~kPoison) != WordOf(phase); }

  bool poisoned() const { return (word_.load(std::memory_order_seq_cst) & kPoison) != 0; }
  // True for the one caller that shall say why: it writes the reason down and calls Poison.
  bool ClaimPoison() { return claimed_.exchange(1, std::memory_order_acq_rel) == 0; }
  void Poison();
  // Until the claimant has called Poison, at most `limit_ns`; then poisons itself, without a reason.
  void AwaitPoison(int64_t limit_ns);

 private:
  static constexpr uint32_t kPoison = 1;
  static constexpr uint32_t WordOf(uint32_t phase) { return phase * 2; }
  void WakeAll();

  alignas(64) std::atomic<uint32_t> arrived_;
  alignas(64) std::atomic<uint32_t> word_;  // twice the phase, and 1 if poisoned
  std::atomic<uint32_t> sleepers_;
  alignas(64) std::atomic<uint32_t> claimed_;
  uint32_t members_;
  int32_t spins_;
  bool shared_;
};

}  // namespace weft::distributed
