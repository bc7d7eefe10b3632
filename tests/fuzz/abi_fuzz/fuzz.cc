// Calls, inside bodies too, pools of handles, and what is checked after every call.
#include "tests/fuzz/abi_fuzz/fuzz.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <utility>

namespace weft::fuzz {

Settings g_settings;
std::atomic<int64_t> g_failures{0}, g_owed{0}, g_ended{0};
constinit thread_local const Fuzz* t_fuzz = nullptr;

namespace {

constexpr int64_t kMostElements = 4096;  // of a tensor that stays in a pool
// Bodies in bodies, so many; one in so many calls begins one, with 1 to 32 calls in it, so that every sixth or so is nested.
constexpr size_t kDeepest = 4;
constexpr int kNestOneIn = 100;
constexpr int kMostInside = 16;  // tensors of a body that calls inside it draw from

}  // namespace

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

const char* NameOf(Wait wait) {
  static const char* const kNames[] = {"condition", "futex", "poll", "sleep", "join", "sync", "lock"};
  return kNames[static_cast<int>(wait)];
}

// --- Calls ---------------------------------------------------------------------------------------------------------------

void Fuzz::Epoch(int epoch, int thread) {
  epoch_ = epoch, thread_ = thread, call_ = 0;
  state_ = (g_settings.seed * 1000003 + static_cast<uint64_t>(epoch)) * 1000003 + static_cast<uint64_t>(thread);
  Bits();
  busy_.epoch.store(epoch, std::memory_order_relaxed);
}

Role Fuzz::DrawRole() {
  if (OneIn(g_settings.cpu)) return Role::kCpu;
  const int share = Roll(1000);
  return share < 800 ? Role::kReference : share < 880 ? Role::kCuts : share < 940 ? Role::kEager : share < 970 ? Role::kDebug : Role::kAny;
}

void Fuzz::OneCall() {
  if (inside_.size() < kDeepest && OneIn(g_settings.only >= 0 ? 4 : kNestOneIn)) Nest();
  const auto wanted = [&](const Function& f) {
    if (f.rarely > 1 && !OneIn(f.rarely)) return false;
    return std::ranges::find(g_settings.skip, f.name) == g_settings.skip.end();
  };
  do {
    // Others as well, which make what it needs.
    const bool only = g_settings.only >= 0 && OneIn(2);
    function_ = only ? g_settings.only : Roll(static_cast<int>(kFunctionCount));
  } while (function_ != g_settings.only && !wanted(kFunctions[function_]));
  ++call_;
  if (inside_.empty()) role_ = static_cast<int>(DrawRole());
  const int level = Roll(16);
  wrong_ = level < 9 ? 0 : level < 15 ? UINT32_MAX / 10 : UINT32_MAX / 2;
  poisoned_ = strange_ = false;
  op_ = nullptr;
  kFunctions[function_].call(*this);
  EndCall();
}

void Fuzz::Enter() {
  t_hooks = {};
  // Where no program is made: what makes one uses Abseil's tables, which do not survive it.
  const bool makes = kFunctions[function_].blocking || std::strcmp(kFunctions[function_].name, "weft_program_text") == 0;
  const bool starves = g_settings.starve != 0 && role_ <= static_cast<int>(Role::kCpu) && !makes;
  if (starves && OneIn(g_settings.starve)) t_hooks.allocations_left = Roll(OneIn(2) ? 4 : 30);
  started_ns_ = NowNs();
  busy_.since_ns.store(started_ns_, std::memory_order_relaxed);
  busy_.call.store(call_, std::memory_order_relaxed);
  busy_.function.store(function_, std::memory_order_release);
  t_hooks.counts = true;
}

void Fuzz::Left(bool ok) {
  t_hooks.counts = false;
  t_hooks.allocations_left = -1;
  busy_.function.store(-1, std::memory_order_release);
  Seen& seen = seen_[function_];
  ++seen.calls;
  if (ok) ++seen.ok;
  if (!inside_.empty()) {
    ++seen.nested;
    if (ok) ++seen.nested_ok;
  }
  seen.longest_ns = std::max(seen.longest_ns, NowNs() - started_ns_);
  // Elsewhere operations run as they are recorded, or what is pending becomes too much: then they wait for it.
  if (role_ > static_cast<int>(Role::kCpu) || strange_) return;
  for (int i = 0; i < kWaits; ++i) seen.waits[i] += t_hooks.waits[i];
  seen.longest_lock_ns = std::max(seen.longest_lock_ns, t_hooks.lock_ns);
}

void Fuzz::Trace(weft_error* error) const {
  std::printf("epoch %d thread %d call %" PRId64 " %s%s%s\n", epoch_, thread_, call_, kFunctions[function_].name, error == nullptr ? "" : ": ",
              error == nullptr ? "" : weft_error_message(error, nullptr));
}

bool Fuzz::Leave(weft_error* error) {
  Left(error == nullptr);
  if (g_settings.trace) Trace(error);
  if (error == nullptr) return true;
  Judge(error);
  for (const Watch& watch : watched_) {
    if (std::memcmp(watch.at, watch.before.data(), watch.size) != 0) Complain("an out-parameter was written on failure", weft_error_message(error, nullptr));
  }
  if (OneIn(8)) {
    Put(Kind::kError, error);
  } else {
    weft_error_release(error);
  }
  return false;
}

void Fuzz::Judge(weft_error* error) {
  const weft_code code = weft_error_code(error);
  size_t length = 0;
  const char* const text = weft_error_message(error, &length);
  Seen& seen = seen_[function_];
  if (length == 0 || std::strlen(text) != length) Complain("an error without a text", "");
  if (code < 1 || code > 16) return Complain("an error with an unknown code", text);
  // What a failed scope hands on is another call's error, and may be one of ours with any code.
  if (poisoned_ || std::strstr(text, "no fault of Weft") != nullptr) return;
  if (seen.codes[code]++ == 0) seen.texts[code] = text;
  const Function& f = kFunctions[function_];
  if (f.errors == 0xFFFFFFFF || std::strcmp(text, "out of memory") == 0) return;
  // An options struct is named by its type, an operation in debug mode with its operands.
  const bool named = std::strncmp(text, "weft_", 5) == 0 || std::strncmp(text, f.name + 5, std::strlen(f.name + 5)) == 0;
  if (!named && std::strstr(text, f.name) == nullptr && weft_error_payload(error, "weft.operation", WEFT_STRLEN, nullptr) == nullptr) {
    Complain("an error that names neither function nor operation", text);
  }
}

void Fuzz::EndCall() {
  for (weft_tensor* tensor : made_) {
    if (OneIn(4)) {
      Put(Kind::kTensor, tensor);
    } else {
      weft_tensor_release(tensor);
      Bury(Kind::kTensor, tensor);
    }
  }
  made_.clear();
  watched_.clear();
  for (void* block : blocks_) std::free(block);
  blocks_.clear();
  if (thread_ == 0 && g_settings.fork != 0 && OneIn(g_settings.fork)) CallInAChild();
}

// --- Calls inside bodies ---------------------------------------------------------------------------------------------------

class Fuzz::Aside {
 public:
  explicit Aside(Fuzz& f)
      : f_(f), op_(f.op_), sample_(f.sample_), poisoned_(f.poisoned_), strange_(f.strange_), wrong_(f.wrong_), type_(f.type_),
        function_(f.function_), started_ns_(f.started_ns_), hooks_(std::exchange(t_hooks, {})), blocks_(std::move(f.blocks_)),
        watched_(std::move(f.watched_)), made_(std::move(f.made_)) {
    f_.blocks_.clear(), f_.watched_.clear(), f_.made_.clear();
  }
  ~Aside() {
    f_.op_ = op_, f_.sample_ = sample_, f_.poisoned_ = poisoned_, f_.strange_ = strange_, f_.wrong_ = wrong_, f_.type_ = type_;
    f_.function_ = function_, f_.started_ns_ = started_ns_;
    f_.blocks_ = std::move(blocks_), f_.watched_ = std::move(watched_), f_.made_ = std::move(made_);
    f_.busy_.since_ns.store(NowNs(), std::memory_order_relaxed);
    f_.busy_.function.store(hooks_.counts ? function_ : -1, std::memory_order_release);
    t_hooks = hooks_;
  }
  Aside(const Aside&) = delete;

