// The forward reader: the same frames as they arrive on a pipe, checked against what the footer says at the end.
#include <algorithm>
#include <cstring>
#include <optional>

#include "serialization/checkpoint_parts.h"
#include "serialization/checkpoint_reader.h"
#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// The checksum of a frame without payload, as it is stored.
uint64_t ChecksumOf(const Frame& frame) {
  std::vector<std::byte> whole(frame.end - frame.offset);
  std::memcpy(whole.data(), frame.prefix.data(), kPrefixBytes);
  std::memcpy(whole.data() + kPrefixBytes, frame.meta.data(), frame.meta.size());
  return Checksum64(whole);
}

class StreamReader {
 public:
  StreamReader(File* file, const StreamHandler& handler)
      : name_(file->path()), handler_(handler), source_(file), scanner_(&source_) {}

  absl::StatusOr<StreamResult> Run();

 private:
  absl::Status Begin(const TensorRecord& tensor, uint64_t frame);
  absl::Status Arrive(const Frame& frame);
  absl::Status Data(const Frame& frame);
  absl::Status Sums(const Frame& frame);
  absl::Status Part(const Frame& frame);
  absl::Status Parts(const Frame& frame);
  absl::Status Pack(const Frame& frame);
  absl::Status Page(const Frame& frame);
  absl::Status Announce(const TensorRecord& tensor);
  absl::Status Deliver(uint32_t id, uint64_t offset, std::span<const std::byte> data);
  absl::Status Finish(const Frame& frame, uint64_t end);
  void Prepare();

  const std::string name_;
  const StreamHandler& handler_;
  ByteSource source_;
  FrameScanner scanner_;
  RunningChecksum root_;
  TreeDecoder tree_;
  StreamResult result_;
  enum State : uint8_t { kUnknown, kSeen, kIndexed };
  std::vector<State> states_;
  std::vector<std::string> paths_;              // of tensors; empty where nobody asks
  std::vector<std::vector<std::byte>> blocks_;  // of the payload that has arrived, 4 MiB each
  std::optional<uint32_t> whole_;               // whose checksums come next
  std::optional<uint32_t> in_parts_;            // whose parts, in blocks_, or their places come next
  std::vector<PartPlace> places_;               // of them
  uint64_t pages_ = 0, payloads_ = 0, indexed_ = 0, bytes_ = 0;
};

// The tensor with its name, which frames of data leave to the tree.
absl::Status StreamReader::Announce(const TensorRecord& tensor) {
  if (!handler_.tensor) return absl::OkStatus();
  TensorRecord named = tensor;
  named.name = paths_[tensor.id];
  return handler_.tensor(named);
}

absl::Status StreamReader::Deliver(uint32_t id, uint64_t offset, std::span<const std::byte> data) {
  WEFT_RETURN_IF_ERROR(CheckBools(result_.tensors[id].tensor, data, name_));
  return handler_.piece && !data.empty() ? handler_.piece(id, offset, data) : absl::OkStatus();
}

// The first data: the tree has ended, so that the number of tensors is known.
void StreamReader::Prepare() {
  if (!states_.empty()) return;
  states_.resize(tree_.tensors());
  result_.tensors.resize(tree_.tensors());
  if (handler_.tensor) paths_ = tree_.Paths();
}

absl::Status StreamReader::Begin(const TensorRecord& tensor, uint64_t frame) {
  if (tensor.id >= states_.size() || states_[tensor.id] != kUnknown) {
    return Damaged(name_, frame, "tensor id ", tensor.id, " is used twice or not in the tree");
  }
  states_[tensor.id] = kSeen;
  result_.tensors[tensor.id].tensor = tensor;
  return absl::OkStatus();
}

// The payload, to blocks_. The memory grows with what has arrived: a lie about the length costs no more than what was sent.
absl::Status StreamReader::Arrive(const Frame& frame) {
  blocks_.clear();
  for (uint64_t at = 0; at < frame.payload_bytes;) {
    const uint64_t n = std::min(kSumBytes, frame.payload_bytes - at);
    std::vector<std::byte>& block = blocks_.emplace_back();
    constexpr uint64_t kStep = 64 << 10;
    for (uint64_t have = 0; have < n;) {
      const uint64_t more = std::min(std::max(have, kStep), n - have);
      block.resize(have + more);
      WEFT_RETURN_IF_ERROR(scanner_.ReadPayload(std::span(block).subspan(have, more)));
      have += more;
    }
    at += n;
  }
  return absl::OkStatus();
}

absl::Status StreamReader::Data(const Frame& frame) {
  WEFT_ASSIGN_OR_RETURN(const TensorRecord tensor, DecodeData(frame, name_));
  WEFT_RETURN_IF_ERROR(Begin(tensor, frame.offset));
  ++payloads_;
  whole_ = tensor.id;
  result_.tensors[tensor.id].payload = frame.payload_offset;
  return Arrive(frame);
}

