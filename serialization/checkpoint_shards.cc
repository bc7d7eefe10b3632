// See checkpoint_shards.h.
#include "serialization/checkpoint_shards.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "serialization/limits.h"
#include "serialization/retention.h"
#include "src/runtime/clock.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr int64_t kHourNs = 3'600'000'000'000;

// The end of the part that begins at `offset`. A last part that is too small for a payload of its own goes with the one before.
uint64_t EndOfPart(uint64_t offset, uint64_t bytes) {
  const uint64_t end = std::min(offset + kSumBytes, bytes);
  return IsInManifest(bytes - end) ? bytes : end;
}

void AddTo(std::vector<ShardPiece>& pieces, const ShardPiece& piece) {
  if (!pieces.empty() && pieces.back().tensor == piece.tensor &&
      pieces.back().offset + pieces.back().bytes == piece.offset) {
    pieces.back().bytes += piece.bytes;
  } else {
    pieces.push_back(piece);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::vector<ShardPiece>>> PlanShards(std::span<const ShardedTensor> tensors, int processes) {
  std::vector<std::vector<ShardPiece>> plan(static_cast<size_t>(processes));
  if (static_cast<uint64_t>(processes) > kMaxBases) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "there are ", processes, " processes; at most ", kMaxBases,
                       " write shards of one checkpoint");
  }
  for (const ShardedTensor& tensor : tensors) {
    if (SumBytes(tensor.bytes) == kSumBytes) continue;
    return UserErrorOf(absl::StatusCode::kUnimplemented, "a tensor has ", tensor.bytes, " bytes; at most ",
                       kSumBytes * kMostSums, " of a tensor are written in shards (master_only writes one file)");
  }
  std::vector<uint64_t> loads(plan.size());
  const auto each_part = [&](uint32_t i, auto&& owner_of) {
    for (uint64_t offset = 0, end; offset < tensors[i].bytes; offset = end) {
      end = EndOfPart(offset, tensors[i].bytes);
      const size_t owner = owner_of(offset);
      loads[owner] += end - offset;
      AddTo(plan[owner], {i, offset, end - offset});
    }
  };
  uint64_t total = 0;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (IsInManifest(tensors[i].bytes)) continue;
    total += tensors[i].bytes;
    const uint64_t part = tensors[i].part_bytes;
    if (part == 0) continue;
    each_part(i, [&](uint64_t offset) { return std::min<uint64_t>(offset / part, plan.size() - 1); });
  }
  // One after the other takes of the rest until another part would lead further from its share.
  size_t next = 0;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (IsInManifest(tensors[i].bytes) || tensors[i].part_bytes != 0) continue;
    each_part(i, [&](uint64_t) {
      while (next + 1 < plan.size() && loads[next] + kSumBytes / 2 > total / plan.size()) ++next;
      return next;
    });
  }
  return plan;
}

std::string ShardName(std::string_view name, int process, int processes) {
  const Uuid number = NewUuid();
  return absl::StrCat(name, ".", process, "-of-", processes, ".", ToHex(std::span(number).first(8)));
}

// --- Reports ----------------------------------------------------------------------------------------------------------------

namespace {

// Between processes of one job, which have one version; each number is eight bytes.
void PutNumber(uint64_t number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof number);
}
void PutText(std::string_view text, std::string* out) {
  PutNumber(text.size(), out);
  out->append(text);
}

struct Taking {
  std::string_view rest;
  bool ok = true;

  std::string_view Take(uint64_t count) {
    ok = ok && count <= rest.size();
    if (!ok) return {};
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }
  uint64_t Number() {
    uint64_t number = 0;
    const std::string_view bytes = Take(sizeof number);
    if (ok) std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }
  std::string Text() { return std::string(Take(Number())); }
};

}  // namespace

std::string EncodeReport(const ShardReport& report) {
  std::string bytes;
  PutNumber(static_cast<uint64_t>(report.status.code()), &bytes);
  PutText(report.status.message(), &bytes);
  PutText(report.file.name, &bytes);
  bytes.append(reinterpret_cast<const char*>(report.file.uuid.data()), report.file.uuid.size());
  PutNumber(report.places.size(), &bytes);
  for (const PartPlace& place : report.places) {
    for (const uint64_t number : {place.payload, uint64_t{place.bytes}, place.sum}) PutNumber(number, &bytes);
  }
  return bytes;
}

absl::StatusOr<ShardReport> DecodeReport(std::string_view bytes) {
  Taking from{bytes};
  ShardReport report;
  const auto code = static_cast<absl::StatusCode>(from.Number());
  const std::string message = from.Text();
  report.status = absl::Status(code, message);
  report.file.name = from.Text();
  const std::string_view uuid = from.Take(report.file.uuid.size());
  if (from.ok) std::memcpy(report.file.uuid.data(), uuid.data(), uuid.size());
  const uint64_t count = from.Number();
  for (uint64_t i = 0; i < count && from.ok; ++i) {
    PartPlace place;
    place.payload = from.Number();
    place.bytes = static_cast<uint32_t>(from.Number());
    place.sum = from.Number();
    report.places.push_back(place);
  }
  if (!from.ok || !from.rest.empty())
    return InternalError("a process's report of its shard has ", bytes.size(), " bytes");
  return report;
}

// --- Files ------------------------------------------------------------------------------------------------------------------

