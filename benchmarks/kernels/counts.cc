// Measures nanoseconds of one count and of one sample on one thread. The program links the runtime itself, not libweft.so.
// How many a step has is what `weft_metrics_render` says of one; benchmarks/seeing_inside.c has the cost of whole calls.
#include <memory>

#include "benchmarks/bench_util.h"
#include "src/runtime/metrics.h"

namespace {

using weft::Counter;
using weft::Sample;

constexpr int kTimes = 1 << 20;

// The median over the rounds, of nanoseconds for one call; `call` gets its number.
template <typename Call>
double Nanoseconds(bool quick, Call call) {
  std::vector<double> rounds;
  for (int round = 0; round < (quick ? 3 : 15); ++round) {
    const bench::Clock::time_point start = bench::Clock::now();
    for (int i = 0; i < kTimes; ++i) {
      call(i);
      __asm__ volatile("" ::: "memory");  // each is made
    }
    rounds.push_back(bench::Since(start) / kTimes * 1e9);
  }
  return bench::Median(rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  if (options.help || !options.rest.empty()) {
    std::fputs("usage: counts [--json] [--quick] [--help]\n", options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  const auto metrics = std::make_unique<weft::Metrics>();
  const double loop = Nanoseconds(options.quick, [](int) {});
  std::vector<bench::Row> rows;
  const auto add = [&](const char* name, auto call) {
    rows.push_back({name, std::max(0.0, Nanoseconds(options.quick, call) - loop), "ns", 0, 0, {}});
  };
  add("a count under the recording lock", [&](int) { metrics->AddAlone(Counter::kOperationsRecorded); });
  add("a count of any thread", [&](int) { metrics->Add(Counter::kLaunches); });
  add("a sample", [&](int i) { metrics->Add(Sample::kRun, 1000 + i % 100, i); });
  bench::Print(rows, options);
  return 0;
}
