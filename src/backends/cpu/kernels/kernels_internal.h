// What the drivers (gemm.cc, conv*.cc, pool2d.cc) share behind kernels.h: the table of generated tiles and the
// thread-local packing space.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/backends/cpu/kernels/kernels.h"
#include "src/backends/cpu/kernels/micro.h"
#include "src/backends/cpu/kernels/pack.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

struct KernelSet::State {
  explicit State(CpuTarget target) : jit(std::move(target)) {}

  const CpuTarget& target() const { return jit.target(); }

  // The function of a tile, compiled now if it is new (about 5 ms). The common case is one relaxed-cost load.
  absl::StatusOr<MicroFn*> Micro(const MicroSpec& spec);

  Jit jit;
  std::array<std::atomic<MicroFn*>, MicroSpec::kCount> micro = {};
  std::atomic<int64_t> compiled{0};
  Mutex mutex;
  std::map<int, std::string> objects ABSL_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<JitLibrary>> libraries ABSL_GUARDED_BY(mutex);
};

// Packing space for what the calling thread is doing, at least `bytes`, 64-byte aligned; nullptr without memory. Slots are
// independent; a slot's content lasts until the next request for it that is larger.
enum class ScratchSlot { kPackA, kPackB, kShared, kOutput, kTables, kWiden, kLoop, kCount };
void* ThreadScratch(ScratchSlot slot, int64_t bytes);

// Scratch by share of a region, not by thread: a program that ran once finds all of it again, whichever threads take part
// the next time. Found as the pool's owner; without one, scratch is the thread's own. One launch at a time.
class ScratchSet {
 public:
  explicit ScratchSet(int shares) : shares_(static_cast<size_t>(shares)) {}
  void* Get(int share, ScratchSlot slot, int64_t bytes) { return shares_[static_cast<size_t>(share)].Get(slot, bytes); }

  struct Slots {
    Slots() = default;
    ~Slots();
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;
    void* Get(ScratchSlot slot, int64_t bytes);

    struct Slot {
      void* memory = nullptr;
      int64_t bytes = 0;
    };
    std::array<Slot, static_cast<size_t>(ScratchSlot::kCount)> slots;
  };

 private:
  struct alignas(128) Share : Slots {};
  std::vector<Share> shares_;
};

// "packing space for a matrix product, 1048576 bytes"
absl::Status OutOfScratch(const char* what, int64_t bytes);

// Element types of a call in terms of tiles.
struct TypePlan {
  MicroType micro = MicroType::kF32;
  PackKind pack = PackKind::kF32;
  bool direct = true;   // A and B may be read in place: packed elements equal the source's
  bool narrow = false;  // the output is bf16 or f16: accumulate in f32 and convert
  int source_bytes = 4;
  int accumulator_bytes = 4;  // of C as the tile writes it
};
// False where tiles do not serve the types (integers, odd mixtures): the plain loop's business.
bool PlanTypes(const CpuTarget& target, DType input, DType output, TypePlan* plan);

// Even cuts of `count` into `parts`: sizes differ by at most one, so that two tile shapes serve any length.
inline int64_t CutAt(int64_t count, int64_t parts, int64_t index) { return count * index / parts; }
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace weft::cpu
