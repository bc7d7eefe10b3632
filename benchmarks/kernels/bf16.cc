// Time of bf16 products and convolutions as a share of the same in f32, in the shapes of gemm_conv's networks: bf16 that takes
// longer than f32 is a trap. Calls of the two alternate, so what disturbs one disturbs the other. It looks inside: it links the
// CPU kernels themselves, not libweft.so.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/bench_util.h"
#include "src/backends/cpu/kernels/kernels.h"

namespace {

using weft::DType;
using weft::ThreadPool;
using namespace weft::cpu;

// Room for either type, aligned as a program's buffers are; zeros.
struct alignas(64) Line {
  char bytes[64] = {};
};
using Memory = std::vector<Line>;
Memory For(int64_t elements) { return Memory(static_cast<size_t>(elements / 16 + 1)); }

struct Bench {
  KernelSet& kernels;
  ThreadPool& pool;
  const bench::Options& options;
  std::vector<bench::Row> rows = {};
  bool failed = false;

  template <typename Call, typename Run>
  void Add(const std::string& name, Call call, double operations, Run run) {
    std::vector<double> times[2];
    const int rounds = options.quick ? 6 : 41;
    for (int round = 0; round < rounds; ++round) {
      for (int half = 0; half < 2; ++half) {
        call.input = call.output = half != 0 ? DType::kBF16 : DType::kF32;
        const int repeats = static_cast<int>(std::clamp(2e7 / operations, 1.0, 100.0));
        const bench::Clock::time_point start = bench::Clock::now();
        for (int i = 0; i < repeats; ++i) {
          const absl::Status status = run(call);
          if (status.ok()) continue;
          std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
          failed = true;
          return;
        }
        if (round > 0) times[half].push_back(bench::Since(start) / repeats * 1e3);  // the first compiles
      }
    }
    const double f32 = *std::min_element(times[0].begin(), times[0].end());
    const double bf16 = *std::min_element(times[1].begin(), times[1].end());
    const double ratio = bench::Median(times[1]) / bench::Median(times[0]);
    rows.push_back({name, ratio, "f32", 0, 0, {{"best", bf16 / f32}, {"ms", bf16}, {"f32 ms", f32}}});
  }

  void Gemm(const std::string& name, int64_t m, int64_t k, int64_t n, bool ta = false, bool tb = false) {
    const Memory a = For(m * k), b = For(k * n);
    Memory c = For(m * n);
    GemmCall call;
    call.m = m;
    call.k = k;
    call.n = n;
    call.a = {a.data(), ta ? 1 : k, ta ? m : 1, {}};
    call.b = {b.data(), tb ? 1 : n, tb ? k : 1, {}};
    call.c = c.data();
    const double operations = 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
    Add(name, call, operations, [&](const GemmCall& g) { return kernels.Gemm(g, pool); });
  }

  void Conv(const std::string& name, int64_t batch, int64_t size, int64_t in, int64_t out, int64_t window, int64_t stride,
            int64_t pad) {
    ConvCall call;
    call.batch = batch;
    call.in_channels = in;
    call.out_channels = out;
    for (int d = 0; d < 2; ++d) {
      call.dims[d] = {size, window, 0, stride, pad, pad};
      call.dims[d].out = OutputSize(call.dims[d]);
    }
    const int64_t pixels = batch * call.dims[0].out * call.dims[1].out, kernel = window * window * in * out;
    const Memory x = For(batch * size * size * in), w = For(kernel);
    Memory y = For(pixels * out);
    call.x = x.data();
    call.w = w.data();
    call.y = y.data();
    const double operations = 2.0 * static_cast<double>(pixels) * static_cast<double>(kernel);
    Add(name + " forward", call, operations, [&](const ConvCall& c) { return kernels.Conv(c, pool); });
    Add(name + " backward data", call, operations, [&](const ConvCall& c) { return kernels.ConvBackwardData(c, pool); });
    Add(name + " backward weights", call, operations, [&](const ConvCall& c) { return kernels.ConvBackwardWeights(c, pool); });
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  const std::string name = options.rest.empty() ? "auto" : options.rest[0];
  const bool wrong = options.rest.size() > 1 || name[0] == '-';
  if (options.help || wrong) {
    std::fputs("usage: bf16 [--json] [--quick] [--help] [auto | amx | avx512 | avx2 | portable | amx-model]\n", options.help ? stdout : stderr);
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
  Bench bench{kernels, pool, options};
  bench.Gemm("gemm 128^3", 128, 128, 128);
  bench.Gemm("gemm 512^3", 512, 512, 512);
  bench.Gemm("mlp 64x784x512", 64, 784, 512);
  bench.Gemm("mlp 64x256x10", 64, 256, 10);
  bench.Gemm("mlp dW 784x64x512", 784, 64, 512, true);
  bench.Gemm("mlp dX 64x256x512", 64, 256, 512, false, true);
  bench.Conv("cnn conv1 3x3 1-32 @28 b64", 64, 28, 1, 32, 3, 1, 0);
  bench.Conv("cnn conv2 3x3 32-64 @26 b64", 64, 26, 32, 64, 3, 1, 0);
  if (!options.quick) {
    bench.Gemm("gemm 1024^3", 1024, 1024, 1024);
    bench.Gemm("mlp 64x512x256", 64, 512, 256);
    bench.Gemm("mlp dW 512x64x256", 512, 64, 256, true);
    bench.Gemm("cnn fc 64x9216x128", 64, 9216, 128);
    bench.Gemm("cnn fc dW 9216x64x128", 9216, 64, 128, true);
    bench.Gemm("cnn fc dX 64x128x9216", 64, 128, 9216, false, true);
    for (const int64_t m : {1, 8, 32, 128}) bench.Gemm("gemm " + std::to_string(m) + "x768x3072", m, 768, 3072);
    bench.Conv("7x7s2 3-64 @224", 1, 224, 3, 64, 7, 2, 3);
    bench.Conv("1x1 64-256 @56", 1, 56, 64, 256, 1, 1, 0);
    bench.Conv("3x3 128 @28", 1, 28, 128, 128, 3, 1, 1);
    bench.Conv("3x3 512 @7", 1, 7, 512, 512, 3, 1, 1);
  }
  bench::Print(bench.rows, options);
  return bench.failed ? 1 : 0;
}
