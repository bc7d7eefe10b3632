// Writes a safetensors file. Its data begins at a multiple of 64 and the largest types come first, so that every tensor stands at
// a multiple of its element.
#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/safetensors_header.h"
#include "src/runtime/json_text.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kAlignment = 64;

// The user's words, the step, and the tied names with what they stand for.
absl::StatusOr<std::string> MetadataText(const FlatTree& flat, const SaveOptions& options) {
  std::vector<std::string> entries;
  absl::flat_hash_set<std::string_view> keys;
  const auto add = [&](std::string_view key, std::string_view value) -> absl::Status {
    if (!keys.insert(key).second) return UserError("the metadata would have '", key, "' twice");
    if (!IsCleanText(key) || !IsCleanText(value)) {
      return UserError("metadata '", key, "' is not UTF-8 without NUL, which a safetensors file wants");
    }
    entries.push_back(absl::StrCat(JsonText(key), ":", JsonText(value)));
    return absl::OkStatus();
  };
  for (const auto& [key, value] : options.user) WEFT_RETURN_IF_ERROR(add(key, value));
  if (options.step != 0 && !keys.contains("step")) WEFT_RETURN_IF_ERROR(add("step", absl::StrCat(options.step)));
  for (const auto& [name, stored] : flat.tied) WEFT_RETURN_IF_ERROR(add(name, stored));
  return entries.empty() ? "" : absl::StrCat("\"__metadata__\":{", absl::StrJoin(entries, ","), "}");
}

}  // namespace

absl::Status WriteSafetensors(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options) {
  std::vector<size_t> order(flat.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const FlatTensor &x = flat.tensors[a], &y = flat.tensors[b];
    const int bits_x = BitsOf(x.dtype), bits_y = BitsOf(y.dtype);
    return bits_x != bits_y ? bits_x > bits_y : x.name < y.name;
  });
  std::vector<uint64_t> begin(flat.tensors.size());
  WEFT_ASSIGN_OR_RETURN(std::string header, MetadataText(flat, options));
  header.insert(0, "{");
  uint64_t end = 0;
  for (const size_t i : order) {
    const FlatTensor& t = flat.tensors[i];
    begin[i] = end;
    if (__builtin_add_overflow(end, t.bytes, &end) || end > uint64_t{1} << 62) {
      return UserError("the tensors have more bytes than a file can hold");
    }
    absl::StrAppend(&header, header.size() > 1 ? "," : "", JsonText(t.name), ":{\"dtype\":\"",
                    SafetensorsTypeOf(t.dtype)->name, "\",\"shape\":[", absl::StrJoin(t.dims, ","),
                    "],\"data_offsets\":[", begin[i], ",", end, "]}");
  }
  header += '}';
  std::string start(8, '\0');
  header.resize((start.size() + header.size() + kAlignment - 1) / kAlignment * kAlignment - start.size(), ' ');
  if (header.size() > kMaxSafetensorsHeader) {
    return UserError("the names and metadata make a header of ", header.size(),
                     " bytes; a safetensors file's has at most ", kMaxSafetensorsHeader);
  }
  for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  start += header;
  WEFT_RETURN_IF_ERROR(file.WriteAt(0, std::as_bytes(std::span(start))));
  PieceReader pieces(flat, source, options);
  for (size_t i = 0; i < flat.tensors.size(); ++i) {
    auto at = static_cast<int64_t>(start.size() + begin[i]);
    WEFT_RETURN_IF_ERROR(pieces.Each(flat.tensors[i], [&](std::span<std::byte> piece) {
      const absl::Status status = file.WriteAt(at, piece);
      at += static_cast<int64_t>(piece.size());
      return status;
    }));
  }
  return absl::OkStatus();
}

}  // namespace weft
