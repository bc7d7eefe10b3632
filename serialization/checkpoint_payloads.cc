// Payloads of a checkpoint: whole, in parts, and verified.
#include <algorithm>
#include <cstring>

#include "serialization/checkpoint_reader.h"
#include "serialization/file_map.h"
#include "src/runtime/interruptible.h"
#include "src/runtime/on_threads.h"
#include "src/runtime/status.h"

namespace weft {

absl::Status CheckBools(const TensorRecord& tensor, std::span<const std::byte> data, const std::string& file) {
  if (tensor.dtype != DType::kBool) return absl::OkStatus();
  const auto bad = std::find_if(data.begin(), data.end(), [](std::byte b) { return static_cast<uint8_t>(b) > 1; });
  if (bad == data.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("'", file, "': tensor '", tensor.name, "' of bool holds the byte ",
                                          static_cast<int>(*bad), "; only 0 and 1 are allowed"));
}

namespace {

absl::Status CheckSum(const IndexRecord& entry, uint64_t index, std::span<const std::byte> bytes,
                      const std::string& file) {
  if (ChecksumsMatch(entry.sums[index], Checksum64(bytes))) return absl::OkStatus();
  return Damaged(file, entry.payload + index * SumBytes(entry.tensor.bytes), "the checksum of ", bytes.size(),
                 " bytes of tensor '", entry.tensor.name, "' does not match");
}

constexpr uint64_t kByTwo = 32 << 20;  // bytes from which on a second thread is worth its start
constexpr int kHashers = 2;            // while one waits for a page or for the disk, the other hashes

}  // namespace

// A part under one checksum. `out` is all of it.
absl::Status CheckpointReader::ReadSummed(const IndexRecord& entry, uint64_t index, std::span<std::byte> out) {
  if (entry.in_parts()) return ReadStored(entry, index, out);
  const uint64_t at = entry.payload + index * SumBytes(entry.tensor.bytes);
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(at), out));
  return verify_ == Verify::kOff ? absl::OkStatus() : CheckSum(entry, index, out, file_.path());
}

// The pack of the entry, to kept_.
absl::Status CheckpointReader::ReadPack(const IndexRecord& entry) {
  if (kept_at_ == entry.payload) return absl::OkStatus();
  kept_at_ = 0;
  kept_.resize(entry.pack_bytes);
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(entry.payload), kept_));
  if (!ChecksumsMatch(entry.pack_sum, Checksum64(kept_))) {
    return Damaged(file_.path(), entry.payload, "the checksum of ", entry.pack_bytes, " bytes of a pack with tensor '",
                   entry.tensor.name, "' does not match");
  }
  kept_at_ = entry.payload;
  return absl::OkStatus();
}

// All of a large tensor, by two readers. What they read next is prefetched, also behind the tensor: whoever reads a file
// tensor by tensor finds the disk at work.
absl::Status CheckpointReader::ReadWhole(const IndexRecord& entry, std::span<std::byte> out) {
  const uint64_t each = SumBytes(out.size()), rest = entry.is_whole() ? data_end() - entry.payload : 0;
  return OnThreads(SumCount(out.size()), kHashers, [&](size_t i) {
    const uint64_t begin = i * each, ahead = begin + 2 * each;
    if (ahead < rest) {
      const uint64_t size = std::min<uint64_t>(2 * each, rest - ahead);
      file_.Prefetch(static_cast<int64_t>(entry.payload + ahead), static_cast<int64_t>(size));
    }
    return ReadSummed(entry, i, out.subspan(begin, std::min<uint64_t>(each, out.size() - begin)));
  });
}

absl::Status CheckpointReader::ReadTensor(uint32_t id, std::span<std::byte> out) {
  if (id >= tensor_count())
    return UserError("'", file_.path(), "' has ", tensor_count(), " tensors; there is no number ", id);
  const TensorRecord& known = tensor(id);
  if (out.size() != known.bytes) {
    return UserError("tensor '", known.name, "' has ", known.bytes, " bytes, the memory for it ", out.size());
  }
  return ReadPart(id, 0, out);
}

