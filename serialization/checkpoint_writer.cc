// Header, tree, then per tensor its bytes in one piece with their checksums behind (small ones gathered into packs, the smallest
// only in the index), index pages sorted by name, footer, trailer. Never seeks back, so a file and a pipe get the same bytes.
#include "serialization/checkpoint_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "serialization/block_writer.h"
#include "serialization/checkpoint_parts.h"
#include "serialization/checkpoint_schema.h"
#include "serialization/limits.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kPieceBytes = 4 << 20;  // read from the source at a time
constexpr uint64_t kPackBytes = 4 << 20;
constexpr uint64_t kMemberAlign = 64;  // in a pack
constexpr uint64_t kInsideBelow = 65;  // bytes; readers accept up to 256
constexpr uint64_t kPackBelow = kLargePayload;
constexpr size_t kMembersPerPack = 16384;
constexpr uint64_t kDirectFrom = 16 << 20;  // below, the page cache is quicker than waiting for the disk

// A large allocation through the hook.
struct Buffer {
  ~Buffer() { FreeLarge(data, size); }
  absl::Status Ensure(size_t bytes) {
    if (size >= bytes) return absl::OkStatus();
    FreeLarge(data, size);
    size = 0;
    data = static_cast<std::byte*>(AllocateLarge(bytes, 4096));
    if (data == nullptr) return NoLargeMemory(absl::StrCat(bytes, " bytes of a checkpoint's payload"));
    size = bytes;
    return absl::OkStatus();
  }
  std::byte* data = nullptr;
  size_t size = 0;
};

// The place of a tensor in the file; 12 bytes, because a state may have a million of them.
struct Placed {
  uint32_t first = 0;  // in data_, in packs_, in parts_, or in inside_
  uint32_t inner = 0;  // in a pack
  enum : uint8_t { kData, kPack, kInside, kParts } where = kData;
};

class Writer {
 public:
  // `base` may be null.
  Writer(BlockWriter* out, const Tree& tree, TensorSource& source, const SaveOptions& options, SaveStats* stats,
         BaseFile* base = nullptr)
      : out_(*out), tree_(tree), source_(source), options_(options), stats_(*stats), base_(base) {}

  // Sizes of everything, before the first byte is written.
  absl::Status Plan();
  uint64_t total_bytes() const { return total_; }
  uint64_t estimated_file_bytes() const { return estimate_ + 256 * tree_.size() + (64 << 10); }
  absl::Status Run();

 private:
  absl::Status BeginFrame(FrameKind kind, std::span<const std::byte> meta, uint64_t payload);
  absl::Status EndFrame();
  absl::Status WriteFrame(FrameKind kind, std::span<const std::byte> meta, std::span<const std::byte> payload);
  absl::Status WriteTensor(uint32_t id);
  absl::Status AddToPack(uint32_t id);
  absl::Status WriteData(uint32_t id);
  bool in_parts() const { return options_.compress || base_ != nullptr || options_.elsewhere != nullptr; }
  absl::Status WriteParts(uint32_t id);
  absl::Status WritePartsFrame(uint32_t id, const PartsRecord& record);
  absl::StatusOr<PartPlace> WritePart(const PartsRecord& parts, std::span<const std::byte> piece);
  absl::Status WritePack();
  IndexRecord Entry(uint32_t id) const;
  absl::Status WriteIndex(FooterRecord* footer);
  absl::Status Progress(uint64_t bytes);

  const std::vector<uint32_t>& ids() const { return encoder_->leaves(); }
  const Tree::TensorLeaf& Leaf(uint32_t id) const { return tree_.tensors()[ids()[id]]; }
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
  BaseFile* const base_;
  PartCompressor compressor_;

  std::optional<TreeEncoder> encoder_;  // knows the tree's leaf of each file id
  std::string names_;                   // all paths, back to back
  std::vector<uint64_t> name_ends_{0};
  uint64_t total_ = 0, done_ = 0, estimate_ = 0;

