// Runs epochs: threads call at random in one world, which is then taken down and must leave nothing. Then says what was seen,
// compares it with the description, and fails where they differ.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "tests/fuzz/abi_fuzz/fuzz.h"
#include "tests/fuzz/abi_fuzz/guard.h"

namespace weft::fuzz {
namespace {

// What never succeeds here, and why.
struct Never {
  const char* function;
  const char* reason;
};
constexpr Never kNever[] = {
    {"weft_error_payload", "few errors have payloads, and few keys are right: a chance of one in hundreds"},
};

std::atomic<int64_t> g_calls{0};
std::atomic<bool> g_over{false};

const char* const kCodes[] = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
                              "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
                              "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};

void Fail(const std::string& text) {
  g_failures.fetch_add(1);
  std::printf("FAILED: %s\n", text.c_str());
}

int64_t Metric(weft_context* ctx, const char* name) {
  int64_t value = -1;
  weft_error_release(weft_metric_get(ctx, name, WEFT_STRLEN, &value));
  return value;
}

}  // namespace

namespace {

// Files that readers find something in; calls may have put others in their place.
void SaveFiles(weft_context* ctx) {
  // 5 elements of u8.
  const unsigned char idx[] = {0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3, 4, 5};
  FILE* const file = std::fopen("digits.idx", "wb");
  if (file == nullptr || std::fwrite(idx, 1, sizeof idx, file) != sizeof idx) std::exit(1);
  std::fclose(file);
  // A tensor "w" of four bytes, as others write it.
  const char others[] = "\x38\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   abcd";
  FILE* const other = std::fopen("w.safetensors", "wb");
  if (other == nullptr || std::fwrite(others, 1, sizeof others - 1, other) != sizeof others - 1) std::exit(1);
  std::fclose(other);
  static const float values[] = {1, 2, 3, 4, 5, 6};
  static const int64_t dims[] = {2, 3};
  weft_tensor* w = nullptr;
  weft_tree* tree = nullptr;
  weft_error* errors[] = {weft_tensor_from_host(ctx, nullptr, WEFT_F32, dims, 2, values, sizeof values, &w), weft_tree_create(&tree),
                          weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, w, nullptr),
                          weft_tree_add_i64(tree, WEFT_TREE_ROOT, "step", WEFT_STRLEN, 3, nullptr),
                          weft_checkpoint_save(ctx, "a.weft", WEFT_STRLEN, tree, nullptr, nullptr)};
  for (weft_error* error : errors) {
    if (error != nullptr) Fail(weft_error_message(error, nullptr));
    weft_error_release(error);
  }
  weft_tree_release(tree);
  weft_tensor_release(w);
}

}  // namespace

void MakeWorld(World& world, uint64_t seed) {
  for (int role = 0; role < kRoles; ++role) {
    world.places[role][static_cast<int>(Kind::kContext)][0] =
        reinterpret_cast<uintptr_t>(MakeContext(static_cast<Role>(role), seed + static_cast<uint64_t>(role)));
  }
  SaveFiles(reinterpret_cast<weft_context*>(world.places[0][static_cast<int>(Kind::kContext)][0].load()));
}

void EndWorld(World& world) {
  // Contexts last: a save in progress needs its own.
  for (int kind = kKinds; kind-- > 0;) {
    if (kind == static_cast<int>(Kind::kContext)) continue;
    for (auto& of_role : world.places) {
      for (Place& place : of_role[kind]) GiveBack(static_cast<Kind>(kind), reinterpret_cast<void*>(place.exchange(0)));
    }
  }
  for (auto& of_role : world.places) {
    for (Place& place : of_role[static_cast<int>(Kind::kContext)]) {
      // Some hold more than one reference: calls that retained it before it was put here twice.
      GiveBack(Kind::kContext, reinterpret_cast<void*>(place.exchange(0)));
    }
  }
}

void Fuzz::ReplaceContext() {
  const auto role = static_cast<Role>(role_);
  for (int kind = 0; kind < kKinds; ++kind) {
    if (kind == static_cast<int>(Kind::kContext)) continue;
    for (Place& place : world_.places[role_][kind]) {
      void* const old = reinterpret_cast<void*>(place.exchange(0));
      GiveBack(static_cast<Kind>(kind), old);
    }
  }
  const auto fresh = reinterpret_cast<uintptr_t>(MakeContext(role, Bits()));
  void* const old = reinterpret_cast<void*>(At(Kind::kContext, 0).exchange(fresh));
  weft_context_release(static_cast<weft_context*>(old));  // another thread may have made one as well
  Bury(Kind::kContext, old);
}

