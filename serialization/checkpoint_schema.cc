// Messages to structs and back, with every check that one message allows.
#include "serialization/checkpoint_schema.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "serialization/limits.h"
#include "serialization/message.h"
#include "serialization/retention.h"
#include "serialization/schema/checkpoint.capnp.h"
#include "src/runtime/held_types.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

struct DTypePair {
  DType dtype;
  schema::DType stored;
};
constexpr DTypePair kDTypes[] = {
    {DType::kBool, schema::DType::BOOL8},
    {DType::kI2, schema::DType::I2},
    {DType::kI4, schema::DType::I4},
    {DType::kI8, schema::DType::I8},
    {DType::kI16, schema::DType::I16},
    {DType::kI32, schema::DType::I32},
    {DType::kI64, schema::DType::I64},
    {DType::kU2, schema::DType::U2},
    {DType::kU4, schema::DType::U4},
    {DType::kU8, schema::DType::U8},
    {DType::kU16, schema::DType::U16},
    {DType::kU32, schema::DType::U32},
    {DType::kU64, schema::DType::U64},
    {DType::kF16, schema::DType::F16},
    {DType::kBF16, schema::DType::BF16},
    {DType::kF32, schema::DType::F32},
    {DType::kF64, schema::DType::F64},
    {DType::kC64, schema::DType::C64},
    {DType::kC128, schema::DType::C128},
    {DType::kF8E3M4, schema::DType::F8E3M4},
    {DType::kF8E4M3, schema::DType::F8E4M3},
    {DType::kF8E4M3B11FNUZ, schema::DType::F8E4M3B11FNUZ},
    {DType::kF8E4M3FN, schema::DType::F8E4M3FN},
    {DType::kF8E4M3FNUZ, schema::DType::F8E4M3FNUZ},
    {DType::kF8E5M2, schema::DType::F8E5M2},
    {DType::kF8E5M2FNUZ, schema::DType::F8E5M2FNUZ},
    {DType::kF8E8M0FNU, schema::DType::F8E8M0FNU},
};

schema::DType ToStored(DType dtype) {
  for (const DTypePair& pair : kDTypes) {
    if (pair.dtype == dtype) return pair.stored;
  }
  return schema::DType::INVALID;
}

DType FromStored(schema::DType stored) {
  for (const DTypePair& pair : kDTypes) {
    if (pair.stored == stored) return pair.dtype;
  }
  return DType::kInvalid;
}

// Tensor, or IndexEntry: what they have in common.
template <typename Builder>
void PutType(const TensorRecord& tensor, Builder out) {
  out.setId(tensor.id);
  out.setDtype(ToStored(tensor.dtype));
  out.setLogical(ToStored(tensor.logical));
  if (tensor.dims.empty()) return;
  auto shape = out.initShape(static_cast<unsigned>(tensor.dims.size()));
  for (unsigned i = 0; i < tensor.dims.size(); ++i) shape.set(i, static_cast<uint64_t>(tensor.dims[i]));
}

template <typename Reader>
absl::StatusOr<TensorRecord> GetType(Reader in, std::string_view name, uint64_t offset, const std::string& file) {
  TensorRecord tensor;
  tensor.id = in.getId();
  const std::string what = name.empty() ? absl::StrCat("tensor ", tensor.id) : absl::StrCat("tensor '", name, "'");
  if (tensor.id >= kMaxTensorsPerFile) return Damaged(file, offset, "tensor id ", tensor.id, " is larger than allowed");
  tensor.dtype = FromStored(in.getDtype());
  tensor.logical = FromStored(in.getLogical());
  if (tensor.dtype == DType::kInvalid || (tensor.logical != tensor.dtype && !IsHeldAs(tensor.logical, tensor.dtype))) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': ", what,
                       " has an element type that this library does not read (number ", static_cast<int>(in.getDtype()),
                       ", seen as ", static_cast<int>(in.getLogical()), ")");
  }
  const auto shape = in.getShape();
  if (shape.size() > kMaxRank) return Damaged(file, offset, what, " has ", shape.size(), " dimensions");
  for (uint64_t dim : shape) {
    if (dim > static_cast<uint64_t>(INT64_MAX)) return Damaged(file, offset, what, " has a dimension of ", dim);
    tensor.dims.push_back(static_cast<int64_t>(dim));
  }
  const std::optional<uint64_t> bytes = StoredBytes(tensor.dtype, tensor.dims);
  if (!bytes.has_value() || *bytes > kMaxDataBytes) {
    return Damaged(file, offset, what, " of ", NameOf(tensor.dtype), DimsToString(tensor.dims),
                   " has more bytes than a tensor can have");
  }
  tensor.bytes = *bytes;
  return tensor;
}

