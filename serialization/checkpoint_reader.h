// Opens a checkpoint and reads its tensors one by one. With Verify::kAll opening walks over everything but the payloads and
// compares what it meets with the index; with the other two it reads trailer, footer and header, and a tensor that is asked for
// by name costs one page of the index. Reading a tensor verifies its payload before it returns (kOff: it does not). Nothing is
// mapped here: a file that shrinks under the reader gives an error, not a signal.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/checkpoint_schema.h"
#include "serialization/tree.h"
#include "src/runtime/io.h"

namespace weft {

enum class Verify : uint8_t {
  kUse,  // a tensor before it is handed out
  kAll,  // that, and at opening all frames: prefixes, messages, paddings, root hash. One small read a tensor
  kOff,  // no payload; only what is read to find it
};

struct OpenOptions {
  FileSystem* fs = nullptr;  // nullptr: PosixFileSystem()
  Verify verify = Verify::kAll;
};

class CheckpointReader {
 public:
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(const std::string& path,
                                                                const OpenOptions& options = {});

  // An open file; a path in its name's place is where bases are looked for.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(File file, const OpenOptions& options);

  const HeaderRecord& header() const { return header_; }
  size_t tensor_count() const { return footer_.tensors; }
  uint64_t tensor_bytes() const { return footer_.raw_bytes; }
  uint64_t file_bytes() const { return file_bytes_; }
  const File& file() const { return file_; }
  // Finds a tensor by path; an alias gives the tensor that it stands for. From then on entry(id) is known.
  absl::StatusOr<std::optional<uint32_t>> Find(std::string_view name);
  // Makes all entries known, and the tree. Opening with Verify::kAll has done it.
  absl::Status LoadAll();

  // Tensor leaf i is entry(i). Empty before LoadAll.
  const Tree& tree() const { return tree_; }
  bool Knows(uint32_t id) const { return id < entries_.size() || found_.contains(id); }
  // Returns the record of a tensor that is known. It lives as long as the reader.
  const IndexRecord& entry(uint32_t id) const { return id < entries_.size() ? entries_[id] : found_.find(id)->second; }
  const TensorRecord& tensor(uint32_t id) const { return entry(id).tensor; }

  // The whole tensor into `out`, which must have tensor(id).bytes bytes. On error the contents of `out` are undefined.
  absl::Status ReadTensor(uint32_t id, std::span<std::byte> out);
  // Its bytes from `offset` on. Only the pieces that are read are verified: 4 MiB around it.
  absl::Status ReadPart(uint32_t id, uint64_t offset, std::span<std::byte> out);
  // The places of the parts of a tensor that is known and stands in parts, whose files are open then. Until the next call.
  absl::StatusOr<const PartsRecord*> PartsOf(uint32_t id);
  // The tensor's bytes, all of them, as they lie in memory that somebody mapped: verified as ReadTensor does.
  absl::Status CheckBytes(uint32_t id, std::span<const std::byte> bytes) const;

  // Reads every payload once and checks it; bounded memory. With Verify::kAll opening has checked the rest.
  absl::Status VerifyPayloads();

 private:
  // The frames that a walk has met.
  struct Walk {
    uint64_t payloads = 0;
    std::vector<bool> seen;            // tensors
    std::optional<uint32_t> whole;     // of the data frame before, whose sums come next
    std::optional<uint32_t> in_parts;  // of the part before, behind which others and their places come
    std::vector<PartPlace> parts;      // of it
  };
  CheckpointReader() = default;
  absl::Status Load(const OpenOptions& options);
  absl::Status LoadHeader(const Prologue& prologue);
  absl::Status LoadIndex();
  absl::Status LoadTree();
  absl::StatusOr<const Frame*> Page(size_t index);
  absl::Status CheckPlace(const IndexRecord& entry) const;
  absl::Status CheckPlaces() const;
  absl::Status VerifyFrames();
  absl::Status MatchFrame(const Frame& frame, Walk* walk) const;
  absl::Status MatchPack(const Frame& frame, Walk* walk) const;
  absl::Status MatchPart(const Frame& frame, Walk* walk) const;
  absl::Status MatchParts(const Frame& frame, Walk* walk) const;
  absl::Status OpenBase(size_t number);
  absl::Status ReadStored(const IndexRecord& entry, uint64_t index, std::span<std::byte> out) const;
  absl::StatusOr<Frame> ReadFrame(uint64_t offset, uint64_t limit);
  absl::Status ReadPack(const IndexRecord& entry);
  absl::Status ReadWhole(const IndexRecord& entry, std::span<std::byte> out);
  absl::Status ReadSummed(const IndexRecord& entry, uint64_t index, std::span<std::byte> out);
  // The offset at which payloads end and the index begins.
  uint64_t data_end() const { return footer_.pages.empty() ? trailer_.footer_offset : footer_.pages[0].offset; }

  File file_;
  Verify verify_ = Verify::kAll;
  uint64_t file_bytes_ = 0;
  Trailer trailer_;
  HeaderRecord header_;
  FooterRecord footer_;
  std::vector<std::unique_ptr<Frame>> pages_;  // that have been read; none once all entries are known
  bool all_ = false;
  Tree tree_;
  std::vector<IndexRecord> entries_;  // by id, all of them or none
  std::vector<uint32_t> by_name_;     // ids
  absl::node_hash_map<uint32_t, IndexRecord> found_;
  std::optional<uint32_t> parts_of_;  // whose parts_ are
  PartsRecord parts_;
  std::vector<File> bases_;      // that were needed
  uint64_t kept_at_ = 0;         // of the payload, or of the part of one, in kept_; 0: none
  std::vector<std::byte> kept_;  // the last one read: members of a pack come in order, and so do rows
};

// DATA_LOSS if the data of a tensor of bool has something else than 0 and 1.
absl::Status CheckBools(const TensorRecord& tensor, std::span<const std::byte> data, const std::string& file);

// Reads a checkpoint from a pipe or socket as it arrives. Every byte is verified before it is handed out, so that a tensor is
// held until its checksums, which come behind it; memory grows with what has arrived. The small ones that stand in the index
// come last. All is good only when ReadCheckpointStream returns OK.
struct StreamHandler {
  // Called when the header has come, before all others. May be empty, as each of these.
  std::function<absl::Status(const HeaderRecord&)> header;
  // Called before a tensor's first piece; an empty tensor has no other sign.
  std::function<absl::Status(const TensorRecord&)> tensor;
  std::function<absl::Status(uint32_t id, uint64_t offset, std::span<const std::byte>)> piece;
};
struct StreamResult {
  HeaderRecord header;
  Tree tree;
  std::vector<IndexRecord> tensors;
};
absl::StatusOr<StreamResult> ReadCheckpointStream(int fd, const std::string& name, const StreamHandler& handler,
                                                  FileSystem* fs = nullptr);

}  // namespace weft