namespace {

void RemoveFolder() {
  std::error_code ignored;
  std::filesystem::current_path("/", ignored);
  std::filesystem::remove_all(g_settings.folder, ignored);
}

void Watchdog(std::vector<std::unique_ptr<Busy>>& all) {
  while (!g_over.load()) {
    usleep(200000);
    const int64_t now = NowNs();
    for (size_t i = 0; i < all.size(); ++i) {
      const int function = all[i]->function.load(std::memory_order_acquire);
      if (function < 0 || now - all[i]->since_ns.load() < g_settings.hang_seconds * int64_t{1000000000}) continue;
      std::fprintf(stderr, "FAILED: %s hangs: call %" PRId64 " of thread %zu in epoch %d takes longer than %d s; seed %" PRIu64 "\n",
                   kFunctions[function].name, all[i]->call.load(), i, all[i]->epoch.load(), g_settings.hang_seconds, g_settings.seed);
      DumpAllStacks();
      RemoveFolder();
      std::_Exit(3);
    }
  }
}

// Nothing is left of an epoch: no handle, no hook that was not ended.
void CheckNothingIsLeft(int epoch) {
  // Deleters of lent memory run in the next call, of any context.
  weft_context* const probe = MakeContext(Role::kReference, 1);
  const int64_t tensors = Metric(probe, "live_tensors"), handles = Metric(probe, "live_handles");
  const std::string where = " after epoch " + std::to_string(epoch) + ", seed " + std::to_string(g_settings.seed);
  if (tensors != 0) Fail(std::to_string(tensors) + " tensors live" + where);
  if (handles >= 0 && handles != 1) Fail(std::to_string(handles - 1) + " handles live" + where);
  weft_context_release(probe);
  if (g_owed != g_ended) Fail(std::to_string(g_owed) + " ends were handed over and " + std::to_string(g_ended) + " ran" + where);
  g_ended.store(g_owed.load());
}

// Until `over` says so, which is asked now and then, or until every thread made its calls.
void RunEpoch(int epoch, std::vector<std::unique_ptr<Busy>>& busy, std::vector<std::vector<Seen>>& seen, const std::function<bool()>& over) {
  const auto world = std::make_unique<World>();
  MakeWorld(*world, g_settings.seed + static_cast<uint64_t>(epoch));
  std::vector<std::thread> threads;
  for (int i = 0; i < g_settings.threads; ++i) {
    threads.emplace_back([&, i] {
      Fuzz fuzz(*world, *busy[static_cast<size_t>(i)], seen[static_cast<size_t>(i)]);
      t_fuzz = &fuzz;
      fuzz.Epoch(epoch, i);
      for (int64_t counted = 0; counted < g_settings.epoch_calls;) {
        fuzz.OneCall();
        if (fuzz.calls() - counted < 64) continue;
        g_calls.fetch_add(fuzz.calls() - counted, std::memory_order_relaxed);
        counted = fuzz.calls();
        if (over()) break;
      }
      t_fuzz = nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EndWorld(*world);
  CheckNothingIsLeft(epoch);
}

std::vector<Seen> Sum(const std::vector<std::vector<Seen>>& threads) {
  std::vector<Seen> all(kFunctionCount);
  for (const std::vector<Seen>& thread : threads) {
    for (size_t i = 0; i < kFunctionCount; ++i) {
      const Seen& from = thread[i];
      Seen& to = all[i];
      to.calls += from.calls, to.ok += from.ok, to.nested += from.nested, to.nested_ok += from.nested_ok;
      for (int c = 0; c < 17; ++c) {
        to.codes[c] += from.codes[c];
        if (to.texts[c].empty()) to.texts[c] = from.texts[c];
      }
      for (int w = 0; w < kWaits; ++w) to.waits[w] += from.waits[w];
      to.longest_ns = std::max(to.longest_ns, from.longest_ns);
      to.longest_lock_ns = std::max(to.longest_lock_ns, from.longest_lock_ns);
    }
  }
  return all;
}

std::string Codes(const Seen& seen, uint32_t mask) {
  std::string text;
  for (int c = 1; c < 17; ++c) {
    if (seen.codes[c] != 0 && (mask >> c & 1) != 0) text += (text.empty() ? "" : ", ") + std::string(kCodes[c]) + " " + std::to_string(seen.codes[c]);
  }
  return text;
}

bool Waited(const Seen& seen) {
  int64_t waits = 0;
  for (int w = 0; w < kWaits; ++w) waits += w == static_cast<int>(Wait::kLock) ? 0 : seen.waits[w];
  return waits != 0;
}

std::string Waits(const Seen& seen) {
  std::string text;
  for (int w = 0; w < kWaits; ++w) {
    if (seen.waits[w] != 0) text += (text.empty() ? "" : ", ") + std::string(NameOf(static_cast<Wait>(w))) + " " + std::to_string(seen.waits[w]);
  }
  return text;
}

bool MustSucceed(size_t function) {
  const char* const name = kFunctions[function].name;
  if (g_settings.only >= 0) return static_cast<size_t>(g_settings.only) == function;
  return std::ranges::none_of(kNever, [&](const Never& n) { return std::string_view(n.function) == name; }) &&
         std::ranges::find(g_settings.skip, name) == g_settings.skip.end();
}

bool MustNest(size_t function) {
  if (g_settings.only >= 0) return static_cast<size_t>(g_settings.only) == function;
  return std::ranges::find(g_settings.skip, kFunctions[function].name) == g_settings.skip.end();
}

// Functions that chance passed over, or never called inside an open body, are called on purpose, each in worlds of its own for so long:
// what succeeds is no matter of how fast the machine is.
void CallThoseThatFailed(int epoch, std::vector<std::unique_ptr<Busy>>& busy, std::vector<std::vector<Seen>>& seen) {
  // On a machine that others keep busy, half a minute is few calls.
  constexpr int64_t kSecondsEach = 30, kCallsEach = 300'000;
  const auto done = [&](size_t i) {
    const bool ok = std::ranges::any_of(seen, [&](const std::vector<Seen>& of_thread) { return of_thread[i].ok != 0; });
    const bool nested = std::ranges::any_of(seen, [&](const std::vector<Seen>& of_thread) { return of_thread[i].nested != 0; });
    return (ok || !MustSucceed(i)) && (nested || !MustNest(i));
  };
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (done(i)) continue;
    g_settings.only = static_cast<int>(i);
    const int64_t until = NowNs() + kSecondsEach * 1'000'000'000, calls = g_calls.load() + kCallsEach;
    while (!done(i) && (NowNs() < until || g_calls.load() < calls)) {
      const int64_t pause = NowNs() + 500'000'000;
      RunEpoch(++epoch, busy, seen, [=] { return NowNs() >= pause; });
    }
    g_settings.only = -1;
  }
}

// What was seen against what the description says.
void Compare(const std::vector<Seen>& seen) {
  int never = 0;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const Function& f = kFunctions[i];
    const Seen& s = seen[i];
    // That a function may fail with anything does not excuse faults of ours.
    const uint32_t allowed = f.errors & ~(1u << WEFT_INTERNAL | 1u << WEFT_UNKNOWN);
    for (int c = 1; c < 17; ++c) {
      if (s.codes[c] == 0 || (allowed >> c & 1) != 0) continue;
      Fail(std::string(f.name) + " does not declare " + kCodes[c] + ", seen " + std::to_string(s.codes[c]) + " times: \"" + s.texts[c] + "\"");
    }
    if (!f.blocking && Waited(s)) Fail(std::string(f.name) + " says that it does not block, and waits: " + Waits(s));
    if (s.nested == 0 && MustNest(i)) Fail(std::string(f.name) + " was never called inside an open body, in " + std::to_string(s.calls) + " calls");
    if (s.ok == 0) {
      if (MustSucceed(i)) Fail(std::string(f.name) + " never succeeded in " + std::to_string(s.calls) + " calls: " + Codes(s, ~0u) + "; \"" + s.texts[WEFT_INVALID_ARGUMENT] + "\"");
      ++never;
    }
  }
  std::printf("%zu functions, %d of them never succeeded\n", kFunctionCount, never);
  const auto least = [&](int64_t Seen::*count) { return std::ranges::min_element(seen, {}, count); };
  const auto calls = least(&Seen::calls), nested = least(&Seen::nested);
  std::printf("each called at least %" PRId64 " times (%s), inside an open body at least %" PRId64 " times (%s)\n", calls->calls,
              kFunctions[calls - seen.begin()].name, nested->nested, kFunctions[nested - seen.begin()].name);
}

void PrintTable(const std::vector<Seen>& seen) {
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const Seen& s = seen[i];
    std::printf("%-40s %9" PRId64 " calls %9" PRId64 " ok, %8" PRId64 " nested %8" PRId64 " ok  %8.1f ms  %s%s%s\n", kFunctions[i].name, s.calls,
                s.ok, s.nested, s.nested_ok, static_cast<double>(s.longest_ns) / 1e6, Codes(s, ~0u).c_str(), Waits(s).empty() ? "" : "  waits: ", Waits(s).c_str());
  }
}

void WriteRecord(const std::vector<Seen>& seen) {
  FILE* const file = std::fopen(g_settings.record.c_str(), "w");
  if (file == nullptr) return Fail("cannot write " + g_settings.record);
  std::fprintf(file, "{\"seed\": %" PRIu64 ", \"threads\": %d, \"calls\": %" PRId64 ", \"functions\": {\n", g_settings.seed, g_settings.threads, g_calls.load());
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const Seen& s = seen[i];
    std::string codes, waits;
    for (int c = 1; c < 17; ++c) {
      if (s.codes[c] != 0) codes += (codes.empty() ? "\"" : ", \"") + std::string(kCodes[c]) + "\": " + std::to_string(s.codes[c]);
    }
    for (int w = 0; w < kWaits; ++w) {
      if (s.waits[w] != 0) waits += (waits.empty() ? "\"" : ", \"") + std::string(NameOf(static_cast<Wait>(w))) + "\": " + std::to_string(s.waits[w]);
    }
    std::fprintf(file, "  \"%s\": {\"calls\": %" PRId64 ", \"ok\": %" PRId64 ", \"nested\": %" PRId64 ", \"nested_ok\": %" PRId64 ", \"codes\": {%s}, \"blocking\": %s, \"waits\": {%s}, \"longest_us\": %" PRId64 ", \"longest_lock_us\": %" PRId64 "}%s\n",
                 kFunctions[i].name, s.calls, s.ok, s.nested, s.nested_ok, codes.c_str(), kFunctions[i].blocking ? "true" : "false", waits.c_str(), s.longest_ns / 1000,
                 s.longest_lock_ns / 1000, i + 1 < kFunctionCount ? "," : "");
  }
  std::fprintf(file, "}}\n");
  std::fclose(file);
}

