// What counting costs by itself: nanoseconds of a count and of a sample, one thread. It looks inside: it links the runtime, not libweft.so.
// How many a step has is what `weft_metrics_render` says of one; benchmarks/seeing_inside.c has the cost of whole calls.
#include <memory>

#include "benchmarks/bench_util.h"
#include "src/runtime/metrics.h"

namespace {

using weft::Counter;
using weft::Sample;

constexpr int kRounds = 15, kTimes = 1 << 20;

// The median over the rounds, of nanoseconds for one call; `call` gets its number.
template <typename Call>
double Nanoseconds(Call call) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
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

int main() {
  const auto metrics = std::make_unique<weft::Metrics>();
  const double loop = Nanoseconds([](int) {});
  std::printf("nanoseconds, the loop's %.2f taken off\n", loop);
  std::printf("%6.1f  a count under the recording lock (limit 3)\n",
              Nanoseconds([&](int) { metrics->AddAlone(Counter::kOperationsRecorded); }) - loop);
  std::printf("%6.1f  a count of any thread\n", Nanoseconds([&](int) { metrics->Add(Counter::kLaunches); }) - loop);
  std::printf("%6.1f  a sample (limit 20)\n", Nanoseconds([&](int i) { metrics->Add(Sample::kRun, 1000 + i % 100, i); }) - loop);
}
