// A collective is one call that every member of a group makes, and that gives each of them a result made of what all
// of them brought. Plain data without an engine; communicator.h runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/runtime/dtype.h"
#include "src/runtime/status.h"

namespace weft::distributed {

// P is the size of the group, n is Collective::count. "Part k" of a buffer is its elements [k * n, (k + 1) * n).
//   kind            input       output      what a member's output is
//   kAllReduce      n           n           the reduction over all inputs
//   kAllGather      n           P * n       part k is the input of rank k
//   kReduceScatter  P * n       n           the reduction over part `rank` of all inputs
//   kAllToAll       P * n       P * n       part k is part `rank` of the input of rank k
//   kBroadcast      n           n           the input of `root`
//   kPermute        n           n           the input of the rank that `pairs` sends here; zeros if there is none
//   kBarrier        0           0           nothing; nobody leaves it before all have come
enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kPermute,
  kBarrier
};
inline constexpr std::string_view kCollectiveNames[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "collective_permute", "barrier"};
std::string_view NameOf(CollectiveKind kind);

// A mean is a sum that the caller scales.
enum class Reduction : uint8_t { kSum, kProduct, kMin, kMax, kAnd, kOr };
std::string_view NameOf(Reduction reduction);

// Rank `from` sends its input to rank `to`.
struct Pair {
  int32_t from;
  int32_t to;
};

// One member's call. The buffers and `pairs` stay as they are from Start until Wait has come back. Input and output may be the
// same memory in kAllReduce and kBroadcast, and the input may be this member's part of the output in kAllGather; otherwise they
// do not overlap.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Reduction reduction = Reduction::kSum;  // of kAllReduce and kReduceScatter
  DType dtype = DType::kF32;              // one element of a sub-byte type takes a byte
  int64_t count = 0;                      // n, elements
  uint64_t tag = 0;                       // the caller's name for this call: equal on all members, shown in errors
  int32_t root = 0;                       // of kBroadcast
  std::span<const Pair> pairs;  // of kPermute: no rank sends twice or is sent to twice; the same on all members
  const void* input = nullptr;
  void* output = nullptr;
  std::string_view where;  // shown in errors: "step 40, train.c:88"; the first 120 bytes are kept
};

// How many elements a member's input and output have in a group of `size`.
int64_t InputCount(const Collective& call, int size);
int64_t OutputCount(const Collective& call, int size);

// INVALID_ARGUMENT for a call that no member may make: a kind, reduction or type that is none, a reduction that the type has not
// (and, or of floats; min, max of complex numbers), a negative count or one whose bytes are not countable, a root or a pair that
// is no rank, buffers that are missing, overlap or do not lie at a multiple of their element's size.
absl::Status CheckCollective(const Collective& call, int rank, int size);

// These are the facts that members must agree on, with the text for errors. The record is plain data,
// so that it can lie in memory that processes share.
struct CallRecord {
  CollectiveKind kind;
  Reduction reduction;
  uint32_t dtype;
  int32_t root;
  int64_t count;
  uint64_t tag;
  uint64_t pairs;  // a hash
  char where[121];

  bool Agrees(const CallRecord& other) const;
  // "all_reduce (sum) of 512 f32, tag 7, at step 40, train.c:88".
  std::string Text() const;
};
CallRecord RecordOf(const Collective& call);

}  // namespace weft::distributed
