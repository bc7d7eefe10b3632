// See checkpoint_parts.h.
#include "serialization/checkpoint_parts.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "serialization/limits.h"
#include "serialization/retention.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// Level 3 is slower and no smaller on weights.
constexpr int kLevel = 1;

// Returns the bytes of one number, of complex ones a half.
size_t NumberBytes(DType dtype) {
  const int bits = BitsOf(dtype);
  if (dtype == DType::kC64 || dtype == DType::kC128) return static_cast<size_t>(bits / 16);
  return bits < 8 ? 1 : static_cast<size_t>(bits / 8);
}

template <size_t kWidth>
void Shuffle(std::span<const std::byte> in, std::byte* out) {
  const size_t count = in.size() / kWidth;
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < kWidth; ++k) out[k * count + i] = in[i * kWidth + k];
  }
}

template <size_t kWidth>
void Unshuffle(const std::byte* in, std::span<std::byte> out) {
  const size_t count = out.size() / kWidth;
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < kWidth; ++k) out[i * kWidth + k] = in[k * count + i];
  }
}

struct Deleter {
  void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
  void operator()(ZSTD_DCtx* d) const { ZSTD_freeDCtx(d); }
};

absl::Status NoMemory() {
  return UserErrorOf(absl::StatusCode::kResourceExhausted, "no memory to compress a checkpoint with");
}

}  // namespace

struct PartCompressor::State {
  std::unique_ptr<ZSTD_CCtx, Deleter> context;
  std::vector<std::byte> shuffled, stored;
};

PartCompressor::PartCompressor() : state_(std::make_unique<State>()) {}
PartCompressor::~PartCompressor() = default;

absl::StatusOr<std::span<const std::byte>> PartCompressor::Compress(DType dtype, std::span<const std::byte> raw) {
  State& s = *state_;
  if (s.context == nullptr) s.context.reset(ZSTD_createCCtx());
  if (s.context == nullptr) return NoMemory();
  const size_t width = NumberBytes(dtype);
  std::span<const std::byte> in = raw;
  if (width > 1) {
    s.shuffled.resize(raw.size());
    if (width == 2) Shuffle<2>(raw, s.shuffled.data());
    if (width == 4) Shuffle<4>(raw, s.shuffled.data());
    if (width == 8) Shuffle<8>(raw, s.shuffled.data());
    in = s.shuffled;
  }
  s.stored.resize(ZSTD_compressBound(raw.size()));
  const size_t bytes =
      ZSTD_compressCCtx(s.context.get(), s.stored.data(), s.stored.size(), in.data(), in.size(), kLevel);
  if (ZSTD_isError(bytes)) return InternalError("zstd: ", ZSTD_getErrorName(bytes));
  if (bytes > raw.size() - raw.size() / 8) return std::span<const std::byte>();
  return std::span<const std::byte>(s.stored).first(bytes);
}

absl::Status ExpandPart(PartCodec codec, DType dtype, std::span<const std::byte> stored, std::span<std::byte> out,
                        const std::string& file, uint64_t at) {
  if (codec == PartCodec::kNone && stored.size() == out.size()) {
    std::ranges::copy(stored, out.begin());
    return absl::OkStatus();
  }
  // One frame with its size in it, no dictionary, nothing behind it: then the one-shot call into an exact buffer is safe.
  if (codec != PartCodec::kZstd || ZSTD_getFrameContentSize(stored.data(), stored.size()) != out.size() ||
      ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    return Damaged(file, at, "a part's zstd frame does not hold ", out.size(), " bytes");
  }
  const std::unique_ptr<ZSTD_DCtx, Deleter> context(ZSTD_createDCtx());
  if (context == nullptr) return NoMemory();
  const size_t width = NumberBytes(dtype);
  std::unique_ptr<std::byte[]> shuffled;
  if (width > 1) shuffled = std::make_unique_for_overwrite<std::byte[]>(out.size());
  std::byte* const to = width > 1 ? shuffled.get() : out.data();
  const size_t got = ZSTD_decompressDCtx(context.get(), to, out.size(), stored.data(), stored.size());
  if (ZSTD_isError(got) || got != out.size()) {
    return Damaged(file, at, "zstd: ", ZSTD_isError(got) ? ZSTD_getErrorName(got) : "short");
  }
  if (width == 2) Unshuffle<2>(to, out);
  if (width == 4) Unshuffle<4>(to, out);
  if (width == 8) Unshuffle<8>(to, out);
  return absl::OkStatus();
}

