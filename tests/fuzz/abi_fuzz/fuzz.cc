// Drawing of arguments, pools of handles, and what is checked after every call.
#include "tests/fuzz/abi_fuzz/fuzz.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <limits>
#include <utility>

namespace weft::fuzz {

Settings g_settings;
std::atomic<int64_t> g_failures{0}, g_owed{0}, g_ended{0};
constinit thread_local const Fuzz* t_fuzz = nullptr;

namespace {

// Types that can be computed with, by class; see OpInfo::types.
constexpr uint32_t kFloats[] = {WEFT_F32, WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
constexpr uint32_t kSigned[] = {WEFT_I32, WEFT_I64, WEFT_I8, WEFT_I16};
constexpr uint32_t kUnsigned[] = {WEFT_U32, WEFT_U64, WEFT_U8, WEFT_U16};
constexpr uint32_t kNarrow[] = {WEFT_I2,      WEFT_I4,           WEFT_U2,       WEFT_U4,         WEFT_F8E3M4,  WEFT_F8E4M3,
                                WEFT_F8E4M3FN, WEFT_F8E4M3B11FNUZ, WEFT_F8E4M3FNUZ, WEFT_F8E5M2, WEFT_F8E5M2FNUZ, WEFT_F8E8M0FNU};
constexpr int64_t kMostElements = 4096;  // of a tensor that stays in a pool
// Bodies in bodies, so many; one in so many calls begins one, with 1 to 32 calls in it, so that every sixth or so is nested.
constexpr size_t kDeepest = 4;
constexpr int kNestOneIn = 100;
constexpr int kMostInside = 16;  // tensors of a body that calls inside it draw from

const char* const kKeyWords[] = {"w", "b", "list", "model", "model.w", "step", "list.0", "a key that is longer than short ones are", "ключ", ""};
const char* const kFileWords[] = {"a.weft", "b.weft", "c.weft", "digits.idx", "missing/d.weft", ".", "e.weft"};
const char* const kProgramFileWords[] = {"f.program", "g.program", "missing/h.program", ".", "digits.idx"};
const char* const kOptionWords[] = {"mode",      "platform",      "seed",      "isa",        "threads",         "max_pending_nodes",
                                    "cache_dir", "cache_mode",    "log",       "hash_bits",  "cache_max_bytes", "max_pending_bytes",
                                    "use_bf16",  "use_32bit_long", "no_option", "max_pending_nodex"};
const char* const kDetailWords[] = {"choices", "since", "deprecated", "most", "nothing"};
const char* const kDeviceWords[] = {"cpu:0", "reference:0", "cpu:1", "gpu:0"};
const char* const kMetricWords[] = {"cuts", "launches", "bad_releases", "live_tensors", "programs_compiled", "warnings", "no_metric", "compile_nanoseconds", "read_bytes", "aten::nonzero", "mine"};
const char* const kPayloadWords[] = {"weft.operation", "weft.position", "weft.operands", "weft.nothing"};
const char* const kProgramWords[] = {
    "func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
    "  %0 = stablehlo.multiply %a, %b : tensor<2x3xf32>\n  return %0 : tensor<2x3xf32>\n}",
    "module @m {\n  func.func public @main() -> (tensor<f32>) {\n    %c = stablehlo.constant dense<2.5> : tensor<f32>\n"
    "    return %c : tensor<f32>\n  }\n}",
    "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = stablehlo.sparkle %a : tensor<2xf32>\n"
    "  return %0 : tensor<2xf32>\n}",
    "func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> {\n  return %a : tensor<2xf32>\n}",
    "module {"};

template <size_t N>
const char* AnyOf(Fuzz& f, const char* const (&words)[N]) {
  return words[f.Roll(N)];
}

std::string Word(Fuzz& f, Words words) {
  switch (words) {
    case Words::kKeys: {
      const int n = f.Roll(40);
      return n < 20 ? "k" + std::to_string(n) : AnyOf(f, kKeyWords);
    }
    case Words::kFiles: return g_settings.folder + "/" + AnyOf(f, kFileWords);
    case Words::kProgramFiles: return g_settings.folder + "/" + AnyOf(f, kProgramFileWords);
    case Words::kOptions: return AnyOf(f, kOptionWords);
    case Words::kDetails: return AnyOf(f, kDetailWords);
    case Words::kDevices: return AnyOf(f, kDeviceWords);
    case Words::kMetrics: return AnyOf(f, kMetricWords);
    case Words::kFunctions: return kFunctions[f.Roll(static_cast<int>(kFunctionCount))].name;
    case Words::kPayloads: return AnyOf(f, kPayloadWords);
    case Words::kPrograms: return AnyOf(f, kProgramWords);
  }
  return "";
}

// Integers that no shape and no position has. What lies between is not drawn: it would be computed, for minutes.
int64_t Hostile64(Fuzz& f) {
  constexpr int64_t kTera = int64_t{1} << 40;
  return f.Of<int64_t>({-1, -2, kTera, kTera + 1, -kTera, int64_t{1} << 62, INT64_MAX, INT64_MIN, INT64_MAX - 1, 33, 17});
}

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

int64_t BytesOf(uint32_t dtype, int64_t count) {
  switch (dtype) {
    case WEFT_I2:
    case WEFT_U2: return (count + 3) / 4;
    case WEFT_I4:
    case WEFT_U4: return (count + 1) / 2;
    case WEFT_F8E3M4:
    case WEFT_F8E4M3:
    case WEFT_F8E4M3B11FNUZ:
    case WEFT_F8E4M3FN:
    case WEFT_F8E4M3FNUZ:
    case WEFT_F8E5M2:
    case WEFT_F8E5M2FNUZ:
    case WEFT_F8E8M0FNU:
    case WEFT_I8:
    case WEFT_U8:
    case WEFT_BOOL: return count;
    case WEFT_I16:
    case WEFT_U16:
    case WEFT_F16:
    case WEFT_BF16: return 2 * count;
    case WEFT_I32:
    case WEFT_U32:
    case WEFT_F32: return 4 * count;
    case WEFT_I64:
    case WEFT_U64:
    case WEFT_F64:
    case WEFT_C64: return 8 * count;
    case WEFT_C128: return 16 * count;
    default: return 0;
  }
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

// --- Plain values --------------------------------------------------------------------------------------------------------

void* Fuzz::Block(size_t size) {
  void* const block = std::calloc(1, size == 0 ? 1 : size);
  if (block == nullptr) std::abort();
  blocks_.push_back(block);
  return block;
}

void* Fuzz::Watched(size_t size) {
  void* const block = Block(size);
  std::memset(block, 0xA5, size);
  watched_.push_back({block, size, std::string(size, '\xA5')});
  return block;
}

Text Fuzz::DrawText(Words words) {
  if (Wrong()) {
    switch (Roll(6)) {
      case 0: return {nullptr, OneIn(2) ? WEFT_STRLEN : static_cast<size_t>(Roll(3))};
      case 1: {  // lengths that nobody can mean; the memory must not be read
        const auto text = static_cast<char*>(Block(1));
        return {text, Of<size_t>({SIZE_MAX - 1, size_t{1} << 63, size_t{1} << 50})};
      }
      case 2: {
        const size_t size = 1 + static_cast<size_t>(Roll(12));
        const auto text = static_cast<char*>(Block(size));
        for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(Bits());
        return {text, size};
      }
      case 3: {
        const size_t size = static_cast<size_t>(1 + Roll(70000));
        const auto text = static_cast<char*>(Block(size));
        std::memset(text, 'x', size);
        return {text, size};
      }
      case 4: return {static_cast<char*>(Block(3)), 3};  // of NULs
      default: {
        const auto text = static_cast<char*>(Block(4));
        std::memcpy(text, "\xED\xA0\x80", 3);  // half a pair
        return {text, 3};
      }
    }
  }
  const std::string word = Word(*this, words);
  const bool ends = OneIn(2);  // at a NUL, else at the length with nothing behind
  const auto text = static_cast<char*>(Block(word.size() + ends));
  std::memcpy(text, word.data(), word.size());
  return {text, ends ? WEFT_STRLEN : word.size()};
}

const void* Fuzz::Bytes(size_t* size) {
  *size = static_cast<size_t>(Roll(40));
  if (Wrong()) {
    if (OneIn(2)) *size = size_t{1} << Of({50, 62, 63});
    return nullptr;
  }
  const auto data = static_cast<unsigned char*>(Block(*size));
  for (size_t i = 0; i < *size; ++i) data[i] = static_cast<unsigned char>(Bits());
  return data;
}

const weft_setting* Fuzz::Settings(Words words, uint64_t* count) {
  *count = OneIn(2) ? 0 : static_cast<uint64_t>(Roll(3));
  if (Wrong() && OneIn(3)) {
    *count = Of<uint64_t>({1, UINT64_MAX, uint64_t{1} << 60});
    return nullptr;
  }
  if (*count == 0) return nullptr;
  const auto all = static_cast<weft_setting*>(Block(*count * sizeof(weft_setting)));
  for (uint64_t i = 0; i < *count; ++i) {
    const Text name = DrawText(words), value = DrawText(Words::kKeys);
    all[i] = {name.data, name.length, value.data, value.length};
  }
  return all;
}

int64_t Fuzz::Integer() { return Wrong() ? Hostile64(*this) : Roll(OneIn(3) ? 12 : 3); }

double Fuzz::Real() {
  if (!Wrong()) return Of({0.5, 0.1, 1.0, 0.0, -1.0, 3.0, 1e-3});
  using Limits = std::numeric_limits<double>;
  return Of({Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), 1e308, -0.0, 5e-324, -1e300, 1e19});
}

uint32_t Fuzz::DTypeNumber() {
  if (Wrong()) return Of<uint32_t>({0, WEFT_C64, 1, UINT32_MAX, WEFT_F32 ^ 0x10000, WEFT_F32 | 0x20000, 0x7FFFFFFF});
  switch (Roll(6)) {
    case 0: return kSigned[Roll(4)];
    case 1: return kUnsigned[Roll(4)];
    case 2: return OneIn(2) ? static_cast<uint32_t>(WEFT_BOOL) : kNarrow[Roll(12)];
    default: return kFloats[Roll(5)];
  }
}

int Fuzz::OneOf(std::initializer_list<int> values) {
  return Wrong() ? Of({-1, static_cast<int>(values.size()), INT32_MAX, INT32_MIN, 1000}) : Of(values);
}

void* Fuzz::AnyOptions(size_t known) {
  if (OneIn(4)) return nullptr;
  size_t says = known;
  const bool wrong = Wrong();
  if (wrong) says = Of<size_t>({0, 7, 15, 16, 17, known - 8, known - 1, known + 1, known + 8, known + 4096, 65536, 65537, SIZE_MAX, size_t{1} << 63});
  const size_t size = std::max(known, says <= 65536 ? says : 0);
  const auto bytes = static_cast<unsigned char*>(Block(size));
  if (wrong && size > known && OneIn(2)) bytes[known + static_cast<size_t>(Roll(static_cast<int>(size - known)))] = 1;
  std::memcpy(bytes, &says, sizeof says);
  if (wrong && OneIn(4)) {
    const void* const next = OneIn(2) ? bytes : reinterpret_cast<const void*>(Bits());
    std::memcpy(bytes + sizeof says, &next, sizeof next);
  }
  return bytes;
}

void* Fuzz::AnyOutStruct(size_t known) {
  if (Wrong() && OneIn(3)) return nullptr;
  size_t says = known;
  if (Wrong()) says = Of<size_t>({0, 8, 15, 16, 24, known - 8, known + 8, 4096, 65537, SIZE_MAX});
  const size_t size = std::max(known, says <= 65536 ? says : 0);
  const auto bytes = static_cast<char*>(Watched(size));
  std::memcpy(bytes, &says, sizeof says);
  watched_.back().before.assign(bytes, size);
  return bytes;
}

void* Fuzz::StructBytes(size_t known, size_t* size) {
  *size = Wrong() ? Of<size_t>({0, 1, 8, 15, 16, 17, known - 8, known + 8, 5000}) : known;
  return Wrong() && OneIn(3) ? nullptr : Block(*size);
}

// --- Operations ----------------------------------------------------------------------------------------------------------

void Fuzz::BeginOp(const OpInfo& op) {
  op_ = &op;
  sample_ = op.sample_count == 0 ? nullptr : &kSamples[op.samples + Roll(op.sample_count)];
  // T stands for one type of the first operand that is T.
  int first = 0;
  if (sample_ != nullptr) {
    while (first < sample_->operand_count && kSampleOperands[sample_->operands + first].dtype != 0) ++first;
  }
  const int types = op.operand_count == 0 ? 1 : op.types[std::min(first, op.operand_count - 1)];
  const bool any_type = OneIn(3);
  do {
    switch (any_type ? Roll(5) : 0) {
      case 0: type_ = (types & 1) != 0 ? kFloats[Roll(5)] : (types & 2) != 0 ? kSigned[Roll(4)] : (types & 8) != 0 ? static_cast<uint32_t>(WEFT_BOOL) : kUnsigned[Roll(4)]; break;
      case 1: type_ = (types & 2) != 0 ? kSigned[Roll(4)] : 0; break;
      case 2: type_ = (types & 4) != 0 ? kUnsigned[Roll(4)] : 0; break;
      case 3: type_ = (types & 8) != 0 ? static_cast<uint32_t>(WEFT_BOOL) : 0; break;
      default: type_ = (types & 16) != 0 ? static_cast<uint32_t>(OneIn(2) ? WEFT_C64 : WEFT_C128) : 0;
    }
  } while (type_ == 0);
}

weft_tensor* Fuzz::Operand(int i) {
  if (Wrong()) return static_cast<weft_tensor*>(Hostile(Kind::kTensor));
  // Results of other operations, so that graphs grow; they often do not fit.
  if (OneIn(6)) return static_cast<weft_tensor*>(Pick(Kind::kTensor));
  if (sample_ == nullptr || i >= sample_->operand_count) return nullptr;
  const SampleOperand& x = kSampleOperands[sample_->operands + i];
  if (x.rank < 0) return nullptr;
  return MakeTensor(x.dtype == 0 ? type_ : x.dtype, kIntegers + x.dims, x.rank, x.low, x.high);
}

weft_tensor* const* Fuzz::Operands(int i, size_t* count) {
  *count = sample_ == nullptr ? 1 : static_cast<size_t>(std::max(sample_->operand_count - i, 0));
  if (Wrong() && OneIn(2)) {
    *count = Of<size_t>({0, 1, SIZE_MAX, size_t{1} << 62});
    return nullptr;
  }
  if (Wrong()) ++*count;
  const auto all = static_cast<weft_tensor**>(Block(*count * sizeof(weft_tensor*)));
  for (size_t k = 0; k < *count; ++k) all[k] = Operand(i + static_cast<int>(k));
  return all;
}

const SampleAttr* Fuzz::Said(int attr) const {
  if (sample_ == nullptr) return nullptr;
  for (int k = 0; k < sample_->attr_count; ++k) {
    const SampleAttr& a = kSampleAttrs[sample_->attrs + k];
    if (a.attr == attr) return &a;
  }
  return nullptr;
}

bool Fuzz::Given(int attr) { return Said(attr) != nullptr ? !OneIn(20) : OneIn(12); }

int64_t Fuzz::IntAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  if (Wrong()) return Hostile64(*this);
  return said != nullptr ? said->i : Roll(4) - 1;
}
double Fuzz::DoubleAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  return said != nullptr && !Wrong() ? said->d : Real();
}
int64_t Fuzz::BoolAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  if (Wrong()) return Of<int64_t>({-1, 2, INT32_MAX});
  return said != nullptr ? said->i : Roll(2);
}
uint32_t Fuzz::DTypeAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  return said != nullptr && !Wrong() && !OneIn(8) ? static_cast<uint32_t>(said->i) : DTypeNumber();
}
int Fuzz::EnumAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  if (Wrong()) return Of({-1, op_->enumerators[attr], INT32_MAX, INT32_MIN});
  return said != nullptr ? static_cast<int>(said->i) : Roll(op_->enumerators[attr]);
}

