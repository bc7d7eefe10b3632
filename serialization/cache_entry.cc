// Header, message, zstd frame. Everything is checked before it is decompressed, and again after.
#include "serialization/cache_entry.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>

#include "serialization/limits.h"
#include "serialization/mac.h"
#include "serialization/message.h"
#include "serialization/schema/cache.capnp.h"
#include "src/runtime/file_kind.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "cache entries are little-endian");

constexpr uint8_t kCodecZstd = 1;
constexpr auto kLastKind = static_cast<uint8_t>(CacheEntryKind::kFunction);
// 4.1 times smaller than machine code and 400 MB/s; level 9 gains a tenth, level 19 runs at 7 MB/s.
constexpr int kLevel = 3;

// The header's fields where they stand; no padding, so it is copied whole.
struct Header {
  uint8_t magic[8];
  uint16_t version;
  uint8_t codec;
  uint8_t kind;
  uint32_t meta_words;
  uint64_t raw_bytes;
  uint64_t stored_bytes;
  uint64_t key_low, key_high;
  uint64_t key_rest[2];   // room for a 256-bit key; zero
  uint64_t body_hash[2];  // XXH3-128 of message and stored bytes
  uint64_t raw_hash;      // XXH3-64 of the decompressed bytes
  Mac mac;                // zero without a key
  uint64_t header_hash;   // XXH3-64 of the 120 bytes before
};
static_assert(sizeof(Header) == kCacheHeaderBytes && offsetof(Header, kind) == kCacheEntryKindAt);
static_assert(static_cast<uint8_t>(CacheEntryKind::kFunction) == kFunctionKind);

uint64_t HashOf(const Header& header) {
  return Checksum64(std::as_bytes(std::span(&header, 1)).first(kCacheHeaderBytes - 8));
}

// The MAC of an entry: of its header without MAC and checksum, and of all that follows.
Mac MacOfEntry(std::string_view key, const Header& header, std::span<const std::byte> body) {
  return MacOf(key, {std::as_bytes(std::span(&header, 1)).first(offsetof(Header, mac)), body});
}

uint64_t LargestOf(CacheEntryKind kind) {
  switch (kind) {
    case CacheEntryKind::kObject: return kMaxCacheObjectBytes;
    case CacheEntryKind::kPjrt: return kMaxCachePjrtBytes;
    case CacheEntryKind::kFunction: break;
  }
  return kMaxFunctionBytes;
}

template <typename... Text>
absl::Status Damaged(const Text&... text) {
  return absl::DataLossError(absl::StrCat("cache entry is damaged: ", text...));
}

struct ContextDeleter {
  void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
  void operator()(ZSTD_DCtx* d) const { ZSTD_freeDCtx(d); }
};

}  // namespace

