// See board.h.
#include "src/distributed/board.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/cleanup/cleanup.h"
#include "src/distributed/reduce.h"
#include "src/runtime/clock.h"
#include "src/runtime/float_environment.h"

namespace weft::distributed {
namespace {

constexpr int64_t kCancelLookNs = 10'000'000;
constexpr int64_t kClaimLimitNs = 5'000'000'000;  // for the poisoning member to write a text down

}  // namespace

BoardMember::BoardMember(int rank, int size, Rendezvous* meeting, Cell* cells, CauseKeeper* causes)
    : rank_(rank),
      size_(size),
      meeting_(meeting),
      cells_(cells),
      causes_(causes),
      inputs_(static_cast<size_t>(size)),
      parts_(static_cast<size_t>(size)) {}

// --- Errors ---------------------------------------------------------------------------------------------------

absl::Status BoardMember::Poisoned() const {
  if (!meeting_->poisoned()) return absl::OkStatus();
  absl::Status cause = causes_->Kept();
  if (!cause.ok()) return cause;
  return UserErrorOf(absl::StatusCode::kAborted, "a member of the group failed and could not say why");
}

absl::Status BoardMember::Fail(const absl::Status& why) {
  if (meeting_->ClaimPoison()) {
    const absl::Cleanup poison = [this] { meeting_->Poison(); };  // also where there is no memory for a reason
    causes_->Keep(why.ok() ? InternalError("a group was aborted with OK") : why);
  } else {
    meeting_->AwaitPoison(kClaimLimitNs);
  }
  return Poisoned();
}

void BoardMember::FailSilently() {
  if (meeting_->ClaimPoison()) meeting_->Poison();
  meeting_->AwaitPoison(kClaimLimitNs);
  Quiesce();
}

void BoardMember::Leave() {
  try {
    if (!meeting_->poisoned()) {
      const std::string last =
          calls_ == 0 ? "it had called nothing" : absl::StrCat("its last call was ", RecordOfRank(rank_).Text());
      (void)Fail(UserErrorOf(absl::StatusCode::kUnavailable, NameOfRank(rank_), " left the group; ", last));
    }
  } catch (const std::bad_alloc&) {
    FailSilently();
  }
  Quiesce();
}

std::string BoardMember::NameOfRank(int rank) const {
  const char* const label = cells_[rank].label;
  return label[0] == '\0' ? absl::StrCat("rank ", rank) : absl::StrCat("rank ", rank, " (", label, ")");
}

std::string BoardMember::RanksText(std::span<const int> ranks) const {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, ranks.size()); ++i) {
    const bool last = i + 1 == ranks.size();
    absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", NameOfRank(ranks[i]));
  }
  if (ranks.size() > kMost) absl::StrAppend(&text, " and ", ranks.size() - kMost, " more");
  return text;
}

// Every member that has all records makes the same text. The call that most members made is what the others should have made.
absl::Status BoardMember::CheckAgreement() const {
  int usual = 0;
  size_t most = 0;
  const CallRecord& first = RecordOfRank(0);
  bool all = true;
  for (int rank = 1; rank < size_; ++rank) all = all && RecordOfRank(rank).Agrees(first);
  if (all) return absl::OkStatus();
  for (int candidate = 0; candidate < size_; ++candidate) {
    size_t alike = 0;
    for (int rank = 0; rank < size_; ++rank) alike += RecordOfRank(rank).Agrees(RecordOfRank(candidate)) ? 1 : 0;
    if (alike > most) {
      most = alike;
      usual = candidate;
    }
  }
  std::vector<int> alike;
  int other = -1;
  for (int rank = 0; rank < size_; ++rank) {
    if (RecordOfRank(rank).Agrees(RecordOfRank(usual))) {
      alike.push_back(rank);
    } else if (other < 0) {
      other = rank;
    }
  }
  return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                     "members of a group called different collectives: ", NameOfRank(other), " called ",
                     RecordOfRank(other).Text(), "; ", RanksText(alike), " called ", RecordOfRank(usual).Text());
}