const int64_t* Fuzz::IntsAttr(int attr, size_t* count) {
  const SampleAttr* const said = Said(attr);
  int64_t values[80];
  size_t n = 0;
  if (said != nullptr) {
    n = static_cast<size_t>(said->count);
    std::copy_n(kIntegers + said->at, n, values);
  } else {
    n = static_cast<size_t>(Roll(4));
    for (size_t i = 0; i < n; ++i) values[i] = Roll(4) - 1;
  }
  if (Wrong()) {
    switch (Roll(6)) {
      case 0: *count = Of<size_t>({1, 4096, 4097, SIZE_MAX, size_t{1} << 61}); return nullptr;
      case 1: *count = Of<size_t>({4097, SIZE_MAX, size_t{1} << 61}); return static_cast<int64_t*>(Block(8));
      case 2: n = n == 0 ? 0 : n - 1; break;
      case 3: values[n++] = Roll(5) - 2; break;
      case 4:
        while (n < 33) values[n++] = Roll(2);
        break;
      default:
        if (n > 0) values[Roll(static_cast<int>(n))] = Hostile64(*this);
    }
  }
  *count = n;
  if (n == 0 && OneIn(2)) return nullptr;
  const auto data = static_cast<int64_t*>(Block(n * sizeof(int64_t)));
  std::copy_n(values, n, data);
  return data;
}