  struct PackPlace {
    uint64_t payload, sum;
    uint32_t bytes;
  };
  struct DataPlace {
    uint64_t payload;
    size_t first_sum;  // in sums_
  };
  struct PartsPlace {
    uint64_t frame, sum;
    uint32_t bytes;
  };
  std::vector<Placed> placed_;
  std::vector<PartsPlace> parts_;
  std::vector<DataPlace> data_;
  std::vector<PackPlace> packs_;
  std::vector<uint64_t> sums_;
  std::string inside_;
  Buffer piece_, pack_;
  size_t pack_used_ = 0;
  uint64_t part_frames_ = 0;
  std::vector<PackRecord::Member> members_;
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
  WEFT_ASSIGN_OR_RETURN(encoder_, TreeEncoder::Of(tree_));
  tree_.ForEachPath([&](Tree::NodeId id, const std::string& path) {
    if (tree_.node(id).kind != Tree::Kind::kTensor) return;
    names_ += path;
    name_ends_.push_back(names_.size());
  });
  for (uint32_t id = 0; id < ids().size(); ++id) {
    const std::optional<uint64_t> bytes = BytesOf(id);
    if (!bytes.has_value() || *bytes > kMaxDataBytes) {
      return UserError("tensor '", NameOf(id), "' of ", weft::NameOf(Leaf(id).dtype), DimsToString(Leaf(id).dims),
                       " is too large for a checkpoint (at most ", kMaxDataBytes, " bytes a tensor)");
    }
    estimate_ += *bytes + 2 * NameOf(id).size() + 512 + (*bytes >= kPackBelow ? PayloadAlign(*bytes) : 0);
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
  return record;
}

IndexRecord Writer::Entry(uint32_t id) const {
  IndexRecord entry;
  entry.tensor = Describe(id);
  entry.tensor.name = NameOf(id);
  const Placed& place = placed_[id];
  if (place.where == Placed::kInside) {
    entry.inside = inside_.substr(place.first, entry.tensor.bytes);
  } else if (place.where == Placed::kPack) {
    const PackPlace& pack = packs_[place.first];
    entry.payload = pack.payload;
    entry.pack_bytes = pack.bytes;
    entry.inner = place.inner;
    entry.pack_sum = pack.sum;
  } else if (place.where == Placed::kParts) {
    const PartsPlace& parts = parts_[place.first];
    entry.payload = parts.frame;
    entry.inner = parts.bytes;
    entry.pack_sum = parts.sum;
  } else {
    const DataPlace& data = data_[place.first];
    entry.payload = data.payload;
    const auto first = sums_.begin() + static_cast<ptrdiff_t>(data.first_sum);
    entry.sums.assign(first, first + static_cast<ptrdiff_t>(SumCount(entry.tensor.bytes)));
  }
  return entry;
}

absl::Status Writer::BeginFrame(FrameKind kind, std::span<const std::byte> meta, uint64_t payload) {
  std::byte prefix[kPrefixBytes];
  EncodePrefix(kind, meta, payload, prefix);
  const uint64_t offset = out_.position();
  if (kind != FrameKind::kFooter) root_.Add(prefix);
  WEFT_RETURN_IF_ERROR(out_.Append(prefix));
  WEFT_RETURN_IF_ERROR(out_.Append(meta));
  return out_.AppendZeros(PayloadOffset(offset, meta.size(), payload) - out_.position());
}

absl::Status Writer::EndFrame() { return out_.AppendZeros(RoundUp(out_.position(), kFrameAlign) - out_.position()); }

absl::Status Writer::WriteFrame(FrameKind kind, std::span<const std::byte> meta, std::span<const std::byte> payload) {
  WEFT_RETURN_IF_ERROR(BeginFrame(kind, meta, payload.size()));
  if (!payload.empty()) WEFT_RETURN_IF_ERROR(out_.Append(payload));
  return EndFrame();
}

// Returns the hash of a frame without payload; such frames are small.
uint64_t HashOfFrame(FrameKind kind, std::span<const std::byte> meta) {
  std::vector<std::byte> whole(RoundUp(kPrefixBytes + meta.size(), kFrameAlign));
  EncodePrefix(kind, meta, 0, whole.data());
  std::ranges::copy(meta, whole.begin() + kPrefixBytes);
  return Checksum64(whole);
}

absl::Status Writer::Progress(uint64_t bytes) {
  done_ += bytes;
  return options_.progress ? options_.progress(done_, total_) : absl::OkStatus();
}

absl::Status Writer::WritePack() {
  if (members_.empty()) return absl::OkStatus();
  const std::span<const std::byte> payload(pack_.data, pack_used_);
  PackRecord record;
  record.sum = Checksum64(payload);
  record.members.swap(members_);
  Message message;
  WEFT_RETURN_IF_ERROR(EncodePack(record, &message));
  const uint64_t at = PayloadOffset(out_.position(), message.size(), payload.size());
  packs_.push_back({at, record.sum, static_cast<uint32_t>(pack_used_)});
  uint64_t bytes = 0;
  for (const PackRecord::Member& member : record.members) bytes += member.tensor.bytes;
  pack_used_ = 0;
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kPack, message, payload));
  return Progress(bytes);
}