absl::Status StreamReader::Sums(const Frame& frame) {
  WEFT_ASSIGN_OR_RETURN(SumsRecord record, DecodeSums(frame, name_));
  IndexRecord& entry = result_.tensors[*whole_];
  const uint64_t bytes = entry.tensor.bytes, each = SumBytes(bytes);
  if (record.tensor != *whole_ || record.sums.size() != SumCount(bytes)) {
    return Damaged(name_, frame.offset, "these are not the checksums of tensor ", *whole_);
  }
  const uint64_t blocks = each / kSumBytes;  // under one checksum
  for (uint64_t i = 0; i < record.sums.size(); ++i) {
    const uint64_t first = i * blocks, last = std::min<uint64_t>(first + blocks, blocks_.size());
    uint64_t sum = 0;
    if (blocks == 1) {
      sum = Checksum64(blocks_[first]);
    } else {
      std::vector<std::byte> part;
      for (uint64_t k = first; k < last; ++k) part.insert(part.end(), blocks_[k].begin(), blocks_[k].end());
      sum = Checksum64(part);
    }
    if (!ChecksumsMatch(record.sums[i], sum)) {
      return Damaged(name_, entry.payload + i * each, "the checksum of tensor ", *whole_, " does not match");
    }
  }
  WEFT_RETURN_IF_ERROR(Announce(entry.tensor));
  for (uint64_t k = 0; k < blocks_.size(); ++k) {
    WEFT_RETURN_IF_ERROR(Deliver(*whole_, k * kSumBytes, blocks_[k]));
    std::vector<std::byte>().swap(blocks_[k]);  // whoever took it has it now
  }
  blocks_.clear();
  entry.sums = std::move(record.sums);
  whole_.reset();
  return absl::OkStatus();
}

absl::Status StreamReader::Part(const Frame& frame) {
  WEFT_ASSIGN_OR_RETURN(const PartRecord part, DecodePart(frame, name_));
  const uint32_t id = part.tensor.id;
  if (!in_parts_.has_value()) {
    WEFT_RETURN_IF_ERROR(Begin(part.tensor, frame.offset));
    in_parts_ = id;
    places_.clear();
  }
  const TensorRecord& tensor = result_.tensors[*in_parts_].tensor;
  if (id != *in_parts_ || part.index != places_.size() || !part.tensor.SameType(tensor)) {
    return Damaged(name_, frame.offset, "a part does not follow the one before");
  }
  ++payloads_;
  places_.push_back(part.place);
  std::vector<std::vector<std::byte>> before = std::move(blocks_);
  WEFT_RETURN_IF_ERROR(Arrive(frame));
  std::vector<std::byte> stored;
  for (const std::vector<std::byte>& block : blocks_) stored.insert(stored.end(), block.begin(), block.end());
  blocks_ = std::move(before);
  if (!ChecksumsMatch(part.place.sum, Checksum64(stored))) {
    return Damaged(name_, frame.payload_offset, "the checksum of ", stored.size(), " bytes does not match");
  }
  const uint64_t each = SumBytes(tensor.bytes);
  std::vector<std::byte>& raw = blocks_.emplace_back(std::min(each, tensor.bytes - part.index * each));
  return ExpandPart(part.place.codec, tensor.dtype, stored, raw, name_, frame.payload_offset);
}

absl::Status StreamReader::Parts(const Frame& frame) {
  WEFT_ASSIGN_OR_RETURN(const PartsRecord parts, DecodeParts(frame, 0, name_));
  const uint32_t id = parts.tensor.id;
  if (in_parts_ != id || parts.parts != places_ || !parts.tensor.SameType(result_.tensors[id].tensor)) {
    return Damaged(name_, frame.offset, "these are not the parts of tensor ", id, " that came");
  }
  IndexRecord& entry = result_.tensors[id];
  const uint64_t each = SumBytes(entry.tensor.bytes);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!ChecksumsMatch(parts.sums[i], Checksum64(blocks_[i]))) {
      return Damaged(name_, places_[i].payload, "the checksum of tensor ", id, " does not match");
    }
  }
  WEFT_RETURN_IF_ERROR(Announce(entry.tensor));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    WEFT_RETURN_IF_ERROR(Deliver(id, i * each, blocks_[i]));
    std::vector<std::byte>().swap(blocks_[i]);
  }
  blocks_.clear();
  in_parts_.reset();
  entry.payload = frame.offset;
  entry.inner = static_cast<uint32_t>(frame.end - frame.offset);
  entry.pack_sum = ChecksumOf(frame);
  return absl::OkStatus();
}

absl::Status StreamReader::Pack(const Frame& frame) {
  WEFT_ASSIGN_OR_RETURN(const PackRecord pack, DecodePack(frame, name_));
  ++payloads_;
  std::vector<std::byte> payload;
  WEFT_RETURN_IF_ERROR(Arrive(frame));
  for (std::vector<std::byte>& block : blocks_) payload.insert(payload.end(), block.begin(), block.end());
  blocks_.clear();
  if (!ChecksumsMatch(pack.sum, Checksum64(payload))) {
    return Damaged(name_, frame.payload_offset, "the checksum of ", payload.size(), " bytes does not match");
  }
  for (const PackRecord::Member& member : pack.members) {
    WEFT_RETURN_IF_ERROR(Begin(member.tensor, frame.offset));
    IndexRecord& entry = result_.tensors[member.tensor.id];
    entry.payload = frame.payload_offset;
    entry.pack_bytes = static_cast<uint32_t>(frame.payload_bytes);
    entry.inner = member.offset;
    entry.pack_sum = pack.sum;
    WEFT_RETURN_IF_ERROR(Announce(entry.tensor));
    WEFT_RETURN_IF_ERROR(Deliver(member.tensor.id, 0, std::span(payload).subspan(member.offset, member.tensor.bytes)));
  }
  return absl::OkStatus();
}

