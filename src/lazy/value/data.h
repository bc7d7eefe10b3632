// A known value's data: the engine hangs it on nodes.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/ir/node.h"
#include "src/lazy/value/sharding.h"

namespace weft::lazy {

using Shards = absl::InlinedVector<Ref<Buffer>, 1>;

// One value: shards, one a device of its mesh, or the words of a small scalar argument (the caller's numbers, random
// states), which travel in the launch's argument block and never become a buffer. Exactly one Data exists per buffer of
// ours, but for buffers that are held (HoldShard). Thread rule: changed under the engine's lock only.
class Data final : public ir::Payload {
 public:
  // u64[3], a random state, is the largest.
  static constexpr size_t kMaxWords = 6;

  Data(const Placement& sharding, Shards shards)
      : sharding_(sharding), shards_(std::move(shards)), metrics_(sharding.mesh().metrics()) {
    if (metrics_ != nullptr) metrics_->AddAlone(Counter::kDataHandlesMade);
  }
  explicit Data(std::span<const uint32_t> w) : word_count(static_cast<uint32_t>(w.size())) {
    std::copy(w.begin(), w.end(), words.begin());
  }

  // A value as a launch found it, for whoever computes that launch again. It is no reference to the data, since data that only one
  // refers to may be taken over.
  struct Past {
    uint32_t word_count = 0;
    uint32_t output = 0;
    std::array<uint32_t, kMaxWords> words{};
    std::optional<Placement> sharding;  // none: words
    Shards shards;
    Ref<RefCounted> launched;
    std::shared_ptr<bool> taken;  // null: the launch itself takes the memory over
    bool failed = false;
  };
  Past PastFor(bool launch_takes_over) {
    if (!launch_takes_over && word_count == 0 && taken_ == nullptr) taken_ = std::make_shared<bool>(false);
    return {word_count, output, words, sharding_, shards_, launched, taken_, failed};
  }
  // The same value with a life of its own; gone if its memory has been taken over.
  static Ref<Data> Of(const Past& past) {
    if (past.word_count > 0) return MakeRef<Data>(std::span(past.words).first(past.word_count));
    Ref<Data> data = MakeRef<Data>(*past.sharding, past.taken != nullptr ? past.shards : Shards());
    data->taken_ = past.taken;
    data->failed = past.failed;
    data->launched = past.launched;
    data->output = past.output;
    return data;
  }

  uint32_t word_count = 0;       // 0: shards
  bool forgot_gradient = false;  // a barrier let go of a past that a gradient could have asked for
  bool failed = false;     // what was to make it has failed: its buffers have the outcome, and no device knows them
  bool described = false;  // its type alone: of a program that is compiled and not launched
  std::array<uint32_t, kMaxWords> words{};

  // --- Without words ---------------------------------------------------------------------------------------------------
  const Placement& sharding() const { return *sharding_; }
  // In the order of the mesh; none once a launch has taken them over.
  std::span<const Ref<Buffer>> shards() const { return shards_; }
  // All of it, where it is not split.
  const Ref<Buffer>& whole() const { return shards_[sharding_->whole_at()]; }
  bool split() const { return word_count == 0 && sharding_->split(); }
  // How it lies on its mesh, by the address that equal ones of the mesh have; null: words, which are everywhere.
  const ir::Sharding* cut() const { return word_count > 0 ? nullptr : &sharding_->sharding(); }
  bool held() const {
    return std::ranges::any_of(shards_, [](const Ref<Buffer>& shard) { return shard->held(); });
  }
  // The bytes on the device that has most of the value.
  int64_t bytes() const {
    int64_t most = 0;
    for (const Ref<Buffer>& shard : shards_) most = std::max(most, shard->bytes());
    return most;
  }
  void TakeOver() {
    shards_.clear();
    if (taken_ != nullptr) *taken_ = true;
  }
  // Takes back memory that a failed launch took over and left unchanged; the launch's past of it is a value again, too.
  // Where memory runs out, the value is back all the same and the past stays gone.
  void GiveBack(Past* past) {
    Shards both;
    try {
      both = past->shards;
      if (taken_ == nullptr) taken_ = std::make_shared<bool>();
      past->taken = taken_;
    } catch (const std::bad_alloc&) {
      past->taken = nullptr;
    }
    shards_ = std::move(past->shards);
    past->shards = std::move(both);
    if (taken_ != nullptr) *taken_ = false;
  }
  bool gone() const { return word_count == 0 && (shards_.empty() || (taken_ != nullptr && *taken_)); }
  // Takes the shards of a value that was made again.
  void Replace(const Shards& shards) {
    shards_ = shards;
    taken_ = nullptr;
    failed = false;
    launched = nullptr;
  }
  // Another value has this buffer, too: no launch takes it over as long as this value lives.
  void HoldShard(size_t i) {
    shards_[i]->Hold();
    held_.push_back(shards_[i]);
  }
  // The next device's. Allocates nothing where there is room.
  void Add(Ref<Buffer> shard) { shards_.push_back(std::move(shard)); }

  // The engine's own, valid during one cut: argument number, and whether a live tensor still shows this value.
  uint64_t argument_epoch = 0;
  uint32_t argument = 0;
  uint64_t live_epoch = 0;
  // The launch that makes it, a Launched, as long as nobody knows whether it went through, and which of its results it is.
  Ref<RefCounted> launched;
  uint32_t output = 0;
  // The replay's: its number among the data that the step has met.
  uint64_t step = 0;
  uint32_t number = 0;

 private:
  ~Data() override {
    // Runs on any thread: results of launches that have run go where they end.
    if (metrics_ != nullptr) metrics_->Add(Counter::kDataHandlesReleased);
    for (const Ref<Buffer>& shard : held_) shard->Unhold();
  }

  std::optional<Placement> sharding_;
  Shards shards_;
  std::vector<Ref<Buffer>> held_;
  std::shared_ptr<bool> taken_;             // of all that have these shards
  const std::shared_ptr<Metrics> metrics_;  // that count it; null: of words
};

// How a known value lies, and of each holder its part.
struct Lying {
  Placement placement;
  Shards shards;  // empty: words, which are everywhere
};

// The data of a node with several results: one for each, null where not computed.
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
// Every result of the node is.
inline bool AllKnown(const ir::Node& node) {
  for (uint32_t i = 0; i < node.results().size(); ++i) {
    if (DataOf(node, i) == nullptr) return false;
  }
  return true;
}

// Makes room, so that Bind allocates nothing.
inline void MakeRoom(const ir::Node& node) {
  if (node.results().size() == 1 || node.payload()) return;
  Ref<DataList> list = MakeRef<DataList>();
  list->results.resize(node.results().size());
  node.set_payload(std::move(list));
}

// Makes a pending value known.
inline void Bind(const ir::Node& node, uint32_t result, Ref<Data> data) {
  if (node.results().size() == 1) return node.set_payload(std::move(data));
  MakeRoom(node);
  static_cast<DataList*>(node.payload().get())->results[result] = std::move(data);
}

}  // namespace weft::lazy