absl::StatusOr<IndexRecord> GetEntry(schema::IndexEntry::Reader in, uint64_t offset, const std::string& file) {
  const std::string_view name = FromText(in.getName());
  if (name.size() > kMaxNameBytes) {
    return Damaged(file, offset, "the name of tensor ", in.getId(), " has ", name.size(), " bytes; at most ",
                   kMaxNameBytes, " are allowed");
  }
  IndexRecord entry;
  WEFT_ASSIGN_OR_RETURN(entry.tensor, GetType(in, name, offset, file));
  entry.tensor.name = name;
  entry.payload = in.getPayload();
  entry.pack_bytes = in.getPackBytes();
  entry.inner = in.getInner();
  entry.pack_sum = in.getPackSum();
  entry.inside = FromData(in.getInside());
  for (const uint64_t sum : in.getSums()) entry.sums.push_back(sum);
  const uint64_t bytes = entry.tensor.bytes;
  const auto bad = [&](const auto&... why) {
    return Damaged(file, offset, "the index entry of tensor '", name, "' ", why...);
  };
  const bool packed = entry.in_pack(), whole = entry.is_whole();
  if (entry.is_inside() ? entry.inside.size() != bytes || bytes > kMaxInsideBytes : !entry.inside.empty()) {
    return bad("has ", entry.inside.size(), " bytes inside, of ", bytes);
  }
  if (entry.in_parts() && !entry.sums.empty()) return bad("has a place in a pack that it is not in");
  if (entry.sums.size() != (whole ? SumCount(bytes) : 0) || (whole && bytes == 0)) {
    return bad("has ", entry.sums.size(), " checksums for ", bytes, " bytes");
  }
  if (!packed && (entry.is_inside() ? entry.inner != 0 || entry.pack_sum != 0 : whole && entry.pack_sum != 0)) {
    return bad("has a place in a pack that it is not in");
  }
  if (entry.in_parts()) {
    const bool may = entry.inner <= kMaxMetaBytes + 2 * kFrameAlign && entry.inner % kFrameAlign == 0 && bytes > 0;
    if (entry.payload % kFrameAlign == 0 && may) return entry;
    return bad("has no frame of parts at byte ", entry.payload);
  }
  if (packed && (entry.is_inside() || entry.pack_bytes > kMaxPackBytes || entry.inner + bytes > entry.pack_bytes)) {
    return bad("places it outside its pack");
  }
  if (entry.payload % PayloadAlign(entry.payload_bytes()) != 0) return bad("has a payload at byte ", entry.payload);
  return entry;
}

}  // namespace

std::optional<uint64_t> StoredBytes(DType dtype, std::span<const int64_t> dims) {
  const std::optional<int64_t> count = CheckedCount(dims);
  if (!count.has_value() || !IsKnown(static_cast<uint32_t>(dtype))) return std::nullopt;
  int64_t bits;
  if (__builtin_mul_overflow(*count, int64_t{BitsOf(dtype)}, &bits) || bits > INT64_MAX - 7) return std::nullopt;
  return static_cast<uint64_t>(bits + 7) / 8;
}

