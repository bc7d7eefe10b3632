// Opens a checkpoint and reads its tensors one by one. Opening verifies everything but the payloads (64 MiB chunks are not
// touched), reading a tensor verifies its payload before it returns; together they cover every byte of the file.
// Nothing is mapped: a file that shrinks under the reader gives an error, not a signal.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/checkpoint_schema.h"
#include "serialization/tree.h"
#include "src/runtime/io.h"

namespace weft {

struct OpenOptions {
  FileSystem* fs = nullptr;  // nullptr: PosixFileSystem()
  // Walk all frames at opening: prefixes, descriptions, paddings, root hash. One small read a chunk (256 a GiB). Off: only
  // what the footer leads to; damage between payloads then stays unnoticed.
  bool verify_frames = true;
};

class CheckpointReader {
 public:
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(const std::string& path,
                                                                const OpenOptions& options = {});

  const HeaderRecord& header() const { return header_; }
  // Tensor leaf i is tensor(i).
  const Tree& tree() const { return tree_; }
  size_t tensor_count() const { return tensors_.size(); }
  const TensorRecord& tensor(uint32_t id) const { return tensors_[id]; }
  // By path; an alias gives the tensor that it stands for.
  std::optional<uint32_t> Find(std::string_view name) const;
  uint64_t tensor_bytes() const { return total_; }
  uint64_t file_bytes() const { return file_bytes_; }

  // The whole tensor into `out`, which must have tensor(id).bytes bytes. On error the contents of `out` are undefined.
  absl::Status ReadTensor(uint32_t id, std::span<std::byte> out);

  // Reads every payload once and checks it; bounded memory. Opening has checked the rest.
  absl::Status VerifyPayloads();

 private:
  CheckpointReader() = default;
  absl::Status Load(const OpenOptions& options);
  absl::Status LoadIndex(const FooterRecord& footer, uint64_t index_end);
  absl::Status CheckPlaces(uint64_t begin, uint64_t end) const;
  absl::Status VerifyFrames(const Trailer& trailer, const FooterRecord& footer);
  absl::Status MatchFrame(const Frame& frame, uint64_t* chunks, uint64_t* places, uint64_t* described,
                          std::vector<bool>* seen) const;
  absl::StatusOr<Frame> ReadFrame(uint64_t offset, uint64_t limit);
  absl::Status ReadPayload(const ChunkRecord& chunk, std::span<std::byte> out, std::string_view what);
  std::span<const ChunkRecord> ChunksOf(uint32_t id) const {
    return std::span(chunks_).subspan(first_chunk_[id], first_chunk_[id + 1] - first_chunk_[id]);
  }
  bool InPack(uint32_t id) const {
    const auto chunks = ChunksOf(id);
    return chunks.size() == 1 && chunks[0].bytes != tensors_[id].bytes;
  }

  File file_;
  uint64_t file_bytes_ = 0;
  HeaderRecord header_;
  Tree tree_;
  std::vector<TensorRecord> tensors_;
  std::vector<uint32_t> by_name_;      // ids
  std::vector<ChunkRecord> chunks_;    // by tensor
  std::vector<uint64_t> first_chunk_;  // of each tensor, and one past the last
  uint64_t total_ = 0;
  uint64_t pack_offset_ = 0;     // of the pack in pack_; 0: none
  std::vector<std::byte> pack_;  // the last one read: members come in order
};

// Reads a checkpoint from a pipe or socket as it arrives. Every byte is verified; a tensor that `piece` has seen completely is
// good only when ReadCheckpointStream returns OK.
struct StreamHandler {
  // Before a tensor's first piece, or for inline ones their only sign.
  std::function<absl::Status(const TensorRecord&)> tensor;
  std::function<absl::Status(uint32_t id, uint64_t offset, std::span<const std::byte>)> piece;
};
struct StreamResult {
  HeaderRecord header;
  Tree tree;
  std::vector<TensorRecord> tensors;
};
absl::StatusOr<StreamResult> ReadCheckpointStream(int fd, const std::string& name, const StreamHandler& handler,
                                                  FileSystem* fs = nullptr);

}  // namespace weft
