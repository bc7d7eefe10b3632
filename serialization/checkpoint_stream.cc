// The forward reader: the same frames as they arrive on a pipe, checked against what the footer says at the end.
#include <algorithm>
#include <cstring>

#include "serialization/checkpoint_reader.h"
#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

class StreamReader {
 public:
  StreamReader(File* file, const StreamHandler& handler)
      : name_(file->path()), handler_(handler), source_(file), scanner_(&source_) {}

  absl::StatusOr<StreamResult> Run();

 private:
  // Where a tensor's next byte is expected; a tensor is complete when done == its bytes.
  struct State {
    uint64_t done = 0;
    uint32_t chunks = 0;
    bool known = false;
  };
  absl::Status Describe(const Frame& frame);
  absl::Status Payload(const Frame& frame);
  absl::Status Deliver(uint32_t id, uint64_t offset, std::span<const std::byte> data);
  absl::Status Finish(const Frame& frame, uint64_t end);

  const std::string name_;
  const StreamHandler& handler_;
  ByteSource source_;
  FrameScanner scanner_;
  RunningChecksum root_;
  TreeDecoder tree_;
  StreamResult result_;
  std::vector<State> states_;
  std::vector<std::byte> buffer_;
  uint64_t pages_ = 0, chunks_ = 0, described_ = 0, bytes_ = 0;
};

absl::Status StreamReader::Deliver(uint32_t id, uint64_t offset, std::span<const std::byte> data) {
  return handler_.piece ? handler_.piece(id, offset, data) : absl::OkStatus();
}

absl::Status StreamReader::Describe(const Frame& frame) {
  WEFT_ASSIGN_OR_RETURN(std::vector<TensorRecord> records, DecodeTensors(frame, name_));
  for (TensorRecord& record : records) {
    if (record.id >= tree_.tensors() || states_[record.id].known) {
      return Damaged(name_, frame.offset, "tensor id ", record.id, " is used twice or not in the tree");
    }
    states_[record.id].known = true;
    if (record.is_inline) states_[record.id].done = record.bytes;
    ++described_;
    bytes_ += record.bytes;
    result_.tensors[record.id] = std::move(record);
    const TensorRecord& tensor = result_.tensors[record.id];
    if (handler_.tensor) WEFT_RETURN_IF_ERROR(handler_.tensor(tensor));
    if (tensor.is_inline && tensor.bytes > 0) {
      WEFT_RETURN_IF_ERROR(Deliver(tensor.id, 0, std::as_bytes(std::span(tensor.inline_data))));
    }
  }
  return absl::OkStatus();
}

absl::Status StreamReader::Payload(const Frame& frame) {
  WEFT_ASSIGN_OR_RETURN(const ChunkFrameRecord chunk, DecodeChunk(frame, name_));
  ++chunks_;
  // The memory grows with what has arrived: a lie about the length costs no more than what was sent.
  buffer_.clear();
  while (buffer_.size() < chunk.bytes) {
    const size_t at = buffer_.size();
    buffer_.resize(std::min<size_t>(chunk.bytes, at + (4 << 20)));
    WEFT_RETURN_IF_ERROR(scanner_.ReadPayload(std::span(buffer_).subspan(at)));
  }
  if (!ChecksumsMatch(chunk.hash, Checksum64(buffer_))) {
    return Damaged(name_, frame.payload_offset, "the checksum of ", chunk.bytes, " bytes does not match");
  }
  const auto wrong = [&] {
    return Damaged(name_, frame.offset, "a chunk belongs to no tensor that was announced before it");
  };
  for (const PackMemberRecord& member : chunk.members) {
    if (member.tensor >= states_.size()) return wrong();
    State& state = states_[member.tensor];
    if (!state.known || state.done != 0 || result_.tensors[member.tensor].bytes != member.bytes) return wrong();
    state.done = member.bytes;
    WEFT_RETURN_IF_ERROR(Deliver(member.tensor, 0, std::span(buffer_).subspan(member.offset, member.bytes)));
  }
  if (!chunk.members.empty()) return absl::OkStatus();
  if (chunk.tensor >= states_.size()) return wrong();
  State& state = states_[chunk.tensor];
  if (!state.known || state.done != chunk.raw_offset || state.chunks != chunk.ordinal ||
      chunk.bytes > result_.tensors[chunk.tensor].bytes - state.done) {
    return wrong();
  }
  state.done += chunk.bytes;
  ++state.chunks;
  return Deliver(chunk.tensor, chunk.raw_offset, buffer_);
}

