// Trailer → footer → header, then pages of the index as they are needed, each from a private copy whose checksum matched, each
// place checked before memory is asked for.
#include "serialization/checkpoint_reader.h"

#include <algorithm>
#include <cstring>

#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const std::string& path,
                                                                         const OpenOptions& options) {
  FileSystem* fs = options.fs != nullptr ? options.fs : PosixFileSystem();
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, &info));
  return Open(std::move(file), options);
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(File file, const OpenOptions& options) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader);
  reader->file_ = std::move(file);
  WEFT_ASSIGN_OR_RETURN(const FileInfo info, reader->file_.Info());
  reader->file_bytes_ = static_cast<uint64_t>(info.size);
  WEFT_RETURN_IF_ERROR(reader->Load(options));
  return reader;
}

absl::StatusOr<Frame> CheckpointReader::ReadFrame(uint64_t offset, uint64_t limit) {
  if (offset % kFrameAlign != 0 || offset >= limit) return Damaged(file_.path(), offset, "no frame can start here");
  ByteSource source(&file_, offset, limit);
  FrameScanner scanner(&source);
  Frame frame;
  WEFT_RETURN_IF_ERROR(scanner.Next(&frame));
  return frame;
}

absl::Status CheckpointReader::Load(const OpenOptions& options) {
  verify_ = options.verify;
  const std::string& path = file_.path();
  std::byte raw[kPrologueBytes];
  const size_t start = static_cast<size_t>(std::min<uint64_t>(file_bytes_, kPrologueBytes));
  WEFT_RETURN_IF_ERROR(file_.ReadAt(0, {raw, start}));
  WEFT_ASSIGN_OR_RETURN(const Prologue prologue, DecodePrologue({raw, start}, path));
  if (file_bytes_ < kPrologueBytes + kTrailerBytes + kPrefixBytes) {
    return Damaged(path, file_bytes_, "the file ends here, before any content");
  }
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(file_bytes_ - kTrailerBytes), raw));
  WEFT_ASSIGN_OR_RETURN(trailer_, DecodeTrailer(raw, file_bytes_, path));

  std::vector<std::byte> bytes(trailer_.footer_bytes);
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(trailer_.footer_offset), bytes));
  if (!ChecksumsMatch(trailer_.footer_hash, Checksum64(bytes))) {
    return Damaged(path, trailer_.footer_offset, "the checksum of the footer does not match");
  }
  WEFT_ASSIGN_OR_RETURN(const Frame frame, ParseFrame(bytes, trailer_.footer_offset, FrameKind::kFooter, path));
  WEFT_ASSIGN_OR_RETURN(footer_, DecodeFooter(frame, path));
  if (!ChecksumsMatch(footer_.root_hash.low, trailer_.root_hash_low)) {
    return Damaged(path, trailer_.footer_offset, "footer and trailer disagree about the root hash");
  }
  // An index entry takes at least 64 bytes, so a lie about the number is found before memory is asked for.
  if (footer_.tensors > file_bytes_ / 64) {
    return Damaged(path, trailer_.footer_offset, "more tensors are announced than the file can hold");
  }
  uint64_t expected = data_end(), entries = 0;
  for (const PageRecord& page : footer_.pages) {
    if (page.offset != expected || page.offset < kPrologueBytes || page.offset > trailer_.footer_offset ||
        page.bytes > trailer_.footer_offset - page.offset || page.bytes > kMaxPageBytes) {
      return Damaged(path, page.offset, "an index page does not stand where the one before ends");
    }
    expected = page.offset + page.bytes;
    entries += page.count;
  }
  if (expected != trailer_.footer_offset || entries != footer_.tensors) {
    return Damaged(path, trailer_.footer_offset, "the index has ", entries, " tensors, the footer says ",
                   footer_.tensors);
  }
  pages_.resize(footer_.pages.size());
  WEFT_RETURN_IF_ERROR(LoadHeader(prologue));
  if (verify_ != Verify::kAll) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(LoadAll());
  return VerifyFrames();
}