absl::StatusOr<BaseFile> BaseFile::Open(const FilePlace& place, const std::string& name) {
  std::string named = name;
  BaseFile base;
  for (int links = 0;; ++links) {
    if (named == place.name) {
      return UserError("the base '", named, "' is the file that would be replaced; a new file takes parts from others");
    }
    WEFT_ASSIGN_OR_RETURN(File file, File::OpenIn(place.folder, named, {.read = true}));
    WEFT_ASSIGN_OR_RETURN(const FileInfo info, file.Info());
    if (info.kind != FileKind::kRegular) return UserError("the base '", file.path(), "' is ", NameOf(info.kind));
    std::string first(std::min<size_t>(kMostPointerBytes, static_cast<size_t>(info.size)), '\0');
    WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(first))));
    if (IsPointer(first) && links == 0) {
      WEFT_ASSIGN_OR_RETURN(named, NameInPointer(first, file.path()));
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(base.reader_, CheckpointReader::Open(std::move(file), {.verify = Verify::kUse}));
    break;
  }
  WEFT_RETURN_IF_ERROR(base.reader_->LoadAll());
  base.own_ = {named, base.reader_->header().uuid};
  base.replaced_ = place.name;
  base.numbers_.resize(base.reader_->header().bases.size() + 1);
  return base;
}

// Only files in which something stands are named, so that a chain of saves ends where all has changed. nullopt: not to be named.
std::optional<uint16_t> BaseFile::Number(uint16_t file) {
  uint16_t& number = numbers_[file];
  if (number != 0) return number;
  const BaseRecord& record = file == 0 ? own_ : reader_->header().bases[file - 1u];
  if (record.name == replaced_ || records_.size() == kMaxBases) return std::nullopt;
  records_.push_back(record);
  number = static_cast<uint16_t>(records_.size());
  return number;
}

std::optional<uint32_t> BaseFile::Find(std::string_view name, const TensorRecord& tensor) {
  const auto found = reader_->Find(name);
  if (!found.ok() || !found->has_value()) return std::nullopt;
  const IndexRecord& entry = reader_->entry(**found);
  const bool good = entry.tensor.SameType(tensor) && (entry.is_whole() || entry.in_parts());
  return good ? *found : std::nullopt;
}

absl::StatusOr<std::optional<PartPlace>> BaseFile::Take(uint32_t id, uint64_t index, uint64_t sum,
                                                        std::span<const std::byte> bytes) {
  const IndexRecord& entry = reader_->entry(id);
  const uint64_t begin = index * SumBytes(entry.tensor.bytes);
  PartPlace place{.payload = entry.payload + begin,
                  .bytes = static_cast<uint32_t>(bytes.size()),
                  .codec = PartCodec::kNone,
                  .file = 0,
                  .sum = sum};
  uint64_t their_sum = 0;
  if (entry.in_parts()) {
    const absl::StatusOr<const PartsRecord*> parts = reader_->PartsOf(id);
    if (!parts.ok()) return std::nullopt;
    place = (*parts)->parts[index];
    their_sum = (*parts)->sums[index];
  } else {
    their_sum = entry.sums[index];
  }
  if (their_sum != sum) return std::nullopt;
  bytes_.resize(bytes.size());
  if (!reader_->ReadPart(id, begin, bytes_).ok() || !std::ranges::equal(bytes_, bytes)) return std::nullopt;
  const std::optional<uint16_t> number = Number(place.file);
  if (!number.has_value()) return std::nullopt;
  place.file = *number;
  return place;
}