absl::Status CheckpointReader::ReadPart(uint32_t id, uint64_t offset, std::span<std::byte> out) {
  const IndexRecord& entry = this->entry(id);
  const uint64_t bytes = entry.tensor.bytes;
  if (offset > bytes || out.size() > bytes - offset) {
    return InternalError("bytes ", offset, " to ", offset + out.size(), " of tensor '", entry.tensor.name, "' of ",
                         bytes);
  }
  if (out.empty()) return absl::OkStatus();
  if (entry.is_inside()) {
    std::memcpy(out.data(), entry.inside.data() + offset, out.size());
    return CheckBools(entry.tensor, out, file_.path());
  }
  if (entry.in_pack()) {
    if (verify_ == Verify::kOff) {
      return file_.ReadAt(static_cast<int64_t>(entry.payload + entry.inner + offset), out);
    }
    WEFT_RETURN_IF_ERROR(ReadPack(entry));
    std::memcpy(out.data(), kept_.data() + entry.inner + offset, out.size());
    return CheckBools(entry.tensor, out, file_.path());
  }
  if (entry.in_parts()) WEFT_RETURN_IF_ERROR(PartsOf(id).status());
  if (out.size() == bytes && bytes >= kByTwo) {
    WEFT_RETURN_IF_ERROR(ReadWhole(entry, out));
    return CheckBools(entry.tensor, out, file_.path());
  }
  const uint64_t each = SumBytes(bytes);
  constexpr uint64_t kAhead = 4;  // parts of 4 MiB under way while one is copied and hashed
  const uint64_t end = offset + out.size();
  for (uint64_t at = offset; at < end;) {
    const uint64_t index = at / each, begin = index * each, size = std::min(each, bytes - begin);
    const uint64_t n = std::min(begin + size, end) - at;
    const std::span<std::byte> to = out.subspan(at - offset, n);
    if (begin + each < end && entry.is_whole()) {
      const uint64_t ahead = begin + each * (at == offset ? 1 : kAhead);
      const uint64_t until = std::min(end, begin + each * (kAhead + 1));
      if (ahead < until) {
        file_.Prefetch(static_cast<int64_t>(entry.payload + ahead), static_cast<int64_t>(until - ahead));
      }
    }
    if (n == size) {
      WEFT_RETURN_IF_ERROR(ReadSummed(entry, index, to));
    } else if (verify_ == Verify::kOff && entry.is_whole()) {
      WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(entry.payload + at), to));
    } else {
      // Parts have the place of their own in no file: the highest bit keeps them apart from places.
      const uint64_t key = entry.in_parts() ? uint64_t{1} << 63 | (entry.payload / kFrameAlign * kMostSums + index)
                                            : entry.payload + begin;
      if (kept_at_ != key) {
        kept_at_ = 0;
        kept_.resize(size);
        WEFT_RETURN_IF_ERROR(ReadSummed(entry, index, kept_));
        kept_at_ = key;
      }
      std::memcpy(to.data(), kept_.data() + (at - begin), n);
    }
    at += n;
  }
  return CheckBools(entry.tensor, out, file_.path());
}

absl::Status CheckpointReader::CheckBytes(uint32_t id, std::span<const std::byte> bytes) const {
  const IndexRecord& entry = this->entry(id);
  if (verify_ != Verify::kOff && entry.is_whole()) {
    const uint64_t each = SumBytes(bytes.size()), parts = SumCount(bytes.size());
    const auto check = [&](uint64_t i) -> absl::Status {
      const uint64_t at = i * each;
      WEFT_RETURN_IF_ERROR(Interruptible::Check());
      const auto part = bytes.subspan(at, std::min<uint64_t>(each, bytes.size() - at));
      TouchPages(part);
      return CheckSum(entry, i, part, file_.path());
    };
    if (bytes.size() >= kByTwo) {
      WEFT_RETURN_IF_ERROR(OnThreads(parts, kHashers, check));
    } else {
      for (uint64_t i = 0; i < parts; ++i) WEFT_RETURN_IF_ERROR(check(i));
    }
  }
  return CheckBools(entry.tensor, bytes, file_.path());
}

absl::Status CheckpointReader::VerifyPayloads() {
  WEFT_RETURN_IF_ERROR(LoadAll());
  const Verify before = std::exchange(verify_, Verify::kAll);
  absl::Status status;
  std::vector<std::byte> buffer;
  for (uint32_t id = 0; id < tensor_count() && status.ok(); ++id) {
    const IndexRecord& entry = this->entry(id);
    if (entry.is_inside() || entry.in_pack()) {
      buffer.resize(entry.tensor.bytes);
      status = ReadTensor(id, buffer);
      continue;
    }
    const uint64_t bytes = entry.tensor.bytes, each = SumBytes(bytes);
    for (uint64_t at = 0; at < bytes && status.ok(); at += each) {
      buffer.resize(std::min(each, bytes - at));
      status = ReadPart(id, at, buffer);
    }
  }
  verify_ = before;
  return status;
}

}  // namespace weft