absl::Status Writer::AddToPack(uint32_t id) {
  const uint64_t bytes = *BytesOf(id);
  WEFT_RETURN_IF_ERROR(pack_.Ensure(kPackBytes));
  size_t at = RoundUp(pack_used_, kMemberAlign);
  if (at + bytes > kPackBytes || members_.size() >= kMembersPerPack) {
    WEFT_RETURN_IF_ERROR(WritePack());
    at = 0;
  }
  std::memset(pack_.data + pack_used_, 0, at - pack_used_);
  WEFT_RETURN_IF_ERROR(source_.Read(ids()[id], 0, {pack_.data + at, static_cast<size_t>(bytes)}));
  pack_used_ = at + bytes;
  members_.push_back({Describe(id), static_cast<uint32_t>(at)});
  placed_[id] = {static_cast<uint32_t>(packs_.size()), static_cast<uint32_t>(at), Placed::kPack};
  return absl::OkStatus();
}

absl::Status Writer::WriteData(uint32_t id) {
  const uint64_t bytes = *BytesOf(id), each = SumBytes(bytes);
  WEFT_RETURN_IF_ERROR(piece_.Ensure(std::max(kPieceBytes, each)));
  Message message;
  WEFT_RETURN_IF_ERROR(EncodeData(Describe(id), &message));
  const uint64_t at = PayloadOffset(out_.position(), message.size(), bytes);
  WEFT_RETURN_IF_ERROR(BeginFrame(FrameKind::kData, message, bytes));
  SumsRecord record{.tensor = id, .sums = {}};
  for (uint64_t offset = 0; offset < bytes; offset += each) {
    const std::span<std::byte> piece(piece_.data, static_cast<size_t>(std::min(each, bytes - offset)));
    WEFT_RETURN_IF_ERROR(source_.Read(ids()[id], offset, piece));
    record.sums.push_back(Checksum64(piece));
    WEFT_RETURN_IF_ERROR(out_.Append(piece));
    WEFT_RETURN_IF_ERROR(Progress(piece.size()));
  }
  WEFT_RETURN_IF_ERROR(EndFrame());
  placed_[id] = {static_cast<uint32_t>(data_.size()), 0, Placed::kData};
  data_.push_back({at, sums_.size()});
  sums_.insert(sums_.end(), record.sums.begin(), record.sums.end());
  WEFT_RETURN_IF_ERROR(EncodeSums(record, &message));
  return WriteFrame(FrameKind::kSums, message, {});
}

absl::StatusOr<PartPlace> Writer::WritePart(const PartsRecord& parts, std::span<const std::byte> piece) {
  PartRecord part{.tensor = parts.tensor, .index = static_cast<uint32_t>(parts.parts.size()), .place = {}};
  std::span<const std::byte> stored;
  if (options_.compress) {
    WEFT_ASSIGN_OR_RETURN(stored, compressor_.Compress(parts.tensor.dtype, piece));
  }
  part.place.codec = stored.empty() ? PartCodec::kNone : PartCodec::kZstd;
  if (stored.empty()) stored = piece;
  part.place.bytes = static_cast<uint32_t>(stored.size());
  part.place.sum = part.place.codec == PartCodec::kNone ? parts.sums.back() : Checksum64(stored);
  Message message;
  WEFT_RETURN_IF_ERROR(EncodePart(part, &message));
  part.place.payload = PayloadOffset(out_.position(), message.size(), stored.size());
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kPart, message, stored));
  ++part_frames_;
  return part.place;
}

absl::Status Writer::WriteParts(uint32_t id) {
  PartsRecord record{.tensor = Describe(id), .parts = {}, .sums = {}};
  const uint64_t bytes = record.tensor.bytes, each = SumBytes(bytes);
  if (options_.elsewhere != nullptr) {
    for (const PartPlace& place : options_.elsewhere->Find(ids()[id])) {
      record.parts.push_back(place);
      record.sums.push_back(place.sum);
    }
    if (!record.parts.empty()) {
      WEFT_RETURN_IF_ERROR(Progress(bytes));
      return WritePartsFrame(id, record);
    }
  }
  WEFT_RETURN_IF_ERROR(piece_.Ensure(std::max(kPieceBytes, each)));
  const std::optional<uint32_t> theirs = base_ != nullptr ? base_->Find(NameOf(id), record.tensor) : std::nullopt;
  for (uint64_t offset = 0; offset < bytes; offset += each) {
    const std::span<std::byte> piece(piece_.data, static_cast<size_t>(std::min(each, bytes - offset)));
    WEFT_RETURN_IF_ERROR(source_.Read(ids()[id], offset, piece));
    record.sums.push_back(Checksum64(piece));
    std::optional<PartPlace> place;
    if (theirs.has_value()) {
      WEFT_ASSIGN_OR_RETURN(place, base_->Take(*theirs, offset / each, record.sums.back(), piece));
    }
    if (!place.has_value()) {
      WEFT_ASSIGN_OR_RETURN(place, WritePart(record, piece));
    }
    record.parts.push_back(*place);
    WEFT_RETURN_IF_ERROR(Progress(piece.size()));
  }
  return WritePartsFrame(id, record);
}

