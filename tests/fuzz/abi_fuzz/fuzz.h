// The ABI fuzzer: calls of every exported function with arguments drawn from pools of valid and hostile values, from several
// threads at once. generated/ says how each function's arguments are drawn, special.cc and special_functions.cc do it by hand where
// types do not tell enough, main.cc runs epochs and judges. A client of libweft.so alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/fuzz/abi_fuzz/generated/handles.h"
#include "weft.h"

namespace weft::fuzz {

class Fuzz;

// --- What the description says -----------------------------------------------------------------------------------------

struct OpInfo;
struct Function {
  const char* name;
  void (*call)(Fuzz& f);
  uint32_t errors;  // bit c: may answer with code c
  bool blocking;
  bool fallible;
  int rarely;  // chosen once in so many times
  const OpInfo* op;
};
extern const Function kFunctions[];
extern const size_t kFunctionCount;

enum class AttrKind : uint8_t { kInt, kDouble, kBool, kDtype, kEnum, kInts, kDoubles, kString };
struct SampleOperand {
  uint32_t dtype;   // 0: the type of the call
  int rank;         // -1: absent
  int dims;         // where in kIntegers
  int64_t low, high;  // of integers, high exclusive, if they differ
};
struct SampleAttr {
  int attr;
  int at, count;  // in kIntegers
  int64_t i;
  double d;
};
struct Sample {
  int operands, operand_count, attrs, attr_count;
  double low, high;
};
inline constexpr int kMostOperands = 12, kMostAttrs = 12;
struct OpInfo {
  const char* c_name;
  const char* name;
  int samples, sample_count, operand_count, attr_count;
  bool variadic;
  uint8_t types[kMostOperands];  // bits: floats 1, signed 2, unsigned 4, bool 8, complex 16
  AttrKind kinds[kMostAttrs];
  int enumerators[kMostAttrs];
  const char* attr_names[kMostAttrs];
};
extern const OpInfo kOps[];
extern const size_t kOpCount;
extern const int64_t kIntegers[];
extern const SampleOperand kSampleOperands[];
extern const SampleAttr kSampleAttrs[];
extern const Sample kSamples[];

// --- What threads share --------------------------------------------------------------------------------------------------

inline constexpr int kKinds = static_cast<int>(Kind::kCount), kPlaces = 16;
// Contexts by what they are for. Each has handles of its own, since tensors of two do not mix. The first two make no automatic
// cuts, so that recording must never wait there.
enum class Role : int { kReference, kCpu, kCuts, kEager, kDebug, kAny, kCount };
inline constexpr int kRoles = static_cast<int>(Role::kCount);

using Place = std::atomic<uintptr_t>;
// Numbers in the shape of handles, so that nobody needs a lock to pass one on.
struct World {
  Place places[kRoles][kKinds][kPlaces] = {};
  Place poisons[kPlaces] = {};  // tensors of failed scopes
  Place stale[kKinds][kPlaces] = {};
};

enum class Wait : uint8_t { kCondition, kFutex, kPoll, kSleep, kJoin, kSync, kLock, kCount };
inline constexpr int kWaits = static_cast<int>(Wait::kCount);
const char* NameOf(Wait wait);

// What was seen of one function.
struct Seen {
  int64_t calls = 0, ok = 0, nested = 0, nested_ok = 0, codes[17] = {}, waits[kWaits] = {};
  int64_t longest_ns = 0, longest_lock_ns = 0;
  std::string texts[17];  // the first of each code
};

// What another thread may read of a worker at any time.
struct Busy {
  std::atomic<int> function{-1};
  std::atomic<int64_t> since_ns{0}, call{0};
  std::atomic<int> epoch{0};
};

struct Settings {
  uint64_t seed = 1;
  int threads = 4, first_epoch = 0, hang_seconds = 60, starve = 16, cpu = 1000, fork = 5000;
  int64_t calls = 0, epoch_calls = 50000;
  double seconds = 10;
  int only = -1;  // a function's number
  std::string record, folder;
  std::vector<std::string> skip;
  bool table = false, trace = false, guard = false, test_hang = false, test_overrun = false;
};
extern Settings g_settings;
extern std::atomic<int64_t> g_failures;
// Ends that were handed over, and those that ran: equal once everything is released.
extern std::atomic<int64_t> g_owed, g_ended;
int64_t NowNs();

// --- Hooks into the C library (hooks.cc); nothing under sanitizers, which have theirs ----------------------------------------

struct CallHooks {
  int64_t waits[kWaits] = {};
  int64_t lock_ns = 0;
  bool counts = false;
  int64_t allocations_left = -1;  // 0: the next one fails
};
extern constinit thread_local CallHooks t_hooks;
bool HooksWork();
bool AllocationsFail();  // single ones, where CallHooks::allocations_left says so

// --- Stacks of all threads (watch.cc) ------------------------------------------------------------------------------------

void InstallWatch();
void DumpAllStacks();
extern constinit thread_local const Fuzz* t_fuzz;

// --- One thread's drawing --------------------------------------------------------------------------------------------------

struct Text {
  const char* data;
  size_t length;
};
enum class Words { kKeys, kFiles, kOptions, kDetails, kDevices, kMetrics, kFunctions, kPayloads, kPrograms, kProgramFiles, kAxes, kSpecs, kReadFiles };

class Fuzz {
 public:
  Fuzz(World& world, Busy& busy, std::vector<Seen>& seen) : world_(world), busy_(busy), seen_(seen) {}
  Fuzz(const Fuzz&) = delete;
  void Epoch(int epoch, int thread);
  // A call of one function, chosen by chance. Now and then it begins a body instead and makes calls inside it.
  void OneCall();
  // Calls inside this open body, which is abandoned, ended, released or handed to other threads at any time during them.
  void CallInside(weft_context* body, weft_tensor* const* parameters, size_t count);
  int64_t calls() const { return call_; }
  // Some of them in the child of a fork (fork.cc).
  void CallInAChild();

