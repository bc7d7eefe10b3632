// What benchmarks share: the peak of fused multiply-adds measured beside every sample, a guard that drops samples taken
// while a neighbour had the core, medians, and JSON. Header-only and without Weft, so that a program which links
// nothing but libweft.so can include it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;
// The upper one of an even number.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// --- the probe ---------------------------------------------------------------------------------------------------
// Twelve accumulators by name: g++ 12 spills an array of them and then shows half the peak. Each returns the floating
// point operations of `rounds` rounds.
#define WEFT_PROBE_12(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)

inline double ProbeAvx512(long rounds) {
#define WEFT_CLEAR(i) "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n"
#define WEFT_FMA(i) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" #i "\n"
  __asm__ volatile("mov %0, %%rcx\n" WEFT_PROBE_12(WEFT_CLEAR) WEFT_CLEAR(30) WEFT_CLEAR(31)
                   "1:\n" WEFT_PROBE_12(WEFT_FMA) WEFT_PROBE_12(WEFT_FMA) "dec %%rcx\njnz 1b\nvzeroupper\n"
                   :
                   : "r"(rounds)
                   : "rcx", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                     "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#undef WEFT_CLEAR
#undef WEFT_FMA
  return rounds * 24.0 * 32;
}

inline double ProbeAvx2(long rounds) {
#define WEFT_CLEAR(i) "vxorps %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n"
#define WEFT_FMA(i) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n"
  __asm__ volatile("mov %0, %%rcx\n" WEFT_PROBE_12(WEFT_CLEAR) WEFT_CLEAR(12) WEFT_CLEAR(13)
                   "1:\n" WEFT_PROBE_12(WEFT_FMA) WEFT_PROBE_12(WEFT_FMA) "dec %%rcx\njnz 1b\nvzeroupper\n"
                   :
                   : "r"(rounds)
                   : "rcx", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                     "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
#undef WEFT_CLEAR
#undef WEFT_FMA
  return rounds * 24.0 * 16;
}

// Without fused multiply-add: adds and multiplies alternate.
inline double ProbeSse(long rounds) {
#define WEFT_CLEAR(i) "xorps %%xmm" #i ", %%xmm" #i "\n"
#define WEFT_ADD(i) "addps %%xmm12, %%xmm" #i "\n"
#define WEFT_MUL(i) "mulps %%xmm12, %%xmm" #i "\n"
  __asm__ volatile("mov %0, %%rcx\n" WEFT_PROBE_12(WEFT_CLEAR) WEFT_CLEAR(12)
                   "1:\n"
                   WEFT_ADD(0) WEFT_MUL(1) WEFT_ADD(2) WEFT_MUL(3) WEFT_ADD(4) WEFT_MUL(5) WEFT_ADD(6) WEFT_MUL(7)
                   WEFT_ADD(8) WEFT_MUL(9) WEFT_ADD(10) WEFT_MUL(11) "dec %%rcx\njnz 1b\n"
                   :
                   : "r"(rounds)
                   : "rcx", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                     "xmm9", "xmm10", "xmm11", "xmm12");
#undef WEFT_CLEAR
#undef WEFT_ADD
#undef WEFT_MUL
  return rounds * 12.0 * 4;
}
#undef WEFT_PROBE_12

inline int FlopsPerInstruction() {
  return __builtin_cpu_supports("avx512f") ? 32 : __builtin_cpu_supports("fma") ? 16 : 4;
}
inline double ProbeRounds(long rounds) {
  if (__builtin_cpu_supports("avx512f")) return ProbeAvx512(rounds);
  return __builtin_cpu_supports("fma") ? ProbeAvx2(rounds) : ProbeSse(rounds);
}

// GF/s of `threads` threads at once, over about a millisecond. Each counts from where it begins: waking up is not work.
inline double Probe(int threads) {
  const long rounds = 150'000;
  std::atomic<int> ready{0};
  std::vector<double> rates(static_cast<size_t>(threads));
  const auto run = [&](int t) {
    ready.fetch_add(1);
    while (ready.load(std::memory_order_acquire) != threads) __builtin_ia32_pause();
    const Clock::time_point start = Clock::now();
    const double flops = ProbeRounds(rounds);
    rates[static_cast<size_t>(t)] = flops / Since(start) * 1e-9;
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(run, t);
  run(0);
  for (std::thread& helper : helpers) helper.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

// Cycles per second by a chain of dependent multiplications, three cycles each on every x86 core of the last ten years.
// (Newer ones join the additions of constants that follow one another.)
inline double ClockHz() {
  const long count = 200'000;
  long value = 1;
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point start = Clock::now();
    __asm__ volatile("mov %1, %%rcx\n1:\nimul %0, %0\nimul %0, %0\nimul %0, %0\nimul %0, %0\ndec %%rcx\njnz 1b\n"
                     : "+r"(value) : "r"(count / 4) : "rcx", "cc");
    best = std::min(best, Since(start));
  }
  return 3 * count / best;
}

// GF/s that so many cores have on paper: cycles, lanes, and as many units as one core is seen to have.
inline double Peak(int threads) {
  const double unit = ClockHz() * FlopsPerInstruction() * 1e-9;
  double best = 0;
  for (int i = 0; i < 5; ++i) best = std::max(best, Probe(1));
  return unit * std::max(1.0, std::round(best / unit)) * threads;
}

// --- guarded samples -----------------------------------------------------------------------------------------------
struct Sample {
  double seconds = 0;    // median of the valid samples
  double best = 0;       // the shortest of them
  std::vector<double> times;
  double probe = 0;      // the best probe seen beside them, GF/s
  int valid = 0, dropped = 0;
  bool Void() const { return valid == 0; }
};

// Seconds that the process's living threads have been ready to run and waited for a core.
inline double SecondsWaitingForCores() {
  double total = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0, waited = 0;
    if (file >> ran >> waited) total += waited * 1e-9;
  }
  return total;
}

// The best probe of the process so far, per number of threads: what "undisturbed" means.
inline double& BestProbe(int threads) {
  static std::map<int, double> best;
  double& value = best[threads];
  if (value == 0) {
    for (int i = 0; i < 20; ++i) value = std::max(value, Probe(threads));
  }
  return value;
}

// Runs `fn` until `wanted` samples are valid or `limit` seconds are over. A sample is valid if the probes before and
// after it reach 85 % of the best one and the process's threads were not kept waiting for a core: 2 % of the time at
// most. Where the process has more threads than cores (`crowded`) they wait for each other, in short steps most of the
// time: 20 % more than in the calmer quarter of all samples. fn's own work is repeated inside to fill a millisecond.
inline Sample Measure(int threads, const std::function<void()>& fn, int wanted = 11, double limit = 3.0,
                      bool crowded = false) {
  fn();  // compiles, faults pages in
  Clock::time_point start = Clock::now();
  fn();
  const int repeats = static_cast<int>(std::clamp(1e-3 / std::max(1e-9, Since(start)), 1.0, 10'000.0));
  struct Taken {
    double seconds, waited;  // waited: its share of the time
  };
  std::vector<Taken> taken;
  Sample sample;
  const Clock::time_point begin = Clock::now();
  double before = Probe(threads);
  while (static_cast<int>(taken.size()) < wanted && Since(begin) < limit) {
    const double waited = SecondsWaitingForCores();
    start = Clock::now();
    for (int i = 0; i < repeats; ++i) fn();
    const double seconds = Since(start);
    const double share = (SecondsWaitingForCores() - waited) / seconds;
    const double after = Probe(threads);
    double& best = BestProbe(threads);
    best = std::max({best, before, after});
    if ((crowded || share <= 0.02) && std::min(before, after) >= 0.85 * best) {
      taken.push_back({seconds / repeats, share});
    } else {
      ++sample.dropped;
    }
    before = after;
  }
  sample.probe = BestProbe(threads);
  if (taken.empty()) return sample;
  if (crowded) {
    std::sort(taken.begin(), taken.end(), [](const Taken& a, const Taken& b) { return a.waited < b.waited; });
    const double calm = taken[taken.size() / 4].waited;
    const auto end = std::find_if(taken.begin(), taken.end(), [&](const Taken& t) { return t.waited > calm + 0.2; });
    sample.dropped += static_cast<int>(taken.end() - end);
    taken.erase(end, taken.end());
  }
  for (const Taken& t : taken) sample.times.push_back(t.seconds);
  sample.valid = static_cast<int>(taken.size());
  sample.seconds = Median(sample.times);
  sample.best = *std::min_element(sample.times.begin(), sample.times.end());
  return sample;
}

// --- peers -----------------------------------------------------------------------------------------------------------
// By peer, milliseconds.
struct PeerTimes {
  std::map<std::string, double> best, median;
};

// benchmarks/peers/peers beside the sources, above the folder that this program was built into; empty if it is not there.
inline std::string PeersScript() {
  std::error_code error;
  for (std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    const std::string script = (folder / "benchmarks" / "peers" / "peers").string();
    if (access(script.c_str(), X_OK) == 0) return script;
  }
  return "";
}

// Runs the script with these options; it prints "<workload> <peer> <best> <median>" a line. `folder`: where its virtual environment
// stays, empty: nowhere.
inline bool ReadPeers(const std::string& options, const std::string& folder, bool quick, std::map<std::string, PeerTimes>* out) {
  const std::string script = PeersScript();
  if (script.empty()) {
    std::fprintf(stderr, "benchmarks/peers/peers is not above this program\n");
    return false;
  }
  std::string command = "'" + script + "' " + options + " --seconds " + (quick ? "2" : "6");
  if (!folder.empty()) command += " --keep '" + folder + "'";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return false;
  char workload[64], peer[64];
  double best = 0, median = 0;
  while (std::fscanf(pipe, "%63s %63s %lf %lf", workload, peer, &best, &median) == 4) {
    (*out)[workload].best[peer] = best;
    (*out)[workload].median[peer] = median;
  }
  return pclose(pipe) == 0;
}

// --- output ----------------------------------------------------------------------------------------------------------
struct Row {
  std::string name;
  double value = 0;
  std::string unit;
  double floor = 0;  // what the machine allows, in the same unit; 0: there is no such figure
  double ratio = 0;  // value against floor, 1 is perfect
  std::map<std::string, double> peers;
};

struct Options {
  bool json = false, quick = false, help = false;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::string> rest;  // what all programs do not share
};
inline Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      options.json = true;
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      options.quick = true;
    } else if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      options.help = true;
    } else {
      options.rest.push_back(argv[i]);
    }
  }
  return options;
}