absl::Status Writer::WritePartsFrame(uint32_t id, const PartsRecord& record) {
  Message message;
  WEFT_RETURN_IF_ERROR(EncodeParts(record, &message));
  const uint64_t at = out_.position();
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kParts, message, {}));
  placed_[id] = {static_cast<uint32_t>(parts_.size()), 0, Placed::kParts};
  parts_.push_back({at, HashOfFrame(FrameKind::kParts, message), static_cast<uint32_t>(out_.position() - at)});
  return absl::OkStatus();
}

absl::Status Writer::WriteTensor(uint32_t id) {
  const uint64_t bytes = *BytesOf(id);
  if (bytes >= kPackBelow) return in_parts() ? WriteParts(id) : WriteData(id);
  if (bytes >= kInsideBelow) return AddToPack(id);
  std::byte data[kInsideBelow];
  if (bytes > 0) WEFT_RETURN_IF_ERROR(source_.Read(ids()[id], 0, {data, static_cast<size_t>(bytes)}));
  placed_[id] = {static_cast<uint32_t>(inside_.size()), 0, Placed::kInside};
  inside_.append(reinterpret_cast<const char*>(data), bytes);
  return bytes > 0 ? Progress(bytes) : absl::OkStatus();
}

absl::Status Writer::WriteIndex(FooterRecord* footer) {
  std::vector<uint32_t> order(ids().size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return NameOf(a) < NameOf(b); });
  std::vector<IndexRecord> entries;
  Message message;
  for (size_t first = 0; first < order.size();) {
    entries.clear();
    size_t bytes = kIndexPageOverhead;
    for (; first < order.size(); ++first) {
      IndexRecord entry = Entry(order[first]);
      const size_t more =
          IndexEntryBytes(entry.tensor.name.size(), entry.tensor.dims.size(), entry.inside.size(), entry.sums.size());
      if (!entries.empty() && bytes + more > kMaxPageBytes) break;
      bytes += more;
      entries.push_back(std::move(entry));
    }
    PageRecord page;
    page.first_name = entries.front().tensor.name;
    page.count = static_cast<uint32_t>(entries.size());
    page.offset = out_.position();
    WEFT_RETURN_IF_ERROR(EncodeIndexPage(entries, &message));
    page.hash = HashOfFrame(FrameKind::kIndexPage, message);
    WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kIndexPage, message, {}));
    page.bytes = static_cast<uint32_t>(out_.position() - page.offset);
    footer->pages.push_back(std::move(page));
  }
  return absl::OkStatus();
}

absl::Status Writer::Run() {
  Prologue prologue;
  prologue.uuid = uuid_;
  if (in_parts()) prologue.required |= kFeatureParts;
  if (base_ != nullptr || options_.elsewhere != nullptr) prologue.required |= kFeatureBases;
  std::byte raw[kPrologueBytes];
  EncodePrologue(prologue, raw);
  WEFT_RETURN_IF_ERROR(out_.Append(raw));

  HeaderRecord header;
  header.required = prologue.required;
  header.uuid = uuid_;
  header.producer = options_.producer;
  header.created_unix_ns = UnixNow();
  header.step = options_.step;
  header.user = options_.user;
  Message message;
  WEFT_RETURN_IF_ERROR(EncodeHeader(header, &message));
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kHeader, message, {}));

  FooterRecord footer;
  footer.tree_offset = out_.position();
  footer.tree_nodes = static_cast<uint32_t>(tree_.size());
  for (;; ++footer.tree_frames) {
    WEFT_ASSIGN_OR_RETURN(const bool more, encoder_->Next(&message));
    if (!more) break;
    WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kTree, message, {}));
  }
  placed_.resize(ids().size());
  for (uint32_t id = 0; id < ids().size(); ++id) WEFT_RETURN_IF_ERROR(WriteTensor(id));
  WEFT_RETURN_IF_ERROR(WritePack());
  footer.tensors = ids().size();
  footer.payloads = data_.size() + packs_.size() + part_frames_;
  footer.raw_bytes = total_;
  WEFT_RETURN_IF_ERROR(WriteIndex(&footer));
  footer.root_hash = root_.Value();
  if (base_ != nullptr) footer.bases = base_->records();
  if (options_.elsewhere != nullptr) footer.bases = options_.elsewhere->files();

  Trailer trailer;
  trailer.footer_offset = out_.position();
  WEFT_RETURN_IF_ERROR(EncodeFooter(footer, &message));
  trailer.footer_hash = HashOfFrame(FrameKind::kFooter, message);
  WEFT_RETURN_IF_ERROR(WriteFrame(FrameKind::kFooter, message, {}));
  trailer.footer_bytes = out_.position() - trailer.footer_offset;
  trailer.file_bytes = out_.position() + kTrailerBytes;
  trailer.root_hash_low = footer.root_hash.low;
  std::byte tail[kTrailerBytes];
  EncodeTrailer(trailer, tail);
  WEFT_RETURN_IF_ERROR(out_.Append(tail));
  WEFT_RETURN_IF_ERROR(out_.Finish());
  stats_.file_bytes = trailer.file_bytes;
  stats_.tensor_bytes = total_;
  stats_.tensors = ids().size();
  stats_.payloads = footer.payloads;
  return absl::OkStatus();
}

