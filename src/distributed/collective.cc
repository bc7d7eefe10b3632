// See collective.h.
#include "src/distributed/collective.h"

#include <algorithm>

#include "src/distributed/reduce.h"

namespace weft::distributed {
namespace {

constexpr std::string_view kReductionNames[] = {"sum", "product", "min", "max", "and", "or"};

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}

bool Overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + static_cast<uintptr_t>(b_bytes) &&
         y < x + static_cast<uintptr_t>(a_bytes);
}

bool IsRank(int32_t rank, int size) { return rank >= 0 && rank < size; }

absl::Status CheckPairs(const Collective& call, int size) {
  for (size_t i = 0; i < call.pairs.size(); ++i) {
    const Pair& pair = call.pairs[i];
    if (!IsRank(pair.from, size) || !IsRank(pair.to, size)) {
      return UserError("collective_permute: the pair (", pair.from, ", ", pair.to, ") names a rank that a group of ",
                       size, " has not");
    }
    for (const Pair& other : call.pairs.first(i)) {
      if (other.from == pair.from) return UserError("collective_permute: rank ", pair.from, " sends twice");
      if (other.to == pair.to) return UserError("collective_permute: rank ", pair.to, " is sent to twice");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBuffers(const Collective& call, int rank, int size) {
  const int64_t bytes = call.count * BytesOf(call.dtype);
  const int64_t in = InputCount(call, size) * BytesOf(call.dtype), out = OutputCount(call, size) * BytesOf(call.dtype);
  if ((in > 0 && call.input == nullptr) || (out > 0 && call.output == nullptr)) {
    return UserError(NameOf(call.kind), ": ", call.input == nullptr ? "the input" : "the output", " is null");
  }
  const int64_t part = BytesOf(PartOf(call.dtype));
  for (const void* at : {call.input, static_cast<const void*>(call.output)}) {
    if (reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(part) == 0) continue;
    return UserError(NameOf(call.kind), ": ", at == call.input ? "the input" : "the output",
                     " does not lie at a multiple of ", part, " bytes");
  }
  if (!Overlap(call.input, in, call.output, out)) return absl::OkStatus();
  const bool in_place = call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kBroadcast;
  const auto* const own = static_cast<const std::byte*>(call.output) + (in_place ? 0 : rank * bytes);
  if ((in_place || call.kind == CollectiveKind::kAllGather) && call.input == own) return absl::OkStatus();
  return UserError(NameOf(call.kind), ": input and output overlap");
}

}  // namespace

std::string_view NameOf(CollectiveKind kind) { return kCollectiveNames[static_cast<size_t>(kind)]; }
std::string_view NameOf(Reduction reduction) { return kReductionNames[static_cast<size_t>(reduction)]; }

int64_t InputCount(const Collective& call, int size) {
  switch (call.kind) {
    case CollectiveKind::kBarrier: return 0;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll: return call.count * size;
    default: return call.count;
  }
}

int64_t OutputCount(const Collective& call, int size) {
  switch (call.kind) {
    case CollectiveKind::kBarrier: return 0;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll: return call.count * size;
    default: return call.count;
  }
}

absl::Status CheckCollective(const Collective& call, int rank, int size) {
  if (static_cast<size_t>(call.kind) >= std::size(kCollectiveNames)) {
    return UserError("there is no collective of number ", static_cast<int>(call.kind));
  }
  if (call.kind == CollectiveKind::kBarrier) return absl::OkStatus();
  if (!IsKnown(static_cast<uint32_t>(call.dtype))) {
    return UserError(NameOf(call.kind), ": there is no element type of number ", static_cast<uint32_t>(call.dtype));
  }
  int64_t bytes = 0;
  if (call.count < 0 || __builtin_mul_overflow(call.count, int64_t{BytesOf(call.dtype)} * size, &bytes)) {
    return UserError(NameOf(call.kind), ": ", call.count, " elements of ", weft::NameOf(call.dtype), " for each of ",
                     size, " members are not countable");
  }
  if (Reduces(call.kind)) {
    if (static_cast<size_t>(call.reduction) >= std::size(kReductionNames)) {
      return UserError(NameOf(call.kind), ": there is no reduction of number ", static_cast<int>(call.reduction));
    }
    if (!HasReduction(call.dtype, call.reduction)) {
      return UserError(NameOf(call.kind), ": ", weft::NameOf(call.dtype), " has no ", NameOf(call.reduction));
    }
  }
  if (call.kind == CollectiveKind::kBroadcast && !IsRank(call.root, size)) {
    return UserError("broadcast: the root ", call.root, " is no rank of a group of ", size);
  }
  if (call.kind == CollectiveKind::kPermute) WEFT_RETURN_IF_ERROR(CheckPairs(call, size));
  return CheckBuffers(call, rank, size);
}

bool CallRecord::Agrees(const CallRecord& other) const {
  return kind == other.kind && reduction == other.reduction && dtype == other.dtype && root == other.root &&
         count == other.count && tag == other.tag && pairs == other.pairs;
}

std::string CallRecord::Text() const {
  std::string text(NameOf(kind));
  if (Reduces(kind)) absl::StrAppend(&text, " (", NameOf(reduction), ")");
  if (kind != CollectiveKind::kBarrier) {
    absl::StrAppend(&text, " of ", count, " ", weft::NameOf(static_cast<DType>(dtype)));
  }
  if (kind == CollectiveKind::kBroadcast) absl::StrAppend(&text, " from rank ", root);
  absl::StrAppend(&text, ", tag ", tag);
  if (where[0] != '\0') absl::StrAppend(&text, ", at ", where);
  return text;
}

CallRecord RecordOf(const Collective& call) {
  CallRecord record = {};
  record.kind = call.kind;
  record.tag = call.tag;
  if (call.kind != CollectiveKind::kBarrier) {
    record.dtype = static_cast<uint32_t>(call.dtype);
    record.count = call.count;
  }
  if (Reduces(call.kind)) record.reduction = call.reduction;
  if (call.kind == CollectiveKind::kBroadcast) record.root = call.root;
  if (call.kind == CollectiveKind::kPermute) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const Pair& pair : call.pairs) {
      const uint64_t both =
          static_cast<uint64_t>(static_cast<uint32_t>(pair.from)) << 32 | static_cast<uint32_t>(pair.to);
      hash = (hash ^ both) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    record.pairs = hash;
  }
  call.where.copy(record.where, sizeof record.where - 1);
  return record;
}

}  // namespace weft::distributed