absl::Status EncodeHeader(const HeaderRecord& header, Message* out) {
  size_t guess = 512 + header.producer.size();
  for (const auto& [key, value] : header.user) guess += key.size() + value.size() + 64;
  return BuildMessage<schema::Header>("the checkpoint header", guess, out, [&](schema::Header::Builder root) {
    root.setMajor(kFormatMajor);
    root.setMinor(kFormatMinor);
    root.setRequired(header.required);
    root.setUuid(ToData(std::span(header.uuid)));
    root.setProducer(ToText(header.producer));
    root.setCreatedUnixNs(header.created_unix_ns);
    root.setStep(header.step);
    auto user = root.initUser(static_cast<unsigned>(header.user.size()));
    for (unsigned i = 0; i < header.user.size(); ++i) {
      user[i].setKey(ToText(header.user[i].first));
      user[i].setValue(ToData(header.user[i].second));
    }
  });
}

absl::StatusOr<HeaderRecord> DecodeHeader(const Frame& frame, const std::string& file) {
  HeaderRecord header;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Header>(
      absl::StrCat("'", file, "': the header"), frame.meta, [&](schema::Header::Reader root) -> absl::Status {
        const auto uuid = root.getUuid();
        if (root.getMajor() != kFormatMajor || uuid.size() != header.uuid.size() ||
            root.getUser().size() > kMaxUserPairs) {
          return Damaged(file, frame.offset,
                         "the header holds a version, uuid or number of user entries that is not allowed");
        }
        header.required = root.getRequired();
        std::memcpy(header.uuid.data(), uuid.begin(), header.uuid.size());
        header.producer = FromText(root.getProducer());
        header.created_unix_ns = root.getCreatedUnixNs();
        header.step = root.getStep();
        for (const auto pair : root.getUser())
          header.user.emplace_back(FromText(pair.getKey()), FromData(pair.getValue()));
        return absl::OkStatus();
      }));
  return header;
}

absl::Status EncodeData(const TensorRecord& tensor, Message* out) {
  return BuildMessage<schema::Payload>("a tensor's frame", 128 + tensor.dims.size() * 8, out,
                                       [&](schema::Payload::Builder root) { PutType(tensor, root.initTensor()); });
}

absl::StatusOr<TensorRecord> DecodeData(const Frame& frame, const std::string& file) {
  TensorRecord tensor;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Payload>(
      absl::StrCat("'", file, "': a tensor's frame"), frame.meta, [&](schema::Payload::Reader root) -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(tensor, GetType(root.getTensor(), {}, frame.offset, file));
        if (tensor.bytes == frame.payload_bytes && tensor.bytes > 0) return absl::OkStatus();
        return Damaged(file, frame.offset, "tensor ", tensor.id, " of ", NameOf(tensor.dtype),
                       DimsToString(tensor.dims), " stands in a payload of ", frame.payload_bytes, " bytes");
      }));
  return tensor;
}

absl::Status EncodeSums(const SumsRecord& sums, Message* out) {
  return BuildMessage<schema::Sums>("a tensor's checksums", 64 + sums.sums.size() * 8, out,
                                    [&](schema::Sums::Builder root) {
                                      root.setTensor(sums.tensor);
                                      auto list = root.initSums(static_cast<unsigned>(sums.sums.size()));
                                      for (unsigned i = 0; i < sums.sums.size(); ++i) list.set(i, sums.sums[i]);
                                    });
}

absl::StatusOr<SumsRecord> DecodeSums(const Frame& frame, const std::string& file) {
  SumsRecord sums;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Sums>(absl::StrCat("'", file, "': a tensor's checksums"), frame.meta,
                                                 [&](schema::Sums::Reader root) {
                                                   sums.tensor = root.getTensor();
                                                   for (const uint64_t sum : root.getSums()) sums.sums.push_back(sum);
                                                   return absl::OkStatus();
                                                 }));
  return sums;
}

absl::Status EncodePart(const PartRecord& part, Message* out) {
  return BuildMessage<schema::Part>("a part's frame", 160 + part.tensor.dims.size() * 8, out,
                                    [&](schema::Part::Builder root) {
                                      PutType(part.tensor, root.initTensor());
                                      root.setIndex(part.index);
                                      root.setCodec(static_cast<uint16_t>(part.place.codec));
                                      root.setSum(part.place.sum);
                                    });
}