  // Numbers by chance.
  uint64_t Bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int Roll(int sides) { return static_cast<int>((Bits() >> 33) % static_cast<uint64_t>(sides)); }
  bool OneIn(int sides) { return Roll(sides) == 0; }
  // Whether the next argument is to be one that a caller should not give.
  bool Wrong() { return wrong_ != 0 && static_cast<uint32_t>(Bits()) < wrong_; }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Roll(static_cast<int>(values.size()))];
  }

  // Arguments of all kinds.
  template <typename H>
  H* Handle(bool nullable) {
    return static_cast<H*>(AnyHandle(KindOf<H>::kKind, nullable));
  }
  template <typename H>
  H* const* Handles(size_t* count) {
    return reinterpret_cast<H* const*>(AnyHandles(KindOf<H>::kKind, count));
  }
  Text DrawText(Words words);
  const void* Bytes(size_t* size);
  const weft_setting* Settings(Words words, uint64_t* count);
  int64_t Integer();
  int64_t Timeout() { return Of<int64_t>({0, 1000, 1000000, -1}); }
  double Real();
  uint32_t DTypeNumber();
  int OneOf(std::initializer_list<int> values);
  template <typename T>
  T* Options() {
    return static_cast<T*>(AnyOptions(sizeof(T)));
  }
  void* StructBytes(size_t known, size_t* size);
  // Memory of exactly this size until the call is over.
  void* Block(size_t size);

  // Results. What is here before the call must be here after an error.
  template <typename T>
  T* Out(bool nullable) {
    if ((nullable && OneIn(4)) || (Wrong() && OneIn(3))) return nullptr;
    return static_cast<T*>(Watched(sizeof(T)));
  }
  template <typename T>
  T* OutArray(size_t* capacity) {
    *capacity = Of<size_t>({0, 1, 2, 4, 8, 64, 256, 256});
    if (*capacity == 0 || (Wrong() && OneIn(3))) return nullptr;
    return static_cast<T*>(Watched(*capacity * sizeof(T)));
  }
  template <typename T>
  T* OutStruct() {
    return static_cast<T*>(AnyOutStruct(sizeof(T)));
  }
  template <typename H>
  void Keep(H** out) {
    if (out != nullptr) KeepHandle(KindOf<H>::kKind, *out);
  }

  // Operations: a sample of the description's, with what differs by chance.
  void BeginOp(const OpInfo& op);
  weft_tensor* Operand(int i);
  weft_tensor* const* Operands(int i, size_t* count);
  bool Given(int attr);
  int64_t IntAttr(int attr);
  double DoubleAttr(int attr);
  int64_t BoolAttr(int attr);
  uint32_t DTypeAttr(int attr);
  int EnumAttr(int attr);
  template <typename Count>
  void Ints(int attr, const int64_t** data, Count* count) {
    size_t n = 0;
    *data = IntsAttr(attr, &n);
    *count = n;
  }
  template <typename Count>
  void Doubles(int attr, const double** data, Count* count) {
    size_t n = 0;
    *data = DoublesAttr(attr, &n);
    *count = n;
  }
  template <typename Count>
  void TextAttr(int attr, const char** data, Count* count) {
    size_t n = 0;
    *data = WordsAttr(attr, &n);
    *count = n;
  }
  uint64_t StrayBits(int known) { return Wrong() && OneIn(4) ? uint64_t{1} << (known + Roll(64 - known)) : 0; }

  // The call itself, between what is drawn and what is kept.
  void Enter();
  bool Leave(weft_error* error);
  void LeaveVoid() { Left(true); }
  void LeaveWith(bool ok) { Left(ok); }
  template <typename H>
  void Retain(void (*retain)(H*)) {
    H* const handle = Handle<H>(true);
    Enter();
    retain(handle);
    LeaveVoid();
    // Whether it has one more reference is not told; a release too many harms nobody.
    if (poisoned_) {
      GiveBack(KindOf<H>::kKind, handle);
    } else if (handle != nullptr) {
      Put(KindOf<H>::kKind, handle);
    }
  }
  template <typename H>
  void Release(void (*release)(H*)) {
    H* const handle = Wrong() ? Handle<H>(true) : static_cast<H*>(Take(KindOf<H>::kKind));
    Enter();
    release(handle);
    LeaveVoid();
    Bury(KindOf<H>::kKind, handle);
  }

  // Pools.
  void Put(Kind kind, void* handle);
  void* Take(Kind kind);
  void* Pick(Kind kind);
  void Bury(Kind kind, void* handle);
  void KeepHandle(Kind kind, void* handle);
  void KeepPoison(weft_tensor* tensor);
  Place& At(Kind kind, int i) { return world_.places[role_][static_cast<int>(kind)][i]; }
  // The context of the call, never wrong: inside a body mostly the body's.
  weft_context* Context() {
    if (!inside_.empty() && !OneIn(4)) return AnyInside(4).body;
    return reinterpret_cast<weft_context*>(At(Kind::kContext, 0).load());
  }
  bool IsWhole(const weft_context* ctx) { return ctx == reinterpret_cast<weft_context*>(At(Kind::kContext, 0).load()); }
  // A body of the pool or one that calls are made in; null if there is none.
  weft_context* PickBody();
  void ReplaceContext();

  // A tensor of the call's context, gone after the call unless it is kept. Null if there is none.
  weft_tensor* MakeTensor(uint32_t dtype, const int64_t* dims, int rank, int64_t low, int64_t high);
  weft_tensor* MakeTensor(uint32_t dtype, std::initializer_list<int64_t> dims) {
    return MakeTensor(dtype, dims.begin(), static_cast<int>(dims.size()), 0, 0);
  }
  void Fill(void* data, uint32_t dtype, int64_t count, int64_t low, int64_t high);
  // Calls that only prepare: the error is dropped.
  bool Helped(weft_error* error);

  void Complain(const char* what, const std::string& text);
  void Reproduce(char* text, size_t size) const;
  const Function& function() const { return kFunctions[function_]; }

  // For special.cc.
  const OpInfo* op_ = nullptr;
  const Sample* sample_ = nullptr;
  bool poisoned_ = false;  // an operand may be a failed scope's
  bool strange_ = false;   // a handle may be of another context

 private:
  struct Watch {
    void* at;
    size_t size;
    std::string before;
  };
  void* AnyHandle(Kind kind, bool nullable);
  void** AnyHandles(Kind kind, size_t* count);
  void* Hostile(Kind kind);
  void* AnyOptions(size_t known);
  void* AnyOutStruct(size_t known);
  void* Watched(size_t size);
  const int64_t* IntsAttr(int attr, size_t* count);
  const double* DoublesAttr(int attr, size_t* count);
  const char* WordsAttr(int attr, size_t* count);
  const SampleAttr* Said(int attr) const;
  void Left(bool ok);
  void Trace(weft_error* error) const;
  void Judge(weft_error* error);
  void EndCall();
  void Nest();
  void* PickInside(Kind kind);

  // A body that this thread makes calls in, and what it has of it.
  struct Inside {
    weft_context* body;
    std::vector<weft_tensor*> tensors;
  };
  // The call that the ones inside a body are made in, put aside.
  class Aside;
  // The innermost, one in so many times any of them.
  Inside& AnyInside(int any) {
    return OneIn(any) ? inside_[static_cast<size_t>(Roll(static_cast<int>(inside_.size())))] : inside_.back();
  }
  Role DrawRole();

  World& world_;
  Busy& busy_;
  std::vector<Seen>& seen_;
  uint64_t state_ = 0;
  uint32_t wrong_ = 0;
  int epoch_ = 0, thread_ = 0, function_ = 0, role_ = 0;
  int64_t call_ = 0, started_ns_ = 0;
  uint32_t type_ = 0;  // of the operands that have no own
  std::vector<void*> blocks_;
  std::vector<Watch> watched_;
  std::vector<weft_tensor*> made_;
  std::vector<Inside> inside_;  // the innermost last
};

// Made at the start, taken down at the end.
void MakeWorld(World& world, uint64_t seed);
void EndWorld(World& world);
weft_context* MakeContext(Role role, uint64_t dice);
// Bytes of so many elements in host memory; 0 for what is no type.
int64_t BytesOf(uint32_t dtype, int64_t count);

}  // namespace weft::fuzz