constexpr char kUsage[] =
    "usage: weft_abi_fuzz [--seconds S | --calls N] [--seed N] [--threads N] [--epoch N] [--epoch-calls N] [--only FUNCTION]\n"
    "                     [--skip FUNCTION]... [--hang S] [--starve N] [--cpu N] [--fork N] [--guard] [--record FILE] [--table]\n"
    "                     [--trace]\n\n"
    "Calls every exported function with valid and hostile arguments. An epoch is so many calls of each thread in one world, which\n"
    "is taken down after it; --epoch begins with that one. With --threads 1 a run is the same every time.\n"
    "  --only, --skip every other call is of this function, or none (to look behind a finding)\n"
    "  --hang S       a call longer than this is a failure, with all stacks (60)\n"
    "  --starve N     in one of N calls an allocation fails (16; 0: never)\n"
    "  --cpu N        one of N calls goes to a context that compiles (1000)\n"
    "  --fork N       after one of N calls of the first thread the process forks, and its child calls on (5000; 0: never)\n"
    "  --guard        writes behind blocks and into freed ones are failures, those of kernels made at run time and of Fortran, too\n"
    "  --record FILE  what was seen of each function, as JSON\n"
    "  --table        the same for people\n"
    "  --trace        every call that can fail, as it returns\n";

