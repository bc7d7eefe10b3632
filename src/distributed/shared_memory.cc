// See shared_memory.h.
#include "src/distributed/shared_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "src/distributed/board.h"
#include "src/distributed/local_door.h"
#include "src/distributed/reduce.h"
#include "src/runtime/fork.h"

namespace weft::distributed {
namespace {

// The bytes of a member's buffer that are in use at a time. All members' pieces together stay in the last cache.
constexpr int64_t kPieceBytes = 1 << 20;
constexpr int64_t kMostBytes = 64 << 20;  // of all pieces
constexpr int64_t kLeastPieceBytes = 64 << 10;
constexpr int64_t kRankZeroFirstNs = 400'000'000;
constexpr int64_t kLookNs = 50'000'000;  // how often one who waits looks whether all live

// The first page of the memory; cells and pieces follow. New memory is zeros.
struct Head {
  Rendezvous meeting;
  alignas(64) int32_t cause_code;
  char cause[1024];
  alignas(64) std::atomic<uint64_t> processes[1];  // as ProcessOf says, one a member
};

// A process id as this process knows it, and above it a number of the namespace in which it is one.
uint64_t ProcessOf(pid_t pid) {
  struct stat space = {};
  (void)stat("/proc/self/ns/pid", &space);
  return static_cast<uint64_t>(space.st_ino) << 32 | static_cast<uint32_t>(pid);
}

constexpr int64_t Rounded(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

struct Layout {
  explicit Layout(int members)
      : piece_bytes(std::clamp(kMostBytes / (members + 1) / 4096 * 4096, kLeastPieceBytes, kPieceBytes)),
        cells(Rounded(static_cast<int64_t>(sizeof(Head)) + members * static_cast<int64_t>(sizeof(uint64_t)))),
        pieces(cells + Rounded(members * static_cast<int64_t>(sizeof(Cell)))),
        result(pieces + members * piece_bytes),
        bytes(result + piece_bytes) {}
  const int64_t piece_bytes, cells, pieces, result, bytes;
};

absl::Status SystemError(std::string_view what) {
  return UserErrorOf(absl::StatusCode::kUnavailable, "shared memory group: ", what, ": ", std::strerror(errno));
}

// The memory of a group in this process.
class Mapping {
 public:
  static absl::StatusOr<std::unique_ptr<Mapping>> Of(int fd, int members) {
    const Layout layout(members);
    void* const base = mmap(nullptr, static_cast<size_t>(layout.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return SystemError("the memory cannot be mapped");
    return std::unique_ptr<Mapping>(new Mapping(static_cast<std::byte*>(base), layout));
  }
  ~Mapping() { munmap(base_, static_cast<size_t>(layout_.bytes)); }

  Head* head() const { return reinterpret_cast<Head*>(base_); }
  Cell* cells() const { return reinterpret_cast<Cell*>(base_ + layout_.cells); }
  std::byte* piece(int rank) const { return base_ + layout_.pieces + rank * layout_.piece_bytes; }
  std::byte* result() const { return base_ + layout_.result; }
  int64_t piece_bytes() const { return layout_.piece_bytes; }

 private:
  Mapping(std::byte* base, const Layout& layout) : base_(base), layout_(layout) {}
  std::byte* const base_;
  const Layout layout_;
};

// All of it is there, and no size changes any more: nobody gets a SIGBUS.
absl::StatusOr<OwnedFd> MakeMemory(int members) {
  OwnedFd memory(memfd_create("weft group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0) return SystemError("no memory can be made");
  const Layout layout(members);
  if (const int failed = posix_fallocate(memory.get(), 0, layout.bytes); failed != 0) {
    return UserErrorOf(absl::StatusCode::kResourceExhausted, "shared memory group: ", layout.bytes, " bytes for ",
                       members, " members cannot be had: ", std::strerror(failed));
  }
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return SystemError("sealing failed");
  return memory;
}

class SharedCause final : public CauseKeeper {
 public:
  explicit SharedCause(Head* head) : head_(head) {}
  void Keep(const absl::Status& why) override {
    head_->cause_code = static_cast<int32_t>(why.code());
    why.message().copy(head_->cause, sizeof head_->cause - 1);
  }
  absl::Status Kept() const override {
    return absl::Status(static_cast<absl::StatusCode>(head_->cause_code), head_->cause);
  }

 private:
  Head* const head_;
};

// This struct holds what a member owns and its base class refers to.
struct Possessions {
  std::unique_ptr<Mapping> mapping;
  std::unique_ptr<SharedCause> cause;
};

class SharedMember final : private Possessions, public BoardMember {
 public:
  SharedMember(std::unique_ptr<Mapping> memory, const SharedMemoryOptions& options)
      : Possessions{std::move(memory), nullptr},
        BoardMember(options.rank, options.size, &mapping->head()->meeting, mapping->cells(),
                    (cause = std::make_unique<SharedCause>(mapping->head())).get()),
        peers_(static_cast<size_t>(options.size)),
        pieces_(static_cast<size_t>(options.size)),
        at_(static_cast<size_t>(options.size)) {
    for (int rank = 0; rank < size(); ++rank) pieces_[static_cast<size_t>(rank)] = mapping->piece(rank);
    const std::string label =
        absl::StrCat(options.label.substr(0, 40), options.label.empty() ? "" : ", ", "process ", getpid());
    char* const to = mapping->cells()[rank()].label;
    std::memcpy(to, label.data(), std::min(label.size(), sizeof(Cell::label) - 1));
    mapping->head()->processes[rank()].store(self_, std::memory_order_release);
    fork_.Started();
  }
  ~SharedMember() override {
    if (!fork_.Forked()) Leave();
  }
  // Rank 0 asks while it waits for others to come: OK, or what ends the group already.
  absl::Status WhoWentAway() const {
    WEFT_RETURN_IF_ERROR(Poisoned());
    const int rank = EndedRank();
    if (rank < 0) return absl::OkStatus();
    return UserErrorOf(absl::StatusCode::kUnavailable, "rank ", rank, " (process ",
                       mapping->head()->processes[rank].load(std::memory_order_acquire) & 0x7FFFFFFF,
                       ") ended while all joined");
  }

 private:
  absl::Status Usable() const override {
    if (!fork_.Forked()) return absl::OkStatus();
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "the job was joined before fork, and this child is no member of it; join in the child instead");
  }

  // Each part of the input gives as many elements as go into a piece at a time.
  int64_t StepOf(const Collective& call) const {
    const int64_t parts = InputCount(call, size()) / call.count;
    return std::max<int64_t>(1, mapping->piece_bytes() / (parts * BytesOf(call.dtype)) / 64 * 64);
  }

  void CopyIn(const Collective& call, int64_t start, int64_t n) {
    if (call.kind == CollectiveKind::kBroadcast && call.root != rank()) return;
    const int64_t parts = InputCount(call, size()) / call.count, each = BytesOf(call.dtype);
    for (int64_t part = 0; part < parts; ++part) {
      std::memcpy(mapping->piece(rank()) + part * n * each,
                  static_cast<const std::byte*>(call.input) + (part * call.count + start) * each,
                  static_cast<size_t>(n * each));
    }
  }

  // Before the others are met: nobody reads this member's piece until then.
  void Publish(const Collective& call) override { CopyIn(call, 0, std::min(call.count, StepOf(call))); }

  bool Exchange(const Collective& call, const Patience& patience) override {
    const int64_t step = StepOf(call), each = BytesOf(call.dtype);
    for (int64_t start = 0; start < call.count; start += step) {
      const int64_t n = std::min(step, call.count - start);
      if (start > 0) {
        CopyIn(call, start, n);
        Arrive();
        if (!Await(patience)) return false;
      }
      Collective piece = call;
      piece.count = n;
      piece.output = static_cast<std::byte*>(call.output) + start * each;
      const bool shared = call.kind == CollectiveKind::kAllReduce;
      if (shared) {
        AddOwnPart(piece);
      } else {
        Pull(piece, pieces_, call.count);
      }
      Arrive();
      if (!Await(patience)) return false;
      if (shared) std::memcpy(piece.output, mapping->result(), static_cast<size_t>(n * each));
    }
    return true;
  }

  // Nobody writes the next result before all have copied this one: they meet with the next piece, or in the next call, before.
  void AddOwnPart(const Collective& piece) {
    const int64_t each = BytesOf(piece.dtype), groups = (piece.count + 63) / 64;
    const int64_t begin = std::min(piece.count, groups * rank() / size() * 64);
    const int64_t end = std::min(piece.count, groups * (rank() + 1) / size() * 64);
    if (begin == end) return;
    for (size_t k = 0; k < at_.size(); ++k) at_[k] = static_cast<const std::byte*>(pieces_[k]) + begin * each;
    Reduce(piece.dtype, piece.reduction, at_, mapping->result() + begin * each, end - begin);
  }

  void Quiesce() override {}  // nobody else sees this process's buffers

  int64_t LooksEveryNs() const override { return kLookNs; }

  int EndedRank() const override {
    for (int rank = 0; rank < size(); ++rank) {
      if (rank != this->rank() && HasEnded(rank)) return rank;
    }
    return -1;
  }

  bool HasEnded(int rank) const {
    OwnedFd& peer = peers_[static_cast<size_t>(rank)];
    if (peer.get() < 0) {
      const uint64_t process = mapping->head()->processes[rank].load(std::memory_order_acquire);
      // Either it has not said yet who it is, or its number means another process here.
      if (process >> 32 != self_ >> 32) return false;
      const auto pid = static_cast<pid_t>(process & 0x7FFFFFFF);
      peer = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
      if (peer.get() < 0) return errno == ESRCH || (kill(pid, 0) != 0 && errno == ESRCH);
    }
    pollfd entry = {peer.get(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }

  const uint64_t self_ = ProcessOf(getpid());
  mutable std::vector<OwnedFd> peers_;  // pidfds, opened when first looked at
  std::vector<const void*> pieces_, at_;
  ForkGuard fork_;
};

absl::Status CheckOptions(const SharedMemoryOptions& options) {
  if (options.size < 1) return UserError("a group has at least one member, not ", options.size);
  if (options.rank < 0 || options.rank >= options.size) {
    return UserError("rank ", options.rank, " is not below the size of the group, ", options.size);
  }
  if (options.token.size() > 256) return UserError("the token has ", options.token.size(), " bytes; 256 are the most");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinSharedMemoryGroup(const SharedMemoryOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  OwnedFd memory;
  if (options.rank == 0) {
    WEFT_ASSIGN_OR_RETURN(memory, MakeMemory(options.size));
  } else {
    WEFT_ASSIGN_OR_RETURN(memory, Fetch(options));
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Mapping> mapping, Mapping::Of(memory.get(), options.size));
  if (options.rank == 0) mapping->head()->meeting.Init(static_cast<uint32_t>(options.size), /*shared=*/true);
  Head* const head = mapping->head();
  auto member = std::make_unique<SharedMember>(std::move(mapping), options);
  if (options.rank == 0) {
    // Before the member itself can say so: it may die between.
    const auto tell = [&](int rank, pid_t process) {
      uint64_t none = 0;
      if (process != 0) head->processes[rank].compare_exchange_strong(none, ProcessOf(process));
    };
    const auto look = [&] { return member->WhoWentAway(); };
    const DoorKeeper keeper = {.came = tell, .look = look};
    if (absl::Status handed = HandOut(options, memory.get(), keeper); !handed.ok()) {
      member->Abort(handed);
      return handed;
    }
  }
  // Nobody goes on alone: a member that does not come here has died since it took the memory. Rank 0 alone sees who has
  // not come at all, so it is the first to give up.
  Collective join;
  join.where = "join";
  WEFT_RETURN_IF_ERROR(member->Run(join, AndThen(options.patience, options.rank == 0 ? 0 : kRankZeroFirstNs)));
  return std::unique_ptr<Communicator>(std::move(member));
}

}  // namespace weft::distributed
