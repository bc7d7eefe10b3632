// Header, tree, then per tensor its description and chunks (small ones gathered into packs), index pages sorted by name,
// footer, trailer. Never seeks back, so a file and a pipe get the same bytes.
#include "serialization/checkpoint_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <set>

#include "serialization/block_writer.h"
#include "serialization/checkpoint_schema.h"
#include "serialization/limits.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kChunkBytes = 4 << 20;
constexpr uint64_t kLargestChunk = 8 << 20;
constexpr uint64_t kChunksPerTensor = 32768;  // before chunks double
constexpr uint64_t kMostChunks = 65536;       // an index entry of 3 MiB: tensors up to 512 GiB
constexpr uint64_t kInlineBelow = 65;         // bytes; readers accept up to 256
constexpr uint64_t kPackBelow = kLargePayload;
constexpr size_t kDescriptionsPerFrame = 4096;
constexpr size_t kDescriptionBytes = 1 << 20;  // of names in one frame of descriptions
constexpr size_t kEntriesPerPage = 8192;
constexpr size_t kPageBytes = 2 << 20;
constexpr uint64_t kDirectFrom = 16 << 20;  // below, the page cache is quicker than waiting for the disk

// A large allocation through the hook.
struct Buffer {
  ~Buffer() { FreeLarge(data, size); }
  absl::Status Ensure(size_t bytes) {
    if (size >= bytes) return absl::OkStatus();
    FreeLarge(data, size);
    size = 0;
    data = static_cast<std::byte*>(AllocateLarge(bytes, 4096));
    if (data == nullptr) return NoLargeMemory(absl::StrCat(bytes, " bytes of a checkpoint's chunk"));
    size = bytes;
    return absl::OkStatus();
  }
  std::byte* data = nullptr;
  size_t size = 0;
};

// Where a tensor ended up; 16 bytes, because a state may have a million of them.
struct Placed {
  uint32_t first = 0;  // in chunks_, in packs_, or in inline_
  uint32_t inner = 0;  // in a pack
  uint32_t count = 0;  // chunks
  enum : uint8_t { kChunks, kPack, kInline } where = kChunks;
};

class Writer {
 public:
  Writer(BlockWriter* out, const Tree& tree, TensorSource& source, const SaveOptions& options, SaveStats* stats)
      : out_(*out), tree_(tree), source_(source), options_(options), stats_(*stats) {}

  // Sizes of everything, before the first byte is written.
  absl::Status Plan();
  uint64_t total_bytes() const { return total_; }
  uint64_t estimated_file_bytes() const {
    return total_ + total_ / 512 + 400 * ids_.size() + 256 * tree_.size() + (64 << 10);
  }
  absl::Status Run();

 private:
  absl::Status WriteFrame(FrameKind kind, std::span<const std::byte> meta, std::span<const std::byte> payload,
                          uint64_t* frame_hash = nullptr);
  absl::Status WriteTensor(uint32_t id);
  absl::Status AddToPack(uint32_t id);
  absl::Status WriteChunks(uint32_t id);
  absl::Status WriteDescriptions();
  absl::Status WritePack();
  absl::Status WriteIndex(FooterRecord* footer);
  absl::Status Progress(uint64_t bytes);

  const Tree::TensorLeaf& Leaf(uint32_t id) const { return tree_.tensors()[ids_[id]]; }
  std::string_view NameOf(uint32_t id) const {
    return std::string_view(names_).substr(name_ends_[id], name_ends_[id + 1] - name_ends_[id]);
  }
  std::optional<uint64_t> BytesOf(uint32_t id) const {
    return StoredBytes(options_.held.Of(Leaf(id).dtype), Leaf(id).dims);
  }
  TensorRecord Describe(uint32_t id) const;

  BlockWriter& out_;
  const Tree& tree_;
  TensorSource& source_;
  const SaveOptions& options_;
  SaveStats& stats_;

  std::vector<Message> tree_messages_;
  std::vector<uint32_t> ids_;  // file id → position in tree.tensors()
  std::string names_;          // all paths, back to back
  std::vector<uint64_t> name_ends_{0};
  uint64_t total_ = 0, done_ = 0;