absl::StatusOr<std::string> EncodeCacheEntry(const CacheEntry& entry, std::string_view mac_key) {
  uint64_t raw_bytes = entry.canonical.size();
  size_t guess =
      512 + entry.backend.size() + entry.compiler_version.size() + entry.target.size() + entry.options.size();
  for (const auto& [name, bytes] : entry.sections) {
    raw_bytes += bytes.size();
    guess += 64 + name.size();
  }
  if (raw_bytes > LargestOf(entry.kind)) {
    return UserError("a cache entry of ", raw_bytes, " bytes; at most ", LargestOf(entry.kind), " are allowed");
  }
  std::vector<std::byte> meta;
  WEFT_RETURN_IF_ERROR(
      BuildMessage<schema::CacheMeta>("cache metadata", guess, &meta, [&](schema::CacheMeta::Builder root) {
        root.setCanonicalLen(entry.canonical.size());
        auto sections = root.initSections(static_cast<unsigned>(entry.sections.size()));
        for (unsigned i = 0; i < entry.sections.size(); ++i) {
          sections[i].setName(ToText(entry.sections[i].first));
          sections[i].setLength(entry.sections[i].second.size());
        }
        root.setBackend(ToText(entry.backend));
        root.setCompilerVersion(ToText(entry.compiler_version));
        root.setTarget(ToText(entry.target));
        root.setOptions(ToText(entry.options));
        root.setCompileMicros(entry.compile_micros);
        root.setCreatedUnixNs(entry.created_unix_ns);
        root.setGraphOps(entry.graph_ops);
      }));
  if (meta.size() > kMaxCacheMetaBytes) {
    return UserError("cache metadata of ", meta.size(), " bytes; at most ", kMaxCacheMetaBytes, " are allowed");
  }
  std::string raw;
  raw.reserve(raw_bytes);
  raw += entry.canonical;
  for (const auto& [name, bytes] : entry.sections) raw += bytes;

  const std::unique_ptr<ZSTD_CCtx, ContextDeleter> context(ZSTD_createCCtx());
  if (context == nullptr)
    return UserErrorOf(absl::StatusCode::kResourceExhausted, "no memory to compress a cache entry");
  std::string out(kCacheHeaderBytes, '\0');
  out.append(reinterpret_cast<const char*>(meta.data()), meta.size());
  const size_t body = out.size();
  out.resize(body + ZSTD_compressBound(raw.size()));
  const size_t stored =
      ZSTD_compressCCtx(context.get(), out.data() + body, out.size() - body, raw.data(), raw.size(), kLevel);
  if (ZSTD_isError(stored)) return InternalError("zstd: ", ZSTD_getErrorName(stored));
  out.resize(body + stored);

  Header header = {};
  std::memcpy(header.magic, kCacheMagic, 8);
  header.version = kCacheVersion;
  header.codec = kCodecZstd;
  header.kind = static_cast<uint8_t>(entry.kind);
  header.meta_words = static_cast<uint32_t>(meta.size() / 8);
  header.raw_bytes = raw.size();
  header.stored_bytes = stored;
  header.key_low = entry.key.low;
  header.key_high = entry.key.high;
  const std::span<const std::byte> content = std::as_bytes(std::span(out).subspan(kCacheHeaderBytes));
  const Hash128 hash = Checksum128(content);
  header.body_hash[0] = hash.low;
  header.body_hash[1] = hash.high;
  header.raw_hash = Checksum64(std::as_bytes(std::span(raw)));
  if (!mac_key.empty()) header.mac = MacOfEntry(mac_key, header, content);
  header.header_hash = HashOf(header);
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

namespace {

// The message behind the header, and how long what it lists is.
struct Meta {
  uint64_t canonical_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> lengths;
};
// `message` may lie at any address.
absl::Status ReadMeta(std::span<const std::byte> message, CacheEntry* entry, Meta* out) {
  const std::vector<std::byte> meta(message.begin(), message.end());
  return ReadMessage<schema::CacheMeta>("cache metadata", meta, [&](schema::CacheMeta::Reader root) -> absl::Status {
    out->canonical_bytes = root.getCanonicalLen();
    for (const auto section : root.getSections())
      out->lengths.emplace_back(FromText(section.getName()), section.getLength());
    entry->backend = FromText(root.getBackend());
    entry->compiler_version = FromText(root.getCompilerVersion());
    entry->target = FromText(root.getTarget());
    entry->options = FromText(root.getOptions());
    entry->compile_micros = root.getCompileMicros();
    entry->created_unix_ns = root.getCreatedUnixNs();
    entry->graph_ops = root.getGraphOps();
    return absl::OkStatus();
  });
}

absl::Status CheckVersion(const Header& header) {
  if (header.version == kCacheVersion && header.codec == kCodecZstd && header.kind <= kLastKind)
    return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("cache entry of version ", header.version, ", codec ", header.codec,
                                               ", kind ", header.kind, "; this library reads version ", kCacheVersion));
}

absl::StatusOr<Header> HeaderOf(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) return Damaged("it has ", bytes.size(), " bytes, fewer than its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kCacheMagic, 8) != 0)
    return Damaged("it does not start with the magic of cache entries");
  if (!ChecksumsMatch(header.header_hash, HashOf(header))) return Damaged("the checksum of its header does not match");
  return header;
}

}  // namespace

