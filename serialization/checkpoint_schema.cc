// Messages to structs and back, with every check that one message allows.
#include "serialization/checkpoint_schema.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "serialization/limits.h"
#include "serialization/message.h"
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

void PutTensor(const TensorRecord& tensor, schema::Tensor::Builder out) {
  out.setId(tensor.id);
  out.setName(ToText(tensor.name));
  out.setDtype(ToStored(tensor.dtype));
  out.setLogical(ToStored(tensor.logical));
  auto shape = out.initShape(static_cast<unsigned>(tensor.dims.size()));
  for (unsigned i = 0; i < tensor.dims.size(); ++i) shape.set(i, static_cast<uint64_t>(tensor.dims[i]));
  out.setRawBytes(tensor.bytes);
  if (tensor.is_inline) {
    out.setInlineData(ToData(tensor.inline_data));
    out.setHash(Checksum64(std::as_bytes(std::span(tensor.inline_data))));
  }
}

absl::StatusOr<TensorRecord> GetTensor(schema::Tensor::Reader in, uint64_t offset, const std::string& file) {
  TensorRecord tensor;
  tensor.id = in.getId();
  if (tensor.id >= kMaxTensorsPerFile) return Damaged(file, offset, "tensor id ", tensor.id, " is larger than allowed");
  if (in.getName().size() > kMaxNameBytes) {
    return Damaged(file, offset, "the name of tensor ", tensor.id, " has ", in.getName().size(), " bytes; at most ",
                   kMaxNameBytes, " are allowed");
  }
  tensor.name = FromText(in.getName());
  tensor.dtype = FromStored(in.getDtype());
  tensor.logical = FromStored(in.getLogical());
  if (tensor.dtype == DType::kInvalid || (tensor.logical != tensor.dtype && !IsHeldAs(tensor.logical, tensor.dtype))) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': tensor '", tensor.name,
                       "' has an element type that this library does not read (number ",
                       static_cast<int>(in.getDtype()), ", seen as ", static_cast<int>(in.getLogical()), ")");
  }
  if (in.hasBox() || in.hasQuant()) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': tensor '", tensor.name,
                       "' is a shard or quantised; this library does not read these yet");
  }
  const auto shape = in.getShape();
  if (shape.size() > kMaxRank)
    return Damaged(file, offset, "tensor '", tensor.name, "' has ", shape.size(), " dimensions");
  for (uint64_t dim : shape) {
    if (dim > static_cast<uint64_t>(INT64_MAX))
      return Damaged(file, offset, "tensor '", tensor.name, "' has a dimension of ", dim);
    tensor.dims.push_back(static_cast<int64_t>(dim));
  }
  const std::optional<uint64_t> bytes = StoredBytes(tensor.dtype, tensor.dims);
  tensor.bytes = in.getRawBytes();
  if (!bytes.has_value() || *bytes != tensor.bytes) {
    return Damaged(file, offset, "tensor '", tensor.name, "' of ", NameOf(tensor.dtype), DimsToString(tensor.dims),
                   " claims ", tensor.bytes, " bytes");
  }
  tensor.is_inline = in.hasInlineData() || tensor.bytes == 0;
  if (in.hasInlineData()) {
    const std::string_view data = FromData(in.getInlineData());
    if (data.size() > kMaxInlineBytes || data.size() != tensor.bytes) {
      return Damaged(file, offset, "tensor '", tensor.name, "' of ", tensor.bytes, " bytes holds ", data.size(),
                     " bytes");
    }
    if (!ChecksumsMatch(in.getHash(), Checksum64(std::as_bytes(std::span(data))))) {
      return Damaged(file, offset, "the checksum of tensor '", tensor.name, "' does not match");
    }
    tensor.inline_data = data;
  }
  return tensor;
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
    root.setChunkBytes(header.chunk_bytes);
    root.setPayloadAlignLog2(12);
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
        if (root.hasShard()) {
          return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file,
                             "' is one shard of several; this library does not read these yet");
        }
        header.required = root.getRequired();
        std::memcpy(header.uuid.data(), uuid.begin(), header.uuid.size());
        header.producer = FromText(root.getProducer());
        header.created_unix_ns = root.getCreatedUnixNs();
        header.step = root.getStep();
        header.chunk_bytes = root.getChunkBytes();
        for (const auto pair : root.getUser())
          header.user.emplace_back(FromText(pair.getKey()), FromData(pair.getValue()));
        return absl::OkStatus();
      }));
  return header;
}