  std::vector<Placed> placed_;
  std::vector<ChunkRecord> chunks_, packs_;
  std::string inline_;
  void Postpone(uint32_t id) {
    undescribed_.push_back(id);
    undescribed_bytes_ += NameOf(id).size();
  }
  bool DescriptionsAreFull() const {
    return undescribed_.size() >= kDescriptionsPerFrame || undescribed_bytes_ >= kDescriptionBytes;
  }
  std::vector<uint32_t> undescribed_;  // small tensors whose description waits for the next frame of them
  size_t undescribed_bytes_ = 0;
  Buffer chunk_, pack_;
  size_t pack_used_ = 0;
  std::vector<PackMemberRecord> members_;
  RunningChecksum root_;
  Uuid uuid_ = NewUuid();
};

absl::Status Writer::Plan() {
  uint64_t user = 0;
  std::set<std::string_view> keys;  // what is read back is a dict
  for (const auto& [key, value] : options_.user) {
    if (!IsCleanText(key)) return UserError("a key of user metadata is not valid UTF-8 without NUL");
    if (!keys.insert(key).second) return UserError("user metadata has the key '", key, "' twice");
    if (key.size() > kMaxNameBytes)
      return UserError("a key of user metadata has ", key.size(), " bytes; at most ", kMaxNameBytes, " are allowed");
    user += key.size() + value.size();
  }
  if (user > kMaxValueBytes || options_.user.size() > kMaxUserPairs) {
    return UserError("user metadata of ", options_.user.size(), " entries and ", user, " bytes; at most ",
                     kMaxUserPairs, " and ", kMaxValueBytes, " are allowed (put more into the tree)");
  }
  WEFT_RETURN_IF_ERROR(EncodeTree(tree_, &tree_messages_, &ids_));
  tree_.ForEachPath([&](Tree::NodeId id, const std::string& path) {
    if (tree_.node(id).kind != Tree::Kind::kTensor) return;
    names_ += path;
    name_ends_.push_back(names_.size());
  });
  for (uint32_t id = 0; id < ids_.size(); ++id) {
    const std::optional<uint64_t> bytes = BytesOf(id);
    if (!bytes.has_value() || *bytes > kMostChunks * kLargestChunk) {
      return UserError("tensor '", NameOf(id), "' of ", weft::NameOf(Leaf(id).dtype), DimsToString(Leaf(id).dims),
                       " is too large for a checkpoint (at most ", kMostChunks * kLargestChunk, " bytes a tensor)");
    }
    if (__builtin_add_overflow(total_, *bytes, &total_) || total_ > static_cast<uint64_t>(INT64_MAX) / 2) {
      return UserError("the tensors together are too large for a file");
    }
  }
  return absl::OkStatus();
}

TensorRecord Writer::Describe(uint32_t id) const {
  TensorRecord record;
  record.id = id;
  record.logical = Leaf(id).dtype;
  record.dtype = options_.held.Of(record.logical);
  record.dims = Leaf(id).dims;
  record.bytes = *BytesOf(id);
  record.name = NameOf(id);
  if (placed_[id].where == Placed::kInline) {
    record.is_inline = true;
    record.inline_data = inline_.substr(placed_[id].first, record.bytes);
  }
  return record;
}

absl::Status Writer::WriteFrame(FrameKind kind, std::span<const std::byte> meta, std::span<const std::byte> payload,
                                uint64_t* frame_hash) {
  std::byte prefix[kPrefixBytes];
  EncodePrefix(kind, meta, payload.size(), prefix);
  const uint64_t offset = out_.position();
  if (kind != FrameKind::kFooter) root_.Add(prefix);
  WEFT_RETURN_IF_ERROR(out_.Append(prefix));
  WEFT_RETURN_IF_ERROR(out_.Append(meta));
  WEFT_RETURN_IF_ERROR(out_.AppendZeros(PayloadOffset(offset, meta.size(), payload.size()) - out_.position()));
  if (!payload.empty()) WEFT_RETURN_IF_ERROR(out_.Append(payload));
  WEFT_RETURN_IF_ERROR(out_.AppendZeros(FrameEnd(offset, meta.size(), payload.size()) - out_.position()));
  if (frame_hash != nullptr) {  // of frames without payload, which are small
    std::vector<std::byte> whole(out_.position() - offset);
    std::memcpy(whole.data(), prefix, kPrefixBytes);
    std::memcpy(whole.data() + kPrefixBytes, meta.data(), meta.size());
    *frame_hash = Checksum64(whole);
  }
  return absl::OkStatus();
}