// A whole number of 1 or more; 0 if the text is none.
inline int Count(const std::string& text) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  return end != text.c_str() && *end == 0 && value >= 1 && value <= 1'000'000'000 ? static_cast<int>(value) : 0;
}

inline std::string Machine() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, name = "unknown";
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) == 0) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  }
  return name + " x" + std::to_string(std::thread::hardware_concurrency());
}

inline void Print(const std::vector<Row>& rows, const Options& options) {
  if (!options.json) {
    for (const Row& row : rows) {
      std::printf("%-44s %12.2f %-6s", row.name.c_str(), row.value, row.unit.c_str());
      if (row.floor > 0) std::printf(" floor %12.2f  ratio %6.3f", row.floor, row.ratio);
      for (const auto& [peer, value] : row.peers) std::printf("  %s %.2f", peer.c_str(), value);
      std::printf("\n");
    }
    return;
  }
  const std::string machine = Machine();
  std::printf("[");
  for (size_t i = 0; i < rows.size(); ++i) {
    std::printf("%s\n {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", ", i == 0 ? "" : ",", rows[i].name.c_str(),
                rows[i].value, rows[i].unit.c_str());
    if (rows[i].floor > 0) {
      std::printf("\"floor\": %.6g, \"ratio\": %.4g, \"peers\": {", rows[i].floor, rows[i].ratio);
    } else {
      std::printf("\"floor\": null, \"ratio\": null, \"peers\": {");
    }
    bool first = true;
    for (const auto& [peer, value] : rows[i].peers) {
      std::printf("%s\"%s\": %.6g", first ? "" : ", ", peer.c_str(), value);
      first = false;
    }
    std::printf("}, \"machine\": \"%s\"}", machine.c_str());
  }
  std::printf("\n]\n");
}

}  // namespace bench