absl::Status StreamReader::Finish(const Frame& frame, uint64_t end) {
  WEFT_ASSIGN_OR_RETURN(const FooterRecord footer, DecodeFooter(frame, name_));
  std::byte raw[kTrailerBytes];
  WEFT_RETURN_IF_ERROR(source_.Read(raw));
  WEFT_ASSIGN_OR_RETURN(const Trailer trailer, DecodeTrailer(raw, end + kTrailerBytes, name_));
  std::vector<std::byte> whole(frame.end - frame.offset);
  std::memcpy(whole.data(), frame.prefix.data(), kPrefixBytes);
  std::memcpy(whole.data() + kPrefixBytes, frame.meta.data(), frame.meta.size());
  const bool same = trailer.footer_offset == frame.offset && ChecksumsMatch(trailer.footer_hash, Checksum64(whole)) &&
                    ChecksumsMatch(footer.root_hash, root_.Value()) &&
                    ChecksumsMatch(trailer.root_hash_low, footer.root_hash.low);
  if (!same) return Damaged(name_, frame.offset, "the root hash or the footer's checksum does not match");
  if (footer.tensors != described_ || footer.chunks != chunks_ || footer.raw_bytes != bytes_ ||
      footer.pages.size() != pages_ || footer.tree_nodes != tree_.nodes() || described_ != tree_.tensors()) {
    return Damaged(name_, frame.offset, "the stream does not hold what its footer says");
  }
  for (uint32_t id = 0; id < states_.size(); ++id) {
    if (states_[id].done != result_.tensors[id].bytes) {
      return Damaged(name_, frame.offset, "tensor '", result_.tensors[id].name, "' is incomplete");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamResult> StreamReader::Run() {
  std::byte raw[kPrologueBytes];
  WEFT_RETURN_IF_ERROR(source_.Read(raw));
  WEFT_ASSIGN_OR_RETURN(const Prologue prologue, DecodePrologue(raw, name_));
  Frame frame;
  bool header = false;
  for (;;) {
    WEFT_RETURN_IF_ERROR(scanner_.Next(&frame));
    if (header == (frame.kind == FrameKind::kHeader))
      return Damaged(name_, frame.offset, "the header is missing or there twice");
    if (frame.kind == FrameKind::kFooter) {
      WEFT_RETURN_IF_ERROR(scanner_.Finish(frame));
      WEFT_RETURN_IF_ERROR(Finish(frame, source_.position()));
      break;
    }
    root_.Add(frame.prefix);
    const bool data =
        frame.kind == FrameKind::kTensors || frame.kind == FrameKind::kChunk || frame.kind == FrameKind::kPack;
    if (data && states_.empty()) {
      states_.resize(tree_.tensors());
      result_.tensors.resize(tree_.tensors());
    }
    switch (frame.kind) {
      case FrameKind::kHeader: {
        header = true;
        WEFT_ASSIGN_OR_RETURN(result_.header, DecodeHeader(frame, name_));
        if (result_.header.uuid != prologue.uuid) return Damaged(name_, frame.offset, "prologue and header disagree");
        break;
      }
      case FrameKind::kTree:
        if (!states_.empty()) return Damaged(name_, frame.offset, "a part of the tree comes after data");
        WEFT_RETURN_IF_ERROR(tree_.Add(frame, name_));
        break;
      case FrameKind::kTensors: WEFT_RETURN_IF_ERROR(Describe(frame)); break;
      case FrameKind::kChunk:
      case FrameKind::kPack: WEFT_RETURN_IF_ERROR(Payload(frame)); break;
      case FrameKind::kIndexPage:
        ++pages_;  // says again what was seen; the root hash covers it
        break;
      default: WEFT_RETURN_IF_ERROR(scanner_.SkipPayload(frame.payload_bytes));
    }
    WEFT_RETURN_IF_ERROR(scanner_.Finish(frame));
  }
  WEFT_ASSIGN_OR_RETURN(const bool at_end, source_.AtEnd());
  if (!at_end) return Damaged(name_, source_.position(), "bytes follow the trailer");
  WEFT_ASSIGN_OR_RETURN(result_.tree, tree_.Build(result_.tensors, name_));
  return std::move(result_);
}

}  // namespace

absl::StatusOr<StreamResult> ReadCheckpointStream(int fd, const std::string& name, const StreamHandler& handler,
                                                  FileSystem* fs) {
  File file = File::Borrow(fs != nullptr ? fs : PosixFileSystem(), fd, name);
  StreamReader reader(&file, handler);
  return reader.Run();
}

}  // namespace weft