void Fuzz::Fill(void* data, uint32_t dtype, int64_t count, int64_t low, int64_t high) {
  if (dtype == WEFT_C64) return Fill(data, WEFT_F32, 2 * count, low, high);
  if (dtype == WEFT_C128) return Fill(data, WEFT_F64, 2 * count, low, high);
  auto* at = static_cast<unsigned char*>(data);
  if (BytesOf(dtype, 4) < 4) {  // several elements in a byte
    for (const int64_t bytes = BytesOf(dtype, count); at < static_cast<unsigned char*>(data) + bytes;) *at++ = static_cast<unsigned char>(Roll(256));
    return;
  }
  const int64_t bytes = BytesOf(dtype, 1);
  for (int64_t i = 0; i < count; ++i, at += bytes) {
    uint64_t bits = 0;
    const double number = static_cast<double>(Roll(1000)) / 250.0 - 2.0;
    if (dtype == WEFT_F32 || dtype == WEFT_BF16) {
      const auto value = static_cast<float>(number);
      uint32_t word;
      std::memcpy(&word, &value, 4);
      bits = dtype == WEFT_F32 ? word : word >> 16;
    } else if (dtype == WEFT_F64) {
      std::memcpy(&bits, &number, 8);
    } else if (dtype == WEFT_F16) {
      bits = 0x3800u + static_cast<uint64_t>(Roll(0x800)) + (OneIn(2) ? 0x8000u : 0);  // 0.5 to 2
    } else if (dtype == WEFT_BOOL) {
      bits = static_cast<uint64_t>(Roll(2));
    } else {
      bits = static_cast<uint64_t>(low < high ? low + Roll(static_cast<int>(high - low)) : Roll(4));
    }
    std::memcpy(at, &bits, static_cast<size_t>(bytes));
  }
}

weft_tensor* Fuzz::MakeTensor(uint32_t dtype, const int64_t* dims, int rank, int64_t low, int64_t high) {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= dims[i];
  const size_t size = static_cast<size_t>(BytesOf(dtype, count));
  if (size == 0 && count != 0) return nullptr;
  void* const data = Block(size);
  Fill(data, dtype, count, low, high);
  weft_tensor* made = nullptr;
  if (!Helped(weft_tensor_from_host(Context(), nullptr, static_cast<weft_dtype>(dtype), dims, static_cast<size_t>(rank), data, size, &made))) {
    return nullptr;
  }
  made_.push_back(made);
  if ((dtype == WEFT_F32 || dtype == WEFT_F64) && OneIn(6)) Helped(weft_tensor_require_grad(made, 1));
  return made;
}

}  // namespace weft::fuzz