namespace {

// Tells whether so many bytes can be stored as that: a codec is only used where it saves something.
bool IsPlausible(uint16_t codec, uint64_t stored, uint64_t bytes) {
  return codec == static_cast<uint16_t>(PartCodec::kNone)
             ? stored == bytes
             : codec == static_cast<uint16_t>(PartCodec::kZstd) && stored > 0 && stored < bytes;
}

}  // namespace

absl::StatusOr<PartRecord> DecodePart(const Frame& frame, const std::string& file) {
  PartRecord part;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Part>(
      absl::StrCat("'", file, "': a part's frame"), frame.meta, [&](schema::Part::Reader root) -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(part.tensor, GetType(root.getTensor(), {}, frame.offset, file));
        part.index = root.getIndex();
        const uint64_t bytes = part.tensor.bytes, each = SumBytes(bytes);
        if (part.index >= SumCount(bytes) ||
            !IsPlausible(root.getCodec(), frame.payload_bytes, std::min(each, bytes - part.index * each))) {
          return Damaged(file, frame.offset, "part ", part.index, " of tensor ", part.tensor.id, " is stored as ",
                         frame.payload_bytes, " bytes by codec ", root.getCodec());
        }
        part.place = {.payload = frame.payload_offset,
                      .bytes = static_cast<uint32_t>(frame.payload_bytes),
                      .codec = static_cast<PartCodec>(root.getCodec()),
                      .file = 0,
                      .sum = root.getSum()};
        return absl::OkStatus();
      }));
  return part;
}

absl::Status EncodeParts(const PartsRecord& parts, Message* out) {
  return BuildMessage<schema::Parts>("a tensor's parts", 256 + parts.parts.size() * 32, out,
                                     [&](schema::Parts::Builder root) {
                                       PutType(parts.tensor, root.initTensor());
                                       auto list = root.initParts(static_cast<unsigned>(parts.parts.size()));
                                       auto sums = root.initSums(static_cast<unsigned>(parts.sums.size()));
                                       for (unsigned i = 0; i < parts.parts.size(); ++i) {
                                         const PartPlace& place = parts.parts[i];
                                         list[i].setPayload(place.payload);
                                         list[i].setBytes(place.bytes);
                                         list[i].setCodec(static_cast<uint16_t>(place.codec));
                                         list[i].setFile(place.file);
                                         list[i].setSum(place.sum);
                                         sums.set(i, parts.sums[i]);
                                       }
                                     });
}

absl::StatusOr<PartsRecord> DecodeParts(const Frame& frame, size_t bases, const std::string& file) {
  PartsRecord parts;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Parts>(
      absl::StrCat("'", file, "': a tensor's parts"), frame.meta, [&](schema::Parts::Reader root) -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(parts.tensor, GetType(root.getTensor(), {}, frame.offset, file));
        const uint64_t bytes = parts.tensor.bytes, each = SumBytes(bytes);
        if (bytes == 0 || root.getParts().size() != SumCount(bytes) || root.getSums().size() != SumCount(bytes)) {
          return Damaged(file, frame.offset, "tensor ", parts.tensor.id, " has ", root.getParts().size(), " parts and ",
                         root.getSums().size(), " checksums, not ", SumCount(bytes));
        }
        for (const uint64_t sum : root.getSums()) parts.sums.push_back(sum);
        for (const auto in : root.getParts()) {
          const uint64_t begin = parts.parts.size() * each;
          if (in.getFile() > bases || in.getPayload() < kPrologueBytes || in.getPayload() > uint64_t{INT64_MAX} / 2 ||
              !IsPlausible(in.getCodec(), in.getBytes(), std::min(each, bytes - begin))) {
            return Damaged(file, frame.offset, "part ", parts.parts.size(), " of tensor ", parts.tensor.id,
                           " is in file ", in.getFile(), " of ", bases, ", ", in.getBytes(), " bytes by codec ",
                           in.getCodec());
          }
          parts.parts.push_back(
              {in.getPayload(), in.getBytes(), static_cast<PartCodec>(in.getCodec()), in.getFile(), in.getSum()});
        }
        return absl::OkStatus();
      }));
  return parts;
}