absl::Status Writer::Progress(uint64_t bytes) {
  done_ += bytes;
  return options_.progress ? options_.progress(done_, total_) : absl::OkStatus();
}

absl::Status Writer::WriteDescriptions() {
  if (undescribed_.empty()) return absl::OkStatus();
  std::vector<TensorRecord> records;
  for (uint32_t id : undescribed_) records.push_back(Describe(id));
  undescribed_.clear();
  undescribed_bytes_ = 0;
  Message message;
  WEFT_RETURN_IF_ERROR(EncodeTensors(records, &message));
  return WriteFrame(FrameKind::kTensors, message, {});
}

absl::Status Writer::WritePack() {
  WEFT_RETURN_IF_ERROR(WriteDescriptions());
  if (members_.empty()) return absl::OkStatus();
  const std::span<const std::byte> payload(pack_.data, pack_used_);
  ChunkFrameRecord frame;
  frame.bytes = static_cast<uint32_t>(pack_used_);
  frame.hash = Checksum64(payload);
  frame.members.swap(members_);
  Message message;
  WEFT_RETURN_IF_ERROR(EncodeChunk(frame, &message));
  const uint64_t at = PayloadOffset(out_.position(), message.size(), payload.size());
  packs_.push_back({at, frame.hash, frame.bytes, 0});
  uint64_t bytes = 0;
  for (const PackMemberRecord& member : frame.members) bytes += member.bytes;
  pack_used_ = 0;
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kPack, message, payload));
  return Progress(bytes);
}

absl::Status Writer::AddToPack(uint32_t id) {
  const uint64_t bytes = *BytesOf(id);
  WEFT_RETURN_IF_ERROR(pack_.Ensure(kChunkBytes));
  size_t at = RoundUp(pack_used_, kSmallAlign);
  if (at + bytes > kChunkBytes || DescriptionsAreFull()) {
    WEFT_RETURN_IF_ERROR(WritePack());
    at = 0;
  }
  std::memset(pack_.data + pack_used_, 0, at - pack_used_);
  WEFT_RETURN_IF_ERROR(source_.Read(ids_[id], 0, {pack_.data + at, static_cast<size_t>(bytes)}));
  pack_used_ = at + bytes;
  members_.push_back({id, static_cast<uint32_t>(at), static_cast<uint32_t>(bytes)});
  placed_[id] = {static_cast<uint32_t>(packs_.size()), static_cast<uint32_t>(at), 1, Placed::kPack};
  Postpone(id);
  return absl::OkStatus();
}

absl::Status Writer::WriteChunks(uint32_t id) {
  const Tree::TensorLeaf& leaf = Leaf(id);
  const uint64_t bytes = *BytesOf(id);
  uint64_t chunk = kChunkBytes;
  if ((bytes + chunk - 1) / chunk > kChunksPerTensor) chunk = kLargestChunk;
  // Whole rows where a row fits, so that a range of rows is a range of chunks.
  const uint64_t rows = leaf.dims.empty() ? 1 : static_cast<uint64_t>(leaf.dims[0]);
  const uint64_t row = bytes / rows;
  if (row * rows == bytes && row <= chunk / 4 && row > 0) chunk = chunk / row * row;
  WEFT_RETURN_IF_ERROR(chunk_.Ensure(std::max<uint64_t>(kChunkBytes, chunk)));

  Postpone(id);
  WEFT_RETURN_IF_ERROR(WriteDescriptions());
  placed_[id].first = static_cast<uint32_t>(chunks_.size());
  Message message;
  for (uint64_t offset = 0; offset < bytes; offset += chunk) {
    const size_t n = static_cast<size_t>(std::min(chunk, bytes - offset));
    const std::span<std::byte> payload(chunk_.data, n);
    WEFT_RETURN_IF_ERROR(source_.Read(ids_[id], offset, payload));
    ChunkFrameRecord frame = {id, placed_[id].count++, offset, static_cast<uint32_t>(n), Checksum64(payload), {}};
    WEFT_RETURN_IF_ERROR(EncodeChunk(frame, &message));
    chunks_.push_back({PayloadOffset(out_.position(), message.size(), n), frame.hash, frame.bytes, 0});
    WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kChunk, message, payload));
    WEFT_RETURN_IF_ERROR(Progress(n));
  }
  return absl::OkStatus();
}

