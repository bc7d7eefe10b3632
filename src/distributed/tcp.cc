// See tcp.h. A member's board is a copy: cells of others are what their messages said. A member that arrives tells rank 0; when all have,
// rank 0 tells all, with what each showed. Both of rank 0's verdicts, that a phase has ended and that the group is poisoned, go through one
// lock and the same connection, so each member hears them in one order.
#include "src/distributed/tcp.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "src/distributed/board.h"
#include "src/distributed/reduce.h"
#include "src/runtime/clock.h"
#include "src/runtime/fork.h"
#include "src/runtime/mutex.h"

namespace weft::distributed {
namespace {

constexpr uint32_t kMagic = 0x57464d31;
constexpr int64_t kPieceBytes = 4 << 20;     // of a buffer, in flight at a time
constexpr int64_t kLookNs = 20'000'000;      // how often one who waits looks whether all live
constexpr int64_t kVerdictNs = 400'000'000;  // for rank 0 to say what the group is poisoned with
constexpr int64_t kFlushNs = 500'000'000;    // for the last messages of one who leaves
constexpr int64_t kLostNs = 2'000'000'000;   // for rank 0 to say who has ended, where a connection has
constexpr size_t kMostText = 4096;
constexpr int kSlowMs = 20;  // before rank 0 tells members that wait who else does

enum class Kind : uint32_t { kArrived, kCame, kOpened, kFailed, kPoisoned, kEnded };
struct Header {
  uint32_t magic;
  Kind kind;
  uint32_t value;  // a phase, a status code, a rank
  uint32_t bytes;  // that follow
};
// A member shows this when it begins a call; elements of a small one follow.
struct Shown {
  uint32_t entered;
  uint32_t small_bytes;
  CallRecord record;
};

struct Outbox {
  std::vector<char> waiting;  // bytes that the connection did not take yet
  bool lost = false;
};

// The board of a group: this process's cell, and copies of the others' from their messages.
class Cells {
 public:
  explicit Cells(std::span<const std::string> labels) : size_(labels.size()), cells_(new Cell[size_]()) {
    for (size_t r = 0; r < size_; ++r) labels[r].copy(cells_[r].label, sizeof(Cell::label) - 1);
  }

  Cell* get() { return cells_.get(); }
  void Arrived(int rank, uint32_t phase) { At(rank).arrived.store(phase + 1, std::memory_order_release); }
  // The longest text of what all show.
  size_t MostBytes() const { return size_ * (sizeof(Shown) + kSmallBytes); }

  // Appends what a member shows.
  void Show(int rank, std::string* to) const {
    const Cell& cell = cells_[static_cast<size_t>(rank)];
    const uint32_t entered = cell.entered.load(std::memory_order_acquire);
    Shown shown = {entered, 0, cell.record[entered % 2]};
    const int64_t bytes = InputCountOf(shown.record) * BytesOf(static_cast<DType>(shown.record.dtype));
    if (bytes <= kSmallBytes) shown.small_bytes = static_cast<uint32_t>(bytes);
    to->append(reinterpret_cast<const char*>(&shown), sizeof shown);
    to->append(reinterpret_cast<const char*>(cell.small[entered % 2]), shown.small_bytes);
  }
  // Reads what one member shows, at the front of a text. False if it is none.
  bool Take(int rank, uint32_t phase, std::string_view* text) {
    Shown shown;
    std::string_view small;
    if (!Next(text, &shown, &small)) return false;
    if (shown.record.kind > CollectiveKind::kBarrier || shown.record.reduction > Reduction::kOr ||
        (shown.record.dtype != 0 && !IsKnown(shown.record.dtype))) {
      return false;
    }
    shown.record.where[sizeof shown.record.where - 1] = '\0';
    Cell& cell = At(rank);
    cell.record[shown.entered % 2] = shown.record;
    std::memcpy(cell.small[shown.entered % 2], small.data(), small.size());
    cell.entered.store(shown.entered, std::memory_order_release);
    Arrived(rank, phase);
    return true;
  }
  // Passes over what one member shows.
  static bool Skip(std::string_view* text) {
    Shown shown;
    std::string_view small;
    return Next(text, &shown, &small);
  }

