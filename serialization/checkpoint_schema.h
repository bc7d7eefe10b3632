// What a checkpoint's messages say, as plain structs: between the schema and the writer and readers, so that nothing else
// touches message builders. Decoders validate everything that does not need a second message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/framing.h"
#include "serialization/tree.h"
#include "src/runtime/dtype.h"
#include "src/runtime/shape.h"

namespace weft {

using Message = std::vector<std::byte>;

// Bytes of a dense tensor in a file: 4-bit types two in a byte, low bits first. nullopt past 2^63 - 1 bits.
std::optional<uint64_t> StoredBytes(DType dtype, std::span<const int64_t> dims);

struct HeaderRecord {
  uint64_t required = kFeatureUnstable;
  Uuid uuid{};
  std::string producer;
  int64_t created_unix_ns = 0;
  int64_t step = 0;
  uint32_t chunk_bytes = 0;
  std::vector<std::pair<std::string, std::string>> user;
};

// Where a tensor's bytes lie: a whole chunk, or a place in a pack that several tensors share.
struct ChunkRecord {
  uint64_t offset = 0;  // of the payload in the file
  uint64_t hash = 0;    // of the payload
  uint32_t bytes = 0;   // of the payload
  uint32_t inner = 0;   // in a pack
};

struct TensorRecord {
  uint32_t id = 0;
  DType dtype = DType::kInvalid;  // as stored
  DType logical =
      DType::kInvalid;  // as the user sees it: the same, or one that a mode holds as it (runtime/held_types.h)
  bool is_inline = false;
  uint64_t bytes = 0;  // as stored
  Dims dims;
  std::string name;
  std::string inline_data;
};

struct IndexRecord {
  TensorRecord tensor;
  std::vector<ChunkRecord> chunks;
};

struct PackMemberRecord {
  uint32_t tensor = 0;
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

struct ChunkFrameRecord {
  uint32_t tensor = 0;
  uint32_t ordinal = 0;
  uint64_t raw_offset = 0;
  uint32_t bytes = 0;
  uint64_t hash = 0;
  std::vector<PackMemberRecord> members;  // a pack's
};

struct PageRecord {
  std::string first_name;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint64_t hash = 0;
  uint32_t count = 0;
};

struct FooterRecord {
  std::vector<PageRecord> pages;
  uint64_t tree_offset = 0;
  uint32_t tree_frames = 0;
  uint32_t tree_nodes = 0;
  uint64_t tensors = 0;
  uint64_t chunks = 0;
  uint64_t raw_bytes = 0;
  Hash128 root_hash;
};

absl::Status EncodeHeader(const HeaderRecord& header, Message* out);
absl::Status EncodeTensors(std::span<const TensorRecord> tensors, Message* out);
absl::Status EncodeChunk(const ChunkFrameRecord& chunk, Message* out);
absl::Status EncodeIndexPage(std::span<const IndexRecord> entries, Message* out);
absl::Status EncodeFooter(const FooterRecord& footer, Message* out);

absl::StatusOr<HeaderRecord> DecodeHeader(const Frame& frame, const std::string& file);
absl::StatusOr<std::vector<TensorRecord>> DecodeTensors(const Frame& frame, const std::string& file);
absl::StatusOr<ChunkFrameRecord> DecodeChunk(const Frame& frame, const std::string& file);
absl::StatusOr<std::vector<IndexRecord>> DecodeIndexPage(const Frame& frame, const std::string& file);
absl::StatusOr<FooterRecord> DecodeFooter(const Frame& frame, const std::string& file);

// A tree as messages of at most 65,536 nodes and about 2 MiB each. Tensor leaves are numbered in preorder; the numbers are
// the file's tensor ids, `tree_tensor_of_id` gives each its position in tree.tensors().
absl::Status EncodeTree(const Tree& tree, std::vector<Message>* out, std::vector<uint32_t>* tree_tensor_of_id);

// Collects the nodes of tree frames, then builds the tree once the tensors' types are known.
class TreeDecoder {
 public:
  absl::Status Add(const Frame& frame, const std::string& file);
  size_t nodes() const { return nodes_.size(); }
  uint32_t tensors() const { return tensors_; }
  // `tensors[id]`; their names must be the paths of the leaves.
  absl::StatusOr<Tree> Build(std::span<const TensorRecord> tensors, const std::string& file) const;

 private:
  struct Flat {
    Tree::Kind kind = Tree::Kind::kNone;
    bool has_key = false;
    bool boolean = false;
    uint32_t parent = 0;
    uint32_t number = 0;  // children, tensor or alias
    int64_t int64 = 0;
    double float64 = 0;
    std::string key, text;
  };
  std::vector<Flat> nodes_;
  uint32_t tensors_ = 0;
  uint64_t offset_ = 0;  // of the first frame, for messages
};

}  // namespace weft
