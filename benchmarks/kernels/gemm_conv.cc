// The share of the fused-multiply-add peak that matrix products, convolutions and pooling reach, beside a probe taken
// in the same run. It looks inside: it links the CPU kernels themselves, not libweft.so.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <cstdlib>
#include <utility>
#include <vector>

#include "benchmarks/bench_util.h"
#include "benchmarks/kernels/conv_layer.h"
#include "src/backends/cpu/kernels/kernels.h"

namespace {

using bench::Layer;
using weft::ThreadPool;
using namespace weft::cpu;

struct Bench {
  Bench(KernelSet& kernels, ThreadPool& pool, const bench::Options& options)
      : kernels(kernels), pool(pool), options(options) {}

  bool Wanted(const std::string& name) const { return name.find(only) != std::string::npos; }

  void Add(const std::string& name, double flops, const std::function<absl::Status()>& fn) {
    if (!Wanted(name)) return;
    const absl::Status status = fn();
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
      failed = true;
      return;
    }
    const bench::Sample sample = bench::Measure(pool.threads(), [&] { fn().IgnoreError(); }, options.quick ? 3 : 11,
                                                options.quick ? 0.3 : 2.0);
    if (sample.Void()) {
      std::fprintf(stderr, "%s: no undisturbed sample (%d dropped)\n", name.c_str(), sample.dropped);
      failed = true;
      return;
    }
    const double rate = flops / sample.seconds * 1e-9;
    if (rate > 1.02 * sample.probe) {
      std::fprintf(stderr, "%s: %.0f GF/s passes the probe's %.0f: the run is void\n", name.c_str(), rate, sample.probe);
      failed = true;
    }
    rows.push_back({name, rate, "GF/s", sample.probe, rate / sample.probe, {}});
  }