 private:
  static bool Next(std::string_view* text, Shown* shown, std::string_view* small) {
    if (text->size() < sizeof *shown) return false;
    std::memcpy(shown, text->data(), sizeof *shown);
    text->remove_prefix(sizeof *shown);
    if (shown->small_bytes > static_cast<uint32_t>(kSmallBytes) || shown->small_bytes > text->size()) return false;
    *small = text->substr(0, shown->small_bytes);
    text->remove_prefix(shown->small_bytes);
    return true;
  }
  Cell& At(int rank) { return cells_[static_cast<size_t>(rank)]; }
  int64_t InputCountOf(const CallRecord& record) const {
    Collective call;
    call.kind = record.kind;
    call.count = record.count;
    return InputCount(call, static_cast<int>(size_));
  }

  const size_t size_;
  const std::unique_ptr<Cell[]> cells_;
};

// Rank 0, which alone has heard of the others, says nothing. All of them come to this text by themselves.
absl::Status SilentRankZero(const Cell& zero, const Cell& own, bool ended, const absl::Status& why) {
  const std::string name = absl::StrCat("rank 0 (", zero.label, ")");
  const std::string call = own.record[own.entered.load(std::memory_order_relaxed) % 2].Text();
  if (ended) return UserErrorOf(absl::StatusCode::kUnavailable, name, " ended while the others waited in ", call);
  return UserErrorOf(why.code(), name, " did not end ", call,
                     absl::IsCancelled(why) ? " before weft_cancel ended a wait" : " before the deadline",
                     ", and does not answer for the others, which waited there");
}

// The thread that serves the connections shares this with the member.
class Hub final : public CauseKeeper {
 public:
  Hub(int rank, TcpConnections connections)
      : rank_(rank),
        size_(static_cast<int>(connections.control.size())),
        control_(std::move(connections.control)),
        cells_(std::span(connections.labels).first(static_cast<size_t>(size_))),
        ended_(new std::atomic<bool>[static_cast<size_t>(size_)]()),
        outboxes_(static_cast<size_t>(size_)),
        inboxes_(static_cast<size_t>(size_)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    meeting_.Init(static_cast<uint32_t>(size_), /*shared=*/false);
  }

  Rendezvous* meeting() { return &meeting_; }
  Cell* cells() { return cells_.get(); }
  void Serve() {
    thread_ = std::thread([this] { Loop(); });
  }
  // The last messages go out first.
  void Stop() {
    stop_.store(true, std::memory_order_release);
    Wake();
    if (thread_.joinable()) thread_.join();
  }

  // The member comes to the end of a phase.
  void Meet(uint32_t phase, bool entered) {
    if (rank_ == 0) return Complete(0, phase, entered);
    meeting_.Arrive(phase);
    std::string shown;
    if (entered) cells_.Show(rank_, &shown);
    Tell(0, Kind::kArrived, phase, shown);
  }

  int EndedRank() const {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ && ended_[static_cast<size_t>(r)].load(std::memory_order_acquire)) return r;
    }
    return -1;
  }

  // The member that poisons the group says why. Others ask rank 0, which may have heard of another reason before.
  void Keep(const absl::Status& why) override {
    if (rank_ == 0) {
      const MutexLock lock(verdicts_);
      SetCause(why);
      meeting_.Poison();
      for (int r = 1; r < size_; ++r) Tell(r, Kind::kPoisoned, static_cast<uint32_t>(why.code()), TextOf(why));
      return;
    }
    Tell(0, Kind::kFailed, static_cast<uint32_t>(why.code()), TextOf(why));
    const int64_t deadline = MonotonicNow() + kVerdictNs;
    while (Kept().ok() && !ended_[0].load(std::memory_order_acquire) && MonotonicNow() < deadline) usleep(200);
    if (Kept().ok()) SetCause(WithoutRankZero(why));
  }
  absl::Status Kept() const override {
    const MutexLock lock(mutex_);
    return cause_;
  }
  bool Unheard() const { return unheard_.load(std::memory_order_acquire); }

