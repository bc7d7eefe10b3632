// Writes a tree with its tensors as a checkpoint: to a file that appears whole or not at all, or down a pipe. Memory is
// about 20 MiB whatever the size of the state (one 4 MiB piece, one 4 MiB pack, a ring of three blocks) plus about 60
// bytes a tensor, and 300 for the exported function's snapshot of it; the bytes come from a TensorSource piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/atomic_file.h"
#include "serialization/tree.h"
#include "src/runtime/held_types.h"
#include "src/runtime/io.h"

namespace weft {

// Gives out the bytes of tensors. Calls come in the tree's preorder, one tensor after the other, offsets ascending, all
// from the thread that saves. Row-major, dense, little-endian, as SaveOptions::held stores them; 4-bit types two in a byte, low
// bits first.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Bytes [offset, offset + out.size()) of leaf `tensor` (a position in tree.tensors()).
  virtual absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) = 0;
};

// Tensors whose bytes stand in other files already (checkpoint_shards.h).
struct BaseRecord;
struct PartPlace;
class PlacedElsewhere {
 public:
  virtual ~PlacedElsewhere() = default;
  virtual const std::vector<BaseRecord>& files() const = 0;
  // All parts of leaf `tensor` in order, none of them compressed, `file` being a number of files() and 1; none: it is written here. Of
  // tensors of at least kLargePayload bytes.
  virtual std::span<const PartPlace> Find(uint32_t tensor) const = 0;
};

struct SaveOptions {
  FileSystem* fs = nullptr;  // nullptr: PosixFileSystem()
  Durability durability = Durability::kPower;
  HeldTypes held;  // what the tree's types are stored as
  int64_t step = 0;
  std::string producer = "weft";
  std::vector<std::pair<std::string, std::string>> user;  // in order; at most 1 MiB together
  // Called after every 4 MiB or tensor with payload bytes done and in total; an error stops the save and comes back from it.
  std::function<absl::Status(uint64_t done, uint64_t total)> progress;
  bool compress = false;  // parts of 4 MiB, where that saves an eighth
  std::string base;       // a name beside the file: what is equal there is not written again; empty: none
  const PlacedElsewhere* elsewhere = nullptr;  // null: all is written here, or taken from the base
  WaitForDisk wait;                            // for blocks and for the last sync
  bool writes_itself = false;                  // a stream: by the thread that saves, and none beside it
};

struct SaveStats {
  uint64_t file_bytes = 0;
  uint64_t tensor_bytes = 0;
  uint64_t tensors = 0;
  uint64_t payloads = 0;  // tensors by themselves, and packs
  bool direct = false;    // whether the page cache was bypassed
};

// Replaces `path` atomically. On any error the old file is as it was and no temporary is left; only if the last step fails,
// the sync of the folder after the rename, the new file is there already, whole but not yet sure to survive a loss of power.
absl::Status SaveCheckpoint(const std::string& path, const Tree& tree, TensorSource& source, const SaveOptions& options,
                            SaveStats* stats = nullptr);
// The same in two steps: the folder is looked up first, so that later changes of directories do not matter.
absl::StatusOr<FilePlace> PlaceOfCheckpoint(const std::string& path, FileSystem* fs = nullptr);
absl::Status SaveCheckpoint(FilePlace place, const Tree& tree, TensorSource& source, const SaveOptions& options,
                            SaveStats* stats = nullptr);

// The same bytes down a pipe or socket that the caller owns. `name` stands in error texts.
absl::Status StreamCheckpoint(int fd, const std::string& name, const Tree& tree, TensorSource& source,
                              const SaveOptions& options, SaveStats* stats = nullptr);

}  // namespace weft