absl::Status EncodeTensors(std::span<const TensorRecord> tensors, Message* out) {
  size_t guess = 64;
  for (const TensorRecord& t : tensors) guess += 160 + t.name.size() + t.dims.size() * 8 + t.inline_data.size();
  return BuildMessage<schema::Tensors>("a tensors frame", guess, out, [&](schema::Tensors::Builder root) {
    auto list = root.initTensors(static_cast<unsigned>(tensors.size()));
    for (unsigned i = 0; i < tensors.size(); ++i) PutTensor(tensors[i], list[i]);
  });
}

absl::StatusOr<std::vector<TensorRecord>> DecodeTensors(const Frame& frame, const std::string& file) {
  std::vector<TensorRecord> tensors;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Tensors>(
      absl::StrCat("'", file, "': a tensors frame"), frame.meta, [&](schema::Tensors::Reader root) -> absl::Status {
        for (const auto in : root.getTensors()) {
          WEFT_ASSIGN_OR_RETURN(TensorRecord tensor, GetTensor(in, frame.offset, file));
          tensors.push_back(std::move(tensor));
        }
        return absl::OkStatus();
      }));
  return tensors;
}

absl::Status EncodeChunk(const ChunkFrameRecord& chunk, Message* out) {
  return BuildMessage<schema::Chunk>("a chunk", 128 + chunk.members.size() * 16, out, [&](schema::Chunk::Builder root) {
    root.setTensorId(chunk.tensor);
    root.setOrdinal(chunk.ordinal);
    root.setRawOffset(chunk.raw_offset);
    root.setRawLen(chunk.bytes);
    root.setStoredLen(chunk.bytes);
    root.setRawHash(chunk.hash);
    root.setStoredHash(chunk.hash);
    if (chunk.members.empty()) return;
    auto members = root.initMembers(static_cast<unsigned>(chunk.members.size()));
    for (unsigned i = 0; i < chunk.members.size(); ++i) {
      members[i].setTensorId(chunk.members[i].tensor);
      members[i].setOffset(chunk.members[i].offset);
      members[i].setLength(chunk.members[i].bytes);
    }
  });
}

absl::StatusOr<ChunkFrameRecord> DecodeChunk(const Frame& frame, const std::string& file) {
  ChunkFrameRecord chunk;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Chunk>(
      absl::StrCat("'", file, "': a chunk"), frame.meta, [&](schema::Chunk::Reader root) -> absl::Status {
        if (root.getCodec() != schema::Codec::NONE || root.getFilter() != schema::Filter::NONE) {
          return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': the chunk at byte ", frame.offset,
                             " is compressed; this library does not read these yet");
        }
        chunk = {root.getTensorId(), root.getOrdinal(), root.getRawOffset(), root.getRawLen(), root.getRawHash(), {}};
        if (root.getStoredLen() != chunk.bytes || root.getStoredHash() != chunk.hash ||
            frame.payload_bytes != chunk.bytes || chunk.bytes > kMaxChunkBytes || chunk.bytes == 0) {
          return Damaged(file, frame.offset, "a chunk's lengths or checksums contradict each other");
        }
        for (const auto m : root.getMembers()) {
          const uint64_t end = uint64_t{m.getOffset()} + m.getLength();
          const uint64_t before = chunk.members.empty() ? 0 : chunk.members.back().offset + chunk.members.back().bytes;
          if (end > chunk.bytes || m.getOffset() < before || m.getLength() == 0) {
            return Damaged(file, frame.offset, "the members of a pack overlap or leave it");
          }
          chunk.members.push_back({m.getTensorId(), m.getOffset(), m.getLength()});
        }
        if ((frame.kind == FrameKind::kPack) != !chunk.members.empty()) {
          return Damaged(file, frame.offset, "a pack without members, or a chunk with them");
        }
        return absl::OkStatus();
      }));
  return chunk;
}

absl::Status EncodeIndexPage(std::span<const IndexRecord> entries, Message* out) {
  size_t guess = 64;
  for (const IndexRecord& e : entries) {
    guess += 200 + e.tensor.name.size() + e.tensor.dims.size() * 8 + e.tensor.inline_data.size() + e.chunks.size() * 48;
  }
  return BuildMessage<schema::IndexPage>("an index page", guess, out, [&](schema::IndexPage::Builder root) {
    auto list = root.initEntries(static_cast<unsigned>(entries.size()));
    for (unsigned i = 0; i < entries.size(); ++i) {
      PutTensor(entries[i].tensor, list[i].initTensor());
      auto chunks = list[i].initChunks(static_cast<unsigned>(entries[i].chunks.size()));
      for (unsigned k = 0; k < entries[i].chunks.size(); ++k) {
        const ChunkRecord& chunk = entries[i].chunks[k];
        chunks[k].setFileOffset(chunk.offset);
        chunks[k].setStoredLen(chunk.bytes);
        chunks[k].setRawLen(chunk.bytes);
        chunks[k].setStoredHash(chunk.hash);
        chunks[k].setRawHash(chunk.hash);
        chunks[k].setInnerOffset(chunk.inner);
      }
    }
  });
}