  // `kept`: B was packed before, as a weight is that comes to launch after launch.
  void Gemm(const std::string& name, int64_t m, int64_t k, int64_t n, bool ta, bool tb, bool kept = false) {
    const std::vector<float> a(m * k, 0.5f), b(k * n, 0.25f);
    std::vector<float> c(m * n);
    GemmCall call;
    call.m = m;
    call.k = k;
    call.n = n;
    call.a = {a.data(), ta ? 1 : k, ta ? m : 1, {}};
    call.b = {b.data(), tb ? 1 : n, tb ? k : 1, {}};
    call.c = c.data();
    std::vector<char> packed(kept ? PackedBytesOfB(kernels.target(), call) + 64 : 0);
    if (kept) {
      void* const aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64);
      failed = failed || !kernels.PackB(call, aligned, pool).ok();
      call.b.data = aligned;
      call.b_packed = true;
    }
    Add(name, 2.0 * m * k * n, [&] { return kernels.Gemm(call, pool); });
  }

  // Few rows: the speed at which B is read, against that at which the pool reads the same memory and does nothing with it.
  // Calls of these alternate with a third kind, C += A B, which goes through register tiles as any other product does and
  // packs a transposed B.
  void FewRows(const std::string& name, int64_t m, int64_t k, int64_t n, bool tb, weft::DType dtype = weft::DType::kF32) {
    if (!Wanted(name)) return;
    const int64_t width = weft::BytesOf(dtype), bytes = k * n * width;
    const std::vector<char> a(m * k * width, 0), b(bytes, 0);
    std::vector<float> c(m * n);
    GemmCall call;
    call.input = dtype;
    call.m = m;
    call.k = k;
    call.n = n;
    call.a = {a.data(), k, 1, {}};
    call.b = {b.data(), tb ? 1 : n, tb ? k : 1, {}};
    call.c = c.data();
    std::vector<double> times[3];
    for (int round = 0; round < (options.quick ? 6 : 41); ++round) {
      for (int i = 0; i < 3; ++i) {
        call.accumulate = i == 2;
        const bench::Clock::time_point start = bench::Clock::now();
        if (i != 1) {
          failed = failed || !kernels.Gemm(call, pool).ok();
        } else {
          // The C library's search is the widest loop of loads at hand.
          std::atomic<bool> found{false};
          pool.ParallelRanges(bytes, [&](int64_t begin, int64_t end, int) {
            if (std::memchr(b.data() + begin, 1, end - begin) != nullptr) found.store(true, std::memory_order_relaxed);
          });
          failed = failed || found.load(std::memory_order_relaxed);
        }
        if (round > 0) times[i].push_back(bench::Since(start));
      }
    }
    const double rate = static_cast<double>(bytes) * 1e-9 / bench::Median(times[0]);
    const double ceiling = static_cast<double>(bytes) * 1e-9 / bench::Median(times[1]);
    rows.push_back({name, rate, "GB/s", ceiling, rate / ceiling, {{"us", bench::Median(times[0]) * 1e6}, {"tiles us", bench::Median(times[2]) * 1e6}}});
  }

  void Conv(const std::string& name, int64_t batch, int64_t size, int64_t in, int64_t out, int64_t window, int64_t stride,
            int64_t pad) {
    const Layer layer(batch, size, in, out, window, stride, pad, 1);
    const ConvCall& call = layer.call;
    Add(name + " forward", layer.flops, [&] { return kernels.Conv(call, pool); });
    if (in > 3) Add(name + " backward data", layer.flops, [&] { return kernels.ConvBackwardData(call, pool); });
    Add(name + " backward weights", layer.flops, [&] { return kernels.ConvBackwardWeights(call, pool); });
  }

  // Grouped 3x3 layers: time against the dense layer's of the same sizes, which does `groups` times as much. Calls of the
  // two alternate, all of them count: what disturbs one disturbs the other. A ratio of medians above `limit` fails.
  void Grouped(const std::string& name, int64_t batch, int64_t size, int64_t channels, int64_t groups, double limit) {
    if (!Wanted(name)) return;
    const Layer grouped(batch, size, channels, channels, 3, 1, 1, groups), dense(batch, size, channels, channels, 3, 1, 1, 1);
    using Direction = absl::Status (KernelSet::*)(const ConvCall&, ThreadPool&);
    const std::pair<const char*, Direction> directions[] = {{" forward", &KernelSet::Conv},
                                                            {" backward data", &KernelSet::ConvBackwardData},
                                                            {" backward weights", &KernelSet::ConvBackwardWeights}};
    for (const auto& [words, direction] : directions) {
      std::vector<double> times[2];
      for (int round = 0; round < (options.quick ? 6 : 31); ++round) {
        for (int i = 0; i < 2; ++i) {
          const bench::Clock::time_point start = bench::Clock::now();
          const absl::Status status = (kernels.*direction)((i == 0 ? grouped : dense).call, pool);
          if (!status.ok()) {
            std::fprintf(stderr, "%s%s: %s\n", name.c_str(), words, std::string(status.message()).c_str());
            failed = true;
            return;
          }
          if (round > 0) times[i].push_back(bench::Since(start) * 1e3);  // the first compiles and faults pages in
        }
      }
      const double median[2] = {bench::Median(times[0]), bench::Median(times[1])};
      const double best[2] = {*std::min_element(times[0].begin(), times[0].end()),
                              *std::min_element(times[1].begin(), times[1].end())};
      const double ratio = median[0] / median[1];
      rows.push_back({name + words, ratio, "dense", 0, 0,
                      {{"best", best[0] / best[1]}, {"ms", median[0]}, {"best ms", best[0]}, {"dense ms", median[1]},
                       {"dense best ms", best[1]}}});
      if (ratio > limit) {
        std::fprintf(stderr, "%s%s: %.2f of the dense layer's time, %.2f at most\n", name.c_str(), words, ratio, limit);
        failed = true;
      }
    }
  }

  KernelSet& kernels;
  ThreadPool& pool;
  const bench::Options& options;
  std::string only;  // rows whose names have it
  std::vector<bench::Row> rows;
  bool failed = false;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Options options = bench::Parse(argc, argv);
  std::string name = "auto", only;
  bool wrong = false;
  for (size_t i = 0; i < options.rest.size(); ++i) {
    if (options.rest[i] == "--threads") {
      options.threads = i + 1 < options.rest.size() ? bench::Count(options.rest[++i]) : 0;
    } else if (options.rest[i] == "--only" && i + 1 < options.rest.size()) {
      only = options.rest[++i];
    } else {
      wrong = wrong || name != "auto" || options.rest[i][0] == '-';
      name = options.rest[i];
    }
  }
  if (options.help || wrong || options.threads == 0) {
    std::fputs("usage: gemm_conv [--json] [--quick] [--threads N] [--only TEXT] [--help] [auto | amx | avx512 | avx2 | portable | amx-model]\n", options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  const absl::StatusOr<CpuTarget> target = TargetFromName(name);
  if (!target.ok()) {
    std::fprintf(stderr, "%s\n", std::string(target.status().message()).c_str());
    return 2;
  }
  KernelSet kernels(*target);
  ThreadPool pool(options.threads);
  pool.BeginRun();
  Bench bench(kernels, pool, options);
  bench.only = only;
  const double peak = bench::Peak(options.threads);
  const double probe = bench::BestProbe(options.threads);
  // At least one such instruction a cycle; cores with two show a ratio of 2.
  bench.rows.push_back({"probe", probe, "GF/s", peak, probe / peak, {}});
  if (probe < 0.85 * peak) {
    std::fprintf(stderr, "the probe reaches %.0f of %.0f GF/s: the run is void\n", probe, peak);
    bench.failed = true;
  }

  bench.Gemm("gemm 128^3", 128, 128, 128, false, false);
  bench.Gemm("gemm 512^3", 512, 512, 512, false, false);
  bench.Gemm("gemm 1024^3", 1024, 1024, 1024, false, false);
  bench.Gemm("mlp 64x784x512", 64, 784, 512, false, false);
  bench.Gemm("mlp 64x512x256", 64, 512, 256, false, false);
  bench.Gemm("mlp 64x256x10", 64, 256, 10, false, false);
  bench.Gemm("mlp dW 784x64x512", 784, 64, 512, true, false);
  bench.Gemm("mlp dW 512x64x256", 512, 64, 256, true, false);
  bench.Gemm("mlp dX 64x256x512", 64, 256, 512, false, true);
  bench.Gemm("cnn fc 64x9216x128", 64, 9216, 128, false, false);
  bench.Gemm("cnn fc dW 9216x64x128", 9216, 64, 128, true, false);
  bench.Gemm("cnn fc dX 64x128x9216", 64, 128, 9216, false, true);
  bench.Conv("cnn conv1 3x3 1-32 @28 b64", 64, 28, 1, 32, 3, 1, 0);
  bench.Conv("cnn conv2 3x3 32-64 @26 b64", 64, 26, 32, 64, 3, 1, 0);
  bench.Grouped("depthwise 3x3 128 @56 b8", 8, 56, 128, 128, 0.3);
  if (!options.quick) {
    bench.Grouped("depthwise 3x3 144 @56 b4", 4, 56, 144, 144, 0.3);
    bench.Grouped("32 groups of 4, 3x3 128 @56 b4", 4, 56, 128, 32, 1);
    bench.Grouped("16 groups of 8, 3x3 128 @56 b4", 4, 56, 128, 16, 1);
    bench.Grouped("32 groups of 16, 3x3 512 @14 b4", 4, 14, 512, 32, 1);
    bench.FewRows("stream 1x768x3072", 1, 768, 3072, false);
    bench.FewRows("stream 1x3072x768", 1, 3072, 768, false);
    bench.FewRows("stream 1x768x3072 transposed", 1, 768, 3072, true);
    bench.FewRows("stream 1x768x50257 transposed", 1, 768, 50257, true);
    bench.FewRows("stream 1x768x50257", 1, 768, 50257, false);
    bench.FewRows("stream 4x768x50257 transposed", 4, 768, 50257, true);
    bench.FewRows("stream 8x768x3072", 8, 768, 3072, false);
    bench.FewRows("stream 8x768x3072 transposed", 8, 768, 3072, true);
    bench.FewRows("stream bf16 1x768x50257 transposed", 1, 768, 50257, true, weft::DType::kBF16);
    bench.FewRows("stream bf16 1x768x3072", 1, 768, 3072, false, weft::DType::kBF16);
    for (int64_t m : {32, 128}) {
      bench.Gemm("gemm " + std::to_string(m) + "x768x3072, kept", m, 768, 3072, false, false, true);
      bench.Gemm("gemm " + std::to_string(m) + "x768x3072 transposed", m, 768, 3072, false, true);
      bench.Gemm("gemm " + std::to_string(m) + "x768x3072 transposed, kept", m, 768, 3072, false, true, true);
    }
    for (int64_t m : {1, 8, 32, 128}) bench.Gemm("gemm " + std::to_string(m) + "x768x3072", m, 768, 3072, false, false);
    bench.Conv("7x7s2 3-64 @224", 1, 224, 3, 64, 7, 2, 3);
    bench.Conv("1x1 64-256 @56", 1, 56, 64, 256, 1, 1, 0);
    bench.Conv("3x3 64 @56", 1, 56, 64, 64, 3, 1, 1);
    bench.Conv("3x3s2 128 @56", 1, 56, 128, 128, 3, 2, 1);
    bench.Conv("3x3 256 @14", 1, 14, 256, 256, 3, 1, 1);
    bench.Conv("3x3 512 @7", 1, 7, 512, 512, 3, 1, 1);
  }
  bench::Print(bench.rows, options);
  return bench.failed ? 1 : 0;
}
