// Trailer → footer → index pages → header and tree, each from a private copy whose checksum matched, each place checked
// before memory is asked for.
#include "serialization/checkpoint_reader.h"

#include <algorithm>
#include <cstring>

#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

absl::Status CheckBools(const TensorRecord& tensor, std::span<const std::byte> data, const std::string& file) {
  if (tensor.dtype != DType::kBool) return absl::OkStatus();
  const auto bad = std::find_if(data.begin(), data.end(), [](std::byte b) { return static_cast<uint8_t>(b) > 1; });
  if (bad == data.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("'", file, "': tensor '", tensor.name, "' of bool holds the byte ",
                                          static_cast<int>(*bad), "; only 0 and 1 are allowed"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const std::string& path,
                                                                         const OpenOptions& options) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader);
  FileSystem* fs = options.fs != nullptr ? options.fs : PosixFileSystem();
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(reader->file_, File::OpenToRead(fs, path, &info));
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
  const std::string& path = file_.path();
  std::byte raw[kPrologueBytes];
  const size_t start = static_cast<size_t>(std::min<uint64_t>(file_bytes_, kPrologueBytes));
  WEFT_RETURN_IF_ERROR(file_.ReadAt(0, {raw, start}));
  WEFT_ASSIGN_OR_RETURN(const Prologue prologue, DecodePrologue({raw, start}, path));
  if (file_bytes_ < kPrologueBytes + kTrailerBytes + kPrefixBytes) {
    return Damaged(path, file_bytes_, "the file ends here, before any content");
  }
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(file_bytes_ - kTrailerBytes), raw));
  WEFT_ASSIGN_OR_RETURN(const Trailer trailer, DecodeTrailer(raw, file_bytes_, path));

  std::vector<std::byte> bytes(trailer.footer_bytes);
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(trailer.footer_offset), bytes));
  if (!ChecksumsMatch(trailer.footer_hash, Checksum64(bytes))) {
    return Damaged(path, trailer.footer_offset, "the checksum of the footer does not match");
  }
  WEFT_ASSIGN_OR_RETURN(const Frame footer_frame, ParseFrame(bytes, trailer.footer_offset, FrameKind::kFooter, path));
  WEFT_ASSIGN_OR_RETURN(const FooterRecord footer, DecodeFooter(footer_frame, path));
  if (!ChecksumsMatch(footer.root_hash.low, trailer.root_hash_low)) {
    return Damaged(path, trailer.footer_offset, "footer and trailer disagree about the root hash");
  }
  WEFT_RETURN_IF_ERROR(LoadIndex(footer, trailer.footer_offset));

  const uint64_t data_end = footer.pages.empty() ? trailer.footer_offset : footer.pages[0].offset;
  WEFT_ASSIGN_OR_RETURN(const Frame header, ReadFrame(kPrologueBytes, data_end));
  if (header.kind != FrameKind::kHeader) return Damaged(path, kPrologueBytes, "the header is missing");
  WEFT_ASSIGN_OR_RETURN(header_, DecodeHeader(header, path));
  if (header_.uuid != prologue.uuid || header_.required != prologue.required) {
    return Damaged(path, kPrologueBytes, "prologue and header disagree");
  }
  TreeDecoder tree;
  uint64_t at = footer.tree_offset;
  for (uint32_t i = 0; i < footer.tree_frames; ++i) {
    WEFT_ASSIGN_OR_RETURN(const Frame frame, ReadFrame(at, data_end));
    if (frame.kind != FrameKind::kTree) return Damaged(path, at, "a frame of the tree is missing");
    WEFT_RETURN_IF_ERROR(tree.Add(frame, path));
    at = frame.end;
  }
  if (tree.nodes() != footer.tree_nodes) {
    return Damaged(path, at, "the tree has ", tree.nodes(), " nodes, the footer says ", footer.tree_nodes);
  }
  WEFT_ASSIGN_OR_RETURN(tree_, tree.Build(tensors_, path));
  if (options.verify_frames) return VerifyFrames(trailer, footer);
  return absl::OkStatus();
}