absl::Status EncodePack(const PackRecord& pack, Message* out) {
  size_t guess = 64;
  for (const PackRecord::Member& member : pack.members) guess += 48 + member.tensor.dims.size() * 8;
  return BuildMessage<schema::Pack>("a pack", guess, out, [&](schema::Pack::Builder root) {
    root.setSum(pack.sum);
    auto members = root.initMembers(static_cast<unsigned>(pack.members.size()));
    for (unsigned i = 0; i < pack.members.size(); ++i) {
      PutType(pack.members[i].tensor, members[i].initTensor());
      members[i].setOffset(pack.members[i].offset);
    }
  });
}

absl::StatusOr<PackRecord> DecodePack(const Frame& frame, const std::string& file) {
  PackRecord pack;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Pack>(
      absl::StrCat("'", file, "': a pack"), frame.meta, [&](schema::Pack::Reader root) -> absl::Status {
        pack.sum = root.getSum();
        uint64_t before = 0;
        for (const auto in : root.getMembers()) {
          PackRecord::Member member;
          WEFT_ASSIGN_OR_RETURN(member.tensor, GetType(in.getTensor(), {}, frame.offset, file));
          member.offset = in.getOffset();
          const uint64_t bytes = member.tensor.bytes;
          if (member.offset < before || bytes == 0 || bytes > frame.payload_bytes ||
              member.offset > frame.payload_bytes - bytes) {
            return Damaged(file, frame.offset, "the members of a pack overlap or leave it");
          }
          before = member.offset + bytes;
          pack.members.push_back(std::move(member));
        }
        if (!pack.members.empty()) return absl::OkStatus();
        return Damaged(file, frame.offset, "a pack has no members");
      }));
  return pack;
}

size_t IndexEntryBytes(size_t name, size_t dims, size_t inside, size_t sums) {
  return 64 + RoundUp(name + 1, 8) + dims * 8 + RoundUp(inside, 8) + sums * 8;
}

absl::Status EncodeIndexPage(std::span<const IndexRecord> entries, Message* out) {
  size_t guess = 64;
  for (const IndexRecord& e : entries) {
    guess += IndexEntryBytes(e.tensor.name.size(), e.tensor.dims.size(), e.inside.size(), e.sums.size());
  }
  return BuildMessage<schema::IndexPage>("an index page", guess, out, [&](schema::IndexPage::Builder root) {
    auto list = root.initEntries(static_cast<unsigned>(entries.size()));
    for (unsigned i = 0; i < entries.size(); ++i) {
      const IndexRecord& entry = entries[i];
      PutType(entry.tensor, list[i]);
      list[i].setName(ToText(entry.tensor.name));
      list[i].setPayload(entry.payload);
      list[i].setPackBytes(entry.pack_bytes);
      list[i].setInner(entry.inner);
      list[i].setPackSum(entry.pack_sum);
      if (!entry.inside.empty()) list[i].setInside(ToData(entry.inside));
      if (entry.sums.empty()) continue;
      auto sums = list[i].initSums(static_cast<unsigned>(entry.sums.size()));
      for (unsigned k = 0; k < entry.sums.size(); ++k) sums.set(k, entry.sums[k]);
    }
  });
}

absl::StatusOr<std::vector<IndexRecord>> DecodeIndexPage(const Frame& frame, const std::string& file) {
  std::vector<IndexRecord> entries;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::IndexPage>(
      absl::StrCat("'", file, "': an index page"), frame.meta, [&](schema::IndexPage::Reader root) -> absl::Status {
        for (const auto in : root.getEntries()) {
          WEFT_ASSIGN_OR_RETURN(IndexRecord entry, GetEntry(in, frame.offset, file));
          entries.push_back(std::move(entry));
        }
        return absl::OkStatus();
      }));
  return entries;
}