absl::StatusOr<CacheEntry> DecodeCacheEntry(std::span<const std::byte> bytes, std::string_view mac_key) {
  WEFT_ASSIGN_OR_RETURN(const Header header, HeaderOf(bytes));
  WEFT_RETURN_IF_ERROR(CheckVersion(header));
  CacheEntry entry;
  entry.kind = static_cast<CacheEntryKind>(header.kind);
  const uint64_t reserved = header.key_rest[0] | header.key_rest[1];
  const uint64_t meta_bytes = uint64_t{header.meta_words} * 8;
  if (reserved != 0 || meta_bytes > kMaxCacheMetaBytes || header.raw_bytes > LargestOf(entry.kind)) {
    return Damaged("a reserved field is not zero, or a length is larger than allowed");
  }
  const std::span<const std::byte> body = bytes.subspan(sizeof(header));
  if (meta_bytes > body.size() || header.stored_bytes != body.size() - meta_bytes) {
    return Damaged("it has ", bytes.size(), " bytes, its header says ",
                   sizeof(header) + meta_bytes + header.stored_bytes);
  }
  if (!ChecksumsMatch(Hash128{header.body_hash[0], header.body_hash[1]}, Checksum128(body)))
    return Damaged("the checksum of its content does not match");
  if (!mac_key.empty() && !MacsEqual(header.mac, MacOfEntry(mac_key, header, body))) {
    return absl::PermissionDeniedError(header.mac == Mac() ? "the entry has no MAC"
                                                           : "the entry's MAC is that of another key or entry");
  }

  Meta meta;
  WEFT_RETURN_IF_ERROR(ReadMeta(body.first(meta_bytes), &entry, &meta));
  uint64_t sum = meta.canonical_bytes;
  for (const auto& [name, length] : meta.lengths) {
    if (__builtin_add_overflow(sum, length, &sum)) return Damaged("the lengths of its sections overflow");
  }
  if (sum != header.raw_bytes)
    return Damaged("its sections have ", sum, " bytes together, its header says ", header.raw_bytes);

  // One frame with its size in it, no dictionary, nothing behind it: then the one-shot call into an exact buffer is safe.
  const std::span<const std::byte> stored = body.subspan(meta_bytes);
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != header.raw_bytes ||
      ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    return Damaged("its zstd frame does not hold ", header.raw_bytes, " bytes");
  }
  const std::unique_ptr<ZSTD_DCtx, ContextDeleter> context(ZSTD_createDCtx());
  std::unique_ptr<char[]> raw(new (std::nothrow) char[header.raw_bytes + 1]);
  if (context == nullptr || raw == nullptr) {
    return UserErrorOf(absl::StatusCode::kResourceExhausted, "no memory for a cache entry of ", header.raw_bytes,
                       " bytes");
  }
  const size_t got = ZSTD_decompressDCtx(context.get(), raw.get(), header.raw_bytes, stored.data(), stored.size());
  if (ZSTD_isError(got) || got != header.raw_bytes)
    return Damaged("zstd: ", ZSTD_isError(got) ? ZSTD_getErrorName(got) : "short");
  const std::string_view all(raw.get(), header.raw_bytes);
  if (!ChecksumsMatch(header.raw_hash, Checksum64(std::as_bytes(std::span(all)))))
    return Damaged("the checksum of its decompressed bytes does not match");

  entry.key = {header.key_low, header.key_high};
  entry.canonical = all.substr(0, meta.canonical_bytes);
  size_t at = meta.canonical_bytes;
  for (auto& [name, length] : meta.lengths) {
    entry.sections.emplace_back(std::move(name), all.substr(at, length));
    at += length;
  }
  return entry;
}

absl::StatusOr<CacheEntryAbout> AboutEntry(std::span<const std::byte> bytes, bool whole, std::string_view mac_key) {
  WEFT_ASSIGN_OR_RETURN(const Header header, HeaderOf(bytes));
  CacheEntry entry;
  if (whole) {
    WEFT_ASSIGN_OR_RETURN(entry, DecodeCacheEntry(bytes, mac_key));
  } else {
    WEFT_RETURN_IF_ERROR(CheckVersion(header));
    const uint64_t meta_bytes = uint64_t{header.meta_words} * 8;
    if (meta_bytes > bytes.size() - sizeof(header)) return Damaged("it ends inside its message");
    Meta meta;
    WEFT_RETURN_IF_ERROR(ReadMeta(bytes.subspan(sizeof(header), meta_bytes), &entry, &meta));
  }
  return CacheEntryAbout{.key = {header.key_low, header.key_high},
                         .backend = std::move(entry.backend),
                         .target = std::move(entry.target),
                         .options = std::move(entry.options),
                         .compile_micros = entry.compile_micros,
                         .program_bytes = header.raw_bytes,
                         .created_unix_ns = entry.created_unix_ns,
                         .graph_ops = entry.graph_ops};
}

std::string KeyName(const Hash128& key) {
  return absl::StrCat(absl::Hex(key.high, absl::kZeroPad16), absl::Hex(key.low, absl::kZeroPad16));
}

}  // namespace weft
