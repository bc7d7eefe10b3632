// A checkpoint that several processes write together: each writes some of the bytes to a file of its own, its shard, and one of them the
// manifest, a checkpoint whose tensors stand in parts of the shards beside it. The manifest's name is the checkpoint's; until it
// appears, the older one and its shards are the checkpoint. Readers need nothing of this: they read parts of other files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serialization/atomic_file.h"
#include "serialization/checkpoint_parts.h"
#include "serialization/checkpoint_writer.h"

namespace weft {

struct ShardedTensor {
  uint64_t bytes = 0;  // all of it, as stored
  // The bytes of each process's part, one after the other, the last one's perhaps shorter; 0: every process has all of it.
  uint64_t part_bytes = 0;
};

// Some whole parts (checkpoint_parts.h) of a tensor.
struct ShardPiece {
  uint32_t tensor = 0;
  uint64_t offset = 0, bytes = 0;
};
// The pieces that each process writes to its shard. Of what each has a part of, it writes those parts of the file of which it has the
// first byte; what every process has is shared out so that all write about as much. Small tensors are in nobody's; the manifest has them. The same
// in all processes. UNIMPLEMENTED for a tensor past 64 GiB, whose parts are larger.
absl::StatusOr<std::vector<std::vector<ShardPiece>>> PlanShards(std::span<const ShardedTensor> tensors, int processes);
// Tells whether the manifest itself has a tensor of so many bytes.
constexpr bool IsInManifest(uint64_t bytes) { return bytes < kLargePayload; }

// "run.weft.2-of-4.0123456789abcdef": of the checkpoint "run.weft". The number is another one each time, so that no save touches a file of
// another.
std::string ShardName(std::string_view name, int process, int processes);

// A process tells this to the one that writes the manifest.
struct ShardReport {
  absl::Status status;
  BaseRecord file;                // without a name: it had nothing to write
  std::vector<PartPlace> places;  // of all parts of its pieces, in order
};
std::string EncodeReport(const ShardReport& report);
absl::StatusOr<ShardReport> DecodeReport(std::string_view bytes);

// Writes a shard beside `place`. `source` gives the bytes of pieces: tensor i is piece i. Whatever fails leaves no file.
absl::StatusOr<ShardReport> SaveShard(const FilePlace& place, const std::string& name,
                                      std::span<const ShardPiece> pieces, TensorSource& source,
                                      const SaveOptions& options);

// Where the parts of tensors are, for SaveOptions::elsewhere: those of all reports, by process.
class ShardPlaces final : public PlacedElsewhere {
 public:
  ShardPlaces(std::span<const ShardedTensor> tensors, std::span<const std::vector<ShardPiece>> plan,
              std::span<const ShardReport> reports);
  // INTERNAL where a report does not have the places of its process's pieces.
  static absl::Status Check(std::span<const std::vector<ShardPiece>> plan, std::span<const ShardReport> reports);
  const std::vector<BaseRecord>& files() const override { return files_; }
  std::span<const PartPlace> Find(uint32_t tensor) const override { return places_[tensor]; }

 private:
  std::vector<BaseRecord> files_;
  std::vector<std::vector<PartPlace>> places_;
};

// The shards that the checkpoint at `place` names now; none where there is none.
std::vector<std::string> ShardsOf(const FilePlace& place);
// Removes the checkpoint's shards but those in `kept`: at once those in `old`, others, whose save has ended badly, when they are an hour old.
void RemoveShards(const FilePlace& place, std::span<const std::string> kept, std::span<const std::string> old);

}  // namespace weft