// "cannot save …" in front of what went wrong; the code stays.
absl::Status Saving(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return WithText(status, absl::StrCat("saving checkpoint '", path, "': ", status.message()));
}

// A full disk shows before the work, and extents come in one piece. Not every file system can.
absl::Status Reserve(const File& file, uint64_t bytes) {
  const int reserved = file.fs()->Allocate(file.fd(), static_cast<int64_t>(bytes));
  if (reserved != -ENOSPC && reserved != -EDQUOT && reserved != -EFBIG) return absl::OkStatus();
  return IoError(absl::StrCat("reserve ", bytes, " bytes for"), file.path(), reserved);
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
  return Saving(path, [&]() -> absl::Status {
    uint64_t total = 0;
    for (const Tree::TensorLeaf& leaf : tree.tensors()) {
      total += StoredBytes(options.held.Of(leaf.dtype), leaf.dims).value_or(0);
    }
    // Bytes that need not reach the disk go no further than the page cache.
    const bool direct =
        options.durability == Durability::kPower && total >= kDirectFrom && options.elsewhere == nullptr;
    std::optional<BaseFile> base;
    if (!options.base.empty()) {
      WEFT_ASSIGN_OR_RETURN(base, BaseFile::Open(place, options.base));
    }
    struct Writing {
      AtomicFile file;
      std::optional<BlockWriter> out;
    };
    auto writing = std::make_unique<Writing>();
    AtomicFile& file = writing->file;
    WEFT_ASSIGN_OR_RETURN(file,
                          AtomicFile::Create(std::move(place), {.durability = options.durability, .direct = direct}));
    stats->direct = file.direct();
    const auto target = file.direct() ? BlockWriter::Target::kDirectFile : BlockWriter::Target::kFile;
    writing->out.emplace(&file.file(), target, /*alone=*/false, options.wait.look);
    const absl::Status written = [&]() -> absl::Status {
      Writer writer(&*writing->out, tree, source, options, stats, base.has_value() ? &*base : nullptr);
      WEFT_RETURN_IF_ERROR(writer.Plan());
      if (total >= kDirectFrom && !base.has_value() && options.elsewhere == nullptr)
        WEFT_RETURN_IF_ERROR(Reserve(file.file(), writer.estimated_file_bytes()));
      return writer.Run();
    }();
    if (absl::IsCancelled(written) || absl::IsDeadlineExceeded(written)) {
      file.Discard();
      LeaveBehind(options.wait, std::move(writing));
    }
    WEFT_RETURN_IF_ERROR(written);
    writing->out.reset();
    return file.Commit(options.wait);
  }());
}

absl::Status StreamCheckpoint(int fd, const std::string& name, const Tree& tree, TensorSource& source,
                              const SaveOptions& options, SaveStats* stats) {
  SaveStats unused;
  if (stats == nullptr) stats = &unused;
  File file = File::Borrow(options.fs != nullptr ? options.fs : PosixFileSystem(), fd, name);
  BlockWriter out(&file, BlockWriter::Target::kStream, options.writes_itself);
  Writer writer(&out, tree, source, options, stats);
  return Saving(name, [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(writer.Plan());
    return writer.Run();
  }());
}

}  // namespace weft