bool Read(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--table") {
      g_settings.table = true;
      continue;
    }
    if (name == "--trace") {
      g_settings.trace = true;
      continue;
    }
    if (name == "--guard") {
      g_settings.guard = true;
      continue;
    }
    if (name == "--test-overrun") {
      g_settings.test_overrun = true;
      continue;
    }
    if (name == "--test-hang") {
      g_settings.test_hang = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* const value = argv[++i];
    const int64_t number = std::strtoll(value, nullptr, 10);
    if (name == "--seconds") g_settings.seconds = std::strtod(value, nullptr);
    else if (name == "--calls") g_settings.calls = number;
    else if (name == "--seed") g_settings.seed = static_cast<uint64_t>(number);
    else if (name == "--threads") g_settings.threads = static_cast<int>(number);
    else if (name == "--epoch") g_settings.first_epoch = static_cast<int>(number);
    else if (name == "--epoch-calls") g_settings.epoch_calls = number;
    else if (name == "--hang") g_settings.hang_seconds = static_cast<int>(number);
    else if (name == "--starve") g_settings.starve = static_cast<int>(number);
    else if (name == "--cpu") g_settings.cpu = static_cast<int>(number);
    else if (name == "--fork") g_settings.fork = static_cast<int>(number);
    else if (name == "--skip") g_settings.skip.push_back(value);
    else if (name == "--only") {
      for (g_settings.only = 0; std::string_view(kFunctions[g_settings.only].name) != value;) {
        if (++g_settings.only == static_cast<int>(kFunctionCount)) return false;
      }
    }
    else if (name == "--record") g_settings.record = std::filesystem::absolute(value);
    else return false;
  }
  return g_settings.threads > 0 && g_settings.cpu > 0 && g_settings.epoch_calls > 0;
}