absl::Status Writer::WriteTensor(uint32_t id) {
  const uint64_t bytes = *BytesOf(id);
  if (bytes < kInlineBelow) {
    std::byte data[kInlineBelow];
    if (bytes > 0) WEFT_RETURN_IF_ERROR(source_.Read(ids_[id], 0, {data, static_cast<size_t>(bytes)}));
    placed_[id] = {static_cast<uint32_t>(inline_.size()), 0, 0, Placed::kInline};
    inline_.append(reinterpret_cast<const char*>(data), bytes);
    Postpone(id);
    if (bytes > 0) WEFT_RETURN_IF_ERROR(Progress(bytes));
    // Descriptions of a pack's members must stand before the pack, so both go out together.
    return DescriptionsAreFull() ? WritePack() : absl::OkStatus();
  }
  return bytes < kPackBelow ? AddToPack(id) : WriteChunks(id);
}

absl::Status Writer::WriteIndex(FooterRecord* footer) {
  std::vector<uint32_t> order(ids_.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return NameOf(a) < NameOf(b); });
  std::vector<IndexRecord> entries;
  Message message;
  for (size_t first = 0; first < order.size();) {
    entries.clear();
    size_t bytes = 0;
    for (; first < order.size() && entries.size() < kEntriesPerPage; ++first) {
      const uint32_t id = order[first];
      const Placed& place = placed_[id];
      const size_t more = 512 + NameOf(id).size() + place.count * 48;
      if (!entries.empty() && bytes + more > kPageBytes) break;
      bytes += more;
      IndexRecord entry;
      entry.tensor = Describe(id);
      for (uint32_t k = 0; k < place.count; ++k) {
        entry.chunks.push_back((place.where == Placed::kPack ? packs_ : chunks_)[place.first + k]);
        entry.chunks.back().inner = place.inner;
      }
      entries.push_back(std::move(entry));
    }
    PageRecord page;
    page.first_name = entries.front().tensor.name;
    page.count = static_cast<uint32_t>(entries.size());
    page.offset = out_.position();
    WEFT_RETURN_IF_ERROR(EncodeIndexPage(entries, &message));
    WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kIndexPage, message, {}, &page.hash));
    page.bytes = static_cast<uint32_t>(out_.position() - page.offset);
    footer->pages.push_back(std::move(page));
  }
  return absl::OkStatus();
}

absl::Status Writer::Run() {
  Prologue prologue;
  prologue.uuid = uuid_;
  std::byte raw[kPrologueBytes];
  EncodePrologue(prologue, raw);
  WEFT_RETURN_IF_ERROR(out_.Append(raw));

  HeaderRecord header;
  header.required = prologue.required;
  header.uuid = uuid_;
  header.producer = options_.producer;
  header.created_unix_ns = UnixNow();
  header.step = options_.step;
  header.chunk_bytes = kChunkBytes;
  header.user = options_.user;
  Message message;
  WEFT_RETURN_IF_ERROR(EncodeHeader(header, &message));
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kHeader, message, {}));

  FooterRecord footer;
  footer.tree_offset = out_.position();
  footer.tree_frames = static_cast<uint32_t>(tree_messages_.size());
  footer.tree_nodes = static_cast<uint32_t>(tree_.size());
  for (Message& part : tree_messages_) {
    WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kTree, part, {}));
    Message().swap(part);
  }
  placed_.resize(ids_.size());
  for (uint32_t id = 0; id < ids_.size(); ++id) WEFT_RETURN_IF_ERROR(WriteTensor(id));
  WEFT_RETURN_IF_ERROR(WritePack());
  footer.tensors = ids_.size();
  footer.chunks = chunks_.size() + packs_.size();
  footer.raw_bytes = total_;
  WEFT_RETURN_IF_ERROR(WriteIndex(&footer));
  footer.root_hash = root_.Value();

  Trailer trailer;
  trailer.footer_offset = out_.position();
  WEFT_RETURN_IF_ERROR(EncodeFooter(footer, &message));
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kFooter, message, {}, &trailer.footer_hash));
  trailer.footer_bytes = out_.position() - trailer.footer_offset;
  trailer.file_bytes = out_.position() + kTrailerBytes;
  trailer.root_hash_low = footer.root_hash.low;
  std::byte tail[kTrailerBytes];
  EncodeTrailer(trailer, tail);
  WEFT_RETURN_IF_ERROR(out_.Append(tail));
  WEFT_RETURN_IF_ERROR(out_.Finish());
  stats_.file_bytes = trailer.file_bytes;
  stats_.tensor_bytes = total_;
  stats_.tensors = ids_.size();
  stats_.chunks = footer.chunks;
  return absl::OkStatus();
}