absl::Status CheckpointReader::LoadHeader(const Prologue& prologue) {
  const std::string& path = file_.path();
  WEFT_ASSIGN_OR_RETURN(const Frame header, ReadFrame(kPrologueBytes, data_end()));
  if (header.kind != FrameKind::kHeader) return Damaged(path, kPrologueBytes, "the header is missing");
  WEFT_ASSIGN_OR_RETURN(header_, DecodeHeader(header, path));
  if (header_.uuid != prologue.uuid || header_.required != prologue.required) {
    return Damaged(path, kPrologueBytes, "prologue and header disagree");
  }
  if (!footer_.bases.empty() && (header_.required & kFeatureBases) == 0) {
    return Damaged(path, trailer_.footer_offset, "the footer names bases, which the header does not say");
  }
  header_.bases = footer_.bases;
  for (const BaseRecord& base : header_.bases) header_.base_names += base.name + "\n";
  return absl::OkStatus();
}

absl::StatusOr<const Frame*> CheckpointReader::Page(size_t index) {
  if (pages_[index] != nullptr) return pages_[index].get();
  const PageRecord& page = footer_.pages[index];
  std::vector<std::byte> bytes(page.bytes);
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(page.offset), bytes));
  if (!ChecksumsMatch(page.hash, Checksum64(bytes)))
    return Damaged(file_.path(), page.offset, "the checksum of an index page does not match");
  WEFT_ASSIGN_OR_RETURN(Frame frame, ParseFrame(bytes, page.offset, FrameKind::kIndexPage, file_.path()));
  pages_[index] = std::make_unique<Frame>(std::move(frame));
  return pages_[index].get();
}

absl::Status CheckpointReader::LoadAll() {
  if (all_) return absl::OkStatus();
  if (entries_.empty()) WEFT_RETURN_IF_ERROR(LoadIndex());
  WEFT_RETURN_IF_ERROR(LoadTree());
  all_ = true;
  return absl::OkStatus();
}

absl::Status CheckpointReader::LoadIndex() {
  const std::string& path = file_.path();
  std::vector<IndexRecord> all(footer_.tensors);
  std::vector<bool> known(footer_.tensors);
  std::vector<uint32_t> by_name;
  uint64_t total = 0;
  for (size_t i = 0; i < footer_.pages.size(); ++i) {
    const PageRecord& page = footer_.pages[i];
    WEFT_ASSIGN_OR_RETURN(const Frame* frame, Page(i));
    WEFT_ASSIGN_OR_RETURN(std::vector<IndexRecord> entries, DecodeIndexPage(*frame, path));
    pages_[i].reset();
    if (entries.empty() || entries.size() != page.count || entries[0].tensor.name != page.first_name) {
      return Damaged(path, page.offset, "an index page does not hold what the footer says");
    }
    for (IndexRecord& entry : entries) {
      const uint32_t id = entry.tensor.id;
      if (id >= all.size() || known[id]) {
        return Damaged(path, page.offset, "tensor id ", id, " is used twice or larger than the number of tensors");
      }
      if (!by_name.empty() && !(all[by_name.back()].tensor.name < entry.tensor.name)) {
        return Damaged(path, page.offset, "the index is not sorted at '", entry.tensor.name, "'");
      }
      known[id] = true;
      total += entry.tensor.bytes;
      all[id] = std::move(entry);
      by_name.push_back(id);
    }
  }
  if (total != footer_.raw_bytes) {
    return Damaged(path, trailer_.footer_offset, "the index has tensors of ", total, " bytes, the footer says ",
                   footer_.raw_bytes);
  }
  entries_ = std::move(all);
  by_name_ = std::move(by_name);
  const absl::Status placed = CheckPlaces();
  if (!placed.ok()) entries_.clear();
  return placed;
}