 private:
  static std::string TextOf(const absl::Status& status) { return std::string(status.message().substr(0, kMostText)); }
  absl::Status WithoutRankZero(const absl::Status& why) {
    unheard_.store(true, std::memory_order_release);
    return SilentRankZero(cells_.get()[0], cells_.get()[rank_], ended_[0].load(std::memory_order_acquire), why);
  }
  void SetCause(const absl::Status& why) {
    const MutexLock lock(mutex_);
    if (cause_.ok()) cause_ = why;
  }
  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  }

  // --- Sending ------------------------------------------------------------------------------------------------
  void Tell(int to, Kind kind, uint32_t value, std::string_view text) {
    const Header header = {kMagic, kind, value, static_cast<uint32_t>(text.size())};
    std::string message(reinterpret_cast<const char*>(&header), sizeof header);
    message.append(text);
    const MutexLock lock(mutex_);
    Outbox& outbox = outboxes_[static_cast<size_t>(to)];
    if (outbox.lost) return;
    outbox.waiting.insert(outbox.waiting.end(), message.begin(), message.end());
    if (!Flush(to)) Wake();
  }
  // False if something is left.
  bool Flush(int to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Outbox& outbox = outboxes_[static_cast<size_t>(to)];
    size_t done = 0;
    while (done < outbox.waiting.size()) {
      const ssize_t sent = send(control_[static_cast<size_t>(to)].get(), outbox.waiting.data() + done,
                                outbox.waiting.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        done += static_cast<size_t>(sent);
        continue;
      }
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) break;
      outbox.lost = true;
      outbox.waiting.clear();
      return true;
    }
    outbox.waiting.erase(outbox.waiting.begin(), outbox.waiting.begin() + static_cast<ptrdiff_t>(done));
    return outbox.waiting.empty();
  }

  // --- Rank 0's verdicts ----------------------------------------------------------------------------------------
  // One member has come to the end of the phase.
  void Complete(int rank, uint32_t phase, bool entered) {
    const MutexLock lock(verdicts_);
    phase_ = phase;
    shows_ = shows_ || entered;
    if (came_.empty()) began_ = MonotonicNow(), Wake();  // the thread tells them of each other if the rest is slow
    came_.push_back(rank);
    // Before the phase ends, for then this process's member goes on and shows its next call.
    std::string all;
    const bool last = came_.size() == static_cast<size_t>(size_);
    for (int r = 0; last && shows_ && r < size_; ++r) cells_.Show(r, &all);
    meeting_.Arrive(phase);
    if (!last || !meeting_.Ended(phase)) return;
    for (int r = 1; r < size_; ++r) Tell(r, Kind::kOpened, phase, all);
    shows_ = false;
    told_ = 0;
    came_.clear();
  }
  // Members that wait hear who else does, for what they say when they give up. Returns when to look again, in milliseconds; -1: when
  // something happens.
  int TellWhoCame() {
    if (rank_ != 0) return -1;
    const MutexLock lock(verdicts_);
    if (came_.empty()) return -1;
    if (MonotonicNow() - began_ < kSlowMs * 1'000'000) return kSlowMs;
    for (; told_ < came_.size(); ++told_) {
      const int32_t rank = came_[told_];
      std::string text(reinterpret_cast<const char*>(&rank), sizeof rank);
      if (shows_) cells_.Show(rank, &text);
      for (int r = 1; r < size_; ++r) {
        if (r != rank) Tell(r, Kind::kCame, phase_, text);
      }
    }
    return kSlowMs;
  }

  // --- The thread that serves the connections -------------------------------------------------------------------
  void Loop() {
    std::vector<pollfd> entries;
    int64_t stopping = 0;
    for (;;) {
      entries.clear();
      entries.push_back({wake_.get(), POLLIN, 0});
      bool waits = false;
      {
        const MutexLock lock(mutex_);
        for (int r = 0; r < size_; ++r) {
          const auto i = static_cast<size_t>(r);
          short events = ended_[i].load(std::memory_order_relaxed) ? 0 : POLLIN;
          if (!outboxes_[i].waiting.empty()) events |= POLLOUT, waits = true;
          if (control_[i].get() >= 0 && events != 0) entries.push_back({control_[i].get(), events, 0});
        }
      }
      if (stop_.load(std::memory_order_acquire)) {
        if (stopping == 0) stopping = MonotonicNow();
        if (!waits || MonotonicNow() - stopping > kFlushNs) return;
      }
      const int slow_ms = TellWhoCame();
      if (poll(entries.data(), entries.size(), stopping != 0 ? kSlowMs : slow_ms) < 0 && errno != EINTR) return;
      uint64_t count = 0;
      if ((entries[0].revents & POLLIN) != 0) (void)!read(wake_.get(), &count, sizeof count);
      for (size_t e = 1; e < entries.size(); ++e) {
        const int r = RankOf(entries[e].fd);
        if ((entries[e].revents & POLLOUT) != 0) {
          const MutexLock lock(mutex_);
          (void)Flush(r);
        }
        if ((entries[e].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !Receive(r)) Lost(r);
      }
    }
  }
  int RankOf(int fd) const {
    return static_cast<int>(std::ranges::find(control_, fd, [](const OwnedFd& own) { return own.get(); }) -
                            control_.begin());
  }

  void Lost(int rank) {
    if (ended_[static_cast<size_t>(rank)].exchange(true, std::memory_order_acq_rel)) return;
    if (rank_ != 0) return;
    for (int r = 1; r < size_; ++r) {
      if (r != rank) Tell(r, Kind::kEnded, static_cast<uint32_t>(rank), "");
    }
  }

  // All that is there. False if the connection has ended, or says what nobody says.
  bool Receive(int from) {
    std::vector<char>& inbox = inboxes_[static_cast<size_t>(from)];
    for (;;) {
      char room[16 << 10];
      const ssize_t got = recv(control_[static_cast<size_t>(from)].get(), room, sizeof room, MSG_DONTWAIT);
      if (got > 0) {
        inbox.insert(inbox.end(), room, room + got);
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        (void)HandleAll(from, inbox);  // its last words
        return false;
      } else if (errno == EAGAIN) {
        break;
      }
    }
    return HandleAll(from, inbox);
  }

  bool HandleAll(int from, std::vector<char>& inbox) {
    size_t done = 0;
    bool good = true;
    while (good && inbox.size() - done >= sizeof(Header)) {
      Header header;
      std::memcpy(&header, inbox.data() + done, sizeof header);
      good = header.magic == kMagic && header.bytes <= MostBytes();
      if (!good || inbox.size() - done - sizeof header < header.bytes) break;
      good = Handle(from, header, {inbox.data() + done + sizeof header, header.bytes});
      done += sizeof header + header.bytes;
    }
    inbox.erase(inbox.begin(), inbox.begin() + static_cast<ptrdiff_t>(done));
    return good;
  }
  uint32_t MostBytes() const { return static_cast<uint32_t>(std::max(kMostText, cells_.MostBytes())); }

  bool Handle(int from, const Header& header, std::string_view text) {
    switch (header.kind) {
      case Kind::kArrived:
        if (rank_ != 0) return false;
        if (!text.empty()) {
          if (!cells_.Take(from, header.value, &text)) return false;
          Complete(from, header.value, true);
        } else {
          cells_.Arrived(from, header.value);
          Complete(from, header.value, false);
        }
        return true;
      case Kind::kCame: {
        int32_t rank = 0;
        if (rank_ == 0 || text.size() < sizeof rank) return false;
        std::memcpy(&rank, text.data(), sizeof rank);
        text.remove_prefix(sizeof rank);
        if (rank < 0 || rank >= size_ || rank == rank_) return false;
        if (!text.empty()) return cells_.Take(rank, header.value, &text);
        cells_.Arrived(rank, header.value);
        return true;
      }
      case Kind::kOpened:
        if (rank_ == 0) return false;
        for (int r = 0; r < size_ && !text.empty(); ++r) {
          if (!(r == rank_ ? Cells::Skip(&text) : cells_.Take(r, header.value, &text))) return false;
        }
        for (int r = 0; r < size_ - 1; ++r) meeting_.Arrive(header.value);
        return true;
      case Kind::kFailed:
        if (rank_ != 0) return false;
        if (meeting_.ClaimPoison()) Keep(absl::Status(static_cast<absl::StatusCode>(header.value), text));
        return true;
      case Kind::kPoisoned:
        if (rank_ == 0) return false;
        SetCause(absl::Status(static_cast<absl::StatusCode>(header.value), text));
        if (meeting_.ClaimPoison()) meeting_.Poison();
        return true;
      case Kind::kEnded:
        if (rank_ == 0 || header.value >= static_cast<uint32_t>(size_)) return false;
        ended_[header.value].store(true, std::memory_order_release);
        return true;
    }
    return false;
  }

  const int rank_, size_;
  const std::vector<OwnedFd> control_;  // by rank
  Rendezvous meeting_;
  Cells cells_;
  const std::unique_ptr<std::atomic<bool>[]> ended_;
  Mutex verdicts_;  // of rank 0; before mutex_
  // Rank 0's, of the present phase: who has come, of whom how many the others have been told, since when, and whether a call begins with it.
  std::vector<int> came_ ABSL_GUARDED_BY(verdicts_);
  size_t told_ ABSL_GUARDED_BY(verdicts_) = 0;
  int64_t began_ ABSL_GUARDED_BY(verdicts_) = 0;
  uint32_t phase_ ABSL_GUARDED_BY(verdicts_) = 0;
  bool shows_ ABSL_GUARDED_BY(verdicts_) = false;
  mutable Mutex mutex_;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  std::vector<Outbox> outboxes_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<char>> inboxes_;  // of the thread
  const OwnedFd wake_;
  std::atomic<bool> stop_{false}, unheard_{false};
  std::thread thread_;
};