absl::Status CheckpointReader::LoadIndex(const FooterRecord& footer, uint64_t index_end) {
  const std::string& path = file_.path();
  // An index entry takes more than 64 bytes, so a lie about the number is found before memory is asked for.
  if (footer.tensors > file_bytes_ / 64)
    return Damaged(path, index_end, "more tensors are announced than the file can hold");
  struct Place {
    uint64_t first = 0, count = 0;
    bool known = false;
  };
  std::vector<Place> places(footer.tensors);
  std::vector<ChunkRecord> chunks;
  tensors_.resize(footer.tensors);
  uint64_t expected = footer.pages.empty() ? index_end : footer.pages[0].offset;
  const std::string* before = nullptr;
  for (const PageRecord& page : footer.pages) {
    if (page.offset != expected || page.offset < kPrologueBytes || page.bytes > index_end - page.offset ||
        page.bytes > kMaxMetaBytes + kPrefixBytes + kFrameAlign) {
      return Damaged(path, page.offset, "an index page does not stand where the one before ends");
    }
    std::vector<std::byte> bytes(page.bytes);
    WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(page.offset), bytes));
    if (!ChecksumsMatch(page.hash, Checksum64(bytes)))
      return Damaged(path, page.offset, "the checksum of an index page does not match");
    WEFT_ASSIGN_OR_RETURN(const Frame frame, ParseFrame(bytes, page.offset, FrameKind::kIndexPage, path));
    WEFT_ASSIGN_OR_RETURN(std::vector<IndexRecord> entries, DecodeIndexPage(frame, path));
    if (entries.empty() || entries.size() != page.count || entries[0].tensor.name != page.first_name) {
      return Damaged(path, page.offset, "an index page does not hold what the footer says");
    }
    for (IndexRecord& entry : entries) {
      const uint32_t id = entry.tensor.id;
      if (id >= tensors_.size() || places[id].known) {
        return Damaged(path, page.offset, "tensor id ", id, " is used twice or larger than the number of tensors");
      }
      if (before != nullptr && !(*before < entry.tensor.name)) {
        return Damaged(path, page.offset, "the index is not sorted at '", entry.tensor.name, "'");
      }
      places[id] = {chunks.size(), entry.chunks.size(), true};
      chunks.insert(chunks.end(), entry.chunks.begin(), entry.chunks.end());
      total_ += entry.tensor.bytes;
      tensors_[id] = std::move(entry.tensor);
      before = &tensors_[id].name;
      by_name_.push_back(id);
    }
    expected = page.offset + page.bytes;
  }
  if (expected != index_end || by_name_.size() != footer.tensors || total_ != footer.raw_bytes) {
    return Damaged(path, index_end, "the index has ", by_name_.size(), " tensors of ", total_,
                   " bytes, the footer says ", footer.tensors, " of ", footer.raw_bytes);
  }
  chunks_.reserve(chunks.size());
  first_chunk_.reserve(tensors_.size() + 1);
  for (const Place& place : places) {
    first_chunk_.push_back(chunks_.size());
    chunks_.insert(chunks_.end(), chunks.begin() + static_cast<ptrdiff_t>(place.first),
                   chunks.begin() + static_cast<ptrdiff_t>(place.first + place.count));
  }
  first_chunk_.push_back(chunks_.size());
  return CheckPlaces(kPrologueBytes, footer.pages.empty() ? index_end : footer.pages[0].offset);
}

// Payloads lie inside the data, apart from each other; members of one pack lie apart inside it.
absl::Status CheckpointReader::CheckPlaces(uint64_t begin, uint64_t end) const {
  struct Piece {
    ChunkRecord chunk;
    uint64_t inner_bytes;
    uint32_t tensor;
  };
  std::vector<Piece> pieces;
  for (uint32_t id = 0; id < tensors_.size(); ++id) {
    for (const ChunkRecord& chunk : ChunksOf(id)) {
      pieces.push_back({chunk, InPack(id) ? tensors_[id].bytes : chunk.bytes, id});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.chunk.offset, a.chunk.inner) < std::pair(b.chunk.offset, b.chunk.inner);
  });
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    const auto bad = [&](std::string_view why) {
      return Damaged(file_.path(), p.chunk.offset, "a chunk of tensor '", tensors_[p.tensor].name, "' ", why);
    };
    if (p.chunk.offset < begin || p.chunk.offset > end || p.chunk.bytes > end - p.chunk.offset)
      return bad("lies outside the data");
    if (i == 0) continue;
    const Piece& q = pieces[i - 1];
    if (q.chunk.offset == p.chunk.offset) {
      if (q.chunk.bytes != p.chunk.bytes || q.chunk.hash != p.chunk.hash)
        return bad("contradicts another in the same pack");
      if (q.chunk.inner + q.inner_bytes > p.chunk.inner) return bad("overlaps another in the same pack");
    } else if (q.chunk.offset + q.chunk.bytes > p.chunk.offset) {
      return bad("overlaps another one");
    }
  }
  return absl::OkStatus();
}

