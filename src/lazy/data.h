// Where a value lives once it is known: what the engine hangs on nodes.
#pragma once

#include <array>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/ir/node.h"
#include "src/runtime/buffer.h"

namespace weft::lazy {

// How the shards of one value make up the whole. One shard: the whole value on one device.
struct Placement {
  enum class Kind : uint8_t { kSingle, kReplicated, kSplit };
  Kind kind = Kind::kSingle;
  uint8_t dimension = 0;  // kSplit: the dimension cut into equal parts, one per shard
};

// One value: 1…N shards, or the words of a small scalar argument (the caller's numbers, random states), which travel in
// the launch's argument block and never become a buffer. Exactly one Data exists per buffer of ours.
// Thread rule: changed under the engine's lock only.
class Data final : public ir::Payload {
 public:
  // u64[3], a random state, is the largest.
  static constexpr size_t kMaxWords = 6;

  explicit Data(Ref<Buffer> buffer) { shards.push_back(std::move(buffer)); }
  explicit Data(std::span<const uint32_t> w) : word_count(static_cast<uint32_t>(w.size())) {
    std::copy(w.begin(), w.end(), words.begin());
  }

  absl::InlinedVector<Ref<Buffer>, 1> shards;
  Placement placement;
  uint32_t word_count = 0;       // 0: buffers
  bool forgot_gradient = false;  // a barrier let go of a past that a gradient could have asked for
  std::array<uint32_t, kMaxWords> words{};

  // The engine's own, valid during one cut: argument number, and whether a live tensor still shows this value.
  uint64_t argument_epoch = 0;
  uint32_t argument = 0;
  uint64_t live_epoch = 0;
};

// Of a node with several results: each its own, null where not computed.
class DataList final : public ir::Payload {
 public:
  absl::InlinedVector<Ref<Data>, 2> results;
};

// Null while pending.
inline Data* DataOf(const ir::Node& node, uint32_t result) {
  ir::Payload* payload = node.payload().get();
  if (payload == nullptr) return nullptr;
  if (node.results().size() == 1) return static_cast<Data*>(payload);
  return static_cast<DataList*>(payload)->results[result].get();
}
inline Data* DataOf(const ir::Value& value) { return DataOf(*value.node, value.result); }

}  // namespace weft::lazy