absl::Status StreamReader::Page(const Frame& frame) {
  ++pages_;
  WEFT_ASSIGN_OR_RETURN(std::vector<IndexRecord> entries, DecodeIndexPage(frame, name_));
  for (IndexRecord& entry : entries) {
    const uint32_t id = entry.tensor.id;
    if (entry.is_inside()) WEFT_RETURN_IF_ERROR(Begin(entry.tensor, frame.offset));
    const bool known = id < states_.size() && states_[id] == kSeen;
    IndexRecord* seen = known ? &result_.tensors[id] : nullptr;
    if (!known || seen->payload != entry.payload || seen->pack_bytes != entry.pack_bytes ||
        seen->inner != entry.inner || seen->pack_sum != entry.pack_sum || seen->sums != entry.sums ||
        !seen->tensor.SameType(entry.tensor)) {
      return Damaged(name_, frame.offset, "the index entry of tensor '", entry.tensor.name, "' is not what came");
    }
    states_[id] = kIndexed;
    ++indexed_;
    bytes_ += entry.tensor.bytes;
    *seen = std::move(entry);
    if (!seen->is_inside()) continue;
    WEFT_RETURN_IF_ERROR(Announce(seen->tensor));
    WEFT_RETURN_IF_ERROR(Deliver(id, 0, std::as_bytes(std::span(seen->inside))));
  }
  return absl::OkStatus();
}

absl::Status StreamReader::Finish(const Frame& frame, uint64_t end) {
  WEFT_ASSIGN_OR_RETURN(const FooterRecord footer, DecodeFooter(frame, name_));
  std::byte raw[kTrailerBytes];
  WEFT_RETURN_IF_ERROR(source_.Read(raw));
  WEFT_ASSIGN_OR_RETURN(const Trailer trailer, DecodeTrailer(raw, end + kTrailerBytes, name_));
  const bool same = trailer.footer_offset == frame.offset && ChecksumsMatch(trailer.footer_hash, ChecksumOf(frame)) &&
                    ChecksumsMatch(footer.root_hash, root_.Value()) &&
                    ChecksumsMatch(trailer.root_hash_low, footer.root_hash.low);
  if (!same) return Damaged(name_, frame.offset, "the root hash or the footer's checksum does not match");
  if (footer.tensors != indexed_ || footer.payloads != payloads_ || footer.raw_bytes != bytes_ ||
      footer.pages.size() != pages_ || footer.tree_nodes != tree_.nodes() || indexed_ != tree_.tensors()) {
    return Damaged(name_, frame.offset, "the stream does not hold what its footer says");
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
    if (whole_.has_value() != (frame.kind == FrameKind::kSums)) {
      return Damaged(name_, frame.offset, "checksums do not follow the tensor that they are of");
    }
    const bool part = frame.kind == FrameKind::kPart || frame.kind == FrameKind::kParts;
    if (part ? (result_.header.required & kFeatureParts) == 0 : in_parts_.has_value()) {
      return Damaged(name_, frame.offset, "parts where none may be, or not together");
    }
    switch (frame.kind) {
      case FrameKind::kHeader: {
        header = true;
        WEFT_ASSIGN_OR_RETURN(result_.header, DecodeHeader(frame, name_));
        if ((result_.header.required & kFeatureBases) != 0) {
          return UserError("'", name_,
                           "' takes parts from files beside it, which a stream has none of; open it as a file");
        }
        if (result_.header.uuid != prologue.uuid) return Damaged(name_, frame.offset, "prologue and header disagree");
        if (handler_.header) WEFT_RETURN_IF_ERROR(handler_.header(result_.header));
        break;
      }
      case FrameKind::kTree:
        if (!states_.empty()) return Damaged(name_, frame.offset, "a part of the tree comes after data");
        WEFT_RETURN_IF_ERROR(tree_.Add(frame, name_));
        break;
      case FrameKind::kData:
        Prepare();
        WEFT_RETURN_IF_ERROR(Data(frame));
        break;
      case FrameKind::kSums: WEFT_RETURN_IF_ERROR(Sums(frame)); break;
      case FrameKind::kPart:
        Prepare();
        WEFT_RETURN_IF_ERROR(Part(frame));
        break;
      case FrameKind::kParts: WEFT_RETURN_IF_ERROR(Parts(frame)); break;
      case FrameKind::kPack:
        Prepare();
        WEFT_RETURN_IF_ERROR(Pack(frame));
        break;
      case FrameKind::kIndexPage:
        Prepare();
        WEFT_RETURN_IF_ERROR(Page(frame));
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