// Walks the whole file but the payloads, and compares what stands in the stream with the index.
absl::Status CheckpointReader::VerifyFrames(const Trailer& trailer, const FooterRecord& footer) {
  const std::string& path = file_.path();
  ByteSource source(&file_, kPrologueBytes, trailer.footer_offset);
  FrameScanner scanner(&source);
  RunningChecksum root;
  uint64_t chunks = 0, places = 0, described = 0;
  std::vector<bool> seen(tensors_.size());
  Frame frame;
  while (source.position() < trailer.footer_offset) {
    WEFT_RETURN_IF_ERROR(scanner.Next(&frame));
    root.Add(frame.prefix);
    if (frame.kind == FrameKind::kHeader && frame.offset != kPrologueBytes)
      return Damaged(path, frame.offset, "a second header");
    WEFT_RETURN_IF_ERROR(MatchFrame(frame, &chunks, &places, &described, &seen));
    WEFT_RETURN_IF_ERROR(scanner.SkipPayload(frame.payload_bytes));
    WEFT_RETURN_IF_ERROR(scanner.Finish(frame));
  }
  if (chunks != footer.chunks || places != chunks_.size() || described != tensors_.size()) {
    return Damaged(path, trailer.footer_offset, "the file holds ", chunks, " chunks and ", described,
                   " tensors, the footer says ", footer.chunks, " and ", tensors_.size());
  }
  if (!ChecksumsMatch(footer.root_hash, root.Value()))
    return Damaged(path, trailer.footer_offset, "the root hash does not match");
  return absl::OkStatus();
}

absl::Status CheckpointReader::MatchFrame(const Frame& frame, uint64_t* chunks, uint64_t* places, uint64_t* described,
                                          std::vector<bool>* seen) const {
  const std::string& path = file_.path();
  const auto other = [&](std::string_view name) {
    return Damaged(path, frame.offset, "what stands here of tensor '", name, "' is not what the index says");
  };
  if (frame.kind == FrameKind::kTensors) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<TensorRecord> records, DecodeTensors(frame, path));
    for (const TensorRecord& r : records) {
      if (r.id >= tensors_.size() || (*seen)[r.id]) return other(r.name);
      const TensorRecord& t = tensors_[r.id];
      if (r.name != t.name || r.dtype != t.dtype || r.logical != t.logical || r.dims != t.dims ||
          r.is_inline != t.is_inline || r.inline_data != t.inline_data) {
        return other(r.name);
      }
      (*seen)[r.id] = true;
      ++*described;
    }
  } else if (frame.kind == FrameKind::kChunk || frame.kind == FrameKind::kPack) {
    WEFT_ASSIGN_OR_RETURN(const ChunkFrameRecord r, DecodeChunk(frame, path));
    ++*chunks;
    *places += std::max<size_t>(1, r.members.size());
    const auto matches = [&](uint32_t id, uint32_t ordinal, uint32_t inner) {
      if (id >= tensors_.size() || !(*seen)[id] || ordinal >= ChunksOf(id).size()) return false;
      const ChunkRecord& c = ChunksOf(id)[ordinal];
      return c.offset == frame.payload_offset && c.bytes == r.bytes && c.hash == r.hash && c.inner == inner;
    };
    for (const PackMemberRecord& m : r.members) {
      if (!matches(m.tensor, 0, m.offset) || tensors_[m.tensor].bytes != m.bytes) {
        return Damaged(path, frame.offset, "a pack does not hold what the index says");
      }
    }
    if (r.members.empty()) {
      if (!matches(r.tensor, r.ordinal, 0) || InPack(r.tensor))
        return Damaged(path, frame.offset, "a chunk is not where the index says");
      uint64_t before = 0;
      // Chunks of a tensor are equal but the last, so one multiplication says where this one starts.
      if (r.ordinal > 0) before = uint64_t{ChunksOf(r.tensor)[0].bytes} * r.ordinal;
      if (r.raw_offset != before) return Damaged(path, frame.offset, "a chunk of a tensor is out of order");
    }
  }
  return absl::OkStatus();
}