absl::Status CheckpointReader::LoadTree() {
  const std::string& path = file_.path();
  TreeDecoder tree;
  uint64_t at = footer_.tree_offset;
  for (uint32_t i = 0; i < footer_.tree_frames; ++i) {
    WEFT_ASSIGN_OR_RETURN(const Frame frame, ReadFrame(at, data_end()));
    if (frame.kind != FrameKind::kTree) return Damaged(path, at, "a frame of the tree is missing");
    WEFT_RETURN_IF_ERROR(tree.Add(frame, path));
    at = frame.end;
  }
  if (tree.nodes() != footer_.tree_nodes) {
    return Damaged(path, at, "the tree has ", tree.nodes(), " nodes, the footer says ", footer_.tree_nodes);
  }
  WEFT_ASSIGN_OR_RETURN(tree_, tree.Build(entries_, path));
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckPlace(const IndexRecord& entry) const {
  if (entry.is_inside()) return absl::OkStatus();
  if (entry.in_parts() && (header_.required & kFeatureParts) == 0) {
    return Damaged(file_.path(), entry.payload, "tensor '", entry.tensor.name,
                   "' stands in parts, which the header does not say");
  }
  if (entry.payload >= kPrologueBytes && entry.payload <= data_end() &&
      entry.payload_bytes() <= data_end() - entry.payload) {
    return absl::OkStatus();
  }
  return Damaged(file_.path(), entry.payload, "the payload of tensor '", entry.tensor.name, "' lies outside the data");
}

// Payloads lie inside the data, apart from each other; members of one pack lie apart inside it.
absl::Status CheckpointReader::CheckPlaces() const {
  std::vector<uint32_t> order;
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    WEFT_RETURN_IF_ERROR(CheckPlace(entries_[id]));
    if (!entries_[id].is_inside()) order.push_back(id);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(entries_[a].payload, entries_[a].inner) < std::pair(entries_[b].payload, entries_[b].inner);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const IndexRecord &q = entries_[order[i - 1]], &p = entries_[order[i]];
    const auto bad = [&](std::string_view why) {
      return Damaged(file_.path(), p.payload, "the payload of tensor '", p.tensor.name, "' ", why);
    };
    if (q.payload == p.payload) {
      if (!p.in_pack() || q.pack_bytes != p.pack_bytes || q.pack_sum != p.pack_sum)
        return bad("contradicts another in the same pack");
      if (q.inner + q.tensor.bytes > p.inner) return bad("overlaps another in the same pack");
    } else if (q.payload + q.payload_bytes() > p.payload) {
      return bad("overlaps another one");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<uint32_t>> CheckpointReader::Find(std::string_view name) {
  if (!entries_.empty()) {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                     [&](uint32_t id, std::string_view n) { return tensor(id).name < n; });
    if (at != by_name_.end() && tensor(*at).name == name) return *at;
  } else if (!footer_.pages.empty()) {
    auto after = std::upper_bound(footer_.pages.begin(), footer_.pages.end(), name,
                                  [](std::string_view n, const PageRecord& page) { return n < page.first_name; });
    if (after != footer_.pages.begin()) {
      WEFT_ASSIGN_OR_RETURN(const Frame* page, Page(static_cast<size_t>(after - footer_.pages.begin()) - 1));
      WEFT_ASSIGN_OR_RETURN(std::optional<IndexRecord> found, FindInPage(*page, name, file_.path()));
      if (found.has_value()) {
        const uint32_t id = found->tensor.id;
        if (id >= footer_.tensors) return Damaged(file_.path(), page->offset, "tensor id ", id, " is too large");
        WEFT_RETURN_IF_ERROR(CheckPlace(*found));
        const auto [known, is_new] = found_.try_emplace(id, *std::move(found));
        if (!is_new && known->second.tensor.name != name) {
          return Damaged(file_.path(), page->offset, "tensor id ", id, " is used twice");
        }
        return id;
      }
    }
  }
  WEFT_RETURN_IF_ERROR(LoadAll());  // an alias's name stands in the tree alone
  const Tree::NodeId node = tree_.FindPath(name);
  if (node == Tree::kNoNode) return std::nullopt;
  const Tree::Node& found = tree_.node(tree_.Resolve(node));
  if (found.kind != Tree::Kind::kTensor) return std::nullopt;
  return found.tensor;
}

}  // namespace weft