absl::StatusOr<std::vector<IndexRecord>> DecodeIndexPage(const Frame& frame, const std::string& file) {
  std::vector<IndexRecord> entries;
  const auto decode = [&](schema::IndexEntry::Reader in) -> absl::StatusOr<IndexRecord> {
    IndexRecord entry;
    WEFT_ASSIGN_OR_RETURN(entry.tensor, GetTensor(in.getTensor(), frame.offset, file));
    const auto bad = [&](std::string_view why) {
      return Damaged(file, frame.offset, "the index entry of tensor '", entry.tensor.name, "' ", why);
    };
    uint64_t sum = 0;
    for (const auto c : in.getChunks()) {
      if (c.getCodec() != schema::Codec::NONE || c.getFilter() != schema::Filter::NONE || c.getFile() != 0) {
        return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': tensor '", entry.tensor.name,
                           "' is compressed or in another file; this library does not read these yet");
      }
      const ChunkRecord chunk = {c.getFileOffset(), c.getRawHash(), c.getRawLen(), c.getInnerOffset()};
      if (c.getStoredLen() != chunk.bytes || c.getStoredHash() != chunk.hash || chunk.bytes == 0 ||
          chunk.bytes > kMaxChunkBytes || chunk.offset % PayloadAlign(chunk.bytes) != 0) {
        return bad("has a chunk whose lengths, checksums or place contradict each other");
      }
      sum += chunk.bytes;
      entry.chunks.push_back(chunk);
    }
    if (entry.tensor.is_inline) {
      if (!entry.chunks.empty()) return bad("has its bytes twice");
      return entry;
    }
    if (entry.chunks.size() == 1) {
      // A member of a pack, or the only chunk; both lie wholly inside the payload.
      if (uint64_t{entry.chunks[0].inner} + entry.tensor.bytes > sum) return bad("places it outside its pack");
      return entry;
    }
    for (const ChunkRecord& chunk : entry.chunks) {
      if (chunk.inner != 0) return bad("has a chunk that starts inside a pack");
    }
    if (sum != entry.tensor.bytes) return bad(absl::StrCat("has chunks of ", sum, " bytes for ", entry.tensor.bytes));
    return entry;
  };
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::IndexPage>(absl::StrCat("'", file, "': an index page"), frame.meta,
                                                      [&](schema::IndexPage::Reader root) -> absl::Status {
                                                        for (const auto in : root.getEntries()) {
                                                          WEFT_ASSIGN_OR_RETURN(IndexRecord entry, decode(in));
                                                          entries.push_back(std::move(entry));
                                                        }
                                                        return absl::OkStatus();
                                                      }));
  return entries;
}

absl::Status EncodeFooter(const FooterRecord& footer, Message* out) {
  size_t guess = 256;
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
    root.setChunks(footer.chunks);
    root.setRawBytes(footer.raw_bytes);
    const uint64_t hash[2] = {footer.root_hash.low, footer.root_hash.high};
    root.setRootHash(ToData(std::as_bytes(std::span(hash))));
  });
}

absl::StatusOr<FooterRecord> DecodeFooter(const Frame& frame, const std::string& file) {
  FooterRecord footer;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::Footer>(
      absl::StrCat("'", file, "': the footer"), frame.meta, [&](schema::Footer::Reader root) -> absl::Status {
        const auto hash = root.getRootHash();
        if (hash.size() != 16 || root.getRootKind() != 0) {
          return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': unknown kind of root hash");
        }
        std::memcpy(&footer.root_hash.low, hash.begin(), 8);
        std::memcpy(&footer.root_hash.high, hash.begin() + 8, 8);
        footer.tree_offset = root.getTreeOffset();
        footer.tree_frames = root.getTreeFrames();
        footer.tree_nodes = root.getTreeNodes();
        footer.tensors = root.getTensors();
        footer.chunks = root.getChunks();
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
        return absl::OkStatus();
      }));
  return footer;
}

}  // namespace weft