// "cannot save …" in front of what went wrong; the code stays.
absl::Status Saving(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return WithText(status, absl::StrCat("saving checkpoint '", path, "': ", status.message()));
}

}  // namespace

absl::StatusOr<FilePlace> PlaceOfCheckpoint(const std::string& path, FileSystem* fs) {
  absl::StatusOr<FilePlace> place = FilePlace::Find(fs != nullptr ? fs : PosixFileSystem(), path);
  if (!place.ok()) return Saving(path, place.status());
  return place;
}

absl::Status SaveCheckpoint(const std::string& path, const Tree& tree, TensorSource& source, const SaveOptions& options,
                            SaveStats* stats) {
  WEFT_ASSIGN_OR_RETURN(FilePlace place, PlaceOfCheckpoint(path, options.fs));
  return SaveCheckpoint(std::move(place), tree, source, options, stats);
}

absl::Status SaveCheckpoint(FilePlace place, const Tree& tree, TensorSource& source, const SaveOptions& options,
                            SaveStats* stats) {
  SaveStats unused;
  if (stats == nullptr) stats = &unused;
  const std::string path = place.path;
  FileSystem* fs = place.folder.fs();
  return Saving(path, [&]() -> absl::Status {
    uint64_t total = 0;
    for (const Tree::TensorLeaf& leaf : tree.tensors()) {
      total += StoredBytes(options.held.Of(leaf.dtype), leaf.dims).value_or(0);
    }
    WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(std::move(place), {.durability = options.durability,
                                                                                 .direct = total >= kDirectFrom}));
    {
      BlockWriter out(&file.file(), file.direct() ? BlockWriter::Target::kDirectFile : BlockWriter::Target::kFile);
      Writer writer(&out, tree, source, options, stats);
      WEFT_RETURN_IF_ERROR(writer.Plan());
      stats->direct = file.direct();
      if (total >= kDirectFrom) {
        // A full disk shows before the work, and extents come in one piece. Not every file system can.
        const int64_t bytes = static_cast<int64_t>(writer.estimated_file_bytes());
        const int reserved = fs->Allocate(file.file().fd(), bytes);
        if (reserved == -ENOSPC || reserved == -EDQUOT || reserved == -EFBIG) {
          return IoError(absl::StrCat("reserve ", bytes, " bytes for"), file.file().path(), reserved);
        }
      }
      WEFT_RETURN_IF_ERROR(writer.Run());
    }
    return file.Commit();
  }());
}

absl::Status StreamCheckpoint(int fd, const std::string& name, const Tree& tree, TensorSource& source,
                              const SaveOptions& options, SaveStats* stats) {
  SaveStats unused;
  if (stats == nullptr) stats = &unused;
  File file = File::Borrow(options.fs != nullptr ? options.fs : PosixFileSystem(), fd, name);
  BlockWriter out(&file, BlockWriter::Target::kStream);
  Writer writer(&out, tree, source, options, stats);
  return Saving(name, [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(writer.Plan());
    return writer.Run();
  }());
}

}  // namespace weft