absl::StatusOr<std::optional<IndexRecord>> FindInPage(const Frame& frame, std::string_view name,
                                                      const std::string& file) {
  std::optional<IndexRecord> found;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::IndexPage>(
      absl::StrCat("'", file, "': an index page"), frame.meta, [&](schema::IndexPage::Reader root) -> absl::Status {
        const auto entries = root.getEntries();
        unsigned low = 0, high = entries.size();
        while (low < high) {
          const unsigned middle = low + (high - low) / 2;
          if (FromText(entries[middle].getName()) < name) {
            low = middle + 1;
          } else {
            high = middle;
          }
        }
        if (low == entries.size() || FromText(entries[low].getName()) != name) return absl::OkStatus();
        WEFT_ASSIGN_OR_RETURN(found, GetEntry(entries[low], frame.offset, file));
        return absl::OkStatus();
      }));
  return found;
}

absl::Status EncodeFooter(const FooterRecord& footer, Message* out) {
  size_t guess = 256 + 320 * footer.bases.size();
  for (const PageRecord& page : footer.pages) guess += 64 + page.first_name.size();
  return BuildMessage<schema::Footer>("the footer", guess, out, [&](schema::Footer::Builder root) {
    auto pages = root.initPages(static_cast<unsigned>(footer.pages.size()));
    for (unsigned i = 0; i < footer.pages.size(); ++i) {
      const PageRecord& page = footer.pages[i];
      pages[i].setFirstName(ToText(page.first_name));
      pages[i].setOffset(page.offset);
      pages[i].setLength(page.bytes);
      pages[i].setHash(page.hash);
      pages[i].setCount(page.count);
    }
    root.setTreeOffset(footer.tree_offset);
    root.setTreeFrames(footer.tree_frames);
    root.setTreeNodes(footer.tree_nodes);
    root.setTensors(footer.tensors);
    root.setPayloads(footer.payloads);
    root.setRawBytes(footer.raw_bytes);
    root.setRootLow(footer.root_hash.low);
    root.setRootHigh(footer.root_hash.high);
    if (footer.bases.empty()) return;
    auto bases = root.initBases(static_cast<unsigned>(footer.bases.size()));
    for (unsigned i = 0; i < footer.bases.size(); ++i) {
      bases[i].setName(ToText(footer.bases[i].name));
      bases[i].setUuid(ToData(std::span(footer.bases[i].uuid)));
    }
  });
}

absl::StatusOr<FooterRecord> DecodeFooter(const Frame& frame, const std::string& file) {
  FooterRecord footer;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Footer>(
      absl::StrCat("'", file, "': the footer"), frame.meta, [&](schema::Footer::Reader root) -> absl::Status {
        footer.root_hash = {root.getRootLow(), root.getRootHigh()};
        footer.tree_offset = root.getTreeOffset();
        footer.tree_frames = root.getTreeFrames();
        footer.tree_nodes = root.getTreeNodes();
        footer.tensors = root.getTensors();
        footer.payloads = root.getPayloads();
        footer.raw_bytes = root.getRawBytes();
        if (footer.tensors > kMaxTensorsPerFile || footer.tree_nodes > kMaxTreeNodes) {
          return Damaged(file, frame.offset, "the footer announces ", footer.tensors, " tensors and ",
                         footer.tree_nodes, " tree nodes, more than allowed");
        }
        for (const auto page : root.getPages()) {
          if (page.getFirstName().size() > kMaxNameBytes)
            return Damaged(file, frame.offset, "a name in the footer is too long");
          footer.pages.push_back({std::string(FromText(page.getFirstName())), page.getOffset(), page.getLength(),
                                  page.getHash(), page.getCount()});
        }
        if (root.getBases().size() > kMaxBases) return Damaged(file, frame.offset, "the footer names too many bases");
        for (const auto in : root.getBases()) {
          BaseRecord& base = footer.bases.emplace_back();
          base.name = FromText(in.getName());
          if (!IsNameBeside(base.name) || in.getUuid().size() != base.uuid.size()) {
            return Damaged(file, frame.offset, "the footer names a base that is no file beside it");
          }
          std::memcpy(base.uuid.data(), in.getUuid().begin(), base.uuid.size());
        }
        return absl::OkStatus();
      }));
  return footer;
}

}  // namespace weft