// Bytes to or from another rank.
struct Stream {
  int rank;
  std::byte* at;
  size_t bytes;
  bool out;
};

// This struct holds what a member owns and its base class refers to.
struct Possessions {
  std::unique_ptr<Hub> hub;
};

class TcpMember final : private Possessions, public BoardMember {
 public:
  TcpMember(std::unique_ptr<Hub> of, int rank, std::vector<OwnedFd> data)
      : Possessions{std::move(of)},
        BoardMember(rank, static_cast<int>(data.size()), hub->meeting(), hub->cells(), hub.get()),
        data_(std::move(data)),
        inputs_(data_.size()) {
    fork_.Started();
    hub->Serve();
  }
  ~TcpMember() override {
    if (fork_.Forked()) {
      static_cast<void>(hub.release());  // its thread stayed in the parent
      return;
    }
    Leave();
    hub->Stop();
  }

 private:
  absl::Status Usable() const override {
    if (!fork_.Forked()) return absl::OkStatus();
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "the job was joined before fork, and this child is no member of it; join in the child instead");
  }
  void Meet(uint32_t phase, bool entered) override { hub->Meet(phase, entered); }
  void Publish(const Collective&) override {}
  void Quiesce() override {}  // nobody else sees this process's buffers
  bool Unheard() const override { return hub->Unheard(); }
  int EndedRank() const override { return hub->EndedRank(); }
  int64_t LooksEveryNs() const override { return kLookNs; }

  bool Exchange(const Collective& call, const Patience& patience) override {
    const int64_t each = BytesOf(call.dtype);
    const int64_t step = std::max<int64_t>(64, kPieceBytes / each / 64 * 64);
    bool whole = true;
    if (call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kReduceScatter) {
      const int64_t piece =
          call.kind == CollectiveKind::kAllReduce ? step : std::max<int64_t>(64, step / size() / 64 * 64);
      for (int64_t start = 0; whole && start < call.count; start += piece) {
        whole = Add(call, start, std::min(piece, call.count - start), patience);
      }
    } else {
      whole = Move(call, patience);
    }
    if (!whole) return false;
    Arrive();
    return Await(patience);
  }

  // Elements [start, start + n) of a reduction. Each member adds its part of them, in the order of ranks; of an all_reduce it tells the others.
  bool Add(const Collective& call, int64_t start, int64_t n, const Patience& patience) {
    const int64_t each = BytesOf(call.dtype);
    const bool all = call.kind == CollectiveKind::kAllReduce;
    const auto* const input = static_cast<const std::byte*>(call.input);
    auto* const output = static_cast<std::byte*>(call.output);
    const int64_t groups = (n + 63) / 64;
    const auto cut = [&](int rank) { return all ? start + std::min(n, groups * rank / size() * 64) : 0; };
    const auto from = [&](int rank) { return all ? cut(rank) : rank * call.count + start; };
    const auto length = [&](int rank) { return all ? cut(rank + 1) - cut(rank) : n; };
    const auto own = static_cast<size_t>(length(rank()) * each);
    inbox_.resize(own * static_cast<size_t>(size()));
    std::vector<Stream> streams;
    for (int r = 0; r < size(); ++r) {
      std::byte* const theirs = inbox_.data() + static_cast<size_t>(r) * own;
      inputs_[static_cast<size_t>(r)] = r == rank() ? input + from(r) * each : theirs;
      if (r == rank()) continue;
      streams.push_back(
          {r, const_cast<std::byte*>(input) + from(r) * each, static_cast<size_t>(length(r) * each), true});
      streams.push_back({r, theirs, own, false});
    }
    if (!Transfer(streams, call, patience)) return false;
    std::byte* const sum = output + (all ? cut(rank()) : start) * each;
    if (own > 0) Reduce(call.dtype, call.reduction, inputs_, sum, length(rank()));
    if (!all) return true;
    streams.clear();
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      streams.push_back({r, sum, own, true});
      streams.push_back({r, output + cut(r) * each, static_cast<size_t>(length(r) * each), false});
    }
    return Transfer(streams, call, patience);
  }

  bool Move(const Collective& call, const Patience& patience) {
    const auto bytes = static_cast<size_t>(call.count * BytesOf(call.dtype));
    auto* const input = static_cast<std::byte*>(const_cast<void*>(call.input));
    auto* const output = static_cast<std::byte*>(call.output);
    const auto part = [&](std::byte* of, int rank) { return of + static_cast<size_t>(rank) * bytes; };
    const auto keep = [&](std::byte* to, const std::byte* from) {
      if (to != from) std::memcpy(to, from, bytes);
    };
    std::vector<Stream> streams;
    switch (call.kind) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kAllToAll: {
        const bool gathers = call.kind == CollectiveKind::kAllGather;
        for (int r = 0; r < size(); ++r) {
          std::byte* const mine = gathers ? input : part(input, r);
          if (r == rank()) {
            keep(part(output, r), mine);
            continue;
          }
          streams.push_back({r, mine, bytes, true});
          streams.push_back({r, part(output, r), bytes, false});
        }
        break;
      }
      case CollectiveKind::kBroadcast:
        if (rank() != call.root) {
          streams.push_back({call.root, output, bytes, false});
          break;
        }
        for (int r = 0; r < size(); ++r) {
          if (r != rank()) streams.push_back({r, input, bytes, true});
        }
        if (!Transfer(streams, call, patience)) return false;
        keep(output, input);
        return true;
      case CollectiveKind::kPermute: {
        bool fed = false;
        for (const Pair& pair : call.pairs) {
          if (pair.from == rank() && pair.to == rank()) {
            keep(output, input);
          } else if (pair.from == rank()) {
            streams.push_back({pair.to, input, bytes, true});
          } else if (pair.to == rank()) {
            streams.push_back({pair.from, output, bytes, false});
          }
          fed = fed || pair.to == rank();
        }
        if (!fed) std::memset(output, 0, bytes);
        break;
      }
      default: break;
    }
    return Transfer(streams, call, patience);
  }

  // Until all bytes are where they go. False if the group is poisoned.
  bool Transfer(std::vector<Stream>& streams, const Collective& call, const Patience& patience) {
    std::vector<pollfd> entries;
    int64_t lost_since = 0;
    for (;;) {
      if (poisoned()) return false;
      std::erase_if(streams, [](const Stream& stream) { return stream.bytes == 0; });
      if (streams.empty()) return true;
      entries.clear();
      for (const Stream& stream : streams) {
        const short events = stream.out ? POLLOUT : POLLIN;
        entries.push_back({data_[static_cast<size_t>(stream.rank)].get(), events, 0});
      }
      const int ready = lost_since != 0 ? (usleep(1000), 0) : poll(entries.data(), entries.size(), kLookNs / 1'000'000);
      for (size_t s = 0; ready > 0 && s < streams.size(); ++s) {
        if (entries[s].revents != 0 && !Push(streams[s]) && lost_since == 0) lost_since = MonotonicNow();
      }
      if (ready > 0 && lost_since == 0) continue;
      absl::Status why = WhyGiveUp(patience);
      if (why.ok() && lost_since != 0 && MonotonicNow() - lost_since > kLostNs) {
        why = UserErrorOf(absl::StatusCode::kUnavailable, "rank ", rank(), " lost a connection in ",
                          RecordOf(call).Text());
      }
      if (!why.ok()) {
        (void)Fail(why);
        return false;
      }
    }
  }
  // As many bytes as the connection takes now. False if it has ended.
  bool Push(Stream& stream) {
    const int fd = data_[static_cast<size_t>(stream.rank)].get();
    const ssize_t done = stream.out ? send(fd, stream.at, stream.bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                    : recv(fd, stream.at, stream.bytes, MSG_DONTWAIT);
    if (done > 0) {
      stream.at += done;
      stream.bytes -= static_cast<size_t>(done);
      return true;
    }
    return done < 0 && (errno == EAGAIN || errno == EINTR);
  }

  const std::vector<OwnedFd> data_;
  std::vector<const void*> inputs_;
  std::vector<std::byte> inbox_;
  ForkGuard fork_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinTcpGroup(const TcpOptions& options) {
  WEFT_ASSIGN_OR_RETURN(TcpConnections connections, ConnectByTcp(options));
  std::vector<OwnedFd> data = std::move(connections.data);
  auto hub = std::make_unique<Hub>(options.rank, std::move(connections));
  auto member = std::make_unique<TcpMember>(std::move(hub), options.rank, std::move(data));
  Collective join;
  join.where = "join";
  WEFT_RETURN_IF_ERROR(member->Run(join, options.patience));
  return std::unique_ptr<Communicator>(std::move(member));
}

}  // namespace weft::distributed