// Reads what others show while they may go on: the records of the call before, and of this one of those who have entered.
absl::Status BoardMember::Late(absl::StatusCode code, std::string_view when) const {
  std::vector<int> missing, slow, waiting;
  for (int rank = 0; rank < size_; ++rank) {
    const bool entered = cells_[rank].entered.load(std::memory_order_acquire) == calls_;
    const bool arrived = cells_[rank].arrived.load(std::memory_order_acquire) == phases_ + 1;
    (arrived ? waiting : entered ? slow : missing).push_back(rank);
  }
  const std::string what = RecordOfRank(rank_).Text();
  if (missing.empty() && slow.empty()) {
    return UserErrorOf(code, "all members came to ", what, ", but not ", when);
  }
  if (missing.empty()) {
    return UserErrorOf(code, RanksText(slow), " came to ", what, " and did not end it ", when, "; ", RanksText(waiting),
                       " waited");
  }
  const CallRecord& last = cells_[missing[0]].record[(calls_ + 1) % 2];
  return UserErrorOf(code, RanksText(missing), " did not come to ", what, " ", when, "; ", RanksText(waiting),
                     " waited there. The last call of ", NameOfRank(missing[0]), ": ",
                     calls_ == 1 ? "none" : last.Text());
}

void BoardMember::TellWatch(const Watch& watch) const {
  std::vector<int> behind;
  for (int rank = 0; rank < size_; ++rank) {
    const bool arrived = cells_[rank].arrived.load(std::memory_order_acquire) == phases_ + 1;
    if (arrived && rank < rank_) return;
    if (!arrived) behind.push_back(rank);
  }
  const std::string when = absl::StrCat("within ", static_cast<double>(watch.after_ns()) / 1e9, " s");
  watch.Tell(behind, Late(absl::StatusCode::kDeadlineExceeded, when).message());
}

// --- The way of a call ----------------------------------------------------------------------------------------

bool BoardMember::IsSmall(const Collective& call) const {
  return InputCount(call, size_) * BytesOf(call.dtype) <= kSmallBytes;
}

// Others must not wait for a member that has no memory left, nor touch its buffers when its caller hears of it.
absl::Status BoardMember::Start(const Collective& call) {
  try {
    return TryStart(call);
  } catch (const std::bad_alloc&) {
    FailSilently();
    throw;
  }
}

absl::Status BoardMember::Wait(const Patience& patience) {
  try {
    return TryWait(patience);
  } catch (const std::bad_alloc&) {
    FailSilently();
    throw;
  }
}

absl::Status BoardMember::TryStart(const Collective& call) {
  if (started_) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, NameOfRank(rank_),
                       " started a collective before it waited for its last one");
  }
  WEFT_RETURN_IF_ERROR(Usable());
  if (meeting_->poisoned()) return Poisoned();
  if (absl::Status checked = CheckCollective(call, rank_, size_); !checked.ok()) {
    return Fail(WithText(checked, absl::StrCat(NameOfRank(rank_), ": ", checked.message())));
  }
  ++calls_;
  call_ = call;
  Cell& own = cells_[rank_];
  own.record[calls_ % 2] = RecordOf(call);
  if (IsSmall(call)) {
    const int64_t bytes = InputCount(call, size_) * BytesOf(call.dtype);
    if (bytes > 0) std::memcpy(own.small[calls_ % 2], call.input, static_cast<size_t>(bytes));
  } else {
    Publish(call);
  }
  own.entered.store(calls_, std::memory_order_release);
  started_ = true;
  Arrive(/*entered=*/true);
  return absl::OkStatus();
}

absl::Status BoardMember::TryWait(const Patience& patience) {
  if (!started_) {
    WEFT_RETURN_IF_ERROR(Poisoned());
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, NameOfRank(rank_),
                       " waits for a collective that it did not start");
  }
  started_ = false;
  bool whole = Await(patience);
  if (whole) {
    if (absl::Status agreed = CheckAgreement(); !agreed.ok()) {
      (void)Fail(agreed);
      whole = false;
    } else {
      const FloatScope floats;
      whole = IsSmall(call_) ? RunSmall() : Exchange(call_, patience);
    }
  }
  if (whole) return absl::OkStatus();
  meeting_->AwaitPoison(kClaimLimitNs);
  Quiesce();
  return Poisoned();
}

bool BoardMember::RunSmall() const {
  for (int rank = 0; rank < size_; ++rank) inputs_[static_cast<size_t>(rank)] = cells_[rank].small[calls_ % 2];
  Pull(call_, inputs_, call_.count);
  return true;
}

void BoardMember::Arrive(bool entered) {
  cells_[rank_].arrived.store(phases_ + 1, std::memory_order_release);
  Meet(phases_, entered);
}