 private:
  Fuzz& f_;
  const OpInfo* op_;
  const Sample* sample_;
  bool poisoned_, strange_;
  uint32_t wrong_, type_;
  int function_;
  int64_t started_ns_;
  CallHooks hooks_;
  std::vector<void*> blocks_;
  std::vector<Watch> watched_;
  std::vector<weft_tensor*> made_;
};

void Fuzz::CallInside(weft_context* body, weft_tensor* const* parameters, size_t count) {
  const Aside aside(*this);
  inside_.push_back({body, {}});
  for (size_t i = 0; i < count; ++i) {
    weft_tensor_retain(parameters[i]);
    inside_.back().tensors.push_back(parameters[i]);
  }
  for (int left = 1 + Roll(32); left > 0; --left) {
    if (OneIn(64)) {  // others find it, too, and may end it or what is around it
      weft_context_retain(body);
      Put(Kind::kContext, body);
    }
    OneCall();
  }
  const Inside done = std::move(inside_.back());
  inside_.pop_back();
  for (weft_tensor* tensor : done.tensors) {
    if (OneIn(8)) {
      Put(Kind::kTensor, tensor);
    } else {
      weft_tensor_release(tensor);
      Bury(Kind::kTensor, tensor);
    }
  }
}

// A body of this thread's, around which another of the pool's may be, begun and let go of in any way and at any time.
void Fuzz::Nest() {
  if (inside_.empty()) role_ = static_cast<int>(DrawRole());
  weft_context* around = OneIn(4) ? PickBody() : nullptr;
  if (around == nullptr) around = Context();
  weft_tensor_info infos[2] = {};
  for (weft_tensor_info& info : infos) info.dtype = WEFT_F32, info.rank = 2, info.dims[0] = 2, info.dims[1] = 3;
  weft_context* body = nullptr;
  weft_tensor* parameters[2] = {};
  if (!Helped(weft_function_begin(around, "nest", WEFT_STRLEN, infos, 2, &body, parameters))) return;
  CallInside(body, parameters, 2);
  weft_function* made = nullptr;
  switch (Roll(4)) {
    case 0:
      if (Helped(weft_function_end(body, parameters, 2, &made))) Put(Kind::kFunction, made);
      break;
    case 1: Helped(weft_function_abandon(body)); break;
    default: break;
  }
  for (weft_tensor* parameter : parameters) {
    if (OneIn(4)) {
      Put(Kind::kTensor, parameter);
    } else {
      weft_tensor_release(parameter);
    }
  }
  if (OneIn(2)) return Put(Kind::kContext, body);
  weft_context_release(body);
  Bury(Kind::kContext, body);
}

weft_context* Fuzz::PickBody() {
  if (!inside_.empty() && OneIn(2)) return AnyInside(1).body;
  for (int tries = 0; tries < 6; ++tries) {
    const uintptr_t found = At(Kind::kContext, 1 + Roll(kPlaces - 1)).load();
    if (found != 0) return reinterpret_cast<weft_context*>(found);
  }
  return nullptr;
}

void* Fuzz::PickInside(Kind kind) {
  if (kind == Kind::kContext) return Context();
  if (kind != Kind::kTensor) return nullptr;
  const std::vector<weft_tensor*>& tensors = AnyInside(3).tensors;
  return tensors.empty() ? nullptr : tensors[static_cast<size_t>(Roll(static_cast<int>(tensors.size())))];
}

bool Fuzz::Helped(weft_error* error) {
  weft_error_release(error);
  return error == nullptr;
}

void Fuzz::Reproduce(char* text, size_t size) const {
  std::snprintf(text, size, "call %" PRId64 " of thread %d in epoch %d, %s; again with --seed %" PRIu64 " --threads %d --epoch %d", call_, thread_,
                epoch_, kFunctions[function_].name, g_settings.seed, g_settings.threads, epoch_);
}

void Fuzz::Complain(const char* what, const std::string& text) {
  if (g_failures.fetch_add(1) >= 40) return;
  char where[300];
  Reproduce(where, sizeof where);
  std::printf("FAILED: %s: \"%s\"\n  %s\n", what, text.c_str(), where);
  std::fflush(stdout);
}

// --- Handles -------------------------------------------------------------------------------------------------------------

void* Fuzz::Pick(Kind kind) {
  if (!inside_.empty() && !OneIn(4)) {
    if (void* const found = PickInside(kind)) return found;
  }
  if (kind == Kind::kContext) {
    // Now and then a body of a function's, or the context once more.
    void* const other = OneIn(24) ? reinterpret_cast<void*>(At(kind, 1 + Roll(kPlaces - 1)).load()) : nullptr;
    return other != nullptr ? other : Context();
  }
  if (kind == Kind::kTensor && OneIn(60)) {
    const uintptr_t poison = world_.poisons[Roll(kPlaces)].load();
    poisoned_ = poisoned_ || poison != 0;
    if (poison != 0) return reinterpret_cast<void*>(poison);
  }
  for (int tries = 0; tries < 6; ++tries) {
    const uintptr_t found = At(kind, Roll(kPlaces)).load();
    if (found != 0) return reinterpret_cast<void*>(found);
  }
  return nullptr;
}

void* Fuzz::Take(Kind kind) {
  for (int tries = 0; tries < 4; ++tries) {
    const uintptr_t found = At(kind, Roll(kPlaces)).exchange(0);
    if (found != 0) return reinterpret_cast<void*>(found);
  }
  return nullptr;
}

void Fuzz::Put(Kind kind, void* handle) {
  // Of contexts the first place is the one that is used; the others only have more references.
  const int i = kind == Kind::kContext ? 1 + Roll(kPlaces - 1) : Roll(kPlaces);
  void* const old = reinterpret_cast<void*>(At(kind, i).exchange(reinterpret_cast<uintptr_t>(handle)));
  if (old == nullptr) return;
  GiveBack(kind, old);
  Bury(kind, old);
}

void Fuzz::Bury(Kind kind, void* handle) {
  world_.stale[static_cast<int>(kind)][Roll(kPlaces)].store(reinterpret_cast<uintptr_t>(handle));
}

void Fuzz::KeepHandle(Kind kind, void* handle) {
  if (handle == nullptr || reinterpret_cast<uintptr_t>(handle) == 0xA5A5A5A5A5A5A5A5u) {
    return Complain("success without a handle", kFunctions[function_].name);
  }
  int64_t count = 0;
  if (kind == Kind::kTensor) {
    // What nobody can compute stays where barriers may fail of it; what only takes long does not.
    const bool known = Helped(weft_tensor_count(static_cast<weft_tensor*>(handle), &count));
    const bool hopeless = count >= int64_t{1} << 40 && (role_ == static_cast<int>(Role::kCuts) || role_ == static_cast<int>(Role::kAny));
    if (!known || (count > kMostElements && !hopeless)) return weft_tensor_release(static_cast<weft_tensor*>(handle));
  }
  if (kind == Kind::kTensor && !inside_.empty() && !OneIn(4)) {
    std::vector<weft_tensor*>& tensors = inside_.back().tensors;
    if (tensors.size() < size_t{kMostInside}) return tensors.push_back(static_cast<weft_tensor*>(handle));
    handle = std::exchange(tensors[static_cast<size_t>(Roll(kMostInside))], static_cast<weft_tensor*>(handle));
  }
  Put(kind, handle);
}

void Fuzz::KeepPoison(weft_tensor* tensor) { world_.poisons[Roll(kPlaces)].store(reinterpret_cast<uintptr_t>(tensor)); }

void* Fuzz::Hostile(Kind kind) {
  const int choice = Roll(8);
  strange_ = strange_ || choice > 1;
  switch (choice) {
    case 0:
    case 1: return nullptr;
    case 2:
    case 3: return reinterpret_cast<void*>(world_.stale[static_cast<int>(kind)][Roll(kPlaces)].load());
    case 4: {
      const auto other = static_cast<Kind>(Roll(kKinds));
      return Pick(other);
    }
    case 5: {  // of another context
      const uintptr_t found = world_.places[Roll(kRoles)][static_cast<int>(kind)][Roll(kPlaces)].load();
      return reinterpret_cast<void*>(found);
    }
    case 6: {
      void* const live = Pick(kind);
      return live == nullptr ? nullptr : reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(live) ^ (uint64_t{1} << Roll(64)));
    }
    default: return reinterpret_cast<void*>(OneIn(2) ? Bits() : Of<uint64_t>({1, 16, UINT64_MAX, 0x7FFFFFFFFFFFFFF0}));
  }
}

void* Fuzz::AnyHandle(Kind kind, bool nullable) {
  if (Wrong()) return Hostile(kind);
  if (nullable && OneIn(3)) return nullptr;
  return Pick(kind);
}

void** Fuzz::AnyHandles(Kind kind, size_t* count) {
  *count = static_cast<size_t>(1 + Roll(3));
  if (Wrong() && OneIn(2)) {
    *count = Of<size_t>({0, 1, SIZE_MAX, size_t{1} << 62});
    return OneIn(2) || *count > 1 ? nullptr : static_cast<void**>(Block(sizeof(void*)));
  }
  void** const all = static_cast<void**>(Block(*count * sizeof(void*)));
  for (size_t i = 0; i < *count; ++i) all[i] = AnyHandle(kind, false);
  return all;
}

}  // namespace weft::fuzz
