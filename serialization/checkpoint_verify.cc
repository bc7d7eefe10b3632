// The walk over all frames of a file: what stands in the stream is compared with the index.
#include "serialization/checkpoint_reader.h"
#include "src/runtime/status.h"

namespace weft {

absl::Status CheckpointReader::VerifyFrames() {
  const std::string& path = file_.path();
  ByteSource source(&file_, kPrologueBytes, trailer_.footer_offset);
  FrameScanner scanner(&source);
  RunningChecksum root;
  Walk walk;
  walk.seen.resize(entries_.size());
  Frame frame;
  while (source.position() < trailer_.footer_offset) {
    WEFT_RETURN_IF_ERROR(scanner.Next(&frame));
    root.Add(frame.prefix);
    if (frame.kind == FrameKind::kHeader && frame.offset != kPrologueBytes)
      return Damaged(path, frame.offset, "a second header");
    WEFT_RETURN_IF_ERROR(MatchFrame(frame, &walk));
    WEFT_RETURN_IF_ERROR(scanner.SkipPayload(frame.payload_bytes));
    WEFT_RETURN_IF_ERROR(scanner.Finish(frame));
  }
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    if (walk.seen[id] == entries_[id].is_inside()) {
      return Damaged(path, entries_[id].payload, "tensor '", entries_[id].tensor.name,
                     "' does not stand where the index says");
    }
  }
  if (walk.payloads != footer_.payloads || walk.whole.has_value() || walk.in_parts.has_value()) {
    return Damaged(path, trailer_.footer_offset, "the file holds ", walk.payloads, " payloads, the footer says ",
                   footer_.payloads);
  }
  if (!ChecksumsMatch(footer_.root_hash, root.Value()))
    return Damaged(path, trailer_.footer_offset, "the root hash does not match");
  return absl::OkStatus();
}

absl::Status CheckpointReader::MatchFrame(const Frame& frame, Walk* walk) const {
  const std::string& path = file_.path();
  if (walk->whole.has_value() != (frame.kind == FrameKind::kSums)) {
    return Damaged(path, frame.offset, "checksums do not follow the tensor that they are of");
  }
  if (walk->in_parts.has_value() && frame.kind != FrameKind::kPart && frame.kind != FrameKind::kParts) {
    return Damaged(path, frame.offset, "the places of tensor ", *walk->in_parts, " do not follow its parts");
  }
  if (frame.kind == FrameKind::kPack) return MatchPack(frame, walk);
  if (frame.kind == FrameKind::kPart) return MatchPart(frame, walk);
  if (frame.kind == FrameKind::kParts) return MatchParts(frame, walk);
  if (frame.kind == FrameKind::kData) {
    WEFT_ASSIGN_OR_RETURN(const TensorRecord r, DecodeData(frame, path));
    ++walk->payloads;
    if (r.id >= entries_.size() || walk->seen[r.id] || entries_[r.id].in_pack() ||
        entries_[r.id].payload != frame.payload_offset || !r.SameType(entries_[r.id].tensor)) {
      return Damaged(path, frame.offset, "tensor ", r.id, " is not what the index says, or not where");
    }
    walk->seen[r.id] = true;
    walk->whole = r.id;
  } else if (frame.kind == FrameKind::kSums) {
    WEFT_ASSIGN_OR_RETURN(const SumsRecord r, DecodeSums(frame, path));
    if (r.tensor != *walk->whole || r.sums != entries_[r.tensor].sums) {
      return Damaged(path, frame.offset, "the checksums of tensor ", *walk->whole, " are not what the index says");
    }
    walk->whole.reset();
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::MatchPart(const Frame& frame, Walk* walk) const {
  const std::string& path = file_.path();
  WEFT_ASSIGN_OR_RETURN(const PartRecord part, DecodePart(frame, path));
  ++walk->payloads;
  const uint32_t id = part.tensor.id;
  if (id >= entries_.size() || walk->seen[id] || !entries_[id].in_parts() || walk->in_parts.value_or(id) != id ||
      !part.tensor.SameType(entries_[id].tensor)) {
    return Damaged(path, frame.offset, "a part is not of the tensor that the index says");
  }
  if (!walk->in_parts.has_value()) walk->parts.assign(SumCount(part.tensor.bytes), {});
  walk->in_parts = id;
  walk->parts[part.index] = part.place;
  return absl::OkStatus();
}

absl::Status CheckpointReader::MatchParts(const Frame& frame, Walk* walk) const {
  const std::string& path = file_.path();
  WEFT_ASSIGN_OR_RETURN(const PartsRecord parts, DecodeParts(frame, header_.bases.size(), path));
  const uint32_t id = parts.tensor.id;
  bool same = id < entries_.size() && !walk->seen[id] && walk->in_parts.value_or(id) == id;
  if (same) {
    const IndexRecord& entry = entries_[id];
    same = entry.in_parts() && entry.payload == frame.offset && entry.inner == frame.end - frame.offset &&
           parts.tensor.SameType(entry.tensor);
  }
  // A place without a payload is one of another file, and the other way round.
  if (same && !walk->in_parts.has_value()) walk->parts.assign(parts.parts.size(), {});
  for (size_t i = 0; same && i < parts.parts.size(); ++i) {
    same = parts.parts[i].file == 0 ? parts.parts[i] == walk->parts[i] : walk->parts[i].payload == 0;
  }
  if (!same)
    return Damaged(path, frame.offset, "the parts of tensor ", id, " are not what the index says, or not where");
  walk->seen[id] = true;
  walk->in_parts.reset();
  return absl::OkStatus();
}

absl::Status CheckpointReader::MatchPack(const Frame& frame, Walk* walk) const {
  const std::string& path = file_.path();
  WEFT_ASSIGN_OR_RETURN(const PackRecord pack, DecodePack(frame, path));
  ++walk->payloads;
  for (const PackRecord::Member& member : pack.members) {
    const uint32_t id = member.tensor.id;
    bool same = id < entries_.size() && !walk->seen[id];
    if (same) {
      const IndexRecord& entry = entries_[id];
      same = entry.payload == frame.payload_offset && entry.pack_bytes == frame.payload_bytes &&
             entry.inner == member.offset && entry.pack_sum == pack.sum && member.tensor.SameType(entry.tensor);
    }
    if (!same) return Damaged(path, frame.offset, "a pack does not hold what the index says");
    walk->seen[id] = true;
  }
  return absl::OkStatus();
}

}  // namespace weft