absl::StatusOr<ShardReport> SaveShard(const FilePlace& place, const std::string& name,
                                      std::span<const ShardPiece> pieces, TensorSource& source,
                                      const SaveOptions& options) {
  ShardReport report;
  if (pieces.empty()) return report;
  Tree tree(Tree::List());
  for (const ShardPiece& piece : pieces) {
    const int64_t dims[] = {static_cast<int64_t>(piece.bytes)};
    WEFT_RETURN_IF_ERROR(tree.Append(Tree::root(), Tree::Tensor(DType::kU8, dims)).status());
  }
  const std::string path = JoinPath(DirectoryOf(place.path), name);
  FileSystem* const fs = place.folder.fs();
  WEFT_RETURN_IF_ERROR(SaveCheckpoint(path, tree, source, options));
  const absl::Status read = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                          CheckpointReader::Open(path, {.fs = fs, .verify = Verify::kUse}));
    WEFT_RETURN_IF_ERROR(reader->LoadAll());
    report.file = {name, reader->header().uuid};
    for (uint32_t i = 0; i < pieces.size(); ++i) {
      const IndexRecord& entry = reader->entry(i);
      if (!entry.is_whole()) return InternalError("a piece of ", pieces[i].bytes, " bytes has no payload of its own");
      for (uint64_t at = 0; at < pieces[i].bytes; at += kSumBytes) {
        report.places.push_back({.payload = entry.payload + at,
                                 .bytes = static_cast<uint32_t>(std::min(kSumBytes, pieces[i].bytes - at)),
                                 .codec = PartCodec::kNone,
                                 .file = 0,
                                 .sum = entry.sums[at / kSumBytes]});
      }
    }
    return absl::OkStatus();
  }();
  if (read.ok()) return report;
  (void)fs->Unlink(place.folder.fd(), name.c_str());
  return read;
}

ShardPlaces::ShardPlaces(std::span<const ShardedTensor> tensors, std::span<const std::vector<ShardPiece>> plan,
                         std::span<const ShardReport> reports)
    : places_(tensors.size()) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!IsInManifest(tensors[i].bytes)) places_[i].resize(SumCount(tensors[i].bytes));
  }
  for (size_t process = 0; process < plan.size(); ++process) {
    if (plan[process].empty()) continue;
    files_.push_back(reports[process].file);
    size_t next = 0;
    for (const ShardPiece& piece : plan[process]) {
      for (uint64_t at = 0; at < piece.bytes; at += kSumBytes) {
        PartPlace& place = places_[piece.tensor][(piece.offset + at) / kSumBytes];
        place = reports[process].places[next++];
        place.file = static_cast<uint16_t>(files_.size());
      }
    }
  }
}

absl::Status ShardPlaces::Check(std::span<const std::vector<ShardPiece>> plan, std::span<const ShardReport> reports) {
  for (size_t process = 0; process < plan.size(); ++process) {
    uint64_t parts = 0;
    for (const ShardPiece& piece : plan[process]) parts += (piece.bytes + kSumBytes - 1) / kSumBytes;
    if (parts == reports[process].places.size()) continue;
    return InternalError("rank ", process, " reports ", reports[process].places.size(), " parts of its ", parts);
  }
  return absl::OkStatus();
}

std::vector<std::string> ShardsOf(const FilePlace& place) {
  std::vector<std::string> names;
  absl::StatusOr<File> file = File::OpenIn(place.folder, place.name, {.read = true});
  if (!file.ok()) return names;
  const std::optional<HeaderRecord> header = HeaderOf(*std::move(file));
  if (!header.has_value()) return names;
  for (const BaseRecord& base : header->bases) names.push_back(base.name);
  return names;
}

namespace {

// Tells whether ShardName makes this name of that checkpoint.
bool IsShardName(std::string_view name, std::string_view checkpoint) {
  const auto digits = [&](std::string_view letters) {
    const size_t count = std::min(name.find_first_not_of(letters), name.size());
    name.remove_prefix(count);
    return count;
  };
  return absl::ConsumePrefix(&name, checkpoint) && absl::ConsumePrefix(&name, ".") && digits("0123456789") > 0 &&
         absl::ConsumePrefix(&name, "-of-") && digits("0123456789") > 0 && absl::ConsumePrefix(&name, ".") &&
         digits("0123456789abcdef") == 16 && name.empty();
}

bool IsOld(const FilePlace& place, const std::string& name) {
  absl::StatusOr<File> file = File::OpenIn(place.folder, name, {.read = true});
  if (!file.ok()) return false;
  const absl::StatusOr<FileInfo> info = file->Info();
  return info.ok() && info->kind == FileKind::kRegular && UnixNow() - info->modified_ns > kHourNs;
}

}  // namespace

void RemoveShards(const FilePlace& place, std::span<const std::string> kept, std::span<const std::string> old) {
  std::vector<std::string> names;
  if (!place.readable || place.folder.fs()->List(place.folder.fd(), ".", &names) < 0) return;
  for (const std::string& name : names) {
    if (!IsShardName(name, place.name) || std::ranges::count(kept, name) > 0) continue;
    if (std::ranges::count(old, name) > 0 || IsOld(place, name))
      (void)place.folder.fs()->Unlink(place.folder.fd(), name.c_str());
  }
}

}  // namespace weft