std::optional<uint32_t> CheckpointReader::Find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t id, std::string_view n) { return tensors_[id].name < n; });
  if (at != by_name_.end() && tensors_[*at].name == name) return *at;
  const Tree::NodeId node = tree_.FindPath(name);
  if (node == Tree::kNoNode) return std::nullopt;
  const Tree::Node& found = tree_.node(tree_.Resolve(node));
  if (found.kind != Tree::Kind::kTensor) return std::nullopt;
  return found.tensor;
}

absl::Status CheckpointReader::ReadPayload(const ChunkRecord& chunk, std::span<std::byte> out, std::string_view what) {
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(chunk.offset), out));
  if (ChecksumsMatch(chunk.hash, Checksum64(out))) return absl::OkStatus();
  return Damaged(file_.path(), chunk.offset, "the checksum of ", chunk.bytes, " bytes of ", what, " does not match");
}

absl::Status CheckpointReader::ReadTensor(uint32_t id, std::span<std::byte> out) {
  if (id >= tensors_.size())
    return UserError("'", file_.path(), "' has ", tensors_.size(), " tensors; there is no number ", id);
  const TensorRecord& tensor = tensors_[id];
  if (out.size() != tensor.bytes) {
    return UserError("tensor '", tensor.name, "' has ", tensor.bytes, " bytes, the memory for it ", out.size());
  }
  if (tensor.is_inline) {
    if (!out.empty()) std::memcpy(out.data(), tensor.inline_data.data(), out.size());
    return CheckBools(tensor, out, file_.path());
  }
  const std::span<const ChunkRecord> chunks = ChunksOf(id);
  if (InPack(id)) {
    const ChunkRecord& pack = chunks[0];
    if (pack_offset_ != pack.offset) {
      pack_offset_ = 0;
      pack_.resize(pack.bytes);
      WEFT_RETURN_IF_ERROR(ReadPayload(pack, pack_, absl::StrCat("a pack with tensor '", tensor.name, "'")));
      pack_offset_ = pack.offset;
    }
    std::memcpy(out.data(), pack_.data() + pack.inner, out.size());
    return CheckBools(tensor, out, file_.path());
  }
  uint64_t at = 0;
  constexpr size_t kAhead = 4;  // chunks of 4 MiB under way while one is copied and hashed
  for (size_t i = 0; i < chunks.size(); ++i) {
    const ChunkRecord& chunk = chunks[i];
    for (size_t k = i == 0 ? 1 : kAhead; k <= kAhead && i + k < chunks.size(); ++k) {
      file_.Prefetch(static_cast<int64_t>(chunks[i + k].offset), chunks[i + k].bytes);
    }
    WEFT_RETURN_IF_ERROR(ReadPayload(chunk, out.subspan(at, chunk.bytes), absl::StrCat("tensor '", tensor.name, "'")));
    at += chunk.bytes;
  }
  return CheckBools(tensor, out, file_.path());
}

absl::Status CheckpointReader::VerifyPayloads() {
  std::vector<std::byte> buffer;
  uint64_t last_pack = 0;
  for (uint32_t id = 0; id < tensors_.size(); ++id) {
    for (const ChunkRecord& chunk : ChunksOf(id)) {
      if (InPack(id) && std::exchange(last_pack, chunk.offset) == chunk.offset) continue;
      buffer.resize(chunk.bytes);
      WEFT_RETURN_IF_ERROR(ReadPayload(chunk, buffer, absl::StrCat("tensor '", tensors_[id].name, "'")));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