// The phase may end while this member gives up; then it has ended for all, and this member goes with the others.
bool BoardMember::Await(const Patience& patience) {
  if (!meeting_->Spin(phases_)) {
    const int64_t looks_ns = patience.cancel != nullptr ? std::min(kCancelLookNs, LooksEveryNs()) : LooksEveryNs();
    int64_t sleep_ns = 0, tell_ns = INT64_MAX;
    if (patience.watch != nullptr && patience.watch->after_ns() > 0)
      tell_ns = MonotonicNow() + patience.watch->after_ns();
    while (!meeting_->Sleep(phases_, sleep_ns)) {
      if (tell_ns != INT64_MAX && MonotonicNow() >= tell_ns) {
        TellWatch(*patience.watch);
        tell_ns = INT64_MAX;
      }
      if (absl::Status why = WhyGiveUp(patience); !why.ok()) {
        (void)Fail(why);
        break;
      }
      sleep_ns = looks_ns;
      if (patience.deadline_ns != INT64_MAX)
        sleep_ns = std::clamp<int64_t>(patience.deadline_ns - MonotonicNow(), 0, looks_ns);
    }
  }
  if (!meeting_->Ended(phases_)) return false;
  ++phases_;
  return true;
}

absl::Status BoardMember::WhyGiveUp(const Patience& patience) const {
  if (patience.cancel != nullptr && patience.cancel->Ended(patience.began_ns)) {
    const absl::Status why = patience.cancel->Look(patience.began_ns);
    return Late(why.code(),
                absl::StrCat("before ", absl::IsCancelled(why) ? "weft_cancel" : "launch_deadline_ms (an option)",
                             " ended the wait of ", NameOfRank(rank_)));
  }
  if (const int ended = EndedRank(); ended >= 0) return EndedText(ended);
  if (patience.deadline_ns != INT64_MAX && MonotonicNow() >= patience.deadline_ns)
    return Late(absl::StatusCode::kDeadlineExceeded, "before the deadline");
  return absl::OkStatus();
}

absl::Status BoardMember::EndedText(int ended) const {
  std::vector<int> waiting;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != ended && cells_[rank].entered.load(std::memory_order_acquire) == calls_) waiting.push_back(rank);
  }
  const bool entered = cells_[ended].entered.load(std::memory_order_acquire) == calls_;
  const std::string last = entered ? "; it was there, too"
                           : calls_ == 1
                               ? "; it had called nothing"
                               : absl::StrCat("; its last call was ", cells_[ended].record[(calls_ + 1) % 2].Text());
  return UserErrorOf(absl::StatusCode::kUnavailable, NameOfRank(ended), " ended while ", RanksText(waiting),
                     " waited in ", RecordOfRank(rank_).Text(), last);
}

void BoardMember::Pull(const Collective& call, std::span<const void* const> inputs, int64_t stride) const {
  const auto step = static_cast<size_t>(stride * BytesOf(call.dtype));
  const auto bytes = static_cast<size_t>(call.count * BytesOf(call.dtype));
  const auto of = [&](size_t rank, size_t part) { return static_cast<const std::byte*>(inputs[rank]) + part * bytes; };
  auto* const output = static_cast<std::byte*>(call.output);
  const auto size = static_cast<size_t>(size_), self = static_cast<size_t>(rank_);
  if (bytes == 0) return;
  switch (call.kind) {
    case CollectiveKind::kBarrier: return;
    case CollectiveKind::kAllReduce: return Reduce(call.dtype, call.reduction, inputs, output, call.count);
    case CollectiveKind::kReduceScatter:
      for (size_t rank = 0; rank < size; ++rank) parts_[rank] = of(rank, self);
      return Reduce(call.dtype, call.reduction, parts_, output, call.count);
    case CollectiveKind::kAllGather:
      for (size_t rank = 0; rank < size; ++rank) {
        if (of(rank, 0) != output + rank * step) std::memcpy(output + rank * step, of(rank, 0), bytes);
      }
      return;
    case CollectiveKind::kAllToAll:
      for (size_t rank = 0; rank < size; ++rank) std::memcpy(output + rank * step, of(rank, self), bytes);
      return;
    case CollectiveKind::kBroadcast:
      if (of(static_cast<size_t>(call.root), 0) != output)
        std::memcpy(output, of(static_cast<size_t>(call.root), 0), bytes);
      return;
    case CollectiveKind::kPermute: {
      const auto pair = std::ranges::find(call.pairs, rank_, &Pair::to);
      if (pair == call.pairs.end()) {
        std::memset(output, 0, bytes);
      } else {
        std::memcpy(output, of(static_cast<size_t>(pair->from), 0), bytes);
      }
      return;
    }
  }
}

}  // namespace weft::distributed
