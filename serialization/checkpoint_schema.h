// Plain structs of a checkpoint's messages: they stand between the schema and the writer and readers, so that nothing else
// touches message builders. Decoders validate everything that does not need a second message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

// A file beside the one that names it.
struct BaseRecord {
  std::string name;
  Uuid uuid{};
  friend bool operator==(const BaseRecord&, const BaseRecord&) = default;
};

struct HeaderRecord {
  uint64_t required = 0;
  Uuid uuid{};
  std::string producer;
  int64_t created_unix_ns = 0;
  int64_t step = 0;
  std::vector<std::pair<std::string, std::string>> user;
  // The reader takes the bases from the footer. `base_names` joins their names, each ended by a newline.
  std::vector<BaseRecord> bases;
  std::string base_names;
};

struct TensorRecord {
  uint32_t id = 0;
  DType dtype = DType::kInvalid;  // as stored
  DType logical =
      DType::kInvalid;  // as the user sees it: the same, or one that a mode holds as it (runtime/held_types.h)
  uint64_t bytes = 0;   // as stored; follows from dtype and dims
  Dims dims;
  std::string name;  // only the index has it
  bool SameType(const TensorRecord& other) const {
    return dtype == other.dtype && logical == other.logical && dims == other.dims;
  }
};

// A tensor with the place of its bytes: inside the index, in a pack that several tensors share, a payload of its own, or in parts
// (checkpoint_parts.h), whose frame the entry then places.
struct IndexRecord {
  TensorRecord tensor;
  uint64_t payload = 0;     // offset of the payload in the file; 0: the bytes are `inside`
  uint32_t pack_bytes = 0;  // of the pack's payload; 0: a payload of its own
  uint32_t inner = 0;       // in a pack; of the frame of parts: its length
  uint64_t pack_sum = 0;
  std::string inside;
  std::vector<uint64_t> sums;  // of a payload of its own: SumCount(tensor.bytes) of them

  bool is_inside() const { return payload == 0; }
  bool in_pack() const { return pack_bytes != 0; }
  bool in_parts() const { return !is_inside() && !in_pack() && inner != 0; }
  bool is_whole() const { return !is_inside() && !in_pack() && inner == 0; }
  uint64_t payload_bytes() const {
    return is_inside() ? 0 : in_pack() ? pack_bytes : in_parts() ? inner : tensor.bytes;
  }
};

struct SumsRecord {
  uint32_t tensor = 0;
  std::vector<uint64_t> sums;
};

// The bytes under one checksum of a tensor.
enum class PartCodec : uint16_t { kNone, kZstd };
struct PartPlace {
  uint64_t payload = 0;  // offset in its file
  uint32_t bytes = 0;    // stored
  PartCodec codec = PartCodec::kNone;
  uint16_t file = 0;  // 0: this one; n: number n - 1 of the footer's bases
  uint64_t sum = 0;   // of the bytes as stored
  friend bool operator==(const PartPlace&, const PartPlace&) = default;
};
struct PartRecord {
  TensorRecord tensor;
  uint32_t index = 0;
  PartPlace place;  // in this file
};
struct PartsRecord {
  TensorRecord tensor;
  std::vector<PartPlace> parts;
  std::vector<uint64_t> sums;  // of the tensor's bytes
};

struct PackRecord {
  struct Member {
    TensorRecord tensor;
    uint32_t offset = 0;
  };
  std::vector<Member> members;
  uint64_t sum = 0;
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
  uint64_t payloads = 0;  // frames of data and packs
  uint64_t raw_bytes = 0;
  Hash128 root_hash;
  std::vector<BaseRecord> bases;
};

absl::Status EncodeHeader(const HeaderRecord& header, Message* out);
absl::Status EncodeData(const TensorRecord& tensor, Message* out);
absl::Status EncodeSums(const SumsRecord& sums, Message* out);
absl::Status EncodePart(const PartRecord& part, Message* out);
absl::Status EncodeParts(const PartsRecord& parts, Message* out);
absl::Status EncodePack(const PackRecord& pack, Message* out);
absl::Status EncodeIndexPage(std::span<const IndexRecord> entries, Message* out);
absl::Status EncodeFooter(const FooterRecord& footer, Message* out);
// At most what an entry adds to a page's message.
size_t IndexEntryBytes(size_t name, size_t dims, size_t inside, size_t sums);
inline constexpr size_t kIndexPageOverhead = 128;  // frame and list of a page

absl::StatusOr<HeaderRecord> DecodeHeader(const Frame& frame, const std::string& file);
// Checks the payload's length, too.
absl::StatusOr<TensorRecord> DecodeData(const Frame& frame, const std::string& file);
absl::StatusOr<SumsRecord> DecodeSums(const Frame& frame, const std::string& file);
// Checks the payload's length, too.
absl::StatusOr<PartRecord> DecodePart(const Frame& frame, const std::string& file);
// `bases`: how many the file names. Checks the number of parts and what each may be, not where.
absl::StatusOr<PartsRecord> DecodeParts(const Frame& frame, size_t bases, const std::string& file);
// Members lie apart, in order, inside the payload.
absl::StatusOr<PackRecord> DecodePack(const Frame& frame, const std::string& file);
absl::StatusOr<std::vector<IndexRecord>> DecodeIndexPage(const Frame& frame, const std::string& file);
// The entry of that name, found without decoding the others.
absl::StatusOr<std::optional<IndexRecord>> FindInPage(const Frame& frame, std::string_view name,
                                                      const std::string& file);
absl::StatusOr<FooterRecord> DecodeFooter(const Frame& frame, const std::string& file);

// A tree as messages of at most 65,536 nodes and about 2 MiB each, one at a time. Tensor leaves are numbered in preorder; the
// numbers are the file's tensor ids. The tree must outlive the encoder.
class TreeEncoder {
 public:
  static absl::StatusOr<TreeEncoder> Of(const Tree& tree);
  // The position in tree.tensors() of each id.
  const std::vector<uint32_t>& leaves() const { return leaves_; }
  // False when there are no more.
  absl::StatusOr<bool> Next(Message* out);

 private:
  explicit TreeEncoder(const Tree* tree) : tree_(tree) {}
  const Tree* tree_;
  std::vector<Tree::NodeId>
      order_;  // nodes in preorder, and where each stands in it; both empty where that is its number
  std::vector<uint32_t> place_;
  std::vector<uint32_t> leaves_;
  uint32_t next_ = 0, tensors_ = 0;  // that have been given out
};

// Collects the nodes of tree frames, then builds the tree once the tensors' types are known.
class TreeDecoder {
 public:
  absl::Status Add(const Frame& frame, const std::string& file);
  size_t nodes() const { return nodes_.size(); }
  uint32_t tensors() const { return tensors_; }
  // The path of each tensor, as Tree::PathOf writes it: for those who cannot wait for the whole file. A node with an impossible
  // parent has the path "".
  std::vector<std::string> Paths() const;
  // `tensors[id]`; their names must be the paths of the leaves.
  absl::StatusOr<Tree> Build(std::span<const IndexRecord> tensors, const std::string& file) const;

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