// Writes one byte behind a block and frees it, which --guard must find.
void WriteBehind() {
  volatile char* const block = static_cast<char*>(std::malloc(7));
  if (block == nullptr) return;
  block[7] = 1;
  std::free(const_cast<char*>(block));
}

// A folder of its own, where relative names end up as well.
void MakeFolder() {
  std::string folder = (std::filesystem::temp_directory_path() / "weft_abi_fuzz_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr || chdir(folder.c_str()) != 0) {
    std::perror("a temporary folder");
    std::exit(1);
  }
  g_settings.folder = folder;
  setenv("WEFT_CACHE_DIR", (folder + "/default").c_str(), 1);
}

int Main(int argc, char** argv) {
  if (argc == 2 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (!Read(argc, argv)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (g_settings.guard && !Guarded()) {  // from its first block on
    setenv("WEFT_FUZZ_GUARD", "1", 1);
    if (HooksWork()) execv("/proc/self/exe", argv);
    std::fputs("weft_abi_fuzz: --guard does not go with a sanitizer, which has a heap of its own\n", stderr);
    return 2;
  }
  MakeFolder();
  InstallWatch();
  if (g_settings.test_overrun) WriteBehind();
  if (!HooksWork()) g_settings.fork = 0;  // a sanitizer's own threads and locks do not survive a fork
  if (!AllocationsFail()) g_settings.starve = 0;
  std::vector<std::unique_ptr<Busy>> busy;
  for (int i = 0; i < g_settings.threads; ++i) busy.push_back(std::make_unique<Busy>());
  std::vector<std::vector<Seen>> seen(static_cast<size_t>(g_settings.threads), std::vector<Seen>(kFunctionCount));
  std::thread watchdog([&] { Watchdog(busy); });
  const int64_t from = NowNs(), until = from + static_cast<int64_t>(g_settings.seconds * 1e9);
  int64_t said = from;
  int epoch = g_settings.first_epoch;
  const auto over = [&] { return g_settings.calls != 0 ? g_calls.load(std::memory_order_relaxed) >= g_settings.calls : NowNs() >= until; };
  for (;; ++epoch) {
    RunEpoch(epoch, busy, seen, over);
    if (over()) break;
    if (g_failures.load() > 40) break;
    if (NowNs() - said < 10'000'000'000) continue;
    said = NowNs();
    std::printf("%" PRId64 " calls, epoch %d, %.0f s\n", g_calls.load(), epoch, static_cast<double>(said - from) / 1e9);
    std::fflush(stdout);
  }
  if (g_settings.only < 0) CallThoseThatFailed(epoch, busy, seen);
  const double took = static_cast<double>(NowNs() - from) / 1e9;
  g_over = true;
  watchdog.join();
  const std::vector<Seen> all = Sum(seen);
  if (g_settings.table) PrintTable(all);
  Compare(all);
  if (!g_settings.record.empty()) WriteRecord(all);
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  RemoveFolder();
  std::printf("%" PRId64 " calls in %.0f s (%.0f a second), %d threads, %d epochs, seed %" PRIu64 ", %ld MiB at most, %" PRId64 " failures\n",
              g_calls.load(), took, static_cast<double>(g_calls.load()) / took, g_settings.threads, epoch + 1 - g_settings.first_epoch,
              g_settings.seed, usage.ru_maxrss / 1024, g_failures.load());
  return g_failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::fuzz

int main(int argc, char** argv) { return weft::fuzz::Main(argc, argv); }