// The frame with the places of a tensor's parts.
absl::StatusOr<const PartsRecord*> CheckpointReader::PartsOf(uint32_t id) {
  const IndexRecord& entry = this->entry(id);
  if (parts_of_ == id) return &parts_;
  parts_of_.reset();
  const std::string& path = file_.path();
  std::vector<std::byte> bytes(entry.inner);
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(entry.payload), bytes));
  if (!ChecksumsMatch(entry.pack_sum, Checksum64(bytes))) {
    return Damaged(path, entry.payload, "the checksum of the parts of tensor '", entry.tensor.name, "' does not match");
  }
  WEFT_ASSIGN_OR_RETURN(const Frame frame, ParseFrame(bytes, entry.payload, FrameKind::kParts, path));
  WEFT_ASSIGN_OR_RETURN(parts_, DecodeParts(frame, header_.bases.size(), path));
  if (parts_.tensor.id != id || !parts_.tensor.SameType(entry.tensor)) {
    return Damaged(path, entry.payload, "these are not the parts of tensor '", entry.tensor.name, "'");
  }
  for (const PartPlace& place : parts_.parts) {
    if (place.file == 0 && (place.payload > data_end() || place.bytes > data_end() - place.payload)) {
      return Damaged(path, entry.payload, "a part of tensor '", entry.tensor.name, "' lies outside the data");
    }
    if (place.file != 0) WEFT_RETURN_IF_ERROR(OpenBase(place.file - 1u));
  }
  parts_of_ = id;
  return &parts_;
}

absl::Status CheckpointReader::OpenBase(size_t number) {
  bases_.resize(header_.bases.size());
  if (bases_[number].is_open()) return absl::OkStatus();
  const BaseRecord& base = header_.bases[number];
  const auto needs = [&](absl::StatusCode code, const auto&... why) {
    return UserErrorOf(code, "'", file_.path(), "' takes parts from '", base.name, "' beside it, ", why...);
  };
  FileInfo info;
  absl::StatusOr<File> file = File::OpenToRead(file_.fs(), JoinPath(DirectoryOf(file_.path()), base.name), &info);
  if (!file.ok()) return needs(file.status().code(), "and ", file.status().message());
  std::byte raw[kPrologueBytes];
  if (info.size < static_cast<int64_t>(sizeof(raw)))
    return needs(absl::StatusCode::kDataLoss, "which is no checkpoint");
  WEFT_RETURN_IF_ERROR(file->ReadAt(0, raw));
  const absl::StatusOr<Prologue> prologue = DecodePrologue(raw, file->path());
  if (!prologue.ok()) return needs(prologue.status().code(), "and ", prologue.status().message());
  if (prologue->uuid != base.uuid) {
    return needs(absl::StatusCode::kDataLoss, "which is another file than the one that it was saved with");
  }
  bases_[number] = *std::move(file);
  return absl::OkStatus();
}

// One part of the tensor of parts_. Safe on several threads at a time.
absl::Status CheckpointReader::ReadStored(const IndexRecord& entry, uint64_t index, std::span<std::byte> out) const {
  const PartPlace& place = parts_.parts[index];
  const File& file = place.file == 0 ? file_ : bases_[place.file - 1u];
  const auto at = static_cast<int64_t>(place.payload);
  if (place.codec == PartCodec::kNone) {
    WEFT_RETURN_IF_ERROR(file.ReadAt(at, out));
  } else {
    const auto stored = std::make_unique_for_overwrite<std::byte[]>(place.bytes);
    const std::span<std::byte> bytes(stored.get(), place.bytes);
    WEFT_RETURN_IF_ERROR(file.ReadAt(at, bytes));
    if (verify_ != Verify::kOff && !ChecksumsMatch(place.sum, Checksum64(bytes))) {
      return Damaged(file.path(), place.payload, "the checksum of ", bytes.size(), " bytes of tensor '",
                     entry.tensor.name, "' does not match");
    }
    WEFT_RETURN_IF_ERROR(ExpandPart(place.codec, entry.tensor.dtype, bytes, out, file.path(), place.payload));
  }
  if (verify_ == Verify::kOff || ChecksumsMatch(parts_.sums[index], Checksum64(out))) return absl::OkStatus();
  return Damaged(file.path(), place.payload, "the checksum of ", out.size(), " bytes of tensor '", entry.tensor.name,
                 "' does not match");
}

}  // namespace weft
